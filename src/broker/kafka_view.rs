//! Files that Kafka's tools (and a Kafka that takes the folder over) expect beside the segments. We need them only where all
//! checkpoints are lost: then the snapshot tells of producers whose batches were deleted.

use std::io;
use std::path::Path;

use super::epochs;
use super::partition::Partition;
use super::snapshots::{self, Flush};
use crate::ids::{Offset, Sequence};
use crate::log::names::{self, Kind};
use crate::log::snapshot::{self, SnapshotEntry};
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::state::producers::{ProducerState, Producers};
use crate::state::window::Remembered;

/// Writes the producer snapshot as of the end and the leader epochs of one partition, at a clean stop.
///
/// # Errors
/// Those of the disk.
pub(super) async fn write<D: Disk>(disk: &D, partition: &Partition<D>) -> io::Result<()> {
    // One that is being taken comes first, or there could be none of the end.
    snapshots::write(disk, partition, Flush::Later).await?;
    let end = partition.log.borrow().end();
    partition.take_snapshot(end);
    snapshots::write(disk, partition, Flush::Later).await?;
    epochs::write(disk, partition).await
}

/// Remembers the producers of the newest snapshot that nothing else tells of: their newest batch alone.
///
/// `from` is where the log begins, and where the walk of it began. An older snapshot is not used: it may be behind batches
/// that were deleted since, and a producer that goes on where it really is would be refused.
pub(super) async fn restore_producers<D: Disk>(
    disk: &D,
    folder: &Path,
    (from, end): (Offset, Offset),
    producers: &mut Producers,
) {
    let Ok(entries) = disk.list(folder) else { return };
    let as_of = entries.iter().filter_map(|entry| match names::parse(&entry.name) {
        // What one above the end knows of was staged, and is not there: a retry must be written.
        Some((offset, Kind::Snapshot)) if offset >= from && offset <= end => Some(offset),
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
