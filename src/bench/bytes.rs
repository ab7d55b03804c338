//! Writing and reading the protocol's primitive types.
//!
//! Source: the protocol guide's "Protocol Primitive Types"; KIP-482 for the compact forms.

/// The bytes end before the value does, or a length is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl From<Malformed> for String {
    fn from(_: Malformed) -> Self {
        "the broker's answer does not follow the protocol".to_owned()
    }
}

/// A request or record batch while it is written.
#[derive(Default)]
pub(super) struct Put(pub(super) Vec<u8>);

impl Put {
    pub(super) fn i8(&mut self, value: i8) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(super) fn i16(&mut self, value: i16) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A length or count as the protocol's plain forms have it.
    pub(super) fn count(&mut self, count: usize) -> &mut Self {
        self.i32(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// A string with a 16-bit length.
    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        self.i16(i16::try_from(text.len()).unwrap_or(i16::MAX)).raw(text.as_bytes())
    }

    /// A length or count as the compact forms have it: one more than it is, so that 0 can mean null.
    pub(super) fn compact_count(&mut self, count: usize) -> &mut Self {
        self.unsigned_varint(count as u64 + 1)
    }

    /// A compact string.
    pub(super) fn compact_string(&mut self, text: &str) -> &mut Self {
        self.compact_count(text.len()).raw(text.as_bytes())
    }

    /// An unsigned varint, seven bits a byte, lowest first.
    pub(super) fn unsigned_varint(&mut self, mut value: u64) -> &mut Self {
        while value > 0x7f {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push((value & 0x7f) as u8);
        self
    }

    /// A signed varint, zigzag: how lengths and deltas stand inside a record.
    pub(super) fn varint(&mut self, value: i64) -> &mut Self {
        self.unsigned_varint((value.wrapping_shl(1) ^ (value >> 63)).cast_unsigned())
    }
}

/// An answer while it is read.
pub(super) struct Take<'a>(pub(super) &'a [u8]);

impl<'a> Take<'a> {
    pub(super) fn raw(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.raw(N)?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.fixed::<1>()? != [0])
    }

    pub(super) fn i16(&mut self) -> Result<i16, Malformed> {
        self.fixed().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.fixed().map(i64::from_be_bytes)
    }

    /// A count of a plain array; null reads as 0.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        match self.i32()? {
            -1 => Ok(0),
            count => usize::try_from(count).map_err(|_| Malformed),
        }
    }

    /// A string with a 16-bit length; null reads as empty.
    pub(super) fn string(&mut self) -> Result<&'a str, Malformed> {
        match self.i16()? {
            -1 => Ok(""),
            bytes => self.text(usize::try_from(bytes).map_err(|_| Malformed)?),
        }
    }

    /// A count of a compact array, a length of a compact string; null reads as 0.
    pub(super) fn compact_count(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.unsigned_varint()?.saturating_sub(1)).map_err(|_| Malformed)
    }

    pub(super) fn compact_string(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.compact_count()?;
        self.text(bytes)
    }

    fn text(&mut self, bytes: usize) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.raw(bytes)?).map_err(|_| Malformed)
    }

    fn unsigned_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let [byte] = self.fixed::<1>()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// Passes over tagged fields.
    pub(super) fn skip_tags(&mut self) -> Result<(), Malformed> {
        for _ in 0..self.unsigned_varint()? {
            self.unsigned_varint()?;
            let bytes = self.unsigned_varint()?;
            self.raw(usize::try_from(bytes).map_err(|_| Malformed)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_varints_are_zigzag() {
        let written = |value| {
            let mut put = Put::default();
            put.varint(value);
            put.0
        };
        assert_eq!(written(0), [0]);
        assert_eq!(written(-1), [1]);
        assert_eq!(written(1), [2]);
        assert_eq!(written(64), [0x80, 1]);
    }

    #[test]
    fn what_was_put_is_taken() {
        let mut put = Put::default();
        put.i16(-2).string("topic").compact_string("x".repeat(200).as_str()).i64(7).unsigned_varint(0);
        let mut take = Take(&put.0);
        assert_eq!(take.i16(), Ok(-2));
        assert_eq!(take.string(), Ok("topic"));
        assert_eq!(take.compact_string().map(str::len), Ok(200));
        assert_eq!(take.i64(), Ok(7));
        assert_eq!(take.skip_tags(), Ok(()));
        assert_eq!(take.raw(1), Err(Malformed));
    }
}
