//! What is asked of the coordinator of a transactional id, and what it answers: plain values, the same for every protocol
//! version.

use crate::ids::{ProducerEpoch, ProducerId, TopicPartition};
use crate::wire::error_code::ErrorCode;

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its records become visible.
    Commit,
    /// Its records are passed over by readers of what is committed.
    Abort,
}

/// The incarnation of a producer that speaks for a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// Whose transaction.
    pub transactional_id: String,
    /// The id that it was given.
    pub producer_id: ProducerId,
    /// Its incarnation.
    pub epoch: ProducerEpoch,
}

/// What an owner wants to know before it stages the first transactional batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enlisting {
    /// Whether the partition was added by the client (Produce up to 11, TxnOffsetCommit up to 4).
    Verify,
    /// The partition is to be added, and with it the transaction begun (Produce from 12 on, TxnOffsetCommit from 5 on).
    Add,
}

/// What is asked of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The owner of partitions is about to stage batches; answered by [`Answer::Enlisted`].
    Enlist {
        /// Who writes.
        speaker: Speaker,
        /// Where.
        partitions: Vec<TopicPartition>,
        /// What is asked.
        enlisting: Enlisting,
    },
}

/// What a coordinator answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None: stage now. 120 for one that is not in the transaction, 90, 49, 51, 14 to 16, as the coordinator computes them;
    /// the owner makes of it what the version of the request wants.
    Enlisted(ErrorCode),
}

impl Command {
    /// The answer that says nothing but an error.
    #[must_use]
    pub fn refused(&self, error: ErrorCode) -> Answer {
        match self {
            Self::Enlist { .. } => Answer::Enlisted(error),
        }
    }
}
