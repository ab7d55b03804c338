//! Whole shards on a disk in memory, killed or without power at any moment, again and again: what was acknowledged stays
//! where it was, a retry finds its batch, and nothing is there twice.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelane::broker::catalog::create::NewTopic;
use corelane::broker::catalog::{Command, Outcome};
use corelane::broker::lifecycle;
use corelane::broker::messages::{
    AckLevel, Answer, Ask, CheckedBatch, PartitionKey, ProduceItem, Produced, ReadItem, ReadLimits,
};
use corelane::broker::shard::{LocalFuture, Shard, ShardParts};
use corelane::config::Config;
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence, ShardId, TopicId};
use corelane::log::layout::Layout;
use corelane::log::scan::{BatchFacts, HEADER_BYTES};
use corelane::runtime::clock;
use corelane::runtime::host::{self, Queue};
use corelane::runtime::lane::mesh;
use corelane::wire::batch::BatchHeader;
use corelane::wire::builder::BatchBuilder;
use corelane::wire::error_code::ErrorCode;

use crate::dice::{Dice, run};
use crate::memory_disk::{MemoryDisk, WriteFault};
use crate::mini_host;

const SETTINGS: &[(&str, &str)] = &[
    ("corelane.log.file.bytes", "4194304"),
    ("corelane.log.files.max", "2"),
    ("corelane.checkpoint.interval.ms", "100"),
];
const PARTITIONS: i32 = 3;
/// Batches that a producer has under way at once.
const IN_FLIGHT: usize = 3;
/// Batches that are known again.
const WINDOW: usize = 5;

/// One batch of a producer.
#[derive(Clone)]
struct Sent {
    bytes: Bytes,
    acknowledged: Option<i64>,
}

/// A producer of one partition, which outlives the broker.
#[derive(Clone)]
struct Writer {
    id: i64,
    partition: i32,
    level: AckLevel,
    sent: Vec<Sent>,
    next_sequence: i32,
}

impl Writer {
    fn new(next_id: &mut i64, dice: &mut Dice) -> Self {
        *next_id += 1;
        let level = if dice.below(4) == 0 { AckLevel::Written } else { AckLevel::Durable };
        let partition = dice.below(3) as i32;
        Self { id: *next_id, partition, level, sent: Vec::new(), next_sequence: 0 }
    }

    fn make(&mut self, dice: &mut Dice) -> Bytes {
        let mut batch =
            BatchBuilder::new().producer(ProducerId(self.id), ProducerEpoch(0), Sequence(self.next_sequence));
        let value_bytes = [10, 300, 3_000, 20_000][dice.below(4)];
        for _ in 0..=dice.below(3) {
            batch = batch
                .value(1_700_000_000_000 + i64::from(self.next_sequence), &vec![dice.below(256) as u8; value_bytes]);
            self.next_sequence += 1;
        }
        let bytes = batch.build().freeze();
        self.sent.push(Sent { bytes: bytes.clone(), acknowledged: None });
        bytes
    }

    fn unacknowledged(&self) -> usize {
        self.sent.iter().rev().take_while(|sent| sent.acknowledged.is_none()).count()
    }
}

/// What outlives a crash besides the disk.
#[derive(Default)]
struct World {
    topic: Option<TopicId>,
    writers: Vec<Writer>,
    next_id: i64,
    /// The power went since the last start that came to its end.
    power_went: bool,
}

/// Shards that serve, all on this thread.
struct Cluster {
    shards: Vec<Rc<Shard<MemoryDisk>>>,
}

impl Cluster {
    async fn start(disk: &MemoryDisk, count: usize) -> Result<Self, String> {
        let config = Arc::new(Config::with(SETTINGS).unwrap());
        let (lanes, receivers) = mesh(count);
        let mut shards = Vec::new();
        for (id, receiver) in (0..).zip(receivers) {
            let shard = Shard::new(ShardParts {
                id: ShardId(id),
                disk: disk.clone(),
                config: Arc::clone(&config),
                advertised: ("localhost".to_owned(), 9092),
                layout: Layout::new(Path::new("/data")),
                lanes: lanes.clone(),
                progress: Arc::default(),
            });
            host::spawn(Queue::Requests, Rc::clone(&shard).receive(receiver, |_| ()));
            shards.push(shard);
        }
        lifecycle::bring_up(&shards[0]).await?;
        Ok(Self { shards })
    }

    async fn create(&self) -> Option<TopicId> {
        // A small segment rolls every few batches.
        let configs = [("internal.segment.bytes", "70000"), ("index.interval.bytes", "2000")];
        let topic = NewTopic {
            name: Arc::from("t"),
            partitions: PARTITIONS,
            replication_factor: 1,
            assignments: Vec::new(),
            configs: configs.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))).to_vec(),
        };
        let command = Command::CreateTopics { topics: vec![topic], validate_only: false };
        let results = self.shards[0].change_catalog(command).await.ok()?;
        match &results[0].outcome {
            Outcome::Topic(topic) => Some(topic.id),
            other => panic!("{other:?} {:?}", results[0].message),
        }
    }

    /// Sends one batch; the order of calls is the order of sending.
    fn produce(&self, at: usize, key: PartitionKey, bytes: Bytes, level: AckLevel) -> LocalFuture<Answer> {
        let shard = &self.shards[at % self.shards.len()];
        let header = BatchHeader::read(&bytes).unwrap();
        let item = ProduceItem { key, checked: Ok(CheckedBatch { header, bytes, log_append_time_ms: -1 }) };
        shard.ask(shard.owner(key), Ask::Produce(vec![item], level))
    }

    /// All batches of a partition, by base offset.
    async fn read(&self, key: PartitionKey) -> BTreeMap<i64, Bytes> {
        let mut found = BTreeMap::new();
        let mut next = 0;
        loop {
            let item = ReadItem { key, offset: Offset(next), bytes_max: 50_000, leader_epoch: -1, last_epoch: -1 };
            let limits = ReadLimits { bytes_max: 50_000, first_whole: true };
            let shard = &self.shards[0];
            let answer = shard.ask(shard.owner(key), Ask::Read(vec![item], limits)).await;
            let Answer::Read(mut read) = answer else { panic!() };
            let read = read.remove(0);
            assert_eq!(read.error, ErrorCode::None);
            let mut bytes = BytesMut::new();
            read.records.parts.iter().flat_map(|part| part.parts()).for_each(|part| bytes.extend_from_slice(part));
            let mut bytes = bytes.freeze();
            if bytes.is_empty() {
                assert_eq!(read.high_watermark, Offset(next));
                return found;
            }
            while !bytes.is_empty() {
                let facts = BatchFacts::read(&bytes, 0).unwrap();
                assert_eq!(facts.base_offset.0, next, "offsets without a gap");
                next = facts.next_offset().0;
                found.insert(facts.base_offset.0, bytes.split_to(facts.bytes as usize));
            }
        }
    }
}

fn key(topic: TopicId, writer: &Writer) -> PartitionKey {
    PartitionKey { topic, partition: writer.partition }
}

/// The bytes of a batch that the broker does not change.
fn content(batch: &[u8]) -> &[u8] {
    &batch[16..]
}

/// Every acknowledged batch is at its offset, and of each producer every batch is there once, in order.
async fn check(cluster: &Cluster, world: &World, topic: TopicId) {
    for partition in 0..PARTITIONS {
        let found = cluster.read(PartitionKey { topic, partition }).await;
        for writer in world.writers.iter().filter(|writer| writer.partition == partition) {
            let mine: Vec<_> = found.iter().filter(|(_, batch)| producer(batch) == writer.id).collect();
            for (sent, (offset, batch)) in writer.sent.iter().zip(&mine) {
                let is_it = content(batch) == content(&sent.bytes);
                assert!(is_it, "producer {}: in order, none twice; {}", writer.id, told(world, writer, &mine));
                assert!(sent.acknowledged.is_none_or(|acknowledged| acknowledged == **offset));
            }
            let promised = writer.sent.len() - writer.unacknowledged();
            let may_lose = writer.level == AckLevel::Written && world.power_went;
            assert!(may_lose || mine.len() >= promised, "producer {}: {} of {promised}", writer.id, mine.len());
            assert!(mine.len() <= writer.sent.len());
        }
    }
}

fn told(world: &World, writer: &Writer, found: &[(&i64, &Bytes)]) -> String {
    let first = |batch: &[u8]| BatchFacts::read(batch, 0).unwrap().base_sequence;
    let sent: Vec<_> = writer.sent.iter().map(|sent| (first(&sent.bytes), sent.acknowledged)).collect();
    let found: Vec<_> = found.iter().map(|(offset, batch)| (first(batch), **offset)).collect();
    format!("power went: {}, {:?}, sent {sent:?}, found {found:?}", world.power_went, writer.level)
}

fn producer(batch: &[u8]) -> i64 {
    BatchFacts::read(&batch[..HEADER_BYTES], 0).unwrap().producer_id
}

fn answer_of(answer: Answer) -> Produced {
    let Answer::Produced(mut results) = answer else { panic!() };
    results.remove(0)
}

/// Retries what was not acknowledged, and what was and is still known.
async fn retry(cluster: &Cluster, writer: &mut Writer, topic: TopicId) {
    let open = writer.unacknowledged();
    let first_open = writer.sent.len() - open;
    for at in first_open.saturating_sub(WINDOW.saturating_sub(open))..writer.sent.len() {
        let bytes = writer.sent[at].bytes.clone();
        let produced = answer_of(cluster.produce(at, key(topic, writer), bytes, AckLevel::Durable).await);
        assert_eq!(produced.error, ErrorCode::None, "producer {}: batch {at} of {first_open} + {open}", writer.id);
        let offset = produced.base_offset.0;
        assert_eq!(*writer.sent[at].acknowledged.get_or_insert(offset), offset, "a retry got another offset");
    }
}

/// Sends until the disk is gone or time is up.
async fn write(cluster: Rc<Cluster>, world: Rc<RefCell<World>>, which: usize, topic: TopicId, mut dice: Dice) {
    loop {
        let count = 1 + dice.below(IN_FLIGHT);
        let (first, batches, to, level) = {
            let writer = &mut world.borrow_mut().writers[which];
            let batches: Vec<_> = (0..count).map(|_| writer.make(&mut dice)).collect();
            (writer.sent.len() - count, batches, key(topic, writer), writer.level)
        };
        let send = |bytes: Bytes| cluster.produce(which, to, bytes, level);
        let asked: Vec<_> = batches.into_iter().map(send).collect();
        for (at, answer) in (first..).zip(asked) {
            let produced = answer_of(answer.await);
            assert!([ErrorCode::None, ErrorCode::KafkaStorageError].contains(&produced.error), "{produced:?}");
            if produced.error != ErrorCode::None {
                return;
            }
            world.borrow_mut().writers[which].sent[at].acknowledged = Some(produced.base_offset.0);
        }
        clock::sleep(Duration::from_micros(dice.below(20_000) as u64)).await;
    }
}

/// One life of the broker, from its start to its sudden end.
async fn live(disk: MemoryDisk, world: Rc<RefCell<World>>, mut dice: Dice) -> Option<()> {
    if dice.below(3) == 0 {
        disk.fail_write(dice.below(60) as u64, WriteFault::Dead(512 * dice.below(20)));
    }
    let cluster = Rc::new(Cluster::start(&disk, 1 + dice.below(3)).await.ok()?);
    if !disk.mend() {
        return None;
    }
    let known = world.borrow().topic;
    let topic = match known {
        Some(topic) => topic,
        None => cluster.create().await?,
    };
    // Nobody else looks at it yet: the producers begin later.
    let mut present = std::mem::take(&mut *world.borrow_mut());
    check(&cluster, &present, topic).await;
    present.topic = Some(topic);
    let power_went = std::mem::take(&mut present.power_went);
    present.writers.retain(|writer| writer.level == AckLevel::Durable || !power_went);
    for writer in &mut present.writers {
        retry(&cluster, writer, topic).await;
    }
    while present.writers.len() < 5 {
        present.writers.push(Writer::new(&mut present.next_id, &mut dice));
    }
    *world.borrow_mut() = present;
    disk.fail_write(10 + dice.below(600) as u64, WriteFault::Dead(512 * dice.below(20)));
    for which in 0..5 {
        host::spawn(Queue::Requests, write(Rc::clone(&cluster), Rc::clone(&world), which, topic, dice.other()));
    }
    clock::sleep(Duration::from_millis(dice.below(1_500) as u64)).await;
    Some(())
}

#[test]
fn what_was_acknowledged_survives_every_crash_and_no_retry_is_there_twice() {
    let acknowledged = run(1_000, |dice| {
        let world = Rc::new(RefCell::new(World::default()));
        let mut disk = MemoryDisk::default();
        for _ in 0..6 {
            mini_host::run(dice.roll(), live(disk.clone(), Rc::clone(&world), dice.other()));
            let power_goes = dice.below(2) == 0;
            world.borrow_mut().power_went |= power_goes;
            disk = if power_goes { disk.power_cut(|end| dice.below(end)) } else { disk.copy() };
        }
        let writers = &world.borrow().writers;
        writers.iter().map(|writer| writer.sent.len() - writer.unacknowledged()).sum()
    });
    assert!(acknowledged > 1_000, "{acknowledged} batches were acknowledged");
}
