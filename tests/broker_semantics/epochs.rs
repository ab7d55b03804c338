//! Leader epochs: OffsetForLeaderEpoch, the last fetched epoch in Fetch, and what a restart does to them.

use kafka_protocol::messages::OffsetForLeaderEpochRequest;
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};

use super::harness::client::{fetch_request, name};
use super::harness::{Client, Folder, Start};
use super::world::*;

/// Error, epoch, end offset.
type End = (i16, i32, i64);

fn end_as(client: &mut Client, version: i16, (topic, partition): (&str, i32), epoch: i32, current: i32) -> End {
    let asked = OffsetForLeaderPartition::default().with_partition(partition).with_leader_epoch(epoch);
    let asked = asked.with_current_leader_epoch(current);
    let asked = OffsetForLeaderTopic::default().with_topic(name(topic)).with_partitions(vec![asked]);
    let answer = client.ask(version, &OffsetForLeaderEpochRequest::default().with_topics(vec![asked]));
    let found = &answer.topics[0].partitions[0];
    assert_eq!((answer.topics[0].topic.as_str(), found.partition), (topic, partition));
    (found.error_code, found.leader_epoch, found.end_offset)
}

fn end_of(client: &mut Client, epoch: i32) -> End {
    end_as(client, 4, (TOPIC, 0), epoch, -1)
}

/// Error, diverging epoch, high watermark, and how many batches came.
fn fetched(client: &mut Client, offset: i64, last_epoch: i32) -> (i16, Option<(i32, i64)>, i64, usize) {
    let mut request = fetch_request(TOPIC, 0, offset, 0);
    request.topics[0].partitions[0].last_fetched_epoch = last_epoch;
    let answer = client.ask(12, &request);
    let found = &answer.responses[0].partitions[0];
    let diverging =
        (found.diverging_epoch.epoch >= 0).then_some((found.diverging_epoch.epoch, found.diverging_epoch.end_offset));
    (found.error_code, diverging, found.high_watermark, bases(found).len())
}

#[test]
fn fet_12_the_end_of_an_epoch() {
    let mut world = World::new("epoch-end");
    world.send(plain(2));
    let now = world.offset(TOPIC, -1).leader_epoch;
    let client = &mut world.client;
    for version in 2..=4 {
        let mut ask = |at, epoch, current| end_as(client, version, at, epoch, current);
        let at = (TOPIC, 0);
        for current in [-1, now] {
            assert_eq!(ask(at, now, current), (0, now, 2));
            assert_eq!(ask(at, now + 5, current), (0, -1, -1));
            assert_eq!(ask(at, -1, current), (0, -1, -1));
            assert_eq!(ask(at, now - 1, current), (0, now - 1, 0));
            assert_eq!(ask(at, -5, current), (0, -5, 0));
        }
        assert_eq!([ask(at, now, now + 5), ask(at, now, now - 1)], [(75, -1, -1), (74, -1, -1)]);
        assert_eq!(ask(at, now, -2), (74, -1, -1), "only -1 is none");
        assert_eq!(ask((TOPIC, 1), now, -1), (0, now, 0), "an empty log has the present epoch");
        assert_eq!([ask((TOPIC, 9), now, -1), ask(("nope", 0), now, -1)], [(3, -1, -1); 2]);
    }
}

/// What a reader has of an epoch that ended earlier is not what is here: it is told where to go back to (KIP-595).
#[test]
fn a_reader_whose_log_has_parted_from_ours_is_told_where() {
    let mut world = World::new("diverging");
    world.send(plain(2));
    let now = world.offset(TOPIC, -1).leader_epoch;
    let client = &mut world.client;
    assert_eq!([fetched(client, 1, now), fetched(client, 1, -1)], [(0, None, 2, 1); 2]);
    assert_eq!([fetched(client, 2, now), fetched(client, 2, -1)], [(0, None, 2, 0); 2]);
    assert_eq!(fetched(client, 5, now), (0, Some((now, 2)), 2, 0));
    assert_eq!(fetched(client, 2, now + 1), (1, None, -1, 0), "an epoch that is not known yet");
    assert_eq!(fetched(client, -1, now), (1, None, -1, 0));
    assert_eq!(fetched(client, 1, now - 1), (0, Some((now - 1, 0)), 2, 0));
}

/// A diverging answer does not wait, and stands in the answer of a session too.
#[test]
fn a_diverging_answer_comes_at_once() {
    let mut world = World::new("diverging-waits");
    world.send(plain(2));
    let now = world.offset(TOPIC, -1).leader_epoch;
    let mut request = fetch_from(&[(0, 5)]).with_max_wait_ms(25_000).with_session_epoch(0);
    request.topics[0].partitions[0].last_fetched_epoch = now;
    let first = world.fetch(12, &request);
    let next = fetch_from(&[]).with_session_id(first.session_id).with_session_epoch(1);
    let second = world.fetch(12, &next.with_topics(vec![]).with_max_wait_ms(25_000));
    for answer in [&first, &second] {
        let found = &answer.responses[0].partitions[0];
        assert_eq!((found.diverging_epoch.epoch, found.diverging_epoch.end_offset), (now, 2));
    }
}

/// Each start begins an epoch; the ones before end where the next batch came, however the broker stopped, and whatever has
/// become of the file that lists them.
#[test]
fn epochs_live_through_stops_and_kills() {
    let folder = Folder::new("epochs-live");
    let start = Start::on(&folder);
    let file = folder.data().join("kafka").join(format!("{TOPIC}-0")).join("leader-epoch-checkpoint");
    let mut begun = Vec::new();
    let mut end = 0;
    for round in 0..6 {
        let broker = start.start();
        let mut client = Client::connect(broker.address);
        if round == 0 {
            client.create_topic(TOPIC, 1, &[]);
        }
        let now = World::epoch(&mut client);
        assert_eq!(end_of(&mut client, now), (0, now, end), "round {round}");
        if round != 3 {
            begun.push((now, end));
            assert_eq!(client.produce(TOPIC, 0, &plain(3).build()).base_offset, end);
            client.produce(TOPIC, 0, &plain(2).build());
            end += 5;
        }
        for (at, (epoch, _)) in begun.iter().enumerate() {
            let next = begun.get(at + 1).map_or(end, |next| next.1);
            assert_eq!(end_of(&mut client, *epoch), (0, *epoch, next), "round {round}, {begun:?}");
            assert_eq!(fetched(&mut client, next, *epoch).0, 0);
            assert_eq!(fetched(&mut client, next + 1, *epoch).1, Some((*epoch, next)));
        }
        match round {
            0 | 2 => {
                broker.stop_cleanly();
                let lines: Vec<_> = begun.iter().map(|(epoch, start)| format!("{epoch} {start}\n")).collect();
                assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("0\n{}\n{}", lines.len(), lines.concat()));
            }
            4 => {
                broker.stop_cleanly();
                std::fs::write(&file, "0\n7\n1 1").unwrap();
            }
            _ => drop(broker), // killed
        }
    }
}

impl World {
    fn epoch(client: &mut Client) -> i32 {
        use kafka_protocol::messages::ListOffsetsRequest;
        use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
        let asked = ListOffsetsPartition::default().with_timestamp(-1).with_current_leader_epoch(-1);
        let asked = ListOffsetsTopic::default().with_name(name(TOPIC)).with_partitions(vec![asked]);
        client.ask(7, &ListOffsetsRequest::default().with_topics(vec![asked])).topics[0].partitions[0].leader_epoch
    }
}

/// The log start takes the epochs below it along; the one that holds it begins there.
#[test]
fn deleted_records_take_their_epochs_along() {
    let folder = Folder::new("epochs-deleted");
    let start = Start::on(&folder);
    let mut begun = Vec::new();
    for round in 0..3 {
        let broker = start.start();
        let mut client = Client::connect(broker.address);
        if round == 0 {
            client.create_topic(TOPIC, 1, &[]);
        }
        begun.push(World::epoch(&mut client));
        client.produce(TOPIC, 0, &plain(10).build());
        broker.stop_cleanly();
    }
    let check = |client: &mut Client, present: i32| {
        let ends = begun.iter().map(|epoch| end_of(client, *epoch));
        let expected = [(0, begun[0], 13), (0, begun[1], 20), (0, begun[2], 30)];
        assert_eq!(ends.collect::<Vec<_>>(), expected);
        assert_eq!(end_of(client, present), (0, present, 30));
    };
    let broker = start.start();
    let mut client = Client::connect(broker.address);
    assert_eq!(client.delete_records(TOPIC, 0, 13), (0, 13));
    let present = World::epoch(&mut client);
    check(&mut client, present);
    broker.stop_cleanly();
    let broker = start.start();
    let mut client = Client::connect(broker.address);
    check(&mut client, present + 1);
    assert_eq!(client.delete_records(TOPIC, 0, -1), (0, 30));
    assert_eq!(end_of(&mut client, begun[2]), (0, begun[2], 30));
    assert_eq!(fetched(&mut client, 30, begun[2]), (0, None, 30, 0), "a reader at the end reads on");
}
