//! What is lost stays named until somebody accepts it (docs/adr/0013-named-losses.md).

use std::path::{Path, PathBuf};

use corelane::broker::messages::PartitionKey;
use corelane::ids::Offset;
use corelane::log::losses::{self, Loss, Losses};
use corelane::wire::error_code::ErrorCode;

use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{Node, SMALL, batch, wait};

const FOLDER: &str = "/data/kafka/t-0";

/// A topic of three batches after a clean stop, with nothing in the commit log that could bring its last one back.
async fn torn() -> (MemoryDisk, PartitionKey) {
    let disk = MemoryDisk::default();
    let node = Node::start(&disk, SMALL).await;
    let key = node.create("t").await;
    for sequence in 0..3 {
        assert_eq!(node.produce(key, &batch(1, sequence, 10)).await, (ErrorCode::None, i64::from(sequence)));
    }
    node.close().await.unwrap();
    let is_log = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-"));
    disk.paths().into_iter().filter(is_log).for_each(|path| disk.remove(&path));
    disk.change(&Path::new(FOLDER).join("00000000000000000000.log"), |content| content.truncate(content.len() - 5));
    (disk, key)
}

async fn list(disk: &MemoryDisk) -> Losses {
    losses::read(disk, Path::new(FOLDER)).await.unwrap()
}

#[test]
fn log_01_a_named_loss_refuses_writes_through_crashes_and_stops_until_somebody_accepts_it() {
    mini_host::run(1, async {
        let (mut disk, key) = torn().await;
        for round in 0..4 {
            let node = Node::start(&disk, SMALL).await;
            assert_eq!(node.produce(key, &batch(1, 3, 10)).await.0, ErrorCode::KafkaStorageError, "start {round}");
            let found = node.read(key, 0).await;
            assert_eq!((found.error, found.high_watermark), (ErrorCode::None, Offset(3)));
            wait(3000).await;
            if round % 2 == 0 {
                node.close().await.unwrap();
            }
            disk = disk.copy();
            assert_eq!(list(&disk).await.ranges(), [Loss { from: Offset(2), to: Offset(3), accepted: false }]);
        }
        let mut list = list(&disk).await;
        list.accept_all();
        losses::write(&disk, Path::new(FOLDER), &list).await.unwrap();
        for round in 0..3 {
            let node = Node::start(&disk, SMALL).await;
            assert_eq!(node.produce(key, &batch(2, round, 10)).await, (ErrorCode::None, 3 + i64::from(round)));
            disk = disk.copy();
        }
    });
}

/// A list that nobody can read is no reason to forget that there is one.
#[test]
fn a_damaged_list_of_losses_refuses_writes_as_a_whole_one_does() {
    mini_host::run(1, async {
        type Damage = fn(&mut Vec<u8>);
        let damages: [Damage; 3] = [Vec::clear, |content| content[20] ^= 4, |content| content.fill(0)];
        for damage in damages {
            let (disk, key) = torn().await;
            drop(Node::start(&disk, SMALL).await);
            disk.change(&Path::new(FOLDER).join(losses::FILE_NAME), damage);
            let disk = disk.copy();
            let node = Node::start(&disk, SMALL).await;
            assert!(list(&disk).await.is_damaged());
            assert_eq!(node.produce(key, &batch(1, 3, 10)).await.0, ErrorCode::KafkaStorageError);
            assert_eq!(node.read(key, 0).await.error, ErrorCode::None);
        }
    });
}
