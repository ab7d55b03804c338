//! How many producers a shard remembers, and for how long: idle ones expire, and beyond a limit the one that was used
//! longest ago makes room, whichever partition it wrote to.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::messages::PartitionKey;
use super::partition::Partition;
use super::shard::Shard;
use crate::ids::ProducerId;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host;
use crate::state::eviction::{self, Eviction};

/// Entries that a scan looks at before other tasks run: below 100 µs.
const SCAN_STEP: usize = 1024;
/// Time between two lines that say that producers were forgotten.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Producers of all partitions of a shard.
#[derive(Default)]
pub(super) struct ProducerLimits {
    remembered: Cell<usize>,
    expired: Cell<u64>,
    evicted: Cell<u64>,
    eviction: RefCell<Eviction<(PartitionKey, ProducerId)>>,
    reported: Cell<u64>,
    report_at: Cell<Duration>,
}

/// What became of a shard's producers since its start; an entry is a producer on one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerCounts {
    /// Entries now.
    pub remembered: usize,
    /// Forgotten because they were idle for `producer.id.expiration.ms`.
    pub expired: u64,
    /// Forgotten because there were more than `corelane.producers.max`.
    pub evicted: u64,
}

impl<D: Disk> Shard<D> {
    /// How many producers are remembered and were forgotten here.
    #[must_use]
    pub fn producer_counts(&self) -> ProducerCounts {
        let limits = &self.producer_limits;
        ProducerCounts {
            remembered: limits.remembered.get(),
            expired: limits.expired.get(),
            evicted: limits.evicted.get(),
        }
    }

    /// A batch was the first of its producer on its partition: somebody else may have to make room.
    pub(super) fn note_new_producer(&self) {
        let limits = &self.producer_limits;
        limits.remembered.set(limits.remembered.get() + 1);
        self.evict_excess();
    }

    /// The partition goes, and its producers with it.
    pub(super) fn note_dropped(&self, gone: &Partition<D>) {
        let limits = &self.producer_limits;
        limits.remembered.set(limits.remembered.get().saturating_sub(gone.producers.borrow().len()));
    }

    /// Counts what recovery has brought back, without those that have expired or are too many.
    pub(super) fn count_recovered_producers(&self) {
        let limit_ms = self.expiration_limit_ms();
        let mut remembered = 0;
        for partition in self.partitions.borrow().values() {
            let mut producers = partition.producers.borrow_mut();
            let expired = producers.expire(limit_ms);
            self.note_expired(partition, expired);
            remembered += producers.len();
        }
        self.producer_limits.remembered.set(remembered);
        self.evict_excess();
    }

    fn evict_excess(&self) {
        let limits = &self.producer_limits;
        while limits.remembered.get() > self.config().producers_max {
            // With nothing but open transactions the limit has to wait.
            let Some((key, producer_id)) = self.oldest_producer() else { return };
            let Some(partition) = self.partition(key) else { return };
            partition.producers.borrow_mut().forget(producer_id);
            partition.mark_dirty();
            limits.remembered.set(limits.remembered.get() - 1);
            limits.evicted.set(limits.evicted.get() + 1);
        }
    }

    fn oldest_producer(&self) -> Option<(PartitionKey, ProducerId)> {
        let mut eviction = self.producer_limits.eviction.borrow_mut();
        let is_at = |(key, id): (PartitionKey, ProducerId), tick| {
            self.partition(key).is_some_and(|partition| partition.producers.borrow().may_be_evicted(id, tick))
        };
        if let Some(oldest) = eviction.next(is_at) {
            return Some(oldest);
        }
        eviction.line_up(self.oldest_producers());
        eviction.next(is_at)
    }

    /// The producers of all partitions that were used longest ago.
    fn oldest_producers(&self) -> Vec<(u64, (PartitionKey, ProducerId))> {
        let partitions = self.all_partitions();
        let step = eviction::draw_step(self.producer_limits.remembered.get());
        let mut drawn = Vec::new();
        partitions.iter().for_each(|one| drawn.extend(one.producers.borrow().uses().step_by(step)));
        let used_until = |tick| {
            let mut oldest = Vec::new();
            for partition in &partitions {
                let producers = partition.producers.borrow();
                oldest.extend(producers.used_until(tick).map(|(tick, id)| (tick, (partition.key, id))));
            }
            oldest
        };
        let oldest = used_until(eviction::line_up_to(drawn));
        // The oldest of all may have open transactions.
        if oldest.is_empty() { used_until(u64::MAX) } else { oldest }
    }

    /// Forgets the producers that have been idle for too long, a few at a time.
    pub(super) async fn expire_producers(&self) {
        let limit_ms = self.expiration_limit_ms();
        for partition in self.all_partitions() {
            self.warn_of_hanging(&partition);
            let mut sweep = partition.producers.borrow().sweep();
            while !partition.is_closed() {
                let Some(expired) = partition.producers.borrow_mut().expire_some(&mut sweep, SCAN_STEP, limit_ms)
                else {
                    break;
                };
                let limits = &self.producer_limits;
                limits.remembered.set(limits.remembered.get().saturating_sub(expired));
                self.note_expired(&partition, expired);
                host::yield_now().await;
            }
        }
    }

    fn expiration_limit_ms(&self) -> i64 {
        clock::now_ms().saturating_sub(self.catalog().config().producer_id_expiration_ms)
    }

    fn note_expired(&self, partition: &Partition<D>, expired: usize) {
        if expired > 0 {
            partition.mark_dirty();
            self.producer_limits.expired.set(self.producer_limits.expired.get() + expired as u64);
        }
    }

    /// Says that producers had to make room: seldom, however many there are.
    pub(super) fn report_evictions(&self) {
        let limits = &self.producer_limits;
        let evicted = limits.evicted.get();
        let now = clock::monotonic();
        if evicted == limits.reported.get() || now < limits.report_at.get() {
            return;
        }
        tracing::warn!(
            "{}: {} producers were forgotten to make room for others (all in all {evicted}): more than \
             corelane.producers.max={} wrote here; a retry of one of them is taken for a new batch",
            self.id,
            evicted - limits.reported.get(),
            self.config().producers_max
        );
        limits.reported.set(evicted);
        limits.report_at.set(now + REPORT_INTERVAL);
    }

    /// The last word on it, at a stop.
    pub(super) fn report_producers(&self) {
        let ProducerCounts { remembered, expired, evicted } = self.producer_counts();
        tracing::info!("{}: producers remembered {remembered}, expired {expired}, evicted {evicted}", self.id);
    }
}
