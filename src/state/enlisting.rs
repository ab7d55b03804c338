//! Batches that are to begin their producer's transaction in a partition: what the coordinator was asked for, and whether
//! its answer still holds.
//!
//! A yes holds for the next batch that begins the transaction here, and no longer than until a marker of the producer is
//! staged: otherwise a batch that was held up would open a transaction that nobody ends. The lowest sequence that was asked
//! for is kept, so that a batch whose predecessor was refused is not taken for the first.
//!
//! Source: KIP-890; apache/kafka `VerificationStateEntry.java`, `ProducerStateManager.java`, `AddPartitionsToTxnManager.java`.

use std::collections::BTreeMap;

use super::transactions::messages::{Enlisting, Speaker};
use crate::ids::{ProducerEpoch, ProducerId, Sequence};
use crate::wire::error_code::ErrorCode;

/// First version of Produce that knows TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 11;
/// First version of Produce by which a partition is added.
const ADDS_FROM: i16 = 12;
/// Producers that are remembered between a refusal and their next batch.
const REMEMBERED_MAX: usize = 1000;

/// Proof that the coordinator has said yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard(u64);

/// What a producer's requests know of transactions, by their version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Partitions are added by requests of their own, and a no is INVALID_TXN_STATE.
    Plain,
    /// The same, and a no is TRANSACTION_ABORTABLE.
    Abortable,
    /// The first batch adds its partition (KIP-890).
    Adds,
}

impl Protocol {
    /// That of a version of Produce.
    #[must_use]
    pub fn of_produce(version: i16) -> Self {
        match version {
            ADDS_FROM.. => Self::Adds,
            ABORTABLE_FROM => Self::Abortable,
            _ => Self::Plain,
        }
    }

    /// What the coordinator is asked.
    #[must_use]
    pub fn enlisting(self) -> Enlisting {
        if self == Self::Adds { Enlisting::Add } else { Enlisting::Verify }
    }

    /// What a producer is told when the coordinator has answered `code`.
    ///
    /// Source: apache/kafka `ReplicaManager.maybeSendPartitionsToTransactionCoordinator`, `AddPartitionsToTxnManager`.
    #[must_use]
    pub fn told(self, code: ErrorCode) -> ErrorCode {
        match code {
            ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
            ErrorCode::TransactionAbortable if self == Self::Plain => ErrorCode::InvalidTxnState,
            ErrorCode::ConcurrentTransactions if self == Self::Adds => code,
            ErrorCode::ConcurrentTransactions
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator => ErrorCode::NotEnoughReplicas,
            other => other,
        }
    }
}

/// What must be asked before a batch may begin its producer's transaction in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who writes, by the request and by the batch.
    pub speaker: Speaker,
    /// Sequence of the batch.
    pub base_sequence: Sequence,
    /// How it is asked, and what a no is.
    pub protocol: Protocol,
}

/// How a batch comes to be allowed to begin its producer's transaction in a partition; once that is open there, none of it
/// matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The owner asks the coordinator.
    Ask(Box<Question>),
    /// The coordinator was asked, and has said yes.
    Asked {
        /// Good until a marker comes.
        guard: Guard,
        /// How it was asked.
        protocol: Protocol,
    },
    /// Nobody asks: verification is off.
    Unasked,
}

#[derive(Clone, Copy, Debug)]
struct Enlistment {
    guard: Guard,
    epoch: ProducerEpoch,
    lowest: Sequence,
}

/// The producers of one partition that a coordinator was asked about and that have not written since.
#[derive(Debug, Default)]
pub struct Enlistments {
    by_producer: BTreeMap<ProducerId, Enlistment>,
    next: u64,
}

impl Enlistments {
    /// The coordinator is about to be asked; what it says yes to is what this gives.
    pub fn begin(&mut self, id: ProducerId, epoch: ProducerEpoch, sequence: Sequence) -> Guard {
        let guard = Guard(self.next);
        match self.by_producer.get_mut(&id) {
            Some(known) if known.epoch == epoch => {
                if sequence.0 < known.lowest.0 {
                    known.lowest = sequence;
                }
                return known.guard;
            }
            _ => {}
        }
        self.next += 1;
        if self.by_producer.len() >= REMEMBERED_MAX {
            self.by_producer.pop_first();
        }
        self.by_producer.insert(id, Enlistment { guard, epoch, lowest: sequence });
        guard
    }

    /// Whether a yes still holds, and then the lowest sequence that was asked for.
    #[must_use]
    pub fn lowest(&self, id: ProducerId, guard: Guard) -> Option<Sequence> {
        self.by_producer.get(&id).filter(|known| known.guard == guard).map(|known| known.lowest)
    }

    /// The producer has written here, or a marker ended its transaction: what was asked before holds no longer.
    pub fn end(&mut self, id: ProducerId) {
        if !self.by_producer.is_empty() {
            self.by_producer.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: ProducerId = ProducerId(7);
    const E: ProducerEpoch = ProducerEpoch(1);

    #[test]
    fn a_yes_holds_until_somebody_has_written_or_ended() {
        let mut asked = Enlistments::default();
        let first = asked.begin(P, E, Sequence(4));
        assert_eq!(asked.begin(P, E, Sequence(2)), first);
        assert_eq!(asked.begin(P, E, Sequence(9)), first);
        assert_eq!(asked.lowest(P, first), Some(Sequence(2)));
        asked.end(P);
        assert_eq!(asked.lowest(P, first), None);
        let second = asked.begin(P, E, Sequence(5));
        assert_eq!((asked.lowest(P, first), asked.lowest(P, second)), (None, Some(Sequence(5))));
        let newer = asked.begin(P, ProducerEpoch(2), Sequence(8));
        assert_eq!((asked.lowest(P, second), asked.lowest(P, newer)), (None, Some(Sequence(8))));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut asked = Enlistments::default();
        (0..5000).for_each(|id| _ = asked.begin(ProducerId(id), E, Sequence(0)));
        assert_eq!(asked.by_producer.len(), REMEMBERED_MAX);
    }

    #[test]
    fn a_no_is_told_as_the_version_knows_it() {
        use ErrorCode as E;
        let told = |code: E| [10, 11, 12].map(|version| Protocol::of_produce(version).told(code));
        assert_eq!(
            told(E::TransactionAbortable),
            [E::InvalidTxnState, E::TransactionAbortable, E::TransactionAbortable]
        );
        assert_eq!(told(E::ProducerFenced), [E::InvalidProducerEpoch; 3]);
        let replicas = E::NotEnoughReplicas;
        assert_eq!(told(E::ConcurrentTransactions), [replicas, replicas, E::ConcurrentTransactions]);
        for code in [E::CoordinatorLoadInProgress, E::CoordinatorNotAvailable, E::NotCoordinator] {
            assert_eq!(told(code), [replicas; 3]);
        }
        assert_eq!(told(E::InvalidProducerIdMapping), [E::InvalidProducerIdMapping; 3]);
    }
}
