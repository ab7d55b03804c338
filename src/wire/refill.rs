//! Makes a stored batch anew with some of its records, as compaction leaves it.
//!
//! ```text
//! unpack ──► look at each record: does it stay? ──► all stay: the batch as it was
//!                                              ├──► none stays: nothing, or a header without records
//!                                              └──► some stay: packed again with the same codec
//! ```
//! Kept are base offset, last offset delta, leader epoch, producer, epoch, base sequence, codec, kind of timestamps, and
//! of each record everything but the numbers that count from the base. Each step does a bounded amount of work.
//!
//! Source: apache/kafka `MemoryRecords.filterTo`, `DefaultRecordBatch.writeEmptyHeader`; KIP-534 (delete horizon).

use std::io;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::batch::{BatchHeader, Codec, HEADER_BYTES, LENGTH_END, set_crc};
use super::pack::Packer;
use super::records::WalkError;
use super::unfold::Unfold;
use super::unpack::Unpacker;
use super::varint::{self, Varint};
use crate::ids::Offset;

/// What a record costs beside its bytes, counted in bytes.
const RECORD_COST: usize = 16;

/// What is done with a batch as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRules {
    /// Its header stays when none of its records does.
    pub keeps_empty: bool,
    /// It is the marker of a transaction of which nothing else is left: it gets a delete horizon too.
    pub is_spent_marker: bool,
    /// When what marks a deletion may go itself, in ms, where the batch does not say so yet.
    pub delete_horizon_ms: i64,
}

/// What is left of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refilled {
    /// Nothing.
    Gone,
    /// All of it, byte for byte.
    AsItWas,
    /// Another batch in its place.
    Anew(Bytes),
}

/// A record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Its offset.
    pub offset: Offset,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// False for a tombstone.
    pub has_value: bool,
}

/// Why a batch cannot be made anew.
#[derive(Debug, thiserror::Error)]
pub enum RefillError {
    /// Its records cannot be read.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// They cannot be packed again.
    #[error("the records cannot be packed again: {0}")]
    Pack(#[from] io::Error),
    /// The new batch would be larger than a batch can be.
    #[error("the batch would be larger than 2 GiB")]
    TooLarge,
}

/// Whoever looks at the records of a batch, one after the other.
#[derive(Debug)]
pub struct RecordScan {
    header: BatchHeader,
    unfold: Option<Unfold>,
    records: Bytes,
    position: usize,
    index: i32,
}

impl RecordScan {
    /// Makes ready to look at the records of a batch.
    ///
    /// Shapes: `batch` is one whole batch with `header`, as it is stored.
    ///
    /// # Errors
    /// `UnknownCodec`, and `Unpack` where there is no memory for the codec.
    pub fn start(
        batch: &Bytes,
        header: &BatchHeader,
        unpacked_bytes_max: u64,
        unpacker: &mut Unpacker,
    ) -> Result<Self, WalkError> {
        let unfold = Unfold::start(batch, header, unpacked_bytes_max, unpacker)?;
        Ok(Self { header: *header, unfold: Some(unfold), records: Bytes::new(), position: 0, index: 0 })
    }

    /// Goes on for about `bytes_max` bytes; true when every record was seen.
    ///
    /// # Errors
    /// Where the records cannot be read; it is over then.
    pub fn step(
        &mut self,
        bytes_max: usize,
        unpacker: &mut Unpacker,
        mut see: impl FnMut(&RecordView<'_>),
    ) -> Result<bool, WalkError> {
        self.step_raw(bytes_max, unpacker, |view, _| see(view))
    }

    /// Gives the contexts of a scan back that is not gone on with.
    pub fn recycle(self, unpacker: &mut Unpacker) {
        if let Some(unfold) = self.unfold {
            unfold.recycle(unpacker);
        }
    }

    fn step_raw(
        &mut self,
        bytes_max: usize,
        unpacker: &mut Unpacker,
        mut see: impl FnMut(&RecordView<'_>, &RawRecord<'_>),
    ) -> Result<bool, WalkError> {
        if let Some(unfold) = &mut self.unfold {
            match unfold.step(bytes_max, unpacker) {
                Ok(None) => return Ok(false),
                Ok(Some(records)) => self.records = records,
                Err(error) => {
                    self.unfold = None;
                    return Err(error);
                }
            }
            self.unfold = None;
        }
        let end = self.position.saturating_add(bytes_max.max(1));
        while self.index < self.header.records_count {
            if self.position >= end {
                return Ok(false);
            }
            let rest = self.records.get(self.position..).unwrap_or_default();
            let broken = |what| WalkError::Broken { index: self.index, what };
            let record = RawRecord::read(rest).map_err(broken)?;
            let offset = self.header.base_offset.plus(i64::from(record.offset_delta));
            see(&RecordView { offset, key: record.key, has_value: record.has_value }, &record);
            self.position += record.bytes;
            self.index += 1;
        }
        Ok(true)
    }
}

/// One batch on its way to what is left of it.
#[derive(Debug)]
pub struct Refill {
    scan: RecordScan,
    rules: BatchRules,
    /// One bit a record: it stays.
    kept: Vec<u64>,
    summary: Summary,
    packing: Option<Packing>,
}

/// What the look at the records has found.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    seen: usize,
    kept: usize,
    has_tombstone: bool,
    first_timestamp: i64,
    max_timestamp: i64,
}

/// The records that stay, on their way into the new batch.
#[derive(Debug)]
struct Packing {
    old: BatchHeader,
    new: BatchHeader,
    packer: Packer,
    /// Where the next record is, and its index.
    position: usize,
    index: usize,
    /// What of a record that stays is to be copied as it is.
    copying: Range<usize>,
}

impl Refill {
    /// Makes ready to refill a batch.
    ///
    /// Shapes: `batch` is one whole batch with `header`, as it is stored.
    ///
    /// # Errors
    /// As [`RecordScan::start`].
    pub fn start(
        batch: &Bytes,
        header: &BatchHeader,
        rules: BatchRules,
        unpacked_bytes_max: u64,
        unpacker: &mut Unpacker,
    ) -> Result<Self, WalkError> {
        let scan = RecordScan::start(batch, header, unpacked_bytes_max, unpacker)?;
        let summary = Summary { max_timestamp: -1, ..Summary::default() };
        Ok(Self { scan, rules, kept: Vec::new(), summary, packing: None })
    }

    /// Goes on for about `bytes_max` bytes; gives what is left when that is known.
    ///
    /// # Errors
    /// Where the records cannot be read or packed again; it is over then.
    pub fn step(
        &mut self,
        bytes_max: usize,
        unpacker: &mut Unpacker,
        keeps: impl FnMut(&RecordView<'_>) -> bool,
    ) -> Result<Option<Refilled>, RefillError> {
        if let Some(mut packing) = self.packing.take() {
            if packing.step(&self.scan.records, &self.kept, bytes_max)? {
                return packing.finish().map(|batch| Some(Refilled::Anew(batch)));
            }
            self.packing = Some(packing);
            return Ok(None);
        }
        if !self.look(bytes_max, unpacker, keeps)? {
            return Ok(None);
        }
        self.judge()
    }

    /// Gives the contexts of one back that is not gone on with.
    pub fn recycle(self, unpacker: &mut Unpacker) {
        self.scan.recycle(unpacker);
    }

    fn look(
        &mut self,
        bytes_max: usize,
        unpacker: &mut Unpacker,
        mut keeps: impl FnMut(&RecordView<'_>) -> bool,
    ) -> Result<bool, WalkError> {
        let (kept, summary, header) = (&mut self.kept, &mut self.summary, self.scan.header);
        self.scan.step_raw(bytes_max, unpacker, |view, record| {
            let stays = keeps(view);
            if summary.seen.is_multiple_of(64) {
                kept.push(0);
            }
            if let Some(word) = kept.last_mut().filter(|_| stays) {
                *word |= 1 << (summary.seen % 64);
                let timestamp = timestamp_of(&header, record);
                if summary.kept == 0 {
                    summary.first_timestamp = timestamp;
                }
                summary.max_timestamp = summary.max_timestamp.max(timestamp);
                summary.has_tombstone |= !view.has_value;
                summary.kept += 1;
            }
            summary.seen += 1;
        })
    }

    fn judge(&mut self) -> Result<Option<Refilled>, RefillError> {
        let header = &self.scan.header;
        let Summary { seen, kept, has_tombstone, .. } = self.summary;
        if kept == 0 {
            let empty = || Refilled::Anew(empty_batch(header));
            return Ok(Some(if self.rules.keeps_empty { empty() } else { Refilled::Gone }));
        }
        let has_horizon = header.attributes.has_delete_horizon();
        let needs_horizon = (has_tombstone || self.rules.is_spent_marker) && !has_horizon;
        if seen == kept && !needs_horizon {
            return Ok(Some(Refilled::AsItWas));
        }
        let horizon_ms = if needs_horizon { self.rules.delete_horizon_ms } else { header.base_timestamp };
        let (attributes, base_timestamp) = match needs_horizon || has_horizon {
            true => (header.attributes.with_delete_horizon(true), horizon_ms),
            false => (header.attributes, self.summary.first_timestamp),
        };
        let max_timestamp =
            if attributes.is_log_append_time() { header.max_timestamp } else { self.summary.max_timestamp };
        let records_count = i32::try_from(kept).map_err(|_| RefillError::TooLarge)?;
        let new = BatchHeader { attributes, base_timestamp, max_timestamp, records_count, ..*header };
        let packer = Packer::new(attributes.codec().unwrap_or(Codec::None), None)?;
        self.packing = Some(Packing { old: *header, new, packer, position: 0, index: 0, copying: 0..0 });
        Ok(None)
    }
}

impl Packing {
    /// True when every record was seen.
    fn step(&mut self, records: &Bytes, kept: &[u64], bytes_max: usize) -> Result<bool, RefillError> {
        let mut budget = bytes_max.max(1);
        while budget > 0 {
            if self.copying.is_empty() && !self.begin_record(records, kept)? {
                return Ok(true);
            }
            let end = self.copying.end.min(self.copying.start.saturating_add(budget));
            self.packer.add(records.get(self.copying.start..end).unwrap_or_default())?;
            budget = budget.saturating_sub(RECORD_COST + end - self.copying.start);
            self.copying.start = end;
        }
        Ok(false)
    }

    /// Writes the numbers of the next record, if it stays; false when there is none.
    fn begin_record(&mut self, records: &Bytes, kept: &[u64]) -> Result<bool, RefillError> {
        let rest = records.get(self.position..).unwrap_or_default();
        let Some(word) = kept.get(self.index / 64).filter(|_| !rest.is_empty()) else { return Ok(false) };
        let index = i32::try_from(self.index).unwrap_or(i32::MAX);
        let record = RawRecord::read(rest).map_err(|what| WalkError::Broken { index, what })?;
        if word & (1 << (self.index % 64)) != 0 {
            let mut numbers = BytesMut::with_capacity(1 + varint::BYTES_MAX_64 + varint::BYTES_MAX_32);
            numbers.put_u8(record.attributes);
            varint::put_i64(&mut numbers, timestamp_of(&self.old, &record).wrapping_sub(self.new.base_timestamp));
            varint::put_i32(&mut numbers, record.offset_delta);
            let tail = record.bytes - record.tail_at;
            let mut length = BytesMut::with_capacity(varint::BYTES_MAX_32);
            varint::put_i32(&mut length, i32::try_from(numbers.len() + tail).map_err(|_| RefillError::TooLarge)?);
            self.packer.add(&length)?;
            self.packer.add(&numbers)?;
            self.copying = self.position + record.tail_at..self.position + record.bytes;
        }
        self.position += record.bytes;
        self.index += 1;
        Ok(true)
    }

    fn finish(self) -> Result<Bytes, RefillError> {
        let payload = self.packer.finish()?;
        let batch_length =
            i32::try_from(HEADER_BYTES - LENGTH_END + payload.len()).map_err(|_| RefillError::TooLarge)?;
        let mut batch = BytesMut::with_capacity(HEADER_BYTES + payload.len());
        batch.put_slice(&BatchHeader { batch_length, ..self.new }.encode());
        batch.put_slice(&payload);
        set_crc(&mut batch);
        Ok(batch.freeze())
    }
}

/// What keeps the offsets, the producer and the epoch of a batch whose records are all gone.
#[must_use]
pub fn empty_batch(of: &BatchHeader) -> Bytes {
    let attributes = of.attributes.with_codec(Codec::None).with_delete_horizon(false);
    let batch_length = i32::try_from(HEADER_BYTES - LENGTH_END).unwrap_or(0);
    let header = BatchHeader { batch_length, attributes, base_timestamp: -1, records_count: 0, ..*of };
    let mut batch = BytesMut::from(header.encode().as_slice());
    set_crc(&mut batch);
    batch.freeze()
}

/// The kind of marker that a control batch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// A transaction was aborted.
    Abort,
    /// A transaction was committed.
    Commit,
    /// Something else.
    Other,
    /// Its record was removed.
    Empty,
}

/// Reads the kind of a control batch; control batches are never compressed.
///
/// Source: apache/kafka `ControlRecordType.parse`.
#[must_use]
pub fn control_kind(batch: &[u8], header: &BatchHeader) -> ControlKind {
    if header.records_count == 0 {
        return ControlKind::Empty;
    }
    let record = RawRecord::read(batch.get(HEADER_BYTES..).unwrap_or_default());
    match record.ok().and_then(|record| record.key).and_then(|key| key.get(2..4)) {
        Some([0, 0]) => ControlKind::Abort,
        Some([0, 1]) => ControlKind::Commit,
        _ => ControlKind::Other,
    }
}

/// The kind of marker that a control batch holds, and the epoch of the coordinator that wrote it; `None` where it ends no
/// transaction.
///
/// Source: apache/kafka `EndTransactionMarker.deserialize`.
#[must_use]
pub fn marker_of(batch: &[u8], header: &BatchHeader) -> Option<(ControlKind, i32)> {
    let kind = control_kind(batch, header);
    if !matches!(kind, ControlKind::Abort | ControlKind::Commit) {
        return None;
    }
    let records = batch.get(HEADER_BYTES..)?;
    let mut rest = records.get(RawRecord::read(records).ok()?.tail_at..)?;
    take_field(&mut rest).ok()?;
    let value = take_field(&mut rest).ok()??;
    // A version stands in front.
    Some((kind, i32::from_be_bytes(*value.get(2..)?.first_chunk()?)))
}

/// A record as its bytes say.
struct RawRecord<'a> {
    /// All of its bytes, length included.
    bytes: usize,
    attributes: u8,
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&'a [u8]>,
    has_value: bool,
    /// Where what does not change begins: key, value, headers.
    tail_at: usize,
}

impl<'a> RawRecord<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let mut rest = bytes;
        let length = take_number(&mut rest, varint::read_i32)?;
        let length = usize::try_from(length).map_err(|_| "its length is negative")?;
        let body = rest.get(..length).ok_or("the payload ends inside of it")?;
        let whole = bytes.len() - rest.len() + length;
        let (attributes, mut rest) = body.split_first().ok_or("it is empty")?;
        let timestamp_delta = take_number(&mut rest, varint::read_i64)?;
        let offset_delta = take_number(&mut rest, varint::read_i32)?;
        let tail_at = whole - rest.len();
        let key = take_field(&mut rest)?;
        let has_value = take_number(&mut rest, varint::read_i32)? >= 0;
        Ok(Self { bytes: whole, attributes: *attributes, timestamp_delta, offset_delta, key, has_value, tail_at })
    }
}

/// Takes a length and that many bytes; `None` for a null.
fn take_field<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    let Ok(length) = usize::try_from(take_number(rest, varint::read_i32)?) else { return Ok(None) };
    let (field, behind) = rest.split_at_checked(length).ok_or("it is shorter than its key")?;
    *rest = behind;
    Ok(Some(field))
}

fn take_number<T>(rest: &mut &[u8], read: impl Fn(&[u8]) -> Varint<T>) -> Result<T, &'static str> {
    match read(rest) {
        Varint::Number(value, bytes) => {
            *rest = rest.get(bytes..).unwrap_or_default();
            Ok(value)
        }
        Varint::Short => Err("it ends inside of a number"),
        Varint::Long => Err("a number does not end"),
    }
}

/// With the broker's time, that of the batch is the time of each record.
fn timestamp_of(header: &BatchHeader, record: &RawRecord<'_>) -> i64 {
    if header.attributes.is_log_append_time() {
        return header.max_timestamp;
    }
    header.base_timestamp.wrapping_add(record.timestamp_delta)
}
