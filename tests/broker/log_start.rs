//! Log starts that were moved by DeleteRecords, through kills and clean stops: they never move back, the files below them
//! are gone, and producers are remembered all the same (eos_b18, eos_c01, eos_c02, field cases IDP-11, FET-14).

use super::harness::batches::{Writer, whole};
use super::harness::client::Produced;
use super::harness::folder::files_ending;
use super::harness::{Broker, Client, Folder, Start};

const TOPIC: &str = "start";
const WINDOW: usize = 5;
const RECORDS: i64 = 3;

/// What may happen to a broker.
type Event = fn(Broker, &Start) -> Broker;

fn kill(broker: Broker, start: &Start) -> Broker {
    broker.kill9();
    start.start()
}

fn stop(broker: Broker, start: &Start) -> Broker {
    broker.stop_cleanly();
    start.start()
}

fn kill_for_another_number_of_cores(broker: Broker, start: &Start) -> Broker {
    broker.kill9();
    start.clone().cores(1).start()
}

/// A producer of one partition whose log is deleted under it.
struct Deleted {
    folder: Folder,
    broker: Broker,
    client: Client,
    writer: Writer,
    batches: Vec<(Vec<u8>, i64)>,
    end: i64,
}

impl Deleted {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let broker = Start::on(&folder).start();
        let mut client = Client::connect(broker.address);
        client.create_topic(TOPIC, 1, &[("segment.bytes", "1048576"), ("file.delete.delay.ms", "0")]);
        let writer = Writer::new(client.init_producer_id());
        Self { folder, broker, client, writer, batches: Vec::new(), end: 0 }
    }

    /// A segment takes three batches of this size.
    fn write(&mut self, count: usize) {
        for _ in 0..count {
            let batch = self.writer.batch(3, "start", 100_000);
            assert_eq!(self.client.produce(TOPIC, 0, &batch), Produced { error: 0, base_offset: self.end });
            self.batches.push((batch, self.end));
            self.end += RECORDS;
        }
    }

    fn happens(self, event: Event) -> Self {
        let broker = event(self.broker, &Start::on(&self.folder));
        let client = Client::connect(broker.address);
        Self { broker, client, ..self }
    }

    fn delete(&mut self, before: i64) {
        let low_watermark = if before < 0 { self.end } else { before };
        assert_eq!(self.client.delete_records(TOPIC, 0, before), (0, low_watermark));
    }

    /// The log begins at `start`, its last five batches are known, a gap is one, and the next batch is written.
    fn is_right(&mut self, start: i64) {
        let found = (self.client.offset_at(TOPIC, 0, -2), self.client.end(TOPIC, 0));
        assert_eq!(found, (start, self.end), "{}", self.broker.log());
        assert_eq!(self.client.fetch(TOPIC, 0, start - 1).0, 1);
        let read = self.client.read_all(TOPIC, 0);
        let kept: Vec<_> = self.batches.iter().filter(|(_, base)| base + RECORDS > start).collect();
        let is_kept = |(stored, kept): (&_, &&(Vec<u8>, i64))| {
            let stored: &super::harness::batches::Stored<'_> = stored;
            stored.content() == &kept.0[16..] && stored.facts.base_offset.0 == kept.1
        };
        let stored = whole(&read);
        assert!(stored.len() == kept.len() && stored.iter().zip(&kept).all(is_kept));
        let last = self.batches.len().saturating_sub(WINDOW);
        for (batch, base_offset) in self.batches[last..].iter().rev() {
            let expected = Produced { error: 0, base_offset: *base_offset };
            assert_eq!(self.client.produce(TOPIC, 0, batch), expected, "a retry; start {start}, end {}", self.end);
        }
        let mut gap = Writer { id: self.writer.id, next_sequence: self.writer.next_sequence + 1 };
        assert_eq!(self.client.produce(TOPIC, 0, &gap.batch(1, "gap", 10)).error, 45);
        self.write(1);
    }
}

const EVENTS: [(&str, Event); 3] = [("kill", kill), ("stop", stop), ("cores", kill_for_another_number_of_cores)];

/// Also IDP-11: the producer's only data is deleted, and the segments with it.
#[test]
fn eos_b18_a_retry_of_deleted_records_is_known_after_every_kind_of_restart() {
    for (name, event) in EVENTS {
        let mut deleted = Deleted::new(&format!("b18-{name}"));
        deleted.write(9);
        deleted.delete(-1);
        let start = deleted.end;
        deleted.is_right(start);
        deleted = deleted.happens(event);
        deleted.is_right(start);
        deleted = deleted.happens(event);
        deleted.is_right(start);
        assert_eq!(deleted.folder.segments(TOPIC, 0).len(), 1, "the files below the log start are gone");
        deleted.broker.stop_cleanly();
    }
}

#[test]
fn eos_c01_five_batches_are_known_after_a_clean_stop_though_the_log_start_is_among_them() {
    let mut deleted = Deleted::new("c01-start");
    deleted.write(9);
    for before in [7, 16, 25] {
        deleted.delete(before);
        deleted = deleted.happens(stop);
        deleted.is_right(before);
    }
    deleted.broker.stop_cleanly();
}

/// The kill comes right behind the answer.
#[test]
fn eos_c02_five_batches_are_known_after_a_kill_though_the_log_start_is_among_them() {
    let mut deleted = Deleted::new("c02-start");
    deleted.write(9);
    for before in [7, 16, 25, -1] {
        deleted.delete(before);
        let start = if before < 0 { deleted.end } else { before };
        deleted = deleted.happens(kill);
        deleted.is_right(start);
    }
    deleted.broker.stop_cleanly();
}

#[test]
fn fet_14_the_log_start_has_bounds_and_never_moves_back() {
    for (name, event) in EVENTS {
        let mut deleted = Deleted::new(&format!("fet-14-{name}"));
        let end = 21;
        deleted.write(7);
        for (before, answer) in [(7, (0, 7)), (5, (0, 7)), (end + 1, (1, -1)), (-2, (1, -1))] {
            assert_eq!(deleted.client.delete_records(TOPIC, 0, before), answer);
        }
        deleted = deleted.happens(event);
        assert_eq!(deleted.client.offset_at(TOPIC, 0, -2), 7);
        assert_eq!(deleted.client.delete_records(TOPIC, 0, 5), (0, 7));
        assert_eq!(deleted.client.delete_records(TOPIC, 0, -1), (0, end));
        deleted = deleted.happens(event);
        assert_eq!(deleted.client.offset_at(TOPIC, 0, -2), end);
        assert_eq!((deleted.client.fetch(TOPIC, 0, end - 1).0, deleted.client.fetch(TOPIC, 0, end).0), (1, 0));
        deleted.broker.stop_cleanly();
    }
}

/// Kafka's tools and a Kafka that takes the folder over learn the log start from its own file.
#[test]
fn kafkas_file_of_log_starts_is_written_at_a_clean_stop() {
    let mut deleted = Deleted::new("kafka-file");
    deleted.write(4);
    deleted.delete(5);
    deleted.broker.stop_cleanly();
    let path = deleted.folder.data().join("kafka/log-start-offset-checkpoint");
    assert_eq!(std::fs::read_to_string(path).unwrap(), format!("0\n1\n{TOPIC} 0 5\n"));
}

/// The producer's batches are deleted and no checkpoint is left: its newest batch is known from Kafka's own snapshot.
#[test]
fn eos_c04_without_any_checkpoint_producers_of_deleted_records_are_known_from_the_snapshot() {
    let mut deleted = Deleted::new("c04-start");
    deleted.write(9);
    deleted.delete(-1);
    let end = deleted.end;
    deleted.broker.stop_cleanly();
    for shard in 0..2 {
        let folder = deleted.folder.data().join(format!("corelane/shard-{shard}"));
        for path in files_ending(&folder, ".full").iter().chain(&files_ending(&folder, ".delta")) {
            std::fs::remove_file(path).unwrap();
        }
    }
    let broker = Start::on(&deleted.folder).start();
    let mut client = Client::connect(broker.address);
    assert_eq!((client.offset_at(TOPIC, 0, -2), client.end(TOPIC, 0)), (end, end));
    let (newest, base_offset) = deleted.batches.last().unwrap();
    assert_eq!(client.produce(TOPIC, 0, newest), Produced { error: 0, base_offset: *base_offset });
    let next = client.produce(TOPIC, 0, &deleted.writer.batch(1, "next", 10));
    assert_eq!(next, Produced { error: 0, base_offset: end });
    broker.stop_cleanly();
}
