//! Which entry of many tables was used longest ago.
//!
//! Noting a use must cost next to nothing, so entries only carry a tick that grows with each use, and nothing keeps them in
//! order. When somebody must go, the oldest few of all tables are looked up and lined up: everything up to some tick. Ticks
//! only grow: whoever is not in the line is younger than all of it, and who stands in it with another tick than now has
//! been used since. So the first with a valid tick is the oldest of all.

use std::collections::VecDeque;

/// Entries of which one is lined up.
const SHARE: usize = 64;
/// Entries whose ticks are drawn to find the tick up to which they are lined up.
const DRAWN: usize = 2048;

/// The line of those that go next; `K` names an entry of all tables.
#[derive(Debug)]
pub struct Eviction<K> {
    line: VecDeque<(u64, K)>,
}

impl<K> Default for Eviction<K> {
    fn default() -> Self {
        Self { line: VecDeque::new() }
    }
}

impl<K: Copy> Eviction<K> {
    /// The entry that goes next; `is_at` tells whether an entry is there, may go, and has this tick.
    pub fn next(&mut self, is_at: impl Fn(K, u64) -> bool) -> Option<K> {
        while let Some((tick, entry)) = self.line.pop_front() {
            if is_at(entry, tick) {
                return Some(entry);
            }
        }
        None
    }

    /// Lines up the oldest entries of all tables, when nobody is left in the line.
    pub fn line_up(&mut self, oldest: impl IntoIterator<Item = (u64, K)>) {
        let mut line: Vec<_> = oldest.into_iter().collect();
        line.sort_unstable_by_key(|(tick, _)| *tick);
        self.line = line.into();
    }
}

/// Of `count` entries every so many are drawn for [`line_up_to`].
#[must_use]
pub fn draw_step(count: usize) -> usize {
    (count / DRAWN).max(1)
}

/// The tick up to which about one in 64 entries was used last, by the ticks of those that were drawn.
#[must_use]
pub fn line_up_to(mut drawn: Vec<u64>) -> u64 {
    let rank = drawn.len() / SHARE;
    if drawn.is_empty() { u64::MAX } else { *drawn.select_nth_unstable(rank).1 }
}
