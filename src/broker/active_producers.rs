//! Who writes to a partition, for people who look for transactions that hang.

use super::messages::PartitionKey;
use super::shard::Shard;
use crate::ids::{Offset, ProducerEpoch, ProducerId};
use crate::runtime::disk::Disk;
use crate::state::producers::ProducerState;
use crate::wire::error_code::ErrorCode;

/// What is told of one producer of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Who.
    pub id: ProducerId,
    /// Its newest incarnation.
    pub epoch: ProducerEpoch,
    /// Sequence of its last record; -1 where only a marker is known of that incarnation.
    pub last_sequence: i32,
    /// Timestamp of its last batch, in ms; without one the time of its marker.
    pub last_timestamp: i64,
    /// Epoch of the coordinator that wrote its last marker; -1 for none.
    pub coordinator_epoch: i32,
    /// First offset of the transaction that is open here.
    pub txn_first_offset: Option<Offset>,
}

impl ActiveProducer {
    fn of(id: ProducerId, state: &ProducerState) -> Self {
        let newest = state.window.newest();
        Self {
            id,
            epoch: state.epoch,
            last_sequence: newest.map_or(-1, |batch| batch.last_sequence().0),
            last_timestamp: newest.map_or(state.last_append_ms, |batch| batch.max_timestamp),
            coordinator_epoch: state.coordinator_epoch,
            txn_first_offset: state.txn_first_offset(),
        }
    }
}

impl<D: Disk> Shard<D> {
    /// The producers of partitions of this shard, in the order of the partitions.
    pub(super) fn active_producers(&self, keys: &[PartitionKey]) -> Vec<Result<Vec<ActiveProducer>, ErrorCode>> {
        let of_partition = |key: &PartitionKey| {
            let partition = self.find_partition(*key)?;
            let producers = partition.producers.borrow();
            Ok(producers.iter().map(|(id, state)| ActiveProducer::of(id, state)).collect())
        };
        keys.iter().map(of_partition).collect()
    }
}
