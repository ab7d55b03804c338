//! Fetch requests and responses, versions 4 to 18; records are copied once, into a buffer of the final size.
//!
//! 5 log start · 7 sessions · 9 leader epoch · 11 rack · 12 flexible, last fetched epoch · 13 topic ids ·
//! 15 replica state is tagged · 16 node endpoints, tagged · 17 replica directory, tagged · 18 high watermark, tagged.

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;

use super::error_code::ErrorCode;
use super::frame::{PREFIX_BYTES, set_prefix};
use super::reader::{Reader, WireError};
use super::sink::{Counted, Sink, Writer};
use super::stored::RecordData;
use super::topic::{Dialect, TopicRef};
use crate::ids::{Offset, ProducerId};

/// Oldest version that is served.
pub const VERSION_MIN: i16 = 4;

/// Newest version that is served.
pub const VERSION_MAX: i16 = 18;

const FLEXIBLE_FROM: i16 = 12;
const DIALECT: Dialect =
    Dialect { api_key: 1, served: VERSION_MIN..=VERSION_MAX, flexible_from: FLEXIBLE_FROM, ids_from: 13 };
const ENDPOINTS_FROM: i16 = 16;

/// A request for records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// -1 for a consumer.
    pub replica_id: i32,
    /// How long to wait for `min_bytes`, in ms.
    pub max_wait_ms: i32,
    /// Bytes of records worth an answer.
    pub min_bytes: i32,
    /// Most bytes of records of the whole answer.
    pub max_bytes: i32,
    /// 1 for only what is committed.
    pub isolation_level: i8,
    /// Session, 0 for none.
    pub session_id: i32,
    /// Step of the session; -1 for no session.
    pub session_epoch: i32,
    /// Topics in the order of the request.
    pub topics: Vec<FetchTopic>,
    /// What leaves the session.
    pub forgotten: Vec<ForgottenTopic>,
    /// Where the client is.
    pub rack_id: StrBytes,
}

/// What is wanted of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTopic {
    /// By name, from version 13 on by id.
    pub topic: TopicRef,
    /// Partitions in the order of the request.
    pub partitions: Vec<FetchPartition>,
}

/// What is wanted of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// Partition index.
    pub index: i32,
    /// Leader epoch that the client knows; -1 for none.
    pub current_leader_epoch: i32,
    /// First offset that is wanted.
    pub fetch_offset: Offset,
    /// Epoch of the last record that the client has; -1 for none.
    pub last_fetched_epoch: i32,
    /// Log start of a follower; -1 for a consumer.
    pub log_start_offset: Offset,
    /// Most bytes of records of this partition.
    pub max_bytes: i32,
}

/// Partitions that leave a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenTopic {
    /// By name, from version 13 on by id.
    pub topic: TopicRef,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

impl FetchRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// Where the bytes are no such request; `Version` for a version that is not served.
    pub fn read(body: Bytes, version: i16) -> Result<Self, WireError> {
        let mut reader = DIALECT.reader(body, version)?;
        let mut request = Self {
            replica_id: if version < 15 { reader.i32("the replica id")? } else { -1 },
            max_wait_ms: reader.i32("the longest wait")?,
            min_bytes: reader.i32("the fewest bytes")?,
            max_bytes: reader.i32("the most bytes")?,
            isolation_level: reader.i8("the isolation level")?,
            session_id: if version >= 7 { reader.i32("the session id")? } else { 0 },
            session_epoch: if version >= 7 { reader.i32("the session epoch")? } else { -1 },
            topics: DIALECT.read_topics(
                &mut reader,
                version,
                partition_bytes_min(version),
                |reader| read_partition(reader, version),
                |topic, partitions| FetchTopic { topic, partitions },
            )?,
            forgotten: Vec::new(),
            rack_id: StrBytes::default(),
        };
        if version >= 7 {
            let index = |reader: &mut Reader| reader.i32("the forgotten partition");
            let forgotten = |topic, partitions| ForgottenTopic { topic, partitions };
            request.forgotten = DIALECT.read_topics(&mut reader, version, 4, index, forgotten)?;
        }
        if version >= 11 {
            request.rack_id = reader.text("the rack id")?;
        }
        request.read_tagged(&mut reader, version)?;
        Ok(request)
    }

    fn read_tagged(&mut self, reader: &mut Reader, version: i16) -> Result<(), WireError> {
        reader.tagged("the fetch request", |tag, bytes| {
            if tag == 1 && version >= 15 {
                self.replica_id = Reader::new(bytes, true).i32("the replica id")?;
            }
            Ok(())
        })
    }
}

/// Fewest bytes that a partition takes: index, offset and size, then what the versions added.
const fn partition_bytes_min(version: i16) -> usize {
    match version {
        FLEXIBLE_FROM.. => 4 + 8 + 4 + 8 + 4 + 4 + 1,
        9.. => 4 + 8 + 4 + 8 + 4,
        5.. => 4 + 8 + 4 + 8,
        _ => 4 + 8 + 4,
    }
}

fn read_partition(reader: &mut Reader, version: i16) -> Result<FetchPartition, WireError> {
    let partition = FetchPartition {
        index: reader.i32("the partition index")?,
        current_leader_epoch: if version >= 9 { reader.i32("the leader epoch")? } else { -1 },
        fetch_offset: Offset(reader.i64("the fetch offset")?),
        last_fetched_epoch: if version >= 12 { reader.i32("the last fetched epoch")? } else { -1 },
        log_start_offset: Offset(if version >= 5 { reader.i64("the log start offset")? } else { -1 }),
        max_bytes: reader.i32("the most bytes of the partition")?,
    };
    reader.skip_tagged("the partition")?;
    Ok(partition)
}

/// The answer to a request for records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    /// How long the client was held back, in ms.
    pub throttle_ms: i32,
    /// What is wrong with the session.
    pub error: ErrorCode,
    /// Session, 0 for none.
    pub session_id: i32,
    /// Topics in the order of the request.
    pub topics: Vec<FetchedTopic>,
    /// Where the leader is that the partitions name.
    pub leader: Option<NodeEndpoint>,
}

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// Node id.
    pub id: i32,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: i32,
}

/// What one topic has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedTopic {
    /// As in the request.
    pub topic: TopicRef,
    /// Partitions in the order of the request.
    pub partitions: Vec<FetchedPartition>,
}

/// What one partition has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    /// Partition index.
    pub index: i32,
    /// What went wrong.
    pub error: ErrorCode,
    /// First offset that is not readable yet; -1 with an error.
    pub high_watermark: Offset,
    /// First offset that is not readable by read_committed; -1 with an error.
    pub last_stable_offset: Offset,
    /// First offset that the partition still holds; -1 with an error.
    pub log_start_offset: Offset,
    /// Transactions to leave out; `None` for read_uncommitted.
    pub aborted: Option<Vec<AbortedTxn>>,
    /// Replica to read from instead; -1 for none.
    pub preferred_read_replica: i32,
    /// Leader id and epoch, for a client that knows another.
    pub current_leader: Option<(i32, i32)>,
    /// Epoch and end offset where the client's log and ours part.
    pub diverging_epoch: Option<(i32, Offset)>,
    /// Whole batches, written one behind the other.
    pub records: Vec<RecordData>,
}

/// A transaction that a reader has to leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Who wrote it.
    pub producer_id: ProducerId,
    /// Its first offset on the partition.
    pub first_offset: Offset,
}

impl FetchedPartition {
    /// An answer without records that only says what is wrong.
    #[must_use]
    pub fn failed(index: i32, error: ErrorCode) -> Self {
        Self {
            index,
            error,
            high_watermark: Offset(-1),
            last_stable_offset: Offset(-1),
            log_start_offset: Offset(-1),
            aborted: None,
            preferred_read_replica: -1,
            current_leader: None,
            diverging_epoch: None,
            records: Vec::new(),
        }
    }

    /// Bytes of its records.
    #[must_use]
    pub fn records_bytes(&self) -> usize {
        self.records.iter().map(RecordData::len).sum()
    }
}

impl FetchResponse {
    /// Writes the whole frame: length, header, body. Copies the records once.
    #[must_use]
    pub fn encode(&self, version: i16, correlation_id: i32) -> BytesMut {
        let mut out = BytesMut::with_capacity(self.encoded_size(version));
        self.write(&mut out, version, correlation_id);
        set_prefix(&mut out);
        out
    }

    /// Bytes of the whole frame, for the memory budget.
    #[must_use]
    pub fn encoded_size(&self, version: i16) -> usize {
        let mut size = Counted::default();
        self.write(&mut size, version, 0);
        size.0
    }

    fn write(&self, sink: &mut impl Sink, version: i16, correlation_id: i32) {
        sink.put(&[0; PREFIX_BYTES]);
        let mut out = Writer::new(sink, DIALECT.is_flexible(version));
        out.i32(correlation_id);
        out.no_tagged();
        out.i32(self.throttle_ms);
        if version >= 7 {
            out.i16(self.error.code());
            out.i32(self.session_id);
        }
        let topics = self.topics.iter().map(|topic| (&topic.topic, topic.partitions.as_slice()));
        DIALECT.write_topics(&mut out, version, topics, |out, partition| write_partition(out, partition, version));
        match &self.leader {
            Some(leader) if version >= ENDPOINTS_FROM => {
                out.varint(1);
                out.tagged(0, |out| write_endpoint(out, leader));
            }
            _ => out.no_tagged(),
        }
    }
}

/// A list of one broker, without a rack.
fn write_endpoint(out: &mut Writer<'_, impl Sink>, node: &NodeEndpoint) {
    out.count(Some(1));
    out.i32(node.id);
    out.nullable_text(Some(&node.host));
    out.i32(node.port);
    out.nullable_text(None);
    out.no_tagged();
}

fn write_partition(out: &mut Writer<'_, impl Sink>, partition: &FetchedPartition, version: i16) {
    out.i32(partition.index);
    out.i16(partition.error.code());
    out.i64(partition.high_watermark.0);
    out.i64(partition.last_stable_offset.0);
    if version >= 5 {
        out.i64(partition.log_start_offset.0);
    }
    out.count(partition.aborted.as_ref().map(Vec::len));
    for aborted in partition.aborted.iter().flatten() {
        out.i64(aborted.producer_id.0);
        out.i64(aborted.first_offset.0);
        out.no_tagged();
    }
    if version >= 11 {
        out.i32(partition.preferred_read_replica);
    }
    // Never null: librdkafka takes null records for a broken answer.
    out.bytes_length(partition.records_bytes());
    for part in partition.records.iter().flat_map(RecordData::parts) {
        out.bytes(part);
    }
    write_tagged(out, partition, version);
}

/// The tagged fields of a partition: 0 diverging epoch, 1 current leader.
fn write_tagged(out: &mut Writer<'_, impl Sink>, partition: &FetchedPartition, version: i16) {
    if version < FLEXIBLE_FROM {
        return;
    }
    out.varint(u32::from(partition.diverging_epoch.is_some()) + u32::from(partition.current_leader.is_some()));
    if let Some((epoch, end_offset)) = partition.diverging_epoch {
        out.varint(0);
        out.varint(4 + 8 + 1);
        out.i32(epoch);
        out.i64(end_offset.0);
        out.varint(0);
    }
    if let Some((id, epoch)) = partition.current_leader {
        out.tagged_leader(1, id, epoch);
    }
}
