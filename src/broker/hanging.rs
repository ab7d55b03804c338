//! Transactions that nobody seems to end: readers of committed records do not get past them.

use super::partition::Partition;
use super::shard::Shard;
use crate::runtime::clock;
use crate::runtime::disk::Disk;

/// A transaction is late so many milliseconds after the longest time-out that a producer may ask for.
///
/// Source: apache/kafka `ProducerStateManager.LATE_TRANSACTION_BUFFER_MS`.
const LATE_MS: i64 = 5 * 60 * 1000;

impl<D: Disk> Shard<D> {
    /// Names the transactions of a partition that should have been ended long ago.
    pub(super) fn warn_of_hanging(&self, partition: &Partition<D>) {
        let timeout_ms = i64::from(self.config().transactions.timeout_ms_max);
        let limit_ms = clock::now_ms().saturating_sub(timeout_ms).saturating_sub(LATE_MS);
        for late in partition.producers.borrow().late_txns(limit_ms) {
            let (name, id, first) = (&partition.name, late.producer_id.0, late.first_offset);
            tracing::warn!(
                "{name}: the transaction of producer {id} that began at offset {first} has not been ended in time; readers of \
                 committed records wait there. If its coordinator does not know it, end it: `kafka-transactions.sh abort` \
                 with this topic, partition and start offset"
            );
        }
    }
}
