//! Finds the valid prefix of a segment: whole batches, checksums right, offsets ascending.
//!
//! Pure and incremental: fed with reads of any size, it hands out each whole batch once and stops for good at the first
//! byte that cannot be one. A batch that crosses two reads is put together in a buffer that never outgrows the file.

use bytes::BytesMut;

use crate::ids::Offset;
use crate::wire::batch::{Attributes, BatchHeader, check_crc};

pub use crate::wire::batch::HEADER_BYTES;

/// What a log needs to know of one batch, from its header alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFacts {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// Where the batch begins in its file.
    pub position: u64,
    /// Size of the batch, header included.
    pub bytes: u32,
    /// Generation of the writer.
    pub leader_epoch: i32,
    /// Codec, timestamp type, transactional, control.
    pub attributes: i16,
    /// CRC-32C as it stands in the header.
    pub crc: u32,
    /// Timestamp of the first record, milliseconds since 1970.
    pub base_timestamp: i64,
    /// Largest timestamp, milliseconds since 1970.
    pub max_timestamp: i64,
    /// Who wrote it; -1 for none.
    pub producer_id: i64,
    /// Which incarnation of the producer; -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record; -1 for none.
    pub base_sequence: i32,
    /// Number of records that the header claims.
    pub records_count: i32,
}

impl BatchFacts {
    /// Reads a header that begins at `position` of its file; `None` when it is cut short or cannot be one.
    ///
    /// Shapes: `header` begins with the batch; the records need not be there.
    #[must_use]
    pub fn read(header: &[u8], position: u64) -> Option<Self> {
        let header = BatchHeader::read_head(header.first_chunk()?).ok()?;
        if header.base_offset.0 < 0 || header.last_offset_delta < 0 {
            return None;
        }
        let last_offset = Offset(header.base_offset.0.checked_add(i64::from(header.last_offset_delta))?);
        // An offset must be left that follows the batch.
        last_offset.0.checked_add(1)?;
        Some(Self {
            base_offset: header.base_offset,
            last_offset,
            position,
            bytes: u32::try_from(header.size()).ok()?,
            leader_epoch: header.leader_epoch,
            attributes: header.attributes.0,
            crc: header.crc,
            base_timestamp: header.base_timestamp,
            max_timestamp: header.max_timestamp,
            producer_id: header.producer_id.0,
            producer_epoch: header.producer_epoch.0,
            base_sequence: header.base_sequence.0,
            records_count: header.records_count,
        })
    }

    /// The offset that follows the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.last_offset.plus(1)
    }

    /// Where the next batch begins in the file.
    #[must_use]
    pub fn end_position(&self) -> u64 {
        self.position + u64::from(self.bytes)
    }

    /// Largest timestamp of its records, milliseconds since 1970; -1 where compaction has left none of them.
    #[must_use]
    pub fn newest_record_timestamp(&self) -> i64 {
        if self.records_count == 0 { -1 } else { self.max_timestamp }
    }

    /// True for markers and other batches that no client reads as data.
    #[must_use]
    pub fn is_control(&self) -> bool {
        Attributes(self.attributes).is_control()
    }

    /// True for a batch of a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        Attributes(self.attributes).is_transactional()
    }
}

/// Why a scan ended before the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The rest begins with a header of zeros: preallocated or never written, not damage.
    #[error("zeros")]
    Zeros,
    /// The file ends inside a batch.
    #[error("a batch that is cut off")]
    Torn,
    /// No batch has this header: length, magic or offset delta.
    #[error("bytes that are no batch header")]
    NoHeader,
    /// The checksum does not fit.
    #[error("a batch with a wrong checksum")]
    Checksum,
    /// The batch begins below the end of the one before it.
    #[error("a batch whose offset goes back")]
    OffsetBack,
    /// The batch does not begin where the one before it ends, in a stretch where nothing can be missing.
    #[error("a batch behind a gap in the offsets")]
    Gap,
}

/// What a scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanEnd {
    /// End of the last whole batch in the file.
    pub position: u64,
    /// Offset that follows the last whole batch (the smallest allowed one if there was none).
    pub next_offset: Offset,
    /// Number of whole batches.
    pub batches: u64,
    /// `None` when the last batch ends exactly at the end of the file.
    pub stop: Option<Stop>,
}

/// An incremental scan; see the module.
#[derive(Debug)]
pub struct Scanner {
    file_bytes: u64,
    position: u64,
    next_offset: Offset,
    gaps: Gaps,
    batches: u64,
    stop: Option<Stop>,
    pending: BytesMut,
}

/// Whether offsets may be missing between two batches. The checksum does not cover a batch's base offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// Compaction or a loss may have left some.
    Allowed,
    /// Each batch begins where the one before it ends.
    Refused,
}

enum Step {
    Batch(BatchFacts),
    More(usize),
    Stop(Stop),
}

impl Scanner {
    /// A scan of a file of `file_bytes` bytes from `position` on, where the next batch has at least `min_offset`.
    #[must_use]
    pub fn new(file_bytes: u64, position: u64, min_offset: Offset) -> Self {
        let pending = BytesMut::new();
        Self { file_bytes, position, next_offset: min_offset, gaps: Gaps::Allowed, batches: 0, stop: None, pending }
    }

    /// Where the next read must begin.
    #[must_use]
    pub fn wants(&self) -> u64 {
        self.position + self.pending.len() as u64
    }

    /// True when reading on is of no use.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stop.is_some() || self.wants() >= self.file_bytes
    }

    /// Takes the bytes at [`Self::wants`] and hands out every batch that is whole now, with its bytes.
    pub fn feed(&mut self, chunk: &[u8], on_batch: &mut impl FnMut(&BatchFacts, &[u8])) {
        let mut rest = self.complete_pending(chunk, on_batch);
        while self.stop.is_none() && !rest.is_empty() {
            match self.look(rest) {
                Step::Batch(facts) => {
                    let (batch, behind) = rest.split_at(facts.bytes as usize);
                    self.accept(&facts, batch, on_batch);
                    rest = behind;
                }
                Step::More(_) => {
                    self.pending.extend_from_slice(rest);
                    return;
                }
                Step::Stop(stop) => self.stop = Some(stop),
            }
        }
    }

    /// The same scan with this rule about gaps; they are allowed if nothing is said.
    #[must_use]
    pub fn with_gaps(self, gaps: Gaps) -> Self {
        Self { gaps, ..self }
    }

    /// The verdict, once everything was fed.
    #[must_use]
    pub fn finish(self) -> ScanEnd {
        // Only when the file gave less than its size: what ends inside a batch was noticed while feeding.
        let torn = (self.position < self.file_bytes).then_some(Stop::Torn);
        ScanEnd {
            position: self.position,
            next_offset: self.next_offset,
            batches: self.batches,
            stop: self.stop.or(torn),
        }
    }

    /// Moves only as much of `chunk` as the batch that began in an earlier read needs; returns what is left.
    fn complete_pending<'a>(&mut self, mut chunk: &'a [u8], on_batch: &mut impl FnMut(&BatchFacts, &[u8])) -> &'a [u8] {
        while self.stop.is_none() && !self.pending.is_empty() {
            match self.look(&self.pending) {
                Step::Batch(facts) => {
                    let batch = std::mem::take(&mut self.pending);
                    self.accept(&facts, &batch, on_batch);
                }
                Step::More(_) if chunk.is_empty() => break,
                Step::More(bytes) => {
                    let (taken, behind) = chunk.split_at(bytes.min(chunk.len()));
                    self.pending.extend_from_slice(taken);
                    chunk = behind;
                }
                Step::Stop(stop) => self.stop = Some(stop),
            }
        }
        chunk
    }

    fn accept(&mut self, facts: &BatchFacts, batch: &[u8], on_batch: &mut impl FnMut(&BatchFacts, &[u8])) {
        on_batch(facts, batch);
        self.position = facts.end_position();
        self.next_offset = facts.next_offset();
        self.batches += 1;
    }

    fn look(&self, bytes: &[u8]) -> Step {
        let Some(header) = bytes.get(..HEADER_BYTES) else {
            let left = self.file_bytes.saturating_sub(self.position);
            let torn = left < HEADER_BYTES as u64;
            return if torn { self.look_torn(bytes, left) } else { Step::More(HEADER_BYTES - bytes.len()) };
        };
        if header.iter().all(|byte| *byte == 0) {
            return Step::Stop(Stop::Zeros);
        }
        let Some(facts) = BatchFacts::read(header, self.position) else { return Step::Stop(Stop::NoHeader) };
        if facts.base_offset < self.next_offset {
            return Step::Stop(Stop::OffsetBack);
        }
        if self.gaps == Gaps::Refused && facts.base_offset > self.next_offset {
            return Step::Stop(Stop::Gap);
        }
        if facts.end_position() > self.file_bytes {
            return Step::Stop(Stop::Torn);
        }
        let size = facts.bytes as usize;
        match bytes.get(..size) {
            None => Step::More(size - bytes.len()),
            Some(batch) if check_crc(batch).is_ok() => Step::Batch(facts),
            Some(_) => Step::Stop(Stop::Checksum),
        }
    }

    /// The file ends inside a header: wait for all that is left of it, then say what it is.
    fn look_torn(&self, bytes: &[u8], left: u64) -> Step {
        let missing = usize::try_from(left).unwrap_or(0).saturating_sub(bytes.len());
        if missing > 0 {
            return Step::More(missing);
        }
        let zeros = bytes.iter().all(|byte| *byte == 0);
        Step::Stop(if zeros { Stop::Zeros } else { Stop::Torn })
    }
}
