//! The protocol's numbers of variable length: seven bits a byte, lowest first; signed ones zigzag.

use bytes::BufMut;

/// What stands at the start of some bytes, read as a number of variable length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Varint<T> {
    /// A number, and how many bytes it took.
    Number(T, usize),
    /// The bytes end before the number does.
    Short,
    /// More bytes than such a number can have.
    Long,
}

impl<T> Varint<T> {
    fn map<U>(self, f: impl FnOnce(T) -> U) -> Varint<U> {
        match self {
            Self::Number(value, length) => Varint::Number(f(value), length),
            Self::Short => Varint::Short,
            Self::Long => Varint::Long,
        }
    }
}

/// Most bytes that a 32-bit number takes.
pub const BYTES_MAX_32: usize = 5;

/// Most bytes that a 64-bit number takes.
pub const BYTES_MAX_64: usize = 10;

/// Reads an unsigned number of at most `bytes_max` bytes; bits beyond the 64th are dropped, as Kafka does.
fn read_bits(bytes: &[u8], bytes_max: usize) -> Varint<u64> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(bytes_max).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Varint::Number(value, index + 1);
        }
    }
    if bytes.len() < bytes_max { Varint::Short } else { Varint::Long }
}

/// Reads an unsigned 32-bit number.
#[inline]
#[must_use]
pub fn read_u32(bytes: &[u8]) -> Varint<u32> {
    match *bytes {
        [first @ ..0x80, ..] => Varint::Number(u32::from(first), 1),
        [first, second @ ..0x80, ..] => Varint::Number(u32::from(first & 0x7f) | u32::from(second) << 7, 2),
        _ => read_bits(bytes, BYTES_MAX_32).map(low_half),
    }
}

/// Reads a zigzag 32-bit number.
#[inline]
#[must_use]
pub fn read_i32(bytes: &[u8]) -> Varint<i32> {
    read_u32(bytes).map(|raw| (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
}

/// Reads a zigzag 64-bit number.
#[inline]
#[must_use]
pub fn read_i64(bytes: &[u8]) -> Varint<i64> {
    let raw = match *bytes {
        [first @ ..0x80, ..] => Varint::Number(u64::from(first), 1),
        _ => read_bits(bytes, BYTES_MAX_64),
    };
    raw.map(|raw| (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
}

#[expect(clippy::cast_possible_truncation, reason = "bits beyond the 32nd are dropped, as Kafka does")]
const fn low_half(raw: u64) -> u32 {
    raw as u32
}

/// Writes an unsigned 32-bit number.
pub fn put_u32(out: &mut impl BufMut, value: u32) {
    put_u64(out, u64::from(value));
}

/// Writes a zigzag 32-bit number.
pub fn put_i32(out: &mut impl BufMut, value: i32) {
    put_u32(out, ((value << 1) ^ (value >> 31)).cast_unsigned());
}

/// Writes a zigzag 64-bit number.
pub fn put_i64(out: &mut impl BufMut, value: i64) {
    put_u64(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

fn put_u64(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8((value & 0x7f) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        for value in [0, 1, -1, 63, 64, -64, -65, i32::MAX, i32::MIN] {
            let mut bytes = Vec::new();
            put_i32(&mut bytes, value);
            assert_eq!(read_i32(&bytes), Varint::Number(value, bytes.len()));
            assert_eq!(read_i32(&bytes[..bytes.len() - 1]), Varint::Short, "cut: {value}");
        }
        for value in [0, -1, i64::MAX, i64::MIN, 1 << 40] {
            let mut bytes = Vec::new();
            put_i64(&mut bytes, value);
            assert_eq!(read_i64(&bytes), Varint::Number(value, bytes.len()));
        }
    }

    #[test]
    fn a_number_that_never_ends_is_told_from_one_that_is_cut() {
        assert_eq!(read_u32(&[0x80; 4]), Varint::Short);
        assert_eq!(read_u32(&[0x80; 5]), Varint::Long);
        assert_eq!(read_i64(&[0xff; 9]), Varint::Short);
        assert_eq!(read_i64(&[0xff; 10]), Varint::Long);
    }
}
