//! kill -9 at random moments under an unmodified idempotent producer that keeps running: every acknowledged record is
//! there once, at its offset, in order; nothing is lost, doubled or refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::harness::rdkafka_clients::{RdProducer, read_topic};
use super::harness::{Broker, Client, Folder, Random, Start};

const TOPIC: &str = "kill";
const PARTITIONS: i32 = 8;
/// Records acknowledged between two kills, at most.
const BETWEEN_KILLS: u64 = 3_000;

/// A producer's next record for each partition.
struct Source {
    name: String,
    next: Vec<u64>,
    sent: u64,
}

impl Source {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), next: vec![0; PARTITIONS as usize], sent: 0 }
    }

    /// Sends records of all sizes to all partitions until `is_over`.
    fn run(&mut self, producer: &RdProducer, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let partition = (self.sent % PARTITIONS as u64) as usize;
            let number = self.next[partition];
            producer.send(TOPIC, partition as i32, &value(&self.name, partition, number));
            self.next[partition] += 1;
            self.sent += 1;
        }
        producer.finish();
    }
}

/// The value of a record: who wrote it, its number in its partition, and some more or less long filling.
fn value(source: &str, partition: usize, number: u64) -> Vec<u8> {
    let mut value = format!("{source} {partition} {number} ").into_bytes();
    let filling = (number * 7919 + partition as u64 * 104_729) % 1_500;
    value.extend((0..filling).map(|at| (at * 31 + number) as u8));
    value
}

fn source_and_number(value: &[u8]) -> (String, u64) {
    let mut words = value.split(|byte| *byte == b' ').map(|word| String::from_utf8_lossy(word).into_owned());
    let source = words.next().unwrap();
    let number = words.nth(1).unwrap().parse().unwrap();
    (source, number)
}

/// Ends the producers, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How the broker goes down and comes back, each time.
type Cycle = fn(usize, Broker, &Start) -> Broker;

fn kill_and_restart(_: usize, broker: Broker, start: &Start) -> Broker {
    broker.kill9();
    start.start()
}

fn with_other_cores(cycle: usize, broker: Broker, start: &Start) -> Broker {
    broker.kill9();
    start.clone().cores(1 + cycle % 2).start()
}

fn kill_or_stop(cycle: usize, broker: Broker, start: &Start) -> Broker {
    if cycle.is_multiple_of(2) {
        broker.kill9()
    } else {
        broker.stop_cleanly()
    }
    start.clone().cores(2 - cycle / 2 % 2).start()
}

fn run(name: &str, cycles: usize, cycle: Cycle) {
    let folder = Folder::new(name);
    let mut random = Random::new(name);
    // Small files and frequent checkpoints, so that kills hit rolls, reuse of log files, and checkpoints.
    let start =
        Start::on_fixed_port(&folder).set("corelane.log.file.bytes=4194304").set("corelane.checkpoint.interval.ms=200");
    let broker = start.start();
    Client::connect(broker.address).create_topic(TOPIC, PARTITIONS, &[("segment.bytes", "1048576")]);
    let plain = RdProducer::new(&broker.bootstrap(), &[]);
    let packed = RdProducer::new(&broker.bootstrap(), &[("compression.type", "zstd")]);
    let bootstrap = broker.bootstrap();
    let is_over = AtomicBool::new(false);
    let (mut first, mut second) = (Source::new("plain"), Source::new("packed"));
    let broker = thread::scope(|scope| {
        let mut broker = broker;
        let _over = Over(&is_over);
        scope.spawn(|| first.run(&plain, &is_over));
        scope.spawn(|| second.run(&packed, &is_over));
        for at in 0..cycles {
            let more = 1 + random.below(BETWEEN_KILLS);
            plain.promises.wait_for(plain.promises.reports() + more);
            broker = cycle(at, broker, &start);
        }
        plain.promises.wait_for(plain.promises.reports() + BETWEEN_KILLS);
        broker
    });
    let read = read_topic(&bootstrap, TOPIC);
    println!("{name}: {} records over {cycles} restarts", read.len());
    check(&read, &[(&first, &plain), (&second, &packed)]);
    broker.stop_cleanly();
}

fn check(read: &BTreeMap<(i32, i64), Vec<u8>>, sources: &[(&Source, &RdProducer)]) {
    let mut acknowledged = BTreeMap::new();
    for (source, producer) in sources {
        let promised = producer.promises.acknowledged();
        assert_eq!(promised.len() as u64, source.sent, "{}: reports", source.name);
        acknowledged.extend(promised);
    }
    for (place, value) in &acknowledged {
        let found = read.get(place).unwrap_or_else(|| panic!("{place:?} was acknowledged and is not there"));
        assert_eq!(found, value, "{place:?}");
    }
    assert_eq!(read.len(), acknowledged.len(), "records that nobody was promised");
    check_order(read);
}

/// Offsets without a hole, and the records of each source in the order in which it sent them, each once.
fn check_order(read: &BTreeMap<(i32, i64), Vec<u8>>) {
    let mut next_offset = BTreeMap::new();
    let mut next_number = BTreeMap::new();
    for ((partition, offset), value) in read {
        let expected = next_offset.entry(*partition).or_insert(0);
        assert_eq!(offset, expected, "a hole in partition {partition}");
        *expected += 1;
        let (source, number) = source_and_number(value);
        let expected = next_number.entry((*partition, source.clone())).or_insert(0);
        assert_eq!(number, *expected, "{source} in partition {partition} at {offset}");
        *expected += 1;
    }
}

#[test]
fn a_producer_runs_through_ten_kills() {
    run("ten-kills", 10, kill_and_restart);
}

#[test]
fn a_producer_runs_through_kills_with_other_cores_each_time() {
    run("other-cores", 6, with_other_cores);
}

#[test]
fn a_producer_runs_through_kills_and_clean_stops() {
    run("kill-or-stop", 6, kill_or_stop);
}
