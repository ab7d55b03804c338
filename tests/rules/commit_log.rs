//! The commit log: what it called durable is read back, it uses its files again, it stops at the first failure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelane::ids::{LogId, Offset};
use corelane::log::commit_log::{CommitLog, CommitSettings, LogIdentity};
use corelane::log::commit_pace::CommitMode;
use corelane::log::log_file::{LogRecord, RecordKind};
use corelane::log::log_reader::{Damage, LogContents, LogFolder, RecordReader, read_logs};
use corelane::runtime::clock;
use corelane::runtime::host::{Queue, spawn};
use corelane::runtime::signal::rung_or_elapsed;
use proptest::prelude::*;

use crate::memory_disk::{MemoryDisk, WriteFault};
use crate::mini_host;

pub const FOLDER: &str = "/data/corelane/shard-0";
pub const STORE: [u8; 16] = [3; 16];
pub const GENERATION: u64 = 4;
const MIB: u64 = 1 << 20;

pub fn settings(mode: CommitMode) -> CommitSettings {
    CommitSettings {
        file_bytes: 2 * MIB,
        first_file_bytes: MIB,
        bytes_max: 8 * MIB,
        block_log2: 12,
        group_bytes_max: 64 << 10,
        group_records_max: 16,
        lazy_bytes: 16 << 10,
        lazy_wait: Duration::from_millis(50),
        mode,
    }
}

fn identity(generation: u64, first_file_number: u64) -> LogIdentity {
    LogIdentity { folder: PathBuf::from(FOLDER), shard: 0, generation, store_id: STORE, first_file_number }
}

/// A log that runs, and the numbers of its groups in the order in which they became durable.
pub async fn start(disk: &MemoryDisk, mode: CommitMode) -> (CommitLog<MemoryDisk>, Rc<RefCell<Vec<u64>>>) {
    let log = CommitLog::create(disk.clone(), identity(GENERATION, 1), &[], settings(mode)).await.unwrap();
    let committed = Rc::new(RefCell::new(Vec::new()));
    let note = committed.clone();
    spawn(Queue::Requests, log.clone().run(|| (), move |sequence| note.borrow_mut().push(sequence)));
    (log, committed)
}

pub fn batch(log_id: u64, offset: i64, bytes: usize) -> LogRecord {
    let pattern = [log_id as u8, offset as u8, (offset >> 8) as u8, 0x55, bytes as u8];
    let mut data = pattern.repeat(bytes / 5 + 1);
    data.truncate(bytes);
    LogRecord::batch(LogId(log_id), Offset(offset), Bytes::from(data))
}

pub async fn read(disk: &MemoryDisk, oldest_needed: Option<u64>) -> LogContents {
    let folder = LogFolder { path: FOLDER.into(), oldest_needed };
    read_logs(disk, &[folder], GENERATION, STORE).await.unwrap()
}

/// Does what a checkpoint of everything up to `safe` does to the log, and returns what it would state.
fn checkpoint(log: &CommitLog<MemoryDisk>, safe: u64) -> (u64, u64) {
    let needed = log.oldest_needed_after(safe);
    log.release_before(needed);
    (safe, needed)
}

#[derive(Clone, Debug)]
enum Step {
    Push { log_id: u64, bytes: usize, lazy: bool },
    Start { log_id: u64 },
    WaitDurable,
    Sleep { us: u64 },
    BeginCheckpoint,
    EndCheckpoint,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_u64, 0..9_000_usize, any::<bool>()).prop_map(|(log_id, bytes, lazy)| Step::Push { log_id, bytes, lazy }),
        4 => (0..3_u64, 100_000..900_000_usize).prop_map(|(log_id, bytes)| Step::Push { log_id, bytes, lazy: false }),
        1 => (0..3_u64).prop_map(|log_id| Step::Start { log_id }),
        2 => Just(Step::WaitDurable),
        2 => (0..60_000_u64).prop_map(|us| Step::Sleep { us }),
        2 => Just(Step::BeginCheckpoint),
        2 => Just(Step::EndCheckpoint),
    ]
}

/// What was pushed, with the number of its group.
#[derive(Default)]
struct Pushed {
    batches: BTreeMap<(u64, i64), (u64, Bytes)>,
    starts: BTreeMap<u64, Vec<(u64, i64)>>,
    next_offset: i64,
    /// What a checkpoint that is under way has seen.
    safe: u64,
    /// Of the last checkpoint: everything up to this group, and the oldest file needed behind it.
    stated: (u64, u64),
}

impl Pushed {
    async fn take(&mut self, log: &CommitLog<MemoryDisk>, step: Step) {
        match step {
            Step::Push { log_id, bytes, lazy } if log.has_room(bytes) => {
                self.next_offset += 1;
                let record = batch(log_id, self.next_offset, bytes);
                let sequence = log.push(record.clone(), lazy);
                self.batches.insert((log_id, self.next_offset), (sequence, record.data.parts().concat().into()));
            }
            Step::Push { .. } => {}
            Step::Start { log_id } => {
                let start = self.next_offset;
                if let Some(sequence) = log.push_reserved(LogRecord::log_start(LogId(log_id), Offset(start))) {
                    self.starts.entry(log_id).or_default().push((sequence, start));
                }
            }
            Step::WaitDurable => drop(log.wait_durable(log.last_sequence()).await),
            Step::Sleep { us } => clock::sleep(Duration::from_micros(us)).await,
            Step::BeginCheckpoint => self.safe = log.durable().get(),
            Step::EndCheckpoint => self.stated = checkpoint(log, self.safe),
        }
    }

    /// Everything between the last checkpoint and the durable end is there, in order and unchanged; nothing else is,
    /// apart from what was on its way.
    async fn check(&self, disk: &MemoryDisk, durable: u64) {
        let contents = read(disk, Some(self.stated.1)).await;
        assert_eq!(contents.damages, []);
        let mut found = BTreeMap::new();
        let mut reader = RecordReader::new(disk.clone(), contents.files.clone());
        for (log_id, located) in &contents.batches {
            assert!(located.is_sorted_by_key(|batch| batch.offset), "out of order");
            for batch in located {
                found.insert((log_id.0, batch.offset.0), reader.read(batch).await.unwrap());
            }
        }
        let sequences: Vec<u64> = found.keys().map(|key| self.batches[key].0).collect();
        let first = sequences.iter().copied().min().unwrap_or(self.stated.0 + 1).min(self.stated.0 + 1);
        let last = sequences.iter().copied().max().unwrap_or(durable).max(durable);
        assert!(last <= durable + 1, "group {last} was never on its way while {durable} was durable");
        let expected: BTreeMap<_, _> = self
            .batches
            .iter()
            .filter(|(_, (sequence, _))| (first..=last).contains(sequence))
            .map(|(key, (_, data))| (*key, data.clone()))
            .collect();
        assert!(found == expected, "found {:?}, expected {:?}", found.keys(), expected.keys());
        self.check_starts(&contents, durable);
    }

    fn check_starts(&self, contents: &LogContents, durable: u64) {
        for (log_id, starts) in &self.starts {
            let needed = starts.iter().filter(|(sequence, _)| (self.stated.0 + 1..=durable).contains(sequence));
            let found = contents.log_starts.get(&LogId(*log_id)).map(|offset| offset.0);
            assert!(found >= needed.map(|(_, start)| *start).max(), "log start went back");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_was_durable_is_read_back(
        steps in prop::collection::vec(step(), 1..200),
        cut in (0..200_u64, 0..200_000_usize),
        mode in prop::sample::select(vec![CommitMode::Auto, CommitMode::Inline, CommitMode::Ring]),
        seed in any::<u64>(),
    ) {
        mini_host::run(seed, async move {
            let disk = MemoryDisk::default();
            let (log, committed) = start(&disk, mode).await;
            let mut pushed = Pushed { stated: (0, 1), ..Pushed::default() };
            disk.fail_write(cut.0, WriteFault::Dead(cut.1 / 512 * 512));
            for step in steps {
                pushed.take(&log, step).await;
            }
            let durable = log.durable().get();
            assert_eq!(*committed.borrow(), (1..=durable).collect::<Vec<_>>());
            assert!(disk.total_bytes() <= 8 * MIB);
            pushed.check(&disk.copy(), durable).await;
        });
    }
}

/// A thousand groups through a log of 8 MiB, with a checkpoint, fifty groups behind, whenever it is full.
#[test]
fn files_are_used_again_for_ever() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (log, _) = start(&disk, CommitMode::Auto).await;
        let mut checkpoints = 0;
        for offset in 0..1_000 {
            if !log.has_room(60_000) {
                let (safe, needed) = checkpoint(&log, log.durable().get() - 50);
                checkpoints += 1;
                assert!(log.wait_for_room(60_000).await);
                let contents = read(&disk, Some(needed)).await;
                assert_eq!(contents.damages, []);
                let first = contents.batches[&LogId(1)][0].offset;
                assert!(first.0 <= safe as i64, "the group behind {safe} is gone, the first is that of {first}");
            }
            if offset % 17 == 0 {
                // Files are used again in the order of their numbers: none is missing, even if no checkpoint is known.
                assert_eq!(read(&disk, None).await.damages, []);
            }
            assert!(log.wait_durable(log.push(batch(1, offset, 60_000), false)).await);
        }
        let stats = log.stats();
        assert_eq!((stats.groups, stats.records, stats.bytes), (1_000, 1_000, 61_440_000));
        assert!(disk.total_bytes() <= 8 * MIB && disk.paths().len() <= 8, "{:?}", disk.paths());
        assert!(checkpoints > 5 && log.oldest_needed_file() > 20, "files were begun again and again");
        assert_eq!(read(&disk, None).await.batches[&LogId(1)].last().unwrap().offset, Offset(999));
    });
}

/// Without a checkpoint the log fills up; what frees space still gets through, and nothing that was taken is stuck.
#[test]
fn a_full_log_keeps_room_for_what_frees_space() {
    for bytes in [30_000, 400_000, 900_000] {
        mini_host::run(1, async move {
            let disk = MemoryDisk::default();
            let (log, _) = start(&disk, CommitMode::Auto).await;
            let mut offset = 0;
            while log.has_room(bytes) {
                offset += 1;
                log.push(batch(1, offset, bytes), false);
                clock::sleep(Duration::from_millis(1)).await;
            }
            assert!(log.wait_durable(log.last_sequence()).await);
            assert!(log.live_bytes() > 4 * MIB, "{}", log.live_bytes());
            log.pressure().rung().await;
            let mut reserved = 0;
            while log.push_reserved(LogRecord::log_start(LogId(1), Offset(offset))).is_some() {
                reserved += 1;
                assert!(log.wait_durable(log.last_sequence()).await);
            }
            assert!(reserved > 100, "{reserved}");
            checkpoint(&log, log.durable().get());
            assert!(log.wait_for_room(bytes).await);
            assert!(log.wait_durable(log.push(batch(1, offset + 1, bytes), false)).await);
        });
    }
}

#[test]
fn whoever_waits_for_room_is_let_in_by_a_checkpoint() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (log, _) = start(&disk, CommitMode::Auto).await;
        while log.has_room(60_000) {
            log.push(batch(1, 1, 60_000), false);
            clock::sleep(Duration::from_millis(1)).await;
        }
        let later = log.clone();
        spawn(Queue::Background, async move {
            clock::sleep(Duration::from_secs(3)).await;
            checkpoint(&later, later.durable().get());
        });
        let before = clock::monotonic();
        assert!(log.wait_for_room(60_000).await);
        assert!(clock::monotonic() - before >= Duration::from_millis(2_900));
    });
}

#[test]
fn lazy_records_wait_for_company_and_others_do_not() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (log, _) = start(&disk, CommitMode::Auto).await;
        let took = async |sequence: u64| {
            let before = clock::monotonic();
            assert!(log.wait_durable(sequence).await);
            clock::monotonic() - before
        };
        let lazy = took(log.push(batch(1, 1, 100), true)).await;
        assert!((50..55).contains(&lazy.as_millis()), "{lazy:?}");
        assert!(took(log.push(batch(1, 2, 100), false)).await < Duration::from_millis(1));
        log.push(batch(1, 3, 100), true);
        assert!(took(log.push(batch(1, 4, 100), false)).await < Duration::from_millis(1), "one is waited for");
        assert!(took(log.push(batch(1, 5, 20_000), true)).await < Duration::from_millis(1), "large enough");
        assert_eq!(log.stats().ring, 2, "lazy groups go through the ring");
        let hurried = log.push(batch(1, 6, 100), true);
        log.hurry();
        assert!(took(hurried).await < Duration::from_millis(1));
    });
}

#[test]
fn everything_that_arrives_during_a_commit_is_the_next_group() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (log, committed) = start(&disk, CommitMode::Ring).await;
        log.push(batch(1, 0, 10), false);
        clock::sleep(Duration::from_micros(10)).await;
        for offset in 1..11 {
            assert_eq!(log.push(batch(1, offset, 10), false), 2);
        }
        assert!(log.wait_durable(2).await);
        assert_eq!((log.stats().groups, log.stats().records), (2, 11));
        log.push(batch(1, 11, 10), true);
        log.stop();
        clock::sleep(Duration::from_millis(1)).await;
        assert_eq!(*committed.borrow(), [1, 2, 3], "a stop writes what was pushed");
    });
}

#[test]
fn after_a_failed_write_the_log_refuses() {
    for (mode, fault, wait_ms) in [
        (CommitMode::Inline, WriteFault::Short(4096), 1_000), // the next file is ready
        (CommitMode::Ring, WriteFault::Short(4096), 1_000),
        (CommitMode::Ring, WriteFault::Short(4096), 5), // the next file is being filled
        (CommitMode::Ring, WriteFault::Dead(0), 1_000),
    ] {
        mini_host::run(1, async move {
            let disk = MemoryDisk::default();
            let (log, _) = start(&disk, mode).await;
            clock::sleep(Duration::from_millis(wait_ms)).await;
            assert!(log.wait_durable(log.push(batch(1, 1, 9_000), false)).await);
            disk.fail_write(0, fault);
            let lost = log.push(batch(1, 2, 9_000), false);
            assert!(!log.wait_durable(lost).await);
            assert!(log.failed().unwrap().contains("/data/corelane/shard-0/log-0"), "{:?}", log.failed());
            let writes = disk.writes();
            assert!(!log.wait_durable(log.push(batch(1, 3, 10), false)).await);
            assert_eq!(log.last_sequence(), lost, "nothing is taken");
            assert!(!log.wait_for_room(10).await);
            clock::sleep(Duration::from_secs(5)).await;
            assert_eq!(disk.writes(), writes, "nothing more is written");
            let contents = read(&disk, Some(1)).await;
            assert_eq!(contents.batches[&LogId(1)].len(), 1);
            assert_eq!(contents.damages, []);
        });
    }
}

/// A disk without room for another file is a full log, not a broken one.
#[test]
fn a_full_disk_is_asked_again() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        disk.limit(Some(MIB + 600_000));
        let (log, _) = start(&disk, CommitMode::Auto).await;
        clock::sleep(Duration::from_millis(200)).await;
        while log.has_room(60_000) {
            assert!(log.wait_durable(log.push(batch(1, 1, 60_000), false)).await);
        }
        assert!(log.live_bytes() < MIB && !log.is_failed());
        disk.limit(None);
        assert!(log.wait_for_room(60_000).await);
        assert_eq!(disk.paths().len(), 2);
    });
}

/// Files that could not be made for want of room make the log small: it is used up long before half of its limit is live.
#[test]
fn a_log_that_gets_no_further_file_asks_for_a_checkpoint() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (log, _) = start(&disk, CommitMode::Ring).await;
        clock::sleep(Duration::from_secs(1)).await;
        disk.limit(Some(disk.total_bytes()));
        // Two fit into the first file, five into the second one.
        let last = (0..8).map(|offset| log.push(batch(1, offset, 400_000), false)).max().unwrap();
        let before = clock::monotonic();
        rung_or_elapsed(log.pressure(), Duration::from_secs(30)).await;
        assert!(clock::monotonic() - before < Duration::from_secs(10), "nobody was asked");
        assert!(log.durable().get() < last);
        checkpoint(&log, log.durable().get());
        assert!(log.wait_durable(last).await);
    });
}

/// Files of an earlier generation serve the next one, and what they held is not read any more.
#[test]
fn old_files_serve_a_new_generation() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (old, _) = start(&disk, CommitMode::Auto).await;
        for offset in 0..40 {
            assert!(old.wait_durable(old.push(batch(1, offset, 60_000), false)).await);
        }
        old.stop();
        clock::sleep(Duration::from_secs(1)).await;
        let before = disk.paths();
        assert!(before.len() >= 2);
        let new = CommitLog::create(disk.clone(), identity(GENERATION + 1, 9), &before, settings(CommitMode::Auto))
            .await
            .unwrap();
        spawn(Queue::Requests, new.clone().run(|| (), |_| ()));
        assert!(new.wait_durable(new.push(LogRecord::log_start(LogId(7), Offset(5)), false)).await);
        assert_eq!(disk.paths(), before, "no other file was made");
        let folder = LogFolder { path: FOLDER.into(), oldest_needed: Some(9) };
        let contents = read_logs(&disk, &[folder], GENERATION + 1, STORE).await.unwrap();
        assert!(contents.batches.is_empty() && contents.damages.is_empty());
        assert_eq!(contents.log_starts[&LogId(7)], Offset(5));
        assert_eq!(RecordKind::LOG_START, RecordKind(2));
        let lost = read(&disk, Some(1)).await.damages;
        assert!(matches!(lost[..], [Damage::MissingFiles { first: 1, .. }]), "{lost:?}");
    });
}

#[test]
fn a_small_file_system_gets_small_files() {
    let small = CommitSettings::for_space(64 * MIB, 1, MIB);
    assert_eq!((small.file_bytes, small.bytes_max), (4 * MIB, 8 * MIB));
    let large = CommitSettings::for_space(1 << 40, 8, MIB);
    assert_eq!((large.file_bytes, large.first_file_bytes, large.bytes_max), (64 * MIB, 16 * MIB, 512 * MIB));
    let records = CommitSettings::for_space(64 * MIB, 1, 10 * MIB);
    assert!(records.file_bytes > 20 * MIB);
}
