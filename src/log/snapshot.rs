//! Kafka's producer snapshot `<offset>.snapshot`: the newest batch of each producer as of an offset.
//!
//! Written for Kafka's eyes and as a fallback; the full window of five batches is in the shard's checkpoint.
//!
//! ```text
//! version i16 = 1 | crc u32 (CRC-32C of all behind it) | count i32 | count x 46 bytes, big-endian:
//! producer id i64 | epoch i16 | last sequence i32 | last offset i64 | offset delta i32 | timestamp i64
//! | coordinator epoch i32 | first offset of the open transaction i64 (-1: none)
//! ```
//!
//! Source: apache/kafka `ProducerSnapshot.json`, `ProducerStateManager.java`.

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};

use super::crc::{RunningCrc, crc32c};
use crate::ids::{Offset, ProducerEpoch, ProducerId};

const VERSION: i16 = 1;
/// What stands in front of the entries.
pub const PREFIX_BYTES: usize = 10;
const ENTRY_BYTES: usize = 46;
const CRC_FROM: usize = 6;

/// One producer as Kafka remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Who.
    pub producer_id: ProducerId,
    /// Which incarnation.
    pub epoch: ProducerEpoch,
    /// Sequence of the newest batch's last record; -1 when only markers are known.
    pub last_sequence: i32,
    /// Offset of the newest batch's last record; -1 when only markers are known.
    pub last_offset: i64,
    /// Records in the newest batch, less one.
    pub offset_delta: i32,
    /// Largest timestamp of the newest batch, milliseconds since 1970.
    pub timestamp: i64,
    /// Coordinator epoch of the newest marker; -1 for none.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction.
    pub txn_first_offset: Option<Offset>,
}

/// Why a snapshot cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotDamage {
    /// Shorter or longer than its count says.
    #[error("the size does not fit the number of entries")]
    Size,
    /// A version that Kafka 4.4 does not write.
    #[error("unknown version {0}")]
    Version(i16),
    /// The checksum does not fit.
    #[error("wrong checksum")]
    Checksum,
}

impl From<TryGetError> for SnapshotDamage {
    fn from(_: TryGetError) -> Self {
        Self::Size
    }
}

/// The bytes of a snapshot file.
#[must_use]
pub fn encode(entries: &[SnapshotEntry]) -> Bytes {
    let mut file = BytesMut::zeroed(PREFIX_BYTES);
    file.reserve(entries.len() * ENTRY_BYTES);
    let mut encoder = Encoder::of(entries.len());
    entries.iter().for_each(|entry| encoder.add(entry, &mut file));
    file[..PREFIX_BYTES].copy_from_slice(&encoder.prefix());
    file.freeze()
}

/// Makes the bytes of a snapshot file a piece at a time; what stands in front is known when all entries are.
pub struct Encoder {
    count: i32,
    crc: RunningCrc,
}

impl Encoder {
    /// A file of so many entries.
    #[must_use]
    pub fn of(count: usize) -> Self {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let mut crc = RunningCrc::default();
        crc.add(&count.to_be_bytes());
        Self { count, crc }
    }

    /// Adds the bytes of the next entry to `piece`.
    pub fn add(&mut self, entry: &SnapshotEntry, piece: &mut BytesMut) {
        let from = piece.len();
        put_entry(piece, entry);
        self.crc.add(&piece[from..]);
    }

    /// What stands in front of the entries, which were all added.
    #[must_use]
    pub fn prefix(&self) -> [u8; PREFIX_BYTES] {
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..2].copy_from_slice(&VERSION.to_be_bytes());
        prefix[2..CRC_FROM].copy_from_slice(&self.crc.value().to_be_bytes());
        prefix[CRC_FROM..].copy_from_slice(&self.count.to_be_bytes());
        prefix
    }
}

/// Reads a snapshot file.
///
/// # Errors
/// Says what does not fit; the caller deletes the file and uses an older one (storage rule S15).
pub fn decode(file: &[u8]) -> Result<Vec<SnapshotEntry>, SnapshotDamage> {
    let mut rest = file;
    let version = rest.try_get_i16()?;
    if version != VERSION {
        return Err(SnapshotDamage::Version(version));
    }
    let crc = rest.try_get_u32()?;
    if crc32c(rest) != crc {
        return Err(SnapshotDamage::Checksum);
    }
    let count = usize::try_from(rest.try_get_i32()?).map_err(|_| SnapshotDamage::Size)?;
    if file.len() - PREFIX_BYTES != count.saturating_mul(ENTRY_BYTES) {
        return Err(SnapshotDamage::Size);
    }
    (0..count).map(|_| get_entry(&mut rest)).collect()
}

fn put_entry(to: &mut BytesMut, entry: &SnapshotEntry) {
    to.put_i64(entry.producer_id.0);
    to.put_i16(entry.epoch.0);
    to.put_i32(entry.last_sequence);
    to.put_i64(entry.last_offset);
    to.put_i32(entry.offset_delta);
    to.put_i64(entry.timestamp);
    to.put_i32(entry.coordinator_epoch);
    to.put_i64(entry.txn_first_offset.map_or(-1, |offset| offset.0));
}

fn get_entry(from: &mut &[u8]) -> Result<SnapshotEntry, SnapshotDamage> {
    Ok(SnapshotEntry {
        producer_id: ProducerId(from.try_get_i64()?),
        epoch: ProducerEpoch(from.try_get_i16()?),
        last_sequence: from.try_get_i32()?,
        last_offset: from.try_get_i64()?,
        offset_delta: from.try_get_i32()?,
        timestamp: from.try_get_i64()?,
        coordinator_epoch: from.try_get_i32()?,
        txn_first_offset: Some(from.try_get_i64()?).filter(|offset| *offset >= 0).map(Offset),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> SnapshotEntry {
        SnapshotEntry {
            producer_id: ProducerId(7),
            epoch: ProducerEpoch(1),
            last_sequence: 5,
            last_offset: 9,
            offset_delta: 2,
            timestamp: 1_700_000_000_000,
            coordinator_epoch: -1,
            txn_first_offset: Some(Offset(4)),
        }
    }

    #[test]
    fn sizes_are_ten_bytes_and_46_for_each_entry() {
        assert_eq!(encode(&[]).len(), 10);
        assert_eq!(encode(&[entry(); 5]).len(), 240);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let whole = encode(&[entry(), SnapshotEntry { txn_first_offset: None, ..entry() }]);
        assert_eq!(decode(&whole).map(|entries| entries.len()), Ok(2));
        for cut in 0..whole.len() {
            assert!(decode(&whole[..cut]).is_err(), "cut at byte {cut}");
        }
        for bit in 0..whole.len() * 8 {
            let mut bent = whole.to_vec();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bent).is_err(), "bit {bit}");
        }
    }
}
