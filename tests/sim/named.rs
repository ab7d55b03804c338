//! What the simulator once found, each played again step by step; a seed alone would mean something else after every change
//! of the workload.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use corelane::broker::catalog::Outcome;
use corelane::broker::messages::{AckLevel, Deletion, PartitionKey};
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::runtime::clock;
use corelane::wire::builder::BatchBuilder;
use corelane::wire::error_code::ErrorCode;

use crate::cluster::{Cluster, DATA, bytes_of, in_time, produced};
use crate::readers::batches;
use crate::support::memory_disk::MemoryDisk;
use crate::support::memory_disk::faults::{Call, Failure, Fault, Point};
use crate::support::mini_host;

const SETTINGS: &[(&str, &str)] = &[("corelane.log.file.bytes", "4194304"), ("corelane.log.files.max", "2")];

fn batch(producer: i64, sequence: i32, bytes: usize) -> Bytes {
    let builder = BatchBuilder::new().producer(ProducerId(producer), ProducerEpoch(0), Sequence(sequence));
    builder.value(1_700_000_000_000, &vec![7; bytes]).build().freeze()
}

async fn create(cluster: &Cluster, partitions: i32, configs: &[(&str, &str)]) -> Vec<PartitionKey> {
    let configs: Vec<_> = configs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let made = cluster.create(0, "t", partitions, &configs).await.unwrap();
    let Outcome::Topic(topic) = made.outcome else { panic!("{made:?}") };
    (0..partitions).map(|partition| PartitionKey { topic: topic.id, partition }).collect()
}

/// A producer snapshot that was written at a roll knew batches that a power cut then took: their retries were taken for
/// duplicates, waited for ever, and would have been acknowledged without being written.
#[test]
fn a_snapshot_knows_nothing_that_the_log_has_lost() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let cluster = Cluster::start(&disk, SETTINGS, 1).await.unwrap();
        let configs = [("corelane.durability", "page-cache"), ("internal.segment.bytes", "1000")];
        let key = create(&cluster, 1, &configs).await[0];
        for sequence in 0..3 {
            let sent = send(&cluster, key, &batch(1, sequence, 700), AckLevel::Written).await;
            assert_eq!(sent, (ErrorCode::None, i64::from(sequence)));
        }
        clock::sleep(Duration::from_millis(5)).await;
        let crashed = disk.copy();
        let is_segment =
            |path: &PathBuf| path.ends_with("00000000000000000001.log") || path.ends_with("00000000000000000002.log");
        let has_snapshot = crashed.paths().iter().any(|path| path.ends_with("00000000000000000002.snapshot"));
        assert!(has_snapshot);
        crashed.paths().into_iter().filter(is_segment).for_each(|path| crashed.change(&path, Vec::clear));
        let cluster = Cluster::start(&crashed, SETTINGS, 1).await.unwrap();
        for sequence in 0..3 {
            let retried = cluster.send(0, key, &batch(1, sequence, 700), AckLevel::Durable);
            let retried = produced(in_time("a retry", retried).await);
            assert_eq!((retried.error, retried.base_offset.0), (ErrorCode::None, i64::from(sequence)));
        }
        assert_eq!(cluster.read(0, key, 0, 10_000).await.high_watermark.0, 3);
    });
}

/// A read error while the checkpoints were read was taken for damage of the newest: recovery believed an older one, and what
/// that one knew nothing of was named as lost for good, although the next start could read all.
#[test]
fn a_checkpoint_that_cannot_be_read_is_not_damaged() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let cluster = Cluster::start(&disk, SETTINGS, 1).await.unwrap();
        let key = create(&cluster, 1, &[]).await[0];
        assert_eq!(send(&cluster, key, &batch(1, 0, 10), AckLevel::Durable).await, (ErrorCode::None, 0));
        let crashed = disk.copy();
        let from = Point { call: Some(Call::Read), part: "checkpoint-", after: 0 };
        crashed.fail(Failure { from, times: 1, fault: Fault::Error });
        let refused = Cluster::start(&crashed, SETTINGS, 1).await.err().expect("a start that does not go on");
        assert!(refused.contains("checkpoint-") && refused.contains("cannot be read"), "{refused}");
        let cluster = Cluster::start(&crashed, SETTINGS, 1).await.unwrap();
        assert_eq!(cluster.read(0, key, 0, 10_000).await.high_watermark.0, 1);
    });
}

/// The newest checkpoints were destroyed, and with them went where a log began: an older one had its recovery point below all
/// that was left, which was taken for the remainder of something that the commit log has, and removed.
#[test]
fn what_lies_behind_a_forgotten_log_start_stays() {
    mini_host::run(1, async {
        let settings = [
            ("message.max.bytes", "30000"),
            ("corelane.log.file.bytes", "1048576"),
            ("corelane.log.file.used.bytes", "65536"),
            ("corelane.log.files.max", "2"),
            ("corelane.checkpoint.interval.ms", "100"),
        ];
        let disk = MemoryDisk::default();
        let cluster = Cluster::start(&disk, &settings, 1).await.unwrap();
        let keys = create(&cluster, 2, &[("internal.segment.bytes", "30000"), ("file.delete.delay.ms", "0")]).await;
        clock::sleep(Duration::from_millis(250)).await;
        let old = checkpoints(&disk);
        for sequence in 0..6 {
            let sent = send(&cluster, keys[0], &batch(1, sequence, 20_000), AckLevel::Durable).await;
            assert_eq!(sent, (ErrorCode::None, i64::from(sequence)));
        }
        let items = vec![Deletion { key: keys[0], before: Offset(3) }];
        let deleted = cluster.shard(0).delete_records(items, Duration::from_secs(30)).await[0];
        assert_eq!(deleted.error, ErrorCode::None);
        // Until the commit log has been written over.
        for sequence in 0..12 {
            let sent = send(&cluster, keys[1], &batch(2, sequence, 28_000), AckLevel::Durable).await;
            assert_eq!(sent.0, ErrorCode::None);
            clock::sleep(Duration::from_millis(250)).await;
        }
        let crashed = disk.copy();
        checkpoints(&crashed).iter().for_each(|(path, _)| crashed.remove(path));
        old.into_iter().for_each(|(path, content)| crashed.put(&path, content));
        let cluster = Cluster::start(&crashed, &settings, 1).await.unwrap();
        for offset in 3..6 {
            let read = cluster.read(0, keys[0], offset, 100_000).await;
            assert_eq!((read.error, read.high_watermark.0), (ErrorCode::None, 6));
            assert_eq!(batches(bytes_of(&read))[0].0.base_offset.0, offset);
        }
    });
}

fn checkpoints(disk: &MemoryDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let is_one = |path: &PathBuf| path.to_string_lossy().contains("/checkpoint-");
    disk.paths().into_iter().filter(is_one).map(|path| (path.clone(), disk.content(&path))).collect()
}

/// The folder of a deleted topic no longer said whose it was, so that it stayed where it was: a new topic of that name was
/// given its records, or no room.
#[test]
fn a_folder_of_nobody_is_not_the_next_topics() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let cluster = Cluster::start(&disk, SETTINGS, 1).await.unwrap();
        let key = create(&cluster, 1, &[]).await[0];
        assert_eq!(send(&cluster, key, &batch(1, 0, 700), AckLevel::Durable).await, (ErrorCode::None, 0));
        let files: Vec<_> = disk.paths().into_iter().filter(|path| path.starts_with("/data/kafka/t-0")).collect();
        let files: Vec<_> = files.into_iter().map(|path| (path.clone(), disk.content(&path))).collect();
        cluster.delete(0, key.topic).await.unwrap();
        let crashed = disk.copy();
        // The folder was not renamed yet.
        files.into_iter().for_each(|(path, content)| crashed.put(&path, content));
        crashed.remove(std::path::Path::new("/data/kafka/t-0/partition.metadata"));
        let cluster = Cluster::start(&crashed, SETTINGS, 1).await.unwrap();
        let key = create(&cluster, 1, &[]).await[0];
        assert_eq!(send(&cluster, key, &batch(2, 0, 10), AckLevel::Durable).await, (ErrorCode::None, 0));
        let again = Cluster::start(&crashed.copy(), SETTINGS, 1).await.unwrap();
        assert_eq!(again.read(0, key, 0, 10_000).await.high_watermark.0, 1);
        let kept = crashed.paths().into_iter().filter(|path| path.to_string_lossy().contains("-stray/")).count();
        assert!(kept > 0, "what nobody called deleted is kept");
    });
}

/// The estimate of what still fits into the commit log is careful: right behind large batches even the small record of a
/// deletion seemed to have no room, and the deletion was refused as if the disk had failed, although a checkpoint was about
/// to make room.
#[test]
fn a_deletion_waits_for_room_in_the_commit_log() {
    mini_host::run(1, async {
        let settings = [
            ("message.max.bytes", "30000"),
            ("corelane.log.file.bytes", "1048576"),
            ("corelane.log.file.used.bytes", "65536"),
            ("corelane.log.files.max", "2"),
        ];
        let disk = MemoryDisk::default();
        let cluster = Cluster::start(&disk, &settings, 1).await.unwrap();
        let key = create(&cluster, 1, &[]).await[0];
        for sequence in 0..40 {
            let sent = send(&cluster, key, &batch(1, sequence, 28_000), AckLevel::Durable).await;
            assert_eq!(sent, (ErrorCode::None, i64::from(sequence)));
            let items = vec![Deletion { key, before: Offset(i64::from(sequence)) }];
            let deleted = cluster.shard(0).delete_records(items, Duration::from_secs(30)).await[0];
            assert_eq!(deleted.error, ErrorCode::None, "round {sequence}");
        }
    });
}

/// A checkpoint was writing indexes and seals of a topic while that was deleted and made again: they came to lie in the new
/// one's folder, whose next recovery took them for what is left of a lost segment.
#[test]
fn a_checkpoint_leaves_nothing_of_a_deleted_topic_in_the_folder_of_the_next() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let settings: Vec<_> = SETTINGS.iter().copied().chain([("corelane.checkpoint.interval.ms", "100")]).collect();
        let cluster = Cluster::start(&disk, &settings, 1).await.unwrap();
        for round in 0..40 {
            let key = create(&cluster, 1, &[("internal.segment.bytes", "1000")]).await[0];
            for sequence in 0..4 {
                let sent = send(&cluster, key, &batch(1, sequence, 700), AckLevel::Durable).await;
                assert_eq!(sent, (ErrorCode::None, i64::from(sequence)));
            }
            disk.slow_sync(Duration::from_millis(40));
            // Into the middle of the checkpoint, each time a little later.
            clock::sleep(Duration::from_millis(100 + 5 * round)).await;
            cluster.delete(0, key.topic).await.unwrap();
            create(&cluster, 1, &[]).await;
            clock::sleep(Duration::from_millis(500)).await;
            let folder = format!("{DATA}/kafka/t-0/");
            let is_left =
                |path: &PathBuf| path.to_string_lossy().starts_with(&folder) && !path.ends_with("partition.metadata");
            let left: Vec<_> = disk.paths().into_iter().filter(is_left).collect();
            assert!(left.is_empty(), "{left:?}");
            let topic = cluster.topic("t").unwrap();
            cluster.delete(0, topic.id).await.unwrap();
            disk.slow_sync(Duration::ZERO);
        }
    });
}

async fn send(cluster: &Cluster, key: PartitionKey, batch: &Bytes, level: AckLevel) -> (ErrorCode, i64) {
    let result = produced(cluster.send(0, key, batch, level).await);
    (result.error, result.base_offset.0)
}

/// More cores after a stop in order: the folder of the new shard was not on disk, and with it its commit log was lost.
#[test]
fn the_folder_of_a_new_shard_outlives_a_power_cut() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let cluster = Cluster::start(&disk, SETTINGS, 1).await.unwrap();
        let keys = create(&cluster, 3, &[]).await;
        cluster.stop().await.unwrap();
        let cluster = Cluster::start(&disk, SETTINGS, 3).await.unwrap();
        for key in &keys {
            assert_eq!(send(&cluster, *key, &batch(1, 0, 10), AckLevel::Durable).await, (ErrorCode::None, 0));
        }
        let cluster = Cluster::start(&disk.power_cut(|_| 0), SETTINGS, 3).await.unwrap();
        for key in keys {
            assert_eq!(cluster.read(0, key, 0, 1000).await.high_watermark.0, 1, "{key:?}");
        }
    });
}

/// The folders of the very first start were not on disk: after a power cut everything began anew, producer ids among it.
#[test]
fn a_producer_id_of_the_first_start_is_not_given_out_again() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let cluster = Cluster::start(&disk, SETTINGS, 1).await.unwrap();
        let first = cluster.shards[0].new_producer_id().await.unwrap();
        let cluster = Cluster::start(&disk.power_cut(|_| 0), SETTINGS, 1).await.unwrap();
        assert!(first < cluster.shards[0].new_producer_id().await.unwrap());
    });
}

/// Of a partition that no checkpoint knew yet, a second segment was on disk and the first was not, as nothing of either was
/// promised: that was taken for a loss, and the partition took nothing any more.
#[test]
fn what_was_never_promised_is_no_loss() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let cluster = Cluster::start(&disk, SETTINGS, 1).await.unwrap();
        let configs = [("corelane.durability", "page-cache"), ("internal.segment.bytes", "1000")];
        let key = create(&cluster, 1, &configs).await[0];
        for sequence in 0..3 {
            let sent = send(&cluster, key, &batch(1, sequence, 700), AckLevel::Written).await;
            assert_eq!(sent, (ErrorCode::None, i64::from(sequence)));
        }
        let crashed = disk.copy();
        let segment = format!("{DATA}/kafka/t-0/00000000000000000000.log");
        crashed.change(std::path::Path::new(&segment), Vec::clear);
        let cluster = Cluster::start(&crashed, SETTINGS, 1).await.unwrap();
        assert_eq!(send(&cluster, key, &batch(2, 0, 10), AckLevel::Durable).await, (ErrorCode::None, 0));
    });
}
