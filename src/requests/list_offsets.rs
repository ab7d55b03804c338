//! ListOffsets (2), versions 1 to 10: offsets by time, earliest, latest, of the largest timestamp.
//!
//! 2 adds the isolation level · 4 the leader epoch · 6 is flexible · 7 the largest timestamp · 8 and 9 the bounds of tiered
//! data (there is none) · 10 a time-out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use bytes::Bytes;

use super::Request;
use super::response::{self, Body};
use crate::broker::messages::{Answer, Ask, FoundOffset, OffsetQuery, PartitionKey};
use crate::broker::shard::Shard;
use crate::ids::{Offset, ShardId};
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Negative timestamps that mean something, and the version from which on they do.
const NAMED: [(i64, i16); 5] = [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9)];

/// Isolation level of clients that read what is committed.
const READ_COMMITTED: i8 = 1;

struct Asked {
    name: String,
    partitions: Vec<Query>,
}

struct Query {
    index: i32,
    leader_epoch: i32,
    timestamp: i64,
    is_repeated: bool,
}

/// A query and where its answer goes: which topic of the request, which of its partitions.
struct Placed {
    at: usize,
    place: usize,
    query: OffsetQuery,
}

struct Found {
    name: String,
    partitions: Vec<(i32, FoundOffset)>,
}

/// Answers ListOffsets.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let (is_committed, mut asked) = read(&mut request.reader(body), request.version)?;
    mark_repeated(&mut asked);
    asked.retain(|topic| !topic.partitions.is_empty());
    let mut found: Vec<Found> = Vec::with_capacity(asked.len());
    let mut by_owner: HashMap<ShardId, Vec<Placed>> = HashMap::new();
    let catalog = shard.catalog();
    for (at, topic) in asked.into_iter().enumerate() {
        let known = catalog.topic(&topic.name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (place, query) in topic.partitions.iter().enumerate() {
            let known = known.filter(|known| known.log_id(query.index).is_some());
            let error = match refusal(query, request.version) {
                ErrorCode::None if known.is_none() => ErrorCode::UnknownTopicOrPartition,
                error => error,
            };
            partitions.push((query.index, nothing(error)));
            if let (Some(known), ErrorCode::None) = (known, error) {
                let key = PartitionKey { topic: known.id, partition: query.index };
                let (timestamp, leader_epoch) = (query.timestamp, query.leader_epoch);
                let item = Placed { at, place, query: OffsetQuery { key, timestamp, leader_epoch, is_committed } };
                by_owner.entry(shard.owner(key)).or_default().push(item);
            }
        }
        found.push(Found { name: topic.name, partitions });
    }
    look_up(shard, by_owner, &mut found).await;
    Ok(response::frame(request, &Response(found)))
}

async fn look_up<D: Disk>(shard: &Rc<Shard<D>>, by_owner: HashMap<ShardId, Vec<Placed>>, found: &mut [Found]) {
    let asked: Vec<_> = by_owner
        .into_iter()
        .map(|(owner, items)| {
            let (places, queries): (Vec<_>, Vec<_>) =
                items.into_iter().map(|item| ((item.at, item.place), item.query)).unzip();
            (places, shard.ask(owner, Ask::Offsets(queries)))
        })
        .collect();
    for (places, answer) in asked {
        if let Answer::Offsets(offsets) = answer.await {
            for ((topic, partition), offset) in places.into_iter().zip(offsets) {
                found[topic].partitions[partition].1 = offset;
            }
        }
    }
}

/// Whether only what is committed is looked at, and what is asked.
fn read(reader: &mut Reader, version: i16) -> Result<(bool, Vec<Asked>), WireError> {
    reader.i32("the replica id")?;
    let is_committed = version >= 2 && reader.i8("the isolation level")? == READ_COMMITTED;
    let topics = reader.array_of("the topics", 3, |reader| {
        let name = reader.text("the topic name")?.to_string();
        let partitions = reader.array_of("the partitions", 12, |reader| read_query(reader, version))?;
        reader.skip_tagged("the topic")?;
        Ok(Asked { name, partitions })
    })?;
    if version >= 10 {
        reader.i32("the time-out")?;
    }
    reader.skip_tagged("the request")?;
    Ok((is_committed, topics))
}

fn read_query(reader: &mut Reader, version: i16) -> Result<Query, WireError> {
    let index = reader.i32("the partition index")?;
    let leader_epoch = if version >= 4 { reader.i32("the leader epoch")? } else { -1 };
    let timestamp = reader.i64("the timestamp")?;
    reader.skip_tagged("the partition")?;
    Ok(Query { index, leader_epoch, timestamp, is_repeated: false })
}

/// A partition that the request names more than once gets one answer: that this is no way to ask.
///
/// Source: apache/kafka `ListOffsetsRequest.duplicatePartitions`.
fn mark_repeated(asked: &mut [Asked]) {
    let mut names = HashMap::with_capacity(asked.len());
    let topics: Vec<usize> = asked
        .iter()
        .map(|topic| {
            let next = names.len();
            *names.entry(topic.name.as_str()).or_insert(next)
        })
        .collect();
    let mut places = HashMap::new();
    let mut repeated = Vec::new();
    for (at, topic) in asked.iter_mut().enumerate() {
        let mut place = 0;
        topic.partitions.retain(|query| match places.entry((topics[at], query.index)) {
            Entry::Vacant(free) => {
                free.insert((at, place));
                place += 1;
                true
            }
            Entry::Occupied(taken) => {
                repeated.push(*taken.get());
                false
            }
        });
    }
    repeated.into_iter().for_each(|(topic, place)| asked[topic].partitions[place].is_repeated = true);
}

/// What is wrong with a query, whatever the partition: named twice, or a special timestamp that its version does not know.
fn refusal(query: &Query, version: i16) -> ErrorCode {
    let is_known = |timestamp| NAMED.iter().any(|(named, from)| *named == timestamp && version >= *from);
    match query.timestamp {
        _ if query.is_repeated => ErrorCode::InvalidRequest,
        negative if negative < 0 && !is_known(negative) => ErrorCode::UnsupportedVersion,
        _ => ErrorCode::None,
    }
}

fn nothing(error: ErrorCode) -> FoundOffset {
    FoundOffset { error, offset: Offset(-1), timestamp: -1, leader_epoch: -1 }
}

struct Response(Vec<Found>);

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 2 {
            out.i32(0); // throttle time
        }
        out.count(Some(self.0.len()));
        for topic in &self.0 {
            out.nullable_text(Some(&topic.name));
            out.count(Some(topic.partitions.len()));
            for (index, found) in &topic.partitions {
                out.i32(*index);
                out.i16(found.error.code());
                out.i64(found.timestamp);
                out.i64(found.offset.0);
                if version >= 4 {
                    out.i32(found.leader_epoch);
                }
                out.no_tagged();
            }
            out.no_tagged();
        }
        out.no_tagged();
    }
}
