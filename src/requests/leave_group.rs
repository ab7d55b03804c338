//! LeaveGroup (13), versions 0 to 5: members leave at once instead of after their session time-out.
//!
//! 1 has the throttle time · 3 takes many members, static ones by name · 4 is flexible · 5 says why (not read).
//!
//! Source: apache/kafka `LeaveGroupResponse`, `GroupCoordinatorService.leaveGroup`; compared with Apache Kafka 4.4.0.

use bytes::Bytes;

use super::Request;
use super::groups::Groups;
use super::response::{self, Body};
use crate::state::groups::messages::{Answer, Command, Leave, Left};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// First version that takes many members.
const MANY_FROM: i16 = 3;

/// Answers LeaveGroup.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let leave = read(request, body)?;
    Ok(response::frame(request, &ask(groups, leave).await))
}

fn read(request: &Request, body: Bytes) -> Result<Leave, WireError> {
    let version = request.version;
    let mut reader = request.reader(body);
    let group = reader.text("the group")?.to_string();
    let members = if version < MANY_FROM {
        vec![(reader.text("the member id")?.to_string(), None)]
    } else {
        reader.array_of("the members", 3, |reader| read_member(reader, version))?
    };
    reader.skip_tagged("the request")?;
    Ok(Leave { group, members })
}

fn read_member(reader: &mut Reader, version: i16) -> Result<(String, Option<String>), WireError> {
    let member_id = reader.text("a member id")?.to_string();
    let instance_id = reader.nullable_text("an instance id")?.map(|name| name.to_string());
    if version >= 5 {
        reader.nullable_text("a reason")?;
    }
    reader.skip_tagged("a member")?;
    Ok((member_id, instance_id))
}

async fn ask(groups: &impl Groups, leave: Leave) -> Left {
    if leave.group.is_empty() {
        return Left { error: ErrorCode::InvalidGroupId, members: Vec::new() };
    }
    let group = leave.group.clone();
    match groups.ask_group(&group, Command::Leave(leave)).await {
        Answer::Left(left) => left,
        _ => Left { error: ErrorCode::UnknownServerError, members: Vec::new() },
    }
}

impl Body for Left {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 1 {
            out.i32(0); // throttle time
        }
        let of_members = self.members.first().map_or(ErrorCode::None, |(_, _, error)| *error);
        let is_for_one = version < MANY_FROM && self.error.is_none();
        out.i16(if is_for_one { of_members } else { self.error }.code());
        if version >= MANY_FROM {
            out.count(Some(self.members.len()));
            for (member_id, instance_id, error) in &self.members {
                out.nullable_text(Some(member_id));
                out.nullable_text(instance_id.as_deref());
                out.i16(error.code());
                out.no_tagged();
            }
        }
        out.no_tagged();
    }
}
