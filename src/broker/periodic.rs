//! What a shard looks at from time to time: room on the disk, writes that found none, producers that are long gone.

use std::rc::{Rc, Weak};
use std::time::Duration;

use super::partition::Partition;
use super::shard::Shard;
use crate::runtime::clock;
use crate::runtime::disk::Disk;

/// Time between two looks at the disk.
const EYE_INTERVAL: Duration = Duration::from_secs(1);
/// Partitions whose segments are looked at with each look: less than 100 µs.
const LOOKED_AT: usize = 500;

impl<D: Disk> Shard<D> {
    /// Looks at the disk each second, and from time to time for producers that have expired.
    pub(super) async fn keep_an_eye(self: Rc<Self>) {
        let expiry_interval = Duration::from_millis(self.config().producer_id_expiration_check_interval_ms);
        let mut next_idle = Vec::new();
        let mut next_expiry = clock::monotonic() + expiry_interval;
        while !self.is_stopping() {
            self.look_at_disk();
            self.try_stuck_again();
            self.close_idle_segments(&mut next_idle);
            self.report_evictions();
            if clock::monotonic() >= next_expiry {
                self.expire_producers().await;
                next_expiry = clock::monotonic() + expiry_interval;
            }
            clock::sleep(EYE_INTERVAL.min(expiry_interval)).await;
        }
    }

    /// A full disk is refused before anything is staged, and heals by itself with some room to spare (storage.md §8).
    fn look_at_disk(&self) {
        let Ok(space) = self.disk.space(self.layout.root()) else { return };
        let least = (space.total_bytes / 50).min(1 << 30);
        let was_full = self.disk_is_full.get();
        let is_full = space.free_bytes < if was_full { least + least / 4 } else { least };
        if is_full != was_full {
            self.disk_is_full.set(is_full);
            let word = if is_full { "is full: new records are refused" } else { "has room again" };
            tracing::warn!("the disk of {} {word} ({} bytes free)", self.layout.root().display(), space.free_bytes);
        }
    }

    /// Tries writes again that found no room.
    fn try_stuck_again(self: &Rc<Self>) {
        let stuck = std::mem::take(&mut *self.stuck.borrow_mut());
        for partition in stuck {
            partition.is_listed_as_stuck.set(false);
            if partition.write_little(&self.waiters) {
                self.write_rest_of(partition);
            } else {
                self.note_stuck(&partition);
            }
        }
    }

    /// Gives back what idle segments hold, of some partitions at a time.
    fn close_idle_segments(&self, next: &mut Vec<Weak<Partition<D>>>) {
        if next.is_empty() {
            next.extend(self.partitions.borrow().values().map(Rc::downgrade));
        }
        for partition in next.drain(next.len().saturating_sub(LOOKED_AT)..).filter_map(|one| one.upgrade()) {
            let log = partition.log.borrow();
            let closed = log.segments().len().saturating_sub(1);
            for segment in &log.segments()[..closed] {
                if segment.end() <= partition.sealed_through.get() {
                    segment.close_if_idle();
                }
            }
        }
    }
}
