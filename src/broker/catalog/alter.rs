//! Changing settings of topics and of the broker: one by one (IncrementalAlterConfigs) or all at once (AlterConfigs).
//!
//! Source: apache/kafka `ConfigAdminManager.java`, `ConfigurationControlManager.java`; compared with Apache Kafka 4.4.0.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::command::{Draft, ItemResult, Outcome, Refusal};
use super::{CatalogRecord, Topic, names};
use crate::config::{self, Operation, Overrides};
use crate::wire::error_code::ErrorCode;

/// Resources that one request may change; as many as records in one request of Kafka.
const RESOURCES_MAX: usize = 10_000;

/// Resource type of a topic.
pub const TOPIC: i8 = 2;
/// Resource type of a broker; its name is the node id, or empty for all brokers.
pub const BROKER: i8 = 4;
/// Resource type of a broker's log levels.
pub const LOGGER: i8 = 8;
/// Resource type of what clients report.
pub const CLIENT_METRICS: i8 = 16;
/// Resource type of a consumer group.
pub const GROUP: i8 = 32;

/// One setting of an [`Alteration`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Name.
    pub name: String,
    /// What is to happen; none for a number that the protocol does not have.
    pub operation: Option<Operation>,
    /// With which value.
    pub value: Option<String>,
}

/// Changes to one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alteration {
    /// Type of the resource, as on the wire.
    pub resource_type: i8,
    /// Its name.
    pub resource_name: Arc<str>,
    /// What is to change.
    pub changes: Vec<Change>,
}

/// What happens to settings of a resource that its changes do not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// They stay (IncrementalAlterConfigs).
    Stay,
    /// They go: the changes are all that the resource sets (AlterConfigs).
    Go,
}

/// Changes settings; one result per resource.
pub(super) fn alter(draft: &mut Draft, resources: &[Alteration], unnamed: Unnamed) -> Vec<ItemResult> {
    let mut times: HashMap<(i8, &str), usize> = HashMap::with_capacity(resources.len());
    for resource in resources {
        *times.entry((resource.resource_type, &*resource.resource_name)).or_insert(0) += 1;
    }
    if times.len() > RESOURCES_MAX {
        let message = "Unable to perform excessively large batch operation.";
        return resources.iter().map(|_| Refusal::new(ErrorCode::PolicyViolation, message).into()).collect();
    }
    let once = |resource: &Alteration| times[&(resource.resource_type, &*resource.resource_name)] == 1;
    let alter = |resource: &Alteration| {
        if !once(resource) {
            return Err(Refusal::new(ErrorCode::InvalidRequest, "Each resource must appear at most once."));
        }
        alter_one(draft, resource, unnamed)
    };
    resources.iter().map(alter).map(ItemResult::from).collect()
}

fn alter_one(draft: &mut Draft, resource: &Alteration, unnamed: Unnamed) -> Result<Outcome, Refusal> {
    check_changes(&resource.changes)?;
    match resource.resource_type {
        TOPIC => alter_topic(draft, resource, unnamed),
        BROKER => alter_broker(draft, resource, unnamed),
        other => Err(Refusal::new(ErrorCode::InvalidRequest, unknown_type(other))),
    }
}

/// Why settings of a resource type are not served.
#[must_use]
pub fn unknown_type(resource_type: i8) -> String {
    match resource_type {
        LOGGER => "Levels of loggers (BROKER_LOGGER) are not served by this broker; its setting corelane.log says what is logged".to_owned(),
        CLIENT_METRICS => "Client metrics (CLIENT_METRICS) are not served by this broker".to_owned(),
        GROUP => "Settings of groups (GROUP) are not served by this broker".to_owned(),
        other => format!("Unknown resource type {other}"),
    }
}

fn check_changes(changes: &[Change]) -> Result<(), Refusal> {
    let mut seen = HashSet::with_capacity(changes.len());
    if !changes.iter().all(|change| seen.insert(change.name.as_str())) {
        return Err(Refusal::new(ErrorCode::InvalidRequest, "Error due to duplicate config keys"));
    }
    let lacks_value = |change: &&Change| change.value.is_none() && change.operation != Some(Operation::Delete);
    let nulls: Vec<&str> = changes.iter().filter(lacks_value).map(|change| change.name.as_str()).collect();
    if nulls.is_empty() {
        return Ok(());
    }
    let message = format!("Null value not supported for : {}", nulls.join(", "));
    Err(Refusal::new(ErrorCode::InvalidRequest, message))
}

fn alter_topic(draft: &mut Draft, resource: &Alteration, unnamed: Unnamed) -> Result<Outcome, Refusal> {
    let topic = existing_topic(draft, &resource.resource_name)?;
    let changes = known(&resource.changes)?;
    let none = Overrides::new();
    let before = if unnamed == Unnamed::Go { &none } else { &topic.overrides };
    let overrides = config::alter_topic(draft.catalog.config(), before, &changes)?;
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

fn alter_broker(draft: &mut Draft, resource: &Alteration, unnamed: Unnamed) -> Result<Outcome, Refusal> {
    let scope = config::Scope::to_alter(&resource.resource_name, draft.catalog.node_id())
        .map_err(|message| Refusal::new(ErrorCode::InvalidRequest, message))?;
    let changes = known(&resource.changes)?;
    let mut before = draft.catalog.dynamic().clone();
    if unnamed == Unnamed::Go {
        before.layer_mut(scope).clear();
    }
    let dynamic = config::alter_broker(draft.catalog.config(), &before, scope, &changes)?;
    if dynamic != *draft.catalog.dynamic() {
        draft.record(CatalogRecord::BrokerConfigs { all: dynamic.all, broker: dynamic.broker });
    }
    Ok(Outcome::Nothing)
}

/// The changes as the configuration reads them; Kafka has no sentence for an operation that does not exist.
fn known(changes: &[Change]) -> Result<Vec<config::Change<'_>>, Refusal> {
    let unknown = Refusal { error: ErrorCode::UnknownServerError, message: None };
    changes.iter().map(read).collect::<Option<Vec<_>>>().ok_or(unknown)
}

fn read(change: &Change) -> Option<config::Change<'_>> {
    Some(config::Change { name: &change.name, operation: change.operation?, value: change.value.as_deref() })
}
