//! Consumer groups of one coordinator: who is in them, who reads what, how far they have read.
//!
//! [`Groups`] decides and never waits: a command gives answers, and records to be appended; when they are in the log
//! ([`Groups::appended`]) it applies them and gives the answers that waited for that. A replay of the same records
//! ([`Groups::replay`]) gives the same state. Time and chance come in with a [`Moment`].
//!
//! What is *kept* (offsets, and for each group the newest record of its members) changes only when records are
//! applied. Everything else, the rounds in which members find together, is *volatile*: a restart takes up what is kept
//! and forgets the rest. Which commands may overtake which records is told in `docs/adr/0006-consumer-groups.md`.
//!
//! - `entry`: one group, of whatever kind, with its offsets; commits, removal, expiry.
//! - `classic`, `round`, `membership`, `statics`, `member`, `protocols`, `subscription`, `describe`: classic groups.
//! - `offsets`, `pending_offsets`, `transactions`: what is kept, and when it has expired; what waits for a marker.
//! - `desk`, `flight`, `deadlines`: what each step works with: time, appends under way, what is due.

mod classic;
mod deadlines;
mod describe;
mod desk;
mod entry;
mod flight;
mod member;
mod membership;
pub mod messages;
mod offsets;
mod pending_offsets;
mod protocols;
mod round;
mod statics;
mod subscription;
mod transactions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use deadlines::{Due, What};
use desk::Desk;
pub(in crate::state) use desk::told_for;
use entry::Entry;
use flight::{Pending, Then, group_of};
use messages::{Answer, Command, Commit, DeleteOffsets, Join, Leave, Left, OffsetsKept, OffsetsWanted, Transaction};

use crate::ids::{Offset, ProducerEpoch, ProducerId, TopicId};
use crate::state::enlisting;
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::GroupRecord;

/// When something is asked, and chance for a name that it may need.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Wall clock in ms, for what is stored.
    pub wall_ms: i64,
    /// A clock in ms that never goes back, for time-outs.
    pub uptime_ms: u64,
    /// Random bits, never the same twice: the names of new members.
    pub random: u128,
}

/// The asker's number for a command; its answer comes back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Number of an append that a coordinator waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppendId(pub u64);

/// The producer whose transaction records belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnWriter {
    /// Its id.
    pub producer_id: ProducerId,
    /// Its incarnation.
    pub epoch: ProducerEpoch,
    /// Why its first records may begin the transaction in the partition.
    pub entry: Option<enlisting::Entry>,
}

impl TxnWriter {
    fn of(transaction: &Transaction) -> Self {
        let Transaction { speaker, entry, .. } = transaction;
        Self { producer_id: speaker.producer_id, epoch: speaker.epoch, entry: entry.clone() }
    }
}

/// Records that go into the log together, as one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// To be given to [`Groups::appended`].
    pub id: AppendId,
    /// At least one, at most 1,000.
    pub records: Vec<GroupRecord>,
    /// The batch is one of this producer's transaction.
    pub writer: Option<TxnWriter>,
}

/// What follows from a command, an append or the passing of time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// These go out now.
    pub answers: Vec<(Ticket, Answer)>,
    /// These are to be appended, in this order. Several may be under way at once; they end in this order for the
    /// groups, whatever order the results come in.
    pub appends: Vec<Append>,
}

/// The settings that groups heed (Kafka's names and defaults).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// `group.min.session.timeout.ms` (6000).
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms` (1800000).
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms` (3000).
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size` (2147483647).
    pub members_max: i32,
    /// `offset.metadata.max.bytes` (4096).
    pub offset_metadata_bytes_max: usize,
    /// `offsets.retention.minutes` (10080), in ms.
    pub offsets_retention_ms: i64,
}

/// The groups of one partition of `__consumer_offsets`.
#[derive(Debug)]
pub struct Groups {
    table: BTreeMap<Arc<str>, Entry>,
    /// Groups that have offsets of a producer's open transaction; some may have been removed since.
    open: BTreeMap<ProducerId, BTreeSet<Arc<str>>>,
    desk: Desk,
}

impl Groups {
    /// No groups yet.
    #[must_use]
    pub fn new(settings: GroupSettings) -> Self {
        Self { table: BTreeMap::new(), open: BTreeMap::new(), desk: Desk::new(settings) }
    }

    /// Takes new settings; they count from the next command on.
    pub fn set_settings(&mut self, settings: GroupSettings) {
        self.desk.settings = settings;
    }

    /// Takes a record of the log, before anything is asked: its offset, and the producer of whose transaction it is.
    pub fn replay(&mut self, at: Offset, producer: Option<ProducerId>, record: GroupRecord) {
        self.apply(at, producer, record);
    }

    /// The whole log was replayed: members have their session time-out from now on to be heard of.
    pub fn loaded(&mut self, at: Moment) {
        self.desk.at = at;
        for entry in self.table.values_mut() {
            entry.classic().restore(&mut self.desk);
        }
    }

    /// Does what is asked, or begins to: the answer may come with a later call.
    pub fn handle(&mut self, at: Moment, ticket: Ticket, command: Command) -> Effects {
        self.desk.at = at;
        self.route(ticket, command);
        self.desk.take_effects()
    }

    /// An append ended: its records are in the log from this offset on, or (for the reason given) are not known to be.
    pub fn appended(&mut self, at: Moment, append: AppendId, result: Result<Offset, ErrorCode>) -> Effects {
        self.desk.at = at;
        self.desk.flight.note(append, result);
        while let Some((pending, together)) = self.desk.flight.pop_ended() {
            self.end(pending, together);
        }
        self.desk.take_effects()
    }

    /// Time has passed: sessions and rounds may have ended.
    pub fn tick(&mut self, at: Moment) -> Effects {
        self.desk.at = at;
        let mark = self.desk.deadlines.mark();
        while let Some(due) = self.desk.deadlines.pop(at.uptime_ms, mark) {
            self.is_due(&due);
        }
        self.desk.take_effects()
    }

    /// When [`Self::tick`] has something to do, in ms of uptime.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.desk.deadlines.first_ms()
    }

    /// Forgets offsets that were kept for long enough, and groups that have nothing any more. A group that has
    /// records under way waits for the next time.
    pub fn expire(&mut self, at: Moment) -> Effects {
        self.desk.at = at;
        let busy = self.desk.flight.groups();
        for entry in self.table.values_mut().filter(|entry| entry.removal.is_none() && !busy.contains(&*entry.name)) {
            entry.expire(&mut self.desk);
        }
        self.desk.take_effects()
    }

    /// What is kept, as the records that restore it: for each group its members, then its offsets. Two that say the same
    /// are the same.
    #[must_use]
    pub fn kept(&self) -> Vec<GroupRecord> {
        self.table.values().flat_map(Entry::kept).collect()
    }

    fn route(&mut self, ticket: Ticket, command: Command) {
        if let Some(group) = command.waits_for_removal_of()
            && let Some(waiting) = self.table.get_mut(group).and_then(|entry| entry.removal.as_mut())
        {
            return waiting.push_back((ticket, command));
        }
        match command {
            Command::Join(join) => self.join(ticket, join),
            Command::Sync(sync) => match self.member_of(&sync.who.group) {
                Ok((entry, desk)) => entry.classic().sync(desk, ticket, sync),
                Err(error) => self.desk.refuse_sync(ticket, error),
            },
            Command::Heartbeat(who) => {
                let error = match self.member_of(&who.group) {
                    Ok((entry, desk)) => entry.classic().heartbeat(desk, &who),
                    Err(error) => error,
                };
                self.desk.answer(ticket, Answer::Done(error));
            }
            Command::Leave(leave) => match self.member_of(&leave.group) {
                Ok((entry, desk)) => entry.classic().leave(desk, ticket, leave),
                Err(error) => self.desk.answer(ticket, nobody_leaves(error, leave)),
            },
            Command::Commit(commit) => self.commit(ticket, commit),
            Command::Offsets(wanted) => {
                let answer = self.look_up(&wanted);
                self.desk.answer(ticket, answer);
            }
            Command::DeleteOffsets(delete) => self.delete_offsets(ticket, delete),
            Command::DeleteGroup { group } => match self.table.get_mut(group.as_str()) {
                Some(entry) => entry.delete(&mut self.desk, ticket),
                None => self.desk.answer(ticket, Answer::Done(ErrorCode::GroupIdNotFound)),
            },
            Command::Describe { group } => {
                let known = self.table.get(group.as_str()).filter(|entry| entry.known);
                let described = known.map_or_else(|| describe::described_dead(&group), Entry::described);
                self.desk.answer(ticket, Answer::Described(described));
            }
            Command::List => {
                let known = self.table.values().filter(|entry| entry.known).map(Entry::listed).collect();
                self.desk.answer(ticket, Answer::Listed(ErrorCode::None, known));
            }
            Command::TopicDeleted { topic, topic_id } => self.topic_deleted(ticket, &topic, topic_id),
        }
    }

    /// The group that a member speaks of.
    ///
    /// # Errors
    /// 24 for the empty name, 25 for a group that does not exist.
    fn member_of(&mut self, group: &str) -> Result<(&mut Entry, &mut Desk), ErrorCode> {
        if group.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        let entry = self.table.get_mut(group).ok_or(ErrorCode::UnknownMemberId)?;
        Ok((entry, &mut self.desk))
    }

    fn join(&mut self, ticket: Ticket, join: Join) {
        let settings = &self.desk.settings;
        if join.group.is_empty() {
            return self.desk.refuse_join(ticket, ErrorCode::InvalidGroupId, &join.member_id);
        }
        if !(settings.session_timeout_ms_min..=settings.session_timeout_ms_max).contains(&join.session_timeout_ms) {
            return self.desk.refuse_join(ticket, ErrorCode::InvalidSessionTimeout, &join.member_id);
        }
        let is_new = !self.table.contains_key(join.group.as_str());
        if is_new && !join.member_id.is_empty() {
            return self.desk.refuse_join(ticket, ErrorCode::UnknownMemberId, &join.member_id);
        }
        let (entry, desk) = self.entry(&join.group);
        entry.classic().join(desk, ticket, join);
        if is_new {
            let record = entry.classic().founding_record();
            let then = Then::Founded(Arc::clone(&entry.name));
            desk.append(vec![record], then);
        }
    }

    fn commit(&mut self, ticket: Ticket, commit: Commit) {
        if !self.table.contains_key(commit.who.group.as_str()) && commit.who.generation >= 0 {
            let codes = vec![ErrorCode::GroupIdNotFound; commit.offsets.len()];
            return self.desk.answer(ticket, Answer::Committed(codes));
        }
        let group = commit.who.group.clone();
        let (entry, desk) = self.entry(&group);
        entry.commit(desk, ticket, commit);
        self.drop_if_vacant(&group);
    }

    fn look_up(&self, wanted: &OffsetsWanted) -> Answer {
        let (nothing, no_pending) = (offsets::Offsets::default(), pending_offsets::PendingOffsets::default());
        let entry = self.table.get(wanted.group.as_str());
        let (kept, pending) = entry.map_or((&nothing, &no_pending), |entry| (&entry.offsets, &entry.pending));
        Answer::Offsets(OffsetsKept { error: ErrorCode::None, topics: kept.look_up(wanted, pending) })
    }

    fn delete_offsets(&mut self, ticket: Ticket, delete: DeleteOffsets) {
        let error = if delete.group.is_empty() { ErrorCode::InvalidGroupId } else { ErrorCode::GroupIdNotFound };
        match self.table.get_mut(delete.group.as_str()) {
            Some(entry) if !delete.group.is_empty() => entry.delete_offsets(&mut self.desk, ticket, delete),
            _ => {
                let codes = vec![ErrorCode::None; delete.partitions.len()];
                self.desk.answer(ticket, Answer::OffsetsDeleted(error, codes));
            }
        }
    }

    fn topic_deleted(&mut self, ticket: Ticket, topic: &str, topic_id: TopicId) {
        let mut gone: BTreeSet<(String, i32)> = BTreeSet::new();
        for entry in self.table.values() {
            let mut partitions = entry.pending.of_topic(topic, topic_id);
            partitions.extend(entry.offsets.of_topic(topic, topic_id));
            gone.extend(partitions.into_iter().map(|partition| (entry.name.to_string(), partition)));
        }
        gone.extend(self.desk.flight.offsets_of_topic(topic, topic_id));
        let records = gone.iter().map(|(group, partition)| offsets::tombstone(group, topic, *partition)).collect();
        self.desk.append_then_answer(records, None, ticket, Answer::Done(ErrorCode::None));
    }

    /// The group, which is made if it does not exist.
    fn entry(&mut self, group: &str) -> (&mut Entry, &mut Desk) {
        let wall_ms = self.desk.at.wall_ms;
        let name = self.table.get_key_value(group).map_or_else(|| Arc::from(group), |(name, _)| Arc::clone(name));
        let entry = self.table.entry(Arc::clone(&name)).or_insert_with(|| Entry::new(name, wall_ms));
        (entry, &mut self.desk)
    }

    /// Changes what is kept. A tombstone makes no group.
    fn apply(&mut self, at: Offset, producer: Option<ProducerId>, record: GroupRecord) {
        let is_tombstone =
            matches!(record, GroupRecord::Offset { value: None, .. } | GroupRecord::Group { value: None, .. });
        if !is_tombstone || self.table.contains_key(group_of(&record)) {
            let group = group_of(&record).to_owned();
            self.note_open(producer, &record);
            self.entry(&group).0.apply(at, producer, record);
            self.drop_if_vacant(&group);
        }
    }

    /// Takes a group out of which nothing is kept, in which nobody is, and of which nothing is under way.
    fn drop_if_vacant(&mut self, group: &str) {
        let Some(entry) = self.table.get(group) else { return };
        let idle = entry.is_idle() && entry.removal.is_none();
        if !entry.known && idle && !self.desk.flight.concerns(group) {
            self.table.remove(group);
        }
    }

    /// An append has ended: what was decided becomes what is, and whoever waited is told.
    fn end(&mut self, pending: Pending, together: Result<(), ErrorCode>) {
        let Pending { records, producer, then, reply, ended, .. } = pending;
        for (record, index) in records.into_iter().zip(0..) {
            match ended {
                Some(Ok(base)) => self.apply_live(base.plus(index), producer, record),
                _ => self.drop_if_vacant(group_of(&record)),
            }
        }
        if let Some((ticket, answer)) = reply {
            let answer = match together {
                Ok(()) => answer,
                Err(error) => answer.turned(told_for(error)),
            };
            self.desk.answer(ticket, answer);
        }
        self.follow(then, together);
    }

    /// Applies a record while the groups live. A group that was given up meanwhile comes back as after a restart.
    fn apply_live(&mut self, at: Offset, producer: Option<ProducerId>, record: GroupRecord) {
        let group = group_of(&record).to_owned();
        let comes_back = !self.table.contains_key(group.as_str());
        self.apply(at, producer, record);
        if comes_back && let Some(entry) = self.table.get_mut(group.as_str()) {
            entry.classic().restore(&mut self.desk);
        }
    }

    fn follow(&mut self, then: Then, result: Result<(), ErrorCode>) {
        match then {
            Then::Nothing => {}
            Then::Founded(group) => {
                if let Err(error) = result {
                    self.never_was(&group, told_for(error));
                }
            }
            Then::Assigned(group, generation) => {
                if let Some(entry) = self.table.get_mut(&group) {
                    entry.classic().assigned(&mut self.desk, generation, result);
                }
            }
            Then::Swapped(group, swap) => {
                if let Some(entry) = self.table.get_mut(&group) {
                    entry.classic().swapped(&mut self.desk, swap, result);
                }
            }
            Then::Forgotten(group) => self.forgotten(&group),
            Then::Ended(producer, outcome) => {
                if result.is_ok() {
                    self.replay_marker(producer, outcome);
                }
            }
        }
    }

    /// The first record of a group could not be written: it is given up, with whoever came meanwhile.
    fn never_was(&mut self, group: &str, error: ErrorCode) {
        if self.table.get(group).is_some_and(|entry| !entry.known && entry.removal.is_none()) {
            self.give_up(group, error);
        }
    }

    fn give_up(&mut self, group: &str, error: ErrorCode) {
        if let Some(mut entry) = self.table.remove(group) {
            self.desk.flight.let_go_of(group);
            entry.classic().dissolve(&mut self.desk, error);
        }
    }

    /// The removal of a group has ended. If it went well the group is gone. What was asked meanwhile is done now.
    fn forgotten(&mut self, group: &str) {
        let Some(entry) = self.table.get_mut(group) else { return };
        let waiting: VecDeque<(Ticket, Command)> = entry.removal.take().unwrap_or_default();
        if !entry.known {
            self.give_up(group, ErrorCode::UnknownMemberId);
        }
        for (ticket, command) in waiting {
            self.route(ticket, command);
        }
    }

    fn is_due(&mut self, due: &Due) {
        let Some(entry) = self.table.get_mut(&due.group) else { return };
        let classic = entry.classic();
        match &due.what {
            What::Session(member_id) => classic.session_is_due(&mut self.desk, member_id),
            What::Round => classic.round_is_due(&mut self.desk),
            What::Sync => classic.sync_is_due(&mut self.desk),
        }
    }
}

/// What is said to those who want to leave a group that they are not in.
fn nobody_leaves(error: ErrorCode, leave: Leave) -> Answer {
    if error == ErrorCode::InvalidGroupId {
        return Answer::Left(Left { error, members: Vec::new() });
    }
    let members = leave.members.into_iter().map(|(id, instance_id)| (id, instance_id, error)).collect();
    Answer::Left(Left { error: ErrorCode::None, members })
}
