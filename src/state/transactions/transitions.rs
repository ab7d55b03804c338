//! Which state may follow which.
//!
//! Source: apache/kafka `TransactionState.java` (`validPreviousStates`). Its two states that are never on disk are not
//! needed: what fences a producer goes from `Ongoing` to `PrepareAbort` at once, and what expires from a complete state to
//! nothing.

use Status::{CompleteAbort, CompleteCommit, Empty, Ongoing, PrepareAbort, PrepareCommit};

use crate::wire::transaction_record::Status;

/// A state, and all that it may come from; nothing stands for a transactional id that is not known.
const LEGAL: [(Option<Status>, &[Option<Status>]); 7] = [
    (Some(Empty), &[None, Some(Empty), Some(CompleteCommit), Some(CompleteAbort)]),
    (Some(Ongoing), &[Some(Ongoing), Some(Empty), Some(CompleteCommit), Some(CompleteAbort)]),
    (Some(PrepareCommit), &[Some(Ongoing)]),
    // From the states without a transaction: the empty abort of KIP-890, which gives the producer a new epoch.
    (Some(PrepareAbort), &[Some(Ongoing), Some(Empty), Some(CompleteCommit), Some(CompleteAbort)]),
    (Some(CompleteCommit), &[Some(PrepareCommit)]),
    (Some(CompleteAbort), &[Some(PrepareAbort)]),
    (None, &[Some(Empty), Some(CompleteCommit), Some(CompleteAbort)]),
];

/// Whether a transactional id may go from one state to another.
#[must_use]
pub fn is_legal(from: Option<Status>, to: Option<Status>) -> bool {
    LEGAL.iter().any(|(state, before)| *state == to && before.contains(&from))
}
