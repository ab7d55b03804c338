//! A log start that moves on a whole shard: durable before it is seen, never back, and the files below it go.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelane::broker::messages::{Answer, Ask, Deleted, Deletion, OffsetQuery, PartitionKey};
use corelane::ids::{Offset, ShardId};
use corelane::log::names::{self, Kind};
use corelane::runtime::clock;
use corelane::runtime::host::{self, Queue};
use corelane::wire::error_code::ErrorCode;

use crate::dice::Dice;
use crate::memory_disk::{MemoryDisk, WriteFault};
use crate::mini_host;
use crate::shard::{DATA, Node, SMALL, batch, produced, wait, within};

const HIGH_WATERMARK: i64 = -1;
/// Batches of this size fill a segment in fours.
const BATCH_BYTES: usize = 3_000;
/// A segment of a topic takes four such batches; what is deleted is unlinked after a second.
const TOPIC: &[(&str, &str)] = &[("internal.segment.bytes", "13000"), ("file.delete.delay.ms", "1000")];

fn ask(node: &Node, key: PartitionKey, before: i64, patience: Duration) -> impl Future<Output = Deleted> + 'static {
    let ask = Ask::DeleteRecords(vec![Deletion { key, before: Offset(before) }], patience);
    let answer = node.shard.ask(ShardId(0), ask);
    async move {
        let Answer::Deleted(mut results) = answer.await else { panic!() };
        results.remove(0)
    }
}

pub(crate) async fn delete(node: &Node, key: PartitionKey, before: i64) -> (ErrorCode, i64) {
    let deleted = ask(node, key, before, Duration::from_secs(5)).await;
    (deleted.error, deleted.low_watermark.0)
}

pub(crate) async fn start_of(node: &Node, key: PartitionKey) -> i64 {
    let query = OffsetQuery { key, timestamp: -2, leader_epoch: -1, is_committed: false };
    let Answer::Offsets(found) = node.shard.ask(ShardId(0), Ask::Offsets(vec![query])).await else { panic!() };
    found[0].offset.0
}

/// Base offsets of the segments of a topic's only partition, and how many of its files wait to be unlinked.
pub(crate) fn files(disk: &MemoryDisk, topic: &str) -> (Vec<i64>, usize) {
    let folder = Path::new(DATA).join(format!("kafka/{topic}-0"));
    let names: Vec<_> = disk.paths().into_iter().filter(|path| path.parent() == Some(&folder)).collect();
    let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    let base = |name: &&str| names::parse(name).filter(|(_, kind)| *kind == Kind::Log).map(|(base, _)| base.0);
    let bases = names.iter().filter_map(base).collect();
    (bases, names.iter().filter(|name| names::parse_deleted(name).is_some()).count())
}

/// A topic with ten batches of one producer: segments at 0, 4 and 8.
async fn ten(node: &Node) -> (PartitionKey, Vec<Bytes>) {
    let key = node.create_with("t", TOPIC).await;
    (key, ten_batches(node, key, BATCH_BYTES).await)
}

async fn ten_batches(node: &Node, key: PartitionKey, bytes: usize) -> Vec<Bytes> {
    let batches: Vec<_> = (0..10).map(|sequence| batch(1, sequence, bytes)).collect();
    for (offset, batch) in (0..).zip(&batches) {
        assert_eq!(node.produce(key, batch).await, (ErrorCode::None, offset));
    }
    batches
}

/// The last five batches are still known, and the next one follows.
async fn producer_is_remembered(node: &Node, key: PartitionKey, batches: &[Bytes]) {
    for offset in [7, 5, 9, 8, 6] {
        assert_eq!(node.produce(key, &batches[offset]).await, (ErrorCode::None, offset as i64), "a retry");
    }
    assert_eq!(node.produce(key, &batches[4]).await.0, ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(node.produce(key, &batch(1, 10, 20)).await, (ErrorCode::None, 10));
}

#[test]
fn segments_wholly_below_the_start_are_renamed_and_then_unlinked() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (key, batches) = ten(&node).await;
        assert_eq!(delete(&node, key, 7).await, (ErrorCode::None, 7));
        wait(100).await;
        let (bases, waiting) = files(&disk, "t");
        assert!(bases == [4, 8] && waiting > 0, "{bases:?}, {waiting}");
        wait(2000).await;
        assert_eq!(files(&disk, "t"), (vec![4, 8], 0));
        assert_eq!(node.read(key, 6).await.error, ErrorCode::OffsetOutOfRange);
        let found = node.read(key, 7).await;
        assert_eq!(
            (found.error, found.log_start_offset, found.high_watermark),
            (ErrorCode::None, Offset(7), Offset(10))
        );
        producer_is_remembered(&node, key, &batches).await;
    });
}

#[test]
fn when_everything_goes_a_new_segment_keeps_the_end() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (key, batches) = ten(&node).await;
        assert_eq!(delete(&node, key, HIGH_WATERMARK).await, (ErrorCode::None, 10));
        wait(2500).await;
        assert_eq!(files(&disk, "t"), (vec![10], 0));
        assert_eq!(node.read(key, 10).await.error, ErrorCode::None);
        for crashed in [disk.copy(), disk.power_cut(|_| 0)] {
            let node = Node::start(&crashed, SMALL).await;
            assert_eq!(start_of(&node, key).await, 10);
            producer_is_remembered(&node, key, &batches).await;
        }
        assert_eq!(node.close().await, Ok(()));
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!(start_of(&node, key).await, 10);
        producer_is_remembered(&node, key, &batches).await;
    });
}

#[test]
fn bounds_are_those_of_the_protocol_and_the_start_never_moves_back() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (key, _) = ten(&node).await;
        for before in [11, -2, i64::MAX, i64::MIN] {
            assert_eq!(delete(&node, key, before).await, (ErrorCode::OffsetOutOfRange, -1));
        }
        assert_eq!(delete(&node, key, 0).await, (ErrorCode::None, 0));
        assert_eq!(delete(&node, key, 7).await, (ErrorCode::None, 7));
        assert_eq!(delete(&node, key, 5).await, (ErrorCode::None, 7));
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!(delete(&node, key, 5).await, (ErrorCode::None, 7));
        assert_eq!(delete(&node, key, 10).await, (ErrorCode::None, 10));
    });
}

/// The disk at each step of a deletion, and whether it had been answered by then.
async fn steps_of_a_deletion(disk: &MemoryDisk, before: i64) -> (PartitionKey, Vec<Bytes>, Vec<(MemoryDisk, bool)>) {
    let node = Node::start(disk, SMALL).await;
    let (key, batches) = ten(&node).await;
    wait(1500).await;
    let answered = Rc::new(Cell::new(false));
    let (deletion, answers) = (ask(&node, key, before, Duration::from_secs(5)), Rc::clone(&answered));
    host::spawn(Queue::Requests, async move {
        assert_eq!(deletion.await.error, ErrorCode::None);
        answers.set(true);
    });
    let mut steps = Vec::new();
    // Until it is answered microseconds count; then the removal, a checkpoint and the unlinking follow.
    let waits = std::iter::repeat_n(10, 15).chain(std::iter::repeat_n(150_000, 20));
    for micros in waits {
        steps.push((disk.copy(), answered.get()));
        clock::sleep(Duration::from_micros(micros)).await;
    }
    assert!(!steps[0].1 && answered.get());
    (key, batches, steps)
}

#[test]
fn at_every_step_the_start_is_the_old_or_the_new_one_and_once_answered_the_new_one() {
    for before in [3, 7, 10] {
        let disk = MemoryDisk::default();
        let (key, batches, steps) = mini_host::run(1, {
            let disk = disk.clone();
            async move { steps_of_a_deletion(&disk, before).await }
        });
        let mut found = [0, 0];
        for (at, (step, answered)) in steps.into_iter().enumerate() {
            let mut dice = Dice::of(at as u64);
            for crashed in [step.copy(), step.power_cut(|end| dice.below(end)), step.power_cut(|_| 0)] {
                let batches = batches.clone();
                let start = mini_host::run(1, async move {
                    let node = Node::start(&crashed, SMALL).await;
                    let start = start_of(&node, key).await;
                    producer_is_remembered(&node, key, &batches).await;
                    assert_eq!(node.read(key, 10).await.high_watermark, Offset(11));
                    let again = Node::start(&crashed.copy(), SMALL).await;
                    assert_eq!(start_of(&again, key).await, start, "a second start changes nothing");
                    wait(3000).await;
                    let (bases, waiting) = files(&crashed, "t");
                    let is_tidy = bases.get(1).is_none_or(|next| *next > start);
                    assert!(is_tidy && waiting == 0, "start {start}: {bases:?}, {waiting} wait");
                    start
                });
                assert!(start == before || (start == 0 && !answered), "step {at}: {start}, answered: {answered}");
                found[usize::from(start == before)] += 1;
            }
        }
        assert!(found[0] > 0 && found[1] > 0, "{found:?}");
    }
}

/// So many others that checkpoints of one partition are deltas.
async fn many_others(node: &Node) -> PartitionKey {
    for other in 0..150 {
        node.create(&format!("other-{other}")).await;
    }
    node.create("other").await
}

/// Writes until the files of the commit log are used again, with a checkpoint behind each batch.
async fn use_log_again(node: &Node, other: PartitionKey) {
    for sequence in 0..10 {
        assert_eq!(node.produce(other, &batch(2, sequence, 900_000)).await.0, ErrorCode::None);
        wait(1100).await;
    }
}

#[test]
fn a_start_is_in_the_checkpoint_that_lets_go_of_its_record() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (key, other) = (ten(&node).await.0, many_others(&node).await);
        wait(2500).await;
        assert_eq!(delete(&node, key, 3).await, (ErrorCode::None, 3));
        use_log_again(&node, other).await;
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!(start_of(&node, key).await, 3);
    });
}

#[test]
fn a_checkpoint_between_a_deletion_and_its_answer_has_the_new_start() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (key, other) = (ten(&node).await.0, many_others(&node).await);
        wait(2500).await;
        disk.hold_blocks(true);
        let deletion = ask(&node, key, 3, Duration::from_secs(20));
        let answered = Rc::new(Cell::new(false));
        let answers = Rc::clone(&answered);
        host::spawn(Queue::Requests, async move {
            assert_eq!(deletion.await.error, ErrorCode::None);
            answers.set(true);
        });
        wait(2500).await;
        assert_eq!(start_of(&node, key).await, 0, "not durable, so not seen");
        disk.hold_blocks(false);
        wait(10).await;
        assert!(answered.get());
        use_log_again(&node, other).await;
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!(start_of(&node, key).await, 3);
    });
}

#[test]
fn a_deletion_whose_group_is_not_written_in_time_is_told_so_and_happens_all_the_same() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (key, _) = ten(&node).await;
        disk.hold_blocks(true);
        let (hasty, patient) = (ask(&node, key, 7, Duration::ZERO), ask(&node, key, 5, Duration::from_secs(20)));
        let hasty = hasty.await;
        assert_eq!((hasty.error, hasty.low_watermark), (ErrorCode::RequestTimedOut, Offset(0)));
        disk.hold_blocks(false);
        let patient = patient.await;
        assert_eq!((patient.error, patient.low_watermark), (ErrorCode::None, Offset(7)), "it waits for the one before");
    });
}

#[test]
fn after_a_failed_commit_a_deletion_is_refused_and_reads_go_on() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (key, _) = ten(&node).await;
        wait(3000).await;
        disk.fail_write(0, WriteFault::Short(0));
        assert_eq!(delete(&node, key, 7).await, (ErrorCode::KafkaStorageError, -1));
        assert_eq!(delete(&node, key, 5).await, (ErrorCode::KafkaStorageError, -1));
        assert_eq!(node.read(key, 0).await.error, ErrorCode::None);
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!((start_of(&node, key).await, node.read(key, 0).await.high_watermark), (0, Offset(10)));
    });
}

/// A failed partition holds the whole commit log: nothing can be written, but records can be deleted.
#[test]
fn a_full_commit_log_takes_log_starts() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (node, bad, good) = Node::start_with_a_failed_partition(&disk).await;
        let mut end = 0;
        for bytes in [900_000, 10_000, 10] {
            loop {
                let sequence = i32::try_from(end).unwrap();
                let sent = within(30, node.send(good, &[batch(1, sequence, bytes)])).await.map(produced).unwrap();
                if sent[0].error != ErrorCode::None {
                    break;
                }
                end += 1;
            }
        }
        for before in 1..=end {
            assert_eq!(delete(&node, good, before).await, (ErrorCode::None, before));
        }
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!(start_of(&node, good).await, end);
        assert_eq!(node.read(bad, 0).await.high_watermark, Offset(1));
    });
}

#[test]
fn a_full_disk_is_emptied_by_deleting_records() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let key = node.create_with("t", &[("segment.bytes", "1300000"), ("file.delete.delay.ms", "1000")]).await;
        ten_batches(&node, key, 300_000).await;
        wait(3000).await;
        disk.limit(Some(disk.total_bytes()));
        wait(1500).await;
        assert_eq!(node.produce(key, &batch(1, 10, 10)).await.0, ErrorCode::KafkaStorageError);
        assert_eq!(delete(&node, key, HIGH_WATERMARK).await, (ErrorCode::None, 10));
        wait(3500).await;
        assert_eq!(node.produce(key, &batch(1, 10, 10)).await, (ErrorCode::None, 10));
    });
}

/// Files that a stop left renamed are unlinked by the next start, and a stop does not wait for them.
#[test]
fn what_waits_to_be_unlinked_is_gone_after_the_next_start() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (key, batches) = ten(&node).await;
        assert_eq!(delete(&node, key, 9).await, (ErrorCode::None, 9));
        wait(50).await;
        let before = clock::monotonic();
        assert_eq!(node.close().await, Ok(()));
        assert!(clock::monotonic() - before < Duration::from_millis(500));
        assert!(files(&disk, "t").1 > 0);
        let disk = disk.copy();
        let node = Node::start(&disk, SMALL).await;
        assert_eq!(files(&disk, "t"), (vec![8], 0));
        assert_eq!(start_of(&node, key).await, 9);
        producer_is_remembered(&node, key, &batches).await;
    });
}

/// A topic that is deleted while its records are: nobody waits for ever, and the name is free.
#[test]
fn a_topic_deleted_beside_its_records_holds_nothing_up() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let (key, _) = ten(&node).await;
        disk.hold_blocks(true);
        let deletion = ask(&node, key, 7, Duration::from_secs(60));
        wait(10).await;
        let deleting = node.shard.clone();
        let command = corelane::broker::catalog::Command::DeleteTopics { ids: vec![key.topic] };
        host::spawn(Queue::Requests, async move { drop(deleting.change_catalog(command).await) });
        wait(10).await;
        disk.hold_blocks(false);
        let deleted = within(5, deletion).await.expect("an answer");
        assert!([ErrorCode::None, ErrorCode::UnknownTopicOrPartition].contains(&deleted.error), "{deleted:?}");
        wait(2000).await;
        let (key, batches) = ten(&node).await;
        producer_is_remembered(&node, key, &batches).await;
        let left: Vec<PathBuf> =
            disk.paths().into_iter().filter(|path| path.to_string_lossy().contains("-delete")).collect();
        assert!(left.is_empty(), "{left:?}");
    });
}
