//! Changing settings of topics and of the broker, one by one (IncrementalAlterConfigs).
//!
//! Source: apache/kafka `ConfigAdminManager.java`, `ConfigurationControlManager.java`; compared with Apache Kafka 4.4.0.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::command::{Draft, ItemResult, Outcome, Refusal};
use super::{CatalogRecord, Topic, names, settings};
use crate::config::Overrides;
use crate::wire::error_code::ErrorCode;

/// Resource type of a topic.
pub const TOPIC: i8 = 2;
/// Resource type of a broker; its name is the node id, or empty for all brokers.
pub const BROKER: i8 = 4;

/// What is to happen to one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Take this value.
    Set,
    /// Go back to the default.
    Delete,
    /// Add to a list.
    Append,
    /// Take out of a list.
    Subtract,
    /// A number that the protocol does not have.
    Unknown,
}

impl Operation {
    /// From its number on the wire.
    #[must_use]
    pub fn from_code(code: i8) -> Self {
        match code {
            0 => Self::Set,
            1 => Self::Delete,
            2 => Self::Append,
            3 => Self::Subtract,
            _ => Self::Unknown,
        }
    }
}

/// One setting of an [`Alteration`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Name.
    pub name: String,
    /// What is to happen.
    pub operation: Operation,
    /// With which value.
    pub value: Option<String>,
}

/// Changes to one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alteration {
    /// Type of the resource, as on the wire.
    pub resource_type: i8,
    /// Its name.
    pub resource_name: String,
    /// What is to change.
    pub changes: Vec<Change>,
}

/// Changes settings; one result per resource.
pub(super) fn alter(draft: &mut Draft, resources: &[Alteration]) -> Vec<ItemResult> {
    let mut times: HashMap<(i8, &str), usize> = HashMap::with_capacity(resources.len());
    for resource in resources {
        *times.entry((resource.resource_type, resource.resource_name.as_str())).or_insert(0) += 1;
    }
    let once = |resource: &Alteration| times[&(resource.resource_type, resource.resource_name.as_str())] == 1;
    resources.iter().map(|resource| alter_one(draft, resource, once(resource)).into()).collect()
}

fn alter_one(draft: &mut Draft, resource: &Alteration, once: bool) -> Result<Outcome, Refusal> {
    if !once {
        return Err(Refusal::new(ErrorCode::InvalidRequest, "Each resource must appear at most once."));
    }
    check_changes(&resource.changes)?;
    match resource.resource_type {
        TOPIC => alter_topic(draft, resource),
        BROKER => alter_broker(draft, resource),
        other => Err(Refusal::new(ErrorCode::InvalidRequest, format!("Unknown resource type {other}"))),
    }
}

fn check_changes(changes: &[Change]) -> Result<(), Refusal> {
    let mut seen = HashSet::with_capacity(changes.len());
    if !changes.iter().all(|change| seen.insert(change.name.as_str())) {
        return Err(Refusal::new(ErrorCode::InvalidRequest, "Error due to duplicate config keys"));
    }
    let lacks_value = |change: &&Change| change.value.is_none() && change.operation != Operation::Delete;
    let nulls: Vec<&str> = changes.iter().filter(lacks_value).map(|change| change.name.as_str()).collect();
    if nulls.is_empty() {
        return Ok(());
    }
    let message = format!("Null value not supported for : {}", nulls.join(", "));
    Err(Refusal::new(ErrorCode::InvalidRequest, message))
}

fn alter_topic(draft: &mut Draft, resource: &Alteration) -> Result<Outcome, Refusal> {
    let topic = existing_topic(draft, &resource.resource_name)?;
    let changed = changed(&topic.overrides, &resource.changes, |name, operation, old, value| {
        settings::alter_topic_value(draft.catalog.config(), name, operation, old, value)
    })?;
    let overrides = settings::check_topic(draft.catalog.config(), changed)
        .map_err(|message| Refusal::new(ErrorCode::InvalidConfig, message))?;
    if overrides != topic.overrides {
        draft.record(CatalogRecord::TopicConfigs { id: topic.id, overrides });
    }
    Ok(Outcome::Nothing)
}

fn existing_topic(draft: &Draft, name: &str) -> Result<Arc<Topic>, Refusal> {
    if name.is_empty() {
        return Err(Refusal::new(ErrorCode::InvalidRequest, "Default topic resources are not allowed."));
    }
    names::check(name).map_err(|why| Refusal::new(ErrorCode::InvalidTopicException, why))?;
    let missing = || Refusal::new(ErrorCode::UnknownTopicOrPartition, format!("The topic '{name}' does not exist."));
    draft.catalog.topic(name).cloned().ok_or_else(missing)
}

fn alter_broker(draft: &mut Draft, resource: &Alteration) -> Result<Outcome, Refusal> {
    let for_all = resource.resource_name.is_empty();
    if !for_all {
        check_node(draft.catalog.node_id(), &resource.resource_name)?;
    }
    let mut dynamic = draft.catalog.dynamic().clone();
    let values = if for_all { &mut dynamic.all } else { &mut dynamic.broker };
    *values = changed(values, &resource.changes, settings::alter_broker_value)?;
    let touched = resource.changes.iter().map(|change| change.name.as_str());
    settings::check_broker(draft.catalog.config(), &mut dynamic, for_all, touched)
        .map_err(|message| Refusal::new(ErrorCode::InvalidRequest, message))?;
    if dynamic != *draft.catalog.dynamic() {
        draft.record(CatalogRecord::BrokerConfigs { all: dynamic.all, broker: dynamic.broker });
    }
    Ok(Outcome::Nothing)
}

fn check_node(node_id: i32, name: &str) -> Result<(), Refusal> {
    let message = match name.parse::<i32>() {
        Ok(id) if id == node_id => return Ok(()),
        Ok(id) => format!("Unexpected broker id, expected {node_id}, but received {id}"),
        Err(_) => format!("Node id must be an integer, but it is: {name}"),
    };
    Err(Refusal::new(ErrorCode::InvalidRequest, message))
}

/// The overrides after the changes; values are not judged yet.
fn changed(
    old: &Overrides,
    changes: &[Change],
    list: impl Fn(&str, Operation, Option<&str>, &str) -> Result<String, String>,
) -> Result<Overrides, Refusal> {
    let mut new = old.clone();
    for change in changes {
        let value = change.value.as_deref().unwrap_or_default();
        match change.operation {
            Operation::Set => drop(new.insert(change.name.clone(), value.to_owned())),
            Operation::Delete => drop(new.remove(&change.name)),
            Operation::Append | Operation::Subtract => {
                let before = new.get(&change.name).map(String::as_str);
                let value = list(&change.name, change.operation, before, value)
                    .map_err(|message| Refusal::new(ErrorCode::InvalidConfig, message))?;
                new.insert(change.name.clone(), value);
            }
            Operation::Unknown => return Err(Refusal { error: ErrorCode::UnknownServerError, message: None }),
        }
    }
    Ok(new)
}
