//! SyncGroup (14), versions 0 to 5: the leader brings the assignments, everybody takes theirs.
//!
//! 1 has the throttle time · 3 static members · 4 is flexible · 5 names type and assignor, which must be given.
//!
//! Source: apache/kafka `SyncGroupRequest`, `KafkaApis.handleSyncGroupRequest`; compared with Apache Kafka 4.4.0.

use bytes::Bytes;

use super::Request;
use super::groups::Groups;
use super::heartbeat::read_member;
use super::response::{self, Body};
use crate::state::groups::messages::{Answer, Command, Sync, Synced};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// First version that names type and assignor.
const PROTOCOL_FROM: i16 = 5;

/// Reads SyncGroup.
///
/// # Errors
/// Where the bytes are not the request.
pub fn read(request: &Request, body: Bytes) -> Result<Sync, WireError> {
    let mut reader = request.reader(body);
    let who = read_member(&mut reader, request.version >= 3)?;
    let names_protocol = request.version >= PROTOCOL_FROM;
    let protocol_type = if names_protocol { reader.nullable_text("the protocol type")? } else { None };
    let protocol = if names_protocol { reader.nullable_text("the protocol")? } else { None };
    let assignments = reader.array_of("the assignments", 3, read_assignment)?;
    reader.skip_tagged("the request")?;
    Ok(Sync {
        who,
        protocol_type: protocol_type.map(|name| name.to_string()),
        protocol: protocol.map(|name| name.to_string()),
        assignments,
    })
}

fn read_assignment(reader: &mut Reader) -> Result<(String, Bytes), WireError> {
    let member = reader.text("an assignment's member")?.to_string();
    let assignment = reader.kept_bytes("an assignment")?;
    reader.skip_tagged("an assignment")?;
    Ok((member, assignment))
}

/// Answers SyncGroup; waits for the leader.
pub async fn answer(groups: &impl Groups, request: &Request, sync: Sync) -> Bytes {
    let synced = match refusal(request.version, &sync) {
        ErrorCode::None => ask(groups, sync).await,
        error => Synced::refused(error),
    };
    response::frame(request, &synced)
}

fn refusal(version: i16, sync: &Sync) -> ErrorCode {
    if version >= PROTOCOL_FROM && (sync.protocol_type.is_none() || sync.protocol.is_none()) {
        return ErrorCode::InconsistentGroupProtocol;
    }
    if sync.who.group.is_empty() { ErrorCode::InvalidGroupId } else { ErrorCode::None }
}

async fn ask(groups: &impl Groups, sync: Sync) -> Synced {
    let group = sync.who.group.clone();
    match groups.ask_group(&group, Command::Sync(sync)).await {
        Answer::Synced(synced) => synced,
        _ => Synced::refused(ErrorCode::UnknownServerError),
    }
}

impl Body for Synced {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 1 {
            out.i32(0); // throttle time
        }
        out.i16(self.error.code());
        if version >= PROTOCOL_FROM {
            out.nullable_text(self.protocol_type.as_deref());
            out.nullable_text(self.protocol.as_deref());
        }
        out.whole_bytes(&self.assignment);
        out.no_tagged();
    }
}
