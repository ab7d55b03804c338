//! Three lives of a broker that come past every step of writing, always in the same order, and what clients were told.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelane::broker::catalog::Outcome;
use corelane::broker::messages::{AckLevel, Deletion, PartitionKey};
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::log::scan::BatchFacts;
use corelane::runtime::clock;
use corelane::wire::builder::{BatchBuilder, Record};
use corelane::wire::error_code::ErrorCode;

use crate::cluster::{Cluster, EARLIEST, LATEST, begin_life_on, bytes_of, produced};
use crate::support::memory_disk::MemoryDisk;
use crate::support::mini_host::MiniHost;
use crate::world::{SHARDS, commit, committed};

/// Log files of 2 MiB that are used again, checkpoints each second, a catalog that is rewritten, compaction without rest.
pub const SETTINGS: &[(&str, &str)] = &[
    ("corelane.log.file.bytes", "2097152"),
    ("corelane.log.files.max", "2"),
    ("corelane.checkpoint.interval.ms", "1000"),
    ("message.max.bytes", "100000"),
    ("offsets.topic.num.partitions", "1"),
    ("log.cleaner.backoff.ms", "100"),
];

/// The topic that promises nothing for the loss of power.
pub const PAGE_CACHED: &str = "b";

/// The topic that is compacted: its batches have keys in turn, and the newest of each is there.
const COMPACTED: &str = "c";
const KEYS: usize = 5;

/// One producer of one partition.
#[derive(Clone)]
pub struct Line {
    pub topic: &'static str,
    pub partition: i32,
    pub key: Option<PartitionKey>,
    pub producer: i64,
    /// As sent; with the offset once it was answered.
    pub sent: Vec<(Bytes, Option<i64>)>,
    pub next_sequence: i32,
    /// What somebody was told, and what somebody asked for.
    pub start: i64,
    pub start_asked: i64,
    pub end: i64,
}

impl Line {
    fn new(topic: &'static str, partition: i32, producer: i64) -> Self {
        let (start, start_asked, end) = (0, 0, 0);
        Self { topic, partition, key: None, producer, sent: Vec::new(), next_sequence: 0, start, start_asked, end }
    }

    pub fn make(&mut self, value_bytes: usize) -> Bytes {
        let sequence = Sequence(self.next_sequence);
        let batch = BatchBuilder::new().producer(ProducerId(self.producer), ProducerEpoch(0), sequence);
        let value = vec![(self.next_sequence % 251) as u8; value_bytes];
        let key = [(self.next_sequence as usize % KEYS) as u8];
        let timestamp = 1_700_000_000_000 + i64::from(self.next_sequence);
        let record = Record { timestamp, key: Some(&key), value: Some(&value), headers: &[] };
        let batch = batch.record(record).build().freeze();
        self.next_sequence += 1;
        self.sent.push((batch.clone(), None));
        batch
    }
}

/// What clients know; outlives the broker.
#[derive(Clone, Default)]
pub struct Told {
    pub lines: Vec<Line>,
    pub committed: i64,
    pub is_deleted: bool,
    /// Requests that were answered with an error.
    pub refused: usize,
}

pub type Shared = Rc<RefCell<Told>>;

/// Runs the lives until the disk says that it is over; how each begins and ends does not depend on what fails.
pub fn run(disk: &MemoryDisk, told: &Shared) {
    told.borrow_mut().committed = -1;
    for life in 0..3 {
        if disk.is_over() {
            return;
        }
        let (used, shared) = (disk.clone(), Rc::clone(told));
        let over = disk.clone();
        MiniHost::new(7 + life).run(async move { live(used, shared, life).await }, move || over.is_over());
    }
}

/// One life: the first makes everything and is stopped, the second is killed, the third recovers.
async fn live(disk: MemoryDisk, told: Shared, life: u64) {
    begin_life_on(&disk);
    let Ok(cluster) = Cluster::start(&disk, SETTINGS, SHARDS).await else { return };
    if life == 0 {
        make_topics(&cluster, &told).await;
    }
    let rounds = [50, 42, 8][life as usize];
    for round in 0..rounds {
        write_all(&cluster, &told, if round % 7 == 0 { 200 } else { 26_000 }).await;
        if round % 5 == 0 {
            commit_next(&cluster, &told).await;
        }
        if round % 13 == 12 {
            delete_some(&cluster, &told, round % 26 == 25).await;
        }
        if round % 20 == 19 {
            clock::sleep(Duration::from_millis(1_300)).await;
        }
    }
    if life == 1 {
        delete_topic(&cluster, &told).await;
        clock::sleep(Duration::from_millis(3_000)).await;
        write_all(&cluster, &told, 9_000).await;
    } else {
        // It may fail where a write has failed before.
        let _stopped = cluster.stop().await;
    }
}

async fn make_topics(cluster: &Cluster, told: &Shared) {
    let segments = [
        ("internal.segment.bytes", "200000".to_owned()),
        ("index.interval.bytes", "4000".to_owned()),
        ("file.delete.delay.ms", "200".to_owned()),
    ];
    let compaction = ["cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01"];
    for (topic, count, durability, more) in [
        ("a", 2, "disk", &[][..]),
        (PAGE_CACHED, 1, "page-cache", &[]),
        ("gone", 1, "disk", &[]),
        (COMPACTED, 1, "disk", &compaction),
    ] {
        let more = more.iter().filter_map(|one| one.split_once('=')).map(|(name, value)| (name, value.to_owned()));
        let durability = ("corelane.durability", durability.to_owned());
        let configs: Vec<_> = segments.iter().cloned().chain([durability]).chain(more).collect();
        let Ok(made) = cluster.create(0, topic, count, &configs).await else { continue };
        let Outcome::Topic(made) = made.outcome else { continue };
        for partition in 0..count {
            let mut told = told.borrow_mut();
            let mut line = Line::new(topic, partition, 100 + told.lines.len() as i64);
            line.key = Some(PartitionKey { topic: made.id, partition });
            told.lines.push(line);
        }
    }
}

/// One batch to each partition; what was not answered well is sent again first, as a producer does it.
async fn write_all(cluster: &Cluster, told: &Shared, value_bytes: usize) {
    let count = told.borrow().lines.len();
    for at in 0..count {
        let (key, batches, first) = {
            let told = &mut *told.borrow_mut();
            let line = &mut told.lines[at];
            if line.topic == "gone" && told.is_deleted {
                continue;
            }
            let open = line.sent.iter().rev().take_while(|(_, offset)| offset.is_none()).count();
            if open < 5 {
                line.make(value_bytes);
            }
            let first = line.sent.len() - (open + 1).min(5);
            let batches: Vec<_> = line.sent[first..].iter().map(|(batch, _)| batch.clone()).collect();
            (line.key.unwrap(), batches, first)
        };
        for (number, batch) in (first..).zip(batches) {
            let answer = produced(cluster.send(at, key, &batch, AckLevel::Durable).await);
            let told = &mut *told.borrow_mut();
            if answer.error != ErrorCode::None {
                told.refused += 1;
                break;
            }
            let line = &mut told.lines[at];
            let known = *line.sent[number].1.get_or_insert(answer.base_offset.0);
            assert_eq!(known, answer.base_offset.0, "a retry is told what the first one was told");
            line.end = line.end.max(known + 1);
        }
    }
}

async fn commit_next(cluster: &Cluster, told: &Shared) {
    if cluster.topic("a").is_none() {
        return;
    }
    let next = told.borrow().committed + 1;
    match commit(cluster, next).await {
        Ok(()) => told.borrow_mut().committed = next,
        Err(_) => told.borrow_mut().refused += 1,
    }
}

async fn delete_some(cluster: &Cluster, told: &Shared, all: bool) {
    let Some((key, before)) = told.borrow_mut().lines.get_mut(0).map(|line| {
        let before = if all { line.end } else { line.end / 2 };
        line.start_asked = line.start_asked.max(before);
        (line.key.unwrap(), before)
    }) else {
        return;
    };
    let items = vec![Deletion { key, before: Offset(before) }];
    let answer = cluster.shards[0].delete_records(items, Duration::from_secs(5)).await.remove(0);
    let told = &mut *told.borrow_mut();
    if answer.error == ErrorCode::None {
        told.lines[0].start = told.lines[0].start.max(answer.low_watermark.0);
    } else {
        told.refused += 1;
    }
}

async fn delete_topic(cluster: &Cluster, told: &Shared) {
    let Some(topic) = cluster.topic("gone") else { return };
    told.borrow_mut().is_deleted = true;
    if cluster.delete(0, topic.id).await.is_err() {
        told.borrow_mut().refused += 1;
    }
}

/// Everything that was told is still so; an error is a broken promise. The lines of `spared` may have lost something.
pub async fn check(cluster: &Cluster, told: &Told, spared: Option<&Path>) -> Result<(), String> {
    for line in &told.lines {
        let is_spared =
            spared.is_some_and(|path| path.to_string_lossy().contains(&format!("/{}-{}/", line.topic, line.partition)));
        if (line.topic == "gone" && told.is_deleted) || is_spared {
            continue;
        }
        check_line(cluster, line).await.map_err(|wrong| format!("{}-{}: {wrong}", line.topic, line.partition))?;
    }
    let is_spared = spared.is_some_and(|path| path.to_string_lossy().contains("__consumer_offsets"));
    if told.committed >= 0 && !is_spared {
        let found = committed(cluster).await;
        if !found.is_ok_and(|found| found >= told.committed) {
            return Err(format!("the group's offset is {found:?} after {}", told.committed));
        }
    }
    Ok(())
}

async fn check_line(cluster: &Cluster, line: &Line) -> Result<(), String> {
    let key = line.key.unwrap();
    let Some(_topic) = cluster.topic(line.topic) else { return Err("the topic is gone".to_owned()) };
    let error = |error: ErrorCode| format!("{error:?}");
    let start = cluster.offset(0, key, EARLIEST).await.map_err(error)?;
    let end = cluster.offset(0, key, LATEST).await.map_err(error)?;
    if start < line.start || start > line.start_asked.max(line.start) {
        return Err(format!("the start is {start}: told {}, asked for {}", line.start, line.start_asked));
    }
    if end < line.end {
        return Err(format!("the end went from {} to {end}", line.end));
    }
    if line.topic == COMPACTED {
        return check_compacted(line, &read_with_gaps(cluster, key, start, end).await?);
    }
    let found = crate::world::read_all(cluster, key, start, end).await?;
    let mut next = found.iter().peekable();
    for (number, (batch, offset)) in line.sent.iter().enumerate() {
        if offset.is_some_and(|offset| offset < start) {
            continue;
        }
        match next.peek() {
            Some((base, bytes)) if bytes[16..] == batch[16..] => {
                if offset.is_some_and(|offset| offset != **base) {
                    return Err(format!("batch {number} was at {offset:?} and is at {base}"));
                }
                next.next();
            }
            _ if offset.is_some() => return Err(format!("batch {number}, acknowledged at {offset:?}, is lost")),
            _ => {}
        }
    }
    match next.next() {
        Some((base, _)) => Err(format!("at {base} is a batch that is there twice, or that nobody sent")),
        None => Ok(()),
    }
}

/// The batches that still hold their record, by offset.
async fn read_with_gaps(
    cluster: &Cluster,
    key: PartitionKey,
    start: i64,
    end: i64,
) -> Result<BTreeMap<i64, Bytes>, String> {
    let (mut found, mut next) = (BTreeMap::new(), start);
    while next < end {
        let fetched = cluster.read(0, key, next, 500_000).await;
        let mut bytes = bytes_of(&fetched);
        if bytes.is_empty() {
            return Err(format!("nothing from {next} to {end}: {:?}", fetched.error));
        }
        while !bytes.is_empty() {
            let facts = BatchFacts::read(&bytes, 0).ok_or_else(|| format!("no batch at {next}"))?;
            if facts.next_offset().0 <= next {
                return Err(format!("the batch at {} comes behind {next}", facts.base_offset));
            }
            next = facts.next_offset().0;
            let batch = bytes.split_to(facts.bytes as usize);
            if facts.records_count > 0 {
                found.insert(facts.base_offset.0, batch);
            }
        }
    }
    Ok(found)
}

/// Each batch that is there is one that was sent, in order and once; the newest acknowledged one of each key is there, or
/// a later one that was not answered.
fn check_compacted(line: &Line, found: &BTreeMap<i64, Bytes>) -> Result<(), String> {
    let mut there = BTreeMap::new();
    let mut sent = line.sent.iter().enumerate();
    for (base, bytes) in found {
        let Some((number, (_, offset))) = sent.find(|(_, (batch, _))| bytes[16..] == batch[16..]) else {
            return Err(format!("at {base} is a batch that is there twice, or that nobody sent"));
        };
        if offset.is_some_and(|offset| offset != *base) {
            return Err(format!("batch {number} was at {offset:?} and is at {base}"));
        }
        there.insert(number % KEYS, number);
    }
    for key in 0..KEYS {
        let acknowledged = |number: &usize| number % KEYS == key && line.sent[*number].1.is_some();
        let newest = (0..line.sent.len()).rev().find(acknowledged);
        if newest.is_some_and(|newest| there.get(&key).is_none_or(|there| *there < newest)) {
            return Err(format!("the newest batch of key {key}, {newest:?}, is lost: {:?} is there", there.get(&key)));
        }
    }
    Ok(())
}

/// Writing goes on: what is open is sent again, and one more.
pub async fn go_on(cluster: &Cluster, told: &Shared, spared: Option<&Path>) -> Result<(), String> {
    for _ in 0..6 {
        write_all(cluster, told, 50).await;
    }
    let told = told.borrow();
    for line in &told.lines {
        let name = format!("/{}-{}/", line.topic, line.partition);
        let is_spared = spared.is_some_and(|path| path.to_string_lossy().contains(&name));
        let is_gone = line.topic == "gone" && told.is_deleted;
        if !is_spared && !is_gone && line.sent.last().is_some_and(|(_, offset)| offset.is_none()) {
            return Err(format!("{name} takes no writes any more"));
        }
    }
    Ok(())
}
