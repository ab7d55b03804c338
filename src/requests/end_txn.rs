//! EndTxn (26), versions 0 to 5: a transaction is committed or aborted.
//!
//! 2 may answer 90 · 3 is flexible · 4 may answer 120 · 5 is the protocol of KIP-890: the answer carries the producer id and
//! epoch of the next transaction.
//!
//! Source: apache/kafka `KafkaApis.handleEndTxnRequest`; the answers were compared with Apache Kafka 4.4.0.

use std::rc::Rc;

use bytes::Bytes;

use super::Request;
use super::response::{self, Body};
use super::transactions::{read_speaker, told};
use crate::broker::shard::Shard;
use crate::ids::{ProducerEpoch, ProducerId};
use crate::runtime::disk::Disk;
use crate::state::transactions::messages::{Answer, Command, Outcome, Protocol};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};
use crate::wire::transaction_record::{NO_EPOCH, NO_PRODUCER};

/// First version that may answer PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;
/// First version in which the epoch rises with each transaction.
const BUMPING_FROM: i16 = 5;

/// Answers EndTxn.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let speaker = read_speaker(&mut reader)?;
    let outcome = if reader.i8("committed")? != 0 { Outcome::Commit } else { Outcome::Abort };
    reader.skip_tagged("the request")?;
    let protocol = if request.version >= BUMPING_FROM { Protocol::Bumping } else { Protocol::Classic };
    let response = match shard.ask_transaction(Command::End { speaker, outcome, protocol }).await {
        Answer::Producer(Ok((producer_id, epoch))) => Response { error: ErrorCode::None, producer_id, epoch },
        Answer::Producer(Err(error)) => Response::refused(told(error, request.version, FENCED_FROM)),
        _ => Response::refused(ErrorCode::UnknownServerError),
    };
    Ok(response::frame(request, &response))
}

struct Response {
    error: ErrorCode,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
}

impl Response {
    fn refused(error: ErrorCode) -> Self {
        Self { error, producer_id: NO_PRODUCER, epoch: NO_EPOCH }
    }
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i32(0); // throttle time
        out.i16(self.error.code());
        if version >= BUMPING_FROM {
            out.i64(self.producer_id.0);
            out.i16(self.epoch.0);
        }
        out.no_tagged();
    }
}
