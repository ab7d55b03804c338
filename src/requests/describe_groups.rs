//! DescribeGroups (15), versions 0 to 6: state, members and assignments of groups.
//!
//! 1 has the throttle time · 3 authorized operations · 4 static members · 5 is flexible · 6 answers 69 for a group that
//! is not there, which before was one in the state `Dead`.
//!
//! Memory: each name is answered once, whatever the request repeats.
//!
//! Source: apache/kafka `GroupMetadataManager.describeGroups`; the answers were compared with Apache Kafka 4.4.0.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::groups::{Groups, ask_each, each_first};
use super::partition_info::{GROUP_OPERATIONS, OPERATIONS_NOT_ASKED};
use super::response::{self, Body};
use crate::state::groups::messages::{Answer, Command, Described, DescribedMember};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

/// First version that answers an error for a group that is not there.
const NOT_FOUND_FROM: i16 = 6;

/// Answers DescribeGroups.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let (names, operations) = read(request, body)?;
    let commands = names.iter().map(|name| (name.to_string(), Command::Describe { group: name.to_string() }));
    let mut described = Vec::with_capacity(names.len());
    ask_each(groups, commands, |answer| described.push(found(answer))).await;
    Ok(response::frame(request, &Response { names, described, operations }))
}

fn read(request: &Request, body: Bytes) -> Result<(Vec<StrBytes>, bool), WireError> {
    let mut reader = request.reader(body);
    let names = reader.array_of("the groups", 1, |reader| reader.text("a group"))?;
    let operations = request.version >= 3 && reader.i8("include_authorized_operations")? != 0;
    reader.skip_tagged("the request")?;
    Ok((each_first(names), operations))
}

/// Nothing for a group that is not there: there may be very many of these in a request.
fn found(answer: Answer) -> Option<Box<Described>> {
    match answer {
        Answer::Described(described) if described.error == ErrorCode::GroupIdNotFound => None,
        Answer::Described(described) => Some(Box::new(described)),
        _ => Some(Box::new(Described::refused(ErrorCode::UnknownServerError))),
    }
}

struct Response {
    names: Vec<StrBytes>,
    described: Vec<Option<Box<Described>>>,
    operations: bool,
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 1 {
            out.i32(0); // throttle time
        }
        out.count(Some(self.names.len()));
        for (name, described) in self.names.iter().zip(&self.described) {
            match described {
                Some(described) => self.write_group(out, version, name, described),
                None => self.write_group(out, version, name, &not_found(name, version)),
            }
        }
        out.no_tagged();
    }
}

fn not_found(name: &str, version: i16) -> Described {
    let error = if version >= NOT_FOUND_FROM { ErrorCode::GroupIdNotFound } else { ErrorCode::None };
    let error_message = Some(format!("Group {name} not found."));
    Described { error_message, state: "Dead".to_owned(), ..Described::refused(error) }
}

impl Response {
    fn write_group<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16, name: &str, group: &Described) {
        out.i16(group.error.code());
        if version >= NOT_FOUND_FROM {
            out.nullable_text(group.error_message.as_deref());
        }
        out.nullable_text(Some(name));
        out.nullable_text(Some(&group.state));
        out.nullable_text(Some(&group.protocol_type));
        out.nullable_text(Some(&group.protocol));
        out.count(Some(group.members.len()));
        group.members.iter().for_each(|member| write_member(out, version, member));
        if version >= 3 {
            let is_told = self.operations && group.error.is_none();
            out.i32(if is_told { GROUP_OPERATIONS } else { OPERATIONS_NOT_ASKED });
        }
        out.no_tagged();
    }
}

fn write_member<S: Sink>(out: &mut Writer<'_, S>, version: i16, member: &DescribedMember) {
    out.nullable_text(Some(&member.member_id));
    if version >= 4 {
        out.nullable_text(member.instance_id.as_deref());
    }
    out.nullable_text(Some(&member.client_id));
    out.nullable_text(Some(&member.client_host));
    out.whole_bytes(&member.metadata);
    out.whole_bytes(&member.assignment);
    out.no_tagged();
}
