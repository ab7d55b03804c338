//! Offsets that a group keeps: what was committed outside of transactions, or by transactions that are complete.
//!
//! Each is kept with the offset of its record in the log: of two, the one that was written later counts, in whatever order
//! they become valid. Those of open transactions stand beside these ([`PendingOffsets`]).

use std::collections::{BTreeMap, BTreeSet};

use super::classic::{Classic, Phase};
use super::messages::{OffsetKept, OffsetToCommit, OffsetsWanted, TopicWanted};
use super::pending_offsets::PendingOffsets;
use crate::ids::{Offset, TopicId};
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::{CommittedOffset, GroupRecord};

/// An offset and where its record is.
#[derive(Debug)]
pub(super) struct Kept {
    pub value: CommittedOffset,
    /// Offset of the record in the log of the groups.
    pub record: Offset,
}

/// Offsets of one group.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    topics: BTreeMap<String, BTreeMap<i32, Kept>>,
}

impl Offsets {
    /// Nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Keeps an offset.
    pub fn keep(&mut self, topic: String, partition: i32, kept: Kept) {
        self.topics.entry(topic).or_default().insert(partition, kept);
    }

    /// Forgets an offset.
    pub fn forget(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.topics.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.topics.remove(topic);
            }
        }
    }

    /// Takes over the offsets of a transaction that is complete; what was written behind them stays.
    ///
    /// Source: apache/kafka `OffsetMetadataManager.replayEndTransactionMarker`.
    pub fn keep_newer(&mut self, committed: Self) {
        for (topic, partitions) in committed.topics {
            for (partition, kept) in partitions {
                if self.get(&topic, partition).is_none_or(|present| present.record < kept.record) {
                    self.keep(topic.clone(), partition, kept);
                }
            }
        }
    }

    /// The offset of a partition.
    pub fn get(&self, topic: &str, partition: i32) -> Option<&Kept> {
        self.topics.get(topic)?.get(&partition)
    }

    /// Everything, by topic and partition.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i32, &CommittedOffset)> {
        let topics = self.topics.iter();
        topics.flat_map(|(topic, partitions)| partitions.iter().map(|(p, kept)| (topic.as_str(), *p, &kept.value)))
    }

    /// Partitions of a topic that have an offset, of this life of the topic or of an unknown one.
    pub fn of_topic(&self, topic: &str, id: TopicId) -> Vec<i32> {
        let Some(partitions) = self.topics.get(topic) else { return Vec::new() };
        partitions.iter().filter(|(_, kept)| kept.value.is_of(id)).map(|(partition, _)| *partition).collect()
    }

    /// Answers a look-up, in its order; or all that is kept. Partitions that a transaction is open on are refused if the
    /// client wants what is stable.
    pub fn look_up(&self, wanted: &OffsetsWanted, pending: &PendingOffsets) -> Vec<(String, Vec<OffsetKept>)> {
        let pending = wanted.require_stable.then_some(pending);
        match &wanted.topics {
            Some(topics) => {
                topics.iter().map(|topic| (topic.topic.clone(), self.look_up_topic(topic, pending))).collect()
            }
            None => self.topics.keys().map(|topic| (topic.clone(), self.all_of(topic, pending))).collect(),
        }
    }

    fn look_up_topic(&self, wanted: &TopicWanted, pending: Option<&PendingOffsets>) -> Vec<OffsetKept> {
        let kept = self.topics.get(&wanted.topic);
        let one = |partition: &i32| {
            if pending.is_some_and(|pending| pending.holds(&wanted.topic, *partition, wanted.topic_id)) {
                return unstable(*partition);
            }
            let kept = kept.and_then(|kept| kept.get(partition)).filter(|kept| kept.value.is_of(wanted.topic_id));
            answer(*partition, kept)
        };
        wanted.partitions.iter().map(one).collect()
    }

    fn all_of(&self, topic: &str, pending: Option<&PendingOffsets>) -> Vec<OffsetKept> {
        let partitions = self.topics.get(topic).map(|kept| kept.keys().copied().collect()).unwrap_or_default();
        self.look_up_topic(&TopicWanted { topic: topic.to_owned(), topic_id: TopicId::ZERO, partitions }, pending)
    }
}

fn answer(partition: i32, kept: Option<&Kept>) -> OffsetKept {
    let kept = kept.map(|kept| &kept.value);
    OffsetKept {
        partition,
        offset: kept.map_or(Offset(-1), |kept| kept.offset),
        leader_epoch: kept.map_or(-1, |kept| kept.leader_epoch),
        metadata: kept.map(|kept| kept.metadata.clone()).unwrap_or_default(),
        error: ErrorCode::None,
    }
}

fn unstable(partition: i32) -> OffsetKept {
    OffsetKept { error: ErrorCode::UnstableOffsetCommit, ..answer(partition, None) }
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
/// which topics that are read are spared. What a transaction is open on stays.
///
/// Source: apache/kafka `ClassicGroup.offsetExpirationCondition`, `OffsetMetadataManager.cleanupExpiredOffsets`.
pub(super) fn expired(
    group: &Classic,
    offsets: &Offsets,
    pending: &PendingOffsets,
    wall_ms: i64,
    retention_ms: i64,
) -> Expired {
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
    let mut expired = Expired { offsets: BTreeSet::new(), all: pending.is_empty() };
    for (topic, partition, kept) in offsets.iter() {
        let is_free = !group.is_subscribed(topic) && !pending.holds(topic, partition, TopicId::ZERO);
        if is_free && is_over(kept) {
            expired.offsets.insert((topic.to_owned(), partition));
        } else {
            expired.all = false;
        }
    }
    expired
}
