//! InitProducerId (22), versions 0 to 5: a producer's id and epoch.
//!
//! 2 is flexible · 3 lets a producer name the id and epoch it has · 4 and 5 may answer 90 and 120.
//!
//! Source: KIP-98, KIP-360; apache/kafka `KafkaApis.handleInitProducerIdRequest`.

use std::rc::Rc;

use bytes::Bytes;

use super::Request;
use super::response::{self, Body};
use super::transactions::told;
use crate::broker::shard::Shard;
use crate::ids::{ProducerEpoch, ProducerId};
use crate::runtime::disk::Disk;
use crate::state::transactions::messages::{Answer, Command};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

/// First version that may answer PRODUCER_FENCED.
const FENCED_FROM: i16 = 4;

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
    let timeout_ms = reader.i32("the transaction time-out")?;
    let known = match request.version {
        3.. => (reader.i64("the producer id")?, reader.i16("the producer epoch")?),
        _ => (-1, -1),
    };
    reader.skip_tagged("the request")?;
    let got = match (transactional_id, known) {
        // One of the two alone says nothing.
        (_, (-1, epoch)) if epoch != -1 => Err(ErrorCode::InvalidRequest),
        (_, (id, -1)) if id != -1 => Err(ErrorCode::InvalidRequest),
        (Some(id), _) => {
            let given = (known != (-1, -1)).then_some((ProducerId(known.0), ProducerEpoch(known.1)));
            let command = Command::Init { transactional_id: id.to_string(), timeout_ms, given };
            ask(shard, command).await.map_err(|error| told(error, request.version, FENCED_FROM))
        }
        (None, _) => shard.new_producer_id().await.map(|id| (id, ProducerEpoch(0))),
    };
    let response = match got {
        Ok((producer_id, epoch)) => Response { error: ErrorCode::None, producer_id, epoch },
        Err(error) => Response { error, producer_id: ProducerId(-1), epoch: ProducerEpoch(-1) },
    };
    Ok(response::frame(request, &response))
}

async fn ask<D: Disk>(shard: &Rc<Shard<D>>, command: Command) -> Result<(ProducerId, ProducerEpoch), ErrorCode> {
    if command.transactional_id().is_some_and(str::is_empty) {
        return Err(ErrorCode::InvalidRequest);
    }
    match shard.ask_transaction(command).await {
        Answer::Producer(answer) => answer,
        _ => Err(ErrorCode::UnknownServerError),
    }
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
