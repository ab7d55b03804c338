//! Writes the protocol's types, or only counts their bytes: one description of a response gives size and content.

use bytes::{BufMut, BytesMut};

use super::varint;
use crate::ids::TopicId;

/// Longest text behind a length of 16 bits.
const TEXT_BYTES_MAX: usize = i16::MAX as usize;

/// Where bytes go.
pub(crate) trait Sink {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }
}

/// Counts bytes.
#[derive(Debug, Default)]
pub(crate) struct Counted(pub usize);

impl Sink for Counted {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Writes fields one after the other.
pub(crate) struct Writer<'a, S> {
    sink: &'a mut S,
    flexible: bool,
}

impl<'a, S: Sink> Writer<'a, S> {
    pub(crate) fn new(sink: &'a mut S, flexible: bool) -> Self {
        Self { sink, flexible }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.sink.put(bytes);
    }

    pub(crate) fn i8(&mut self, value: i8) {
        self.sink.put(&value.to_be_bytes());
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.sink.put(&value.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.sink.put(&value.to_be_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.sink.put(&value.to_be_bytes());
    }

    pub(crate) fn topic_id(&mut self, id: TopicId) {
        self.sink.put(&id.0);
    }

    pub(crate) fn varint(&mut self, value: u32) {
        let mut room = [0_u8; varint::BYTES_MAX_32];
        let mut rest = room.as_mut_slice();
        varint::put_u32(&mut rest, value);
        let unused = rest.len();
        self.sink.put(room.get(..varint::BYTES_MAX_32 - unused).unwrap_or_default());
    }

    /// The count of an array; `None` is a null array.
    pub(crate) fn count(&mut self, count: Option<usize>) {
        self.length(count);
    }

    /// A bytes field.
    pub(crate) fn whole_bytes(&mut self, bytes: &[u8]) {
        self.bytes_length(bytes.len());
        self.bytes(bytes);
    }

    /// The length of a bytes field.
    pub(crate) fn bytes_length(&mut self, length: usize) {
        self.length(Some(length));
    }

    /// A text that may be null; longer than 32767 bytes, it is cut where the length has only 16 bits.
    pub(crate) fn nullable_text(&mut self, text: Option<&str>) {
        if self.flexible {
            self.length(text.map(str::len));
            return self.bytes(text.unwrap_or_default().as_bytes());
        }
        let text = text.map(|text| &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
        self.i16(text.map_or(-1, |text| i16::try_from(text.len()).unwrap_or(i16::MAX)));
        self.bytes(text.unwrap_or_default().as_bytes());
    }

    /// The end of a structure without tagged fields.
    pub(crate) fn no_tagged(&mut self) {
        if self.flexible {
            self.varint(0);
        }
    }

    /// One tagged field, whose content is what `write` writes; the number of them goes before.
    pub(crate) fn tagged(&mut self, tag: u32, write: impl FnOnce(&mut Writer<'_, BytesMut>)) {
        let mut content = BytesMut::new();
        write(&mut Writer::new(&mut content, true));
        self.varint(tag);
        self.varint(u32::try_from(content.len()).unwrap_or(u32::MAX));
        self.bytes(&content);
    }

    /// A tagged field that names a leader and its epoch.
    pub(crate) fn tagged_leader(&mut self, tag: u32, id: i32, epoch: i32) {
        self.varint(tag);
        self.varint(4 + 4 + 1);
        self.i32(id);
        self.i32(epoch);
        self.varint(0);
    }

    fn length(&mut self, length: Option<usize>) {
        if self.flexible {
            let raw = length.map_or(0, |length| length.saturating_add(1));
            self.varint(u32::try_from(raw).unwrap_or(u32::MAX));
        } else {
            self.i32(length.map_or(-1, |length| i32::try_from(length).unwrap_or(i32::MAX)));
        }
    }
}
