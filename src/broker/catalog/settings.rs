//! What a topic's settings come to, and those of the topics that the broker itself writes.

use super::names;
use crate::config::{Config, Durability, Overrides, TopicSettings, topic};

/// The topic of consumer groups: who is in them, how far they have read.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The topic of transactional ids: whose they are, how far their transactions have got.
pub const TRANSACTIONS_TOPIC: &str = "__transaction_state";

/// What a topic's settings come to.
///
/// Values were checked before they became a record. One that is no longer accepted (a later version, other broker
/// settings) is passed over, so that one value cannot keep the broker from starting. What the broker itself writes is
/// always on disk when it is answered, whatever topic and broker say.
#[must_use]
pub fn in_force(config: &Config, name: &str, overrides: &Overrides) -> TopicSettings {
    let settings = topic::settle(config, overrides);
    if names::is_internal(name) { TopicSettings { durability: Durability::Disk, ..settings } } else { settings }
}

/// Partitions and settings of one of the broker's own topics, for when it is needed or a client asks for it.
#[must_use]
pub fn internal_topic(config: &Config, name: &str) -> Option<(i32, Overrides)> {
    let (partitions, segment_bytes) = match name {
        OFFSETS_TOPIC => (config.groups.topic_partitions, config.groups.topic_segment_bytes),
        TRANSACTIONS_TOPIC => (config.transactions.topic_partitions, config.transactions.topic_segment_bytes),
        _ => return None,
    };
    let compacted = [
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "producer".to_owned()),
        ("corelane.durability", "disk".to_owned()),
        ("segment.bytes", segment_bytes.to_string()),
    ];
    Some((partitions, compacted.map(|(name, value)| (name.to_owned(), value)).into()))
}
