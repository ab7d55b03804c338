//! ListGroups (16), versions 0 to 5: the names of all groups.
//!
//! 1 has the throttle time · 3 is flexible · 4 tells states, and only groups in those that are asked for · 5 the same
//! for kinds. Names of states and kinds are compared without regard to case; those that nobody knows match nothing.
//!
//! Source: apache/kafka `GroupCoordinatorService.listGroups`; the answers were compared with Apache Kafka 4.4.0.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::groups::Groups;
use super::response::{self, Body};
use crate::state::groups::messages::ListedGroup;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Answers ListGroups.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let states = if request.version >= 4 { read_filter(&mut reader, "the states")? } else { Vec::new() };
    let kinds = if request.version >= 5 { read_filter(&mut reader, "the types")? } else { Vec::new() };
    reader.skip_tagged("the request")?;
    let (error, mut listed) = groups.list_groups().await;
    listed.retain(|group| is_wanted(&states, &group.state) && is_wanted(&kinds, &group.kind));
    Ok(response::frame(request, &Response { error, groups: listed }))
}

fn read_filter(reader: &mut Reader, field: &'static str) -> Result<Vec<StrBytes>, WireError> {
    reader.array_of(field, 1, |reader| reader.text(field))
}

/// An empty filter lets everything pass.
fn is_wanted(filter: &[StrBytes], value: &str) -> bool {
    filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
}

struct Response {
    error: ErrorCode,
    groups: Vec<ListedGroup>,
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 1 {
            out.i32(0); // throttle time
        }
        out.i16(self.error.code());
        out.count(Some(self.groups.len()));
        for group in &self.groups {
            out.nullable_text(Some(&group.group));
            out.nullable_text(Some(&group.protocol_type));
            if version >= 4 {
                out.nullable_text(Some(&group.state));
            }
            if version >= 5 {
                out.nullable_text(Some(&group.kind));
            }
            out.no_tagged();
        }
        out.no_tagged();
    }
}
