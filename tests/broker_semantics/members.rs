//! Members of groups that speak the bare protocol, each on a connection of its own because a join waits.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;

use super::harness::client::{name, text};
use super::harness::{Broker, Client, Folder, Start};
use super::world::TOPIC;

/// Versions that the helpers speak.
pub const JOIN: i16 = 9;
pub const SYNC: i16 = 5;
const HEARTBEAT: i16 = 4;
const LEAVE: i16 = 5;
pub const COMMIT: i16 = 9;
/// Nothing that is waited for takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A broker whose groups begin at once and take short sessions.
pub struct GroupWorld {
    pub client: Client,
    pub broker: Broker,
    pub start: Start,
    _folder: Folder,
}

impl GroupWorld {
    pub fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let start = Start::on(&folder)
            .set("group.initial.rebalance.delay.ms=0")
            .set("group.min.session.timeout.ms=100")
            .set("offsets.topic.num.partitions=5");
        let broker = start.start();
        let mut client = Client::connect(broker.address);
        client.create_topic(TOPIC, 3, &[]);
        Self { client, broker, start, _folder: folder }
    }

    /// kill -9, and a start on the same folder.
    pub fn kill_and_start(self) -> Self {
        let Self { client, broker, start, _folder } = self;
        broker.kill9();
        drop(client);
        let broker = start.start();
        Self { client: Client::connect(broker.address), broker, start, _folder }
    }

    pub fn member(&self, group: &str) -> Member {
        Member {
            client: Client::connect(self.broker.address),
            group: group.to_owned(),
            id: String::new(),
            instance: None,
            generation: -1,
            session_ms: 10_000,
            waiting: 0,
        }
    }

    pub fn static_member(&self, group: &str, instance: &str) -> Member {
        Member { instance: Some(instance.to_owned()), ..self.member(group) }
    }

    /// A group with one member that has its assignment.
    pub fn alone(&self, group: &str) -> Member {
        let mut member = self.member(group);
        member.get_id();
        assert_eq!(member.join().error_code, 0);
        assert_eq!(member.sync_as_leader(&[]).error_code, 0);
        member
    }

    /// A group with two members that have their assignments; the first leads.
    pub fn pair(&self, group: &str) -> (Member, Member) {
        let mut leader = self.alone(group);
        let mut follower = self.member(group);
        bring_in(&mut leader, &mut follower);
        follower.begin_sync(&[]);
        assert_eq!(leader.sync_as_leader(&[&follower.id]).error_code, 0);
        assert_eq!(follower.synced().error_code, 0);
        (leader, follower)
    }

    /// Commits offsets of the usual topic for a client that manages its partitions itself; gives the errors.
    pub fn commit(&mut self, group: &str, offsets: &[(i32, i64)]) -> Vec<i16> {
        let offsets: Vec<_> = offsets.iter().map(|(partition, offset)| (*partition, *offset, "")).collect();
        commit_errors(&self.client.ask(COMMIT, &commit_of(group, "", -1, TOPIC, &offsets)))
    }

    /// Offset, leader epoch, metadata, error.
    pub fn kept(&mut self, group: &str, topic: &str, partition: i32) -> (i64, i32, String, i16) {
        let mut answer = self.fetch_offsets(group, Some(&[(topic, &[partition])]));
        assert_eq!(answer.error_code, 0);
        let kept = answer.topics.remove(0).partitions.remove(0);
        let metadata = kept.metadata.unwrap_or_default().to_string();
        (kept.committed_offset, kept.committed_leader_epoch, metadata, kept.error_code)
    }

    /// By version 8.
    pub fn fetch_offsets(&mut self, group: &str, topics: Option<&[(&str, &[i32])]>) -> OffsetFetchResponseGroup {
        let request = OffsetFetchRequest::default().with_groups(vec![wanted(group, topics)]);
        self.client.ask(8, &request).groups.remove(0)
    }
}

/// Brings a new member into a group with one; both have joined then, and nobody has an assignment.
pub fn bring_in(leader: &mut Member, new: &mut Member) {
    new.get_id();
    new.begin_join();
    leader.await_rebalance();
    leader.begin_join();
    assert_eq!(leader.joined().error_code, 0);
    assert_eq!(new.joined().error_code, 0);
    assert_eq!(leader.generation, new.generation);
}

pub fn wanted(group: &str, topics: Option<&[(&str, &[i32])]>) -> OffsetFetchRequestGroup {
    let topics = topics.map(|topics| {
        let topic = |(topic, partitions): &(&str, &[i32])| {
            OffsetFetchRequestTopics::default().with_name(name(topic)).with_partition_indexes(partitions.to_vec())
        };
        topics.iter().map(topic).collect()
    });
    OffsetFetchRequestGroup::default().with_group_id(group_id(group)).with_topics(topics)
}

pub fn group_id(group: &str) -> GroupId {
    GroupId(text(group))
}

/// Partition, offset, metadata.
pub fn commit_of(
    group: &str,
    member: &str,
    generation: i32,
    topic: &str,
    offsets: &[(i32, i64, &str)],
) -> OffsetCommitRequest {
    let partitions = offsets.iter().map(|(index, offset, metadata)| {
        let partition = OffsetCommitRequestPartition::default().with_partition_index(*index);
        partition.with_committed_offset(*offset).with_committed_metadata(Some(text(metadata)))
    });
    let topic = OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(partitions.collect());
    let request = OffsetCommitRequest::default().with_group_id(group_id(group)).with_member_id(text(member));
    request.with_generation_id_or_member_epoch(generation).with_topics(vec![topic])
}

pub fn commit_errors(answer: &OffsetCommitResponse) -> Vec<i16> {
    answer.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code).collect()
}

/// A member on its own connection; it lives on the broker until it leaves or its session ends.
pub struct Member {
    pub client: Client,
    pub group: String,
    pub id: String,
    pub instance: Option<String>,
    pub generation: i32,
    pub session_ms: i32,
    waiting: i32,
}

impl Member {
    pub fn join_request(&self) -> JoinGroupRequest {
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
        let protocol = protocol.with_metadata(Bytes::from_static(b"metadata"));
        JoinGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_session_timeout_ms(self.session_ms)
            .with_rebalance_timeout_ms(10_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol])
    }

    /// The first join of a member that is not static.
    pub fn get_id(&mut self) {
        let answer = self.client.ask(JOIN, &self.join_request());
        assert_eq!(answer.error_code, 79);
        self.id = answer.member_id.to_string();
    }

    pub fn begin_join(&mut self) {
        self.waiting = self.client.send(JOIN, &self.join_request());
    }

    pub fn joined(&mut self) -> JoinGroupResponse {
        let answer = self.client.receive::<JoinGroupRequest>(JOIN, self.waiting);
        if answer.error_code == 0 {
            self.id = answer.member_id.to_string();
            self.generation = answer.generation_id;
        }
        answer
    }

    pub fn join(&mut self) -> JoinGroupResponse {
        self.begin_join();
        self.joined()
    }

    pub fn sync_request(&self, members: &[&str]) -> SyncGroupRequest {
        let assignments = members.iter().map(|member| {
            let assignment = Bytes::copy_from_slice(format!("of {member}").as_bytes());
            SyncGroupRequestAssignment::default().with_member_id(text(member)).with_assignment(assignment)
        });
        SyncGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_generation_id(self.generation)
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text("range")))
            .with_assignments(assignments.collect())
    }

    pub fn begin_sync(&mut self, members: &[&str]) {
        self.waiting = self.client.send(SYNC, &self.sync_request(members));
    }

    pub fn synced(&mut self) -> SyncGroupResponse {
        self.client.receive::<SyncGroupRequest>(SYNC, self.waiting)
    }

    /// Assigns to itself and to the others.
    pub fn sync_as_leader(&mut self, others: &[&str]) -> SyncGroupResponse {
        let id = self.id.clone();
        self.begin_sync(&[&[id.as_str()], others].concat());
        self.synced()
    }

    pub fn heartbeat_request(&self) -> HeartbeatRequest {
        HeartbeatRequest::default()
            .with_group_id(group_id(&self.group))
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_generation_id(self.generation)
    }

    pub fn heartbeat(&mut self) -> i16 {
        self.client.ask(HEARTBEAT, &self.heartbeat_request()).error_code
    }

    /// Lives until the group wants everybody to join again.
    pub fn await_rebalance(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.heartbeat() != 27 {
            assert!(Instant::now() < until, "no rebalance comes");
        }
    }

    pub fn leave(&mut self) -> i16 {
        let member = MemberIdentity::default().with_member_id(text(&self.id));
        let member = member.with_group_instance_id(self.instance.as_deref().map(text));
        let request = LeaveGroupRequest::default().with_group_id(group_id(&self.group));
        let answer = self.client.ask(LEAVE, &request.with_members(vec![member]));
        if answer.error_code == 0 { answer.members[0].error_code } else { answer.error_code }
    }

    /// Commits one offset of the usual topic.
    pub fn commit(&mut self, offset: i64) -> i16 {
        let instance = self.instance.as_deref().map(text);
        let request = commit_of(&self.group, &self.id, self.generation, TOPIC, &[(0, offset, "")]);
        commit_errors(&self.client.ask(COMMIT, &request.with_group_instance_id(instance)))[0]
    }

    /// Does what a client does until it is the only member and has its assignment.
    pub fn until_alone(&mut self) {
        let until = Instant::now() + PATIENCE;
        while !self.is_alone_after_a_round() {
            assert!(Instant::now() < until, "the other member does not go");
        }
        assert_eq!(self.heartbeat(), 0);
    }

    fn is_alone_after_a_round(&mut self) -> bool {
        let joined = self.join();
        assert_eq!(joined.error_code, 0);
        let others: Vec<String> = joined.members.iter().map(|member| member.member_id.to_string()).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        self.begin_sync(&others);
        let synced = self.synced().error_code;
        if others.len() == 1 && synced == 0 {
            return true;
        }
        if synced == 0 {
            self.await_rebalance();
        } else {
            assert_eq!(synced, 27);
        }
        false
    }
}
