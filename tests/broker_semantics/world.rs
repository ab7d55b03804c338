//! A broker with one client, and short ways to ask it.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use corelane::ids::{ProducerEpoch, ProducerId, Sequence};
use corelane::wire::builder::BatchBuilder;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse, ListOffsetsRequest, ProduceRequest};

use super::harness::batches::whole;
use super::harness::client::name;
use super::harness::{Broker, Client, Folder, Start};

/// Timestamp of the first record of most batches, in ms.
pub const TIME: i64 = 1_700_000_000_000;
/// The topic that every world has, with three partitions.
pub const TOPIC: &str = "t";

/// A broker, its folder and a connection.
pub struct World {
    pub client: Client,
    pub broker: Broker,
    _folder: Folder,
}

/// Error, base offset, log append time, log start.
pub type Short = (i16, i64, i64, i64);

impl World {
    pub fn new(name: &str) -> Self {
        Self::with(name, |start| start)
    }

    /// A world whose broker is started in a special way.
    pub fn with(name: &str, how: impl Fn(Start) -> Start) -> Self {
        let folder = Folder::new(name);
        let broker = how(Start::on(&folder)).start();
        let mut client = Client::connect(broker.address);
        client.create_topic(TOPIC, 3, &[]);
        Self { client, broker, _folder: folder }
    }

    /// A world whose one further topic, named `special`, has that setting.
    pub fn with_special(name: &str, setting: &str, value: &str) -> Self {
        let mut world = Self::new(name);
        world.client.create_topic("special", 1, &[(setting, value)]);
        world
    }

    /// The answer to one batch, by version 9 with acks=all.
    pub fn answer(&mut self, topic: &str, partition: i32, batch: &[u8]) -> PartitionProduceResponse {
        self.answers(9, &request(-1, &[(topic, partition, Some(batch))])).remove(0)
    }

    /// The answers of all partitions, in the order of the request.
    pub fn answers(&mut self, version: i16, request: &ProduceRequest) -> Vec<PartitionProduceResponse> {
        let answer = self.client.ask(version, request);
        answer.responses.into_iter().flat_map(|topic| topic.partition_responses).collect()
    }

    /// Error, base offset, log append time and log start of the answer to one batch.
    pub fn short(&mut self, topic: &str, partition: i32, batch: BatchBuilder) -> Short {
        shortened(&self.answer(topic, partition, &batch.build()))
    }

    /// Error and base offset of the answer to a batch for partition 0 of the usual topic.
    pub fn send(&mut self, batch: BatchBuilder) -> (i16, i64) {
        let answer = self.short(TOPIC, 0, batch);
        (answer.0, answer.1)
    }

    pub fn end(&mut self) -> i64 {
        self.client.end(TOPIC, 0)
    }

    /// Waits until a batch without acks can be read, which is when it is durable; nothing may stand behind it.
    pub fn await_end(&mut self, end: i64) {
        let answer = self.fetch_one(12, &fetch_from(&[(0, end - 1)]).with_max_wait_ms(20_000));
        assert_eq!((answer.error_code, answer.high_watermark), (0, end));
    }

    pub fn fetch(&mut self, version: i16, request: &FetchRequest) -> FetchResponse {
        self.client.ask(version, request)
    }

    /// The first partition of the answer.
    pub fn fetch_one(&mut self, version: i16, request: &FetchRequest) -> PartitionData {
        self.fetch(version, request).responses.remove(0).partitions.remove(0)
    }

    /// The answer to a look-up by time, by version 7.
    pub fn offset(&mut self, topic: &str, timestamp: i64) -> ListOffsetsPartitionResponse {
        self.offset_as(7, topic, timestamp, -1)
    }

    pub fn offset_as(
        &mut self,
        version: i16,
        topic: &str,
        timestamp: i64,
        leader_epoch: i32,
    ) -> ListOffsetsPartitionResponse {
        let asked = ListOffsetsPartition::default().with_timestamp(timestamp).with_current_leader_epoch(leader_epoch);
        let asked = ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![asked]);
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![asked]);
        self.client.ask(version, &request).topics.remove(0).partitions.remove(0)
    }
}

pub fn shortened(answer: &PartitionProduceResponse) -> Short {
    (answer.error_code, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
}

/// Errors of the answers.
pub fn errors(answers: &[PartitionProduceResponse]) -> Vec<i16> {
    answers.iter().map(|one| one.error_code).collect()
}

/// A request with these records, one after another; neighbours of one topic become one topic.
pub fn request(acks: i16, records: &[(&str, i32, Option<&[u8]>)]) -> ProduceRequest {
    let topics = records.chunk_by(|one, next| one.0 == next.0).map(|of_topic| {
        let partitions = of_topic.iter().map(|(_, partition, records)| {
            let data = PartitionProduceData::default().with_index(*partition);
            data.with_records(records.map(Bytes::copy_from_slice))
        });
        TopicProduceData::default().with_name(name(of_topic[0].0)).with_partition_data(partitions.collect())
    });
    ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(topics.collect())
}

/// A batch of nobody.
pub fn plain(records: i32) -> BatchBuilder {
    (0..records).fold(BatchBuilder::new(), |batch, record| batch.value(TIME + i64::from(record), b"value"))
}

/// A batch of a producer in its first epoch.
pub fn of(producer: i64, sequence: i32, records: i32) -> BatchBuilder {
    of_epoch(producer, 0, sequence, records)
}

pub fn of_epoch(producer: i64, epoch: i16, sequence: i32, records: i32) -> BatchBuilder {
    plain(records).producer(ProducerId(producer), ProducerEpoch(epoch), Sequence(sequence))
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Fetches these partitions of the usual topic from these offsets; waits for nothing.
pub fn fetch_from(partitions: &[(i32, i64)]) -> FetchRequest {
    fetch_of(TOPIC, partitions)
}

pub fn fetch_of(topic: &str, partitions: &[(i32, i64)]) -> FetchRequest {
    let partitions = partitions.iter().map(|(index, offset)| {
        let asked = FetchPartition::default().with_partition(*index).with_fetch_offset(*offset);
        asked.with_partition_max_bytes(1 << 20).with_current_leader_epoch(-1)
    });
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(partitions.collect());
    let request = FetchRequest::default().with_min_bytes(1).with_max_bytes(50 << 20).with_session_epoch(-1);
    request.with_topics(vec![topic])
}

/// The base offsets of the whole batches of a partition.
pub fn bases(partition: &PartitionData) -> Vec<i64> {
    let records = partition.records.as_deref().unwrap_or_default();
    whole(records).iter().map(|batch| batch.facts.base_offset.0).collect()
}
