//! What the clients know and were promised. It outlives the broker.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use bytes::Bytes;
use corelane::broker::messages::{AckLevel, PartitionKey};
use corelane::ids::TopicId;

use crate::attacks::{Attack, Stall};
use crate::cluster::Cluster;
use crate::counters::Counters;
use crate::ledger::Ledger;
use crate::support::dice::Dice;

/// Batches that the broker knows again.
pub const WINDOW: usize = 5;

/// What a batch, or what was read, is sure to outlive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    None,
    Kill,
    PowerCut,
}

/// One batch of a session.
#[derive(Clone, Debug)]
pub struct Sent {
    pub bytes: Bytes,
    pub records: i64,
    /// Where it is, as far as anybody was told.
    pub offset: Option<i64>,
    pub promise: Promise,
}

impl Sent {
    /// True when it may be gone because the log begins at `start`.
    pub fn may_be_deleted(&self, start: i64) -> bool {
        self.offset.is_none_or(|base| base + self.records <= start)
    }
}

/// A producer id with an epoch on one partition.
#[derive(Clone, Debug)]
pub struct Session {
    /// -1 for one that does not number its batches.
    pub id: i64,
    pub epoch: i16,
    pub key: PartitionKey,
    pub level: AckLevel,
    pub sent: Vec<Sent>,
    pub next_sequence: i32,
    /// It is still used.
    pub is_open: bool,
    /// A producer of this life has it.
    pub is_busy: bool,
}

impl Session {
    pub fn is_idempotent(&self) -> bool {
        self.id >= 0
    }

    /// Its first batch was refused by a failing disk, and one that was sent right behind it was not: of a producer that the
    /// broker does not know, any sequence may be the first, as in Kafka.
    pub fn was_overtaken(&self) -> bool {
        let told = |sent: &Sent| sent.offset.is_some();
        self.sent.first().is_some_and(|first| !told(first)) && self.sent.iter().any(told)
    }

    /// Batches at the end that nobody was told of.
    pub fn open_batches(&self) -> usize {
        self.sent.iter().rev().take_while(|sent| sent.offset.is_none()).count()
    }
}

/// What was read of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub next: i64,
    pub crc: u32,
    pub promise: Promise,
}

/// One partition of one life of a topic.
#[derive(Clone, Debug)]
pub struct Log {
    /// The topic promises no more than to outlive a kill.
    pub is_weak: bool,
    /// Log start that somebody was told.
    pub start: i64,
    /// Above this nobody wanted it.
    pub start_max: i64,
    /// High watermark that somebody was told, by what it must outlive.
    pub end: i64,
    pub end_strong: i64,
    pub seen: BTreeMap<i64, Seen>,
    pub segment_bytes: usize,
    /// Old records go by themselves.
    pub retains: bool,
}

impl Log {
    pub fn promise(&self) -> Promise {
        if self.is_weak { Promise::Kill } else { Promise::PowerCut }
    }

    /// Somebody was told this high watermark.
    pub fn note_end(&mut self, end: i64) {
        self.end = self.end.max(end);
        if !self.is_weak {
            self.end_strong = self.end_strong.max(end);
        }
    }

    /// Somebody was told this log start.
    pub fn note_start(&mut self, start: i64) {
        self.start = self.start.max(start);
        self.seen.retain(|_, seen| seen.next > start);
    }
}

/// What is under way with a topic's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    Nothing,
    Making,
    Deleting,
}

/// A name and the topic that has it now.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: String,
    pub id: Option<TopicId>,
    pub pending: Pending,
    pub partitions: i32,
    pub is_weak: bool,
    pub segment_bytes: usize,
    pub retains: bool,
    /// Settings that were promised; and a change that nobody got an answer for.
    pub configs: BTreeMap<&'static str, String>,
    pub doubtful: Option<(&'static str, String)>,
}

/// A group that commits offsets, one after another.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub name: String,
    /// The last that was acknowledged; -1 for none.
    pub committed: i64,
    /// Those since, which may or may not be kept.
    pub doubtful: Vec<i64>,
    /// Generation and id of its only member, once it is stable.
    pub member: Option<(i32, String)>,
}

/// Which batch it is, whoever stores it.
pub type Mark = (i64, i16, i32, i64);

/// See the module.
#[derive(Default)]
pub struct World {
    pub names: Vec<Named>,
    pub logs: BTreeMap<PartitionKey, Log>,
    pub sessions: Vec<Session>,
    pub batches: HashMap<Mark, (usize, usize)>,
    pub next_stamp: i64,
    pub groups: Vec<Group>,
    pub ledger: Ledger,
    pub producer_ids: BTreeSet<i64>,
    /// The power went since the last start that came to its end.
    pub power_went: bool,
    pub operations: usize,
    pub counters: Counters,
    /// What the run is under.
    pub attack: Attack,
    pub stall: Stall,
    /// The highest number of a file of any commit log, as a client may guess it.
    pub newest_log_file: u64,
}

impl World {
    pub fn log(&mut self, key: PartitionKey) -> Option<&mut Log> {
        self.logs.get_mut(&key)
    }

    pub fn one(&mut self, what: &'static str) {
        self.counters.one(what);
    }

    /// An operation was begun.
    pub fn operate(&mut self) {
        self.operations += 1;
    }

    /// A topic that is not there, or whose deletion is under way.
    pub fn may_be_gone(&self, id: TopicId) -> bool {
        !self.names.iter().any(|named| named.id == Some(id) && named.pending != Pending::Deleting)
    }

    /// A topic is no more: its partitions and sessions are history.
    pub fn bury(&mut self, id: TopicId) {
        self.logs.retain(|key, _| key.topic != id);
        for session in self.sessions.iter_mut().filter(|session| session.key.topic == id) {
            session.is_open = false;
            session.sent.clear();
        }
    }

    /// A topic has appeared.
    pub fn adopt(&mut self, at: usize, id: TopicId) {
        let named = &mut self.names[at];
        (named.id, named.pending) = (Some(id), Pending::Nothing);
        // A change of the topic before it under this name may have met this one.
        let may_be_weak = named.doubtful.as_ref().is_some_and(|(_, value)| value == "page-cache");
        let log = Log {
            is_weak: named.is_weak || may_be_weak,
            start: 0,
            start_max: if named.retains { i64::MAX } else { 0 },
            end: 0,
            end_strong: 0,
            seen: BTreeMap::new(),
            segment_bytes: named.segment_bytes,
            retains: named.retains,
        };
        for partition in 0..named.partitions {
            self.logs.insert(PartitionKey { topic: id, partition }, log.clone());
        }
        self.one("topics made");
    }

    /// The power went: what was promised for less may be gone.
    pub fn lose_power(&mut self) {
        self.power_went = true;
        for log in self.logs.values_mut() {
            log.end = log.end_strong;
            log.seen.retain(|_, seen| seen.promise == Promise::PowerCut);
        }
    }
}

/// What a client works with.
#[derive(Clone)]
pub struct Client {
    pub cluster: Rc<Cluster>,
    pub world: Rc<RefCell<World>>,
    /// Operations after which this life ends.
    pub operations_max: usize,
    /// True when this life ends; clients have ended when nobody else has it.
    pub token: Rc<Cell<bool>>,
    /// The disk fails or is full in this life.
    pub may_fail: bool,
}

impl Client {
    pub fn goes_on(&self) -> bool {
        !self.token.get() && self.world.borrow().operations < self.operations_max
    }

    /// The broker says that the disk fails: only where it does, or at the end.
    pub fn note_refused(&self, what: &str) {
        assert!(self.may_fail || self.token.get(), "{what} is refused although the disk is well");
    }

    /// A partition that is there, as far as anybody knows.
    pub fn some_log(&self, dice: &mut Dice) -> Option<PartitionKey> {
        let world = self.world.borrow();
        let at = dice.below(world.logs.len());
        world.logs.keys().nth(at).copied()
    }
}
