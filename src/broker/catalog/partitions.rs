//! Giving topics more partitions.
//!
//! Source: apache/kafka `ReplicationControlManager.createPartitions`; compared with Apache Kafka 4.4.0.

use std::collections::HashMap;
use std::sync::Arc;

use super::command::{Draft, ItemResult, Outcome, Refusal};
use super::create::{PER_REQUEST_MAX, check_brokers, check_total};
use super::{Catalog, CatalogRecord, Topic};
use crate::wire::error_code::ErrorCode;

/// A topic that is to have more partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MorePartitions {
    /// Name.
    pub name: Arc<str>,
    /// Number of partitions afterwards.
    pub count: i32,
    /// The brokers of each new partition, if they are given by hand.
    pub assignments: Option<Vec<Vec<i32>>>,
}

/// Adds partitions; one result per item.
pub(super) fn add(draft: &mut Draft, items: &[MorePartitions]) -> Vec<ItemResult> {
    let mut counts: HashMap<&str, usize> = HashMap::with_capacity(items.len());
    for item in items {
        *counts.entry(&*item.name).or_insert(0) += 1;
    }
    if additional(&draft.catalog, items) > PER_REQUEST_MAX {
        let message = "Excessively large number of additional partitions per request.";
        return items.iter().map(|_| Refusal::new(ErrorCode::PolicyViolation, message).into()).collect();
    }
    items.iter().map(|item| add_one(draft, item, counts[&*item.name]).into()).collect()
}

fn additional(catalog: &Catalog, items: &[MorePartitions]) -> usize {
    let more = |item: &MorePartitions| {
        let now = catalog.topic(&item.name).map_or(0, |topic| topic.partitions.len());
        usize::try_from(item.count).unwrap_or(0).saturating_sub(now)
    };
    items.iter().filter(|item| catalog.topic(&item.name).is_some()).map(more).fold(0, usize::saturating_add)
}

fn add_one(draft: &mut Draft, item: &MorePartitions, times_in_request: usize) -> Result<Outcome, Refusal> {
    if times_in_request > 1 {
        return Err(Refusal::new(ErrorCode::InvalidRequest, "Duplicate topic name."));
    }
    let Some(topic) = draft.catalog.topic(&item.name).cloned() else {
        return Err(Refusal { error: ErrorCode::UnknownTopicOrPartition, message: None });
    };
    if topic.internal {
        return Err(keeps_its_partitions(&topic.name));
    }
    let more = check(draft.catalog.node_id(), &topic, item)?;
    check_total(&draft.catalog, more)?;
    draft.record(CatalogRecord::PartitionsAdded { id: topic.id, logs: draft.log_ids(more) });
    Ok(Outcome::Nothing)
}

/// What is kept for a group or a transaction is found by a hash over the number of partitions: with another number it
/// would be out of sight. Kafka allows it, and loses sight of them at its next start.
fn keeps_its_partitions(name: &str) -> Refusal {
    let message = format!(
        "The topic {name} keeps the number of partitions that it was made with: with another one, the groups and \
         transactions in it could not be found again."
    );
    Refusal::new(ErrorCode::InvalidRequest, message)
}

fn check(node_id: i32, topic: &Topic, item: &MorePartitions) -> Result<usize, Refusal> {
    let now = topic.partition_count();
    if item.count == now {
        let message = format!("Topic already has {now} partition(s).");
        return Err(Refusal::new(ErrorCode::InvalidPartitions, message));
    }
    if item.count < now {
        let message = format!(
            "The topic {} currently has {now} partition(s); {} would not be an increase.",
            topic.name, item.count
        );
        return Err(Refusal::new(ErrorCode::InvalidPartitions, message));
    }
    let more = usize::try_from(item.count - now).unwrap_or(0);
    let Some(assignments) = &item.assignments else { return Ok(more) };
    if assignments.len() != more {
        let message = format!(
            "Attempted to add {more} additional partition(s), but only {} assignment(s) were specified.",
            assignments.len()
        );
        return Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message));
    }
    assignments.iter().try_for_each(|brokers| check_brokers(node_id, brokers))?;
    Ok(more)
}
