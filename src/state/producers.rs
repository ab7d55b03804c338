//! Producers of one partition: the last five batches of each, epochs, sequence wrap.
//!
//! Guarantees: [`Producers::check`] changes nothing; [`Producers::remember`] and [`Producers::replay`] change state
//! alike, so that a replay of the log gives what was there live.
//!
//! Decision table, first match wins (D2, D3, D5 and D6 concern transactions and stand where they belong in `check`):
//! ```text
//! D0   no producer id                                       append, nothing remembered
//! D9   producer unknown here                                append, whatever its sequence
//! D1   same epoch, same first and last sequence in window   duplicate
//! D4   older epoch                                          fenced
//! D7   newer epoch, sequence 0                              append, window starts anew
//! D8   newer epoch, other sequence                          out of order
//! D10  same epoch, window empty, sequence 0                 append
//! D11  same epoch, window empty, other sequence             out of order
//! D12  same epoch, next sequence                            append
//! D13  same epoch, anything else                            out of order
//! D14  append, but outside of the transaction that is open  invalid transaction state
//! ```
//! Source: KIP-98, KIP-360; apache/kafka `ProducerAppendInfo`, `ProducerStateEntry`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, DefaultHasher, Hasher};

use super::window::{Remembered, Window};
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence};

/// What decides about one batch: who wrote it, and which of the writer's records it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchIdentity {
    /// Who writes; negative without idempotence.
    pub producer_id: ProducerId,
    /// Incarnation of the writer.
    pub epoch: ProducerEpoch,
    /// Sequence of the first record.
    pub base_sequence: Sequence,
    /// Number of records, less one.
    pub last_offset_delta: i32,
    /// Whether the batch belongs to a transaction.
    pub transactional: bool,
}

/// Where and when a batch was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Its largest timestamp as stored, in ms.
    pub max_timestamp: i64,
    /// The broker's time of the append, in ms; idleness counts from here.
    pub append_ms: i64,
}

/// What to do with a batch that may be written or was written already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is new: write it, then remember it.
    Append,
    /// It was written before; answer with that.
    Duplicate(Original),
}

/// The first writing of a batch that came again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record: durable when this is.
    pub last_offset: Offset,
    /// Its largest timestamp as stored, in ms.
    pub max_timestamp: i64,
}

/// Why a batch is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A newer incarnation of the producer has written here (→ INVALID_PRODUCER_EPOCH).
    #[error("producer {producer_id:?} with epoch {given:?} is fenced: epoch {current:?} has written here")]
    Fenced {
        /// The producer.
        producer_id: ProducerId,
        /// Epoch of the batch.
        given: ProducerEpoch,
        /// Epoch that is valid.
        current: ProducerEpoch,
    },
    /// Neither the next sequence nor a batch that is known (→ OUT_OF_ORDER_SEQUENCE_NUMBER).
    #[error("sequence {given:?} of producer {producer_id:?} is out of order: {expected:?} would be next")]
    OutOfOrder {
        /// The producer.
        producer_id: ProducerId,
        /// First sequence of the batch.
        given: Sequence,
        /// The sequence that would be accepted.
        expected: Sequence,
    },
    /// A batch without transaction while one of this producer is open here (→ INVALID_TXN_STATE).
    #[error("producer {producer_id:?} has an open transaction here and wrote outside of it")]
    InvalidTxnState {
        /// The producer.
        producer_id: ProducerId,
    },
}

/// All that is known of one producer on one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// Its newest incarnation.
    pub epoch: ProducerEpoch,
    /// Epoch of the coordinator that wrote its last marker; -1 for none.
    pub coordinator_epoch: i32,
    /// The broker's time of the last append, in ms.
    pub last_append_ms: i64,
    /// First offset of the transaction that is open here.
    pub txn_first_offset: Option<Offset>,
    /// Its last batches.
    pub window: Window,
}

impl ProducerState {
    fn new(epoch: ProducerEpoch) -> Self {
        Self {
            epoch,
            coordinator_epoch: -1,
            last_append_ms: i64::MIN,
            txn_first_offset: None,
            window: Window::default(),
        }
    }

    /// D1 to D14 for a producer that is known.
    fn check(&self, batch: &BatchIdentity) -> Result<Verdict, Refusal> {
        if batch.epoch == self.epoch
            && let Some(seen) = self.window.find(batch.base_sequence, batch.last_offset_delta)
        {
            return Ok(Verdict::Duplicate(seen.original())); // D1
        }
        if batch.epoch < self.epoch {
            let producer_id = batch.producer_id;
            return Err(Refusal::Fenced { producer_id, given: batch.epoch, current: self.epoch }); // D4
        }
        self.check_sequence(batch)?;
        if self.txn_first_offset.is_some() && !batch.transactional {
            return Err(Refusal::InvalidTxnState { producer_id: batch.producer_id }); // D14
        }
        Ok(Verdict::Append)
    }

    /// D7 to D13: 0 starts a window, else the next one goes on.
    fn check_sequence(&self, batch: &BatchIdentity) -> Result<(), Refusal> {
        let newest = self.window.newest().filter(|_| batch.epoch == self.epoch);
        let expected = newest.map_or(Sequence(0), |seen| seen.last_sequence().plus(1));
        if batch.base_sequence == expected {
            return Ok(());
        }
        Err(Refusal::OutOfOrder { producer_id: batch.producer_id, given: batch.base_sequence, expected })
    }

    fn remember(&mut self, batch: &BatchIdentity, appended: &Appended) {
        if batch.epoch != self.epoch {
            self.epoch = batch.epoch;
            self.window = Window::default();
        }
        self.window.push(Remembered {
            base_offset: appended.base_offset,
            max_timestamp: appended.max_timestamp,
            first_sequence: batch.base_sequence,
            last_offset_delta: batch.last_offset_delta,
        });
        self.last_append_ms = self.last_append_ms.max(appended.append_ms);
        if batch.transactional && self.txn_first_offset.is_none() {
            self.txn_first_offset = Some(appended.base_offset);
        }
    }

    fn is_idle_since(&self, limit_ms: i64) -> bool {
        self.txn_first_offset.is_none() && self.last_append_ms <= limit_ms
    }
}

/// A producer's state and what only the table needs.
#[derive(Clone, Debug)]
struct Slot {
    state: ProducerState,
    last_use: u64,
    changed: bool,
}

/// A change since the last one that was taken, for a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its state now; `None` if it was forgotten.
    pub state: Option<ProducerState>,
}

/// The producers of one partition.
#[derive(Debug)]
pub struct Producers {
    slots: HashMap<ProducerId, Slot, Seeded>,
    changed: Vec<ProducerId>,
}

impl Producers {
    /// An empty table; `seed` keeps clients from choosing ids that collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { slots: HashMap::with_hasher(Seeded(seed)), changed: Vec::new() }
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
        match self.slots.get(&batch.producer_id) {
            None => Ok(Verdict::Append), // D9
            Some(slot) => slot.state.check(batch),
        }
    }

    /// Remembers a batch that `check` let pass and that has got its offset.
    ///
    /// `tick` is a counter of the shard that only grows; what was used longest ago is forgotten first.
    pub fn remember(&mut self, batch: &BatchIdentity, appended: &Appended, tick: u64) {
        if batch.producer_id.0 >= 0 {
            self.slot(batch.producer_id, batch.epoch, tick).remember(batch, appended);
        }
    }

    /// Remembers a batch of the log again, without checks; one that the table already holds changes nothing.
    pub fn replay(&mut self, batch: &BatchIdentity, appended: &Appended) {
        if batch.producer_id.0 >= 0 && !self.holds(batch, appended.base_offset) {
            self.slot(batch.producer_id, batch.epoch, tick_of(appended.append_ms)).remember(batch, appended);
        }
    }

    /// Remembers a marker that ended a transaction: a new epoch starts a new window.
    ///
    /// Source: apache/kafka `ProducerAppendInfo.appendEndTxnMarker`.
    pub fn replay_marker(&mut self, id: ProducerId, epoch: ProducerEpoch, coordinator_epoch: i32, append_ms: i64) {
        let state = self.slot(id, epoch, 0);
        if epoch != state.epoch {
            state.epoch = epoch;
            state.window = Window::default();
        }
        state.coordinator_epoch = coordinator_epoch;
        state.txn_first_offset = None;
        state.last_append_ms = state.last_append_ms.max(append_ms);
    }

    /// Takes over a producer from a checkpoint.
    pub fn restore(&mut self, id: ProducerId, state: ProducerState) {
        let last_use = tick_of(state.last_append_ms);
        self.slots.insert(id, Slot { state, last_use, changed: false });
    }

    /// Forgets a producer, for a checkpoint that says so.
    pub fn forget(&mut self, id: ProducerId) {
        if self.slots.remove(&id).is_some() {
            self.changed.push(id);
        }
    }

    /// Notes that a producer was heard of, though nothing was written.
    pub fn touch(&mut self, id: ProducerId, tick: u64) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.last_use = slot.last_use.max(tick);
        }
    }

    /// What is known of a producer.
    #[must_use]
    pub fn get(&self, id: ProducerId) -> Option<&ProducerState> {
        self.slots.get(&id).map(|slot| &slot.state)
    }

    /// Every producer and what is known of it, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerState)> {
        self.slots.iter().map(|(id, slot)| (*id, &slot.state))
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

    /// Forgets producers that wrote nothing for `expiration_ms` and have no open transaction; returns how many.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let limit_ms = now_ms.saturating_sub(expiration_ms);
        let idle: Vec<_> = self.iter().filter(|(_, state)| state.is_idle_since(limit_ms)).map(|(id, _)| id).collect();
        self.forget_all(&idle)
    }

    /// When each producer that may be forgotten was used last (those with an open transaction may not).
    pub fn uses(&self) -> impl Iterator<Item = u64> {
        self.slots.values().filter(|slot| slot.state.txn_first_offset.is_none()).map(|slot| slot.last_use)
    }

    /// Forgets the producers that were used last at `tick` or before, none with an open transaction; returns how many.
    pub fn evict_used_until(&mut self, tick: u64) -> usize {
        let is_old = |slot: &Slot| slot.state.txn_first_offset.is_none() && slot.last_use <= tick;
        let old: Vec<_> = self.slots.iter().filter(|(_, slot)| is_old(slot)).map(|(id, _)| *id).collect();
        self.forget_all(&old)
    }

    /// Takes what changed since it was last taken, ordered by producer id.
    ///
    /// If the checkpoint that it was taken for fails, give the ids back with [`Producers::mark_changed`].
    pub fn take_changed(&mut self) -> Vec<Change> {
        let mut ids = std::mem::take(&mut self.changed);
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|producer_id| self.take_change(producer_id)).collect()
    }

    /// Makes the next [`Producers::take_changed`] hold these producers again.
    pub fn mark_changed(&mut self, ids: impl IntoIterator<Item = ProducerId>) {
        for id in ids {
            if let Some(slot) = self.slots.get_mut(&id) {
                slot.changed = true;
            }
            self.changed.push(id);
        }
    }

    /// Number of producers that [`Producers::take_changed`] would give, or a little more.
    #[must_use]
    pub fn changed_count(&self) -> usize {
        self.changed.len()
    }

    fn take_change(&mut self, producer_id: ProducerId) -> Change {
        let slot = self.slots.get_mut(&producer_id);
        let state = slot.map(|slot| {
            slot.changed = false;
            slot.state.clone()
        });
        Change { producer_id, state }
    }

    /// The state of a producer, new with `epoch` if it was unknown, and marked as changed and used.
    fn slot(&mut self, id: ProducerId, epoch: ProducerEpoch, tick: u64) -> &mut ProducerState {
        let slot = match self.slots.entry(id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(Slot { state: ProducerState::new(epoch), last_use: tick, changed: false })
            }
        };
        slot.last_use = slot.last_use.max(tick);
        if !slot.changed {
            slot.changed = true;
            self.changed.push(id);
        }
        &mut slot.state
    }

    fn holds(&self, batch: &BatchIdentity, base_offset: Offset) -> bool {
        let newest = self.get(batch.producer_id).and_then(|state| state.window.newest());
        newest.is_some_and(|newest| base_offset <= newest.base_offset)
    }

    fn forget_all(&mut self, ids: &[ProducerId]) -> usize {
        for id in ids {
            self.forget(*id);
        }
        ids.len()
    }
}

/// Ticks of a shard go on from the time of its start, so that what is older sorts before.
fn tick_of(append_ms: i64) -> u64 {
    u64::try_from(append_ms).unwrap_or(0)
}

/// Hashes with a seed that is given, so that the same seed gives the same run.
#[derive(Clone, Copy, Debug)]
struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> Self::Hasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}
