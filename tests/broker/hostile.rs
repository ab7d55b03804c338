//! Frames that lie: the connection is closed or answered, the broker lives, memory stays where it was, others go on
//! (field cases LIM-01, LIM-03, WIRE-09).

use std::fs;
use std::io::Write;

use bytes::{Bytes, BytesMut};
use corelane::requests::Api;
use kafka_protocol::messages::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
use kafka_protocol::messages::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderTopic;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Encodable, Request};

use super::harness::batches::batch_of;
use super::harness::client::{name, produce_request, text};
use super::harness::{Broker, Client, Folder, Random, Start};

const TOPIC: &str = "beside";
/// What memory may grow by beside 64 × the frame.
const SLACK_BYTES: u64 = 1 << 20;

/// A broker under attack, and a client that wants its work done meanwhile.
struct Attacked {
    _folder: Folder,
    broker: Broker,
    honest: Client,
}

impl Attacked {
    fn new(what: &str) -> Self {
        let folder = Folder::new(what);
        let broker = Start::on(&folder).set("auto.create.topics.enable=false").start();
        let mut honest = Client::connect(broker.address);
        honest.create_topic(TOPIC, 2, &[]);
        Self { _folder: folder, broker, honest }
    }

    /// The next client's work is done as if nothing had happened.
    fn is_well(&mut self) {
        for partition in 0..2 {
            assert_eq!(self.honest.produce(TOPIC, partition, &batch_of(-1, 0, 1, "beside", 10)).error, 0);
        }
        assert!(self.broker.is_alive());
    }

    /// Sends bytes on a connection of its own, and waits until the broker has closed it.
    fn closes(&mut self, what: &str, bytes: &[u8]) {
        let mut client = Client::connect(self.broker.address);
        // The broker may have closed before all was sent.
        let _ = client.stream().write_all(bytes);
        assert!(client.is_closed(), "{what}");
    }

    /// Sends a frame and waits for an answer or the end of the connection.
    fn sends(&self, client: &mut Option<Client>, frame: &[u8]) {
        let current = client.get_or_insert_with(|| Client::connect(self.broker.address));
        let sent = current.stream().write_all(frame);
        if sent.is_err() || current.receive_frame().is_err() {
            *client = None;
        }
    }

    /// What `attack` adds to the memory at most, which must not be above `allowed`. Beside the attack the broker fills log
    /// files ahead and writes checkpoints now and then, while what a frame costs, it costs each time: so the least of
    /// several rounds counts.
    fn grows_at_most(&mut self, allowed: u64, mut attack: impl FnMut(&mut Self)) {
        // First so that everything that is kept for the next connections is there.
        attack(self);
        let mut measure = || {
            // Forgets the most memory that was ever used.
            fs::write(format!("/proc/{}/clear_refs", self.broker.id()), "5").unwrap();
            let rest = self.broker.memory("VmRSS");
            attack(self);
            self.broker.memory("VmHWM").saturating_sub(rest)
        };
        let mut grown = Vec::new();
        while grown.last().is_none_or(|bytes| *bytes > allowed) {
            assert!(grown.len() < 10, "{grown:?} bytes more, allowed are {allowed}");
            grown.push(measure());
        }
        println!("{grown:?} bytes more");
    }
}

#[test]
fn lim_01_what_is_no_frame_of_kafkas_is_closed() {
    let mut attacked = Attacked::new("no-frame");
    let tls = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 500]].concat();
    let round = |attacked: &mut Attacked| {
        attacked.closes("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        attacked.closes("TLS", &tls);
        attacked.closes("length -1", &[0xff; 4]);
        attacked.closes("length 0", &[0; 4]);
        attacked.closes("most negative length", &[0x80, 0, 0, 0]);
        attacked.closes("one byte above the limit", &104_857_601_u32.to_be_bytes());
        attacked.closes("largest length", &[0x7f, 0xff, 0xff, 0xff]);
        attacked.closes(
            "large frame of a small request",
            &[&50_000_000_u32.to_be_bytes()[..], &[0, 3, 0, 12, 0, 0, 0, 1]].concat(),
        );
    };
    attacked.grows_at_most(SLACK_BYTES, |attacked| (0..5).for_each(|_| round(attacked)));
    attacked.is_well();
    attacked.broker.stop_cleanly();
}

#[test]
fn keys_and_versions_that_are_not_served_are_closed() {
    let mut attacked = Attacked::new("not-served");
    let frame = |key: i16, version: i16| {
        let mut frame = vec![0, 0, 0, 14];
        frame.extend(key.to_be_bytes());
        frame.extend(version.to_be_bytes());
        frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        frame
    };
    for key in [-1, 999, i16::MAX, i16::MIN, 4, 5, 67] {
        attacked.closes(&format!("key {key}"), &frame(key, 0));
    }
    for api in Api::ALL.into_iter().filter(|api| *api != Api::ApiVersions) {
        for version in [*api.versions().end() + 1, i16::MAX, -1] {
            attacked.closes(&format!("{api:?} version {version}"), &frame(api.key(), version));
        }
    }
    attacked.is_well();
}

#[test]
fn random_bytes_and_frames_that_break_off_harm_nobody() {
    let mut attacked = Attacked::new("random");
    let mut random = Random::new("random");
    for number in 0..300 {
        let mut client = Client::connect(attacked.broker.address);
        let mut frame: Vec<u8> = (0..random.below(200)).map(|_| random.next() as u8).collect();
        let length = (frame.len() as u32 + u32::from(number % 3 == 0) * 50).to_be_bytes();
        if number % 2 == 0 && frame.len() > 4 {
            let api = Api::ALL[random.below(Api::ALL.len() as u64) as usize];
            frame[..2].copy_from_slice(&api.key().to_be_bytes());
            frame[2..4].copy_from_slice(&api.versions().end().to_be_bytes());
        }
        // The broker may have closed already.
        let _ = client.stream().write_all(&[&length[..], &frame].concat());
    }
    attacked.is_well();
    attacked.broker.stop_cleanly();
}

/// A request of each key with one element in every array, so that every count can be made to lie.
fn requests(version: i16, api: Api) -> Option<BytesMut> {
    let topic = || name(TOPIC);
    let group = || GroupId(text("hostile"));
    match api {
        Api::Produce => framed(version, &produce_request(TOPIC, 0, -1, b"not a batch but some bytes")),
        Api::Fetch => {
            let partition = FetchPartition::default().with_current_leader_epoch(-1).with_partition_max_bytes(1000);
            let asked = FetchTopic::default().with_topic(topic()).with_partitions(vec![partition]);
            let forgotten = ForgottenTopic::default().with_topic(topic()).with_partitions(vec![0]);
            let request = FetchRequest::default().with_topics(vec![asked]).with_session_epoch(-1);
            framed(version, &if version >= 7 { request.with_forgotten_topics_data(vec![forgotten]) } else { request })
        }
        Api::ListOffsets => {
            let asked =
                ListOffsetsTopic::default().with_name(topic()).with_partitions(vec![ListOffsetsPartition::default()]);
            framed(version, &ListOffsetsRequest::default().with_topics(vec![asked]))
        }
        Api::Metadata => {
            let asked = MetadataRequestTopic::default().with_name(Some(topic()));
            framed(version, &MetadataRequest::default().with_topics(Some(vec![asked])))
        }
        Api::OffsetCommit => {
            let partition = OffsetCommitRequestPartition::default().with_committed_metadata(Some(text("m")));
            let asked = OffsetCommitRequestTopic::default().with_name(topic()).with_partitions(vec![partition]);
            let request = OffsetCommitRequest::default().with_group_id(group()).with_topics(vec![asked]);
            framed(version, &request.with_generation_id_or_member_epoch(-1))
        }
        Api::TxnOffsetCommit => {
            let partition = TxnOffsetCommitRequestPartition::default().with_committed_metadata(Some(text("m")));
            let asked = TxnOffsetCommitRequestTopic::default().with_name(topic()).with_partitions(vec![partition]);
            let request = TxnOffsetCommitRequest::default().with_group_id(group()).with_topics(vec![asked]);
            let request = request.with_transactional_id(TransactionalId(text("hostile"))).with_generation_id(-1);
            framed(version, &request.with_producer_id(ProducerId(7)))
        }
        Api::OffsetFetch if version < 8 => {
            let asked = OffsetFetchRequestTopic::default().with_name(topic()).with_partition_indexes(vec![0]);
            framed(version, &OffsetFetchRequest::default().with_group_id(group()).with_topics(Some(vec![asked])))
        }
        Api::OffsetFetch => {
            let asked = OffsetFetchRequestTopics::default().with_name(topic()).with_partition_indexes(vec![0]);
            let asked = OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(Some(vec![asked]));
            framed(version, &OffsetFetchRequest::default().with_groups(vec![asked]))
        }
        Api::FindCoordinator if version < 4 => {
            framed(version, &FindCoordinatorRequest::default().with_key(text("hostile")))
        }
        Api::FindCoordinator => {
            framed(version, &FindCoordinatorRequest::default().with_coordinator_keys(vec![text("hostile")]))
        }
        Api::JoinGroup => {
            let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(Bytes::from("m"));
            let request = JoinGroupRequest::default().with_group_id(group()).with_protocol_type(text("consumer"));
            // A member that the group never heard of is answered at once.
            let request = request.with_member_id(text("nobody")).with_session_timeout_ms(10_000);
            framed(version, &request.with_protocols(vec![protocol]))
        }
        Api::Heartbeat => framed(version, &HeartbeatRequest::default().with_group_id(group())),
        Api::LeaveGroup if version < 3 => framed(version, &LeaveGroupRequest::default().with_group_id(group())),
        Api::LeaveGroup => {
            let request = LeaveGroupRequest::default().with_group_id(group());
            framed(version, &request.with_members(vec![MemberIdentity::default()]))
        }
        Api::SyncGroup => {
            let assignment = SyncGroupRequestAssignment::default().with_assignment(Bytes::from("a"));
            let request = SyncGroupRequest::default().with_group_id(group()).with_assignments(vec![assignment]);
            framed(version, &request)
        }
        Api::DescribeGroups => framed(version, &DescribeGroupsRequest::default().with_groups(vec![group()])),
        Api::ListGroups => {
            let request = ListGroupsRequest::default();
            let request = if version >= 4 { request.with_states_filter(vec![text("Empty")]) } else { request };
            framed(version, &if version >= 5 { request.with_types_filter(vec![text("classic")]) } else { request })
        }
        Api::DeleteGroups => framed(version, &DeleteGroupsRequest::default().with_groups_names(vec![group()])),
        Api::OffsetDelete => {
            let partition = OffsetDeleteRequestPartition::default();
            let asked = OffsetDeleteRequestTopic::default().with_name(topic()).with_partitions(vec![partition]);
            framed(version, &OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![asked]))
        }
        Api::ApiVersions => framed(version, &ApiVersionsRequest::default()),
        Api::CreateTopics => {
            let assignment = CreatableReplicaAssignment::default().with_broker_ids(vec![1.into()]);
            let config =
                CreatableTopicConfig::default().with_name(text("segment.bytes")).with_value(Some(text("2000000")));
            let asked =
                CreatableTopic::default().with_name(topic()).with_num_partitions(-1).with_replication_factor(-1);
            let asked = asked.with_assignments(vec![assignment]).with_configs(vec![config]);
            framed(version, &CreateTopicsRequest::default().with_topics(vec![asked]))
        }
        Api::DeleteTopics => {
            let request = DeleteTopicsRequest::default();
            let missing = name("missing");
            framed(
                version,
                &if version >= 6 {
                    request.with_topics(vec![DeleteTopicState::default().with_name(Some(missing))])
                } else {
                    request.with_topic_names(vec![missing])
                },
            )
        }
        Api::DeleteRecords => {
            let asked = DeleteRecordsTopic::default().with_name(topic());
            let asked = asked.with_partitions(vec![DeleteRecordsPartition::default()]);
            framed(version, &DeleteRecordsRequest::default().with_topics(vec![asked]))
        }
        Api::InitProducerId => framed(version, &InitProducerIdRequest::default().with_transactional_id(None)),
        Api::OffsetForLeaderEpoch => {
            let asked = OffsetForLeaderTopic::default().with_topic(topic()).with_partitions(vec![Default::default()]);
            framed(version, &OffsetForLeaderEpochRequest::default().with_topics(vec![asked]))
        }
        Api::DescribeConfigs => {
            let asked = DescribeConfigsResource::default().with_resource_type(2).with_resource_name(text(TOPIC));
            let asked = asked.with_configuration_keys(Some(vec![text("segment.bytes")]));
            framed(version, &DescribeConfigsRequest::default().with_resources(vec![asked]))
        }
        Api::AlterConfigs => {
            use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
            let config = AlterableConfig::default().with_name(text("segment.bytes")).with_value(Some(text("2000000")));
            let asked = AlterConfigsResource::default().with_resource_type(2).with_resource_name(text(TOPIC));
            framed(version, &AlterConfigsRequest::default().with_resources(vec![asked.with_configs(vec![config])]))
        }
        Api::DescribeLogDirs => {
            let asked = DescribableLogDirTopic::default().with_topic(topic()).with_partitions(vec![0]);
            framed(version, &DescribeLogDirsRequest::default().with_topics(Some(vec![asked])))
        }
        Api::CreatePartitions => {
            let assignment = CreatePartitionsAssignment::default().with_broker_ids(vec![1.into()]);
            let asked = CreatePartitionsTopic::default().with_name(name("missing")).with_count(3);
            let asked = asked.with_assignments(Some(vec![assignment]));
            framed(version, &CreatePartitionsRequest::default().with_topics(vec![asked]))
        }
        Api::IncrementalAlterConfigs => {
            let config = AlterableConfig::default().with_name(text("segment.bytes")).with_value(Some(text("2000000")));
            let asked = AlterConfigsResource::default().with_resource_type(2).with_resource_name(text(TOPIC));
            let asked = asked.with_configs(vec![config]);
            framed(version, &IncrementalAlterConfigsRequest::default().with_resources(vec![asked]))
        }
        Api::AddPartitionsToTxn => {
            let asked = AddPartitionsToTxnTopic::default().with_name(topic()).with_partitions(vec![0]);
            let many = AddPartitionsToTxnTransaction::default().with_topics(vec![asked.clone()]);
            let one = AddPartitionsToTxnRequest::default();
            let request =
                if version < 4 { one.with_v3_and_below_topics(vec![asked]) } else { one.with_transactions(vec![many]) };
            framed(version, &request)
        }
        Api::AddOffsetsToTxn => framed(version, &AddOffsetsToTxnRequest::default().with_group_id(group())),
        Api::EndTxn => framed(version, &EndTxnRequest::default()),
        Api::WriteTxnMarkers => {
            let asked = WritableTxnMarkerTopic::default().with_name(topic()).with_partition_indexes(vec![0]);
            let marker = WritableTxnMarker::default().with_producer_id(7.into()).with_topics(vec![asked]);
            framed(version, &WriteTxnMarkersRequest::default().with_markers(vec![marker]))
        }
        Api::DescribeProducers => {
            let asked = describe_producers_request::TopicRequest::default().with_name(topic());
            let asked = asked.with_partition_indexes(vec![0]);
            framed(version, &DescribeProducersRequest::default().with_topics(vec![asked]))
        }
        Api::DescribeTransactions => {
            let asked = TransactionalId(text("hostile"));
            framed(version, &DescribeTransactionsRequest::default().with_transactional_ids(vec![asked]))
        }
        Api::ListTransactions => {
            let request = ListTransactionsRequest::default().with_state_filters(vec![text("Ongoing")]);
            framed(version, &request.with_producer_id_filters(vec![7.into()]))
        }
        Api::DescribeCluster => framed(version, &DescribeClusterRequest::default()),
        Api::DescribeTopicPartitions => {
            let asked = TopicRequest::default().with_name(topic());
            framed(version, &DescribeTopicPartitionsRequest::default().with_topics(vec![asked]))
        }
    }
}

/// Nothing for versions that kafka-protocol does not write.
fn framed<R: Request + Encodable>(version: i16, request: &R) -> Option<BytesMut> {
    let mut frame = BytesMut::zeroed(4);
    let header = RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(version);
    header.encode(&mut frame, R::header_version(version)).ok()?;
    request.encode(&mut frame, version).ok()?;
    let length = u32::try_from(frame.len() - 4).ok()?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Some(frame)
}

/// Puts the largest count at every position behind the header: in one of them stands the count of each array.
fn lies(frame: &[u8], flexible: bool) -> Vec<Bytes> {
    const HEADER_BYTES: usize = 4 + 8;
    let largest: &[u8] = if flexible { &[0xff, 0xff, 0xff, 0xff, 0x07] } else { &[0x7f, 0xff, 0xff, 0xff] };
    let replaced = if flexible { 1 } else { 4 };
    let positions = HEADER_BYTES..frame.len();
    let lie = |at: usize| {
        let mut lying = frame[..at].to_vec();
        lying.extend_from_slice(largest);
        lying.extend_from_slice(frame.get(at + replaced..).unwrap_or_default());
        let length = (lying.len() as u32 - 4).to_be_bytes();
        lying[..4].copy_from_slice(&length);
        Bytes::from(lying)
    };
    positions.map(lie).collect()
}

#[test]
fn lim_03_counts_and_lengths_that_lie_cost_no_memory() {
    let mut attacked = Attacked::new("lies");
    let mut all = Vec::new();
    for api in Api::ALL {
        for version in api.versions() {
            if let Some(frame) = requests(version, api) {
                all.push(frame.clone().freeze());
                all.extend(lies(&frame, api.is_flexible(version)));
            }
        }
    }
    let largest = all.iter().map(Bytes::len).max().unwrap() as u64;
    attacked.grows_at_most(64 * largest + SLACK_BYTES, |attacked| {
        let mut client = None;
        all.iter().for_each(|frame| attacked.sends(&mut client, frame));
    });
    attacked.is_well();
    attacked.broker.stop_cleanly();
}
