//! Offsets that a group keeps: what was committed outside of transactions, or by transactions that are complete.
//!
//! Offsets of open transactions will stand beside these, by producer, until their marker comes: they win over what is
//! kept only if they were written later, they keep it from expiring, and they are what `require_stable` asks about.

use std::collections::{BTreeMap, BTreeSet};

use super::classic::{Classic, Phase};
use super::messages::{OffsetKept, OffsetToCommit, OffsetsWanted, TopicWanted};
use crate::ids::{Offset, TopicId};
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::{CommittedOffset, GroupRecord};

/// Offsets of one group.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    topics: BTreeMap<String, BTreeMap<i32, CommittedOffset>>,
}

impl Offsets {
    /// Nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Keeps an offset, or forgets it.
    pub fn apply(&mut self, topic: String, partition: i32, value: Option<CommittedOffset>) {
        match value {
            Some(value) => {
                self.topics.entry(topic).or_default().insert(partition, value);
            }
            None => {
                if let Some(partitions) = self.topics.get_mut(&topic) {
                    partitions.remove(&partition);
                    if partitions.is_empty() {
                        self.topics.remove(&topic);
                    }
                }
            }
        }
    }

    /// The offset of a partition.
    pub fn get(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.topics.get(topic)?.get(&partition)
    }

    /// Everything, by topic and partition.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i32, &CommittedOffset)> {
        let topics = self.topics.iter();
        topics.flat_map(|(topic, partitions)| partitions.iter().map(|(p, kept)| (topic.as_str(), *p, kept)))
    }

    /// Partitions of a topic that have an offset, of this life of the topic or of an unknown one.
    pub fn of_topic(&self, topic: &str, id: TopicId) -> Vec<i32> {
        let Some(partitions) = self.topics.get(topic) else { return Vec::new() };
        partitions.iter().filter(|(_, kept)| kept.is_of(id)).map(|(partition, _)| *partition).collect()
    }

    /// Answers a look-up, in its order; or all that is kept.
    pub fn look_up(&self, wanted: &OffsetsWanted) -> Vec<(String, Vec<OffsetKept>)> {
        match &wanted.topics {
            Some(topics) => topics.iter().map(|topic| (topic.topic.clone(), self.look_up_topic(topic))).collect(),
            None => self.topics.iter().map(|(topic, partitions)| (topic.clone(), all_of(partitions))).collect(),
        }
    }

    fn look_up_topic(&self, wanted: &TopicWanted) -> Vec<OffsetKept> {
        let kept = self.topics.get(&wanted.topic);
        let one = |partition: &i32| {
            let kept = kept.and_then(|kept| kept.get(partition)).filter(|kept| kept.is_of(wanted.topic_id));
            answer(*partition, kept)
        };
        wanted.partitions.iter().map(one).collect()
    }
}

fn all_of(partitions: &BTreeMap<i32, CommittedOffset>) -> Vec<OffsetKept> {
    partitions.iter().map(|(partition, kept)| answer(*partition, Some(kept))).collect()
}

fn answer(partition: i32, kept: Option<&CommittedOffset>) -> OffsetKept {
    OffsetKept {
        partition,
        offset: kept.map_or(Offset(-1), |kept| kept.offset),
        leader_epoch: kept.map_or(-1, |kept| kept.leader_epoch),
        metadata: kept.map(|kept| kept.metadata.clone()).unwrap_or_default(),
        error: ErrorCode::None,
    }
}

/// What a client wants to be kept, as the record says it.
pub(super) fn record(group: &str, asked: OffsetToCommit, wall_ms: i64, expire_ms: Option<i64>) -> GroupRecord {
    let value = CommittedOffset {
        offset: asked.offset,
        leader_epoch: asked.leader_epoch,
        metadata: asked.metadata,
        commit_ms: wall_ms,
        expire_ms,
        topic_id: asked.topic_id,
    };
    GroupRecord::Offset { group: group.to_owned(), topic: asked.topic, partition: asked.partition, value: Some(value) }
}

/// The record that removes an offset.
pub(super) fn tombstone(group: &str, topic: &str, partition: i32) -> GroupRecord {
    GroupRecord::Offset { group: group.to_owned(), topic: topic.to_owned(), partition, value: None }
}

/// Whether a client's text is longer than allowed, in characters as Java counts them.
pub(super) fn is_too_long(metadata: &str, max: usize) -> bool {
    metadata.len() > max && metadata.encode_utf16().count() > max
}

/// What has expired in a group.
#[derive(Debug, Default)]
pub(super) struct Expired {
    /// Topic and partition.
    pub offsets: BTreeSet<(String, i32)>,
    /// Nothing is left.
    pub all: bool,
}

/// Which offsets have been kept for long enough: from when the group became empty; from the commit in a group without
/// members of its own, in one whose record does not tell since when it is empty, and in a stable one of consumers, of
/// which topics that are read are spared.
///
/// Source: apache/kafka `ClassicGroup.offsetExpirationCondition`, `OffsetMetadataManager.cleanupExpiredOffsets`.
pub(super) fn expired(group: &Classic, offsets: &Offsets, wall_ms: i64, retention_ms: i64) -> Expired {
    let since = |kept: &CommittedOffset| match (&group.protocol_type, group.phase) {
        (None, _) => Some(kept.commit_ms),
        (Some(_), Phase::Empty) => Some(group.since_ms.unwrap_or(kept.commit_ms)),
        (Some(_), Phase::Stable) if group.is_consumers() && group.subscribed.is_some() => Some(kept.commit_ms),
        _ => None,
    };
    let is_over = |kept: &CommittedOffset| match (since(kept), kept.expire_ms) {
        (None, _) => false,
        (Some(_), Some(expire_ms)) => wall_ms >= expire_ms,
        (Some(since_ms), None) => wall_ms.saturating_sub(since_ms) >= retention_ms,
    };
    let mut expired = Expired { offsets: BTreeSet::new(), all: true };
    for (topic, partition, kept) in offsets.iter() {
        if !group.is_subscribed(topic) && is_over(kept) {
            expired.offsets.insert((topic.to_owned(), partition));
        } else {
            expired.all = false;
        }
    }
    expired
}
