//! A segment that compaction is writing: `<base>.log.cleaned`, which nobody reads before it is whole and on disk.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::crc::RunningCrc;
use super::index::{IndexRules, Indexes};
use super::names::{self, CLEANED, Kind};
use super::scan::BatchFacts;
use super::segment::{SEGMENT_BYTES_MAX, Segment};
use super::txn_index::{self, AbortedTxn};
use crate::ids::Offset;
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};

/// What is collected before it is handed to the kernel.
const WRITE_BYTES: usize = 256 << 10;
/// What is flushed at a time: one large flush at the end would hold commits up.
const SYNC_BYTES: u64 = 1 << 20;

/// See the module.
pub struct Compacted<D: Disk> {
    disk: D,
    folder: Rc<Path>,
    base: Offset,
    rules: IndexRules,
    file: D::File,
    path: PathBuf,
    pending: BytesMut,
    written: u64,
    synced: u64,
    pub(super) end: Offset,
    pub(super) indexes: Indexes,
    pub(super) first_timestamp: Option<i64>,
    pub(super) crc: RunningCrc,
    pub(super) aborted: Vec<AbortedTxn>,
}

impl<D: Disk> Compacted<D> {
    /// Begins an empty one; what an earlier attempt has left of that name is gone.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn begin(disk: D, folder: Rc<Path>, base: Offset, rules: IndexRules) -> io::Result<Self> {
        let path = names::with_ending(&names::path(&folder, base, Kind::Log), CLEANED);
        let file = disk.open(&path, Access::Buffered, Create::Truncate)?;
        Ok(Self {
            disk,
            folder,
            base,
            rules,
            file,
            path,
            pending: BytesMut::new(),
            written: 0,
            synced: 0,
            end: base,
            indexes: Indexes::new(base, rules),
            first_timestamp: None,
            crc: RunningCrc::default(),
            aborted: Vec::new(),
        })
    }

    /// First offset, as in the name.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Adds a whole batch at the end.
    ///
    /// # Errors
    /// Those of the disk; `InvalidData` for what is no batch, goes back in offsets, or would make the file too large.
    pub async fn add(&mut self, batch: &[u8]) -> io::Result<()> {
        let position = self.bytes();
        let facts = BatchFacts::read(batch, position).filter(|facts| facts.base_offset >= self.end);
        let fits = position + batch.len() as u64 <= SEGMENT_BYTES_MAX;
        let Some(facts) = facts.filter(|facts| facts.bytes as usize == batch.len() && fits) else {
            let what = format!("{}: a batch of {} bytes does not fit at {position}", self.path.display(), batch.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        self.first_timestamp.get_or_insert(facts.max_timestamp);
        self.indexes.note_batch(&facts);
        self.crc.add(batch);
        self.end = facts.next_offset();
        self.pending.extend_from_slice(batch);
        if self.pending.len() >= WRITE_BYTES { self.write().await } else { Ok(()) }
    }

    /// Adds the aborted transactions that readers of this segment must know of.
    pub fn add_aborted(&mut self, aborted: Vec<AbortedTxn>) {
        self.aborted.extend(aborted);
    }

    /// Writes and flushes everything; nothing of it has a name yet that counts.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn finish(&mut self) -> io::Result<()> {
        self.write().await?;
        self.file.sync_data().await?;
        let path = names::with_ending(&names::path(&self.folder, self.base, Kind::TxnIndex), CLEANED);
        self.aborted.sort_by_key(|txn| txn.last_offset);
        let content = txn_index::encode(&self.aborted);
        let file = self.disk.open(&path, Access::Buffered, Create::Truncate)?;
        put(&file, &path, 0, content).await?;
        file.sync_data().await
    }

    /// Number of entries and checksum of its abort index, for the seal.
    #[must_use]
    pub fn aborts(&self) -> (u32, u32) {
        let content = txn_index::encode(&self.aborted);
        let crc = if content.is_empty() { 0 } else { super::crc::crc32c(&content) };
        (u32::try_from(self.aborted.len()).unwrap_or(u32::MAX), crc)
    }

    /// The segment that it is once its files have their final names.
    #[must_use]
    pub fn into_segment(self, now_ms: i64) -> Segment<D> {
        let (disk, folder, base, rules) = (self.disk.clone(), Rc::clone(&self.folder), self.base, self.rules);
        Segment::compacted(disk, folder, base, rules, now_ms, self)
    }

    async fn write(&mut self) -> io::Result<()> {
        let pending = self.pending.split().freeze();
        let bytes = pending.len() as u64;
        put(&self.file, &self.path, self.written, pending).await?;
        self.written += bytes;
        if self.written - self.synced >= SYNC_BYTES {
            self.file.sync_data().await?;
            self.synced = self.written;
        }
        Ok(())
    }
}

async fn put<F: DiskFile>(file: &F, path: &Path, position: u64, content: Bytes) -> io::Result<()> {
    let wanted = content.len();
    let written = if wanted == 0 { 0 } else { file.write_at(position, content).await? };
    if written == wanted { Ok(()) } else { Err(short_write(path, written, wanted)) }
}
