//! What is on disk after a stop, and what a start makes of it.

use super::harness::batches::{Writer, batch_of};
use super::harness::client::Produced;
use super::harness::{Client, Folder, Start};

const TOPIC: &str = "restart";
const PARTITIONS: i32 = 4;

/// Everything that a client can see of the topic.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    bytes: Vec<Vec<u8>>,
    by_time: Vec<i64>,
}

impl Seen {
    fn look(client: &mut Client) -> Self {
        let bytes = (0..PARTITIONS).map(|partition| client.read_all(TOPIC, partition)).collect();
        let times = (0..50).map(|record| 1_700_000_000_000 + record);
        let by_time = times.flat_map(|time| (0..PARTITIONS).map(move |partition| (partition, time)));
        let by_time = by_time.map(|(partition, time)| client.offset_at(TOPIC, partition, time)).collect();
        Self { bytes, by_time }
    }
}

/// Several segments in each partition.
fn fill(client: &mut Client) {
    client.create_topic(TOPIC, PARTITIONS, &[("segment.bytes", "1048576"), ("max.message.bytes", "400000")]);
    for partition in 0..PARTITIONS {
        let mut writer = Writer::new(client.init_producer_id());
        for _ in 0..12 {
            let produced = client.produce(TOPIC, partition, &writer.batch(3, "fill", 70_000));
            assert_eq!(produced.error, 0);
        }
    }
}

#[test]
fn after_a_clean_stop_nothing_is_recovered_and_everything_is_the_same() {
    let folder = Folder::new("clean-stop");
    let broker = Start::on(&folder).start();
    let mut client = Client::connect(broker.address);
    fill(&mut client);
    let before = Seen::look(&mut client);
    broker.stop_cleanly();
    assert!(folder.segments(TOPIC, 0).len() > 2);
    for _ in 0..2 {
        let broker = Start::on(&folder).start();
        assert_eq!(Seen::look(&mut Client::connect(broker.address)), before);
        assert!(!broker.log().contains("recovering"), "{}", broker.log());
        broker.stop_cleanly();
    }
}

#[test]
fn after_a_kill_it_recovers_and_everything_is_the_same() {
    let folder = Folder::new("kill-same");
    let mut broker = Start::on(&folder).start();
    let mut client = Client::connect(broker.address);
    fill(&mut client);
    let before = Seen::look(&mut client);
    for cores in [1, 2, 2] {
        broker.kill9();
        broker = Start::on(&folder).cores(cores).start();
        assert!(broker.log().contains("recovering"));
        assert_eq!(Seen::look(&mut Client::connect(broker.address)), before);
    }
    broker.stop_cleanly();
}

/// What the kernel was given survives the process, whatever the producer waited for.
#[test]
fn what_was_written_without_a_flush_survives_a_kill() {
    let folder = Folder::new("page-cache");
    let broker = Start::on(&folder).start();
    let mut client = Client::connect(broker.address);
    client.create_topic("lazy", 2, &[("corelane.durability", "page-cache")]);
    client.create_topic("one", 2, &[]);
    for number in 0..100 {
        let batch = batch_of(-1, 0, 1, &format!("lazy {number}"), 200);
        assert_eq!(client.produce("lazy", number % 2, &batch).error, 0);
        let correlation = client.send_batch("one", number % 2, 1, &batch);
        assert_eq!(client.receive_produced(correlation).error, 0);
    }
    broker.kill9();
    let broker = Start::on(&folder).start();
    let mut client = Client::connect(broker.address);
    for (topic, partition) in [("lazy", 0), ("lazy", 1), ("one", 0), ("one", 1)] {
        assert_eq!(client.end(topic, partition), 50, "{topic}-{partition}");
        client.read_all(topic, partition);
    }
}

/// A batch without an answer: in order before the next that has one.
#[test]
fn batches_without_answers_are_before_the_one_that_was_acknowledged() {
    let folder = Folder::new("acks-none");
    let broker = Start::on(&folder).start();
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, 1, &[]);
    let mut writer = Writer::new(client.init_producer_id());
    for _ in 0..20 {
        client.send_batch(TOPIC, 0, 0, &writer.batch(1, "none", 10));
    }
    let produced = client.produce(TOPIC, 0, &writer.batch(1, "all", 10));
    assert_eq!(produced, Produced { error: 0, base_offset: 20 });
    broker.kill9();
    let broker = Start::on(&folder).start();
    assert_eq!(Client::connect(broker.address).end(TOPIC, 0), 21);
}

/// A stop under load: what was acknowledged before it is there after it.
#[test]
fn a_clean_stop_under_load_loses_nothing() {
    let folder = Folder::new("stop-load");
    let broker = Start::on(&folder).start();
    let address = broker.address;
    let mut client = Client::connect(address);
    client.create_topic(TOPIC, PARTITIONS, &[]);
    let ends: Vec<i64> = std::thread::scope(|scope| {
        let write = |partition| {
            move || {
                let mut client = Client::connect(address);
                let mut writer = Writer::new(client.init_producer_id());
                let mut end = 0;
                while let Some(produced) = client.try_produce(TOPIC, partition, &writer.batch(1, "load", 100)) {
                    if produced.error != 0 {
                        break;
                    }
                    assert_eq!(produced.base_offset, end);
                    end += 1;
                }
                end
            }
        };
        let writers: Vec<_> = (0..PARTITIONS).map(|partition| scope.spawn(write(partition))).collect();
        while (0..PARTITIONS).any(|partition| client.end(TOPIC, partition) < 20) {}
        broker.stop_cleanly();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let broker = Start::on(&folder).start();
    let mut client = Client::connect(broker.address);
    for (partition, acknowledged) in (0..).zip(ends) {
        let end = client.end(TOPIC, partition);
        assert!(end == acknowledged || end == acknowledged + 1, "{acknowledged} acknowledged, {end} there");
    }
}
