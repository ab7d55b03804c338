//! `corelane repair catalog`: makes a catalog anew that is lost or cannot be read (storage rule S11).
//!
//! What proves what: the folders and their `partition.metadata` which topics there are; seals, the readable beginning of the
//! old catalog and the batches in the commit log which log a partition is in; checkpoints, logs, snapshots and batches which
//! ids were given out. A partition whose log nothing proves gets a new one: the next start then reads all of it, as of a
//! folder that was taken in. The old files are kept under other names.

mod folders;
mod logs;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::catalog;
use super::folder::Held;
use super::{Failed, verify};
use crate::broker::catalog::settings::internal_topic;
use crate::broker::catalog::{Catalog, CatalogRecord, names};
use crate::config::offline_args::RepairCatalogArgs;
use crate::config::{Config, Overrides};
use crate::ids::{LogId, TopicId};
use crate::log::catalog_log::{self, CatalogFile, CatalogLog};
use crate::log::kafka_files::{self, META_PROPERTIES};
use crate::log::store::StoreState;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::executors::block_on;
use crate::runtime::real_disk::RealDisk;
use folders::FoundTopic;
use logs::Proofs;

/// Where the new files are made before they get their names.
const ASIDE: &str = "repairing-catalog";
/// Producer ids are given out in blocks ahead of their use; so far above those that were seen nobody can have one.
const PRODUCER_IDS_AHEAD: i64 = 1_000_000;

/// What the new catalog will be.
struct Plan {
    catalog: Catalog,
    lines: Vec<String>,
}

/// Makes a new catalog, or says what it would be.
///
/// # Errors
/// A sentence: what stands against it.
#[expect(clippy::print_stdout, reason = "the result is what was asked for")]
pub(super) fn run(args: &RepairCatalogArgs) -> Result<(), Failed> {
    let held = Held::take(args.data.as_ref())?;
    let store = catalog::store_state(&held)?;
    let old = old_catalog(&held, &store)?;
    let plan = plan(&held, &store, old)?;
    for line in &plan.lines {
        println!("{line}");
    }
    if !args.yes {
        println!("Nothing was changed. With --yes it is done.");
        return Ok(());
    }
    let kept = write(&held, &store, &plan.catalog)?;
    for path in kept {
        println!("kept: {}", path.display());
    }
    println!("Done. `corelane verify` checks the result.");
    Ok(())
}

/// The readable beginning of the old catalog.
fn old_catalog(held: &Held, store: &StoreState) -> Result<Catalog, Failed> {
    let mut best: Option<(u64, Catalog)> = None;
    for path in catalog_log::file_paths(&held.layout.own()) {
        let looked = match block_on(catalog_log::look_at(&RealDisk, &path)) {
            Ok(Some(file)) if file.header.store_id == store.store_id => file,
            Ok(_) => continue,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.to_string().into()),
        };
        let is_whole = looked.damaged_at.is_none() && !looked.is_cut && looked.next_sequence > 1;
        let number = looked.header.file_number;
        let (catalog, is_read) = replay(&held.config, &looked);
        if is_whole && is_read {
            return Err(format!("{} can be read: there is nothing to repair", path.display()).into());
        }
        if best.as_ref().is_none_or(|(other, _)| *other < number) {
            best = Some((number, catalog));
        }
    }
    Ok(best.map_or_else(|| Catalog::new(Arc::new(held.config.clone())), |(_, catalog)| catalog))
}

/// The catalog as far as the records go, and whether all of them could be read.
fn replay(config: &Config, file: &CatalogFile) -> (Catalog, bool) {
    let mut catalog = Catalog::new(Arc::new(config.clone()));
    for (kind, bytes) in &file.records {
        match CatalogRecord::decode(*kind, bytes) {
            Ok(record) => catalog.apply(&record),
            Err(_) => return (catalog, false),
        }
    }
    (catalog, true)
}

fn plan(held: &Held, store: &StoreState, old: Catalog) -> Result<Plan, Failed> {
    let topics = folders::find(&held.layout)?;
    let mut proofs = Proofs::read(held, store)?;
    let mut lines = Vec::new();
    let mut catalog = Catalog::new(Arc::new(held.config.clone()));
    catalog.apply(&identity(held, &old, &mut lines));
    // All of them first: a new id must be above every one that is proven.
    let proven = topics.iter().map(|topic| proven_logs(&old, topic, &mut proofs)).collect::<Result<Vec<_>, _>>()?;
    let mut ids = Ids { taken: Vec::new(), next: proofs.next_log_id().max(old.next_log_id().0) };
    for (topic, proven) in topics.iter().zip(proven) {
        let logs = ids.logs_of(topic, &proven, &mut lines);
        let overrides = overrides(held, &old, topic, &mut lines);
        let internal = names::is_internal(&topic.name);
        let name = topic.name.to_string();
        catalog.apply(&CatalogRecord::TopicMade { name, id: topic.id, internal, logs, overrides });
    }
    catalog
        .apply(&CatalogRecord::BrokerConfigs { all: old.dynamic().all.clone(), broker: old.dynamic().broker.clone() });
    let seen = proofs.producer_id().max(old.next_producer_id().0);
    let next_producer_id = seen.checked_add(PRODUCER_IDS_AHEAD).ok_or_else(|| "no producer id is left".to_string())?;
    catalog.apply(&CatalogRecord::Counters { next_log_id: ids.next, next_producer_id });
    lines.extend(proofs.left_over(&ids.taken));
    lines.push(format!("the next log id is {}, the next producer id {next_producer_id}", ids.next));
    Ok(Plan { catalog, lines })
}

fn identity(held: &Held, old: &Catalog, lines: &mut Vec<String>) -> CatalogRecord {
    if old.node_id() >= 0 {
        return CatalogRecord::Identity { cluster_id: old.cluster_id().to_string(), node_id: old.node_id() };
    }
    let text = fs::read_to_string(held.layout.kafka().join(META_PROPERTIES)).unwrap_or_default();
    match kafka_files::parse_meta_properties(&text) {
        Ok(meta) => CatalogRecord::Identity { cluster_id: meta.cluster_id, node_id: meta.node_id },
        Err(_) => {
            let cluster_id = crate::broker::catalog_host::new_topic_id().to_string();
            lines.push(format!("{META_PROPERTIES} cannot be read: the cluster gets the new id {cluster_id}"));
            CatalogRecord::Identity { cluster_id, node_id: held.config.node_id }
        }
    }
}

/// A log and what proves it.
type Proven = Option<(LogId, &'static str)>;

/// The logs that the partitions of a topic are proven to be in.
fn proven_logs(old: &Catalog, topic: &FoundTopic, proofs: &mut Proofs) -> Result<Vec<Proven>, Failed> {
    let one = |partition| {
        let of_old = old.topic_by_id(topic.id).and_then(|topic| topic.log_id(partition));
        let Some(folder) = topic.folders.get(&partition) else { return Ok(None) };
        proofs.log_of(folder, of_old).map_err(|error| format!("{}: {error}", folder.display()).into())
    };
    (0..topic.count).map(one).collect()
}

/// The log ids that are given out.
struct Ids {
    taken: Vec<LogId>,
    next: u64,
}

impl Ids {
    /// The log of each partition of a topic; one that nothing proves gets a new one.
    fn logs_of(&mut self, topic: &FoundTopic, proven: &[Proven], lines: &mut Vec<String>) -> Vec<LogId> {
        let mut logs = Vec::new();
        for (partition, proven) in (0..).zip(proven) {
            let (log, how) = match proven.filter(|(log, _)| !self.taken.contains(log)) {
                Some(proven) => proven,
                None if topic.folders.contains_key(&partition) => (
                    self.fresh(),
                    "a new one: the next start reads all of it; what only the commit log holds of it is lost",
                ),
                None => (self.fresh(), "a new one: it has no folder and begins empty"),
            };
            self.taken.push(log);
            lines.push(format!("{}-{partition}: log {}, {how}", topic.name, log.0));
            logs.push(log);
        }
        logs
    }

    fn fresh(&mut self) -> LogId {
        self.next += 1;
        LogId(self.next - 1)
    }
}

/// What was set on a topic, as far as the old catalog can be read; of the broker's own topics what they always have.
fn overrides(held: &Held, old: &Catalog, topic: &FoundTopic, lines: &mut Vec<String>) -> Overrides {
    if let Some(known) = old.topic_by_id(topic.id) {
        return known.overrides.clone();
    }
    if let Some((_, overrides)) = internal_topic(&held.config, &topic.name) {
        return overrides;
    }
    lines.push(format!(
        "{}: what was set on the topic is lost; it has the broker's settings until it is set again",
        topic.name
    ));
    Overrides::new()
}

/// Writes the new files beside the old ones, then gives them their names; tells where the old ones are.
fn write(held: &Held, store: &StoreState, next: &Catalog) -> Result<Vec<PathBuf>, Failed> {
    let own = held.layout.own();
    let aside = own.join(ASIDE);
    let cannot = |path: &Path, error: &std::io::Error| Failed::from(format!("{}: {error}", path.display()));
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(|error| cannot(&aside, &error))?;
    }
    fs::create_dir_all(&aside).map_err(|error| cannot(&aside, &error))?;
    let records: Vec<_> = next.snapshot_records().iter().map(CatalogRecord::encode).collect();
    let made = block_on(async {
        let (log, _) = CatalogLog::open_or_create(RealDisk, &aside, store.store_id).await?;
        log.rewrite(&records).await
    });
    made.map_err(|error| cannot(&aside, &error))?;
    let stamp = clock::now_ms();
    let mut kept = Vec::new();
    for path in catalog_log::file_paths(&own) {
        let old = path.with_extension(format!("before-{stamp}"));
        match fs::rename(&path, &old) {
            Ok(()) => kept.push(old),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot(&path, &error)),
        }
    }
    for (from, to) in catalog_log::file_paths(&aside).iter().zip(catalog_log::file_paths(&own)) {
        fs::rename(from, &to).map_err(|error| cannot(&to, &error))?;
    }
    block_on(RealDisk.sync_dir(&own)).map_err(|error| cannot(&own, &error))?;
    fs::remove_dir(&aside).map_err(|error| cannot(&aside, &error))?;
    Ok(kept)
}

/// The topic that a folder's `partition.metadata` names.
fn topic_of(folder: &Path) -> Option<TopicId> {
    let text = fs::read_to_string(folder.join(kafka_files::PARTITION_METADATA)).ok()?;
    kafka_files::parse_partition_metadata(&text).ok()
}

/// Reads `TOPIC-PARTITION`.
fn partition_name(name: &str) -> Option<crate::ids::TopicPartition> {
    verify::partition_name(name)
}
