//! Files that Kafka's tools (and a Kafka that takes the folder over) expect beside the segments. We need them only where all
//! checkpoints are lost: then the snapshot tells of producers whose batches were deleted.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::epochs;
use super::partition::Partition;
use crate::ids::{Offset, Sequence, TopicPartition};
use crate::log::kafka_files;
use crate::log::layout::Layout;
use crate::log::names::{self, Kind};
use crate::log::snapshot::{self, SnapshotEntry};
use crate::runtime::clock;
use crate::runtime::disk::{Access, Create, Disk, DiskFile};
use crate::state::producers::{ProducerState, Producers};
use crate::state::window::Remembered;

/// Writes the producer snapshot as of `end` and the leader epochs of one partition.
///
/// # Errors
/// Those of the disk.
pub(super) async fn write<D: Disk>(disk: &D, folder: &Path, partition: &Partition<D>, end: Offset) -> io::Result<()> {
    let entries = snapshot_entries(partition);
    put(disk, &names::path(folder, end, Kind::Snapshot), snapshot::encode(&entries)).await?;
    epochs::write(disk, partition).await
}

fn snapshot_entries<D: Disk>(partition: &Partition<D>) -> Vec<SnapshotEntry> {
    let producers = partition.producers.borrow();
    let mut entries: Vec<_> = producers
        .iter()
        .map(|(producer_id, state)| {
            let newest = state.window.newest();
            SnapshotEntry {
                producer_id,
                epoch: state.epoch,
                last_sequence: newest.map_or(-1, |batch| batch.last_sequence().0),
                last_offset: newest.map_or(-1, |batch| batch.last_offset().0),
                offset_delta: newest.map_or(0, |batch| batch.last_offset_delta),
                timestamp: newest.map_or(-1, |batch| batch.max_timestamp),
                coordinator_epoch: state.coordinator_epoch,
                txn_first_offset: state.txn_first_offset(),
            }
        })
        .collect();
    entries.sort_by_key(|entry| entry.producer_id);
    entries
}

/// Remembers the producers of the newest snapshot that nothing else tells of: their newest batch alone.
///
/// `from` is where the log begins, and where the walk of it began. An older snapshot is not used: it may be behind batches
/// that were deleted since, and a producer that goes on where it really is would be refused.
pub(super) async fn restore_producers<D: Disk>(disk: &D, folder: &Path, from: Offset, producers: &mut Producers) {
    let Ok(entries) = disk.list(folder) else { return };
    let as_of = entries.iter().filter_map(|entry| match names::parse(&entry.name) {
        Some((offset, Kind::Snapshot)) if offset >= from => Some(offset),
        _ => None,
    });
    let mut as_of: Vec<_> = as_of.collect();
    as_of.sort_unstable();
    for offset in as_of.into_iter().rev() {
        let path = names::path(folder, offset, Kind::Snapshot);
        let Ok(content) = disk.read_file(&path).await else { continue };
        match snapshot::decode(&content) {
            Ok(entries) => {
                let unknown: Vec<_> =
                    entries.iter().filter(|entry| producers.get(entry.producer_id).is_none()).collect();
                unknown.into_iter().for_each(|entry| producers.restore(entry.producer_id, state_of(entry)));
                return;
            }
            Err(damage) => tracing::warn!("{}: {damage}; an older one is looked for", path.display()),
        }
    }
}

/// The snapshot does not hold the time of the append: idleness is counted from now on.
fn state_of(entry: &SnapshotEntry) -> ProducerState {
    let mut state = ProducerState::new(entry.epoch);
    state.coordinator_epoch = entry.coordinator_epoch;
    state.last_append_ms = clock::now_ms();
    state.set_txn_first_offset(entry.txn_first_offset);
    if entry.last_sequence >= 0 {
        state.window.push(Remembered {
            base_offset: Offset(entry.last_offset).plus(-i64::from(entry.offset_delta)),
            max_timestamp: entry.timestamp,
            first_sequence: Sequence(entry.last_sequence).plus(entry.offset_delta.wrapping_neg()),
            last_offset_delta: entry.offset_delta,
        });
    }
    state
}

/// Writes the text checkpoints of the whole log dir, at a clean stop.
///
/// # Errors
/// Those of the disk.
pub async fn write_checkpoints<D: Disk>(
    disk: &D,
    layout: &Layout,
    closed: &[(TopicPartition, Offset, Offset)],
) -> io::Result<()> {
    let ends = || closed.iter().map(|(name, end, _)| (name, *end));
    let kafka = layout.kafka();
    put(disk, &kafka.join(kafka_files::RECOVERY_POINTS), kafka_files::encode_offsets(ends()).into()).await?;
    put(disk, &kafka.join(kafka_files::HIGH_WATERMARKS), kafka_files::encode_offsets(ends()).into()).await?;
    let starts: Vec<_> =
        closed.iter().filter(|(_, _, start)| start.0 > 0).map(|(name, _, start)| (name, *start)).collect();
    put(disk, &kafka.join(kafka_files::LOG_STARTS), kafka_files::encode_offsets(starts.into_iter()).into()).await?;
    put(disk, &kafka.join(kafka_files::CLEAN_SHUTDOWN), kafka_files::encode_clean_shutdown().into()).await
}

/// Writes a small file anew; leaves one alone that is right already: ten thousand that are written anew would take the disk some seconds.
pub(super) async fn put<D: Disk>(disk: &D, path: &Path, content: Bytes) -> io::Result<()> {
    if disk.read_file(path).await.is_ok_and(|present| present == content) {
        return Ok(());
    }
    let file = disk.open(path, Access::Buffered, Create::Truncate)?;
    let wanted = content.len();
    let written = file.write_at(0, content).await?;
    if written == wanted { Ok(()) } else { Err(crate::runtime::disk::short_write(path, written, wanted)) }
}
