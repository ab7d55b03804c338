//! What Metadata and DescribeTopicPartitions say of a partition: one replica, which leads and is in sync.

use crate::wire::sink::{Sink, Writer};

/// Where the partitions are led, and in which epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leader {
    pub(crate) node_id: i32,
    pub(crate) epoch: i32,
}

impl Leader {
    /// Writes error code, index and leader; the epoch where the version has it.
    pub(crate) fn write<S: Sink>(self, out: &mut Writer<'_, S>, partition: usize, with_epoch: bool) {
        out.i16(0);
        out.i32(i32::try_from(partition).unwrap_or(i32::MAX));
        out.i32(self.node_id);
        if with_epoch {
            out.i32(self.epoch);
        }
    }

    /// Writes a list of brokers that holds only the leader: replicas, or those in sync.
    pub(crate) fn write_alone<S: Sink>(self, out: &mut Writer<'_, S>) {
        out.count(Some(1));
        out.i32(self.node_id);
    }
}

/// What may be done with a topic where nobody is kept from anything, as bits of the operations' numbers.
///
/// Source: apache/kafka `AclEntry.supportedOperations(TOPIC)`: read, write, create, delete, alter, describe,
/// describe configs, alter configs.
pub(crate) const TOPIC_OPERATIONS: i32 = 3576;

/// The same for the cluster: create, alter, describe, cluster action, describe configs, alter configs, idempotent write.
pub(crate) const CLUSTER_OPERATIONS: i32 = 8096;

/// The same for a group: read, delete, describe, describe configs, alter configs.
pub(crate) const GROUP_OPERATIONS: i32 = 3400;

/// The number that says that operations were not asked for.
pub(crate) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;
