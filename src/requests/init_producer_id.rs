//! InitProducerId (22), versions 0 to 5: a producer's id and epoch.
//!
//! 2 is flexible · 3 lets a producer name the id and epoch it has · 4 and 5 may answer 90 and 120.
//! Left out so far: transactional ids (answered 53; an empty one 42).

use std::rc::Rc;

use bytes::Bytes;

use super::Request;
use super::response::{self, Body};
use crate::broker::shard::Shard;
use crate::ids::{ProducerEpoch, ProducerId};
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

struct Response {
    error: ErrorCode,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
}

/// Answers InitProducerId.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let transactional_id = reader.nullable_text("the transactional id")?;
    reader.i32("the transaction time-out")?;
    let known = match request.version {
        3.. => (reader.i64("the producer id")?, reader.i16("the producer epoch")?),
        _ => (-1, -1),
    };
    reader.skip_tagged("the request")?;
    let given = match (transactional_id, known) {
        // One of the two alone says nothing.
        (_, (-1, epoch)) if epoch != -1 => Err(ErrorCode::InvalidRequest),
        (_, (id, -1)) if id != -1 => Err(ErrorCode::InvalidRequest),
        (Some(id), _) if id.is_empty() => Err(ErrorCode::InvalidRequest),
        (Some(_), _) => Err(ErrorCode::TransactionalIdAuthorizationFailed),
        (None, _) => shard.new_producer_id().await,
    };
    let response = match given {
        Ok(producer_id) => Response { error: ErrorCode::None, producer_id, epoch: ProducerEpoch(0) },
        Err(error) => Response { error, producer_id: ProducerId(-1), epoch: ProducerEpoch(-1) },
    };
    Ok(response::frame(request, &response))
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.i16(self.error.code());
        out.i64(self.producer_id.0);
        out.i16(self.epoch.0);
        out.no_tagged();
    }
}
