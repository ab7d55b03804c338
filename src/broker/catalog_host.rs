//! The one writer of the catalog, on shard 0: decide → append → make folders → visible on every shard → answer.
//!
//! Commands are taken one at a time. What a record depends on is durable before it is visible: the catalog's record, then
//! the folders of new partitions (storage rule S5). A crash in between leaves folders to be made at the next start.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::catalog::{Catalog, CatalogRecord, Command, ItemResult, Topic, decide};
use super::messages::{Ask, PartitionKey};
use super::partition::Partition;
use super::shard::Shard;
use crate::ids::{TopicId, TopicPartition};
use crate::log::catalog_log::CatalogLog;
use crate::log::kafka_files;
use crate::log::layout::Layout;
use crate::log::leader_epochs::LeaderEpochs;
use crate::log::partition_log::{LogRules, PartitionLog};
use crate::runtime::disk::Disk;
use crate::runtime::host;
use crate::runtime::signal::Turns;
use crate::state::producers::Producers;
use crate::wire::error_code::ErrorCode;

/// Folders made or renamed before other tasks run: some 100 µs.
const FOLDERS_IN_A_ROW: usize = 2;
/// Partitions of new topics that are taken before other tasks run: below 100 µs.
const PARTITIONS_IN_A_ROW: i32 = 64;
/// Ending of the folder of a deleted partition, as in Kafka.
pub const DELETED_FOLDER: &str = "-delete";
/// Ending of the folder of a partition that nobody knows, as in Kafka.
const STRAY_FOLDER: &str = "-stray";
/// Characters of a folder's name that are kept when it is deleted.
const NAME_KEPT: usize = 255 - 1 - 32 - DELETED_FOLDER.len();

/// The catalog's files and who may write them now.
pub struct CatalogHost<D: Disk> {
    log: CatalogLog<D>,
    turns: Turns,
}

impl<D: Disk> CatalogHost<D> {
    /// The host of an open catalog.
    #[must_use]
    pub fn new(log: CatalogLog<D>) -> Self {
        Self { log, turns: Turns::default() }
    }

    /// Makes records durable, all or none; `next` is the catalog with them.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn append(&self, records: &[CatalogRecord], next: &Catalog) -> io::Result<()> {
        let encoded: Vec<_> = records.iter().map(CatalogRecord::encode).collect();
        match self.log.append(&encoded).await {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return self.rewrite(next).await,
            other => other?,
        }
        // The change is durable: whatever becomes of a snapshot, it must be seen, or its ids would be given out again.
        if self.log.needs_snapshot()
            && let Err(error) = self.rewrite(next).await
        {
            tracing::warn!("the catalog's other file cannot be begun, the next change tries again: {error}");
        }
        Ok(())
    }

    async fn rewrite(&self, next: &Catalog) -> io::Result<()> {
        let snapshot: Vec<_> = next.snapshot_records().iter().map(CatalogRecord::encode).collect();
        self.log.rewrite(&snapshot).await
    }
}

/// A topic id that nobody has: random, as in Kafka.
#[must_use]
pub fn new_topic_id() -> TopicId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&host::random().to_be_bytes());
    bytes[8..].copy_from_slice(&host::random().to_be_bytes());
    // Version 4, variant 1, as every uuid library expects of a random id.
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    TopicId(bytes)
}

impl<D: Disk> Shard<D> {
    /// Does a command on the catalog; see the module.
    pub(super) async fn change(self: &Rc<Self>, command: Command) -> Result<Vec<ItemResult>, ErrorCode> {
        let Some(host) = self.catalog_host() else { return Err(ErrorCode::NotController) };
        let _turn = host.turns.mine().await;
        let before = self.catalog();
        let decision = decide(&before, &command, new_topic_id);
        if decision.records.is_empty() {
            return Ok(decision.results);
        }
        if let Err(error) = clear_places(&self.disk, &self.layout, &before, &decision.next).await {
            tracing::error!("what stands in the place of a new partition cannot be renamed: {error}");
            return Err(ErrorCode::KafkaStorageError);
        }
        if let Err(error) = host.append(&decision.records, &decision.next).await {
            tracing::error!("the catalog cannot be changed: {error}");
            return Err(ErrorCode::KafkaStorageError);
        }
        // From here on the change is a fact, whatever else goes wrong: its log ids must never be given out again.
        if let Err(error) = make_folders(&self.disk, &self.layout, &before, &decision.next).await {
            tracing::error!("the folders of new partitions cannot be made, the first record tries again: {error}");
        }
        let next = Arc::new(decision.next);
        let published: Vec<_> =
            self.all_shards().map(|shard| self.ask(shard, Ask::Publish(Arc::clone(&next)))).collect();
        for done in published {
            done.await;
        }
        Ok(decision.results)
    }

    /// Makes a new catalog visible here: new partitions appear, those of deleted topics go, settings change.
    pub(super) async fn publish(self: &Rc<Self>, catalog: Arc<Catalog>) {
        let before = self.catalog();
        for topic in catalog.topics() {
            let known = before.topic_by_id(topic.id);
            if known.is_some_and(|known| Arc::ptr_eq(known, topic)) {
                continue;
            }
            self.take_topic(topic, known.map(Arc::as_ref)).await;
        }
        self.set_catalog(Arc::clone(&catalog));
        self.coordinators_follow(&before, &catalog);
        self.transactions_follow(&before, &catalog);
        for topic in before.topics().filter(|topic| catalog.topic_by_id(topic.id).is_none()) {
            self.drop_topic(topic).await;
            self.forget_tails_of_closed();
        }
    }

    /// Others run meanwhile: nobody changes the catalog before this is done, and nobody knows what is new in it.
    async fn take_topic(&self, topic: &Topic, known: Option<&Topic>) {
        for (partition, log_id) in (0..).zip(&topic.partitions) {
            if partition % PARTITIONS_IN_A_ROW == PARTITIONS_IN_A_ROW - 1 {
                host::yield_now().await;
            }
            let key = PartitionKey { topic: topic.id, partition };
            if !self.owns(key) {
                continue;
            }
            if let Some(present) = self.partition(key) {
                if known.is_some_and(|known| known.settings != topic.settings) {
                    present.set_settings(&topic.settings);
                }
                continue;
            }
            let name = TopicPartition { topic: Arc::clone(&topic.name), partition };
            let folder = self.layout.partition(&name);
            let rules = LogRules::of(&topic.settings);
            let log = PartitionLog::empty(self.disk.clone(), folder, rules, crate::ids::Offset(0));
            let producers = Producers::new(host::random());
            let made = Partition::new(key, name, *log_id, &topic.settings, log, producers);
            made.set_epochs(LeaderEpochs::default(), self.leader_epoch());
            made.mark_dirty();
            self.partitions.borrow_mut().insert(key, Rc::new(made));
        }
    }

    /// Renames the folders at once, so that the name is free, and unlinks them later.
    async fn drop_topic(self: &Rc<Self>, topic: &Topic) {
        let delay = Duration::from_millis(u64::try_from(topic.settings.file_delete_delay_ms).unwrap_or(0));
        let mut retired = Vec::new();
        for partition in 0..topic.partition_count() {
            let key = PartitionKey { topic: topic.id, partition };
            let Some(gone) = self.partitions.borrow_mut().remove(&key) else { continue };
            gone.close(&self.waiters);
            self.note_dropped(&gone);
            self.removed.borrow_mut().push(gone.log_id);
            let folder = self.layout.partition(&gone.name);
            match retire_folder(&self.disk, &self.layout, &folder, topic.id) {
                Ok(folder) => retired.push(folder),
                Err(error) => tracing::error!("{}: cannot be renamed for deletion: {error}", folder.display()),
            }
            if retired.len().is_multiple_of(FOLDERS_IN_A_ROW) {
                host::yield_now().await;
            }
        }
        if retired.is_empty() {
            return;
        }
        // A crash before this undoes some of the renames; the catalog says what the folders are, and a start repeats them.
        if let Err(error) = self.disk.sync_dir(&self.layout.kafka()).await {
            tracing::warn!("{}: the renamed folders could not be flushed: {error}", topic.name);
        }
        retired.into_iter().for_each(|folder| self.remove_folder_later(folder, delay));
    }
}

/// Gives the folder of a deleted partition a name that no partition has; durable after a sync of the folder around it.
pub(super) fn retire_folder<D: Disk>(
    disk: &D,
    layout: &Layout,
    folder: &Path,
    topic: TopicId,
) -> io::Result<std::path::PathBuf> {
    let retired = retired_name(layout, folder, topic, DELETED_FOLDER);
    disk.rename(folder, &retired)?;
    Ok(retired)
}

fn retired_name(layout: &Layout, folder: &Path, topic: TopicId, ending: &str) -> std::path::PathBuf {
    // As Kafka names it: the name, cut so that the whole stays below the limit of a file name, a dot, 32 hexadecimal
    // digits that nothing else has, and the ending.
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let kept: String = name.chars().take(NAME_KEPT).collect();
    let partition = name.rsplit('-').next().and_then(|digits| digits.parse::<u32>().ok()).unwrap_or(0);
    let topic = topic.0.iter().take(12).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    layout.kafka().join(format!("{kept}.{topic}{partition:08x}{ending}"))
}

/// The partitions that `next` has and `before` has not, each with its topic's id.
fn new_partitions<'a>(before: &'a Catalog, next: &'a Catalog) -> impl Iterator<Item = (TopicPartition, TopicId)> + 'a {
    next.topics().flat_map(|topic| {
        let known = before.topic_by_id(topic.id).map_or(0, |known| known.partition_count());
        let name = |partition| TopicPartition { topic: Arc::clone(&topic.name), partition };
        (known..topic.partition_count()).map(move |partition| (name(partition), topic.id))
    })
}

/// Makes the folders of the partitions that `next` has and `before` has not, durably, each with its topic's id.
pub(super) async fn make_folders<D: Disk>(
    disk: &D,
    layout: &Layout,
    before: &Catalog,
    next: &Catalog,
) -> io::Result<()> {
    let mut made = 0_usize;
    for (name, topic) in new_partitions(before, next) {
        make_folder(disk, layout, &name, topic).await?;
        made += 1;
        if made.is_multiple_of(FOLDERS_IN_A_ROW) {
            host::yield_now().await;
        }
    }
    if made > 0 { disk.sync_fs(layout.root()).await } else { Ok(()) }
}

/// What stands in the place of a new partition (of a deletion that a crash or a failing disk has cut short, or put there by
/// somebody) is renamed as Kafka renames strays, durably: its records must not become the new topic's, and what the catalog
/// does not call deleted is not removed (storage rule S12). Done before the catalog knows the new topic: from then on what
/// is there without a readable id counts as its own.
async fn clear_places<D: Disk>(disk: &D, layout: &Layout, before: &Catalog, next: &Catalog) -> io::Result<()> {
    let mut is_renamed = false;
    for (at, (name, _)) in new_partitions(before, next).enumerate() {
        let folder = layout.partition(&name);
        match disk.names(&folder) {
            Ok(names) if names.is_empty() => {}
            Ok(_) => {
                let stranger = folder_topic(disk, &folder).await.unwrap_or_else(new_topic_id);
                let aside = retired_name(layout, &folder, stranger, STRAY_FOLDER);
                disk.rename(&folder, &aside)?;
                tracing::warn!("{} is not of the new topic: it is now {}", folder.display(), aside.display());
                is_renamed = true;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if at % FOLDERS_IN_A_ROW == FOLDERS_IN_A_ROW - 1 {
            host::yield_now().await;
        }
    }
    if is_renamed { disk.sync_dir(&layout.kafka()).await } else { Ok(()) }
}

/// The topic that a partition's folder says it belongs to.
pub(super) async fn folder_topic<D: Disk>(disk: &D, folder: &Path) -> Option<TopicId> {
    let content = disk.read_file(&folder.join(kafka_files::PARTITION_METADATA)).await.ok()?;
    kafka_files::parse_partition_metadata(&String::from_utf8_lossy(&content)).ok()
}

/// Makes one folder with its `partition.metadata`; durable after a sync of the file system.
pub(super) async fn make_folder<D: Disk>(
    disk: &D,
    layout: &Layout,
    name: &TopicPartition,
    topic: TopicId,
) -> io::Result<()> {
    use crate::runtime::disk::{Access, Create, DiskFile, short_write};
    let folder = layout.partition(name);
    disk.create_dir_all(&folder)?;
    let path = folder.join(kafka_files::PARTITION_METADATA);
    let content = Bytes::from(kafka_files::encode_partition_metadata(topic));
    let wanted = content.len();
    let file = disk.open(&path, Access::Buffered, Create::Truncate)?;
    let written = file.write_at(0, content).await?;
    if written == wanted { Ok(()) } else { Err(short_write(&path, written, wanted)) }
}
