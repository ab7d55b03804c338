//! Fetches on a whole shard in memory: what they may take, and the leader epochs that they ask for.

use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use corelane::broker::messages::{Answer, Ask, EpochQuery, PartitionKey};
use corelane::ids::Offset;
use corelane::requests::{self, Begun, Outcome};
use corelane::runtime::budget::Units;
use corelane::wire::error_code::ErrorCode;

use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{DATA, LOCAL, Node, SMALL, batch, fetch_frame, wait};

const MIB: usize = 1 << 20;
/// Where the fewest bytes stand in the frame: behind header, replica id and longest wait.
const BYTES_MIN_AT: usize = 10 + 4 + 4;

async fn fetched(node: &Node, offset: i64) -> (Bytes, Units) {
    let Begun::Later(answer) = requests::begin(&node.shard, LOCAL, fetch_frame("t", offset)).await else { panic!() };
    let Outcome::Charged(answer, units) = answer.await else { panic!() };
    (answer, units)
}

/// Answers that nobody reads hold their memory; the next ones get less and less, but never nothing, and nobody waits.
#[test]
fn answers_share_a_memory_of_their_own() {
    mini_host::run(1, async {
        let settings = [SMALL, &[("corelane.memory.budget.bytes", "1048576")]].concat();
        let node = Node::start(&MemoryDisk::default(), &settings).await;
        let key = node.create("t").await;
        for sequence in 0..40 {
            assert_eq!(node.produce(key, &batch(1, sequence, 40_000)).await.0, ErrorCode::None);
        }
        let free = || node.shard.answers().free();
        assert_eq!(free(), MIB);
        let (all, held) = fetched(&node, 0).await;
        assert!(all.len() <= MIB + 1000 && all.len() > MIB - 50_000, "{}", all.len());
        assert!(held.held() <= all.len() && free() < 50_000, "{} {}", held.held(), free());
        let mut others = Vec::new();
        for _ in 0..10 {
            let (little, units) = fetched(&node, 0).await;
            assert!(
                little.len() > 40_000 && little.len() < 70_000,
                "a batch, and no more than 64 KiB: {}",
                little.len()
            );
            others.push(units);
        }
        drop(held);
        others.clear();
        assert_eq!(free(), MIB, "what is written is given back");
        assert_eq!(fetched(&node, 0).await.0.len(), all.len());
        let whole = fetched(&node, 39).await.0;
        assert!(whole.len() < 41_000 && free() == MIB);
    });
}

/// A fetch that waits holds nothing, also when there was something and not enough.
#[test]
fn a_waiting_fetch_holds_no_memory() {
    mini_host::run(1, async {
        let node = Node::start(&MemoryDisk::default(), SMALL).await;
        let key = node.create("t").await;
        assert_eq!(node.produce(key, &batch(1, 0, 1000)).await.0, ErrorCode::None);
        let free = node.shard.answers().free();
        let mut frame = fetch_frame("t", 0).to_vec();
        frame[BYTES_MIN_AT..][..4].copy_from_slice(&5000_i32.to_be_bytes());
        let Begun::Later(mut answer) = requests::begin(&node.shard, LOCAL, frame.into()).await else { panic!() };
        std::future::poll_fn(|context| {
            assert!(answer.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        assert_eq!(node.shard.answers().free(), free);
        for sequence in 1..6 {
            assert_eq!(node.produce(key, &batch(1, sequence, 1000)).await.0, ErrorCode::None);
        }
        let Outcome::Charged(answer, units) = answer.await else { panic!() };
        assert!(answer.len() > 5000 && units.held() > 5000);
    });
}

async fn ends(node: &Node, key: PartitionKey, epochs: std::ops::RangeInclusive<i32>) -> Vec<Option<(i32, i64)>> {
    let queries = epochs.map(|epoch| EpochQuery { key, epoch, leader_epoch: -1 }).collect();
    let Answer::EpochEnds(ends) = node.ask(Ask::EpochEnds(queries)).await else { panic!() };
    ends.into_iter().map(|end| end.unwrap().map(|(epoch, end)| (epoch, end.0))).collect()
}

/// The file of epochs may be lost or broken: the batches say the same, also those behind a recovery point.
#[test]
fn epochs_are_found_again_without_their_file() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let file = Path::new(DATA).join("kafka/t-0/leader-epoch-checkpoint");
        let mut key = None;
        let mut sequence = 0;
        for records in [3, 1, 4] {
            let node = Node::start(&disk, SMALL).await;
            let key = match key {
                Some(key) => key,
                None => *key.insert(node.create_with("t", &[("internal.segment.bytes", "3000")]).await),
            };
            for _ in 0..records {
                assert_eq!(node.produce(key, &batch(1, sequence, 1000)).await, (ErrorCode::None, i64::from(sequence)));
                sequence += 1;
            }
            wait(1500).await; // a checkpoint
            node.close().await.unwrap();
        }
        assert_eq!(String::from_utf8(disk.content(&file)).unwrap(), "0\n3\n1 0\n2 3\n3 4\n");
        let expected = vec![Some((0, 0)), Some((1, 3)), Some((2, 4)), Some((3, 8)), Some((4, 8)), None];
        let broken: [(&str, Option<&[u8]>); 5] = [
            ("gone", None),
            ("empty", Some(b"")),
            ("cut off", Some(b"0\n3\n1 0\n2")),
            ("zeros", Some(&[0; 20])),
            ("begins late", Some(b"0\n1\n3 4\n")),
        ];
        for (what, content) in broken {
            let copy = disk.copy();
            match content {
                None => copy.remove(&file),
                Some(content) => copy.put(&file, content.to_vec()),
            }
            let node = Node::start(&copy, SMALL).await;
            assert_eq!(ends(&node, key.unwrap(), 0..=5).await, expected, "{what}");
            assert_eq!(node.read(key.unwrap(), 0).await.high_watermark, Offset(8));
        }
    });
}

/// The first batch of an epoch brings the line into the file, and not only the next checkpoint.
#[test]
fn the_file_has_its_line_at_the_first_batch() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let file = Path::new(DATA).join("kafka/t-0/leader-epoch-checkpoint");
        let node = Node::start(&disk, SMALL).await;
        let key = node.create("t").await;
        assert_eq!(node.produce(key, &batch(1, 0, 10)).await.0, ErrorCode::None);
        wait(10).await;
        assert_eq!(disk.content(&file), b"0\n1\n1 0\n");
        let node = Rc::new(Node::start(&disk.copy(), SMALL).await);
        assert_eq!(ends(&node, key, 1..=2).await, [Some((1, 1)), Some((2, 1))]);
    });
}
