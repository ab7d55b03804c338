//! Fetch sessions of one shard (KIP-227): what a client wants is remembered, so that it names only what changes, and is
//! answered only what has changed.
//!
//! Guarantees: no more sessions than slots and no more memory than the limit, whatever clients do; a session that had to go
//! is answered as one that never was; partitions that gave records stand behind those that did not, so that all come in turn.
//!
//! Source: apache/kafka `FetchSession.java`, `FetchSessionCacheShard.java`, `FetchManager.java`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::ids::{Offset, TopicId};
use crate::wire::error_code::ErrorCode;
use crate::wire::fetch::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};
use crate::wire::topic::TopicRef;

/// The session id that stands for none.
pub const NO_SESSION: i32 = 0;
/// A full request that asks for a session.
pub const INITIAL_EPOCH: i32 = 0;
/// A full request that wants none.
pub const FINAL_EPOCH: i32 = -1;

/// Age and idle time from which on a session may have to make room, in ms; Kafka's constant.
const EVICTION_MS: i64 = 120_000;
/// What a session takes, about; in bytes.
const SESSION_BYTES: usize = 512;
/// What a topic of a session takes beside its name, about; in bytes.
const TOPIC_BYTES: usize = 256;
/// What a partition of a session takes, about; in bytes.
const PARTITION_BYTES: usize = 192;
/// One session takes no more than this part of the memory of all.
const SESSIONS_AT_LEAST: usize = 8;

/// What the sessions of one shard may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Most sessions.
    pub slots: usize,
    /// Most memory, in bytes.
    pub bytes_max: usize,
    /// Their ids; those of other shards are others.
    pub ids: Range<i32>,
}

impl SessionLimits {
    /// The part of one shard: slots, memory and ids are split evenly; a remainder of slots goes to the first shards.
    #[must_use]
    pub fn of_shard(shard: u32, shards: u32, slots: usize, bytes_max: usize) -> Self {
        let (at, of) = (shard as usize, shards.max(1) as usize);
        let begin = |shard: u32| i32::try_from(shard).unwrap_or(i32::MAX).saturating_mul(ids_each(shards));
        Self {
            slots: slots / of + usize::from(at < slots % of),
            bytes_max: bytes_max / of,
            ids: begin(shard).max(1)..begin(shard + 1),
        }
    }
}

fn ids_each(shards: u32) -> i32 {
    i32::MAX / i32::try_from(shards.max(1)).unwrap_or(i32::MAX)
}

/// The shard that gives out a session id; `None` for an id that no shard gives out.
#[must_use]
pub fn shard_of(session_id: i32, shards: u32) -> Option<u32> {
    let shard = u32::try_from(session_id).ok().filter(|id| *id > 0)? / ids_each(shards).unsigned_abs();
    (shard < shards).then_some(shard)
}

/// How a request stands to sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is answered in full, and nothing is remembered.
    Without,
    /// It is answered in full, and begins a session if there is room for one.
    New,
    /// It goes on with a session: what is wanted is what the session says.
    Next {
        /// Which session.
        id: i32,
        /// Its epoch until the next request comes.
        epoch: i32,
    },
}

/// A partition that a session wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its topic, as the client names it.
    pub topic: TopicRef,
    /// For a topic that is named by its id: the name that it has, or had when it was there.
    pub name: Option<Arc<str>>,
    /// What is wanted of it.
    pub partition: FetchPartition,
}

/// What is answered for a partition, as far as a session needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// Its topic, as the client names it.
    pub topic: &'a TopicRef,
    /// What was wanted of it.
    pub partition: FetchPartition,
    /// Error or none.
    pub error: ErrorCode,
    /// High watermark, -1 with an error.
    pub high_watermark: Offset,
    /// Log start, -1 with an error.
    pub log_start: Offset,
    /// There are records in the answer.
    pub has_records: bool,
    /// The client's log and ours have parted.
    pub diverges: bool,
}

/// What a new session begins with.
#[derive(Clone, Copy, Debug)]
pub struct NewSession {
    /// Of a follower: it may push clients' sessions out.
    pub is_privileged: bool,
    /// Topics are named by id.
    pub by_id: bool,
    /// Broker time.
    pub now_ms: i64,
    /// Any number, for the id.
    pub random: u64,
}

/// The sessions of one shard.
#[derive(Debug)]
pub struct FetchSessions {
    limits: SessionLimits,
    sessions: HashMap<i32, Session>,
    /// (last use, id).
    by_use: BTreeSet<(i64, i32)>,
    /// Old enough to make room for any session with at least as many partitions: (privileged, partitions, id).
    evictable: BTreeSet<(bool, usize, i32)>,
    /// The same for privileged sessions: also young ones of clients.
    evictable_by_privileged: BTreeSet<(bool, usize, i32)>,
    bytes: usize,
}

impl FetchSessions {
    /// None yet.
    #[must_use]
    pub fn new(limits: SessionLimits) -> Self {
        Self {
            limits,
            sessions: HashMap::new(),
            by_use: BTreeSet::new(),
            evictable: BTreeSet::new(),
            evictable_by_privileged: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// What they take, about; in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes in what a request says about its session.
    ///
    /// # Errors
    /// 70 for a session that is not (or no longer) there, 71 for one that is at another epoch, 106 for one that names topics
    /// in the other way. State is unchanged then.
    pub fn begin(&mut self, request: &FetchRequest, by_id: bool, now_ms: i64) -> Result<Begun, ErrorCode> {
        let id = request.session_id;
        match request.session_epoch {
            INITIAL_EPOCH => {
                self.end(id);
                Ok(Begun::New)
            }
            FINAL_EPOCH => {
                self.end(id);
                Ok(Begun::Without)
            }
            _ => self.go_on(request, by_id, now_ms),
        }
    }

    fn go_on(&mut self, request: &FetchRequest, by_id: bool, now_ms: i64) -> Result<Begun, ErrorCode> {
        let id = request.session_id;
        let session = self.sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != request.session_epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        self.bytes -= session.bytes;
        session.update(&request.topics, &request.forgotten);
        self.bytes += session.bytes;
        let (is_empty, bytes) = (session.order.is_empty(), session.bytes);
        if is_empty {
            self.end(id);
            return Ok(Begun::Without);
        }
        if !self.has_memory(0, bytes) {
            self.end(id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        self.touch(id, now_ms);
        let Some(session) = self.sessions.get_mut(&id) else { return Err(ErrorCode::FetchSessionIdNotFound) };
        session.epoch = next_epoch(session.epoch);
        Ok(Begun::Next { id, epoch: session.epoch })
    }

    /// True when `more` bytes fit, and one session of `session` bytes is not too large.
    fn has_memory(&self, more: usize, session: usize) -> bool {
        self.bytes + more <= self.limits.bytes_max && session <= self.limits.bytes_max / SESSIONS_AT_LEAST
    }

    /// What a session wants, in the order in which it is to be read. `name_of` gives the names of the topics that are there.
    pub fn asked(&mut self, id: i32, name_of: impl Fn(TopicId) -> Option<Arc<str>>) -> Vec<Asked> {
        self.sessions.get_mut(&id).map(|session| session.asked(name_of)).unwrap_or_default()
    }

    /// Begins a session with what is answered; gives its id, or [`NO_SESSION`] when there is no room.
    pub fn create<'a>(
        &mut self,
        new: NewSession,
        answered: impl Iterator<Item = Answered<'a>>,
        name_of: impl Fn(TopicId) -> Option<Arc<str>>,
    ) -> i32 {
        if self.limits.slots == 0 {
            return NO_SESSION;
        }
        let mut session = Session::new(new);
        for one in answered {
            session.add(one.topic, one.partition, (one.high_watermark, one.log_start));
        }
        session.find_names(&name_of);
        if !self.has_room_for(&session, new.now_ms) {
            return NO_SESSION;
        }
        let id = self.free_id(new.random);
        self.bytes += session.bytes;
        self.sessions.insert(id, session);
        self.by_use.insert((new.now_ms, id));
        self.touch(id, new.now_ms);
        id
    }

    fn has_room_for(&mut self, session: &Session, now_ms: i64) -> bool {
        let (is_privileged, partitions) = (session.is_privileged, session.order.len());
        // What is stale goes first, also where memory and not slots is short.
        while !self.has_memory(session.bytes, 0) && self.evict_stale(now_ms) {}
        self.has_memory(session.bytes, session.bytes)
            && (self.sessions.len() < self.limits.slots
                || self.evict_stale(now_ms)
                || self.evict_smaller(is_privileged, partitions))
    }

    fn evict_stale(&mut self, now_ms: i64) -> bool {
        let oldest = self.by_use.first().filter(|(used_ms, _)| now_ms - used_ms > EVICTION_MS);
        oldest.copied().is_some_and(|(_, id)| self.end(id))
    }

    /// A session makes room for one that is worth as much or more: one of a follower, or one with more partitions.
    fn evict_smaller(&mut self, is_privileged: bool, partitions: usize) -> bool {
        let evictable = if is_privileged { &self.evictable_by_privileged } else { &self.evictable };
        let least = evictable.first().filter(|least| (is_privileged, partitions, 0) >= **least);
        least.copied().is_some_and(|(_, _, id)| self.end(id))
    }

    fn free_id(&self, random: u64) -> i32 {
        let ids = &self.limits.ids;
        let count = u64::try_from(ids.end - ids.start).unwrap_or(1).max(1);
        let mut id = ids.start + i32::try_from(random % count).unwrap_or(0);
        while self.sessions.contains_key(&id) {
            id = if id + 1 < ids.end { id + 1 } else { ids.start };
        }
        id
    }

    /// Takes in what is answered to a request that went on with a session: says of each partition whether it goes out.
    ///
    /// # Errors
    /// 71 when another request has used the session meanwhile.
    pub fn answer<'a>(
        &mut self,
        id: i32,
        epoch: i32,
        answered: impl Iterator<Item = Answered<'a>>,
    ) -> Result<Vec<bool>, ErrorCode> {
        let session = self.sessions.get_mut(&id).filter(|session| session.epoch == epoch);
        let session = session.ok_or(ErrorCode::InvalidFetchSessionEpoch)?;
        Ok(answered.map(|one| session.note(&one)).collect())
    }

    /// Ends a session; false if there is none.
    pub fn end(&mut self, id: i32) -> bool {
        let Some(session) = self.sessions.remove(&id) else { return false };
        self.by_use.remove(&(session.used_ms, id));
        self.evictable.remove(&session.worth(id));
        self.evictable_by_privileged.remove(&session.worth(id));
        self.bytes -= session.bytes;
        true
    }

    /// The session was used: its places in the orders change.
    fn touch(&mut self, id: i32, now_ms: i64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        self.by_use.remove(&(session.used_ms, id));
        self.evictable.remove(&session.worth(id));
        self.evictable_by_privileged.remove(&session.worth(id));
        session.used_ms = now_ms;
        session.partitions_at_use = session.order.len();
        self.by_use.insert((now_ms, id));
        let is_old = now_ms - session.created_ms > EVICTION_MS;
        if is_old || !session.is_privileged {
            self.evictable_by_privileged.insert(session.worth(id));
        }
        if is_old {
            self.evictable.insert(session.worth(id));
        }
    }
}

/// The epoch that follows: above 0 for ever.
fn next_epoch(epoch: i32) -> i32 {
    if epoch < 0 { FINAL_EPOCH } else { epoch.checked_add(1).unwrap_or(1) }
}

#[derive(Debug)]
struct Session {
    is_privileged: bool,
    by_id: bool,
    created_ms: i64,
    used_ms: i64,
    /// The epoch that the next request must have.
    epoch: i32,
    /// Partitions when it was last used: its worth.
    partitions_at_use: usize,
    topics: HashMap<TopicRef, SessionTopic>,
    /// The partitions in the order in which they are read.
    order: BTreeMap<u64, SessionPartition>,
    next_place: u64,
    bytes: usize,
}

#[derive(Debug, Default)]
struct SessionTopic {
    name: Option<Arc<str>>,
    /// Partition index → place in the order.
    places: HashMap<i32, u64>,
}

#[derive(Debug)]
struct SessionPartition {
    topic: TopicRef,
    asked: FetchPartition,
    /// As last answered; -1 for not at all, and behind an error.
    high_watermark: Offset,
    log_start: Offset,
}

impl Session {
    fn new(new: NewSession) -> Self {
        Self {
            is_privileged: new.is_privileged,
            by_id: new.by_id,
            created_ms: new.now_ms,
            used_ms: new.now_ms,
            epoch: next_epoch(INITIAL_EPOCH),
            partitions_at_use: 0,
            topics: HashMap::new(),
            order: BTreeMap::new(),
            next_place: 0,
            bytes: SESSION_BYTES,
        }
    }

    fn worth(&self, id: i32) -> (bool, usize, i32) {
        (self.is_privileged, self.partitions_at_use, id)
    }

    fn update(&mut self, topics: &[FetchTopic], forgotten: &[ForgottenTopic]) {
        for topic in topics {
            for asked in &topic.partitions {
                match self.find(&topic.topic, asked.index) {
                    Some(known) => known.asked = *asked,
                    None => self.add(&topic.topic, *asked, (Offset(-1), Offset(-1))),
                }
            }
        }
        for topic in forgotten {
            topic.partitions.iter().for_each(|index| self.forget(&topic.topic, *index));
        }
    }

    fn find(&mut self, topic: &TopicRef, index: i32) -> Option<&mut SessionPartition> {
        let place = self.topics.get(topic)?.places.get(&index)?;
        self.order.get_mut(place)
    }

    /// Puts a partition at the end; one that is there already stays where it is.
    fn add(&mut self, topic: &TopicRef, asked: FetchPartition, (high_watermark, log_start): (Offset, Offset)) {
        let topic = match self.topics.get_key_value(topic) {
            Some((known, _)) => known.clone(),
            None => {
                self.bytes += topic_bytes(topic);
                topic.detached()
            }
        };
        let known = self.topics.entry(topic.clone()).or_default();
        if let Entry::Vacant(free) = known.places.entry(asked.index) {
            free.insert(self.next_place);
            self.order.insert(self.next_place, SessionPartition { topic, asked, high_watermark, log_start });
            self.next_place += 1;
            self.bytes += PARTITION_BYTES;
        }
    }

    fn forget(&mut self, topic: &TopicRef, index: i32) {
        let Some(known) = self.topics.get_mut(topic) else { return };
        let Some(place) = known.places.remove(&index) else { return };
        let is_empty = known.places.is_empty();
        self.order.remove(&place);
        self.bytes -= PARTITION_BYTES;
        if is_empty {
            self.topics.remove(topic);
            self.bytes -= topic_bytes(topic);
        }
    }

    /// Names that were not known when their topic was asked for first.
    fn find_names(&mut self, name_of: &impl Fn(TopicId) -> Option<Arc<str>>) {
        for (topic, known) in &mut self.topics {
            if let (TopicRef::Id(id), None) = (topic, &known.name) {
                known.name = name_of(*id);
            }
        }
    }

    fn asked(&mut self, name_of: impl Fn(TopicId) -> Option<Arc<str>>) -> Vec<Asked> {
        self.find_names(&name_of);
        let name = |topic: &TopicRef| match topic {
            TopicRef::Id(_) => self.topics.get(topic).and_then(|known| known.name.clone()),
            TopicRef::Name(_) => None,
        };
        let wanted = self.order.values();
        wanted.map(|one| Asked { topic: one.topic.clone(), name: name(&one.topic), partition: one.asked }).collect()
    }

    /// Remembers what is answered; true if it is worth answering.
    fn note(&mut self, answered: &Answered<'_>) -> bool {
        let Some(known) = self.find(answered.topic, answered.partition.index) else { return true };
        let is_error = answered.error != ErrorCode::None;
        let must = answered.has_records
            || answered.diverges
            || is_error
            || known.high_watermark != answered.high_watermark
            || known.log_start != answered.log_start;
        // When an error goes away, the partition goes out again.
        known.high_watermark = if is_error { Offset(-1) } else { answered.high_watermark };
        known.log_start = answered.log_start;
        if answered.has_records {
            self.move_to_end(answered.topic, answered.partition.index);
        }
        must
    }

    fn move_to_end(&mut self, topic: &TopicRef, index: i32) {
        let place = self.topics.get_mut(topic).and_then(|known| known.places.get_mut(&index));
        if let Some(place) = place
            && let Some(moved) = self.order.remove(place)
        {
            *place = self.next_place;
            self.order.insert(self.next_place, moved);
            self.next_place += 1;
        }
    }
}

fn topic_bytes(topic: &TopicRef) -> usize {
    match topic {
        TopicRef::Name(name) => TOPIC_BYTES + name.len(),
        TopicRef::Id(_) => TOPIC_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_behind_the_largest_is_one() {
        assert_eq!([next_epoch(0), next_epoch(1), next_epoch(i32::MAX)], [1, 2, 1]);
        assert_eq!(next_epoch(FINAL_EPOCH), FINAL_EPOCH);
    }
}
