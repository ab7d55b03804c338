//! Making topics: checks in Kafka's order, with Kafka's sentences.
//!
//! One deliberate difference: two new topics of one request whose names collide ('.' against '_') are not both made;
//! Kafka looks only at the topics that exist already.
//!
//! Source: apache/kafka `ReplicationControlManager.createTopics`; the answers were compared with Apache Kafka 4.4.0.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::command::{Draft, ItemResult, Outcome, Refusal};
use super::{Catalog, CatalogRecord, PARTITIONS_MAX, Topic, names, settings};
use crate::config::{self, Config, Overrides};
use crate::ids::TopicId;
use crate::wire::error_code::ErrorCode;

/// Partitions that one request may make, and records that it may need (a topic, a partition and a setting are one each).
pub const PER_REQUEST_MAX: usize = 10_000;

/// A topic that somebody wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Name.
    pub name: Arc<str>,
    /// Number of partitions; -1 for the broker's default.
    pub partitions: i32,
    /// Number of replicas; -1 for the broker's default.
    pub replication_factor: i16,
    /// Partition → its brokers, if they are given by hand.
    pub assignments: Vec<(i32, Vec<i32>)>,
    /// Settings.
    pub configs: Vec<(String, Option<String>)>,
}

/// Makes topics; one result per item. More topics than partitions are allowed need no look at each.
pub(super) fn create(draft: &mut Draft, topics: &[NewTopic], mut new_id: impl FnMut() -> TopicId) -> Vec<ItemResult> {
    let counts = count_names(topics);
    if counts.len() > PER_REQUEST_MAX {
        return topics.iter().map(|_| too_many_partitions().into()).collect();
    }
    let checked: Vec<Result<Plan, Refusal>> =
        topics.iter().map(|topic| check(&draft.catalog, topic, counts[&*topic.name])).collect();
    if let Err(refusal) = check_request_size(&checked) {
        return checked.into_iter().map(|plan| plan.map_or_else(|own| own, |_| refusal.clone()).into()).collect();
    }
    checked
        .into_iter()
        .map(|plan| plan.and_then(|plan| make(draft, plan, &mut new_id)).map(Outcome::Topic).into())
        .collect()
}

/// Makes the missing ones of `names` with the broker's defaults; the outcome is the topic, new or old.
pub(super) fn ensure(draft: &mut Draft, names: &[String], mut new_id: impl FnMut() -> TopicId) -> Vec<ItemResult> {
    names.iter().map(|name| ensure_one(draft, name, &mut new_id).map(Outcome::Topic).into()).collect()
}

fn ensure_one(draft: &mut Draft, name: &str, new_id: &mut impl FnMut() -> TopicId) -> Result<Arc<Topic>, Refusal> {
    if let Some(topic) = draft.catalog.topic(name) {
        return Ok(Arc::clone(topic));
    }
    let plan = check(&draft.catalog, &default_topic(draft.catalog.config(), name), 1)?;
    make(draft, plan, new_id)
}

/// What is made when a client asks for a topic that is not there: the broker's own topics get their own form.
fn default_topic(config: &Config, name: &str) -> NewTopic {
    let (partitions, configs) = match settings::internal_topic(config, name) {
        Some((partitions, configs)) => (partitions, configs.into_iter().map(|(k, v)| (k, Some(v))).collect()),
        None => (-1, Vec::new()),
    };
    // One replica, whatever `default.replication.factor` says: groups must be able to begin.
    let replication_factor = if names::is_internal(name) { 1 } else { -1 };
    NewTopic { name: Arc::from(name), partitions, replication_factor, assignments: Vec::new(), configs }
}

/// A topic that may be made.
struct Plan {
    name: Arc<str>,
    partitions: usize,
    overrides: Overrides,
}

fn count_names(topics: &[NewTopic]) -> HashMap<&str, usize> {
    let mut counts = HashMap::with_capacity(topics.len());
    for topic in topics {
        *counts.entry(&*topic.name).or_insert(0) += 1;
    }
    counts
}

fn check(catalog: &Catalog, topic: &NewTopic, times_in_request: usize) -> Result<Plan, Refusal> {
    if times_in_request > 1 {
        return Err(Refusal::new(ErrorCode::InvalidRequest, "Duplicate topic name."));
    }
    check_name(catalog, &topic.name)?;
    let overrides = check_configs(catalog, &topic.configs)?;
    let partitions = check_partitions(catalog, topic)?;
    Ok(Plan { name: Arc::clone(&topic.name), partitions, overrides })
}

fn check_name(catalog: &Catalog, name: &str) -> Result<(), Refusal> {
    if name == names::CLUSTER_METADATA {
        let message = format!("Creation of internal topic {name} is prohibited.");
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    names::check(name).map_err(|why| Refusal::new(ErrorCode::InvalidTopicException, why))?;
    if catalog.topic(name).is_some() {
        return Err(Refusal::new(ErrorCode::TopicAlreadyExists, format!("Topic '{name}' already exists.")));
    }
    check_collision(catalog, name)
}

fn check_collision(catalog: &Catalog, name: &str) -> Result<(), Refusal> {
    match catalog.colliding(name) {
        None => Ok(()),
        Some(existing) => {
            let message = format!("Topic '{name}' collides with existing topic: {existing}");
            Err(Refusal::new(ErrorCode::InvalidTopicException, message))
        }
    }
}

fn check_configs(catalog: &Catalog, configs: &[(String, Option<String>)]) -> Result<Overrides, Refusal> {
    let given = configs.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
    Ok(config::new_topic(catalog.config(), given)?)
}

fn check_partitions(catalog: &Catalog, topic: &NewTopic) -> Result<usize, Refusal> {
    if !topic.assignments.is_empty() {
        return check_assignments(catalog.node_id(), topic);
    }
    if topic.replication_factor < -1 || topic.replication_factor == 0 {
        let message = "Replication factor must be larger than 0, or -1 to use the default value.";
        return Err(Refusal::new(ErrorCode::InvalidReplicationFactor, message));
    }
    if topic.partitions < -1 || topic.partitions == 0 {
        let message = "Number of partitions was set to an invalid non-positive value.";
        return Err(Refusal::new(ErrorCode::InvalidPartitions, message));
    }
    let replicas = match topic.replication_factor {
        -1 => catalog.config().default_replication_factor,
        asked => i32::from(asked),
    };
    if replicas > 1 {
        return Err(too_many_replicas(replicas));
    }
    let asked = if topic.partitions == -1 { catalog.config().num_partitions } else { topic.partitions };
    Ok(usize::try_from(asked).unwrap_or(1))
}

fn too_many_replicas(asked: i32) -> Refusal {
    let message = format!(
        "Unable to replicate the partition {asked} time(s): The target replication factor of {asked} cannot be reached \
         because only 1 broker(s) are registered or some brokers have all their log directories cordoned."
    );
    Refusal::new(ErrorCode::InvalidReplicationFactor, message)
}

fn check_assignments(node_id: i32, topic: &NewTopic) -> Result<usize, Refusal> {
    if topic.replication_factor != -1 {
        let message = "A manual partition assignment was specified, but replication factor was not set to -1.";
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    if topic.partitions != -1 {
        let message = "A manual partition assignment was specified, but numPartitions was not set to -1.";
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    let mut seen = HashSet::with_capacity(topic.assignments.len());
    for (partition, brokers) in &topic.assignments {
        if !seen.insert(*partition) {
            let message = format!("Found multiple manual partition assignments for partition {partition}");
            return Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message));
        }
        check_brokers(node_id, brokers)?;
    }
    let count = topic.assignments.len();
    if seen.iter().all(|partition| usize::try_from(*partition).is_ok_and(|index| index < count)) {
        return Ok(count);
    }
    let message = "partitions should be a consecutive 0-based integer sequence";
    Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message))
}

/// Checks the brokers given by hand for one partition.
pub(super) fn check_brokers(node_id: i32, brokers: &[i32]) -> Result<(), Refusal> {
    let message = match brokers {
        [only] if *only == node_id => return Ok(()),
        [] => "The manual partition assignment includes an empty replica list.".to_owned(),
        _ => match brokers.iter().find(|broker| **broker != node_id) {
            Some(stranger) => {
                format!("The manual partition assignment includes broker {stranger}, but no such broker is registered.")
            }
            None => format!("The manual partition assignment includes the broker {node_id} more than once."),
        },
    };
    Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message))
}

/// Kafka takes at most 10,000 partitions, and 10,000 records, per request; a request beyond it is refused as a whole.
fn check_request_size(checked: &[Result<Plan, Refusal>]) -> Result<(), Refusal> {
    let plans = || checked.iter().flatten();
    let partitions: usize = plans().map(|plan| plan.partitions).sum();
    if partitions > PER_REQUEST_MAX {
        return Err(too_many_partitions());
    }
    let records: usize = plans().map(|plan| 1 + plan.overrides.len() + plan.partitions).sum();
    if records > PER_REQUEST_MAX {
        return Err(Refusal::new(ErrorCode::PolicyViolation, "Unable to perform excessively large batch operation."));
    }
    Ok(())
}

fn too_many_partitions() -> Refusal {
    Refusal::new(ErrorCode::PolicyViolation, "Excessively large number of partitions per request.")
}

fn make(draft: &mut Draft, plan: Plan, new_id: &mut impl FnMut() -> TopicId) -> Result<Arc<Topic>, Refusal> {
    check_collision(&draft.catalog, &plan.name)?;
    check_total(&draft.catalog, plan.partitions)?;
    let id = unused_id(&draft.catalog, new_id);
    draft.record(CatalogRecord::TopicMade {
        internal: names::is_internal(&plan.name),
        logs: draft.log_ids(plan.partitions),
        name: plan.name.to_string(),
        id,
        overrides: plan.overrides,
    });
    match draft.catalog.topic_by_id(id) {
        Some(topic) => Ok(Arc::clone(topic)),
        None => unreachable!("the topic {id} was applied just now"),
    }
}

/// Refuses what would go beyond the number of partitions that one broker may have.
pub(super) fn check_total(catalog: &Catalog, more: usize) -> Result<(), Refusal> {
    if catalog.partition_count() + more <= PARTITIONS_MAX {
        return Ok(());
    }
    let message = format!("This broker holds at most {PARTITIONS_MAX} partitions; delete topics first.");
    Err(Refusal::new(ErrorCode::PolicyViolation, message))
}

/// An id that is free, and not one of those with a meaning of their own (0: none, 1: Kafka's metadata log).
fn unused_id(catalog: &Catalog, new_id: &mut impl FnMut() -> TopicId) -> TopicId {
    loop {
        let id = new_id();
        let reserved = id.0[..15] == [0; 15] && id.0[15] <= 1;
        if !reserved && catalog.topic_by_id(id).is_none() {
            return id;
        }
    }
}
