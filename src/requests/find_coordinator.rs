//! FindCoordinator (10), versions 0 to 6: which broker answers for a group or a transactional id.
//!
//! 1 has key types, an error's sentence and the throttle time · 3 is flexible · 4 takes many keys · 6 knows share groups.
//! Left out so far: share groups (42, as in Kafka where a share group's key is no such key).
//!
//! There is one broker, so all keys have the same answer: the topic that they are in is made if it is not there yet.
//!
//! Source: apache/kafka `KafkaApis.handleFindCoordinatorRequest`; the answers were compared with Apache Kafka 4.4.0.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::groups::{Groups, each_first};
use super::response::{self, Body, MALFORMED};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

/// Key type of groups.
const GROUP: i8 = 0;
/// Key type of transactional ids.
const TRANSACTION: i8 = 1;
/// Key type of a share group's partition.
const SHARE: i8 = 2;

/// First version that takes many keys.
const MANY_FROM: i16 = 4;

/// Answers FindCoordinator.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let (kind, keys) = read(request, body)?;
    let error = match (kind, keys.first()) {
        (GROUP, Some(group)) => groups.group_partition(group).await.err().unwrap_or(ErrorCode::None),
        (GROUP, None) => ErrorCode::None,
        (TRANSACTION, Some(_)) => groups.find_transaction_coordinator().await.err().unwrap_or(ErrorCode::None),
        (TRANSACTION, None) => ErrorCode::None,
        _ => ErrorCode::InvalidRequest,
    };
    let (host, port) = groups.advertised();
    let node = if error.is_none() { (groups.catalog().node_id(), host, port) } else { (-1, String::new(), -1) };
    let message = if request.version < MANY_FROM { message_of_one(error) } else { message_of_many(kind, error) };
    Ok(response::frame(request, &Answer { keys, error, message, node }))
}

fn read(request: &Request, body: Bytes) -> Result<(i8, Vec<StrBytes>), WireError> {
    let mut reader = request.reader(body);
    let version = request.version;
    let mut keys = Vec::new();
    if version < MANY_FROM {
        keys.push(reader.text("the key")?);
    }
    let kind = if version >= 1 { reader.i8("the key type")? } else { GROUP };
    if version >= MANY_FROM {
        keys = each_first(reader.array_of("the keys", 1, |reader| reader.text("a key"))?);
    }
    reader.skip_tagged("the request")?;
    Ok((kind, keys))
}

fn message_of_one(error: ErrorCode) -> &'static str {
    match error {
        ErrorCode::CoordinatorNotAvailable => "The coordinator is not available.",
        ErrorCode::InvalidRequest => MALFORMED,
        other => other.name(),
    }
}

/// With many keys Kafka has a sentence for one mistake only.
fn message_of_many(kind: i8, error: ErrorCode) -> &'static str {
    if error == ErrorCode::InvalidRequest && kind != SHARE { MALFORMED } else { "" }
}

struct Answer {
    keys: Vec<StrBytes>,
    error: ErrorCode,
    message: &'static str,
    /// Id, host, port.
    node: (i32, String, i32),
}

impl Body for Answer {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 1 {
            out.i32(0); // throttle time
        }
        if version >= MANY_FROM {
            self.write_many(out);
        } else {
            self.write_error(out, version >= 1);
            self.write_node(out);
        }
        out.no_tagged();
    }
}

impl Answer {
    fn write_many<S: Sink>(&self, out: &mut Writer<'_, S>) {
        out.count(Some(self.keys.len()));
        for key in &self.keys {
            out.nullable_text(Some(key));
            self.write_node(out);
            self.write_error(out, true);
            out.no_tagged();
        }
    }

    fn write_error<S: Sink>(&self, out: &mut Writer<'_, S>, with_message: bool) {
        out.i16(self.error.code());
        if with_message {
            out.nullable_text(Some(self.message));
        }
    }

    fn write_node<S: Sink>(&self, out: &mut Writer<'_, S>) {
        let (id, host, port) = &self.node;
        out.i32(*id);
        out.nullable_text(Some(host));
        out.i32(*port);
    }
}
