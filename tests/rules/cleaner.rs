//! Compaction on a whole shard: what a reader finds before and after, and after a crash at any step.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use corelane::broker::messages::PartitionKey;
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::log::names::{self, Kind};
use corelane::runtime::host::{self, Queue};
use corelane::wire::batch::{BatchHeader, Batches};
use corelane::wire::builder::{BatchBuilder, Record};
use corelane::wire::error_code::ErrorCode;
use corelane::wire::stored::RecordData;

use crate::dice::Dice;
use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{DATA, Node, SMALL, wait};

const TOPIC: &[(&str, &str)] = &[
    ("cleanup.policy", "compact"),
    ("internal.segment.bytes", "2000"),
    ("min.cleanable.dirty.ratio", "0.01"),
    ("delete.retention.ms", "60000"),
    ("file.delete.delay.ms", "1000"),
];

fn settings() -> Vec<(&'static str, &'static str)> {
    let mut settings = SMALL.to_vec();
    settings.push(("log.cleaner.backoff.ms", "500"));
    settings
}

fn batch(sequence: i32, key: u8, value: Option<&[u8]>) -> Bytes {
    let builder = BatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), Sequence(sequence));
    let record = Record { timestamp: 1_700_000_000_000, key: Some(&[key]), value, headers: &[] };
    builder.record(record).build().freeze()
}

/// Values of 100 bytes: about twelve batches fill a segment.
fn value(offset: i64) -> Vec<u8> {
    format!("{offset:0>100}").into_bytes()
}

/// Batches of one record each: keys in turn, and which of them are tombstones.
async fn fill(node: &Node, key: PartitionKey, from: i64, count: i64, keys: i64) {
    for offset in from..from + count {
        let tombstone = offset % keys == 3;
        let content = value(offset);
        let batch = batch(offset as i32, (offset % keys) as u8, (!tombstone).then_some(&content));
        assert_eq!(node.produce(key, &batch).await, (ErrorCode::None, offset));
    }
}

/// Everything that can be read, in order: offset and whether it has a value.
async fn read_all(node: &Node, key: PartitionKey) -> (Vec<(i64, u8, bool)>, i64) {
    let (mut found, mut next) = (Vec::new(), node.read(key, 0).await.log_start_offset.0);
    loop {
        let fetched = node.read(key, next).await;
        assert_eq!(fetched.error, ErrorCode::None, "at {next}");
        let end = fetched.high_watermark.0;
        if next >= end {
            return (found, end);
        }
        let before = next;
        for part in fetched.records.parts {
            let bytes = match part {
                RecordData::Batch(batch) => batch.to_bytes(),
                RecordData::Whole(bytes) => bytes,
            };
            for batch in Batches::checked(&bytes) {
                let batch = batch.unwrap();
                if batch.header.next_offset().0 > next {
                    found.extend(records(&bytes.slice_ref(batch.bytes), &batch.header));
                    next = batch.header.next_offset().0;
                }
            }
        }
        assert!(next > before, "nothing can be read at {before}");
    }
}

fn records(batch: &Bytes, header: &BatchHeader) -> Vec<(i64, u8, bool)> {
    if header.records_count == 0 {
        return Vec::new();
    }
    let set = kafka_protocol::records::RecordBatchDecoder::decode(&mut batch.clone()).unwrap();
    set.records.iter().map(|record| (record.offset, record.key.as_ref().unwrap()[0], record.value.is_some())).collect()
}

/// The newest record of each key.
fn newest(records: &[(i64, u8, bool)]) -> BTreeMap<u8, (i64, bool)> {
    records.iter().map(|(offset, key, has_value)| (*key, (*offset, *has_value))).collect()
}

fn names_in(disk: &MemoryDisk) -> Vec<String> {
    let folder = Path::new(DATA).join("kafka/t-0");
    let inside = disk.paths().into_iter().filter(|path| path.parent() == Some(&folder));
    inside.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

fn segments(disk: &MemoryDisk) -> Vec<i64> {
    let base = |name: &String| names::parse(name).filter(|(_, kind)| *kind == Kind::Log).map(|(base, _)| base.0);
    names_in(disk).iter().filter_map(base).collect()
}

fn bytes_of(disk: &MemoryDisk) -> usize {
    let folder = Path::new(DATA).join("kafka/t-0");
    segments(disk).iter().map(|base| disk.content(&names::path(&folder, Offset(*base), Kind::Log)).len()).sum()
}

#[test]
fn old_records_go_and_what_is_left_can_be_read() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, &settings()).await;
        let key = node.create_with("t", TOPIC).await;
        fill(&node, key, 0, 100, 10).await;
        let (before, end) = read_all(&node, key).await;
        assert_eq!((before.len(), end), (100, 100));
        let closed_end = *segments(&disk).last().unwrap();
        wait(20_000).await;
        let (after, end) = read_all(&node, key).await;
        assert_eq!((newest(&after), end), (newest(&before), 100));
        // Below the active segment each key is there once.
        let below = after.iter().filter(|record| record.0 < closed_end).count();
        assert_eq!(below, 10, "{after:?}");
        // A fetch from an offset that is gone gives what comes next; retries are still known.
        let first = after[0].0;
        assert!(first > 5);
        let fetched = node.read(key, 5).await;
        assert!(fetched.error.is_none() && fetched.records.bytes > 0);
        let content = value(98);
        assert_eq!(node.produce(key, &batch(98, 8, Some(&content))).await, (ErrorCode::None, 98), "a retry");
        fill(&node, key, 100, 1, 10).await;
        // A restart, in order or not, finds the same.
        let crashed = disk.power_cut(|_| 0);
        for (disk, is_closed) in [(crashed, false), (disk.clone(), true)] {
            if is_closed {
                assert_eq!(node.close().await, Ok(()));
            }
            let node = Node::start(&disk.copy(), &settings()).await;
            let (again, end) = read_all(&node, key).await;
            assert_eq!((newest(&again), end), (newest(&[after.clone(), vec![(100, 0, true)]].concat()), 101));
        }
    });
}

#[test]
fn tombstones_go_after_their_time() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, &settings()).await;
        let key = node.create_with("t", TOPIC).await;
        fill(&node, key, 0, 60, 10).await;
        wait(20_000).await;
        let tombstones = |records: &[(i64, u8, bool)]| records.iter().filter(|record| !record.2).count();
        assert!(tombstones(&read_all(&node, key).await.0) >= 1);
        wait(100_000).await;
        // Something dirty is needed for another round.
        fill(&node, key, 60, 60, 7).await;
        wait(20_000).await;
        let (left, _) = read_all(&node, key).await;
        let old = left.iter().filter(|record| record.0 < 60 && !record.2).count();
        assert_eq!(old, 0, "{left:?}");
    });
}

/// The disk at each step of some rounds of compaction.
async fn steps(disk: &MemoryDisk) -> (PartitionKey, Vec<(i64, u8, bool)>, Vec<MemoryDisk>) {
    let node = Node::start(disk, &settings()).await;
    let key = node.create_with("t", TOPIC).await;
    fill(&node, key, 0, 90, 10).await;
    let (before, _) = read_all(&node, key).await;
    (key, before, copies(disk, 30_000).await)
}

/// The disk at each change of the names in the partition's folder, for so many milliseconds.
async fn copies(disk: &MemoryDisk, ms: u64) -> Vec<MemoryDisk> {
    let (mut taken, mut known) = (Vec::new(), Vec::new());
    disk.slow_sync(std::time::Duration::from_millis(1));
    for _ in 0..ms {
        let now = names_in(disk);
        if now != known {
            taken.push(disk.copy());
            known = now;
        }
        wait(1).await;
        host::yield_now().await;
    }
    disk.slow_sync(std::time::Duration::ZERO);
    taken
}

/// Whatever is left of an exchange, a start brings the old segments or the new ones, and never both or neither.
#[test]
fn a_crash_at_any_step_leaves_the_old_segments_or_the_new_one() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (key, before, taken) = steps(&disk).await;
        assert!(taken.len() > 5, "{} steps", taken.len());
        let mut dice = Dice::of(7);
        for step in &taken {
            for times in 0..4 {
                let crashed = if times == 0 { step.copy() } else { step.power_cut(|below| dice.below(below)) };
                let node = Node::start(&crashed, &settings()).await;
                let (after, end) = read_all(&node, key).await;
                assert_eq!((newest(&after), end), (newest(&before), 90));
                assert!(after.windows(2).all(|two| two[0].0 < two[1].0), "twice or out of order: {after:?}");
                let left = names_in(&crashed);
                let is_left = |ending: &str| left.iter().any(|name| name.ends_with(ending));
                assert!(!is_left(names::CLEANED) && !is_left(names::SWAP), "{left:?}");
            }
        }
    });
}

/// A segment may be closed at the very offset that the newest checkpoint calls the recovery point, and be the one that it
/// calls the active one: compacted, it would be missed by a start.
#[test]
fn the_segment_that_a_checkpoint_names_is_not_touched() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let settings = settings();
        let node = Node::start(&disk, &settings).await;
        let topic = [("segment.ms", "1000"), ("internal.segment.bytes", "8000")];
        let key = node.create_with("t", &[TOPIC, &topic].concat()).await;
        fill(&node, key, 0, 90, 5).await;
        let (closed, full) = (segments(&disk).len() - 1, bytes_of(&disk));
        assert_eq!(closed, 1);
        while bytes_of(&disk) == full {
            wait(10).await;
        }
        // By its time the next record closes the segment that holds the last ones.
        let later = Record { timestamp: 1_700_000_100_000, key: Some(&[9]), value: Some(b"later"), headers: &[] };
        let builder = BatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), Sequence(90));
        assert_eq!(node.produce(key, &builder.record(later).build().freeze()).await, (ErrorCode::None, 90));
        let (before, _) = read_all(&node, key).await;
        let taken = copies(&disk, 30_000).await;
        assert!(taken.len() > 5, "{} steps", taken.len());
        for step in taken {
            let node = Node::start(&step.copy(), &settings).await;
            let (after, end) = read_all(&node, key).await;
            assert_eq!((newest(&after), end), (newest(&before), 91));
            let next = batch(91, 0, Some(b"next"));
            assert_eq!(node.produce(key, &next).await, (ErrorCode::None, 91), "nothing is missed");
        }
    });
}

/// With the newest checkpoint gone, or all of them, what is left describes nothing that was compacted (storage rule S14).
#[test]
fn lost_checkpoints_do_not_bring_the_past_back() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (key, before, taken) = steps(&disk).await;
        let shard = Path::new(DATA).join("corelane/shard-0");
        for step in taken.iter().rev().take(12) {
            let is_checkpoint = |path: &&std::path::PathBuf| {
                let name = path.file_name().unwrap().to_str().unwrap();
                path.parent() == Some(&shard) && name.starts_with("checkpoint-") && !name.ends_with("spare")
            };
            let crashed = step.copy();
            let mut checkpoints: Vec<_> = crashed.paths().into_iter().filter(|path| is_checkpoint(&path)).collect();
            checkpoints.sort_by_key(|path| {
                let name = path.file_name().unwrap().to_str().unwrap();
                name.trim_start_matches("checkpoint-").split('.').next().unwrap().parse::<u64>().unwrap()
            });
            for lost in [1, checkpoints.len()] {
                let crashed = step.copy();
                checkpoints.iter().rev().take(lost).for_each(|path| crashed.remove(path));
                let node = Node::start(&crashed, &settings()).await;
                let (after, end) = read_all(&node, key).await;
                assert_eq!((newest(&after), end), (newest(&before), 90), "{lost} checkpoints lost");
                let content = value(90);
                let next = batch(90, 0, Some(&content));
                assert_eq!(node.produce(key, &next).await, (ErrorCode::None, 90), "nothing is missing");
            }
        }
    });
}

/// Readers that began before an exchange go on with the old file; new ones see the new.
#[test]
fn a_reader_goes_on_while_segments_are_exchanged() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Rc::new(Node::start(&disk, &settings()).await);
        let key = node.create_with("t", TOPIC).await;
        fill(&node, key, 0, 90, 10).await;
        let (before, _) = read_all(&node, key).await;
        let reader = Rc::clone(&node);
        let done = Rc::new(std::cell::Cell::new(0));
        let counted = Rc::clone(&done);
        host::spawn(Queue::Requests, async move {
            for _ in 0..800 {
                let (found, end) = read_all(&reader, key).await;
                assert_eq!((newest(&found), end), (newest(&before), 90));
                counted.set(counted.get() + 1);
                wait(50).await;
            }
        });
        wait(60_000).await;
        assert_eq!(done.get(), 800);
        assert!(bytes_of(&disk) < 5_000, "{}", bytes_of(&disk));
    });
}

/// Settings with others, which count.
fn settings_with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let mut all = settings();
    all.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
    all.extend(more);
    all
}

/// Milliseconds until something was compacted away.
async fn until_compacted(settings: &[(&str, &str)]) -> u64 {
    let disk = MemoryDisk::default();
    let node = Node::start(&disk, settings).await;
    let key = node.create_with("t", TOPIC).await;
    fill(&node, key, 0, 90, 10).await;
    let (full, mut waited) = (bytes_of(&disk), 0);
    while bytes_of(&disk) == full {
        wait(10).await;
        waited += 10;
        assert!(waited < 200_000, "nothing is compacted");
    }
    waited
}

#[test]
fn compaction_heeds_the_speed_that_it_is_allowed() {
    mini_host::run(1, async {
        let free = until_compacted(&settings()).await;
        // 84 batches of some 170 bytes are read before anything is exchanged.
        let slow = until_compacted(&settings_with(&[("log.cleaner.io.max.bytes.per.second", "1000")])).await;
        assert!(slow > free + 11_000, "{free} ms, and {slow} ms with 1,000 bytes a second");
    });
}

#[test]
fn where_compaction_is_turned_off_everything_stays() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, &settings_with(&[("log.cleaner.enable", "false")])).await;
        let key = node.create_with("t", TOPIC).await;
        fill(&node, key, 0, 90, 10).await;
        let full = bytes_of(&disk);
        wait(120_000).await;
        assert_eq!((bytes_of(&disk), read_all(&node, key).await.0.len()), (full, 90));
    });
}

/// A round that finds no room leaves everything as it was, and is done once there is room.
#[test]
fn a_full_disk_only_puts_compaction_off() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, &settings()).await;
        let key = node.create_with("t", TOPIC).await;
        fill(&node, key, 0, 90, 10).await;
        let (before, _) = read_all(&node, key).await;
        let full = bytes_of(&disk);
        disk.slow_sync(std::time::Duration::from_millis(5));
        while !names_in(&disk).iter().any(|name| name.ends_with(names::CLEANED)) {
            wait(1).await;
        }
        // What was written so far has its room, nothing else.
        disk.limit(Some(disk.total_bytes()));
        wait(30_000).await;
        assert!(bytes_of(&disk) <= full && !names_in(&disk).iter().any(|name| name.ends_with(names::CLEANED)));
        assert_eq!(newest(&read_all(&node, key).await.0), newest(&before));
        disk.limit(None);
        wait(60_000).await;
        let (after, _) = read_all(&node, key).await;
        assert_eq!(newest(&after), newest(&before));
        assert!(bytes_of(&disk) < full / 2 && after.len() < 30, "{} bytes, {} records", bytes_of(&disk), after.len());
    });
}
