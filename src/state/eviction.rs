//! Which of many tables holds the entry that was used longest ago.
//!
//! Ticks only grow, so what a table's oldest entry said when it was looked at is a lower bound for later. The heap keeps
//! these bounds and looks again only at the table that seems to be the oldest. A table that it does not know had no entry
//! when the heap was built: its entries are younger than that moment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Finds the oldest entry of all tables; `K` names a table.
#[derive(Debug)]
pub struct Eviction<K> {
    oldest: BinaryHeap<Reverse<(u64, K)>>,
    built_at: u64,
}

impl<K: Ord> Default for Eviction<K> {
    fn default() -> Self {
        Self { oldest: BinaryHeap::new(), built_at: 0 }
    }
}

impl<K: Ord + Copy> Eviction<K> {
    /// The table with the oldest entry; `None` if no table has any.
    ///
    /// `now` is a tick that no entry is above; `tables` lists every table, `oldest_of` tells the tick of a table's oldest
    /// entry.
    pub fn next(&mut self, now: u64, tables: impl Fn() -> Vec<K>, oldest_of: impl Fn(K) -> Option<u64>) -> Option<K> {
        if let Some(found) = self.oldest_known(&oldest_of) {
            return Some(found);
        }
        let seen = tables().into_iter().filter_map(|table| oldest_of(table).map(|tick| Reverse((tick, table))));
        self.oldest = seen.collect();
        self.built_at = now;
        self.oldest_known(&oldest_of)
    }

    fn oldest_known(&mut self, oldest_of: impl Fn(K) -> Option<u64>) -> Option<K> {
        loop {
            let Reverse((tick, table)) = *self.oldest.peek()?;
            if tick > self.built_at {
                return None;
            }
            match oldest_of(table) {
                Some(now) if now == tick => return Some(table),
                Some(now) => {
                    self.oldest.pop();
                    self.oldest.push(Reverse((now, table)));
                }
                None => _ = self.oldest.pop(),
            }
        }
    }
}
