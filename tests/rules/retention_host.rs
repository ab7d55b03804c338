//! Retention on a whole shard: by age and size, what each policy keeps, what a crash leaves, and a disk that is full.

use bytes::Bytes;
use corelane::broker::messages::{Answer, Ask, OffsetQuery, PartitionKey};
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence, ShardId};
use corelane::runtime::clock;
use corelane::wire::builder::{BatchBuilder, Record};
use corelane::wire::error_code::ErrorCode;

use crate::dice::Dice;
use crate::log_start::{files, start_of};
use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{Node, wait};

/// A commit log of two small files, and a look at old segments each second.
const SETTINGS: &[(&str, &str)] = &[
    ("corelane.log.file.bytes", "4194304"),
    ("corelane.log.files.max", "2"),
    ("corelane.checkpoint.interval.ms", "1000"),
    ("corelane.commit", "ring"),
    ("log.retention.check.interval.ms", "1000"),
];
/// A segment takes four batches; what goes is unlinked at once.
const SEGMENTS: [(&str, &str); 2] = [("internal.segment.bytes", "13000"), ("file.delete.delay.ms", "0")];
const BATCH_BYTES: usize = 3_000;

/// One record of `timestamp` by producer 1.
fn batch(sequence: i32, timestamp: i64) -> Bytes {
    let builder = BatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), Sequence(sequence));
    builder.value(timestamp, &[7; BATCH_BYTES]).build().freeze()
}

/// One old record with a key, of no producer.
fn keyed_batch(key: &[u8]) -> Bytes {
    let record = Record { timestamp: 1_000, key: Some(key), value: Some(&[7; BATCH_BYTES]), ..Record::default() };
    BatchBuilder::new().record(record).build().freeze()
}

struct World {
    disk: MemoryDisk,
    node: Node,
    key: PartitionKey,
}

impl World {
    /// A topic with batches of these ages, in seconds.
    async fn of(configs: &[(&str, &str)], ages: &[i64]) -> Self {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SETTINGS).await;
        let configs: Vec<_> = SEGMENTS.iter().chain(configs).copied().collect();
        let key = node.create_with("t", &configs).await;
        let now_ms = clock::now_ms();
        for (sequence, age) in (0..).zip(ages) {
            let produced = node.produce(key, &batch(sequence, now_ms - age * 1000)).await;
            assert_eq!(produced, (ErrorCode::None, i64::from(sequence)));
        }
        Self { disk, node, key }
    }

    async fn start(&self) -> i64 {
        start_of(&self.node, self.key).await
    }

    async fn end(&self) -> i64 {
        let query = OffsetQuery { key: self.key, timestamp: -1, leader_epoch: -1, is_committed: false };
        let Answer::Offsets(found) = self.node.shard.ask(ShardId(0), Ask::Offsets(vec![query])).await else { panic!() };
        found[0].offset.0
    }

    /// The same folder after a stop or a cut.
    async fn again(self, disk: MemoryDisk) -> Self {
        let node = Node::start(&disk, SETTINGS).await;
        Self { disk, node, key: self.key }
    }
}

#[test]
fn segments_go_when_their_newest_record_is_old_and_not_before() {
    mini_host::run(1, async {
        // Segments of four: the second one has one record of now in it, the third is old again.
        let ages = [90, 90, 90, 90, 90, 90, 0, 90, 90, 90];
        let world = World::of(&[("retention.ms", "60000")], &ages).await;
        wait(2000).await;
        assert_eq!((world.start().await, world.end().await), (4, 10));
        assert_eq!(files(&world.disk, "t"), (vec![4, 8], 0));
        wait(60_000).await;
        assert_eq!((world.start().await, world.end().await), (10, 10));
        assert_eq!(files(&world.disk, "t"), (vec![10], 0), "the last segment goes too, and its end is kept");
    });
}

#[test]
fn segments_go_while_the_rest_is_as_large_as_is_allowed() {
    mini_host::run(1, async {
        let bytes = (4 * batch(0, 0).len()).to_string();
        let world = World::of(&[("retention.bytes", &bytes), ("retention.ms", "-1")], &[0; 14]).await;
        wait(2000).await;
        assert_eq!(world.start().await, 8, "six batches are left; without the next segment two would be");
        assert_eq!(files(&world.disk, "t"), (vec![8, 12], 0));
        assert_eq!(world.node.read(world.key, 7).await.error, ErrorCode::OffsetOutOfRange);
        assert_eq!(world.node.read(world.key, 8).await.log_start_offset, Offset(8));
    });
}

#[test]
fn without_limits_or_without_the_policy_nothing_goes() {
    mini_host::run(1, async {
        let none = [("retention.ms", "-1"), ("retention.bytes", "-1")];
        let compact = [("retention.ms", "1"), ("retention.bytes", "1"), ("cleanup.policy", "compact")];
        for configs in [&none[..], &compact[..]] {
            let configs: Vec<_> = SEGMENTS.iter().chain(configs).copied().collect();
            let disk = MemoryDisk::default();
            let node = Node::start(&disk, SETTINGS).await;
            let key = node.create_with("t", &configs).await;
            for sequence in 0..10 {
                let keyed = keyed_batch(&i32::to_be_bytes(sequence));
                assert_eq!(node.produce(key, &keyed).await.0, ErrorCode::None);
            }
            wait(10_000).await;
            assert_eq!((start_of(&node, key).await, files(&disk, "t").0), (0, vec![0, 4, 8]));
        }
    });
}

/// Both policies: old segments go whatever else is done with the log.
#[test]
fn compact_and_delete_deletes() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SETTINGS).await;
        let policy = [("cleanup.policy", "compact,delete"), ("retention.ms", "60000")];
        let configs: Vec<_> = SEGMENTS.iter().chain(&policy).copied().collect();
        let key = node.create_with("t", &configs).await;
        for sequence in 0..6 {
            assert_eq!(node.produce(key, &keyed_batch(b"key")).await, (ErrorCode::None, sequence));
        }
        wait(2000).await;
        assert_eq!((start_of(&node, key).await, files(&disk, "t").0), (6, vec![6]));
    });
}

#[test]
fn ages_are_known_after_a_stop_and_after_a_cut() {
    mini_host::run(1, async {
        for is_stopped in [true, false] {
            let world = World::of(&[("retention.ms", "60000")], &[50, 50, 50, 50, 30, 30, 30, 30, 0, 0]).await;
            wait(3000).await;
            assert_eq!(world.start().await, 0);
            if is_stopped {
                assert_eq!(world.node.close().await, Ok(()));
            }
            let disk = if is_stopped { world.disk.copy() } else { world.disk.power_cut(|_| 0) };
            let world = world.again(disk).await;
            for (after, start, bases) in [(5_000, 0, vec![0, 4, 8]), (15_000, 4, vec![4, 8]), (15_000, 8, vec![8])] {
                wait(after).await;
                assert_eq!((world.start().await, world.end().await), (start, 10), "stopped: {is_stopped}");
                assert_eq!(files(&world.disk, "t").0, bases);
            }
        }
    });
}

/// Records without a timestamp are as old as the last write to their segment.
#[test]
fn without_timestamps_the_time_of_the_write_counts() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SETTINGS).await;
        let configs: Vec<_> = SEGMENTS.iter().chain(&[("retention.ms", "60000")]).copied().collect();
        let key = node.create_with("t", &configs).await;
        for sequence in 0..6 {
            assert_eq!(node.produce(key, &batch(sequence, -1)).await.0, ErrorCode::None);
        }
        wait(50_000).await;
        assert_eq!(start_of(&node, key).await, 0);
        wait(15_000).await;
        assert_eq!((start_of(&node, key).await, files(&disk, "t").0), (6, vec![6]));
    });
}

/// A timestamp that is ahead, as far as it may be, keeps its segment until it is old and no longer.
#[test]
fn log_12_a_record_dated_ahead_keeps_its_segment_until_that_time_is_past() {
    mini_host::run(1, async {
        let world = World::of(&[("retention.ms", "1000")], &[90, 90, -1800, 90, 90]).await;
        wait(1_799_000).await;
        assert_eq!(world.start().await, 0);
        wait(4_000).await;
        assert_eq!((world.start().await, files(&world.disk, "t").0), (5, vec![5]));
    });
}

/// What a cut at any moment leaves has the old start or the new one, goes on as before, and keeps the end.
#[test]
fn a_cut_at_any_moment_moves_no_start_back_and_loses_no_producer() {
    let steps = mini_host::run(1, async {
        let world = World::of(&[("retention.ms", "60000")], &[90; 10]).await;
        let mut steps = Vec::new();
        for micros in std::iter::repeat_n(50_000, 45) {
            steps.push((world.disk.copy(), world.start().await, world.key));
            clock::sleep(std::time::Duration::from_micros(micros)).await;
        }
        steps
    });
    let mut starts = [0, 0];
    for (at, (disk, seen, key)) in steps.into_iter().enumerate() {
        let mut dice = Dice::of(at as u64);
        for crashed in [disk.copy(), disk.power_cut(|end| dice.below(end))] {
            let start = mini_host::run(1, async move {
                let node = Node::start(&crashed, SETTINGS).await;
                let start = start_of(&node, key).await;
                for offset in [9, 5, 7] {
                    let retry = batch(offset, 1_700_000_000_000 - 90_000);
                    assert_eq!(node.produce(key, &retry).await, (ErrorCode::None, i64::from(offset)), "a retry");
                }
                assert_eq!(node.produce(key, &batch(10, clock::now_ms())).await, (ErrorCode::None, 10));
                wait(3_000).await;
                // The new record keeps the segment that it came into.
                assert_eq!(start_of(&node, key).await, start.max(8));
                start
            });
            assert!((start == 0 || start == 10) && start >= seen, "step {at}: {start}, seen {seen}");
            starts[usize::from(start == 10)] += 1;
        }
    }
    assert!(starts[0] > 0 && starts[1] > 0, "{starts:?}");
}

#[test]
fn a_full_disk_is_emptied_by_retention() {
    mini_host::run(1, async {
        let world = World::of(&[("retention.ms", "60000")], &[50; 10]).await;
        wait(3000).await;
        world.disk.limit(Some(world.disk.total_bytes()));
        wait(1500).await;
        assert_eq!(world.node.produce(world.key, &batch(10, 0)).await.0, ErrorCode::KafkaStorageError);
        wait(12_000).await;
        assert_eq!(world.start().await, 10);
        // Room for some more than has become free: the broker keeps a fiftieth of the disk.
        world.disk.limit(Some(world.disk.total_bytes() * 21 / 20));
        wait(2_000).await;
        assert_eq!(world.node.produce(world.key, &batch(10, clock::now_ms())).await, (ErrorCode::None, 10));
    });
}
