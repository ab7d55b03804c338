//! Keys and values of `__transaction_state`, in Kafka's schema (architecture decision D5).
//!
//! ```text
//! key    0  transactional id
//! value  0  producer id · epoch · time-out · status · partitions · updated · begun
//!        1  the same, flexible, with tags: 0 previous producer id · 1 next producer id · 2 protocol
//!           · 10000 last epoch (corelane's own: Kafka forgets it over a restart, and fences a producer that asks again)
//! ```
//! Both are read, the second is written.
//!
//! Source: apache/kafka `TransactionLogKey.json`, `TransactionLogValue.json`; KIP-890.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::internal::{Fields, KeyValue, RecordError, TooLong};
use super::reader::{Reader, WireError};
use crate::ids::{ProducerEpoch, ProducerId, TopicPartition};

const KEY: i16 = 0;
const OLD_VALUE: i16 = 0;
const VALUE: i16 = 1;
const PREVIOUS_TAG: u32 = 0;
const NEXT_TAG: u32 = 1;
const PROTOCOL_TAG: u32 = 2;
const LAST_EPOCH_TAG: u32 = 10_000;
/// Fewest bytes of a topic with its partitions, in either version.
const TOPIC_BYTES_MIN: usize = 3;

/// No producer.
pub const NO_PRODUCER: ProducerId = ProducerId(-1);
/// No epoch.
pub const NO_EPOCH: ProducerEpoch = ProducerEpoch(-1);

/// Where a transaction is, as it stands in the log.
///
/// Source: apache/kafka `TransactionState.java`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i8)]
pub enum Status {
    /// None was begun.
    Empty = 0,
    /// Partitions were added.
    Ongoing = 1,
    /// It will be committed, whatever happens.
    PrepareCommit = 2,
    /// It will be aborted, whatever happens.
    PrepareAbort = 3,
    /// Every partition has its marker.
    CompleteCommit = 4,
    /// Every partition has its marker.
    CompleteAbort = 5,
}

impl Status {
    /// Every status, ascending.
    pub const ALL: [Self; 6] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
    ];

    /// By its number.
    #[must_use]
    pub fn from_code(code: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|status| *status as i8 == code)
    }

    /// Its name, as clients read and write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }
}

/// A record of `__transaction_state`; without a value it forgets the transactional id (a tombstone).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRecord {
    /// Whose transaction.
    pub transactional_id: Arc<str>,
    /// What is kept; none removes it.
    pub value: Option<TransactionValue>,
}

/// What is kept of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionValue {
    /// The producer id in force.
    pub producer_id: ProducerId,
    /// The one before it, if it was replaced; -1 for none.
    pub previous_producer_id: ProducerId,
    /// The one that follows when the transaction is complete; -1 for none.
    pub next_producer_id: ProducerId,
    /// The epoch in force.
    pub epoch: ProducerEpoch,
    /// The epoch before it, with which a call may be repeated; -1 for none.
    pub last_epoch: ProducerEpoch,
    /// So long a transaction may be open, in ms.
    pub timeout_ms: i32,
    /// Where the transaction is.
    pub status: Status,
    /// Partitions that need a marker, by topic, ascending.
    pub partitions: Vec<TopicPartition>,
    /// Broker's time of this record, in ms.
    pub updated_ms: i64,
    /// Broker's time of the first partition, in ms; -1 before that.
    pub begun_ms: i64,
    /// Protocol of the client's last call: 2 where the epoch rises with each transaction.
    pub protocol: i16,
}

impl TransactionRecord {
    /// Key and value as Kafka writes them.
    ///
    /// # Errors
    /// Where a name is longer than the schema allows.
    pub fn encode(&self) -> Result<KeyValue, TooLong> {
        let mut key = Fields::default();
        key.i16(KEY);
        key.text(&self.transactional_id);
        let value = self.value.as_ref().map(TransactionValue::encode).transpose()?;
        Ok(KeyValue { key: key.take()?, value })
    }

    /// Reads a key and a value that may be anything.
    ///
    /// # Errors
    /// `UnknownKey` and `UnknownValue` for what is passed over; `Broken` for what ought to be readable.
    pub fn decode(record: KeyValue) -> Result<Self, RecordError> {
        let mut key = Reader::new(record.key, false);
        match key.i16("key version")? {
            KEY => Ok(Self {
                transactional_id: Arc::from(&*key.text("transactional id")?),
                value: record.value.map(TransactionValue::decode).transpose()?,
            }),
            other => Err(RecordError::UnknownKey(other)),
        }
    }
}

impl TransactionValue {
    fn encode(&self) -> Result<Bytes, TooLong> {
        let mut out = Fields::default();
        out.i16(VALUE);
        let mut writer = out.flexible();
        writer.i64(self.producer_id.0);
        writer.i16(self.epoch.0);
        writer.i32(self.timeout_ms);
        writer.i8(self.status as i8);
        // Kafka writes none where no transaction was begun, which is another thing than an empty list.
        let topics = (self.status != Status::Empty).then(|| by_topic(&self.partitions));
        writer.count(topics.as_ref().map(BTreeMap::len));
        for (topic, partitions) in topics.into_iter().flatten() {
            writer.nullable_text(Some(topic));
            writer.count(Some(partitions.len()));
            partitions.iter().for_each(|partition| writer.i32(*partition));
            writer.no_tagged();
        }
        writer.i64(self.updated_ms);
        writer.i64(self.begun_ms);
        let tags = self.tags();
        writer.varint(u32::try_from(tags.len()).unwrap_or(0));
        for (tag, value) in tags {
            writer.tagged(tag, |content| content.bytes(&value));
        }
        out.take()
    }

    /// Tags with their values, ascending; those that say nothing are left out.
    fn tags(&self) -> Vec<(u32, Vec<u8>)> {
        let id = |id: ProducerId| (id != NO_PRODUCER).then(|| id.0.to_be_bytes().to_vec());
        let number = |number: i16, nothing: i16| (number != nothing).then(|| number.to_be_bytes().to_vec());
        let tags = [
            (PREVIOUS_TAG, id(self.previous_producer_id)),
            (NEXT_TAG, id(self.next_producer_id)),
            (PROTOCOL_TAG, number(self.protocol, 0)),
            (LAST_EPOCH_TAG, number(self.last_epoch.0, NO_EPOCH.0)),
        ];
        tags.into_iter().filter_map(|(tag, value)| Some((tag, value?))).collect()
    }

    fn decode(value: Bytes) -> Result<Self, RecordError> {
        let mut head = Reader::new(value, false);
        let version = head.i16("value version")?;
        if !(OLD_VALUE..=VALUE).contains(&version) {
            return Err(RecordError::UnknownValue(version));
        }
        let mut value = Reader::new(head.rest(), version >= VALUE);
        let producer_id = ProducerId(value.i64("producer id")?);
        let epoch = ProducerEpoch(value.i16("producer epoch")?);
        let timeout_ms = value.i32("transaction timeout")?;
        let status = value.i8("transaction status")?;
        let status = Status::from_code(status).ok_or(RecordError::UnknownStatus(status))?;
        let mut decoded = Self {
            producer_id,
            previous_producer_id: NO_PRODUCER,
            next_producer_id: NO_PRODUCER,
            epoch,
            last_epoch: NO_EPOCH,
            timeout_ms,
            status,
            partitions: decode_partitions(&mut value)?,
            updated_ms: value.i64("last update")?,
            begun_ms: value.i64("start")?,
            protocol: 0,
        };
        value.tagged("tagged fields", |tag, content| {
            let mut content = Reader::new(content, true);
            match tag {
                PREVIOUS_TAG => decoded.previous_producer_id = ProducerId(content.i64("previous producer id")?),
                NEXT_TAG => decoded.next_producer_id = ProducerId(content.i64("next producer id")?),
                PROTOCOL_TAG => decoded.protocol = content.i16("client transaction version")?,
                LAST_EPOCH_TAG => decoded.last_epoch = ProducerEpoch(content.i16("last epoch")?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(decoded)
    }
}

/// Partitions under their topics, both ascending.
fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<&str, Vec<i32>> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for of in partitions {
        topics.entry(&of.topic).or_default().push(of.partition);
    }
    topics
}

fn decode_partitions(value: &mut Reader) -> Result<Vec<TopicPartition>, WireError> {
    let mut partitions = Vec::new();
    let topics = value.nullable_array_of("partitions", TOPIC_BYTES_MIN, |value| {
        let topic: Arc<str> = Arc::from(&*value.text("topic")?);
        for partition in value.array_of("partition ids", 4, |value| value.i32("partition id"))? {
            partitions.push(TopicPartition { topic: Arc::clone(&topic), partition });
        }
        value.skip_tagged("tagged fields of a topic")
    })?;
    drop(topics);
    partitions.sort_unstable();
    partitions.dedup();
    Ok(partitions)
}
