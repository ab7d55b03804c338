//! One group in the table: its kind, its offsets, and who waits until it is gone.

use std::collections::VecDeque;
use std::sync::Arc;

use super::classic::{Classic, Phase};
use super::desk::Desk;
use super::flight::Then;
use super::messages::{Answer, Command, Commit, DeleteOffsets, Described, ListedGroup, Membership};
use super::offsets::{self, Kept, Offsets};
use super::pending_offsets::PendingOffsets;
use super::{Ticket, TxnWriter};
use crate::ids::{Offset, ProducerId};
use crate::state::transactions::messages::Outcome;
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::GroupRecord;

/// How the members of a group come to their assignments.
#[derive(Debug)]
pub(super) enum Kind {
    /// By rounds, with a leader that assigns.
    Classic(Box<Classic>),
}

/// A group.
#[derive(Debug)]
pub(super) struct Entry {
    pub name: Arc<str>,
    pub kind: Kind,
    pub offsets: Offsets,
    /// What open transactions have written.
    pub pending: PendingOffsets,
    /// The log knows of it: the outside may be told of it.
    pub known: bool,
    /// While the removal is on its way into the log, what else is asked waits here.
    pub removal: Option<VecDeque<(Ticket, Command)>>,
}

impl Entry {
    /// A group that nobody knows of yet. Every group begins as a classic one.
    pub fn new(name: Arc<str>, wall_ms: i64) -> Self {
        let kind = Kind::Classic(Box::new(Classic::new(Arc::clone(&name), wall_ms)));
        let (offsets, pending) = (Offsets::default(), PendingOffsets::default());
        Self { name, kind, offsets, pending, known: false, removal: None }
    }

    /// Changes what is kept: the one place, live and when the log is replayed. `at` is where the record is in the log,
    /// `producer` whose transaction it belongs to. Tombstones count at once, whoever writes them, as in Kafka.
    pub fn apply(&mut self, at: Offset, producer: Option<ProducerId>, record: GroupRecord) {
        let Kind::Classic(classic) = &mut self.kind;
        match record {
            GroupRecord::Offset { topic, partition, value: Some(value), .. } => {
                self.known = true;
                let kept = Kept { value, record: at };
                match producer {
                    Some(producer) => self.pending.keep(producer, topic, partition, kept),
                    None => self.offsets.keep(topic, partition, kept),
                }
            }
            GroupRecord::Offset { topic, partition, value: None, .. } => {
                self.offsets.forget(&topic, partition);
                self.pending.forget(&topic, partition);
            }
            GroupRecord::Group { value, .. } => {
                self.known = value.is_some() || !self.offsets.is_empty() || !self.pending.is_empty();
                classic.stored = value;
            }
        }
    }

    /// A producer's transaction has ended: what it wrote counts, or is forgotten.
    pub fn end_transaction(&mut self, producer: ProducerId, outcome: Outcome) {
        let written = self.pending.take(producer);
        if outcome == Outcome::Commit {
            self.offsets.keep_newer(written);
        }
    }

    /// What is kept, as records.
    pub fn kept(&self) -> Vec<GroupRecord> {
        let Kind::Classic(classic) = &self.kind;
        let group = self.name.to_string();
        let members = classic.stored.clone().map(|value| GroupRecord::Group { group, value: Some(value) });
        let offsets = self.offsets.iter().map(|(topic, partition, kept)| GroupRecord::Offset {
            group: self.name.to_string(),
            topic: topic.to_owned(),
            partition,
            value: Some(kept.clone()),
        });
        members.into_iter().chain(offsets).collect()
    }

    /// Nobody is in it, nobody was given an id.
    pub fn is_idle(&self) -> bool {
        let Kind::Classic(classic) = &self.kind;
        classic.phase == Phase::Empty && classic.pending.is_empty()
    }

    /// Whether somebody may commit.
    ///
    /// # Errors
    /// GRP-05: 22 for another generation, 25 for nobody's id and for none where there are members, 82, and 27 while
    /// the leader's assignments are awaited. The last two are no concern of transactions, whose older clients do not say
    /// who they are.
    ///
    /// Source: apache/kafka `ClassicGroup.validateOffsetCommit`.
    fn check_commit(&self, who: &Membership, in_transaction: bool) -> Result<(), ErrorCode> {
        let Kind::Classic(classic) = &self.kind;
        if classic.phase == Phase::Empty && who.generation < 0 {
            return Ok(());
        }
        if who.generation >= 0 || !who.member_id.is_empty() || who.instance_id.is_some() {
            classic.check_in_generation(who)?;
        } else if !in_transaction && classic.phase != Phase::Empty {
            return Err(ErrorCode::UnknownMemberId);
        }
        if !in_transaction && classic.phase == Phase::Completing { Err(ErrorCode::RebalanceInProgress) } else { Ok(()) }
    }

    /// Brings offsets on their way; that is a sign of life, unless it is a producer's.
    pub fn commit(&mut self, desk: &mut Desk, ticket: Ticket, commit: Commit) {
        let writer = commit.transaction.as_ref().map(TxnWriter::of);
        if let Err(error) = self.check_commit(&commit.who, writer.is_some()) {
            return desk.answer(ticket, Answer::Committed(vec![error; commit.offsets.len()]));
        }
        let Kind::Classic(classic) = &mut self.kind;
        if writer.is_none() {
            classic.heard_of(desk, &commit.who.member_id);
        }
        let wall_ms = desk.at.wall_ms;
        let expire_ms = commit.retention_ms.filter(|ms| *ms != -1).map(|ms| wall_ms.saturating_add(ms));
        let mut codes = Vec::with_capacity(commit.offsets.len());
        let mut records = Vec::with_capacity(commit.offsets.len());
        for asked in commit.offsets {
            if offsets::is_too_long(&asked.metadata, desk.settings.offset_metadata_bytes_max) {
                codes.push(ErrorCode::OffsetMetadataTooLarge);
            } else {
                codes.push(ErrorCode::None);
                records.push(offsets::record(&self.name, asked, wall_ms, expire_ms));
            }
        }
        desk.append_then_answer(records, writer, ticket, Answer::Committed(codes));
    }

    /// Forgets offsets of topics that nobody reads.
    pub fn delete_offsets(&mut self, desk: &mut Desk, ticket: Ticket, delete: DeleteOffsets) {
        let Kind::Classic(classic) = &self.kind;
        let nobody = vec![ErrorCode::None; delete.partitions.len()];
        if classic.phase != Phase::Empty && !classic.is_consumers() {
            return desk.answer(ticket, Answer::OffsetsDeleted(ErrorCode::NonEmptyGroup, nobody));
        }
        let (under_way, pending) = (desk.flight.offsets_of(&self.name), self.pending.partitions());
        let mut codes = nobody;
        let mut records = Vec::new();
        for (code, (topic, partition)) in codes.iter_mut().zip(delete.partitions) {
            let place = (topic, partition);
            if classic.is_subscribed(&place.0) {
                *code = ErrorCode::GroupSubscribedToTopic;
            } else if self.offsets.get(&place.0, partition).is_some()
                || under_way.contains(&place)
                || pending.contains(&place)
            {
                records.push(offsets::tombstone(&self.name, &place.0, partition));
            }
        }
        let answer = Answer::OffsetsDeleted(ErrorCode::None, codes);
        desk.append_then_answer(records, None, ticket, answer);
    }

    /// Removes the group, if nobody is in it, with all its offsets, also those of open transactions.
    pub fn delete(&mut self, desk: &mut Desk, ticket: Ticket) {
        let Kind::Classic(classic) = &self.kind;
        if classic.phase != Phase::Empty {
            return desk.answer(ticket, Answer::Done(ErrorCode::NonEmptyGroup));
        }
        let mut gone = desk.flight.offsets_of(&self.name);
        gone.extend(self.pending.partitions());
        gone.extend(self.offsets.iter().map(|(topic, partition, _)| (topic.to_owned(), partition)));
        let records = gone.iter().map(|(topic, partition)| offsets::tombstone(&self.name, topic, *partition)).collect();
        self.remove(desk, records);
        desk.flight.reply_with_last(ticket, Answer::Done(ErrorCode::None));
    }

    /// Forgets what was kept for long enough, and the group if nothing is left.
    pub fn expire(&mut self, desk: &mut Desk) {
        let Kind::Classic(classic) = &self.kind;
        let retention_ms = desk.settings.offsets_retention_ms;
        let expired = offsets::expired(classic, &self.offsets, &self.pending, desk.at.wall_ms, retention_ms);
        let tombstone = |(topic, partition): &(String, i32)| offsets::tombstone(&self.name, topic, *partition);
        let records: Vec<_> = expired.offsets.iter().map(tombstone).collect();
        if expired.all && self.is_idle() {
            self.remove(desk, records);
        } else if !records.is_empty() {
            desk.append(records, Then::Nothing);
        }
    }

    fn remove(&mut self, desk: &mut Desk, mut records: Vec<GroupRecord>) {
        records.push(GroupRecord::Group { group: self.name.to_string(), value: None });
        desk.append(records, Then::Forgotten(Arc::clone(&self.name)));
        self.removal = Some(VecDeque::new());
    }

    /// The rounds of the group.
    pub fn classic(&mut self) -> &mut Classic {
        let Kind::Classic(classic) = &mut self.kind;
        classic
    }

    /// What the outside is told of it.
    pub fn described(&self) -> Described {
        let Kind::Classic(classic) = &self.kind;
        classic.described()
    }

    /// The same in a list.
    pub fn listed(&self) -> ListedGroup {
        let Kind::Classic(classic) = &self.kind;
        classic.listed()
    }
}
