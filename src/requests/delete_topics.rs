//! DeleteTopics (20), versions 1 to 6.
//!
//! 4 is flexible · 5 answers sentences · 6 takes ids beside names, and answers both.
//! Left out: nothing; the timeout is not needed, since the deletion is durable and visible when the answer is written.
//!
//! Source: apache/kafka `ControllerApis.deleteTopics`; the answers were compared with Apache Kafka 4.4.0.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::response::{self, Body};
use crate::broker::catalog::{Catalog, Command, ItemResult};
use crate::broker::shard::Shard;
use crate::ids::TopicId;
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

const UNKNOWN_NAME: &str = "This server does not host this topic-partition.";
const UNKNOWN_ID: &str = "This server does not host this topic ID.";

/// One answer: the topic as it was named, the id where it is known, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    name: Option<StrBytes>,
    id: TopicId,
    error: ErrorCode,
    message: Option<StrBytes>,
}

impl Item {
    fn refused(name: Option<StrBytes>, id: TopicId, error: ErrorCode, message: &'static str) -> Self {
        Self { name, id, error, message: Some(StrBytes::from_static_str(message)) }
    }
}

/// Answers DeleteTopics.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let named = read(request, body)?;
    let catalog = shard.catalog();
    let mut items = sort_out(&catalog, named);
    if catalog.config().delete_topics {
        delete(shard, &mut items).await;
    } else {
        refuse_all(&mut items, request.version);
    }
    Ok(response::frame(request, &Answer(items)))
}

fn read(request: &Request, body: Bytes) -> Result<Vec<(Option<StrBytes>, TopicId)>, WireError> {
    let mut reader = request.reader(body);
    let by_id = request.version >= 6;
    let topics =
        reader.array_of("the topics", 1, |reader| if by_id { read_topic(reader) } else { read_name(reader) })?;
    reader.i32("timeout_ms")?;
    reader.skip_tagged("the request")?;
    Ok(topics)
}

fn read_name(reader: &mut Reader) -> Result<(Option<StrBytes>, TopicId), WireError> {
    Ok((Some(reader.text("a topic's name")?), TopicId::ZERO))
}

fn read_topic(reader: &mut Reader) -> Result<(Option<StrBytes>, TopicId), WireError> {
    let topic = (reader.nullable_text("a topic's name")?, reader.topic_id("a topic's id")?);
    reader.skip_tagged("a topic")?;
    Ok(topic)
}

/// Finds the topics that are meant; each is answered once. Items without an error are to be deleted.
fn sort_out(catalog: &Catalog, named: Vec<(Option<StrBytes>, TopicId)>) -> Vec<Item> {
    let mut names: HashMap<StrBytes, bool> = HashMap::new();
    let mut ids: HashMap<TopicId, bool> = HashMap::new();
    let mut items = Vec::new();
    for (name, id) in named {
        match (name, id) {
            (Some(name), TopicId::ZERO) => note(&mut names, name),
            (None, TopicId::ZERO) => items.push(malformed(None, id, "Neither topic name nor id were specified.")),
            (None, id) => note(&mut ids, id),
            (name, id) => items.push(malformed(name, id, "You may not specify both topic name and topic id.")),
        }
    }
    items.extend(names.into_iter().map(|(name, once)| by_name(catalog, &mut ids, name, once)));
    items.extend(ids.into_iter().map(|(id, once)| by_id(catalog, id, once)));
    items
}

/// Takes a key in; its value says whether it was there once only.
fn note<K: Eq + std::hash::Hash>(seen: &mut HashMap<K, bool>, key: K) {
    seen.entry(key).and_modify(|once| *once = false).or_insert(true);
}

fn malformed(name: Option<StrBytes>, id: TopicId, message: &'static str) -> Item {
    Item::refused(name, id, ErrorCode::InvalidRequest, message)
}

fn by_name(catalog: &Catalog, ids: &mut HashMap<TopicId, bool>, name: StrBytes, once: bool) -> Item {
    if !once {
        return malformed(Some(name), TopicId::ZERO, "Duplicate topic name.");
    }
    let Some(topic) = catalog.topic(&name) else {
        return Item::refused(Some(name), TopicId::ZERO, ErrorCode::UnknownTopicOrPartition, UNKNOWN_NAME);
    };
    if ids.remove(&topic.id).is_some() {
        let message = "The provided topic name maps to an ID that was already supplied.";
        return malformed(Some(name), topic.id, message);
    }
    Item { name: Some(name), id: topic.id, error: ErrorCode::None, message: None }
}

fn by_id(catalog: &Catalog, id: TopicId, once: bool) -> Item {
    if !once {
        return malformed(None, id, "Duplicate topic id.");
    }
    match catalog.topic_by_id(id) {
        None => Item::refused(None, id, ErrorCode::UnknownTopicId, UNKNOWN_ID),
        Some(topic) => {
            let name = Some(StrBytes::from_string(topic.name.to_string()));
            Item { name, id, error: ErrorCode::None, message: None }
        }
    }
}

fn refuse_all(items: &mut [Item], version: i16) {
    // TOPIC_DELETION_DISABLED came with version 3.
    let error = if version < 3 { ErrorCode::InvalidRequest } else { ErrorCode::TopicDeletionDisabled };
    for item in items {
        item.error = error;
        item.message = Some(StrBytes::from_static_str("Topic deletion is disabled."));
    }
}

async fn delete<D: Disk>(shard: &Rc<Shard<D>>, items: &mut [Item]) {
    let mut found: Vec<&mut Item> = items.iter_mut().filter(|item| item.error.is_none()).collect();
    let ids: Vec<TopicId> = found.iter().map(|item| item.id).collect();
    if ids.is_empty() {
        return;
    }
    let count = ids.len();
    let results = shard.change_catalog(Command::DeleteTopics { ids }).await;
    let results = results.unwrap_or_else(|error| vec![ItemResult::failed(error); count]);
    for (item, result) in found.iter_mut().zip(results) {
        item.error = result.error;
        item.message = result.message.map(|message| StrBytes::from_string(message.into_owned()));
    }
}

struct Answer(Vec<Item>);

impl Body for Answer {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.0.len()));
        for item in &self.0 {
            out.nullable_text(item.name.as_deref());
            if version >= 6 {
                out.topic_id(item.id);
            }
            out.i16(item.error.code());
            if version >= 5 {
                out.nullable_text(item.message.as_deref());
            }
            out.no_tagged();
        }
        out.no_tagged();
    }
}
