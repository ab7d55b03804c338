//! One partition as it is on disk when the power goes: segments, checkpoint entry and commit log, and what it must be after.

use std::path::Path;

use bytes::Bytes;
use corelane::ids::{LogId, Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::log::checkpoint::PartitionEntry;
use corelane::log::index::IndexRules;
use corelane::log::log_file::{FileHeader, LogRecord, encode_group, group_bytes};
use corelane::log::log_reader::{LogContents, LogFolder, RecordReader, read_logs};
use corelane::log::losses::Losses;
use corelane::log::names::{self, Kind};
use corelane::log::partition_log::{LogRules, PartitionLog};
use corelane::log::recover::{self, Given, Outcome, Recovered, Searched};
use corelane::log::scan::BatchFacts;
use corelane::log::segment::{Incoming, RollRules, Sealing};
use corelane::wire::builder::BatchBuilder;
use corelane::wire::stored::StoredBatch;

use crate::memory_disk::MemoryDisk;
use crate::plain_disk::run;

pub const FOLDER: &str = "/data/kafka/t-0";
pub const SHARD: &str = "/data/corelane/shard-0";
pub const LOG_FILE: &str = "/data/corelane/shard-0/log-0";
pub const STORE: [u8; 16] = [3; 16];
const LOG_ID: LogId = LogId(7);
const GENERATION: u64 = 4;
const COMMITTED_MS: i64 = 5_000;

pub fn rules(segment_bytes: u64) -> LogRules {
    LogRules {
        roll: RollRules { segment_bytes, segment_ms: 1 << 40, jitter_ms: 0 },
        index: IndexRules { interval_bytes: 150, index_bytes_max: 10 << 20 },
        jitter_ms_max: 0,
    }
}

/// A batch with its place.
#[derive(Clone, PartialEq, Eq)]
pub struct Made {
    pub base: i64,
    pub end: i64,
    pub bytes: Bytes,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{} in {} bytes", self.base, self.end, self.bytes.len())
    }
}

impl Made {
    pub fn new(base: i64, records: usize, value_bytes: usize) -> Self {
        let value: Vec<u8> = (0..value_bytes).map(|at| (base as usize * 31 + at) as u8).collect();
        let mut batch = BatchBuilder::new().place(Offset(base), 3);
        batch = batch.producer(ProducerId(base % 3), ProducerEpoch(0), Sequence(base as i32));
        for record in 0..records {
            batch = batch.value(1_000 + base + record as i64, &value);
        }
        Self { base, end: base + records as i64, bytes: batch.build().freeze() }
    }

    pub fn incoming(&self) -> Incoming {
        let facts = BatchFacts::read(&self.bytes, 0).unwrap();
        Incoming { bytes: self.bytes.len() as u64, last_offset: facts.last_offset, max_timestamp: facts.max_timestamp }
    }
}

/// Batches one after another: for each the number of records and the size of their values.
pub fn batches(shapes: &[(usize, usize)]) -> Vec<Made> {
    let mut base = 0;
    let made = shapes.iter().map(|(records, value_bytes)| {
        let made = Made::new(base, *records, *value_bytes);
        base = made.end;
        made
    });
    made.collect()
}

/// Which batches are where. All of them are somewhere behind the checkpoint.
#[derive(Clone, Debug)]
pub struct Places {
    pub segment_bytes: u64,
    /// Batches below the recovery point; `None` without a checkpoint.
    pub checkpoint: Option<usize>,
    /// Batches in the segments.
    pub written: usize,
    /// Batches in the commit log.
    pub logged: std::ops::Range<usize>,
    /// Log start in the commit log.
    pub log_start: Option<i64>,
    /// Batches in one group.
    pub group: usize,
}

pub struct Life {
    pub disk: MemoryDisk,
    pub entry: Option<PartitionEntry>,
    pub rules: LogRules,
    pub batches: Vec<Made>,
    pub places: Places,
    pub known_losses: Losses,
}

impl Life {
    pub fn new(batches: Vec<Made>, places: Places) -> Self {
        let disk = MemoryDisk::default();
        let rules = rules(places.segment_bytes);
        let first = Offset(batches.first().map_or(0, |batch| batch.base));
        let mut log = PartitionLog::empty(disk.clone(), FOLDER.into(), rules, first);
        let mut entry = None;
        for (at, batch) in batches[..places.written].iter().enumerate() {
            if places.checkpoint == Some(at) {
                entry = Some(checkpoint(&log));
            }
            append(&mut log, batch);
        }
        if places.checkpoint == Some(places.written) {
            entry = Some(checkpoint(&log));
        }
        disk.put(Path::new(LOG_FILE), log_image(&batches, &places));
        Self { disk, entry, rules, batches, places, known_losses: Losses::default() }
    }

    /// Recovers what is on `disk`, which may be worse than this one.
    pub fn recover(&self, disk: &MemoryDisk) -> std::io::Result<Back> {
        let contents = run(contents(disk))?;
        self.recover_with(disk, &contents)
    }

    pub fn recover_with(&self, disk: &MemoryDisk, contents: &LogContents) -> std::io::Result<Back> {
        let mut notes = Vec::new();
        for _ in 0..3 {
            let mut heard = Vec::new();
            let mut reader = RecordReader::new(disk.clone(), contents.files.clone());
            let given = Given {
                is_whole: self.entry.is_some(),
                folder: Path::new(FOLDER).into(),
                rules: self.rules,
                entry: self.entry.as_ref(),
                located: contents.batches.get(&LOG_ID).map_or(&[], Vec::as_slice),
                log_start: contents.log_starts.get(&LOG_ID).copied(),
                searched: Searched::All,
                losses: self.known_losses.clone(),
            };
            let on_batch =
                |batch: &BatchFacts, _: &[u8], committed: Option<i64>| heard.push((batch.base_offset.0, committed));
            let outcome = run(recover::recover(disk, &mut reader, given, on_batch))?;
            let Outcome::Back(recovered) = outcome else { panic!("all of the commit log was given") };
            let recovered = *recovered;
            notes.extend(recovered.notes.iter().cloned());
            if !recovered.must_repeat {
                return Ok(Back { recovered, heard, notes });
            }
        }
        panic!("recovery wants to be repeated for ever: {notes:#?}")
    }

    /// What `recover` hears of batches `from..to`.
    pub fn told(&self, from: usize, to: usize) -> Vec<(i64, Option<i64>)> {
        let told = |at: usize| {
            let in_log = self.places.logged.contains(&at);
            (self.batches[at].base, in_log.then_some(COMMITTED_MS))
        };
        (from..to).map(told).collect()
    }
}

/// A partition that is back.
pub struct Back {
    pub recovered: Recovered<MemoryDisk>,
    pub heard: Vec<(i64, Option<i64>)>,
    pub notes: Vec<String>,
}

impl Back {
    /// The offsets that are lost, each range with the offset behind it.
    pub fn lost(&self) -> Vec<(i64, i64)> {
        self.recovered
            .losses
            .ranges()
            .iter()
            .filter(|loss| !loss.accepted)
            .map(|loss| (loss.from.0, loss.to.0))
            .collect()
    }
}

pub async fn contents(disk: &MemoryDisk) -> std::io::Result<LogContents> {
    read_logs(disk, &[LogFolder { path: SHARD.into(), oldest_needed: None }], GENERATION, STORE).await
}

pub fn append(log: &mut PartitionLog<MemoryDisk>, batch: &Made) {
    log.prepare(&batch.incoming(), 0).unwrap();
    log.stage(StoredBatch::whole(&batch.bytes));
    log.write_some(usize::MAX).unwrap();
    log.make_visible(log.end());
}

fn checkpoint(log: &PartitionLog<MemoryDisk>) -> PartitionEntry {
    if let Some((active, closed)) = log.segments().split_last() {
        let sealing = Sealing { open: false, clean: false, log_id: LOG_ID, generation: GENERATION, aborts: (0, 0) };
        closed.iter().for_each(|segment| run(segment.seal(sealing)).unwrap());
        run(active.flush_indexes()).unwrap();
    }
    let (segment_base, position) = log.active().map_or((log.end(), 0), |active| (active.base(), active.bytes()));
    PartitionEntry {
        log_id: LOG_ID,
        removed: false,
        log_start: log.start(),
        recovery_point: log.end(),
        segment_base,
        position,
        leader_epoch: 3,
        segment_file_bytes: position,
        abort_check: 0,
    }
}

/// A log file with the batches in groups, and the log start in a group of its own behind them.
pub fn log_image(batches: &[Made], places: &Places) -> Vec<u8> {
    let header = FileHeader {
        block_log2: 12,
        shard: 0,
        generation: GENERATION,
        file_number: 1,
        salt: 0x1234_5678,
        store_id: STORE,
        size_mib: 1,
    };
    let record = |batch: &Made| LogRecord::batch(LOG_ID, Offset(batch.base), batch.bytes.clone());
    let mut groups: Vec<Vec<LogRecord>> =
        batches[places.logged.clone()].chunks(places.group).map(|group| group.iter().map(record).collect()).collect();
    groups.extend(places.log_start.map(|start| vec![LogRecord::log_start(LOG_ID, Offset(start))]));
    let mut image = header.encode_blocks().bytes().to_vec();
    for (sequence, group) in (1..).zip(&groups) {
        let at = image.len();
        image.resize(at + group_bytes(group.iter().map(LogRecord::encoded_bytes).sum(), 4096), 0);
        encode_group(&mut image[at..], header.stamp(sequence, COMMITTED_MS), group);
    }
    image
}

/// Base offset and content of each `.log`, by offset.
pub fn segments(disk: &MemoryDisk) -> Vec<(i64, Vec<u8>)> {
    let log = |path: std::path::PathBuf| match names::parse(path.file_name()?.to_str()?) {
        Some((base, Kind::Log)) => Some((base.0, disk.content(&path))),
        _ => None,
    };
    disk.paths().into_iter().filter_map(log).collect()
}
