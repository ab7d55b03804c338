//! Unpacks compressed records piece by piece, through buffers of a fixed size, never all of them at once.
//!
//! A stream takes packed bytes and gives unpacked ones; where it stands between two calls is its own business, so
//! that a long payload can be unpacked in short steps. The contexts that the codecs need are kept and used again.

use std::io;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::batch::Codec;
use super::lz4::Lz4;
use super::snappy::Snappy;

/// Bytes that are unpacked at a time; the records are walked in here.
pub(super) const WINDOW_BYTES: usize = 128 * 1024;

/// A zstd context whose frame asked for a larger window is not kept.
const ZSTD_WINDOW_KEPT: u64 = 2 * 1024 * 1024;

/// A zstd frame may ask for a larger window only if it does not fill it: the highest levels always ask for 128 MiB.
const ZSTD_WINDOW_FREE: u64 = 8 * 1024 * 1024;

/// A window larger than that is in proportion to bytes that were received, up to this factor.
const ZSTD_WINDOW_FACTOR: u64 = 64;

/// Contexts kept for the next batch; more are made while more batches are unpacked at the same time.
const CONTEXTS_KEPT: usize = 1;

/// Why a payload cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// The bytes are not what the codec writes.
    #[error("the payload is not valid {0}")]
    Broken(&'static str),
    /// The payload ends too early.
    #[error("the {0} payload is cut off")]
    Cut(&'static str),
    /// The codec allows it, other readers of Kafka's records do not.
    #[error("{0}")]
    Unreadable(&'static str),
    /// There is no memory for the codec.
    #[error("no memory to unpack {0}")]
    Memory(&'static str),
}

/// How far one call came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Packed bytes that were taken.
    pub read: usize,
    /// Unpacked bytes that were given.
    pub wrote: usize,
}

/// The contexts of one shard's walks; kept between batches, because making them costs more than a small batch.
#[derive(Debug, Default)]
pub struct Unpacker {
    idle: Vec<Contexts>,
}

impl Unpacker {
    /// No contexts yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn take(&mut self) -> Contexts {
        self.idle.pop().unwrap_or_default()
    }

    pub(super) fn give_back(&mut self, mut contexts: Contexts) {
        contexts.shrink();
        if self.idle.len() < CONTEXTS_KEPT {
            self.idle.push(contexts);
        }
    }
}

/// What the codecs keep from one batch to the next.
pub(super) struct Contexts {
    /// Where unpacked records are walked.
    pub window: Vec<u8>,
    /// One unpacked block, for the codecs that work in blocks.
    pub block: Vec<u8>,
    gzip: Option<Decompress>,
    zstd: Option<Decoder<'static>>,
    zstd_window: u64,
}

impl Default for Contexts {
    fn default() -> Self {
        Self { window: vec![0; WINDOW_BYTES], block: Vec::new(), gzip: None, zstd: None, zstd_window: 0 }
    }
}

impl std::fmt::Debug for Contexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contexts").finish_non_exhaustive()
    }
}

impl Contexts {
    /// Drops what an unusual batch made large.
    fn shrink(&mut self) {
        if self.block.len() > WINDOW_BYTES {
            self.block = Vec::new();
        }
        if self.zstd_window > ZSTD_WINDOW_KEPT {
            self.zstd = None;
        }
        self.zstd_window = 0;
    }
}

/// One payload on its way through its codec.
#[derive(Debug)]
pub(super) enum Stream {
    Gzip { between_members: bool },
    Zstd { between_frames: bool },
    Snappy(Snappy),
    Lz4(Lz4),
}

impl Stream {
    /// Makes the contexts ready for a payload; `None` if it is not compressed.
    pub(super) fn start(codec: Codec, payload: &[u8], contexts: &mut Contexts) -> Result<Option<Self>, UnpackError> {
        Ok(match codec {
            Codec::None => None,
            Codec::Gzip => Some(start_gzip(contexts)),
            Codec::Zstd => Some(start_zstd(payload, contexts)?),
            Codec::Snappy => Some(Self::Snappy(Snappy::start(payload))),
            Codec::Lz4 => Some(Self::Lz4(Lz4::start())),
        })
    }

    /// How much longer a byte takes than with the fastest codecs.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Gzip { .. } => 4,
            Self::Zstd { .. } => 2,
            Self::Snappy(_) | Self::Lz4(_) => 1,
        }
    }

    /// Takes some of `input` and gives some bytes of `out`; both 0 means that nothing is left to do with this input.
    pub(super) fn run(&mut self, contexts: &mut Contexts, input: &[u8], out: &mut [u8]) -> Result<Moved, UnpackError> {
        match self {
            Self::Gzip { between_members } => {
                let context = contexts.gzip.as_mut().ok_or(UnpackError::Memory("gzip"))?;
                run_gzip(context, between_members, input, out)
            }
            Self::Zstd { between_frames } => {
                let context = contexts.zstd.as_mut().ok_or(UnpackError::Memory("zstd"))?;
                run_zstd(context, between_frames, input, out)
            }
            Self::Snappy(stream) => stream.run(&mut contexts.block, input, out),
            Self::Lz4(stream) => stream.run(&mut contexts.block, input, out),
        }
    }

    /// Whether the payload may end here.
    pub(super) fn may_end(&self) -> Result<(), UnpackError> {
        match self {
            Self::Gzip { between_members: false } => Err(UnpackError::Cut("gzip")),
            Self::Zstd { between_frames: false } => Err(UnpackError::Cut("zstd")),
            Self::Snappy(stream) => stream.may_end(),
            Self::Lz4(stream) => stream.may_end(),
            _ => Ok(()),
        }
    }
}

/// Most bytes that a payload may unpack to, so that the codec's own memory stays in proportion to the payload's.
///
/// Only zstd holds memory of its own that a payload can ask for: its window, filled as far as bytes are unpacked.
pub(super) fn unpacked_limit(codec: Codec, payload: &[u8]) -> u64 {
    let received = payload.len() as u64;
    let window_max = ZSTD_WINDOW_FREE.max(received.saturating_mul(ZSTD_WINDOW_FACTOR));
    if codec == Codec::Zstd && zstd_window(payload) > window_max { window_max } else { u64::MAX }
}

fn start_gzip(contexts: &mut Contexts) -> Stream {
    match &mut contexts.gzip {
        Some(context) => context.reset(true),
        None => contexts.gzip = Some(Decompress::new_gzip(15)),
    }
    Stream::Gzip { between_members: true }
}

/// Members of a gzip file may follow each other, as Java's reader allows.
fn run_gzip(
    context: &mut Decompress,
    between_members: &mut bool,
    input: &[u8],
    out: &mut [u8],
) -> Result<Moved, UnpackError> {
    if *between_members && input.is_empty() {
        return Ok(Moved::default());
    }
    let (read_before, wrote_before) = (context.total_in(), context.total_out());
    let status = context.decompress(input, out, FlushDecompress::None).map_err(|_| UnpackError::Broken("gzip"))?;
    let moved =
        Moved { read: count(context.total_in() - read_before), wrote: count(context.total_out() - wrote_before) };
    *between_members = status == Status::StreamEnd;
    if *between_members {
        context.reset(true);
    }
    Ok(moved)
}

fn start_zstd(payload: &[u8], contexts: &mut Contexts) -> Result<Stream, UnpackError> {
    let memory = |_: io::Error| UnpackError::Memory("zstd");
    contexts.zstd_window = zstd_window(payload);
    match &mut contexts.zstd {
        Some(context) => context.reinit().map_err(memory)?,
        None => contexts.zstd = Some(Decoder::new().map_err(memory)?),
    }
    Ok(Stream::Zstd { between_frames: true })
}

fn run_zstd(
    context: &mut Decoder<'static>,
    between_frames: &mut bool,
    input: &[u8],
    out: &mut [u8],
) -> Result<Moved, UnpackError> {
    if *between_frames && input.is_empty() {
        return Ok(Moved::default());
    }
    let mut source = InBuffer::around(input);
    let mut target = OutBuffer::around(out);
    let to_come = context.run(&mut source, &mut target).map_err(|_| UnpackError::Broken("zstd"))?;
    *between_frames = to_come == 0;
    Ok(Moved { read: source.pos(), wrote: target.pos() })
}

/// Window that the first frame asks for, in bytes; 0 if that cannot be told.
///
/// Source: RFC 8878, 3.1.1.1.
fn zstd_window(payload: &[u8]) -> u64 {
    const SINGLE_SEGMENT: u8 = 1 << 5;
    let (Some(&descriptor), Some(&window)) = (payload.get(4), payload.get(5)) else { return 0 };
    if descriptor & SINGLE_SEGMENT != 0 {
        return zstd_content_size(payload, descriptor).unwrap_or(0);
    }
    let base = 1_u64 << (10 + (window >> 3));
    base + base / 8 * u64::from(window & 7)
}

/// Size of the content of a frame in a single segment, which is its window.
fn zstd_content_size(payload: &[u8], descriptor: u8) -> Option<u64> {
    let dictionary_bytes = [0, 1, 2, 4].get(usize::from(descriptor & 3))?;
    let size = payload.get(5 + dictionary_bytes..)?;
    Some(match descriptor >> 6 {
        0 => u64::from(*size.first()?),
        1 => u64::from(u16::from_le_bytes(*size.first_chunk()?)) + 256,
        2 => u64::from(u32::from_le_bytes(*size.first_chunk()?)),
        _ => u64::from_le_bytes(*size.first_chunk()?),
    })
}

fn count(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Gives as much of `block` from `given` on as `out` takes.
pub(super) fn give(block: &[u8], given: &mut usize, out: &mut [u8]) -> usize {
    let rest = block.get(*given..).unwrap_or_default();
    let length = rest.len().min(out.len());
    if let (Some(from), Some(to)) = (rest.get(..length), out.get_mut(..length)) {
        to.copy_from_slice(from);
    }
    *given += length;
    length
}
