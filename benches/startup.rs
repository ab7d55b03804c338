//! How long a broker takes to start that remembers many producers, and how much memory each takes.
//!
//! `cargo bench --bench startup -- [producers] [batches of each]` (1,000,000 and 1): writes that many batches of as many
//! producers over the wire, stops the broker cleanly and by kill -9, and starts it after each.
#![allow(clippy::unwrap_used, missing_docs, reason = "a measurement that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock itself")]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "numbers are small")]

#[path = "../tests/broker/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
mod harness;

use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corelane::ids::{ProducerEpoch, ProducerId, Sequence};
use corelane::wire::builder::BatchBuilder;
use harness::client::name;
use harness::{Broker, Client, Folder, Start};
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};

const TOPIC: &str = "many";
/// Each request has one batch for each partition.
const PARTITIONS: i64 = 100;
const IN_FLIGHT: usize = 16;
const VERSION: i16 = 9;
/// Any one of a time, so that retries after a start can be told from new batches.
const TIME: i64 = 1_700_000_000_000;

/// One batch of each of a hundred producers.
fn request(first: i64, producers: i64, sequence: i32) -> ProduceRequest {
    let batches = (first..producers.min(first + PARTITIONS)).map(|id| {
        let batch = BatchBuilder::new().producer(ProducerId(id), ProducerEpoch(0), Sequence(sequence));
        let records: Bytes = batch.value(TIME, b"v").build().freeze();
        PartitionProduceData::default().with_index((id % PARTITIONS) as i32).with_records(Some(records))
    });
    let topic = TopicProduceData::default().with_name(name(TOPIC)).with_partition_data(batches.collect());
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

fn write(client: &mut Client, producers: i64, sequence: i32) {
    let mut waiting = std::collections::VecDeque::new();
    for first in (0..producers).step_by(PARTITIONS as usize) {
        waiting.push_back(client.send(VERSION, &request(first, producers, sequence)));
        if waiting.len() == IN_FLIGHT {
            take(client, waiting.pop_front().unwrap());
        }
    }
    waiting.into_iter().for_each(|correlation| take(client, correlation));
}

fn take(client: &mut Client, correlation: i32) {
    let answer = client.receive::<ProduceRequest>(VERSION, correlation);
    assert!(answer.responses[0].partition_responses.iter().all(|one| one.error_code == 0));
}

/// Sends the newest batch of a few producers again: each must be known.
fn check(broker: &Broker, producers: i64, sequence: i32) {
    let mut client = Client::connect(broker.address);
    for first in [0, producers / 2 / PARTITIONS * PARTITIONS] {
        let answer = client.ask(VERSION, &request(first, producers, sequence));
        let all = &answer.responses[0].partition_responses;
        assert!(all.iter().all(|one| one.error_code == 0 && one.log_append_time_ms == TIME), "{:?}", all[0]);
    }
}

fn report(what: &str, took: Duration, broker: &Broker, empty: u64, producers: i64) {
    let resident = broker.memory("VmRSS");
    let each = resident.saturating_sub(empty) as f64 / producers as f64;
    println!("{what:<28} {:>8.2} s   resident {:>6} MiB, {each:>6.0} B an entry", took.as_secs_f64(), resident >> 20);
}

/// The lines in which the broker says how long each step of its start took.
fn steps(broker: &Broker) {
    for line in broker.log().lines().filter(|line| line.contains("start: ")) {
        println!("      {}", line.split("start: ").nth(1).unwrap());
    }
}

fn files(folder: &Folder) -> u64 {
    let shards = (0..2).filter_map(|shard| fs::read_dir(folder.data().join(format!("corelane/shard-{shard}"))).ok());
    let entries = shards.flatten().map(Result::unwrap);
    let checkpoints = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint-"));
    checkpoints.map(|entry| entry.metadata().unwrap().len()).sum()
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<i64>().ok());
    let producers = numbers.next().unwrap_or(1_000_000);
    let batches = numbers.next().unwrap_or(1) as i32;
    let folder = Folder::new("startup");
    let start = Start::on(&folder).set("corelane.tail.cache.bytes=0");
    let begun = Instant::now();
    let broker = start.start();
    println!("{producers} producers, {batches} batches each, {PARTITIONS} partitions");
    let empty = broker.memory("VmRSS");
    report("empty", begun.elapsed(), &broker, empty, producers);
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, PARTITIONS as i32, &[]);
    let begun = Instant::now();
    (0..batches).for_each(|sequence| write(&mut client, producers, sequence));
    report("written", begun.elapsed(), &broker, empty, producers);
    let begun = Instant::now();
    broker.stop_cleanly();
    println!("{:<28} {:>8.2} s   checkpoints {} MiB", "stopped", begun.elapsed().as_secs_f64(), files(&folder) >> 20);
    let timed = |what: &str, newest| {
        let begun = Instant::now();
        let broker = start.start();
        report(what, begun.elapsed(), &broker, empty, producers);
        steps(&broker);
        check(&broker, producers, newest);
        broker
    };
    let broker = timed("started after a clean stop", batches - 1);
    let begun = Instant::now();
    write(&mut Client::connect(broker.address), producers, batches);
    report("one more batch of each", begun.elapsed(), &broker, empty, producers);
    broker.kill9();
    timed("started after kill -9", batches).kill9();
    timed("after kill -9 with no writes", batches).stop_cleanly();
}
