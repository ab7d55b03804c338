//! The entries of a dense table as they were at one moment, taken a few at a time while the table goes on changing.
//!
//! What is about to change is copied first, once; the rest is taken where it stands, from the last entry to the first. An
//! entry that moves when another one goes keeps its mark, and moves only to where the taking has yet to come or has a mark.

use super::marks::Marks;

/// How far the taking of one moment has come.
#[derive(Debug)]
pub(super) struct Frozen<T> {
    /// As they were, of those that changed since.
    kept: Vec<T>,
    /// Entries that were taken or kept, or came later.
    is_done: Marks,
    /// Entries from here on are done.
    below: usize,
}

impl<T> Frozen<T> {
    /// The moment of a table of so many entries is now.
    pub(super) fn of(entries: usize) -> Self {
        Self { kept: Vec::new(), is_done: Marks::of(entries), below: entries }
    }

    /// The entry at `at` is about to change.
    pub(super) fn keep(&mut self, at: u32, entry: impl FnOnce() -> T) {
        if !self.is_done.get(at) {
            self.is_done.set(at, true);
            self.kept.push(entry());
        }
    }

    /// An entry comes behind the others: it was not there at that moment.
    pub(super) fn add(&mut self) {
        let at = self.is_done.add();
        self.is_done.set(at, true);
    }

    /// The entry at `at` goes (and was kept), the last one takes its place.
    pub(super) fn swap_remove(&mut self, at: u32) {
        self.is_done.swap_remove(at);
    }

    /// What was kept since the last step.
    pub(super) fn take_kept(&mut self) -> impl Iterator<Item = T> {
        self.kept.drain(..)
    }

    /// The next positions to take from, at most `count_max` of a table of `entries`; empty when all is taken.
    pub(super) fn next(&mut self, entries: usize, count_max: usize) -> Vec<u32> {
        let below = self.below.min(entries);
        self.below = below.saturating_sub(count_max);
        let positions = self.below..below;
        let mut wanted: Vec<u32> = positions.filter_map(|at| u32::try_from(at).ok()).collect();
        wanted.retain(|at| !self.is_done.get(*at));
        wanted.iter().for_each(|at| self.is_done.set(*at, true));
        wanted
    }

    /// True once every entry has been given out.
    pub(super) fn is_over(&self) -> bool {
        self.below == 0 && self.kept.is_empty()
    }
}
