//! The catalog: topics, configurations, ids. One immutable snapshot, the same on every shard.
//!
//! A change is *decided* on the current snapshot ([`decide`]), its records are made durable, and the decision's `next`
//! snapshot becomes visible: durable before visible. [`Catalog::apply`] is the only place where a catalog changes, live
//! and on replay alike, so a restart cannot differ. Pure: no I/O, no clock; randomness comes in as topic ids.

pub mod alter;
pub mod command;
pub mod create;
pub mod delete;
pub mod names;
pub mod partitions;
pub mod record;
pub mod settings;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::config::{Config, Dynamic, Overrides, TopicSettings};
use crate::ids::{LogId, ProducerId, TopicId, TopicPartition};

pub use command::{Command, Decision, ItemResult, Outcome, decide};
pub use record::{CatalogRecord, RecordError};

/// Partitions that one broker may have in total; each costs files and memory.
pub const PARTITIONS_MAX: usize = 1_000_000;

/// One topic and one life of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Topic {
    /// Name.
    pub name: Arc<str>,
    /// Id; another one after deletion and creation under the same name.
    pub id: TopicId,
    /// True for the topics that the broker itself writes.
    pub internal: bool,
    /// Log of each partition; the index is the partition.
    pub partitions: Vec<LogId>,
    /// What was set on this topic.
    pub overrides: Overrides,
    /// What is in force: overrides, the broker's dynamic settings, its static ones, defaults.
    pub settings: TopicSettings,
}

impl Topic {
    /// The log of a partition, if the topic has it.
    #[must_use]
    pub fn log_id(&self, partition: i32) -> Option<LogId> {
        self.partitions.get(usize::try_from(partition).ok()?).copied()
    }

    /// Number of partitions as it goes on the wire.
    #[must_use]
    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }
}

/// A snapshot of all shared facts.
///
/// Shapes: `by_name` and `by_id` hold the same topics; `collisions` holds the names that contain '.' or '_', by their
/// spelling with '_' only, because metric names cannot tell the two apart.
#[derive(Clone, Debug)]
pub struct Catalog {
    config: Arc<Config>,
    cluster_id: Arc<str>,
    node_id: i32,
    by_name: BTreeMap<Arc<str>, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
    collisions: HashMap<Arc<str>, Arc<str>>,
    partition_count: usize,
    next_log_id: u64,
    next_producer_id: i64,
    dynamic: Dynamic,
}

impl PartialEq for Catalog {
    /// Equal when both answer every question in the same way, given the same static configuration.
    fn eq(&self, other: &Self) -> bool {
        self.cluster_id == other.cluster_id
            && self.node_id == other.node_id
            && self.by_name == other.by_name
            && self.by_id == other.by_id
            && self.collisions == other.collisions
            && self.partition_count == other.partition_count
            && self.next_log_id == other.next_log_id
            && self.next_producer_id == other.next_producer_id
            && self.dynamic == other.dynamic
    }
}

impl Catalog {
    /// A catalog without topics, in front of the first record.
    ///
    /// Log ids start at 1, so that 0 can mean "none" in a file.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            cluster_id: Arc::from(""),
            node_id: -1,
            by_name: BTreeMap::new(),
            by_id: HashMap::new(),
            collisions: HashMap::new(),
            partition_count: 0,
            next_log_id: 1,
            next_producer_id: 0,
            dynamic: Dynamic::default(),
        }
    }

    /// The catalog that `records` lead to, oldest first.
    #[must_use]
    pub fn replay<'a>(config: Arc<Config>, records: impl IntoIterator<Item = &'a CatalogRecord>) -> Self {
        let mut catalog = Self::new(config);
        for record in records {
            catalog.apply(record);
        }
        catalog
    }

    /// Does what a durable record says; the only place where a catalog changes.
    pub fn apply(&mut self, record: &CatalogRecord) {
        match record {
            CatalogRecord::Identity { cluster_id, node_id } => {
                self.cluster_id = Arc::from(cluster_id.as_str());
                self.node_id = *node_id;
            }
            CatalogRecord::TopicMade { name, id, internal, logs, overrides } => {
                self.add_topic(name, *id, *internal, logs, overrides.clone());
            }
            CatalogRecord::TopicRemoved { id } => self.remove_topic(*id),
            CatalogRecord::PartitionsAdded { id, logs } => self.add_partitions(*id, logs),
            CatalogRecord::PartitionLog { id, partition, log } => self.set_partition_log(*id, *partition, *log),
            CatalogRecord::TopicConfigs { id, overrides } => self.set_topic_configs(*id, overrides),
            CatalogRecord::BrokerConfigs { all, broker } => {
                self.set_broker_configs(Dynamic { all: all.clone(), broker: broker.clone() });
            }
            CatalogRecord::Counters { next_log_id, next_producer_id } => {
                self.next_log_id = self.next_log_id.max(*next_log_id);
                self.next_producer_id = self.next_producer_id.max(*next_producer_id);
            }
        }
    }

    /// Records that lead from an empty catalog to this one, for the head of a new catalog file.
    #[must_use]
    pub fn snapshot_records(&self) -> Vec<CatalogRecord> {
        let mut records = vec![
            CatalogRecord::Identity { cluster_id: self.cluster_id.to_string(), node_id: self.node_id },
            CatalogRecord::Counters { next_log_id: self.next_log_id, next_producer_id: self.next_producer_id },
            CatalogRecord::BrokerConfigs { all: self.dynamic.all.clone(), broker: self.dynamic.broker.clone() },
        ];
        records.extend(self.by_name.values().map(|topic| CatalogRecord::TopicMade {
            name: topic.name.to_string(),
            id: topic.id,
            internal: topic.internal,
            logs: topic.partitions.clone(),
            overrides: topic.overrides.clone(),
        }));
        records
    }

    /// The cluster's id, 22 characters as Kafka's.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// This broker's id.
    #[must_use]
    pub fn node_id(&self) -> i32 {
        self.node_id
    }

    /// The broker's settings, with what was changed while it ran.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// What was changed in the broker's settings while it ran.
    #[must_use]
    pub fn dynamic(&self) -> &Dynamic {
        &self.dynamic
    }

    /// A topic by name.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// A topic by id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// All topics by name, ascending.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    /// The topics whose names are `first` or greater, ascending.
    pub fn topics_from<'a>(&'a self, first: &str) -> impl Iterator<Item = &'a Arc<Topic>> + use<'a> {
        self.by_name.range::<str, _>((Bound::Included(first), Bound::Unbounded)).map(|(_, topic)| topic)
    }

    /// The log of a partition.
    #[must_use]
    pub fn log_id(&self, at: &TopicPartition) -> Option<LogId> {
        self.topic(&at.topic)?.log_id(at.partition)
    }

    /// Number of partitions of all topics.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// The first log id that was never given out; an id from here on in a log is a sign of damage (S11).
    #[must_use]
    pub fn next_log_id(&self) -> LogId {
        LogId(self.next_log_id)
    }

    /// The first producer id that was never given out.
    #[must_use]
    pub fn next_producer_id(&self) -> ProducerId {
        ProducerId(self.next_producer_id)
    }

    /// The existing topic whose metric names could not be told from those of `name`.
    #[must_use]
    pub fn colliding(&self, name: &str) -> Option<&str> {
        let existing = self.collisions.get(names::flattened(name)?.as_str())?;
        (existing.as_ref() != name).then_some(existing)
    }

    fn add_topic(&mut self, name: &str, id: TopicId, internal: bool, logs: &[LogId], overrides: Overrides) {
        let name: Arc<str> = Arc::from(name);
        if let Some(flat) = names::flattened(&name) {
            self.collisions.insert(Arc::from(flat), Arc::clone(&name));
        }
        let settings = settings::in_force(&self.config, &name, &overrides);
        self.partition_count += logs.len();
        self.raise_next_log_id(logs);
        self.put(Topic { name, id, internal, partitions: logs.to_vec(), overrides, settings });
    }

    fn remove_topic(&mut self, id: TopicId) {
        let Some(topic) = self.by_id.remove(&id) else { return };
        self.by_name.remove(&topic.name);
        self.partition_count -= topic.partitions.len();
        if let Some(flat) = names::flattened(&topic.name) {
            self.collisions.remove(flat.as_str());
        }
    }

    fn add_partitions(&mut self, id: TopicId, logs: &[LogId]) {
        let Some(mut topic) = self.by_id.get(&id).map(|topic| Topic::clone(topic)) else { return };
        topic.partitions.extend_from_slice(logs);
        self.partition_count += logs.len();
        self.raise_next_log_id(logs);
        self.put(topic);
    }

    fn set_partition_log(&mut self, id: TopicId, partition: i32, log: LogId) {
        let Some(mut topic) = self.by_id.get(&id).map(|topic| Topic::clone(topic)) else { return };
        let place = usize::try_from(partition).ok().and_then(|index| topic.partitions.get_mut(index));
        let Some(place) = place else { return };
        *place = log;
        self.raise_next_log_id(&[log]);
        self.put(topic);
    }

    fn set_topic_configs(&mut self, id: TopicId, overrides: &Overrides) {
        let Some(mut topic) = self.by_id.get(&id).map(|topic| Topic::clone(topic)) else { return };
        topic.settings = settings::in_force(&self.config, &topic.name, overrides);
        topic.overrides.clone_from(overrides);
        self.put(topic);
    }

    fn set_broker_configs(&mut self, dynamic: Dynamic) {
        // Values were checked before they became a record. Should a later version no longer accept them, the static
        // settings stay in force, and the values are kept for whoever goes back.
        if let Ok(config) = self.config.with_dynamic(dynamic.clone()) {
            self.config = Arc::new(config);
        }
        self.dynamic = dynamic;
        let topics: Vec<Arc<Topic>> = self.by_name.values().cloned().collect();
        for topic in topics {
            let settings = settings::in_force(&self.config, &topic.name, &topic.overrides);
            if settings != topic.settings {
                self.put(Topic { settings, ..Topic::clone(&topic) });
            }
        }
    }

    fn put(&mut self, topic: Topic) {
        let topic = Arc::new(topic);
        self.by_id.insert(topic.id, Arc::clone(&topic));
        self.by_name.insert(Arc::clone(&topic.name), topic);
    }

    fn raise_next_log_id(&mut self, logs: &[LogId]) {
        for log in logs {
            self.next_log_id = self.next_log_id.max(log.0 + 1);
        }
    }
}
