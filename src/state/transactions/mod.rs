//! Transactions of one coordinator: which transactional ids there are, whose they are, and how far each has got.
//!
//! [`Transactions`] decides and never waits: a command gives answers, records to be appended, and markers to be sent; when a
//! record is in the log ([`Transactions::appended`]) it becomes what is kept, and whoever waited for it is answered. A
//! replay of the same records ([`Transactions::replay`]) gives the same state. Time comes in with a [`Moment`], new producer
//! ids with the command that needed one.
//!
//! Of each transactional id at most one record is on its way. While it is, and while a transaction ends, every call that
//! would change something is answered 51; only additions of partitions wait, for a short time, and are then put into one
//! record together.
//!
//! - `entry`: one transactional id, and what follows from each call.
//! - `transitions`: which state may follow which.
//!
//! Source: KIP-98, KIP-360, KIP-890; apache/kafka `TransactionCoordinator.scala`, `TransactionMetadata.java`.

mod entry;
pub mod messages;
pub mod transitions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use entry::{Addition, Decision, Entry, Pending, bumps_epoch, united};
use messages::{Answer, Command, Enlisting, Listed, Outcome, Protocol, Speaker};

use super::groups::told_for;
use crate::ids::{ProducerEpoch, ProducerId, TopicPartition};
use crate::wire::error_code::ErrorCode;
use crate::wire::transaction_record::{Status, TransactionRecord, TransactionValue};

/// So long an owner's addition waits for the end of the transaction before it, in ms.
///
/// Source: apache/kafka `add.partitions.to.txn.retry.backoff.max.ms`.
pub const PATIENCE_MS: u64 = 100;

/// When something is asked.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Wall clock in ms, for what is stored.
    pub wall_ms: i64,
    /// A clock in ms that never goes back, for time-outs.
    pub uptime_ms: u64,
}

/// The asker's number for a command; its answer comes back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Number of an append that a coordinator waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppendId(pub u64);

/// A record that goes into the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// To be given to [`Transactions::appended`].
    pub id: AppendId,
    /// What is appended.
    pub record: TransactionRecord,
}

/// Markers that are to be written, until every partition has one ([`Transactions::marked`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Whose transaction.
    pub transactional_id: Arc<str>,
    /// The producer of its data.
    pub producer_id: ProducerId,
    /// Epoch of the markers.
    pub epoch: ProducerEpoch,
    /// How it ends.
    pub outcome: Outcome,
    /// Whether the epoch is above that of the data.
    pub bumps_epoch: bool,
    /// Where.
    pub partitions: Vec<TopicPartition>,
    /// It was tried before, and what followed could not be written: not at once again.
    pub is_repeated: bool,
}

/// What follows from a command, an append or the passing of time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// These go out now.
    pub answers: Vec<(Ticket, Answer)>,
    /// These are to be appended, in this order. Several may be under way at once.
    pub appends: Vec<Append>,
    /// These are to be sent.
    pub endings: Vec<Ending>,
    /// The command needs a new producer id, with which it is to be asked again.
    pub wants_id: Option<(Ticket, Command)>,
    /// The command waits; [`Transactions::give_up`] is to be called for it after [`PATIENCE_MS`].
    pub waits: Option<(Ticket, Arc<str>)>,
}

/// The settings that transactions heed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionSettings {
    /// `transaction.max.timeout.ms` (900000).
    pub timeout_ms_max: i32,
    /// `transactional.id.expiration.ms` (604800000).
    pub expiration_ms: i64,
}

/// The transactional ids of one partition of `__transaction_state`.
#[derive(Debug)]
pub struct Transactions {
    settings: TransactionSettings,
    table: BTreeMap<Arc<str>, Entry>,
    /// Whose record each append is.
    flight: BTreeMap<AppendId, Arc<str>>,
    next_append: u64,
    /// Open transactions by when they have been open for too long.
    due: BTreeSet<(u64, Arc<str>)>,
    out: Effects,
}

impl Transactions {
    /// None yet.
    #[must_use]
    pub fn new(settings: TransactionSettings) -> Self {
        Self {
            settings,
            table: BTreeMap::new(),
            flight: BTreeMap::new(),
            next_append: 0,
            due: BTreeSet::new(),
            out: Effects::default(),
        }
    }

    /// Takes a record of the log, before anything is asked.
    pub fn replay(&mut self, record: TransactionRecord) {
        let name = record.transactional_id;
        match record.value {
            Some(value) => self.entry(&name).kept = Some(value),
            None => drop(self.table.remove(&name)),
        }
    }

    /// The whole log was replayed: transactions that were about to end are brought to their end, open ones have what is
    /// left of their time.
    pub fn loaded(&mut self, at: Moment) -> Effects {
        let names: Vec<_> = self.table.keys().cloned().collect();
        for name in names {
            let Some(entry) = self.table.get_mut(&name) else { continue };
            let Some(kept) = &entry.kept else { continue };
            let open_for = u64::try_from(at.wall_ms.saturating_sub(kept.begun_ms)).unwrap_or(0);
            self.follow_status(at, &name, at.uptime_ms, open_for);
        }
        self.take_effects()
    }

    /// Does what is asked, or begins to: the answer may come with a later call. `fresh` is a producer id that nobody has,
    /// for a command that came back in [`Effects::wants_id`].
    pub fn handle(&mut self, at: Moment, ticket: Ticket, command: Command, fresh: Option<ProducerId>) -> Effects {
        self.route(at, ticket, command, fresh);
        self.take_effects()
    }

    /// An append ended: its record is in the log, or (for the reason given) is not known to be.
    pub fn appended(&mut self, at: Moment, append: AppendId, result: Result<(), ErrorCode>) -> Effects {
        if let Some(name) = self.flight.remove(&append)
            && let Some(pending) = self.table.get_mut(&name).and_then(|entry| entry.pending.take())
        {
            self.ended(at, &name, pending, result);
            self.resume(at, &name);
        }
        self.take_effects()
    }

    /// Partitions have their marker; `ending` is what was to be sent.
    pub fn marked(&mut self, at: Moment, ending: &Ending, partitions: &[TopicPartition]) -> Effects {
        let name = &ending.transactional_id;
        let is_meant = |kept: &TransactionValue| {
            matches!(kept.status, Status::PrepareCommit | Status::PrepareAbort)
                && (kept.producer_id, kept.epoch) == (ending.producer_id, ending.epoch)
        };
        if let Some(entry) = self.table.get_mut(name)
            && entry.pending.is_none()
            && entry.kept.as_ref().is_some_and(is_meant)
        {
            for partition in partitions {
                entry.unmarked.remove(partition);
            }
            self.complete_if_marked(at, name);
        }
        self.take_effects()
    }

    /// A command has waited for long enough.
    pub fn give_up(&mut self, transactional_id: &str, ticket: Ticket) -> Effects {
        if let Some(entry) = self.table.get_mut(transactional_id)
            && let Some(place) = entry.waiting.iter().position(|waiting| waiting.ticket == ticket)
            // One that waits for a record of its own kind is answered when that is in the log.
            && entry.status() != Some(Status::Ongoing)
        {
            let addition = entry.waiting.remove(place);
            self.out.answers.push((ticket, addition.answer(ErrorCode::ConcurrentTransactions)));
        }
        self.take_effects()
    }

    /// Transactions that have been open for too long, as the commands that end them.
    #[must_use]
    pub fn overdue(&self, at: Moment) -> Vec<Command> {
        let due = self.due.iter().take_while(|(due_ms, _)| *due_ms < at.uptime_ms);
        let entries = due.filter_map(|(_, name)| self.table.get(name)).filter(|entry| entry.pending.is_none());
        let command = |entry: &Entry| {
            let kept = entry.kept.as_ref()?;
            let (producer_id, epoch) = (kept.producer_id, kept.epoch);
            Some(Command::TimeOut(Speaker { transactional_id: entry.name.to_string(), producer_id, epoch }))
        };
        entries.filter_map(command).collect()
    }

    /// Forgets transactional ids that nobody has used for long enough, at most so many at a time.
    pub fn expire(&mut self, at: Moment, most: usize) -> Effects {
        let expiration_ms = self.settings.expiration_ms;
        let is_idle = |kept: &TransactionValue| {
            transitions::is_legal(Some(kept.status), None)
                && at.wall_ms.saturating_sub(kept.updated_ms) >= expiration_ms
        };
        let entries = self.table.values().filter(|entry| entry.pending.is_none());
        let expired = entries.filter(|entry| entry.kept.as_ref().is_some_and(is_idle));
        let names: Vec<_> = expired.take(most).map(|entry| Arc::clone(&entry.name)).collect();
        for name in names {
            self.write(at, &name, None, Vec::new());
        }
        self.take_effects()
    }

    /// What is kept, as the records that restore it.
    #[must_use]
    pub fn kept(&self) -> Vec<TransactionRecord> {
        let record = |entry: &Entry| {
            let value = Some(entry.kept.clone()?);
            Some(TransactionRecord { transactional_id: Arc::clone(&entry.name), value })
        };
        self.table.values().filter_map(record).collect()
    }

    fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.out)
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.out.answers.push((ticket, answer));
    }

    fn entry(&mut self, name: &Arc<str>) -> &mut Entry {
        self.table.entry(Arc::clone(name)).or_insert_with(|| Entry::new(Arc::clone(name)))
    }

    fn route(&mut self, at: Moment, ticket: Ticket, command: Command, fresh: Option<ProducerId>) {
        if command.transactional_id().is_some_and(str::is_empty) {
            return self.answer(ticket, command.refused(ErrorCode::InvalidRequest));
        }
        match command {
            Command::Init { ref transactional_id, timeout_ms, given } => {
                if !(1..=self.settings.timeout_ms_max).contains(&timeout_ms) {
                    return self.answer(ticket, command.refused(ErrorCode::InvalidTransactionTimeout));
                }
                let name: Arc<str> = Arc::from(transactional_id.as_str());
                let decision = match self.table.get(&name) {
                    Some(entry) => entry.init(at, timeout_ms, given, fresh),
                    None => Entry::new(Arc::clone(&name)).init(at, timeout_ms, given, fresh),
                };
                self.carry_out(at, ticket, &name, decision, command);
            }
            Command::Add { speaker, partitions } => {
                self.add(at, Addition { ticket, speaker, partitions, protocol: Protocol::Classic, until_ms: None });
            }
            Command::Enlist { speaker, partitions, enlisting: Enlisting::Add } => {
                let until_ms = Some(at.uptime_ms.saturating_add(PATIENCE_MS));
                self.add(at, Addition { ticket, speaker, partitions, protocol: Protocol::Bumping, until_ms });
            }
            Command::Enlist { speaker, partitions, enlisting: Enlisting::Verify } => {
                let verified = self.verify(&speaker, &partitions);
                let first = |codes: Vec<ErrorCode>| codes.into_iter().find(|code| !code.is_none());
                let code = verified.map_or_else(|error| error, |codes| first(codes).unwrap_or(ErrorCode::None));
                self.answer(ticket, Answer::Enlisted(code));
            }
            Command::Verify { speaker, partitions } => {
                let verified = self.verify(&speaker, &partitions);
                self.answer(ticket, Answer::Verified(verified));
            }
            Command::End { ref speaker, outcome, protocol } => {
                let Some(entry) = self.table.get(speaker.transactional_id.as_str()) else {
                    return self.answer(ticket, command.refused(ErrorCode::InvalidProducerIdMapping));
                };
                let (name, decision) = (Arc::clone(&entry.name), entry.end(at, speaker, outcome, protocol, fresh));
                self.carry_out(at, ticket, &name, decision, command);
            }
            Command::TimeOut(speaker) => self.time_out(at, ticket, speaker, fresh),
            Command::Describe { transactional_id } => {
                let described = self.table.get(transactional_id.as_str()).and_then(Entry::described);
                let described = described.map(Box::new).ok_or(ErrorCode::TransactionalIdNotFound);
                self.answer(ticket, Answer::Described(described));
            }
            Command::List => {
                let listed = self.table.values().filter_map(listed).collect();
                self.answer(ticket, Answer::Listed(Ok(listed)));
            }
        }
    }

    fn verify(&self, speaker: &Speaker, partitions: &[TopicPartition]) -> Result<Vec<ErrorCode>, ErrorCode> {
        let entry = self.table.get(speaker.transactional_id.as_str()).ok_or(ErrorCode::InvalidProducerIdMapping)?;
        entry.verify(speaker, partitions)
    }

    fn add(&mut self, at: Moment, addition: Addition) {
        let Some(entry) = self.table.get_mut(addition.speaker.transactional_id.as_str()) else {
            return self.answer(addition.ticket, addition.answer(ErrorCode::InvalidProducerIdMapping));
        };
        match entry.add(at, &addition) {
            Decision::Answer(answer) => self.answer(addition.ticket, answer),
            Decision::Write(next, answer) => {
                let name = Arc::clone(&entry.name);
                self.write(at, &name, Some(next), vec![(addition.ticket, answer)]);
            }
            Decision::Wait | Decision::WantsId => {
                self.out.waits = addition.until_ms.map(|_| (addition.ticket, Arc::clone(&entry.name)));
                entry.waiting.push(addition);
            }
        }
    }

    fn time_out(&mut self, at: Moment, ticket: Ticket, speaker: Speaker, fresh: Option<ProducerId>) {
        let Some(entry) = self.table.get(speaker.transactional_id.as_str()) else { return };
        let is_meant = |kept: &&TransactionValue| {
            kept.status == Status::Ongoing && (kept.producer_id, kept.epoch) == (speaker.producer_id, speaker.epoch)
        };
        let Some(kept) = entry.kept.as_ref().filter(is_meant).filter(|_| entry.pending.is_none()) else { return };
        let (name, decision) = (Arc::clone(&entry.name), entry.fence(kept, at, fresh, Answer::Done(ErrorCode::None)));
        self.carry_out(at, ticket, &name, decision, Command::TimeOut(speaker));
    }

    fn carry_out(&mut self, at: Moment, ticket: Ticket, name: &Arc<str>, decision: Decision, command: Command) {
        match decision {
            Decision::Answer(answer) => self.answer(ticket, answer),
            Decision::Write(next, answer) => self.write(at, name, Some(next), vec![(ticket, answer)]),
            Decision::WantsId => self.out.wants_id = Some((ticket, command)),
            Decision::Wait => self.answer(ticket, command.refused(ErrorCode::ConcurrentTransactions)),
        }
    }

    /// Brings a record on its way.
    fn write(&mut self, at: Moment, name: &Arc<str>, next: Option<TransactionValue>, replies: Vec<(Ticket, Answer)>) {
        let id = AppendId(self.next_append);
        self.next_append += 1;
        let entry = self.entry(name);
        let to = next.as_ref().map(|next| next.status);
        debug_assert!(transitions::is_legal(entry.status(), to), "{name}: from {:?} to {to:?}", entry.status());
        entry.pending = Some(Pending { next: next.clone(), replies, decided_ms: at.uptime_ms });
        self.flight.insert(id, Arc::clone(name));
        self.out
            .appends
            .push(Append { id, record: TransactionRecord { transactional_id: Arc::clone(name), value: next } });
    }

    /// A record's way has ended: what was decided becomes what is kept, and whoever waited is told.
    fn ended(&mut self, at: Moment, name: &Arc<str>, pending: Pending, result: Result<(), ErrorCode>) {
        let error = result.err().map(told_for);
        for (ticket, answer) in pending.replies {
            let answer = match error {
                Some(error) => answer.turned(error),
                None => answer,
            };
            self.answer(ticket, answer);
        }
        if error.is_none() {
            self.entry(name).kept = pending.next;
            self.follow_status(at, name, pending.decided_ms, 0);
        } else {
            self.send_again(name);
        }
        if self.table.get(name).is_some_and(|entry| entry.kept.is_none()) {
            self.forget(name);
        }
    }

    /// What the new state brings with it: time for an open transaction, markers for one that ends.
    fn follow_status(&mut self, at: Moment, name: &Arc<str>, from_ms: u64, open_for_ms: u64) {
        let Some(entry) = self.table.get_mut(name) else { return };
        let open = entry.kept.as_ref().filter(|kept| kept.status == Status::Ongoing);
        let due_ms = open.map(|kept| {
            let left_ms = u64::try_from(kept.timeout_ms).unwrap_or(0).saturating_sub(open_for_ms);
            entry.due_ms.unwrap_or(from_ms.saturating_add(left_ms))
        });
        let before = std::mem::replace(&mut entry.due_ms, due_ms);
        if before != due_ms {
            before.map(|due_ms| self.due.remove(&(due_ms, Arc::clone(name))));
            due_ms.map(|due_ms| self.due.insert((due_ms, Arc::clone(name))));
        }
        if let Some(kept) = &entry.kept
            && matches!(kept.status, Status::PrepareCommit | Status::PrepareAbort)
        {
            entry.unmarked = kept.partitions.iter().cloned().collect();
            if !entry.unmarked.is_empty() {
                self.out.endings.push(ending(name, kept));
            }
            self.complete_if_marked(at, name);
        }
    }

    /// That a transaction is complete could not be written: all of it once more, later.
    fn send_again(&mut self, name: &Arc<str>) {
        let Some(entry) = self.table.get_mut(name) else { return };
        if let Some(kept) = &entry.kept
            && matches!(kept.status, Status::PrepareCommit | Status::PrepareAbort)
        {
            entry.unmarked = kept.partitions.iter().cloned().collect();
            self.out.endings.push(Ending { is_repeated: true, ..ending(name, kept) });
        }
    }

    fn complete_if_marked(&mut self, at: Moment, name: &Arc<str>) {
        let Some(entry) = self.table.get(name).filter(|entry| entry.unmarked.is_empty()) else { return };
        if let Some(next) = entry.completed(at) {
            self.write(at, name, Some(next), Vec::new());
        }
    }

    /// Additions that waited are decided; those that need a record get one together.
    fn resume(&mut self, at: Moment, name: &Arc<str>) {
        let Some(entry) = self.table.get_mut(name) else { return };
        let mut merged: Option<TransactionValue> = None;
        let mut replies = Vec::new();
        for addition in std::mem::take(&mut entry.waiting) {
            match entry.add(at, &addition) {
                Decision::Answer(answer) => self.out.answers.push((addition.ticket, answer)),
                Decision::Write(next, answer) => {
                    replies.push((addition.ticket, answer));
                    merged = Some(match merged {
                        Some(first) => {
                            let partitions = united(&first.partitions, &next.partitions);
                            TransactionValue { partitions, ..first }
                        }
                        None => next,
                    });
                }
                Decision::Wait | Decision::WantsId => entry.waiting.push(addition),
            }
        }
        if merged.is_some() {
            self.write(at, name, merged, replies);
        }
    }

    /// Nothing is kept of it: whoever still waits is told.
    fn forget(&mut self, name: &Arc<str>) {
        let Some(entry) = self.table.remove(name) else { return };
        entry.due_ms.map(|due_ms| self.due.remove(&(due_ms, Arc::clone(name))));
        for addition in entry.waiting {
            self.answer(addition.ticket, addition.answer(ErrorCode::InvalidProducerIdMapping));
        }
    }
}

fn ending(name: &Arc<str>, kept: &TransactionValue) -> Ending {
    let outcome = if kept.status == Status::PrepareCommit { Outcome::Commit } else { Outcome::Abort };
    Ending {
        transactional_id: Arc::clone(name),
        producer_id: kept.producer_id,
        epoch: kept.epoch,
        outcome,
        bumps_epoch: bumps_epoch(kept),
        partitions: kept.partitions.clone(),
        is_repeated: false,
    }
}

fn listed(entry: &Entry) -> Option<Listed> {
    let kept = entry.kept.as_ref()?;
    let (producer_id, status, begun_ms) = (kept.producer_id, kept.status, kept.begun_ms);
    Some(Listed { transactional_id: entry.name.to_string(), producer_id, status, begun_ms })
}
