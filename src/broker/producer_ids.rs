//! Producer ids: blocks of 1,000, durable in the catalog before the first id of a block is given out, never repeated.
//!
//! Each shard has a block of its own; the next is asked for when nine tenths of the present one are used, so that
//! nobody waits. What is left of a block at a stop is thrown away.
//!
//! Source: KIP-730; apache/kafka `RPCProducerIdManager.java`.

use std::cell::Cell;

use crate::ids::ProducerId;

/// Ids in a block.
pub const BLOCK_IDS: i64 = 1000;
const PREFETCH_LEFT: i64 = BLOCK_IDS / 10;

/// Ids that one shard may give out.
#[derive(Debug, Default)]
pub struct ProducerIds {
    next: Cell<i64>,
    end: Cell<i64>,
    following: Cell<Option<i64>>,
    asking: Cell<bool>,
}

/// What came of asking for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The id; `None` while no block is ready.
    pub id: Option<ProducerId>,
    /// The caller must get another block and hand it to [`ProducerIds::granted`], or call [`ProducerIds::refused`].
    pub ask: bool,
}

impl ProducerIds {
    /// Takes the next id.
    pub fn take(&self) -> Taken {
        if self.next.get() == self.end.get()
            && let Some(start) = self.following.take()
        {
            self.next.set(start);
            self.end.set(start + BLOCK_IDS);
        }
        let next = self.next.get();
        let id = (next < self.end.get()).then_some(ProducerId(next));
        if id.is_some() {
            self.next.set(next + 1);
        }
        let left = self.end.get() - self.next.get();
        let low = left <= PREFETCH_LEFT && self.following.get().is_none();
        Taken { id, ask: low && !self.asking.replace(true) }
    }

    /// A block that begins at `start` is durable and ours.
    pub fn granted(&self, start: i64) {
        self.following.set(Some(start));
        self.asking.set(false);
    }

    /// No block could be had; the next call asks again.
    pub fn refused(&self) {
        self.asking.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_without_a_repeat() {
        let ids = ProducerIds::default();
        let mut blocks = (0..).step_by(3000);
        let mut seen = Vec::new();
        while seen.len() < 2500 {
            let taken = ids.take();
            seen.extend(taken.id);
            if taken.ask {
                ids.granted(blocks.next().unwrap());
            }
        }
        assert_eq!(seen[0], ProducerId(0));
        assert_eq!(seen[1000], ProducerId(3000));
        assert!(seen.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn one_caller_asks_and_a_refusal_lets_the_next_ask() {
        let ids = ProducerIds::default();
        assert_eq!(ids.take(), Taken { id: None, ask: true });
        assert_eq!(ids.take(), Taken { id: None, ask: false });
        ids.refused();
        assert!(ids.take().ask);
    }
}
