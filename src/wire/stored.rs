//! A record batch as it is stored: byte for byte as received, apart from base offset and partition leader epoch.

use bytes::{BufMut, Bytes, BytesMut};

use super::batch::{HEADER_BYTES, set_place};
use crate::ids::Offset;

/// Bytes 0 to 15 of a batch: base offset, length, partition leader epoch. No checksum covers them.
pub const HEAD_BYTES: usize = 16;

/// A batch in two pieces, so that giving it an offset copies nothing: the head is ours, the rest is the slice of the
/// frame that the batch came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    head: [u8; HEAD_BYTES],
    rest: Bytes,
}

impl StoredBatch {
    /// Gives a received batch its place.
    ///
    /// Shapes: `received` is one whole batch, checked, at least 61 bytes.
    #[must_use]
    pub fn place(received: &Bytes, base_offset: Offset, leader_epoch: i32) -> Self {
        let mut placed = Self::whole(received);
        set_place(&mut placed.head, base_offset, leader_epoch);
        placed
    }

    /// A batch that already has its place (from a file).
    ///
    /// # Panics
    /// When there are fewer bytes than the head has.
    #[must_use]
    pub fn whole(bytes: &Bytes) -> Self {
        let Some(head) = bytes.first_chunk() else { panic!("{} bytes are no batch", bytes.len()) };
        Self { head: *head, rest: bytes.slice(HEAD_BYTES..) }
    }

    /// Size in bytes; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        HEAD_BYTES + self.rest.len()
    }

    /// Offset of its first record.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        Offset(i64::from_be_bytes(self.head.first_chunk().copied().unwrap_or_default()))
    }

    /// Its header, as it is stored.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let (head, rest) = header.split_at_mut(HEAD_BYTES);
        head.copy_from_slice(&self.head);
        rest.iter_mut().zip(&self.rest).for_each(|(into, byte)| *into = *byte);
        header
    }

    /// The two pieces in order.
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.head, &self.rest]
    }

    /// Copies the rest into `arena`, so that a small batch does not keep a large receive buffer alive.
    pub fn move_into(&mut self, arena: &mut BytesMut) {
        arena.extend_from_slice(&self.rest);
        self.rest = arena.split().freeze();
    }

    /// Writes the whole batch.
    pub fn put(&self, into: &mut impl BufMut) {
        into.put_slice(&self.head);
        into.put_slice(&self.rest);
    }

    /// The whole batch in one piece (copies).
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut whole = BytesMut::with_capacity(self.len());
        self.put(&mut whole);
        whole.freeze()
    }
}

/// Stored bytes on their way to a file or a client: in one piece, or a batch in the two pieces that it is stored as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    /// In one piece.
    Whole(Bytes),
    /// A batch with its place.
    Batch(StoredBatch),
}

impl RecordData {
    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// True without content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in order.
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 2] {
        match self {
            Self::Whole(bytes) => [bytes, &[]],
            Self::Batch(batch) => batch.parts(),
        }
    }
}

impl From<Bytes> for RecordData {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl From<StoredBatch> for RecordData {
    fn from(batch: StoredBatch) -> Self {
        Self::Batch(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_offset_and_epoch_change() {
        let received = Bytes::from((0_u8..80).collect::<Vec<_>>());
        let stored = StoredBatch::place(&received, Offset(0x0102_0304_0506_0708), 9).to_bytes();
        assert_eq!(stored[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(stored[8..12], received[8..12]);
        assert_eq!(stored[12..16], [0, 0, 0, 9]);
        assert_eq!(stored[16..], received[16..]);
    }
}
