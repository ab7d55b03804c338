//! Readers of committed records against a simple model: random transactions on a shard that is killed, loses its power and
//! finds its abort indexes damaged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use corelane::broker::messages::{
    AckLevel, Answer, Ask, CheckedBatch, Deletion, Fetched, Marker, PartitionKey, ProduceItem, ReadItem, ReadLimits,
    Watch, WatchItem,
};
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence, ShardId};
use corelane::state::enlisting::Entry;
use corelane::state::transactions::messages::Outcome;
use corelane::wire::batch::{BatchHeader, Batches};
use corelane::wire::builder::BatchBuilder;
use corelane::wire::error_code::ErrorCode;
use corelane::wire::refill::{self, ControlKind};
use corelane::wire::stored::RecordData;

use crate::dice::Dice;
use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{DATA, Node, SMALL, produced, wait};

const SEGMENTS: &[(&str, &str)] = &[("internal.segment.bytes", "4000")];

impl Node {
    /// Sends a batch of a transaction that nobody was asked about.
    async fn in_transaction(&self, key: PartitionKey, bytes: &Bytes, entry: Option<Entry>) -> (ErrorCode, i64) {
        let header = BatchHeader::read(bytes).unwrap();
        let checked = Ok(CheckedBatch { header, bytes: bytes.clone(), log_append_time_ms: -1 });
        let item = ProduceItem { key, checked, entry };
        let results = produced(self.ask(Ask::Produce(vec![item], AckLevel::Written)).await);
        (results[0].error, results[0].base_offset.0)
    }

    async fn mark(&self, marker: Marker) -> ErrorCode {
        let Answer::Marked(codes) = self.ask(Ask::Markers(vec![marker])).await else { panic!() };
        codes[0]
    }

    async fn read_committed(&self, key: PartitionKey, offset: i64, bytes_max: usize) -> Fetched {
        let item =
            ReadItem { key, offset: Offset(offset), bytes_max, leader_epoch: -1, last_epoch: -1, is_committed: true };
        let limits = ReadLimits { bytes_max, first_whole: true };
        let Answer::Read(mut found) = self.ask(Ask::Read(vec![item], limits)).await else { panic!() };
        found.remove(0)
    }

    /// The base offsets that a client hands out to its application, from an offset on; up to where it has read.
    async fn consume(&self, key: PartitionKey, from: i64, bytes_max: usize) -> (Vec<i64>, i64) {
        let (mut handed_out, mut next) = (Vec::new(), from);
        loop {
            let found = self.read_committed(key, next, bytes_max).await;
            assert_eq!(found.error, ErrorCode::None);
            if found.records.bytes == 0 {
                assert_eq!(next, found.last_stable_offset.0.max(from), "all that is stable was read");
                return (handed_out, next);
            }
            let mut waiting = found.aborted.clone();
            waiting.sort_by_key(|(_, first)| *first);
            let mut active: Vec<ProducerId> = Vec::new();
            for part in found.records.parts {
                let bytes = match part {
                    RecordData::Batch(batch) => batch.to_bytes(),
                    RecordData::Whole(bytes) => bytes,
                };
                for batch in Batches::checked(&bytes).map(Result::unwrap) {
                    let (header, id) = (batch.header, batch.header.producer_id);
                    while let Some((id, _)) = waiting.first().copied().filter(|one| one.1 <= header.last_offset()) {
                        active.push(id);
                        waiting.remove(0);
                    }
                    if header.attributes.is_control() {
                        if refill::control_kind(batch.bytes, &header) == ControlKind::Abort {
                            active.retain(|one| *one != id);
                        }
                    } else if header.base_offset.0 >= from
                        && !(header.attributes.is_transactional() && active.contains(&id))
                    {
                        handed_out.push(header.base_offset.0);
                    }
                    next = header.next_offset().0;
                }
            }
        }
    }
}

/// A batch of one record; with a transaction or without.
fn batch(producer: i64, epoch: i16, sequence: i32, transactional: bool) -> Bytes {
    let builder = BatchBuilder::new().producer(ProducerId(producer), ProducerEpoch(epoch), Sequence(sequence));
    let builder = if transactional { builder.transactional() } else { builder };
    builder.value(1_700_000_000_000, &[7; 400]).build().freeze()
}

fn marker(key: PartitionKey, producer: i64, epoch: i16, outcome: Outcome, bumps_epoch: bool) -> Marker {
    let (producer_id, epoch) = (ProducerId(producer), ProducerEpoch(epoch));
    Marker { key, producer_id, epoch, coordinator_epoch: 1, outcome, bumps_epoch }
}

#[derive(Default)]
struct Producer {
    epoch: i16,
    sequence: i32,
    open: Vec<i64>,
}

/// What the log must say.
#[derive(Default)]
struct Model {
    producers: BTreeMap<i64, Producer>,
    end: i64,
    start: i64,
    visible: Vec<i64>,
}

impl Model {
    fn last_stable(&self) -> i64 {
        let firsts = self.producers.values().filter_map(|producer| producer.open.first().copied());
        firsts.min().unwrap_or(self.end).max(self.start)
    }

    async fn step(&mut self, node: &Node, key: PartitionKey, dice: &mut Dice) {
        let id = 1 + dice.below(4) as i64;
        let producer = self.producers.entry(id).or_default();
        match dice.below(10) {
            0..4 => {
                let bytes = batch(id, producer.epoch, producer.sequence, true);
                let answer = node.in_transaction(key, &bytes, Some(Entry::Unasked)).await;
                assert_eq!(answer, (ErrorCode::None, self.end));
                producer.sequence += 1;
                producer.open.push(self.end);
            }
            4..6 => {
                let plain = self.producers.entry(9).or_default();
                let bytes = batch(9, 0, plain.sequence, false);
                assert_eq!(node.produce(key, &bytes).await, (ErrorCode::None, self.end));
                plain.sequence += 1;
                self.visible.push(self.end);
            }
            how => {
                let (aborts, bumps) = (how < 9, dice.below(2) == 0);
                if bumps {
                    (producer.epoch, producer.sequence) = (producer.epoch + 1, 0);
                }
                let outcome = if aborts { Outcome::Abort } else { Outcome::Commit };
                assert_eq!(node.mark(marker(key, id, producer.epoch, outcome, bumps)).await, ErrorCode::None);
                let ended = std::mem::take(&mut producer.open);
                self.visible.extend(ended.into_iter().filter(|_| !aborts));
            }
        }
        self.end += 1;
    }

    async fn check(&self, node: &Node, key: PartitionKey, dice: &mut Dice) {
        let found = node.read(key, self.start).await;
        let seen = (found.high_watermark.0, found.last_stable_offset.0, found.log_start_offset.0);
        assert_eq!(seen, (self.end, self.last_stable(), self.start));
        let stable = self.last_stable();
        for bytes_max in [1 << 20, 1, 3_000] {
            let from = self.start + dice.below((stable - self.start) as usize + 1) as i64;
            let mut wanted: Vec<_> = self.visible.iter().copied().filter(|at| *at >= from && *at < stable).collect();
            wanted.sort_unstable();
            assert_eq!(node.consume(key, from, bytes_max).await, (wanted, stable), "from {from}, {bytes_max} bytes");
        }
    }
}

fn derived(disk: &MemoryDisk, ending: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from(DATA).join("kafka/t-0");
    disk.paths()
        .into_iter()
        .filter(|path| path.starts_with(&folder) && path.to_string_lossy().ends_with(ending))
        .collect()
}

/// Removes, cuts or changes one of the files.
fn damage(disk: &MemoryDisk, dice: &mut Dice) {
    let ending = [".txnindex", ".txnindex", ".seal"][dice.below(3)];
    let found = derived(disk, ending);
    let Some(path) = found.get(dice.below(found.len().max(1))) else { return };
    match dice.below(3) {
        0 => disk.remove(path),
        1 => disk.change(path, |content| content.truncate(content.len() / 2)),
        _ => disk.change(path, |content| {
            let at = dice.below(content.len());
            content[at] ^= 1 << dice.below(8);
        }),
    }
}

#[test]
fn committed_readers_see_what_the_model_says_after_every_kind_of_end() {
    for seed in 0..24 {
        mini_host::run(seed, async move {
            let mut dice = Dice::of(seed);
            let mut disk = MemoryDisk::default();
            let mut node = Node::start(&disk, SMALL).await;
            let key = node.create_with("t", SEGMENTS).await;
            let mut model = Model::default();
            for _ in 0..6 {
                for _ in 0..dice.below(30) {
                    model.step(&node, key, &mut dice).await;
                }
                if dice.below(3) == 0 {
                    model.start += dice.below((model.end - model.start) as usize + 1) as i64;
                    let deletion = Deletion { key, before: Offset(model.start) };
                    let asked = Ask::DeleteRecords(vec![deletion], std::time::Duration::from_secs(5));
                    let Answer::Deleted(deleted) = node.ask(asked).await else { panic!() };
                    assert_eq!(deleted[0].error, ErrorCode::None);
                }
                if dice.below(2) == 0 {
                    wait(1500).await;
                }
                model.check(&node, key, &mut dice).await;
                disk = match dice.below(4) {
                    0 => {
                        node.close().await.unwrap();
                        disk.copy()
                    }
                    1 => disk.copy(),
                    _ => disk.power_cut(|end| dice.below(end)),
                };
                if dice.below(2) == 0 {
                    damage(&disk, &mut dice);
                }
                node = Node::start(&disk, SMALL).await;
                model.check(&node, key, &mut dice).await;
            }
        });
    }
}

#[test]
fn eos_e05_a_waiting_reader_of_committed_records_is_woken_by_the_marker_alone() {
    mini_host::run(1, async {
        let node = Node::start(&MemoryDisk::default(), SMALL).await;
        let key = node.create("t").await;
        let first = batch(1, 0, 0, true);
        assert_eq!(node.in_transaction(key, &first, Some(Entry::Unasked)).await, (ErrorCode::None, 0));
        let watch = Watch { from: ShardId(0), number: 7, wait: std::time::Duration::from_secs(60) };
        let woken = node.ask(Ask::Watch(vec![WatchItem { key, seen: Offset(0), is_committed: true }], watch));
        assert_eq!(node.shard.waiting_fetches(), 1);
        assert_eq!(node.produce(key, &batch(2, 0, 0, false)).await, (ErrorCode::None, 1));
        wait(100).await;
        assert_eq!(node.shard.waiting_fetches(), 1, "nothing that it may read has come");
        assert_eq!(node.mark(marker(key, 1, 0, Outcome::Abort, false)).await, ErrorCode::None);
        assert!(matches!(woken.await, Answer::Woken));
        assert_eq!(node.consume(key, 0, 1 << 20).await, (vec![1], 3));
    });
}

#[test]
fn a_batch_that_no_coordinator_knows_begins_nothing() {
    mini_host::run(1, async {
        let node = Node::start(&MemoryDisk::default(), SMALL).await;
        let key = node.create("t").await;
        let first = batch(1, 0, 0, true);
        assert_eq!(node.in_transaction(key, &first, None).await, (ErrorCode::InvalidTxnState, -1));
        assert_eq!(node.in_transaction(key, &first, Some(Entry::Unasked)).await, (ErrorCode::None, 0));
        let gone = PartitionKey { partition: 7, ..key };
        let code = node.mark(marker(gone, 1, 0, Outcome::Abort, false)).await;
        assert_eq!(code, ErrorCode::UnknownTopicOrPartition);
        let code = node.mark(marker(key, 1, 0, Outcome::Abort, true)).await;
        assert_eq!(code, ErrorCode::InvalidProducerEpoch, "of the new protocol, a marker has a newer epoch");
        assert_eq!(node.mark(marker(key, 1, 1, Outcome::Abort, true)).await, ErrorCode::None);
        let older = Marker { coordinator_epoch: 0, ..marker(key, 1, 1, Outcome::Abort, true) };
        assert_eq!(node.mark(older).await, ErrorCode::TransactionCoordinatorFenced);
        assert_eq!(node.read(key, 0).await.high_watermark, Offset(2), "what is refused is not written");
    });
}
