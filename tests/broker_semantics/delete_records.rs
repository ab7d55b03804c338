//! Log starts that clients move.

use std::thread;
use std::time::Duration;

use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::{DeleteRecordsRequest, FetchRequest};

use super::harness::Client;
use super::harness::client::name;
use super::world::*;

const P: i64 = 80_000;

fn deletion(topics: &[(&str, &[(i32, i64)])]) -> DeleteRecordsRequest {
    let topics = topics.iter().map(|(topic, partitions)| {
        let partitions = partitions.iter().map(|(partition, before)| {
            DeleteRecordsPartition::default().with_partition_index(*partition).with_offset(*before)
        });
        DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(partitions.collect())
    });
    DeleteRecordsRequest::default().with_topics(topics.collect()).with_timeout_ms(30_000)
}

/// Topic, partition, error and low watermark of each result.
fn results(client: &mut Client, version: i16, request: &DeleteRecordsRequest) -> Vec<(String, i32, i16, i64)> {
    let answer = client.ask(version, request);
    let of_topic = answer.topics.into_iter().flat_map(|topic| {
        let topic_name = topic.name.to_string();
        topic
            .partitions
            .into_iter()
            .map(move |found| (topic_name.clone(), found.partition_index, found.error_code, found.low_watermark))
    });
    of_topic.collect()
}

fn result(topic: &str, partition: i32, error: i16, low_watermark: i64) -> (String, i32, i16, i64) {
    (topic.to_owned(), partition, error, low_watermark)
}

/// Also IDP-11 and FET-14; the restarts are in the tests with a process that ends.
#[test]
fn eos_b18_after_records_are_deleted_their_producer_is_remembered() {
    let mut world = World::new("b18");
    for batch in 0..6 {
        assert_eq!(world.send(of(P, batch * 3, 3)), (0, i64::from(batch) * 3));
    }
    assert_eq!(world.client.delete_records(TOPIC, 0, -1), (0, 18));
    assert_eq!(world.short(TOPIC, 0, of(P, 15, 3)), (0, 15, TIME + 2, 18), "the present log start");
    assert_eq!(world.short(TOPIC, 0, of(P, 3, 3)), (0, 3, TIME + 2, 18));
    assert_eq!(world.short(TOPIC, 0, of(P, 19, 1)), (45, -1, -1, 18));
    assert_eq!(world.send(of(P, 18, 3)), (0, 18));
    assert_eq!(world.end(), 21);
}

#[test]
fn every_version_answers_each_partition_once() {
    let mut world = World::new("delete-versions");
    let mut client = Client::connect(world.broker.address);
    client.create_topic("compacted", 1, &[("cleanup.policy", "compact")]);
    client.create_topic("both", 1, &[("cleanup.policy", "compact,delete")]);
    client.create_topic("forever", 1, &[("cleanup.policy", "")]);
    for partition in 0..2 {
        assert_eq!(world.short(TOPIC, partition, plain(20)).0, 0);
    }
    let far: &[(i32, i64)] = &[(0, 99)];
    let several: &[(i32, i64)] = &[(3, 0), (1, 0), (0, 20), (1, 4)];
    let none: &[(i32, i64)] = &[(0, 0)];
    for version in 0..=2 {
        let asked = [
            ("t", far),
            ("nope", none),
            ("compacted", far),
            ("both", none),
            ("forever", none),
            ("t", several),
            ("empty", &[]),
        ];
        let expected = [
            result("both", 0, 0, 0),
            result("compacted", 0, 44, -1),
            result("forever", 0, 0, 0),
            result("nope", 0, 3, -1),
            result("t", 0, 0, 20),
            result("t", 1, 0, 4),
            result("t", 3, 3, -1),
        ];
        assert_eq!(results(&mut client, version, &deletion(&asked)), expected, "version {version}");
    }
    assert_eq!(results(&mut client, 2, &deletion(&[])), []);
    for timeout_ms in [0, -1, i32::MIN, i32::MAX] {
        let request = deletion(&[("t", &[(1, 7)])]).with_timeout_ms(timeout_ms);
        assert_eq!(results(&mut client, 2, &request), [result("t", 1, 0, 7)]);
    }
}

/// A consumer that waits at the end goes on when the log start comes up to it, and is told of it.
#[test]
fn a_waiting_fetch_is_told_the_log_start_as_it_is_then() {
    let mut world = World::new("delete-wait");
    assert_eq!(world.send(plain(20)), (0, 0));
    let mut consumer = Client::connect(world.broker.address);
    let at_end = fetch_from(&[(0, 20)]).with_max_wait_ms(20_000);
    let waiting = consumer.send(12, &at_end);
    assert_eq!(world.client.delete_records(TOPIC, 0, -1), (0, 20));
    assert_eq!(world.send(plain(1)), (0, 20));
    let found = consumer.receive::<FetchRequest>(12, waiting).responses.remove(0).partitions.remove(0);
    assert_eq!((found.error_code, found.high_watermark, found.log_start_offset, bases(&found)), (0, 21, 20, vec![20]));
}

/// One that waits for more than there is, and whose records are deleted meanwhile, must not be given what is behind them.
#[test]
fn a_waiting_fetch_whose_records_are_deleted_is_out_of_range() {
    let mut world = World::new("delete-under");
    assert_eq!(world.send(plain(3)), (0, 0));
    let mut consumer = Client::connect(world.broker.address);
    let wants_more = fetch_from(&[(0, 1)]).with_min_bytes(500_000).with_max_wait_ms(1_000);
    let waiting = consumer.send(12, &wants_more);
    assert_eq!(world.client.delete_records(TOPIC, 0, 2), (0, 2));
    thread::sleep(Duration::from_millis(1));
    let found = consumer.receive::<FetchRequest>(12, waiting).responses.remove(0).partitions.remove(0);
    assert_eq!((found.error_code, found.high_watermark, found.log_start_offset), (1, -1, -1));
}

/// FET-04: the edges of a log that does not begin at 0.
#[test]
fn fet_04_a_fetch_below_the_log_start_is_out_of_range() {
    let mut world = World::new("fet-04-start");
    assert_eq!(world.send(plain(40)), (0, 0));
    assert_eq!(world.client.delete_records(TOPIC, 0, 10), (0, 10));
    let mut error = |offset| {
        let found = world.fetch_one(12, &fetch_from(&[(0, offset)]));
        (found.error_code, found.high_watermark, found.log_start_offset)
    };
    assert_eq!(error(9), (1, -1, -1));
    assert_eq!(error(10), (0, 40, 10));
    assert_eq!(error(40), (0, 40, 10));
    assert_eq!(error(41), (1, -1, -1));
    assert_eq!(world.offset(TOPIC, -2).offset, 10);
    assert_eq!(world.offset(TOPIC, TIME).offset, 10, "records below the start are not found by time either");
}
