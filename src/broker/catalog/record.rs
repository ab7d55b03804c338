//! The catalog's records as bytes: what the catalog log keeps.
//!
//! ```text
//! record  fields u16 · field*          little-endian throughout
//! field   tag u16 · length u32 · bytes
//! text    bytes of UTF-8 · map: (length u32 · key · length u32 · value)* · logs: (first u64 · count u32)*
//! ```
//! A field whose tag is not known is skipped (a later version added it); a field that is missing, a kind that is not
//! known and bytes that end early are refused with a sentence: the catalog is never guessed.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::config::Overrides;
use crate::ids::{LogId, TopicId};

/// One durable fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogRecord {
    /// Who this is; the first record of a data folder.
    Identity {
        /// 22 characters of URL-safe base64.
        cluster_id: String,
        /// This broker's id.
        node_id: i32,
    },
    /// A topic exists from now on.
    TopicMade {
        /// Name.
        name: String,
        /// Id, new for each life.
        id: TopicId,
        /// True for the broker's own topics.
        internal: bool,
        /// Log of each partition.
        logs: Vec<LogId>,
        /// What was set on it.
        overrides: Overrides,
    },
    /// A topic is gone.
    TopicRemoved {
        /// Its id.
        id: TopicId,
    },
    /// A topic has more partitions.
    PartitionsAdded {
        /// Its id.
        id: TopicId,
        /// Logs of the new ones, in order.
        logs: Vec<LogId>,
    },
    /// A partition is in another log from now on: its data was brought in from elsewhere.
    PartitionLog {
        /// The topic's id.
        id: TopicId,
        /// Partition index.
        partition: i32,
        /// Its log.
        log: LogId,
    },
    /// What is set on a topic, as a whole.
    TopicConfigs {
        /// Its id.
        id: TopicId,
        /// All overrides.
        overrides: Overrides,
    },
    /// What is set on the broker, as a whole.
    BrokerConfigs {
        /// For all brokers.
        all: Overrides,
        /// For this one.
        broker: Overrides,
    },
    /// Ids below these were given out; a counter never goes back.
    Counters {
        /// First free log id.
        next_log_id: u64,
        /// First free producer id.
        next_producer_id: i64,
    },
}

/// Why bytes are not a record of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    kind: u8,
    what: &'static str,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "catalog record of kind {}: {}", self.kind, self.what)
    }
}

impl std::error::Error for RecordError {}

const IDENTITY: u8 = 16;
const TOPIC_MADE: u8 = 17;
const TOPIC_REMOVED: u8 = 18;
const PARTITIONS_ADDED: u8 = 19;
const TOPIC_CONFIGS: u8 = 20;
const BROKER_CONFIGS: u8 = 21;
const COUNTERS: u8 = 22;
const PARTITION_LOG: u8 = 23;

/// Tags are shared by all kinds, so that a tag means one thing everywhere.
mod tag {
    pub const NAME: u16 = 1;
    pub const ID: u16 = 2;
    pub const INTERNAL: u16 = 3;
    pub const LOGS: u16 = 4;
    pub const OVERRIDES: u16 = 5;
    pub const CLUSTER_ID: u16 = 6;
    pub const NODE_ID: u16 = 7;
    pub const FOR_ALL: u16 = 8;
    pub const NEXT_LOG_ID: u16 = 9;
    pub const NEXT_PRODUCER_ID: u16 = 10;
    pub const PARTITION: u16 = 11;
}

impl CatalogRecord {
    /// The record's kind (16 and above, see storage) and its bytes.
    #[must_use]
    pub fn encode(&self) -> (u8, Bytes) {
        let mut out = Fields::default();
        let kind = match self {
            Self::Identity { cluster_id, node_id } => {
                out.put(tag::CLUSTER_ID, cluster_id.as_bytes());
                out.put(tag::NODE_ID, &node_id.to_le_bytes());
                IDENTITY
            }
            Self::TopicMade { name, id, internal, logs, overrides } => {
                out.put(tag::NAME, name.as_bytes());
                out.put(tag::ID, &id.0);
                out.put(tag::INTERNAL, &[u8::from(*internal)]);
                out.put(tag::LOGS, &encode_logs(logs));
                out.put(tag::OVERRIDES, &encode_map(overrides));
                TOPIC_MADE
            }
            Self::TopicRemoved { id } => {
                out.put(tag::ID, &id.0);
                TOPIC_REMOVED
            }
            Self::PartitionsAdded { id, logs } => {
                out.put(tag::ID, &id.0);
                out.put(tag::LOGS, &encode_logs(logs));
                PARTITIONS_ADDED
            }
            Self::PartitionLog { id, partition, log } => {
                out.put(tag::ID, &id.0);
                out.put(tag::PARTITION, &partition.to_le_bytes());
                out.put(tag::LOGS, &encode_logs(&[*log]));
                PARTITION_LOG
            }
            Self::TopicConfigs { id, overrides } => {
                out.put(tag::ID, &id.0);
                out.put(tag::OVERRIDES, &encode_map(overrides));
                TOPIC_CONFIGS
            }
            Self::BrokerConfigs { all, broker } => {
                out.put(tag::FOR_ALL, &encode_map(all));
                out.put(tag::OVERRIDES, &encode_map(broker));
                BROKER_CONFIGS
            }
            Self::Counters { next_log_id, next_producer_id } => {
                out.put(tag::NEXT_LOG_ID, &next_log_id.to_le_bytes());
                out.put(tag::NEXT_PRODUCER_ID, &next_producer_id.to_le_bytes());
                COUNTERS
            }
        };
        (kind, out.finish())
    }

    /// The record that `kind` and `bytes` stand for.
    ///
    /// # Errors
    /// A kind or a form that this version does not know, with the reason.
    pub fn decode(kind: u8, bytes: &[u8]) -> Result<Self, RecordError> {
        Self::from_fields(kind, bytes).map_err(|what| RecordError { kind, what })
    }

    fn from_fields(kind: u8, bytes: &[u8]) -> Result<Self, &'static str> {
        let fields = Parsed::read(bytes)?;
        Ok(match kind {
            IDENTITY => Self::Identity {
                cluster_id: fields.text(tag::CLUSTER_ID)?,
                node_id: i32::from_le_bytes(fields.array(tag::NODE_ID)?),
            },
            TOPIC_MADE => Self::TopicMade {
                name: fields.text(tag::NAME)?,
                id: TopicId(fields.array(tag::ID)?),
                internal: fields.array::<1>(tag::INTERNAL)? != [0],
                logs: decode_logs(fields.get(tag::LOGS)?)?,
                overrides: decode_map(fields.get(tag::OVERRIDES)?)?,
            },
            TOPIC_REMOVED => Self::TopicRemoved { id: TopicId(fields.array(tag::ID)?) },
            PARTITIONS_ADDED => Self::PartitionsAdded {
                id: TopicId(fields.array(tag::ID)?),
                logs: decode_logs(fields.get(tag::LOGS)?)?,
            },
            PARTITION_LOG => Self::PartitionLog {
                id: TopicId(fields.array(tag::ID)?),
                partition: i32::from_le_bytes(fields.array(tag::PARTITION)?),
                log: only(&decode_logs(fields.get(tag::LOGS)?)?)?,
            },
            TOPIC_CONFIGS => Self::TopicConfigs {
                id: TopicId(fields.array(tag::ID)?),
                overrides: decode_map(fields.get(tag::OVERRIDES)?)?,
            },
            BROKER_CONFIGS => Self::BrokerConfigs {
                all: decode_map(fields.get(tag::FOR_ALL)?)?,
                broker: decode_map(fields.get(tag::OVERRIDES)?)?,
            },
            COUNTERS => Self::Counters {
                next_log_id: u64::from_le_bytes(fields.array(tag::NEXT_LOG_ID)?),
                next_producer_id: i64::from_le_bytes(fields.array(tag::NEXT_PRODUCER_ID)?),
            },
            _ => return Err("this version does not know the kind; it was written by a newer one"),
        })
    }
}

/// Fields on their way out.
#[derive(Default)]
struct Fields {
    count: u16,
    body: BytesMut,
}

impl Fields {
    fn put(&mut self, tag: u16, value: &[u8]) {
        self.count += 1;
        self.body.put_u16_le(tag);
        put_sized(&mut self.body, value);
    }

    fn finish(self) -> Bytes {
        let mut record = BytesMut::with_capacity(2 + self.body.len());
        record.put_u16_le(self.count);
        record.put_slice(&self.body);
        record.freeze()
    }
}

fn put_sized(out: &mut BytesMut, value: &[u8]) {
    // Requests are at most 8 MiB, so nothing in a record comes near 4 GiB.
    out.put_u32_le(u32::try_from(value.len()).unwrap_or(u32::MAX));
    out.put_slice(value);
}

fn encode_map(map: &Overrides) -> BytesMut {
    let mut out = BytesMut::new();
    for (name, value) in map {
        put_sized(&mut out, name.as_bytes());
        put_sized(&mut out, value.as_bytes());
    }
    out
}

/// Log ids are given out in runs, so a topic of 10,000 partitions takes 12 bytes here.
fn encode_logs(logs: &[LogId]) -> BytesMut {
    let mut out = BytesMut::new();
    for run in logs.chunk_by(|one, next| next.0 == one.0 + 1) {
        out.put_u64_le(run[0].0);
        out.put_u32_le(u32::try_from(run.len()).unwrap_or(u32::MAX));
    }
    out
}

/// Fields on their way in.
struct Parsed<'a>(Vec<(u16, &'a [u8])>);

impl<'a> Parsed<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let mut rest = bytes;
        let count = u16::from_le_bytes(take(&mut rest)?);
        let mut fields: Vec<(u16, &[u8])> = Vec::new();
        for _ in 0..count {
            let tag = u16::from_le_bytes(take(&mut rest)?);
            if fields.iter().any(|(seen, _)| *seen == tag) {
                return Err("a field is there twice");
            }
            fields.push((tag, take_sized(&mut rest)?));
        }
        if rest.is_empty() { Ok(Self(fields)) } else { Err("bytes behind the last field") }
    }

    fn get(&self, tag: u16) -> Result<&'a [u8], &'static str> {
        self.0.iter().find(|(seen, _)| *seen == tag).map(|(_, value)| *value).ok_or("a field is missing")
    }

    fn array<const N: usize>(&self, tag: u16) -> Result<[u8; N], &'static str> {
        self.get(tag)?.try_into().map_err(|_| "a field has the wrong length")
    }

    fn text(&self, tag: u16) -> Result<String, &'static str> {
        text(self.get(tag)?)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or("the bytes end early")?;
    *rest = tail;
    Ok(*head)
}

fn take_sized<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let length = u32::from_le_bytes(take(rest)?) as usize;
    let (head, tail) = rest.split_at_checked(length).ok_or("the bytes end early")?;
    *rest = tail;
    Ok(head)
}

fn text(bytes: &[u8]) -> Result<String, &'static str> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| "a text is not UTF-8")
}

fn decode_map(mut rest: &[u8]) -> Result<Overrides, &'static str> {
    let mut map = Overrides::new();
    while !rest.is_empty() {
        let name = text(take_sized(&mut rest)?)?;
        let value = text(take_sized(&mut rest)?)?;
        map.insert(name, value);
    }
    Ok(map)
}

fn decode_logs(mut rest: &[u8]) -> Result<Vec<LogId>, &'static str> {
    let mut logs = Vec::new();
    while !rest.is_empty() {
        let first = u64::from_le_bytes(take(&mut rest)?);
        let count = u32::from_le_bytes(take(&mut rest)?);
        if count as usize > super::PARTITIONS_MAX {
            return Err("more partitions than a broker may have");
        }
        let end = first.checked_add(u64::from(count)).ok_or("a log id beyond 64 bits")?;
        logs.extend((first..end).map(LogId));
    }
    Ok(logs)
}

fn only(logs: &[LogId]) -> Result<LogId, &'static str> {
    if let [log] = logs { Ok(*log) } else { Err("not exactly one log") }
}
