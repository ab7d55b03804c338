//! Snappy as Kafka's clients write it: one raw block, or blocks in the framing of snappy-java ("xerial").
//!
//! ```text
//! xerial: 82 'SNAPPY' 00 · version i32 · compatible version i32 · then (length i32 · raw block) again and again
//! ```
//! A block of up to 64 KiB is unpacked at once. A larger one is unpacked piece by piece, with what was unpacked before at
//! hand: most compressors work in blocks of 64 KiB inside of it, but that of Go's `klauspost/compress` (franz-go) reaches back
//! as far as it finds something.

use super::unpack::{Moved, UnpackError, give};
use super::varint::{self, Varint};

/// What the framing of snappy-java starts with.
pub(super) const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];

const XERIAL_HEADER_BYTES: usize = XERIAL_MAGIC.len() + 4 + 4;

/// Bytes of the length in front of a framed block.
const LENGTH_BYTES: usize = 4;

/// What is unpacked at once.
const PIECE_BYTES: usize = 64 * 1024;

/// How far back a copy may reach: as far as in zstd.
const REACH_BYTES: usize = 8 << 20;

/// As much again, so that what can be reached is moved once in so many bytes.
const BUFFER_BYTES_MAX: usize = 2 * REACH_BYTES;

const BROKEN: UnpackError = UnpackError::Broken("snappy");
const CUT: UnpackError = UnpackError::Cut("snappy");

/// A payload on its way: which block it is in and what of it was given.
#[derive(Debug)]
pub(super) struct Snappy {
    framed: bool,
    started: bool,
    filled: usize,
    given: usize,
    large: Option<LargeBlock>,
}

/// A block that does not fit into the buffer.
#[derive(Clone, Copy, Debug)]
struct LargeBlock {
    packed_left: usize,
    unpacked_left: usize,
    element: Element,
}

/// What is being unpacked.
#[derive(Clone, Copy, Debug)]
enum Element {
    Literal(usize),
    Copy { length: usize, offset: usize },
}

impl Snappy {
    pub(super) fn start(payload: &[u8]) -> Self {
        Self { framed: payload.starts_with(&XERIAL_MAGIC), started: false, filled: 0, given: 0, large: None }
    }

    pub(super) fn may_end(&self) -> Result<(), UnpackError> {
        if self.large.is_some() || !self.started { Err(CUT) } else { Ok(()) }
    }

    pub(super) fn run(&mut self, block: &mut Vec<u8>, input: &[u8], out: &mut [u8]) -> Result<Moved, UnpackError> {
        if block.len() < PIECE_BYTES {
            *block = vec![0; PIECE_BYTES];
        }
        let mut read = 0;
        if self.given == self.filled {
            read = match self.large.take() {
                Some(large) => self.run_large(large, block, input)?,
                None => self.next_block(block, input)?,
            };
        }
        let wrote = give(block.get(..self.filled).unwrap_or_default(), &mut self.given, out);
        Ok(Moved { read, wrote })
    }

    /// Takes the next block, or the head of one that is large.
    fn next_block(&mut self, block: &mut Vec<u8>, input: &[u8]) -> Result<usize, UnpackError> {
        let Some((head_bytes, packed)) = self.find_block(input)? else { return Ok(0) };
        self.started = true;
        let unpacked = snap::raw::decompress_len(packed).map_err(|_| BROKEN)?;
        (self.given, self.filled) = (0, 0);
        // What a large block before has needed is not kept.
        block.truncate(PIECE_BYTES);
        block.shrink_to(PIECE_BYTES);
        if unpacked <= PIECE_BYTES {
            self.filled = snap::raw::Decoder::new().decompress(packed, block).map_err(|_| BROKEN)?;
            return Ok(head_bytes + packed.len());
        }
        let Varint::Number(_, length_bytes) = varint::read_u32(packed) else { return Err(BROKEN) };
        self.large = Some(LargeBlock {
            packed_left: packed.len() - length_bytes,
            unpacked_left: unpacked,
            element: Element::Literal(0),
        });
        Ok(head_bytes + length_bytes)
    }

    /// The next raw block of the input and the bytes of framing before it.
    fn find_block<'a>(&self, input: &'a [u8]) -> Result<Option<(usize, &'a [u8])>, UnpackError> {
        if !self.framed {
            return Ok((!self.started || !input.is_empty()).then_some((0, input)));
        }
        let head_bytes = if self.started { 0 } else { XERIAL_HEADER_BYTES };
        let rest = input.get(head_bytes..).ok_or(CUT)?;
        if rest.is_empty() {
            return Ok(None);
        }
        let (length, rest) = rest.split_first_chunk().ok_or(CUT)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| BROKEN)?;
        Ok(Some((head_bytes + LENGTH_BYTES, rest.get(..length).ok_or(CUT)?)))
    }

    /// Unpacks up to 64 KiB more of a large block.
    fn run_large(&mut self, mut large: LargeBlock, block: &mut Vec<u8>, input: &[u8]) -> Result<usize, UnpackError> {
        if self.filled == BUFFER_BYTES_MAX {
            let kept = self.filled.min(REACH_BYTES);
            block.copy_within(self.filled - kept..self.filled, 0);
            self.filled = kept;
        }
        let begin = self.filled;
        let limit = BUFFER_BYTES_MAX.min(begin + PIECE_BYTES);
        // Memory follows what was unpacked, not what is announced.
        if block.len() < limit {
            block.resize(limit, 0);
        }
        let packed = input.get(..large.packed_left).ok_or(CUT)?;
        let mut piece = Piece { packed, read: 0, block: block.get_mut(..limit).unwrap_or_default(), end: begin };
        piece.fill(&mut large)?;
        let (read, end) = (piece.read, piece.end);
        large.packed_left -= read;
        (self.given, self.filled) = (begin, end);
        match (large.unpacked_left, large.packed_left) {
            (0, 0) => {}
            (0, _) => return Err(BROKEN),
            _ => self.large = Some(large),
        }
        Ok(read)
    }
}

/// A stretch of the buffer that is being filled.
struct Piece<'a> {
    packed: &'a [u8],
    read: usize,
    block: &'a mut [u8],
    end: usize,
}

impl Piece<'_> {
    /// Unpacks elements until the buffer is full or the block has ended.
    fn fill(&mut self, large: &mut LargeBlock) -> Result<(), UnpackError> {
        while self.end < self.block.len() && large.unpacked_left > 0 {
            let room = self.block.len() - self.end;
            let wrote = match &mut large.element {
                Element::Literal(0) | Element::Copy { length: 0, .. } => {
                    large.element = self.next_element()?;
                    continue;
                }
                Element::Literal(length) => {
                    let part = (*length).min(room);
                    self.literal(part)?;
                    *length -= part;
                    part
                }
                Element::Copy { length, offset } => {
                    let part = (*length).min(room);
                    self.copy(part, *offset)?;
                    *length -= part;
                    part
                }
            };
            large.unpacked_left = large.unpacked_left.checked_sub(wrote).ok_or(BROKEN)?;
        }
        match large.element {
            Element::Literal(left) | Element::Copy { length: left, .. } if left > large.unpacked_left => Err(BROKEN),
            _ => Ok(()),
        }
    }

    /// Reads a tag: the two low bits say which element, the others its length.
    ///
    /// Source: snappy's format_description.txt.
    fn next_element(&mut self) -> Result<Element, UnpackError> {
        let tag = self.number(1)?;
        let high = tag >> 2;
        Ok(match tag & 3 {
            0 if high < 60 => Element::Literal(high + 1),
            0 => Element::Literal(self.number(high - 59)? + 1),
            1 => Element::Copy { length: (high & 7) + 4, offset: (high >> 3 << 8) | self.number(1)? },
            2 => Element::Copy { length: high + 1, offset: self.number(2)? },
            _ => Element::Copy { length: high + 1, offset: self.number(4)? },
        })
    }

    /// Reads a number of up to four bytes, lowest first.
    fn number(&mut self, bytes: usize) -> Result<usize, UnpackError> {
        let taken = self.packed.get(self.read..self.read + bytes).ok_or(CUT)?;
        self.read += bytes;
        Ok(taken.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    fn literal(&mut self, length: usize) -> Result<(), UnpackError> {
        let from = self.packed.get(self.read..self.read + length).ok_or(CUT)?;
        let to = self.block.get_mut(self.end..self.end + length).ok_or(BROKEN)?;
        to.copy_from_slice(from);
        self.read += length;
        self.end += length;
        Ok(())
    }

    /// Repeats what stands `offset` bytes back; a copy may overlap what it writes.
    fn copy(&mut self, length: usize, offset: usize) -> Result<(), UnpackError> {
        if offset == 0 || offset > self.end {
            return Err(BROKEN);
        }
        let mut left = length;
        while left > 0 {
            let part = left.min(offset);
            let from = self.end - offset;
            self.block.copy_within(from..from + part, self.end);
            self.end += part;
            left -= part;
        }
        Ok(())
    }
}
