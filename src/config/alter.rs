//! Changes of configs: those of IncrementalAlterConfigs and AlterConfigs, and the ones a new topic brings.
//!
//! Nothing is changed here: each function returns what the catalog has to keep.

use super::Config;
use super::names::{self, Name};
use super::origin::Dynamic;
use super::table::Setting;
use super::topic::{Overrides, resolve, topic_config, validate};
use super::value::{Kind, list};
use std::collections::BTreeSet;

/// What to do with one config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Give it this value.
    Set,
    /// Take the value away.
    Delete,
    /// Add these words to a list.
    Append,
    /// Take these words out of a list.
    Subtract,
}

impl Operation {
    /// Reads the number on the wire.
    #[must_use]
    pub const fn from_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Delete => "DELETE",
            Self::Append => "APPEND",
            Self::Subtract => "SUBTRACT",
        }
    }
}

/// One change of a request.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Name of the config.
    pub name: &'a str,
    /// What to do.
    pub operation: Operation,
    /// With what; absent for a deletion.
    pub value: Option<&'a str>,
}

/// Why configs cannot be changed so; the sentence is for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// → INVALID_CONFIG (40).
    InvalidConfig(String),
    /// → INVALID_REQUEST (42).
    InvalidRequest(String),
}

/// Which brokers a change is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them (resource name empty).
    AllBrokers,
    /// This one (resource name is its number).
    ThisBroker,
}

impl Scope {
    /// Reads the name of a broker resource in a request that changes configs.
    ///
    /// # Errors
    /// A sentence → INVALID_REQUEST: not a number, or another broker's.
    pub fn to_alter(resource: &str, node_id: i32) -> Result<Self, String> {
        match resource.parse::<i32>() {
            _ if resource.is_empty() => Ok(Self::AllBrokers),
            Ok(id) if id == node_id => Ok(Self::ThisBroker),
            Ok(id) => Err(format!("Unexpected broker id, expected {node_id}, but received {id}")),
            Err(_) => Err(format!("Node id must be an integer, but it is: {resource}")),
        }
    }

    /// Reads the name of a broker resource in a request that describes configs.
    ///
    /// # Errors
    /// A sentence → INVALID_REQUEST: not a number, or another broker's.
    pub fn to_describe(resource: &str, node_id: i32) -> Result<Self, String> {
        match resource.parse::<i32>() {
            _ if resource.is_empty() => Ok(Self::AllBrokers),
            Ok(id) if id == node_id => Ok(Self::ThisBroker),
            Ok(id) => Err(format!("Unexpected broker id, expected {node_id} or empty string, but received {id}")),
            Err(_) => Err(format!("Broker id must be an integer, but it is: {resource}")),
        }
    }
}

/// What a new topic sets itself, checked.
///
/// # Errors
/// `InvalidConfig` with Kafka's sentence: a name, a value, or values that contradict each other.
pub fn new_topic<'a>(
    config: &Config,
    given: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Overrides, Refusal> {
    let mut overrides = Overrides::new();
    let mut without_value = Vec::new();
    for (name, value) in given {
        match value {
            Some(value) => drop(overrides.insert(name.to_owned(), value.to_owned())),
            None => without_value.push(name),
        }
    }
    if !without_value.is_empty() {
        let names = without_value.join(",");
        return Err(Refusal::InvalidConfig(format!("Null value not supported for topic configs: {names}")));
    }
    checked_overrides(config, overrides)
}

/// What a topic sets itself after these changes.
///
/// # Errors
/// Kafka's sentences; the topic stays as it is.
pub fn alter_topic(config: &Config, before: &Overrides, changes: &[Change<'_>]) -> Result<Overrides, Refusal> {
    well_formed(changes)?;
    let mut after = before.clone();
    for change in changes {
        let row = topic_config(change.name);
        let is_list = row.is_some_and(|row| row.domain.kind == Kind::List);
        if matches!(change.operation, Operation::Append | Operation::Subtract) && !is_list {
            let (operation, name) = (change.operation.name(), change.name);
            return Err(Refusal::InvalidConfig(format!(
                "Can't {operation} to key {name} because its type is not LIST."
            )));
        }
        let current = after.get(change.name).cloned();
        let current = current.or_else(|| row.map(|row| row.inherited(config.values()))).unwrap_or_default();
        match apply(change, &current) {
            Some(value) => after.insert(change.name.to_owned(), value),
            None => after.remove(change.name),
        };
    }
    checked_overrides(config, after)
}

/// Every change to the broker after these ones too; `before` are those that stay.
///
/// # Errors
/// Kafka's sentences; the broker stays as it is. A setting that corelane does not serve is refused, where Kafka would
/// keep it for whoever may read it.
pub fn alter_broker(
    config: &Config,
    before: &Dynamic,
    scope: Scope,
    changes: &[Change<'_>],
) -> Result<Dynamic, Refusal> {
    well_formed(changes)?;
    let mut dynamic = before.clone();
    // A list that this layer does not have is appended to as the layer below has it.
    let inherited = |row: &Setting| match scope {
        Scope::ThisBroker => {
            before.all.get(row.name).map(String::as_str).or_else(|| config.values().fixed_text(row.name))
        }
        Scope::AllBrokers => config.values().fixed_text(row.name),
    };
    let layer = dynamic.layer_mut(scope);
    for change in changes {
        if change.operation == Operation::Delete {
            layer.remove(change.name);
            continue;
        }
        let row = alterable(change)?;
        let current = layer.get(row.name).map(String::as_str).or_else(|| inherited(row)).unwrap_or_default().to_owned();
        let value = apply(change, &current).unwrap_or_default();
        let value = row.domain.canonical(&value).map_err(|why| {
            Refusal::InvalidRequest(format!("Invalid value {} for configuration {}: {why}", value.trim(), row.name))
        })?;
        layer.insert(row.name.to_owned(), value);
    }
    config.with_dynamic(dynamic.clone()).map_err(Refusal::InvalidRequest)?;
    Ok(dynamic)
}

/// No name twice, and a value wherever one is needed.
fn well_formed(changes: &[Change<'_>]) -> Result<(), Refusal> {
    let names: BTreeSet<&str> = changes.iter().map(|change| change.name).collect();
    if names.len() < changes.len() {
        return Err(Refusal::InvalidRequest("Error due to duplicate config keys".to_owned()));
    }
    let lacks = |change: &&Change<'_>| change.operation != Operation::Delete && change.value.is_none();
    let lacking: Vec<&str> = changes.iter().filter(lacks).map(|change| change.name).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Refusal::InvalidRequest(format!("Null value not supported for : {}", lacking.join(","))))
}

/// The row of a broker setting that may be changed so while the broker runs.
fn alterable(change: &Change<'_>) -> Result<&'static Setting, Refusal> {
    let name = change.name;
    let row = match names::look_up(name) {
        Name::Served(row) => row,
        Name::KafkaOnly => {
            return Err(Refusal::InvalidConfig(format!(
                "{name} is a setting of Apache Kafka that corelane does not serve"
            )));
        }
        Name::Unknown => return Err(Refusal::InvalidConfig(format!("{name} is not a setting; {}", names::hint(name)))),
    };
    if change.operation != Operation::Set && row.domain.kind != Kind::List {
        let operation = change.operation.name().to_ascii_lowercase();
        return Err(Refusal::InvalidConfig(format!("Config value {operation} is not allowed for config key: {name}")));
    }
    if !row.dynamic {
        return Err(Refusal::InvalidRequest(format!("Cannot update these configs dynamically: [{name}]")));
    }
    Ok(row)
}

/// The value after a change; none after a deletion.
fn apply(change: &Change<'_>, current: &str) -> Option<String> {
    let value = change.value.unwrap_or_default();
    match change.operation {
        Operation::Set => Some(value.to_owned()),
        Operation::Delete => None,
        Operation::Append => {
            let mut words: Vec<&str> = list(current).collect();
            for word in list(value) {
                if !words.contains(&word) {
                    words.push(word);
                }
            }
            Some(words.join(","))
        }
        Operation::Subtract => {
            let taken: Vec<&str> = list(value).collect();
            Some(list(current).filter(|word| !taken.contains(word)).collect::<Vec<_>>().join(","))
        }
    }
}

/// The same overrides in canonical spelling, if they can be served together.
fn checked_overrides(config: &Config, overrides: Overrides) -> Result<Overrides, Refusal> {
    let canonical = overrides.into_iter().map(|(name, value)| validate(&name, &value).map(|value| (name, value)));
    let canonical: Overrides = canonical.collect::<Result<_, _>>().map_err(Refusal::InvalidConfig)?;
    resolve(config, &canonical).map_err(Refusal::InvalidConfig)?;
    Ok(canonical)
}

#[cfg(test)]
mod tests {
    use super::Operation::{Append, Delete, Set, Subtract};
    use super::*;

    fn change<'a>(name: &'a str, operation: Operation, value: &'a str) -> Change<'a> {
        Change { name, operation, value: (operation != Delete).then_some(value) }
    }

    fn topic(before: &Overrides, name: &str, operation: Operation, value: &str) -> Result<Overrides, Refusal> {
        alter_topic(&Config::defaults(), before, &[change(name, operation, value)])
    }

    fn broker(
        config: &Config,
        scope: Scope,
        name: &str,
        operation: Operation,
        value: &str,
    ) -> Result<Dynamic, Refusal> {
        alter_broker(config, config.dynamic(), scope, &[change(name, operation, value)])
    }

    fn invalid_config<T>(sentence: &str) -> Result<T, Refusal> {
        Err(Refusal::InvalidConfig(sentence.to_owned()))
    }

    fn invalid_request<T>(sentence: &str) -> Result<T, Refusal> {
        Err(Refusal::InvalidRequest(sentence.to_owned()))
    }

    #[test]
    fn lists_grow_and_shrink_from_what_counts_now() {
        let mut overrides = Overrides::new();
        let steps = [
            (Append, "compact", "delete,compact"),
            (Append, "compact", "delete,compact"),
            (Subtract, "delete", "compact"),
            (Subtract, "compact", ""),
        ];
        for (operation, value, expected) in steps {
            overrides = topic(&overrides, "cleanup.policy", operation, value).unwrap();
            assert_eq!(overrides["cleanup.policy"], expected);
        }
        assert!(topic(&overrides, "cleanup.policy", Delete, "").unwrap().is_empty());
        assert!(topic(&Overrides::new(), "nosuch", Delete, "").unwrap().is_empty());
    }

    #[test]
    fn topics_refuse_in_kafkas_words() {
        let none = Overrides::new();
        assert_eq!(topic(&none, "nosuch", Set, "x"), invalid_config("Unknown topic config name: nosuch"));
        assert_eq!(
            topic(&none, "retention.ms", Append, "1"),
            invalid_config("Can't APPEND to key retention.ms because its type is not LIST.")
        );
        let twice = [change("retention.ms", Set, "1"), change("retention.ms", Set, "2")];
        assert_eq!(
            alter_topic(&Config::defaults(), &none, &twice),
            invalid_request("Error due to duplicate config keys")
        );
        let absent = [Change { name: "retention.ms", operation: Set, value: None }];
        assert_eq!(
            alter_topic(&Config::defaults(), &none, &absent),
            invalid_request("Null value not supported for : retention.ms")
        );
        assert_eq!(
            new_topic(&Config::defaults(), [("retention.ms", None)]),
            invalid_config("Null value not supported for topic configs: retention.ms")
        );
        assert_eq!(topic(&none, "retention.ms", Set, " +77 ").unwrap()["retention.ms"], "77");
    }

    #[test]
    fn brokers_refuse_in_kafkas_words() {
        let config = Config::defaults();
        let refused = |name, operation, value| broker(&config, Scope::ThisBroker, name, operation, value);
        assert_eq!(
            refused("num.partitions", Set, "3"),
            invalid_request("Cannot update these configs dynamically: [num.partitions]")
        );
        assert_eq!(
            refused("message.max.bytes", Set, "x"),
            invalid_request("Invalid value x for configuration message.max.bytes: Not a number of type INT")
        );
        assert_eq!(
            refused("num.partitions", Append, "1"),
            invalid_config("Config value append is not allowed for config key: num.partitions")
        );
        assert_eq!(
            refused("num.io.threads", Set, "1"),
            invalid_config("num.io.threads is a setting of Apache Kafka that corelane does not serve")
        );
        assert!(matches!(refused("nosuch", Set, "1"), Err(Refusal::InvalidConfig(_))));
        assert_eq!(refused("num.partitions", Delete, ""), Ok(Dynamic::default()));
    }

    #[test]
    fn a_change_reaches_topics_and_this_broker_wins() {
        let mut config = Config::defaults();
        for (scope, value) in [(Scope::AllBrokers, "2000000"), (Scope::ThisBroker, "3000000")] {
            let dynamic = broker(&config, scope, "message.max.bytes", Set, value).unwrap();
            config = config.with_dynamic(dynamic).unwrap();
            assert_eq!(config.topic_defaults.max_message_bytes.to_string(), value);
        }
        let dynamic = broker(&config, Scope::ThisBroker, "message.max.bytes", Delete, "").unwrap();
        assert_eq!(config.with_dynamic(dynamic).unwrap().topic_defaults.max_message_bytes, 2_000_000);
    }

    #[test]
    fn a_brokers_list_grows_from_what_all_brokers_have() {
        let mut config = Config::defaults();
        for (scope, word, expected) in
            [(Scope::AllBrokers, "compact", "delete,compact"), (Scope::ThisBroker, "delete", "delete,compact")]
        {
            let dynamic = broker(&config, scope, "log.cleanup.policy", Append, word).unwrap();
            config = config.with_dynamic(dynamic).unwrap();
            let layer = if scope == Scope::AllBrokers { &config.dynamic().all } else { &config.dynamic().broker };
            assert_eq!(layer["log.cleanup.policy"], expected);
        }
    }

    #[test]
    fn resources_name_this_broker_or_all() {
        assert_eq!(Scope::to_alter("", 1), Ok(Scope::AllBrokers));
        assert_eq!(Scope::to_describe("1", 1), Ok(Scope::ThisBroker));
        assert_eq!(Scope::to_alter("2", 1).unwrap_err(), "Unexpected broker id, expected 1, but received 2");
        assert_eq!(Scope::to_describe("x", 1).unwrap_err(), "Broker id must be an integer, but it is: x");
    }
}
