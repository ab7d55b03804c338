//! How an answer becomes a frame: its body describes itself once, first to a counter and then to a buffer of that size.

use std::collections::HashSet;
use std::hash::Hash;

use bytes::{BufMut, Bytes, BytesMut};

use super::{Api, Request};
use crate::wire::frame::{PREFIX_BYTES, set_prefix};
use crate::wire::sink::{Counted, Sink, Writer};

/// Kafka's sentence for INVALID_REQUEST where it has none that says more.
pub(crate) const MALFORMED: &str = "This most likely occurs because of a request being malformed by the client library or \
                                    the message was sent to an incompatible broker. See the broker logs for more details.";

/// What can be written behind a response header.
pub(crate) trait Body {
    /// Writes the fields of `version`.
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16);
}

/// The whole frame that answers `request`.
pub(crate) fn frame(request: &Request, body: &impl Body) -> Bytes {
    encode(request, request.version, body)
}

/// The same in another version than the one that was asked in.
pub(crate) fn encode(request: &Request, version: i16, body: &impl Body) -> Bytes {
    let flexible = request.api.is_flexible(version);
    let mut counted = Counted::default();
    body.write(&mut Writer::new(&mut counted, flexible), version);
    let mut frame = open(request, version, counted.0);
    body.write(&mut Writer::new(&mut frame, flexible), version);
    close(frame)
}

/// A frame with its header, and room for a body of so many bytes.
pub(crate) fn open(request: &Request, version: i16, body_bytes: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + 4 + 1 + body_bytes);
    frame.put_i32(0);
    frame.put_i32(request.correlation_id);
    // A client must read the answer to ApiVersions before it knows what the broker speaks: its header stays the oldest.
    if request.api.is_flexible(version) && request.api != Api::ApiVersions {
        frame.put_u8(0);
    }
    frame
}

/// The frame as it goes out: its length in front.
pub(crate) fn close(mut frame: BytesMut) -> Bytes {
    set_prefix(&mut frame);
    frame.freeze()
}

/// The results of the items of a request, under their names; a name that is there several times is answered once.
pub(crate) fn first_of_each<N: Clone + Eq + Hash, R>(names: Vec<N>, results: Vec<R>) -> Vec<(N, R)> {
    let mut seen = HashSet::with_capacity(names.len());
    names.into_iter().zip(results).filter(|(name, _)| seen.insert(name.clone())).collect()
}

/// Each value once, in ascending order. Sorting needs no memory beside the list, however often a request repeats itself.
pub(crate) fn each_once<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values.dedup();
    values
}
