//! Keys and values of the internal topics' records, in Kafka's schemas (architecture decision D5).
//!
//! ```text
//! key    0, 1  group · topic · partition                  value 0..=4  offset · leader epoch (3) · metadata · commit time
//!                                                                      · expiry (1 alone) · topic id (4, tagged)
//!        2     group                                      value 0..=4  type · generation · assignor · leader
//!                                                                      · since (2) · members
//! member       id · static name (3) · client id · host · rebalance time-out (1) · session time-out · subscription
//!              · assignment
//! ```
//! All versions are read. Written is what Apache Kafka 4.4.0 writes: key 1 with value 4, or 1 where an expiry is to be
//! kept (which has no place for a leader epoch); key 2 with value 3. Keys from 3 on are other kinds of groups.

use bytes::{Bytes, BytesMut};

use super::reader::{Reader, WireError};
use super::sink::Writer;
use crate::ids::{Offset, TopicId};

/// Key of an offset in the oldest form; the same fields as [`OFFSET_KEY`].
const OLD_OFFSET_KEY: i16 = 0;
const OFFSET_KEY: i16 = 1;
const GROUP_KEY: i16 = 2;
/// The newest version of both values.
const VALUE_MAX: i16 = 4;
/// From here on lengths are compact and fields may be tagged.
const FLEXIBLE_FROM: i16 = 4;
const OFFSET_VALUE: i16 = 4;
const OFFSET_VALUE_WITH_EXPIRY: i16 = 1;
const GROUP_VALUE: i16 = 3;
const TOPIC_ID_TAG: u32 = 0;
/// Fewest bytes of a member, in any version.
const MEMBER_BYTES_MIN: usize = 15;

/// A record of `__consumer_offsets`; without a value it removes what the key names (a tombstone).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// Where a group is in a partition.
    Offset {
        /// Which group.
        group: String,
        /// Topic.
        topic: String,
        /// Partition index.
        partition: i32,
        /// What is kept; none removes it.
        value: Option<CommittedOffset>,
    },
    /// Who is in a group.
    Group {
        /// Which group.
        group: String,
        /// What is kept; none removes it.
        value: Option<GroupMetadata>,
    },
}

/// Value of an offset record.
///
/// Source: apache/kafka `OffsetCommitValue.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Next offset to be read.
    pub offset: Offset,
    /// Leader epoch of the last record read; -1 for none.
    pub leader_epoch: i32,
    /// Whatever the client keeps beside it.
    pub metadata: String,
    /// Broker's time of the commit, in ms.
    pub commit_ms: i64,
    /// Time in ms at which it goes whatever the group does; none for the broker's own rule.
    pub expire_ms: Option<i64>,
    /// The topic's id; zeros where an old record has none.
    pub topic_id: TopicId,
}

impl CommittedOffset {
    /// Whether the offset is of a topic with that id; zeros stand for any.
    #[must_use]
    pub fn is_of(&self, topic_id: TopicId) -> bool {
        self.topic_id == topic_id || self.topic_id == TopicId::ZERO || topic_id == TopicId::ZERO
    }
}

/// Value of a group record.
///
/// Source: apache/kafka `GroupMetadataValue.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMetadata {
    /// "consumer", "connect" …; empty for a group that only keeps offsets.
    pub protocol_type: String,
    /// Which round.
    pub generation: i32,
    /// The assignor.
    pub protocol: Option<String>,
    /// The leader's id.
    pub leader: Option<String>,
    /// Since when the group is in its state, in ms; -1 for unknown.
    pub state_since_ms: i64,
    /// Everybody.
    pub members: Vec<GroupMember>,
}

/// A member in a [`GroupMetadata`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Its id.
    pub member_id: String,
    /// Its name as a static member.
    pub instance_id: Option<String>,
    /// Name that the client gives itself.
    pub client_id: String,
    /// Where it comes from.
    pub client_host: String,
    /// So long a round waits for the member.
    pub rebalance_timeout_ms: i32,
    /// Without a sign of life for so long, the member is gone.
    pub session_timeout_ms: i32,
    /// What it said to the assignor.
    pub subscription: Bytes,
    /// What it was given.
    pub assignment: Bytes,
}

/// Key and value as they stand in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// Key.
    pub key: Bytes,
    /// Value; none removes what the key names.
    pub value: Option<Bytes>,
}

/// A text that the schema cannot hold: its length has 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a text of {0} bytes is too long for a record of the broker's own topics")]
pub struct TooLong(pub usize);

/// Why a record cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A kind of record that is not served here; Kafka passes over those it does not know, too.
    #[error("records with key version {0} are not known here")]
    UnknownKey(i16),
    /// A newer form of a value that must not be passed over.
    #[error("a value has version {0}, which is not known here")]
    UnknownValue(i16),
    /// A status that no transaction has.
    #[error("there is no status {0} of a transaction")]
    UnknownStatus(i8),
    /// The bytes are not what the schema says.
    #[error(transparent)]
    Broken(#[from] WireError),
}

impl GroupRecord {
    /// Key and value as Kafka writes them.
    ///
    /// # Errors
    /// Where a name is longer than the schema allows.
    pub fn encode(&self) -> Result<KeyValue, TooLong> {
        let mut out = Fields::default();
        match self {
            Self::Offset { group, topic, partition, value } => {
                out.i16(OFFSET_KEY);
                out.text(group);
                out.text(topic);
                out.writer().i32(*partition);
                let key = out.take()?;
                let value = value.as_ref().map(CommittedOffset::encode).transpose()?;
                Ok(KeyValue { key, value })
            }
            Self::Group { group, value } => {
                out.i16(GROUP_KEY);
                out.text(group);
                let key = out.take()?;
                let value = value.as_ref().map(GroupMetadata::encode).transpose()?;
                Ok(KeyValue { key, value })
            }
        }
    }

    /// Reads a key and a value that may be anything.
    ///
    /// # Errors
    /// `UnknownKey` for a record of another kind; the others for one that ought to be readable.
    pub fn decode(record: KeyValue) -> Result<Self, RecordError> {
        let mut key = Reader::new(record.key, false);
        match key.i16("key version")? {
            OLD_OFFSET_KEY | OFFSET_KEY => Ok(Self::Offset {
                group: key.text("group")?.to_string(),
                topic: key.text("topic")?.to_string(),
                partition: key.i32("partition")?,
                value: record.value.map(CommittedOffset::decode).transpose()?,
            }),
            GROUP_KEY => Ok(Self::Group {
                group: key.text("group")?.to_string(),
                value: record.value.map(GroupMetadata::decode).transpose()?,
            }),
            other => Err(RecordError::UnknownKey(other)),
        }
    }
}

impl CommittedOffset {
    fn encode(&self) -> Result<Bytes, TooLong> {
        let mut out = Fields::default();
        if let Some(expire_ms) = self.expire_ms {
            out.i16(OFFSET_VALUE_WITH_EXPIRY);
            out.writer().i64(self.offset.0);
            out.text(&self.metadata);
            out.writer().i64(self.commit_ms);
            out.writer().i64(expire_ms);
            return out.take();
        }
        out.i16(OFFSET_VALUE);
        let mut writer = out.flexible();
        writer.i64(self.offset.0);
        writer.i32(self.leader_epoch);
        writer.nullable_text(Some(&self.metadata));
        writer.i64(self.commit_ms);
        if self.topic_id == TopicId::ZERO {
            writer.no_tagged();
        } else {
            writer.varint(1);
            writer.tagged(TOPIC_ID_TAG, |content| content.topic_id(self.topic_id));
        }
        out.take()
    }

    fn decode(value: Bytes) -> Result<Self, RecordError> {
        let (version, mut value) = versioned(value)?;
        let offset = Offset(value.i64("offset")?);
        let leader_epoch = if version >= 3 { value.i32("leader epoch")? } else { -1 };
        let metadata = value.text("metadata")?.to_string();
        let commit_ms = value.i64("commit timestamp")?;
        let expire_ms = if version == 1 { Some(value.i64("expire timestamp")?) } else { None };
        let mut topic_id = TopicId::ZERO;
        value.tagged("tagged fields", |tag, content| {
            if tag == TOPIC_ID_TAG {
                topic_id = Reader::new(content, true).topic_id("topic id")?;
            }
            Ok(())
        })?;
        let expire_ms = expire_ms.filter(|at| *at != -1);
        Ok(Self { offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id })
    }
}

impl GroupMetadata {
    fn encode(&self) -> Result<Bytes, TooLong> {
        let mut out = Fields::default();
        out.i16(GROUP_VALUE);
        out.text(&self.protocol_type);
        out.writer().i32(self.generation);
        out.nullable_text(self.protocol.as_deref());
        out.nullable_text(self.leader.as_deref());
        out.writer().i64(self.state_since_ms);
        out.writer().count(Some(self.members.len()));
        for member in &self.members {
            member.encode(&mut out);
        }
        out.take()
    }

    fn decode(value: Bytes) -> Result<Self, RecordError> {
        let (version, mut value) = versioned(value)?;
        let owned = |text: Option<kafka_protocol::protocol::StrBytes>| text.map(|text| text.to_string());
        let metadata = Self {
            protocol_type: value.text("protocol type")?.to_string(),
            generation: value.i32("generation")?,
            protocol: owned(value.nullable_text("protocol")?),
            leader: owned(value.nullable_text("leader")?),
            state_since_ms: if version >= 2 { value.i64("current state timestamp")? } else { -1 },
            members: value.array_of("members", MEMBER_BYTES_MIN, |value| GroupMember::decode(value, version))?,
        };
        value.skip_tagged("tagged fields")?;
        Ok(metadata)
    }
}

impl GroupMember {
    fn encode(&self, out: &mut Fields) {
        out.text(&self.member_id);
        out.nullable_text(self.instance_id.as_deref());
        out.text(&self.client_id);
        out.text(&self.client_host);
        out.writer().i32(self.rebalance_timeout_ms);
        out.writer().i32(self.session_timeout_ms);
        out.data(&self.subscription);
        out.data(&self.assignment);
    }

    fn decode(value: &mut Reader, version: i16) -> Result<Self, WireError> {
        let member_id = value.text("member id")?.to_string();
        let instance_id = if version >= 3 { value.nullable_text("group instance id")? } else { None };
        let client_id = value.text("client id")?.to_string();
        let client_host = value.text("client host")?.to_string();
        let rebalance_timeout_ms = if version >= 1 { Some(value.i32("rebalance timeout")?) } else { None };
        let session_timeout_ms = value.i32("session timeout")?;
        let subscription = value.nullable_bytes("subscription")?.ok_or(WireError::Null("subscription"))?;
        let assignment = value.nullable_bytes("assignment")?.ok_or(WireError::Null("assignment"))?;
        value.skip_tagged("tagged fields of a member")?;
        Ok(Self {
            member_id,
            instance_id: instance_id.map(|name| name.to_string()),
            client_id,
            client_host,
            // Before there was one, a round waited as long as a session.
            rebalance_timeout_ms: rebalance_timeout_ms.filter(|ms| *ms != -1).unwrap_or(session_timeout_ms),
            session_timeout_ms,
            // Copies: a slice would keep the whole batch in memory.
            subscription: Bytes::copy_from_slice(&subscription),
            assignment: Bytes::copy_from_slice(&assignment),
        })
    }
}

/// The version in front of a value, and the fields behind it.
fn versioned(value: Bytes) -> Result<(i16, Reader), RecordError> {
    let mut head = Reader::new(value, false);
    let version = head.i16("value version")?;
    if !(0..=VALUE_MAX).contains(&version) {
        return Err(RecordError::UnknownValue(version));
    }
    Ok((version, Reader::new(head.rest(), version >= FLEXIBLE_FROM)))
}

/// Fields on their way into a key or a value, and the first text that was too long for them.
#[derive(Default)]
pub(super) struct Fields {
    bytes: BytesMut,
    too_long: Option<TooLong>,
}

impl Fields {
    fn writer(&mut self) -> Writer<'_, BytesMut> {
        Writer::new(&mut self.bytes, false)
    }

    pub(super) fn flexible(&mut self) -> Writer<'_, BytesMut> {
        Writer::new(&mut self.bytes, true)
    }

    pub(super) fn i16(&mut self, value: i16) {
        self.writer().i16(value);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.nullable_text(Some(text));
    }

    fn nullable_text(&mut self, text: Option<&str>) {
        if let Some(text) = text.filter(|text| i16::try_from(text.len()).is_err()) {
            self.too_long.get_or_insert(TooLong(text.len()));
        }
        self.writer().nullable_text(text);
    }

    fn data(&mut self, data: &[u8]) {
        self.writer().bytes_length(data.len());
        self.writer().bytes(data);
    }

    pub(super) fn take(&mut self) -> Result<Bytes, TooLong> {
        match self.too_long {
            Some(too_long) => Err(too_long),
            None => Ok(self.bytes.split().freeze()),
        }
    }
}
