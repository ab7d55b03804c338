//! Metadata (3), versions 0 to 13: brokers, topics, leaders; makes missing topics when asked to.
//!
//! 1 adds racks, controller, internal flag; no topics is `[]` and all topics is null (in 0, `[]` means all) · 2 cluster
//! id · 3 throttle time · 4 the client says whether missing topics may be made · 5 offline replicas · 7 leader epoch ·
//! 8 authorized operations · 9 flexible · 10 topic ids in the answer · 11 no cluster operations any more · 12 topics by
//! id · 13 an error code for the whole.
//! Left out: racks (null). A topic that is made because a client asked is in the same answer (Kafka answers 3 first).
//!
//! Memory: each name is answered once, whatever the request repeats.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::cluster::Cluster;
use super::partition_info::{CLUSTER_OPERATIONS, Leader, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS};
use super::response::{self, Body, each_once};
use crate::broker::catalog::{Catalog, Command, Topic, names};
use crate::ids::TopicId;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Topics that one request may make; the others are answered as unknown, and the client asks again.
const MADE_PER_REQUEST_MAX: usize = 1_000;

/// What a client asked.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    topics: Which,
    may_create: bool,
    cluster_operations: bool,
    topic_operations: bool,
}

/// Which topics a client asked for, each once.
#[derive(Debug, PartialEq, Eq)]
enum Which {
    All,
    Names(Vec<StrBytes>),
    Ids(Vec<TopicId>),
    /// Combinations that Kafka refuses as a whole: each topic as it was named, with this error.
    Refused(ErrorCode, Vec<(StrBytes, TopicId)>),
}

/// Answers Metadata.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let asked = read(request, body)?;
    create_missing(cluster, &asked).await;
    let catalog = cluster.catalog();
    let (host, port) = cluster.advertised();
    let answer = Answer {
        catalog: &catalog,
        asked: &asked,
        host: &host,
        port,
        leader: Leader { node_id: catalog.node_id(), epoch: cluster.leader_epoch() },
    };
    Ok(response::frame(request, &answer))
}

fn read(request: &Request, body: Bytes) -> Result<Asked, WireError> {
    let version = request.version;
    let mut reader = request.reader(body);
    let topics = read_topics(&mut reader, version)?;
    let may_create = version < 4 || reader.i8("allow_auto_topic_creation")? != 0;
    let cluster_operations = (8..=10).contains(&version) && reader.i8("include_cluster_authorized_operations")? != 0;
    let topic_operations = version >= 8 && reader.i8("include_topic_authorized_operations")? != 0;
    reader.skip_tagged("the request")?;
    Ok(Asked { topics, may_create, cluster_operations, topic_operations })
}

fn read_topics(reader: &mut Reader, version: i16) -> Result<Which, WireError> {
    if version >= 10 {
        return read_by_id_or_name(reader, version);
    }
    let read_name = |reader: &mut Reader| {
        let name = reader.text("a topic's name")?;
        reader.skip_tagged("a topic")?;
        Ok(name)
    };
    let names = match version {
        0 => Some(reader.array_of("the topics", 2, read_name)?),
        _ => reader.nullable_array_of("the topics", 2, read_name)?,
    };
    Ok(match names {
        None => Which::All,
        Some(names) if names.is_empty() && version == 0 => Which::All,
        Some(names) => Which::Names(each_once(names)),
    })
}

/// From version 10 on a topic has an id and a name, of which a client gives one; what Kafka makes of the other
/// combinations was looked at in Apache Kafka 4.4.0.
fn read_by_id_or_name(reader: &mut Reader, version: i16) -> Result<Which, WireError> {
    let mut is_nameless = false;
    let topics = reader.nullable_array_of("the topics", 18, |reader| {
        let id = reader.topic_id("a topic's id")?;
        let name = reader.nullable_text("a topic's name")?;
        reader.skip_tagged("a topic")?;
        is_nameless |= name.is_none();
        Ok((name.unwrap_or_default(), id))
    })?;
    let Some(topics) = topics else { return Ok(Which::All) };
    let by_id = topics.iter().any(|(_, id)| *id != TopicId::ZERO);
    Ok(match version {
        10 | 11 if is_nameless || by_id => Which::Refused(ErrorCode::InvalidRequest, topics),
        _ if by_id => {
            let ids = topics.into_iter().map(|(_, id)| id).filter(|id| *id != TopicId::ZERO);
            Which::Ids(each_once(ids.collect()))
        }
        _ if is_nameless => Which::Refused(ErrorCode::UnknownServerError, topics),
        _ => Which::Names(each_once(topics.into_iter().map(|(name, _)| name).collect())),
    })
}

/// Makes the topics that are missing, if client and broker want that; what cannot be made is answered as unknown.
async fn create_missing(cluster: &impl Cluster, asked: &Asked) {
    let catalog = cluster.catalog();
    let Which::Names(named) = &asked.topics else { return };
    if !asked.may_create || !catalog.config().auto_create_topics {
        return;
    }
    let missing: Vec<String> = named
        .iter()
        .filter(|name| names::is_valid(name) && catalog.topic(name).is_none())
        .take(MADE_PER_REQUEST_MAX)
        .map(ToString::to_string)
        .collect();
    if !missing.is_empty() {
        // An error here is told by what the catalog holds afterwards.
        let _ = cluster.change_catalog(Command::EnsureTopics { names: missing }).await;
    }
}

struct Answer<'a> {
    catalog: &'a Catalog,
    asked: &'a Asked,
    host: &'a str,
    port: i32,
    leader: Leader,
}

impl Body for Answer<'_> {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 3 {
            out.i32(0); // throttle time
        }
        self.write_cluster(out, version);
        self.write_topics(out, version);
        if (8..=10).contains(&version) {
            out.i32(if self.asked.cluster_operations { CLUSTER_OPERATIONS } else { OPERATIONS_NOT_ASKED });
        }
        if version >= 13 {
            out.i16(0);
        }
        out.no_tagged();
    }
}

impl Answer<'_> {
    fn write_cluster<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        let refused = matches!(self.asked.topics, Which::Refused(..));
        out.count(Some(usize::from(!refused)));
        if !refused {
            out.i32(self.catalog.node_id());
            out.nullable_text(Some(self.host));
            out.i32(self.port);
            if version >= 1 {
                out.nullable_text(None); // rack
            }
            out.no_tagged();
        }
        if version >= 2 {
            out.nullable_text((!refused).then(|| self.catalog.cluster_id()));
        }
        if version >= 1 {
            out.i32(if refused { -1 } else { self.catalog.node_id() }); // controller
        }
    }

    fn write_topics<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        match &self.asked.topics {
            Which::All => {
                out.count(Some(self.catalog.topics().len()));
                self.catalog.topics().for_each(|topic| self.write_topic(out, version, topic));
            }
            Which::Names(names) => {
                out.count(Some(names.len()));
                names.iter().for_each(|name| self.write_named(out, version, name));
            }
            Which::Ids(ids) => {
                out.count(Some(ids.len()));
                ids.iter().for_each(|id| self.write_identified(out, version, *id));
            }
            Which::Refused(error, topics) => {
                out.count(Some(topics.len()));
                topics.iter().for_each(|(name, id)| self.write_refused(out, version, *error, Some(name), *id));
            }
        }
    }

    fn write_named<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16, name: &str) {
        match self.catalog.topic(name) {
            Some(topic) => self.write_topic(out, version, topic),
            None if names::is_valid(name) => {
                self.write_refused(out, version, ErrorCode::UnknownTopicOrPartition, Some(name), TopicId::ZERO);
            }
            None => self.write_refused(out, version, ErrorCode::InvalidTopicException, Some(name), TopicId::ZERO),
        }
    }

    fn write_identified<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16, id: TopicId) {
        match self.catalog.topic_by_id(id) {
            Some(topic) => self.write_topic(out, version, topic),
            None => self.write_refused(out, version, ErrorCode::UnknownTopicId, None, id),
        }
    }

    fn write_topic<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16, topic: &Arc<Topic>) {
        out.i16(0);
        out.nullable_text(Some(&topic.name));
        if version >= 10 {
            out.topic_id(topic.id);
        }
        if version >= 1 {
            out.i8(i8::from(topic.internal));
        }
        out.count(Some(topic.partitions.len()));
        for partition in 0..topic.partitions.len() {
            self.write_partition(out, version, partition);
        }
        if version >= 8 {
            out.i32(if self.asked.topic_operations { TOPIC_OPERATIONS } else { OPERATIONS_NOT_ASKED });
        }
        out.no_tagged();
    }

    fn write_partition<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16, partition: usize) {
        self.leader.write(out, partition, version >= 7);
        self.leader.write_alone(out); // replicas
        self.leader.write_alone(out); // in sync
        if version >= 5 {
            out.count(Some(0)); // offline
        }
        out.no_tagged();
    }

    fn write_refused<S: Sink>(
        &self,
        out: &mut Writer<'_, S>,
        version: i16,
        error: ErrorCode,
        name: Option<&str>,
        id: TopicId,
    ) {
        out.i16(error.code());
        out.nullable_text(name);
        if version >= 10 {
            out.topic_id(id);
        }
        if version >= 1 {
            out.i8(0);
        }
        out.count(Some(0));
        if version >= 8 {
            out.i32(OPERATIONS_NOT_ASKED);
        }
        out.no_tagged();
    }
}
