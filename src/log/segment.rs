//! One segment: a `.log` file of whole batches, named by its base offset, with its indexes and its seal.
//!
//! Taking note of a batch and writing it are two steps: the first is memory alone and fixes the position (order early),
//! the second may come later and fail. Handles are opened on demand and may be dropped at any time
//! ([`Segment::close_handles`]). Segments hold exactly their data: never preallocated, never zero-filled.
//! The reading side is in `segment_read.rs`, indexes and seal are in `segment_derived.rs`.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;

use super::compacted::Compacted;
use super::crc::RunningCrc;
use super::index::{IndexRules, Indexes, TimestampOffset};
use super::names::{self, DELETED, Kind};
use super::scan::{BatchFacts, Gaps, ScanEnd, Scanner};
use super::segment_aborts::Aborts;
pub use super::segment_derived::Sealing;
use crate::ids::Offset;
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};
use crate::runtime::open_files::Slot;

/// Positions have 31 bits in Kafka's index files.
pub const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// When a segment is closed and the next one begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollRules {
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// Drawn once for each segment from `segment.jitter.ms`; taken off `segment_ms`.
    pub jitter_ms: i64,
}

/// What [`Segment::should_roll`] looks at in the batch that is about to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Size of the batch.
    pub bytes: u64,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Its largest timestamp.
    pub max_timestamp: i64,
}

/// What is known of a segment that is on disk already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Size of `.log` that counts; what lies behind is not looked at.
    pub bytes: u64,
    /// Offset that follows the last record (the base of the next segment where nothing better is known).
    pub end: Offset,
}

pub(super) struct State {
    pub(super) bytes: u64,
    pub(super) end: Offset,
    pub(super) first_timestamp: Option<i64>,
    pub(super) newest: Option<TimestampOffset>,
    pub(super) indexes: Option<Indexes>,
    /// Checksum of the first so many bytes of the file; `None` when an earlier part was never seen.
    pub(super) crc: Option<(u64, RunningCrc)>,
    /// Where sequential readers stopped; see `segment_read.rs`.
    pub(super) cursors: Vec<(Offset, u64)>,
}

/// One segment of one partition; methods take `&self`, so readers and the writer share it by `Rc`.
pub struct Segment<D: Disk> {
    pub(super) disk: D,
    folder: Rc<Path>,
    pub(super) base: Offset,
    pub(super) rules: IndexRules,
    pub(super) created_ms: i64,
    pub(super) state: RefCell<State>,
    pub(super) aborts: RefCell<Aborts>,
    handle: Rc<Slot<D::File>>,
    /// How old it is, where that took a look at the disk.
    pub(super) looked_up_ms: Cell<Option<i64>>,
    /// The folder's name may belong to another partition by now.
    is_left: Cell<bool>,
}

impl<D: Disk> Segment<D> {
    /// The partition is deleted: from now on no file is opened by name, since the folder's name may be another one's.
    pub fn leave(&self) {
        self.is_left.set(true);
    }

    /// Looking and opening are one step.
    pub(super) fn check_name(&self) -> io::Result<()> {
        if self.is_left.get() { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    /// Makes an empty segment; its `.log` is there afterwards (its name durable after a sync of the folder).
    ///
    /// # Errors
    /// Those of the disk; `AlreadyExists` when a file of that name holds bytes.
    pub fn create(disk: D, folder: Rc<Path>, base: Offset, rules: IndexRules, now_ms: i64) -> io::Result<Self> {
        let segment = Self::existing(disk, folder, base, rules, now_ms, Known { bytes: 0, end: base });
        let path = segment.path(Kind::Log);
        let file = segment.disk.open(&path, Access::Buffered, Create::IfMissing)?;
        if file.bytes()? > 0 {
            let what = format!("{}: a new segment would overwrite this file", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        segment.keep_open(Rc::new(file));
        let mut state = segment.state.borrow_mut();
        state.indexes = Some(Indexes::new(base, rules));
        state.crc = Some((0, RunningCrc::default()));
        drop(state);
        segment.set_aborted(Vec::new());
        Ok(segment)
    }

    /// A segment that is on disk; nothing is opened or read yet.
    #[must_use]
    pub fn existing(disk: D, folder: Rc<Path>, base: Offset, rules: IndexRules, created_ms: i64, known: Known) -> Self {
        let state = State {
            bytes: known.bytes,
            end: known.end,
            first_timestamp: None,
            newest: None,
            indexes: None,
            crc: None,
            cursors: Vec::new(),
        };
        let handle = Rc::default();
        let looked_up_ms = Cell::new(None);
        Self {
            disk,
            folder,
            base,
            rules,
            created_ms,
            state: RefCell::new(state),
            aborts: RefCell::default(),
            handle,
            looked_up_ms,
            is_left: Cell::default(),
        }
    }

    /// What compaction has written, once its files have their final names; indexes and seal are not on disk yet.
    #[must_use]
    pub fn compacted(
        disk: D,
        folder: Rc<Path>,
        base: Offset,
        rules: IndexRules,
        now_ms: i64,
        written: Compacted<D>,
    ) -> Self {
        let known = Known { bytes: written.bytes(), end: written.end };
        let segment = Self::existing(disk, folder, base, rules, now_ms, known);
        let mut state = segment.state.borrow_mut();
        state.first_timestamp = written.first_timestamp;
        state.newest = written.indexes.newest_timestamp();
        state.crc = Some((written.bytes(), written.crc));
        state.indexes = Some(written.indexes);
        drop(state);
        *segment.aborts.borrow_mut() = Aborts::written(written.aborted);
        segment
    }

    /// Offset of the first record, as in the name.
    #[must_use]
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Offset that follows the last batch taken note of.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.state.borrow().end
    }

    /// Bytes taken note of, which is where the next batch goes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state.borrow().bytes
    }

    /// Largest timestamp and its batch's last offset; `None` without timestamps or when nothing is loaded yet.
    #[must_use]
    pub fn newest_timestamp(&self) -> Option<TimestampOffset> {
        self.state.borrow().newest
    }

    /// The path of a file of this segment.
    #[must_use]
    pub fn path(&self, kind: Kind) -> PathBuf {
        names::path(&self.folder, self.base, kind)
    }

    /// True when `incoming` must go to a new segment.
    ///
    /// Source: apache/kafka `LogSegment.shouldRoll`, `timeWaitedForRoll`.
    #[must_use]
    pub fn should_roll(&self, rules: &RollRules, incoming: &Incoming, now_ms: i64) -> bool {
        let state = self.state.borrow();
        let full = state.indexes.as_ref().is_some_and(Indexes::is_full);
        let fits =
            incoming.last_offset.0.checked_sub(self.base.0).is_some_and(|relative| i32::try_from(relative).is_ok());
        let bytes_max = rules.segment_bytes.min(SEGMENT_BYTES_MAX);
        let waited_ms = match state.first_timestamp {
            Some(first) if first >= 0 => incoming.max_timestamp.saturating_sub(first),
            _ => now_ms.saturating_sub(self.created_ms),
        };
        let old = waited_ms > rules.segment_ms.saturating_sub(rules.jitter_ms);
        let large = state.bytes + incoming.bytes > bytes_max;
        !fits || (state.bytes > 0 && (large || old || full))
    }

    /// Takes note of a batch at the end of the segment: size, offsets, timestamps, index entries. No I/O.
    ///
    /// # Panics
    /// When the batch does not begin where the segment ends.
    pub fn note_batch(&self, batch: &BatchFacts) {
        self.looked_up_ms.set(None);
        let mut state = self.state.borrow_mut();
        assert!(batch.position == state.bytes, "batch at {} of a segment of {} bytes", batch.position, state.bytes);
        assert!(batch.base_offset >= state.end, "offset went back: {} < {}", batch.base_offset, state.end);
        state.bytes = batch.end_position();
        state.end = batch.next_offset();
        state.first_timestamp.get_or_insert(batch.max_timestamp);
        let newest = state.newest.map_or(-1, |newest| newest.timestamp);
        let timestamp = batch.newest_record_timestamp();
        if timestamp > newest {
            state.newest = Some(TimestampOffset { timestamp, offset: batch.last_offset });
        }
        if let Some(indexes) = &mut state.indexes {
            indexes.note_batch(batch);
        }
    }

    /// Writes bytes inline where [`Self::note_batch`] has put them. In order within a partition.
    ///
    /// # Errors
    /// Those of the disk; a short count is one. The bytes may be there partly: the same write may be tried again.
    pub fn write_now(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        let file = self.log_file()?;
        self.handle.note_write();
        let written = file.write_now(position, parts)?;
        self.check_written(written, parts.iter().map(|part| part.len()).sum())?;
        self.add_to_crc(position, parts);
        Ok(())
    }

    /// The same without holding the core for long.
    ///
    /// # Errors
    /// As [`Self::write_now`].
    pub async fn write(&self, position: u64, bytes: Bytes) -> io::Result<()> {
        let file = self.log_file()?;
        self.handle.note_write();
        let written = file.write_at(position, bytes.clone()).await;
        // A flush that began meanwhile may not have met it.
        self.handle.note_write();
        let written = written?;
        self.check_written(written, bytes.len())?;
        self.add_to_crc(position, &[&bytes]);
        Ok(())
    }

    /// Makes what was written durable: `.log` alone. Nothing happens where nothing was written since the last time.
    ///
    /// # Errors
    /// Those of the disk; a later success proves nothing for the earlier failure.
    pub async fn sync(&self) -> io::Result<()> {
        if self.handle.is_flushed() {
            return Ok(());
        }
        let file = self.log_file()?;
        self.handle.flush(&file).await
    }

    /// Recovery's walk: everything from `from` on is checked and taken note of again, and the file is cut behind the
    /// last whole batch.
    ///
    /// Shapes: at `from` a batch begins whose base offset is at least `min_offset`, or the file ends there.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn recover(
        &self,
        from: u64,
        min_offset: Offset,
        gaps: Gaps,
        mut on_batch: impl FnMut(&BatchFacts, &[u8]),
    ) -> io::Result<ScanEnd> {
        let file_bytes = self.log_file()?.bytes()?;
        self.forget_from(from, min_offset);
        self.load_indexes().await?;
        let scanner = Scanner::new(file_bytes, from, min_offset).with_gaps(gaps);
        let end = self
            .scan(scanner, |batch, bytes| {
                self.note_batch(batch);
                self.add_to_crc(batch.position, &[bytes]);
                on_batch(batch, bytes);
            })
            .await?;
        if end.position < file_bytes {
            self.cut_file(end.position).await?;
        }
        Ok(end)
    }

    /// Cuts the segment at `position`, where the log now ends at `end`.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn truncate(&self, position: u64, end: Offset) -> io::Result<()> {
        self.forget_from(position, end);
        self.cut_file(position).await
    }

    async fn cut_file(&self, position: u64) -> io::Result<()> {
        let file = self.log_file()?;
        self.handle.note_write();
        let cut = file.truncate(position).await;
        self.handle.note_write();
        cut
    }

    /// Drops handles and, where they are on disk already, indexes; both come back by themselves.
    ///
    /// Not for the segment that is being appended to.
    pub fn close_handles(&self) {
        if self.handle.is_pinned() {
            return;
        }
        self.handle.close();
        self.aborts.borrow_mut().let_go();
        let mut state = self.state.borrow_mut();
        if state.indexes.as_ref().is_some_and(Indexes::is_written) {
            state.indexes = None;
        }
    }

    /// [`Self::close_handles`], unless somebody used the handle since the last call; true when it was closed.
    ///
    /// Called on every closed segment from time to time, it keeps the descriptors of those that are read.
    pub fn close_if_idle(&self) -> bool {
        let idle = !self.handle.take_used() && self.has_handles();
        if idle {
            self.close_handles();
        }
        idle
    }

    /// Opens the file and makes the indexes known, and keeps both: readers go on whatever becomes of the name.
    ///
    /// # Errors
    /// Those of opening and reading.
    pub async fn hold(&self) -> io::Result<()> {
        self.log_file()?;
        self.handle.pin();
        self.load_aborted().await?;
        self.load_indexes().await
    }

    /// The name stays what it is: handles may be given up again.
    pub fn let_go(&self) {
        self.handle.unpin();
    }

    /// True while a descriptor is held.
    #[must_use]
    pub fn has_handles(&self) -> bool {
        self.handle.is_open()
    }

    /// Gives every file of the segment the ending `.deleted`; readers that hold the handle go on.
    ///
    /// # Errors
    /// Those of the disk; it may be called again.
    pub fn mark_deleted(&self) -> io::Result<()> {
        self.mark_deleted_but(None)
    }

    /// The same for all but one kind of files.
    pub(super) fn mark_deleted_but(&self, kept: Option<Kind>) -> io::Result<()> {
        self.log_file()?;
        self.handle.pin();
        // `.log` is the last: as long as it is there, a start knows whose the others are.
        for kind in Kind::ALL.into_iter().rev().filter(|kind| Some(*kind) != kept) {
            let path = self.path(kind);
            match self.disk.rename(&path, &deleted(&path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Where its files are.
    pub(super) fn folder(&self) -> &Rc<Path> {
        &self.folder
    }

    pub(super) fn log_file(&self) -> io::Result<Rc<D::File>> {
        if let Some(file) = self.handle.get() {
            return Ok(file);
        }
        self.check_name()?;
        let file = Rc::new(self.disk.open(&self.path(Kind::Log), Access::Buffered, Create::Never)?);
        self.keep_open(Rc::clone(&file));
        Ok(file)
    }

    fn keep_open(&self, file: Rc<D::File>) {
        self.handle.put(file);
        self.disk.keep(&self.handle);
    }

    fn forget_from(&self, position: u64, end: Offset) {
        let mut state = self.state.borrow_mut();
        state.bytes = position;
        state.end = end;
        state.cursors.clear();
        if position == 0 {
            state.first_timestamp = None;
        }
        let Some(indexes) = &mut state.indexes else { return };
        indexes.truncate(position, end);
        state.newest = state.indexes.as_ref().and_then(Indexes::newest_timestamp);
    }

    pub(super) fn check_written(&self, written: usize, wanted: usize) -> io::Result<()> {
        if written == wanted { Ok(()) } else { Err(short_write(&self.path(Kind::Log), written, wanted)) }
    }

    fn add_to_crc(&self, position: u64, parts: &[&[u8]]) {
        let mut state = self.state.borrow_mut();
        let Some((covered, crc)) = &mut state.crc else { return };
        if *covered != position {
            state.crc = None;
            return;
        }
        for part in parts {
            crc.add(part);
            *covered += part.len() as u64;
        }
    }
}

/// Unlinks what [`Segment::mark_deleted`] has renamed.
///
/// # Errors
/// Those of the disk.
pub async fn remove_deleted<D: Disk>(disk: &D, folder: &Path, base: Offset) -> io::Result<()> {
    for kind in Kind::ALL {
        disk.remove_file(&deleted(&names::path(folder, base, kind))).await?;
    }
    Ok(())
}

fn deleted(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(DELETED);
    PathBuf::from(name)
}
