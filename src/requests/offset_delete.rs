//! OffsetDelete (47), version 0: kept offsets of a group are forgotten, partition by partition.
//!
//! Partitions that do not exist are answered 3 and stand first, as in Kafka; an error of the group stands alone.
//!
//! Source: apache/kafka `KafkaApis.handleOffsetDeleteRequest`; the answers were compared with Apache Kafka 4.4.0.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::groups::Groups;
use super::judged::{Judged, Topics};
use super::response::{self, Body};
use crate::state::groups::messages::{Answer, Command, DeleteOffsets};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};
use crate::wire::topic::TopicRef;

/// Answers OffsetDelete.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let group = reader.text("the group")?.to_string();
    let asked = reader.array_of("the topics", 6, read_topic)?;
    let response = if group.is_empty() {
        Response { error: ErrorCode::InvalidGroupId, topics: Topics::default() }
    } else {
        delete(groups, group, asked).await
    };
    Ok(response::frame(request, &response))
}

fn read_topic(reader: &mut Reader) -> Result<(StrBytes, Vec<i32>), WireError> {
    let name = reader.text("a topic's name")?;
    let partitions = reader.array_of("the partitions", 4, |reader| reader.i32("a partition"))?;
    Ok((name, partitions))
}

async fn delete(groups: &impl Groups, group: String, asked: Vec<(StrBytes, Vec<i32>)>) -> Response {
    let catalog = groups.catalog();
    let mut topics = Topics::default();
    let mut partitions = Vec::new();
    for (name, wanted) in asked {
        let known = catalog.topic(&name);
        let judged = wanted.into_iter().map(|index| match known.and_then(|topic| topic.log_id(index)) {
            Some(_) => {
                partitions.push((name.to_string(), index));
                Judged::Asked(index)
            }
            None => Judged::Refused(index, ErrorCode::UnknownTopicOrPartition),
        });
        let judged = judged.collect();
        topics.push(TopicRef::Name(name), judged);
    }
    let command = Command::DeleteOffsets(DeleteOffsets { group: group.clone(), partitions });
    match groups.ask_group(&group, command).await {
        Answer::OffsetsDeleted(ErrorCode::None, errors) => {
            topics.fill(errors);
            Response { error: ErrorCode::None, topics }
        }
        Answer::OffsetsDeleted(error, _) => Response { error, topics: Topics::default() },
        _ => Response { error: ErrorCode::UnknownServerError, topics: Topics::default() },
    }
}

struct Response {
    error: ErrorCode,
    topics: Topics,
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i16(self.error.code());
        out.i32(0); // throttle time
        self.topics.write(out, false);
    }
}
