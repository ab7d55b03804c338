//! Writes partition folders for Kafka's own tools to read, since only they can say whether they understand them:
//! `CORELANE_KAFKA_FOLDER=DIR cargo test --test rules writes_a_folder -- --ignored`, then
//! `kafka-dump-log --deep-iteration --files DIR/t-0/<each file>`.

use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

use corelane::ids::{LogId, Offset, ProducerEpoch, ProducerId, Sequence, TopicId};
use corelane::log::index::IndexRules;
use corelane::log::kafka_files::{self, LeaderEpoch};
use corelane::log::names::{self, Kind};
use corelane::log::scan::BatchFacts;
use corelane::log::segment::{Incoming, RollRules, Segment};
use corelane::log::segment_derived::Sealing;
use corelane::log::snapshot::{self, SnapshotEntry};
use corelane::wire::batch::Codec;
use corelane::wire::builder::{BatchBuilder, Record};

use crate::plain_disk::{PlainDisk, run};

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const NOW: i64 = 1_795_987_890_123;
const ROLL: RollRules = RollRules { segment_bytes: 64 << 10, segment_ms: i64::MAX, jitter_ms: 0 };
const SEALING: Sealing = Sealing { open: false, clean: false, log_id: LogId(1), generation: 3, aborts: (0, 0) };

/// Batch number `at` of producer 42: one to seven records, every codec in turn, timestamps that also go back.
fn batch(at: i64, base: i64) -> Vec<u8> {
    let records = 1 + at % 7;
    let mut batch = BatchBuilder::new().place(Offset(base), 3).codec(CODECS[at as usize % CODECS.len()]).producer(
        ProducerId(42),
        ProducerEpoch(0),
        Sequence(base as i32),
    );
    for delta in 0..records {
        let timestamp = NOW + at * 10 + [5, -40, 3, 9, 0, 2, 8][(at + delta) as usize % 7];
        let value = format!("record {} of batch {at} ", base + delta).repeat(5 + at as usize % 20);
        let headers = [("h", Some(&b"v"[..]))];
        let record = Record {
            timestamp,
            key: Some(b"key"),
            value: Some(value.as_bytes()),
            headers: &headers[..at as usize % 2],
        };
        batch = batch.record(record);
    }
    batch.build().to_vec()
}

fn snapshot_at(facts: &BatchFacts) -> SnapshotEntry {
    SnapshotEntry {
        producer_id: ProducerId(facts.producer_id),
        epoch: ProducerEpoch(facts.producer_epoch),
        last_sequence: facts.base_sequence + facts.records_count - 1,
        last_offset: facts.last_offset.0,
        offset_delta: facts.records_count - 1,
        timestamp: facts.max_timestamp,
        coordinator_epoch: -1,
        txn_first_offset: None,
    }
}

#[test]
#[ignore = "writes files for Kafka's tools, see the module"]
fn writes_a_folder_for_kafkas_tools() {
    let folder = PathBuf::from(std::env::var("CORELANE_KAFKA_FOLDER").expect("CORELANE_KAFKA_FOLDER")).join("t-0");
    fs::create_dir_all(&folder).unwrap();
    let make = |base: Offset| {
        Segment::create(PlainDisk::default(), Rc::from(folder.as_path()), base, IndexRules::default(), NOW).unwrap()
    };
    let write =
        |base: Offset, kind: Kind, content: &[u8]| fs::write(names::path(&folder, base, kind), content).unwrap();
    let mut segment = make(Offset(0));
    for at in 0..600 {
        let end = segment.end();
        let bytes = batch(at, end.0);
        let facts = BatchFacts::read(&bytes, segment.bytes()).unwrap();
        let incoming =
            Incoming { bytes: bytes.len() as u64, last_offset: facts.last_offset, max_timestamp: facts.max_timestamp };
        if segment.should_roll(&ROLL, &incoming, NOW) {
            run(segment.seal(SEALING)).unwrap();
            segment = make(end);
        }
        let facts = BatchFacts::read(&bytes, segment.bytes()).unwrap();
        segment.note_batch(&facts);
        segment.write_now(facts.position, &[&bytes]).unwrap();
        write(facts.next_offset(), Kind::Snapshot, &snapshot::encode(&[snapshot_at(&facts)]));
        if segment.base() != end && end.0 > 0 {
            fs::remove_file(names::path(&folder, end, Kind::Snapshot)).unwrap();
        }
    }
    run(segment.seal(Sealing { open: true, ..SEALING })).unwrap();
    let epochs = [LeaderEpoch { epoch: 3, start: Offset(0) }];
    fs::write(folder.join(kafka_files::LEADER_EPOCHS), kafka_files::encode_leader_epochs(&epochs)).unwrap();
    let metadata = kafka_files::encode_partition_metadata(TopicId([7; 16]));
    fs::write(folder.join(kafka_files::PARTITION_METADATA), metadata).unwrap();
}
