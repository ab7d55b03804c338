//! lz4 frames as Kafka's clients write and read them: independent blocks of at most 4 MiB.
//!
//! ```text
//! magic 04 22 4d 18 · flags · block size · [content size 8] · header checksum
//! then blocks: size u32, high bit = stored as it is · bytes · [checksum 4] ... · 0 u32 · [content checksum 4]
//! ```
//! Numbers are little-endian. The Java consumer refuses blocks that depend on each other, so they are refused here.
//!
//! Source: lz4_Frame_format.md 1.6; apache/kafka `Lz4BlockInputStream`.

use std::hash::Hasher;

use twox_hash::XxHash32;

use super::unpack::{Moved, UnpackError, give};

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

const VERSION_MASK: u8 = 0b1100_0000;
const VERSION: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 1 << 5;
const BLOCK_CHECKSUM: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const RESERVED_OR_DICTIONARY: u8 = 0b11;

/// High bit of a block's size: it is not compressed.
const STORED: u32 = 1 << 31;

const BROKEN: UnpackError = UnpackError::Broken("lz4");
const CUT: UnpackError = UnpackError::Cut("lz4");
const DEPENDENT: UnpackError = UnpackError::Unreadable("lz4 blocks that depend on each other are not supported");

/// A payload on its way: what its frame said, and what of its block was given.
#[derive(Debug)]
pub(super) struct Lz4 {
    place: Place,
    flags: u8,
    block_bytes_max: usize,
    filled: usize,
    given: usize,
    content: XxHash32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    Blocks,
    End,
}

impl Lz4 {
    pub(super) fn start() -> Self {
        let content = XxHash32::with_seed(0);
        Self { place: Place::Head, flags: 0, block_bytes_max: 0, filled: 0, given: 0, content }
    }

    pub(super) fn may_end(&self) -> Result<(), UnpackError> {
        if self.place == Place::End { Ok(()) } else { Err(CUT) }
    }

    pub(super) fn run(&mut self, block: &mut Vec<u8>, input: &[u8], out: &mut [u8]) -> Result<Moved, UnpackError> {
        let mut read = 0;
        if self.given == self.filled {
            let mut rest = input;
            match self.place {
                Place::Head => self.read_head(&mut rest)?,
                Place::Blocks => self.read_block(&mut rest, block)?,
                Place::End => {}
            }
            read = input.len() - rest.len();
        }
        let wrote = give(block.get(..self.filled).unwrap_or_default(), &mut self.given, out);
        Ok(Moved { read, wrote })
    }

    fn read_head(&mut self, rest: &mut &[u8]) -> Result<(), UnpackError> {
        if *take::<4>(rest)? != MAGIC {
            return Err(BROKEN);
        }
        let descriptor = *rest;
        let [flags, block_size] = *take::<2>(rest)?;
        if flags & VERSION_MASK != VERSION || flags & RESERVED_OR_DICTIONARY != 0 {
            return Err(BROKEN);
        }
        if flags & INDEPENDENT == 0 {
            return Err(DEPENDENT);
        }
        self.block_bytes_max = block_bytes_max(block_size)?;
        if flags & CONTENT_SIZE != 0 {
            take::<8>(rest)?;
        }
        let descriptor = descriptor.get(..descriptor.len() - rest.len()).unwrap_or_default();
        let [checksum] = *take::<1>(rest)?;
        if XxHash32::oneshot(0, descriptor).to_le_bytes()[1] != checksum {
            return Err(BROKEN);
        }
        self.flags = flags;
        self.place = Place::Blocks;
        Ok(())
    }

    fn read_block(&mut self, rest: &mut &[u8], block: &mut Vec<u8>) -> Result<(), UnpackError> {
        let size = u32::from_le_bytes(*take(rest)?);
        if size == 0 {
            self.place = Place::End;
            return self.check_content(rest);
        }
        let packed = take_slice(rest, (size & !STORED) as usize, self.block_bytes_max)?;
        if self.flags & BLOCK_CHECKSUM != 0 && u32::from_le_bytes(*take(rest)?) != XxHash32::oneshot(0, packed) {
            return Err(BROKEN);
        }
        if block.len() < self.block_bytes_max {
            *block = vec![0; self.block_bytes_max];
        }
        let room = block.get_mut(..self.block_bytes_max).unwrap_or_default();
        self.given = 0;
        self.filled = unpack_block(packed, size & STORED != 0, room)?;
        if self.flags & CONTENT_CHECKSUM != 0 {
            self.content.write(room.get(..self.filled).unwrap_or_default());
        }
        Ok(())
    }

    fn check_content(&self, rest: &mut &[u8]) -> Result<(), UnpackError> {
        if self.flags & CONTENT_CHECKSUM != 0 && u32::from_le_bytes(*take(rest)?) != self.content.finish_32() {
            return Err(BROKEN);
        }
        Ok(())
    }
}

fn unpack_block(packed: &[u8], stored: bool, room: &mut [u8]) -> Result<usize, UnpackError> {
    if !stored {
        return lz4_flex::block::decompress_into(packed, room).map_err(|_| BROKEN);
    }
    room.get_mut(..packed.len()).ok_or(BROKEN)?.copy_from_slice(packed);
    Ok(packed.len())
}

/// 64 KiB, 256 KiB, 1 MiB or 4 MiB.
fn block_bytes_max(descriptor: u8) -> Result<usize, UnpackError> {
    match descriptor {
        0x40 => Ok(64 * 1024),
        0x50 => Ok(256 * 1024),
        0x60 => Ok(1024 * 1024),
        0x70 => Ok(4 * 1024 * 1024),
        _ => Err(BROKEN),
    }
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], UnpackError> {
    let (taken, behind) = rest.split_first_chunk().ok_or(CUT)?;
    *rest = behind;
    Ok(taken)
}

fn take_slice<'a>(rest: &mut &'a [u8], length: usize, length_max: usize) -> Result<&'a [u8], UnpackError> {
    if length > length_max {
        return Err(BROKEN);
    }
    let (taken, behind) = rest.split_at_checked(length).ok_or(CUT)?;
    *rest = behind;
    Ok(taken)
}
