//! Whole shards that forget producers: what a restart brings back, what is counted, and that others run meanwhile.

use std::time::Duration;

use corelane::broker::messages::PartitionKey;
use corelane::broker::producer_limits::ProducerCounts;
use corelane::runtime::clock;
use corelane::wire::error_code::ErrorCode;

use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{Node, batch};

/// Producers are forgotten after ten seconds; a checkpoint comes each second.
const SHORT: &[(&str, &str)] = &[
    ("producer.id.expiration.ms", "10000"),
    ("producer.id.expiration.check.interval.ms", "100"),
    ("corelane.checkpoint.interval.ms", "1000"),
];

fn wait(millis: u64) -> impl Future<Output = ()> {
    clock::sleep(Duration::from_millis(millis))
}

impl Node {
    /// Whether the producer, whose first batch was appended at `offset`, is known: its retry is.
    async fn knows(&self, key: PartitionKey, producer: i64, offset: i64) -> bool {
        // A gap is refused and changes nothing.
        match self.produce(key, &batch(producer, 700, 10)).await {
            (ErrorCode::OutOfOrderSequenceNumber, -1) => {
                assert_eq!(self.produce(key, &batch(producer, 0, 10)).await, (ErrorCode::None, offset));
                true
            }
            (ErrorCode::None, _) => false,
            other => panic!("{other:?}"),
        }
    }

    async fn append(&self, key: PartitionKey, producer: i64, offset: i64) {
        assert_eq!(self.produce(key, &batch(producer, 0, 10)).await, (ErrorCode::None, offset));
    }
}

/// Idleness counts from the append, whatever restarts and retries come between.
#[test]
fn producers_expire_by_the_time_of_their_append_also_over_restarts() {
    for clean in [false, true] {
        mini_host::run(1, async move {
            let disk = MemoryDisk::default();
            let node = Node::start(&disk, SHORT).await;
            let key = node.create("t").await;
            node.append(key, 1, 0).await;
            wait(6_000).await;
            node.append(key, 2, 1).await;
            if clean {
                node.close().await.unwrap();
            }
            let node = Node::start(&disk.copy(), SHORT).await;
            assert!(node.knows(key, 1, 0).await && node.knows(key, 2, 1).await, "both are alive");
            wait(5_000).await;
            assert_eq!(node.shard.producer_counts(), ProducerCounts { remembered: 1, expired: 1, evicted: 0 });
            assert!(node.knows(key, 2, 1).await);
            assert!(!node.knows(key, 1, 0).await);
        });
    }
}

/// One that was appended before the checkpoint, one after it: the commit log brings the latter back, with its time.
#[test]
fn what_has_expired_does_not_come_back_by_a_crash() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SHORT).await;
        let key = node.create("t").await;
        node.append(key, 1, 0).await;
        wait(12_000).await;
        assert_eq!(node.shard.producer_counts().remembered, 0);
        node.append(key, 2, 1).await;
        let node = Node::start(&disk.copy(), SHORT).await;
        assert_eq!(node.shard.producer_counts().remembered, 1);
        assert!(node.knows(key, 2, 1).await && !node.knows(key, 1, 0).await);
        let crashed = disk.copy();
        wait(30_000).await;
        let node = Node::start(&crashed, SHORT).await;
        assert_eq!(node.shard.producer_counts(), ProducerCounts { remembered: 0, expired: 1, evicted: 0 });
    });
}

/// What was evicted before a checkpoint stays so; what nobody evicted is known after a crash.
#[test]
fn evictions_are_counted_and_last() {
    const FEW: &[(&str, &str)] = &[("corelane.producers.max", "100"), ("corelane.checkpoint.interval.ms", "1000")];
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, FEW).await;
        let keys = [node.create("one").await, node.create("two").await];
        for id in 0..150 {
            node.append(keys[id as usize % 2], id, id / 2).await;
            wait(2).await; // a restart knows the order by the time
        }
        assert_eq!(node.shard.producer_counts(), ProducerCounts { remembered: 100, expired: 0, evicted: 50 });
        node.delete(keys[1]).await;
        assert_eq!(node.shard.producer_counts().remembered, 50);
        wait(2_000).await;
        let node = Node::start(&disk.copy(), FEW).await;
        assert_eq!(node.shard.producer_counts(), ProducerCounts { remembered: 50, expired: 0, evicted: 0 });
        assert!(node.knows(keys[0], 50, 25).await && node.knows(keys[0], 148, 74).await);
        assert!(!node.knows(keys[0], 48, 24).await);
        let fewer: Vec<_> = FEW[1..].iter().copied().chain([("corelane.producers.max", "10")]).collect();
        let node = Node::start(&disk.copy(), &fewer).await;
        assert_eq!(node.shard.producer_counts(), ProducerCounts { remembered: 10, expired: 0, evicted: 40 });
        assert!(node.knows(keys[0], 148, 74).await && node.knows(keys[0], 130, 65).await);
    });
}
