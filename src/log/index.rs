//! The sparse indexes of one segment: offset → position and timestamp → offset, in Kafka's file formats.
//!
//! ```text
//! .index      8 bytes an entry, big-endian: relative offset u32 of a batch's LAST record | position u32 of the batch
//! .timeindex 12 bytes an entry: largest timestamp so far i64 | relative offset u32 of the last record of its batch
//! ```
//!
//! Held in memory as sorted lists; the files are derived (storage rule S15): written lazily, and rebuilt from the
//! segment when missing, short or wrong. An entry is made *before* the batch that finds more than
//! `index.interval.bytes` behind the last entry, exactly as Kafka does, so that Kafka's tools find what they expect.
//!
//! Source: apache/kafka `LogSegment.java` (append, onBecomeInactiveSegment), `OffsetIndex.java`, `TimeIndex.java`.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::crc::crc32c;
use super::scan::BatchFacts;
use crate::ids::Offset;

/// What the configuration says about indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRules {
    /// `index.interval.bytes`: an entry is made once more than this many bytes lie behind the last one.
    pub interval_bytes: u32,
    /// `segment.index.bytes`: bound of each of the two files.
    pub index_bytes_max: u32,
}

impl Default for IndexRules {
    fn default() -> Self {
        Self { interval_bytes: 4096, index_bytes_max: 10 << 20 }
    }
}

/// A timestamp and the offset of (the last record of the batch of) the first record that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// Milliseconds since 1970; -1 for none.
    pub timestamp: i64,
    /// Offset of the batch's last record.
    pub offset: Offset,
}

/// Why an index file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexDamage {
    /// Not a whole number of entries.
    #[error("the size is no multiple of an entry")]
    Size,
    /// Entries that do not ascend.
    #[error("entries that do not ascend")]
    Order,
}

/// Bytes that are not in the index file yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// Where they go in the file; also the size that the file should have before.
    pub position: u64,
    /// The entries.
    pub bytes: Bytes,
    /// What to give to `mark_written` after the write.
    pub entries: usize,
}

/// What the two files differ in.
pub trait Entry: Copy {
    /// Bytes of one entry.
    const BYTES: usize;

    /// Reads the bytes of one entry.
    fn read(bytes: &[u8]) -> Self;

    /// Writes them.
    fn write(self, out: &mut BytesMut);

    /// True for what may stand first in a file.
    fn may_be_first(self) -> bool;

    /// True for what may stand behind `before`.
    fn ascends_from(self, before: Self) -> bool;
}

/// Relative offset of a batch's last record, and where the batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    relative: u32,
    position: u32,
}

impl Entry for OffsetEntry {
    const BYTES: usize = 8;

    fn read(mut bytes: &[u8]) -> Self {
        Self { relative: bytes.get_u32(), position: bytes.get_u32() }
    }

    fn write(self, out: &mut BytesMut) {
        out.put_u32(self.relative);
        out.put_u32(self.position);
    }

    /// It stands before a batch that is not the first, hence above position 0.
    fn may_be_first(self) -> bool {
        self.position > 0
    }

    fn ascends_from(self, before: Self) -> bool {
        before.relative < self.relative && before.position < self.position
    }
}

/// Largest timestamp so far, and the relative offset of the last record of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    timestamp: i64,
    relative: u32,
}

impl Entry for TimeEntry {
    const BYTES: usize = 12;

    fn read(mut bytes: &[u8]) -> Self {
        Self { timestamp: bytes.get_i64(), relative: bytes.get_u32() }
    }

    fn write(self, out: &mut BytesMut) {
        out.put_i64(self.timestamp);
        out.put_u32(self.relative);
    }

    fn may_be_first(self) -> bool {
        self.timestamp >= 0
    }

    fn ascends_from(self, before: Self) -> bool {
        before.timestamp < self.timestamp && before.relative < self.relative
    }
}

/// The ascending entries of one index file, and how many of them the file holds.
#[derive(Clone, Debug)]
pub struct Index<E> {
    base: Offset,
    entries: Vec<E>,
    written: usize,
}

/// Offset → position of one segment.
pub type OffsetIndex = Index<OffsetEntry>;

/// Timestamp → offset of one segment.
pub type TimeIndex = Index<TimeEntry>;

impl<E: Entry> Index<E> {
    /// An index without entries.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new(), written: 0 }
    }

    /// Reads a file; entries from the first one on that is not `inside` the segment are dropped.
    fn read(base: Offset, file: &[u8], inside: impl Fn(&E) -> bool) -> Result<Self, IndexDamage> {
        if !file.len().is_multiple_of(E::BYTES) {
            return Err(IndexDamage::Size);
        }
        let mut entries: Vec<E> = file.chunks_exact(E::BYTES).map(E::read).collect();
        let begins_well = entries.first().is_none_or(|first| first.may_be_first());
        if !begins_well || !entries.windows(2).all(|two| two[1].ascends_from(two[0])) {
            return Err(IndexDamage::Order);
        }
        entries.truncate(entries.partition_point(inside));
        let written = entries.len();
        Ok(Self { base, entries, written })
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries that the file lacks.
    #[must_use]
    pub fn unwritten(&self) -> Unwritten {
        let position = (self.written * E::BYTES) as u64;
        Unwritten { position, bytes: self.encode_from(self.written), entries: self.entries.len() }
    }

    fn encode_from(&self, first: usize) -> Bytes {
        let entries = &self.entries[first..];
        let mut bytes = BytesMut::with_capacity(entries.len() * E::BYTES);
        entries.iter().for_each(|entry| entry.write(&mut bytes));
        bytes.freeze()
    }

    /// The file holds the first `entries` entries.
    pub fn mark_written(&mut self, entries: usize) {
        self.written = self.written.max(entries.min(self.entries.len()));
    }

    fn is_written(&self) -> bool {
        self.written == self.entries.len()
    }

    /// True when the file may take no further entry, with `kept` places left free.
    fn is_full(&self, bytes_max: u32, kept: usize) -> bool {
        self.entries.len() + kept >= bytes_max as usize / E::BYTES
    }

    /// Drops everything from the first entry on that is not `inside`.
    fn keep(&mut self, inside: impl Fn(&E) -> bool) {
        self.entries.truncate(self.entries.partition_point(inside));
        self.written = self.written.min(self.entries.len());
    }
}

impl OffsetIndex {
    /// Reads an `.index` file; entries outside a segment of `log_bytes` bytes that ends before `end` are dropped.
    ///
    /// # Errors
    /// Whatever cannot be the index of any segment; rebuild it then.
    pub fn load(base: Offset, file: &[u8], log_bytes: u64, end: Offset) -> Result<Self, IndexDamage> {
        Self::read(base, file, |entry| {
            u64::from(entry.position) < log_bytes && base.plus(i64::from(entry.relative)) < end
        })
    }

    /// Where to begin to look for `offset`: a batch that does not begin behind it.
    #[must_use]
    pub fn lookup(&self, offset: Offset) -> u64 {
        let found = self.entries.partition_point(|entry| self.base.plus(i64::from(entry.relative)) <= offset);
        found.checked_sub(1).map_or(0, |at| u64::from(self.entries[at].position))
    }

    /// The entries: offset of a batch's last record, and where the batch begins.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (Offset, u64)> {
        let base = self.base;
        self.entries.iter().map(move |entry| (base.plus(i64::from(entry.relative)), u64::from(entry.position)))
    }

    fn push(&mut self, offset: Offset, position: u64) {
        let (Some(relative), Ok(position)) = (relative(self.base, offset), u32::try_from(position)) else { return };
        if self.entries.last().is_none_or(|last| last.relative < relative) {
            self.entries.push(OffsetEntry { relative, position });
        }
    }
}

impl TimeIndex {
    /// Reads a `.timeindex` file; entries outside a segment that ends before `end` are dropped.
    ///
    /// # Errors
    /// Whatever cannot be the time index of any segment; rebuild it then.
    pub fn load(base: Offset, file: &[u8], end: Offset) -> Result<Self, IndexDamage> {
        Self::read(base, file, |entry| base.plus(i64::from(entry.relative)) < end)
    }

    /// The entry with the largest timestamp that is not above `timestamp`; `None` when all are above.
    #[must_use]
    pub fn lookup(&self, timestamp: i64) -> Option<TimestampOffset> {
        let found = self.entries.partition_point(|entry| entry.timestamp <= timestamp);
        found.checked_sub(1).map(|at| self.entry(at))
    }

    /// The newest entry.
    #[must_use]
    pub fn last(&self) -> Option<TimestampOffset> {
        self.entries.len().checked_sub(1).map(|at| self.entry(at))
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = TimestampOffset> {
        (0..self.entries.len()).map(|at| self.entry(at))
    }

    fn entry(&self, at: usize) -> TimestampOffset {
        let entry = self.entries[at];
        TimestampOffset { timestamp: entry.timestamp, offset: self.base.plus(i64::from(entry.relative)) }
    }

    /// Timestamps need not ascend in a log; the index holds only those that do.
    fn maybe_push(&mut self, newest: TimestampOffset) {
        let Some(relative) = relative(self.base, newest.offset) else { return };
        if self.entries.last().map_or(-1, |last| last.timestamp) < newest.timestamp {
            self.entries.push(TimeEntry { timestamp: newest.timestamp, relative });
        }
    }
}

/// Relative offsets have 31 bits, as in Kafka.
fn relative(base: Offset, offset: Offset) -> Option<u32> {
    i32::try_from(offset.0.checked_sub(base.0)?).ok().and_then(|relative| u32::try_from(relative).ok())
}

/// Both indexes of a segment and what decides when they get an entry.
#[derive(Clone, Debug)]
pub struct Indexes {
    rules: IndexRules,
    base: Offset,
    /// Offset → position.
    pub offsets: OffsetIndex,
    /// Timestamp → offset.
    pub times: TimeIndex,
    bytes_since_entry: u64,
    newest: TimestampOffset,
}

impl Indexes {
    /// The indexes of an empty segment.
    #[must_use]
    pub fn new(base: Offset, rules: IndexRules) -> Self {
        Self::loaded(base, rules, OffsetIndex::new(base), TimeIndex::new(base))
    }

    /// The indexes of a segment as they were on disk.
    #[must_use]
    pub fn loaded(base: Offset, rules: IndexRules, offsets: OffsetIndex, times: TimeIndex) -> Self {
        let newest = times.last().unwrap_or(TimestampOffset { timestamp: -1, offset: base });
        Self { rules, base, offsets, times, bytes_since_entry: 0, newest }
    }

    /// Takes note of a batch at the end of the segment; makes entries when they are due.
    pub fn note_batch(&mut self, batch: &BatchFacts) {
        let timestamp = batch.newest_record_timestamp();
        if timestamp > self.newest.timestamp {
            self.newest = TimestampOffset { timestamp, offset: batch.last_offset };
        }
        if self.bytes_since_entry > u64::from(self.rules.interval_bytes) {
            self.offsets.push(batch.last_offset, batch.position);
            self.times.maybe_push(self.newest);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += u64::from(batch.bytes);
    }

    /// Puts the largest timestamp into the time index if it is not there: at a roll, a clean stop and each checkpoint.
    pub fn note_newest_timestamp(&mut self) {
        if self.newest.timestamp >= 0 {
            self.times.maybe_push(self.newest);
        }
    }

    /// The largest timestamp so far and the last offset of the first batch that has it; `None` without timestamps.
    #[must_use]
    pub fn newest_timestamp(&self) -> Option<TimestampOffset> {
        Some(self.newest).filter(|newest| newest.timestamp >= 0)
    }

    /// Sets the largest timestamp where something better than the time index knows it (a seal).
    pub fn set_newest_timestamp(&mut self, newest: TimestampOffset) {
        self.newest = newest;
    }

    /// True when a batch that ends at `offset` fits the 31 bits of a relative offset.
    #[must_use]
    pub fn can_hold(&self, offset: Offset) -> bool {
        relative(self.base, offset).is_some()
    }

    /// True when one of the two files may take no further entry; one place is kept for the last timestamp.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes_max = self.rules.index_bytes_max;
        self.offsets.is_full(bytes_max, 0) || self.times.is_full(bytes_max, 1)
    }

    /// Where to begin to look for the first record with at least `timestamp`, at or behind `from`.
    #[must_use]
    pub fn lookup_time(&self, timestamp: i64, from: Offset) -> u64 {
        let floor = self.times.lookup(timestamp).map_or(self.base, |entry| entry.offset);
        self.offsets.lookup(floor.max(from))
    }

    /// From where on batches must be noted again when the files may lack their newest entries.
    ///
    /// Counting bytes anew from an entry's batch gives the same entries again; those that are there are not made twice.
    #[must_use]
    pub fn position_of_newest(&self) -> u64 {
        self.times.last().map_or(0, |newest| self.offsets.lookup(newest.offset))
    }

    /// Drops what belongs to bytes from `position` on, where the log now ends at `end`.
    pub fn truncate(&mut self, position: u64, end: Offset) {
        let base = self.base;
        self.offsets.keep(|entry| u64::from(entry.position) < position);
        self.times.keep(|entry| base.plus(i64::from(entry.relative)) < end);
        self.newest = self.times.last().unwrap_or(TimestampOffset { timestamp: -1, offset: self.base });
        self.bytes_since_entry = 0;
    }

    /// True when the files hold every entry.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.offsets.is_written() && self.times.is_written()
    }

    /// CRC-32C of the whole `.index` and `.timeindex`.
    #[must_use]
    pub fn file_crcs(&self) -> (u32, u32) {
        (crc32c(&self.offsets.encode_from(0)), crc32c(&self.times.encode_from(0)))
    }

    /// The files have other bytes than was thought: the next write makes them anew.
    pub fn forget_written(&mut self) {
        self.offsets.written = 0;
        self.times.written = 0;
    }
}
