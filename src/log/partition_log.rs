//! The log of one partition: its segments in order, and how far what was staged has come.
//!
//! ```text
//!  log start        high watermark     written end        end (staged)
//!      │── readable ──────│── in the kernel ──│── to be written ──│
//! ```
//! Guarantees: a staged batch keeps its place and its bytes until it is below the high watermark (storage rule S16);
//! bytes reach a segment in order; nothing here waits for another partition.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::index::IndexRules;
use super::scan::BatchFacts;
use super::segment::{Incoming, RollRules, Segment};
use super::txn_index::AbortedTxn;
use crate::config::TopicSettings;
use crate::ids::Offset;
use crate::runtime::disk::Disk;
use crate::runtime::host;
use crate::wire::stored::StoredBatch;

/// Parts handed to the kernel in one call; the kernel's own limit is 1024.
const PARTS_MAX: usize = 512;

/// What the topic's configuration says about segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRules {
    /// When a segment is closed.
    pub roll: RollRules,
    /// When an index entry is made.
    pub index: IndexRules,
    /// Upper bound of what is drawn for `roll.jitter_ms` at each roll.
    pub jitter_ms_max: i64,
}

impl LogRules {
    /// The rules of a topic.
    #[must_use]
    pub fn of(settings: &TopicSettings) -> Self {
        Self {
            roll: RollRules {
                segment_bytes: settings.segment_bytes,
                segment_ms: settings.segment_ms,
                jitter_ms: draw_jitter(settings.segment_jitter_ms),
            },
            index: IndexRules {
                interval_bytes: settings.index_interval_bytes,
                index_bytes_max: settings.segment_index_bytes,
            },
            jitter_ms_max: settings.segment_jitter_ms,
        }
    }
}

fn draw_jitter(max_ms: i64) -> i64 {
    match u64::try_from(max_ms) {
        Ok(max) if max > 0 => i64::try_from(host::random() % max).unwrap_or(0),
        _ => 0,
    }
}

/// A batch that has its place and is not below the high watermark yet.
struct Staged<D: Disk> {
    segment: Rc<Segment<D>>,
    position: u64,
    batch: StoredBatch,
    end: Offset,
}

/// Where a reader of the files must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Visible {
    /// Base offset of the segment that holds the high watermark.
    base: Offset,
    /// Position of the high watermark in it.
    position: u64,
}

/// Folders whose entries are not durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedNames {
    /// That of the partition.
    pub folder: bool,
    /// The one it is in: the partition's may have been made with its first segment.
    pub parent: bool,
}

/// One segment and how much of it a reader may see.
pub struct Readable<D: Disk> {
    /// The segment.
    pub segment: Rc<Segment<D>>,
    /// End of what may be read, a batch boundary.
    pub upper: u64,
}

/// See the module.
pub struct PartitionLog<D: Disk> {
    disk: D,
    folder: Rc<Path>,
    rules: LogRules,
    /// Ascending, never empty once something was appended or found.
    segments: Vec<Rc<Segment<D>>>,
    staged: VecDeque<Staged<D>>,
    /// How many of `staged` are in the kernel.
    written: usize,
    /// Bytes of the others.
    unwritten_bytes: usize,
    visible: Visible,
    start: Offset,
    end: Offset,
    /// Names in the folder that are not durable yet.
    folder_changed: bool,
    /// The folder itself may have been made with its first segment.
    folder_made: bool,
}

impl<D: Disk> PartitionLog<D> {
    /// A log without any segment yet; the first is made by the first append.
    #[must_use]
    pub fn empty(disk: D, folder: PathBuf, rules: LogRules, at: Offset) -> Self {
        Self::recovered(disk, folder.into(), rules, Vec::new(), at, at)
    }

    /// A log as recovery found it: everything in `segments` is whole and visible.
    #[must_use]
    pub fn recovered(
        disk: D,
        folder: Rc<Path>,
        rules: LogRules,
        segments: Vec<Rc<Segment<D>>>,
        start: Offset,
        end: Offset,
    ) -> Self {
        let visible = segments
            .last()
            .map_or(Visible { base: end, position: 0 }, |last| Visible { base: last.base(), position: last.bytes() });
        Self {
            disk,
            folder,
            rules,
            segments,
            staged: VecDeque::new(),
            written: 0,
            unwritten_bytes: 0,
            visible,
            start,
            end,
            folder_changed: false,
            folder_made: false,
        }
    }

    /// Where its files are.
    #[must_use]
    pub fn folder(&self) -> &Rc<Path> {
        &self.folder
    }

    /// Takes new settings of the topic.
    pub fn set_rules(&mut self, rules: LogRules) {
        self.rules = rules;
    }

    /// Smallest offset that a client may read.
    #[must_use]
    pub fn start(&self) -> Offset {
        self.start
    }

    /// Offset that the next record gets.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Offset up to which everything is in the kernel.
    #[must_use]
    pub fn written_end(&self) -> Offset {
        match self.written.checked_sub(1) {
            Some(last) => self.staged[last].end,
            None => self.staged.front().map_or(self.end, |first| Offset(first.batch.base_offset().0)),
        }
    }

    /// All segments, oldest first.
    #[must_use]
    pub fn segments(&self) -> &[Rc<Segment<D>>] {
        &self.segments
    }

    /// The segment that is appended to.
    #[must_use]
    pub fn active(&self) -> Option<&Rc<Segment<D>>> {
        self.segments.last()
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes()).sum()
    }

    /// Makes sure that a segment can take the batch: begins a new one when it is time, and says whether it stands behind
    /// another one. The only step of an append that can fail.
    ///
    /// # Errors
    /// Those of making a file; nothing has changed then.
    pub fn prepare(&mut self, incoming: &Incoming, now_ms: i64) -> io::Result<bool> {
        self.prepare_at(incoming, self.end, now_ms)
    }

    /// The same for a batch whose offset is given (recovery), at or behind the end.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn prepare_at(&mut self, incoming: &Incoming, base: Offset, now_ms: i64) -> io::Result<bool> {
        let fits = self.active().is_some_and(|active| !active.should_roll(&self.rules.roll, incoming, now_ms));
        if fits {
            return Ok(false);
        }
        self.begin_segment(base, now_ms)?;
        Ok(self.segments.len() > 1)
    }

    fn begin_segment(&mut self, base: Offset, now_ms: i64) -> io::Result<()> {
        if self.segments.is_empty() {
            self.disk.create_dir_all(&self.folder)?;
            self.folder_made = true;
        }
        let segment = Segment::create(self.disk.clone(), Rc::clone(&self.folder), base, self.rules.index, now_ms)?;
        self.rules.roll.jitter_ms = draw_jitter(self.rules.jitter_ms_max);
        self.segments.push(Rc::new(segment));
        self.folder_changed = true;
        Ok(())
    }

    /// Gives the batch its place behind everything staged so far; [`Self::prepare`] came before, without an await between.
    ///
    /// # Panics
    /// When there is no segment, or the batch does not begin at or behind the end.
    pub fn stage(&mut self, batch: StoredBatch) {
        let Some(segment) = self.segments.last() else { panic!("{}: staged without a segment", self.folder.display()) };
        let segment = Rc::clone(segment);
        let position = segment.bytes();
        let Some(facts) = BatchFacts::read(&batch.header(), position) else {
            panic!("{}: a checked batch has a bad header: {:02x?}", self.folder.display(), batch.header())
        };
        assert!(facts.base_offset >= self.end, "offset went back: {} < {}", facts.base_offset, self.end);
        segment.note_batch(&facts);
        self.end = facts.next_offset();
        self.unwritten_bytes += batch.len();
        self.staged.push_back(Staged { segment, position, batch, end: self.end });
    }

    /// A marker that was just staged has ended an aborted transaction.
    pub fn note_aborted(&self, txn: AbortedTxn) {
        if let Some(active) = self.active() {
            active.note_aborted(txn);
        }
    }

    /// The segments from the one that holds `offset` on, oldest first.
    pub fn segments_from(&self, offset: Offset) -> &[Rc<Segment<D>>] {
        let behind = self.segments.partition_point(|segment| segment.base() <= offset);
        &self.segments[behind.saturating_sub(1)..]
    }

    /// Bytes that are staged and not in the kernel.
    #[must_use]
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    /// True when everything staged is in the kernel.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.written == self.staged.len()
    }

    /// Offsets below `end` are not given out any more: what had them was deleted or lost (storage rule S7).
    pub fn skip_to(&mut self, end: Offset) {
        self.end = self.end.max(end);
    }

    /// Begins a segment at the end if all records lie below `start` and the active segment has any; true if it did.
    ///
    /// # Errors
    /// Those of making a file; nothing has changed then.
    pub fn roll_behind(&mut self, start: Offset, now_ms: i64) -> io::Result<bool> {
        let has_records = self.active().is_some_and(|active| active.bytes() > 0);
        if start < self.end || !has_records {
            return Ok(false);
        }
        self.begin_segment(self.end, now_ms)?;
        Ok(true)
    }

    /// Clients may not read below `start` any more; it never moves back.
    pub fn move_start(&mut self, start: Offset) {
        assert!(start <= self.end, "{}: log start {start} above the end {}", self.folder.display(), self.end);
        self.start = self.start.max(start);
    }

    /// True when the first segment holds nothing that a client may read, and is not the active one.
    #[must_use]
    pub fn has_segment_below_start(&self) -> bool {
        self.segments.get(1).is_some_and(|next| next.base() <= self.start)
    }

    /// Renames the files of the first segment for removal if it lies wholly below the log start; gives its base offset.
    ///
    /// # Errors
    /// Those of the renames; the segment stays in the list then.
    pub fn retire_first(&mut self) -> io::Result<Option<Offset>> {
        if !self.has_segment_below_start() {
            return Ok(None);
        }
        self.segments[0].mark_deleted()?;
        self.folder_changed = true;
        Ok(Some(self.segments.remove(0).base()))
    }

    /// Where these segments stand in the list, if they still do, one behind the other and below the active one.
    #[must_use]
    pub fn place_of(&self, group: &[Rc<Segment<D>>]) -> Option<usize> {
        let first = group.first()?;
        let at = self.segments.iter().position(|segment| Rc::ptr_eq(segment, first))?;
        let there = self.segments.get(at..at + group.len())?;
        let is_same = there.iter().zip(group).all(|(one, other)| Rc::ptr_eq(one, other));
        (is_same && at + group.len() < self.segments.len()).then_some(at)
    }

    /// A compacted segment takes the place of those that it was made of.
    ///
    /// Shapes: all that is replaced is below the high watermark; `at` is from [`Self::place_of`], without an await between.
    pub fn replace(&mut self, at: usize, count: usize, compacted: Rc<Segment<D>>) {
        self.segments.splice(at..at + count, [compacted]);
        // The position of the high watermark was one in a file that is not read any more.
        let next = self.segments[at + 1].base();
        if self.visible.base < next {
            self.visible = Visible { base: next, position: 0 };
        }
    }

    /// Hands staged batches to the kernel, in order, inline; about `bytes_max` of them. Returns the new written end.
    ///
    /// # Errors
    /// Those of the write; the batches stay staged and the next call tries them again.
    pub fn write_some(&mut self, bytes_max: usize) -> io::Result<Offset> {
        let mut bytes = 0;
        while bytes < bytes_max && self.written < self.staged.len() {
            bytes += self.write_run(bytes_max - bytes)?;
        }
        Ok(self.written_end())
    }

    /// One call for the next batches of one segment.
    fn write_run(&mut self, bytes_max: usize) -> io::Result<usize> {
        let first = &self.staged[self.written];
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * (self.staged.len() - self.written).min(PARTS_MAX / 2));
        let mut bytes = 0;
        let mut count = 0;
        for staged in self.staged.range(self.written..) {
            let same = Rc::ptr_eq(&staged.segment, &first.segment);
            if !same || parts.len() + 2 > PARTS_MAX || (count > 0 && bytes + staged.batch.len() > bytes_max) {
                break;
            }
            parts.extend(staged.batch.parts());
            bytes += staged.batch.len();
            count += 1;
        }
        first.segment.write_now(first.position, &parts)?;
        self.written += count;
        self.unwritten_bytes -= bytes;
        Ok(bytes)
    }

    /// The high watermark moved to `to`: what lies below needs no bytes in memory any more.
    pub fn make_visible(&mut self, to: Offset) {
        while let Some(front) = self.staged.front() {
            if front.end > to {
                return;
            }
            assert!(self.written > 0, "{}: visible before it was written", self.folder.display());
            self.visible = Visible { base: front.segment.base(), position: front.position + front.batch.len() as u64 };
            self.staged.pop_front();
            self.written -= 1;
        }
    }

    /// The segments that hold `offset` or come behind it, each with the end of what may be read of it.
    pub fn readable_from(&self, offset: Offset) -> impl Iterator<Item = Readable<D>> {
        self.segments_from(offset).iter().filter_map(|segment| {
            let upper = match segment.base().cmp(&self.visible.base) {
                std::cmp::Ordering::Less => segment.bytes(),
                std::cmp::Ordering::Equal => self.visible.position,
                std::cmp::Ordering::Greater => 0,
            };
            (upper > 0).then(|| Readable { segment: Rc::clone(segment), upper })
        })
    }

    /// What must be synced because of names that were made or changed, told once.
    pub fn take_changed_names(&mut self) -> ChangedNames {
        let (folder, parent) = (std::mem::take(&mut self.folder_changed), std::mem::take(&mut self.folder_made));
        ChangedNames { folder, parent }
    }

    /// Names could not be synced: it must be tried again.
    pub fn mark_changed_names(&mut self, changed: ChangedNames) {
        self.folder_changed |= changed.folder;
        self.folder_made |= changed.parent;
    }
}
