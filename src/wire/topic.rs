//! How a request names a topic, and the lists of topics with their partitions that Produce and Fetch share.

use std::ops::RangeInclusive;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::reader::{Reader, WireError};
use super::sink::{Sink, Writer};
use crate::ids::TopicId;

/// A topic by what the version of the request calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicRef {
    /// By name.
    Name(StrBytes),
    /// By id.
    Id(TopicId),
}

impl TopicRef {
    pub(crate) fn read(reader: &mut Reader, by_id: bool) -> Result<Self, WireError> {
        if by_id {
            reader.topic_id("the topic id").map(Self::Id)
        } else {
            reader.text("the topic name").map(Self::Name)
        }
    }

    /// The same in memory of its own: a name that was read is a slice of its frame, and keeps all of that.
    #[must_use]
    pub fn detached(&self) -> Self {
        match self {
            Self::Name(name) => Self::Name(StrBytes::from_string(name.as_str().to_owned())),
            Self::Id(id) => Self::Id(*id),
        }
    }

    /// Writes it as the version wants it; what it is not called by is written as empty.
    pub(crate) fn write(&self, out: &mut Writer<'_, impl Sink>, by_id: bool) {
        match (self, by_id) {
            (Self::Id(id), true) => out.topic_id(*id),
            (Self::Name(_), true) => out.topic_id(TopicId::ZERO),
            (Self::Name(name), false) => out.nullable_text(Some(name)),
            (Self::Id(_), false) => out.nullable_text(Some("")),
        }
    }
}

/// What the versions of an API have in common with those of another: Produce and Fetch differ in these numbers alone.
pub(super) struct Dialect {
    pub(super) api_key: i16,
    pub(super) served: RangeInclusive<i16>,
    pub(super) flexible_from: i16,
    pub(super) ids_from: i16,
}

impl Dialect {
    /// A place in the body of a request; `Version` for a version that is not served.
    pub(super) fn reader(&self, body: Bytes, version: i16) -> Result<Reader, WireError> {
        if self.served.contains(&version) {
            Ok(Reader::new(body, self.is_flexible(version)))
        } else {
            Err(WireError::Version { api_key: self.api_key, version })
        }
    }

    pub(super) fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// Fewest bytes that a topic takes: name or id, count, and tagged fields.
    fn topic_bytes_min(&self, version: i16) -> usize {
        if version >= self.ids_from {
            16 + 1 + 1
        } else if self.is_flexible(version) {
            1 + 1 + 1
        } else {
            2 + 4
        }
    }

    /// Reads a list of topics, each with a list of what `partition` reads; none of that takes less than `bytes_min`.
    pub(super) fn read_topics<T, P>(
        &self,
        reader: &mut Reader,
        version: i16,
        bytes_min: usize,
        partition: impl Fn(&mut Reader) -> Result<P, WireError>,
        topic: impl Fn(TopicRef, Vec<P>) -> T,
    ) -> Result<Vec<T>, WireError> {
        reader.array_of("the topics", self.topic_bytes_min(version), |reader| {
            let named = TopicRef::read(reader, version >= self.ids_from)?;
            let partitions = reader.array_of("the partitions", bytes_min, &partition)?;
            reader.skip_tagged("the topic")?;
            Ok(topic(named, partitions))
        })
    }

    /// Writes a list of topics, each with a list of what `partition` writes.
    pub(super) fn write_topics<'a, P: 'a, S: Sink>(
        &self,
        out: &mut Writer<'_, S>,
        version: i16,
        topics: impl ExactSizeIterator<Item = (&'a TopicRef, &'a [P])>,
        partition: impl Fn(&mut Writer<'_, S>, &P),
    ) {
        out.count(Some(topics.len()));
        for (topic, partitions) in topics {
            topic.write(out, version >= self.ids_from);
            out.count(Some(partitions.len()));
            partitions.iter().for_each(|one| partition(out, one));
            out.no_tagged();
        }
    }
}
