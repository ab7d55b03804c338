//! DeleteGroups (42), versions 0 to 3.
//!
//! 2 is flexible · 3 has sentences beside errors (null: Kafka has none either). A name that is there twice is answered
//! once, as in Kafka.
//!
//! Source: apache/kafka `KafkaApis.handleDeleteGroupsRequest`; the answers were compared with Apache Kafka 4.4.0.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::groups::{Groups, ask_each, each_first};
use super::response::{self, Body};
use crate::state::groups::messages::{Answer, Command};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

/// Answers DeleteGroups.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let names = each_first(reader.array_of("the groups", 1, |reader| reader.text("a group"))?);
    reader.skip_tagged("the request")?;
    let commands = names.iter().map(|name| (name.to_string(), Command::DeleteGroup { group: name.to_string() }));
    let mut errors = Vec::with_capacity(names.len());
    ask_each(groups, commands, |answer| {
        errors.push(match answer {
            Answer::Done(error) => error,
            _ => ErrorCode::UnknownServerError,
        });
    })
    .await;
    Ok(response::frame(request, &Response { names, errors }))
}

struct Response {
    names: Vec<StrBytes>,
    errors: Vec<ErrorCode>,
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.names.len()));
        for (name, error) in self.names.iter().zip(&self.errors) {
            out.nullable_text(Some(name));
            out.i16(error.code());
            if version >= 3 {
                out.nullable_text(None); // the sentence
            }
            out.no_tagged();
        }
        out.no_tagged();
    }
}
