//! TxnOffsetCommit (28), versions 0 to 5: how far a group has read, as part of a transaction.
//!
//! 2 has leader epochs · 3 says which member commits, and is flexible · 4 may answer 120 · 5 brings the group's partition
//! of `__consumer_offsets` into the transaction, which older versions do by AddOffsetsToTxn before.
//!
//! It goes to the coordinator of the group. Partitions that do not exist are answered as for OffsetCommit.
//!
//! Source: apache/kafka `KafkaApis.handleTxnOffsetCommitRequest`; the answers were compared with Apache Kafka 4.4.0.

use bytes::Bytes;

use super::Request;
use super::groups::Groups;
use super::judged::Topics;
use super::offset_commit::{Asked, Partition, commit};
use super::response::{self, Body};
use crate::ids::{ProducerEpoch, ProducerId};
use crate::state::enlisting::Protocol;
use crate::state::groups::messages::{Membership, Transaction};
use crate::state::transactions::messages::Speaker;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};
use crate::wire::topic::TopicRef;

/// First version of clients that understand that a coordinator is loading.
const LOADING_FROM: i16 = 2;
/// First version that says which member commits.
const MEMBER_FROM: i16 = 3;
/// First version that knows 120.
const ABORTABLE_FROM: i16 = 4;
/// First version without AddOffsetsToTxn before it.
const ADDS_FROM: i16 = 5;

/// Answers TxnOffsetCommit.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let asked = read(request, body)?;
    let topics = commit(groups, asked, |error| told(request.version, error)).await;
    Ok(response::frame(request, &Response(topics)))
}

fn read(request: &Request, body: Bytes) -> Result<Asked, WireError> {
    let version = request.version;
    let mut reader = request.reader(body);
    let transactional_id = reader.text("the transactional id")?.to_string();
    let group = reader.text("the group")?.to_string();
    let producer_id = ProducerId(reader.i64("the producer id")?);
    let epoch = ProducerEpoch(reader.i16("the producer epoch")?);
    let who = read_member(&mut reader, version, group)?;
    let topics = reader.array_of("the topics", 3, |reader| {
        let topic = TopicRef::read(reader, false)?;
        let partitions = reader.array_of("the partitions", 13, |reader| read_partition(reader, version))?;
        reader.skip_tagged("a topic")?;
        Ok((topic, partitions))
    })?;
    reader.skip_tagged("the request")?;
    let speaker = Speaker { transactional_id, producer_id, epoch };
    Ok(Asked {
        who,
        retention_ms: None,
        topics,
        transaction: Some(Transaction { speaker, protocol: protocol_of(version), entry: None }),
    })
}

fn protocol_of(version: i16) -> Protocol {
    match version {
        ADDS_FROM.. => Protocol::Adds,
        ABORTABLE_FROM => Protocol::Abortable,
        _ => Protocol::Plain,
    }
}

fn read_member(reader: &mut Reader, version: i16, group: String) -> Result<Membership, WireError> {
    if version < MEMBER_FROM {
        return Ok(Membership { group, generation: -1, member_id: String::new(), instance_id: None });
    }
    let generation = reader.i32("the generation")?;
    let member_id = reader.text("the member id")?.to_string();
    let instance_id = reader.nullable_text("the instance id")?.map(|name| name.to_string());
    Ok(Membership { group, generation, member_id, instance_id })
}

fn read_partition(reader: &mut Reader, version: i16) -> Result<Partition, WireError> {
    let index = reader.i32("a partition's index")?;
    let offset = reader.i64("an offset")?;
    let leader_epoch = if version >= 2 { reader.i32("a leader epoch")? } else { -1 };
    let metadata = reader.nullable_text("an offset's metadata")?.unwrap_or_default();
    reader.skip_tagged("a partition")?;
    Ok(Partition { index, offset, leader_epoch, metadata })
}

/// What a version is told: a fenced producer always as a wrong epoch, a group that is not there as a wrong generation, and
/// nothing that old clients do not know.
///
/// Source: apache/kafka `AddPartitionsToTxnManager`, `KafkaApis.handleTxnOffsetCommitRequest`.
fn told(version: i16, error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::GroupIdNotFound => ErrorCode::IllegalGeneration,
        ErrorCode::TransactionAbortable if version < ABORTABLE_FROM => ErrorCode::InvalidTxnState,
        ErrorCode::CoordinatorLoadInProgress if version < LOADING_FROM => ErrorCode::CoordinatorNotAvailable,
        error => error,
    }
}

struct Response(Topics);

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        self.0.write(out, false);
        out.no_tagged();
    }
}
