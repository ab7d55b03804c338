//! The leader epochs of a partition: what readers ask for, the file that keeps them, and how they are found again.
//!
//! The file is derived (storage rule S15), and never waited for. A checkpoint says which epoch is the newest below its
//! recovery point; a file that does not say the same is not looked at. What lies behind the recovery point is walked
//! anyhow, and what lies before it the batches in the segments say.

use std::io;
use std::path::Path;
use std::rc::Rc;

use super::offsets::batch_at;
use super::partition::Partition;
use super::shard::Shard;
use crate::ids::Offset;
use crate::log::checkpoint::PartitionEntry;
use crate::log::kafka_files::{self, LeaderEpoch};
use crate::log::leader_epochs::LeaderEpochs;
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};
use crate::runtime::host::{self, Queue};

impl<D: Disk> Partition<D> {
    /// What recovery found, and the epoch that this broker writes from now on.
    pub(super) fn set_epochs(&self, found: LeaderEpochs, present: i32) {
        let mut epochs = found;
        epochs.begin(present, self.log.borrow().end());
        *self.epochs.borrow_mut() = epochs;
    }

    /// The epochs of the log as it is now: the log start may have moved since the last look.
    fn with_epochs<T>(&self, look: impl FnOnce(&LeaderEpochs) -> T) -> T {
        let mut epochs = self.epochs.borrow_mut();
        epochs.cut_start(self.log_start());
        look(&epochs)
    }

    /// Where an epoch ends, as [`LeaderEpochs::end_of`] says it.
    pub(super) fn epoch_end(&self, asked: i32) -> Option<(i32, Offset)> {
        let end = self.log.borrow().end();
        self.with_epochs(|epochs| epochs.end_of(asked, end))
    }

    /// The epoch that an offset was written in.
    pub(super) fn epoch_at(&self, offset: Offset) -> Option<i32> {
        self.with_epochs(|epochs| epochs.at(offset))
    }

    /// The first batch of this broker's epoch was appended.
    pub(super) fn begin_epoch(&self, epoch: i32, base_offset: Offset) {
        self.epochs.borrow_mut().begin(epoch, base_offset);
    }

    /// What the file shall hold: every epoch that has records.
    fn written_epochs(&self) -> Vec<LeaderEpoch> {
        let end = self.log.borrow().end();
        self.with_epochs(|epochs| epochs.entries().iter().filter(|entry| entry.start < end).copied().collect())
    }
}

impl<D: Disk> Shard<D> {
    /// Writes the file of a partition whose first batch of this epoch was just staged. Nothing waits for it.
    pub(super) fn write_epochs_soon(&self, partition: &Rc<Partition<D>>) {
        let (disk, partition) = (self.disk.clone(), Rc::clone(partition));
        host::spawn(Queue::Background, async move {
            if partition.is_closed() {
                return; // its folder may be another topic's by now
            }
            if let Err(error) = write(&disk, &partition).await {
                tracing::warn!("{}: the leader epochs could not be written: {error}", partition.name);
            }
        });
    }
}

/// Writes the file anew; nobody waits until it is on disk.
pub(super) async fn write<D: Disk>(disk: &D, partition: &Partition<D>) -> io::Result<()> {
    let path = partition.log.borrow().folder().join(kafka_files::LEADER_EPOCHS);
    let content = kafka_files::encode_leader_epochs(&partition.written_epochs());
    let file = disk.open(&path, Access::Buffered, Create::Truncate)?;
    let wanted = content.len();
    let written = file.write_at(0, content.into()).await?;
    if written == wanted { Ok(()) } else { Err(short_write(&path, written, wanted)) }
}

/// The newest epoch that has records below `end`, as a checkpoint keeps it; 0 for none.
pub(super) fn newest_below<D: Disk>(partition: &Partition<D>, end: Offset) -> u32 {
    let newest = if end > partition.log_start() { partition.epoch_at(Offset(end.0 - 1)) } else { None };
    newest.and_then(|epoch| u32::try_from(epoch).ok()).unwrap_or(0)
}

/// What the file says; nothing where it is missing, broken, or older than the partition's newest checkpoint.
pub(super) async fn read<D: Disk>(disk: &D, folder: &Path, entry: Option<&PartitionEntry>) -> LeaderEpochs {
    let Ok(content) = disk.read_file(&folder.join(kafka_files::LEADER_EPOCHS)).await else {
        return LeaderEpochs::default();
    };
    // Torn in its last line, "2 164" would be read as "2 1".
    let is_whole = content.ends_with(b"\n");
    let entries = kafka_files::parse_leader_epochs(&String::from_utf8_lossy(&content)).ok().filter(|_| is_whole);
    let entries = entries.unwrap_or_default();
    let listed = LeaderEpochs::of(&entries);
    let newest = |entry: &PartitionEntry| listed.at(Offset(entry.recovery_point.0 - 1)).map_or(0, i32::unsigned_abs);
    let is_older =
        entry.is_some_and(|entry| entry.recovery_point > entry.log_start && newest(entry) != entry.leader_epoch);
    if is_older { LeaderEpochs::default() } else { listed }
}

/// Makes `found` (the file's epochs, and those that recovery walked) fit the log, and fills it up from the segments where
/// it does not reach back to the log start.
pub(super) async fn complete<D: Disk>(partition: &Partition<D>, mut found: LeaderEpochs) -> io::Result<LeaderEpochs> {
    let (start, end) = (partition.log_start(), partition.high_watermark());
    found.cut_end(end);
    found.cut_start(start);
    let known_from = found.entries().first().map_or(end, |first| first.start);
    if known_from <= start {
        return Ok(found);
    }
    let mut complete = search(partition, start, known_from).await?;
    found.entries().iter().for_each(|entry| complete.walked(entry.epoch, entry.start));
    Ok(complete)
}

/// Finds the epochs between `from` and `to` by halving, since they only grow.
async fn search<D: Disk>(partition: &Partition<D>, from: Offset, to: Offset) -> io::Result<LeaderEpochs> {
    let mut found = LeaderEpochs::default();
    let mut at = from;
    while at < to {
        let Some(first) = batch_at(partition, at).await? else { break };
        found.walked(first.leader_epoch, first.base_offset.max(at));
        let (mut same, mut other) = (first.last_offset, to);
        while same.0 + 1 < other.0 {
            let middle = Offset(same.0 + (other.0 - same.0) / 2);
            match batch_at(partition, middle).await? {
                Some(batch) if batch.leader_epoch == first.leader_epoch => same = batch.last_offset.max(middle),
                Some(batch) => other = batch.base_offset.min(middle),
                None => other = middle,
            }
        }
        at = other.max(same.plus(1));
    }
    Ok(found)
}
