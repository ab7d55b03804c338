//! Which transactions readers of committed records must leave out: the abort indexes of a partition's segments.

use std::io;

use super::partition::Partition;
use crate::ids::{Offset, ProducerId};
use crate::log::checkpoint::PartitionEntry;
use crate::log::segment::Segment;
use crate::log::segment_aborts;
use crate::log::txn_index::AbortedTxn;
use crate::runtime::disk::Disk;

/// Those whose marker is at `from` or behind it and that begin below `end`, as far as one segment knows of them.
struct Search {
    from: Offset,
    end: Offset,
    found: Vec<(ProducerId, Offset)>,
}

impl Search {
    fn of(from: Offset, end: Offset) -> Self {
        Self { from, end, found: Vec::new() }
    }

    /// True when later segments have nothing to add: whatever begins below the end had ended by then.
    fn look_at<D: Disk>(&mut self, segment: &Segment<D>) -> bool {
        segment.visit_aborted(|txn| {
            if txn.last_offset >= self.from && txn.first_offset < self.end {
                self.found.push((txn.producer_id, txn.first_offset));
            }
            txn.last_stable_offset >= self.end
        })
    }
}

impl<D: Disk> Partition<D> {
    /// The aborted transactions that concern records from `from` to below `end`, by producer and first offset; `None` when
    /// an index must be read first.
    ///
    /// Source: apache/kafka `TransactionIndex.collectAbortedTxns`, `UnifiedLog.collectAbortedTransactions`.
    pub(super) fn aborted_in_memory(&self, from: Offset, end: Offset) -> Option<Vec<(ProducerId, Offset)>> {
        let mut search = Search::of(from, end);
        for segment in self.log.borrow().segments_from(from) {
            if !segment.knows_aborted() {
                return None;
            }
            if search.look_at(segment) {
                break;
            }
        }
        Some(search.found)
    }

    /// The same, reading what must be read.
    pub(super) async fn aborted_between(&self, from: Offset, end: Offset) -> io::Result<Vec<(ProducerId, Offset)>> {
        let mut search = Search::of(from, end);
        let segments = self.log.borrow().segments_from(from).to_vec();
        for segment in segments {
            self.load_aborted(&segment).await?;
            if search.look_at(&segment) {
                break;
            }
        }
        Ok(search.found)
    }

    /// Makes the abort index of a segment known: from its file where that is vouched for, else from the batches.
    pub(super) async fn load_aborted(&self, segment: &Segment<D>) -> io::Result<()> {
        if segment.load_aborted().await? {
            return Ok(());
        }
        let until = |one: &&std::rc::Rc<Segment<D>>| one.base() <= segment.base();
        let segments: Vec<_> = self.log.borrow().segments().iter().take_while(until).cloned().collect();
        let all = segment_aborts::rebuild(&segments).await?;
        if !segment.knows_aborted() {
            tracing::info!("{}: the abort index of segment {} was made anew", self.name, segment.base());
            segment.set_aborted(all);
        }
        Ok(())
    }

    /// After a start: what was walked, beside what a checkpoint vouches for. Other segments are looked at when somebody reads
    /// them.
    pub(super) async fn take_recovered_aborts(
        &self,
        entry: Option<&PartitionEntry>,
        walked: &[AbortedTxn],
    ) -> io::Result<()> {
        let segments = self.log.borrow().segments().to_vec();
        for (at, segment) in segments.iter().enumerate() {
            let (base, next) = (segment.base(), segments.get(at + 1).map(|next| next.base()));
            let is_here = |txn: &&AbortedTxn| txn.last_offset >= base && next.is_none_or(|next| txn.last_offset < next);
            let before = match entry {
                Some(entry) if base < entry.segment_base && next.is_some() => continue,
                Some(entry) if base < entry.segment_base => None,
                Some(entry) if base == entry.segment_base => {
                    segment.read_checked_aborts(entry.recovery_point, entry.abort_check).await?
                }
                _ => Some(Vec::new()),
            };
            match before {
                Some(mut all) => {
                    all.extend(walked.iter().filter(is_here));
                    segment.set_aborted(all);
                }
                None => segment.set_aborted(segment_aborts::rebuild(&segments[..=at]).await?),
            }
        }
        Ok(())
    }
}
