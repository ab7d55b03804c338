//! Consumer groups of one coordinator: who is in them, who reads what, how far they have read.
//!
//! [`Groups`] decides and never waits: a command gives answers, and records to be appended; when they are in the log
//! ([`Groups::appended`]) it applies them and gives the answers that waited for that. A replay of the same records
//! ([`Groups::replay`]) gives the same state. Time and chance come in with a [`Moment`].

pub mod messages;

use messages::{Answer, Command};

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

/// Records that go into the log together, as one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// To be given to [`Groups::appended`].
    pub id: AppendId,
    /// At least one.
    pub records: Vec<GroupRecord>,
}

/// What follows from a command, an append or the passing of time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// These go out now.
    pub answers: Vec<(Ticket, Answer)>,
    /// These are to be appended, in this order.
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
    settings: GroupSettings,
}

impl Groups {
    /// No groups yet.
    #[must_use]
    pub fn new(settings: GroupSettings) -> Self {
        Self { settings }
    }

    /// Takes new settings; they count from the next command on.
    pub fn set_settings(&mut self, settings: GroupSettings) {
        self.settings = settings;
    }

    /// Takes a record of the log, before anything is asked.
    pub fn replay(&mut self, record: GroupRecord) {
        let _later = record;
    }

    /// The whole log was replayed: members have their session time-out from now on to be heard of.
    pub fn loaded(&mut self, at: Moment) {
        let _later = at;
    }

    /// Does what is asked, or begins to: the answer may come with a later call.
    pub fn handle(&mut self, at: Moment, ticket: Ticket, command: Command) -> Effects {
        let _later = at;
        Effects { answers: vec![(ticket, command.refused(ErrorCode::CoordinatorNotAvailable))], appends: Vec::new() }
    }

    /// An append ended: its records are in the log, or (for the reason given) are not known to be.
    pub fn appended(&mut self, at: Moment, append: AppendId, result: Result<(), ErrorCode>) -> Effects {
        let _later = (at, append, result);
        Effects::default()
    }

    /// Time has passed: sessions and rounds may have ended.
    pub fn tick(&mut self, at: Moment) -> Effects {
        let _later = at;
        Effects::default()
    }

    /// When [`Self::tick`] has something to do, in ms of uptime.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Forgets offsets that were kept for long enough, and groups that have nothing any more.
    pub fn expire(&mut self, at: Moment) -> Effects {
        let _later = at;
        Effects::default()
    }
}
