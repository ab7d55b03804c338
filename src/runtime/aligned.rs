//! Memory that a direct write accepts: address and length are multiples of 4096.

use glommio::io::DmaBuffer;

/// Alignment of address and length, in bytes.
pub const BLOCK: usize = 4096;

/// A buffer for direct writes.
#[derive(Debug)]
pub struct AlignedBuf {
    inner: DmaBuffer,
}

impl AlignedBuf {
    /// A zeroed buffer of at least `bytes` bytes, rounded up to whole blocks.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(BLOCK);
        let mut inner = glommio::allocate_dma_buffer_global(bytes);
        inner.as_bytes_mut().fill(0);
        Self { inner }
    }

    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.inner.as_bytes()
    }

    /// The content, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.inner.as_bytes_mut()
    }

    /// For the ring, which takes ownership.
    pub(super) fn into_dma(self) -> DmaBuffer {
        self.inner
    }
}
