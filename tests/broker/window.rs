//! A retry of any of the last five batches gets its original offset, whatever has happened to the broker in between
//! (field cases IDP-01, IDP-09, IDP-13, IDP-16, IDP-20).

use std::collections::BTreeSet;

use super::harness::batches::Writer;
use super::harness::client::Produced;
use super::harness::{Broker, Client, Folder, Random, Start};

const TOPIC: &str = "window";
const PARTITIONS: i32 = 8;
const WINDOW: usize = 5;

/// One producer on one partition, and its last five batches with the offsets they got.
struct Remembered {
    partition: i32,
    writer: Writer,
    batches: Vec<(Vec<u8>, i64)>,
    end: i64,
}

impl Remembered {
    fn new(client: &mut Client, partition: i32) -> Self {
        Self { partition, writer: Writer::new(client.init_producer_id()), batches: Vec::new(), end: 0 }
    }

    /// Five batches, back to back.
    fn write(&mut self, client: &mut Client) {
        self.batches.clear();
        let batches: Vec<_> = (0..WINDOW).map(|_| self.writer.batch(3, "window", 100)).collect();
        let sent: Vec<_> = batches.iter().map(|batch| client.send_batch(TOPIC, self.partition, -1, batch)).collect();
        for (batch, correlation) in batches.into_iter().zip(sent) {
            let produced = client.receive_produced(correlation);
            assert_eq!(produced, Produced { error: 0, base_offset: self.end });
            self.batches.push((batch, self.end));
            self.end += 3;
        }
    }

    /// The same batches again, in any order.
    fn retry(&mut self, client: &mut Client, random: &mut Random) {
        random.shuffle(&mut self.batches);
        for (batch, offset) in &self.batches {
            let produced = client.produce(TOPIC, self.partition, batch);
            assert_eq!(produced, Produced { error: 0, base_offset: *offset }, "partition {}", self.partition);
        }
        assert_eq!(client.end(TOPIC, self.partition), self.end, "a retry was appended");
    }
}

/// Writes, has something happen to the broker, retries; over and over with more data each time.
fn run(name: &str, cycles: usize, happens: impl Fn(usize, Broker, &Start) -> Broker) {
    let folder = Folder::new(name);
    let mut random = Random::new(name);
    let start = Start::on(&folder);
    let mut broker = start.start();
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, PARTITIONS, &[]);
    let mut writers: Vec<_> = (0..PARTITIONS).map(|partition| Remembered::new(&mut client, partition)).collect();
    for cycle in 0..cycles {
        writers.iter_mut().for_each(|one| one.write(&mut client));
        broker = happens(cycle, broker, &start);
        client = Client::connect(broker.address);
        writers.iter_mut().for_each(|one| one.retry(&mut client, &mut random));
    }
    writers.iter_mut().for_each(|one| one.write(&mut client));
    broker.stop_cleanly();
}

#[test]
fn eos_c02_retries_get_their_offsets_after_a_kill() {
    run("window-kill", 4, |_, broker, start| {
        broker.kill9();
        start.start()
    });
}

/// Also IDP-09.
#[test]
fn eos_c01_retries_get_their_offsets_after_a_clean_stop() {
    run("window-stop", 3, |_, broker, start| {
        broker.stop_cleanly();
        start.start()
    });
}

#[test]
fn retries_get_their_offsets_on_another_number_of_cores() {
    run("window-cores", 6, |cycle, broker, start| {
        if cycle % 3 == 0 {
            broker.stop_cleanly()
        } else {
            broker.kill9()
        }
        start.clone().cores(1 + cycle % 2).start()
    });
}

#[test]
fn retries_get_their_offsets_when_nothing_was_written_for_several_starts() {
    run("window-idle", 1, |_, mut broker, start| {
        for kill in [true, false, true, true, false] {
            if kill {
                broker.kill9()
            } else {
                broker.stop_cleanly()
            }
            broker = start.start();
        }
        broker
    });
}

#[test]
fn a_batch_whose_answer_nobody_read_is_there_once() {
    let folder = Folder::new("window-unread");
    let broker = Start::on(&folder).start();
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, PARTITIONS, &[]);
    for partition in 0..PARTITIONS {
        let batch = Writer::new(client.init_producer_id()).batch(2, "unread", 10);
        Client::connect(broker.address).send_batch(TOPIC, partition, -1, &batch);
        // The connections of one client go to the shards in turn.
        for _ in 0..2 {
            let again = Client::connect(broker.address).produce(TOPIC, partition, &batch);
            assert_eq!(again, Produced { error: 0, base_offset: 0 });
        }
        assert_eq!(client.end(TOPIC, partition), 2);
    }
}

#[test]
fn eos_a03_producer_ids_are_never_given_twice() {
    let folder = Folder::new("producer-ids");
    let start = Start::on(&folder);
    let mut ids = BTreeSet::new();
    for cycle in 0..4 {
        let broker = start.clone().cores(1 + cycle % 2).start();
        let given: Vec<_> = std::thread::scope(|scope| {
            let address = broker.address;
            let ask = move || {
                let mut client = Client::connect(address);
                (0..250).map(|_| client.init_producer_id()).collect::<Vec<_>>()
            };
            let clients: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        for id in given {
            assert!(id >= 0 && ids.insert(id), "{id} was given before");
        }
        if cycle == 1 { broker.stop_cleanly() } else { broker.kill9() }
    }
    assert_eq!(ids.len(), 4_000);
}
