//! OffsetFetch (9), versions 1 to 10: how far groups have read.
//!
//! 2 takes null for all topics, and has an error of the whole · 3 the throttle time · 5 leader epochs · 6 is flexible ·
//! 7 may refuse what a transaction still holds open · 8 takes many groups · 9 says who asks · 10 names topics by id.
//! Groups without a name are allowed, as in Kafka.
//!
//! Memory: a partition that is named twice is answered once, and a group that is named twice gets INVALID_REQUEST the
//! second time, so that what is kept is not told a thousand times over.
//!
//! Source: apache/kafka `KafkaApis.handleOffsetFetchRequest`; the answers were compared with Apache Kafka 4.4.0.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::groups::{Groups, ask_each};
use super::response::{self, Body};
use crate::broker::catalog::Catalog;
use crate::ids::{Offset, TopicId};
use crate::state::groups::messages::{Answer, Command, OffsetKept, OffsetsKept, OffsetsWanted, TopicWanted};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};
use crate::wire::topic::TopicRef;

/// First version with an error of the whole, and with null for all topics.
const WHOLE_FROM: i16 = 2;
/// First version that takes many groups.
const MANY_FROM: i16 = 8;
/// First version that names topics by id.
const ID_FROM: i16 = 10;

/// Topic and partitions as they are named.
type Named = (TopicRef, Vec<i32>);

struct Asked {
    group: StrBytes,
    member: Option<(String, i32)>,
    topics: Option<Vec<Named>>,
}

/// Topic, and what is to be said about its partitions.
type Told = (TopicRef, Vec<OffsetKept>);

struct OfGroup {
    group: StrBytes,
    error: ErrorCode,
    topics: Vec<Told>,
}

/// Answers OffsetFetch.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(groups: &impl Groups, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let (asked, require_stable) = read(request, body)?;
    let mut answers = look_up(groups, request.version, require_stable, asked).await;
    if request.version < MANY_FROM {
        return Ok(response::frame(request, &One(answers.pop())));
    }
    Ok(response::frame(request, &Many(answers)))
}

fn read(request: &Request, body: Bytes) -> Result<(Vec<Asked>, bool), WireError> {
    let version = request.version;
    let mut reader = request.reader(body);
    let groups = if version < MANY_FROM {
        let group = reader.text("the group")?;
        let topics = read_topics(&mut reader, version)?;
        vec![Asked { group, member: None, topics }]
    } else {
        reader.array_of("the groups", 3, |reader| read_group(reader, version))?
    };
    let require_stable = version >= 7 && reader.i8("require_stable")? != 0;
    reader.skip_tagged("the request")?;
    Ok((groups, require_stable))
}

fn read_group(reader: &mut Reader, version: i16) -> Result<Asked, WireError> {
    let group = reader.text("a group")?;
    let member = match version {
        9.. => {
            let member = reader.nullable_text("a member id")?;
            let epoch = reader.i32("a member epoch")?;
            member.map(|member| (member.to_string(), epoch))
        }
        _ => None,
    };
    let topics = read_topics(reader, version)?;
    reader.skip_tagged("a group")?;
    Ok(Asked { group, member, topics })
}

fn read_topics(reader: &mut Reader, version: i16) -> Result<Option<Vec<Named>>, WireError> {
    let topics = reader.nullable_array_of("the topics", 3, |reader| {
        let topic = TopicRef::read(reader, version >= ID_FROM)?;
        let partitions = reader.array_of("the partitions", 4, |reader| reader.i32("a partition"))?;
        reader.skip_tagged("a topic")?;
        Ok((topic, partitions))
    })?;
    if topics.is_none() && version < WHOLE_FROM {
        return Err(WireError::Null("the topics"));
    }
    Ok(topics.map(each_partition_once))
}

fn each_partition_once(mut topics: Vec<Named>) -> Vec<Named> {
    let mut numbers = HashMap::with_capacity(topics.len());
    let mut seen = HashSet::new();
    for (topic, partitions) in &mut topics {
        let next = numbers.len();
        let number = *numbers.entry(&*topic).or_insert(next);
        partitions.retain(|partition| seen.insert((number, *partition)));
    }
    topics
}

async fn look_up(groups: &impl Groups, version: i16, require_stable: bool, asked: Vec<Asked>) -> Vec<OfGroup> {
    let catalog = groups.catalog();
    let (asked, repeated) = each_group_once(asked);
    let mut answers = Vec::with_capacity(asked.len() + repeated.len());
    // Of those that are asked for at present only: there may be very many groups in a request.
    let places = RefCell::new(VecDeque::new());
    let commands = asked.into_iter().map(|Asked { group, member, topics }| {
        let mut place = Place { group, refused: Vec::new(), wanted: None };
        let topics = topics.map(|topics| by_name(&catalog, topics, &mut place.refused));
        place.wanted = topics.clone().filter(|_| version < WHOLE_FROM);
        let group = place.group.to_string();
        places.borrow_mut().push_back(place);
        (group.clone(), Command::Offsets(OffsetsWanted { group, member, topics, require_stable }))
    });
    ask_each(groups, commands, |answer| {
        let place = places.borrow_mut().pop_front();
        answers.extend(place.map(|place| place.told(answer, &catalog, version)));
    })
    .await;
    let refused = |group| OfGroup { group, error: ErrorCode::InvalidRequest, topics: Vec::new() };
    answers.extend(repeated.into_iter().map(refused));
    answers
}

/// The groups as they are named for the first time, and the names that come again.
fn each_group_once(mut asked: Vec<Asked>) -> (Vec<Asked>, Vec<StrBytes>) {
    let mut seen = HashSet::with_capacity(asked.len());
    let mut repeated = Vec::new();
    asked.retain(|asked| {
        let is_first = seen.insert(asked.group.clone());
        if !is_first {
            repeated.push(asked.group.clone());
        }
        is_first
    });
    (asked, repeated)
}

/// A group that is asked for, and what is known about the answer already.
struct Place {
    group: StrBytes,
    /// Topics that nobody knows.
    refused: Vec<Told>,
    /// All that was asked, for the oldest version, which answers an error partition by partition.
    wanted: Option<Vec<TopicWanted>>,
}

impl Place {
    fn told(self, answer: Answer, catalog: &Catalog, version: i16) -> OfGroup {
        let kept = match answer {
            Answer::Offsets(kept) => kept,
            _ => OffsetsKept { error: ErrorCode::UnknownServerError, topics: Vec::new() },
        };
        let named = |(name, offsets): (String, Vec<OffsetKept>)| {
            let topic = match version {
                ID_FROM.. => TopicRef::Id(catalog.topic(&name)?.id),
                _ => TopicRef::Name(StrBytes::from_string(name)),
            };
            Some((topic, offsets))
        };
        let topics = match kept.error {
            ErrorCode::None => kept.topics.into_iter().filter_map(named).chain(self.refused).collect(),
            error => self.wanted.unwrap_or_default().into_iter().map(|wanted| failed(error, wanted)).collect(),
        };
        OfGroup { group: self.group, error: kept.error, topics }
    }
}

fn failed(error: ErrorCode, wanted: TopicWanted) -> Told {
    (TopicRef::Name(StrBytes::from_string(wanted.topic)), all_with(error, &wanted.partitions))
}

/// The topics by their names; what is to be said about ids that nobody knows goes to `refused`.
fn by_name(catalog: &Catalog, topics: Vec<Named>, refused: &mut Vec<Told>) -> Vec<TopicWanted> {
    let mut known = Vec::with_capacity(topics.len());
    for (named, partitions) in topics {
        match &named {
            TopicRef::Name(name) => {
                known.push(TopicWanted { topic: name.to_string(), topic_id: TopicId::ZERO, partitions });
            }
            TopicRef::Id(id) => match catalog.topic_by_id(*id) {
                Some(found) => known.push(TopicWanted { topic: found.name.to_string(), topic_id: *id, partitions }),
                None => refused.push((named, all_with(ErrorCode::UnknownTopicId, &partitions))),
            },
        }
    }
    known
}

fn all_with(error: ErrorCode, partitions: &[i32]) -> Vec<OffsetKept> {
    let nothing = |partition: &i32| OffsetKept {
        partition: *partition,
        offset: Offset(-1),
        leader_epoch: -1,
        metadata: String::new(),
        error,
    };
    partitions.iter().map(nothing).collect()
}

impl OfGroup {
    fn write_topics<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.count(Some(self.topics.len()));
        for (topic, offsets) in &self.topics {
            topic.write(out, version >= ID_FROM);
            out.count(Some(offsets.len()));
            for kept in offsets {
                out.i32(kept.partition);
                out.i64(kept.offset.0);
                if version >= 5 {
                    out.i32(kept.leader_epoch);
                }
                out.nullable_text(Some(&kept.metadata));
                out.i16(kept.error.code());
                out.no_tagged();
            }
            out.no_tagged();
        }
    }
}

/// The answer about one group.
struct One(Option<OfGroup>);

impl Body for One {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if version >= 3 {
            out.i32(0); // throttle time
        }
        if let Some(answer) = &self.0 {
            answer.write_topics(out, version);
            if version >= WHOLE_FROM {
                out.i16(answer.error.code());
            }
        }
        out.no_tagged();
    }
}

/// The answer about many groups.
struct Many(Vec<OfGroup>);

impl Body for Many {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.0.len()));
        for answer in &self.0 {
            out.nullable_text(Some(&answer.group));
            answer.write_topics(out, version);
            out.i16(answer.error.code());
            out.no_tagged();
        }
        out.no_tagged();
    }
}
