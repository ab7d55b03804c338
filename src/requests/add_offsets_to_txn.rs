//! AddOffsetsToTxn (25), versions 0 to 4: a group's offsets come into a transaction, that is the partition of
//! `__consumer_offsets` that they are in.
//!
//! 2 may answer 90 · 3 is flexible · 4 may answer 120.
//!
//! Source: apache/kafka `KafkaApis.handleAddOffsetsToTxnRequest`; the answers were compared with Apache Kafka 4.4.0.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::Request;
use super::response::{self, Body};
use super::transactions::{read_speaker, told};
use crate::broker::catalog::settings::OFFSETS_TOPIC;
use crate::broker::shard::Shard;
use crate::ids::TopicPartition;
use crate::runtime::disk::Disk;
use crate::state::transactions::messages::{Answer, Command, Speaker};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

/// First version that may answer PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

/// Answers AddOffsetsToTxn.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let speaker = read_speaker(&mut reader)?;
    let group = reader.text("the group")?;
    reader.skip_tagged("the request")?;
    let error = told(add(shard, speaker, &group).await, request.version, FENCED_FROM);
    Ok(response::frame(request, &Response { error }))
}

async fn add<D: Disk>(shard: &Rc<Shard<D>>, speaker: Speaker, group: &str) -> ErrorCode {
    if speaker.transactional_id.is_empty() {
        return ErrorCode::InvalidRequest;
    }
    let partition = match shard.group_partition(group).await {
        Ok(partition) => TopicPartition { topic: Arc::from(OFFSETS_TOPIC), partition },
        Err(error) => return error,
    };
    match shard.ask_transaction(Command::Add { speaker, partitions: vec![partition] }).await {
        Answer::Done(error) => error,
        _ => ErrorCode::UnknownServerError,
    }
}

struct Response {
    error: ErrorCode,
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.i16(self.error.code());
        out.no_tagged();
    }
}
