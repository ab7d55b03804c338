//! The producers of one partition: who is known, in which order they were used, what a checkpoint has not heard of yet.
//!
//! Guarantees: [`Producers::check`] changes nothing; [`Producers::remember`] and [`Producers::replay`] change state
//! alike, so that a replay of the log gives what was there live. A producer with an open transaction is never forgotten.
//!
//! Entries stand densely one behind another, so that a scan can stop anywhere and go on later: the last one takes the
//! place of one that goes. About 190 bytes an entry, whether its window is full or not (`benches/dedup.rs`).
//!
//! ```text
//! id ── keyed hash ── Index ── position ─┬─ slots    the entry
//!                                        ├─ uses     older and newer neighbour in the order of use
//!                                        └─ changed  one bit: the next checkpoint wants it
//! ```

use std::hash::{DefaultHasher, Hasher};

pub use super::producer::{Appended, BatchIdentity, Original, ProducerState, Refusal, Verdict};

use super::index::Index;
use super::marks::Marks;
use super::uses::Uses;
use crate::ids::{ProducerEpoch, ProducerId};

/// A producer's state and what only the table needs.
#[derive(Clone, Copy, Debug)]
struct Slot {
    id: ProducerId,
    last_use: u64,
    state: ProducerState,
}

/// How far a scan over all entries has come; it goes from the last to the first.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    below: usize,
}

/// The producers of one partition.
#[derive(Debug)]
pub struct Producers {
    seed: u64,
    index: Index,
    slots: Vec<Slot>,
    uses: Uses,
    changed: Marks,
    /// Forgotten since the last checkpoint.
    forgotten: Vec<ProducerId>,
}

impl Producers {
    /// An empty table; `seed` keeps clients from choosing ids that collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            index: Index::default(),
            slots: Vec::new(),
            uses: Uses::default(),
            changed: Marks::default(),
            forgotten: Vec::new(),
        }
    }

    /// Decides what to do with one batch; changes nothing.
    ///
    /// Shapes: `batch` is one record batch, at least one record, sequence not negative if the producer id is not.
    /// Units: sequences and offsets count records.
    ///
    /// # Errors
    /// `Fenced` for an older epoch; `OutOfOrder` for a gap, an overlap or a retry older than the window;
    /// `InvalidTxnState` for a batch outside of the producer's open transaction.
    ///
    /// Source: KIP-98; apache/kafka `ProducerAppendInfo.java`, `ProducerStateEntry.java`.
    pub fn check(&self, batch: &BatchIdentity) -> Result<Verdict, Refusal> {
        if batch.producer_id.0 < 0 {
            return Ok(Verdict::Append); // D0
        }
        match self.get(batch.producer_id) {
            None => Ok(Verdict::Append), // D9
            Some(state) => state.check(batch),
        }
    }

    /// Remembers a batch that `check` let pass and that has got its offset; true if its producer was unknown.
    ///
    /// `tick` is a counter of the shard that only grows; what was used longest ago is forgotten first.
    pub fn remember(&mut self, batch: &BatchIdentity, appended: &Appended, tick: u64) -> bool {
        if batch.producer_id.0 < 0 {
            return false;
        }
        let count = self.slots.len();
        let at = self.find_or_add(batch.producer_id, batch.epoch, tick);
        self.slots[at as usize].state.remember(batch, appended);
        self.note_use(at, tick);
        self.slots.len() > count
    }

    /// Remembers a batch of the log again, without checks; one that the table already holds changes nothing.
    ///
    /// When everything is replayed, [`Producers::arrange_by_use`] puts the entries in order.
    pub fn replay(&mut self, batch: &BatchIdentity, appended: &Appended) {
        let is_known = || self.get(batch.producer_id).is_some_and(|state| state.holds(appended.base_offset));
        if batch.producer_id.0 >= 0 && !is_known() {
            self.remember(batch, appended, tick_of(appended.append_ms));
        }
    }

    /// Remembers a marker that ended a transaction; true if its producer was unknown.
    pub fn remember_marker(
        &mut self,
        id: ProducerId,
        epoch: ProducerEpoch,
        coordinator_epoch: i32,
        append_ms: i64,
        tick: u64,
    ) -> bool {
        let count = self.slots.len();
        let at = self.find_or_add(id, epoch, tick);
        self.slots[at as usize].state.end_txn(epoch, coordinator_epoch, append_ms);
        self.note_use(at, tick);
        self.slots.len() > count
    }

    /// Remembers a marker of the log again.
    pub fn replay_marker(&mut self, id: ProducerId, epoch: ProducerEpoch, coordinator_epoch: i32, append_ms: i64) {
        self.remember_marker(id, epoch, coordinator_epoch, append_ms, tick_of(append_ms));
    }

    /// Takes over a producer from a checkpoint; [`Producers::arrange_by_use`] ends it.
    pub fn restore(&mut self, id: ProducerId, state: ProducerState) {
        let tick = tick_of(state.last_append_ms);
        let at = self.find_or_add(id, state.epoch, tick);
        let slot = &mut self.slots[at as usize];
        (slot.state, slot.last_use) = (state, tick);
        self.changed.set(at, false);
    }

    /// Puts what was restored and replayed into the order of use.
    pub fn arrange_by_use(&mut self) {
        let positions = 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let mut order: Vec<_> = positions.filter(|at| !self.slots[*at as usize].state.is_in_txn()).collect();
        order.sort_by_key(|at| self.slots[*at as usize].last_use);
        self.uses.arrange(order.into_iter());
    }

    /// Forgets a producer; true if it was known. The next checkpoint will say so.
    pub fn forget(&mut self, id: ProducerId) -> bool {
        match self.position(id) {
            Some(at) => self.remove(at),
            None => return false,
        }
        true
    }

    /// Notes that a producer was heard of, though nothing was written.
    pub fn touch(&mut self, id: ProducerId, tick: u64) {
        if let Some(at) = self.position(id) {
            self.note_use(at, tick);
        }
    }

    /// What is known of a producer.
    #[must_use]
    pub fn get(&self, id: ProducerId) -> Option<&ProducerState> {
        self.position(id).map(|at| &self.slots[at as usize].state)
    }

    /// Every producer and what is known of it, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerState)> {
        self.slots.iter().map(|slot| (slot.id, &slot.state))
    }

    /// Number of producers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Begins a scan over all entries.
    #[must_use]
    pub fn sweep(&self) -> Sweep {
        Sweep { below: self.slots.len() }
    }

    /// Looks at the next `count_max` entries and forgets the producers that have appended nothing since `limit_ms` and have
    /// no open transaction; how many that were, or `None` when the scan is through.
    ///
    /// What comes and goes between the steps is no harm: an entry that was not looked at stays where it is or moves down.
    pub fn expire_some(&mut self, sweep: &mut Sweep, count_max: usize, limit_ms: i64) -> Option<usize> {
        let positions = self.next_of(sweep, count_max)?;
        let count = self.slots.len();
        for at in positions.rev() {
            if self.slots[at as usize].state.is_idle_since(limit_ms) {
                self.remove(at);
            }
        }
        Some(count - self.slots.len())
    }

    /// Forgets every producer that has appended nothing since `limit_ms`; returns how many.
    pub fn expire(&mut self, limit_ms: i64) -> usize {
        let mut sweep = self.sweep();
        self.expire_some(&mut sweep, usize::MAX, limit_ms).unwrap_or(0)
    }

    /// When the producer was used that was used longest ago; one with an open transaction does not count.
    #[must_use]
    pub fn oldest_use(&self) -> Option<u64> {
        self.uses.oldest().map(|at| self.slots[at as usize].last_use)
    }

    /// Forgets the producer that was used longest ago.
    pub fn evict_oldest(&mut self) -> Option<ProducerId> {
        let at = self.uses.oldest()?;
        let id = self.slots[at as usize].id;
        self.remove(at);
        Some(id)
    }

    /// Number of entries that the next checkpoint wants.
    #[must_use]
    pub fn changed_count(&self) -> usize {
        self.forgotten.len() + self.changed.count()
    }

    /// Begins to take everything for a full checkpoint; what changes from here on is taken by
    /// [`Producers::take_changes`] at its end.
    pub fn begin_taking_all(&mut self) -> Sweep {
        self.forgotten = Vec::new();
        self.sweep()
    }

    /// Gives `take` the next `count_max` entries of a full checkpoint; false when the scan is through.
    pub fn take_some_of_all(
        &mut self,
        sweep: &mut Sweep,
        count_max: usize,
        mut take: impl FnMut(ProducerId, Option<&ProducerState>),
    ) -> bool {
        let Some(positions) = self.next_of(sweep, count_max) else { return false };
        for at in positions.rev() {
            let slot = &self.slots[at as usize];
            take(slot.id, Some(&slot.state));
            self.changed.set(at, false);
        }
        true
    }

    /// Gives `take` what changed since it was last taken, at most `count_max` entries; a forgotten producer has no state.
    ///
    /// One that was forgotten and has come back is given twice: its end, then its new state. If the checkpoint that it was
    /// taken for fails, the next one must be a full one.
    pub fn take_changes(&mut self, count_max: usize, mut take: impl FnMut(ProducerId, Option<&ProducerState>)) {
        let ended = self.forgotten.len().min(count_max);
        self.forgotten.drain(..ended).for_each(|id| take(id, None));
        if !self.forgotten.is_empty() {
            return; // what has come back must stand behind its end
        }
        self.forgotten = Vec::new();
        let mut from = 0;
        for _ in ended..count_max {
            let Some(at) = self.changed.first_from(from) else { return };
            let slot = &self.slots[at as usize];
            take(slot.id, Some(&slot.state));
            self.changed.set(at, false);
            from = at + 1;
        }
    }

    /// The next positions of a scan.
    fn next_of(&self, sweep: &mut Sweep, count_max: usize) -> Option<std::ops::Range<u32>> {
        let below = sweep.below.min(self.slots.len());
        sweep.below = below.saturating_sub(count_max);
        let first = u32::try_from(sweep.below).unwrap_or(u32::MAX);
        (below > 0).then(|| first..u32::try_from(below).unwrap_or(u32::MAX))
    }

    fn note_use(&mut self, at: u32, tick: u64) {
        let slot = &mut self.slots[at as usize];
        slot.last_use = slot.last_use.max(tick);
        if slot.state.is_in_txn() {
            self.uses.leave_out(at);
        } else {
            self.uses.use_now(at);
        }
    }

    fn position(&self, id: ProducerId) -> Option<u32> {
        self.index.find(self.tag(id), |at| self.slots[at as usize].id == id)
    }

    /// The position of a producer, new with `epoch` if it was unknown; marked as changed.
    fn find_or_add(&mut self, id: ProducerId, epoch: ProducerEpoch, tick: u64) -> u32 {
        let tag = self.tag(id);
        let known = self.index.find(tag, |at| self.slots[at as usize].id == id);
        let at = known.unwrap_or_else(|| {
            let at = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            self.index.insert(tag, at);
            super::grow_a_little(&mut self.slots);
            self.slots.push(Slot { id, last_use: tick, state: ProducerState::new(epoch) });
            self.uses.add();
            self.changed.add();
            at
        });
        self.changed.set(at, true);
        at
    }

    fn remove(&mut self, at: u32) {
        let gone = self.slots.swap_remove(at as usize);
        self.index.remove(self.tag(gone.id), at);
        self.uses.swap_remove(at);
        self.changed.swap_remove(at);
        if let Some(moved) = self.slots.get(at as usize) {
            let last = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            self.index.moved(self.tag(moved.id), last, at);
        }
        self.forgotten.push(gone.id);
        super::shrink_a_lot(&mut self.slots);
        self.uses.shrink();
    }

    /// `SipHash` with a secret in front: who chooses ids cannot tell which ones meet.
    fn tag(&self, id: ProducerId) -> u32 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write_i64(id.0);
        (hasher.finish() >> 32) as u32
    }
}

/// Ticks of a shard go on from the time of its start, so that what is older sorts before.
fn tick_of(append_ms: i64) -> u64 {
    u64::try_from(append_ms).unwrap_or(0)
}
