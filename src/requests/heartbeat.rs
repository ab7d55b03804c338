//! Heartbeat (12), versions 0 to 4: a member lives.
//!
//! 1 has the throttle time · 3 static members · 4 is flexible.
//!
//! Source: apache/kafka `GroupCoordinatorService.heartbeat`; compared with Apache Kafka 4.4.0.

use bytes::Bytes;

use super::Request;
use super::groups::Groups;
use super::response::{self, Body};
use crate::state::groups::messages::{Answer, Command, Membership};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Answers Heartbeat.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let who = read_member(&mut reader, request.version >= 3)?;
    reader.skip_tagged("the request")?;
    Ok(response::frame(request, &Response(ask(groups, who).await)))
}

/// Group, generation and member as several requests begin; the instance id is behind them where there are static members.
pub(super) fn read_member(reader: &mut Reader, has_instance: bool) -> Result<Membership, WireError> {
    let group = reader.text("the group")?.to_string();
    let generation = reader.i32("the generation")?;
    let member_id = reader.text("the member id")?.to_string();
    let instance_id = if has_instance { reader.nullable_text("the instance id")? } else { None };
    Ok(Membership { group, generation, member_id, instance_id: instance_id.map(|name| name.to_string()) })
}

async fn ask(groups: &impl Groups, who: Membership) -> ErrorCode {
    if who.group.is_empty() {
        return ErrorCode::InvalidGroupId;
    }
    let group = who.group.clone();
    match groups.ask_group(&group, Command::Heartbeat(who)).await {
        // A member must not give up its place because the coordinator is still reading: it is heard of later.
        Answer::Done(ErrorCode::CoordinatorLoadInProgress) => ErrorCode::None,
        Answer::Done(error) => error,
        _ => ErrorCode::UnknownServerError,
    }
}

struct Response(ErrorCode);

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 1 {
            out.i32(0); // throttle time
        }
        out.i16(self.0.code());
        out.no_tagged();
    }
}
