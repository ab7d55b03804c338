//! What every step of a group works with: the time, the settings, deadlines, the way into the log, the way out.

use std::sync::Arc;

use super::deadlines::{Deadlines, Due, Key, What};
use super::flight::{Flight, Then};
use super::messages::{Answer, Joined, Synced};
use super::{Effects, GroupSettings, Moment, Ticket, TxnWriter};
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::GroupRecord;

/// At most so many records go into one append, so that it fits into a batch.
const RECORDS_MAX: usize = 1000;

/// The surroundings of the groups of one coordinator.
#[derive(Debug)]
pub(super) struct Desk {
    /// The call that is under way.
    pub at: Moment,
    /// Settings.
    pub settings: GroupSettings,
    /// What is due when.
    pub deadlines: Deadlines,
    /// Appends that are under way.
    pub flight: Flight,
    out: Effects,
}

impl Desk {
    pub fn new(settings: GroupSettings) -> Self {
        Self {
            at: Moment { wall_ms: 0, uptime_ms: 0, random: 0 },
            settings,
            deadlines: Deadlines::default(),
            flight: Flight::default(),
            out: Effects::default(),
        }
    }

    /// What the call brought about.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.out)
    }

    /// Gives an answer now.
    pub fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.out.answers.push((ticket, answer));
    }

    /// Answers a join with an error.
    pub fn refuse_join(&mut self, ticket: Ticket, error: ErrorCode, member_id: &str) {
        self.answer(ticket, Answer::Joined(Joined::refused(error, member_id.to_owned())));
    }

    /// Answers a sync with an error.
    pub fn refuse_sync(&mut self, ticket: Ticket, error: ErrorCode) {
        self.answer(ticket, Answer::Synced(Synced::refused(error)));
    }

    /// Brings records on their way.
    pub fn append(&mut self, records: Vec<GroupRecord>, then: Then) {
        self.append_of(None, records, then);
    }

    fn append_of(&mut self, writer: Option<TxnWriter>, records: Vec<GroupRecord>, then: Then) {
        let parts = self.flight.append(records, writer, RECORDS_MAX, then);
        self.out.appends.extend(parts);
    }

    /// Brings records on their way, if there are any, maybe as part of a transaction; gives the answer when they are in the
    /// log.
    pub fn append_then_answer(
        &mut self,
        records: Vec<GroupRecord>,
        writer: Option<TxnWriter>,
        ticket: Ticket,
        answer: Answer,
    ) {
        if records.is_empty() {
            return self.answer(ticket, answer);
        }
        self.append_of(writer, records, Then::Nothing);
        self.flight.reply_with_last(ticket, answer);
    }

    /// Sets a deadline so many ms from now; negative is now.
    pub fn due_in(&mut self, key: &mut Option<Key>, ms: i32, group: &Arc<str>, what: impl FnOnce() -> What) {
        let at_ms = self.at.uptime_ms.saturating_add(u64::try_from(ms).unwrap_or(0));
        self.deadlines.set(key, at_ms, || Due { group: Arc::clone(group), what: what() });
    }
}

/// What a client is told when the log could not take the records.
///
/// Source: apache/kafka `GroupMetadataManager.appendGroupMetadataErrorToResponseError`.
pub(in crate::state) fn told_for(append_error: ErrorCode) -> ErrorCode {
    match append_error {
        ErrorCode::UnknownTopicOrPartition | ErrorCode::NotEnoughReplicas | ErrorCode::RequestTimedOut => {
            ErrorCode::CoordinatorNotAvailable
        }
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge | ErrorCode::InvalidFetchSize => {
            ErrorCode::UnknownServerError
        }
        other => other,
    }
}
