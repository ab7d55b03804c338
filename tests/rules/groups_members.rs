//! Static members, and what a restart leaves of a group.

use bytes::Bytes;
use corelane::state::groups::messages::{Command, Join, Membership};
use corelane::wire::error_code::ErrorCode;

use super::groups_world::{Logged, World, again, consumer, fixed, protocols, replayed, sync, who};

const NONE: ErrorCode = ErrorCode::None;

/// A stable group of a static leader `s` and a member `b`.
fn pair(world: &mut World) -> (Membership, Membership) {
    let mut members = world.stable_with(vec![fixed("g", "s", "i"), consumer("g", "b")]);
    let b = members.remove(1);
    (members.remove(0), b)
}

#[test]
fn a_static_member_that_comes_back_gets_a_new_id_and_nobody_else_notices() {
    for may_skip_assignment in [false, true] {
        let mut world = World::new();
        let (s, b) = pair(&mut world);
        let back = Join { may_skip_assignment, ..fixed("g", "s", "i") };
        let ticket = world.ask(Command::Join(back));
        let joined = world.joined(ticket);
        assert_eq!((joined.error, joined.generation), (NONE, 1));
        assert!(joined.member_id.starts_with("i-") && joined.member_id != s.member_id);
        assert_eq!(joined.skip_assignment, may_skip_assignment);
        let (leader, members) = if may_skip_assignment { (&joined.member_id, 2) } else { (&s.member_id, 0) };
        assert_eq!((&joined.leader, joined.members.len()), (leader, members), "an old leader is not to assign");
        assert_eq!(world.heartbeat(&b), NONE);
        assert_eq!(world.heartbeat(&s), ErrorCode::FencedInstanceId);
        assert_eq!(world.commit(&s, 1), ErrorCode::FencedInstanceId);
        let new = Membership { member_id: joined.member_id.clone(), ..s.clone() };
        assert_eq!(world.heartbeat(&new), NONE);
        let ticket = world.ask(sync(&new, Vec::new()));
        assert_eq!(world.synced(ticket).assignment, Bytes::from("s"), "the old one's assignment");
        world.restart();
        assert_eq!((world.heartbeat(&new), world.heartbeat(&s)), (NONE, ErrorCode::FencedInstanceId));
        assert_eq!(world.state("g"), "Stable");
    }
}

#[test]
fn a_static_member_whose_new_id_does_not_reach_the_log_keeps_the_old_one() {
    let mut world = World::new();
    let (s, _) = pair(&mut world);
    world.quick_log = false;
    let other = Join { protocols: protocols(&["range"], &["u"]), ..fixed("g", "s", "i") };
    let ticket = world.ask(Command::Join(other));
    assert_eq!(world.answer(ticket), None);
    world.end_append(Err(ErrorCode::KafkaStorageError));
    let joined = world.joined(ticket);
    assert_eq!((joined.error, joined.member_id.as_str()), (ErrorCode::NotCoordinator, ""));
    assert_eq!(world.heartbeat(&s), NONE);
    let described = world.describe("g");
    let member = described.members.iter().find(|m| m.member_id == s.member_id).unwrap();
    assert_eq!(member.metadata, protocols(&["range"], &["t"])[0].1, "what it said before");
    let leader = world.ask(Command::Join(again(&fixed("g", "s", "i"), &s)));
    assert_eq!(world.answer(leader), None, "still the leader");
    assert_eq!(world.state("g"), "PreparingRebalance");
}

#[test]
fn a_static_member_that_would_change_the_assignor_starts_a_round() {
    let mut world = World::new();
    let both = |client: &str| Join { protocols: protocols(&["range", "sticky"], &["t"]), ..fixed("g", client, client) };
    world.stable_with(vec![both("s")]);
    let other = Join { protocols: protocols(&["sticky", "range"], &["t"]), ..both("s") };
    let ticket = world.ask(Command::Join(other));
    let joined = world.joined(ticket);
    assert_eq!((joined.generation, joined.protocol.as_deref()), (2, Some("sticky")));
}

#[test]
fn a_static_member_that_comes_back_while_the_leader_assigns_starts_a_round() {
    let mut world = World::new();
    let s = world.ask(Command::Join(fixed("g", "s", "i")));
    let b = world.ask(Command::Join(consumer("g", "b")));
    world.pass(6_000);
    let (_, b) = (world.joined(s), world.joined(b));
    let waiting = world.ask(sync(&who("g", &b.member_id, 1), Vec::new()));
    let back = world.ask(Command::Join(fixed("g", "s", "i")));
    assert_eq!(world.synced(waiting).error, ErrorCode::RebalanceInProgress);
    assert_eq!(world.answer(back), None);
    assert_eq!(world.state("g"), "PreparingRebalance");
}

#[test]
fn a_double_that_waits_is_fenced() {
    let mut world = World::new();
    let first = world.ask(Command::Join(fixed("g", "s", "i")));
    let second = world.ask(Command::Join(fixed("g", "s", "i")));
    let fenced = world.joined(first);
    assert_eq!(fenced.error, ErrorCode::FencedInstanceId);
    world.pass(6_000);
    let joined = world.joined(second);
    assert_eq!((joined.generation, joined.members.len()), (1, 1));
    let with_the_old_id = Join { member_id: fenced.member_id, ..fixed("g", "s", "i") };
    let ticket = world.ask(Command::Join(with_the_old_id));
    assert_eq!(world.joined(ticket).error, ErrorCode::FencedInstanceId);
    let unknown_name = Join { member_id: joined.member_id, ..fixed("g", "s", "other") };
    let ticket = world.ask(Command::Join(unknown_name));
    assert_eq!(world.joined(ticket).error, ErrorCode::UnknownMemberId);
}

#[test]
fn two_that_come_back_at_once_leave_the_last() {
    let mut world = World::new();
    let (s, _) = pair(&mut world);
    world.quick_log = false;
    let second = world.ask(Command::Join(fixed("g", "s", "i")));
    let third = world.ask(Command::Join(fixed("g", "s", "i")));
    assert_eq!(world.joined(second).error, ErrorCode::FencedInstanceId);
    world.flush();
    let joined = world.joined(third);
    assert_eq!(joined.error, NONE);
    let new = Membership { member_id: joined.member_id, ..s };
    assert_eq!(world.heartbeat(&new), NONE);
    world.restart();
    assert_eq!(world.heartbeat(&new), NONE);
}

#[test]
fn a_static_member_that_came_back_takes_part_in_a_round_that_began_meanwhile() {
    let mut world = World::new();
    let (s, b) = pair(&mut world);
    world.quick_log = false;
    let back = world.ask(Command::Join(fixed("g", "s", "i")));
    let newcomer = world.ask(Command::Join(consumer("g", "c")));
    world.flush();
    assert_eq!(world.answer(back), None, "it waits for the round now");
    let b = world.ask(Command::Join(again(&consumer("g", "b"), &b)));
    let joined = world.joined(back);
    assert_eq!((joined.generation, joined.members.len()), (2, 3));
    assert_eq!((world.joined(b).generation, world.joined(newcomer).generation), (2, 2));
    assert_eq!(world.heartbeat(&s), ErrorCode::FencedInstanceId);
}

#[test]
fn a_session_that_ends_while_the_log_is_slow_begins_anew() {
    let mut world = World::new();
    let (s, b) = pair(&mut world);
    world.quick_log = false;
    let back = world.ask(Command::Join(fixed("g", "s", "i")));
    assert_eq!(world.heartbeat(&b), NONE);
    for _ in 0..2 {
        world.pass(6_000);
        assert_eq!(world.heartbeat(&b), NONE);
    }
    world.flush();
    let joined = world.joined(back);
    let new = Membership { member_id: joined.member_id, ..s };
    world.pass(9_999);
    assert_eq!(world.heartbeat(&b), NONE);
    world.pass(1);
    assert_eq!(world.heartbeat(&b), ErrorCode::RebalanceInProgress);
    assert_eq!(world.heartbeat(&new), ErrorCode::UnknownMemberId);
}

#[test]
fn after_a_restart_members_have_their_session_timeout_from_then_on() {
    let mut world = World::new();
    let members = world.stable("g", &["a", "b"]);
    world.pass(9_000);
    world.restart();
    assert_eq!(world.state("g"), "Stable");
    world.pass(9_999);
    assert_eq!(world.heartbeat(&members[0]), NONE);
    world.pass(1);
    assert_eq!(world.heartbeat(&members[0]), ErrorCode::RebalanceInProgress, "the other is out");
    assert_eq!(world.heartbeat(&members[1]), ErrorCode::UnknownMemberId);
}

#[test]
fn a_round_is_forgotten_by_a_restart() {
    let mut world = World::new();
    let first = Join { wants_member_id_first: true, ..consumer("g", "p") };
    let ticket = world.ask(Command::Join(first.clone()));
    let pending = world.joined(ticket).member_id;
    world.restart();
    assert_eq!(world.state("g"), "Empty", "the group itself is known");
    let late = world.ask(Command::Join(Join { member_id: pending, ..first }));
    assert_eq!(world.joined(late).error, ErrorCode::UnknownMemberId);

    let member = world.stable("h", &["a"]).remove(0);
    world.ask(Command::Join(consumer("h", "b")));
    let again = world.ask(Command::Join(again(&consumer("h", "a"), &member)));
    assert_eq!(world.joined(again).generation, 2);
    world.restart();
    let described = world.describe("h");
    assert_eq!((described.state.as_str(), described.members.len()), ("Stable", 1));
    assert_eq!(world.heartbeat(&member), NONE, "generation 1, the last one that was assigned");
    assert_eq!(world.heartbeat(&Membership { generation: 2, ..member }), ErrorCode::IllegalGeneration);
}

#[test]
fn what_is_kept_restores_itself() {
    let mut world = World::new();
    let (s, _) = pair(&mut world);
    world.commit(&s, 7);
    let kept = world.groups.kept();
    assert_eq!(kept.len(), 2);
    let anew: Vec<_> = kept.iter().map(|record| Logged::Record(None, record.clone())).collect();
    assert_eq!(replayed(&anew, &world.settings).kept(), kept);
    assert_eq!(replayed(&world.log, &world.settings).kept(), kept);
}
