//! How a request names a topic.

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
