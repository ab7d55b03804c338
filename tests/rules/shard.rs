//! One whole shard on a disk in memory: what failures, full disks and deletions at bad moments leave behind.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use corelane::broker::catalog::create::NewTopic;
use corelane::broker::catalog::{self, Command};
use corelane::broker::lifecycle;
use corelane::broker::messages::{
    AckLevel, Answer, Ask, CheckedBatch, Fetched, Message, PartitionKey, ProduceItem, Produced, ReadItem, ReadLimits,
};
use corelane::broker::shard::{LocalFuture, Shard, ShardParts};
use corelane::config::Config;
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence, ShardId};
use corelane::log::layout::Layout;
use corelane::log::store::Store;
use corelane::requests::{self, Begun, Outcome};
use corelane::runtime::lane::{LaneReceiver, mesh};
use corelane::runtime::signal::first_of;
use corelane::runtime::{clock, host};
use corelane::wire::batch::BatchHeader;
use corelane::wire::builder::BatchBuilder;
use corelane::wire::error_code::ErrorCode;

use crate::memory_disk::{MemoryDisk, MemoryFile, WriteFault};
use crate::mini_host;

pub const DATA: &str = "/data";
/// Settings under which a commit log has two files of 4 MiB and a checkpoint comes each second.
pub(crate) const SMALL: &[(&str, &str)] = &[
    ("corelane.log.file.bytes", "4194304"),
    ("corelane.log.files.max", "2"),
    ("corelane.checkpoint.interval.ms", "1000"),
    ("corelane.commit", "ring"),
];

pub(crate) struct Node {
    pub(crate) shard: Rc<Shard<MemoryDisk>>,
    /// Until it is stopped.
    store: RefCell<Option<Store<MemoryFile>>>,
    _lanes: Vec<LaneReceiver<Message>>,
}

impl Node {
    /// From what is on the disk to a shard that serves, as the broker starts.
    pub(crate) async fn start(disk: &MemoryDisk, settings: &[(&str, &str)]) -> Self {
        let (lanes, receivers) = mesh(1);
        let shard = Shard::new(ShardParts {
            id: ShardId(0),
            disk: disk.clone(),
            config: Arc::new(Config::with(settings).unwrap()),
            advertised: ("localhost".to_owned(), 9092),
            layout: Layout::new(Path::new(DATA)),
            lanes,
            progress: Arc::default(),
        });
        let store = lifecycle::bring_up(&shard).await.unwrap();
        Self { shard, store: RefCell::new(Some(store)), _lanes: receivers }
    }

    pub(crate) fn ask(&self, ask: Ask) -> LocalFuture<Answer> {
        self.shard.ask(ShardId(0), ask)
    }

    /// A shard with two topics of one batch at most: a flush of the first one's has failed, it needs all of the commit log.
    pub(crate) async fn start_with_a_failed_partition(disk: &MemoryDisk) -> (Self, PartitionKey, PartitionKey) {
        let node = Self::start(disk, SMALL).await;
        let (bad, good) = (node.create("bad").await, node.create("good").await);
        assert_eq!(node.produce(bad, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        disk.fail_sync("bad-0/00000000000000000000.log");
        wait(1500).await;
        (node, bad, good)
    }

    pub(crate) async fn create(&self, name: &str) -> PartitionKey {
        self.create_with(name, &[]).await
    }

    pub(crate) async fn create_with(&self, name: &str, configs: &[(&str, &str)]) -> PartitionKey {
        let topic = NewTopic {
            name: Arc::from(name),
            partitions: 1,
            replication_factor: 1,
            assignments: Vec::new(),
            configs: configs.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect(),
        };
        let command = Command::CreateTopics { topics: vec![topic], validate_only: false };
        let results = self.shard.change_catalog(command).await.unwrap();
        let catalog::Outcome::Topic(topic) = &results[0].outcome else { panic!("{results:?}") };
        PartitionKey { topic: topic.id, partition: 0 }
    }

    pub(crate) async fn delete(&self, key: PartitionKey) {
        self.shard.change_catalog(Command::DeleteTopics { ids: vec![key.topic] }).await.unwrap();
    }

    /// Sends batches with acks=all in one request.
    pub fn send(&self, key: PartitionKey, batches: &[Bytes]) -> LocalFuture<Answer> {
        let items = batches.iter().map(|bytes| ProduceItem {
            key,
            checked: Ok(CheckedBatch {
                header: BatchHeader::read(bytes).unwrap(),
                bytes: bytes.clone(),
                log_append_time_ms: -1,
            }),
            entry: None,
        });
        self.ask(Ask::Produce(items.collect(), AckLevel::Durable))
    }

    pub async fn produce(&self, key: PartitionKey, batch: &Bytes) -> (ErrorCode, i64) {
        let results = produced(self.send(key, std::slice::from_ref(batch)).await);
        (results[0].error, results[0].base_offset.0)
    }

    pub(crate) async fn read(&self, key: PartitionKey, offset: i64) -> Fetched {
        let item = ReadItem {
            key,
            offset: Offset(offset),
            bytes_max: 1 << 20,
            leader_epoch: -1,
            last_epoch: -1,
            is_committed: false,
        };
        let limits = ReadLimits { bytes_max: 1 << 20, first_whole: true };
        let Answer::Read(mut found) = self.ask(Ask::Read(vec![item], limits)).await else { panic!() };
        found.remove(0)
    }

    pub(crate) async fn close(&self) -> Result<(), String> {
        let store = self.store.borrow_mut().take().unwrap();
        lifecycle::shut_down(&self.shard, store).await
    }
}

pub fn produced(answer: Answer) -> Vec<Produced> {
    let Answer::Produced(results) = answer else { panic!() };
    results
}

/// One record of `bytes` bytes by a producer.
pub fn batch(producer: i64, sequence: i32, bytes: usize) -> Bytes {
    let builder = BatchBuilder::new().producer(ProducerId(producer), ProducerEpoch(0), Sequence(sequence));
    builder.value(1_700_000_000_000, &vec![7; bytes]).build().freeze()
}

/// Where the first segment of a topic's only partition is.
fn segment(topic: &str) -> PathBuf {
    Path::new(DATA).join(format!("kafka/{topic}-0/00000000000000000000.log"))
}

pub(crate) async fn within<T: 'static>(seconds: u64, what: impl Future<Output = T> + 'static) -> Option<T> {
    let late = async move {
        clock::sleep(Duration::from_secs(seconds)).await;
        None
    };
    first_of(vec![Box::pin(async move { Some(what.await) }), Box::pin(late)]).await
}

pub(crate) fn wait(millis: u64) -> impl Future<Output = ()> {
    clock::sleep(Duration::from_millis(millis))
}

#[test]
fn a_checkpoint_remembers_only_batches_that_it_has_flushed() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create("t").await;
        assert_eq!(node.produce(key, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        // The next checkpoint fails, so the one after it is a full one.
        disk.fail_sync("checkpoint.spare");
        wait(1500).await;
        assert_eq!(node.produce(key, &batch(1, 1, 10)).await, (ErrorCode::None, 1));
        disk.slow_sync(Duration::from_millis(20));
        disk.hold_blocks(true);
        let _on_its_way = node.send(key, &[batch(2, 0, 10)]);
        wait(510).await;
        let _behind_it = node.send(key, &[batch(1, 2, 10)]);
        wait(400).await;
        let crashed = disk.copy();
        let node = Node::start(&crashed, SMALL).await;
        let end = node.read(key, 0).await.high_watermark.0;
        assert_eq!(end, 3, "what was staged behind the flush had not reached the disk");
        let retried = within(10, node.send(key, &[batch(1, 2, 10)])).await.map(produced);
        let retried = retried.expect("the retry was taken for a batch that is there");
        assert_eq!((retried[0].error, retried[0].base_offset), (ErrorCode::None, Offset(end)));
        assert!(node.read(key, end).await.records.bytes > 0);
    });
}

#[test]
fn after_a_failed_flush_recovery_takes_the_batch_from_the_commit_log() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (node, bad, good) = Node::start_with_a_failed_partition(&disk).await;
        assert_eq!(node.produce(bad, &batch(1, 1, 10)).await.0, ErrorCode::KafkaStorageError);
        assert_eq!(node.produce(good, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        wait(5000).await;
        assert!(node.close().await.is_err(), "this stop is not in order");
        // What the kernel could not write it has forgotten.
        disk.change(&segment("bad"), Vec::clear);
        let node = Node::start(&disk.copy(), SMALL).await;
        let found = node.read(bad, 0).await;
        assert_eq!((found.high_watermark, found.records.bytes > 0), (Offset(1), true));
        assert_eq!(node.produce(bad, &batch(1, 1, 10)).await, (ErrorCode::None, 1));
    });
}

/// Waits until the commit log has its files, then leaves no room at all.
pub(crate) async fn fill_up(disk: &MemoryDisk) {
    wait(2000).await;
    disk.limit(Some(disk.total_bytes()));
}

#[test]
fn a_topic_whose_writes_found_no_room_can_be_deleted_and_holds_nothing_up() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (stuck, other) = (node.create("stuck").await, node.create("other").await);
        assert_eq!(node.produce(other, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        fill_up(&disk).await;
        let answer = node.send(stuck, &[batch(1, 0, 9000)]);
        wait(1500).await;
        node.delete(stuck).await;
        disk.limit(None);
        let answered = within(5, answer).await.map(produced);
        assert_eq!(answered.unwrap()[0].error, ErrorCode::KafkaStorageError);
        let node = Rc::new(node);
        let closing = Rc::clone(&node);
        assert_eq!(within(60, async move { closing.close().await }).await, Some(Ok(())));
    });
}

/// What found no room is in the commit log: the stop says that it is not in order, and the next start does the rest.
#[test]
fn a_stop_does_not_wait_for_room_on_the_disk() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Rc::new(Node::start(&disk, SMALL).await);
        let key = node.create("t").await;
        assert_eq!(node.produce(key, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        fill_up(&disk).await;
        let answer = within(10, node.send(key, &[batch(1, 1, 9000)])).await.map(produced);
        assert_eq!(answer.unwrap()[0].error, ErrorCode::KafkaStorageError);
        let closing = Rc::clone(&node);
        let closed = within(60, async move { closing.close().await }).await;
        assert!(closed.is_some_and(|closed| closed.is_err()), "in time, and not as if everything was well");
        disk.limit(None);
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!(node.produce(key, &batch(1, 1, 9000)).await, (ErrorCode::None, 1));
        assert_eq!(node.read(key, 0).await.high_watermark, Offset(2));
    });
}

/// A write that takes less than it was given is tried again at the latest when the shard stops.
#[test]
fn a_short_write_of_a_segment_is_made_good_by_the_stop() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Rc::new(Node::start(&disk, SMALL).await);
        let key = node.create("t").await;
        assert_eq!(node.produce(key, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        // The commit log's write comes after the segment's.
        disk.fail_write(0, WriteFault::Short(20));
        let answer = within(10, node.send(key, &[batch(1, 1, 9000)])).await.map(produced);
        assert_eq!(answer.unwrap()[0].error, ErrorCode::KafkaStorageError);
        let closing = Rc::clone(&node);
        assert_eq!(within(60, async move { closing.close().await }).await, Some(Ok(())));
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!(node.produce(key, &batch(1, 1, 9000)).await, (ErrorCode::None, 1));
    });
}

#[test]
fn eos_b13_batches_that_found_no_room_are_refused_and_each_is_written_once_when_they_come_again() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let settings: Vec<_> = SMALL.iter().copied().filter(|(name, _)| !name.contains("checkpoint")).collect();
        let node = Node::start(&disk, &settings).await;
        let key = node.create("t").await;
        fill_up(&disk).await;
        let batches: Vec<_> = (0..5).map(|sequence| batch(1, sequence, 60_000)).collect();
        let refused = within(10, node.send(key, &batches)).await.map(produced).unwrap();
        assert!(refused.iter().all(|result| result.error == ErrorCode::KafkaStorageError));
        wait(1500).await;
        disk.limit(None);
        wait(1500).await;
        let retried = within(10, node.send(key, &batches)).await.map(produced).unwrap();
        let offsets: Vec<_> = retried.iter().map(|result| (result.error, result.base_offset.0)).collect();
        assert_eq!(offsets, (0..5).map(|offset| (ErrorCode::None, offset)).collect::<Vec<_>>());
        assert_eq!(node.read(key, 0).await.high_watermark, Offset(5));
    });
}

#[test]
fn a_request_larger_than_a_file_of_the_commit_log_is_written() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Rc::new(Node::start(&disk, SMALL).await);
        let key = node.create("t").await;
        let batches: Vec<_> = (0..10).map(|sequence| batch(1, sequence, 900_000)).collect();
        let answered = within(30, node.send(key, &batches)).await.map(produced);
        assert!(answered.is_some_and(|results| results.iter().all(|result| result.error == ErrorCode::None)));
        let after = within(30, node.send(key, &[batch(1, 10, 10)])).await.map(produced);
        assert_eq!(after.unwrap()[0].base_offset, Offset(10));
    });
}

#[test]
fn a_deletion_during_a_checkpoint_holds_nothing_up_and_leaves_the_name_free() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (old, other) = (node.create("t").await, node.create("other").await);
        assert_eq!(node.produce(other, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        disk.slow_sync(Duration::from_millis(300));
        for round in 0..20 {
            assert_eq!(node.produce(old, &batch(2, round, 10)).await.0, ErrorCode::None);
            wait(97).await;
        }
        node.delete(old).await;
        let new = node.create("t").await;
        assert_eq!(node.produce(new, &batch(3, 0, 10)).await, (ErrorCode::None, 0));
        wait(3000).await;
        let node = Node::start(&disk.copy(), SMALL).await;
        let found = node.read(new, 0).await;
        assert_eq!((found.error, found.high_watermark), (ErrorCode::None, Offset(1)));
        assert_eq!(node.produce(other, &batch(1, 0, 10)).await, (ErrorCode::None, 0), "a retry");
    });
}

#[test]
fn a_batch_of_half_a_file_is_written_even_if_there_are_only_two() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Rc::new(Node::start(&disk, SMALL).await);
        let key = node.create_with("t", &[("max.message.bytes", "2000000")]).await;
        for sequence in 0..12 {
            let answered = within(30, node.send(key, &[batch(1, sequence, 1_900_000)])).await.map(produced);
            assert_eq!(answered.map(|results| results[0].error), Some(ErrorCode::None), "batch {sequence}");
        }
    });
}

#[test]
fn while_a_failed_partition_needs_the_log_others_are_refused_instead_of_waiting_for_ever() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (node, bad, good) = Node::start_with_a_failed_partition(&disk).await;
        let node = Rc::new(node);
        let mut acknowledged = 0;
        for sequence in 0..20 {
            let answered = within(30, node.send(good, &[batch(1, sequence, 900_000)])).await.map(produced);
            match answered.expect("an answer")[0].error {
                ErrorCode::None => acknowledged += 1,
                error => {
                    assert_eq!(error, ErrorCode::KafkaStorageError);
                    break;
                }
            }
        }
        assert!((3..20).contains(&acknowledged), "{acknowledged}");
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!(node.read(good, 0).await.high_watermark, Offset(acknowledged));
        assert_eq!(node.read(bad, 0).await.high_watermark, Offset(1));
    });
}

pub(crate) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A Fetch of version 4 of one partition that waits a long time for one byte.
pub(crate) fn fetch_frame(topic: &str, offset: i64) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i16(1);
    frame.put_i16(4);
    frame.put_i32(7);
    frame.put_i16(-1);
    for number in [-1, i32::MAX, 1, 1 << 20] {
        frame.put_i32(number);
    }
    frame.put_i8(0);
    frame.put_i32(1);
    frame.put_i16(i16::try_from(topic.len()).unwrap());
    frame.put_slice(topic.as_bytes());
    frame.put_i32(1);
    frame.put_i32(0);
    frame.put_i64(offset);
    frame.put_i32(1 << 20);
    frame.freeze()
}

async fn turns() {
    for _ in 0..10 {
        host::yield_now().await;
    }
}

#[test]
fn a_waiting_fetch_holds_its_connection_only_as_long_as_the_client_stays() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create("t").await;
        let begun = within(1, {
            let shard = Rc::clone(&node.shard);
            async move { requests::begin(&shard, LOCAL, fetch_frame("t", 0)).await }
        });
        let Some(Begun::Later(mut left)) = begun.await else { panic!("the connection cannot read on") };
        std::future::poll_fn(|context| {
            assert!(left.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(node.shard.waiting_fetches(), 1);
        drop(left);
        turns().await;
        assert_eq!(node.shard.waiting_fetches(), 0, "a client that left is forgotten");
        let Begun::Later(stays) = requests::begin(&node.shard, LOCAL, fetch_frame("t", 0)).await else { panic!() };
        let mut answer = std::pin::pin!(within(5, stays));
        std::future::poll_fn(|context| {
            assert!(answer.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(node.produce(key, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        let Some(Outcome::Charged(answer, _)) = answer.await else { panic!("it is woken by what came") };
        assert!(answer.len() > 60);
    });
}

#[test]
fn a_catalog_change_is_seen_even_if_the_snapshot_behind_it_fails() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        wait(3500).await;
        let mut last = None;
        for _ in 0..1000 {
            // The change itself is one write; the one after it begins a snapshot.
            disk.fail_write(1, WriteFault::Short(0));
            let Ok(results) = node.shard.change_catalog(Command::AllocateProducerIds { count: 1000 }).await else {
                break;
            };
            let catalog::Outcome::ProducerIds(first) = results[0].outcome else { panic!("{results:?}") };
            assert!(last < Some(first.0));
            last = Some(first.0);
        }
        assert!(last > Some(300_000), "{last:?}");
        let node = Node::start(&disk.copy(), SMALL).await;
        let results = node.shard.change_catalog(Command::AllocateProducerIds { count: 1000 }).await.unwrap();
        let next = catalog::Outcome::ProducerIds(ProducerId(last.unwrap() + 1000));
        assert_eq!(results[0].outcome, next, "a change was durable and nobody was told");
    });
}

#[test]
fn the_folder_of_an_unfinished_deletion_does_not_become_a_new_topics() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let old = node.create("t").await;
        assert_eq!(node.produce(old, &batch(1, 0, 10)).await, (ErrorCode::None, 0));
        let folder = segment("t").parent().unwrap().to_owned();
        let left: Vec<_> = disk.paths().into_iter().filter(|path| path.starts_with(&folder)).collect();
        let left: Vec<_> = left.into_iter().map(|path| (path.clone(), disk.content(&path))).collect();
        node.delete(old).await;
        // A crash before the rename, and a catalog that has forgotten the deletion.
        left.into_iter().for_each(|(path, content)| disk.put(&path, content));
        let new = node.create("t").await;
        assert_eq!(node.produce(new, &batch(2, 0, 20)).await, (ErrorCode::None, 0));
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!(node.read(new, 0).await.high_watermark, Offset(1));
        assert!(disk.paths().iter().any(|path| path.to_string_lossy().contains("-stray/")), "kept, but elsewhere");
    });
}
