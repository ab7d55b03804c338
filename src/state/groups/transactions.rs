//! Transactions that have written offsets: from their first record to their marker.

use std::sync::Arc;

use super::{AppendId, Groups};
use crate::ids::ProducerId;
use crate::state::transactions::messages::Outcome;
use crate::wire::internal::GroupRecord;

impl Groups {
    /// A marker of a producer's transaction was staged behind all appends that were given out; how it ends is told by
    /// [`Groups::appended`], as for those.
    pub fn marker_staged(&mut self, producer: ProducerId, outcome: Outcome) -> AppendId {
        self.desk.flight.append_marker(producer, outcome)
    }

    /// Takes a marker of the log: what the producer's transaction wrote counts from now on, or is forgotten. A marker may
    /// come again.
    pub fn replay_marker(&mut self, producer: ProducerId, outcome: Outcome) {
        for group in self.open.remove(&producer).unwrap_or_default() {
            if let Some(entry) = self.table.get_mut(&group) {
                entry.end_transaction(producer, outcome);
            }
        }
    }

    /// What open transactions have written, by group and producer.
    #[must_use]
    pub fn pending(&self) -> Vec<(ProducerId, GroupRecord)> {
        let of_group = |group: &Arc<str>, (producer, topic, partition, kept): (ProducerId, &str, i32, &_)| {
            let (group, topic) = (group.to_string(), topic.to_owned());
            (producer, GroupRecord::Offset { group, topic, partition, value: Some(Clone::clone(kept)) })
        };
        let entries = self.table.values();
        entries.flat_map(|entry| entry.pending.iter().map(|pending| of_group(&entry.name, pending))).collect()
    }

    /// Whether a transaction has written offsets and has no marker yet.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.open.keys().next().is_some()
    }

    /// Notes the group of a record that waits for a marker.
    pub(super) fn note_open(&mut self, producer: Option<ProducerId>, record: &GroupRecord) {
        if let (Some(producer), GroupRecord::Offset { group, value: Some(_), .. }) = (producer, record) {
            let group = self
                .table
                .get_key_value(group.as_str())
                .map_or_else(|| Arc::from(group.as_str()), |(name, _)| Arc::clone(name));
            self.open.entry(producer).or_default().insert(group);
        }
    }
}
