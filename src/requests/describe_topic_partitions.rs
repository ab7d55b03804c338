//! DescribeTopicPartitions (75), version 0: topics by name, ascending, in pages of a limited number of partitions.
//!
//! Left out: eligible leaders and the last known ones (empty lists): there is one replica.
//!
//! Source: KIP-966; apache/kafka `DescribeTopicPartitionsRequestHandler`; compared with Apache Kafka 4.4.0.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::cluster::Cluster;
use super::partition_info::{Leader, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS};
use super::response::{self, Body, each_once};
use crate::broker::catalog::{Catalog, Topic, names};
use crate::ids::TopicId;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Partitions in one answer. Source: Kafka's default of `max.request.partition.size.limit`.
const PARTITIONS_PER_ANSWER_MAX: i32 = 2_000;

/// Where an answer goes on: a topic and a partition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cursor {
    topic: StrBytes,
    partition: i32,
}

struct Asked {
    /// Each once, ascending; none for all.
    topics: Vec<StrBytes>,
    limit: i32,
    cursor: Option<Cursor>,
}

/// Answers DescribeTopicPartitions.
///
/// # Errors
/// Where the bytes are not the request.
pub fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let asked = read(request, body)?;
    let catalog = cluster.catalog();
    let leader = Leader { node_id: catalog.node_id(), epoch: cluster.leader_epoch() };
    let page = if is_refused(&asked) { refuse(&asked.topics) } else { Page::of(&catalog, &asked) };
    Ok(response::frame(request, &Answer { page, leader }))
}

fn read(request: &Request, body: Bytes) -> Result<Asked, WireError> {
    let mut reader = request.reader(body);
    let topics = reader.array_of("the topics", 2, |reader| {
        let name = reader.text("a topic's name")?;
        reader.skip_tagged("a topic")?;
        Ok(name)
    })?;
    let limit = reader.i32("response_partition_limit")?;
    let cursor = if reader.i8("the cursor")? < 0 { None } else { Some(read_cursor(&mut reader)?) };
    reader.skip_tagged("the request")?;
    Ok(Asked { topics: each_once(topics), limit, cursor })
}

fn read_cursor(reader: &mut Reader) -> Result<Cursor, WireError> {
    let cursor = Cursor { topic: reader.text("the cursor's topic")?, partition: reader.i32("the cursor's partition")? };
    reader.skip_tagged("the cursor")?;
    Ok(cursor)
}

/// A cursor must name a partition, and one of the topics where topics are named.
fn is_refused(asked: &Asked) -> bool {
    let Some(cursor) = &asked.cursor else { return false };
    cursor.partition < 0 || !(asked.topics.is_empty() || asked.topics.binary_search(&cursor.topic).is_ok())
}

/// One topic of the answer.
enum Line<'a> {
    Topic(&'a Topic, std::ops::Range<usize>),
    Refused(StrBytes, ErrorCode),
}

/// What fits into one answer.
struct Page<'a> {
    lines: Vec<Line<'a>>,
    next: Option<Cursor>,
}

fn refuse(topics: &[StrBytes]) -> Page<'static> {
    let line = |name: &StrBytes| Line::Refused(name.clone(), ErrorCode::InvalidRequest);
    Page { lines: topics.iter().map(line).collect(), next: None }
}

impl<'a> Page<'a> {
    fn of(catalog: &'a Catalog, asked: &Asked) -> Self {
        let mut page = Page { lines: Vec::new(), next: None };
        let first = asked.cursor.as_ref().map_or("", |cursor| &cursor.topic);
        let room = asked.limit.clamp(1, PARTITIONS_PER_ANSWER_MAX);
        let mut room = usize::try_from(room).unwrap_or(1);
        if asked.topics.is_empty() {
            for topic in catalog.topics_from(first) {
                if !page.take(topic, asked, &mut room) {
                    break;
                }
            }
            return page;
        }
        for name in asked.topics.iter().filter(|name| ***name >= *first) {
            if room == 0 {
                page.next = Some(Cursor { topic: name.clone(), partition: 0 });
                break;
            }
            match catalog.topic(name) {
                Some(topic) if page.take(topic, asked, &mut room) => {}
                Some(_) => break,
                None => page.lines.push(Line::Refused(name.clone(), unknown(name))),
            }
        }
        page
    }

    /// Takes a topic's partitions as far as there is room; false when the page ends here.
    fn take(&mut self, topic: &'a Topic, asked: &Asked, room: &mut usize) -> bool {
        let from_cursor = asked.cursor.as_ref().filter(|cursor| *cursor.topic == *topic.name);
        let first = from_cursor.map_or(0, |cursor| usize::try_from(cursor.partition).unwrap_or(0));
        let first = first.min(topic.partitions.len());
        let end = topic.partitions.len().min(first + *room);
        if *room > 0 {
            self.lines.push(Line::Topic(topic, first..end));
        }
        *room -= end - first;
        if end == topic.partitions.len() {
            return true;
        }
        let partition = i32::try_from(end).unwrap_or(i32::MAX);
        self.next = Some(Cursor { topic: StrBytes::from_string(topic.name.to_string()), partition });
        false
    }
}

fn unknown(name: &str) -> ErrorCode {
    if names::is_valid(name) { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException }
}

struct Answer<'a> {
    page: Page<'a>,
    leader: Leader,
}

impl Body for Answer<'_> {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.page.lines.len()));
        for line in &self.page.lines {
            match line {
                Line::Topic(topic, partitions) => self.write_topic(out, topic, partitions.clone()),
                Line::Refused(name, error) => write_refused(out, name, *error),
            }
        }
        match &self.page.next {
            None => out.i8(-1),
            Some(cursor) => {
                out.i8(1);
                out.nullable_text(Some(&cursor.topic));
                out.i32(cursor.partition);
                out.no_tagged();
            }
        }
        out.no_tagged();
    }
}

impl Answer<'_> {
    fn write_topic<S: Sink>(&self, out: &mut Writer<'_, S>, topic: &Topic, partitions: std::ops::Range<usize>) {
        out.i16(0);
        out.nullable_text(Some(&topic.name));
        out.topic_id(topic.id);
        out.i8(i8::from(topic.internal));
        out.count(Some(partitions.len()));
        for partition in partitions {
            self.leader.write(out, partition, true);
            self.leader.write_alone(out); // replicas
            self.leader.write_alone(out); // in sync
            out.count(Some(0)); // eligible leaders
            out.count(Some(0)); // last known eligible leaders
            out.count(Some(0)); // offline
            out.no_tagged();
        }
        out.i32(TOPIC_OPERATIONS);
        out.no_tagged();
    }
}

/// An unknown topic has all operations, as in Kafka; one without a name, or of a request that is wrong, has none.
fn write_refused<S: Sink>(out: &mut Writer<'_, S>, name: &str, error: ErrorCode) {
    out.i16(error.code());
    out.nullable_text(Some(name));
    out.topic_id(TopicId::ZERO);
    out.i8(0);
    out.count(Some(0));
    let is_unknown = error != ErrorCode::InvalidRequest && !name.is_empty();
    out.i32(if is_unknown { TOPIC_OPERATIONS } else { OPERATIONS_NOT_ASKED });
    out.no_tagged();
}
