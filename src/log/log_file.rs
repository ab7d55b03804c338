//! The format of a log file, as bytes: the shard's commit log and the catalog are both written in it.
//!
//! Guarantees: what [`encode_group`] wrote is read back by [`GroupHeader::decode`] and [`Records`]; bytes of another
//! file, of an earlier use of the same file, or chosen by a client, are not taken for a group (storage rule S2).
//!
//! ```text
//! file    │ header │ header again │ group │ group │ … │ whatever an earlier use left behind
//!           block 0  block 1        each group starts on a block and is padded with zeros to the next
//! group   │ header 64 B │ record │ record │ … │ padding │
//! record  │ header 24 B │ data │ zeros to a multiple of 8 │
//! ```
//!
//! All numbers are little-endian, all checksums CRC-32C.
//!
//! | file header | | | group header | | | record header | |
//! |---|---|---|---|---|---|---|---|
//! | 0 | magic `CLOGFIL1` | | 0 | magic `CLG1` | | 0 | log id u64 |
//! | 8 | version u16 | | 4 | version u16 | | 8 | offset u64 |
//! | 10 | block_log2 u16 | | 6 | flags u16 | | 16 | data bytes u32 |
//! | 12 | shard u32 | | 8 | salt u64 | | 20 | kind u8 |
//! | 16 | generation u64 | | 16 | sequence u64 | | 21 | version u8 |
//! | 24 | file number u64 | | 24 | file number u64 | | 22 | 0 u16 |
//! | 32 | salt u64 | | 32 | records u32 | | | |
//! | 40 | store id 16 B | | 36 | payload bytes u32 | | | |
//! | 56 | size in MiB u32 | | 40 | committed_ms i64 | | | |
//! | 60 | crc of 0–59 | | 48 | crc of payload | | | |
//! | | | | 52 | reserved | | | |
//! | | | | 60 | crc of 0–59 | | | |

use bytes::{Buf, BufMut, Bytes};

use super::crc::crc32c;
use crate::ids::{LogId, Offset};
use crate::runtime::aligned::AlignedBuf;
use crate::wire::stored::RecordData;

/// Bytes of an encoded file header (of each copy), of a group header and of a store slot.
pub const HEADER_BYTES: usize = 64;
/// Bytes before the data of a record.
pub const RECORD_HEADER_BYTES: usize = 24;
/// The shard number in the headers of the catalog's files.
pub const CATALOG_SHARD: u32 = u32::MAX;
/// Group flag: this group holds everything that was known when the file was begun (catalog only).
pub const FLAG_SNAPSHOT: u16 = 1;
/// The only version of header, group and record that exists so far.
pub const VERSION: u16 = 1;
/// Block sizes that a file may have, as powers of two: 4 KiB to 64 KiB.
pub const BLOCK_LOG2: std::ops::RangeInclusive<u16> = 12..=16;

const FILE_MAGIC: &[u8; 8] = b"CLOGFIL1";
const GROUP_MAGIC: &[u8; 4] = b"CLG1";
const CRC_AT: usize = 60;
const MIB: u64 = 1 << 20;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not ours, torn, of another use of the file, or flipped.
    Damaged,
    /// Intact, but written by a program that knows more than this one.
    UnknownVersion(u16),
}

/// What kind of record it is; the numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKind(pub u8);

impl RecordKind {
    /// A record batch as stored, with its base offset and leader epoch.
    pub const BATCH: Self = Self(1);
    /// The log start moved: the record's offset is the new one, there is no data.
    pub const LOG_START: Self = Self(2);
    /// The first of the catalog's kinds.
    pub const CATALOG_FIRST: Self = Self(16);
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Which partition, and which life of it.
    pub log_id: LogId,
    /// Base offset of a batch, or the new log start.
    pub offset: Offset,
    /// What `data` is.
    pub kind: RecordKind,
    /// The content, up to 2³² − 1 bytes.
    pub data: RecordData,
}

impl LogRecord {
    /// A record batch.
    #[must_use]
    pub fn batch(log_id: LogId, base_offset: Offset, data: impl Into<RecordData>) -> Self {
        Self { log_id, offset: base_offset, kind: RecordKind::BATCH, data: data.into() }
    }

    /// A moved log start.
    #[must_use]
    pub fn log_start(log_id: LogId, start: Offset) -> Self {
        Self { log_id, offset: start, kind: RecordKind::LOG_START, data: Bytes::new().into() }
    }

    /// Bytes that the record takes within a group.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        record_bytes(self.data.len())
    }
}

/// Bytes that a record with `data_bytes` of data takes within a group.
#[must_use]
pub const fn record_bytes(data_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + data_bytes.next_multiple_of(8)
}

/// Bytes on disk of a group with `payload_bytes` of records.
#[must_use]
pub const fn group_bytes(payload_bytes: usize, block_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(block_bytes)
}

/// What identifies one use of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// log2 of the block size in bytes.
    pub block_log2: u16,
    /// Whose log; [`CATALOG_SHARD`] for the catalog.
    pub shard: u32,
    /// Generation of the store that the file's groups belong to.
    pub generation: u64,
    /// One more with each file begun.
    pub file_number: u64,
    /// Drawn anew at each use and told to nobody.
    pub salt: u64,
    /// Of the data folder.
    pub store_id: [u8; 16],
    /// Size of the file in MiB.
    pub size_mib: u32,
}

impl FileHeader {
    /// Block size in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        1 << self.block_log2
    }

    /// Size of the file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        u64::from(self.size_mib) * MIB
    }

    /// Position of the first group: behind both copies of the header.
    #[must_use]
    pub fn first_group(&self) -> u64 {
        2 << self.block_log2
    }

    /// One copy of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut into = bytes.as_mut_slice();
        into.put_slice(FILE_MAGIC);
        into.put_u16_le(VERSION);
        into.put_u16_le(self.block_log2);
        into.put_u32_le(self.shard);
        into.put_u64_le(self.generation);
        into.put_u64_le(self.file_number);
        into.put_u64_le(self.salt);
        into.put_slice(&self.store_id);
        into.put_u32_le(self.size_mib);
        seal(&mut bytes);
        bytes
    }

    /// Both copies, to be written at position 0.
    #[must_use]
    pub fn encode_blocks(&self) -> AlignedBuf {
        let block = self.block_bytes();
        let mut blocks = AlignedBuf::zeroed(2 * block);
        let copy = self.encode();
        blocks.bytes_mut()[..HEADER_BYTES].copy_from_slice(&copy);
        blocks.bytes_mut()[block..block + HEADER_BYTES].copy_from_slice(&copy);
        blocks
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// [`Fault`]: it is not a header, or one of a later program.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let mut from = sealed(bytes, FILE_MAGIC)?;
        version(from.get_u16_le())?;
        let header = Self {
            block_log2: from.get_u16_le(),
            shard: from.get_u32_le(),
            generation: from.get_u64_le(),
            file_number: from.get_u64_le(),
            salt: from.get_u64_le(),
            store_id: take(&mut from),
            size_mib: from.get_u32_le(),
        };
        if BLOCK_LOG2.contains(&header.block_log2) { Ok(header) } else { Err(Fault::Damaged) }
    }

    /// Reads both copies of the header, whatever each of them is; `block_log2` as in the other one.
    pub fn copies(beginning: &[u8], block_log2: u16) -> [Result<Self, Fault>; 2] {
        [0, 1 << block_log2].map(|at| Self::decode(beginning.get(at..).unwrap_or_default()))
    }

    /// Reads the header from the beginning of a file: whichever of the two copies is intact.
    ///
    /// # Errors
    /// [`Fault`], when neither copy serves.
    pub fn find(beginning: &[u8]) -> Result<Self, Fault> {
        let first = Self::decode(beginning);
        if first != Err(Fault::Damaged) {
            return first;
        }
        let seconds = BLOCK_LOG2.filter_map(|log2| {
            let copy = beginning.get(1 << log2..)?;
            match Self::decode(copy) {
                Ok(header) if header.block_log2 != log2 => None,
                Err(Fault::Damaged) => None,
                found => Some(found),
            }
        });
        seconds.into_iter().next().unwrap_or(Err(Fault::Damaged))
    }

    /// What a group of this file is stamped with.
    #[must_use]
    pub fn stamp(&self, sequence: u64, committed_ms: i64) -> GroupStamp {
        GroupStamp { flags: 0, salt: self.salt, sequence, file_number: self.file_number, committed_ms }
    }
}

/// What a group says about itself, apart from its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStamp {
    /// [`FLAG_SNAPSHOT`] or 0.
    pub flags: u16,
    /// The file's.
    pub salt: u64,
    /// One more with each group of the shard.
    pub sequence: u64,
    /// The file's.
    pub file_number: u64,
    /// Wall clock of the commit, milliseconds since 1970: the append time of its batches.
    pub committed_ms: i64,
}

/// The header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Which group of which file.
    pub stamp: GroupStamp,
    /// How many records follow.
    pub records: u32,
    /// Bytes of all records with their headers.
    pub payload_bytes: u32,
    /// Checksum of those bytes.
    pub payload_crc: u32,
}

impl GroupHeader {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut into = bytes.as_mut_slice();
        into.put_slice(GROUP_MAGIC);
        into.put_u16_le(VERSION);
        into.put_u16_le(self.stamp.flags);
        into.put_u64_le(self.stamp.salt);
        into.put_u64_le(self.stamp.sequence);
        into.put_u64_le(self.stamp.file_number);
        into.put_u32_le(self.records);
        into.put_u32_le(self.payload_bytes);
        into.put_i64_le(self.stamp.committed_ms);
        into.put_u32_le(self.payload_crc);
        seal(&mut bytes);
        bytes
    }

    /// Reads the header of a group of `file`; the payload is not looked at.
    ///
    /// # Errors
    /// [`Fault`]: there is no group of this use of this file at that place, or one of a later program.
    pub fn decode(bytes: &[u8], file: &FileHeader) -> Result<Self, Fault> {
        let mut from = sealed(bytes, GROUP_MAGIC)?;
        let found = from.get_u16_le();
        let header = Self {
            stamp: GroupStamp {
                flags: from.get_u16_le(),
                salt: from.get_u64_le(),
                sequence: from.get_u64_le(),
                file_number: from.get_u64_le(),
                committed_ms: 0,
            },
            records: from.get_u32_le(),
            payload_bytes: from.get_u32_le(),
            payload_crc: 0,
        };
        if header.stamp.salt != file.salt || header.stamp.file_number != file.file_number {
            return Err(Fault::Damaged);
        }
        // Only now: an unknown version in a client's imitation of a group must not stop a start.
        version(found)?;
        let committed_ms = from.get_i64_le();
        Ok(Self { stamp: GroupStamp { committed_ms, ..header.stamp }, payload_crc: from.get_u32_le(), ..header })
    }

    /// Whether bytes that are no valid group look as if one of this use of `file` was begun there.
    #[must_use]
    pub fn is_begun(bytes: &[u8], file: &FileHeader) -> bool {
        let (magic, salt) = (bytes.starts_with(GROUP_MAGIC), bytes.get(8..16) == Some(&file.salt.to_le_bytes()));
        let number = bytes.get(24..32) == Some(&file.file_number.to_le_bytes());
        salt && (magic || number) || magic && number && bytes.get(4..6) == Some(&VERSION.to_le_bytes())
    }

    /// Bytes of the group on disk.
    #[must_use]
    pub fn disk_bytes(&self, file: &FileHeader) -> usize {
        group_bytes(self.payload_bytes as usize, file.block_bytes())
    }
}

/// Writes a group into `into`, whose length must be that of the group on disk; the bytes of the records are copied once.
///
/// # Panics
/// When `into` is too small or the group larger than its header can say: both are bugs.
pub fn encode_group(into: &mut [u8], stamp: GroupStamp, records: &[LogRecord]) {
    let mut end = HEADER_BYTES;
    for record in records {
        end = encode_record(into, end, record);
    }
    into[end..].fill(0);
    let header = GroupHeader {
        stamp,
        records: narrow(records.len()),
        payload_bytes: narrow(end - HEADER_BYTES),
        payload_crc: crc32c(&into[HEADER_BYTES..end]),
    };
    into[..HEADER_BYTES].copy_from_slice(&header.encode());
}

fn encode_record(into: &mut [u8], at: usize, record: &LogRecord) -> usize {
    let length = record.data.len();
    let end = at + record_bytes(length);
    let mut into = &mut into[at..end];
    into.put_u64_le(record.log_id.0);
    into.put_i64_le(record.offset.0);
    into.put_u32_le(narrow(length));
    into.put_u8(record.kind.0);
    into.put_u8(VERSION.to_le_bytes()[0]);
    into.put_u16_le(0);
    for part in record.data.parts() {
        into.put_slice(part);
    }
    into.fill(0);
    end
}

/// A record within a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// Which partition, and which life of it.
    pub log_id: LogId,
    /// Base offset of a batch, or the new log start.
    pub offset: Offset,
    /// What the data is.
    pub kind: RecordKind,
    /// Where the data begins, counted from the beginning of the payload.
    pub data_at: usize,
    /// Bytes of data.
    pub data_bytes: usize,
}

/// The records of a payload whose checksum was right, one after another.
#[derive(Debug)]
pub struct Records<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// The records in `payload`.
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Self {
        Self { payload, at: 0 }
    }

    fn read(&mut self) -> Result<FoundRecord, Fault> {
        let mut from = self.payload.get(self.at..self.at + RECORD_HEADER_BYTES).ok_or(Fault::Damaged)?;
        let log_id = LogId(from.get_u64_le());
        let offset = Offset(from.get_i64_le());
        let data_bytes = from.get_u32_le() as usize;
        let kind = RecordKind(from.get_u8());
        version(u16::from(from.get_u8()))?;
        let data_at = self.at + RECORD_HEADER_BYTES;
        self.at += record_bytes(data_bytes);
        if self.at > self.payload.len() {
            Err(Fault::Damaged)
        } else {
            Ok(FoundRecord { log_id, offset, kind, data_at, data_bytes })
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<FoundRecord, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.payload.len() {
            return None;
        }
        let found = self.read();
        if found.is_err() {
            self.at = self.payload.len();
        }
        Some(found)
    }
}

/// Puts the checksum of bytes 0–59 behind them.
pub(super) fn seal(bytes: &mut [u8; HEADER_BYTES]) {
    let crc = crc32c(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
}

/// What stands behind the magic of 64 intact bytes.
pub(super) fn sealed<'a>(bytes: &'a [u8], magic: &[u8]) -> Result<&'a [u8], Fault> {
    let bytes = bytes.get(..HEADER_BYTES).ok_or(Fault::Damaged)?;
    if !bytes.starts_with(magic) || crc32c(&bytes[..CRC_AT]).to_le_bytes() != bytes[CRC_AT..] {
        return Err(Fault::Damaged);
    }
    Ok(&bytes[magic.len()..])
}

/// Refuses every version but ours.
pub(super) fn version(found: u16) -> Result<(), Fault> {
    if found == VERSION { Ok(()) } else { Err(Fault::UnknownVersion(found)) }
}

/// The next 16 bytes.
pub(super) fn take(from: &mut &[u8]) -> [u8; 16] {
    let mut bytes = [0; 16];
    from.copy_to_slice(&mut bytes);
    bytes
}

fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a group is smaller than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FileHeader {
        FileHeader {
            block_log2: 12,
            shard: 3,
            generation: 7,
            file_number: 11,
            salt: 0x1234_5678_9abc_def0,
            store_id: *b"0123456789abcdef",
            size_mib: 16,
        }
    }

    #[test]
    fn either_copy_of_the_header_serves() {
        let blocks = header().encode_blocks();
        assert_eq!(blocks.bytes().len(), 8192);
        for spoiled in [0, 4096] {
            let mut bytes = blocks.bytes().to_vec();
            bytes[spoiled + 20] ^= 1;
            assert_eq!(FileHeader::find(&bytes), Ok(header()));
        }
        let mut bytes = blocks.bytes().to_vec();
        bytes[20] ^= 1;
        bytes[4096 + 33] ^= 1;
        assert_eq!(FileHeader::find(&bytes), Err(Fault::Damaged));
    }

    #[test]
    fn a_header_of_a_later_version_is_named_as_such() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        assert_eq!(FileHeader::decode(&bytes), Err(Fault::Damaged));
        seal(&mut bytes);
        assert_eq!(FileHeader::decode(&bytes), Err(Fault::UnknownVersion(2)));
    }

    #[test]
    fn groups_are_laid_out_as_the_tables_say() {
        let records = [
            LogRecord::batch(LogId(5), Offset(9), Bytes::from_static(b"abcde")),
            LogRecord::log_start(LogId(6), Offset(2)),
        ];
        let mut bytes = vec![0xff; 4096];
        encode_group(&mut bytes, header().stamp(77, 1_000), &records);
        assert_eq!(bytes[..4], *b"CLG1");
        assert_eq!(bytes[16], 77);
        assert_eq!((bytes[32], bytes[36]), (2, 24 + 8 + 24));
        assert_eq!((bytes[64], bytes[72], bytes[80], bytes[84], bytes[85]), (5, 9, 5, 1, 1));
        assert_eq!(bytes[88..96], *b"abcde\0\0\0");
        assert!(bytes[64 + 56..].iter().all(|&byte| byte == 0), "padding is zero");

        let found = GroupHeader::decode(&bytes, &header()).unwrap();
        assert_eq!((found.stamp, found.records), (header().stamp(77, 1_000), 2));
        let payload = &bytes[HEADER_BYTES..HEADER_BYTES + found.payload_bytes as usize];
        assert_eq!(found.payload_crc, crc32c(payload));
        let read: Vec<_> = Records::new(payload).map(Result::unwrap).collect();
        assert_eq!(
            read[0],
            FoundRecord { log_id: LogId(5), offset: Offset(9), kind: RecordKind::BATCH, data_at: 24, data_bytes: 5 }
        );
        assert_eq!(read[1].kind, RecordKind::LOG_START);
    }

    #[test]
    fn a_group_of_another_salt_or_file_is_none() {
        let mut bytes = vec![0; 4096];
        encode_group(&mut bytes, header().stamp(1, 0), &[]);
        assert_eq!(GroupHeader::decode(&bytes, &FileHeader { salt: 1, ..header() }), Err(Fault::Damaged));
        assert_eq!(GroupHeader::decode(&bytes, &FileHeader { file_number: 1, ..header() }), Err(Fault::Damaged));
    }
}
