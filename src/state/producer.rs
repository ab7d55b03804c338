//! One producer on one partition: its last five batches, epoch, sequence wrap.
//!
//! Decision table, first match wins (D2, D3, D5 and D6 concern batches that begin a transaction here):
//! ```text
//! D0   no producer id                                       append, nothing remembered
//! D1   same epoch, same first and last sequence in window   duplicate
//! D2   transactional, none open here, older epoch           fenced
//! D3   transactional, none open here, not enlisted          invalid transaction state
//! D4   older epoch                                          fenced
//! D5   begins a transaction above what was enlisted         out of order
//! D6   begins one that adds itself, unknown, not sequence 0 out of order
//! D9   producer unknown here                                append, whatever its sequence
//! D7   newer epoch, sequence 0                              append, window starts anew
//! D8   newer epoch, other sequence                          out of order
//! D10  same epoch, window empty, sequence 0                 append
//! D11  same epoch, window empty, other sequence             out of order
//! D12  same epoch, next sequence                            append
//! D13  same epoch, anything else                            out of order
//! D14  append, but outside of the transaction that is open  invalid transaction state
//! ```
//! Batches of the broker's own in a producer's name (offsets of groups) have no sequence: only epoch and transaction count.
//!
//! Source: KIP-98, KIP-360, KIP-890; apache/kafka `ProducerAppendInfo`, `ProducerStateEntry`.

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
    /// A batch that would begin a transaction here which no coordinator knows (→ INVALID_TXN_STATE).
    #[error(
        "producer {producer_id:?} has no open transaction here, and none was begun at its coordinator for this batch"
    )]
    NotEnlisted {
        /// The producer.
        producer_id: ProducerId,
    },
}

/// What is known of a batch of a transaction beside its bytes, in case it is the one that begins it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enlisted {
    /// The coordinator has said yes, or is not asked.
    pub holds: bool,
    /// The lowest sequence that the coordinator was asked for.
    pub lowest: Option<Sequence>,
    /// Its request adds the partition by itself: a producer that is not known begins with sequence 0.
    pub adds: bool,
}

/// A marker: the end of a producer's transaction in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Whose.
    pub producer_id: ProducerId,
    /// Epoch of the marker.
    pub epoch: ProducerEpoch,
    /// Generation of the coordinator that wrote it.
    pub coordinator_epoch: i32,
    /// The transaction is one of KIP-890, where a marker has a newer epoch than the data.
    pub bumps_epoch: bool,
}

/// Why a marker is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerRefusal {
    /// Its epoch is too old (→ INVALID_PRODUCER_EPOCH).
    #[error("the marker's epoch {given:?} is fenced: epoch {current:?} has written here")]
    Fenced {
        /// Epoch of the marker.
        given: ProducerEpoch,
        /// Epoch that is valid.
        current: ProducerEpoch,
    },
    /// A newer coordinator has written here (→ TRANSACTION_COORDINATOR_FENCED).
    #[error("the coordinator's epoch {given} is fenced: epoch {current} has written here")]
    CoordinatorFenced {
        /// Epoch of the coordinator.
        given: i32,
        /// Epoch that is valid.
        current: i32,
    },
}

/// All that is known of one producer on one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// Its newest incarnation.
    pub epoch: ProducerEpoch,
    /// Epoch of the coordinator that wrote its last marker; -1 for none.
    pub coordinator_epoch: i32,
    /// The broker's time of the last append, in ms.
    pub last_append_ms: i64,
    /// First offset of the transaction that is open here; negative for none, which takes half the room of an `Option`.
    txn_first_offset: i64,
    /// Its last batches.
    pub window: Window,
}

const NO_TXN: i64 = -1;

impl ProducerState {
    /// A producer of which nothing is known but its epoch.
    #[must_use]
    pub fn new(epoch: ProducerEpoch) -> Self {
        Self {
            epoch,
            coordinator_epoch: -1,
            last_append_ms: i64::MIN,
            txn_first_offset: NO_TXN,
            window: Window::default(),
        }
    }

    /// First offset of the transaction that is open here.
    #[must_use]
    pub fn txn_first_offset(&self) -> Option<Offset> {
        (self.txn_first_offset >= 0).then_some(Offset(self.txn_first_offset))
    }

    /// Says whether a transaction is open here, and since which offset.
    pub fn set_txn_first_offset(&mut self, first: Option<Offset>) {
        self.txn_first_offset = first.map_or(NO_TXN, |first| first.0);
    }

    /// D1 to D14 for a producer that is known.
    pub(super) fn check(&self, batch: &BatchIdentity) -> Result<Verdict, Refusal> {
        if let Some(original) = self.original_of(batch) {
            return Ok(Verdict::Duplicate(original)); // D1
        }
        self.check_epoch(batch)?; // D4
        if batch.base_sequence.0 >= 0 {
            self.check_sequence(batch)?;
        }
        if self.is_in_txn() && !batch.transactional {
            return Err(Refusal::InvalidTxnState { producer_id: batch.producer_id }); // D14
        }
        Ok(Verdict::Append)
    }

    /// D1: the first writing of a batch that came again.
    pub(super) fn original_of(&self, batch: &BatchIdentity) -> Option<Original> {
        let is_of_now = batch.epoch == self.epoch;
        let seen = is_of_now.then(|| self.window.find(batch.base_sequence, batch.last_offset_delta)).flatten();
        seen.map(Remembered::original)
    }

    /// D2 and D4: older epochs are fenced.
    pub(super) fn check_epoch(&self, batch: &BatchIdentity) -> Result<(), Refusal> {
        if batch.epoch >= self.epoch {
            return Ok(());
        }
        Err(Refusal::Fenced { producer_id: batch.producer_id, given: batch.epoch, current: self.epoch })
    }

    /// Whether a transaction of this epoch is open here.
    pub(super) fn is_in_txn_of(&self, epoch: ProducerEpoch) -> bool {
        self.is_in_txn() && self.epoch == epoch
    }

    /// Whether a marker is written.
    ///
    /// ```text
    /// epoch older                                   fenced
    /// epoch the same, KIP-890, a transaction open   fenced
    /// epoch the same, else                          written, also again
    /// epoch newer                                   written
    /// coordinator older than the one before         its coordinator is fenced
    /// ```
    /// Source: apache/kafka `ProducerAppendInfo.checkProducerEpoch`, `checkCoordinatorEpoch`.
    pub(super) fn check_ending(&self, ending: &Ending) -> Result<(), MarkerRefusal> {
        let is_data_epoch = ending.bumps_epoch && self.is_in_txn_of(ending.epoch);
        if ending.epoch < self.epoch || is_data_epoch {
            return Err(MarkerRefusal::Fenced { given: ending.epoch, current: self.epoch });
        }
        if ending.coordinator_epoch < self.coordinator_epoch {
            let (given, current) = (ending.coordinator_epoch, self.coordinator_epoch);
            return Err(MarkerRefusal::CoordinatorFenced { given, current });
        }
        Ok(())
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

    /// True when the batch begins a transaction here.
    pub(super) fn remember(&mut self, batch: &BatchIdentity, appended: &Appended) -> bool {
        if batch.epoch != self.epoch {
            self.epoch = batch.epoch;
            self.window = Window::default();
        }
        if batch.base_sequence.0 >= 0 {
            self.window.push(Remembered {
                base_offset: appended.base_offset,
                max_timestamp: appended.max_timestamp,
                first_sequence: batch.base_sequence,
                last_offset_delta: batch.last_offset_delta,
            });
        }
        self.last_append_ms = self.last_append_ms.max(appended.append_ms);
        let begins = batch.transactional && !self.is_in_txn();
        if begins {
            self.txn_first_offset = appended.base_offset.0;
        }
        begins
    }

    /// A marker at `at` ended the transaction, whose first offset this gives: a new epoch starts a new window.
    ///
    /// A transaction that began behind the marker is none of its own: a replay may meet what is known already.
    ///
    /// Source: apache/kafka `ProducerAppendInfo.appendEndTxnMarker`.
    pub(super) fn end_txn(&mut self, ending: &Ending, at: Offset, append_ms: i64) -> Option<Offset> {
        if ending.epoch != self.epoch {
            self.epoch = ending.epoch;
            self.window = Window::default();
        }
        self.coordinator_epoch = ending.coordinator_epoch;
        self.last_append_ms = self.last_append_ms.max(append_ms);
        let ended = self.txn_first_offset().filter(|first| *first <= at);
        if ended.is_some() {
            self.txn_first_offset = NO_TXN;
        }
        ended
    }

    /// Whether the batch is in the window, or older than what is in it: a replay has nothing to add.
    pub(super) fn holds(&self, base_offset: Offset) -> bool {
        self.window.newest().is_some_and(|newest| base_offset <= newest.base_offset)
    }

    pub(super) fn is_in_txn(&self) -> bool {
        self.txn_first_offset >= 0
    }

    pub(super) fn is_idle_since(&self, limit_ms: i64) -> bool {
        !self.is_in_txn() && self.last_append_ms <= limit_ms
    }
}
