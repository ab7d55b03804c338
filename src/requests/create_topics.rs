//! CreateTopics (19), versions 2 to 7.
//!
//! 4 lets partitions and replicas be -1 (the broker's defaults; taken in 2 and 3 too, as Kafka does) · 5 is flexible and
//! answers partitions, replicas and settings · 7 answers the topic's id.
//! Left out: nothing; the timeout is not needed, since a topic is durable and visible when the answer is written.

use std::sync::Arc;

use bytes::Bytes;

use super::Request;
use super::cluster::Cluster;
use super::response::{self, Body};
use crate::broker::catalog::create::NewTopic;
use crate::broker::catalog::{Catalog, Command, ItemResult};
use crate::config::{self, ConfigEntry};
use crate::ids::TopicId;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Answers CreateTopics.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let (topics, validate_only) = read(request, body)?;
    let names: Vec<Arc<str>> = topics.iter().map(|topic| Arc::clone(&topic.name)).collect();
    let count = names.len();
    let results = cluster.change_catalog(Command::CreateTopics { topics, validate_only }).await;
    let results = results.unwrap_or_else(|error| vec![ItemResult::failed(error); count]);
    let answer = Answer { items: response::first_of_each(names, results), catalog: &cluster.catalog() };
    Ok(response::frame(request, &answer))
}

fn read(request: &Request, body: Bytes) -> Result<(Vec<NewTopic>, bool), WireError> {
    let mut reader = request.reader(body);
    let topics = reader.array_of("the topics", 8, read_topic)?;
    reader.i32("timeout_ms")?;
    let validate_only = reader.i8("validate_only")? != 0;
    reader.skip_tagged("the request")?;
    Ok((topics, validate_only))
}

fn read_topic(reader: &mut Reader) -> Result<NewTopic, WireError> {
    let topic = NewTopic {
        name: Arc::from(&*reader.text("a topic's name")?),
        partitions: reader.i32("num_partitions")?,
        replication_factor: reader.i16("replication_factor")?,
        assignments: reader.array_of("the assignments", 5, read_assignment)?,
        configs: reader.array_of("the configs", 2, read_config)?,
    };
    reader.skip_tagged("a topic")?;
    Ok(topic)
}

fn read_assignment(reader: &mut Reader) -> Result<(i32, Vec<i32>), WireError> {
    let partition = reader.i32("an assignment's partition")?;
    let brokers = reader.array_of("an assignment's brokers", 4, |reader| reader.i32("a broker"))?;
    reader.skip_tagged("an assignment")?;
    Ok((partition, brokers))
}

fn read_config(reader: &mut Reader) -> Result<(String, Option<String>), WireError> {
    let name = reader.text("a config's name")?.to_string();
    let value = reader.nullable_text("a config's value")?.map(|value| value.to_string());
    reader.skip_tagged("a config")?;
    Ok((name, value))
}

struct Answer<'a> {
    items: Vec<(Arc<str>, ItemResult)>,
    catalog: &'a Catalog,
}

impl Body for Answer<'_> {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.items.len()));
        for (name, result) in &self.items {
            self.write_item(out, version, name, result);
        }
        out.no_tagged();
    }
}

impl Answer<'_> {
    fn write_item<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16, name: &str, result: &ItemResult) {
        let topic = result.topic();
        out.nullable_text(Some(name));
        if version >= 7 {
            out.topic_id(topic.map_or(TopicId::ZERO, |topic| topic.id));
        }
        out.i16(result.error.code());
        out.nullable_text(result.message.as_deref());
        if version >= 5 {
            out.i32(topic.map_or(-1, |topic| topic.partition_count()));
            out.i16(topic.map_or(-1, |_| 1)); // replicas
            match topic {
                Some(topic) => write_configs(out, &config::describe_topic(self.catalog.config(), &topic.overrides)),
                None => out.count(Some(0)),
            }
        }
        out.no_tagged();
    }
}

fn write_configs<S: Sink>(out: &mut Writer<'_, S>, entries: &[ConfigEntry]) {
    out.count(Some(entries.len()));
    for entry in entries {
        out.nullable_text(Some(entry.name));
        out.nullable_text(entry.value.as_deref());
        out.i8(i8::from(entry.read_only));
        out.i8(entry.source.code());
        out.i8(0); // not sensitive
        out.no_tagged();
    }
}
