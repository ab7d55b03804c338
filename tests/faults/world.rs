//! A data folder with something of everything in it: segments open and closed, deleted records, a deleted topic, groups,
//! both durabilities, two shards whose log files were used again; and what was promised about it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use corelane::broker::messages::{AckLevel, Deletion, PartitionKey};
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence, TopicId};
use corelane::log::checkpoint_chain::read_folder;
use corelane::log::log_reader::{LogFolder, read_logs};
use corelane::log::names::{self, Kind};
use corelane::log::scan::BatchFacts;
use corelane::log::store::Store;
use corelane::runtime::clock;
use corelane::runtime::disk::Disk;
use corelane::state::groups::messages::{
    Answer, Command, Commit, Membership, OffsetToCommit, OffsetsWanted, TopicWanted,
};
use corelane::wire::builder::BatchBuilder;
use corelane::wire::error_code::ErrorCode;
use std::time::Duration;

use crate::cluster::{Cluster, DATA, EARLIEST, LATEST, begin_life_on, bytes_of, produced};
use crate::support::memory_disk::MemoryDisk;
use crate::support::mini_host;

pub const SHARDS: usize = 2;
/// Log files are so small that they are used again within a few megabytes, and checkpoints come seldom, so that the end of
/// every log is in the commit log alone.
pub const SETTINGS: &[(&str, &str)] = &[
    ("corelane.log.file.bytes", "2097152"),
    ("corelane.log.files.max", "2"),
    ("corelane.checkpoint.interval.ms", "3000"),
    ("message.max.bytes", "100000"),
    ("offsets.topic.num.partitions", "2"),
];
/// Batches that a retry finds again.
const WINDOW: usize = 5;
const GROUP: &str = "group";
/// How long a coordinator may load, in tries of a millisecond.
const LOADING_MAX: usize = 20_000;

/// How the broker went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    Stop,
    Kill,
}

/// One partition as clients know it.
#[derive(Clone)]
pub struct Known {
    pub topic: &'static str,
    pub key: PartitionKey,
    pub producer: i64,
    /// As sent, with the offset that was answered.
    pub batches: Vec<(i64, Bytes)>,
    pub start: i64,
    pub next_sequence: i32,
}

impl Known {
    fn make(&mut self, value_bytes: usize) -> Bytes {
        let sequence = Sequence(self.next_sequence);
        let mut batch = BatchBuilder::new().producer(ProducerId(self.producer), ProducerEpoch(0), sequence);
        for _ in 0..2 {
            let fill = (self.next_sequence % 251) as u8;
            batch = batch.value(1_700_000_000_000 + i64::from(self.next_sequence), &vec![fill; value_bytes]);
            self.next_sequence += 1;
        }
        batch.build().freeze()
    }

    pub async fn write(&mut self, cluster: &Cluster, value_bytes: usize) -> ErrorCode {
        let batch = self.make(value_bytes);
        let answer = produced(cluster.send(0, self.key, &batch, AckLevel::Durable).await);
        if answer.error.is_none() {
            self.batches.push((answer.base_offset.0, batch));
        } else {
            self.next_sequence -= 2;
        }
        answer.error
    }

    pub fn end(&self) -> i64 {
        self.batches.last().map_or(0, |(base, _)| base + 2)
    }

    pub fn folder(&self) -> PathBuf {
        Path::new(DATA).join(format!("kafka/{}-{}", self.topic, self.key.partition))
    }

    /// Batches that are not deleted.
    pub fn living(&self) -> impl Iterator<Item = &(i64, Bytes)> {
        self.batches.iter().filter(|(base, _)| base + 2 > self.start)
    }
}

/// The folder, and what is in it.
pub struct World {
    pub disk: MemoryDisk,
    pub partitions: Vec<Known>,
    pub committed: i64,
    /// Base offsets that the commit logs hold, by folder of the partition.
    pub logged: BTreeMap<PathBuf, Vec<i64>>,
}

impl World {
    pub fn new(down: Down) -> Self {
        let disk = MemoryDisk::default();
        let used = disk.clone();
        let (disk, partitions, committed) = mini_host::run(1, async move { fill(used, down).await });
        let read = disk.copy();
        let logged = mini_host::run(1, async move { logged(&read).await });
        let by_log: BTreeMap<u64, Vec<i64>> = logged;
        let folders = partitions.iter().map(|known| (known.folder(), log_id(&disk, known)));
        let logged = folders.map(|(folder, id)| (folder, by_log.get(&id).cloned().unwrap_or_default())).collect();
        let _end = disk.calls();
        Self { disk, partitions, committed, logged }
    }

    /// The files of which something is known: Kafka's and ours.
    pub fn files(&self) -> Vec<PathBuf> {
        self.disk.paths()
    }

    /// The end offset of the segment that this `.log` is: the name of the next one.
    pub fn range_of(&self, path: &Path) -> Option<(i64, i64)> {
        let base = log_base(path)?;
        let folder = path.parent()?;
        let bases = self.disk.paths().into_iter().filter(|other| other.parent() == Some(folder));
        let next = bases.filter_map(|other| log_base(&other)).filter(|other| *other > base).min();
        Some((base, next.unwrap_or(i64::MAX)))
    }
}

pub fn log_base(path: &Path) -> Option<i64> {
    match names::parse(path.file_name()?.to_str()?) {
        Some((base, Kind::Log)) => Some(base.0),
        _ => None,
    }
}

/// The log id of a partition: what its checkpoints call it. Each partition of a topic has the next one.
fn log_id(disk: &MemoryDisk, known: &Known) -> u64 {
    let seals = disk.paths().into_iter().filter(|path| path.starts_with(known.folder()));
    let seal = seals.filter(|path| path.extension().is_some_and(|ending| ending == "seal"));
    let first = seal.map(|path| disk.content(&path)).next();
    first.map_or(0, |content| u64::from_le_bytes(content[16..24].try_into().unwrap()))
}

/// What the commit logs of the live generation hold, by log id.
async fn logged(disk: &MemoryDisk) -> BTreeMap<u64, Vec<i64>> {
    let own = Path::new(DATA).join("corelane");
    let state = Store::open_or_create(disk, &own, 12).await.unwrap().state();
    let folders: Vec<_> = (0..SHARDS).map(|shard| own.join(format!("shard-{shard}"))).collect();
    for folder in &folders {
        assert!(read_folder(disk, folder).await.unwrap().damaged.is_empty());
    }
    let folders: Vec<_> = folders.into_iter().map(|path| LogFolder { path, oldest_needed: None }).collect();
    let contents = read_logs(disk, &folders, state.live_generation, state.store_id).await.unwrap();
    assert!(contents.damages.is_empty(), "{:?}", contents.damages);
    let offsets = |batches: Vec<corelane::log::log_reader::Located>| batches.iter().map(|one| one.offset.0).collect();
    contents.batches.into_iter().map(|(log_id, batches)| (log_id.0, offsets(batches))).collect()
}

async fn fill(disk: MemoryDisk, down: Down) -> (MemoryDisk, Vec<Known>, i64) {
    begin_life_on(&disk);
    let cluster = Cluster::start(&disk, SETTINGS, SHARDS).await.unwrap();
    let segments = [("internal.segment.bytes", "300000".to_owned()), ("index.interval.bytes", "4000".to_owned())];
    let mut partitions = Vec::new();
    for (topic, count, durability) in [("a", 2, "disk"), ("b", 1, "page-cache"), ("gone", 1, "disk")] {
        let configs = [segments.as_slice(), &[("corelane.durability", durability.to_owned())]].concat();
        cluster.create(0, topic, count, &configs).await.unwrap();
        let id = cluster.topic(topic).unwrap().id;
        for partition in 0..count {
            let key = PartitionKey { topic: id, partition };
            let producer = 100 + partitions.len() as i64;
            partitions.push(Known { topic, key, producer, batches: Vec::new(), start: 0, next_sequence: 0 });
        }
    }
    for round in 0..100 {
        for known in &mut partitions {
            assert_eq!(known.write(&cluster, 14_000).await, ErrorCode::None);
        }
        assert_eq!(commit(&cluster, round).await, Ok(()));
    }
    let gone = partitions.pop().unwrap();
    cluster.delete(0, gone.key.topic).await.unwrap();
    // In the middle of a batch, of a segment, of the log.
    partitions[0].start = 71;
    let items = vec![Deletion { key: partitions[0].key, before: Offset(71) }];
    assert_eq!(cluster.shards[0].delete_records(items, Duration::from_secs(5)).await[0].error, ErrorCode::None);
    clock::sleep(Duration::from_millis(70_000)).await;
    for round in 100..106 {
        for known in &mut partitions {
            assert_eq!(known.write(&cluster, 9_000).await, ErrorCode::None);
        }
        assert_eq!(commit(&cluster, round).await, Ok(()));
    }
    if down == Down::Stop {
        cluster.stop().await.unwrap();
    }
    (disk.copy(), partitions, 105)
}

pub async fn commit(cluster: &Cluster, offset: i64) -> Result<(), ErrorCode> {
    let who = Membership { group: GROUP.to_owned(), generation: -1, member_id: String::new(), instance_id: None };
    let Some(topic) = cluster.topic("a") else { return Err(ErrorCode::UnknownTopicOrPartition) };
    let offset = OffsetToCommit {
        topic: "a".to_owned(),
        topic_id: topic.id,
        partition: 0,
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: String::new(),
    };
    let command = || {
        Command::Commit(Commit {
            who: who.clone(),
            retention_ms: None,
            offsets: vec![offset.clone()],
            transaction: None,
        })
    };
    for _ in 0..LOADING_MAX {
        let codes = match cluster.shards[0].ask_group(GROUP, command()).await {
            Answer::Committed(codes) => codes,
            other => panic!("a commit is answered by {other:?}"),
        };
        match codes[0] {
            ErrorCode::None => return Ok(()),
            ErrorCode::CoordinatorLoadInProgress => clock::sleep(Duration::from_millis(1)).await,
            error => return Err(error),
        }
    }
    Err(ErrorCode::CoordinatorLoadInProgress)
}

/// The offset that the group has committed, or the error.
pub async fn committed(cluster: &Cluster) -> Result<i64, ErrorCode> {
    let topic = TopicWanted { topic: "a".to_owned(), topic_id: TopicId::ZERO, partitions: vec![0] };
    let wanted =
        OffsetsWanted { group: GROUP.to_owned(), member: None, topics: Some(vec![topic]), require_stable: false };
    for _ in 0..LOADING_MAX {
        let command = Command::Offsets(wanted.clone());
        let Answer::Offsets(kept) = cluster.shards[0].ask_group(GROUP, command).await else { panic!() };
        match kept.error {
            ErrorCode::None => return Ok(kept.topics[0].1[0].offset.0),
            ErrorCode::CoordinatorLoadInProgress => clock::sleep(Duration::from_millis(1)).await,
            error => return Err(error),
        }
    }
    Err(ErrorCode::CoordinatorLoadInProgress)
}

/// What is found of a partition.
#[derive(Debug, Default)]
pub struct Found {
    pub start: i64,
    pub end: i64,
    /// Base offsets of batches that are there, with their bytes as sent.
    pub good: Vec<i64>,
    /// Offsets where something else is, or an error.
    pub bad: Vec<String>,
}

/// Reads all of a partition and compares it with what was sent.
pub async fn look(cluster: &Cluster, known: &Known) -> Result<Found, String> {
    let told = |error: ErrorCode| format!("{}: {error:?}", known.folder().display());
    let mut found = Found {
        start: cluster.offset(0, known.key, EARLIEST).await.map_err(told)?,
        end: cluster.offset(0, known.key, LATEST).await.map_err(told)?,
        ..Found::default()
    };
    let sent: BTreeMap<i64, &Bytes> = known.batches.iter().map(|(base, bytes)| (*base, bytes)).collect();
    let mut next = found.start;
    while next < found.end {
        let fetched = cluster.read(0, known.key, next, 200_000).await;
        let mut bytes = bytes_of(&fetched);
        if bytes.is_empty() {
            if !fetched.error.is_none() {
                found.bad.push(format!("at {next}: {:?}", fetched.error));
            }
            // What cannot be read ends where the next batch that was sent begins.
            next = sent.range(next + 1..).next().map_or(found.end, |(base, _)| *base);
            continue;
        }
        while !bytes.is_empty() {
            let Some(facts) = BatchFacts::read(&bytes, 0).filter(|facts| facts.bytes as usize <= bytes.len()) else {
                found.bad.push(format!("at {next}: no batch"));
                next = sent.range(next + 1..).next().map_or(found.end, |(base, _)| *base);
                break;
            };
            let batch = bytes.split_to(facts.bytes as usize);
            let base = facts.base_offset.0;
            match sent.get(&base) {
                Some(sent) if sent[16..] == batch[16..] => found.good.push(base),
                _ => {
                    // It may say anything of itself.
                    found.bad.push(format!("at {base}: not what was sent"));
                    next = sent.range(next + 1..).next().map_or(found.end, |(base, _)| *base);
                    break;
                }
            }
            next = facts.next_offset().0;
        }
    }
    Ok(found)
}

/// Everything from `start` to `end`, by base offset; an error where anything is missing.
pub async fn read_all(
    cluster: &Cluster,
    key: PartitionKey,
    start: i64,
    end: i64,
) -> Result<BTreeMap<i64, Bytes>, String> {
    let mut found = BTreeMap::new();
    let mut next = start;
    while next < end {
        let fetched = cluster.read(0, key, next, 500_000).await;
        let mut bytes = bytes_of(&fetched);
        if bytes.is_empty() {
            return Err(format!("nothing at {next} of {end}: {:?}", fetched.error));
        }
        while !bytes.is_empty() {
            let facts = BatchFacts::read(&bytes, 0).ok_or_else(|| format!("no batch at {next}"))?;
            if facts.base_offset.0 > next {
                return Err(format!("nothing from {next} to {}", facts.base_offset));
            }
            next = facts.next_offset().0;
            found.insert(facts.base_offset.0, bytes.split_to(facts.bytes as usize));
        }
    }
    Ok(found)
}

/// A retry of each of the last batches finds the first one; gives what is wrong.
pub async fn retry(cluster: &Cluster, known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for (base, batch) in known.batches.iter().rev().take(WINDOW) {
        let answer = produced(cluster.send(0, known.key, batch, AckLevel::Durable).await);
        if answer.error != ErrorCode::None || answer.base_offset.0 != *base {
            wrong.push(format!(
                "{}: a retry of {base} is answered {:?} {}",
                known.topic, answer.error, answer.base_offset
            ));
        }
    }
    wrong
}

/// Files of a folder that somebody could find: for messages.
pub fn short(path: &Path) -> String {
    path.strip_prefix(DATA).unwrap_or(path).display().to_string()
}

/// Names in the folder of a partition.
pub fn list(disk: &MemoryDisk, folder: &Path) -> Vec<String> {
    disk.list(folder).unwrap().into_iter().map(|entry| format!("{} {}", entry.name, entry.bytes)).collect()
}
