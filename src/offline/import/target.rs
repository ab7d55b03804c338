//! The place that a folder is taken into: whether it is free, what has to be changed, and the change itself.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::source::Source;
use crate::broker::catalog::command::{Command, Decision, decide};
use crate::broker::catalog::create::NewTopic;
use crate::broker::catalog::partitions::MorePartitions;
use crate::broker::catalog::{Catalog, CatalogRecord, names as topic_names};
use crate::broker::catalog_host::new_topic_id;
use crate::ids::{LogId, Offset, TopicId, TopicPartition};
use crate::log::checkpoint_chain::{self as chain, View};
use crate::log::kafka_files;
use crate::log::layout::Layout;
use crate::log::names::{self, Kind};
use crate::log::store::StoreState;
use crate::offline::folder::Held;
use crate::offline::{Failed, catalog};
use crate::runtime::disk::Disk;
use crate::runtime::executors::block_on;
use crate::runtime::real_disk::RealDisk;

/// Where files lie until they are whole; a folder of Kafka's may hold nothing else than partitions.
const ASIDE: &str = "importing";
/// The folder that had the partition's name.
const BEFORE: &str = "importing-before";
/// Leader epochs have 31 bits, and each start needs one.
const EPOCHS_LEFT: i32 = 1 << 20;
/// Room that must be left on the disk.
const SPARE_BYTES: u64 = 64 << 20;

/// What is going to be done.
pub(super) struct Target {
    name: TopicPartition,
    topic: TopicId,
    log: LogId,
    records: Vec<CatalogRecord>,
    next: Catalog,
    store: StoreState,
    /// The generation that the store must know before the data is there; `None` where it is high enough.
    raise_to: Option<u64>,
    made: Made,
}

/// What the catalog lacks.
enum Made {
    Topic,
    Partitions,
    Nothing,
}

impl Target {
    /// Looks whether the source can be taken in.
    ///
    /// # Errors
    /// A sentence: what stands against it.
    pub(super) fn plan(held: &Held, source: &Source, topic: Option<&str>) -> Result<Self, Failed> {
        let store = catalog::store_state(held)?;
        if !store.clean {
            return Err("the broker of this data folder was not stopped in order: start it once and stop it"
                .to_string()
                .into());
        }
        let (_, known) = catalog::open(held, &store)?;
        let topic = Arc::from(topic.unwrap_or(&source.name.topic));
        let name = TopicPartition { topic, partition: source.name.partition };
        if held.layout.partition(&name).canonicalize().is_ok_and(|folder| folder == source.folder) {
            return Err(format!(
                "{} is this folder itself: move it out of the data folder first",
                source.folder.display()
            )
            .into());
        }
        let (decision, made) = decide_topic(&known, &name)?;
        let mut records = decision.records;
        let mut next = decision.next;
        let Some(found) = next.topic(&name.topic).cloned() else {
            return Err(format!("the topic {} cannot be made", name.topic).into());
        };
        if known.log_id(&name).is_some() {
            must_be_empty(&held.layout, &known, &name)?;
            let log = next.next_log_id();
            push(&mut records, &mut next, CatalogRecord::PartitionLog { id: found.id, partition: name.partition, log });
        }
        let log = next.log_id(&name).ok_or_else(|| format!("{name} cannot be made"))?;
        raise_counters(&mut records, &mut next, source.producer_id())?;
        let raise_to = needed_generation(&store, source.epoch())?;
        must_fit(held, source)?;
        Ok(Self { name, topic: found.id, log, records, next, store, raise_to, made })
    }

    /// What is going to be done, for people.
    pub(super) fn text(&self) -> String {
        let what = match self.made {
            Made::Topic => format!("the topic {} is made", self.name.topic),
            Made::Partitions => format!("the topic {} gets more partitions", self.name.topic),
            Made::Nothing => "the partition is there and empty".to_string(),
        };
        let mut text = format!("It becomes {} (log {}): {what}; its files are copied.", self.name, self.log.0);
        if let Some(generation) = self.raise_to {
            text += &format!(
                "\nThe generation is raised from {} to {generation}, above the epochs that come along.",
                self.store.generation
            );
        }
        text
    }

    /// Does it.
    ///
    /// # Errors
    /// A sentence: what the disk says. What was not finished is not seen; the command may be given again.
    pub(super) fn take_in(self, held: &Held, source: &Source) -> Result<(), Failed> {
        let own = held.layout.own();
        let (aside, before) = (own.join(ASIDE), own.join(BEFORE));
        let folder = held.layout.partition(&self.name);
        for old in [&aside, &before] {
            remove_folder(old).map_err(|error| cannot(old, &error))?;
        }
        copy(source, &aside, self.topic).map_err(|error| cannot(&aside, &error))?;
        if let Some(generation) = self.raise_to {
            catalog::write_store(held, StoreState { generation, ..self.store })?;
        }
        let (log, _) = catalog::open(held, &self.store)?;
        catalog::append(log, &self.records, &self.next)?;
        put_in_place(&aside, &before, &folder).map_err(|error| cannot(&folder, &error))?;
        block_on(RealDisk.sync_fs(held.layout.root())).map_err(|error| cannot(held.layout.root(), &error))?;
        remove_folder(&before).map_err(|error| cannot(&before, &error))
    }
}

fn push(records: &mut Vec<CatalogRecord>, next: &mut Catalog, record: CatalogRecord) {
    next.apply(&record);
    records.push(record);
}

/// Makes the topic, or the partition, where it is not there.
fn decide_topic(known: &Catalog, name: &TopicPartition) -> Result<(Decision, Made), Failed> {
    let count = name.partition.checked_add(1).ok_or_else(|| format!("{name} has no place"))?;
    let topic = known.topic(&name.topic);
    if topic.is_none_or(|topic| topic.partition_count() < count) && topic_names::is_internal(&name.topic) {
        return Err(format!("{} is made by the broker itself: let it make the topic first", name.topic).into());
    }
    let (command, made) = match topic {
        None => {
            let new = NewTopic {
                name: Arc::clone(&name.topic),
                partitions: count,
                replication_factor: -1,
                ..NewTopic::default()
            };
            (Command::CreateTopics { topics: vec![new], validate_only: false }, Made::Topic)
        }
        Some(topic) if topic.partition_count() < count => {
            let more = MorePartitions { name: Arc::clone(&name.topic), count, assignments: None };
            (Command::CreatePartitions { topics: vec![more], validate_only: false }, Made::Partitions)
        }
        Some(_) => {
            let nothing = Decision { records: Vec::new(), results: Vec::new(), next: known.clone() };
            return Ok((nothing, Made::Nothing));
        }
    };
    let decision = decide(known, &command, new_topic_id);
    match decision.results.iter().find(|result| !result.is_done()) {
        None => Ok((decision, made)),
        Some(refused) => {
            let why = refused.message.as_deref().unwrap_or("the catalog refuses it").to_string();
            Err(format!("the topic {} cannot be made: {why}", name.topic).into())
        }
    }
}

/// Offsets that were given out are not given out again, so a partition that ever had records is not free.
fn must_be_empty(layout: &Layout, known: &Catalog, name: &TopicPartition) -> Result<(), Failed> {
    let folder = layout.partition(name);
    let has_bytes = RealDisk.list(&folder).unwrap_or_default().iter().any(
        |entry| matches!(names::parse(&entry.name), Some((base, Kind::Log)) if base > Offset(0) || entry.bytes > 0),
    );
    let mut view = View::default();
    for path in crate::broker::recovery::shard_folders(&RealDisk, &layout.own()).unwrap_or_default() {
        let read = block_on(chain::read_folder(&RealDisk, &path)).map_err(|error| error.to_string())?;
        view.absorb(&read.checkpoints);
    }
    let entry = known.log_id(name).and_then(|log_id| view.logs.get(&log_id));
    let had_records = entry.is_some_and(|merged| merged.partition.recovery_point > Offset(0));
    if has_bytes || had_records {
        return Err(
            format!("{name} has, or had, records of its own: only an empty partition can take others in").into()
        );
    }
    Ok(())
}

/// A producer id that comes along must not be given to somebody else.
fn raise_counters(records: &mut Vec<CatalogRecord>, next: &mut Catalog, producer_id: i64) -> Result<(), Failed> {
    let free =
        producer_id.checked_add(1).ok_or_else(|| "no producer id is left above those that come along".to_string())?;
    if free > next.next_producer_id().0 {
        let counters = CatalogRecord::Counters { next_log_id: next.next_log_id().0, next_producer_id: free };
        push(records, next, counters);
    }
    Ok(())
}

/// The next start must begin an epoch of leaders and coordinators above all that come along.
fn needed_generation(store: &StoreState, epoch: i32) -> Result<Option<u64>, Failed> {
    if epoch > i32::MAX - EPOCHS_LEFT {
        return Err(
            format!("its epoch of leaders or coordinators, {epoch}, leaves no room for those of this broker").into()
        );
    }
    let needed = u64::try_from(epoch).unwrap_or(0);
    Ok((needed > store.generation).then_some(needed))
}

fn must_fit(held: &Held, source: &Source) -> Result<(), Failed> {
    let space = RealDisk.space(held.layout.root()).map_err(|error| cannot(held.layout.root(), &error))?;
    if space.free_bytes >= source.bytes.saturating_add(SPARE_BYTES) {
        return Ok(());
    }
    Err(format!("the disk has {} bytes free, {} are needed", space.free_bytes, source.bytes + SPARE_BYTES).into())
}

fn cannot(path: &Path, error: &io::Error) -> Failed {
    format!("{}: {error}", path.display()).into()
}

fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Copies the files into a folder of its own, durably.
fn copy(source: &Source, aside: &PathBuf, topic: TopicId) -> io::Result<()> {
    fs::create_dir_all(aside)?;
    for name in &source.files {
        let to = aside.join(name);
        fs::copy(source.folder.join(name), &to)?;
        File::open(&to)?.sync_all()?;
    }
    let metadata = aside.join(kafka_files::PARTITION_METADATA);
    fs::write(&metadata, kafka_files::encode_partition_metadata(topic))?;
    File::open(&metadata)?.sync_all()?;
    File::open(aside)?.sync_all()
}

/// Gives the copy the partition's name; what had it goes aside.
fn put_in_place(aside: &Path, before: &Path, folder: &Path) -> io::Result<()> {
    match fs::rename(folder, before) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::rename(aside, folder)
}
