//! The producers of one partition: who is known, in which order they were used, what a checkpoint has not heard of yet.
//!
//! Guarantees: [`Producers::check`] changes nothing; [`Producers::remember`] and [`Producers::replay`] change state
//! alike, so that a replay of the log gives what was there live. A producer with an open transaction is never forgotten.
//!
//! Entries stand densely one behind another, so that a scan can stop anywhere and go on later: the last one takes the
//! place of one that goes. About 185 bytes an entry, whether its window is full or not (`benches/dedup.rs`).
//!
//! ```text
//! id ── keyed hash ── Index ── position ─┬─ slots     the entry
//!                                        ├─ last_use  tick, for the eviction of the oldest
//!                                        └─ changed   one bit: the next checkpoint wants it
//! ```

pub use super::producer::{
    Appended, BatchIdentity, Ending, Enlisted, MarkerRefusal, Original, ProducerState, Refusal, Verdict,
};

use super::frozen::Frozen;
use super::index::Index;
use super::marks::Marks;
use super::unstable::Unstable;
pub use super::unstable::{Ended, OpenTxn};
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence};

/// A producer and its state.
#[derive(Clone, Copy, Debug)]
struct Slot {
    id: ProducerId,
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
    key: Key,
    index: Index,
    slots: Vec<Slot>,
    last_use: Vec<u64>,
    changed: Marks,
    /// Transactions that keep readers of what is committed back.
    unstable: Unstable,
    /// Forgotten since the last checkpoint.
    forgotten: Vec<ProducerId>,
    /// A moment that is being taken; see [`Producers::freeze`].
    frozen: Option<Box<Frozen<Slot>>>,
}

impl Producers {
    /// An empty table; `seed` keeps clients from choosing ids that collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            key: Key::new(seed),
            index: Index::default(),
            slots: Vec::new(),
            last_use: Vec::new(),
            changed: Marks::default(),
            unstable: Unstable::default(),
            forgotten: Vec::new(),
            frozen: None,
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

    /// The same for a batch of a transaction, which may be the one that begins it here (D2, D3, D5, D6).
    ///
    /// # Errors
    /// As [`Self::check`]; `NotEnlisted` where it would begin a transaction that no coordinator knows.
    pub fn check_transactional(&self, batch: &BatchIdentity, enlisted: Enlisted) -> Result<Verdict, Refusal> {
        let producer_id = batch.producer_id;
        let state = self.get(producer_id);
        if let Some(original) = state.and_then(|state| state.original_of(batch)) {
            return Ok(Verdict::Duplicate(original)); // D1
        }
        if state.is_some_and(|state| state.is_in_txn_of(batch.epoch)) {
            return self.check(batch);
        }
        if let Some(state) = state {
            state.check_epoch(batch)?; // D2
        }
        if !enlisted.holds {
            return Err(Refusal::NotEnlisted { producer_id }); // D3
        }
        let given = batch.base_sequence;
        let lowest = enlisted.lowest.filter(|lowest| given.0 > lowest.0); // D5
        let first = Some(Sequence(0)).filter(|first| enlisted.adds && state.is_none() && given.0 > first.0); // D6
        match lowest.or(first) {
            Some(expected) => Err(Refusal::OutOfOrder { producer_id, given, expected }),
            None => self.check(batch),
        }
    }

    /// Decides whether a marker is written; changes nothing.
    ///
    /// # Errors
    /// `Fenced` for an old epoch, `CoordinatorFenced` for an old coordinator.
    pub fn check_marker(&self, ending: &Ending) -> Result<(), MarkerRefusal> {
        self.get(ending.producer_id).map_or(Ok(()), |state| state.check_ending(ending))
    }

    /// Whether a transaction of this incarnation of the producer is open here.
    #[must_use]
    pub fn is_open(&self, id: ProducerId, epoch: ProducerEpoch) -> bool {
        self.get(id).is_some_and(|state| state.is_in_txn_of(epoch))
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
        if self.slots[at as usize].state.remember(batch, appended) {
            self.unstable.begin(batch.producer_id, appended.base_offset);
        }
        self.note_use(at, tick);
        self.slots.len() > count
    }

    /// Remembers a batch of the log again, without checks; one that the table already holds changes nothing.
    pub fn replay(&mut self, batch: &BatchIdentity, appended: &Appended) {
        let is_known = || self.get(batch.producer_id).is_some_and(|state| state.holds(appended.base_offset));
        if batch.producer_id.0 >= 0 && !is_known() {
            self.remember(batch, appended, tick_of(appended.append_ms));
        }
    }

    /// Remembers a marker at `at`.
    pub fn remember_marker(&mut self, ending: &Ending, at: Offset, append_ms: i64, tick: u64) -> Ended {
        let count = self.slots.len();
        let place = self.find_or_add(ending.producer_id, ending.epoch, tick);
        let first_offset = self.slots[place as usize].state.end_txn(ending, at, append_ms);
        self.note_use(place, tick);
        let is_new_producer = self.slots.len() > count;
        if let Some(first) = first_offset {
            self.unstable.end(first, at);
        }
        Ended { is_new_producer, first_offset, last_stable_offset: self.unstable.first_open().unwrap_or(at.plus(1)) }
    }

    /// Remembers a marker of the log again.
    pub fn replay_marker(&mut self, ending: &Ending, at: Offset, append_ms: i64) -> Ended {
        self.remember_marker(ending, at, append_ms, tick_of(append_ms))
    }

    /// First offset that readers of what is committed must not see, where everything below `high_watermark` is readable.
    ///
    /// Source: apache/kafka `ProducerStateManager.firstUnstableOffset`, `UnifiedLog.fetchLastStableOffsetMetadata`.
    pub fn stable_below(&mut self, high_watermark: Offset) -> Offset {
        self.unstable.first_below(high_watermark).unwrap_or(high_watermark)
    }

    /// The transactions that are open here, by their first offset.
    pub fn open_txns(&self) -> impl Iterator<Item = OpenTxn> {
        self.unstable.open()
    }

    /// Those whose producers have not appended anything since `limit_ms`.
    pub fn late_txns(&self, limit_ms: i64) -> impl Iterator<Item = OpenTxn> {
        let is_late = move |txn: &OpenTxn| self.get(txn.producer_id).is_some_and(|one| one.last_append_ms <= limit_ms);
        self.open_txns().filter(is_late)
    }

    /// Takes over a producer from a checkpoint.
    pub fn restore(&mut self, id: ProducerId, state: ProducerState) {
        let tick = tick_of(state.last_append_ms);
        let at = self.find_or_add(id, state.epoch, tick);
        self.unstable.forget(self.slots[at as usize].state.txn_first_offset());
        self.slots[at as usize].state = state;
        if let Some(first) = state.txn_first_offset() {
            self.unstable.begin(id, first);
        }
        self.last_use[at as usize] = tick;
        self.changed.set(at, false);
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

    /// When each producer was used last, in no particular order.
    pub fn uses(&self) -> impl Iterator<Item = u64> {
        self.last_use.iter().copied()
    }

    /// The producers that were used last at `tick` or before, and when; those with an open transaction are left out.
    pub fn used_until(&self, tick: u64) -> impl Iterator<Item = (u64, ProducerId)> {
        let old = self.last_use.iter().zip(&self.slots).filter(move |(last_use, _)| **last_use <= tick);
        old.filter(|(_, slot)| !slot.state.is_in_txn()).map(|(last_use, slot)| (*last_use, slot.id))
    }

    /// Whether the producer was used last at `tick` and may be forgotten.
    #[must_use]
    pub fn may_be_evicted(&self, id: ProducerId, tick: u64) -> bool {
        let is_free = |at: u32| !self.slots[at as usize].state.is_in_txn();
        self.position(id).is_some_and(|at| self.last_use[at as usize] == tick && is_free(at))
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
    ///
    /// What was forgotten since the last step comes first: a producer that has come back may stand where the scan has yet to
    /// come, and its end must not be given behind that.
    pub fn take_some_of_all(
        &mut self,
        sweep: &mut Sweep,
        count_max: usize,
        mut take: impl FnMut(ProducerId, Option<&ProducerState>),
    ) -> bool {
        let Some(positions) = self.next_of(sweep, count_max) else { return false };
        self.forgotten.drain(..).for_each(|id| take(id, None));
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

    /// Begins to take everything as it is at this moment; gives the number of entries, or `None` while an earlier moment is
    /// still being taken.
    pub fn freeze(&mut self) -> Option<usize> {
        let count = self.slots.len();
        if self.frozen.is_some() {
            return None;
        }
        self.frozen = Some(Box::new(Frozen::of(count)));
        Some(count)
    }

    /// Gives `take` the next entries of that moment: those that changed since the last step, and about `count_max` others;
    /// false when it was the last step.
    pub fn take_frozen(&mut self, count_max: usize, mut take: impl FnMut(ProducerId, &ProducerState)) -> bool {
        let Some(frozen) = &mut self.frozen else { return false };
        frozen.take_kept().for_each(|slot| take(slot.id, &slot.state));
        for at in frozen.next(self.slots.len(), count_max) {
            let slot = &self.slots[at as usize];
            take(slot.id, &slot.state);
        }
        let goes_on = !frozen.is_over();
        if !goes_on {
            self.frozen = None;
        }
        goes_on
    }

    /// The rest of that moment is not wanted any more.
    pub fn thaw(&mut self) {
        self.frozen = None;
    }

    /// The next positions of a scan.
    fn next_of(&self, sweep: &mut Sweep, count_max: usize) -> Option<std::ops::Range<u32>> {
        let below = sweep.below.min(self.slots.len());
        sweep.below = below.saturating_sub(count_max);
        let first = u32::try_from(sweep.below).unwrap_or(u32::MAX);
        (below > 0).then(|| first..u32::try_from(below).unwrap_or(u32::MAX))
    }

    fn note_use(&mut self, at: u32, tick: u64) {
        let last_use = &mut self.last_use[at as usize];
        *last_use = tick.max(*last_use);
    }

    fn position(&self, id: ProducerId) -> Option<u32> {
        self.index.find(self.key.hash(id), |at| self.slots[at as usize].id == id)
    }

    /// The position of a producer, new with `epoch` if it was unknown; marked as changed.
    fn find_or_add(&mut self, id: ProducerId, epoch: ProducerEpoch, tick: u64) -> u32 {
        let at = match self.position(id) {
            Some(at) => {
                self.keep_frozen(at);
                at
            }
            None => self.add(id, epoch, tick),
        };
        self.changed.set(at, true);
        at
    }

    fn add(&mut self, id: ProducerId, epoch: ProducerEpoch, tick: u64) -> u32 {
        let at = self.changed.add();
        self.index.insert(self.key.hash(id), at, |at| self.key.hash(self.slots[at as usize].id));
        super::grow_a_little(&mut self.slots);
        self.slots.push(Slot { id, state: ProducerState::new(epoch) });
        super::grow_a_little(&mut self.last_use);
        self.last_use.push(tick);
        if let Some(frozen) = &mut self.frozen {
            frozen.add();
        }
        at
    }

    fn keep_frozen(&mut self, at: u32) {
        if let Some(frozen) = &mut self.frozen {
            frozen.keep(at, || self.slots[at as usize]);
        }
    }

    fn remove(&mut self, at: u32) {
        let Slot { id, state } = self.slots[at as usize];
        self.unstable.forget(state.txn_first_offset());
        self.keep_frozen(at);
        if let Some(frozen) = &mut self.frozen {
            frozen.swap_remove(at);
        }
        self.index.remove(self.key.hash(id), at, |at| self.key.hash(self.slots[at as usize].id));
        self.slots.swap_remove(at as usize);
        self.last_use.swap_remove(at as usize);
        self.changed.swap_remove(at);
        if let Some(moved) = self.slots.get(at as usize) {
            let last = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            self.index.moved(self.key.hash(moved.id), last, at);
        }
        self.forgotten.push(id);
        super::shrink_a_lot(&mut self.slots);
        super::shrink_a_lot(&mut self.last_use);
        self.index.shrink(|at| self.key.hash(self.slots[at as usize].id));
    }
}

/// Ticks of a shard go on from the time of its start, so that what is older sorts before.
fn tick_of(append_ms: i64) -> u64 {
    u64::try_from(append_ms).unwrap_or(0)
}

/// What makes hashes that nobody outside can foresee: clients choose producer ids.
///
/// Each step folds the upper half of a product with a secret factor into the lower one. Two are enough that ids that a
/// client can choose without knowing the secrets meet no more often than random ones do.
#[derive(Clone, Copy, Debug)]
struct Key([u64; 4]);

impl Key {
    fn new(seed: u64) -> Self {
        let mut state = seed;
        // SplitMix64: one random number makes four.
        let secrets = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Self(secrets)
    }

    fn hash(&self, id: ProducerId) -> u64 {
        let [first, second, third, fourth] = self.0;
        let once = folded(id.0.cast_unsigned() ^ first, second | 1);
        folded(once ^ third, fourth | 1)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids in a row, in steps, and of few bits: each bucket of 1,024 gets its share.
    #[test]
    fn hashes_of_similar_ids_are_spread() {
        for seed in 0..20 {
            let key = Key::new(seed);
            for step in [1, 1000, 1 << 20, 1 << 32, 1 << 40] {
                let mut buckets = [0_u32; 1024];
                (0..65_536_i64).for_each(|at| {
                    let hash = key.hash(ProducerId(at.wrapping_mul(step)));
                    buckets[usize::try_from(hash >> 54).unwrap()] += 1;
                });
                let (least, most) = (buckets.iter().min().unwrap(), buckets.iter().max().unwrap());
                assert!(*least > 20 && *most < 120, "seed {seed}, step {step}: {least} to {most}");
            }
        }
    }
}
