//! The folder that is taken in: what it holds, and that all of it can be read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::ids::{Offset, TopicPartition};
use crate::log::kafka_files::{self, CLEAN_SHUTDOWN, LEADER_EPOCHS, LOG_STARTS, META_PROPERTIES};
use crate::log::losses;
use crate::log::names::{self, Kind};
use crate::log::scan::{BatchFacts, Scanner};
use crate::offline::Failed;
use crate::offline::finding::{Finding, Weight};
use crate::offline::progress::Progress;
use crate::offline::verify;
use crate::runtime::disk::Disk;
use crate::runtime::read_only_disk::ReadOnlyDisk;
use crate::wire::batch::BatchHeader;
use crate::wire::refill;

const READ_BYTES: usize = 1 << 20;
/// Findings that a refusal names.
const FINDINGS_NAMED: usize = 5;

/// A folder that was checked.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) folder: PathBuf,
    pub(super) name: TopicPartition,
    /// Files that are copied.
    pub(super) files: Vec<String>,
    pub(super) bytes: u64,
    segments: usize,
    facts: Facts,
    /// Log start of the Kafka that it comes from, where it is not the first record.
    hidden_below: Option<Offset>,
}

/// What the batches say.
#[derive(Clone, Copy, Debug)]
struct Facts {
    start: Offset,
    end: Offset,
    batches: u64,
    leader_epoch: i32,
    /// Of the markers of transactions.
    coordinator_epoch: i32,
    producer_id: i64,
}

impl Source {
    /// Checks everything in the folder.
    ///
    /// # Errors
    /// A sentence: it is no folder of a partition, its broker runs, or something in it is damaged.
    pub(super) fn check(folder: &Path) -> Result<Self, Failed> {
        let place = folder.display();
        let folder = folder.canonicalize().map_err(|error| format!("{place} cannot be read: {error}"))?;
        let base = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = verify::partition_name(&base)
            .ok_or_else(|| format!("{place} is no folder of a partition: its name is not TOPIC-PARTITION"))?;
        must_be_at_rest(&folder)?;
        refuse_findings(&folder, &name)?;
        let entries = ReadOnlyDisk.list(&folder).map_err(|error| format!("{place} cannot be listed: {error}"))?;
        if entries.iter().any(|entry| entry.name.ends_with(".swap")) {
            return Err(
                format!("{place}: a compaction was cut short; start its broker once and stop it in order").into()
            );
        }
        let hidden_below = log_start_of(&folder, &name);
        let mut logs: Vec<(Offset, u64)> = entries
            .iter()
            .filter_map(|entry| match names::parse(&entry.name) {
                Some((base, Kind::Log)) => Some((base, entry.bytes)),
                _ => None,
            })
            .collect();
        let unread =
            |logs: &[(Offset, u64)]| matches!((logs, hidden_below), ([_, next, ..], Some(start)) if next.0 <= start);
        while unread(&logs) {
            logs.remove(0);
        }
        let Some(first) = logs.first().map(|log| log.0) else {
            return Err(format!("{place} holds no segment").into());
        };
        let wanted = |name: &str| match names::parse(name) {
            // Without a checkpoint of the log, indexes (that of aborted transactions too) and seals are made anew from the
            // batches.
            Some((base, Kind::Log)) => base >= first,
            Some((as_of, Kind::Snapshot)) => as_of >= first,
            Some(_) => false,
            None => name == LEADER_EPOCHS || name == losses::FILE_NAME,
        };
        let copied = || entries.iter().filter(|entry| !entry.is_dir && wanted(&entry.name));
        let facts = read_facts(&folder, &logs).map_err(|error| format!("{place}: {error}"))?;
        Ok(Self {
            files: copied().map(|entry| entry.name.clone()).collect(),
            bytes: copied().map(|entry| entry.bytes).sum(),
            segments: logs.len(),
            hidden_below: hidden_below.filter(|start| *start > facts.start),
            folder,
            name,
            facts,
        })
    }

    /// The largest epoch of a leader or of a coordinator of transactions; -1 for none.
    pub(super) fn epoch(&self) -> i32 {
        self.facts.leader_epoch.max(self.facts.coordinator_epoch)
    }

    /// The largest producer id; -1 for none.
    pub(super) fn producer_id(&self) -> i64 {
        self.facts.producer_id
    }

    /// What it holds, for people.
    pub(super) fn text(&self) -> String {
        let Facts { start, end, batches, .. } = self.facts;
        let mut text = format!(
            "{}: {} segments, {batches} batches, offsets {start} up to {end} (not included), {} bytes; all of it can be read.",
            self.folder.display(),
            self.segments,
            self.bytes
        );
        if let Some(hidden) = self.hidden_below {
            text += &format!(
                "\nRecords below offset {hidden} were deleted in the place that it comes from and are still in the first segment: \
                 they can be read again until DeleteRecords is called once more."
            );
        }
        text
    }
}

/// A folder that a broker uses, or that it did not leave in order, may change or hold too little.
fn must_be_at_rest(folder: &Path) -> Result<(), Failed> {
    let Some(log_dir) = folder.parent() else { return Ok(()) };
    if log_dir.join(META_PROPERTIES).exists() && !log_dir.join(CLEAN_SHUTDOWN).exists() {
        let sentence = format!(
            "the broker of {} runs, or was not stopped in order ({CLEAN_SHUTDOWN} is not there): stop it in order first",
            log_dir.display()
        );
        return Err(sentence.into());
    }
    Ok(())
}

/// Damage of derived files costs nothing, they are made anew; any other stands against taking the folder in.
fn refuse_findings(folder: &Path, name: &TopicPartition) -> Result<(), Failed> {
    let found = verify::check_folder(folder, name);
    let matters = |finding: &&Finding| {
        let file = finding.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_copied = match names::parse(&file) {
            Some((_, kind)) => kind == Kind::Log,
            None => file == losses::FILE_NAME,
        };
        finding.weight == Weight::Damage && is_copied
    };
    let bad: Vec<String> = found
        .iter()
        .filter(matters)
        .take(FINDINGS_NAMED)
        .map(|finding| {
            let at = finding.position.map_or(String::new(), |position| format!(" at byte {position}"));
            format!("{}{at}: {}", finding.file.display(), finding.what)
        })
        .collect();
    if bad.is_empty() {
        return Ok(());
    }
    Err(format!(
        "it is not taken in, because it is damaged: {}. If its broker was killed, start it once and stop it in order.",
        bad.join("; ")
    )
    .into())
}

/// The log start that Kafka keeps beside its partitions.
fn log_start_of(folder: &Path, name: &TopicPartition) -> Option<Offset> {
    let text = std::fs::read_to_string(folder.parent()?.join(LOG_STARTS)).ok()?;
    let listed = kafka_files::parse_offsets(&text).ok()?;
    listed.into_iter().find(|(of, _)| of == name).map(|(_, start)| start)
}

fn read_facts(folder: &Path, logs: &[(Offset, u64)]) -> io::Result<Facts> {
    let first = logs.first().map(|log| log.0).unwrap_or_default();
    let mut facts =
        Facts { start: first, end: first, batches: 0, leader_epoch: -1, coordinator_epoch: -1, producer_id: -1 };
    let epochs = std::fs::read_to_string(folder.join(LEADER_EPOCHS)).unwrap_or_default();
    let listed = kafka_files::parse_leader_epochs(&epochs).unwrap_or_default();
    facts.leader_epoch = listed.iter().map(|entry| entry.epoch).max().unwrap_or(-1);
    let progress = Progress::new("looked at");
    progress.expect(logs.iter().map(|log| log.1).sum());
    for (base, bytes) in logs {
        let path = names::path(folder, *base, Kind::Log);
        let file = File::open(&path)?;
        let mut scanner = Scanner::new(*bytes, 0, facts.end.max(*base));
        let mut buffer = vec![0; READ_BYTES];
        while !scanner.is_done() {
            let read = file.read_at(&mut buffer, scanner.wants())?;
            if read == 0 {
                break;
            }
            progress.advance(read as u64);
            scanner.feed(&buffer[..read], &mut |batch: &BatchFacts, content: &[u8]| {
                let header = BatchHeader::read(content).ok().filter(|_| batch.is_control());
                let marker = header.and_then(|header| refill::marker_of(content, &header));
                facts.coordinator_epoch = facts.coordinator_epoch.max(marker.map_or(-1, |(_, epoch)| epoch));
                facts.batches += 1;
                facts.leader_epoch = facts.leader_epoch.max(batch.leader_epoch);
                facts.producer_id = facts.producer_id.max(batch.producer_id);
            });
        }
        let end = scanner.finish();
        if let Some(stop) = end.stop {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{stop} at byte {} of {}", end.position, path.display()),
            ));
        }
        facts.end = end.next_offset.max(*base);
    }
    progress.end();
    Ok(facts)
}
