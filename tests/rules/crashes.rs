//! Whole shards on a disk in memory, killed or without power at any moment, again and again: what was acknowledged stays
//! where it was, a retry finds its batch, nothing is there twice, and neither log start nor end ever move back.

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
    AckLevel, Answer, Ask, CheckedBatch, Deletion, EpochQuery, OffsetQuery, PartitionKey, ProduceItem, Produced,
    ReadItem, ReadLimits,
};
use corelane::broker::shard::{LocalFuture, Shard, ShardParts};
use corelane::config::Config;
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence, ShardId, TopicId};
use corelane::log::layout::Layout;
use corelane::log::scan::{BatchFacts, HEADER_BYTES};
use corelane::runtime::clock;
use corelane::runtime::host::{self, Queue};
use corelane::runtime::lane::mesh;
use corelane::runtime::signal::{Bell, rung_or_elapsed};
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
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// One batch of a producer.
#[derive(Clone)]
struct Sent {
    bytes: Bytes,
    acknowledged: Option<i64>,
}

impl Sent {
    fn records(&self) -> i64 {
        i64::from(BatchHeader::read(&self.bytes).unwrap().last_offset_delta) + 1
    }

    /// True when it may be gone because the log begins at `start`.
    fn may_be_deleted(&self, start: i64) -> bool {
        self.acknowledged.is_none_or(|base| base + self.records() <= start)
    }
}

/// Log start and end of one partition, as far as anybody was told.
#[derive(Clone, Copy, Default)]
struct Bounds {
    start: i64,
    /// Above this nobody wanted it.
    start_max: i64,
    end: i64,
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
    bounds: [Bounds; PARTITIONS as usize],
    deletions: usize,
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
        let configs =
            [("internal.segment.bytes", "70000"), ("index.interval.bytes", "2000"), ("file.delete.delay.ms", "100")];
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

    async fn offset(&self, key: PartitionKey, timestamp: i64) -> i64 {
        let shard = &self.shards[0];
        let query = OffsetQuery { key, timestamp, leader_epoch: -1 };
        let Answer::Offsets(found) = shard.ask(shard.owner(key), Ask::Offsets(vec![query])).await else { panic!() };
        assert_eq!(found[0].error, ErrorCode::None);
        found[0].offset.0
    }

    /// All batches of a partition from its log start on, by base offset.
    async fn read(&self, key: PartitionKey, start: i64) -> BTreeMap<i64, Bytes> {
        let mut found = BTreeMap::new();
        let mut next = start;
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
                let is_first = found.is_empty() && facts.base_offset.0 <= start && facts.next_offset().0 > start;
                assert!(facts.base_offset.0 == next || is_first, "offsets without a gap");
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

/// Neither end of a partition has moved back, and the start is one that somebody wanted.
async fn check_bounds(cluster: &Cluster, world: &mut World, key: PartitionKey) -> i64 {
    let (start, end) = (cluster.offset(key, EARLIEST).await, cluster.offset(key, LATEST).await);
    let bounds = &mut world.bounds[key.partition as usize];
    assert!(
        bounds.start <= start && start <= bounds.start_max.max(bounds.start),
        "start {} became {start}",
        bounds.start
    );
    assert!(bounds.end <= end && start <= end, "end {} became {end}, start {start}", bounds.end);
    (bounds.start, bounds.end) = (start, end);
    if start > 0 {
        let item = ReadItem { key, offset: Offset(start - 1), bytes_max: 1, leader_epoch: -1, last_epoch: -1 };
        let limits = ReadLimits { bytes_max: 1, first_whole: true };
        let shard = &cluster.shards[0];
        let Answer::Read(read) = shard.ask(shard.owner(key), Ask::Read(vec![item], limits)).await else { panic!() };
        assert_eq!(read[0].error, ErrorCode::OffsetOutOfRange, "below the log start {start}");
    }
    start
}

/// Where epochs end is what the batches say, however the file that lists them has fared.
async fn check_epochs(cluster: &Cluster, key: PartitionKey, found: &BTreeMap<i64, Bytes>, start: i64) {
    let shard = &cluster.shards[0];
    let (present, end) = (shard.leader_epoch(), cluster.offset(key, LATEST).await);
    let mut begun: Vec<(i32, i64)> = Vec::new();
    for (base, batch) in found {
        let epoch = BatchFacts::read(batch, 0).unwrap().leader_epoch;
        if begun.last().is_none_or(|last| last.0 < epoch) {
            begun.push((epoch, start.max(*base)));
        }
    }
    begun.push((present, end));
    let expected = |epoch: i32| {
        let next = begun.iter().find(|one| one.0 > epoch);
        let known = begun.iter().rev().find(|one| one.0 <= epoch);
        let end = next.map_or(end, |next| next.1);
        (next.is_some() || epoch == present).then_some((known.map_or(epoch, |known| known.0), Offset(end)))
    };
    let epochs = 0..=present + 1;
    let queries = epochs.clone().map(|epoch| EpochQuery { key, epoch, leader_epoch: -1 }).collect();
    let Answer::EpochEnds(ends) = shard.ask(shard.owner(key), Ask::EpochEnds(queries)).await else { panic!() };
    let expected: Vec<_> = epochs.map(|epoch| Ok(expected(epoch))).collect();
    assert_eq!(ends, expected, "partition {}: {begun:?} from {start} to {end}", key.partition);
}

/// Every acknowledged batch is at its offset unless it was deleted, and of each producer every batch is there once, in order.
async fn check(cluster: &Cluster, world: &mut World, topic: TopicId) {
    for partition in 0..PARTITIONS {
        let key = PartitionKey { topic, partition };
        let start = check_bounds(cluster, world, key).await;
        let found = cluster.read(key, start).await;
        check_epochs(cluster, key, &found, start).await;
        for writer in world.writers.iter().filter(|writer| writer.partition == partition) {
            let mine: Vec<_> = found.iter().filter(|(_, batch)| producer(batch) == writer.id).collect();
            let is_first = |sent: &Sent| mine.first().is_none_or(|(_, batch)| content(batch) == content(&sent.bytes));
            let deleted = match mine.is_empty() {
                true => writer
                    .sent
                    .iter()
                    .take_while(|sent| sent.acknowledged.is_some() && sent.may_be_deleted(start))
                    .count(),
                false => writer.sent.iter().position(is_first).expect("a batch that nobody sent"),
            };
            assert!(
                writer.sent[..deleted].iter().all(|sent| sent.may_be_deleted(start)),
                "{}",
                told(world, writer, &mine)
            );
            for (sent, (offset, batch)) in writer.sent[deleted..].iter().zip(&mine) {
                let is_it = content(batch) == content(&sent.bytes);
                assert!(is_it, "producer {}: in order, none twice; {}", writer.id, told(world, writer, &mine));
                assert!(sent.acknowledged.is_none_or(|acknowledged| acknowledged == **offset));
            }
            let promised = writer.sent.len() - writer.unacknowledged();
            let may_lose = writer.level == AckLevel::Written && world.power_went;
            let known = deleted + mine.len();
            assert!(may_lose || known >= promised, "producer {}: {known} of {promised}", writer.id);
            assert!(known <= writer.sent.len());
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

/// Deletes records now and then, each time a little more or everything, until the disk is gone or time is up.
async fn delete(cluster: Rc<Cluster>, world: Rc<RefCell<World>>, topic: TopicId, mut dice: Dice, deleted: Rc<Bell>) {
    loop {
        clock::sleep(Duration::from_micros(dice.below(200_000) as u64)).await;
        let partition = dice.below(PARTITIONS as usize) as i32;
        let key = PartitionKey { topic, partition };
        let (start, end) = (cluster.offset(key, EARLIEST).await, cluster.offset(key, LATEST).await);
        let before = match dice.below(3) {
            0 => -1,
            _ => start + dice.below((end - start + 2) as usize) as i64,
        };
        let at = partition as usize;
        {
            let bounds = &mut world.borrow_mut().bounds[at];
            (bounds.start, bounds.end) = (bounds.start.max(start), bounds.end.max(end));
            bounds.start_max = if before < 0 { i64::MAX } else { bounds.start_max.max(before) };
        }
        let items = vec![Deletion { key, before: Offset(before) }];
        let results = cluster.shards[dice.below(cluster.shards.len())].delete_records(items, Duration::ZERO).await;
        match results[0].error {
            ErrorCode::None => {
                let low_watermark = results[0].low_watermark.0;
                assert!(low_watermark >= before.max(end.min(before.max(0))), "{low_watermark} for {before}");
                let world = &mut *world.borrow_mut();
                world.bounds[at].start = world.bounds[at].start.max(low_watermark);
                world.deletions += 1;
                deleted.ring();
            }
            ErrorCode::OffsetOutOfRange => assert!(before > end, "{before} is not above {end}"),
            ErrorCode::KafkaStorageError => return,
            other => panic!("{other:?}"),
        }
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
    check(&cluster, &mut present, topic).await;
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
    let deleted = Rc::new(Bell::default());
    let deleting = delete(Rc::clone(&cluster), Rc::clone(&world), topic, dice.other(), Rc::clone(&deleted));
    host::spawn(Queue::Requests, deleting);
    let life = Duration::from_millis(dice.below(1_500) as u64);
    if dice.below(3) == 0 {
        rung_or_elapsed(&deleted, life).await; // ends with the answer
    } else {
        clock::sleep(life).await;
    }
    Some(())
}

#[test]
fn what_was_acknowledged_survives_every_crash_and_no_retry_is_there_twice() {
    let (mut deletions, mut deleted_through) = (0, 0);
    let acknowledged = run(1_000, |dice| {
        let world = Rc::new(RefCell::new(World::default()));
        let mut disk = MemoryDisk::default();
        for _ in 0..6 {
            mini_host::run(dice.roll(), live(disk.clone(), Rc::clone(&world), dice.other()));
            let power_goes = dice.below(2) == 0;
            world.borrow_mut().power_went |= power_goes;
            disk = if power_goes { disk.power_cut(|end| dice.below(end)) } else { disk.copy() };
        }
        let world = world.borrow();
        deletions += world.deletions;
        deleted_through += world.bounds.iter().filter(|bounds| bounds.start > 0 && bounds.start == bounds.end).count();
        let writers = &world.writers;
        writers.iter().map(|writer| writer.sent.len() - writer.unacknowledged()).sum()
    });
    println!(
        "{acknowledged} batches were acknowledged, {deletions} deletions, {deleted_through} logs were empty at the end"
    );
    assert!(acknowledged > 1_000 && deletions > 50 && deleted_through > 0);
}
