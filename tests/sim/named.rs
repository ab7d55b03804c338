//! What the simulator once found, each played again step by step; a seed alone would mean something else after every change
//! of the workload.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use corelane::broker::catalog::Outcome;
use corelane::broker::messages::{AckLevel, PartitionKey};
use corelane::ids::{ProducerEpoch, ProducerId, Sequence};
use corelane::runtime::clock;
use corelane::wire::builder::BatchBuilder;
use corelane::wire::error_code::ErrorCode;

use crate::cluster::{Cluster, DATA, produced};
use crate::support::memory_disk::MemoryDisk;
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
