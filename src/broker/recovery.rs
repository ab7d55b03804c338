//! From a data folder to shards that serve (storage.md §6): shard 0 reads what concerns all, each shard brings its
//! partitions back, and one slot write ends it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::catalog::{Catalog, CatalogRecord, Topic};
use super::catalog_host::{self, CatalogHost, DELETED_FOLDER};
use super::checkpointer::Checkpointer;
use super::epochs;
use super::kafka_view;
use super::messages::PartitionKey;
use super::partition::Partition;
use super::shard::Shard;
use crate::config::{CommitMode as ConfiguredMode, Config};
use crate::ids::{LogId, Offset, ProducerEpoch, ProducerId, Sequence, ShardId, TopicId, TopicPartition};
use crate::log::catalog_log::CatalogLog;
use crate::log::checkpoint_chain::{self as chain, View};
use crate::log::commit_log::{CommitLog, CommitSettings, LogIdentity};
use crate::log::commit_pace::CommitMode;
use crate::log::kafka_files::{self, MetaProperties};
use crate::log::layout::Layout;
use crate::log::log_files::{FoundLog, list_log_files};
use crate::log::log_generations;
use crate::log::log_reader::{LogContents, LogFolder, RecordReader, read_logs};
use crate::log::losses::{self, Losses};
use crate::log::names;
use crate::log::partition_log::LogRules;
use crate::log::recover::{self, Given, Outcome, Searched};
use crate::log::scan::BatchFacts;
use crate::log::store::{Store, StoreState};
use crate::log::txn_index::AbortedTxn;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host;
use crate::state::producers::{Appended, BatchIdentity, Ending, Producers};
use crate::wire::batch::BatchHeader;
use crate::wire::refill::{self, ControlKind};

/// Partitions that are brought back before other tasks run.
const PARTITIONS_IN_A_ROW: usize = 64;
/// log2 of the block size of the commit log.
pub const BLOCK_LOG2: u16 = 12;
/// Files of an earlier life of the log that are kept for reuse.
const OLD_FILES_KEPT: usize = 2;

/// How far a shard has come with bringing its partitions back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All are back.
    Done,
    /// A partition lacks something that more of the commit log may hold: all begin again, with [`widen`].
    WantsMore,
}

/// What recovery knows before the partitions are looked at; the same for every shard.
#[derive(Debug)]
pub struct RecoveryPlan {
    /// Topics and ids.
    pub catalog: Arc<Catalog>,
    /// The store's generation from now on.
    pub generation: u64,
    /// Of the data folder.
    pub store_id: [u8; 16],
    /// The generation whose commit logs hold something.
    pub live_generation: u64,
    /// How much of the commit logs `contents` is.
    pub searched: Searched,
    /// Nothing of the checkpoints and the commit logs that are needed is missing or damaged.
    pub is_whole: bool,
    /// What the commit logs hold.
    pub contents: LogContents,
    /// What the checkpoints say.
    pub view: Arc<View>,
    /// How commit logs are made.
    pub commit: CommitSettings,
    /// Folders of deleted partitions that are still there.
    pub leftovers: Vec<PathBuf>,
}

/// A data folder that was opened; shard 0 has it until recovery has ended.
pub struct Opened<D: Disk> {
    /// The two slots.
    pub store: Store<D::File>,
    /// The writer of the catalog.
    pub catalog_host: CatalogHost<D>,
    /// For all shards.
    pub plan: Arc<RecoveryPlan>,
}

/// Tells how long each step of a start took.
pub struct Steps {
    since: Duration,
}

impl Steps {
    /// The clock runs.
    #[must_use]
    pub fn begin() -> Self {
        Self { since: clock::monotonic() }
    }

    /// A step is done.
    pub fn done(&mut self, step: &str) {
        let now = clock::monotonic();
        tracing::info!("start: {step} in {} ms", now.saturating_sub(self.since).as_millis());
        self.since = now;
    }
}

/// Puts what was being done before the system's words.
fn doing(what: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// Opens a data folder: raises the generation, reads catalog, checkpoints and commit logs.
///
/// # Errors
/// A sentence for the person who starts the broker. Nothing of the old log was changed.
pub async fn open<D: Disk>(
    disk: &D,
    layout: &Layout,
    config: &Arc<Config>,
    shards: u32,
    steps: &mut Steps,
) -> Result<Opened<D>, String> {
    // Until it serves, nobody waits for this core.
    disk.set_unshared(true);
    disk.create_dir_all(&layout.kafka()).map_err(doing("cannot make the data folder"))?;
    let own = layout.own();
    let mut store = Store::open_or_create(disk, &own, BLOCK_LOG2).await.map_err(doing("cannot open the store"))?;
    // The folder's own names; what is in them is flushed where it is made.
    disk.sync_dir(layout.root()).await.map_err(doing("cannot flush the data folder"))?;
    let found = store.state();
    let begun = StoreState { clean: false, generation: found.generation + 1, ..found };
    store.write(begun).await.map_err(doing("cannot write the store"))?;
    if found.generation == 0 {
        // The folders were made just now: their names must outlive what is promised in them.
        disk.sync_fs(layout.root()).await.map_err(doing("cannot flush the new data folder"))?;
    }
    if !found.clean {
        tracing::info!("the last stop was not in order: recovering");
        disk.sync_fs(layout.root()).await.map_err(doing("cannot flush the file system before recovery"))?;
    }
    steps.done("store opened");
    let (catalog_host, catalog, removed) = open_catalog(disk, layout, config, found.store_id).await?;
    write_identity(disk, layout, &catalog, found.store_id).await.map_err(doing("cannot write meta.properties"))?;
    let leftovers = retire_leftovers(disk, layout, &catalog, &removed).await;
    let leftovers = leftovers.map_err(doing("cannot tidy up deleted topics"))?;
    steps.done("catalog read");
    let (live, is_clean) = live_generation(disk, &own, &found).await.map_err(doing("cannot read the commit log"))?;
    let (view, folders, checkpoints_are_whole) = read_checkpoints(disk, &own, live).await?;
    let contents = if is_clean {
        LogContents::default()
    } else {
        read_logs(disk, &folders, live, found.store_id).await.map_err(doing("cannot read the commit log"))?
    };
    steps.done("checkpoints and commit log read");
    for damage in &contents.damages {
        tracing::error!("the commit log is damaged: {damage}");
    }
    refuse_unknown_logs(&contents, &view, &catalog)?;
    let commit =
        commit_settings(disk, layout, config, &catalog, shards).map_err(doing("cannot ask for room on the disk"))?;
    let is_whole = !is_clean
        && live == found.live_generation
        && checkpoints_are_whole
        && has_everything(&folders, &contents, live);
    let plan = RecoveryPlan {
        catalog: Arc::new(catalog),
        generation: begun.generation,
        store_id: found.store_id,
        live_generation: live,
        searched: if is_clean { Searched::Nothing } else { Searched::Needed },
        is_whole,
        contents,
        view: Arc::new(view),
        commit,
        leftovers,
    };
    Ok(Opened { store, catalog_host, plan: Arc::new(plan) })
}

/// The generation whose logs are read, and whether the last stop was in order: as the store says, unless the logs prove that
/// its newest word is lost.
async fn live_generation<D: Disk>(disk: &D, own: &Path, found: &StoreState) -> io::Result<(u64, bool)> {
    let folders = shard_folders(disk, own)?;
    let newest = log_generations::newest_begun(disk, &folders, found.store_id, found.live_generation).await?;
    if newest == found.live_generation {
        return Ok((newest, found.clean));
    }
    tracing::warn!("the newest state in the store is damaged; the commit logs of generation {newest} are read");
    Ok((newest, false))
}

/// The same with everything that is left of the commit logs, also what checkpoints have covered long ago.
///
/// # Errors
/// A sentence. Nothing of the old logs was changed.
pub async fn widen<D: Disk>(disk: &D, layout: &Layout, plan: &RecoveryPlan) -> Result<RecoveryPlan, String> {
    let folders = shard_folders(disk, &layout.own()).map_err(doing("cannot list the shards' folders"))?;
    let folders: Vec<_> = folders.into_iter().map(|path| LogFolder { path, oldest_needed: None }).collect();
    let read = read_logs(disk, &folders, plan.live_generation, plan.store_id).await;
    Ok(RecoveryPlan {
        catalog: Arc::clone(&plan.catalog),
        searched: Searched::All,
        contents: read.map_err(doing("cannot read the commit log"))?,
        view: Arc::clone(&plan.view),
        leftovers: plan.leftovers.clone(),
        ..*plan
    })
}

/// The catalog as its log says, with this broker's identity in it, and the topics that the log says were deleted.
async fn open_catalog<D: Disk>(
    disk: &D,
    layout: &Layout,
    config: &Arc<Config>,
    store_id: [u8; 16],
) -> Result<(CatalogHost<D>, Catalog, Vec<Arc<Topic>>), String> {
    let opened = CatalogLog::open_or_create(disk.clone(), &layout.own(), store_id).await;
    let (log, records) = opened.map_err(doing("cannot open the catalog"))?;
    let mut catalog = Catalog::new(Arc::clone(config));
    let mut removed = Vec::new();
    for (kind, bytes) in &records {
        let record = CatalogRecord::decode(*kind, bytes).map_err(|error| {
            format!("the catalog holds a record that cannot be read: {error}; start the release that wrote it")
        })?;
        if let CatalogRecord::TopicRemoved { id } = &record {
            removed.extend(catalog.topic_by_id(*id).cloned());
        }
        catalog.apply(&record);
    }
    if catalog.node_id() < 0 {
        let identity = CatalogRecord::Identity { cluster_id: TopicId(new_id()).to_string(), node_id: config.node_id };
        log.append(&[identity.encode()]).await.map_err(doing("cannot write the catalog"))?;
        catalog.apply(&identity);
    }
    if catalog.node_id() != config.node_id {
        return Err(format!(
            "the data folder belongs to node.id={}, the configuration says {}: set node.id={} or choose another data folder",
            catalog.node_id(),
            config.node_id,
            catalog.node_id()
        ));
    }
    Ok((CatalogHost::new(log), catalog, removed))
}

fn new_id() -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&host::random().to_be_bytes());
    bytes[8..].copy_from_slice(&host::random().to_be_bytes());
    bytes
}

/// `kafka/meta.properties`, for Kafka's eyes.
async fn write_identity<D: Disk>(disk: &D, layout: &Layout, catalog: &Catalog, store_id: [u8; 16]) -> io::Result<()> {
    let kafka = layout.kafka();
    disk.remove_file(&kafka.join(kafka_files::CLEAN_SHUTDOWN)).await?;
    // Back after a power cut, it would keep a Kafka that takes the folder over from looking at the segments.
    disk.sync_dir(&kafka).await?;
    let path = kafka.join(kafka_files::META_PROPERTIES);
    let meta = MetaProperties {
        cluster_id: catalog.cluster_id().to_string(),
        node_id: catalog.node_id(),
        directory_id: store_id,
    };
    let known = disk.read_file(&path).await.ok();
    let known = known.and_then(|text| kafka_files::parse_meta_properties(&String::from_utf8_lossy(&text)).ok());
    if known.as_ref() == Some(&meta) {
        return Ok(());
    }
    disk.write_file_atomically(&path, kafka_files::encode_meta_properties(&meta, clock::now_ms()).into()).await
}

/// Finds what deletions have left, and renames what a crash has kept from it. Folders that the catalog never knew are left
/// alone (storage rule S12).
async fn retire_leftovers<D: Disk>(
    disk: &D,
    layout: &Layout,
    catalog: &Catalog,
    removed: &[Arc<Topic>],
) -> io::Result<Vec<PathBuf>> {
    let mut is_renamed = false;
    for topic in removed {
        for partition in 0..topic.partition_count() {
            let name = TopicPartition { topic: Arc::clone(&topic.name), partition };
            let folder = layout.partition(&name);
            if catalog_host::folder_topic(disk, &folder).await == Some(topic.id) {
                catalog_host::retire_folder(disk, layout, &folder, topic.id)?;
                is_renamed = true;
            }
        }
    }
    if is_renamed {
        disk.sync_dir(&layout.kafka()).await?;
    }
    let mut leftovers = Vec::new();
    for entry in disk.list(&layout.kafka())?.into_iter().filter(|entry| entry.is_dir) {
        let path = layout.kafka().join(&entry.name);
        if entry.name.ends_with(DELETED_FOLDER) {
            leftovers.push(path);
        } else if !is_known(catalog, &entry.name) {
            tracing::warn!("{}: belongs to no topic that the catalog knows; it is left alone", path.display());
        }
    }
    Ok(leftovers)
}

fn is_known(catalog: &Catalog, folder: &str) -> bool {
    let Some((topic, partition)) = folder.rsplit_once('-') else { return false };
    let count = catalog.topic(topic).map_or(0, |topic| topic.partition_count());
    partition.parse::<i32>().is_ok_and(|partition| (0..count).contains(&partition))
}

/// What the checkpoints of all shards say, however many there were, and where their logs are.
async fn read_checkpoints<D: Disk>(disk: &D, own: &Path, live: u64) -> Result<(View, Vec<LogFolder>, bool), String> {
    let (mut view, mut is_whole) = (View::default(), true);
    let mut folders = Vec::new();
    for path in shard_folders(disk, own).map_err(doing("cannot list the shards' folders"))? {
        let folder = chain::read_folder(disk, &path).await.map_err(doing("cannot read the checkpoints"))?;
        for (path, damage) in &folder.damaged {
            tracing::warn!("{}: {damage}; older checkpoints and the logs are used", path.display());
        }
        is_whole &= folder.damaged.is_empty();
        view.absorb(&folder.checkpoints);
        let oldest_needed = folder.oldest_needed(live);
        folders.push(LogFolder { path, oldest_needed });
    }
    Ok((view, folders, is_whole))
}

/// Every commit log of this generation stands beside a checkpoint of it, and nothing of either is damaged.
fn has_everything(folders: &[LogFolder], contents: &LogContents, live: u64) -> bool {
    let is_live = |log: &FoundLog| log.header.is_some_and(|header| header.generation == live);
    let without = |path: &Path| folders.iter().any(|folder| folder.path == path && folder.oldest_needed.is_none());
    let mut logs = contents.found.iter().filter(|log| is_live(log));
    contents.damages.is_empty() && !logs.any(|log| log.path.parent().is_some_and(without))
}

/// The folders of all shards that a data folder has, of whatever number of cores there was.
///
/// # Errors
/// Those of the disk.
pub fn shard_folders<D: Disk>(disk: &D, own: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = disk.list(own)?;
    let is_shard = |name: &str| name.strip_prefix("shard-").is_some_and(|number| number.parse::<u32>().is_ok());
    Ok(entries
        .iter()
        .filter(|entry| entry.is_dir && is_shard(&entry.name))
        .map(|entry| own.join(&entry.name))
        .collect())
}

/// A log that the catalog never gave out means that the catalog is older than the logs (storage rule S11).
fn refuse_unknown_logs(contents: &LogContents, view: &View, catalog: &Catalog) -> Result<(), String> {
    let mut found = contents.batches.keys().chain(contents.log_starts.keys()).chain(view.logs.keys());
    match found.find(|log_id| **log_id >= catalog.next_log_id()) {
        None => Ok(()),
        Some(LogId(log_id)) => Err(format!(
            "a commit log or a checkpoint tells of log {log_id}, which the catalog has never given out: the catalog is older \
             than the data; put the right catalog-0 and catalog-1 back into the corelane folder, or make a catalog of the \
             partitions' folders with `corelane repair catalog`"
        )),
    }
}

fn commit_settings<D: Disk>(
    disk: &D,
    layout: &Layout,
    config: &Config,
    catalog: &Catalog,
    shards: u32,
) -> io::Result<CommitSettings> {
    let space = disk.space(layout.root())?;
    let largest = catalog.topics().map(|topic| topic.settings.max_message_bytes).max().unwrap_or(0);
    let largest = largest.max(config.topic_defaults.max_message_bytes) as u64;
    let mut settings = CommitSettings::for_space(space.total_bytes, u64::from(shards), largest);
    if settings.file_bytes > config.log_file_bytes
        && config.log_file_bytes >= 2 * largest + config.log_file_used_bytes.min(1 << 20)
    {
        settings.file_bytes = config.log_file_bytes;
        settings.first_file_bytes = settings.first_file_bytes.min(settings.file_bytes);
    }
    settings.bytes_max =
        settings.bytes_max.min(config.log_files_max as u64 * settings.file_bytes).max(2 * settings.file_bytes);
    settings.used_bytes_max = config.log_file_used_bytes;
    let group_bytes_max = usize::try_from(settings.used_bytes_max / 4).unwrap_or(usize::MAX);
    settings.group_bytes_max = settings.group_bytes_max.min(group_bytes_max);
    settings.mode = match config.commit {
        ConfiguredMode::Auto => CommitMode::Auto,
        ConfiguredMode::Inline => CommitMode::Inline,
        ConfiguredMode::Ring => CommitMode::Ring,
    };
    Ok(settings)
}

impl<D: Disk> Shard<D> {
    /// Brings the partitions of this shard back.
    pub(super) async fn recover(self: &Rc<Self>, plan: &RecoveryPlan) -> Result<Progress, String> {
        self.partitions.borrow_mut().clear();
        self.begin_generation(plan.generation);
        // Until this shard serves, nobody waits for its core.
        self.disk.set_unshared(true);
        self.tick.set(u64::try_from(clock::now_ms()).unwrap_or(0));
        self.set_catalog(Arc::clone(&plan.catalog));
        let mut reader = RecordReader::new(self.disk.clone(), plan.contents.files.clone());
        let mine = self.own_partitions(&plan.catalog);
        let mut producers = restore_producers(&plan.view, &mine.iter().map(|(.., log_id)| *log_id).collect());
        for (at, (topic, key, log_id)) in mine.into_iter().enumerate() {
            if at % PARTITIONS_IN_A_ROW == 0 {
                host::yield_now().await;
            }
            let known = producers.remove(&log_id);
            let back = self.recover_partition(plan, &topic, key, log_id, known, &mut reader).await;
            let back = back.map_err(|error| format!("{}-{}: {error}", topic.name, key.partition))?;
            let Some(back) = back else { return Ok(Progress::WantsMore) };
            self.partitions.borrow_mut().insert(key, Rc::new(back));
        }
        self.count_recovered_producers();
        Ok(Progress::Done)
    }

    fn own_partitions(&self, catalog: &Catalog) -> Vec<(Arc<Topic>, PartitionKey, LogId)> {
        let all = catalog.topics().flat_map(|topic| {
            let keys = (0..).map(|partition| PartitionKey { topic: topic.id, partition });
            keys.zip(&topic.partitions).map(|(key, log_id)| (Arc::clone(topic), key, *log_id))
        });
        all.filter(|(_, key, _)| self.owns(*key)).collect()
    }

    /// `None` where more of the commit log is wanted.
    async fn recover_partition(
        &self,
        plan: &RecoveryPlan,
        topic: &Topic,
        key: PartitionKey,
        log_id: LogId,
        mut known: Option<Producers>,
        reader: &mut RecordReader<D>,
    ) -> io::Result<Option<Partition<D>>> {
        let name = TopicPartition { topic: Arc::clone(&topic.name), partition: key.partition };
        let folder = self.layout.partition(&name);
        self.prepare_folder(&folder, &name, topic.id).await?;
        let merged = plan.view.logs.get(&log_id);
        let now_ms = clock::now_ms();
        let listed = epochs::read(&self.disk, &folder, merged.map(|merged| &merged.partition)).await;
        let mut losses = losses::read(&self.disk, &folder).await?;
        let (recovered, mut producers, listed, aborted) = loop {
            let mut producers = known.take().unwrap_or_else(|| Producers::new(host::random()));
            let mut listed = listed.clone();
            let mut aborted = Vec::new();
            let given = Given {
                folder: folder.as_path().into(),
                rules: LogRules::of(&topic.settings),
                entry: merged.map(|merged| &merged.partition),
                located: plan.contents.batches.get(&log_id).map_or(&[], Vec::as_slice),
                log_start: plan.contents.log_starts.get(&log_id).copied(),
                searched: plan.searched,
                is_whole: plan.is_whole,
                losses,
            };
            let outcome = recover::recover(&self.disk, reader, given, |batch, bytes, committed_ms| {
                aborted.extend(replay(&mut producers, batch, bytes, committed_ms.unwrap_or(now_ms)));
                listed.walked(batch.leader_epoch, batch.base_offset);
            })
            .await?;
            let (recovered, notes) = match outcome {
                Outcome::Back(mut recovered) => {
                    let notes = std::mem::take(&mut recovered.notes);
                    (Some(recovered), notes)
                }
                Outcome::WantsMore { notes } => (None, notes),
            };
            notes.iter().for_each(|note| tracing::warn!("{note}"));
            let Some(recovered) = recovered else { return Ok(None) };
            losses = recovered.losses.clone();
            if !recovered.must_repeat {
                break (recovered, producers, listed, aborted);
            }
            known = restore_producers(&plan.view, &HashSet::from([log_id])).remove(&log_id);
        };
        if merged.is_none() {
            let bounds = (recovered.log.start(), recovered.log.end());
            kafka_view::restore_producers(&self.disk, &folder, bounds, &mut producers).await;
        }
        for as_of in &recovered.stray_snapshots {
            self.disk.remove_file(&names::path(&folder, *as_of, names::Kind::Snapshot)).await?;
        }
        let partition = Partition::new(key, name, log_id, &topic.settings, recovered.log, producers);
        partition.take_recovered_aborts(merged.map(|merged| &merged.partition), &aborted).await?;
        partition.snapshots.found(recovered.newest_snapshot);
        partition.set_epochs(epochs::complete(&partition, listed).await?, self.leader_epoch());
        if recovered.has_changed {
            self.save_what_was_walked(&partition).await;
        }
        let known = merged.map(|merged| &merged.partition);
        partition.sealed_through.set(known.map_or(Offset(0), |known| known.segment_base.min(known.recovery_point)));
        if known.map_or(Offset(0), |known| known.recovery_point) < partition.high_watermark() {
            partition.mark_dirty();
        }
        self.refuse_after(&losses, &partition);
        Ok(Some(partition))
    }

    fn refuse_after(&self, losses: &Losses, partition: &Partition<D>) {
        let Some(lost) = losses.open() else { return };
        let (name, data) = (&partition.name, self.layout.root().display());
        tracing::error!(
            "{name}: {lost} were acknowledged and are lost; what is left can be read, nothing new is taken until somebody \
             has accepted that: stop the broker and run `corelane repair accept-loss {name} --data {data} --yes`"
        );
        partition.refuse_after_loss();
    }

    /// The next checkpoint moves the recovery point over what was walked: that, and the leader epochs that were met there,
    /// must be on disk before. The whole file system is flushed when all partitions are back.
    async fn save_what_was_walked(&self, partition: &Partition<D>) {
        if let Err(error) = epochs::write(&self.disk, partition).await {
            // Cut short, the file is no list any more, and the segments are asked.
            tracing::warn!("{}: the leader epochs could not be written: {error}", partition.name);
        }
    }

    /// The folder must be this topic's: a crash may have come between the catalog's record and the folder.
    async fn prepare_folder(&self, folder: &Path, name: &TopicPartition, topic: TopicId) -> io::Result<()> {
        match catalog_host::folder_topic(&self.disk, folder).await {
            Some(id) if id == topic => Ok(()),
            Some(other) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{}: says that the folder is of topic {other}, and the catalog says {topic}: move the folder away, or \
                     remove this file if it is damaged and the folder is the right one",
                    folder.join(kafka_files::PARTITION_METADATA).display()
                ),
            )),
            None => catalog_host::make_folder(&self.disk, &self.layout, name, topic).await,
        }
    }

    /// Everything that was brought back is on disk: begins this generation's checkpoints and commit log.
    pub(super) async fn settle(self: &Rc<Self>, plan: &RecoveryPlan) -> Result<(), String> {
        let folder = self.layout.shard(self.id);
        self.disk.create_dir_all(&folder).map_err(doing("cannot make the shard's folder"))?;
        // A log in a folder whose own name is not on disk is lost with it.
        self.disk.sync_dir(&self.layout.own()).await.map_err(doing("cannot flush the folder of the shards"))?;
        let old = list_log_files(&self.disk, &folder).await.map_err(doing("cannot list the commit log"))?;
        let highest = old.iter().filter_map(|log| log.header).map(|header| header.file_number).max();
        let identity = LogIdentity {
            folder: folder.clone(),
            shard: self.id.0,
            generation: plan.generation,
            store_id: plan.store_id,
            first_file_number: highest.map_or(1, |number| number + 1),
        };
        let log = CommitLog::create(self.disk.clone(), identity, &[], plan.commit)
            .await
            .map_err(doing("cannot begin the commit log"))?;
        let names = chain::list(&self.disk, &folder).map_err(doing("cannot list the checkpoints"))?;
        let next_seq = names.iter().map(|named| named.seq + 1).max().unwrap_or(1);
        // Each is set once: a shard settles once.
        let _first = self.commit_log.set(log);
        let _first = self.checkpointer.set(Checkpointer::new(folder, names, next_seq));
        self.old_files.borrow_mut().extend(old.into_iter().map(|log| log.path));
        self.take_leftovers(&plan.leftovers);
        self.checkpoint_all().await.map_err(doing("cannot write the first checkpoint"))
    }

    /// Recovery has ended: what the old logs held is not needed any more.
    pub(super) async fn adopt_old_files(&self) {
        let old = std::mem::take(&mut *self.old_files.borrow_mut());
        for (at, path) in old.into_iter().enumerate() {
            let done = if at < OLD_FILES_KEPT {
                self.log().adopt(path.clone()).await
            } else {
                self.disk.remove_file(&path).await
            };
            if let Err(error) = done {
                tracing::warn!("{}: a free file of the commit log cannot be reused: {error}", path.display());
            }
        }
    }
}

/// Removes the folders of shards that are no more; their logs were replayed.
pub async fn remove_old_shards<D: Disk>(disk: &D, layout: &Layout, shards: u32) -> io::Result<()> {
    for path in shard_folders(disk, &layout.own())? {
        let is_live = (0..shards).any(|shard| layout.shard(ShardId(shard)) == path);
        if !is_live {
            disk.remove_dir_all(&path).await?;
        }
    }
    Ok(())
}

/// What the checkpoints say of the producers of these logs.
fn restore_producers(view: &View, logs: &HashSet<LogId>) -> HashMap<LogId, Producers> {
    let mut all: HashMap<LogId, Producers> = HashMap::new();
    for entry in view.producers().filter(|entry| logs.contains(&entry.log_id)) {
        let producers = all.entry(entry.log_id).or_insert_with(|| Producers::new(host::random()));
        match entry.state {
            Some(state) => producers.restore(entry.producer_id, state),
            None => _ = producers.forget(entry.producer_id),
        }
    }
    all
}

/// Remembers a batch that is in the log; the same at a start and in a check. Gives what a marker has ended by an abort.
pub fn replay(producers: &mut Producers, batch: &BatchFacts, bytes: &[u8], append_ms: i64) -> Option<AbortedTxn> {
    if batch.is_control() {
        return replay_marker(producers, batch, bytes, append_ms);
    }
    let delta = batch.last_offset.0 - batch.base_offset.0;
    let identity = BatchIdentity {
        producer_id: ProducerId(batch.producer_id),
        epoch: ProducerEpoch(batch.producer_epoch),
        base_sequence: Sequence(batch.base_sequence),
        last_offset_delta: i32::try_from(delta).unwrap_or(0),
        transactional: batch.is_transactional(),
    };
    let appended = Appended { base_offset: batch.base_offset, max_timestamp: batch.max_timestamp, append_ms };
    producers.replay(&identity, &appended);
    None
}

/// A control batch without a marker (compaction may have emptied it) says nothing, as in Kafka.
fn replay_marker(producers: &mut Producers, batch: &BatchFacts, bytes: &[u8], append_ms: i64) -> Option<AbortedTxn> {
    let header = BatchHeader::read(bytes).ok().filter(BatchHeader::is_idempotent)?;
    let (kind, coordinator_epoch) = refill::marker_of(bytes, &header)?;
    let (producer_id, epoch) = (header.producer_id, header.producer_epoch);
    let ending = Ending { producer_id, epoch, coordinator_epoch, bumps_epoch: false };
    let ended = producers.replay_marker(&ending, batch.last_offset, append_ms);
    let first_offset = ended.first_offset.filter(|_| kind == ControlKind::Abort)?;
    let last_stable_offset = ended.last_stable_offset;
    Some(AbortedTxn { producer_id, first_offset, last_offset: batch.last_offset, last_stable_offset })
}
