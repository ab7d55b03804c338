//! Record batches of format v2: header, CRC, and the few bytes that a broker may change.
//!
//! ```text
//!  at  bytes  field                       at  bytes  field
//!   0      8  base offset         (*)     23      4  last offset delta
//!   8      4  length from here on         27      8  base timestamp
//!  12      4  leader epoch        (*)     35      8  max timestamp          (**)
//!  16      1  magic, 2                    43      8  producer id
//!  17      4  CRC-32C from 21 on          51      2  producer epoch
//!  21      2  attributes          (**)    53      4  base sequence
//!                                         57      4  number of records, then the records
//! ```
//! (*) may change at any time, the CRC does not cover it; (**) changes what the CRC covers.

use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence};

/// Bytes of a batch before its records.
pub const HEADER_BYTES: usize = 61;

/// Bytes that stand before what the length field counts.
pub const LENGTH_END: usize = 12;

/// First byte that the CRC covers.
pub const CRC_START: usize = 21;

/// The only format that is written today.
pub const MAGIC: i8 = 2;

/// Smallest value of the length field in any format: below it, not even an old message fits.
const LENGTH_MIN: i32 = 14;

const LEADER_EPOCH_AT: usize = 12;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;
const MAGIC_AT: usize = 16;

/// Why bytes are not a whole, sound batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("the bytes end inside a record batch: it needs {needed} bytes, {have} are there")]
    Short {
        /// Bytes that the batch needs, as far as known.
        needed: u64,
        /// Bytes that are there.
        have: u64,
    },
    /// The length field cannot be right.
    #[error("a record batch cannot have the length {0}")]
    Length(i32),
    /// An old format (0 or 1).
    #[error("records of format {0} are not stored; only format 2 is")]
    OldMagic(i8),
    /// A format that nobody knows.
    #[error("{0} is no known format of records")]
    UnknownMagic(i8),
    /// The CRC does not fit the bytes.
    #[error("the CRC of the record batch is {computed:#010x}, its header says {stored:#010x}")]
    Crc {
        /// As the header says.
        stored: u32,
        /// As the bytes say.
        computed: u32,
    },
}

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// As they are.
    None,
    /// gzip members.
    Gzip,
    /// snappy: one raw block, or the xerial framing.
    Snappy,
    /// An lz4 frame.
    Lz4,
    /// A zstd frame.
    Zstd,
}

/// The attributes field of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC: i16 = 0b111;
    const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;
    /// Bits that mean something; Kafka drops the others when it writes the attributes anew.
    const KNOWN: i16 = 0x7f;

    /// The codec; `None` for the three numbers that nobody uses.
    #[must_use]
    pub const fn codec(self) -> Option<Codec> {
        match self.0 & Self::CODEC {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// Whether the timestamps are those of the broker.
    #[must_use]
    pub const fn is_log_append_time(self) -> bool {
        self.0 & Self::LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch is a marker of a broker.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is the time after which compaction may drop tombstones.
    #[must_use]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same with another codec.
    #[must_use]
    pub const fn with_codec(self, codec: Codec) -> Self {
        Self((self.0 & !Self::CODEC) | codec as i16)
    }

    /// The same with or without the broker's timestamps.
    #[must_use]
    pub const fn with_log_append_time(self, on: bool) -> Self {
        self.with(Self::LOG_APPEND_TIME, on)
    }

    /// The same inside or outside of a transaction.
    #[must_use]
    pub const fn with_transactional(self, on: bool) -> Self {
        self.with(Self::TRANSACTIONAL, on)
    }

    /// The same as a marker, or not.
    #[must_use]
    pub const fn with_control(self, on: bool) -> Self {
        self.with(Self::CONTROL, on)
    }

    /// The same with or without a delete horizon in the place of the base timestamp.
    #[must_use]
    pub const fn with_delete_horizon(self, on: bool) -> Self {
        self.with(Self::DELETE_HORIZON, on)
    }

    const fn with(self, bit: i16, on: bool) -> Self {
        if on { Self(self.0 | bit) } else { Self(self.0 & !bit) }
    }
}

/// The header of a batch, every field as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Bytes of the batch behind this field.
    pub batch_length: i32,
    /// Epoch of the leader that wrote it.
    pub leader_epoch: i32,
    /// Format; always 2 in a header that was read.
    pub magic: i8,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec, kind of timestamps, transaction bits.
    pub attributes: Attributes,
    /// Offset of the last record, counted from the base offset.
    pub last_offset_delta: i32,
    /// Timestamp that the records count from, in ms.
    pub base_timestamp: i64,
    /// Largest timestamp, in ms.
    pub max_timestamp: i64,
    /// Who wrote it; negative without idempotence.
    pub producer_id: ProducerId,
    /// Incarnation of the writer.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record.
    pub base_sequence: Sequence,
    /// Number of records.
    pub records_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, checking length field and format, not the CRC.
    ///
    /// # Errors
    /// `Short` if the header, or the batch that it announces, is not wholly there; `Length`, `OldMagic` and
    /// `UnknownMagic` if this is no batch of format 2.
    pub fn read(bytes: &[u8]) -> Result<Self, BatchError> {
        let needed = Self::size_of_batch(bytes)?;
        match bytes.first_chunk() {
            Some(head) if bytes.len() >= needed => Ok(Self::decode(head)),
            _ => Err(BatchError::Short { needed: needed as u64, have: bytes.len() as u64 }),
        }
    }

    /// Reads the header alone, for batches whose records are not in memory.
    ///
    /// # Errors
    /// As [`BatchHeader::read`], except that the records may be missing.
    pub fn read_head(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BatchError> {
        Self::size_of_batch(bytes)?;
        Ok(Self::decode(bytes))
    }

    /// What a run of batches of any format begins with: format and size of a batch that is wholly there, or `None` where
    /// the bytes end before it does.
    ///
    /// # Errors
    /// `Length` and `UnknownMagic` where no batch can begin.
    ///
    /// Source: apache/kafka `ByteBufferLogInputStream.nextBatchSize`.
    pub fn first_of_run(bytes: &[u8]) -> Result<Option<(i8, usize)>, BatchError> {
        let Some(length) = array_at(bytes, 8).map(i32::from_be_bytes) else { return Ok(None) };
        if length < LENGTH_MIN {
            return Err(BatchError::Length(length));
        }
        let Some(magic) = array_at(bytes, MAGIC_AT).map(i8::from_be_bytes) else { return Ok(None) };
        if !(0..=MAGIC).contains(&magic) {
            return Err(BatchError::UnknownMagic(magic));
        }
        let size = usize::try_from(length).unwrap_or_default() + LENGTH_END;
        Ok((bytes.len() >= size).then_some((magic, size)))
    }

    /// Bytes of the batch that starts at `bytes`, of which the first 17 must be there.
    fn size_of_batch(bytes: &[u8]) -> Result<usize, BatchError> {
        let short = |needed: usize| BatchError::Short { needed: needed as u64, have: bytes.len() as u64 };
        let length = i32::from_be_bytes(array_at(bytes, 8).ok_or(short(LENGTH_END))?);
        if length < LENGTH_MIN {
            return Err(BatchError::Length(length));
        }
        let magic = i8::from_be_bytes(array_at(bytes, MAGIC_AT).ok_or(short(CRC_AT))?);
        match magic {
            MAGIC => {}
            0 | 1 => return Err(BatchError::OldMagic(magic)),
            _ => return Err(BatchError::UnknownMagic(magic)),
        }
        match usize::try_from(length) {
            Ok(length) if length >= HEADER_BYTES - LENGTH_END => Ok(length + LENGTH_END),
            _ => Err(BatchError::Length(length)),
        }
    }

    fn decode(head: &[u8; HEADER_BYTES]) -> Self {
        let mut rest = head.as_slice();
        Self {
            base_offset: Offset(i64::from_be_bytes(take(&mut rest))),
            batch_length: i32::from_be_bytes(take(&mut rest)),
            leader_epoch: i32::from_be_bytes(take(&mut rest)),
            magic: i8::from_be_bytes(take(&mut rest)),
            crc: u32::from_be_bytes(take(&mut rest)),
            attributes: Attributes(i16::from_be_bytes(take(&mut rest))),
            last_offset_delta: i32::from_be_bytes(take(&mut rest)),
            base_timestamp: i64::from_be_bytes(take(&mut rest)),
            max_timestamp: i64::from_be_bytes(take(&mut rest)),
            producer_id: ProducerId(i64::from_be_bytes(take(&mut rest))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(take(&mut rest))),
            base_sequence: Sequence(i32::from_be_bytes(take(&mut rest))),
            records_count: i32::from_be_bytes(take(&mut rest)),
        }
    }

    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut head = [0; HEADER_BYTES];
        let mut rest = head.as_mut_slice();
        put(&mut rest, &self.base_offset.0.to_be_bytes());
        put(&mut rest, &self.batch_length.to_be_bytes());
        put(&mut rest, &self.leader_epoch.to_be_bytes());
        put(&mut rest, &self.magic.to_be_bytes());
        put(&mut rest, &self.crc.to_be_bytes());
        put(&mut rest, &self.attributes.0.to_be_bytes());
        put(&mut rest, &self.last_offset_delta.to_be_bytes());
        put(&mut rest, &self.base_timestamp.to_be_bytes());
        put(&mut rest, &self.max_timestamp.to_be_bytes());
        put(&mut rest, &self.producer_id.0.to_be_bytes());
        put(&mut rest, &self.producer_epoch.0.to_be_bytes());
        put(&mut rest, &self.base_sequence.0.to_be_bytes());
        put(&mut rest, &self.records_count.to_be_bytes());
        head
    }

    /// Bytes of the whole batch, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        usize::try_from(self.batch_length).map_or(LENGTH_END, |length| length + LENGTH_END)
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(i64::from(self.last_offset_delta)))
    }

    /// Offset that follows the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// Sequence of the last record.
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        self.base_sequence.plus(self.last_offset_delta)
    }

    /// Whether the writer asked for its batches to be kept once and in order.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.producer_id.0 >= 0
    }
}

/// CRC-32C of a batch as its bytes say, or 0 where there is not even a header.
#[must_use]
pub fn computed_crc(batch: &[u8]) -> u32 {
    batch.get(CRC_START..).map_or(0, crc_fast::crc32_iscsi)
}

/// Checks the CRC of one whole batch.
///
/// Shapes: `batch` is exactly one batch, as [`BatchHeader::size`] says.
///
/// # Errors
/// `Crc` if it does not fit, `Short` if there is no CRC at all.
pub fn check_crc(batch: &[u8]) -> Result<(), BatchError> {
    let short = BatchError::Short { needed: HEADER_BYTES as u64, have: batch.len() as u64 };
    let stored = u32::from_be_bytes(array_at(batch, CRC_AT).ok_or(short)?);
    let computed = computed_crc(batch);
    if stored == computed { Ok(()) } else { Err(BatchError::Crc { stored, computed }) }
}

/// Gives a batch its place in the log: the CRC stays right.
pub fn set_place(batch: &mut [u8], base_offset: Offset, leader_epoch: i32) {
    write_at(batch, 0, &base_offset.0.to_be_bytes());
    write_at(batch, LEADER_EPOCH_AT, &leader_epoch.to_be_bytes());
}

/// Sets kind and maximum of the timestamps, and the CRC if that changed anything.
///
/// With the broker's time, `max_timestamp` is the time of every record of the batch.
///
/// Source: apache/kafka `DefaultRecordBatch.setMaxTimestamp`.
pub fn set_max_timestamp(batch: &mut [u8], log_append_time: bool, max_timestamp: i64) {
    let Some(attributes) = array_at(batch, ATTRIBUTES_AT).map(i16::from_be_bytes) else { return };
    let wanted = Attributes(attributes & Attributes::KNOWN).with_log_append_time(log_append_time);
    if wanted.0 == attributes && array_at(batch, MAX_TIMESTAMP_AT) == Some(max_timestamp.to_be_bytes()) {
        return;
    }
    write_at(batch, ATTRIBUTES_AT, &wanted.0.to_be_bytes());
    write_at(batch, MAX_TIMESTAMP_AT, &max_timestamp.to_be_bytes());
    set_crc(batch);
}

/// Makes the CRC of a batch right.
pub fn set_crc(batch: &mut [u8]) {
    let crc = computed_crc(batch);
    write_at(batch, CRC_AT, &crc.to_be_bytes());
}

/// One batch inside a run of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRef<'a> {
    /// Where it starts within the run, in bytes.
    pub position: usize,
    /// Its header.
    pub header: BatchHeader,
    /// All of it, header included.
    pub bytes: &'a [u8],
}

/// The batches of a run of bytes, such as a piece of a segment; ends at the first thing that is no batch.
///
/// After the last batch, [`Batches::position`] is where the whole batches end, and the last item is the error
/// that ended them, if not simply the end of the bytes.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    check_crc: bool,
    ended: bool,
}

impl<'a> Batches<'a> {
    /// Reads headers only.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, check_crc: false, ended: false }
    }

    /// Reads headers and checks the CRC of each batch.
    #[must_use]
    pub fn checked(bytes: &'a [u8]) -> Self {
        Self { check_crc: true, ..Self::new(bytes) }
    }

    /// Where the next batch starts; once it has ended, the length of the valid prefix in bytes.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    fn read_next(&mut self) -> Result<BatchRef<'a>, BatchError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let header = BatchHeader::read(rest)?;
        let bytes = rest.get(..header.size()).unwrap_or_default();
        if self.check_crc {
            check_crc(bytes)?;
        }
        let batch = BatchRef { position: self.position, header, bytes };
        self.position += bytes.len();
        Ok(batch)
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchRef<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || self.position == self.bytes.len() {
            return None;
        }
        let next = self.read_next();
        self.ended = next.is_err();
        Some(next)
    }
}

/// The `N` bytes at `at`, if they are there.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Takes the next `N` bytes of a header, whose length is known to suffice.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    match rest.split_first_chunk() {
        Some((first, behind)) => {
            *rest = behind;
            *first
        }
        None => [0; N],
    }
}

/// Writes the next bytes of a header, whose length is known to suffice.
fn put(rest: &mut &mut [u8], value: &[u8]) {
    if let Some((first, behind)) = std::mem::take(rest).split_at_mut_checked(value.len()) {
        first.copy_from_slice(value);
        *rest = behind;
    }
}

/// Overwrites bytes at `at`; does nothing where there are none.
fn write_at(batch: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = batch.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}
