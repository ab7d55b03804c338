//! What was typed → what was decided: [`args::Args`] and [`Config`], checked once and passed down.
//!
//! Values come from the table's defaults, a file in Kafka's properties format, the environment, and the command line;
//! later ones win. What IncrementalAlterConfigs changes while the broker runs lies on top, and makes a new `Config`.

mod alter;
pub mod args;
mod cleaner;
mod data_dir;
mod describe;
mod groups;
mod listeners;
mod names;
pub mod offline_args;
mod origin;
mod properties;
mod show;
mod sources;
mod table;
pub mod topic;
mod transactions;
mod value;

pub use alter::{Change, Operation, Refusal, Scope, alter_broker, alter_topic, new_topic};
pub use cleaner::CleanerConfig;
pub use data_dir::refuse_kafka_log_dir;
pub use describe::{ConfigEntry, Source, Synonym, describe_all_brokers, describe_broker, describe_topic};
pub use groups::GroupConfig;
pub use listeners::Endpoint;
pub use origin::{Dynamic, Origin, Value};
pub use properties::{Entry, parse as parse_properties};
pub use show::{markdown, show};
pub use sources::{ConfigError, Loaded, load};
pub use topic::{Overrides, TimestampType, TopicSettings, resolve, settle, validate};
pub use transactions::TransactionConfig;
pub use value::Kind;

use origin::Values;
use std::path::PathBuf;

/// What an acknowledgement of acks=all promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The batch is on disk: it survives a power failure.
    Disk,
    /// The batch is with the kernel: it survives a crash of the broker.
    PageCache,
}

impl Durability {
    fn from_word(word: &str) -> Self {
        if word == "page-cache" { Self::PageCache } else { Self::Disk }
    }
}

/// How a group is written to the commit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// Inline while that is faster, else through the ring.
    Auto,
    /// The core blocks in the write.
    Inline,
    /// Through io_uring.
    Ring,
}

/// The broker's settings, checked. Cheap to share as `Arc<Config>`.
///
/// Each field names the setting it holds where that is not its own name; units are the last word.
#[derive(Clone, Debug)]
pub struct Config {
    /// `listeners`: what to bind; port 0 means a free port.
    pub listen: Endpoint,
    /// Name of the served listener, usually PLAINTEXT.
    pub listener_name: String,
    /// `advertised.listeners`: what clients are told; port 0 stands for the port that was bound.
    pub advertised: Endpoint,
    /// `log.dirs` or `log.dir`.
    pub data_dir: PathBuf,
    /// `corelane.cores`; none means all.
    pub cores: Option<usize>,
    /// `node.id`.
    pub node_id: i32,
    /// `corelane.commit`.
    pub commit: CommitMode,
    /// `corelane.log`: which log lines are written.
    pub log_filter: String,
    /// `corelane.spin.us`.
    pub spin_us: u64,
    /// `corelane.unpacked.batch.max.bytes`.
    pub unpacked_batch_max_bytes: usize,
    /// `corelane.memory.budget.bytes`, per shard.
    pub memory_budget_bytes: usize,
    /// `corelane.tail.cache.bytes`, per shard.
    pub tail_cache_bytes: usize,
    /// `corelane.log.file.bytes`.
    pub log_file_bytes: u64,
    /// `corelane.log.file.used.bytes`.
    pub log_file_used_bytes: u64,
    /// `corelane.log.files.max`.
    pub log_files_max: usize,
    /// `corelane.checkpoint.interval.ms`.
    pub checkpoint_interval_ms: u64,
    /// `corelane.checkpoint.producers.step`.
    pub checkpoint_producers_step: usize,
    /// `corelane.producers.max`, per shard.
    pub producers_max: usize,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
    /// `producer.id.expiration.check.interval.ms`.
    pub producer_id_expiration_check_interval_ms: u64,
    /// `max.connections`.
    pub max_connections: usize,
    /// `connections.max.idle.ms`.
    pub connections_max_idle_ms: u64,
    /// `socket.request.max.bytes`.
    pub request_max_bytes: usize,
    /// `fetch.max.bytes`.
    pub fetch_max_bytes: usize,
    /// `max.incremental.fetch.session.cache.slots`, of all shards together.
    pub fetch_session_slots: usize,
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i32,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `delete.topic.enable`.
    pub delete_topics: bool,
    /// `log.retention.check.interval.ms`.
    pub retention_check_interval_ms: u64,
    /// Compaction.
    pub cleaner: CleanerConfig,
    /// Consumer groups and `__consumer_offsets`.
    pub groups: GroupConfig,
    /// Transactions and `__transaction_state`.
    pub transactions: TransactionConfig,
    /// What topics have that set nothing themselves.
    pub topic_defaults: TopicSettings,
    values: Values,
}

impl Config {
    /// The settings of a broker for which nothing was said.
    ///
    /// # Panics
    /// Never: a test reads every default.
    #[must_use]
    pub fn defaults() -> Self {
        Self::decide(Values::default())
            .unwrap_or_else(|why| panic!("the table's defaults contradict each other: {why}"))
    }

    /// The settings of a broker for which only these were said, as by `--set`; for tests and tools.
    ///
    /// # Errors
    /// A sentence: an unknown name, or a value that is not allowed.
    pub fn with(pairs: &[(&str, &str)]) -> Result<Self, String> {
        let mut values = Values::default();
        for (name, text) in pairs {
            let row = table::setting(name).ok_or_else(|| format!("{name} is not a setting"))?;
            let value = origin::checked(row, text, Origin::CommandLine { flag: "--set" })?;
            values.fixed.insert(row.name, value);
        }
        Self::decide(values)
    }

    /// The same broker with other changes of IncrementalAlterConfigs on top.
    ///
    /// # Errors
    /// A sentence: a name or value that is not served, or values that contradict each other.
    pub fn with_dynamic(&self, dynamic: Dynamic) -> Result<Self, String> {
        for (name, text) in dynamic.all.iter().chain(&dynamic.broker) {
            let row = table::setting(name).filter(|row| row.dynamic);
            let row = row.ok_or_else(|| format!("{name} cannot be changed while the broker runs"))?;
            origin::checked(row, text, Origin::DynamicBroker)?;
        }
        Self::decide(Values { fixed: self.values.fixed.clone(), dynamic })
    }

    /// What IncrementalAlterConfigs has changed.
    #[must_use]
    pub fn dynamic(&self) -> &Dynamic {
        &self.values.dynamic
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// Checks what concerns several settings together and fills the fields.
    fn decide(mut values: Values) -> Result<Self, String> {
        agree_on_node_id(&mut values)?;
        retention_is_not_zero(&values)?;
        let addresses = listeners::addresses(&values, host_name)?;
        let wait = |name| u64::try_from(values.long(name)).unwrap_or(0);
        Ok(Self {
            listen: addresses.listen,
            listener_name: addresses.name,
            advertised: addresses.advertised,
            data_dir: data_dir(&values)?,
            cores: values.number("corelane.cores").and_then(|cores| usize::try_from(cores).ok()),
            node_id: values.int("node.id"),
            commit: commit_mode(&values),
            log_filter: values.text("corelane.log").unwrap_or_default().to_owned(),
            spin_us: wait("corelane.spin.us"),
            unpacked_batch_max_bytes: values.size("corelane.unpacked.batch.max.bytes"),
            memory_budget_bytes: values.size("corelane.memory.budget.bytes"),
            tail_cache_bytes: values.size("corelane.tail.cache.bytes"),
            log_file_bytes: wait("corelane.log.file.bytes"),
            log_file_used_bytes: wait("corelane.log.file.used.bytes"),
            log_files_max: values.size("corelane.log.files.max"),
            checkpoint_interval_ms: wait("corelane.checkpoint.interval.ms"),
            checkpoint_producers_step: values.size("corelane.checkpoint.producers.step"),
            producers_max: values.size("corelane.producers.max"),
            producer_id_expiration_ms: values.long("producer.id.expiration.ms"),
            producer_id_expiration_check_interval_ms: wait("producer.id.expiration.check.interval.ms"),
            max_connections: values.size("max.connections"),
            connections_max_idle_ms: wait("connections.max.idle.ms"),
            request_max_bytes: values.size("socket.request.max.bytes"),
            fetch_max_bytes: values.size("fetch.max.bytes"),
            fetch_session_slots: values.size("max.incremental.fetch.session.cache.slots"),
            num_partitions: values.int("num.partitions"),
            default_replication_factor: values.int("default.replication.factor"),
            auto_create_topics: values.flag("auto.create.topics.enable"),
            delete_topics: values.flag("delete.topic.enable"),
            retention_check_interval_ms: wait("log.retention.check.interval.ms"),
            cleaner: CleanerConfig::of(&values),
            groups: GroupConfig::of(&values),
            transactions: TransactionConfig::of(&values),
            topic_defaults: topic::resolve_on(&values, &Overrides::new())?,
            values,
        })
    }
}

fn commit_mode(values: &Values) -> CommitMode {
    match values.text("corelane.commit") {
        Some("inline") => CommitMode::Inline,
        Some("ring") => CommitMode::Ring,
        _ => CommitMode::Auto,
    }
}

/// Gives `node.id` and `broker.id` one value: the one that was set nearer to the command line.
///
/// Source: apache/kafka `KafkaConfig.populateSynonyms`.
fn agree_on_node_id(values: &mut Values) -> Result<(), String> {
    let (node, broker) = (values.fixed.get("node.id").cloned(), values.fixed.get("broker.id").cloned());
    let winner = match (node, broker) {
        (_, Some(unset)) if unset.text == "-1" => None,
        (Some(node), Some(broker)) if node.origin.rank() == broker.origin.rank() && node.text != broker.text => {
            return Err(format!(
                "node.id = {} ({}) and broker.id = {} ({}) differ and are one number; remove broker.id.",
                node.text, node.origin, broker.text, broker.origin
            ));
        }
        (Some(node), Some(broker)) if broker.origin.rank() > node.origin.rank() => Some(broker),
        (Some(node), _) => Some(node),
        (None, broker) => broker,
    };
    if let Some(winner) = winner {
        values.fixed.insert("node.id", winner.clone());
        values.fixed.insert("broker.id", winner);
    }
    Ok(())
}

/// As Kafka: a broker keeps data for some time or without limit; only a topic may say 0.
fn retention_is_not_zero(values: &Values) -> Result<(), String> {
    if values.long("log.retention.ms") == 0 {
        return Err("log.retention.ms must be unlimited (-1) or, equal or greater than 1".to_owned());
    }
    Ok(())
}

/// The one data folder: `log.dirs`, or `log.dir` where that was set nearer to the command line.
fn data_dir(values: &Values) -> Result<PathBuf, String> {
    let single = values.origin("log.dir").rank() > values.origin("log.dirs").rank();
    let name = if single || values.text("log.dirs").is_none() { "log.dir" } else { "log.dirs" };
    let text = values.text(name).unwrap_or_default();
    let mut folders = value::list(text).filter(|folder| !folder.is_empty());
    match (folders.next(), folders.next()) {
        (Some(one), None) => Ok(PathBuf::from(one)),
        (None, _) => Err(format!("{name} ({}) names no folder; give one.", values.origin(name))),
        (Some(_), Some(_)) => Err(format!(
            "{name} = {text} ({}) names several folders; corelane keeps its data in one: give one.",
            values.origin(name)
        )),
    }
}

/// The name of this host, as the kernel has it.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
