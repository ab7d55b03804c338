//! Transactions over the ends of a broker: what was open stays open, what was aborted stays hidden, and the tools for
//! stopped brokers find nothing wrong.

use std::fs;
use std::path::Path;
use std::process::Command;

use corelane::ids::{ProducerEpoch, Sequence};
use corelane::wire::builder::BatchBuilder;
use kafka_protocol::messages::{
    EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, ProduceRequest, ProducerId, TransactionalId,
};

use super::harness::client::{fetch_request, produce_request, text};
use super::harness::folder::files_ending;
use super::harness::{Broker, Client, Folder, Start};

const TOPIC: &str = "open";
const TIME: i64 = 1_700_000_000_000;

fn start(folder: &Folder) -> Broker {
    Start::on(folder).set("corelane.log.file.bytes=4194304").start()
}

/// A transactional producer.
struct Producer {
    name: &'static str,
    id: i64,
    epoch: i16,
    sequence: i32,
}

impl Producer {
    fn new(client: &mut Client, name: &'static str) -> Self {
        let looked_for = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text(name)]);
        assert_eq!(client.ask(4, &looked_for).coordinators[0].error_code, 0);
        let asked = InitProducerIdRequest::default().with_transactional_id(Some(TransactionalId(text(name))));
        let asked = asked.with_transaction_timeout_ms(600_000).with_producer_id(ProducerId(-1)).with_producer_epoch(-1);
        let given = client.ask(5, &asked);
        assert_eq!(given.error_code, 0);
        Self { name, id: given.producer_id.0, epoch: given.producer_epoch, sequence: 0 }
    }

    /// Sends a record of so many bytes; its offset.
    fn send(&mut self, client: &mut Client, bytes: usize) -> i64 {
        let batch = BatchBuilder::new()
            .producer(corelane::ids::ProducerId(self.id), ProducerEpoch(self.epoch), Sequence(self.sequence))
            .transactional()
            .value(TIME, &vec![7; bytes])
            .build();
        let asked: ProduceRequest = produce_request(TOPIC, 0, -1, &batch);
        let answer = client.ask(12, &asked.with_transactional_id(Some(TransactionalId(text(self.name)))));
        let one = &answer.responses[0].partition_responses[0];
        assert_eq!(one.error_code, 0);
        self.sequence += 1;
        one.base_offset
    }

    /// Ends the transaction; the marker is at `at`.
    fn end(&mut self, client: &mut Client, commits: bool, at: i64) {
        let asked = EndTxnRequest::default().with_transactional_id(TransactionalId(text(self.name)));
        let asked = asked.with_producer_id(ProducerId(self.id)).with_producer_epoch(self.epoch).with_committed(commits);
        let answer = client.ask(5, &asked);
        assert_eq!(answer.error_code, 0);
        (self.id, self.epoch, self.sequence) = (answer.producer_id.0, answer.producer_epoch, 0);
        let marker = client.ask(12, &fetch_request(TOPIC, 0, at, 20_000));
        assert_eq!(marker.responses[0].partitions[0].high_watermark, at + 1);
    }
}

/// High watermark, last stable offset, and what is named as aborted to a reader from an offset.
fn committed(client: &mut Client, offset: i64) -> (i64, i64, Vec<(i64, i64)>) {
    let answer = client.ask(12, &fetch_request(TOPIC, 0, offset, 0).with_isolation_level(1));
    let found = &answer.responses[0].partitions[0];
    assert_eq!(found.error_code, 0);
    let aborted = found.aborted_transactions.as_ref().unwrap();
    let aborted = aborted.iter().map(|one| (one.producer_id.0, one.first_offset)).collect();
    (found.high_watermark, found.last_stable_offset, aborted)
}

fn corelane(words: &[&str], path: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn eos_c05_a_transaction_that_was_open_at_a_kill_is_open_afterwards() {
    let folder = Folder::new("c05");
    let mut broker = start(&folder);
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, 1, &[]);
    let mut producer = Producer::new(&mut client, "c05");
    assert_eq!([(); 2].map(|()| producer.send(&mut client, 10)), [0, 1]);
    for _ in 0..3 {
        assert_eq!(committed(&mut client, 0), (2, 0, vec![]));
        broker.kill9();
        broker = start(&folder);
        client = Client::connect(broker.address);
    }
    let id = producer.id;
    assert_eq!(producer.send(&mut client, 10), 2, "it goes on");
    producer.end(&mut client, false, 3);
    assert_eq!(committed(&mut client, 1), (4, 4, vec![(id, 0)]));
    broker.kill9();
    broker = start(&folder);
    client = Client::connect(broker.address);
    assert_eq!(committed(&mut client, 1), (4, 4, vec![(id, 0)]));
    broker.stop_cleanly();
}

/// Several segments with aborted transactions, one of which began in an earlier segment; the last is open.
fn filled(name: &str) -> (Folder, Vec<(i64, i64)>) {
    let folder = Folder::new(name);
    let broker = start(&folder);
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, 1, &[("segment.bytes", "1048576")]);
    let mut producer = Producer::new(&mut client, "filled");
    let (mut aborted, mut next) = (Vec::new(), 0);
    for round in 0..8 {
        let (id, first) = (producer.id, next);
        for _ in 0..7 {
            assert_eq!(producer.send(&mut client, 100_000), next);
            next += 1;
        }
        if round < 7 {
            producer.end(&mut client, round % 3 == 2, next);
            next += 1;
            if round % 3 != 2 {
                aborted.push((id, first));
            }
        }
    }
    assert_eq!(next, 63);
    broker.stop_cleanly();
    (folder, aborted)
}

/// All that is named to a reader of everything.
fn all_aborted(folder: &Folder) -> Vec<(i64, i64)> {
    let broker = start(folder);
    let mut client = Client::connect(broker.address);
    let mut all: Vec<_> = (0..56).flat_map(|offset| committed(&mut client, offset).2).collect();
    all.sort_by_key(|one| one.1);
    all.dedup();
    assert_eq!(committed(&mut client, 56), (63, 56, vec![]));
    broker.stop_cleanly();
    all
}

#[test]
fn what_was_aborted_stays_hidden_whatever_becomes_of_the_abort_indexes() {
    let (folder, aborted) = filled("aborts");
    corelane(&["verify"], &folder.data());
    assert_eq!(all_aborted(&folder), aborted);
    let indexes = files_ending(&folder.partition(TOPIC, 0), ".txnindex");
    assert!(indexes.len() >= 3, "{indexes:?}");
    assert!(corelane(&["dump"], &indexes[0]).contains("producer_id"));
    for (at, index) in indexes.iter().enumerate() {
        match at % 3 {
            0 => fs::remove_file(index).unwrap(),
            1 => fs::write(index, []).unwrap(),
            _ => fs::write(index, [0; 34]).unwrap(),
        }
    }
    let output = Command::new(env!("CARGO_BIN_EXE_corelane")).arg("verify").arg(folder.data()).output().unwrap();
    assert!(!output.status.success(), "verify names them");
    assert_eq!(all_aborted(&folder), aborted);
}

#[test]
fn an_imported_partition_keeps_its_transactions() {
    let (folder, aborted) = filled("import-from");
    let target = Folder::new("import-to");
    let broker = start(&target);
    broker.stop_cleanly();
    let partition = folder.partition(TOPIC, 0);
    let output = Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["import", "--yes", "--data"])
        .args([&target.data(), &partition])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(all_aborted(&target), aborted);
    corelane(&["verify"], &target.data());
}
