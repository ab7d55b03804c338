//! Appends that are on their way into the log: what they will change, and what follows when they ended.
//!
//! They end in the order in which they were given out, whatever order the results come in: what is applied is always
//! a prefix of the log.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use super::messages::Answer;
use super::statics::Swap;
use super::{Append, AppendId, Ticket, TxnWriter};
use crate::ids::{Offset, ProducerId, TopicId};
use crate::state::transactions::messages::Outcome;
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::GroupRecord;

/// What follows in a group when an append has ended.
#[derive(Debug)]
pub(super) enum Then {
    /// Nothing but the records.
    Nothing,
    /// The first record of a new group.
    Founded(Arc<str>),
    /// The leader's assignments of a generation.
    Assigned(Arc<str>, i32),
    /// A static member has got another id.
    Swapped(Arc<str>, Swap),
    /// The group is removed.
    Forgotten(Arc<str>),
    /// The producer's transaction has ended: this is its marker, which has no records.
    Ended(ProducerId, Outcome),
}

/// An append that is under way.
#[derive(Debug)]
pub(super) struct Pending {
    id: AppendId,
    /// The first of the appends that belong together.
    first: AppendId,
    /// What is applied when it ended well.
    pub records: Vec<GroupRecord>,
    /// Whose transaction they belong to.
    pub producer: Option<ProducerId>,
    /// What follows.
    pub then: Then,
    /// Who waits for it, and what it is told if all went well.
    pub reply: Option<(Ticket, Answer)>,
    /// How it ended: offset of its first record.
    pub ended: Option<Result<Offset, ErrorCode>>,
}

/// All appends that are under way, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pending: VecDeque<Pending>,
    next: u64,
    last_failure: Option<(AppendId, ErrorCode)>,
}

impl Flight {
    /// Gives out records in appends of at most `records_max`; `then` follows the last one.
    pub fn append(
        &mut self,
        mut records: Vec<GroupRecord>,
        writer: Option<TxnWriter>,
        records_max: usize,
        then: Then,
    ) -> Vec<Append> {
        assert!(!records.is_empty(), "an append without records: {then:?}");
        let first = AppendId(self.next);
        let mut parts = Vec::new();
        while records.len() > records_max {
            let rest = records.split_off(records_max);
            parts.push(self.add(first, std::mem::replace(&mut records, rest), writer.clone(), Then::Nothing));
        }
        parts.push(self.add(first, records, writer, then));
        parts
    }

    /// A marker goes into the log behind everything that was given out.
    pub fn append_marker(&mut self, producer: ProducerId, outcome: Outcome) -> AppendId {
        self.add(AppendId(self.next), Vec::new(), None, Then::Ended(producer, outcome)).id
    }

    fn add(&mut self, first: AppendId, records: Vec<GroupRecord>, writer: Option<TxnWriter>, then: Then) -> Append {
        let id = AppendId(self.next);
        self.next += 1;
        let producer = writer.as_ref().map(|writer| writer.producer_id);
        self.pending.push_back(Pending {
            id,
            first,
            records: records.clone(),
            producer,
            then,
            reply: None,
            ended: None,
        });
        Append { id, records, writer }
    }

    /// Gives the answer when the append that was given out last has ended.
    pub fn reply_with_last(&mut self, ticket: Ticket, answer: Answer) {
        if let Some(last) = self.pending.back_mut() {
            last.reply = Some((ticket, answer));
        }
    }

    /// A group is given up: what its appends would bring about in it is not for the next group of that name.
    pub fn let_go_of(&mut self, group: &str) {
        for pending in &mut self.pending {
            if matches!(&pending.then, Then::Assigned(of, _) | Then::Swapped(of, _) if **of == *group) {
                pending.then = Then::Nothing;
            }
        }
    }

    /// Notes how an append ended.
    pub fn note(&mut self, id: AppendId, result: Result<Offset, ErrorCode>) {
        let at = self.pending.binary_search_by_key(&id, |pending| pending.id);
        if let Ok(at) = at
            && let Some(pending) = self.pending.get_mut(at)
        {
            pending.ended = Some(result);
        }
    }

    /// The oldest append, if it has ended; and how, all that belongs to it taken together.
    pub fn pop_ended(&mut self) -> Option<(Pending, Result<(), ErrorCode>)> {
        let own = self.pending.front()?.ended?;
        let pending = self.pending.pop_front()?;
        if let Err(error) = own {
            self.last_failure = Some((pending.id, error));
        }
        let together = match self.last_failure {
            Some((id, error)) if id >= pending.first => Err(error),
            _ => own.map(|_| ()),
        };
        Some((pending, together))
    }

    /// Names of the groups that have something under way.
    pub fn groups(&self) -> HashSet<String> {
        self.records().map(|record| group_of(record).to_owned()).collect()
    }

    /// Whether a group has something under way.
    pub fn concerns(&self, group: &str) -> bool {
        self.records().any(|record| group_of(record) == group)
    }

    /// Topic and partition of the offsets that are under way to be kept.
    pub fn offsets_of(&self, wanted: &str) -> BTreeSet<(String, i32)> {
        let mut found = BTreeSet::new();
        for record in self.records() {
            if let GroupRecord::Offset { group, topic, partition, value: Some(_) } = record
                && group == wanted
            {
                found.insert((topic.clone(), *partition));
            }
        }
        found
    }

    /// Group and partition of the offsets of one life of a topic that are under way to be kept.
    pub fn offsets_of_topic(&self, wanted: &str, id: TopicId) -> BTreeSet<(String, i32)> {
        let mut found = BTreeSet::new();
        for record in self.records() {
            if let GroupRecord::Offset { group, topic, partition, value: Some(kept) } = record
                && topic == wanted
                && kept.is_of(id)
            {
                found.insert((group.clone(), *partition));
            }
        }
        found
    }

    /// All records that are under way.
    fn records(&self) -> impl Iterator<Item = &GroupRecord> {
        self.pending.iter().flat_map(|pending| &pending.records)
    }
}

/// The group that a record belongs to.
pub(super) fn group_of(record: &GroupRecord) -> &str {
    match record {
        GroupRecord::Offset { group, .. } | GroupRecord::Group { group, .. } => group,
    }
}
