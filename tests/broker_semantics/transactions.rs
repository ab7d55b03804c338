//! Transactions as their partitions see them: which batches are taken, what markers do, and what readers of committed
//! records are given. Offsets and codes as Apache Kafka 4.4.0 answered.

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::ProducerState;
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, BrokerId, DescribeProducersRequest, DescribeTransactionsRequest, EndTxnRequest,
    ListOffsetsRequest, ProducerId, TransactionalId, WriteTxnMarkersRequest,
};

use super::harness::Client;
use super::harness::client::{name, text};
use super::transactional_ids::{init, world};
use super::world::*;
use corelane::wire::builder::BatchBuilder;

/// A transactional producer that a test plays.
pub struct Producer {
    pub name: &'static str,
    pub id: i64,
    pub epoch: i16,
}

impl Producer {
    pub fn new(client: &mut Client, name: &'static str) -> Self {
        let (error, id, epoch) = init(client, name);
        assert_eq!(error, 0);
        Self { name, id, epoch }
    }

    pub fn batch(&self, sequence: i32, records: i32) -> BatchBuilder {
        of_epoch(self.id, self.epoch, sequence, records).transactional()
    }

    /// Error and base offset of the answer to a batch for a partition of the usual topic.
    pub fn send(&self, client: &mut Client, version: i16, partition: i32, batch: BatchBuilder) -> (i16, i64) {
        let batch = batch.build();
        let asked = request(1, &[(TOPIC, partition, Some(&batch[..]))]);
        let asked = asked.with_transactional_id(Some(TransactionalId(text(self.name))));
        let answer = client.ask(version, &asked).responses.remove(0).partition_responses.remove(0);
        (answer.error_code, answer.base_offset)
    }

    /// Adds partitions as older producers do; their codes.
    pub fn add(&self, client: &mut Client, version: i16, partitions: &[(&str, i32)]) -> Vec<i16> {
        let topics = partitions.iter().map(|(topic, partition)| {
            AddPartitionsToTxnTopic::default().with_name(name(topic)).with_partitions(vec![*partition])
        });
        let asked = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text(self.name)))
            .with_v3_and_below_producer_id(ProducerId(self.id))
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(topics.collect());
        let topics = client.ask(version, &asked).results_by_topic_v3_and_below;
        topics.iter().flat_map(|topic| &topic.results_by_partition).map(|one| one.partition_error_code).collect()
    }

    /// Ends the transaction, and takes the next incarnation over where the version tells it.
    pub fn end(&mut self, client: &mut Client, version: i16, commits: bool) -> i16 {
        let asked = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(self.name)))
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_committed(commits);
        let answer = client.ask(version, &asked);
        if version >= 5 && answer.error_code == 0 {
            (self.id, self.epoch) = (answer.producer_id.0, answer.producer_epoch);
        }
        answer.error_code
    }
}

pub fn committed(world: &mut World, offset: i64, wait_ms: i32) -> PartitionData {
    let asked = fetch_from(&[(0, offset)]).with_isolation_level(1).with_max_wait_ms(wait_ms);
    world.fetch_one(12, &asked)
}

/// Waits until everything below `end` is stable.
pub fn await_stable(world: &mut World, end: i64) {
    let answer = committed(world, end - 1, 20_000);
    assert_eq!((answer.error_code, answer.last_stable_offset), (0, end));
}

/// Producers and first offsets of what a reader must leave out.
pub fn aborted(answer: &PartitionData) -> Option<Vec<(i64, i64)>> {
    let list = answer.aborted_transactions.as_ref()?;
    Some(list.iter().map(|one| (one.producer_id.0, one.first_offset)).collect())
}

fn latest(client: &mut Client, isolation: i8, timestamp: i64) -> (i16, i64, i64) {
    let asked = ListOffsetsPartition::default().with_timestamp(timestamp).with_current_leader_epoch(-1);
    let asked = ListOffsetsTopic::default().with_name(name(TOPIC)).with_partitions(vec![asked]);
    let asked = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![asked]);
    let answer = client.ask(7, &asked.with_isolation_level(isolation)).topics.remove(0).partitions.remove(0);
    (answer.error_code, answer.offset, answer.timestamp)
}

fn producers(client: &mut Client, partition: i32) -> (i16, Vec<ProducerState>) {
    let asked = TopicRequest::default().with_name(name(TOPIC)).with_partition_indexes(vec![partition]);
    let answer = client.ask(0, &DescribeProducersRequest::default().with_topics(vec![asked]));
    let found = answer.topics.into_iter().next().unwrap().partitions.remove(0);
    (found.error_code, found.active_producers)
}

/// The states of a transaction and the partitions in it.
pub fn described(client: &mut Client, id: &str) -> (String, Vec<(String, Vec<i32>)>) {
    let asked = DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(text(id))]);
    let found = client.ask(0, &asked).transaction_states.remove(0);
    let topics = found.topics.iter().map(|topic| (topic.topic.to_string(), topic.partitions.clone()));
    (found.transaction_state.to_string(), topics.collect())
}

/// A marker from outside, as a tool sends it; the code for one partition of a topic.
pub fn mark(client: &mut Client, topic: &str, (id, epoch): (i64, i16), coordinator_epoch: i32, commits: bool) -> i16 {
    let asked = WritableTxnMarkerTopic::default().with_name(name(topic)).with_partition_indexes(vec![0]);
    let marker = WritableTxnMarker::default().with_producer_id(ProducerId(id)).with_producer_epoch(epoch);
    let marker = marker.with_transaction_result(commits).with_topics(vec![asked]);
    let marker = marker.with_coordinator_epoch(coordinator_epoch);
    let answer = client.ask(1, &WriteTxnMarkersRequest::default().with_markers(vec![marker]));
    answer.markers[0].topics[0].partitions[0].error_code
}

#[test]
fn eos_d01_the_first_batch_adds_its_partition() {
    let mut world = world("d01");
    let producer = Producer::new(&mut world.client, "d01");
    assert_eq!(producer.send(&mut world.client, 12, 1, producer.batch(0, 2)), (0, 0));
    let ongoing = ("Ongoing".to_owned(), vec![(TOPIC.to_owned(), vec![1])]);
    assert_eq!(described(&mut world.client, "d01"), ongoing);
    assert_eq!(producer.send(&mut world.client, 12, 1, producer.batch(0, 2)), (0, 0), "again");
    assert_eq!(producer.send(&mut world.client, 12, 1, producer.batch(2, 1)), (0, 2), "it is open");
}

#[test]
fn eos_d02_batches_that_are_in_no_transaction() {
    let mut world = world("d02");
    let producer = Producer::new(&mut world.client, "d02");
    let client = &mut world.client;
    for (version, code) in [(9, 48), (10, 48), (11, 120)] {
        assert_eq!(producer.send(client, version, 0, producer.batch(0, 1)), (code, -1), "version {version}");
    }
    assert_eq!(producer.send(client, 12, 0, producer.batch(5, 1)), (45, -1), "a new one begins with 0");
    let stranger = Producer { id: producer.id + 1, ..producer };
    assert_eq!(stranger.send(client, 12, 0, stranger.batch(0, 1)), (49, -1));
    let older = Producer { epoch: -1, id: producer.id, ..producer };
    assert_eq!(older.send(client, 12, 0, older.batch(0, 1)).0, 47);
    let batch = producer.batch(0, 1).build();
    assert_eq!(errors(&world.answers(12, &request(-1, &[(TOPIC, 0, Some(&batch[..]))]))), [53]);
    let other = stranger.batch(0, 1).build();
    let both = request(-1, &[(TOPIC, 0, Some(&batch[..])), (TOPIC, 1, Some(&other[..]))]);
    let both = both.with_transactional_id(Some(TransactionalId(text("d02"))));
    assert_eq!(errors(&world.answers(12, &both)), [49, 49], "of two producers");
    assert_eq!(world.end(), 0);
}

#[test]
fn eos_d03_a_batch_that_is_refused_has_added_its_partition() {
    let mut world = world("d03");
    let mut producer = Producer::new(&mut world.client, "d03");
    let large = producer.batch(0, 1).value(TIME, &vec![0; 2 << 20]);
    assert_eq!(producer.send(&mut world.client, 12, 0, large), (10, -1));
    assert_eq!(described(&mut world.client, "d03").1, [(TOPIC.to_owned(), vec![0])]);
    assert_eq!(producer.end(&mut world.client, 5, true), 0);
    world.await_end(1);
    let answer = committed(&mut world, 0, 0);
    assert_eq!((aborted(&answer), answer.last_stable_offset, bases(&answer)), (Some(vec![]), 1, vec![0]));
}

#[test]
fn eos_d04_nothing_beside_an_open_transaction() {
    let mut world = world("d04");
    let producer = Producer::new(&mut world.client, "d04");
    assert_eq!(producer.send(&mut world.client, 12, 0, producer.batch(0, 1)), (0, 0));
    assert_eq!(world.send(of_epoch(producer.id, producer.epoch, 1, 1)), (48, -1));
    assert_eq!(world.send(of(producer.id + 100, 0, 1)), (0, 1));
    assert_eq!(producer.send(&mut world.client, 12, 0, producer.batch(1, 1)), (0, 2));
}

#[test]
fn eos_d05_nothing_is_added_beside_a_partition_that_is_not_known() {
    let mut world = world("d05");
    let producer = Producer::new(&mut world.client, "d05");
    let mut codes = producer.add(&mut world.client, 3, &[(TOPIC, 0), ("nope", 0)]);
    codes.sort_unstable();
    assert_eq!(codes, [3, 55]);
    assert_eq!(producer.send(&mut world.client, 11, 0, producer.batch(0, 1)), (120, -1));
    assert_eq!(producer.add(&mut world.client, 3, &[(TOPIC, 0)]), [0]);
    assert_eq!(producer.send(&mut world.client, 11, 0, producer.batch(0, 1)), (0, 0));
    assert_eq!(producer.send(&mut world.client, 9, 1, producer.batch(0, 1)), (48, -1), "each partition for itself");
}

#[test]
fn of_one_request_each_partition_is_verified_for_itself() {
    let mut world = world("verified");
    let producer = Producer::new(&mut world.client, "verified");
    assert_eq!(producer.add(&mut world.client, 3, &[(TOPIC, 1)]), [0]);
    let batch = producer.batch(0, 1).build();
    let batches: Vec<_> = (0..3).map(|partition| (TOPIC, partition, Some(&batch[..]))).collect();
    let asked = request(-1, &batches).with_transactional_id(Some(TransactionalId(text("verified"))));
    assert_eq!(errors(&world.answers(11, &asked)), [120, 0, 120]);
    assert_eq!(errors(&world.answers(9, &asked)), [48, 0, 48]);
    assert_eq!(errors(&world.answers(12, &asked)), [0, 0, 0]);
}

/// A producer sends five batches before it has an answer: they wait behind the first, and are written in order.
#[test]
fn batches_behind_the_first_of_a_transaction_wait_for_it() {
    let mut world = world("behind");
    let mut producer = Producer::new(&mut world.client, "behind");
    for round in 0..20 {
        let sent: Vec<i32> = (0..5)
            .map(|sequence| {
                let batch = producer.batch(sequence, 1).build();
                let asked = request(-1, &[(TOPIC, 0, Some(&batch[..]))]);
                let asked = asked.with_transactional_id(Some(TransactionalId(text("behind"))));
                world.client.send(12, &asked)
            })
            .collect();
        for (sequence, correlation) in (0..).zip(sent) {
            let answer = world.client.receive::<kafka_protocol::messages::ProduceRequest>(12, correlation);
            let one = &answer.responses[0].partition_responses[0];
            assert_eq!((one.error_code, one.base_offset), (0, round * 6 + sequence), "round {round}");
        }
        assert_eq!(producer.end(&mut world.client, 5, round % 2 == 0), 0);
    }
}

#[test]
fn eos_d06_partitions_are_added_by_the_newest_incarnation_alone() {
    let mut world = world("d06");
    let older = Producer::new(&mut world.client, "d06");
    let producer = Producer::new(&mut world.client, "d06");
    let client = &mut world.client;
    assert_eq!((older.add(client, 3, &[(TOPIC, 0)]), older.add(client, 1, &[(TOPIC, 0)])), (vec![90], vec![47]));
    let stranger = Producer { id: producer.id + 7, ..producer };
    assert_eq!(stranger.add(client, 3, &[(TOPIC, 0)]), [49]);
    let nobody = Producer { name: "d06-nobody", ..producer };
    assert_eq!(nobody.add(client, 3, &[(TOPIC, 0)]), [49]);
    assert_eq!(older.send(client, 12, 0, older.batch(0, 1)), (47, -1));
}

#[test]
fn eos_d18_markers_of_old_epochs_are_refused() {
    let mut world = world("d18");
    let older = Producer::new(&mut world.client, "d18");
    let producer = Producer::new(&mut world.client, "d18");
    let client = &mut world.client;
    assert_eq!(producer.send(client, 12, 0, producer.batch(0, 1)), (0, 0));
    let epoch = producer.epoch;
    assert_eq!(mark(client, "nope", (producer.id, epoch), 9, false), 3);
    assert_eq!(mark(client, TOPIC, (producer.id, -1), 9, false), -1, "no epoch");
    assert_eq!(mark(client, TOPIC, (-1, epoch), 9, false), -1, "nobody");
    assert_eq!(mark(client, TOPIC, (older.id, older.epoch), 9, false), 47);
    assert_eq!(mark(client, TOPIC, (producer.id, epoch), 9, false), 0);
    assert_eq!(mark(client, TOPIC, (producer.id, epoch), 8, false), 52);
    assert_eq!(mark(client, TOPIC, (producer.id, epoch), 9, false), 0, "the same again");
    assert_eq!(mark(client, TOPIC, (producer.id + 50, 3), 0, true), 0, "of a producer that is not known");
    assert_eq!(world.end(), 4);
}

/// Three records, two of an open transaction, one behind.
fn with_open_transaction(case: &'static str) -> (World, Producer) {
    let mut world = world(case);
    let producer = Producer::new(&mut world.client, case);
    assert_eq!(world.send(plain(3)), (0, 0));
    assert_eq!(producer.send(&mut world.client, 12, 0, producer.batch(0, 2)), (0, 3));
    assert_eq!(world.send(plain(1)), (0, 5));
    (world, producer)
}

#[test]
fn eos_e01_e02_committed_records_end_before_an_open_transaction() {
    let (mut world, _producer) = with_open_transaction("e01");
    assert_eq!((latest(&mut world.client, 0, -1).1, latest(&mut world.client, 1, -1).1), (6, 3));
    let answer = committed(&mut world, 0, 0);
    assert_eq!((answer.high_watermark, answer.last_stable_offset, bases(&answer)), (6, 3, vec![0]));
    for offset in [3, 4, 6] {
        let answer = committed(&mut world, offset, 0);
        assert_eq!((answer.error_code, answer.high_watermark, answer.last_stable_offset), (0, 6, 3));
        assert_eq!((aborted(&answer), bases(&answer)), (Some(vec![]), vec![]));
    }
    assert_eq!(committed(&mut world, 7, 0).error_code, 1);
    let answer = world.fetch_one(12, &fetch_from(&[(0, 0)]));
    assert_eq!((answer.last_stable_offset, aborted(&answer), bases(&answer)), (3, None, vec![0, 3, 5]));
}

#[test]
fn eos_e03_aborted_transactions_are_named_also_to_who_begins_within() {
    let (mut world, mut producer) = with_open_transaction("e03");
    let id = producer.id;
    assert_eq!(producer.end(&mut world.client, 5, false), 0);
    await_stable(&mut world, 7);
    for offset in [0, 3, 4] {
        let answer = committed(&mut world, offset, 0);
        assert_eq!(aborted(&answer), Some(vec![(id, 3)]), "from {offset}");
        assert_eq!(bases(&answer).last(), Some(&6), "the marker is handed out");
    }
    let before = fetch_from(&[(0, 0)]).with_isolation_level(1).with_max_bytes(1);
    assert_eq!(aborted(&world.fetch_one(12, &before)), Some(vec![]), "it begins behind what is handed out");
    assert_eq!(aborted(&world.fetch_one(12, &fetch_from(&[(0, 0)]))), None);
}

#[test]
fn eos_e04_of_committed_ones_nothing_is_named() {
    let (mut world, mut producer) = with_open_transaction("e04");
    assert_eq!(producer.end(&mut world.client, 5, true), 0);
    await_stable(&mut world, 7);
    let answer = committed(&mut world, 0, 0);
    assert_eq!((aborted(&answer), bases(&answer)), (Some(vec![]), vec![0, 3, 5, 6]));
    assert_eq!(aborted(&world.fetch_one(12, &fetch_from(&[(0, 0)]))), None);
}

#[test]
fn eos_e05_a_waiting_fetch_is_answered_when_the_marker_is_there() {
    let (mut world, mut producer) = with_open_transaction("e05");
    let mut reader = Client::connect(world.broker.address);
    let asked = fetch_from(&[(0, 3)]).with_isolation_level(1).with_max_wait_ms(60_000);
    let correlation = reader.send(12, &asked);
    assert_eq!(world.send(plain(1)), (0, 6), "wakes nobody who reads what is committed");
    assert_eq!(producer.end(&mut world.client, 5, true), 0);
    let answer = reader.receive::<kafka_protocol::messages::FetchRequest>(12, correlation);
    let found = &answer.responses[0].partitions[0];
    assert_eq!((found.last_stable_offset, bases(found)), (8, vec![3, 5, 6, 7]));
}

#[test]
fn eos_e06_times_beyond_what_is_stable_are_not_found() {
    let (mut world, mut producer) = with_open_transaction("e06");
    let client = &mut world.client;
    // Records of the plain batches are at TIME, TIME + 1, TIME + 2; of the transaction at TIME and TIME + 1.
    assert_eq!((latest(client, 0, TIME), latest(client, 1, TIME)), ((0, 0, TIME), (0, 0, TIME)));
    assert_eq!(producer.send(client, 12, 0, producer.batch(2, 9)), (0, 6));
    assert_eq!((latest(client, 0, TIME + 8), latest(client, 1, TIME + 8)), ((0, 14, TIME + 8), (0, -1, -1)));
    assert_eq!((latest(client, 0, -3), latest(client, 1, -3)), ((0, 14, TIME + 8), (0, -1, -1)));
    assert_eq!((latest(client, 0, -2), latest(client, 1, -2)), ((0, 0, -1), (0, 0, -1)));
    assert_eq!(producer.end(client, 5, true), 0);
    await_stable(&mut world, 16);
    assert_eq!(latest(&mut world.client, 1, TIME + 8), (0, 14, TIME + 8));
}

#[test]
fn eos_e07_records_are_deleted_past_the_start_of_an_open_transaction() {
    let (mut world, mut producer) = with_open_transaction("e07");
    assert_eq!(world.client.delete_records(TOPIC, 0, 4), (0, 4));
    let answer = committed(&mut world, 4, 0);
    assert_eq!((answer.log_start_offset, answer.last_stable_offset, bases(&answer)), (4, 4, vec![]));
    assert_eq!(latest(&mut world.client, 1, -1).1, 4);
    let id = producer.id;
    assert_eq!(producer.end(&mut world.client, 5, false), 0);
    await_stable(&mut world, 7);
    let answer = committed(&mut world, 4, 0);
    assert_eq!((answer.error_code, aborted(&answer)), (0, Some(vec![(id, 3)])));
    assert_eq!(bases(&answer), [3, 5, 6], "a batch that begins below the log start is handed out whole");
}

#[test]
fn eos_e08_of_two_interleaved_transactions_one_is_committed() {
    let mut world = world("e08");
    let mut kept = Producer::new(&mut world.client, "e08-kept");
    let mut dropped = Producer::new(&mut world.client, "e08-dropped");
    for sequence in 0..2 {
        let at = i64::from(sequence) * 2;
        assert_eq!(kept.send(&mut world.client, 12, 0, kept.batch(sequence, 1)), (0, at));
        assert_eq!(dropped.send(&mut world.client, 12, 0, dropped.batch(sequence, 1)), (0, at + 1));
    }
    let id = dropped.id;
    assert_eq!(dropped.end(&mut world.client, 5, false), 0);
    world.await_end(5);
    let answer = committed(&mut world, 0, 0);
    assert_eq!((answer.high_watermark, answer.last_stable_offset), (5, 0), "the other is open");
    assert_eq!(kept.end(&mut world.client, 5, true), 0);
    await_stable(&mut world, 6);
    let answer = committed(&mut world, 0, 0);
    assert_eq!((aborted(&answer), bases(&answer)), (Some(vec![(id, 1)]), vec![0, 1, 2, 3, 4, 5]));
}

#[test]
fn eos_e12_producers_are_described_with_what_is_open() {
    let mut world = world("e12");
    let mut producer = Producer::new(&mut world.client, "e12");
    assert_eq!(producers(&mut world.client, 0), (0, vec![]));
    assert_eq!(producers(&mut world.client, 9).0, 3);
    assert_eq!(world.send(plain(3)), (0, 0));
    assert_eq!(producer.send(&mut world.client, 12, 0, producer.batch(0, 2)), (0, 3));
    let shown = |client: &mut Client| {
        let (error, found) = producers(client, 0);
        let one = &found[0];
        assert_eq!((error, found.len(), one.producer_id.0), (0, 1, producer.id));
        (one.producer_epoch, one.last_sequence, one.current_txn_start_offset, one.coordinator_epoch)
    };
    assert_eq!(shown(&mut world.client), (i32::from(producer.epoch), 1, 3, -1));
    let epoch = i32::from(producer.epoch);
    let mut ended = Producer { ..producer };
    assert_eq!(ended.end(&mut world.client, 5, true), 0);
    world.await_end(6);
    let (found, sequence, first, coordinator) = shown(&mut world.client);
    assert_eq!((found, sequence, first), (epoch + 1, -1, -1));
    assert!(coordinator > 0);
    producer.epoch = ended.epoch;
    assert_eq!(producer.send(&mut world.client, 12, 0, producer.batch(0, 1)), (0, 6));
}
