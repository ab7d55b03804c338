//! OffsetForLeaderEpoch (23), versions 2 to 4: where the records of a leader epoch end, for readers that check whether what
//! they have read is still what is there.
//!
//! 3 adds the replica id (nobody follows this broker, it is not looked at) · 4 is flexible.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;

use super::Request;
use super::response::{self, Body};
use crate::broker::messages::{Answer, Ask, EpochEnd, EpochQuery, PartitionKey};
use crate::broker::shard::Shard;
use crate::ids::{Offset, ShardId};
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

struct Asked {
    name: String,
    partitions: Vec<Query>,
}

struct Query {
    index: i32,
    current_leader_epoch: i32,
    epoch: i32,
}

struct Found {
    name: String,
    partitions: Vec<(i32, EpochEnd)>,
}

/// Queries of one owner, and where their answers go: which topic, which of its partitions.
type Places = Vec<(usize, usize)>;

/// Answers OffsetForLeaderEpoch.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let asked = read(&mut request.reader(body), request.version)?;
    let catalog = shard.catalog();
    let mut by_owner: HashMap<ShardId, (Places, Vec<EpochQuery>)> = HashMap::new();
    let mut found = Vec::with_capacity(asked.len());
    for (at, topic) in asked.into_iter().enumerate() {
        let known = catalog.topic(&topic.name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (place, query) in topic.partitions.into_iter().enumerate() {
            partitions.push((query.index, Err(ErrorCode::UnknownTopicOrPartition)));
            let Some(known) = known.filter(|known| known.log_id(query.index).is_some()) else { continue };
            let key = PartitionKey { topic: known.id, partition: query.index };
            let (places, queries) = by_owner.entry(shard.owner(key)).or_default();
            places.push((at, place));
            queries.push(EpochQuery { key, epoch: query.epoch, leader_epoch: query.current_leader_epoch });
        }
        found.push(Found { name: topic.name, partitions });
    }
    look_up(shard, by_owner, &mut found).await;
    Ok(response::frame(request, &Response(found)))
}

async fn look_up<D: Disk>(
    shard: &Rc<Shard<D>>,
    by_owner: HashMap<ShardId, (Places, Vec<EpochQuery>)>,
    found: &mut [Found],
) {
    let asked =
        by_owner.into_iter().map(|(owner, (places, queries))| (places, shard.ask(owner, Ask::EpochEnds(queries))));
    // All owners are asked before the first answer is waited for.
    for (places, answer) in asked.collect::<Vec<_>>() {
        if let Answer::EpochEnds(ends) = answer.await {
            for ((topic, partition), end) in places.into_iter().zip(ends) {
                found[topic].partitions[partition].1 = end;
            }
        }
    }
}

fn read(reader: &mut Reader, version: i16) -> Result<Vec<Asked>, WireError> {
    if version >= 3 {
        reader.i32("the replica id")?;
    }
    let topics = reader.array_of("the topics", 3, |reader| {
        let name = reader.text("the topic name")?.to_string();
        let partitions = reader.array_of("the partitions", 12, read_query)?;
        reader.skip_tagged("the topic")?;
        Ok(Asked { name, partitions })
    })?;
    reader.skip_tagged("the request")?;
    Ok(topics)
}

fn read_query(reader: &mut Reader) -> Result<Query, WireError> {
    let query = Query {
        index: reader.i32("the partition index")?,
        current_leader_epoch: reader.i32("the current leader epoch")?,
        epoch: reader.i32("the leader epoch")?,
    };
    reader.skip_tagged("the partition")?;
    Ok(query)
}

struct Response(Vec<Found>);

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.0.len()));
        for topic in &self.0 {
            out.nullable_text(Some(&topic.name));
            out.count(Some(topic.partitions.len()));
            for (index, end) in &topic.partitions {
                let (epoch, offset) = end.ok().flatten().unwrap_or((-1, Offset(-1)));
                out.i16(end.err().unwrap_or(ErrorCode::None).code());
                out.i32(*index);
                out.i32(epoch);
                out.i64(offset.0);
                out.no_tagged();
            }
            out.no_tagged();
        }
        out.no_tagged();
    }
}
