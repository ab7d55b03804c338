//! One transactional id: what is kept of it, what is on its way, and what follows from each call.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::messages::{Answer, Described, Outcome, Protocol, Speaker};
use super::{Moment, Ticket};
use crate::ids::{ProducerEpoch, ProducerId, TopicPartition};
use crate::wire::error_code::ErrorCode;
use crate::wire::transaction_record::{NO_EPOCH, NO_PRODUCER, Status, TransactionValue};

/// The last epoch that a producer may get: the one above it is for fencing.
const LAST_EPOCH: ProducerEpoch = ProducerEpoch(i16::MAX - 1);
/// What the log has for [`Protocol::Bumping`].
const BUMPING: i16 = 2;

/// What follows from a call.
pub(super) enum Decision {
    /// This goes out now.
    Answer(Answer),
    /// This is written, and then answered.
    Write(TransactionValue, Answer),
    /// A new producer id is needed; then the call is decided anew.
    WantsId,
    /// Something is on its way that has to end first.
    Wait,
}

/// A record on its way.
#[derive(Debug)]
pub(super) struct Pending {
    /// What will be kept; nothing when it is forgotten.
    pub next: Option<TransactionValue>,
    /// Who is told.
    pub replies: Vec<(Ticket, Answer)>,
    /// When it was decided, in ms of uptime.
    pub decided_ms: u64,
}

/// Partitions that are to be added.
#[derive(Debug)]
pub(super) struct Addition {
    pub ticket: Ticket,
    pub speaker: Speaker,
    pub partitions: Vec<TopicPartition>,
    pub protocol: Protocol,
    /// Whether it may wait for the end of the transaction before it, and then in ms of uptime until when.
    pub until_ms: Option<u64>,
}

impl Addition {
    /// The answer in the form that was asked for.
    pub fn answer(&self, error: ErrorCode) -> Answer {
        match self.protocol {
            Protocol::Classic => Answer::Done(error),
            Protocol::Bumping => Answer::Enlisted(error),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Entry {
    pub name: Arc<str>,
    /// What is in the log; nothing before the first record is.
    pub kept: Option<TransactionValue>,
    pub pending: Option<Pending>,
    /// Partitions that have no marker yet, while a transaction ends.
    pub unmarked: BTreeSet<TopicPartition>,
    /// Additions that wait for what is on its way, in order.
    pub waiting: Vec<Addition>,
    /// When the open transaction has been open for too long, in ms of uptime.
    pub due_ms: Option<u64>,
}

impl Entry {
    pub fn new(name: Arc<str>) -> Self {
        Self { name, kept: None, pending: None, unmarked: BTreeSet::new(), waiting: Vec::new(), due_ms: None }
    }

    pub fn status(&self) -> Option<Status> {
        self.kept.as_ref().map(|kept| kept.status)
    }

    /// A record is on its way, or the markers of a transaction that ends.
    pub fn is_in_transition(&self) -> bool {
        self.pending.is_some() || matches!(self.status(), Some(Status::PrepareCommit | Status::PrepareAbort))
    }

    /// More partitions are on their way into an open transaction.
    fn is_adding(&self) -> bool {
        let next = self.pending.as_ref().and_then(|pending| pending.next.as_ref());
        next.is_some_and(|next| next.status == Status::Ongoing)
    }

    /// A producer begins, or begins again.
    ///
    /// Source: apache/kafka `TransactionCoordinator.prepareInitProducerIdTransit`,
    /// `TransactionMetadata.prepareIncrementProducerEpoch`; KIP-360.
    pub fn init(
        &self,
        at: Moment,
        timeout_ms: i32,
        given: Option<(ProducerId, ProducerEpoch)>,
        fresh: Option<ProducerId>,
    ) -> Decision {
        if self.is_in_transition() {
            return Decision::Answer(Answer::Producer(Err(ErrorCode::ConcurrentTransactions)));
        }
        let Some(kept) = &self.kept else {
            // What a producer says of itself that nobody remembers is not taken over.
            return match fresh {
                Some(id) => begun_anew(&first_value(id), at, timeout_ms, (id, ProducerEpoch(0)), NO_EPOCH),
                None => Decision::WantsId,
            };
        };
        let is_known = |(id, epoch): (ProducerId, ProducerEpoch)| {
            id == kept.producer_id || (id == kept.previous_producer_id && epoch >= LAST_EPOCH)
        };
        if !given.is_none_or(is_known) {
            return Decision::Answer(Answer::Producer(Err(ErrorCode::ProducerFenced)));
        }
        if kept.status == Status::Ongoing {
            // The epoch that fences is nobody's: the client asks again, and gets the one above.
            let answer = Answer::Producer(Err(ErrorCode::ConcurrentTransactions));
            return self.fence(kept, at, fresh, answer);
        }
        let present = (kept.producer_id, kept.epoch);
        let last_epoch = match given {
            None => NO_EPOCH,
            Some(given) if given == present => kept.epoch,
            // The answer to the same call was lost.
            Some((_, epoch)) if epoch == kept.last_epoch => {
                return begun_anew(kept, at, timeout_ms, present, kept.last_epoch);
            }
            Some(_) => return Decision::Answer(Answer::Producer(Err(ErrorCode::ProducerFenced))),
        };
        let next = if kept.epoch < LAST_EPOCH {
            (kept.producer_id, ProducerEpoch(kept.epoch.0 + 1))
        } else if let Some(id) = fresh {
            (id, ProducerEpoch(0))
        } else {
            return Decision::WantsId;
        };
        begun_anew(kept, at, timeout_ms, next, last_epoch)
    }

    /// Partitions come into the transaction, which begins with the first.
    ///
    /// Source: apache/kafka `TransactionCoordinator.handleAddPartitionsToTransaction`.
    pub fn add(&self, at: Moment, addition: &Addition) -> Decision {
        let answer = |error| Decision::Answer(addition.answer(error));
        if self.is_adding() {
            return Decision::Wait;
        }
        if self.is_in_transition() {
            let may_wait = addition.until_ms.is_some_and(|until| at.uptime_ms < until);
            return if may_wait { Decision::Wait } else { answer(ErrorCode::ConcurrentTransactions) };
        }
        let kept = match self.spoken_for(&addition.speaker) {
            Ok(kept) => kept,
            Err(error) => return answer(error),
        };
        let is_open = kept.status == Status::Ongoing;
        let is_in = |partition: &TopicPartition| kept.partitions.binary_search(partition).is_ok();
        if is_open && addition.partitions.iter().all(is_in) {
            return answer(ErrorCode::None);
        }
        let (known, begun_ms) = if is_open { (&kept.partitions[..], kept.begun_ms) } else { (&[][..], at.wall_ms) };
        let next = TransactionValue {
            status: Status::Ongoing,
            partitions: united(known, &addition.partitions),
            begun_ms,
            updated_ms: at.wall_ms,
            protocol: number_of(addition.protocol),
            ..kept.clone()
        };
        Decision::Write(next, addition.answer(ErrorCode::None))
    }

    /// One code for each partition: none, or 120 for one that is not in the transaction.
    ///
    /// Source: apache/kafka `TransactionCoordinator.handleVerifyPartitionsInTransaction`.
    pub fn verify(&self, speaker: &Speaker, partitions: &[TopicPartition]) -> Result<Vec<ErrorCode>, ErrorCode> {
        let kept = self.spoken_for(speaker)?;
        if matches!(kept.status, Status::PrepareCommit | Status::PrepareAbort) {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let known = if kept.status == Status::Ongoing { &kept.partitions[..] } else { &[] };
        let code = |partition: &TopicPartition| match known.binary_search(partition) {
            Ok(_) => ErrorCode::None,
            Err(_) => ErrorCode::TransactionAbortable,
        };
        Ok(partitions.iter().map(code).collect())
    }

    /// A client ends its transaction.
    pub fn end(
        &self,
        at: Moment,
        speaker: &Speaker,
        outcome: Outcome,
        protocol: Protocol,
        fresh: Option<ProducerId>,
    ) -> Decision {
        let decided = match protocol {
            Protocol::Classic => self.end_classic(at, speaker, outcome),
            Protocol::Bumping => self.end_bumping(at, speaker, outcome, fresh),
        };
        decided.unwrap_or_else(|error| Decision::Answer(Answer::Producer(Err(error))))
    }

    /// Source: apache/kafka `TransactionCoordinator.endTransactionWithTV1`.
    fn end_classic(&self, at: Moment, speaker: &Speaker, outcome: Outcome) -> Result<Decision, ErrorCode> {
        let kept = self.spoken_for(speaker)?;
        if self.is_in_transition() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let present = (kept.producer_id, kept.epoch);
        match (kept.status, outcome) {
            (Status::Ongoing, _) => {
                let next = TransactionValue {
                    status: prepared(outcome),
                    updated_ms: at.wall_ms,
                    protocol: number_of(Protocol::Classic),
                    ..kept.clone()
                };
                Ok(Decision::Write(next, Answer::Producer(Ok(present))))
            }
            (Status::CompleteCommit, Outcome::Commit) | (Status::CompleteAbort, Outcome::Abort) => {
                Ok(Decision::Answer(Answer::Producer(Ok(present))))
            }
            _ => Err(ErrorCode::InvalidTxnState),
        }
    }

    /// Source: apache/kafka `TransactionCoordinator.endTransaction`; KIP-890.
    fn end_bumping(
        &self,
        at: Moment,
        speaker: &Speaker,
        outcome: Outcome,
        fresh: Option<ProducerId>,
    ) -> Result<Decision, ErrorCode> {
        // First of all: the client may already use the producer id that is only on its way.
        if self.is_in_transition() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let kept = self.kept.as_ref().ok_or(ErrorCode::InvalidProducerIdMapping)?;
        let is_before_exchange = kept.epoch == ProducerEpoch(0)
            && (speaker.producer_id, speaker.epoch) == (kept.previous_producer_id, LAST_EPOCH);
        if speaker.producer_id != kept.producer_id && !is_before_exchange {
            return Err(ErrorCode::InvalidProducerIdMapping);
        }
        let is_repeated = is_before_exchange || i32::from(speaker.epoch.0) + 1 == i32::from(kept.epoch.0);
        let is_present = !is_before_exchange && speaker.epoch == kept.epoch;
        let present = Decision::Answer(Answer::Producer(Ok((kept.producer_id, kept.epoch))));
        match (kept.status, outcome) {
            (Status::Ongoing, _) | (Status::Empty | Status::CompleteCommit | Status::CompleteAbort, Outcome::Abort)
                if is_present =>
            {
                Ok(self.end_with_new_epoch(kept, at, outcome, fresh, None))
            }
            (Status::CompleteCommit, Outcome::Commit) | (Status::CompleteAbort, Outcome::Abort) if is_repeated => {
                Ok(present)
            }
            // The coordinator has aborted what was to be committed: the producer was too slow, and is told that it is
            // fenced, after which its application begins anew. Kafka says 48, which ends clients.
            (Status::CompleteAbort, Outcome::Commit) if is_repeated => Err(ErrorCode::ProducerFenced),
            (Status::CompleteCommit, Outcome::Abort) if is_repeated => Err(ErrorCode::InvalidTxnState),
            (Status::Empty | Status::CompleteCommit | Status::CompleteAbort, Outcome::Commit) if is_present => {
                Err(ErrorCode::InvalidTxnState)
            }
            _ => Err(ErrorCode::ProducerFenced),
        }
    }

    /// The transaction is aborted and its producer fenced: it was open for too long, or another one takes over.
    pub fn fence(&self, kept: &TransactionValue, at: Moment, fresh: Option<ProducerId>, answer: Answer) -> Decision {
        self.end_with_new_epoch(kept, at, Outcome::Abort, fresh, Some(answer))
    }

    /// The markers carry the epoch above the one that the data has; where there is none left for the producer, another id
    /// takes over once all have it.
    fn end_with_new_epoch(
        &self,
        kept: &TransactionValue,
        at: Moment,
        outcome: Outcome,
        fresh: Option<ProducerId>,
        answer: Option<Answer>,
    ) -> Decision {
        let (next_producer_id, told) = if kept.epoch < LAST_EPOCH {
            (NO_PRODUCER, (kept.producer_id, ProducerEpoch(kept.epoch.0 + 1)))
        } else if let Some(id) = fresh {
            (id, (id, ProducerEpoch(0)))
        } else {
            return Decision::WantsId;
        };
        let is_open = kept.status == Status::Ongoing;
        let next = TransactionValue {
            status: prepared(outcome),
            epoch: ProducerEpoch(kept.epoch.0.saturating_add(1)),
            last_epoch: kept.epoch,
            next_producer_id,
            begun_ms: if is_open { kept.begun_ms } else { at.wall_ms },
            updated_ms: at.wall_ms,
            protocol: BUMPING,
            ..kept.clone()
        };
        Decision::Write(next, answer.unwrap_or(Answer::Producer(Ok(told))))
    }

    /// What is kept when every partition has its marker.
    pub fn completed(&self, at: Moment) -> Option<TransactionValue> {
        let kept = self.kept.as_ref()?;
        let status = match kept.status {
            Status::PrepareCommit => Status::CompleteCommit,
            Status::PrepareAbort => Status::CompleteAbort,
            _ => return None,
        };
        let next = TransactionValue { status, partitions: Vec::new(), updated_ms: at.wall_ms, ..kept.clone() };
        if kept.next_producer_id == NO_PRODUCER {
            return Some(next);
        }
        Some(TransactionValue {
            producer_id: kept.next_producer_id,
            previous_producer_id: kept.producer_id,
            next_producer_id: NO_PRODUCER,
            epoch: ProducerEpoch(0),
            ..next
        })
    }

    /// How it stands.
    pub fn described(&self) -> Option<Described> {
        let kept = self.kept.as_ref()?;
        let ends = matches!(kept.status, Status::PrepareCommit | Status::PrepareAbort);
        let partitions = if ends { self.unmarked.iter().cloned().collect() } else { kept.partitions.clone() };
        Some(Described {
            status: kept.status,
            timeout_ms: kept.timeout_ms,
            begun_ms: kept.begun_ms,
            producer_id: kept.producer_id,
            epoch: kept.epoch,
            partitions,
        })
    }

    /// What is kept, if the speaker is who it belongs to.
    ///
    /// # Errors
    /// 49 for one who never was, 90 for one who is not any more.
    fn spoken_for(&self, speaker: &Speaker) -> Result<&TransactionValue, ErrorCode> {
        match &self.kept {
            Some(kept) if kept.producer_id != speaker.producer_id => Err(ErrorCode::InvalidProducerIdMapping),
            Some(kept) if kept.epoch != speaker.epoch => Err(ErrorCode::ProducerFenced),
            Some(kept) => Ok(kept),
            None => Err(ErrorCode::InvalidProducerIdMapping),
        }
    }
}

/// Both, ascending, each once.
pub(super) fn united(known: &[TopicPartition], more: &[TopicPartition]) -> Vec<TopicPartition> {
    let all: BTreeSet<_> = known.iter().chain(more).cloned().collect();
    all.into_iter().collect()
}

fn number_of(protocol: Protocol) -> i16 {
    match protocol {
        Protocol::Classic => 0,
        Protocol::Bumping => BUMPING,
    }
}

/// Whether the epoch of the markers is above that of the data.
pub(super) fn bumps_epoch(value: &TransactionValue) -> bool {
    value.protocol >= BUMPING
}

fn prepared(outcome: Outcome) -> Status {
    match outcome {
        Outcome::Commit => Status::PrepareCommit,
        Outcome::Abort => Status::PrepareAbort,
    }
}

/// A transactional id that nobody knows yet.
fn first_value(id: ProducerId) -> TransactionValue {
    TransactionValue {
        producer_id: id,
        previous_producer_id: NO_PRODUCER,
        next_producer_id: NO_PRODUCER,
        epoch: NO_EPOCH,
        last_epoch: NO_EPOCH,
        timeout_ms: 0,
        status: Status::Empty,
        partitions: Vec::new(),
        updated_ms: -1,
        begun_ms: -1,
        protocol: 0,
    }
}

/// The producer begins with `next`.
fn begun_anew(
    before: &TransactionValue,
    at: Moment,
    timeout_ms: i32,
    next: (ProducerId, ProducerEpoch),
    last_epoch: ProducerEpoch,
) -> Decision {
    let is_exchanged = next.0 != before.producer_id;
    let value = TransactionValue {
        producer_id: next.0,
        previous_producer_id: if is_exchanged { before.producer_id } else { before.previous_producer_id },
        epoch: next.1,
        last_epoch,
        timeout_ms,
        status: Status::Empty,
        partitions: Vec::new(),
        updated_ms: at.wall_ms,
        begun_ms: -1,
        ..before.clone()
    };
    Decision::Write(value, Answer::Producer(Ok(next)))
}
