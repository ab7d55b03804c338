//! Compresses records piece by piece, as the Java client does.

use std::io::{self, Write};

use bytes::BufMut;

use super::batch::Codec;

/// Bytes in a block of the xerial framing, as in snappy-java.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;

/// Records on their way into a payload.
pub(super) enum Packer {
    Plain(Vec<u8>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Snappy(Xerial),
    Lz4(Box<lz4_flex::frame::FrameEncoder<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// Begins a payload; of `bytes` unpacked bytes, where that is known.
    pub(super) fn new(codec: Codec, bytes: Option<u64>) -> io::Result<Self> {
        Ok(match codec {
            Codec::None => Self::Plain(Vec::new()),
            Codec::Gzip => Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default())),
            Codec::Snappy => Self::Snappy(Xerial::new()),
            Codec::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
                Self::Lz4(Box::new(lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new())))
            }
            Codec::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.set_pledged_src_size(bytes)?;
                Self::Zstd(encoder)
            }
        })
    }

    /// Adds the next bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(out) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Snappy(blocks) => blocks.add(bytes),
            Self::Lz4(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    /// The payload.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Snappy(blocks) => blocks.finish(),
            Self::Lz4(encoder) => encoder.finish().map_err(io::Error::other),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// Blocks behind the xerial magic, each with its length.
pub(super) struct Xerial {
    out: Vec<u8>,
    block: Vec<u8>,
}

impl Xerial {
    fn new() -> Self {
        let mut out = super::snappy::XERIAL_MAGIC.to_vec();
        out.put_u32(1);
        out.put_u32(1);
        Self { out, block: Vec::with_capacity(XERIAL_BLOCK_BYTES) }
    }

    fn add(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = XERIAL_BLOCK_BYTES - self.block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == XERIAL_BLOCK_BYTES {
                self.close_block()?;
            }
        }
        Ok(())
    }

    fn close_block(&mut self) -> io::Result<()> {
        let block = snappy_block(&self.block)?;
        self.block.clear();
        self.out.put_u32(u32::try_from(block.len()).map_err(io::Error::other)?);
        self.out.put_slice(&block);
        Ok(())
    }

    fn finish(mut self) -> io::Result<Vec<u8>> {
        if !self.block.is_empty() {
            self.close_block()?;
        }
        Ok(self.out)
    }
}

/// One raw block of snappy.
pub(super) fn snappy_block(bytes: &[u8]) -> io::Result<Vec<u8>> {
    snap::raw::Encoder::new().compress_vec(bytes).map_err(io::Error::other)
}
