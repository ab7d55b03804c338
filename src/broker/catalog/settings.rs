//! Where the catalog asks the configuration: what values are allowed, and what a topic's settings come to.

use crate::config::{Config, Dynamic, Overrides, TopicSettings, topic};

use super::alter::Operation;

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
    if let Ok(settings) = topic::resolve(config, overrides) {
        return settings;
    }
    let mut accepted = Overrides::new();
    for (name, value) in overrides {
        accepted.insert(name.clone(), value.clone());
        if topic::resolve(config, &accepted).is_err() {
            accepted.remove(name);
        }
    }
    topic::resolve(config, &accepted).unwrap_or_else(|_| config.topic_defaults.clone())
}

/// Checks what is set on a topic, and returns it in canonical spelling.
///
/// # Errors
/// Kafka's sentence for INVALID_CONFIG.
pub fn check_topic(config: &Config, overrides: Overrides) -> Result<Overrides, String> {
    let canonical = overrides
        .into_iter()
        .map(|(name, value)| topic::validate(&name, &value).map(|value| (name, value)))
        .collect::<Result<Overrides, String>>()?;
    topic::resolve(config, &canonical)?;
    Ok(canonical)
}

/// The list that a topic config holds after an append or subtract.
///
/// # Errors
/// INVALID_CONFIG: it holds no list.
pub fn alter_topic_value(
    _config: &Config,
    name: &str,
    operation: Operation,
    _old: Option<&str>,
    _value: &str,
) -> Result<String, String> {
    let word = if operation == Operation::Append { "APPEND" } else { "SUBTRACT" };
    Err(format!("Can't {word} to key {name} because its type is not LIST."))
}

/// The list that a broker setting holds after an append or subtract.
///
/// # Errors
/// INVALID_CONFIG: it holds no list.
pub fn alter_broker_value(name: &str, operation: Operation, _old: Option<&str>, _value: &str) -> Result<String, String> {
    let word = if operation == Operation::Append { "append" } else { "subtract" };
    Err(format!("Config value {word} is not allowed for config key: {name}"))
}

/// Checks the settings in `touched` of the broker as they are in `dynamic`, and puts them into canonical spelling.
///
/// # Errors
/// Kafka's sentence for INVALID_REQUEST: cannot be changed while the broker runs, is not known, bad value, conflict.
pub fn check_broker<'a>(
    config: &Config,
    dynamic: &mut Dynamic,
    _for_all: bool,
    _touched: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    config.with_dynamic(dynamic.clone()).map(|_| ())
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
