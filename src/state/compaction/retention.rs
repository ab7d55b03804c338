//! What stays of a batch, and of a record.
//!
//! ```text
//! record with a newer one of its key below the end of the round   goes
//! tombstone whose batch has a delete horizon that has passed       goes
//! record without a key                                             goes
//! record of an aborted transaction                                 goes
//! marker of a transaction of which nothing is left                 goes once its delete horizon has passed
//! everything else                                                  stays
//! ```
//! A batch all of whose records go leaves its header where somebody still needs it: the newest batch of a producer that
//! lives tells its last sequence, and the last batch of a segment tells where the segment ends.
//!
//! Source: apache/kafka `Cleaner.cleanInto`, `Cleaner.shouldRetainRecord`; KIP-534.

use super::offset_map::OffsetMap;
use super::transactions::{CleanedTransactions, Marker};
use crate::ids::{Offset, ProducerEpoch, ProducerId};

/// What is known of a batch before its records are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSeen {
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Who wrote it; negative for nobody.
    pub producer_id: ProducerId,
    /// Incarnation of the writer.
    pub epoch: ProducerEpoch,
    /// For control batches, what it says.
    pub marker: Option<Marker>,
    /// Whether it belongs to a transaction.
    pub is_transactional: bool,
    /// After which time its tombstones, or its marker, may go.
    pub delete_horizon_ms: Option<i64>,
}

/// The newest that is known of a producer that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastOfProducer {
    /// Its newest record; `None` where only a marker is known.
    pub offset: Option<Offset>,
    /// Its epoch.
    pub epoch: ProducerEpoch,
}

/// What is done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// None of its records stays.
    pub drops_records: bool,
    /// Its header stays, whatever becomes of its records.
    pub keeps_header: bool,
    /// A marker of a transaction of which nothing else is left: it gets a delete horizon.
    pub is_spent_marker: bool,
}

/// Decides on one batch, in the order of the log.
pub fn judge_batch(
    batch: &BatchSeen,
    segment_end: Offset,
    last_of_producer: Option<LastOfProducer>,
    transactions: &mut CleanedTransactions,
    now_ms: i64,
) -> Verdict {
    let is_spent = match batch.marker {
        Some(marker) => transactions.on_marker(batch.producer_id, batch.last_offset, marker),
        None => transactions.on_batch(batch.producer_id, batch.last_offset, batch.is_transactional),
    };
    let is_past = batch.delete_horizon_ms.is_some_and(|horizon_ms| horizon_ms <= now_ms);
    let is_marker = batch.marker.is_some();
    let is_newest = batch.producer_id.0 >= 0
        && last_of_producer.is_some_and(|last| match last.offset {
            Some(offset) => batch.last_offset == offset,
            None => is_marker && batch.epoch == last.epoch,
        });
    Verdict {
        drops_records: is_spent && (!is_marker || is_past),
        keeps_header: is_newest || batch.last_offset.plus(1) >= segment_end,
        is_spent_marker: is_spent && is_marker,
    }
}

/// Decides on one record of a batch of data whose records are not dropped altogether.
#[must_use]
pub fn keeps_record(
    map: &OffsetMap,
    offset: Offset,
    key: Option<&[u8]>,
    has_value: bool,
    delete_horizon_ms: Option<i64>,
    now_ms: i64,
) -> bool {
    if map.end().is_none_or(|end| offset >= end) {
        return true;
    }
    let Some(key) = key else { return false };
    let is_newest = map.newest(key).is_none_or(|newest| offset >= newest);
    let is_wanted = has_value || delete_horizon_ms.is_none_or(|horizon_ms| now_ms < horizon_ms);
    is_newest && is_wanted
}
