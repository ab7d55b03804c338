//! JoinGroup (11), versions 0 to 9: a member joins, and waits until the round is complete.
//!
//! 1 has a rebalance time-out of its own · 2 the throttle time · 4 first gives an unknown member its id · 5 has static
//! members · 6 is flexible · 7 tells type and assignor, null with an error · 8 says why (not read) · 9 may tell the
//! leader to skip the assignment.
//!
//! Source: apache/kafka `JoinGroupRequest`, `GroupCoordinatorService.joinGroup`; compared with Apache Kafka 4.4.0.

use std::net::IpAddr;

use bytes::Bytes;

use super::Request;
use super::groups::{Groups, client_host};
use super::response::{self, Body};
use crate::state::groups::messages::{Answer, Command, Join, Joined};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Reads JoinGroup of a client at `peer`.
///
/// # Errors
/// Where the bytes are not the request.
pub fn read(request: &Request, peer: IpAddr, body: Bytes) -> Result<Join, WireError> {
    let version = request.version;
    let mut reader = request.reader(body);
    let group = reader.text("the group")?.to_string();
    let session_timeout_ms = reader.i32("the session time-out")?;
    let rebalance_timeout_ms = if version >= 1 { reader.i32("the rebalance time-out")? } else { session_timeout_ms };
    let member_id = reader.text("the member id")?.to_string();
    let instance_id = if version >= 5 { reader.nullable_text("the instance id")? } else { None };
    let protocol_type = reader.text("the protocol type")?.to_string();
    let protocols = reader.array_of("the protocols", 3, read_protocol)?;
    if version >= 8 {
        reader.nullable_text("the reason")?;
    }
    reader.skip_tagged("the request")?;
    Ok(Join {
        group,
        member_id,
        instance_id: instance_id.map(|name| name.to_string()),
        client_id: request.client_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        client_host: client_host(peer),
        session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type,
        protocols,
        wants_member_id_first: version >= 4,
        may_skip_assignment: version >= 9,
    })
}

fn read_protocol(reader: &mut Reader) -> Result<(String, Bytes), WireError> {
    let name = reader.text("a protocol's name")?.to_string();
    let metadata = reader.kept_bytes("a protocol's metadata")?;
    reader.skip_tagged("a protocol")?;
    Ok((name, metadata))
}

/// Answers JoinGroup; waits for as long as the round takes.
pub async fn answer(groups: &impl Groups, request: &Request, join: Join) -> Bytes {
    response::frame(request, &ask(groups, join).await)
}

async fn ask(groups: &impl Groups, join: Join) -> Joined {
    if join.group.is_empty() {
        return Joined::refused(ErrorCode::InvalidGroupId, join.member_id);
    }
    let group = join.group.clone();
    match groups.ask_group(&group, Command::Join(join)).await {
        Answer::Joined(joined) => joined,
        _ => Joined::refused(ErrorCode::UnknownServerError, String::new()),
    }
}

impl Body for Joined {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 2 {
            out.i32(0); // throttle time
        }
        out.i16(self.error.code());
        out.i32(self.generation);
        if version >= 7 {
            out.nullable_text(self.protocol_type.as_deref());
            out.nullable_text(self.protocol.as_deref());
        } else {
            out.nullable_text(Some(self.protocol.as_deref().unwrap_or_default()));
        }
        out.nullable_text(Some(&self.leader));
        if version >= 9 {
            out.i8(i8::from(self.skip_assignment));
        }
        out.nullable_text(Some(&self.member_id));
        out.count(Some(self.members.len()));
        for member in &self.members {
            out.nullable_text(Some(&member.member_id));
            if version >= 5 {
                out.nullable_text(member.instance_id.as_deref());
            }
            out.whole_bytes(&member.metadata);
            out.no_tagged();
        }
        out.no_tagged();
    }
}
