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

/// Bytes of one `.index` entry.
pub const OFFSET_ENTRY_BYTES: usize = 8;
/// Bytes of one `.timeindex` entry.
pub const TIME_ENTRY_BYTES: usize = 12;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OffsetEntry {
    relative: u32,
    position: u32,
}

/// Offset → position of one segment.
#[derive(Clone, Debug)]
pub struct OffsetIndex {
    base: Offset,
    entries: Vec<OffsetEntry>,
    written: usize,
}

impl OffsetIndex {
    /// An index without entries.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new(), written: 0 }
    }

    /// Reads an `.index` file; entries outside a segment of `log_bytes` bytes that ends before `end` are dropped.
    ///
    /// # Errors
    /// Whatever cannot be the index of any segment; rebuild it then.
    pub fn load(base: Offset, file: &[u8], log_bytes: u64, end: Offset) -> Result<Self, IndexDamage> {
        if !file.len().is_multiple_of(OFFSET_ENTRY_BYTES) {
            return Err(IndexDamage::Size);
        }
        let mut entries = Vec::with_capacity(file.len() / OFFSET_ENTRY_BYTES);
        for mut bytes in file.chunks_exact(OFFSET_ENTRY_BYTES) {
            entries.push(OffsetEntry { relative: bytes.get_u32(), position: bytes.get_u32() });
        }
        // The first entry stands before a batch that is not the first, hence above position 0.
        let first_ascends = entries.first().is_none_or(|first| first.position > 0);
        let rest_ascends =
            entries.windows(2).all(|two| two[0].relative < two[1].relative && two[0].position < two[1].position);
        if !first_ascends || !rest_ascends {
            return Err(IndexDamage::Order);
        }
        let inside =
            |entry: &OffsetEntry| u64::from(entry.position) < log_bytes && base.plus(i64::from(entry.relative)) < end;
        entries.truncate(entries.partition_point(inside));
        let written = entries.len();
        Ok(Self { base, entries, written })
    }

    /// Where to begin to look for `offset`: a batch that does not begin behind it.
    #[must_use]
    pub fn lookup(&self, offset: Offset) -> u64 {
        let found = self.entries.partition_point(|entry| self.base.plus(i64::from(entry.relative)) <= offset);
        found.checked_sub(1).map_or(0, |at| u64::from(self.entries[at].position))
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
        let position = (self.written * OFFSET_ENTRY_BYTES) as u64;
        Unwritten { position, bytes: self.encode_from(self.written), entries: self.entries.len() }
    }

    fn encode_from(&self, first: usize) -> Bytes {
        let entries = &self.entries[first..];
        let mut bytes = BytesMut::with_capacity(entries.len() * OFFSET_ENTRY_BYTES);
        for entry in entries {
            bytes.put_u32(entry.relative);
            bytes.put_u32(entry.position);
        }
        bytes.freeze()
    }

    /// The file holds the first `entries` entries.
    pub fn mark_written(&mut self, entries: usize) {
        self.written = self.written.max(entries.min(self.entries.len()));
    }

    fn push(&mut self, offset: Offset, position: u64) {
        let (Some(relative), Ok(position)) = (relative(self.base, offset), u32::try_from(position)) else { return };
        if self.entries.last().is_none_or(|last| last.relative < relative) {
            self.entries.push(OffsetEntry { relative, position });
        }
    }

    fn truncate(&mut self, position: u64) {
        let kept = self.entries.partition_point(|entry| u64::from(entry.position) < position);
        self.entries.truncate(kept);
        self.written = self.written.min(kept);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimeEntry {
    timestamp: i64,
    relative: u32,
}

/// Timestamp → offset of one segment.
#[derive(Clone, Debug)]
pub struct TimeIndex {
    base: Offset,
    entries: Vec<TimeEntry>,
    written: usize,
}

impl TimeIndex {
    /// An index without entries.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new(), written: 0 }
    }

    /// Reads a `.timeindex` file; entries outside a segment that ends before `end` are dropped.
    ///
    /// # Errors
    /// Whatever cannot be the time index of any segment; rebuild it then.
    pub fn load(base: Offset, file: &[u8], end: Offset) -> Result<Self, IndexDamage> {
        if !file.len().is_multiple_of(TIME_ENTRY_BYTES) {
            return Err(IndexDamage::Size);
        }
        let mut entries = Vec::with_capacity(file.len() / TIME_ENTRY_BYTES);
        for mut bytes in file.chunks_exact(TIME_ENTRY_BYTES) {
            entries.push(TimeEntry { timestamp: bytes.get_i64(), relative: bytes.get_u32() });
        }
        let first_ascends = entries.first().is_none_or(|first| first.timestamp >= 0);
        let rest_ascends =
            entries.windows(2).all(|two| two[0].timestamp < two[1].timestamp && two[0].relative < two[1].relative);
        if !first_ascends || !rest_ascends {
            return Err(IndexDamage::Order);
        }
        entries.truncate(entries.partition_point(|entry| base.plus(i64::from(entry.relative)) < end));
        let written = entries.len();
        Ok(Self { base, entries, written })
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
        let position = (self.written * TIME_ENTRY_BYTES) as u64;
        Unwritten { position, bytes: self.encode_from(self.written), entries: self.entries.len() }
    }

    fn encode_from(&self, first: usize) -> Bytes {
        let entries = &self.entries[first..];
        let mut bytes = BytesMut::with_capacity(entries.len() * TIME_ENTRY_BYTES);
        for entry in entries {
            bytes.put_i64(entry.timestamp);
            bytes.put_u32(entry.relative);
        }
        bytes.freeze()
    }

    /// The file holds the first `entries` entries.
    pub fn mark_written(&mut self, entries: usize) {
        self.written = self.written.max(entries.min(self.entries.len()));
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

    fn truncate(&mut self, end: Offset) {
        let kept = self.entries.partition_point(|entry| self.base.plus(i64::from(entry.relative)) < end);
        self.entries.truncate(kept);
        self.written = self.written.min(kept);
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
        if batch.max_timestamp > self.newest.timestamp {
            self.newest = TimestampOffset { timestamp: batch.max_timestamp, offset: batch.last_offset };
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
        let most = |entry_bytes: usize| self.rules.index_bytes_max as usize / entry_bytes;
        self.offsets.len() >= most(OFFSET_ENTRY_BYTES) || self.times.len() + 1 >= most(TIME_ENTRY_BYTES)
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
        self.offsets.truncate(position);
        self.times.truncate(end);
        self.newest = self.times.last().unwrap_or(TimestampOffset { timestamp: -1, offset: self.base });
        self.bytes_since_entry = 0;
    }

    /// True when the files hold every entry.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.offsets.written == self.offsets.len() && self.times.written == self.times.len()
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
