//! What the requests of transactions share: who speaks, which partitions are meant, what older clients are told.

use std::sync::Arc;

use kafka_protocol::protocol::StrBytes;

use crate::broker::catalog::Catalog;
use crate::ids::{ProducerEpoch, ProducerId, TopicPartition};
use crate::state::transactions::messages::Speaker;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Fewest bytes of a topic with its partitions.
const TOPIC_BYTES_MIN: usize = 2;

/// What older clients are told: before PRODUCER_FENCED there was INVALID_PRODUCER_EPOCH.
///
/// Source: KIP-588; apache/kafka `KafkaApis`.
pub(super) fn told(error: ErrorCode, version: i16, fenced_from: i16) -> ErrorCode {
    match error {
        ErrorCode::ProducerFenced if version < fenced_from => ErrorCode::InvalidProducerEpoch,
        other => other,
    }
}

/// Takes transactional id, producer id and epoch, which stand together in every request.
pub(super) fn read_speaker(reader: &mut Reader) -> Result<Speaker, WireError> {
    Ok(Speaker {
        transactional_id: reader.text("the transactional id")?.to_string(),
        producer_id: ProducerId(reader.i64("the producer id")?),
        epoch: ProducerEpoch(reader.i16("the producer epoch")?),
    })
}

/// Topics of a request with a value for each partition.
pub(super) type Topics<T> = Vec<(StrBytes, Vec<T>)>;

/// Takes topics with their partitions.
pub(super) fn read_topics(reader: &mut Reader) -> Result<Topics<i32>, WireError> {
    reader.array_of("the topics", TOPIC_BYTES_MIN, |reader| {
        let name = reader.text("a topic's name")?;
        let partitions = reader.array_of("the partitions", 4, |reader| reader.i32("a partition"))?;
        reader.skip_tagged("a topic")?;
        Ok((name, partitions))
    })
}

/// The partitions of a request if all of them exist.
///
/// # Errors
/// Otherwise the answer of each: 3 for one that does not exist, 55 for the others, of which none was added.
pub(super) fn existing(
    catalog: &Catalog,
    topics: &Topics<i32>,
) -> Result<Vec<TopicPartition>, Topics<(i32, ErrorCode)>> {
    let mut found = Vec::new();
    let mut are_all_there = true;
    for (name, partitions) in topics {
        let topic = catalog.topic(name);
        for partition in partitions {
            match topic.filter(|topic| topic.log_id(*partition).is_some()) {
                Some(topic) => found.push(TopicPartition { topic: Arc::clone(&topic.name), partition: *partition }),
                None => are_all_there = false,
            }
        }
    }
    if are_all_there {
        return Ok(found);
    }
    Err(each(topics, |name, partition| {
        let is_there = catalog.topic(name).is_some_and(|topic| topic.log_id(partition).is_some());
        if is_there { ErrorCode::OperationNotAttempted } else { ErrorCode::UnknownTopicOrPartition }
    }))
}

/// A code for each partition of a request.
pub(super) fn each(topics: &Topics<i32>, mut code: impl FnMut(&str, i32) -> ErrorCode) -> Topics<(i32, ErrorCode)> {
    let of_topic = |(name, partitions): &(StrBytes, Vec<i32>)| {
        (name.clone(), partitions.iter().map(|partition| (*partition, code(name, *partition))).collect())
    };
    topics.iter().map(of_topic).collect()
}

/// Writes topics with a code for each partition.
pub(super) fn write_codes<S: Sink>(out: &mut Writer<'_, S>, topics: &Topics<(i32, ErrorCode)>) {
    out.count(Some(topics.len()));
    for (name, partitions) in topics {
        out.nullable_text(Some(name));
        out.count(Some(partitions.len()));
        for (partition, error) in partitions {
            out.i32(*partition);
            out.i16(error.code());
            out.no_tagged();
        }
        out.no_tagged();
    }
}
