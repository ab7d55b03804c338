//! Classic groups rule by rule: who may join, how rounds go, what members are told.

use bytes::Bytes;
use corelane::state::groups::messages::{Command, Join, Membership, Sync};
use corelane::wire::error_code::ErrorCode;

use super::groups_world::{World, again, consumer, fixed, protocols, replayed, settings, sync, who};

const NONE: ErrorCode = ErrorCode::None;

fn join(world: &mut World, join: &Join) -> corelane::state::groups::Ticket {
    world.ask(Command::Join(join.clone()))
}

fn refused(world: &mut World, asked: &Join) -> (ErrorCode, String) {
    let ticket = join(world, asked);
    let joined = world.joined(ticket);
    assert_eq!((joined.generation, joined.protocol_type, joined.leader.as_str()), (-1, None, ""));
    (joined.error, joined.member_id)
}

#[test]
fn the_first_join_is_given_an_id_and_joins_with_it() {
    let mut world = World::new();
    let first = Join { wants_member_id_first: true, ..consumer("g", "client") };
    let (error, id) = refused(&mut world, &first);
    assert_eq!(error, ErrorCode::MemberIdRequired);
    assert!(id.starts_with("client-") && id.len() == "client-".len() + 36, "{id}");
    assert_eq!(world.state("g"), "Empty", "no round begins");
    let (error, other) = refused(&mut world, &first);
    assert_eq!(error, ErrorCode::MemberIdRequired);
    assert_ne!(other, id);
    let stranger = Join { member_id: "never given".into(), ..first.clone() };
    assert_eq!(refused(&mut world, &stranger), (ErrorCode::UnknownMemberId, "never given".into()));
    let ticket = join(&mut world, &Join { member_id: id.clone(), ..first });
    world.pass(3_000);
    let joined = world.joined(ticket);
    assert_eq!((joined.error, joined.generation, joined.leader.as_str()), (NONE, 1, id.as_str()));
    assert_eq!(joined.members.len(), 1);
    assert_eq!(joined.protocol.as_deref(), Some("range"));
}

#[test]
fn an_id_that_is_not_used_is_forgotten_after_the_session_timeout() {
    let mut world = World::new();
    let first = Join { wants_member_id_first: true, ..consumer("g", "client") };
    let (_, id) = refused(&mut world, &first);
    world.pass(10_000);
    let late = Join { member_id: id.clone(), ..first };
    assert_eq!(refused(&mut world, &late), (ErrorCode::UnknownMemberId, id));
    assert_eq!(world.groups.next_deadline_ms(), None);
}

#[test]
fn joins_that_cannot_be() {
    let mut world = World::new();
    let good = consumer("g", "c");
    let bad = |change: fn(&mut Join)| {
        let mut join = good.clone();
        change(&mut join);
        join
    };
    assert_eq!(refused(&mut world, &bad(|j| j.group.clear())).0, ErrorCode::InvalidGroupId);
    assert_eq!(refused(&mut world, &bad(|j| j.session_timeout_ms = 5_999)).0, ErrorCode::InvalidSessionTimeout);
    assert_eq!(refused(&mut world, &bad(|j| j.session_timeout_ms = 1_800_001)).0, ErrorCode::InvalidSessionTimeout);
    assert_eq!(refused(&mut world, &bad(|j| j.member_id = "x".into())).0, ErrorCode::UnknownMemberId);
    assert_eq!(world.listed(), []);
    assert_eq!(refused(&mut world, &bad(|j| j.protocols.clear())).0, ErrorCode::InconsistentGroupProtocol);
    assert_eq!(refused(&mut world, &bad(|j| j.protocol_type.clear())).0, ErrorCode::InconsistentGroupProtocol);
    assert_eq!(world.listed(), [("g".to_owned(), "Empty".to_owned())], "Kafka keeps the group it made for that");
    world.stable("g", &["a"]);
    assert_eq!(
        refused(&mut world, &bad(|j| j.protocol_type = "connect".into())).0,
        ErrorCode::InconsistentGroupProtocol
    );
    let unknown = bad(|j| j.protocols = protocols(&["zzz"], &["t"]));
    assert_eq!(refused(&mut world, &unknown).0, ErrorCode::InconsistentGroupProtocol);
}

#[test]
fn a_pending_member_cannot_become_a_static_one() {
    let mut world = World::new();
    let first = Join { wants_member_id_first: true, ..consumer("g", "client") };
    let (_, id) = refused(&mut world, &first);
    let named = Join { member_id: id, instance_id: Some("i".into()), ..first };
    assert_eq!(refused(&mut world, &named).0, ErrorCode::UnknownServerError);
}

#[test]
fn the_first_round_waits_longer_while_members_come_but_not_longer_than_the_rebalance_timeout() {
    let mut world = World::new();
    let patient = |client: &str| Join { rebalance_timeout_ms: 10_000, ..consumer("g", client) };
    let mut tickets = vec![join(&mut world, &patient("a"))];
    for client in ["b", "c", "d", "e"] {
        world.pass(2_400);
        tickets.push(join(&mut world, &patient(client)));
    }
    world.pass(399);
    assert!(world.answers.is_empty(), "3 s, then 3 s, then 3 s, then 1 s");
    world.pass(1);
    for ticket in tickets {
        let joined = world.joined(ticket);
        assert_eq!((joined.error, joined.generation), (NONE, 1));
        assert_eq!(joined.members.len(), if joined.member_id == joined.leader { 5 } else { 0 });
    }
}

#[test]
fn the_first_round_ends_after_a_delay_in_which_nobody_came() {
    let mut world = World::new();
    let a = join(&mut world, &consumer("g", "a"));
    world.pass(1_000);
    let b = join(&mut world, &consumer("g", "b"));
    world.pass(4_999);
    assert!(world.answers.is_empty());
    world.pass(1);
    assert_eq!((world.joined(a).generation, world.joined(b).generation), (1, 1));
}

#[test]
fn without_delay_the_first_round_is_due_at_once() {
    let mut world = World::with(corelane::state::groups::GroupSettings { initial_rebalance_delay_ms: 0, ..settings() });
    let ticket = join(&mut world, &consumer("g", "a"));
    assert_eq!(world.groups.next_deadline_ms(), Some(world.now_ms));
    world.tick();
    assert_eq!(world.joined(ticket).generation, 1);
}

#[test]
fn who_does_not_join_again_within_the_rebalance_timeout_is_out() {
    let mut world = World::new();
    let patient = |client: &str| Join { session_timeout_ms: 300_000, ..consumer("g", client) };
    let members =
        world.stable_with(vec![patient("a"), patient("b"), Join { instance_id: Some("i".into()), ..patient("s") }]);
    let newcomer = join(&mut world, &patient("new"));
    assert_eq!(world.heartbeat(&members[0]), ErrorCode::RebalanceInProgress);
    let back = join(&mut world, &again(&patient("b"), &members[1]));
    world.pass(59_999);
    assert!(world.answers.is_empty());
    world.pass(1);
    let joined = world.joined(back);
    assert_eq!(joined.generation, 2);
    assert_eq!(world.joined(newcomer).generation, 2);
    assert_ne!(joined.leader, members[0].member_id, "the leader did not come");
    assert_eq!(world.heartbeat(&members[0]), ErrorCode::UnknownMemberId);
    let ids: Vec<String> = world.describe("g").members.into_iter().map(|member| member.member_id).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.contains(&members[2].member_id), "a static member may stay away for its session time-out");
}

#[test]
fn a_round_into_which_nobody_came_goes_on_until_sessions_end() {
    let mut world = World::new();
    let away = Join { session_timeout_ms: 100_000, ..fixed("g", "a", "i") };
    let members =
        world.stable_with(vec![away.clone(), Join { client_id: "b".into(), instance_id: Some("j".into()), ..away }]);
    assert_eq!(world.leave("g", &[("", Some("j"))]), [NONE]);
    world.pass(60_000);
    assert_eq!(world.state("g"), "PreparingRebalance");
    assert_eq!(world.heartbeat(&members[0]), ErrorCode::RebalanceInProgress);
    world.pass(100_000);
    assert_eq!(world.state("g"), "Empty");
    assert_eq!(world.groups.next_deadline_ms(), None);
}

#[test]
fn the_assignor_is_what_most_prefer_among_what_all_know() {
    let mut world = World::new();
    let knows = |client: &str, names: &[&str]| Join { protocols: protocols(names, &["t"]), ..consumer("g", client) };
    let a = join(&mut world, &knows("a", &["range", "sticky"]));
    let b = join(&mut world, &knows("b", &["sticky", "range"]));
    let c = join(&mut world, &knows("c", &["other", "sticky", "range"]));
    world.pass(6_000);
    for ticket in [a, b, c] {
        assert_eq!(world.joined(ticket).protocol.as_deref(), Some("sticky"));
    }
}

/// As Apache Kafka 4.4.0 answered, for two members with opposite preferences.
#[test]
fn a_tie_ends_as_in_kafka() {
    let ties = [
        ("range", "roundrobin", "range"),
        ("range", "sticky", "sticky"),
        ("range", "cooperative-sticky", "range"),
        ("roundrobin", "sticky", "sticky"),
        ("roundrobin", "cooperative-sticky", "roundrobin"),
        ("sticky", "cooperative-sticky", "sticky"),
        ("cooperative-sticky", "zzz", "zzz"),
        ("cooperative-sticky", "Aa", "Aa"),
        ("roundrobin", "x", "x"),
        ("y", "zzz", "y"),
    ];
    for (one, other, chosen) in ties {
        let mut world = World::new();
        let a = Join { protocols: protocols(&[one, other], &[]), ..consumer("g", "a") };
        let b = Join { protocols: protocols(&[other, one], &[]), ..consumer("g", "b") };
        let tickets = [join(&mut world, &a), join(&mut world, &b)];
        world.pass(6_000);
        for ticket in tickets {
            assert_eq!(world.joined(ticket).protocol.as_deref(), Some(chosen), "{one}, {other}");
        }
    }
}

#[test]
fn joining_again_in_a_stable_group() {
    let mut world = World::new();
    let members = world.stable("g", &["a", "b"]);
    let same = join(&mut world, &again(&consumer("g", "b"), &members[1]));
    let joined = world.joined(same);
    assert_eq!((joined.generation, joined.members.len()), (1, 0), "a follower with nothing new is told what is");
    assert_eq!(world.state("g"), "Stable");
    let leader = join(&mut world, &again(&consumer("g", "a"), &members[0]));
    assert_eq!(world.answer(leader), None, "a leader wants to assign anew");
    assert_eq!(world.state("g"), "PreparingRebalance");
    let follower = join(&mut world, &again(&consumer("g", "b"), &members[1]));
    assert_eq!((world.joined(leader).generation, world.joined(follower).generation), (2, 2));
    let other = Join { protocols: protocols(&["range"], &["u"]), ..again(&consumer("g", "b"), &members[1]) };
    let lost_answer = join(&mut world, &again(&consumer("g", "b"), &members[1]));
    assert_eq!(world.joined(lost_answer).generation, 2, "the same again while the leader assigns: told again");
    let changed = join(&mut world, &other);
    assert_eq!(world.answer(changed), None);
    assert_eq!(world.state("g"), "PreparingRebalance");
}

#[test]
fn a_join_that_comes_again_takes_the_place_of_the_first() {
    let mut world = World::new();
    let members = world.stable("g", &["a", "b"]);
    let first = join(&mut world, &again(&consumer("g", "a"), &members[0]));
    let second = join(&mut world, &again(&consumer("g", "a"), &members[0]));
    assert_eq!(world.joined(first).error, ErrorCode::RebalanceInProgress);
    join(&mut world, &again(&consumer("g", "b"), &members[1]));
    assert_eq!(world.joined(second).generation, 2);
}

#[test]
fn a_group_has_its_greatest_size() {
    let mut world = World::with(corelane::state::groups::GroupSettings { members_max: 2, ..settings() });
    let tickets = ["a", "b"].map(|client| join(&mut world, &consumer("g", client)));
    assert_eq!(refused(&mut world, &consumer("g", "c")), (ErrorCode::GroupMaxSizeReached, String::new()));
    world.pass(6_000);
    let joined = tickets.map(|ticket| world.joined(ticket));
    assert_eq!(refused(&mut world, &consumer("g", "c")).0, ErrorCode::GroupMaxSizeReached);
    let b = Join { member_id: joined[1].member_id.clone(), ..consumer("g", "b") };
    let ticket = join(&mut world, &b);
    assert_eq!(world.joined(ticket).error, NONE, "who is in it stays");
}

#[test]
fn a_group_that_became_too_large_over_a_restart_chooses_anew() {
    let mut world = World::new();
    let members = world.stable("g", &["a", "b", "c"]);
    world.settings.members_max = 2;
    world.restart();
    assert_eq!(world.state("g"), "PreparingRebalance");
    let a = join(&mut world, &again(&consumer("g", "a"), &members[0]));
    let b = join(&mut world, &again(&consumer("g", "b"), &members[1]));
    assert_eq!(refused(&mut world, &again(&consumer("g", "c"), &members[2])).0, ErrorCode::GroupMaxSizeReached);
    world.pass(60_000);
    assert_eq!((world.joined(a).generation, world.joined(b).generation), (2, 2));
}

#[test]
fn the_leader_assigns_and_a_member_it_forgot_gets_nothing() {
    let mut world = World::new();
    let tickets = ["a", "b"].map(|client| join(&mut world, &consumer("g", client)));
    world.pass(6_000);
    let [a, b] = tickets.map(|ticket| world.joined(ticket));
    let member = |id: &str| who("g", id, 1);
    let follower = world.ask(sync(&member(&b.member_id), Vec::new()));
    assert_eq!(world.answer(follower), None, "waits for the leader");
    world.quick_log = false;
    let plan = vec![(a.member_id.clone(), Bytes::from("all")), ("ghost".to_owned(), Bytes::from("x"))];
    let leader = world.ask(sync(&member(&a.member_id), plan));
    assert_eq!(world.answer(leader), None, "waits for the log");
    assert_eq!(world.state("g"), "CompletingRebalance");
    world.flush();
    let synced = world.synced(leader);
    assert_eq!((synced.error, synced.assignment), (NONE, Bytes::from("all")));
    assert_eq!((synced.protocol_type.as_deref(), synced.protocol.as_deref()), (Some("consumer"), Some("range")));
    assert_eq!(world.synced(follower).assignment, Bytes::new());
    assert_eq!(world.state("g"), "Stable");
    let again = world.ask(sync(&member(&a.member_id), Vec::new()));
    assert_eq!(world.synced(again).assignment, Bytes::from("all"), "kept, and given at once");
}

#[test]
fn syncs_that_cannot_be() {
    let mut world = World::new();
    let member = world.stable("g", &["a"]).remove(0);
    let mut refuse = |command: Command| {
        let ticket = world.ask(command);
        let synced = world.synced(ticket);
        assert_eq!((synced.protocol, synced.assignment), (None, Bytes::new()));
        synced.error
    };
    let with = |who: Membership| sync(&who, Vec::new());
    assert_eq!(refuse(with(Membership { generation: 2, ..member.clone() })), ErrorCode::IllegalGeneration);
    assert_eq!(refuse(with(who("g", "x", 1))), ErrorCode::UnknownMemberId);
    assert_eq!(refuse(with(who("h", "x", 1))), ErrorCode::UnknownMemberId);
    assert_eq!(refuse(with(who("", "x", 1))), ErrorCode::InvalidGroupId);
    let named = Membership { instance_id: Some("i".into()), ..member.clone() };
    assert_eq!(refuse(with(named)), ErrorCode::UnknownMemberId);
    let believing = |protocol_type: Option<&str>, protocol: Option<&str>| {
        Command::Sync(Sync {
            who: member.clone(),
            protocol_type: protocol_type.map(str::to_owned),
            protocol: protocol.map(str::to_owned),
            assignments: Vec::new(),
        })
    };
    assert_eq!(refuse(believing(Some("connect"), None)), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(refuse(believing(None, Some("sticky"))), ErrorCode::InconsistentGroupProtocol);
    let ticket = world.ask(believing(Some("consumer"), Some("range")));
    assert_eq!(world.synced(ticket).error, NONE);
    let a = join(&mut world, &again(&consumer("g", "a"), &member));
    let b = join(&mut world, &consumer("g", "b"));
    assert_eq!(world.joined(a).generation, 2);
    let a = join(&mut world, &again(&consumer("g", "a"), &member));
    assert_eq!((world.joined(a).generation, world.joined(b).generation), (3, 3));
    let member = Membership { generation: 3, ..member };
    world.quick_log = false;
    let ticket = world.ask(sync(&member, Vec::new()));
    assert_eq!(world.answer(ticket), None);
    let changed = Join { protocols: protocols(&["range"], &["u"]), ..again(&consumer("g", "a"), &member) };
    join(&mut world, &changed);
    assert_eq!(world.synced(ticket).error, ErrorCode::RebalanceInProgress, "who waits is told to join again");
    let ticket = world.ask(sync(&member, Vec::new()));
    assert_eq!(world.synced(ticket).error, ErrorCode::RebalanceInProgress);
}

#[test]
fn who_does_not_sync_within_the_rebalance_timeout_is_out() {
    let mut world = World::new();
    let patient = |client: &str| Join { session_timeout_ms: 300_000, ..consumer("g", client) };
    let tickets = ["a", "b"].map(|client| join(&mut world, &patient(client)));
    world.pass(6_000);
    let [a, b] = tickets.map(|ticket| world.joined(ticket));
    let leader = world.ask(sync(&who("g", &a.member_id, 1), Vec::new()));
    assert_eq!(world.synced(leader).error, NONE);
    world.pass(59_999);
    assert_eq!(world.heartbeat(&who("g", &b.member_id, 1)), NONE);
    world.pass(1);
    assert_eq!(world.heartbeat(&who("g", &b.member_id, 1)), ErrorCode::UnknownMemberId);
    assert_eq!(world.heartbeat(&who("g", &a.member_id, 1)), ErrorCode::RebalanceInProgress);
}

#[test]
fn assignments_that_do_not_reach_the_log_are_made_anew() {
    let told = [
        (ErrorCode::RequestTimedOut, ErrorCode::CoordinatorNotAvailable),
        (ErrorCode::NotEnoughReplicas, ErrorCode::CoordinatorNotAvailable),
        (ErrorCode::KafkaStorageError, ErrorCode::NotCoordinator),
        (ErrorCode::MessageTooLarge, ErrorCode::UnknownServerError),
    ];
    for (failure, told) in told {
        let mut world = World::new();
        let ticket = join(&mut world, &consumer("g", "a"));
        world.pass(3_000);
        let joined = world.joined(ticket);
        world.quick_log = false;
        let member = who("g", &joined.member_id, 1);
        let leader = world.ask(sync(&member, vec![(joined.member_id.clone(), Bytes::from("all"))]));
        world.end_append(Err(failure));
        assert_eq!(world.synced(leader).error, told);
        assert_eq!(world.state("g"), "PreparingRebalance");
        let ticket = join(&mut world, &again(&consumer("g", "a"), &member));
        assert_eq!(world.joined(ticket).generation, 2);
        let kept = replayed(&world.log, &world.settings).kept();
        assert_eq!(world.groups.kept(), kept);
    }
}

#[test]
fn a_leader_that_asks_twice_assigns_once() {
    let mut world = World::new();
    let ticket = join(&mut world, &consumer("g", "a"));
    world.pass(3_000);
    let id = world.joined(ticket).member_id;
    world.quick_log = false;
    let first = world.ask(sync(&who("g", &id, 1), vec![(id.clone(), Bytes::from("one"))]));
    let second = world.ask(sync(&who("g", &id, 1), vec![(id.clone(), Bytes::from("two"))]));
    assert_eq!(world.synced(first).error, ErrorCode::RebalanceInProgress);
    assert_eq!(world.appends.len(), 1);
    world.flush();
    assert_eq!(world.synced(second).assignment, Bytes::from("one"));
}

#[test]
fn assignments_of_a_round_that_is_over_change_nothing() {
    let mut world = World::new();
    let ticket = join(&mut world, &consumer("g", "a"));
    world.pass(3_000);
    let id = world.joined(ticket).member_id;
    world.quick_log = false;
    let leader = world.ask(sync(&who("g", &id, 1), vec![(id.clone(), Bytes::from("old"))]));
    let newcomer = join(&mut world, &consumer("g", "b"));
    assert_eq!(world.synced(leader).error, ErrorCode::RebalanceInProgress);
    world.flush();
    assert_eq!(world.state("g"), "PreparingRebalance");
    assert_eq!(world.describe("g").members[0].assignment, Bytes::new());
    assert_eq!(world.answer(newcomer), None);
}

#[test]
fn heartbeats() {
    let mut world = World::new();
    let member = world.stable("g", &["a"]).remove(0);
    assert_eq!(world.heartbeat(&member), NONE);
    assert_eq!(world.heartbeat(&Membership { generation: 0, ..member.clone() }), ErrorCode::IllegalGeneration);
    assert_eq!(world.heartbeat(&who("g", "x", 1)), ErrorCode::UnknownMemberId);
    assert_eq!(world.heartbeat(&who("h", "x", 1)), ErrorCode::UnknownMemberId);
    assert_eq!(world.heartbeat(&who("", "x", 1)), ErrorCode::InvalidGroupId);
    for _ in 0..5 {
        world.pass(9_999);
        assert_eq!(world.heartbeat(&member), NONE);
    }
    let newcomer = join(&mut world, &Join { session_timeout_ms: 60_000, ..consumer("g", "b") });
    for _ in 0..5 {
        world.pass(9_999);
        assert_eq!(world.heartbeat(&member), ErrorCode::RebalanceInProgress, "a sign of life all the same");
    }
    world.pass(10_000);
    assert_eq!(world.heartbeat(&member), ErrorCode::UnknownMemberId);
    assert_eq!(world.joined(newcomer).generation, 2, "nobody else is waited for");
}

#[test]
fn a_silent_member_is_out_after_its_session_timeout() {
    let mut world = World::new();
    let members =
        world.stable_with(vec![consumer("g", "a"), Join { session_timeout_ms: 20_000, ..consumer("g", "b") }]);
    world.pass(9_999);
    assert_eq!(world.describe("g").members.len(), 2);
    world.pass(1);
    assert_eq!(world.state("g"), "PreparingRebalance");
    assert_eq!(world.heartbeat(&members[0]), ErrorCode::UnknownMemberId);
    world.pass(20_000);
    assert_eq!(world.state("g"), "Empty");
    assert_eq!(world.groups.next_deadline_ms(), None);
}

#[test]
fn a_new_member_waits_at_most_five_minutes() {
    let mut world = World::new();
    let slow = Join { rebalance_timeout_ms: 900_000, session_timeout_ms: 1_800_000, ..consumer("g", "a") };
    world.stable_with(vec![slow.clone()]);
    let newcomer = join(&mut world, &Join { client_id: "b".into(), ..slow });
    world.pass(299_999);
    assert_eq!(world.answer(newcomer), None);
    world.pass(1);
    let joined = world.joined(newcomer);
    assert_eq!((joined.error, joined.member_id.as_str()), (ErrorCode::UnknownMemberId, ""));
}

#[test]
fn members_leave_one_by_one_or_together() {
    let mut world = World::new();
    let joins = vec![consumer("g", "a"), consumer("g", "b"), fixed("g", "s", "i"), fixed("g", "r", "j")];
    let members = world.stable_with(joins);
    let (a, s) = (members[0].member_id.as_str(), members[2].member_id.as_str());
    let codes = world.leave(
        "g",
        &[(a, None), (a, None), ("", Some("i")), ("", Some("nobody")), ("", None), (s, None), (s, Some("j"))],
    );
    use ErrorCode::{FencedInstanceId as F, UnknownMemberId as U};
    assert_eq!(codes, [NONE, U, NONE, U, U, U, F]);
    assert_eq!(world.describe("g").members.len(), 2);
    assert_eq!(world.state("g"), "PreparingRebalance");
    assert_eq!(world.leave("h", &[("x", None)]), [U]);
}

#[test]
fn the_last_one_to_leave_is_answered_when_the_log_knows() {
    let mut world = World::new();
    let member = world.stable("g", &["a"]).remove(0);
    world.quick_log = false;
    let ticket = world.ask(super::groups_world::leave("g", &[(&member.member_id, None)]));
    assert_eq!(world.answer(ticket), None);
    assert_eq!(world.state("g"), "Empty");
    world.flush();
    assert!(world.answer(ticket).is_some());
    world.restart();
    let described = world.describe("g");
    assert_eq!(
        (described.state.as_str(), described.protocol_type.as_str(), described.members.len()),
        ("Empty", "consumer", 0)
    );
    world.quick_log = true;
    let next = world.stable("g", &["a"]).remove(0);
    assert_eq!(next.generation, 3, "one for the empty group, one for the new member");
}

/// As Apache Kafka 4.4.0 does.
#[test]
fn a_pending_member_that_leaves_starts_a_round() {
    let mut world = World::new();
    let member = world.stable("g", &["a"]).remove(0);
    let (_, id) = refused(&mut world, &Join { wants_member_id_first: true, ..consumer("g", "b") });
    assert_eq!(world.heartbeat(&member), NONE);
    assert_eq!(world.leave("g", &[(&id, None)]), [NONE]);
    assert_eq!(world.heartbeat(&member), ErrorCode::RebalanceInProgress);
}

#[test]
fn a_round_waits_for_pending_members() {
    let mut world = World::new();
    let member = world.stable("g", &["a"]).remove(0);
    let first = Join { wants_member_id_first: true, ..consumer("g", "b") };
    let (_, id) = refused(&mut world, &first);
    let a = join(&mut world, &again(&consumer("g", "a"), &member));
    assert_eq!(world.answer(a), None);
    let b = join(&mut world, &Join { member_id: id, ..first });
    assert_eq!((world.joined(a).generation, world.joined(b).generation), (2, 2));
}

#[test]
fn described_and_listed() {
    let mut world = World::new();
    let dead = world.describe("nobody");
    assert_eq!((dead.error, dead.state.as_str()), (ErrorCode::GroupIdNotFound, "Dead"));
    assert_eq!(dead.error_message.as_deref(), Some("Group nobody not found."));
    let member = world.stable("g", &["a"]).remove(0);
    let stable = world.describe("g");
    assert_eq!((stable.error, stable.protocol_type.as_str(), stable.protocol.as_str()), (NONE, "consumer", "range"));
    assert_eq!(stable.members[0].client_host, "/127.0.0.1");
    assert_eq!(stable.members[0].assignment, Bytes::from("a"));
    assert_eq!(stable.members[0].metadata, protocols(&["range"], &["t"])[0].1);
    join(&mut world, &consumer("g", "b"));
    let preparing = world.describe("g");
    assert_eq!((preparing.state.as_str(), preparing.protocol.as_str()), ("PreparingRebalance", ""));
    let old = preparing.members.iter().find(|m| m.member_id == member.member_id).unwrap();
    assert_eq!((old.metadata.len(), old.assignment.clone()), (0, Bytes::from("a")), "as Kafka tells it");
    world.commit(&super::groups_world::nobody("simple"), 1);
    assert_eq!(
        world.listed(),
        [("g".to_owned(), "PreparingRebalance".to_owned()), ("simple".to_owned(), "Empty".to_owned())]
    );
}

#[test]
fn a_group_whose_first_record_is_lost_never_was() {
    let mut world = World::new();
    world.quick_log = false;
    let ticket = join(&mut world, &consumer("g", "a"));
    assert_eq!(world.listed(), [], "not told of before the log knows");
    world.end_append(Err(ErrorCode::RequestTimedOut));
    assert_eq!(world.joined(ticket).error, ErrorCode::CoordinatorNotAvailable);
    assert_eq!((world.listed(), world.groups.next_deadline_ms()), (vec![], None));
}
