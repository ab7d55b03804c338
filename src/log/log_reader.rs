//! Reads commit logs back: what each partition has in them, and what is damaged.
//!
//! Guarantees: every group that was durable is returned once and in order, or its loss is reported; a group in the middle
//! of being written when the power went is left out silently (nobody was told of it). Nothing is changed on disk.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::crc::crc32c;
use super::group_scan::{FoundGroup, GroupScan, Step, Window};
use super::log_file::{FoundRecord, RecordKind, Records};
use super::log_files::{FoundLog, list_log_files, named};
use crate::ids::{LogId, Offset};
use crate::runtime::disk::{Access, Create, Disk};

/// How much is read around a record, in bytes: its neighbours are wanted next.
const RECORD_READ_BYTES: usize = 256 << 10;

/// A shard's folder, of whatever number of shards there was.
#[derive(Clone, Debug)]
pub struct LogFolder {
    /// `corelane/shard-<n>`.
    pub path: PathBuf,
    /// The oldest file number that its newest checkpoint of the live generation needs; `None` without such a checkpoint.
    pub oldest_needed: Option<u64>,
}

/// A batch in the log; its bytes stay there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Position of the data in its file.
    pub position: u64,
    /// Base offset.
    pub offset: Offset,
    /// When its group was written, milliseconds since 1970.
    pub committed_ms: i64,
    /// Bytes of data.
    pub data_bytes: u32,
    /// CRC-32C of the data.
    pub data_crc: u32,
    /// Which of [`LogContents::files`].
    pub file: u32,
}

/// Acknowledged bytes that are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Groups that had been written whole cannot be read.
    BadGroups {
        /// The file that they are in.
        path: PathBuf,
        /// Where the first of them begins.
        position: u64,
        /// Number of the first; `None` when it is the first of all.
        first_sequence: Option<u64>,
        /// Number of the first good one behind them.
        next_sequence: u64,
    },
    /// A file of the sequence is not there, or has no intact header.
    MissingFiles {
        /// The folder.
        folder: PathBuf,
        /// Number of the first missing file.
        first: u64,
        /// Number of the last missing file.
        last: u64,
    },
    /// A file is shorter than when it was begun.
    CutFile {
        /// The file.
        path: PathBuf,
    },
}

impl Damage {
    /// The file or folder, and where in the file.
    #[must_use]
    pub fn place(&self) -> (&Path, Option<u64>) {
        match self {
            Self::BadGroups { path, position, .. } => (path, Some(*position)),
            Self::MissingFiles { folder, .. } => (folder, None),
            Self::CutFile { path } => (path, None),
        }
    }

    /// What is wrong there.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::BadGroups { first_sequence, next_sequence, .. } => {
                let from = first_sequence.map_or(String::new(), |first| format!("from {first} "));
                format!("groups {from}up to {next_sequence} (not included) cannot be read")
            }
            Self::MissingFiles { first, last, .. } => {
                format!("the log files numbered {first} to {last} in their headers are missing")
            }
            Self::CutFile { .. } => "shorter than it was made".to_string(),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, position) = self.place();
        write!(f, "{}: ", path.display())?;
        position.iter().try_for_each(|position| write!(f, "damaged at position {position}: "))?;
        f.write_str(&self.what())
    }
}

/// What logs hold.
#[derive(Debug, Default)]
pub struct LogContents {
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// Batches by partition, in the order in which they were written.
    pub batches: HashMap<LogId, Vec<Located>>,
    /// The highest log start of each partition that has one in the log.
    pub log_starts: HashMap<LogId, Offset>,
    /// What is missing.
    pub damages: Vec<Damage>,
    /// Groups read.
    pub groups: u64,
    /// Where a folder's log ends within a group that was begun, with its file: nobody was told of that group.
    pub torn: Vec<(PathBuf, u64)>,
    /// All log files of the folders, also those of other generations.
    pub found: Vec<FoundLog>,
}

impl LogContents {
    /// Adds what another reader found in other folders.
    pub fn merge(&mut self, other: Self) {
        let shift = index(self.files.len());
        self.files.extend(other.files);
        for (log_id, mut batches) in other.batches {
            batches.iter_mut().for_each(|batch| batch.file += shift);
            self.batches.entry(log_id).or_default().extend(batches);
        }
        for (log_id, start) in other.log_starts {
            self.note_start(log_id, start);
        }
        self.damages.extend(other.damages);
        self.groups += other.groups;
        self.torn.extend(other.torn);
        self.found.extend(other.found);
    }

    fn note_start(&mut self, log_id: LogId, start: Offset) {
        let highest = self.log_starts.entry(log_id).or_insert(start);
        *highest = start.max(*highest);
    }

    fn take_group(&mut self, group: &FoundGroup) -> io::Result<()> {
        self.groups += 1;
        for record in Records::new(&group.payload).flatten() {
            match record.kind {
                RecordKind::BATCH => self.take_batch(group, &record),
                RecordKind::LOG_START => self.note_start(record.log_id, record.offset),
                RecordKind(kind) => return Err(self.unknown_kind(group, kind)),
            }
        }
        Ok(())
    }

    fn take_batch(&mut self, group: &FoundGroup, record: &FoundRecord) {
        let data = &group.payload[record.data_at..record.data_at + record.data_bytes];
        self.batches.entry(record.log_id).or_default().push(Located {
            position: group.payload_at() + record.data_at as u64,
            offset: record.offset,
            committed_ms: group.header.stamp.committed_ms,
            data_bytes: index(record.data_bytes),
            data_crc: crc32c(data),
            file: index(self.files.len() - 1),
        });
    }

    fn unknown_kind(&self, group: &FoundGroup, kind: u8) -> io::Error {
        let path = self.files.last().map(|path| path.display().to_string()).unwrap_or_default();
        let sentence = format!(
            "{path}: the group at position {} holds a record of kind {kind}, which this program does not know; start the \
             program that wrote it",
            group.position
        );
        io::Error::new(io::ErrorKind::InvalidData, sentence)
    }
}

/// Reads the logs of one generation in the given folders, one after another.
///
/// # Errors
/// What the disk says; `InvalidData` for a file of a later version and for two files of one number. Damage is no error:
/// it is in [`LogContents::damages`].
pub async fn read_logs<D: Disk>(
    disk: &D,
    folders: &[LogFolder],
    live_generation: u64,
    store_id: [u8; 16],
) -> io::Result<LogContents> {
    let mut contents = LogContents::default();
    for folder in folders {
        let found = list_log_files(disk, &folder.path).await?;
        let live = live_files(&found, folder, live_generation, store_id)?;
        read_folder(disk, folder, &live, &mut contents).await?;
        contents.found.extend(found);
    }
    Ok(contents)
}

/// The files whose groups count, by number.
fn live_files(
    found: &[FoundLog],
    folder: &LogFolder,
    generation: u64,
    store_id: [u8; 16],
) -> io::Result<Vec<FoundLog>> {
    let oldest = folder.oldest_needed.unwrap_or(0);
    let is_live = |log: &&FoundLog| {
        log.header.is_some_and(|header| {
            header.store_id == store_id && header.generation == generation && header.file_number >= oldest
        })
    };
    let mut live: Vec<_> = found.iter().filter(is_live).cloned().collect();
    live.sort_by_key(number);
    match live.windows(2).find(|pair| number(&pair[0]) == number(&pair[1])) {
        Some(pair) => Err(same_number(&pair[0], &pair[1])),
        None => Ok(live),
    }
}

fn number(log: &FoundLog) -> u64 {
    log.header.map_or(0, |header| header.file_number)
}

fn same_number(one: &FoundLog, other: &FoundLog) -> io::Error {
    let sentence = format!(
        "{} and {} both are log file number {}; remove the one that was copied",
        one.path.display(),
        other.path.display(),
        number(one)
    );
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}

/// Where a folder's log stands between two files.
#[derive(Debug, Default)]
struct Trail {
    /// Number of the next group, once one was seen.
    expected: Option<u64>,
    /// The file before, and where its last group ended.
    before: Option<(PathBuf, u64)>,
    /// A group was begun there and is not whole.
    is_torn: bool,
}

impl Trail {
    /// A file before without any group, although this is not the first group of all, has lost what it held.
    fn doubt_empty_file(&mut self, group: &FoundGroup, contents: &mut LogContents) {
        let Some((path, position)) = self.before.take().filter(|_| self.expected.is_none()) else { return };
        if group.sequence() > 1 {
            let next_sequence = group.sequence();
            contents.damages.push(Damage::BadGroups { path, position, first_sequence: None, next_sequence });
        }
    }
}

async fn read_folder<D: Disk>(
    disk: &D,
    folder: &LogFolder,
    live: &[FoundLog],
    contents: &mut LogContents,
) -> io::Result<()> {
    let mut trail = Trail::default();
    let mut wanted = folder.oldest_needed.or(live.first().map(number));
    for log in live {
        if let Some(first) = wanted.filter(|&wanted| wanted < number(log)) {
            contents.damages.push(missing(folder, first, number(log) - 1));
            trail = Trail::default();
        }
        wanted = Some(number(log) + 1);
        read_file(disk, log, &mut trail, contents).await?;
    }
    if let (true, Some(first)) = (live.is_empty(), wanted) {
        contents.damages.push(missing(folder, first, first));
    }
    contents.torn.extend(trail.before.filter(|_| trail.is_torn));
    Ok(())
}

fn missing(folder: &LogFolder, first: u64, last: u64) -> Damage {
    Damage::MissingFiles { folder: folder.path.clone(), first, last }
}

async fn read_file<D: Disk>(disk: &D, log: &FoundLog, trail: &mut Trail, contents: &mut LogContents) -> io::Result<()> {
    let Some(header) = log.header else { return Ok(()) };
    let path = &log.path;
    let file = disk.open(path, Access::DirectSync, Create::Never).map_err(named(path, "cannot open"))?;
    let mut scan = GroupScan::new(&file, path, header)?;
    contents.files.push(path.clone());
    if scan.is_cut() {
        contents.damages.push(Damage::CutFile { path: path.clone() });
    }
    loop {
        let place = (path.clone(), scan.position);
        let is_first = scan.position == header.first_group();
        let group = match scan.next(trail.expected).await? {
            Step::Group(group) => {
                trail.doubt_empty_file(&group, contents);
                group
            }
            Step::Damaged(group) => {
                // A hole that shows at the beginning of a file is most often the lost end of the one before.
                let known = trail.before.take().filter(|_| is_first && group.position == place.1);
                let (path, position) = known.unwrap_or(place);
                let (first_sequence, next_sequence) = (trail.expected, group.sequence());
                contents.damages.push(Damage::BadGroups { path, position, first_sequence, next_sequence });
                group
            }
            Step::End => break,
        };
        trail.is_torn = false;
        trail.expected = Some(group.sequence() + 1);
        contents.take_group(&group)?;
    }
    trail.is_torn = scan.is_torn().await?;
    trail.before = Some((path.clone(), scan.position));
    Ok(())
}

fn index(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than 2³² files, and data shorter than 4 GiB")
}

/// Reads the bytes of located batches; quick when they are asked for in the order of the log.
pub struct RecordReader<D: Disk> {
    disk: D,
    files: Vec<PathBuf>,
    open: HashMap<u32, D::File>,
    window: (u32, Window),
}

impl<D: Disk> RecordReader<D> {
    /// A reader of batches in `files`, those of [`LogContents::files`].
    #[must_use]
    pub fn new(disk: D, files: Vec<PathBuf>) -> Self {
        Self { disk, files, open: HashMap::new(), window: (u32::MAX, Window::default()) }
    }

    /// The bytes of a batch.
    ///
    /// # Errors
    /// What the disk says; `InvalidData` when they are not those that were located.
    pub async fn read(&mut self, located: &Located) -> io::Result<Bytes> {
        let path = self.files.get(located.file as usize).ok_or(io::ErrorKind::NotFound)?;
        if !self.open.contains_key(&located.file) {
            let file = self.disk.open(path, Access::DirectSync, Create::Never).map_err(named(path, "cannot open"))?;
            self.open.insert(located.file, file);
        }
        if self.window.0 != located.file {
            self.window = (located.file, Window::default());
        }
        let file = &self.open[&located.file];
        let wanted = located.data_bytes as usize;
        let read = self.window.1.get(file, located.position, wanted, RECORD_READ_BYTES).await;
        let bytes = read.map_err(named(path, "cannot read"))?;
        if bytes.len() == wanted && crc32c(&bytes) == located.data_crc {
            return Ok(bytes);
        }
        let sentence = format!("{}: the record at position {} has changed", path.display(), located.position);
        Err(io::Error::new(io::ErrorKind::InvalidData, sentence))
    }
}
