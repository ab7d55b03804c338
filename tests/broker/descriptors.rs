//! Segments and sockets share the descriptors of the process (field case LIM-09).

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::harness::batches::{Writer, batch_of, whole};
use super::harness::client::Client;
use super::harness::{Folder, Start};

const DESCRIPTORS: u32 = 512;
const TOPICS: usize = 6;
const PARTITIONS: i32 = 100;

fn topic(number: usize) -> String {
    format!("topic-{number}")
}

#[test]
fn lim_09_more_partitions_and_connections_than_descriptors() {
    let folder = Folder::new("descriptors");
    let start = Start::on(&folder).descriptors(DESCRIPTORS).set("corelane.checkpoint.interval.ms=1000");
    let mut broker = start.start();
    let mut client = Client::connect(broker.address);
    client.create_topic("first", 4, &[("segment.bytes", "1048576")]);
    let mut writer = Writer::new(client.init_producer_id());
    assert_eq!(client.produce("first", 0, &writer.batch(1, "first", 10)).error, 0);
    // Half of the descriptors are for files, and there are more partitions than descriptors.
    for number in 0..TOPICS {
        client.create_topic(&topic(number), PARTITIONS, &[]);
        for partition in 0..PARTITIONS {
            let produced = client.produce(&topic(number), partition, &batch_of(-1, 0, 1, "many", 100));
            assert_eq!(produced.error, 0, "partition {partition} of topic {number}");
        }
        assert!(broker.descriptors() < DESCRIPTORS as usize && broker.is_alive());
    }
    // Segments roll all the while.
    for _ in 0..8 {
        assert_eq!(client.produce("first", 0, &writer.batch(1, "rolls", 300_000)).error, 0);
    }
    // Connections take their own half, and no more: those that are too many are closed at once.
    let mut flood: Vec<_> = (0..DESCRIPTORS).filter_map(|_| TcpStream::connect(broker.address).ok()).collect();
    for partition in 0..PARTITIONS {
        assert_eq!(client.produce(&topic(0), partition, &batch_of(-1, 0, 1, "beside", 100)).error, 0);
    }
    assert!(broker.descriptors() <= DESCRIPTORS as usize && broker.is_alive());
    assert!(broker.log().contains("refused a connection"), "{}", broker.log());
    flood.clear();
    until(|| broker.descriptors() < DESCRIPTORS as usize / 2 + 100);
    let mut after = Client::connect(broker.address);
    for number in 0..TOPICS {
        let ends: Vec<_> = (0..PARTITIONS).map(|partition| after.end(&topic(number), partition)).collect();
        assert_eq!(ends, vec![if number == 0 { 2 } else { 1 }; PARTITIONS as usize]);
        after.delete_topic(&topic(number));
    }
    until(|| broker.descriptors() < 100);
    let (error, records) = after.fetch("first", 0, 0);
    assert_eq!((error, whole(&records)[0].facts.base_offset.0), (0, 0));
    assert_eq!(after.end("first", 0), 9);
    broker.stop_cleanly();
    let broker = start.start();
    assert_eq!(Client::connect(broker.address).end("first", 0), 9);
    broker.stop_cleanly();
}

fn until(reached: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !reached() {
        assert!(Instant::now() < deadline, "it does not come to that");
        thread::sleep(Duration::from_millis(20));
    }
}
