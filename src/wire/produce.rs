//! Produce requests and responses, versions 3 to 13, without copying records.
//!
//! 5 log start · 8 record errors · 9 flexible · 10 current leader and node endpoints, tagged · 13 topic ids.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;

use super::error_code::ErrorCode;
use super::frame::{PREFIX_BYTES, set_prefix};
use super::reader::{Reader, WireError};
use super::sink::{Counted, Sink, Writer};
use super::topic::{Dialect, TopicRef};
use crate::ids::Offset;

/// Oldest version that is served.
pub const VERSION_MIN: i16 = 3;

/// Newest version that is served.
pub const VERSION_MAX: i16 = 13;

const DIALECT: Dialect = Dialect { api_key: 0, served: VERSION_MIN..=VERSION_MAX, flexible_from: 9, ids_from: 13 };

/// A request to append records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceRequest {
    /// Set by transactional producers.
    pub transactional_id: Option<StrBytes>,
    /// When to answer: -1 durable, 1 written, 0 never.
    pub acks: i16,
    /// How long the answer may take, in ms.
    pub timeout_ms: i32,
    /// Topics in the order of the request.
    pub topics: Vec<TopicRecords>,
}

/// What is appended to one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRecords {
    /// By name, from version 13 on by id.
    pub topic: TopicRef,
    /// Partitions in the order of the request.
    pub partitions: Vec<PartitionRecords>,
}

/// What is appended to one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRecords {
    /// Partition index.
    pub index: i32,
    /// Batches as received, a slice of the frame.
    pub records: Option<Bytes>,
    /// What the request said of the same partition before, see [`ProduceRequest::name_each_once`].
    pub earlier: Vec<Option<Bytes>>,
}

impl PartitionRecords {
    /// Everything that the request says of the partition, in order.
    pub fn all(&self) -> impl Iterator<Item = Option<&Bytes>> {
        self.earlier.iter().chain([&self.records]).map(Option::as_ref)
    }
}

impl ProduceRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// Where the bytes are no such request; `Version` for a version that is not served.
    pub fn read(body: Bytes, version: i16) -> Result<Self, WireError> {
        let mut reader = DIALECT.reader(body, version)?;
        let request = Self {
            transactional_id: reader.nullable_text("the transactional id")?,
            acks: reader.i16("acks")?,
            timeout_ms: reader.i32("the time-out")?,
            topics: DIALECT.read_topics(
                &mut reader,
                version,
                partition_bytes_min(version),
                read_partition,
                |topic, partitions| TopicRecords { topic, partitions },
            )?,
        };
        reader.skip_tagged("the produce request")?;
        Ok(request)
    }

    /// Puts together what is said of one topic, and of one partition, in several places; topics without partitions go.
    pub fn name_each_once(&mut self) {
        self.topics.retain(|topic| !topic.partitions.is_empty());
        merge_equal(&mut self.topics, |one| &one.topic, |topic, more| topic.partitions.extend(more.partitions));
        for topic in &mut self.topics {
            merge_equal(
                &mut topic.partitions,
                |one| &one.index,
                |partition, more| {
                    let earlier = std::mem::replace(&mut partition.records, more.records);
                    partition.earlier.push(earlier);
                },
            );
        }
    }
}

/// So many are compared one by one.
const FEW: usize = 16;

/// Merges entries of the same key into the first of them.
fn merge_equal<T, K: Clone + Eq + Hash>(all: &mut Vec<T>, key: impl Fn(&T) -> &K, mut merge: impl FnMut(&mut T, T)) {
    let is_new = |(at, one): (usize, &T)| all.iter().take(at).all(|before| key(before) != key(one));
    if all.len() <= FEW && all.iter().enumerate().all(is_new) {
        return;
    }
    let mut places = HashMap::with_capacity(all.len());
    let mut kept: Vec<T> = Vec::with_capacity(all.len());
    for one in all.drain(..) {
        match places.entry(key(&one).clone()) {
            Entry::Occupied(place) => {
                if let Some(first) = kept.get_mut(*place.get()) {
                    merge(first, one);
                }
            }
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(one);
            }
        }
    }
    *all = kept;
}

/// Fewest bytes that a partition takes: index, length, and tagged fields.
fn partition_bytes_min(version: i16) -> usize {
    if DIALECT.is_flexible(version) { 4 + 1 + 1 } else { 4 + 4 }
}

fn read_partition(reader: &mut Reader) -> Result<PartitionRecords, WireError> {
    let index = reader.i32("the partition index")?;
    let records = reader.nullable_bytes("the records")?;
    reader.skip_tagged("the partition")?;
    Ok(PartitionRecords { index, records, earlier: Vec::new() })
}

/// What became of a request to append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceResponse {
    /// Topics in the order of the request.
    pub topics: Vec<TopicAppended>,
    /// How long the client was held back, in ms.
    pub throttle_ms: i32,
}

/// What became of one topic's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicAppended {
    /// As in the request.
    pub topic: TopicRef,
    /// Partitions in the order of the request.
    pub partitions: Vec<PartitionAppended>,
}

/// What became of one partition's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAppended {
    /// Partition index.
    pub index: i32,
    /// What went wrong.
    pub error: ErrorCode,
    /// Offset of the first record; -1 if nothing was appended.
    pub base_offset: Offset,
    /// The broker's time in the records, in ms; -1 if they keep their own.
    pub log_append_time_ms: i64,
    /// First offset that the partition still holds; -1 if unknown.
    pub log_start_offset: Offset,
    /// The records that are to blame: index within the batch and a sentence.
    pub record_errors: Vec<RecordFault>,
    /// What went wrong, in a sentence.
    pub error_message: Option<Arc<str>>,
    /// Leader id and epoch, for a client that asked the wrong broker.
    pub current_leader: Option<(i32, i32)>,
}

/// One record that made its batch be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFault {
    /// Index within the batch, from 0.
    pub index: i32,
    /// What is wrong with it.
    pub message: Option<String>,
}

impl PartitionAppended {
    /// An answer that says that nothing was appended.
    #[must_use]
    pub fn refused(index: i32, error: ErrorCode) -> Self {
        Self {
            index,
            error,
            base_offset: Offset(-1),
            log_append_time_ms: -1,
            log_start_offset: Offset(-1),
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }

    /// An answer that says where the records went.
    #[must_use]
    pub fn appended(index: i32, base_offset: Offset, log_append_time_ms: i64, log_start_offset: Offset) -> Self {
        Self { base_offset, log_append_time_ms, log_start_offset, ..Self::refused(index, ErrorCode::None) }
    }
}

impl ProduceResponse {
    /// Writes the whole frame: length, header, body.
    #[must_use]
    pub fn encode(&self, version: i16, correlation_id: i32) -> BytesMut {
        let mut size = Counted::default();
        self.write(&mut size, version, correlation_id);
        let mut out = BytesMut::with_capacity(size.0);
        self.write(&mut out, version, correlation_id);
        set_prefix(&mut out);
        out
    }

    fn write(&self, sink: &mut impl Sink, version: i16, correlation_id: i32) {
        sink.put(&[0; PREFIX_BYTES]);
        let mut out = Writer::new(sink, DIALECT.is_flexible(version));
        out.i32(correlation_id);
        out.no_tagged();
        let topics = self.topics.iter().map(|topic| (&topic.topic, topic.partitions.as_slice()));
        DIALECT.write_topics(&mut out, version, topics, |out, partition| write_partition(out, partition, version));
        out.i32(self.throttle_ms);
        out.no_tagged();
    }
}

fn write_partition(out: &mut Writer<'_, impl Sink>, partition: &PartitionAppended, version: i16) {
    out.i32(partition.index);
    out.i16(partition.error.code());
    out.i64(partition.base_offset.0);
    out.i64(partition.log_append_time_ms);
    if version >= 5 {
        out.i64(partition.log_start_offset.0);
    }
    if version >= 8 {
        out.count(Some(partition.record_errors.len()));
        for fault in &partition.record_errors {
            out.i32(fault.index);
            out.nullable_text(fault.message.as_deref());
            out.no_tagged();
        }
        out.nullable_text(partition.error_message.as_deref());
    }
    match partition.current_leader {
        Some((id, epoch)) if version >= 10 => {
            out.varint(1);
            out.tagged_leader(0, id, epoch);
        }
        _ => out.no_tagged(),
    }
}
