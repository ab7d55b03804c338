//! Offsets of a group that open transactions have written, until their markers come.
//!
//! Nobody is given them. They keep what is kept from expiring, and they are what `require_stable` asks about. A tombstone
//! takes them away like what is kept, so that the end of the transaction brings nothing back.
//!
//! Source: apache/kafka `OffsetMetadataManager.java`.

use std::collections::{BTreeMap, BTreeSet};

use super::offsets::{Kept, Offsets};
use crate::ids::{ProducerId, TopicId};
use crate::wire::internal::CommittedOffset;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct PendingOffsets {
    /// Producers that have any.
    by_producer: BTreeMap<ProducerId, Offsets>,
}

impl PendingOffsets {
    /// No transaction is open on the group.
    pub fn is_empty(&self) -> bool {
        self.by_producer.is_empty()
    }

    /// Notes an offset; the producer's earlier one for the partition is overtaken.
    pub fn keep(&mut self, producer: ProducerId, topic: String, partition: i32, kept: Kept) {
        self.by_producer.entry(producer).or_default().keep(topic, partition, kept);
    }

    /// Forgets the offsets of a partition, whoever wrote them.
    pub fn forget(&mut self, topic: &str, partition: i32) {
        self.by_producer.retain(|_, offsets| {
            offsets.forget(topic, partition);
            !offsets.is_empty()
        });
    }

    /// The producer's transaction ends: gives what it wrote.
    pub fn take(&mut self, producer: ProducerId) -> Offsets {
        self.by_producer.remove(&producer).unwrap_or_default()
    }

    /// Whether a transaction is open on a partition, of this life of the topic or of an unknown one.
    pub fn holds(&self, topic: &str, partition: i32, id: TopicId) -> bool {
        let is_of = |offsets: &Offsets| offsets.get(topic, partition).is_some_and(|kept| kept.value.is_of(id));
        self.by_producer.values().any(is_of)
    }

    /// Topics and partitions.
    pub fn partitions(&self) -> BTreeSet<(String, i32)> {
        self.iter().map(|(_, topic, partition, _)| (topic.to_owned(), partition)).collect()
    }

    /// Partitions of a topic, of this life of it or of an unknown one.
    pub fn of_topic(&self, topic: &str, id: TopicId) -> BTreeSet<i32> {
        self.by_producer.values().flat_map(|offsets| offsets.of_topic(topic, id)).collect()
    }

    /// Everything, by producer, topic and partition.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &str, i32, &CommittedOffset)> {
        self.by_producer.iter().flat_map(|(producer, offsets)| {
            offsets.iter().map(move |(topic, partition, kept)| (*producer, topic, partition, kept))
        })
    }
}
