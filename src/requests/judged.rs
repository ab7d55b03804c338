//! Partitions whose existence is judged before a coordinator is asked, and their answers in Kafka's order.

use crate::wire::error_code::ErrorCode;
use crate::wire::sink::{Sink, Writer};
use crate::wire::topic::TopicRef;

/// One partition of a request, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// There is no such partition: this is the answer.
    Refused(i32, ErrorCode),
    /// The coordinator is asked; its answer is to come.
    Asked(i32),
    /// The coordinator has answered.
    Answered(i32, ErrorCode),
}

impl Judged {
    fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(..))
    }
}

/// The partitions of a request by topic.
#[derive(Debug, Default)]
pub(super) struct Topics(Vec<(TopicRef, Vec<Judged>)>);

impl Topics {
    /// Adds a topic behind the others; one without partitions is not answered.
    pub(super) fn push(&mut self, topic: TopicRef, partitions: Vec<Judged>) {
        if !partitions.is_empty() {
            self.0.push((topic, partitions));
        }
    }

    /// Gives those that were asked their answers, which come in the order of the request; then brings all into Kafka's
    /// order: what was refused stands first, among the topics and within each.
    pub(super) fn fill(&mut self, errors: Vec<ErrorCode>) {
        let mut errors = errors.into_iter();
        for (_, partitions) in &mut self.0 {
            for place in partitions.iter_mut() {
                if let Judged::Asked(index) = *place {
                    *place = Judged::Answered(index, errors.next().unwrap_or(ErrorCode::UnknownServerError));
                }
            }
            partitions.sort_by_key(|place| !place.is_refused());
        }
        self.0.sort_by_key(|(_, partitions)| !partitions.first().is_some_and(Judged::is_refused));
    }

    /// Writes the topics with index and code of each partition.
    pub(super) fn write<S: Sink>(&self, out: &mut Writer<'_, S>, by_id: bool) {
        out.count(Some(self.0.len()));
        for (topic, partitions) in &self.0 {
            topic.write(out, by_id);
            out.count(Some(partitions.len()));
            for place in partitions {
                let (index, error) = match *place {
                    Judged::Refused(index, error) | Judged::Answered(index, error) => (index, error),
                    Judged::Asked(index) => (index, ErrorCode::UnknownServerError),
                };
                out.i32(index);
                out.i16(error.code());
                out.no_tagged();
            }
            out.no_tagged();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Judged::{Answered, Asked, Refused};
    use kafka_protocol::protocol::StrBytes;

    #[test]
    fn what_was_refused_stands_first_and_the_rest_keeps_its_order() {
        let name = |name| TopicRef::Name(StrBytes::from_static_str(name));
        let gone = ErrorCode::UnknownTopicOrPartition;
        let mut topics = Topics::default();
        topics.push(name("a"), vec![Asked(1), Asked(0)]);
        topics.push(name("b"), vec![Asked(2), Refused(9, gone), Asked(3)]);
        topics.push(name("c"), vec![Refused(0, gone)]);
        topics.push(name("d"), Vec::new());
        let none = ErrorCode::None;
        let big = ErrorCode::OffsetMetadataTooLarge;
        topics.fill(vec![none, big, none, none]);
        let b = vec![Refused(9, gone), Answered(2, none), Answered(3, none)];
        let a = vec![Answered(1, none), Answered(0, big)];
        assert_eq!(topics.0, [(name("b"), b), (name("c"), vec![Refused(0, gone)]), (name("a"), a)]);
    }
}
