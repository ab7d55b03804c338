//! DeleteTopics (20), versions 1 to 6.
//!
//! 4 is flexible · 5 answers sentences · 6 takes ids beside names, and answers both.
//! Left out: nothing; the timeout is not needed, since the deletion is durable and visible when the answer is written.
//!
//! Source: apache/kafka `ControllerApis.deleteTopics`; the answers were compared with Apache Kafka 4.4.0.

use std::collections::HashMap;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::cluster::Cluster;
use super::response::{self, Body};
use crate::broker::catalog::{Catalog, Command, ItemResult};
use crate::ids::TopicId;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Answers DeleteTopics.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let asked = Asked::sorted(read(request, body)?);
    let catalog = cluster.catalog();
    let may_delete = catalog.config().delete_topics;
    let deleted = if may_delete { delete(cluster, asked.to_delete(&catalog)).await } else { HashMap::new() };
    Ok(response::frame(request, &Answer { asked, catalog: &catalog, may_delete, deleted }))
}

/// Topics as they are named: most have either a name or an id.
type Named = (Option<StrBytes>, TopicId);

fn read(request: &Request, body: Bytes) -> Result<Vec<Named>, WireError> {
    let mut reader = request.reader(body);
    let topics = match request.version {
        6.. => reader.array_of("the topics", 17, read_topic)?,
        _ => reader.array_of("the topics", 1, |reader| Ok((Some(reader.text("a topic's name")?), TopicId::ZERO)))?,
    };
    reader.i32("timeout_ms")?;
    reader.skip_tagged("the request")?;
    Ok(topics)
}

fn read_topic(reader: &mut Reader) -> Result<Named, WireError> {
    let topic = (reader.nullable_text("a topic's name")?, reader.topic_id("a topic's id")?);
    reader.skip_tagged("a topic")?;
    Ok(topic)
}

/// What a client wants to delete, sorted, so that what is there several times stands together.
struct Asked(Vec<Named>);

/// A topic that is named, and how often.
struct Group<'a> {
    name: Option<&'a StrBytes>,
    id: TopicId,
    times: usize,
}

/// What is to be said about a group before anything is deleted.
enum Judged {
    Delete(TopicId),
    /// The topic is deleted, and answered, under its id already.
    NamedByIdToo(TopicId),
    Refused(ErrorCode, &'static str),
    /// Another group says it.
    Silent,
}

impl Asked {
    fn sorted(mut topics: Vec<Named>) -> Self {
        topics.sort_unstable();
        Self(topics)
    }

    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.0.chunk_by(|one, next| one == next).map(|same| Group {
            name: same[0].0.as_ref(),
            id: same[0].1,
            times: same.len(),
        })
    }

    fn has_id(&self, id: TopicId) -> bool {
        self.0.binary_search(&(None, id)).is_ok()
    }

    fn has_name(&self, name: &str) -> bool {
        let name = (Some(StrBytes::from_string(name.to_owned())), TopicId::ZERO);
        self.0.binary_search(&name).is_ok()
    }

    fn judge(&self, catalog: &Catalog, group: &Group<'_>) -> Judged {
        let invalid = |message| Judged::Refused(ErrorCode::InvalidRequest, message);
        match (group.name, group.id) {
            (None, TopicId::ZERO) => invalid("Neither topic name nor id were specified."),
            (Some(_), TopicId::ZERO) if group.times > 1 => invalid("Duplicate topic name."),
            (Some(name), TopicId::ZERO) => match catalog.topic(name) {
                None => Judged::Refused(
                    ErrorCode::UnknownTopicOrPartition,
                    "This server does not host this topic-partition.",
                ),
                Some(topic) if self.has_id(topic.id) => Judged::NamedByIdToo(topic.id),
                Some(topic) => Judged::Delete(topic.id),
            },
            (None, _) if group.times > 1 => invalid("Duplicate topic id."),
            (None, id) => match catalog.topic_by_id(id) {
                None => Judged::Refused(ErrorCode::UnknownTopicId, "This server does not host this topic ID."),
                Some(topic) if self.has_name(&topic.name) => Judged::Silent,
                Some(topic) => Judged::Delete(topic.id),
            },
            (Some(_), _) => invalid("You may not specify both topic name and topic id."),
        }
    }

    fn to_delete(&self, catalog: &Catalog) -> Vec<TopicId> {
        let delete = |group| match self.judge(catalog, &group) {
            Judged::Delete(id) => Some(id),
            Judged::NamedByIdToo(_) | Judged::Refused(..) | Judged::Silent => None,
        };
        self.groups().filter_map(delete).collect()
    }
}

async fn delete(cluster: &impl Cluster, ids: Vec<TopicId>) -> HashMap<TopicId, ItemResult> {
    if ids.is_empty() {
        return HashMap::new();
    }
    let results = cluster.change_catalog(Command::DeleteTopics { ids: ids.clone() }).await;
    let results = results.unwrap_or_else(|error| vec![ItemResult::failed(error); ids.len()]);
    ids.into_iter().zip(results).collect()
}

struct Answer<'a> {
    asked: Asked,
    /// As it was before the deletion.
    catalog: &'a Catalog,
    may_delete: bool,
    deleted: HashMap<TopicId, ItemResult>,
}

impl Body for Answer<'_> {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i32(0); // throttle time
        let is_told = |group: &Group<'_>| !matches!(self.asked.judge(self.catalog, group), Judged::Silent);
        out.count(Some(self.asked.groups().filter(is_told).count()));
        for group in self.asked.groups().filter(is_told) {
            self.write_group(out, version, &group);
        }
        out.no_tagged();
    }
}

impl Answer<'_> {
    fn write_group<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16, group: &Group<'_>) {
        let (id, error, message) = self.told(version, group);
        let known = self.catalog.topic_by_id(id).filter(|_| error.is_none()).map(|topic| &*topic.name);
        out.nullable_text(group.name.map(|name| &**name).or(known));
        if version >= 6 {
            out.topic_id(id);
        }
        out.i16(error.code());
        if version >= 5 {
            out.nullable_text(message);
        }
        out.no_tagged();
    }

    fn told(&self, version: i16, group: &Group<'_>) -> (TopicId, ErrorCode, Option<&str>) {
        if !self.may_delete {
            // TOPIC_DELETION_DISABLED came with version 3.
            let error = if version < 3 { ErrorCode::InvalidRequest } else { ErrorCode::TopicDeletionDisabled };
            return (group.id, error, Some("Topic deletion is disabled."));
        }
        match self.asked.judge(self.catalog, group) {
            Judged::Refused(error, message) => (group.id, error, Some(message)),
            Judged::NamedByIdToo(id) => {
                let message = "The provided topic name maps to an ID that was already supplied.";
                (id, ErrorCode::InvalidRequest, Some(message))
            }
            Judged::Delete(id) => {
                let result = self.deleted.get(&id);
                let error = result.map_or(ErrorCode::UnknownServerError, |result| result.error);
                (id, error, result.and_then(|result| result.message.as_deref()))
            }
            Judged::Silent => (group.id, ErrorCode::None, None),
        }
    }
}
