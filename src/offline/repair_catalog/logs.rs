//! Which log a partition is in, and which ids were given out, as far as anything on the disk proves it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::broker::recovery::shard_folders;
use crate::ids::{LogId, Offset};
use crate::log::checkpoint_chain::{self as chain, View};
use crate::log::crc::crc32c;
use crate::log::log_reader::{LogContents, LogFolder, RecordReader, read_logs};
use crate::log::names::{self, Kind};
use crate::log::scan::{BatchFacts, Scanner};
use crate::log::seal::Seal;
use crate::log::snapshot;
use crate::log::store::StoreState;
use crate::offline::Failed;
use crate::offline::folder::Held;
use crate::offline::progress::Progress;
use crate::runtime::disk::Disk;
use crate::runtime::executors::block_on;
use crate::runtime::real_disk::RealDisk;

const READ_BYTES: usize = 1 << 20;

/// Everything that tells of logs and producers.
pub(super) struct Proofs {
    contents: LogContents,
    highest_log: u64,
    producer_id: i64,
    /// By base offset and checksum: which logs have such a batch in the commit log.
    batches: HashMap<(Offset, u32), Vec<LogId>>,
    progress: Progress,
}

impl Proofs {
    /// Reads checkpoints and commit logs.
    ///
    /// # Errors
    /// A sentence: what cannot be read.
    pub(super) fn read(held: &Held, store: &StoreState) -> Result<Self, Failed> {
        let own = held.layout.own();
        let paths = shard_folders(&RealDisk, &own).map_err(|error| format!("{}: {error}", own.display()))?;
        let mut view = View::default();
        let mut folders = Vec::new();
        for path in paths {
            let folder = block_on(chain::read_folder(&RealDisk, &path)).map_err(|error| error.to_string())?;
            view.absorb(&folder.checkpoints);
            let oldest_needed = folder.oldest_needed(store.live_generation);
            folders.push(LogFolder { path, oldest_needed });
        }
        let contents = if store.clean {
            LogContents::default()
        } else {
            block_on(read_logs(&RealDisk, &folders, store.live_generation, store.store_id))
                .map_err(|error| error.to_string())?
        };
        let logs = view.logs.keys().chain(contents.batches.keys()).chain(contents.log_starts.keys());
        let highest_log = logs.map(|log| log.0).max().unwrap_or(0);
        let producer_id = view.producers().map(|entry| entry.producer_id.0).max().unwrap_or(-1);
        let mut batches: HashMap<(Offset, u32), Vec<LogId>> = HashMap::new();
        for (log_id, located) in &contents.batches {
            for one in located {
                batches.entry((one.offset, one.data_crc)).or_default().push(*log_id);
            }
        }
        let mut proofs = Self { contents, highest_log, producer_id, batches, progress: Progress::new("read") };
        proofs.read_producers().map_err(|error| error.to_string())?;
        Ok(proofs)
    }

    /// Producers of batches that are in the commit log alone.
    fn read_producers(&mut self) -> io::Result<()> {
        let mut reader = RecordReader::new(RealDisk, self.contents.files.clone());
        for one in self.contents.batches.values().flatten() {
            let bytes = block_on(reader.read(one))?;
            let facts = BatchFacts::read(&bytes, 0);
            self.producer_id = self.producer_id.max(facts.map_or(-1, |facts| facts.producer_id));
        }
        Ok(())
    }

    /// The first log id that no file names.
    pub(super) fn next_log_id(&self) -> u64 {
        self.highest_log + 1
    }

    /// The highest producer id that was seen so far.
    pub(super) fn producer_id(&self) -> i64 {
        self.producer_id
    }

    /// The log of the partition in `folder`, and what proves it; `of_old` is what the old catalog says. Reads all of it.
    ///
    /// # Errors
    /// What the disk says.
    pub(super) fn log_of(&mut self, folder: &Path, of_old: Option<LogId>) -> io::Result<Option<(LogId, &'static str)>> {
        let mut sealed: Option<(u64, LogId)> = None;
        let mut in_log = None;
        for entry in RealDisk.list(folder)? {
            let path = folder.join(&entry.name);
            match names::parse(&entry.name) {
                Some((_, Kind::Seal)) => {
                    let seal = Seal::decode(&std::fs::read(&path)?).ok().map(|seal| (seal.generation, seal.log_id));
                    sealed = sealed.max(seal);
                }
                Some((_, Kind::Snapshot)) => {
                    let entries = snapshot::decode(&std::fs::read(&path)?).unwrap_or_default();
                    let highest = entries.iter().map(|entry| entry.producer_id.0).max();
                    self.producer_id = self.producer_id.max(highest.unwrap_or(-1));
                }
                Some((base, Kind::Log)) => in_log = self.read_segment(&path, base, entry.bytes)?.or(in_log),
                _ => {}
            }
        }
        self.progress.end();
        let proven = sealed.map(|(_, log)| (log, "as its seals say"));
        let proven = proven.or_else(|| of_old.map(|log| (log, "as the old catalog says")));
        let proven = proven.or_else(|| in_log.map(|log| (log, "as its batches in the commit log show")));
        if let Some((log, _)) = proven {
            self.highest_log = self.highest_log.max(log.0);
        }
        Ok(proven)
    }

    /// The log whose batches in the commit log are in this segment, if it is only one.
    fn read_segment(&mut self, path: &Path, base: Offset, bytes: u64) -> io::Result<Option<LogId>> {
        self.progress.expect(bytes);
        let file = File::open(path)?;
        let mut scanner = Scanner::new(bytes, 0, base);
        let mut buffer = vec![0; READ_BYTES];
        let mut same: HashMap<LogId, u64> = HashMap::new();
        let mut producer_id = self.producer_id;
        while !scanner.is_done() {
            let read = file.read_at(&mut buffer, scanner.wants())?;
            if read == 0 {
                break;
            }
            self.progress.advance(read as u64);
            let batches = &self.batches;
            scanner.feed(&buffer[..read], &mut |facts: &BatchFacts, batch: &[u8]| {
                producer_id = producer_id.max(facts.producer_id);
                if batches.is_empty() {
                    return;
                }
                for log in batches.get(&(facts.base_offset, crc32c(batch))).into_iter().flatten() {
                    *same.entry(*log).or_default() += 1;
                }
            });
        }
        self.producer_id = producer_id;
        let most = same.values().max().copied().unwrap_or(0);
        let mut best = same.iter().filter(|(_, count)| **count == most).map(|(log, _)| *log);
        Ok(best.next().filter(|_| best.next().is_none()))
    }

    /// Logs that have batches in the commit log and belong to no folder that was found.
    pub(super) fn left_over(&self, taken: &[LogId]) -> Vec<String> {
        let mut left: Vec<_> = self.contents.batches.iter().filter(|(log, _)| !taken.contains(log)).collect();
        left.sort_by_key(|(log, _)| **log);
        left.iter()
            .map(|(log, batches)| {
                format!(
                    "log {}: {} batches in the commit log belong to no folder that was found; they are not replayed",
                    log.0,
                    batches.len()
                )
            })
            .collect()
    }
}
