//! Offsets of groups in transactions: statements E09 to E11, and the offsets of D13.

use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;

use super::harness::client::{name, text};
use super::members::*;
use super::world::TOPIC;

/// Versions with and without a place in the transaction made before.
const ADDS: i16 = 5;
const VERIFIES: i16 = 4;
const VERIFIES_OLD: i16 = 3;
/// Nothing that is waited for takes so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two requests of a client that is told to come again.
const PAUSE: Duration = Duration::from_millis(5);
const COME_AGAIN: [i16; 4] = [14, 15, 16, 51];

/// A producer with a transactional id.
struct Writer {
    id: &'static str,
    producer: i64,
    epoch: i16,
}

/// Asks until the answer is not one of those that pass.
fn until_decided<T>(mut ask: impl FnMut() -> T, code: impl Fn(&T) -> i16) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if !COME_AGAIN.contains(&code(&answer)) || Instant::now() > until {
            return answer;
        }
        thread::sleep(PAUSE);
    }
}

impl GroupWorld {
    fn writer(&mut self, id: &'static str) -> Writer {
        let find = FindCoordinatorRequest::default().with_key(text(id)).with_key_type(1);
        let found = until_decided(|| self.client.ask(3, &find), |answer| answer.error_code);
        assert_eq!(found.error_code, 0);
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(id))))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let answer = until_decided(|| self.client.ask(4, &request), |answer| answer.error_code);
        assert_eq!(answer.error_code, 0);
        Writer { id, producer: answer.producer_id.0, epoch: answer.producer_epoch }
    }

    /// Commits offsets of the usual topic in a transaction; gives the errors.
    fn write(&mut self, version: i16, writer: &Writer, group: &str, offsets: &[(i32, i64)]) -> Vec<i16> {
        self.write_as(version, writer, group, (-1, ""), offsets)
    }

    fn write_as(
        &mut self,
        version: i16,
        writer: &Writer,
        group: &str,
        (generation, member): (i32, &str),
        offsets: &[(i32, i64)],
    ) -> Vec<i16> {
        let partitions = offsets.iter().map(|(index, offset)| {
            let partition = TxnOffsetCommitRequestPartition::default().with_partition_index(*index);
            partition.with_committed_offset(*offset).with_committed_metadata(Some(text("")))
        });
        let topic = TxnOffsetCommitRequestTopic::default().with_name(name(TOPIC)).with_partitions(partitions.collect());
        let mut request = TxnOffsetCommitRequest::default()
            .with_transactional_id(TransactionalId(text(writer.id)))
            .with_group_id(group_id(group))
            .with_producer_id(ProducerId(writer.producer))
            .with_producer_epoch(writer.epoch)
            .with_topics(vec![topic]);
        if version >= 3 {
            request = request.with_generation_id(generation).with_member_id(text(member));
        }
        let codes = |answer: &TxnOffsetCommitResponse| -> Vec<i16> {
            answer.topics.iter().flat_map(|topic| &topic.partitions).map(|one| one.error_code).collect()
        };
        codes(&until_decided(|| self.client.ask(version, &request), |answer| codes(answer)[0]))
    }

    /// Brings the group's partition into the transaction.
    fn add_group(&mut self, writer: &Writer, group: &str) {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(TransactionalId(text(writer.id)))
            .with_producer_id(ProducerId(writer.producer))
            .with_producer_epoch(writer.epoch)
            .with_group_id(group_id(group));
        let answer = until_decided(|| self.client.ask(3, &request), |answer| answer.error_code);
        assert_eq!(answer.error_code, 0);
    }

    /// Ends the transaction; the writer goes on with the next epoch.
    fn end(&mut self, writer: &mut Writer, commits: bool) {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(writer.id)))
            .with_producer_id(ProducerId(writer.producer))
            .with_producer_epoch(writer.epoch)
            .with_committed(commits);
        let answer = until_decided(|| self.client.ask(5, &request), |answer| answer.error_code);
        assert_eq!(answer.error_code, 0);
        (writer.producer, writer.epoch) = (answer.producer_id.0, answer.producer_epoch);
    }

    /// Offset and error of each partition of the usual topic.
    fn found(&mut self, group: &str, require_stable: bool, partitions: &[i32]) -> Vec<(i64, i16)> {
        let topic = OffsetFetchRequestTopic::default().with_name(name(TOPIC));
        let topic = topic.with_partition_indexes(partitions.to_vec());
        let request = OffsetFetchRequest::default().with_group_id(group_id(group)).with_topics(Some(vec![topic]));
        let request = request.with_require_stable(require_stable);
        let answer = until_decided(|| self.client.ask(7, &request), |answer| answer.error_code);
        assert_eq!(answer.error_code, 0);
        answer.topics[0].partitions.iter().map(|one| (one.committed_offset, one.error_code)).collect()
    }

    /// What is found once no transaction is open on partition 0.
    fn found_stable(&mut self, group: &str) -> i64 {
        let answer = until_stable(|| self.found(group, true, &[0])[0]);
        assert_eq!(answer.1, 0);
        answer.0
    }
}

fn until_stable(mut ask: impl FnMut() -> (i64, i16)) -> (i64, i16) {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if answer.1 != 88 || Instant::now() > until {
            return answer;
        }
        thread::sleep(PAUSE);
    }
}

#[test]
fn eos_e09_offsets_of_a_transaction_count_when_it_is_committed() {
    let mut world = GroupWorld::new("e09");
    let mut writer = world.writer("e09");
    assert_eq!(world.commit("g", &[(0, 3), (1, 4)]), [0, 0]);
    for (commits, after) in [(false, 3), (true, 9)] {
        assert_eq!(world.write(ADDS, &writer, "g", &[(0, 9)]), [0]);
        assert_eq!(world.found("g", true, &[0, 1]), [(-1, 88), (4, 0)]);
        assert_eq!(world.found("g", false, &[0, 1]), [(3, 0), (4, 0)]);
        world.end(&mut writer, commits);
        assert_eq!(world.found_stable("g"), after);
        assert_eq!(world.found("g", false, &[0, 1]), [(after, 0), (4, 0)]);
    }
    assert_eq!(world.write(ADDS, &writer, "new", &[(0, 1)]), [0]);
    assert_eq!(world.found("new", true, &[0]), [(-1, 88)]);
    assert_eq!(world.found("new", false, &[0]), [(-1, 0)]);
    world.end(&mut writer, false);
    assert_eq!(world.found_stable("new"), -1);
}

#[test]
fn eos_e09_offsets_that_wait_for_a_marker_survive_a_kill() {
    let mut world = GroupWorld::new("e09-kill");
    let mut writer = world.writer("e09");
    let mut other = world.writer("other");
    assert_eq!(world.commit("g", &[(0, 3)]), [0]);
    assert_eq!(world.write(ADDS, &writer, "g", &[(0, 9)]), [0]);
    assert_eq!(world.write(ADDS, &other, "h", &[(0, 9)]), [0]);
    world = world.kill_and_start();
    assert_eq!(until_stable(|| world.found("g", false, &[0])[0]), (3, 0));
    assert_eq!((world.found("g", true, &[0]), world.found("h", true, &[0])), (vec![(-1, 88)], vec![(-1, 88)]));
    world.end(&mut writer, true);
    world.end(&mut other, false);
    // The answers were sent before the markers were on their way.
    world = world.kill_and_start();
    assert_eq!((world.found_stable("g"), world.found_stable("h")), (9, -1));
    world = world.kill_and_start();
    assert_eq!((world.found_stable("g"), world.found_stable("h")), (9, -1));
}

#[test]
fn eos_e10_who_may_write_offsets_in_a_transaction() {
    let mut world = GroupWorld::new("e10");
    let mut writer = world.writer("e10");
    for version in 0..=VERIFIES_OLD {
        assert_eq!(world.write(version, &writer, "g", &[(0, 1)]), [48], "version {version}");
    }
    assert_eq!(world.write(VERIFIES, &writer, "g", &[(0, 1)]), [120]);
    assert_eq!(world.write(ADDS, &writer, "", &[(0, 1)]), [24]);
    assert_eq!(world.write(ADDS, &writer, "g", &[(7, 1)]), [3]);
    let strange = |producer, epoch| Writer { id: "e10", producer, epoch };
    for version in [VERIFIES_OLD, VERIFIES, ADDS] {
        let (producer, epoch) = (writer.producer, writer.epoch);
        assert_eq!(world.write(version, &strange(producer, epoch - 1), "h", &[(0, 1)]), [47], "version {version}");
        assert_eq!(world.write(version, &strange(producer + 7, epoch), "h", &[(0, 1)]), [49], "version {version}");
        let nobody = Writer { id: "nobody", producer, epoch };
        assert_eq!(world.write(version, &nobody, "h", &[(0, 1)]), [49], "version {version}");
    }
    world.add_group(&writer, "g");
    for version in 0..=VERIFIES {
        assert_eq!(world.write(version, &writer, "g", &[(0, i64::from(version))]), [0], "version {version}");
    }
    assert_eq!(world.write(ADDS, &writer, "g", &[(0, 5), (7, 1)]), [3, 0], "what is not there stands first");

    let member = world.alone("members");
    let is = (member.generation, member.id.as_str());
    assert_eq!(world.write_as(ADDS, &writer, "members", is, &[(0, 6)]), [0]);
    assert_eq!(world.write_as(ADDS, &writer, "members", (is.0, "stranger"), &[(0, 7)]), [25]);
    assert_eq!(world.write_as(ADDS, &writer, "members", (is.0 + 1, is.1), &[(0, 7)]), [22]);
    assert_eq!(world.write_as(ADDS, &writer, "members", (-1, ""), &[(0, 8)]), [0], "who says nothing is not checked");
    assert_eq!(world.write_as(ADDS, &writer, "nobody's", (3, "stranger"), &[(0, 8)]), [22]);

    let before = strange(writer.producer, writer.epoch);
    world.end(&mut writer, true);
    assert_eq!((world.found_stable("g"), world.found_stable("members")), (5, 8));
    assert_eq!(world.write(ADDS, &before, "g", &[(0, 9)]), [47], "the epoch before");
    assert_eq!(world.found("g", true, &[0]), [(5, 0)]);
}

#[test]
fn eos_e11_a_plain_commit_behind_that_of_a_transaction_stays() {
    let mut world = GroupWorld::new("e11");
    let mut writer = world.writer("e11");
    assert_eq!(world.write(ADDS, &writer, "g", &[(0, 9), (1, 9)]), [0, 0]);
    assert_eq!(world.commit("g", &[(0, 5)]), [0]);
    assert_eq!(world.found("g", false, &[0, 1]), [(5, 0), (-1, 0)]);
    world.end(&mut writer, true);
    assert_eq!(world.found_stable("g"), 5);
    assert_eq!(world.found("g", true, &[0, 1]), [(5, 0), (9, 0)]);
    let mut world = world.kill_and_start();
    assert_eq!(world.found_stable("g"), 5);
    assert_eq!(world.found("g", true, &[0, 1]), [(5, 0), (9, 0)]);
}

#[test]
fn eos_d13_offsets_of_several_groups_move_together() {
    let mut world = GroupWorld::new("d13");
    let groups = ["a", "b", "c", "d", "e", "f"];
    let mut writer = world.writer("d13");
    for (commits, expected) in [(false, -1), (true, 7)] {
        for group in groups {
            assert_eq!(world.write(ADDS, &writer, group, &[(0, 7)]), [0]);
        }
        world.end(&mut writer, commits);
        assert_eq!(groups.map(|group| world.found_stable(group)), [expected; 6]);
    }
}

#[test]
fn a_topic_or_a_group_that_is_deleted_meanwhile_does_not_come_back() {
    let mut world = GroupWorld::new("txn-deleted");
    let mut writer = world.writer("deleted");
    assert_eq!(world.write(ADDS, &writer, "group", &[(0, 7)]), [0]);
    assert_eq!(world.write(ADDS, &writer, "topic", &[(0, 7)]), [0]);
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id("group")]);
    assert_eq!(world.client.ask(2, &request).results[0].error_code, 0);
    assert_eq!(world.found("group", true, &[0]), [(-1, 0)]);
    world.client.delete_topic(TOPIC);
    world.client.create_topic(TOPIC, 3, &[]);
    assert_eq!(until_stable(|| world.found("topic", true, &[0])[0]), (-1, 0));
    world.end(&mut writer, true);
    let mut last = world.writer("last");
    assert_eq!(world.write(ADDS, &last, "last", &[(0, 1)]), [0]);
    world.end(&mut last, true);
    assert_eq!(world.found_stable("last"), 1);
    assert_eq!((world.found_stable("group"), world.found_stable("topic")), (-1, -1));
}
