//! One thing of a shard that cannot go on, and everything else, which must.

use corelane::broker::messages::{Answer, Ask, Deletion, PartitionKey};
use corelane::ids::{Offset, ShardId};
use corelane::wire::error_code::ErrorCode;
use std::path::Path;
use std::time::Duration;

use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{DATA, Node, SMALL, batch, fill_up, produced, wait, within};

async fn delete_records(node: &Node, key: PartitionKey, before: i64) -> ErrorCode {
    let ask = Ask::DeleteRecords(vec![Deletion { key, before: Offset(before) }], Duration::from_secs(5));
    let Answer::Deleted(results) = node.shard.ask(ShardId(0), ask).await else { panic!() };
    results[0].error
}

/// The write that waits for room must not hold what makes room.
#[test]
fn a_write_that_found_no_room_does_not_keep_deleted_records_on_the_disk() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let old = node.create_with("t", &[("segment.bytes", "1300000"), ("file.delete.delay.ms", "1000")]).await;
        for sequence in 0..10 {
            assert_eq!(node.produce(old, &batch(1, sequence, 300_000)).await.0, ErrorCode::None);
        }
        let stuck = node.create("stuck").await;
        fill_up(&disk).await;
        let refused = within(5, node.send(stuck, &[batch(1, 0, 9000)])).await.map(produced);
        assert_eq!(refused.unwrap()[0].error, ErrorCode::KafkaStorageError);
        // Time for a checkpoint, which has to look at that partition.
        wait(2500).await;
        assert_eq!(delete_records(&node, old, -1).await, ErrorCode::None);
        wait(5000).await;
        let written = within(5, node.send(stuck, &[batch(1, 0, 9000)])).await.map(produced).unwrap();
        assert_eq!((written[0].error, written[0].base_offset), (ErrorCode::None, Offset(0)));
    });
}

/// `max.message.bytes` was raised above what the files of the commit log, made at the start on a small disk, can take.
#[test]
fn a_batch_that_no_file_of_the_commit_log_can_take_is_refused_and_holds_nothing_up() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        disk.limit(Some(600 << 20));
        let node = Node::start(&disk, &[]).await;
        let (large, other) =
            (node.create_with("large", &[("max.message.bytes", "20000000")]).await, node.create("other").await);
        let refused = within(30, node.send(large, &[batch(1, 0, 12_000_000)])).await.map(produced);
        assert_eq!(refused.expect("an answer")[0].error, ErrorCode::KafkaStorageError);
        let behind = within(30, node.send(other, &[batch(1, 0, 10)])).await.map(produced);
        assert_eq!(behind.expect("an answer")[0].error, ErrorCode::None);
        let beside = within(30, node.send(large, &[batch(2, 0, 12_000_000), batch(3, 0, 10)])).await.map(produced);
        let errors: Vec<_> = beside.expect("an answer").iter().map(|result| result.error).collect();
        assert_eq!(errors, [ErrorCode::KafkaStorageError, ErrorCode::None]);
    });
}

/// With the failed partition's topic goes what pinned the commit log: others wait for room again instead of being refused.
#[test]
fn when_a_failed_partition_is_deleted_the_commit_log_is_used_again() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (node, bad, good) = Node::start_with_a_failed_partition(&disk).await;
        wait(1500).await;
        node.delete(bad).await;
        wait(1500).await;
        for sequence in 0..30 {
            let answered = within(30, node.send(good, &[batch(1, sequence, 900_000)])).await.map(produced);
            assert_eq!(answered.expect("an answer")[0].error, ErrorCode::None, "batch {sequence}");
        }
    });
}

/// Numbers of the checkpoints of the only shard.
fn checkpoints(disk: &MemoryDisk) -> Vec<u64> {
    let folder = Path::new(DATA).join("corelane/shard-0");
    let named = corelane::log::checkpoint_chain::list(disk, &folder).unwrap();
    named.into_iter().map(|named| named.seq).collect()
}

/// Indexes and seals can be made anew (storage rule S15); the files of the commit log must not wait for them.
#[test]
fn a_checkpoint_does_without_files_that_can_be_made_anew() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create_with("t", &[("segment.bytes", "1300000")]).await;
        wait(2500).await;
        let before = checkpoints(&disk).into_iter().max();
        disk.fail_sync("00000000000000000000.seal");
        for sequence in 0..6 {
            assert_eq!(node.produce(key, &batch(1, sequence, 300_000)).await.0, ErrorCode::None);
        }
        wait(1050).await;
        assert!(checkpoints(&disk).into_iter().max() > before, "{before:?}, {:?}", checkpoints(&disk));
        assert_eq!(node.produce(key, &batch(1, 6, 300_000)).await, (ErrorCode::None, 6));
    });
}

/// A segment that was flushed as the active one and left behind without another batch is sealed like others.
#[test]
fn every_segment_that_is_left_behind_gets_its_seal() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create_with("t", &[("segment.bytes", "1300000")]).await;
        for sequence in 0..9 {
            assert_eq!(node.produce(key, &batch(1, sequence, 300_000)).await.0, ErrorCode::None);
            wait(1200).await;
        }
        wait(1200).await;
        for base in [0, 4] {
            let seal = Path::new(DATA).join(format!("kafka/t-0/{base:020}.seal"));
            assert!(disk.paths().contains(&seal), "{}", seal.display());
        }
    });
}
