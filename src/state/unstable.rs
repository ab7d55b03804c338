//! Transactions of one partition that keep readers of what is committed back: open ones, and ended ones whose markers
//! nobody may read yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::{Offset, ProducerId};

/// A transaction that is open in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTxn {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its first record here.
    pub first_offset: Offset,
}

/// What a marker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its producer had not written here, as far as is known.
    pub is_new_producer: bool,
    /// First record of the transaction that was open here; `None` where the marker ended nothing.
    pub first_offset: Option<Offset>,
    /// First record of the transactions that are still open, or the offset behind the marker.
    pub last_stable_offset: Offset,
}

/// See the module. Empty, and without memory of its own, where nobody writes in transactions.
#[derive(Debug, Default)]
pub(super) struct Unstable {
    open: BTreeMap<Offset, ProducerId>,
    /// First offsets of those that are ended.
    ended: BTreeSet<Offset>,
    /// Their markers and first offsets, in the order of the markers.
    markers: VecDeque<(Offset, Offset)>,
}

impl Unstable {
    /// A transaction begins.
    pub(super) fn begin(&mut self, id: ProducerId, first: Offset) {
        self.open.insert(first, id);
    }

    /// It ends with a marker.
    pub(super) fn end(&mut self, first: Offset, marker: Offset) {
        if self.open.remove(&first).is_some() {
            self.ended.insert(first);
            self.markers.push_back((marker, first));
        }
    }

    /// It was never there.
    pub(super) fn forget(&mut self, first: Option<Offset>) {
        if let Some(first) = first {
            self.open.remove(&first);
        }
    }

    /// First offset of all that are open.
    pub(super) fn first_open(&self) -> Option<Offset> {
        self.open.first_key_value().map(|(first, _)| *first)
    }

    /// First offset below the high watermark that belongs to a transaction whose end is not readable.
    pub(super) fn first_below(&mut self, high_watermark: Offset) -> Option<Offset> {
        while let Some((_, first)) = self.markers.pop_front_if(|(marker, _)| *marker < high_watermark) {
            self.ended.remove(&first);
        }
        let first = self.first_open().into_iter().chain(self.ended.first().copied()).min();
        first.filter(|first| *first < high_watermark)
    }

    /// Those that are open, by their first offset.
    pub(super) fn open(&self) -> impl Iterator<Item = OpenTxn> {
        self.open.iter().map(|(first_offset, id)| OpenTxn { producer_id: *id, first_offset: *first_offset })
    }
}
