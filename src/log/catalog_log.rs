//! The catalog on disk: two log files, of which one is in use.
//!
//! Guarantees: what [`CatalogLog::append`] and [`CatalogLog::rewrite`] have answered is found at the next start, in order
//! and whole: the records of one call are there together or not at all. Damage is never taken for a short catalog.
//!
//! `catalog-0` and `catalog-1` have the format of [`super::log_file`], with shard [`CATALOG_SHARD`], generation 0 (the
//! catalog outlives generations) and records without log id and offset. A file begins with a group flagged as snapshot,
//! number 1: all that was known when it was begun; what came later follows, one group per append.
//!
//! | step of a rewrite | a crash behind it finds |
//! |---|---|
//! | the other file gets a header with the next number (made larger before, if it must be) | the old file: the new one has no snapshot |
//! | snapshot group in the other file | both: the higher number counts, and both say the same |
//! | headers of the old file are zeroed | the new file |
//!
//! An append waits for all three steps, so a file without its header is never the newer one in secret: if no file has a
//! header and a snapshot, the catalog is damaged, and the start is refused rather than going on with something older.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::group_scan::{FoundGroup, GroupScan, Step};
use super::log_file::{
    CATALOG_SHARD, FLAG_SNAPSHOT, FileHeader, GroupStamp, LogRecord, RecordKind, Records, encode_group, group_bytes,
    record_bytes,
};
use super::log_files::{LogFile, MIB, is_no_space, named, read_header};
use crate::ids::{LogId, Offset};
use crate::runtime::aligned::AlignedBuf;
use crate::runtime::clock;
use crate::runtime::disk::{Access, Create, Disk, DiskFile};
use crate::runtime::host;
use crate::runtime::signal::Turns;

/// Size of each file at first, in bytes: room for some ten thousand topics.
const FILE_BYTES: u64 = 2 * MIB;
const BLOCK_LOG2: u16 = 12;
const BLOCK_BYTES: usize = 1 << BLOCK_LOG2;
/// Number of the snapshot group of each file.
const FIRST_SEQUENCE: u64 = 1;

/// An entry of the catalog: kind (16 and up) and content.
pub type CatalogRecord = (u8, Bytes);

/// The catalog's files, open for appending.
pub struct CatalogLog<D: Disk> {
    disk: D,
    folder: PathBuf,
    store_id: [u8; 16],
    current: RefCell<Current<D::File>>,
    turns: Turns,
    failed: Cell<bool>,
}

/// The file in use.
struct Current<F> {
    log: LogFile<F>,
    header: FileHeader,
    position: u64,
    next_sequence: u64,
}

impl<F> Clone for Current<F> {
    fn clone(&self) -> Self {
        Self { log: self.log.clone(), ..*self }
    }
}

/// One file as found at start.
struct Found<F> {
    current: Current<F>,
    records: Vec<CatalogRecord>,
}

impl<D: Disk> CatalogLog<D> {
    /// Opens the catalog in `folder` (`corelane/` of the data folder) and returns what it holds, oldest first; makes it
    /// where neither file is there.
    ///
    /// # Errors
    /// What the disk says; `InvalidData` when the catalog is damaged, of another store, or of a later version.
    pub async fn open_or_create(disk: D, folder: &Path, store_id: [u8; 16]) -> io::Result<(Self, Vec<CatalogRecord>)> {
        let mut best: Option<Found<D::File>> = None;
        for path in file_paths(folder) {
            let found = read_catalog_file(&disk, &path, store_id).await?;
            let number = |found: &Found<D::File>| found.current.header.file_number;
            if found.as_ref().map(number) > best.as_ref().map(number) {
                best = found;
            }
        }
        let Found { current, records } = match best {
            Some(found) => found,
            None => Found { current: make(&disk, folder, store_id).await?, records: Vec::new() },
        };
        let made = Self {
            disk,
            folder: folder.to_owned(),
            store_id,
            current: RefCell::new(current),
            turns: Turns::default(),
            failed: Cell::default(),
        };
        made.prepare_other().await?;
        Ok((made, records))
    }

    /// Adds records, all together; on disk when this returns. Calls are served one after another.
    ///
    /// # Errors
    /// `FileTooLarge` when they do not fit: put them into a snapshot and call [`Self::rewrite`]. After any other error
    /// nothing more is taken until a restart.
    pub async fn append(&self, records: &[CatalogRecord]) -> io::Result<()> {
        let _turn = self.turns.mine().await;
        self.check()?;
        let mut current = self.current.borrow().clone();
        if current.left() < group_of(records) as u64 {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the catalog's file is full"));
        }
        self.whole(current.write(records, 0)).await?;
        *self.current.borrow_mut() = current;
        Ok(())
    }

    /// Whether the file is three quarters full, so that [`Self::rewrite`] should be called.
    #[must_use]
    pub fn needs_snapshot(&self) -> bool {
        let current = self.current.borrow();
        current.position > current.log.bytes / 4 * 3
    }

    /// Begins the other file with all that is known; `snapshot` replaces everything appended before.
    ///
    /// # Errors
    /// What the disk says; a full disk changes nothing, after any other error nothing more is taken until a restart.
    pub async fn rewrite(&self, snapshot: &[CatalogRecord]) -> io::Result<()> {
        let _turn = self.turns.mine().await;
        self.check()?;
        let old = self.current.borrow().clone();
        let bytes = (4 * group_of(snapshot) as u64).next_multiple_of(MIB).max(FILE_BYTES);
        let least = (2 * BLOCK_BYTES + group_of(snapshot)) as u64;
        let log = self.other_file(&old, bytes, least).await?;
        let begun = self.whole(begin(log, old.header.file_number + 1, self.store_id, snapshot)).await?;
        *self.current.borrow_mut() = begun;
        self.whole(self.retire_other()).await
    }

    /// The file that is not in use, with at least `bytes` bytes; where there is no room for that, with at least `least`.
    async fn other_file(&self, used: &Current<D::File>, bytes: u64, least: u64) -> io::Result<LogFile<D::File>> {
        let path = other_path(&self.folder, &used.log.path);
        let mut log = LogFile::open(&self.disk, &path, Create::IfMissing)?;
        if log.bytes < bytes {
            match log.fill(bytes).await {
                // What it has will do: a deletion, which frees room, must not wait for room.
                Err(error) if is_no_space(&error) && log.bytes >= least => {}
                filled => filled?,
            }
            self.disk.sync_dir(&self.folder).await.map_err(named(&self.folder, "cannot flush"))?;
        }
        Ok(log)
    }

    /// Sees to it that the other file is there (a later rewrite, which may be what frees space, then needs none) and that
    /// it has no header.
    async fn prepare_other(&self) -> io::Result<()> {
        let current = self.current.borrow().clone();
        match self.other_file(&current, FILE_BYTES, FILE_BYTES).await {
            Err(error) if is_no_space(&error) => {}
            made => drop(made?),
        }
        self.retire_other().await
    }

    /// Takes the header from the file that is not in use.
    async fn retire_other(&self) -> io::Result<()> {
        let path = other_path(&self.folder, &self.current.borrow().log.path);
        if read_header(&self.disk, &path).await?.is_none() {
            return Ok(());
        }
        LogFile::open(&self.disk, &path, Create::Never)?.write(0, AlignedBuf::zeroed(2 * BLOCK_BYTES)).await
    }

    fn check(&self) -> io::Result<()> {
        if self.failed.get() {
            Err(io::Error::other("a write of the catalog failed; restart the broker"))
        } else {
            Ok(())
        }
    }

    /// Counts as failed what does not end well, and what is given up in the middle: nobody knows what it wrote.
    async fn whole<T>(&self, change: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        self.failed.set(true);
        let result = change.await?;
        self.failed.set(false);
        Ok(result)
    }
}

impl<F: DiskFile> Current<F> {
    fn left(&self) -> u64 {
        self.log.bytes.saturating_sub(self.position)
    }

    async fn write(&mut self, records: &[CatalogRecord], flags: u16) -> io::Result<()> {
        let mut blocks = AlignedBuf::zeroed(group_of(records));
        let bytes = blocks.bytes().len() as u64;
        let stamp = GroupStamp { flags, ..self.header.stamp(self.next_sequence, clock::now_ms()) };
        let records: Vec<_> = records.iter().map(log_record).collect();
        encode_group(blocks.bytes_mut(), stamp, &records);
        self.log.write(self.position, blocks).await?;
        self.position += bytes;
        self.next_sequence += 1;
        Ok(())
    }
}

fn log_record((kind, data): &CatalogRecord) -> LogRecord {
    LogRecord { log_id: LogId(0), offset: Offset(0), kind: RecordKind(*kind), data: data.clone().into() }
}

fn group_of(records: &[CatalogRecord]) -> usize {
    group_bytes(records.iter().map(|(_, data)| record_bytes(data.len())).sum(), BLOCK_BYTES)
}

fn file_path(folder: &Path, which: u8) -> PathBuf {
    folder.join(format!("catalog-{which}"))
}

fn other_path(folder: &Path, path: &Path) -> PathBuf {
    let first = file_path(folder, 0);
    if path == first { file_path(folder, 1) } else { first }
}

/// Makes `catalog-0`, which gets its name only when it is whole: a catalog that was never finished is none. `catalog-1` comes
/// later, so where it is alone without a header, `catalog-0` was lost.
async fn make<D: Disk>(disk: &D, folder: &Path, store_id: [u8; 16]) -> io::Result<Current<D::File>> {
    let path = file_path(folder, 0);
    for there in [&path, &file_path(folder, 1)] {
        if disk.file_bytes(there).is_ok() {
            return Err(damaged(there, "neither catalog-0 nor catalog-1 has an intact beginning"));
        }
    }
    let making = folder.join("catalog.new");
    let mut log = LogFile::open(disk, &making, Create::Truncate)?;
    log.fill(FILE_BYTES).await?;
    let mut begun = begin(log, 1, store_id, &[]).await?;
    disk.rename(&making, &path).map_err(named(&path, "cannot make"))?;
    disk.sync_dir(folder).await.map_err(named(folder, "cannot flush"))?;
    begun.log.path = path;
    Ok(begun)
}

async fn begin<F: DiskFile>(
    log: LogFile<F>,
    file_number: u64,
    store_id: [u8; 16],
    snapshot: &[CatalogRecord],
) -> io::Result<Current<F>> {
    let header = FileHeader {
        block_log2: BLOCK_LOG2,
        shard: CATALOG_SHARD,
        generation: 0,
        file_number,
        salt: host::random(),
        store_id,
        size_mib: log.size_mib(),
    };
    log.begin(&header).await?;
    let mut begun = Current { log, header, position: header.first_group(), next_sequence: FIRST_SEQUENCE };
    begun.write(snapshot, FLAG_SNAPSHOT).await?;
    Ok(begun)
}

/// What a file holds; `None` when it is not there, not begun, or has no snapshot.
async fn read_catalog_file<D: Disk>(disk: &D, path: &Path, store_id: [u8; 16]) -> io::Result<Option<Found<D::File>>> {
    let looked = match look_at(disk, path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        looked => looked?,
    };
    let Some(CatalogFile { header, is_cut, records, position, next_sequence, damaged_at, .. }) = looked else {
        return Ok(None);
    };
    if header.store_id != store_id || header.shard != CATALOG_SHARD {
        return Err(damaged(path, "it belongs to another data folder"));
    }
    if is_cut {
        return Err(damaged(path, "it is shorter than it was made"));
    }
    if let Some(position) = damaged_at {
        return Err(damaged(path, &format!("the group at position {position} is bad")));
    }
    if next_sequence == FIRST_SEQUENCE {
        return Ok(None);
    }
    let log = LogFile::open(disk, path, Create::Never)?;
    Ok(Some(Found { current: Current { log, header, position, next_sequence }, records }))
}

/// One of the catalog's two files, as it is.
#[derive(Debug)]
pub struct CatalogFile {
    /// Its header.
    pub header: FileHeader,
    /// It is shorter than when it was begun.
    pub is_cut: bool,
    /// What the groups before the first damage hold, oldest first.
    pub records: Vec<CatalogRecord>,
    /// Where the last whole group before that ends.
    pub position: u64,
    /// Number of the group that would follow; 1 when there is none at all.
    pub next_sequence: u64,
    /// Where a group is bad although whole ones follow it.
    pub damaged_at: Option<u64>,
    /// A group was begun at `position` and is not whole.
    pub is_torn: bool,
}

/// Where the catalog's two files are.
#[must_use]
pub fn file_paths(folder: &Path) -> [PathBuf; 2] {
    [file_path(folder, 0), file_path(folder, 1)]
}

/// Looks at one file; `None` when neither copy of its header is intact, as in the one that is not in use.
///
/// # Errors
/// What the disk says; `InvalidData` for a file of a later version.
pub async fn look_at<D: Disk>(disk: &D, path: &Path) -> io::Result<Option<CatalogFile>> {
    let Some(header) = read_header(disk, path).await? else { return Ok(None) };
    let file = disk.open(path, Access::DirectSync, Create::Never).map_err(named(path, "cannot open"))?;
    let mut scan = GroupScan::new(&file, path, header)?;
    let mut records = Vec::new();
    let mut next_sequence = FIRST_SEQUENCE;
    let (mut damaged_at, mut is_torn) = (None, false);
    let mut position = scan.position;
    loop {
        match scan.next(Some(next_sequence)).await? {
            Step::Group(group) => take(&group, &mut records),
            Step::Damaged(_) => damaged_at = Some(position),
            Step::End => is_torn = scan.is_torn().await?,
        }
        if damaged_at.is_some() || scan.position == position {
            break;
        }
        position = scan.position;
        next_sequence += 1;
    }
    let is_cut = scan.is_cut();
    Ok(Some(CatalogFile { header, is_cut, records, position, next_sequence, damaged_at, is_torn }))
}

fn take(group: &FoundGroup, records: &mut Vec<CatalogRecord>) {
    for record in Records::new(&group.payload).flatten() {
        let data = group.payload.slice(record.data_at..record.data_at + record.data_bytes);
        records.push((record.kind.0, Bytes::copy_from_slice(&data)));
    }
}

fn damaged(path: &Path, how: &str) -> io::Error {
    let sentence =
        format!("{}: the catalog is damaged: {how}; put it back from a copy of the data folder", path.display());
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}
