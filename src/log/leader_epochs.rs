//! Which leader epoch begins at which offset of one log: what tells a reader where its log and ours part.
//!
//! Epochs and offsets both grow from entry to entry. The last entry may be of an epoch that has no records yet.
//!
//! Source: KIP-101, KIP-320; apache/kafka `LeaderEpochFileCache.java`.

use super::kafka_files::LeaderEpoch;
use crate::ids::Offset;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<LeaderEpoch>,
}

impl LeaderEpochs {
    /// The epochs that a file lists; what contradicts a later line is left out.
    #[must_use]
    pub fn of(entries: &[LeaderEpoch]) -> Self {
        let mut epochs = Self::default();
        entries.iter().for_each(|entry| epochs.begin(entry.epoch, entry.start));
        epochs
    }

    /// From `start` on the log is written in `epoch`; entries that cannot stand beside that go.
    pub fn begin(&mut self, epoch: i32, start: Offset) {
        if self.entries.last().is_some_and(|last| last.epoch == epoch && last.start <= start) {
            return;
        }
        while self.entries.pop_if(|last| last.epoch >= epoch || last.start >= start).is_some() {}
        self.entries.push(LeaderEpoch { epoch, start });
    }

    /// Recovery has walked a batch: it begins an epoch if it is of a later one than all that are known.
    pub fn walked(&mut self, epoch: i32, base_offset: Offset) {
        if epoch >= 0 && self.entries.last().is_none_or(|last| epoch > last.epoch) {
            self.begin(epoch, base_offset);
        }
    }

    /// The log begins at `log_start` now: the epoch that holds it begins there too, older ones are forgotten.
    pub fn cut_start(&mut self, log_start: Offset) {
        let begun = self.entries.partition_point(|entry| entry.start <= log_start);
        if let Some(holds) = begun.checked_sub(1) {
            self.entries.drain(..holds);
            self.entries[0].start = log_start;
        }
    }

    /// The log ends at `end`: epochs that begin there or behind are forgotten.
    pub fn cut_end(&mut self, end: Offset) {
        let kept = self.entries.partition_point(|entry| entry.start < end);
        self.entries.truncate(kept);
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[LeaderEpoch] {
        &self.entries
    }

    /// The epoch that `offset` was or will be written in; `None` where nothing is known of it.
    #[must_use]
    pub fn at(&self, offset: Offset) -> Option<i32> {
        let begun = self.entries.partition_point(|entry| entry.start <= offset);
        begun.checked_sub(1).map(|at| self.entries[at].epoch)
    }

    /// The largest epoch up to the one asked for, and where it ends: where the next one begins, or the end of the log. An
    /// epoch older than all that are known ends where these begin. `None` for one that is not known yet, and for none (-1).
    #[must_use]
    pub fn end_of(&self, asked: i32, log_end: Offset) -> Option<(i32, Offset)> {
        let later = self.entries.partition_point(|entry| entry.epoch <= asked);
        let known = later.checked_sub(1).map(|at| self.entries[at].epoch);
        match self.entries.get(later) {
            _ if asked == -1 => None,
            Some(next) => Some((known.unwrap_or(asked), next.start)),
            None => known.filter(|known| *known == asked).map(|known| (known, log_end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(pairs: &[(i32, i64)]) -> LeaderEpochs {
        let entries: Vec<_> =
            pairs.iter().map(|(epoch, start)| LeaderEpoch { epoch: *epoch, start: Offset(*start) }).collect();
        LeaderEpochs::of(&entries)
    }

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let known = epochs(&[(2, 10), (4, 20), (7, 30)]);
        let end_of = |asked| known.end_of(asked, Offset(35)).map(|(epoch, end)| (epoch, end.0));
        assert_eq!([end_of(-1), end_of(8)], [None, None]);
        assert_eq!([end_of(-5), end_of(0), end_of(1)], [Some((-5, 10)), Some((0, 10)), Some((1, 10))]);
        assert_eq!([end_of(2), end_of(3), end_of(4)], [Some((2, 20)), Some((2, 20)), Some((4, 30))]);
        assert_eq!([end_of(5), end_of(7)], [Some((4, 30)), Some((7, 35))]);
        assert_eq!([known.at(Offset(9)), known.at(Offset(10)), known.at(Offset(99))], [None, Some(2), Some(7)]);
        assert_eq!(LeaderEpochs::default().end_of(0, Offset(35)), None);
    }

    #[test]
    fn an_epoch_without_records_is_replaced_by_the_next() {
        let mut known = epochs(&[(1, 0), (2, 10)]);
        known.begin(3, Offset(10));
        assert_eq!(known, epochs(&[(1, 0), (3, 10)]));
        known.begin(3, Offset(12));
        assert_eq!(known, epochs(&[(1, 0), (3, 10)]), "it has begun already");
    }

    #[test]
    fn a_walk_adds_only_what_is_newer() {
        let mut known = epochs(&[(1, 0), (3, 50)]);
        known.walked(1, Offset(20));
        known.walked(-1, Offset(30));
        known.walked(3, Offset(60));
        assert_eq!(known, epochs(&[(1, 0), (3, 50)]));
        known.walked(5, Offset(50));
        assert_eq!(known, epochs(&[(1, 0), (5, 50)]), "what the file said of 3 never came to the disk");
    }

    #[test]
    fn both_ends_are_cut() {
        let mut known = epochs(&[(1, 0), (2, 10), (4, 20), (7, 30)]);
        known.cut_end(Offset(30));
        known.cut_start(Offset(15));
        assert_eq!(known, epochs(&[(2, 15), (4, 20)]));
        known.cut_start(Offset(15));
        known.cut_start(Offset(3));
        assert_eq!(known, epochs(&[(2, 15), (4, 20)]));
        known.cut_start(Offset(20));
        assert_eq!(known, epochs(&[(4, 20)]));
        known.cut_end(Offset(20));
        assert_eq!(known, LeaderEpochs::default());
    }
}
