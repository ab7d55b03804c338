//! What is asked of the coordinator of a transactional id, and what it answers: plain values, the same for every protocol
//! version.

use crate::ids::{ProducerEpoch, ProducerId, TopicPartition};
use crate::wire::error_code::ErrorCode;
use crate::wire::transaction_record::Status;

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its records become visible.
    Commit,
    /// Its records are passed over by readers of what is committed.
    Abort,
}

/// Which of the two transaction protocols a call follows; both may be used on one transactional id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// The client adds partitions itself, and keeps its epoch from one transaction to the next.
    Classic,
    /// KIP-890: owners of partitions add them, and each end of a transaction gives the producer a new epoch.
    Bumping,
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
    /// A producer begins, or begins again; answered by [`Answer::Producer`].
    Init {
        /// For which transactional id.
        transactional_id: String,
        /// So long its transactions may be open, in ms.
        timeout_ms: i32,
        /// Id and epoch that it has, if it goes on.
        given: Option<(ProducerId, ProducerEpoch)>,
    },
    /// A client adds partitions to its transaction, which begins with the first; answered by [`Answer::Done`].
    Add {
        /// Who adds.
        speaker: Speaker,
        /// Which.
        partitions: Vec<TopicPartition>,
    },
    /// The owner of partitions is about to stage batches; answered by [`Answer::Enlisted`].
    Enlist {
        /// Who writes.
        speaker: Speaker,
        /// Where.
        partitions: Vec<TopicPartition>,
        /// What is asked.
        enlisting: Enlisting,
    },
    /// Which of these partitions are in the transaction; answered by [`Answer::Verified`].
    Verify {
        /// Who asks.
        speaker: Speaker,
        /// About which.
        partitions: Vec<TopicPartition>,
    },
    /// A client ends its transaction; answered by [`Answer::Producer`] with what it goes on with.
    End {
        /// Whose.
        speaker: Speaker,
        /// How.
        outcome: Outcome,
        /// In which way.
        protocol: Protocol,
    },
    /// A transaction has been open for too long: it is aborted, and its producer fenced. Nobody waits for an answer.
    TimeOut(Speaker),
    /// How a transactional id stands; answered by [`Answer::Described`].
    Describe {
        /// Which.
        transactional_id: String,
    },
    /// All transactional ids; answered by [`Answer::Listed`].
    List,
}

/// What a coordinator answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Id and epoch that the producer uses from now on.
    Producer(Result<(ProducerId, ProducerEpoch), ErrorCode>),
    /// Done, or the error.
    Done(ErrorCode),
    /// None: stage now. 120 for one that is not in the transaction, 90, 49, 51, 14 to 16, as the coordinator computes them;
    /// the owner makes of it what the version of the request wants.
    Enlisted(ErrorCode),
    /// One code for each partition, or one for all.
    Verified(Result<Vec<ErrorCode>, ErrorCode>),
    /// How it stands; 105 for one that is not known.
    Described(Result<Box<Described>, ErrorCode>),
    /// All that are known, or why they are not told.
    Listed(Result<Vec<Listed>, ErrorCode>),
}

/// A transactional id as DescribeTransactions shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// State.
    pub status: Status,
    /// So long a transaction may be open, in ms.
    pub timeout_ms: i32,
    /// When the last transaction was begun, in ms since 1970; -1 for never.
    pub begun_ms: i64,
    /// Producer.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Partitions that have no marker yet, ascending.
    pub partitions: Vec<TopicPartition>,
}

/// A transactional id as ListTransactions shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name.
    pub transactional_id: String,
    /// Producer.
    pub producer_id: ProducerId,
    /// State.
    pub status: Status,
    /// When an open transaction was begun, in ms since 1970; -1 for none.
    pub begun_ms: i64,
}

impl Command {
    /// What it is about; none for all.
    #[must_use]
    pub fn transactional_id(&self) -> Option<&str> {
        match self {
            Self::Init { transactional_id, .. } | Self::Describe { transactional_id } => Some(transactional_id),
            Self::Add { speaker, .. }
            | Self::Enlist { speaker, .. }
            | Self::Verify { speaker, .. }
            | Self::End { speaker, .. }
            | Self::TimeOut(speaker) => Some(&speaker.transactional_id),
            Self::List => None,
        }
    }

    /// The answer that says nothing but an error.
    #[must_use]
    pub fn refused(&self, error: ErrorCode) -> Answer {
        match self {
            Self::Init { .. } | Self::End { .. } => Answer::Producer(Err(error)),
            Self::Add { .. } | Self::TimeOut(_) => Answer::Done(error),
            Self::Enlist { .. } => Answer::Enlisted(error),
            Self::Verify { .. } => Answer::Verified(Err(error)),
            Self::Describe { .. } => Answer::Described(Err(error)),
            Self::List => Answer::Listed(Err(error)),
        }
    }
}

impl Answer {
    /// The same kind of answer, with an error instead of what it says.
    #[must_use]
    pub fn turned(self, error: ErrorCode) -> Self {
        match self {
            Self::Producer(_) => Self::Producer(Err(error)),
            Self::Done(_) => Self::Done(error),
            Self::Enlisted(_) => Self::Enlisted(error),
            Self::Verified(_) => Self::Verified(Err(error)),
            Self::Described(_) => Self::Described(Err(error)),
            Self::Listed(_) => Self::Listed(Err(error)),
        }
    }
}
