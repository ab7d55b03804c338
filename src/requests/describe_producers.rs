//! DescribeProducers (61), version 0: who writes to partitions, and which transactions are open there.
//!
//! Source: KIP-664; apache/kafka `KafkaApis.handleDescribeProducersRequest`.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;

use super::Request;
use super::response::{self, Body};
use crate::broker::active_producers::ActiveProducer;
use crate::broker::catalog::names;
use crate::broker::messages::{Answer, Ask, PartitionKey};
use crate::broker::shard::Shard;
use crate::ids::ShardId;
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

/// Which topic of the request, which of its partitions.
type Place = (usize, usize);

type Producers = Result<Vec<ActiveProducer>, ErrorCode>;

struct Topic {
    name: String,
    /// Why there is nothing to be told of the topic; Kafka says so in words, and says nothing of single partitions.
    unknown: Option<ErrorCode>,
    partitions: Vec<(i32, Producers)>,
}

/// Answers DescribeProducers.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let mut topics = reader.array_of("the topics", 3, |reader| {
        let name = reader.text("the topic name")?.to_string();
        let indexes = reader.array_of("the partitions", 4, |reader| reader.i32("the partition index"))?;
        reader.skip_tagged("the topic")?;
        let unknown = match names::is_valid(&name) {
            true => ErrorCode::UnknownTopicOrPartition,
            false => ErrorCode::InvalidTopicException,
        };
        let partitions = indexes.into_iter().map(|index| (index, Err(unknown))).collect();
        Ok(Topic { name, unknown: Some(unknown), partitions })
    })?;
    reader.skip_tagged("the request")?;
    look_up(shard, &mut topics).await;
    Ok(response::frame(request, &Response(topics)))
}

async fn look_up<D: Disk>(shard: &Rc<Shard<D>>, topics: &mut [Topic]) {
    let mut by_owner: BTreeMap<ShardId, (Vec<Place>, Vec<PartitionKey>)> = BTreeMap::new();
    let catalog = shard.catalog();
    for (at, topic) in topics.iter_mut().enumerate() {
        let Some(known) = catalog.topic(&topic.name) else { continue };
        topic.unknown = None;
        for (place, (index, _)) in topic.partitions.iter().enumerate() {
            if known.log_id(*index).is_some() {
                let key = PartitionKey { topic: known.id, partition: *index };
                let (places, keys) = by_owner.entry(shard.owner(key)).or_default();
                places.push((at, place));
                keys.push(key);
            }
        }
    }
    let ask = |(owner, (places, keys))| (places, shard.ask(owner, Ask::Producers(keys)));
    for (places, answer) in by_owner.into_iter().map(ask).collect::<Vec<_>>() {
        let Answer::Producers(found) = answer.await else { continue };
        for ((at, place), producers) in places.into_iter().zip(found) {
            topics[at].partitions[place].1 = producers;
        }
    }
}

struct Response(Vec<Topic>);

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.0.len()));
        for topic in &self.0 {
            out.nullable_text(Some(&topic.name));
            out.count(Some(topic.partitions.len()));
            topic
                .partitions
                .iter()
                .for_each(|(index, producers)| write_partition(out, topic.unknown, *index, producers));
            out.no_tagged();
        }
        out.no_tagged();
    }
}

fn write_partition<S: Sink>(out: &mut Writer<'_, S>, unknown: Option<ErrorCode>, index: i32, producers: &Producers) {
    out.i32(index);
    out.i16(producers.as_ref().err().map_or(0, |error| error.code()));
    out.nullable_text(unknown.map(ErrorCode::name));
    out.count(Some(producers.as_ref().map_or(0, Vec::len)));
    for producer in producers.iter().flatten() {
        out.i64(producer.id.0);
        out.i32(i32::from(producer.epoch.0));
        out.i32(producer.last_sequence);
        out.i64(producer.last_timestamp);
        out.i32(producer.coordinator_epoch);
        out.i64(producer.txn_first_offset.map_or(-1, |first| first.0));
        out.no_tagged();
    }
    out.no_tagged();
}
