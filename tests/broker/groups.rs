//! Consumer groups over kills and stops: nobody is given an old offset, and members that come back find their round.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, OffsetCommitRequest,
    OffsetFetchRequest, SyncGroupRequest,
};

use super::harness::client::{name, text};
use super::harness::{Client, Folder, Random, Start};

pub const TOPIC: &str = "read";
const GROUPS: usize = 20;
const LOADING: i16 = 14;
const NOT_COORDINATOR: i16 = 16;
const MEMBER_ID_REQUIRED: i16 = 79;

fn id(group: &str) -> GroupId {
    GroupId(text(group))
}

pub fn commit_request(group: &str, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default().with_partition_index(0).with_committed_offset(offset);
    let topic = OffsetCommitRequestTopic::default().with_name(name(TOPIC)).with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(id(group))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}

pub fn commit(client: &mut Client, request: &OffsetCommitRequest) -> i16 {
    client.ask(8, request).topics[0].partitions[0].error_code
}

/// The kept offset, or why it is not told.
pub fn kept(client: &mut Client, group: &str) -> Result<i64, i16> {
    let topic = OffsetFetchRequestTopics::default().with_name(name(TOPIC)).with_partition_indexes(vec![0]);
    let wanted = OffsetFetchRequestGroup::default().with_group_id(id(group)).with_topics(Some(vec![topic]));
    let answer = client.ask(8, &OffsetFetchRequest::default().with_groups(vec![wanted])).groups.remove(0);
    if answer.error_code == 0 {
        return Ok(answer.topics[0].partitions[0].committed_offset);
    }
    Err(answer.error_code)
}

/// Asks until the coordinator has read its log, which must be all that keeps it from answering.
pub fn once_loaded<T>(mut ask: impl FnMut() -> Result<T, i16>) -> T {
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(error) => assert!([LOADING, NOT_COORDINATOR].contains(&error), "{error}"),
        }
    }
}

/// GRP-08: commits acknowledged before a kill are there as soon as anything is answered after it.
#[test]
fn grp_08_no_old_offset_after_a_kill() {
    let folder = Folder::new("group-kill");
    let mut random = Random::new("group-kill");
    let start = Start::on(&folder).set("corelane.checkpoint.interval.ms=200").set("corelane.log.file.bytes=4194304");
    let mut broker = start.start();
    Client::connect(broker.address).create_topic(TOPIC, 1, &[]);
    let groups: Vec<String> = (0..GROUPS).map(|number| format!("group {number}")).collect();
    let (mut acknowledged, mut sent) = (vec![-1; GROUPS], vec![-1; GROUPS]);
    for cycle in 0..5 {
        let mut client = Client::connect(broker.address);
        for (at, group) in groups.iter().enumerate() {
            let found = once_loaded(|| kept(&mut client, group));
            let promised = acknowledged[at]..=sent[at];
            assert!(promised.contains(&found), "cycle {cycle}, {group}: {found} is not in {promised:?}");
            (acknowledged[at], sent[at]) = (found, found);
        }
        for _ in 0..200 + random.below(800) {
            let at = random.below(GROUPS as u64) as usize;
            sent[at] += 1;
            assert_eq!(commit(&mut client, &commit_request(&groups[at], sent[at])), 0);
            acknowledged[at] = sent[at];
        }
        // These are on their way.
        for (at, group) in groups.iter().enumerate() {
            sent[at] += 1;
            client.send(8, &commit_request(group, sent[at]));
        }
        broker.kill9();
        broker = start.clone().cores(1 + cycle % 2).start();
    }
    broker.stop_cleanly();
}

fn join_request(member_id: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(Bytes::from_static(b"x"));
    JoinGroupRequest::default()
        .with_group_id(id("pair"))
        .with_session_timeout_ms(30_000)
        .with_rebalance_timeout_ms(30_000)
        .with_member_id(text(member_id))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

/// Joins as a client does: first it is given a name, then it joins with it.
fn join(address: SocketAddr) -> (Client, JoinGroupResponse) {
    let mut client = Client::connect(address);
    let named = client.ask(7, &join_request(""));
    assert_eq!(named.error_code, MEMBER_ID_REQUIRED);
    let joined = client.ask(7, &join_request(&named.member_id));
    assert_eq!(joined.error_code, 0);
    (client, joined)
}

fn sync(client: &mut Client, joined: &JoinGroupResponse) -> Bytes {
    let assignments = joined.members.iter().map(|member| {
        let what = Bytes::from(format!("for {}", member.member_id.as_str()));
        SyncGroupRequestAssignment::default().with_member_id(member.member_id.clone()).with_assignment(what)
    });
    let request = SyncGroupRequest::default()
        .with_group_id(id("pair"))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_assignments(assignments.collect());
    let answer = client.ask(3, &request);
    assert_eq!(answer.error_code, 0);
    answer.assignment
}

/// Both members at once, as far as their assignments.
fn pair(address: SocketAddr) -> Vec<JoinGroupResponse> {
    let member = move || {
        let (mut client, joined) = join(address);
        let got = sync(&mut client, &joined);
        assert_eq!(got, format!("for {}", joined.member_id.as_str()));
        joined
    };
    let members: Vec<_> = (0..2).map(|_| thread::spawn(member)).collect();
    members.into_iter().map(|member| member.join().unwrap()).collect()
}

fn heartbeat(client: &mut Client, joined: &JoinGroupResponse) -> i16 {
    let request = HeartbeatRequest::default()
        .with_group_id(id("pair"))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone());
    client.ask(3, &request).error_code
}

/// State, and the members with what they were given.
fn described(client: &mut Client) -> (String, Vec<(String, Bytes)>) {
    let answer = once_loaded(|| {
        let mut answer = client.ask(4, &DescribeGroupsRequest::default().with_groups(vec![id("pair")]));
        let group = answer.groups.remove(0);
        if group.error_code == 0 { Ok(group) } else { Err(group.error_code) }
    });
    let members = answer.members.into_iter();
    let mut members: Vec<_> = members.map(|member| (member.member_id.to_string(), member.member_assignment)).collect();
    members.sort();
    (answer.group_state.to_string(), members)
}

#[test]
fn a_group_lives_through_a_kill_and_a_stop_without_a_new_round() {
    let folder = Folder::new("group-restart");
    let start = Start::on(&folder).set("group.initial.rebalance.delay.ms=1000");
    let mut broker = start.start();
    Client::connect(broker.address).create_topic(TOPIC, 1, &[]);
    let members = pair(broker.address);
    let before = described(&mut Client::connect(broker.address));
    assert_eq!((before.0.as_str(), before.1.len()), ("Stable", 2));
    for restart in 0..4 {
        if restart % 2 == 0 {
            broker.kill9()
        } else {
            broker.stop_cleanly()
        }
        broker = start.clone().cores(1 + restart / 2 % 2).start();
        let mut client = Client::connect(broker.address);
        for member in &members {
            assert_eq!(heartbeat(&mut client, member), 0, "restart {restart}");
        }
        assert_eq!(described(&mut client), before, "restart {restart}");
        for member in &members {
            assert_eq!(heartbeat(&mut client, member), 0, "restart {restart}");
            let request = commit_request("pair", restart as i64)
                .with_generation_id_or_member_epoch(member.generation_id)
                .with_member_id(member.member_id.clone());
            assert_eq!(commit(&mut client, &request), 0);
        }
    }
}

/// A member that waits for others must not keep the broker from stopping.
#[test]
fn a_stop_does_not_wait_for_a_round() {
    let folder = Folder::new("group-stop");
    let broker = Start::on(&folder).set("group.initial.rebalance.delay.ms=60000").start();
    let mut client = Client::connect(broker.address);
    let named = client.ask(7, &join_request(""));
    let waiting = client.send(7, &join_request(&named.member_id));
    // Answered behind the join, which therefore has been taken: another connection sees the member.
    let mut other = Client::connect(broker.address);
    while described(&mut other).0 != "PreparingRebalance" {
        thread::sleep(Duration::from_millis(5));
    }
    let begun = std::time::Instant::now();
    broker.stop_cleanly();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    match client.receive_frame() {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{waiting}"),
    }
}
