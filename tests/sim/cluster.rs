//! The shards of one life, all on this thread, and what clients may ask of them.

use std::cell::RefCell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelane::broker::catalog::create::NewTopic;
use corelane::broker::catalog::{Command, ItemResult, Topic};
use corelane::broker::lifecycle;
use corelane::broker::messages::{
    AckLevel, Answer, Ask, CheckedBatch, Fetched, OffsetQuery, PartitionKey, ProduceItem, Produced, ReadItem,
    ReadLimits,
};
use corelane::broker::shard::{LocalFuture, Shard, ShardParts};
use corelane::config::Config;
use corelane::ids::{Offset, ShardId, TopicId};
use corelane::log::layout::Layout;
use corelane::log::store::Store;
use corelane::runtime::clock;
use corelane::runtime::host::{self, Queue};
use corelane::runtime::lane::mesh;
use corelane::runtime::signal::first_of;
use corelane::wire::batch::BatchHeader;
use corelane::wire::error_code::ErrorCode;

use crate::support::memory_disk::{MemoryDisk, MemoryFile};

pub const DATA: &str = "/data";
pub const LATEST: i64 = -1;
pub const EARLIEST: i64 = -2;
/// Nobody waits longer for an answer, in virtual time.
const ANSWER_SECONDS: u64 = 120;

/// Shards that serve.
pub struct Cluster {
    pub shards: Vec<Rc<Shard<MemoryDisk>>>,
    /// Until it is stopped.
    store: RefCell<Option<Store<MemoryFile>>>,
}

thread_local! {
    /// The disk of the present life.
    static DISK: RefCell<Option<MemoryDisk>> = const { RefCell::new(None) };
}

/// From now on answers are those of programs on this disk.
pub fn begin_life_on(disk: &MemoryDisk) {
    DISK.set(Some(disk.clone()));
}

/// Answers, or complains. When the program has come to its end, nobody gets an answer any more.
pub async fn in_time<T: 'static>(what: &str, answer: impl Future<Output = T> + 'static) -> T {
    let late = async {
        clock::sleep(Duration::from_secs(ANSWER_SECONDS)).await;
        None
    };
    match first_of(vec![Box::pin(async move { Some(answer.await) }), Box::pin(late)]).await {
        _ if DISK.with_borrow(|disk| disk.as_ref().is_some_and(MemoryDisk::is_over)) => std::future::pending().await,
        Some(answer) => answer,
        None => panic!("{what}: no answer within {ANSWER_SECONDS} s"),
    }
}

impl Cluster {
    /// From what is on the disk to shards that serve, or the sentence why not.
    pub async fn start(disk: &MemoryDisk, settings: &[(&str, &str)], count: usize) -> Result<Self, String> {
        let config = Arc::new(Config::with(settings).unwrap());
        let (lanes, receivers) = mesh(count);
        let mut shards = Vec::new();
        for (id, receiver) in (0..).zip(receivers) {
            let shard = Shard::new(ShardParts {
                id: ShardId(id),
                disk: disk.clone(),
                config: Arc::clone(&config),
                advertised: ("localhost".to_owned(), 9092),
                layout: Layout::new(Path::new(DATA)),
                lanes: lanes.clone(),
                progress: Arc::default(),
            });
            host::spawn(Queue::Requests, Rc::clone(&shard).receive(receiver, |_| ()));
            shards.push(shard);
        }
        let first = Rc::clone(&shards[0]);
        let store = in_time("the start", async move { lifecycle::bring_up(&first).await }).await?;
        Ok(Self { shards, store: RefCell::new(Some(store)) })
    }

    /// An orderly stop.
    pub async fn stop(&self) -> Result<(), String> {
        let (first, store) = (Rc::clone(&self.shards[0]), self.store.borrow_mut().take().unwrap());
        in_time("the stop", async move { lifecycle::shut_down(&first, store).await }).await
    }

    pub fn shard(&self, at: usize) -> &Rc<Shard<MemoryDisk>> {
        &self.shards[at % self.shards.len()]
    }

    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.shards[0].catalog().topic(name).cloned()
    }

    /// Changes one thing in the catalog.
    pub async fn change(&self, at: usize, command: Command) -> Result<ItemResult, ErrorCode> {
        let shard = Rc::clone(self.shard(at));
        let changed = in_time("a change", async move { shard.change_catalog(command).await }).await;
        changed.map(|mut results| results.remove(0))
    }

    pub async fn create(
        &self,
        at: usize,
        name: &str,
        partitions: i32,
        configs: &[(&str, String)],
    ) -> Result<ItemResult, ErrorCode> {
        let topic = NewTopic {
            name: Arc::from(name),
            partitions,
            replication_factor: 1,
            assignments: Vec::new(),
            configs: configs.iter().map(|(name, value)| ((*name).to_owned(), Some(value.clone()))).collect(),
        };
        self.change(at, Command::CreateTopics { topics: vec![topic], validate_only: false }).await
    }

    pub async fn delete(&self, at: usize, id: TopicId) -> Result<ItemResult, ErrorCode> {
        self.change(at, Command::DeleteTopics { ids: vec![id] }).await
    }

    /// Sends one batch; the order of calls is the order of sending.
    pub fn send(&self, at: usize, key: PartitionKey, bytes: &Bytes, level: AckLevel) -> LocalFuture<Answer> {
        let header = BatchHeader::read(bytes).unwrap();
        let checked = Ok(CheckedBatch { header, bytes: bytes.clone(), log_append_time_ms: -1 });
        let shard = self.shard(at);
        shard.ask(shard.owner(key), Ask::Produce(vec![ProduceItem { key, checked, entry: None }], level))
    }

    pub async fn offset(&self, at: usize, key: PartitionKey, timestamp: i64) -> Result<i64, ErrorCode> {
        let shard = self.shard(at);
        let query = OffsetQuery { key, timestamp, leader_epoch: -1, is_committed: false };
        let asked = shard.ask(shard.owner(key), Ask::Offsets(vec![query]));
        let Answer::Offsets(found) = in_time("an offset", asked).await else { panic!() };
        if found[0].error.is_none() { Ok(found[0].offset.0) } else { Err(found[0].error) }
    }

    pub async fn read(&self, at: usize, key: PartitionKey, offset: i64, bytes_max: usize) -> Fetched {
        let item =
            ReadItem { key, offset: Offset(offset), bytes_max, leader_epoch: -1, last_epoch: -1, is_committed: false };
        let limits = ReadLimits { bytes_max, first_whole: true };
        let shard = self.shard(at);
        let asked = shard.ask(shard.owner(key), Ask::Read(vec![item], limits));
        let Answer::Read(mut read) = in_time("a read", asked).await else { panic!() };
        read.remove(0)
    }
}

pub fn produced(answer: Answer) -> Produced {
    let Answer::Produced(mut results) = answer else { panic!() };
    results.remove(0)
}

/// The bytes of what was read.
pub fn bytes_of(fetched: &Fetched) -> Bytes {
    let mut bytes = BytesMut::with_capacity(fetched.records.bytes);
    fetched.records.parts.iter().flat_map(|part| part.parts()).for_each(|part| bytes.extend_from_slice(part));
    bytes.freeze()
}
