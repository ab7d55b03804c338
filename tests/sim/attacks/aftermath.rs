//! What must still be true after damage that may cost something: what was promised and was not in the damaged place is there
//! once and at its offset; a partition with a gap says so by refusing new batches; what is still known finds its original.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use corelane::broker::messages::{AckLevel, PartitionKey};
use corelane::log::names::{self, Kind};
use corelane::wire::error_code::ErrorCode;

use super::Attack;
use super::damage::{Costs, spoil_checkpoint, spoil_group};
use crate::cluster::{Cluster, DATA, EARLIEST, LATEST, bytes_of, produced};
use crate::readers::{batches, content, mark_of};
use crate::support::dice::Dice;
use crate::support::memory_disk::MemoryDisk;
use crate::support::mini_host::MiniHost;
use crate::world::{Mark, Promise, WINDOW, World};

/// Damages the disk of a run that is over, and looks at what the next start makes of it.
pub fn look_back(disk: &MemoryDisk, world: &Rc<RefCell<World>>, dice: &mut Dice) {
    let attack = world.borrow().attack;
    let firsts = first_offsets(disk, &world.borrow());
    let costs = match attack {
        Attack::Group => spoil_group(disk, dice),
        _ => spoil_checkpoint(disk, dice),
    };
    let Some(costs) = costs else { return };
    world.borrow_mut().one("looked back after damage");
    let (disk, world, shards, mut own) = (disk.clone(), Rc::clone(world), 1 + dice.below(3), dice.other());
    let main = async move {
        let cluster = Cluster::start(&disk, crate::run::SETTINGS, shards).await;
        let cluster =
            cluster.unwrap_or_else(|sentence| panic!("the broker does not start after {costs:?}: {sentence}"));
        let keys: Vec<_> = world.borrow().logs.keys().copied().collect();
        for key in keys {
            look_at(&cluster, &world, key, (firsts.get(&key).copied(), &costs), &mut own).await;
        }
    };
    MiniHost::new(dice.roll()).run(main, || false);
}

/// Where the first segment of each partition begins: what lies below was deleted, whoever was told of it.
fn first_offsets(disk: &MemoryDisk, world: &World) -> BTreeMap<PartitionKey, i64> {
    let paths = disk.paths();
    let first = |folder: &Path| {
        let logs = paths.iter().filter(|path| path.parent() == Some(folder));
        logs.filter_map(|path| names::parse(path.file_name()?.to_str()?))
            .filter(|(_, kind)| *kind == Kind::Log)
            .map(|(base, _)| base.0)
            .min()
    };
    let mut found = BTreeMap::new();
    for named in &world.names {
        for (partition, topic) in (0..named.partitions).zip(std::iter::repeat(named.id)) {
            let folder = Path::new(DATA).join(format!("kafka/{}-{partition}", named.name));
            if let (Some(topic), Some(base)) = (topic, first(&folder)) {
                found.insert(PartitionKey { topic, partition }, base);
            }
        }
    }
    found
}

/// Batches by their marks: where they are.
type Found = BTreeMap<i64, (Mark, i64)>;

async fn look_at(
    cluster: &Cluster,
    world: &Rc<RefCell<World>>,
    key: PartitionKey,
    (first, costs): (Option<i64>, &Costs),
    dice: &mut Dice,
) {
    let mut tries = 0;
    let (start, found, has_gap) = loop {
        let start = match cluster.offset(0, key, EARLIEST).await {
            Err(ErrorCode::UnknownTopicOrPartition) if world.borrow().may_be_gone(key.topic) => return,
            found => found.unwrap().max(0),
        };
        let end = cluster.offset(0, key, LATEST).await.unwrap();
        assert!(start <= end);
        // Retention may move the start while it is looked at: what is old enough goes a second time.
        if let Some((found, has_gap)) = read_all(cluster, world, key, start, end).await {
            break (start, found, has_gap);
        }
        tries += 1;
        assert!(tries < 50, "{key:?}: its start moves faster than one can read");
    };
    {
        let world = world.borrow();
        let log = &world.logs[&key];
        assert!(costs.log_starts || log.start <= start, "{key:?}: log start {} became {start}", log.start);
        // Below its first segment a log has lost nothing that it still had, as far as anybody wanted its start there.
        let first = first.unwrap_or(0).min(log.start_max);
        check_promises(&world, key, &found, costs, start.max(first));
    }
    let refuses = retry(cluster, world, key, &found, dice).await;
    assert!(!has_gap || refuses != Some(false), "{key:?} has a gap in its offsets and takes new batches all the same");
    assert!(costs.refusals || refuses != Some(true), "{key:?} refuses although nothing can be missing");
}

/// What is there, and whether offsets are missing; `None` when what was to be read has gone by itself meanwhile.
async fn read_all(
    cluster: &Cluster,
    world: &Rc<RefCell<World>>,
    key: PartitionKey,
    start: i64,
    end: i64,
) -> Option<(Found, bool)> {
    let (mut found, mut has_gap, mut next) = (Found::new(), false, start);
    let mut seen = HashSet::new();
    while next < end {
        let fetched = cluster.read(0, key, next, 100_000).await;
        if fetched.error == ErrorCode::OffsetOutOfRange && world.borrow().logs[&key].retains {
            return None;
        }
        assert_eq!(fetched.error, ErrorCode::None, "{key:?} at {next}");
        let read = batches(bytes_of(&fetched));
        if read.is_empty() {
            return Some((found, true)); // a gap at the end
        }
        for (facts, batch) in &read {
            let (base, mark) = (facts.base_offset.0, mark_of(facts));
            let world = world.borrow();
            let (session, at) = *world.batches.get(&mark).unwrap_or_else(|| panic!("nobody sent {facts:?}"));
            assert!(content(batch) == content(&world.sessions[session].sent[at].bytes), "not what was sent: {facts:?}");
            assert!(seen.insert(mark), "{facts:?} is there twice");
            has_gap |= base > next;
            found.insert(base, (mark, facts.next_offset().0));
            next = facts.next_offset().0;
        }
    }
    Some((found, has_gap))
}

fn check_promises(world: &World, key: PartitionKey, found: &Found, costs: &Costs, start: i64) {
    let start = start.max(world.logs[&key].start);
    let may_be_gone: HashSet<_> = costs.batches.iter().collect();
    let places: BTreeMap<_, _> = world.batches.iter().map(|(mark, place)| (*place, mark)).collect();
    for (number, session) in world.sessions.iter().enumerate().filter(|(_, session)| session.key == key) {
        for (at, sent) in session.sent.iter().enumerate() {
            let is_promised = match sent.promise {
                Promise::PowerCut => true,
                Promise::Kill => !world.power_went,
                Promise::None => false,
            };
            let Some(offset) = sent.offset.filter(|_| is_promised && !sent.may_be_deleted(start)) else { continue };
            let mark = places[&(number, at)];
            if may_be_gone.contains(mark) {
                continue;
            }
            let is_there = found.get(&offset).is_some_and(|(there, _)| there == mark);
            assert!(is_there, "{key:?}: batch {at} of session {number} is not at {offset} any more, after {costs:?}");
        }
    }
}

/// Sends again what is there and still known: it is found where it is, or all is refused. `None` if there was nothing to send.
async fn retry(
    cluster: &Cluster,
    world: &Rc<RefCell<World>>,
    key: PartitionKey,
    found: &Found,
    dice: &mut Dice,
) -> Option<bool> {
    let by_mark: BTreeMap<Mark, i64> = found.iter().map(|(base, (mark, _))| (*mark, *base)).collect();
    let places: BTreeMap<_, _> = world.borrow().batches.iter().map(|(mark, place)| (*place, *mark)).collect();
    let known: Vec<_> = {
        let world = world.borrow();
        let of = |number: usize| {
            (0..world.sessions[number].sent.len())
                .filter_map(|at| by_mark.get(&places[&(number, at)]).map(|base| (number, at, *base)))
                .collect::<Vec<_>>()
        };
        let newest = |number: usize| of(number).into_iter().rev().take(WINDOW).rev().collect::<Vec<_>>();
        let is_ours = |number: &usize| {
            let session = &world.sessions[*number];
            session.key == key && session.is_open && session.is_idempotent()
        };
        (0..world.sessions.len()).filter(is_ours).flat_map(newest).collect()
    };
    for (number, at, base) in known {
        let bytes = world.borrow().sessions[number].sent[at].bytes.clone();
        let result = produced(cluster.send(dice.below(8), key, &bytes, AckLevel::Durable).await);
        assert_eq!(result.error, ErrorCode::None, "batch {at} of session {number}, which is at {base}");
        assert_eq!(result.base_offset.0, base, "a retry got another offset: batch {at} of session {number}");
    }
    let plain = plain_batch();
    let result = produced(cluster.send(dice.below(8), key, &plain, AckLevel::Durable).await);
    match result.error {
        ErrorCode::None => Some(false),
        ErrorCode::KafkaStorageError => Some(true),
        other => panic!("{other:?} for a plain batch"),
    }
}

fn plain_batch() -> bytes::Bytes {
    corelane::wire::builder::BatchBuilder::new().value(1, b"afterwards").build().freeze()
}
