//! WriteTxnMarkers (27), versions 1 and 2: a tool ends what is open of a producer in some partitions.
//!
//! 1 is flexible · 2 tells the version of the transaction protocol. Kafka's brokers also send it to each other; here there
//! are none.
//!
//! Source: apache/kafka `KafkaApis.handleWriteTxnMarkersRequest`.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;

use super::Request;
use super::response::{self, Body};
use super::transactions::{Topics, each, read_topics, write_codes};
use crate::broker::messages::{Answer, Ask, Marker, PartitionKey};
use crate::broker::shard::Shard;
use crate::ids::{ProducerEpoch, ProducerId, ShardId};
use crate::runtime::disk::Disk;
use crate::state::transactions::messages::Outcome;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// First version with the version of the protocol.
const PROTOCOL_FROM: i16 = 2;
/// From this version of the protocol on, a marker has an epoch of its own.
const BUMPING_FROM: i8 = 2;
/// Fewest bytes of the markers of one producer.
const MARKERS_BYTES_MIN: usize = 16;

/// Markers of one producer.
struct Asked {
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    outcome: Outcome,
    topics: Topics<i32>,
    coordinator_epoch: i32,
    bumps_epoch: bool,
}

/// Answers WriteTxnMarkers.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let asked = reader.array_of("the markers", MARKERS_BYTES_MIN, |reader| read_one(reader, request.version))?;
    reader.skip_tagged("the request")?;
    let mut results = Vec::with_capacity(asked.len());
    for one in asked {
        results.push((one.producer_id, write(shard, &one).await));
    }
    Ok(response::frame(request, &Response { results }))
}

fn read_one(reader: &mut Reader, version: i16) -> Result<Asked, WireError> {
    let producer_id = ProducerId(reader.i64("the producer id")?);
    let epoch = ProducerEpoch(reader.i16("the producer epoch")?);
    let outcome = if reader.i8("the transaction's result")? != 0 { Outcome::Commit } else { Outcome::Abort };
    let topics = read_topics(reader)?;
    let coordinator_epoch = reader.i32("the coordinator epoch")?;
    let bumps_epoch = version >= PROTOCOL_FROM && reader.i8("the transaction version")? >= BUMPING_FROM;
    reader.skip_tagged("the markers of a producer")?;
    Ok(Asked { producer_id, epoch, outcome, topics, coordinator_epoch, bumps_epoch })
}

/// Has the owners write the markers; one code for each partition.
async fn write<D: Disk>(shard: &Rc<Shard<D>>, asked: &Asked) -> Topics<(i32, ErrorCode)> {
    let catalog = shard.catalog();
    let mut codes = Vec::new();
    let mut by_owner: BTreeMap<ShardId, (Vec<usize>, Vec<Marker>)> = BTreeMap::new();
    for (name, partitions) in &asked.topics {
        let topic = catalog.topic(name);
        for partition in partitions {
            let found = topic.filter(|topic| topic.log_id(*partition).is_some());
            if found.is_some() && (asked.producer_id.0 == -1 || asked.epoch.0 == -1) {
                // Nobody's transaction: as in Kafka, where no such marker can be made.
                codes.push(ErrorCode::UnknownServerError);
                continue;
            }
            if let Some(topic) = found {
                let key = PartitionKey { topic: topic.id, partition: *partition };
                let (places, markers) = by_owner.entry(shard.owner(key)).or_default();
                places.push(codes.len());
                markers.push(marker(asked, key));
            }
            codes.push(ErrorCode::UnknownTopicOrPartition);
        }
    }
    let ask = |(owner, (places, markers))| (places, shard.ask(owner, Ask::Markers(markers)));
    for (places, answer) in by_owner.into_iter().map(ask).collect::<Vec<_>>() {
        let Answer::Marked(some) = answer.await else { continue };
        places.into_iter().zip(some).for_each(|(place, code)| codes[place] = code);
    }
    let mut codes = codes.into_iter();
    each(&asked.topics, |_, _| codes.next().unwrap_or(ErrorCode::UnknownServerError))
}

fn marker(asked: &Asked, key: PartitionKey) -> Marker {
    Marker {
        key,
        producer_id: asked.producer_id,
        epoch: asked.epoch,
        coordinator_epoch: asked.coordinator_epoch,
        outcome: asked.outcome,
        bumps_epoch: asked.bumps_epoch,
    }
}

struct Response {
    results: Vec<(ProducerId, Topics<(i32, ErrorCode)>)>,
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.count(Some(self.results.len()));
        for (producer_id, topics) in &self.results {
            out.i64(producer_id.0);
            write_codes(out, topics);
            out.no_tagged();
        }
        out.no_tagged();
    }
}
