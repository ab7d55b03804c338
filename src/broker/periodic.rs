//! What a shard looks at from time to time: room on the disk, writes that found none, producers that are long gone.

use std::rc::Rc;
use std::time::Duration;

use super::shard::Shard;
use crate::runtime::clock;
use crate::runtime::disk::Disk;

/// Time between two looks at the disk.
const EYE_INTERVAL: Duration = Duration::from_secs(1);

impl<D: Disk> Shard<D> {
    /// Looks at the disk each second, and at what has expired.
    pub(super) async fn keep_an_eye(self: Rc<Self>) {
        let mut next_expiry = clock::monotonic();
        while !self.is_stopping() {
            self.look_at_disk();
            self.look_at_partitions();
            self.limit_producers();
            if clock::monotonic() >= next_expiry {
                self.expire_producers();
                next_expiry += Duration::from_millis(self.config().producer_id_expiration_check_interval_ms);
            }
            clock::sleep(EYE_INTERVAL).await;
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

    /// Tries writes again that found no room, and gives the descriptors of idle segments back.
    fn look_at_partitions(self: &Rc<Self>) {
        for partition in self.all_partitions() {
            if partition.is_stuck() && partition.write_little(&self.waiters) {
                self.write_rest_of(Rc::clone(&partition));
            }
            let log = partition.log.borrow();
            let closed = log.segments().len().saturating_sub(1);
            for segment in &log.segments()[..closed] {
                if segment.end() <= partition.sealed_through.get() {
                    segment.close_if_idle();
                }
            }
        }
    }

    fn expire_producers(&self) {
        let (now_ms, expiration_ms) = (clock::now_ms(), self.catalog().config().producer_id_expiration_ms);
        for partition in self.all_partitions() {
            if partition.producers.borrow_mut().expire(now_ms, expiration_ms) > 0 {
                partition.mark_dirty();
            }
        }
    }

    /// Keeps the number of remembered producers below its limit: those used longest ago are forgotten first.
    fn limit_producers(&self) {
        let max = self.config().producers_max;
        let partitions = self.all_partitions();
        let count: usize = partitions.iter().map(|partition| partition.producers.borrow().len()).sum();
        if count <= max {
            return;
        }
        let mut uses: Vec<u64> = Vec::with_capacity(count);
        partitions.iter().for_each(|partition| uses.extend(partition.producers.borrow().uses()));
        let excess = (count - max).min(uses.len().saturating_sub(1));
        let (_, youngest_evicted, _) = uses.select_nth_unstable(excess.saturating_sub(1));
        let youngest_evicted = *youngest_evicted;
        let evicted: usize = partitions
            .iter()
            .map(|partition| {
                let evicted = partition.producers.borrow_mut().evict_used_until(youngest_evicted);
                if evicted > 0 {
                    partition.mark_dirty();
                }
                evicted
            })
            .sum();
        tracing::warn!(
            "{}: {evicted} producers were forgotten: more than corelane.producers.max={max} wrote here",
            self.id
        );
    }
}
