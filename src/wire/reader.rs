//! Reads the protocol's types from a frame; every length and count is held against the bytes that remain.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::varint::{self, Varint};
use crate::ids::TopicId;

/// Bytes that are not the protocol; the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The frame ends before the field does.
    #[error("the frame ends inside of {0}")]
    Short(&'static str),
    /// A length or a count that the rest of the frame cannot hold, or a negative one.
    #[error("{field} cannot have the length {length}: {remaining} bytes of the frame remain")]
    Length {
        /// The field.
        field: &'static str,
        /// Length or count as given.
        length: i64,
        /// Bytes that remain.
        remaining: usize,
    },
    /// More elements than one request may have.
    #[error("{field} has {count} elements; at most {max} are read")]
    TooMany {
        /// The field.
        field: &'static str,
        /// Elements as given.
        count: usize,
        /// Elements that are allowed.
        max: usize,
    },
    /// A number of variable length that never ends.
    #[error("{0} holds a number that does not end")]
    Varint(&'static str),
    /// Text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// A null where the protocol has none.
    #[error("{0} must not be null")]
    Null(&'static str),
    /// An API key that nobody knows.
    #[error("there is no API key {0}")]
    UnknownApi(i16),
    /// A version of a request that is not read here.
    #[error("version {version} of API key {api_key} is not served")]
    Version {
        /// API key.
        api_key: i16,
        /// Version as given.
        version: i16,
    },
}

/// Longest text: Kafka closes the connection for a longer one, also where its length has more than 16 bits.
const TEXT_BYTES_MAX: i64 = i16::MAX as i64;

/// A place in a frame from which one field after the other is taken.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Bytes,
    flexible: bool,
    count_max: usize,
}

impl Reader {
    /// Starts at the first byte; `flexible` says how lengths are written and that tagged fields follow.
    #[must_use]
    pub fn new(bytes: Bytes, flexible: bool) -> Self {
        Self { bytes, flexible, count_max: usize::MAX }
    }

    /// Refuses arrays of more than `count_max` elements, for requests whose work per element is not small.
    #[must_use]
    pub fn with_count_max(self, count_max: usize) -> Self {
        Self { count_max, ..self }
    }

    /// The bytes that were not taken yet.
    #[must_use]
    pub fn rest(self) -> Bytes {
        self.bytes
    }

    /// Number of bytes that were not taken yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Takes an int8.
    ///
    /// # Errors
    /// `Short` if the frame ends first.
    pub fn i8(&mut self, field: &'static str) -> Result<i8, WireError> {
        self.array(field).map(i8::from_be_bytes)
    }

    /// Takes an int16.
    ///
    /// # Errors
    /// `Short` if the frame ends first.
    pub fn i16(&mut self, field: &'static str) -> Result<i16, WireError> {
        self.array(field).map(i16::from_be_bytes)
    }

    /// Takes an int32.
    ///
    /// # Errors
    /// `Short` if the frame ends first.
    pub fn i32(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.array(field).map(i32::from_be_bytes)
    }

    /// Takes an int64.
    ///
    /// # Errors
    /// `Short` if the frame ends first.
    pub fn i64(&mut self, field: &'static str) -> Result<i64, WireError> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// Takes a topic id.
    ///
    /// # Errors
    /// `Short` if the frame ends first.
    pub fn topic_id(&mut self, field: &'static str) -> Result<TopicId, WireError> {
        self.array(field).map(TopicId)
    }

    /// Takes an unsigned number of variable length.
    ///
    /// # Errors
    /// `Short` if the frame ends first, `Varint` if it has more than five bytes.
    pub fn varint(&mut self, field: &'static str) -> Result<u32, WireError> {
        match varint::read_u32(&self.bytes) {
            Varint::Number(value, length) => {
                self.skip(length);
                Ok(value)
            }
            Varint::Short => Err(WireError::Short(field)),
            Varint::Long => Err(WireError::Varint(field)),
        }
    }

    /// Takes a text that may be null.
    ///
    /// # Errors
    /// Where it does not fit into the frame or is not UTF-8.
    pub fn nullable_text(&mut self, field: &'static str) -> Result<Option<StrBytes>, WireError> {
        let length = if self.flexible { self.compact_length(field)? } else { i64::from(self.i16(field)?) };
        if length > TEXT_BYTES_MAX {
            return Err(WireError::Length { field, length, remaining: self.bytes.len() });
        }
        let bytes = self.nullable_slice(field, length)?;
        bytes.map(|bytes| StrBytes::from_utf8(bytes).map_err(|_| WireError::Text(field))).transpose()
    }

    /// Takes a text.
    ///
    /// # Errors
    /// As [`Reader::nullable_text`], and `Null` for a null.
    pub fn text(&mut self, field: &'static str) -> Result<StrBytes, WireError> {
        self.nullable_text(field)?.ok_or(WireError::Null(field))
    }

    /// Takes bytes that may be null, as a slice of the frame.
    ///
    /// # Errors
    /// Where they do not fit into the frame.
    pub fn nullable_bytes(&mut self, field: &'static str) -> Result<Option<Bytes>, WireError> {
        let length = if self.flexible { self.compact_length(field)? } else { i64::from(self.i32(field)?) };
        self.nullable_slice(field, length)
    }

    /// Takes bytes to be kept longer than the frame, as a copy: a slice would keep all of the frame.
    ///
    /// # Errors
    /// As [`Reader::nullable_bytes`], and `Null` for a null.
    pub fn kept_bytes(&mut self, field: &'static str) -> Result<Bytes, WireError> {
        let bytes = self.nullable_bytes(field)?.ok_or(WireError::Null(field))?;
        Ok(Bytes::copy_from_slice(&bytes))
    }

    /// Takes an array's count, for elements of at least `bytes_min` bytes each.
    ///
    /// # Errors
    /// As [`Reader::nullable_count`], and `Null` for a null.
    pub fn count(&mut self, field: &'static str, bytes_min: usize) -> Result<usize, WireError> {
        self.nullable_count(field, bytes_min)?.ok_or(WireError::Null(field))
    }

    /// Takes the count of an array that may be null, for elements of at least `bytes_min` bytes each.
    ///
    /// # Errors
    /// `Length` where the rest of the frame cannot hold that many, `TooMany` beyond [`Reader::with_count_max`].
    pub fn nullable_count(&mut self, field: &'static str, bytes_min: usize) -> Result<Option<usize>, WireError> {
        let length = if self.flexible { self.compact_length(field)? } else { i64::from(self.i32(field)?) };
        let remaining = self.remaining();
        let error = WireError::Length { field, length, remaining };
        if length == -1 {
            return Ok(None);
        }
        let count = usize::try_from(length).map_err(|_| error)?;
        if count.checked_mul(bytes_min).is_none_or(|needed| needed > remaining) {
            return Err(error);
        }
        if count > self.count_max {
            return Err(WireError::TooMany { field, count, max: self.count_max });
        }
        Ok(Some(count))
    }

    /// Takes an array: reads `count` elements of at least `bytes_min` bytes each.
    ///
    /// # Errors
    /// As [`Reader::count`] and as `element` says.
    pub fn array_of<T>(
        &mut self,
        field: &'static str,
        bytes_min: usize,
        element: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        self.nullable_array_of(field, bytes_min, element)?.ok_or(WireError::Null(field))
    }

    /// Takes an array that may be null.
    ///
    /// # Errors
    /// As [`Reader::count`] and as `element` says.
    pub fn nullable_array_of<T>(
        &mut self,
        field: &'static str,
        bytes_min: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Option<Vec<T>>, WireError> {
        let Some(count) = self.nullable_count(field, bytes_min)? else { return Ok(None) };
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(Some(elements))
    }

    /// Takes the tagged fields at the end of a structure and drops them; there are none unless it is flexible.
    ///
    /// # Errors
    /// Where one does not fit into the frame.
    pub fn skip_tagged(&mut self, field: &'static str) -> Result<(), WireError> {
        self.tagged(field, |_, _| Ok(()))
    }

    /// Takes the tagged fields at the end of a structure, giving number and bytes of each.
    ///
    /// # Errors
    /// Where one does not fit into the frame, and as `take` says.
    pub fn tagged(
        &mut self,
        field: &'static str,
        mut take: impl FnMut(u32, Bytes) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        if !self.flexible {
            return Ok(());
        }
        for _ in 0..self.varint(field)? {
            let tag = self.varint(field)?;
            let length = self.varint(field)?;
            take(tag, self.slice(field, i64::from(length))?)?;
        }
        Ok(())
    }

    /// Takes the next `N` bytes.
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let value = *self.bytes.first_chunk().ok_or(WireError::Short(field))?;
        self.skip(N);
        Ok(value)
    }

    /// A compact length, which is one more than what it says; 0 is null, given as -1.
    fn compact_length(&mut self, field: &'static str) -> Result<i64, WireError> {
        self.varint(field).map(|length| i64::from(length) - 1)
    }

    fn nullable_slice(&mut self, field: &'static str, length: i64) -> Result<Option<Bytes>, WireError> {
        if length == -1 { Ok(None) } else { self.slice(field, length).map(Some) }
    }

    fn slice(&mut self, field: &'static str, length: i64) -> Result<Bytes, WireError> {
        match usize::try_from(length) {
            Ok(length) if length <= self.bytes.len() => Ok(self.bytes.split_to(length)),
            _ => Err(WireError::Length { field, length, remaining: self.bytes.len() }),
        }
    }

    fn skip(&mut self, bytes: usize) {
        bytes::Buf::advance(&mut self.bytes, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kafka closes the connection for a null where the protocol has none; so do the readers of requests.
    #[test]
    fn a_null_is_no_array() {
        for (bytes, flexible) in [(&[0xff_u8; 4][..], false), (&[0][..], true)] {
            let mut reader = Reader::new(Bytes::copy_from_slice(bytes), flexible);
            assert!(matches!(
                reader.array_of("things", 1, |reader| reader.i8("a thing")),
                Err(WireError::Null("things"))
            ));
            let mut reader = Reader::new(Bytes::copy_from_slice(bytes), flexible);
            assert!(matches!(reader.nullable_array_of("things", 1, |reader| reader.i8("a thing")), Ok(None)));
        }
    }
}
