//! `<base>.seal`: what is known of a segment that is closed (or was left whole at a clean stop).
//!
//! Kafka's files beside a segment have no checksums; the seal tells a damaged one from a good one. It is derived
//! (storage rule S15): without it, or when it does not fit, everything is read again from the segment.
//!
//! ```text
//! little-endian, 128 bytes
//!   0 magic "CLSEAL01"       8 version u16        10 flags u16 (1 open, 2 clean)   12 abort entries u32
//!  16 log id u64            24 generation u64     32 base offset u64                40 end offset u64
//!  48 bytes of .log u64     56 max timestamp i64  64 offset of its batch i64        72 first timestamp i64
//!  80 crc of .log u32       84 crc of .txnindex   88 crc of .index                  92 crc of .timeindex
//!  96 reserved, zeros      124 crc of bytes 0-123
//! ```
//! Open: it was the active segment at a clean stop. Clean: compaction has looked at each of its keys.
//! "First timestamp" is the largest timestamp of the first batch, which is what rolling by time counts from.
//! -1 stands for "no timestamp".

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};

use super::crc::crc32c;
use super::index::TimestampOffset;
use crate::ids::{LogId, Offset};

const MAGIC: &[u8; 8] = b"CLSEAL01";
const VERSION: u16 = 1;
const OPEN: u16 = 1;
const CLEAN: u16 = 2;
const CRC_AT: usize = 124;
/// Size of the file.
pub const SEAL_BYTES: usize = 128;

/// Facts of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The segment was the active one at a clean stop and may grow.
    pub open: bool,
    /// Compaction has looked at each of its keys: it is behind what a next round begins with.
    pub clean: bool,
    /// Which partition, and which life of it.
    pub log_id: LogId,
    /// Who wrote this seal.
    pub generation: u64,
    /// First offset, as in the name.
    pub base: Offset,
    /// Offset that follows the last record.
    pub end: Offset,
    /// Size of `.log`.
    pub log_bytes: u64,
    /// Largest timestamp and its batch's last offset.
    pub newest: Option<TimestampOffset>,
    /// Largest timestamp of the first batch.
    pub first_timestamp: Option<i64>,
    /// Aborted transactions in `.txnindex`.
    pub abort_entries: u32,
    /// CRC-32C of each file; 0 for an empty one.
    pub crcs: FileCrcs,
}

/// CRC-32C of the files of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCrcs {
    /// Of `.log`.
    pub log: u32,
    /// Of `.txnindex`.
    pub txnindex: u32,
    /// Of `.index`.
    pub index: u32,
    /// Of `.timeindex`.
    pub timeindex: u32,
}

/// Why a seal is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealDamage {
    /// Not 128 bytes, or not our magic.
    #[error("it is no seal")]
    NoSeal,
    /// Written by a later release.
    #[error("unknown version {0}")]
    Version(u16),
    /// The checksum does not fit.
    #[error("wrong checksum")]
    Checksum,
}

impl From<TryGetError> for SealDamage {
    fn from(_: TryGetError) -> Self {
        Self::NoSeal
    }
}

impl Seal {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut file = BytesMut::with_capacity(SEAL_BYTES);
        file.put_slice(MAGIC);
        file.put_u16_le(VERSION);
        file.put_u16_le(if self.open { OPEN } else { 0 } | if self.clean { CLEAN } else { 0 });
        file.put_u32_le(self.abort_entries);
        file.put_u64_le(self.log_id.0);
        file.put_u64_le(self.generation);
        file.put_i64_le(self.base.0);
        file.put_i64_le(self.end.0);
        file.put_u64_le(self.log_bytes);
        file.put_i64_le(self.newest.map_or(-1, |newest| newest.timestamp));
        file.put_i64_le(self.newest.map_or(-1, |newest| newest.offset.0));
        file.put_i64_le(self.first_timestamp.unwrap_or(-1));
        for crc in [self.crcs.log, self.crcs.txnindex, self.crcs.index, self.crcs.timeindex] {
            file.put_u32_le(crc);
        }
        file.resize(CRC_AT, 0);
        file.put_u32_le(crc32c(&file));
        file.freeze()
    }

    /// Reads the file.
    ///
    /// # Errors
    /// Says what is wrong; the segment is then read instead.
    pub fn decode(file: &[u8]) -> Result<Self, SealDamage> {
        let (mut rest, mut crc) = checked_parts(file)?;
        let version = rest.try_get_u16_le()?;
        if version != VERSION {
            return Err(SealDamage::Version(version));
        }
        if crc.try_get_u32_le()? != crc32c(&file[..CRC_AT]) {
            return Err(SealDamage::Checksum);
        }
        Ok(read_fields(&mut rest)?)
    }
}

fn checked_parts(file: &[u8]) -> Result<(&[u8], &[u8]), SealDamage> {
    if file.len() != SEAL_BYTES {
        return Err(SealDamage::NoSeal);
    }
    let (covered, crc) = file.split_at(CRC_AT);
    let rest = covered.strip_prefix(MAGIC).ok_or(SealDamage::NoSeal)?;
    Ok((rest, crc))
}

fn read_fields(rest: &mut &[u8]) -> Result<Seal, TryGetError> {
    let flags = rest.try_get_u16_le()?;
    let (open, clean) = (flags & OPEN != 0, flags & CLEAN != 0);
    let abort_entries = rest.try_get_u32_le()?;
    let log_id = LogId(rest.try_get_u64_le()?);
    let generation = rest.try_get_u64_le()?;
    let base = Offset(rest.try_get_i64_le()?);
    let end = Offset(rest.try_get_i64_le()?);
    let log_bytes = rest.try_get_u64_le()?;
    let timestamp = rest.try_get_i64_le()?;
    let offset = Offset(rest.try_get_i64_le()?);
    let first_timestamp = Some(rest.try_get_i64_le()?).filter(|first| *first >= 0);
    let newest = (timestamp >= 0).then_some(TimestampOffset { timestamp, offset });
    let crcs = FileCrcs {
        log: rest.try_get_u32_le()?,
        txnindex: rest.try_get_u32_le()?,
        index: rest.try_get_u32_le()?,
        timeindex: rest.try_get_u32_le()?,
    };
    Ok(Seal { open, clean, log_id, generation, base, end, log_bytes, newest, first_timestamp, abort_entries, crcs })
}
