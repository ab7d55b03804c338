//! Keys and values of a stored batch, for those who read what the broker itself has written: coordinators at their start,
//! and tools.

use bytes::Bytes;

use super::batch::BatchHeader;
use super::internal::KeyValue;
use super::records::WalkError;
use super::unfold::Unfold;
use super::unpack::Unpacker;
use super::varint::{self, Varint};

/// The records of one batch, one after the other; ends behind the first that cannot be read.
#[derive(Debug)]
pub struct Contents {
    rest: Bytes,
    index: i32,
    count: i32,
}

/// One record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeRecord {
    /// Milliseconds behind the batch's base timestamp.
    pub timestamp_delta: i64,
    /// Offsets behind the batch's base offset.
    pub offset_delta: i32,
    /// Key.
    pub key: Option<Bytes>,
    /// Value.
    pub value: Option<Bytes>,
    /// Names and values of its headers.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

impl Contents {
    /// Unpacks a batch.
    ///
    /// Shapes: `batch` is one whole batch with `header`, as it is stored.
    ///
    /// # Errors
    /// Where the payload cannot be unpacked, or unpacks to more than `bytes_max`.
    pub fn of(batch: &Bytes, header: &BatchHeader, bytes_max: u64, unpacker: &mut Unpacker) -> Result<Self, WalkError> {
        let rest = Unfold::start(batch, header, bytes_max, unpacker)?.finish(unpacker)?;
        Ok(Self { rest, index: 0, count: header.records_count })
    }

    /// The next record with everything that it holds; `None` behind the last one, and behind one that cannot be read.
    pub fn next_whole(&mut self) -> Option<Result<WholeRecord, WalkError>> {
        if self.index >= self.count {
            return None;
        }
        let index = self.index;
        let next = self.take_whole().map_err(|what| WalkError::Broken { index, what });
        self.index += 1;
        if next.is_err() {
            self.count = 0;
        }
        Some(next)
    }

    fn take_whole(&mut self) -> Result<WholeRecord, &'static str> {
        let length = take_length(&mut self.rest)?.ok_or("its length is negative")?;
        let mut record = take_bytes(&mut self.rest, length)?;
        let _attributes = take_bytes(&mut record, 1)?;
        let timestamp_delta = take_number(&mut record, varint::read_i64)?;
        let offset_delta = take_number(&mut record, varint::read_i32)?;
        let (key, value) = (take_field(&mut record)?, take_field(&mut record)?);
        let mut headers = Vec::new();
        for _ in 0..take_number(&mut record, varint::read_i32)? {
            headers.push((take_field(&mut record)?.ok_or("a header has no name")?, take_field(&mut record)?));
        }
        Ok(WholeRecord { timestamp_delta, offset_delta, key, value, headers })
    }

    fn next_record(&mut self) -> Result<KeyValue, WalkError> {
        let index = self.index;
        let broken = |what| WalkError::Broken { index, what };
        let length = take_length(&mut self.rest).map_err(broken)?.ok_or(broken("its length is negative"))?;
        let mut record = take_bytes(&mut self.rest, length).map_err(broken)?;
        let _attributes = take_bytes(&mut record, 1).map_err(broken)?;
        take_number(&mut record, varint::read_i64).map_err(broken)?;
        take_number(&mut record, varint::read_i32).map_err(broken)?;
        let key = take_field(&mut record).map_err(broken)?.unwrap_or_default();
        let value = take_field(&mut record).map_err(broken)?;
        self.index += 1;
        Ok(KeyValue { key, value })
    }
}

impl Iterator for Contents {
    type Item = Result<KeyValue, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.count {
            return None;
        }
        let next = self.next_record();
        if next.is_err() {
            self.count = 0;
        }
        Some(next)
    }
}

/// Takes a length and that many bytes; `None` for a null.
fn take_field(rest: &mut Bytes) -> Result<Option<Bytes>, &'static str> {
    let length = take_length(rest)?;
    length.map(|length| take_bytes(rest, length)).transpose()
}

/// Takes a length; `None` for a negative one.
fn take_length(rest: &mut Bytes) -> Result<Option<usize>, &'static str> {
    take_number(rest, varint::read_i32).map(|length| usize::try_from(length).ok())
}

fn take_bytes(rest: &mut Bytes, length: usize) -> Result<Bytes, &'static str> {
    if length > rest.len() { Err("the payload ends inside of it") } else { Ok(rest.split_to(length)) }
}

fn take_number<T>(rest: &mut Bytes, read: impl Fn(&[u8]) -> Varint<T>) -> Result<T, &'static str> {
    match read(rest) {
        Varint::Number(value, length) => {
            take_bytes(rest, length)?;
            Ok(value)
        }
        Varint::Short => Err("the payload ends inside of it"),
        Varint::Long => Err("a number does not end"),
    }
}
