//! `lost-offsets` in a partition's folder: acknowledged offsets that are nowhere, until a person has accepted that and
//! for ever after (docs/adr/0013-named-losses.md).
//!
//! ```text
//! little-endian
//!  0 magic "CLLOST01"   8 version u16   10 reserved u16   12 ranges u32
//! 16 ranges, 24 B each: first offset i64 | offset behind the last one i64 | flags u32 (bit 0: accepted) | reserved u32
//!    crc u32 of everything before
//! ```
//! There is no such file where nothing was ever lost.

use std::io;
use std::path::Path;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::crc::crc32c;
use super::log_files::named;
use crate::ids::Offset;
use crate::runtime::disk::Disk;

/// Name of the file; Kafka looks at endings only, and this has none of its own.
pub const FILE_NAME: &str = "lost-offsets";
const MAGIC: &[u8; 8] = b"CLLOST01";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const RANGE_BYTES: usize = 24;
const CRC_BYTES: usize = 4;
const ACCEPTED: u32 = 1;

/// Offsets of one partition that were acknowledged and are nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The first of them.
    pub from: Offset,
    /// The offset behind the last of them.
    pub to: Offset,
    /// Somebody has said that the partition shall go on without them.
    pub accepted: bool,
}

/// All losses of one partition, in the order of their offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    ranges: Vec<Loss>,
    /// The file could not be read: something is lost, nobody knows what.
    is_damaged: bool,
}

/// Why a list cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Not what this program writes.
    #[error("it is damaged")]
    Content,
    /// Written by a later release: never guessed.
    #[error("it has the unknown version {0}; start the release that wrote it")]
    Version(u16),
}

impl Losses {
    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[Loss] {
        &self.ranges
    }

    /// True when the file was there and could not be read.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// True when all of `from..to` is in the list.
    #[must_use]
    pub fn covers(&self, from: Offset, to: Offset) -> bool {
        self.unknown(from, to).is_empty()
    }

    /// Adds what of `from..to` is not in the list; true if that is anything.
    pub fn add(&mut self, from: Offset, to: Offset) -> bool {
        let unknown = self.unknown(from, to);
        let is_new = !unknown.is_empty();
        self.ranges.extend(unknown.into_iter().map(|(from, to)| Loss { from, to, accepted: false }));
        self.ranges.sort_by_key(|loss| loss.from);
        self.ranges.dedup_by(|next, before| {
            let joins = before.to == next.from && before.accepted == next.accepted;
            if joins {
                before.to = next.to;
            }
            joins
        });
        is_new
    }

    /// What nobody has accepted yet, in words: `10-19, 30`; `None` when the partition may go on.
    #[must_use]
    pub fn open(&self) -> Option<String> {
        let open: Vec<_> = self.ranges.iter().filter(|loss| !loss.accepted).map(in_words).collect();
        match (open.is_empty(), self.is_damaged) {
            (false, _) => Some(format!("offsets {}", open.join(", "))),
            (true, true) => Some(format!("offsets that nobody knows (its list, {FILE_NAME}, is damaged)")),
            (true, false) => None,
        }
    }

    /// Somebody has accepted all of them.
    pub fn accept_all(&mut self) {
        self.ranges.iter_mut().for_each(|loss| loss.accepted = true);
        self.is_damaged = false;
    }

    /// The parts of `from..to` that are in no range.
    fn unknown(&self, from: Offset, to: Offset) -> Vec<(Offset, Offset)> {
        let mut parts = Vec::new();
        let mut at = from;
        for loss in &self.ranges {
            if loss.from >= to {
                break;
            }
            if loss.from > at {
                parts.push((at, loss.from));
            }
            at = at.max(loss.to);
        }
        if at < to {
            parts.push((at, to));
        }
        parts
    }

    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut file = BytesMut::with_capacity(HEADER_BYTES + self.ranges.len() * RANGE_BYTES + CRC_BYTES);
        file.put_slice(MAGIC);
        file.put_u16_le(VERSION);
        file.put_u16_le(0);
        file.put_u32_le(u32::try_from(self.ranges.len()).unwrap_or(u32::MAX));
        for loss in &self.ranges {
            file.put_i64_le(loss.from.0);
            file.put_i64_le(loss.to.0);
            file.put_u32_le(if loss.accepted { ACCEPTED } else { 0 });
            file.put_u32_le(0);
        }
        file.put_u32_le(crc32c(&file));
        file.freeze()
    }

    /// Reads the file.
    ///
    /// # Errors
    /// Says what is wrong; nothing of a damaged list is used.
    pub fn decode(file: &[u8]) -> Result<Self, Damage> {
        let mut rest = file.strip_prefix(MAGIC).ok_or(Damage::Content)?;
        let version = rest.try_get_u16_le().map_err(|_| Damage::Content)?;
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        let covered = file.len().checked_sub(CRC_BYTES).ok_or(Damage::Content)?;
        let (content, mut crc) = file.split_at(covered);
        if crc.try_get_u32_le() != Ok(crc32c(content)) {
            return Err(Damage::Content);
        }
        let ranges = content.get(HEADER_BYTES..).ok_or(Damage::Content)?.chunks_exact(RANGE_BYTES);
        if !ranges.remainder().is_empty() {
            return Err(Damage::Content);
        }
        let read = |mut range: &[u8]| {
            let (from, to) = (Offset(range.get_i64_le()), Offset(range.get_i64_le()));
            Loss { from, to, accepted: range.get_u32_le() & ACCEPTED != 0 }
        };
        Ok(Self { ranges: ranges.map(read).collect(), is_damaged: false })
    }
}

fn in_words(loss: &Loss) -> String {
    let last = Offset(loss.to.0.saturating_sub(1));
    if last <= loss.from { loss.from.to_string() } else { format!("{}-{last}", loss.from) }
}

/// The list of a partition's folder; an empty one where there is no file.
///
/// # Errors
/// What the disk says; `InvalidData` with the file's name for a version of a later release.
pub async fn read<D: Disk>(disk: &D, folder: &Path) -> io::Result<Losses> {
    let path = folder.join(FILE_NAME);
    let content = match disk.read_file(&path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Losses::default()),
        other => other.map_err(named(&path, "cannot read"))?,
    };
    match Losses::decode(&content) {
        Ok(losses) => Ok(losses),
        Err(Damage::Content) => Ok(Losses { ranges: Vec::new(), is_damaged: true }),
        Err(damage) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {damage}", path.display()))),
    }
}

/// Puts the list into a partition's folder; durable when this returns.
///
/// # Errors
/// What the disk says; the folder then has the list that it had before.
pub async fn write<D: Disk>(disk: &D, folder: &Path, losses: &Losses) -> io::Result<()> {
    let path = folder.join(FILE_NAME);
    disk.write_file_atomically(&path, losses.encode()).await.map_err(named(&path, "cannot write"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ranges: &[(i64, i64)]) -> Losses {
        let mut losses = Losses::default();
        ranges.iter().for_each(|(from, to)| assert!(losses.add(Offset(*from), Offset(*to))));
        losses
    }

    #[test]
    fn what_is_known_is_not_added_again_and_keeps_its_mark() {
        let mut losses = list(&[(10, 20), (30, 31)]);
        assert_eq!(losses.open().unwrap(), "offsets 10-19, 30");
        assert!(!losses.add(Offset(12), Offset(20)));
        losses.accept_all();
        assert_eq!(losses.open(), None);
        assert!(losses.add(Offset(15), Offset(35)));
        assert_eq!(losses.open().unwrap(), "offsets 20-29, 31-34");
        assert!(losses.covers(Offset(10), Offset(35)) && !losses.covers(Offset(9), Offset(11)));
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let mut losses = list(&[(0, 3), (5, 9)]);
        losses.accept_all();
        losses.add(Offset(20), Offset(21));
        let file = losses.encode();
        assert_eq!(Losses::decode(&file), Ok(losses));
        for at in 0..file.len() {
            assert!(Losses::decode(&file[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut spoilt = file.to_vec();
                spoilt[at] ^= 1 << bit;
                assert!(Losses::decode(&spoilt).is_err(), "bit {bit} of byte {at}");
            }
        }
        let mut later = file.to_vec();
        later[8] = 2;
        assert_eq!(Losses::decode(&later), Err(Damage::Version(2)));
    }
}
