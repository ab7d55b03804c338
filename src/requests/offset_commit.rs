//! OffsetCommit (8), versions 2 to 10: how far a group has read.
//!
//! 2 to 4 say how long the offsets are kept · 3 has the throttle time · 6 leader epochs · 7 static members · 8 is
//! flexible · 9 answers 69 for a group that is not there (22 before) · 10 names topics by id. Groups without a name are allowed, as in Kafka.
//!
//! Partitions that do not exist are answered 3 (or 100 for an unknown id) before the group is asked, and stand first, as
//! in Kafka. What does not fit into one batch of `__consumer_offsets` is refused as a whole.
//!
//! Source: apache/kafka `KafkaApis.handleOffsetCommitRequest`; the answers were compared with Apache Kafka 4.4.0.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::groups::Groups;
use super::heartbeat::read_member;
use super::judged::{Judged, Topics};
use super::response::{self, Body};
use crate::broker::catalog::Catalog;
use crate::ids::Offset;
use crate::state::groups::messages::{Answer, Command, Commit, Membership, OffsetToCommit, Transaction};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};
use crate::wire::topic::TopicRef;

/// First version that tells of a group that is not there.
const NOT_FOUND_FROM: i16 = 9;
/// First version that names topics by id.
const ID_FROM: i16 = 10;
/// Bytes of a record of `__consumer_offsets` beside the names of group and topic and the metadata, and of its batch.
const RECORD_BYTES: usize = 58;
const BATCH_BYTES: usize = 61;

/// Answers OffsetCommit.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let asked = read(request, body)?;
    let topics = commit(groups, asked, |error| told(request.version, error)).await;
    Ok(response::frame(request, &Response(topics)))
}

/// What is asked, by this request or as part of a transaction.
pub(super) struct Asked {
    pub(super) who: Membership,
    pub(super) retention_ms: Option<i64>,
    pub(super) topics: Vec<(TopicRef, Vec<Partition>)>,
    pub(super) transaction: Option<Transaction>,
}

pub(super) struct Partition {
    pub(super) index: i32,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) metadata: StrBytes,
}

fn read(request: &Request, body: Bytes) -> Result<Asked, WireError> {
    let version = request.version;
    let mut reader = request.reader(body);
    let who = read_member(&mut reader, version >= 7)?;
    let retention_ms = if (2..=4).contains(&version) { reader.i64("the retention time")? } else { -1 };
    let topics = reader.array_of("the topics", 3, |reader| {
        let topic = TopicRef::read(reader, version >= ID_FROM)?;
        let partitions = reader.array_of("the partitions", 13, |reader| read_partition(reader, version))?;
        reader.skip_tagged("a topic")?;
        Ok((topic, partitions))
    })?;
    reader.skip_tagged("the request")?;
    Ok(Asked { who, retention_ms: (retention_ms != -1).then_some(retention_ms), topics, transaction: None })
}

fn read_partition(reader: &mut Reader, version: i16) -> Result<Partition, WireError> {
    let index = reader.i32("a partition's index")?;
    let offset = reader.i64("an offset")?;
    let leader_epoch = if version >= 6 { reader.i32("a leader epoch")? } else { -1 };
    let metadata = reader.nullable_text("an offset's metadata")?.unwrap_or_default();
    reader.skip_tagged("a partition")?;
    Ok(Partition { index, offset, leader_epoch, metadata })
}

/// Judges the partitions, asks the group about those that exist, and gives all answers; `told` makes codes of a
/// coordinator into those of the version.
pub(super) async fn commit(groups: &impl Groups, mut asked: Asked, told: impl Fn(ErrorCode) -> ErrorCode) -> Topics {
    let catalog = groups.catalog();
    let mut topics = Topics::default();
    let mut offsets = Vec::new();
    for (topic, partitions) in std::mem::take(&mut asked.topics) {
        let judged = judge(&catalog, &topic, partitions, &mut offsets);
        topics.push(topic, judged);
    }
    let count = offsets.len();
    let errors = if count == 0 {
        Vec::new()
    } else if asked.transaction.is_some() && asked.who.group.is_empty() {
        vec![ErrorCode::InvalidGroupId; count]
    } else if batch_bytes(&asked.who.group, &offsets) > batch_bytes_max(&catalog) {
        vec![ErrorCode::UnknownServerError; count]
    } else {
        let Asked { who, retention_ms, transaction, .. } = asked;
        ask(groups, Commit { who, retention_ms, offsets, transaction }).await
    };
    topics.fill(errors.into_iter().map(told).collect());
    topics
}

/// What is to be said about the partitions of one topic; those that exist are put behind `offsets`.
fn judge(
    catalog: &Catalog,
    topic: &TopicRef,
    partitions: Vec<Partition>,
    offsets: &mut Vec<OffsetToCommit>,
) -> Vec<Judged> {
    let known = match topic {
        TopicRef::Name(name) => catalog.topic(name).ok_or(ErrorCode::UnknownTopicOrPartition),
        TopicRef::Id(id) => catalog.topic_by_id(*id).ok_or(ErrorCode::UnknownTopicId),
    };
    let judged = partitions.into_iter().map(|asked| match known {
        Ok(known) if known.log_id(asked.index).is_some() => {
            offsets.push(OffsetToCommit {
                topic: known.name.to_string(),
                topic_id: known.id,
                partition: asked.index,
                offset: Offset(asked.offset),
                leader_epoch: asked.leader_epoch,
                metadata: asked.metadata.to_string(),
            });
            Judged::Asked(asked.index)
        }
        Ok(_) => Judged::Refused(asked.index, ErrorCode::UnknownTopicOrPartition),
        Err(error) => Judged::Refused(asked.index, error),
    });
    judged.collect()
}

/// A group that is not there was a wrong generation before that had a code of its own.
fn told(version: i16, error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::GroupIdNotFound if version < NOT_FOUND_FROM => ErrorCode::IllegalGeneration,
        error => error,
    }
}

/// Bytes that the records of a commit take in the log.
fn batch_bytes(group: &str, offsets: &[OffsetToCommit]) -> usize {
    let of_one = |offset: &OffsetToCommit| RECORD_BYTES + group.len() + offset.topic.len() + offset.metadata.len();
    BATCH_BYTES + offsets.iter().map(of_one).sum::<usize>()
}

/// What `__consumer_offsets` takes at a time.
fn batch_bytes_max(catalog: &Catalog) -> usize {
    let of_topic = catalog.topic("__consumer_offsets").map(|topic| topic.settings.max_message_bytes);
    of_topic.unwrap_or(catalog.config().topic_defaults.max_message_bytes)
}

async fn ask(groups: &impl Groups, commit: Commit) -> Vec<ErrorCode> {
    let group = commit.who.group.clone();
    match groups.ask_group(&group, Command::Commit(commit)).await {
        Answer::Committed(errors) => errors,
        _ => Vec::new(),
    }
}

struct Response(Topics);

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 3 {
            out.i32(0); // throttle time
        }
        self.0.write(out, version >= ID_FROM);
        out.no_tagged();
    }
}
