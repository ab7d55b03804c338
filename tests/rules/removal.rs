//! Files of deleted topics go in the background: not before their time, at a pace, and also after a start in the middle.

use std::time::Duration;

use corelane::broker::messages::PartitionKey;
use corelane::runtime::clock;
use corelane::wire::error_code::ErrorCode;

use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{Node, SMALL, batch, wait};

const TOPICS: usize = 100;
/// Files that may go in a millisecond.
const PACE: usize = 2;
/// What may be ahead of it.
const AHEAD: usize = 45;

fn deleted_files(disk: &MemoryDisk) -> usize {
    disk.paths().iter().filter(|path| path.parent().unwrap().to_string_lossy().ends_with("-delete")).count()
}

async fn fill(node: &Node, delay_ms: &str) -> Vec<PartitionKey> {
    let mut keys = Vec::new();
    for topic in 0..TOPICS {
        let key = node.create_with(&format!("t-{topic}"), &[("file.delete.delay.ms", delay_ms)]).await;
        assert_eq!(node.produce(key, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        keys.push(key);
    }
    // A checkpoint makes indexes beside the segments.
    wait(2_000).await;
    keys
}

async fn delete(node: &Node, keys: &[PartitionKey]) {
    for key in keys {
        node.delete(*key).await;
    }
}

/// Looks every few milliseconds until everything is gone.
async fn goes_at_its_pace(disk: &MemoryDisk) {
    let (begun, files) = (clock::monotonic(), deleted_files(disk));
    assert!(files > 3 * TOPICS, "{files}");
    while deleted_files(disk) > 0 {
        clock::sleep(Duration::from_millis(5)).await;
        let millis = (clock::monotonic() - begun).as_millis() as usize;
        let gone = files - deleted_files(disk);
        assert!(gone <= PACE * millis + AHEAD, "{gone} files after {millis} ms");
        assert!(millis < 10 * files, "{gone} of {files} files are gone");
    }
}

#[test]
fn files_of_deleted_topics_go_at_a_pace() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let keys = fill(&node, "30000").await;
        delete(&node, &keys).await;
        let files = deleted_files(&disk);
        wait(25_000).await;
        assert_eq!(deleted_files(&disk), files, "their time has not come");
        wait(4_990).await;
        goes_at_its_pace(&disk).await;
    });
}

#[test]
fn what_was_not_gone_at_a_kill_goes_after_the_next_start() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let keys = fill(&node, "60000").await;
        delete(&node, &keys).await;
        let disk = disk.copy();
        let node = Node::start(&disk, SMALL).await;
        goes_at_its_pace(&disk).await;
        let key = node.create("t-0").await;
        assert_eq!(node.produce(key, &batch(1, 0, 10)).await, (ErrorCode::None, 0), "nothing is left of the old one");
    });
}
