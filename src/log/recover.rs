//! Brings one partition back: checkpoint + valid prefix of the segments behind it + commit log (storage.md §6, R6).
//!
//! Guarantees: the log start and the end never go back; a batch that the commit log holds is there afterwards, at its
//! offset; what lies in a segment beyond the commit log is kept as far as it is whole. It only shortens segments above the
//! recovery point and appends bytes that are still in live logs, so that a crash in the middle repeats it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;

use super::checkpoint::PartitionEntry;
use super::crc::crc32c;
use super::log_reader::{Located, RecordReader};
use super::names::{self, Kind};
use super::partition_log::{LogRules, PartitionLog};
use super::scan::{BatchFacts, Stop};
use super::segment::{Incoming, Known, Segment};
use crate::ids::Offset;
use crate::runtime::clock;
use crate::runtime::disk::{Access, Create, Disk, DiskFile};
use crate::wire::stored::StoredBatch;

/// Batches handed to the kernel at once while the log is replayed, in bytes.
const REPLAY_WRITE_BYTES: usize = 1 << 20;

/// What is known of a partition before its files are looked at.
pub struct Given<'a> {
    /// Its folder.
    pub folder: Rc<Path>,
    /// Rules of its segments.
    pub rules: LogRules,
    /// Its newest entry in a checkpoint.
    pub entry: Option<&'a PartitionEntry>,
    /// Its batches in the commit log, in the order in which they were written.
    pub located: &'a [Located],
    /// Its newest log start in the commit log.
    pub log_start: Option<Offset>,
}

/// A partition that is back.
pub struct Recovered<D: Disk> {
    /// The log, all of it readable.
    pub log: PartitionLog<D>,
    /// Sentences about what was found, for the log.
    pub notes: Vec<String>,
    /// Acknowledged records are missing: nothing may be written before somebody has accepted that.
    pub has_lost: bool,
    /// Batches that were handed out are not in the log after all: begin again, the segments are right now.
    pub must_repeat: bool,
}

/// A batch behind the recovery point that was in a segment.
#[derive(Clone, Copy)]
struct Seen {
    segment: usize,
    position: u64,
    bytes: u32,
    crc: u32,
}

struct Recovery<'a, D: Disk, F> {
    disk: &'a D,
    given: Given<'a>,
    segments: Vec<Rc<Segment<D>>>,
    start: Offset,
    end: Offset,
    recovery_point: Offset,
    seen: HashMap<Offset, Seen>,
    committed: HashMap<Offset, i64>,
    on_batch: F,
    notes: Vec<String>,
    has_lost: bool,
    must_repeat: bool,
}

/// Brings a partition back; `on_batch` gets each batch behind the recovery point in order, with the time it was committed
/// at (`None` where the commit log does not hold it).
///
/// # Errors
/// Those of the disk.
pub async fn recover<D: Disk>(
    disk: &D,
    reader: &mut RecordReader<D>,
    given: Given<'_>,
    on_batch: impl FnMut(&BatchFacts, Option<i64>),
) -> io::Result<Recovered<D>> {
    let start = given.log_start.into_iter().chain(given.entry.map(|entry| entry.log_start)).max();
    let recovery_point = given.entry.map_or(Offset(0), |entry| entry.recovery_point);
    let committed = given.located.iter().map(|located| (located.offset, located.committed_ms)).collect();
    let mut recovery = Recovery {
        disk,
        given,
        segments: Vec::new(),
        start: start.unwrap_or_default(),
        end: recovery_point,
        recovery_point,
        seen: HashMap::new(),
        committed,
        on_batch,
        notes: Vec::new(),
        has_lost: false,
        must_repeat: false,
    };
    recovery.find_segments(start.is_none()).await?;
    recovery.replay(reader).await
}

impl<D: Disk, F: FnMut(&BatchFacts, Option<i64>)> Recovery<'_, D, F> {
    /// Lists the segments, drops those below the log start, and walks what lies behind the recovery point.
    async fn find_segments(&mut self, start_is_unknown: bool) -> io::Result<()> {
        let mut files = self.list_files()?;
        if start_is_unknown && let Some((first, _)) = files.first() {
            self.start = *first;
        }
        if self.given.entry.is_none() {
            self.recovery_point = files.first().map_or(self.start, |(first, _)| *first).max(self.start);
            self.end = self.recovery_point;
        }
        while files.len() > 1 && files[1].0 <= self.start && files[1].0 <= self.recovery_point {
            let (base, _) = files.remove(0);
            self.remove_segment(base).await?;
        }
        if self.is_as_checkpointed(&files) {
            return self.adopt_as_checkpointed(&files).await;
        }
        self.walk_files(&files).await
    }

    fn list_files(&self) -> io::Result<Vec<(Offset, u64)>> {
        let entries = match self.disk.list(&self.given.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let is_log = |entry: &crate::runtime::disk::Entry| match names::parse(&entry.name) {
            Some((base, Kind::Log)) => Some((base, entry.bytes)),
            _ => None,
        };
        Ok(entries.iter().filter_map(is_log).collect())
    }

    /// True when the files are exactly what the checkpoint says and the commit log has nothing to add.
    fn is_as_checkpointed(&self, files: &[(Offset, u64)]) -> bool {
        let Some(entry) = self.given.entry else { return false };
        let adds_nothing = self.given.located.iter().all(|located| located.offset < entry.recovery_point);
        let same_end = match files.last() {
            Some((base, bytes)) => *base == entry.segment_base && *bytes == entry.position,
            None => entry.position == 0 && entry.recovery_point == self.start,
        };
        adds_nothing && same_end
    }

    async fn adopt_as_checkpointed(&mut self, files: &[(Offset, u64)]) -> io::Result<()> {
        for (at, (base, bytes)) in files.iter().enumerate() {
            let end = files.get(at + 1).map_or(self.recovery_point, |next| next.0);
            self.segments.push(self.existing(*base, *bytes, end));
        }
        match self.segments.last() {
            Some(active) => active.load_indexes().await,
            None => Ok(()),
        }
    }

    fn existing(&self, base: Offset, bytes: u64, end: Offset) -> Rc<Segment<D>> {
        let folder = Rc::clone(&self.given.folder);
        let known = Known { bytes, end };
        Rc::new(Segment::existing(self.disk.clone(), folder, base, self.given.rules.index, clock::now_ms(), known))
    }

    async fn walk_files(&mut self, files: &[(Offset, u64)]) -> io::Result<()> {
        let (point_base, point_position) = match self.given.entry {
            Some(entry) => (entry.segment_base, entry.position),
            None => (self.recovery_point, 0),
        };
        for (at, (base, bytes)) in files.iter().enumerate() {
            let next = files.get(at + 1).map(|next| next.0);
            if *base < point_base {
                self.segments.push(self.existing(*base, *bytes, next.unwrap_or(self.recovery_point)));
                continue;
            }
            let from = if *base == point_base { point_position } else { 0 };
            // The valid prefix ended in an earlier segment: the commit log holds what was here.
            let goes_on = *base == point_base || *base == self.end || self.segments.is_empty();
            if !goes_on || (*base > point_base && *base < self.recovery_point) {
                self.remove_segment(*base).await?;
                continue;
            }
            self.walk_file(*base, *bytes, from).await?;
        }
        Ok(())
    }

    /// Checks one segment from `from` on and cuts it behind the last whole batch.
    async fn walk_file(&mut self, base: Offset, bytes: u64, from: u64) -> io::Result<()> {
        if bytes < from {
            return self.keep_damaged(base, bytes, from).await;
        }
        let at = self.segments.len();
        let segment = self.existing(base, from, self.end.max(base));
        self.end = self.end.max(base);
        let (seen, committed, on_batch) = (&mut self.seen, &self.committed, &mut self.on_batch);
        let end = segment
            .recover(from, self.end, |batch, content| {
                let crc = crc32c(content);
                seen.insert(batch.base_offset, Seen { segment: at, position: batch.position, bytes: batch.bytes, crc });
                on_batch(batch, committed.get(&batch.base_offset).copied());
            })
            .await?;
        self.end = self.end.max(end.next_offset);
        if let Some(stop) = end.stop.filter(|stop| *stop != Stop::Zeros) {
            let path = segment.path(Kind::Log);
            let cut = bytes - end.position;
            self.notes.push(format!("{}: {stop} at byte {}, {cut} bytes were cut off", path.display(), end.position));
        }
        self.segments.push(segment);
        Ok(())
    }

    /// The file ends below what the checkpoint promises: what is whole is kept, the rest is named, offsets are not used again.
    async fn keep_damaged(&mut self, base: Offset, bytes: u64, promised: u64) -> io::Result<()> {
        let segment = self.existing(base, 0, base);
        let end = segment.recover(0, base, |_, _| {}).await?;
        let is_lost = end.next_offset < self.recovery_point;
        let path = segment.path(Kind::Log);
        self.segments.push(segment);
        if is_lost {
            self.has_lost = true;
            self.notes.push(format!(
                "{}: {bytes} bytes are there, {promised} were flushed: offsets {} to {} are lost",
                path.display(),
                end.next_offset,
                Offset(self.recovery_point.0 - 1)
            ));
        }
        Ok(())
    }

    async fn remove_segment(&mut self, base: Offset) -> io::Result<()> {
        for kind in Kind::ALL {
            self.disk.remove_file(&names::path(&self.given.folder, base, kind)).await?;
        }
        Ok(())
    }

    /// Appends what the commit log holds and the segments do not.
    async fn replay(mut self, reader: &mut RecordReader<D>) -> io::Result<Recovered<D>> {
        let located: Vec<_> = self.given.located.to_vec();
        for one in &located {
            if one.offset < self.recovery_point || one.offset < self.start || one.offset >= self.end {
                continue;
            }
            self.compare(one, reader).await?;
        }
        let (start, end) = (self.start, self.end);
        let segments = std::mem::take(&mut self.segments);
        let folder = Rc::clone(&self.given.folder);
        let mut log = PartitionLog::recovered(self.disk.clone(), folder, self.given.rules, segments, start, end);
        for one in located.iter().filter(|one| one.offset >= end && one.offset >= start) {
            self.append(&mut log, one, reader).await?;
        }
        log.write_some(usize::MAX)?;
        let end = log.end();
        log.make_visible(end);
        Ok(Recovered { log, notes: self.notes, has_lost: self.has_lost, must_repeat: self.must_repeat })
    }

    /// A batch that both have must be the same in both; if not, the commit log's was acknowledged (storage rule S9).
    async fn compare(&mut self, one: &Located, reader: &mut RecordReader<D>) -> io::Result<()> {
        let seen = self.seen.get(&one.offset).copied();
        if seen.is_some_and(|seen| seen.crc == one.data_crc && seen.bytes == one.data_bytes) {
            return Ok(());
        }
        let Some(seen) = seen else { return Ok(()) };
        let segment = Rc::clone(&self.segments[seen.segment]);
        let kept = self.keep_aside(&segment, seen.position).await?;
        self.notes.push(format!(
            "{}: the batch at offset {} is not the one that was acknowledged; the segment from byte {} on is kept in {}",
            segment.path(Kind::Log).display(),
            one.offset,
            seen.position,
            kept.display()
        ));
        segment.truncate(seen.position, one.offset).await?;
        for later in self.segments.drain(seen.segment + 1..).collect::<Vec<_>>() {
            self.keep_aside(&later, 0).await?;
            self.remove_segment(later.base()).await?;
        }
        self.must_repeat = true;
        self.end = one.offset;
        self.seen.retain(|offset, _| *offset < one.offset);
        // Read now, so that a log that cannot be read stops the start before anything else is cut.
        reader.read(one).await.map(|_| ())
    }

    async fn keep_aside(&self, segment: &Segment<D>, from: u64) -> io::Result<PathBuf> {
        let path = segment.path(Kind::Log);
        let file = self.disk.open(&path, Access::Buffered, Create::Never)?;
        let bytes = usize::try_from(file.bytes()?.saturating_sub(from)).unwrap_or(0);
        let content = file.read_at(from, bytes).await?;
        let kept = path.with_extension(format!("unequal-{from}-{}", clock::now_ms()));
        self.disk.write_file_atomically(&kept, content).await?;
        Ok(kept)
    }

    async fn append(
        &mut self,
        log: &mut PartitionLog<D>,
        one: &Located,
        reader: &mut RecordReader<D>,
    ) -> io::Result<()> {
        if one.offset < log.end() {
            // Written twice: a start that did not come to its end had replayed it.
            return Ok(());
        }
        let bytes: Bytes = reader.read(one).await?;
        let Some(facts) = BatchFacts::read(&bytes, 0) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: the commit log holds no batch for offset {}", self.given.folder.display(), one.offset),
            ));
        };
        if one.offset > log.end() {
            self.has_lost = true;
            self.notes.push(format!(
                "{}: offsets {} to {} are neither in the segments nor in the commit log",
                self.given.folder.display(),
                log.end(),
                Offset(one.offset.0 - 1)
            ));
        }
        let incoming =
            Incoming { bytes: bytes.len() as u64, last_offset: facts.last_offset, max_timestamp: facts.max_timestamp };
        log.prepare_at(&incoming, facts.base_offset, one.committed_ms)?;
        log.stage(StoredBatch::whole(&bytes));
        (self.on_batch)(&facts, Some(one.committed_ms));
        if log.unwritten_bytes() >= REPLAY_WRITE_BYTES {
            log.write_some(usize::MAX)?;
            let end = log.end();
            log.make_visible(end);
        }
        Ok(())
    }
}
