//! Keys and values of the internal topics' records, in Kafka's schemas (architecture decision D5).

use bytes::Bytes;

use crate::ids::{Offset, TopicId};

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
