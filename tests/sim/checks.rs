//! What must be true after each start, before anybody new comes: nothing acknowledged is lost or there twice, nothing that was
//! read is gone or different, log start and end have not gone back, retries find their batches.

use corelane::broker::catalog::Topic;
use corelane::broker::catalog::settings::{OFFSETS_TOPIC, TRANSACTIONS_TOPIC};
use corelane::broker::messages::{AckLevel, PartitionKey};
use corelane::config::Durability;
use corelane::log::scan::BatchFacts;
use corelane::wire::error_code::ErrorCode;

use crate::cluster::{EARLIEST, LATEST, bytes_of};
use crate::ledger::LEDGER;
use crate::producers::{Round, send};
use crate::readers::{batches, mark_of};
use crate::support::dice::Dice;
use crate::world::{Client, Named, Pending, Promise, Session, WINDOW};
use crate::{groups, ledger};

/// Everything; the world is then up to date.
pub async fn check(client: &Client, dice: &mut Dice) {
    check_topics(client);
    let keys: Vec<_> = client.world.borrow().logs.keys().copied().collect();
    for key in keys {
        check_log(client, key, dice).await;
    }
    client.world.borrow_mut().power_went = false;
    groups::check(client, dice).await;
    ledger::check(client, dice).await;
    retry(client, dice).await;
}

/// The topics that are there are those that were promised.
fn check_topics(client: &Client) {
    let world = &mut *client.world.borrow_mut();
    for at in 0..world.names.len() {
        let named = world.names[at].clone();
        let found = client.cluster.topic(&named.name).map(|topic| topic.id);
        match (named.pending, named.id) {
            (Pending::Nothing, known) => assert_eq!(found, known, "topic {}", named.name),
            (Pending::Making, _) => match found {
                Some(id) => world.adopt(at, id),
                None => world.names[at].pending = Pending::Nothing,
            },
            (Pending::Deleting, known) => {
                assert!(found.is_none() || found == known, "topic {}", named.name);
                if found.is_none() {
                    world.bury(known.unwrap());
                }
                (world.names[at].id, world.names[at].pending) = (found, Pending::Nothing);
            }
        }
    }
    for topic in client.cluster.shards[0].catalog().topics() {
        if [OFFSETS_TOPIC, TRANSACTIONS_TOPIC, LEDGER].contains(&&*topic.name) {
            continue;
        }
        let ours = world.names.iter_mut().find(|named| named.id == Some(topic.id));
        let named = ours.unwrap_or_else(|| panic!("a topic that nobody made: {}", topic.name));
        check_settings(named, topic);
        let is_weak = topic.settings.durability == Durability::PageCache;
        world.logs.iter_mut().filter(|(key, _)| key.topic == topic.id).for_each(|(_, log)| log.is_weak = is_weak);
    }
}

/// Settings are those that were promised, or the one that nobody got an answer for.
fn check_settings(named: &mut Named, topic: &Topic) {
    let doubtful = named.doubtful.take();
    let mut wanted = named.configs.clone();
    if let Some((name, value)) = doubtful
        && topic.overrides.get(name) == Some(&value)
    {
        wanted.insert(name, value);
    }
    let found: Vec<_> = topic.overrides.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let promised: Vec<_> = wanted.iter().map(|(name, value)| (*name, value)).collect();
    assert_eq!(found, promised, "settings of {}", topic.name);
    named.configs = wanted;
}

async fn check_log(client: &Client, key: PartitionKey, dice: &mut Dice) {
    let shard = dice.below(8);
    // Retention may move the start while it is looked at.
    for _ in 0..50 {
        if look_at_log(client, key, shard).await {
            return;
        }
    }
    panic!("{key:?}: its start moves faster than one can read");
}

/// False when what was to be read has gone by itself meanwhile.
async fn look_at_log(client: &Client, key: PartitionKey, shard: usize) -> bool {
    let start = client.cluster.offset(shard, key, EARLIEST).await.unwrap();
    let end = client.cluster.offset(shard, key, LATEST).await.unwrap();
    {
        let world = &mut *client.world.borrow_mut();
        let log = world.log(key).unwrap();
        assert!(log.start <= start, "{key:?}: log start {} became {start}", log.start);
        assert!(start <= log.start_max.max(log.start), "{key:?}: nobody wanted the log start {start}");
        assert!(log.end <= end && start <= end, "{key:?}: end {} became {end}, start {start}", log.end);
        if start == end && end > 0 {
            world.one("partitions found empty at their end");
        }
    }
    if start > 0 {
        let below = client.cluster.read(shard, key, start - 1, 1).await;
        assert_eq!(below.error, ErrorCode::OffsetOutOfRange, "below the log start {start}");
    }
    let Some(found) = read_all(client, shard, key, start, end).await else { return false };
    let world = &mut *client.world.borrow_mut();
    world.log(key).unwrap().note_start(start);
    let (power_went, sessions) = (world.power_went, world.sessions.len());
    for session in 0..sessions {
        if world.sessions[session].key != key {
            continue;
        }
        let mine: Vec<_> = found.iter().filter(|at| at.0 == session).map(|at| (at.1, at.2)).collect();
        check_session(&mut world.sessions[session], &mine, start, power_went);
    }
    let log = world.log(key).unwrap();
    let bases: Vec<_> = log.seen.keys().copied().collect();
    for base in bases {
        let is_there = found.iter().any(|at| at.2 == base);
        assert!(is_there, "{key:?}: what was read at {base} is gone, {:?}", log.seen[&base]);
    }
    log.note_end(end);
    // Recovery has flushed what it kept.
    (log.end, log.end_strong) = (end, end);
    log.start_max = if log.retains { i64::MAX } else { log.start.max(start) };
    log.seen.values_mut().for_each(|seen| seen.promise = Promise::PowerCut);
    true
}

/// Session, number in it, offset.
type Found = Vec<(usize, usize, i64)>;

/// All batches of a partition: session, number in it, offset. Each is noted as read.
async fn read_all(client: &Client, shard: usize, key: PartitionKey, start: i64, end: i64) -> Option<Found> {
    let mut found: Found = Vec::new();
    let mut next = start;
    while next < end {
        let fetched = client.cluster.read(shard, key, next, 100_000).await;
        let retains = client.world.borrow().logs[&key].retains;
        if retains && fetched.error == ErrorCode::OffsetOutOfRange {
            return None;
        }
        assert_eq!(fetched.error, ErrorCode::None, "{key:?} at {next}");
        let read = batches(bytes_of(&fetched));
        assert!(!read.is_empty(), "{key:?}: nothing at {next}, the end is {end}");
        let world = &mut *client.world.borrow_mut();
        for (facts, batch) in &read {
            check_place(facts, next, found.is_empty());
            world.note_read(key, facts, batch, Promise::PowerCut);
            let (session, at) = world.batches[&mark_of(facts)];
            found.push((session, at, facts.base_offset.0));
            next = facts.next_offset().0;
        }
    }
    assert_eq!(next, end, "{key:?}");
    Some(found)
}

/// Offsets have no gaps; the first batch may begin below the log start.
fn check_place(facts: &BatchFacts, next: i64, is_first: bool) {
    let base = facts.base_offset.0;
    let is_right = base == next || (is_first && base < next && facts.next_offset().0 > next);
    assert!(is_right, "{facts:?} instead of offset {next}");
}

/// Of each session every batch is there once and in order, from some batch on: what is missing before was deleted, what is
/// missing behind was never promised.
fn check_session(session: &mut Session, found: &[(usize, i64)], start: i64, power_went: bool) {
    assert!(found.is_sorted_by(|one, next| one.0 < next.0), "{}: {found:?}", told(session));
    if session.is_idempotent() {
        let is_whole = found.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0);
        assert!(is_whole, "a batch is missing between others: {} found {found:?}", told(session));
    }
    let first = found.first().map(|found| found.0);
    let mut lost = false;
    for at in 0..session.sent.len() {
        let sent = session.sent[at].clone();
        if found.iter().any(|found| found.0 == at) {
            continue;
        }
        let is_deleted = sent.may_be_deleted(start) && (first.is_some_and(|first| at < first) || sent.offset.is_some());
        let is_promised = match sent.promise {
            Promise::PowerCut => true,
            Promise::Kill => !power_went,
            Promise::None => false,
        };
        assert!(is_deleted || !is_promised, "batch {at} is lost: {} found {found:?} from {start}", told(session));
        if !is_deleted && sent.offset.is_some() {
            // Promised for less than what has happened.
            lost = true;
            (session.sent[at].offset, session.sent[at].promise) = (None, Promise::None);
        }
    }
    for (at, offset) in found {
        let sent = &mut session.sent[*at];
        sent.offset = Some(*offset);
    }
    if lost {
        session.is_open = false;
    }
    session.is_busy = false;
}

fn told(session: &Session) -> String {
    let sent: Vec<_> = session.sent.iter().map(|sent| (sent.offset, sent.records, sent.promise)).collect();
    let Session { id, epoch, level, .. } = session;
    format!("producer {id} epoch {epoch} {level:?} sent {sent:?}")
}

/// Every producer sends again what was not acknowledged, and of the rest what is still known.
async fn retry(client: &Client, dice: &mut Dice) {
    let count = client.world.borrow().sessions.len();
    for at in 0..count {
        let (open, first) = {
            let world = &mut *client.world.borrow_mut();
            let is_dead = !world.logs.contains_key(&world.sessions[at].key);
            let session = &mut world.sessions[at];
            session.is_busy = false;
            if is_dead || !session.is_open || session.sent.is_empty() || !session.is_idempotent() {
                continue;
            }
            if session.level == AckLevel::None || session.was_overtaken() {
                // Nobody knows how many of its batches have come.
                let next = world.bump(at);
                world.sessions[next].is_busy = false;
                continue;
            }
            let open = session.open_batches();
            (open, session.sent.len() - open.max(WINDOW).min(session.sent.len()))
        };
        assert!(open <= WINDOW);
        let known = client.world.borrow().sessions[at].sent.len() - first - open;
        let round = send(client, at, first, AckLevel::Durable, dice.below(8)).await;
        let world = &mut *client.world.borrow_mut();
        assert_eq!(round, Round::Done, "{} from {first}, {open} not acknowledged", told(&world.sessions[at]));
        world.counters.add("retries that found their batch", known as u64);
    }
}
