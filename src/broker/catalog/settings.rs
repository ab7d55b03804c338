//! What a topic's settings come to, and those of the topics that the broker itself writes.

use crate::config::{Config, Overrides, TopicSettings, topic};

/// Partitions of the topics that the broker itself writes, as in Kafka.
const INTERNAL_PARTITIONS: i32 = 50;

/// Small segments of the broker's own topics, so that compaction has something to do. Source: Kafka's default.
const INTERNAL_SEGMENT_BYTES: &str = "104857600";

/// What a topic's settings come to.
///
/// Values were checked before they became a record. One that is no longer accepted (a later version, other broker
/// settings) is passed over, so that one value cannot keep the broker from starting.
#[must_use]
pub fn in_force(config: &Config, overrides: &Overrides) -> TopicSettings {
    topic::settle(config, overrides)
}

/// Partitions and settings of one of the broker's own topics that a client asks for before it is needed.
#[must_use]
pub fn internal_topic(name: &str) -> Option<(i32, Overrides)> {
    let compacted = || {
        Overrides::from([
            ("cleanup.policy".to_owned(), "compact".to_owned()),
            ("segment.bytes".to_owned(), INTERNAL_SEGMENT_BYTES.to_owned()),
        ])
    };
    matches!(name, "__consumer_offsets" | "__transaction_state").then(|| (INTERNAL_PARTITIONS, compacted()))
}
