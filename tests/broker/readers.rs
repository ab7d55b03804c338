//! Clients that ask for much, and those that do not read what they asked for.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};

use super::harness::batches::{batch_of, whole};
use super::harness::client::{fetch_request, name};
use super::harness::{Broker, Client, Folder, Start};

const TOPIC: &str = "t";
const MIB: u64 = 1 << 20;

/// A broker with that many batches of that size in each partition.
fn filled(start: &Start, partitions: i32, batches: i32, bytes: usize) -> (Broker, Client) {
    let broker = start.start();
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, partitions, &[]);
    for partition in 0..partitions {
        let sent: Vec<_> = (0..batches)
            .map(|_| client.send_batch(TOPIC, partition, -1, &batch_of(-1, 0, 1, "readers", bytes)))
            .collect();
        sent.into_iter().for_each(|correlation| assert_eq!(client.receive_produced(correlation).error, 0));
    }
    (broker, client)
}

/// Fifty clients ask for 1 MiB a hundred times and read nothing: one answer of each is made and no more, other clients do not
/// notice, and who reads in the end gets all of his.
#[test]
fn lim_06_clients_that_do_not_read_hold_little_and_harm_nobody() {
    let folder = Folder::new("not-reading");
    let (mut broker, mut honest) = filled(&Start::on(&folder), 1, 20, 50_000);
    fs::write(format!("/proc/{}/clear_refs", broker.id()), "5").unwrap();
    let idle = broker.memory("VmRSS");
    let mut deaf: Vec<_> = (0..50).map(|_| Client::connect(broker.address)).collect();
    for client in &mut deaf {
        let frame = client.frame(12, &fetch_request(TOPIC, 0, 0, 0));
        client.stream().write_all(&frame.repeat(100)).unwrap();
    }
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(2) {
        let sent = Instant::now();
        assert_eq!(honest.produce(TOPIC, 0, &batch_of(-1, 0, 1, "honest", 100)).error, 0);
        assert_eq!(honest.fetch(TOPIC, 0, 19).0, 0);
        slowest = slowest.max(sent.elapsed());
    }
    let grown = broker.memory("VmHWM").saturating_sub(idle);
    println!("{} MiB more, slowest {slowest:?}", grown / MIB);
    assert!(grown < 150 * MIB, "{grown} bytes more");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    for _ in 0..100 {
        assert!(deaf[0].receive_frame().unwrap().len() > 900_000, "whole answers, whoever holds the memory");
    }
    drop(deaf);
    assert!(broker.is_alive());
    broker.stop_cleanly();
}

/// Partition and offset of each partition, as a session has it.
fn wants(offsets: &BTreeMap<i32, i64>) -> Vec<FetchTopic> {
    let partitions = offsets.iter().map(|(partition, offset)| {
        let asked = FetchPartition::default().with_partition(*partition).with_fetch_offset(*offset);
        asked.with_partition_max_bytes(64 << 10).with_current_leader_epoch(-1)
    });
    vec![FetchTopic::default().with_topic(name(TOPIC)).with_partitions(partitions.collect())]
}

/// What is asked for over all partitions is bounded by the broker over all cores, also for several clients at once; and in
/// a session every partition has its turn.
#[test]
fn lim_07_an_answer_is_bounded_over_all_partitions_and_each_has_its_turn() {
    const PARTITIONS: i32 = 40;
    const BATCHES: i64 = 8;
    const LIMIT: usize = 512 << 10;
    let folder = Folder::new("many-partitions");
    let start = Start::on(&folder).set(&format!("fetch.max.bytes={LIMIT}"));
    let (mut broker, _) = filled(&start, PARTITIONS, BATCHES as i32, 16_000);
    let together = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(broker.address);
                together.wait();
                let mut offsets: BTreeMap<i32, i64> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
                let (mut session, mut fetches) = ((0, 0), 0);
                let mut moved = offsets.clone();
                while offsets.values().any(|offset| *offset < BATCHES) {
                    let request = FetchRequest::default().with_max_bytes(i32::MAX).with_topics(wants(&moved));
                    let request = request.with_session_id(session.0).with_session_epoch(session.1);
                    let answer = client.ask(12, &request);
                    assert_eq!(answer.error_code, 0);
                    session = (answer.session_id, session.1 + 1);
                    moved.clear();
                    let mut bytes = 0;
                    for partition in answer.responses.iter().flat_map(|topic| &topic.partitions) {
                        let records = partition.records.as_deref().unwrap_or_default();
                        bytes += records.len();
                        if let Some(last) = whole(records).last() {
                            moved.insert(partition.partition_index, last.end());
                        }
                    }
                    assert!(bytes <= LIMIT && !moved.is_empty(), "{bytes} bytes");
                    offsets.extend(moved.iter());
                    fetches += 1;
                    // Eight partitions of 64 KiB fill an answer. The first one is answered as asked, from the second on those that
                    // gave records go to the end: after six, each was served.
                    assert!(fetches < 6 || offsets.values().all(|offset| *offset > 0), "{fetches}: {offsets:?}");
                }
                assert!(fetches <= 2 * 5 + 4, "{fetches} fetches");
            });
        }
    });
    assert!(broker.is_alive());
    broker.stop_cleanly();
}
