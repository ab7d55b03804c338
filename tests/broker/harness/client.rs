//! A client that speaks the bare protocol: requests in any version, pipelined or not, frames that are wrong on purpose.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use uuid::Uuid;

/// Nothing that is answered at all takes so long.
const PATIENCE: Duration = Duration::from_secs(30);
const PRODUCE: i16 = 9;
const FETCH: i16 = 12;

pub fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub fn name(value: &str) -> TopicName {
    TopicName(text(value))
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    correlation: i32,
}

/// What a partition answered to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    pub error: i16,
    pub base_offset: i64,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, correlation: 0 }
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// A request as bytes, with its length in front.
    pub fn frame<R: Request>(&mut self, version: i16, request: &R) -> BytesMut {
        self.correlation += 1;
        let mut frame = BytesMut::zeroed(4);
        let header = RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(version);
        let header = header.with_correlation_id(self.correlation).with_client_id(Some(text("test")));
        header.encode(&mut frame, R::header_version(version)).unwrap();
        request.encode(&mut frame, version).unwrap();
        let length = u32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        frame
    }

    /// Sends a request without waiting; returns its correlation id.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let frame = self.frame(version, request);
        self.stream.write_all(&frame).unwrap();
        self.correlation
    }

    /// The next answer as it comes.
    ///
    /// # Errors
    /// `UnexpectedEof` when the broker closed the connection.
    pub fn receive_frame(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut answer)?;
        Ok(Bytes::from(answer))
    }

    /// The next answer, which must be the one to `correlation`.
    pub fn receive<R: Request>(&mut self, version: i16, correlation: i32) -> R::Response
    where
        R::Response: Decodable,
    {
        let mut answer = self.receive_frame().unwrap();
        let header = ResponseHeader::decode(&mut answer, R::Response::header_version(version)).unwrap();
        assert_eq!(header.correlation_id, correlation);
        let response = R::Response::decode(&mut answer, version).unwrap();
        assert!(answer.is_empty(), "{} bytes behind the answer", answer.len());
        response
    }

    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response
    where
        R::Response: Decodable,
    {
        let correlation = self.send(version, request);
        self.receive::<R>(version, correlation)
    }

    /// True when the broker has closed the connection; waits for it or for an answer.
    pub fn is_closed(&mut self) -> bool {
        loop {
            match self.stream.read(&mut [0; 4096]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return true,
                Err(_) => return false,
            }
        }
    }

    pub fn create_topic(&mut self, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
        let configs = configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value))));
        let topic = CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs.collect());
        let answer = self.ask(7, &CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000));
        assert_eq!(answer.topics[0].error_code, 0, "{:?}", answer.topics[0]);
    }

    pub fn delete_topic(&mut self, topic: &str) {
        let state = DeleteTopicState::default().with_name(Some(name(topic)));
        let answer = self.ask(6, &DeleteTopicsRequest::default().with_topics(vec![state]).with_timeout_ms(30_000));
        assert_eq!(answer.responses[0].error_code, 0);
    }

    /// Deletes records below an offset; gives the error and the low watermark.
    pub fn delete_records(&mut self, topic: &str, partition: i32, before: i64) -> (i16, i64) {
        let asked = DeleteRecordsPartition::default().with_partition_index(partition).with_offset(before);
        let asked = DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![asked]);
        let answer = self.ask(2, &DeleteRecordsRequest::default().with_topics(vec![asked]).with_timeout_ms(30_000));
        let found = &answer.topics[0].partitions[0];
        (found.error_code, found.low_watermark)
    }

    /// The id and the number of partitions of a topic; nothing where it does not exist.
    pub fn topic(&mut self, topic: &str) -> Option<(Uuid, usize)> {
        let wanted = MetadataRequestTopic::default().with_name(Some(name(topic)));
        let request = MetadataRequest::default().with_topics(Some(vec![wanted])).with_allow_auto_topic_creation(false);
        let answer = self.ask(12, &request);
        let found = &answer.topics[0];
        (found.error_code == 0).then_some((found.topic_id, found.partitions.len()))
    }

    pub fn init_producer_id(&mut self) -> i64 {
        let request = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
        loop {
            let answer = self.ask(4, &request);
            match answer.error_code {
                0 => return answer.producer_id.0,
                // A block of ids is on its way to the disk.
                14 => {}
                other => panic!("InitProducerId: error {other}"),
            }
        }
    }

    /// Sends one batch; returns the correlation id.
    pub fn send_batch(&mut self, topic: &str, partition: i32, acks: i16, batch: &[u8]) -> i32 {
        self.send(PRODUCE, &produce_request(topic, partition, acks, batch))
    }

    pub fn receive_produced(&mut self, correlation: i32) -> Produced {
        let answer = self.receive::<ProduceRequest>(PRODUCE, correlation);
        let partition = &answer.responses[0].partition_responses[0];
        Produced { error: partition.error_code, base_offset: partition.base_offset }
    }

    pub fn produce(&mut self, topic: &str, partition: i32, batch: &[u8]) -> Produced {
        let correlation = self.send_batch(topic, partition, -1, batch);
        self.receive_produced(correlation)
    }

    /// The same, or nothing when the broker has closed the connection.
    pub fn try_produce(&mut self, topic: &str, partition: i32, batch: &[u8]) -> Option<Produced> {
        let frame = self.frame(PRODUCE, &produce_request(topic, partition, -1, batch));
        self.stream.write_all(&frame).ok()?;
        let mut answer = self.receive_frame().ok()?;
        ResponseHeader::decode(&mut answer, ProduceResponse::header_version(PRODUCE)).unwrap();
        let answer = ProduceResponse::decode(&mut answer, PRODUCE).unwrap();
        let partition = &answer.responses[0].partition_responses[0];
        Some(Produced { error: partition.error_code, base_offset: partition.base_offset })
    }

    /// Offset by timestamp; -1 is the end of the log, -2 its start.
    pub fn offset_at(&mut self, topic: &str, partition: i32, timestamp: i64) -> i64 {
        let asked = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(timestamp);
        let asked = asked.with_current_leader_epoch(-1);
        let asked = ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![asked]);
        let answer = self.ask(7, &ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![asked]));
        let found = &answer.topics[0].partitions[0];
        assert_eq!(found.error_code, 0, "{topic}-{partition}");
        found.offset
    }

    pub fn end(&mut self, topic: &str, partition: i32) -> i64 {
        self.offset_at(topic, partition, -1)
    }

    /// Whole batches from `offset` on, at most about 1 MiB; with the error.
    pub fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> (i16, Bytes) {
        let answer = self.ask(FETCH, &fetch_request(topic, partition, offset, 0));
        let found = &answer.responses[0].partitions[0];
        (found.error_code, found.records.clone().unwrap_or_default())
    }

    /// All bytes of a partition, batch behind batch.
    pub fn read_all(&mut self, topic: &str, partition: i32) -> Vec<u8> {
        let end = self.end(topic, partition);
        self.read_until(topic, partition, end)
    }

    /// All bytes of a partition below `end`.
    pub fn read_until(&mut self, topic: &str, partition: i32, end: i64) -> Vec<u8> {
        let mut all = Vec::new();
        let mut offset = self.offset_at(topic, partition, -2);
        while offset < end {
            let (error, records) = self.fetch(topic, partition, offset);
            assert_eq!(error, 0, "{topic}-{partition} at {offset}");
            assert!(!records.is_empty(), "nothing at {offset} of {end}");
            let whole = super::batches::whole(&records);
            offset = whole.last().unwrap().end();
            let bytes = whole.iter().map(|batch| batch.bytes.len()).sum();
            all.extend_from_slice(&records[..bytes]);
        }
        all
    }
}

pub fn produce_request(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition);
    let data = data.with_records(Some(Bytes::copy_from_slice(batch)));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

pub fn fetch_request(topic: &str, partition: i32, offset: i64, wait_ms: i32) -> FetchRequest {
    let asked = FetchPartition::default().with_partition(partition).with_fetch_offset(offset);
    let asked = asked.with_partition_max_bytes(1 << 20).with_current_leader_epoch(-1);
    let asked = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![asked]);
    FetchRequest::default()
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![asked])
}
