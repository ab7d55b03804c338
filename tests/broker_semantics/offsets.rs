//! ListOffsets.

use corelane::wire::batch::Codec;
use corelane::wire::builder::BatchBuilder;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest};

use super::harness::client::name;
use super::harness::{Client, Folder, Start};
use super::world::*;

/// Error, offset, timestamp.
fn found(world: &mut World, topic: &str, timestamp: i64) -> (i16, i64, i64) {
    let answer = world.offset(topic, timestamp);
    (answer.error_code, answer.offset, answer.timestamp)
}

#[test]
fn fet_10_by_time_the_first_record_that_is_not_older() {
    let mut world = World::new("fet10");
    for timestamp in [2, 4, 6, 8] {
        world.send(BatchBuilder::new().value(timestamp, b"v"));
    }
    let expected = [(1, 0, 2), (2, 0, 2), (3, 1, 4), (5, 2, 6), (8, 3, 8), (9, -1, -1), (-1, 4, -1), (-2, 0, -1)];
    for (timestamp, offset, its_timestamp) in expected {
        assert_eq!(found(&mut world, TOPIC, timestamp), (0, offset, its_timestamp), "{timestamp}");
        let first = world.offset_as(1, TOPIC, timestamp, -1);
        assert_eq!((first.offset, first.timestamp), (offset, its_timestamp), "{timestamp}");
    }
    assert_eq!(world.offset(TOPIC, 9).leader_epoch, -1);
}

#[test]
fn fet_11_the_newest_timestamp_within_a_compressed_batch() {
    let mut world = World::new("fet11");
    assert_eq!(found(&mut world, TOPIC, -3), (0, -1, -1));
    world.send(BatchBuilder::new().codec(Codec::Gzip).value(10, b"a").value(30, b"b").value(20, b"c"));
    world.send(BatchBuilder::new().value(5, b"a").value(30, b"b").value(6, b"c"));
    assert_eq!(found(&mut world, TOPIC, -3), (0, 1, 30), "the first that has it");
    for (timestamp, offset, its_timestamp) in [(5, 0, 10), (11, 1, 30), (21, 1, 30), (31, -1, -1)] {
        assert_eq!(found(&mut world, TOPIC, timestamp), (0, offset, its_timestamp), "{timestamp}");
    }
}

/// As Kafka answers: the first offset and no time.
#[test]
fn fet_11_of_records_without_timestamps_the_first_offset_is_told() {
    let mut world = World::new("no-times");
    world.send(BatchBuilder::new().value(-1, b"a").value(-1, b"b"));
    world.send(BatchBuilder::new().value(-1, b"a"));
    assert_eq!(found(&mut world, TOPIC, -3), (0, 0, -1));
    assert_eq!(world.offset(TOPIC, -3).leader_epoch, world.offset(TOPIC, -1).leader_epoch);
    assert_eq!([found(&mut world, TOPIC, 0), found(&mut world, TOPIC, 5)], [(0, -1, -1); 2]);
    world.send(BatchBuilder::new().value(1000, b"a"));
    assert_eq!(found(&mut world, TOPIC, -3), (0, 3, 1000));
}

#[test]
fn of_append_times_the_first_offset_of_the_batch_is_told() {
    let mut world = World::with_special("append-time", "message.timestamp.type", "LogAppendTime");
    let (_, _, time, _) = world.short("special", 0, plain(3));
    assert_eq!(found(&mut world, "special", -3), (0, 0, time));
    assert_eq!(found(&mut world, "special", time), (0, 0, time));
    assert_eq!(found(&mut world, "special", time + 1), (0, -1, -1));
}

/// Version from which on a special timestamp is known; before it the answer is 35, for unknown topics too.
#[test]
fn special_timestamps_by_version() {
    let mut world = World::new("special-times");
    world.send(plain(3));
    let known_from = [(-1, 1, 3), (-2, 1, 0), (-3, 7, 2), (-4, 8, 0), (-5, 9, -1), (-6, 11, 0), (-100, 11, 0)];
    for version in 1..=10 {
        for (timestamp, from, offset) in known_from {
            let answer = world.offset_as(version, TOPIC, timestamp, -1);
            let expected = if version >= from { (0, offset) } else { (35, -1) };
            assert_eq!((answer.error_code, answer.offset), expected, "version {version}, {timestamp}");
            let unknown = world.offset_as(version, "nope", timestamp, -1).error_code;
            assert_eq!(unknown, if version >= from { 3 } else { 35 }, "version {version}, {timestamp}");
        }
    }
}

#[test]
fn a_partition_that_is_named_twice_gets_one_answer() {
    let mut world = World::new("twice");
    world.send(plain(3));
    let asked = |partitions: &[i32]| {
        let asked = partitions.iter().map(|index| ListOffsetsPartition::default().with_partition_index(*index));
        let asked = asked.map(|asked| asked.with_timestamp(-1).with_current_leader_epoch(-1));
        ListOffsetsTopic::default().with_name(name(TOPIC)).with_partitions(asked.collect())
    };
    let mut ask = |topics| {
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(topics);
        let answer = world.client.ask(7, &request);
        let all = answer.topics.into_iter().flat_map(|topic| topic.partitions);
        all.map(|one| (one.partition_index, one.error_code, one.offset)).collect::<Vec<_>>()
    };
    assert_eq!(ask(vec![asked(&[0, 1, 0, 0])]), [(0, 42, -1), (1, 0, 0)]);
    assert_eq!(ask(vec![asked(&[0]), asked(&[1, 0])]), [(0, 42, -1), (1, 0, 0)]);
    assert_eq!(ask(vec![asked(&[0, 9]), asked(&[])]), [(0, 0, 3), (9, 3, -1)]);
}

/// The epoch is that of the batch found; at the end of the log it is the present one (FET-12).
#[test]
fn fet_12_the_epoch_of_the_batch_that_was_found() {
    let folder = Folder::new("epochs");
    let start = Start::on(&folder);
    let epoch = |client: &mut Client, timestamp| {
        let asked = ListOffsetsPartition::default().with_timestamp(timestamp).with_current_leader_epoch(-1);
        let asked = ListOffsetsTopic::default().with_name(name(TOPIC)).with_partitions(vec![asked]);
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![asked]);
        client.ask(7, &request).topics[0].partitions[0].leader_epoch
    };
    let broker = start.start();
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, 1, &[]);
    let first = epoch(&mut client, -2);
    assert_eq!(first, epoch(&mut client, -1), "of an empty log the present one");
    client.produce(TOPIC, 0, &plain(1).build());
    broker.stop_cleanly();
    let broker = start.start();
    let mut client = Client::connect(broker.address);
    let second = epoch(&mut client, -1);
    assert!(second > first);
    client.produce(TOPIC, 0, &BatchBuilder::new().value(TIME + 1, b"v").build());
    let asked = [TIME, -2, TIME + 1, -3, -1].map(|timestamp| epoch(&mut client, timestamp));
    assert_eq!(asked, [first, first, second, second, second]);
    drop(broker);
}

#[test]
fn epochs_that_are_not_the_present_one_are_refused() {
    let mut world = World::new("wrong-epochs");
    let now = world.offset(TOPIC, -1).leader_epoch;
    for timestamp in [-1, -2, -3, 5] {
        let error = |world: &mut World, epoch| world.offset_as(7, TOPIC, timestamp, epoch).error_code;
        assert_eq!((error(&mut world, now), error(&mut world, now + 5), error(&mut world, now - 1)), (0, 75, 74));
    }
}
