//! A shard with many partitions holds few descriptors, and closing a file hides no failed flush.

use corelane::ids::Offset;
use corelane::wire::error_code::ErrorCode;

use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{Node, SMALL, batch, wait};

const TOPICS: usize = 100;
const MOST: usize = 30;
/// Files that wait for a flush so that they can be closed.
const FLUSHED_AT_A_TIME: usize = 16;

#[test]
fn lim_09_many_partitions_hold_a_bounded_number_of_files() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        // Without checkpoints: nothing but the bound itself closes a file.
        let settings: Vec<_> = SMALL.iter().copied().filter(|(name, _)| !name.contains("checkpoint")).collect();
        let node = Node::start(&disk, &settings).await;
        let mut keys = Vec::new();
        for topic in 0..TOPICS {
            keys.push(node.create(&format!("t{topic}")).await);
        }
        disk.bound_open_files(MOST);
        for round in 0..3 {
            for key in &keys {
                assert_eq!(node.produce(*key, &batch(1, round, 10)).await, (ErrorCode::None, i64::from(round)));
            }
        }
        let (_, most) = disk.open_files();
        assert!(most <= MOST + FLUSHED_AT_A_TIME, "{most} files were open");
        for key in &keys {
            assert_eq!(node.read(*key, 0).await.high_watermark, Offset(3));
        }
        assert_eq!(node.close().await, Ok(()));
        let node = Node::start(&disk, SMALL).await;
        assert_eq!(node.produce(keys[0], &batch(1, 3, 10)).await, (ErrorCode::None, 3));
    });
}

#[test]
fn a_flush_that_failed_before_a_file_was_closed_fails_its_partition() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let bad = node.create("bad").await;
        let mut others = Vec::new();
        for topic in 0..TOPICS {
            others.push(node.create(&format!("t{topic}")).await);
        }
        disk.bound_open_files(MOST);
        assert_eq!(node.produce(bad, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        disk.fail_sync("bad-0/00000000000000000000.log");
        for key in &others {
            assert_eq!(node.produce(*key, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        }
        // Each later flush of that file would go well: the first one counts all the same.
        wait(3000).await;
        assert_eq!(node.produce(bad, &batch(1, 1, 10)).await.0, ErrorCode::KafkaStorageError);
        assert_eq!(node.produce(others[0], &batch(1, 1, 10)).await, (ErrorCode::None, 1));
    });
}
