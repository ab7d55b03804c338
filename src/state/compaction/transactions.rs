//! What a round of compaction knows of the transactions that it meets, batch after batch in the order of the log.
//!
//! Records of aborted transactions go at once. A marker goes once nothing of its transaction is left, and then only after
//! the time that tombstones are kept for, so that a reader who began before has seen it.
//!
//! Source: apache/kafka `CleanedTransactionMetadata.java`.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ids::{Offset, ProducerId};

/// An entry of an abort index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Whose transaction.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// Its marker.
    pub last_offset: Offset,
    /// The last stable offset when the marker was written.
    pub last_stable_offset: Offset,
}

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A transaction was aborted.
    Abort,
    /// A transaction was committed.
    Commit,
    /// Something that is never removed.
    Other,
    /// Its record was removed earlier.
    Empty,
}

#[derive(Clone, Copy, Debug)]
struct OpenAborted {
    txn: AbortedTxn,
    has_batches: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct CleanedTransactions {
    /// Not met yet, by first offset.
    waiting: VecDeque<AbortedTxn>,
    aborted: HashMap<ProducerId, OpenAborted>,
    committed: HashSet<ProducerId>,
    /// Aborted ones whose marker was met and stays.
    kept: Vec<AbortedTxn>,
}

impl CleanedTransactions {
    /// A round over offsets from `from` on; `aborted` are the entries of the log's abort indexes, in any order.
    #[must_use]
    pub fn new(mut aborted: Vec<AbortedTxn>, from: Offset) -> Self {
        aborted.retain(|txn| txn.last_offset >= from);
        aborted.sort_by_key(|txn| (txn.first_offset, txn.producer_id));
        aborted.dedup();
        Self { waiting: aborted.into(), ..Self::default() }
    }

    /// A batch of data comes; true when its records were aborted.
    pub fn on_batch(&mut self, producer_id: ProducerId, last_offset: Offset, is_transactional: bool) -> bool {
        self.meet(last_offset);
        if !is_transactional {
            return false;
        }
        match self.aborted.get_mut(&producer_id) {
            Some(open) => {
                open.has_batches = true;
                true
            }
            None => {
                self.committed.insert(producer_id);
                false
            }
        }
    }

    /// A marker comes; true when nothing of its transaction is left before it.
    pub fn on_marker(&mut self, producer_id: ProducerId, last_offset: Offset, marker: Marker) -> bool {
        self.meet(last_offset);
        match marker {
            Marker::Abort => match self.aborted.remove(&producer_id).filter(|open| open.has_batches) {
                Some(open) => {
                    self.kept.push(open.txn);
                    false
                }
                None => true,
            },
            Marker::Commit => !self.committed.remove(&producer_id),
            Marker::Other => false,
            Marker::Empty => true,
        }
    }

    /// The entries for the abort index of the segment that was written since this was last asked.
    pub fn take_kept(&mut self) -> Vec<AbortedTxn> {
        std::mem::take(&mut self.kept)
    }

    fn meet(&mut self, last_offset: Offset) {
        while let Some(txn) = self.waiting.pop_front_if(|txn| txn.first_offset <= last_offset) {
            self.aborted.entry(txn.producer_id).or_insert(OpenAborted { txn, has_batches: false });
        }
    }
}
