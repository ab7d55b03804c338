//! Files that Kafka's tools (and a Kafka that takes the folder over) expect beside the segments; we never need them.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::epochs;
use super::partition::Partition;
use crate::ids::{Offset, TopicPartition};
use crate::log::kafka_files;
use crate::log::layout::Layout;
use crate::log::names::{self, Kind};
use crate::log::snapshot::{self, SnapshotEntry};
use crate::runtime::disk::{Access, Create, Disk, DiskFile};

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

async fn put<D: Disk>(disk: &D, path: &Path, content: Bytes) -> io::Result<()> {
    let file = disk.open(path, Access::Buffered, Create::Truncate)?;
    let wanted = content.len();
    let written = file.write_at(0, content).await?;
    if written == wanted { Ok(()) } else { Err(crate::runtime::disk::short_write(path, written, wanted)) }
}
