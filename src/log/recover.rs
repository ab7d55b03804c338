//! Brings one partition back: checkpoint + valid prefix of the segments behind it + commit log (storage.md §6, R6).
//!
//! Guarantees: the log start and the end never go back; a batch that the commit log holds is there afterwards, at its
//! offset; what lies in a segment beyond the commit log is kept as far as it is whole; what is missing below the recovery
//! point is said, and its offsets are not used again. It only shortens segments above the recovery point and appends bytes
//! that are still in live logs, so that a crash in the middle repeats it. What is lost is on disk, by name, before anything
//! goes on behind it ([`losses`]). What lies below the recovery point: `recover/below.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;

mod below;

use super::checkpoint::PartitionEntry;
use super::closed;
use super::crc::crc32c;
use super::log_reader::{Located, RecordReader};
use super::losses::{self, Losses};
use super::names::{self, Kind};
use super::partition_log::{LogRules, PartitionLog};
use super::scan::{BatchFacts, Gaps, Stop};
use super::segment::{Incoming, Known, Segment};
use super::swap;
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
    /// No checkpoint is missing or damaged, and nothing of the commit logs is: `entry` is the newest that there ever was.
    pub is_whole: bool,
    /// How much of the commit log that is.
    pub searched: Searched,
    /// What an earlier start has found to be gone: it is not named again.
    pub losses: Losses,
}

/// How much of the commit log was read before a partition is brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// Nothing: the last stop was in order, and every file should be as it was left.
    Nothing,
    /// What no checkpoint covers.
    Needed,
    /// All that is left of it: what is not in there either is lost.
    All,
}

/// What bringing a partition back came to.
pub enum Outcome<D: Disk> {
    /// It is back.
    Back(Box<Recovered<D>>),
    /// Something is not as it was left, and more of the commit log may help: begin again with that. Nothing was given up.
    WantsMore {
        /// What was found so far.
        notes: Vec<String>,
    },
}

/// Why a step did not come to its end.
enum Stopped {
    WantsMore,
    Failed(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

type Step<T> = Result<T, Stopped>;

/// A partition that is back.
pub struct Recovered<D: Disk> {
    /// The log, all of it readable.
    pub log: PartitionLog<D>,
    /// Sentences about what was found, for the log.
    pub notes: Vec<String>,
    /// Acknowledged offsets that are missing, those that were given among them; on disk already.
    pub losses: Losses,
    /// Batches that were handed out are not in the log after all: begin again, the segments are right now.
    pub must_repeat: bool,
    /// The files were not as a checkpoint says: what was cut and written is not durable yet.
    pub has_changed: bool,
    /// Producer snapshots that belong to no segment, as of which offsets; that of the last clean stop is not among them.
    pub stray_snapshots: Vec<Offset>,
    /// The newest of the others.
    pub newest_snapshot: Option<Offset>,
}

/// A batch behind the recovery point that was in a segment.
#[derive(Clone, Copy)]
struct Seen {
    segment: usize,
    position: u64,
    bytes: u32,
    crc: u32,
    end: Offset,
}

/// Where the walk begins: the recovery point, or the beginning of everything where no checkpoint knows the partition.
#[derive(Clone, Copy, Default)]
struct Point {
    base: Offset,
    position: u64,
    offset: Offset,
}

struct Recovery<'a, D: Disk, F> {
    disk: &'a D,
    given: Given<'a>,
    segments: Vec<Rc<Segment<D>>>,
    start: Offset,
    end: Offset,
    point: Point,
    seen: BTreeMap<Offset, Seen>,
    committed: HashMap<Offset, i64>,
    on_batch: F,
    notes: Vec<String>,
    /// Segments that have a seal.
    sealed: BTreeSet<Offset>,
    /// Segments below the recovery point that are not there.
    missing: BTreeSet<Offset>,
    must_repeat: bool,
    has_changed: bool,
    snapshots: Vec<Offset>,
}

/// Brings a partition back; `on_batch` gets each batch behind the recovery point in order, with its bytes and the time it was
/// committed at (`None` where the commit log does not hold it).
///
/// # Errors
/// Those of the disk; `InvalidData` when the commit log does not hold what it says.
pub async fn recover<D: Disk>(
    disk: &D,
    reader: &mut RecordReader<D>,
    given: Given<'_>,
    on_batch: impl FnMut(&BatchFacts, &[u8], Option<i64>),
) -> io::Result<Outcome<D>> {
    let committed = given.located.iter().map(|located| (located.offset, located.committed_ms)).collect();
    let mut recovery = Recovery {
        disk,
        given,
        segments: Vec::new(),
        start: Offset::default(),
        end: Offset::default(),
        point: Point::default(),
        seen: BTreeMap::new(),
        committed,
        on_batch,
        notes: Vec::new(),
        sealed: BTreeSet::new(),
        missing: BTreeSet::new(),
        must_repeat: false,
        has_changed: false,
        snapshots: Vec::new(),
    };
    let replayed = match recovery.find_segments(reader).await {
        Ok(()) => recovery.replay(reader).await,
        Err(stopped) => Err(stopped),
    };
    match replayed {
        Ok(log) => Ok(Outcome::Back(Box::new(recovery.done(log)))),
        Err(Stopped::WantsMore) => Ok(Outcome::WantsMore { notes: recovery.notes }),
        Err(Stopped::Failed(error)) => Err(error),
    }
}

type Files = Vec<(Offset, u64)>;

impl<D: Disk, F: FnMut(&BatchFacts, &[u8], Option<i64>)> Recovery<'_, D, F> {
    /// Lists the segments, drops those below the log start, and walks what lies behind the recovery point.
    async fn find_segments(&mut self, reader: &mut RecordReader<D>) -> Step<()> {
        self.notes.extend(swap::finish(self.disk, &self.given.folder).await?);
        let (mut files, orphans) = self.list_files().await?;
        self.find_point(&files);
        self.add_missing(&mut files, orphans);
        while self.first_is_deleted(&files) {
            let (base, _) = files.remove(0);
            self.remove_segment(base).await?;
        }
        if self.is_as_checkpointed(&files) {
            return self.adopt_as_checkpointed(&files, reader).await;
        }
        if self.given.searched == Searched::Nothing {
            return Err(Stopped::WantsMore);
        }
        self.has_changed = true;
        self.walk_files(&files, reader).await
    }

    /// The segments, and the bases of those that have lost their `.log`; what an earlier life has renamed for removal, or
    /// has not finished, is unlinked.
    async fn list_files(&mut self) -> io::Result<(Files, BTreeSet<Offset>)> {
        let found = match self.disk.names(&self.given.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let is_left = |name: &str| names::parse_deleted(name).is_some() || names::is_unfinished_snapshot(name);
        for left in found.iter().filter(|name| is_left(name)) {
            self.disk.remove_file(&self.given.folder.join(left)).await?;
        }
        let mut bases = Vec::new();
        for name in &found {
            match names::parse(name) {
                Some((base, Kind::Log)) => bases.push(base),
                Some((as_of, Kind::Snapshot)) => self.snapshots.push(as_of),
                _ => {}
            }
        }
        bases.sort_unstable();
        self.snapshots.sort_unstable();
        self.sealed = closed::sealed(&found);
        // Of all the files only these are asked for their size: there may be a hundred thousand.
        let size = |base| Ok((base, self.disk.file_bytes(&names::path(&self.given.folder, base, Kind::Log))?));
        let files = bases.into_iter().map(size).collect::<io::Result<_>>()?;
        Ok((files, closed::without_log(&found)))
    }

    /// Without a checkpoint everything is walked, from whichever of files and commit log begins first: the name of the
    /// first file may not have reached the disk while that of a later one has.
    fn find_point(&mut self, files: &[(Offset, u64)]) {
        let first_file = files.first().map(|file| file.0);
        let first_located = self.given.located.first().map(|located| located.offset);
        let beginning = first_file.into_iter().chain(first_located).min();
        let known_start = self.given.log_start.into_iter().chain(self.given.entry.map(|entry| entry.log_start)).max();
        self.start = known_start.or(beginning).unwrap_or_default();
        self.point = match self.given.entry {
            Some(entry) => Point { base: entry.segment_base, position: entry.position, offset: entry.recovery_point },
            None => {
                let offset = beginning.unwrap_or(self.start);
                Point { base: offset, position: 0, offset }
            }
        };
        self.end = self.point.offset;
    }

    /// The first file is wholly below the log start, and what a checkpoint says of its producers is known.
    fn first_is_deleted(&self, files: &[(Offset, u64)]) -> bool {
        let Some((next, _)) = files.get(1) else { return false };
        self.given.entry.is_some() && *next <= self.start && *next <= self.point.offset
    }

    /// Notes, durably, that the offsets from `from` to below `to` are nowhere.
    async fn lose(&mut self, from: Offset, to: Offset) -> Step<()> {
        if from >= to || self.given.losses.covers(from, to) {
            return Ok(());
        }
        if self.given.searched != Searched::All {
            return Err(Stopped::WantsMore);
        }
        self.given.losses.add(from, to);
        losses::write(self.disk, &self.given.folder, &self.given.losses).await?;
        self.notes.push(format!(
            "{}: offsets {from} to {} are neither in the segments nor in the commit log; they are not used again",
            self.given.folder.display(),
            Offset(to.0 - 1)
        ));
        Ok(())
    }

    /// True when the files are exactly what the checkpoint says and the commit log has nothing to add.
    fn is_as_checkpointed(&self, files: &[(Offset, u64)]) -> bool {
        let Some(entry) = self.given.entry else { return false };
        let adds_nothing = self.given.located.iter().all(|located| located.offset < entry.recovery_point);
        let same_end = match files.last() {
            Some((base, bytes)) => *base == entry.segment_base && *bytes == entry.position,
            None => entry.position == 0,
        };
        adds_nothing && same_end
    }

    async fn adopt_as_checkpointed(&mut self, files: &[(Offset, u64)], reader: &mut RecordReader<D>) -> Step<()> {
        for (at, (base, bytes)) in files.iter().enumerate() {
            match files.get(at + 1) {
                Some(next) => self.adopt_closed(*base, *bytes, next.0, reader).await?,
                None => self.segments.push(self.existing(*base, *bytes, self.point.offset)),
            }
        }
        match self.segments.last() {
            Some(active) => Ok(active.load_indexes().await?),
            None => Ok(()),
        }
    }

    fn existing(&self, base: Offset, bytes: u64, end: Offset) -> Rc<Segment<D>> {
        let folder = Rc::clone(&self.given.folder);
        let known = Known { bytes, end };
        Rc::new(Segment::existing(self.disk.clone(), folder, base, self.given.rules.index, clock::now_ms(), known))
    }

    async fn walk_files(&mut self, files: &[(Offset, u64)], reader: &mut RecordReader<D>) -> Step<()> {
        for (at, (base, bytes)) in files.iter().enumerate() {
            let next = files.get(at + 1).map(|next| next.0);
            if *base < self.point.base {
                // A later file may have to go: the log goes on at the recovery point then.
                let end = next.map_or(self.point.offset, |next| next.min(self.point.offset));
                self.adopt_closed(*base, *bytes, end, reader).await?;
            } else if *base == self.point.base && *bytes < self.point.position {
                self.mend(*base, self.point.offset, reader).await?;
            } else if *base == self.point.base {
                self.walk_file(*base, *bytes, self.point.position).await?;
            } else {
                self.walk_later(*base, *bytes, reader).await?;
            }
        }
        Ok(self.begin_behind_unwalked()?)
    }

    /// Nothing is appended to a file that was not walked, or that has a hole below the recovery point: the next start would
    /// not see that it is there already.
    fn begin_behind_unwalked(&mut self) -> io::Result<()> {
        let point = self.point;
        let is_unwalked = |last: &Segment<D>| {
            last.base() < point.base || (last.base() == point.base && last.bytes() < point.position)
        };
        let Some(last) = self.segments.last().filter(|last| is_unwalked(last)) else { return Ok(()) };
        let begun = self.make(self.end.max(last.end()))?;
        self.segments.push(begun);
        Ok(())
    }

    /// A file that was begun behind the recovery point.
    async fn walk_later(&mut self, base: Offset, bytes: u64, reader: &mut RecordReader<D>) -> Step<()> {
        if base > self.end && base <= self.start {
            self.pass_deleted(base, reader).await?;
        }
        if base == self.end {
            return Ok(self.walk_file(base, bytes, 0).await?);
        }
        if base < self.end || base < self.point.offset {
            return Ok(self.set_aside(base).await?);
        }
        // The valid prefix ended before this file. What was acknowledged of it is in the commit log: surely if the newest
        // checkpoint says from where on, and otherwise if the commit log begins before this file.
        let goes_on = self.given.located.first().is_some_and(|located| located.offset < base);
        if goes_on || (self.given.entry.is_some() && self.given.is_whole) {
            return Ok(self.remove_segment(base).await?);
        }
        if self.given.is_whole {
            // Pages may reach the disk in any order: of what was never promised a later file may be there, an earlier one not.
            return Ok(self.set_aside(base).await?);
        }
        if self.given.entry.is_some() && self.segments.is_empty() {
            return self.begin_behind_unknown_start(base, bytes).await;
        }
        self.lose(self.end, base).await?;
        self.end = base;
        Ok(self.walk_file(base, bytes, 0).await?)
    }

    /// A newer checkpoint than ours is destroyed, and nothing is left of what lies before the first file: the log start had
    /// moved there, and only that checkpoint knew.
    async fn begin_behind_unknown_start(&mut self, base: Offset, bytes: u64) -> Step<()> {
        if self.given.searched != Searched::All {
            return Err(Stopped::WantsMore);
        }
        self.notes.push(format!(
            "{}: a destroyed checkpoint knew where the log begins; nothing is left below {base}, it begins there",
            self.given.folder.display()
        ));
        (self.start, self.end) = (self.start.max(base), base);
        Ok(self.walk_file(base, bytes, 0).await?)
    }

    /// The segments up to `to` are gone because the log start moved above them; their producers are remembered all the same.
    async fn pass_deleted(&mut self, to: Offset, reader: &mut RecordReader<D>) -> io::Result<()> {
        for one in self.given.located {
            if one.offset >= self.end.max(self.point.offset) && one.offset < to {
                let (facts, bytes) = self.read(one, reader).await?;
                self.end = facts.next_offset();
                (self.on_batch)(&facts, &bytes, Some(one.committed_ms));
            }
        }
        self.end = to;
        Ok(())
    }

    /// Checks one segment from `from` on and cuts it behind the last whole batch.
    async fn walk_file(&mut self, base: Offset, bytes: u64, from: u64) -> io::Result<()> {
        let at = self.segments.len();
        let segment = self.existing(base, from, self.end);
        let (seen, committed, on_batch) = (&mut self.seen, &self.committed, &mut self.on_batch);
        // Behind the newest recovery point every batch begins where the one before it ended; below it may be compacted.
        let is_dense = self.given.entry.is_some() && self.given.is_whole;
        let gaps = if is_dense { Gaps::Refused } else { Gaps::Allowed };
        let end = segment
            .recover(from, self.end, gaps, |batch, content| {
                let (crc, end) = (crc32c(content), batch.next_offset());
                seen.insert(
                    batch.base_offset,
                    Seen { segment: at, position: batch.position, bytes: batch.bytes, crc, end },
                );
                on_batch(batch, content, committed.get(&batch.base_offset).copied());
            })
            .await?;
        if self.sealed.contains(&base) {
            self.remove_seal(base).await?;
        }
        self.end = end.next_offset;
        if let Some(stop) = end.stop.filter(|stop| *stop != Stop::Zeros) {
            let path = segment.path(Kind::Log);
            let cut = bytes - end.position;
            self.notes.push(format!("{}: {stop} at byte {}, {cut} bytes were cut off", path.display(), end.position));
        }
        self.segments.push(segment);
        Ok(())
    }

    async fn remove_segment(&mut self, base: Offset) -> io::Result<()> {
        // `.log` is the last: as long as it is there, the next start finds the others too.
        for kind in Kind::ALL.into_iter().rev() {
            self.disk.remove_file(&names::path(&self.given.folder, base, kind)).await?;
        }
        Ok(())
    }

    /// A file that contradicts what is known is kept under another name (storage rule S12).
    async fn set_aside(&mut self, base: Offset) -> io::Result<()> {
        let path = names::path(&self.given.folder, base, Kind::Log);
        let kept = path.with_extension(format!("unexpected-{}", clock::now_ms()));
        self.disk.rename(&path, &kept)?;
        self.notes.push(format!(
            "{}: does not fit the log around it, it is kept as {}",
            path.display(),
            kept.display()
        ));
        self.remove_segment(base).await
    }

    /// Appends what the commit log holds and the segments do not.
    async fn replay(&mut self, reader: &mut RecordReader<D>) -> Step<PartitionLog<D>> {
        let located = self.given.located;
        let mut compared = Offset(-1);
        for one in located {
            // Of two with one offset the first counts, as it does when they are appended.
            if one.offset > compared && one.offset >= self.point.offset && one.offset < self.end {
                compared = one.offset;
                self.compare(one, reader).await?;
            }
        }
        self.start_behind_gap().await?;
        let segments = std::mem::take(&mut self.segments);
        let folder = Rc::clone(&self.given.folder);
        let (start, end) = (self.start, self.end);
        let mut log = PartitionLog::recovered(self.disk.clone(), folder, self.given.rules, segments, start, end);
        for one in located.iter().filter(|one| one.offset >= end) {
            self.append(&mut log, one, reader).await?;
        }
        log.write_some(usize::MAX)?;
        self.end_behind_gap(&mut log).await?;
        let end = log.end();
        log.make_visible(end);
        Ok(log)
    }

    fn done(self, log: PartitionLog<D>) -> Recovered<D> {
        let (stray_snapshots, kept): (Vec<_>, Vec<_>) = {
            let is_stray = strays_of(&self.snapshots, &log);
            self.snapshots.iter().copied().partition(is_stray)
        };
        Recovered {
            log,
            notes: self.notes,
            losses: self.given.losses,
            must_repeat: self.must_repeat,
            has_changed: self.has_changed,
            stray_snapshots,
            newest_snapshot: kept.into_iter().max(),
        }
    }

    /// Where the commit log begins behind the end and no segment is left, the log begins there too.
    async fn start_behind_gap(&mut self) -> Step<()> {
        let next = self.given.located.iter().find(|one| one.offset >= self.end);
        let Some(next) = next.filter(|_| self.segments.is_empty()) else { return Ok(()) };
        let end = self.end.max(self.start);
        if next.offset > end {
            self.lose(end, next.offset).await?;
            (self.start, self.end) = (next.offset, next.offset);
        }
        Ok(())
    }

    /// Neither the recovery point nor the log start may be above the end.
    async fn end_behind_gap(&mut self, log: &mut PartitionLog<D>) -> Step<()> {
        self.lose(log.end().max(self.start), self.point.offset).await?;
        log.skip_to(self.point.offset.max(self.start));
        Ok(())
    }

    /// A batch that both have must be the same in both; if not, the commit log's was acknowledged (storage rule S9).
    async fn compare(&mut self, one: &Located, reader: &mut RecordReader<D>) -> io::Result<()> {
        let Some((base, seen)) = self.seen_at(one.offset) else { return Ok(()) };
        if base == one.offset && seen.crc == one.data_crc && seen.bytes == one.data_bytes {
            return Ok(());
        }
        // Read first, so that a log that cannot be read stops the start before anything is cut.
        reader.read(one).await?;
        let segment = Rc::clone(&self.segments[seen.segment]);
        let kept = self.keep_aside(&segment, seen.position).await?;
        self.notes.push(format!(
            "{}: the batch at offset {} is not the one that was acknowledged; the segment from byte {} on is kept in {}",
            segment.path(Kind::Log).display(),
            one.offset,
            seen.position,
            kept.display()
        ));
        for later in self.segments.drain(seen.segment + 1..).collect::<Vec<_>>() {
            self.keep_aside(&later, 0).await?;
            self.remove_segment(later.base()).await?;
        }
        self.cut(&segment, seen.position, base.min(one.offset)).await
    }

    /// The batch of the segments that holds `offset`, or the one behind the gap that it is in; `None` below the log start
    /// where nothing needs to be.
    fn seen_at(&self, offset: Offset) -> Option<(Offset, Seen)> {
        let before = self.seen.range(..=offset).next_back().filter(|(_, seen)| seen.end > offset);
        let found = before.or_else(|| self.seen.range(offset..).next().filter(|_| offset >= self.start));
        found.map(|(base, seen)| (*base, *seen))
    }

    async fn cut(&mut self, segment: &Segment<D>, position: u64, end: Offset) -> io::Result<()> {
        let end = end.max(segment.base());
        segment.truncate(position, end).await?;
        self.seen.retain(|offset, _| *offset < end);
        self.must_repeat = true;
        self.end = end;
        Ok(())
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

    async fn append(&mut self, log: &mut PartitionLog<D>, one: &Located, reader: &mut RecordReader<D>) -> Step<()> {
        if one.offset < log.end() {
            // Written twice: a start that did not come to its end had replayed it.
            return Ok(());
        }
        let (facts, bytes) = self.read(one, reader).await?;
        if facts.next_offset() <= self.start && log.active().is_none() {
            // Deleted, and its segment is gone already; its producer is remembered all the same.
            self.tell(&facts, &bytes, one);
            log.skip_to(facts.next_offset());
            return Ok(());
        }
        self.lose(log.end().max(self.start), facts.base_offset).await?;
        let incoming =
            Incoming { bytes: bytes.len() as u64, last_offset: facts.last_offset, max_timestamp: facts.max_timestamp };
        log.prepare_at(&incoming, facts.base_offset, one.committed_ms)?;
        log.stage(StoredBatch::whole(&bytes));
        self.tell(&facts, &bytes, one);
        if log.unwritten_bytes() >= REPLAY_WRITE_BYTES {
            log.write_some(usize::MAX)?;
            let end = log.end();
            log.make_visible(end);
        }
        Ok(())
    }

    /// What lies below the recovery point is in the checkpoint already.
    fn tell(&mut self, facts: &BatchFacts, bytes: &[u8], one: &Located) {
        if facts.base_offset >= self.point.offset {
            (self.on_batch)(facts, bytes, Some(one.committed_ms));
        }
    }

    async fn read(&self, one: &Located, reader: &mut RecordReader<D>) -> io::Result<(BatchFacts, Bytes)> {
        let bytes: Bytes = reader.read(one).await?;
        let facts = BatchFacts::read(&bytes, 0);
        let facts = facts.filter(|facts| facts.base_offset == one.offset && facts.bytes as usize == bytes.len());
        Ok((facts.ok_or_else(|| self.no_batch(one))?, bytes))
    }

    fn no_batch(&self, one: &Located) -> io::Error {
        let folder = self.given.folder.display();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{folder}: the commit log holds no batch for offset {}", one.offset),
        )
    }
}

/// All but those of a segment's base, and the newest one behind the last base: that of a clean stop.
///
/// Source: apache/kafka `ProducerStateManager.removeStraySnapshots`.
fn strays_of<D: Disk>(snapshots: &[Offset], log: &PartitionLog<D>) -> impl Fn(&Offset) -> bool {
    let is_base = |as_of: &Offset| log.segments().binary_search_by_key(as_of, |segment| segment.base()).is_ok();
    let last_base = log.active().map(|active| active.base());
    let of_stop = |as_of: &&Offset| last_base.is_none_or(|last| **as_of > last) && **as_of <= log.end();
    let newest = snapshots.iter().filter(of_stop).max().copied();
    move |as_of| !is_base(as_of) && Some(*as_of) != newest
}
