//! Which shard owns a partition: computed from the topic's id, never stored (architecture decision D3).

use twox_hash::XxHash3_64;

use super::messages::PartitionKey;
use crate::ids::ShardId;

/// The owner of a partition; neighbours of one topic have different owners.
#[must_use]
pub fn owner(key: PartitionKey, shards: u32) -> ShardId {
    let hash = XxHash3_64::oneshot(&key.topic.0);
    let partition = u64::from(key.partition.unsigned_abs());
    let shard = hash.wrapping_add(partition) % u64::from(shards.max(1));
    ShardId(u32::try_from(shard).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TopicId;

    #[test]
    fn partitions_of_a_topic_are_spread_evenly() {
        let topic = TopicId([7; 16]);
        let mut counts = [0; 4];
        for partition in 0..100 {
            counts[owner(PartitionKey { topic, partition }, 4).index()] += 1;
        }
        assert_eq!(counts, [25; 4]);
    }
}
