//! DeleteRecords (21), versions 0 to 2: the log starts of partitions move up.
//!
//! 1 changes nothing that is read here · 2 is flexible.
//! A partition that is named several times counts once, with the last offset; the answer is in the order of the names.
//!
//! Source: apache/kafka `KafkaApis.handleDeleteRecordsRequest`, `ReplicaManager.deleteRecordsOnLocalLog`,
//! `Partition.deleteRecordsOnLeader`; the answers were compared with Apache Kafka 4.4.0.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::cluster::Cluster;
use super::response::{self, Body};
use crate::broker::catalog::Catalog;
use crate::broker::catalog::names::is_internal;
use crate::broker::messages::{Deleted, Deletion, PartitionKey};
use crate::ids::Offset;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// One partition of the request, and what is answered about it.
struct Asked {
    topic: StrBytes,
    partition: i32,
    before: i64,
    deleted: Deleted,
}

/// Answers DeleteRecords.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let (asked, patience) = read(request, body)?;
    let mut asked = last_of_each(asked);
    delete(cluster, &mut asked, patience).await;
    Ok(response::frame(request, &Response(asked)))
}

fn read(request: &Request, body: Bytes) -> Result<(Vec<Asked>, Duration), WireError> {
    let mut reader = request.reader(body);
    let mut asked = Vec::new();
    for _ in 0..reader.count("the topics", 3)? {
        read_topic(&mut reader, &mut asked)?;
    }
    let timeout_ms = reader.i32("timeout_ms")?;
    reader.skip_tagged("the request")?;
    Ok((asked, Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0))))
}

fn read_topic(reader: &mut Reader, asked: &mut Vec<Asked>) -> Result<(), WireError> {
    let topic = reader.text("a topic's name")?;
    for _ in 0..reader.count("a topic's partitions", 12)? {
        let (partition, before) = (reader.i32("a partition")?, reader.i64("an offset")?);
        reader.skip_tagged("a partition")?;
        asked.push(Asked { topic: topic.clone(), partition, before, deleted: refused(ErrorCode::UnknownServerError) });
    }
    reader.skip_tagged("a topic")
}

fn refused(error: ErrorCode) -> Deleted {
    Deleted { error, low_watermark: Offset(-1) }
}

fn last_of_each(mut asked: Vec<Asked>) -> Vec<Asked> {
    asked.sort_by(|one, other| (&one.topic, one.partition).cmp(&(&other.topic, other.partition)));
    asked.dedup_by(|later, kept| {
        let is_same = (&later.topic, later.partition) == (&kept.topic, kept.partition);
        if is_same {
            kept.before = later.before;
        }
        is_same
    });
    asked
}

async fn delete(cluster: &impl Cluster, asked: &mut [Asked], patience: Duration) {
    let catalog = cluster.catalog();
    let mut items = Vec::with_capacity(asked.len());
    let mut places = Vec::with_capacity(asked.len());
    for (at, one) in asked.iter_mut().enumerate() {
        match key_of(&catalog, one) {
            Err(error) => one.deleted = refused(error),
            Ok(key) => {
                places.push(at);
                items.push(Deletion { key, before: Offset(one.before) });
            }
        }
    }
    let results = cluster.delete_records(items, patience).await;
    places.into_iter().zip(results).for_each(|(place, result)| asked[place].deleted = result);
}

/// The partition, if its topic is one whose records may be deleted by their age.
fn key_of(catalog: &Catalog, asked: &Asked) -> Result<PartitionKey, ErrorCode> {
    let topic = catalog.topic(&asked.topic).filter(|topic| topic.log_id(asked.partition).is_some());
    let topic = topic.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if is_internal(&asked.topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    if topic.settings.cleanup_compact && !topic.settings.cleanup_delete {
        return Err(ErrorCode::PolicyViolation);
    }
    Ok(PartitionKey { topic: topic.id, partition: asked.partition })
}

struct Response(Vec<Asked>);

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        let topics = || self.0.chunk_by(|one, next| one.topic == next.topic);
        out.count(Some(topics().count()));
        for partitions in topics() {
            out.nullable_text(Some(&partitions[0].topic));
            out.count(Some(partitions.len()));
            for one in partitions {
                out.i32(one.partition);
                out.i64(one.deleted.low_watermark.0);
                out.i16(one.deleted.error.code());
                out.no_tagged();
            }
            out.no_tagged();
        }
        out.no_tagged();
    }
}
