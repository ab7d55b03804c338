//! Many requests, many connections, and clients that say nothing or read nothing
//! (field cases WIRE-07, LIM-05, LIM-06, LIM-10).

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};

use super::harness::batches::{Writer, batch_of};
use super::harness::client::{fetch_request, produce_request, text};
use super::harness::{Broker, Client, Folder, Start};

const TOPIC: &str = "connections";
const PARTITIONS: i32 = 8;

fn start(name: &str, settings: &[&str]) -> (Folder, Broker) {
    let folder = Folder::new(name);
    let with = settings.iter().fold(Start::on(&folder), |start, setting| start.set(setting));
    let broker = with.start();
    (folder, broker)
}

#[test]
fn a_thousand_mixed_requests_are_answered_in_order() {
    let (_folder, broker) = start("pipelined", &[]);
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, PARTITIONS, &[]);
    let mut writers: Vec<_> = (0..PARTITIONS).map(|_| Writer::new(client.init_producer_id())).collect();
    let mut frames = Vec::new();
    let mut expected = Vec::new();
    for number in 0..1_000 {
        let partition = number % PARTITIONS;
        let frame = match number % 5 {
            0 | 1 => {
                let batch = writers[partition as usize].batch(1, "pipelined", 300);
                client.frame(9, &produce_request(TOPIC, partition, -1, &batch))
            }
            // Waits a little, and with it everything behind it.
            2 => client.frame(12, &fetch_request(TOPIC, partition, i64::from(number), 5)),
            3 => client.frame(12, &MetadataRequest::default().with_topics(None)),
            _ => client.frame(
                3,
                &ApiVersionsRequest::default()
                    .with_client_software_name(text("test"))
                    .with_client_software_version(text("1")),
            ),
        };
        expected.push(i32::from_be_bytes(frame[8..12].try_into().unwrap()));
        frames.extend_from_slice(&frame);
    }
    let mut out = client.stream().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || out.write_all(&frames).unwrap());
        for correlation in expected {
            let answer = client.receive_frame().unwrap();
            assert_eq!(i32::from_be_bytes(answer[..4].try_into().unwrap()), correlation);
        }
    });
    let sum: i64 = (0..PARTITIONS).map(|partition| client.end(TOPIC, partition)).sum();
    assert_eq!(sum, 400);
}

/// True once the broker has answered a request on this connection.
fn is_answered(client: &mut Client) -> bool {
    client.stream().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    client.send(12, &MetadataRequest::default().with_topics(None));
    client.receive_frame().is_ok()
}

#[test]
fn lim_05_a_flood_of_connections_leaves_those_that_work_alone() {
    const MOST: usize = 20;
    let (_folder, mut broker) = start("flood", &[&format!("max.connections={MOST}")]);
    let mut first = Client::connect(broker.address);
    first.create_topic(TOPIC, PARTITIONS, &[]);
    let mut flood: Vec<_> = (1..MOST).map(|_| Client::connect(broker.address)).collect();
    assert!(flood.iter_mut().all(is_answered), "up to the limit everybody is served");
    let late: Vec<_> = (0..100).map(|_| TcpStream::connect(broker.address).unwrap()).collect();
    let mut beyond = Client::connect(broker.address);
    assert!(!is_answered(&mut beyond), "beyond the limit nobody is");
    for number in 0..50 {
        let batch = batch_of(-1, 0, 1, "flood", 100);
        assert_eq!(first.produce(TOPIC, number % PARTITIONS, &batch).error, 0);
    }
    assert!(broker.descriptors() < 200 && broker.is_alive());
    drop((flood, late, beyond));
    let mut after = Client::connect(broker.address);
    assert_eq!(after.end(TOPIC, 0), 7);
    broker.stop_cleanly();
}

fn sockets(broker: &Broker) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", broker.id())).unwrap();
    let is_socket = |path: PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    descriptors.filter(|entry| is_socket(entry.as_ref().unwrap().path())).count()
}

#[test]
fn lim_10_silent_connections_are_closed_and_waiting_ones_are_not() {
    let (_folder, broker) = start("idle", &["connections.max.idle.ms=1000"]);
    let mut waits = Client::connect(broker.address);
    waits.create_topic(TOPIC, PARTITIONS, &[]);
    let before = sockets(&broker);
    let mut silent = Client::connect(broker.address);
    let mut half = Client::connect(broker.address);
    half.stream().write_all(&[0, 0, 0, 100, 0, 3]).unwrap();
    let correlation = waits.send(12, &fetch_request(TOPIC, 0, 0, 3_000));
    assert!(silent.is_closed());
    assert!(half.is_closed());
    let answer = waits.receive_frame().unwrap();
    assert_eq!(i32::from_be_bytes(answer[..4].try_into().unwrap()), correlation);
    drop((silent, half));
    assert_eq!(sockets(&broker), before, "both are gone");
    broker.stop_cleanly();
}

#[test]
fn clients_that_ask_and_never_read_cost_little() {
    const GREEDY: usize = 30;
    let (_folder, broker) =
        start("never-reads", &["corelane.memory.budget.bytes=16777216", "corelane.tail.cache.bytes=4194304"]);
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, 2, &[]);
    for number in 0..40 {
        assert_eq!(client.produce(TOPIC, number % 2, &batch_of(-1, 0, 1, "large", 900_000)).error, 0);
    }
    let rest = broker.memory("VmRSS");
    let mut greedy: Vec<_> = (0..GREEDY).map(|_| Client::connect(broker.address)).collect();
    for (at, client) in greedy.iter_mut().enumerate() {
        client.stream().set_nonblocking(true).unwrap();
        let frame = client.frame(12, &fetch_request(TOPIC, (at % 2) as i32, 0, 0));
        for _ in 0..100 {
            match client.stream().write(&frame) {
                Ok(written) if written == frame.len() => {}
                // The broker takes no more: that is what is wanted of it.
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    for number in 0..50 {
        assert_eq!(client.produce(TOPIC, number % 2, &batch_of(-1, 0, 1, "beside", 100)).error, 0);
        assert_eq!(client.fetch(TOPIC, number % 2, 20).0, 0);
    }
    let most = broker.memory("VmHWM");
    println!("{} MiB at rest, {} MiB at most", rest >> 20, most >> 20);
    assert!(most - rest < 128 << 20, "{} bytes more", most - rest);
    // One of them changes its mind and gets everything it asked for.
    let one = &mut greedy[0];
    one.stream().set_nonblocking(false).unwrap();
    let mut first = [0; 4];
    one.stream().read_exact(&mut first).unwrap();
    assert!(u32::from_be_bytes(first) > 800_000);
    drop(greedy);
    broker.stop_cleanly();
}

#[test]
fn five_in_flight_of_one_producer_stay_in_order_over_a_hundred_rounds() {
    let (_folder, broker) = start("in-flight", &[]);
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, PARTITIONS, &[]);
    let mut writers: Vec<_> = (0..PARTITIONS).map(|_| Writer::new(client.init_producer_id())).collect();
    for round in 0..100 {
        let mut sent = Vec::new();
        for partition in 0..PARTITIONS {
            for _ in 0..5 {
                let batch = writers[partition as usize].batch(1, "in flight", 10);
                sent.push((partition, client.send_batch(TOPIC, partition, -1, &batch)));
            }
        }
        let mut next = [5 * round; PARTITIONS as usize];
        for (partition, correlation) in sent {
            let produced = client.receive_produced(correlation);
            assert_eq!((produced.error, produced.base_offset), (0, next[partition as usize]));
            next[partition as usize] += 1;
        }
    }
    broker.stop_cleanly();
}
