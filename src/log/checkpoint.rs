//! The checkpoint file of a shard: recovery points, log starts and the full producer windows of its partitions.
//!
//! ```text
//! little-endian; a file is header, blocks, footer; what lies behind the footer is not read
//! header 72 B  0 magic "CLCKPT01"   8 version u16  10 kind u16 (1 full, 2 delta)  12 shard u32  16 generation u64
//!             24 seq u64  32 seq of the predecessor u64  40 partition entries u64  48 producer entries u64
//!             56 oldest needed log file u64  64 reserved u32  68 crc of bytes 0-67
//! block       0 magic "CLBK"  4 what u16 (1 partitions, 2 producers)  6 reserved u16  8 entries u32
//!             12 payload bytes u32  16 crc of payload u32  20 crc of bytes 0-19 | payload of at most 1 MiB
//! partition   56 B  log id u64 | log start i64 | recovery point i64 | segment base i64 | position u64
//!             | leader epoch u32 | flags u32 (bit 0: removed,
//!             bits 8-31: check of the abort index) | bytes of the segment file u64
//! producer    40 B  log id u64 | producer id i64 | epoch i16 | n u8 | flags u8 (bit 0: removed)
//!             | coordinator epoch i32 | last append ms i64 | first offset of the open transaction i64 (-1: none)
//!             + n (at most 5) x 28 B, oldest first  base offset i64 | last offset delta u32 | first sequence i32
//!             | last sequence i32 | max timestamp i64
//! footer 32 B  0 magic "CLCKEND1"  8 seq u64  16 entries u64  24 blocks u32  28 crc of bytes 0-27
//! ```
//! A delta holds what changed since its predecessor. Which files form a chain: `checkpoint_chain.rs`.

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};

use super::crc::crc32c;
use crate::ids::{LogId, Offset, ProducerEpoch, ProducerId, Sequence};
use crate::state::producers::ProducerState;
use crate::state::window::{Remembered, WINDOW_BATCHES};

const HEADER_MAGIC: &[u8; 8] = b"CLCKPT01";
const BLOCK_MAGIC: &[u8; 4] = b"CLBK";
const FOOTER_MAGIC: &[u8; 8] = b"CLCKEND1";
const VERSION: u16 = 1;
/// Size of the header, which is written last.
pub const HEADER_BYTES: usize = 72;
const BLOCK_HEADER_BYTES: usize = 24;
const FOOTER_BYTES: usize = 32;
const PARTITIONS: u16 = 1;
const PRODUCERS: u16 = 2;
const REMOVED: u8 = 1;
/// Where the check of the abort index begins among the flags of a partition.
const ABORT_CHECK_SHIFT: u32 = 8;
/// Payload of one block.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Size of a partition entry.
pub const PARTITION_ENTRY_BYTES: usize = 56;
/// Size of a producer entry without its window.
pub const PRODUCER_ENTRY_BYTES: usize = 40;
/// Size of one batch of a producer's window.
pub const WINDOW_ENTRY_BYTES: usize = 28;

/// What a checkpoint file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything of the shard.
    Full,
    /// What changed since the predecessor.
    Delta,
}

/// Who wrote a checkpoint, and where it stands in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Full or delta.
    pub kind: Kind,
    /// Whose.
    pub shard: u32,
    /// The store's generation at the time.
    pub generation: u64,
    /// Number of this checkpoint in its folder; only grows.
    pub seq: u64,
    /// Number of the one before it; a full one names it too.
    pub previous: u64,
    /// Number of the oldest commit log file that holds something this checkpoint does not cover.
    pub oldest_needed_file: u64,
}

/// One partition as of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionEntry {
    /// Which partition, and which life of it.
    pub log_id: LogId,
    /// The partition is gone; the rest says nothing.
    pub removed: bool,
    /// Smallest offset that clients may read.
    pub log_start: Offset,
    /// Everything below is flushed to the segments.
    pub recovery_point: Offset,
    /// Base offset of the segment that holds the recovery point.
    pub segment_base: Offset,
    /// Where the recovery point is in that segment.
    pub position: u64,
    /// Leader epoch of the newest batch below the recovery point; 0 for none.
    pub leader_epoch: u32,
    /// Size of that segment's file.
    pub segment_file_bytes: u64,
    /// Check of that segment's abort index below the recovery point, 24 bits; 0 for an empty one.
    pub abort_check: u32,
}

/// One producer of one partition as of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// Which partition.
    pub log_id: LogId,
    /// Who.
    pub producer_id: ProducerId,
    /// What is known of it; `None` if it was forgotten (expired, evicted).
    pub state: Option<ProducerState>,
}

/// One checkpoint file, as read. There may be a million producers, so they stay the bytes that they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where it stands.
    pub header: Header,
    /// Partitions.
    pub partitions: Vec<PartitionEntry>,
    producers: Vec<Bytes>,
}

/// Why a checkpoint file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It ends too early.
    #[error("it is cut off")]
    Short,
    /// Something stands where a part of a checkpoint must be.
    #[error("it is no checkpoint")]
    Magic,
    /// Written by a later release: never guessed.
    #[error("it has the unknown version {0}")]
    Version(u16),
    /// A checksum does not fit.
    #[error("a checksum does not fit")]
    Checksum,
    /// Counts or kinds that contradict each other.
    #[error("its counts do not fit its content")]
    Counts,
}

impl From<TryGetError> for Damage {
    fn from(_: TryGetError) -> Self {
        Self::Short
    }
}

/// Packs entries into blocks; a checkpoint of any size takes no more memory than a block or two.
///
/// Blocks of one kind should come together: each change of kind begins a new block.
#[derive(Debug, Default)]
pub struct Encoder {
    closed: Vec<Bytes>,
    block: BytesMut,
    what: u16,
    entries: u32,
    blocks: u32,
    partitions: u64,
    producers: u64,
}

impl Encoder {
    /// Adds a partition.
    pub fn partition(&mut self, entry: &PartitionEntry) {
        self.make_room(PARTITIONS, PARTITION_ENTRY_BYTES);
        put_partition(&mut self.block, entry);
        self.partitions += 1;
    }

    /// Adds a producer.
    pub fn producer(&mut self, entry: &ProducerEntry) {
        self.make_room(PRODUCERS, PRODUCER_ENTRY_BYTES + WINDOW_BATCHES * WINDOW_ENTRY_BYTES);
        put_producer(&mut self.block, entry);
        self.producers += 1;
    }

    /// Blocks that are full since this was last asked; they stand behind those that were given before.
    pub fn take_closed(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.closed)
    }

    /// The header of the file, and what stands behind the blocks that were given before.
    #[must_use]
    pub fn finish(mut self, header: &Header) -> (Bytes, Vec<Bytes>) {
        self.close();
        self.closed.push(self.footer(header.seq));
        (self.header(header), self.closed)
    }

    /// Begins an entry of at most `bytes` bytes.
    fn make_room(&mut self, what: u16, bytes: usize) {
        if what != self.what || self.block.len() + bytes > BLOCK_HEADER_BYTES + BLOCK_BYTES_MAX {
            self.close();
            self.what = what;
        }
        if self.block.is_empty() {
            self.block.put_bytes(0, BLOCK_HEADER_BYTES);
        }
        self.entries += 1;
    }

    fn close(&mut self) {
        if self.entries == 0 {
            return;
        }
        let payload = &self.block[BLOCK_HEADER_BYTES..];
        let mut header = BytesMut::with_capacity(BLOCK_HEADER_BYTES);
        header.put_slice(BLOCK_MAGIC);
        header.put_u16_le(self.what);
        header.put_u16_le(0);
        header.put_u32_le(self.entries);
        header.put_u32_le(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        header.put_u32_le(crc32c(payload));
        header.put_u32_le(crc32c(&header));
        self.block[..BLOCK_HEADER_BYTES].copy_from_slice(&header);
        self.closed.push(std::mem::take(&mut self.block).freeze());
        self.entries = 0;
        self.blocks += 1;
    }

    fn header(&self, header: &Header) -> Bytes {
        let mut file = BytesMut::with_capacity(HEADER_BYTES);
        file.put_slice(HEADER_MAGIC);
        file.put_u16_le(VERSION);
        file.put_u16_le(match header.kind {
            Kind::Full => 1,
            Kind::Delta => 2,
        });
        file.put_u32_le(header.shard);
        file.put_u64_le(header.generation);
        file.put_u64_le(header.seq);
        file.put_u64_le(header.previous);
        file.put_u64_le(self.partitions);
        file.put_u64_le(self.producers);
        file.put_u64_le(header.oldest_needed_file);
        file.put_u32_le(0);
        file.put_u32_le(crc32c(&file));
        file.freeze()
    }

    fn footer(&self, seq: u64) -> Bytes {
        let mut footer = BytesMut::with_capacity(FOOTER_BYTES);
        footer.put_slice(FOOTER_MAGIC);
        footer.put_u64_le(seq);
        footer.put_u64_le(self.partitions + self.producers);
        footer.put_u32_le(self.blocks);
        footer.put_u32_le(crc32c(&footer));
        footer.freeze()
    }
}

impl Checkpoint {
    /// Reads a file; what lies behind the footer is ignored.
    ///
    /// # Errors
    /// Says what is wrong. Nothing of a damaged file is used.
    pub fn decode(file: &Bytes) -> Result<Self, Damage> {
        let mut rest = &file[..];
        let (header, partition_count, producer_count) = get_header(&mut rest)?;
        let mut checkpoint = Self { header, partitions: Vec::new(), producers: Vec::new() };
        let (mut blocks, mut producers) = (0, 0);
        while rest.starts_with(BLOCK_MAGIC) {
            let (what, entries, payload) = checked_block(&mut rest)?;
            match what {
                PARTITIONS => checkpoint.add_partitions(entries, payload)?,
                PRODUCERS => {
                    check_producers(entries, payload)?;
                    producers += u64::from(entries);
                    checkpoint.producers.push(file.slice_ref(payload));
                }
                _ => return Err(Damage::Counts),
            }
            blocks += 1;
        }
        check_footer(rest, header.seq, partition_count.wrapping_add(producer_count), blocks)?;
        let counted = checkpoint.partitions.len() as u64 == partition_count && producers == producer_count;
        if counted { Ok(checkpoint) } else { Err(Damage::Counts) }
    }

    /// The producers, in the order in which they were written: of two entries the later one counts.
    pub fn producers(&self) -> impl Iterator<Item = ProducerEntry> {
        self.producers.iter().flat_map(|block| {
            let mut rest = &block[..];
            // They were checked when the file was read.
            std::iter::from_fn(move || if rest.is_empty() { None } else { get_producer(&mut rest).ok() })
        })
    }

    fn add_partitions(&mut self, entries: u32, mut payload: &[u8]) -> Result<(), Damage> {
        for _ in 0..entries {
            self.partitions.push(get_partition(&mut payload)?);
        }
        if payload.is_empty() { Ok(()) } else { Err(Damage::Counts) }
    }
}

fn check_producers(entries: u32, mut payload: &[u8]) -> Result<(), Damage> {
    for _ in 0..entries {
        get_producer(&mut payload)?;
    }
    if payload.is_empty() { Ok(()) } else { Err(Damage::Counts) }
}

/// Cuts `bytes` off the front whose last four are the checksum of the others; returns the others.
fn take_checked<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Damage> {
    let (part, behind) = rest.split_at_checked(bytes).ok_or(Damage::Short)?;
    let (covered, mut crc) = part.split_at(bytes - 4);
    if crc.try_get_u32_le()? != crc32c(covered) {
        return Err(Damage::Checksum);
    }
    *rest = behind;
    Ok(covered)
}

fn get_header(rest: &mut &[u8]) -> Result<(Header, u64, u64), Damage> {
    if !rest.starts_with(HEADER_MAGIC) {
        return Err(Damage::Magic);
    }
    // The checksum first: a flipped bit in the version is damage, not a later release.
    let mut fields = &take_checked(rest, HEADER_BYTES)?[HEADER_MAGIC.len()..];
    let version = fields.try_get_u16_le()?;
    if version != VERSION {
        return Err(Damage::Version(version));
    }
    let kind = match fields.try_get_u16_le()? {
        1 => Kind::Full,
        2 => Kind::Delta,
        _ => return Err(Damage::Counts),
    };
    let shard = fields.try_get_u32_le()?;
    let generation = fields.try_get_u64_le()?;
    let seq = fields.try_get_u64_le()?;
    let previous = fields.try_get_u64_le()?;
    let partition_count = fields.try_get_u64_le()?;
    let producer_count = fields.try_get_u64_le()?;
    let oldest_needed_file = fields.try_get_u64_le()?;
    let header = Header { kind, shard, generation, seq, previous, oldest_needed_file };
    Ok((header, partition_count, producer_count))
}

fn checked_block<'a>(rest: &mut &'a [u8]) -> Result<(u16, u32, &'a [u8]), Damage> {
    let mut fields = &take_checked(rest, BLOCK_HEADER_BYTES)?[BLOCK_MAGIC.len()..];
    let what = fields.try_get_u16_le()?;
    let _reserved = fields.try_get_u16_le()?;
    let entries = fields.try_get_u32_le()?;
    let bytes = fields.try_get_u32_le()? as usize;
    let crc = fields.try_get_u32_le()?;
    let (payload, behind) = rest.split_at_checked(bytes).ok_or(Damage::Short)?;
    if crc32c(payload) != crc {
        return Err(Damage::Checksum);
    }
    *rest = behind;
    Ok((what, entries, payload))
}

fn check_footer(mut rest: &[u8], seq: u64, entries: u64, blocks: u32) -> Result<(), Damage> {
    if rest.len() < FOOTER_BYTES {
        return Err(Damage::Short);
    }
    let mut fields = take_checked(&mut rest, FOOTER_BYTES)?.strip_prefix(FOOTER_MAGIC).ok_or(Damage::Magic)?;
    let same_seq = fields.try_get_u64_le()? == seq;
    let same_entries = fields.try_get_u64_le()? == entries;
    let same_blocks = fields.try_get_u32_le()? == blocks;
    if same_seq && same_entries && same_blocks { Ok(()) } else { Err(Damage::Counts) }
}

fn put_partition(to: &mut BytesMut, entry: &PartitionEntry) {
    to.put_u64_le(entry.log_id.0);
    to.put_i64_le(entry.log_start.0);
    to.put_i64_le(entry.recovery_point.0);
    to.put_i64_le(entry.segment_base.0);
    to.put_u64_le(entry.position);
    to.put_u32_le(entry.leader_epoch);
    to.put_u32_le(u32::from(entry.removed) | entry.abort_check << ABORT_CHECK_SHIFT);
    to.put_u64_le(entry.segment_file_bytes);
}

fn get_partition(from: &mut &[u8]) -> Result<PartitionEntry, Damage> {
    let log_id = LogId(from.try_get_u64_le()?);
    let log_start = Offset(from.try_get_i64_le()?);
    let recovery_point = Offset(from.try_get_i64_le()?);
    let segment_base = Offset(from.try_get_i64_le()?);
    let position = from.try_get_u64_le()?;
    let leader_epoch = from.try_get_u32_le()?;
    let flags = from.try_get_u32_le()?;
    let removed = flags & u32::from(REMOVED) != 0;
    let segment_file_bytes = from.try_get_u64_le()?;
    Ok(PartitionEntry {
        log_id,
        removed,
        log_start,
        recovery_point,
        segment_base,
        position,
        leader_epoch,
        segment_file_bytes,
        abort_check: flags >> ABORT_CHECK_SHIFT,
    })
}

fn put_producer(to: &mut BytesMut, entry: &ProducerEntry) {
    let none = ProducerState::new(ProducerEpoch(-1));
    let state = entry.state.as_ref().unwrap_or(&none);
    let window = state.window.batches();
    to.put_u64_le(entry.log_id.0);
    to.put_i64_le(entry.producer_id.0);
    to.put_i16_le(state.epoch.0);
    to.put_u8(u8::try_from(window.len()).unwrap_or(0));
    to.put_u8(if entry.state.is_none() { REMOVED } else { 0 });
    to.put_i32_le(state.coordinator_epoch);
    to.put_i64_le(state.last_append_ms);
    to.put_i64_le(state.txn_first_offset().map_or(-1, |offset| offset.0));
    for batch in window {
        to.put_i64_le(batch.base_offset.0);
        to.put_i32_le(batch.last_offset_delta);
        to.put_i32_le(batch.first_sequence.0);
        to.put_i32_le(batch.last_sequence().0);
        to.put_i64_le(batch.max_timestamp);
    }
}

fn get_producer(from: &mut &[u8]) -> Result<ProducerEntry, Damage> {
    let log_id = LogId(from.try_get_u64_le()?);
    let producer_id = ProducerId(from.try_get_i64_le()?);
    let mut state = ProducerState::new(ProducerEpoch(from.try_get_i16_le()?));
    let batches = usize::from(from.try_get_u8()?);
    let removed = from.try_get_u8()? & REMOVED != 0;
    if batches > WINDOW_BATCHES {
        return Err(Damage::Counts);
    }
    state.coordinator_epoch = from.try_get_i32_le()?;
    state.last_append_ms = from.try_get_i64_le()?;
    state.set_txn_first_offset(Some(from.try_get_i64_le()?).filter(|offset| *offset >= 0).map(Offset));
    for _ in 0..batches {
        state.window.push(get_batch(from)?);
    }
    Ok(ProducerEntry { log_id, producer_id, state: (!removed).then_some(state) })
}

fn get_batch(from: &mut &[u8]) -> Result<Remembered, Damage> {
    let base_offset = Offset(from.try_get_i64_le()?);
    let last_offset_delta = from.try_get_i32_le()?.max(0);
    let first_sequence = Sequence(from.try_get_i32_le()?);
    let _last_sequence = from.try_get_i32_le()?;
    Ok(Remembered { base_offset, last_offset_delta, first_sequence, max_timestamp: from.try_get_i64_le()? })
}
