//! The text checkpoints of Kafka's log dir, written for others: recovery points, high watermarks, log starts, ends of
//! compaction.
//!
//! Each minute if anything moved, and at a clean stop. Each file is whole, the old one or the new one; after a power cut all
//! may be older than the data, as Kafka's own are.
//!
//! Source: apache/kafka `LogManager.checkpointLogRecoveryOffsets`, `checkpointLogStartOffsets`,
//! `ReplicaManager.checkpointHighWatermarks`, `LogCleanerManager.updateCheckpoints`.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::messages::{Answer, Ask, LogMarks};
use super::partition::Partition;
use super::shard::Shard;
use crate::ids::{Offset, TopicPartition};
use crate::log::kafka_files::{self, OffsetsText};
use crate::log::layout::Layout;
use crate::runtime::clock;
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};
use crate::runtime::host;

/// Kafka's default of `log.flush.offset.checkpoint.interval.ms`.
const INTERVAL: Duration = Duration::from_secs(60);
/// Lines made before other tasks run.
const LINES_IN_A_ROW: usize = 512;

impl<D: Disk> Partition<D> {
    /// What Kafka's checkpoints say of it.
    pub(super) fn marks(&self) -> LogMarks {
        let log = self.log.borrow();
        let begins_in_segment = log.segments().first().is_some_and(|first| log.start() > first.base());
        LogMarks {
            name: self.name.clone(),
            recovery_point: self.recovery_point.get(),
            high_watermark: self.high_watermark(),
            log_start: begins_in_segment.then(|| log.start()),
            cleaned_to: self.cleaning.cleaned_to(),
        }
    }
}

impl<D: Disk> Shard<D> {
    /// Writes the files each minute if something moved (shard 0).
    pub(super) async fn keep_kafka_checkpoints(self: Rc<Self>) {
        let mut written = Vec::new();
        loop {
            clock::sleep(INTERVAL).await;
            if self.is_stopping() {
                return;
            }
            let marks = self.all_marks().await;
            if marks == written {
                continue;
            }
            match write(&self.disk, &self.layout, &marks).await {
                Ok(()) => written = marks,
                Err(error) => tracing::warn!("Kafka's checkpoint files could not be written: {error}"),
            }
        }
    }

    /// Of every partition of every shard, by name.
    async fn all_marks(self: &Rc<Self>) -> Vec<LogMarks> {
        let asked: Vec<_> = self.all_shards().map(|shard| self.ask(shard, Ask::Marks)).collect();
        let mut all = Vec::new();
        for answer in asked {
            if let Answer::Marks(some) = answer.await {
                all.extend(some);
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    pub(super) fn own_marks(&self) -> Vec<LogMarks> {
        self.partitions.borrow().values().map(|partition| partition.marks()).collect()
    }
}

/// Writes the files.
///
/// # Errors
/// Those of the disk.
pub(super) async fn write<D: Disk>(disk: &D, layout: &Layout, marks: &[LogMarks]) -> io::Result<()> {
    let put = async |name, offset: fn(&LogMarks) -> Option<Offset>| {
        let entries: Vec<_> = marks.iter().filter_map(|one| Some((&one.name, offset(one)?))).collect();
        put(disk, &layout.kafka().join(name), text_of(&entries).await).await
    };
    put(kafka_files::RECOVERY_POINTS, |one| Some(one.recovery_point)).await?;
    put(kafka_files::HIGH_WATERMARKS, |one| Some(one.high_watermark)).await?;
    put(kafka_files::LOG_STARTS, |one| one.log_start).await?;
    put(kafka_files::CLEANER_OFFSETS, |one| one.cleaned_to).await
}

/// Says that the stop was clean.
///
/// # Errors
/// Those of the disk.
pub(super) async fn write_clean_shutdown<D: Disk>(disk: &D, layout: &Layout) -> io::Result<()> {
    let path = layout.kafka().join(kafka_files::CLEAN_SHUTDOWN);
    put(disk, &path, kafka_files::encode_clean_shutdown()).await
}

async fn text_of(entries: &[(&TopicPartition, Offset)]) -> String {
    let mut text = OffsetsText::of(entries.len());
    for some in entries.chunks(LINES_IN_A_ROW) {
        some.iter().for_each(|(name, offset)| text.push(name, *offset));
        host::yield_now().await;
    }
    text.end()
}

async fn put<D: Disk>(disk: &D, path: &Path, text: String) -> io::Result<()> {
    let temporary = path.with_added_extension("tmp");
    let file = disk.open(&temporary, Access::Buffered, Create::Truncate)?;
    let wanted = text.len();
    let written = file.write_at(0, text.into()).await?;
    if written != wanted {
        return Err(short_write(&temporary, written, wanted));
    }
    file.sync_data().await?;
    disk.rename(&temporary, path)
}
