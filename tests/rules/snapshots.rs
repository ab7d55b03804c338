//! Kafka's producer snapshots of a whole shard: one for each segment behind another, exact as of its base, gone with it; and
//! the text checkpoints of the log dir.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corelane::broker::messages::PartitionKey;
use corelane::ids::Offset;
use corelane::log::names::{self, Kind};
use corelane::log::snapshot;
use corelane::runtime::disk::Disk;
use corelane::wire::error_code::ErrorCode;

use crate::log_start::delete;
use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{DATA, Node, SMALL, batch, wait};

/// A segment takes four batches of 3,000 bytes.
const TOPIC: &[(&str, &str)] = &[("internal.segment.bytes", "13000"), ("file.delete.delay.ms", "0")];

fn folder() -> PathBuf {
    Path::new(DATA).join("kafka/t-0")
}

fn offsets_of(disk: &MemoryDisk, kind: Kind) -> Vec<i64> {
    let entries = disk.list(&folder()).unwrap();
    let found = entries.iter().filter_map(|entry| names::parse(&entry.name)).filter(|(_, found)| *found == kind);
    found.map(|(offset, _)| offset.0).collect()
}

fn unfinished(disk: &MemoryDisk) -> usize {
    disk.list(&folder()).unwrap().iter().filter(|entry| names::is_unfinished_snapshot(&entry.name)).count()
}

/// Producer → last offset and sequence, as a snapshot says.
async fn read(disk: &MemoryDisk, as_of: i64) -> BTreeMap<i64, (i64, i32)> {
    let content = disk.read_file(&names::path(&folder(), Offset(as_of), Kind::Snapshot)).await.unwrap();
    let entries = snapshot::decode(&content).unwrap();
    entries.iter().map(|entry| (entry.producer_id.0, (entry.last_offset, entry.last_sequence))).collect()
}

/// What the producers have written, as of each offset.
#[derive(Default)]
struct Written {
    now: BTreeMap<i64, (i64, i32)>,
    as_of: BTreeMap<i64, BTreeMap<i64, (i64, i32)>>,
}

impl Written {
    async fn write(&mut self, node: &Node, key: PartitionKey, producer: i64, bytes: usize) {
        let offset = self.as_of.len() as i64;
        self.as_of.insert(offset, self.now.clone());
        let sequence = self.now.get(&producer).map_or(0, |(_, last)| last + 1);
        assert_eq!(node.produce(key, &batch(producer, sequence, bytes)).await, (ErrorCode::None, offset));
        self.now.insert(producer, (offset, sequence));
    }

    fn as_of(&self, offset: i64) -> &BTreeMap<i64, (i64, i32)> {
        self.as_of.get(&offset).unwrap_or(&self.now)
    }
}

async fn all_are_exact(disk: &MemoryDisk, written: &Written) {
    for as_of in offsets_of(disk, Kind::Snapshot) {
        assert_eq!(read(disk, as_of).await, *written.as_of(as_of), "as of {as_of}");
    }
    assert_eq!(unfinished(disk), 0);
}

#[test]
fn each_segment_behind_another_has_one_and_it_goes_with_it() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create_with("t", TOPIC).await;
        let mut written = Written::default();
        for at in 0..18 {
            written.write(&node, key, at % 5, 3_000).await;
        }
        wait(100).await;
        assert_eq!(offsets_of(&disk, Kind::Snapshot), [4, 8, 12, 16]);
        all_are_exact(&disk, &written).await;
        assert_eq!(delete(&node, key, 9).await, (ErrorCode::None, 9));
        wait(100).await;
        assert_eq!(
            (offsets_of(&disk, Kind::Log), offsets_of(&disk, Kind::Snapshot)),
            (vec![8, 12, 16], vec![8, 12, 16])
        );
        assert_eq!(delete(&node, key, 18).await, (ErrorCode::None, 18));
        wait(100).await;
        assert_eq!((offsets_of(&disk, Kind::Log), offsets_of(&disk, Kind::Snapshot)), (vec![18], vec![18]));
        all_are_exact(&disk, &written).await;
    });
}

/// Also one that the checkpoint before found at its end: it was closed by the record behind it.
#[test]
fn every_closed_segment_has_a_seal_after_a_checkpoint() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create_with("t", TOPIC).await;
        let mut written = Written::default();
        for (at, sealed) in (0..9).zip([0, 0, 0, 0, 1, 1, 1, 1, 2]) {
            written.write(&node, key, at, 3_000).await;
            wait(1_500).await;
            assert_eq!(offsets_of(&disk, Kind::Seal).len(), sealed, "after {} records", at + 1);
        }
        let again = disk.copy();
        let node = Node::start(&again, SMALL).await;
        for at in 9..13 {
            written.write(&node, key, at, 3_000).await;
        }
        wait(1_500).await;
        assert_eq!(offsets_of(&again, Kind::Seal), [0, 4, 8]);
    });
}

/// More producers than are encoded at once, all of which write on while the snapshot is being taken.
#[test]
fn many_producers_are_as_they_were_when_the_segment_began() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create_with("t", &[("internal.segment.bytes", "300000"), ("file.delete.delay.ms", "0")]).await;
        let mut written = Written::default();
        for producer in 0..2_500 {
            written.write(&node, key, producer, 20).await;
        }
        let mut producer = 0;
        while offsets_of(&disk, Kind::Log).len() < 3 {
            written.write(&node, key, producer % 2_600, 120).await;
            producer += 7;
        }
        wait(1_000).await;
        let bases = offsets_of(&disk, Kind::Log);
        assert_eq!(offsets_of(&disk, Kind::Snapshot), bases[1..]);
        assert!(written.as_of(bases[1]).len() > 1_000);
        all_are_exact(&disk, &written).await;
        assert_eq!(node.close().await, Ok(()));
        assert_eq!(offsets_of(&disk, Kind::Snapshot).len(), bases.len(), "one more, as of the end");
        all_are_exact(&disk, &written).await;
    });
}

/// That of a clean stop stays until a later one takes its place; others that belong to no segment go at a start, and so does
/// what was never finished.
#[test]
fn strays_go_at_a_start_as_in_kafka() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create_with("t", TOPIC).await;
        let mut written = Written::default();
        for at in 0..6 {
            written.write(&node, key, at, 3_000).await;
        }
        assert_eq!(node.close().await, Ok(()));
        assert_eq!(offsets_of(&disk, Kind::Snapshot), [4, 6]);
        let node = Node::start(&disk, SMALL).await;
        assert_eq!(offsets_of(&disk, Kind::Snapshot), [4, 6]);
        written.write(&node, key, 1, 3_000).await;
        assert_eq!(node.close().await, Ok(()));
        assert_eq!(offsets_of(&disk, Kind::Snapshot), [4, 6, 7]);
        disk.put(&names::unfinished_snapshot(&folder(), Offset(7)), vec![1; 10]);
        disk.put(&names::path(&folder(), Offset(900), Kind::Snapshot), vec![1; 10]);
        let node = Node::start(&disk, SMALL).await;
        assert_eq!(offsets_of(&disk, Kind::Snapshot), [4, 7], "6 belongs to nothing, 900 is behind the end");
        all_are_exact(&disk, &written).await;
        assert_eq!(node.close().await, Ok(()));
        assert_eq!(offsets_of(&disk, Kind::Snapshot), [4, 7]);
    });
}

/// A power cut leaves whole snapshots or none.
#[test]
fn what_a_power_cut_leaves_is_whole() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create_with("t", TOPIC).await;
        let mut written = Written::default();
        for at in 0..30 {
            written.write(&node, key, at % 7, 3_000).await;
            let mut dice = crate::dice::Dice::of(at as u64);
            let cut = disk.power_cut(|end| dice.below(end));
            let _again = Node::start(&cut, SMALL).await;
            if !offsets_of(&cut, Kind::Log).is_empty() {
                all_are_exact(&cut, &written).await;
            }
        }
    });
}

async fn text(disk: &MemoryDisk, name: &str) -> String {
    String::from_utf8(disk.read_file(&Path::new(DATA).join("kafka").join(name)).await.unwrap().to_vec()).unwrap()
}

#[test]
fn kafkas_checkpoints_are_written_each_minute_and_at_a_clean_stop() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create_with("t", TOPIC).await;
        node.create("u").await;
        let mut written = Written::default();
        for at in 0..7 {
            written.write(&node, key, at, 3_000).await;
        }
        assert_eq!(delete(&node, key, 5).await, (ErrorCode::None, 5));
        wait(61_000).await;
        for name in ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"] {
            assert_eq!(text(&disk, name).await, "0\n2\nt 0 7\nu 0 0\n");
        }
        assert_eq!(text(&disk, "log-start-offset-checkpoint").await, "0\n1\nt 0 5\n");
        assert_eq!(delete(&node, key, 7).await, (ErrorCode::None, 7));
        written.write(&node, key, 1, 10).await;
        assert_eq!(node.close().await, Ok(()));
        assert_eq!(text(&disk, "recovery-point-offset-checkpoint").await, "0\n2\nt 0 8\nu 0 0\n");
        assert_eq!(text(&disk, "log-start-offset-checkpoint").await, "0\n0\n", "the name of the segment says it");
    });
}
