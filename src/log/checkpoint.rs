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
//!             | leader epoch u32 | flags u32 (bit 0: removed) | bytes of the segment file u64
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

const HEADER_MAGIC: &[u8; 8] = b"CLCKPT01";
const BLOCK_MAGIC: &[u8; 4] = b"CLBK";
const FOOTER_MAGIC: &[u8; 8] = b"CLCKEND1";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 72;
const BLOCK_HEADER_BYTES: usize = 24;
const FOOTER_BYTES: usize = 32;
const PARTITIONS: u16 = 1;
const PRODUCERS: u16 = 2;
const REMOVED: u8 = 1;
/// Payload of one block.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Size of a partition entry.
pub const PARTITION_ENTRY_BYTES: usize = 56;
/// Size of a producer entry without its window.
pub const PRODUCER_ENTRY_BYTES: usize = 40;
/// Size of one batch of a producer's window.
pub const WINDOW_ENTRY_BYTES: usize = 28;
/// Batches in a window.
pub const WINDOW_MAX: usize = 5;

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
    /// Generation of the newest batch.
    pub leader_epoch: u32,
    /// Size of that segment's file.
    pub segment_file_bytes: u64,
}

/// One batch of a producer's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEntry {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Its records, less one (gaps included).
    pub last_offset_delta: u32,
    /// Sequence of its first record.
    pub first_sequence: Sequence,
    /// Sequence of its last record.
    pub last_sequence: Sequence,
    /// Its largest timestamp, milliseconds since 1970.
    pub max_timestamp: i64,
}

/// One producer of one partition as of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// Which partition.
    pub log_id: LogId,
    /// Who.
    pub producer_id: ProducerId,
    /// Which incarnation.
    pub epoch: ProducerEpoch,
    /// The producer was forgotten (expired, evicted); the rest says nothing.
    pub removed: bool,
    /// Coordinator epoch of the newest marker; -1 for none.
    pub coordinator_epoch: i32,
    /// When the newest batch was appended, by the broker's clock, milliseconds since 1970.
    pub last_append_ms: i64,
    /// First offset of the open transaction.
    pub txn_first_offset: Option<Offset>,
    /// The last batches, oldest first, at most [`WINDOW_MAX`] (of more, the newest are kept).
    pub window: Vec<WindowEntry>,
}

/// One checkpoint file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where it stands.
    pub header: Header,
    /// Partitions.
    pub partitions: Vec<PartitionEntry>,
    /// Producers.
    pub producers: Vec<ProducerEntry>,
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

impl Checkpoint {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut file = BytesMut::with_capacity(self.size_hint());
        self.put_header(&mut file);
        let mut blocks = Blocks { file, block: BytesMut::new(), entries: 0, blocks: 0 };
        for entry in &self.partitions {
            blocks.make_room(PARTITIONS, PARTITION_ENTRY_BYTES);
            put_partition(&mut blocks.block, entry);
            blocks.entries += 1;
        }
        blocks.close(PARTITIONS);
        for entry in &self.producers {
            blocks.make_room(PRODUCERS, PRODUCER_ENTRY_BYTES + WINDOW_MAX * WINDOW_ENTRY_BYTES);
            put_producer(&mut blocks.block, entry);
            blocks.entries += 1;
        }
        blocks.close(PRODUCERS);
        let (mut file, count) = (blocks.file, blocks.blocks);
        self.put_footer(&mut file, count);
        file.freeze()
    }

    /// Reads a file; what lies behind the footer is ignored.
    ///
    /// # Errors
    /// Says what is wrong. Nothing of a damaged file is used.
    pub fn decode(file: &[u8]) -> Result<Self, Damage> {
        let mut rest = file;
        let (header, partition_count, producer_count) = get_header(&mut rest)?;
        let mut checkpoint = Self { header, partitions: Vec::new(), producers: Vec::new() };
        let mut blocks = 0;
        while rest.starts_with(BLOCK_MAGIC) {
            checkpoint.get_block(&mut rest)?;
            blocks += 1;
        }
        check_footer(rest, header.seq, partition_count.wrapping_add(producer_count), blocks)?;
        let counted = checkpoint.partitions.len() as u64 == partition_count
            && checkpoint.producers.len() as u64 == producer_count;
        if counted { Ok(checkpoint) } else { Err(Damage::Counts) }
    }

    fn size_hint(&self) -> usize {
        let partitions = self.partitions.len() * PARTITION_ENTRY_BYTES;
        let producers = self.producers.len() * (PRODUCER_ENTRY_BYTES + WINDOW_MAX * WINDOW_ENTRY_BYTES);
        let payload = partitions + producers;
        HEADER_BYTES + FOOTER_BYTES + payload + (payload / BLOCK_BYTES_MAX + 3) * BLOCK_HEADER_BYTES
    }

    fn put_header(&self, file: &mut BytesMut) {
        let header = &self.header;
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
        file.put_u64_le(self.partitions.len() as u64);
        file.put_u64_le(self.producers.len() as u64);
        file.put_u64_le(header.oldest_needed_file);
        file.put_u32_le(0);
        file.put_u32_le(crc32c(file));
    }

    fn put_footer(&self, file: &mut BytesMut, blocks: u32) {
        let mut footer = BytesMut::with_capacity(FOOTER_BYTES);
        footer.put_slice(FOOTER_MAGIC);
        footer.put_u64_le(self.header.seq);
        footer.put_u64_le((self.partitions.len() + self.producers.len()) as u64);
        footer.put_u32_le(blocks);
        footer.put_u32_le(crc32c(&footer));
        file.put(footer);
    }

    fn get_block(&mut self, rest: &mut &[u8]) -> Result<(), Damage> {
        let (what, entries, mut payload) = checked_block(rest)?;
        for _ in 0..entries {
            match what {
                PARTITIONS => self.partitions.push(get_partition(&mut payload)?),
                PRODUCERS => self.producers.push(get_producer(&mut payload)?),
                _ => return Err(Damage::Counts),
            }
        }
        if payload.is_empty() { Ok(()) } else { Err(Damage::Counts) }
    }
}

/// Packs entries into blocks behind what is in `file` already.
struct Blocks {
    file: BytesMut,
    block: BytesMut,
    entries: u32,
    blocks: u32,
}

impl Blocks {
    fn make_room(&mut self, what: u16, bytes: usize) {
        if self.block.len() + bytes > BLOCK_BYTES_MAX {
            self.close(what);
        }
    }

    fn close(&mut self, what: u16) {
        if self.entries == 0 {
            return;
        }
        let mut header = BytesMut::with_capacity(BLOCK_HEADER_BYTES);
        header.put_slice(BLOCK_MAGIC);
        header.put_u16_le(what);
        header.put_u16_le(0);
        header.put_u32_le(self.entries);
        header.put_u32_le(u32::try_from(self.block.len()).unwrap_or(u32::MAX));
        header.put_u32_le(crc32c(&self.block));
        header.put_u32_le(crc32c(&header));
        self.file.put(header);
        self.file.put_slice(&self.block);
        self.block.clear();
        self.entries = 0;
        self.blocks += 1;
    }
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
    let mut start = rest.strip_prefix(HEADER_MAGIC).ok_or(Damage::Magic)?;
    let version = start.try_get_u16_le()?;
    if version != VERSION {
        return Err(Damage::Version(version));
    }
    let covered = take_checked(rest, HEADER_BYTES)?;
    let mut fields = &covered[10..];
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
    to.put_u32_le(u32::from(entry.removed));
    to.put_u64_le(entry.segment_file_bytes);
}

fn get_partition(from: &mut &[u8]) -> Result<PartitionEntry, Damage> {
    let log_id = LogId(from.try_get_u64_le()?);
    let log_start = Offset(from.try_get_i64_le()?);
    let recovery_point = Offset(from.try_get_i64_le()?);
    let segment_base = Offset(from.try_get_i64_le()?);
    let position = from.try_get_u64_le()?;
    let leader_epoch = from.try_get_u32_le()?;
    let removed = from.try_get_u32_le()? & u32::from(REMOVED) != 0;
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
    })
}

fn put_producer(to: &mut BytesMut, entry: &ProducerEntry) {
    let window = &entry.window[entry.window.len().saturating_sub(WINDOW_MAX)..];
    to.put_u64_le(entry.log_id.0);
    to.put_i64_le(entry.producer_id.0);
    to.put_i16_le(entry.epoch.0);
    to.put_u8(u8::try_from(window.len()).unwrap_or(0));
    to.put_u8(if entry.removed { REMOVED } else { 0 });
    to.put_i32_le(entry.coordinator_epoch);
    to.put_i64_le(entry.last_append_ms);
    to.put_i64_le(entry.txn_first_offset.map_or(-1, |offset| offset.0));
    for batch in window {
        to.put_i64_le(batch.base_offset.0);
        to.put_u32_le(batch.last_offset_delta);
        to.put_i32_le(batch.first_sequence.0);
        to.put_i32_le(batch.last_sequence.0);
        to.put_i64_le(batch.max_timestamp);
    }
}

fn get_producer(from: &mut &[u8]) -> Result<ProducerEntry, Damage> {
    let log_id = LogId(from.try_get_u64_le()?);
    let producer_id = ProducerId(from.try_get_i64_le()?);
    let epoch = ProducerEpoch(from.try_get_i16_le()?);
    let batches = usize::from(from.try_get_u8()?);
    let removed = from.try_get_u8()? & REMOVED != 0;
    if batches > WINDOW_MAX {
        return Err(Damage::Counts);
    }
    let coordinator_epoch = from.try_get_i32_le()?;
    let last_append_ms = from.try_get_i64_le()?;
    let txn_first_offset = Some(from.try_get_i64_le()?).filter(|offset| *offset >= 0).map(Offset);
    let window = (0..batches).map(|_| get_window_entry(from)).collect::<Result<_, Damage>>()?;
    Ok(ProducerEntry {
        log_id,
        producer_id,
        epoch,
        removed,
        coordinator_epoch,
        last_append_ms,
        txn_first_offset,
        window,
    })
}

fn get_window_entry(from: &mut &[u8]) -> Result<WindowEntry, Damage> {
    Ok(WindowEntry {
        base_offset: Offset(from.try_get_i64_le()?),
        last_offset_delta: from.try_get_u32_le()?,
        first_sequence: Sequence(from.try_get_i32_le()?),
        last_sequence: Sequence(from.try_get_i32_le()?),
        max_timestamp: from.try_get_i64_le()?,
    })
}
