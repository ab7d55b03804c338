//! The latest batches of a partition, kept as they were received, so that a read at the tail costs no system call.

use std::collections::VecDeque;

use super::messages::Records;
use crate::ids::Offset;
use crate::wire::stored::{RecordData, StoredBatch};

#[derive(Debug)]
struct Kept {
    base: Offset,
    end: Offset,
    batch: StoredBatch,
}

/// See the module. The bound is the shard's: it drops the oldest batch of all its partitions first.
#[derive(Debug, Default)]
pub struct Tail {
    batches: VecDeque<Kept>,
}

impl Tail {
    /// Adds the newest batch, which ends before `end`.
    pub fn push(&mut self, batch: StoredBatch, end: Offset) {
        self.batches.push_back(Kept { base: batch.base_offset(), end, batch });
    }

    /// Drops everything up to and with the batch that begins at `base`.
    pub fn drop_through(&mut self, base: Offset) {
        while self.batches.front().is_some_and(|front| front.base <= base) {
            self.batches.pop_front();
        }
    }

    /// Whole batches from the one that holds `offset` on, all of them below `upper`; `None` when the first is not here.
    ///
    /// Units: about `bytes_max` bytes; the first batch is there whatever its size if `first_whole`.
    #[must_use]
    pub fn read(&self, offset: Offset, upper: Offset, bytes_max: usize, first_whole: bool) -> Option<Records> {
        let from = self.batches.partition_point(|kept| kept.end <= offset);
        if self.batches.get(from)?.base > offset && from == 0 {
            return None;
        }
        let mut records = Records::default();
        for kept in self.batches.range(from..) {
            let whole_anyway = first_whole && records.parts.is_empty();
            if kept.end > upper {
                break;
            }
            if records.bytes + kept.batch.len() > bytes_max && !whole_anyway {
                records.is_cut = true;
                break;
            }
            records.bytes += kept.batch.len();
            records.parts.push(RecordData::Batch(kept.batch.clone()));
        }
        Some(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn tail(batches: &[(i64, i64)]) -> Tail {
        let mut tail = Tail::default();
        for (base, end) in batches {
            let received = Bytes::from(vec![0; 100]);
            tail.push(StoredBatch::place(&received, Offset(*base), 0), Offset(*end));
        }
        tail
    }

    fn bases(records: &Records) -> Vec<i64> {
        let base = |part: &RecordData| match part {
            RecordData::Batch(batch) => batch.base_offset().0,
            RecordData::Whole(_) => unreachable!("the tail has no files"),
        };
        records.parts.iter().map(base).collect()
    }

    #[test]
    fn reads_begin_with_the_batch_that_holds_the_offset_and_end_below_the_upper_offset() {
        let tail = tail(&[(10, 13), (13, 20), (20, 21)]);
        let read = |offset, upper| tail.read(Offset(offset), Offset(upper), 1000, false).map(|records| bases(&records));
        assert_eq!(read(12, 21), Some(vec![10, 13, 20]));
        assert_eq!(read(13, 20), Some(vec![13]));
        assert_eq!(read(9, 21), None, "the file has it");
        assert_eq!(read(21, 21), None, "nothing is there yet");
    }

    #[test]
    fn limits_cut_behind_whole_batches() {
        let tail = tail(&[(0, 1), (1, 2), (2, 3)]);
        let count = |bytes_max, first_whole| {
            tail.read(Offset(0), Offset(3), bytes_max, first_whole).map(|records| records.parts.len())
        };
        assert_eq!(count(250, false), Some(2));
        assert_eq!(count(10, true), Some(1));
        assert_eq!(count(10, false), Some(0));
        let is_cut = |bytes_max| tail.read(Offset(0), Offset(3), bytes_max, true).map(|records| records.is_cut);
        assert_eq!((is_cut(250), is_cut(300)), (Some(true), Some(false)));
    }

    #[test]
    fn what_is_dropped_is_not_found() {
        let mut tail = tail(&[(0, 1), (1, 2), (2, 3)]);
        tail.drop_through(Offset(1));
        assert!(tail.read(Offset(1), Offset(3), 1000, false).is_none());
        assert!(tail.read(Offset(2), Offset(3), 1000, false).is_some());
    }
}
