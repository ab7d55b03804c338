//! Members of consumer groups: joins, rounds, fences, and members that vanish between any two calls.

use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::*;

use super::harness::Client;
use super::harness::client::text;
use super::members::*;

#[test]
fn grp_01_a_first_join_is_given_an_id_and_begins_no_round() {
    let world = GroupWorld::new("grp01");
    let mut member = world.member("g");
    let first = member.client.ask(JOIN, &member.join_request());
    assert_eq!((first.error_code, first.generation_id), (79, -1));
    assert!(first.member_id.starts_with("test-"), "{:?}", first.member_id);
    assert!(first.members.is_empty() && first.protocol_name.is_none() && first.leader.is_empty());
    member.id = first.member_id.to_string();
    let joined = member.join();
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    assert_eq!((joined.member_id.clone(), joined.leader.clone()), (first.member_id.clone(), first.member_id));
    assert_eq!(joined.members.len(), 1);
    member.id = "never-given".to_owned();
    let unknown = member.client.ask(JOIN, &member.join_request());
    assert_eq!((unknown.error_code, unknown.member_id), (25, text("never-given")));
}

#[test]
fn grp_05_commits_are_fenced_by_member_and_generation() {
    let mut world = GroupWorld::new("grp05");
    let mut member = world.alone("g");
    let (id, generation) = (member.id.clone(), member.generation);
    assert_eq!(member.commit(1), 0);
    member.generation -= 1;
    assert_eq!(member.commit(1), 22);
    (member.generation, member.id) = (generation, "x".to_owned());
    assert_eq!(member.commit(1), 25);
    assert_eq!(world.commit("g", &[(0, 1)]), [25], "a client without group while there are members");
    member.id = id;
    let mut second = world.member("g");
    bring_in(&mut member, &mut second);
    assert_eq!(member.commit(2), 27, "before the assignment");
    assert_eq!(second.commit(2), 27);
    assert_eq!((member.leave(), second.leave()), (0, 0));
    assert_eq!(world.commit("g", &[(0, 3)]), [0], "of an empty group");
    assert_eq!(world.commit("never", &[(0, 3)]), [0]);
    let nobody = commit_of("nobody", "m", 7, super::world::TOPIC, &[(0, 1, "")]);
    let errors = [8, 9].map(|version| commit_errors(&world.client.ask(version, &nobody)));
    assert_eq!(errors, [[22], [69]], "a group that is not there, with a generation");
}

#[test]
fn grp_06_a_static_member_comes_back_without_a_round_and_its_double_is_fenced() {
    let world = GroupWorld::new("grp06");
    let mut first = world.static_member("g", "i");
    let joined = first.join();
    assert_eq!((joined.error_code, joined.generation_id), (0, 1), "a static member needs no id first");
    let mut other = world.static_member("g", "other");
    other.begin_join();
    first.await_rebalance();
    first.begin_join();
    assert_eq!((first.joined().error_code, other.joined().error_code), (0, 0));
    other.begin_sync(&[]);
    let before = first.sync_as_leader(&[&other.id.clone()]);
    assert_eq!((before.error_code, other.synced().error_code), (0, 0));

    let mut again = world.static_member("g", "other");
    let joined = again.join();
    assert_eq!((joined.error_code, joined.generation_id), (0, first.generation));
    assert!(again.id != other.id && joined.members.is_empty() && !joined.skip_assignment);
    again.begin_sync(&[]);
    let assignment = again.synced().assignment;
    assert_eq!(assignment, format!("of {}", other.id), "the assignment of its name stays");
    assert_eq!((first.heartbeat(), again.heartbeat()), (0, 0), "nobody else notices");
    assert_eq!((other.heartbeat(), other.commit(1), other.leave()), (82, 82, 82));
    other.begin_sync(&[]);
    assert_eq!(other.synced().error_code, 82);
    assert_eq!(other.client.ask(JOIN, &other.join_request()).error_code, 82);

    // The leader's name comes back: it may keep the assignment as it is, since version 9 knows how to say so.
    let mut leader = world.static_member("g", "i");
    let joined = leader.join();
    assert_eq!((joined.error_code, joined.generation_id, joined.skip_assignment), (0, first.generation, true));
    assert_eq!(joined.members.len(), 2);
}

#[test]
fn grp_10_joins_that_do_not_fit() {
    let world = GroupWorld::new("grp10");
    let mut member = world.alone("g");
    let mut other = world.member("g");
    let request = other.join_request();
    let zzz = JoinGroupRequestProtocol::default().with_name(text("zzz"));
    let wrong = [
        ("another type", request.clone().with_protocol_type(text("connect")), 23),
        ("no common protocol", request.clone().with_protocols(vec![zzz]), 23),
        ("no protocol", request.clone().with_protocols(Vec::new()), 23),
        ("no protocol in a new group", request.clone().with_group_id(group_id("new")).with_protocols(Vec::new()), 23),
        ("no type in a new group", request.clone().with_group_id(group_id("new")).with_protocol_type(text("")), 23),
        ("a short session", request.clone().with_session_timeout_ms(1), 26),
        ("a long session", request.clone().with_session_timeout_ms(1_800_001), 26),
        ("no name", request.clone().with_group_id(group_id("")), 24),
    ];
    for (what, request, error) in wrong {
        for version in [0, 5, 9] {
            let answer = other.client.ask(version, &request);
            assert_eq!((answer.error_code, answer.generation_id), (error, -1), "{what}, version {version}");
        }
    }
    assert_eq!(member.heartbeat(), 0);
    assert_eq!(member.generation, 1);
}

/// From the first join to the last word, in every version of each request.
#[test]
fn every_version_of_a_members_life() {
    let world = GroupWorld::new("versions");
    for version in 0..=9 {
        let mut member = world.member(&format!("v{version}"));
        if version >= 4 {
            let first = member.client.ask(version, &member.join_request());
            assert_eq!(first.error_code, 79);
            member.id = first.member_id.to_string();
        }
        let joined = member.client.ask(version, &member.join_request());
        assert_eq!((joined.error_code, joined.generation_id, &*joined.protocol_name.unwrap()), (0, 1, "range"));
        assert_eq!(joined.protocol_type.as_deref(), if version >= 7 { Some("consumer") } else { None });
        assert_eq!(joined.members[0].metadata, "metadata");
        (member.id, member.generation) = (joined.member_id.to_string(), 1);

        let sync = member.sync_request(&[&member.id]);
        let synced = member.client.ask(version.min(5), &sync);
        assert_eq!((synced.error_code, synced.assignment), (0, format!("of {}", member.id).into()));
        assert_eq!(synced.protocol_name.as_deref(), if version >= 5 { Some("range") } else { None });
        let heartbeat = member.heartbeat_request();
        assert_eq!(member.client.ask(version.min(4), &heartbeat).error_code, 0);

        let leave = LeaveGroupRequest::default().with_group_id(group_id(&member.group));
        let leave = match version {
            0..3 => leave.with_member_id(text(&member.id)),
            _ => leave.with_members(vec![MemberIdentity::default().with_member_id(text(&member.id))]),
        };
        let left = member.client.ask(version.min(5), &leave);
        assert_eq!(left.error_code, 0);
        assert!(left.members.iter().all(|member| member.error_code == 0));
        assert_eq!(left.members.len(), usize::from(version >= 3));
        assert_eq!(member.client.ask(version.min(4), &heartbeat).error_code, 25, "it has left");
    }
}

#[test]
fn wrong_generations_members_and_groups_are_told_so() {
    let world = GroupWorld::new("wrong");
    let mut member = world.alone("g");
    let (id, generation) = (member.id.clone(), member.generation);
    let mut told = |group: &str, id: &str, generation: i32| {
        (member.group, member.id, member.generation) = (group.to_owned(), id.to_owned(), generation);
        member.begin_sync(&[]);
        let synced = member.synced();
        assert!(synced.assignment.is_empty() || synced.error_code == 0);
        (member.heartbeat(), synced.error_code)
    };
    assert_eq!(told("g", &id, generation), (0, 0));
    assert_eq!(told("g", &id, generation + 1), (22, 22));
    assert_eq!(told("g", &id, -1), (22, 22));
    assert_eq!(told("g", "x", generation), (25, 25));
    assert_eq!(told("nope", &id, generation), (25, 25));
    assert_eq!(told("", &id, generation), (24, 24));
    for version in [0, 2] {
        let left = |client: &mut Client, group, id| {
            let request = LeaveGroupRequest::default().with_group_id(group_id(group)).with_member_id(text(id));
            client.ask(version, &request).error_code
        };
        assert_eq!(left(&mut member.client, "g", "x"), 25);
        assert_eq!(left(&mut member.client, "nope", &id), 25);
        assert_eq!(left(&mut member.client, "", &id), 24);
    }
    let members = [("x", None), ("", Some("i")), (id.as_str(), None), (id.as_str(), None)];
    let members = members.map(|(id, instance)| {
        MemberIdentity::default().with_member_id(text(id)).with_group_instance_id(instance.map(text))
    });
    let request = LeaveGroupRequest::default().with_group_id(group_id("g")).with_members(members.to_vec());
    let left = member.client.ask(5, &request);
    let errors: Vec<_> = left.members.iter().map(|member| member.error_code).collect();
    assert_eq!((left.error_code, errors), (0, vec![25, 25, 0, 25]));
}

/// Type and assignor must be given from version 5 on, and must be those of the round.
#[test]
fn a_sync_that_believes_in_another_protocol_is_refused() {
    let world = GroupWorld::new("sync-protocol");
    let mut member = world.alone("g");
    let request = member.sync_request(&[]);
    let asked = |type_, name| request.clone().with_protocol_type(type_).with_protocol_name(name);
    let (range, consumer) = (Some(text("range")), Some(text("consumer")));
    for (request, error) in [
        (asked(None, range.clone()), 23),
        (asked(consumer.clone(), None), 23),
        (asked(Some(text("connect")), range.clone()), 23),
        (asked(consumer.clone(), Some(text("roundrobin"))), 23),
        (asked(None, None).with_group_id(group_id("")), 23),
        (asked(consumer, range), 0),
    ] {
        assert_eq!(member.client.ask(5, &request).error_code, error, "{request:?}");
    }
    assert_eq!(member.client.ask(4, &request.with_protocol_name(None).with_protocol_type(None)).error_code, 0);
}

/// What a member has done when its connection breaks and nobody hears of it again.
#[derive(Clone, Copy, Debug)]
enum Vanishes {
    WithItsId,
    WhileItsJoinWaits,
    BeforeItsSync,
    WhileItsSyncWaits,
    WithItsAssignment,
}

#[test]
fn a_member_may_vanish_between_any_two_calls() {
    let world = GroupWorld::new("vanish");
    let all = [
        Vanishes::WithItsId,
        Vanishes::WhileItsJoinWaits,
        Vanishes::BeforeItsSync,
        Vanishes::WhileItsSyncWaits,
        Vanishes::WithItsAssignment,
    ];
    for when in all {
        let group = format!("{when:?}");
        let mut stays = world.alone(&group);
        let mut goes = world.member(&group);
        goes.session_ms = 400;
        let takes_part = |stays: &mut Member, goes: &mut Member| bring_in(stays, goes);
        match when {
            Vanishes::WithItsId => goes.get_id(),
            Vanishes::WhileItsJoinWaits => {
                goes.get_id();
                goes.begin_join();
                stays.await_rebalance();
            }
            Vanishes::BeforeItsSync => takes_part(&mut stays, &mut goes),
            Vanishes::WhileItsSyncWaits => {
                takes_part(&mut stays, &mut goes);
                goes.begin_sync(&[]);
            }
            Vanishes::WithItsAssignment => {
                takes_part(&mut stays, &mut goes);
                goes.begin_sync(&[]);
                assert_eq!(stays.sync_as_leader(&[&goes.id]).error_code, 0);
                assert_eq!(goes.synced().error_code, 0);
            }
        }
        drop(goes);
        stays.until_alone();
        assert_eq!(stays.leave(), 0, "{when:?}");
    }
}

#[test]
fn when_the_leader_vanishes_before_it_assigns_the_others_begin_again() {
    let world = GroupWorld::new("leader-gone");
    let mut leader = world.member("g");
    leader.session_ms = 400;
    leader.get_id();
    assert_eq!(leader.join().error_code, 0);
    assert_eq!(leader.sync_as_leader(&[]).error_code, 0);
    let mut follower = world.member("g");
    bring_in(&mut leader, &mut follower);
    follower.begin_sync(&[]);
    drop(leader);
    assert_eq!(follower.synced().error_code, 27);
    follower.until_alone();
}

#[test]
fn members_that_leave_are_not_waited_for() {
    let world = GroupWorld::new("leave");
    let (mut leader, mut follower) = world.pair("g");
    assert_eq!(leader.leave(), 0);
    follower.await_rebalance();
    follower.until_alone();
    assert_eq!(follower.generation, 3);
    assert_eq!(leader.heartbeat(), 25);
}

/// A stop does not wait for a round: whoever waits in one is told to look for the coordinator again, or hung up on.
#[test]
fn a_stop_does_not_wait_for_those_who_join() {
    let world = GroupWorld::new("stop");
    let mut member = world.alone("g");
    let mut joins = world.member("g");
    joins.get_id();
    joins.begin_join();
    member.await_rebalance();
    let begin = Instant::now();
    world.broker.stop_cleanly();
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    drop(joins);
}

/// The memory of a frame is free again while its sender waits for the others.
#[test]
fn joins_that_wait_hold_no_memory_of_the_budget() {
    let world = GroupWorld::new("budget");
    let member = world.alone("g");
    let mut waiting = Vec::new();
    // Each is charged 40 times its size, 20 MB, of the 64 MiB or more that there are.
    for _ in 0..8 {
        let mut joins = world.member("g");
        joins.get_id();
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
        let request = joins.join_request().with_protocols(vec![protocol.with_metadata(vec![7; 500_000].into())]);
        joins.client.send(JOIN, &request);
        waiting.push(joins);
    }
    let mut other = Client::connect(world.broker.address);
    other.create_topic("meanwhile", 1, &[]);
    drop(member);
}

#[test]
fn names_as_long_as_kafka_takes_them_and_no_longer() {
    let mut world = GroupWorld::new("long");
    let long = "g".repeat(32_767);
    assert_eq!(world.commit(&long, &[(0, 5)]), [0]);
    assert_eq!(world.kept(&long, super::world::TOPIC, 0).0, 5);
    assert_eq!(world.commit(&long, &[(0, 5); 40]), vec![-1; 40], "more than a batch of the log takes");
    let mut member = world.member(&long);
    member.get_id();
    assert_eq!(member.join().error_code, 0);
    // A compact length could say more than 16 bits can: such a frame ends the connection.
    let mut body = BytesMut::new();
    body.put_slice(&[0x81, 0x80, 0x02]);
    body.put_bytes(b'g', 32_768);
    body.put_slice(&[0, 0, 0, 1, 1, 0, 0]);
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(body.len() + 11).unwrap());
    frame.put_slice(&[0, 12, 0, 4, 0, 0, 0, 1, 0xff, 0xff, 0]);
    frame.put_slice(&body);
    let mut client = Client::connect(world.broker.address);
    std::io::Write::write_all(client.stream(), &frame).unwrap();
    assert!(client.is_closed());
}
