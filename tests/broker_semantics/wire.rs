//! The wire itself: headers, versions, null against empty, order of answers (field cases WIRE).

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use corelane::requests::Api;
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DescribeClusterRequest, FetchRequest, InitProducerIdRequest,
    MetadataRequest,
};
use kafka_protocol::protocol::{Encodable, Request};
use uuid::Uuid;

use super::harness::client::{name, text};
use super::harness::{Client, Folder, Start};
use super::world::*;

const API_VERSIONS: i16 = 18;
const METADATA: i16 = 3;
/// The client id "x".
const X: &[u8] = &[0, 1, b'x'];

/// A frame whose every byte is given.
fn frame(key: i16, version: i16, client_id: &[u8], rest: &[u8]) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_u32((8 + client_id.len() + rest.len()) as u32);
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_u32(0x0102_0304);
    frame.put_slice(client_id);
    frame.put_slice(rest);
    frame
}

impl World {
    /// Sends a frame; gives what stands behind the correlation id of the answer.
    fn raw(&mut self, frame: &[u8]) -> Bytes {
        self.client.stream().write_all(frame).unwrap();
        let mut answer = self.client.receive_frame().unwrap();
        assert_eq!(answer.split_to(4), [1, 2, 3, 4][..]);
        answer
    }
}

/// Tagged fields of the header, name, version, tagged fields of the body.
const SOFTWARE: [u8; 6] = [0, 2, b'x', 2, b'1', 0];

/// The answer in the form of version 0 names one key with its versions; the connection stays.
#[test]
fn wire_01_versions_of_the_future_are_answered_in_the_form_of_version_zero() {
    let mut world = World::new("wire01");
    let newest = *Api::ApiVersions.versions().end();
    for version in [newest + 1, newest + 100, i16::MAX, -1] {
        for body in [&[0][..], &[0; 30], &[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 9, 9]] {
            let told = world.raw(&frame(API_VERSIONS, version, X, body));
            assert_eq!(told, [0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, newest as u8][..], "version {version}");
        }
        let told = world.raw(&frame(API_VERSIONS, newest, X, &SOFTWARE));
        assert_eq!(told[..3], [0, 0, Api::ALL.len() as u8 + 1], "version {newest} on the same connection");
    }
}

/// The error stands straight behind the correlation id, whatever the version.
#[test]
fn wire_02_the_answer_to_api_versions_has_the_oldest_header() {
    let mut world = World::new("wire02");
    for version in Api::ApiVersions.versions() {
        let body = if version >= 3 { &SOFTWARE[..] } else { &[] };
        let told = world.raw(&frame(API_VERSIONS, version, X, body));
        let keys = Api::ALL.len() as u8;
        let expected = if version >= 3 { vec![0, 0, keys + 1, 0, 0] } else { vec![0, 0, 0, 0, 0, keys, 0, 0] };
        assert_eq!(told[..expected.len()], expected, "version {version}");
    }
}

/// All other flexible answers begin with tagged fields, of which there are none; older ones begin with their body.
#[test]
fn wire_02_other_answers_have_tagged_fields_where_they_are_flexible() {
    let mut world = World::new("wire02-others");
    let mut begins = |version: i16, request: BytesMut, expected: &[u8]| {
        let told = world.raw(&request);
        assert_eq!(told[..expected.len()], *expected, "version {version}");
    };
    fn of<R: Request + Encodable>(version: i16, request: &R) -> BytesMut {
        let mut rest = BytesMut::new();
        if R::header_version(version) >= 2 {
            rest.put_u8(0);
        }
        request.encode(&mut rest, version).unwrap();
        frame(R::KEY, version, X, &rest)
    }
    // Throttle time, then the number of brokers; throttle time, then the error.
    for (version, expected) in [(8, &[0, 0, 0, 0, 0, 0, 0, 1][..]), (9, &[0, 0, 0, 0, 0, 2])] {
        begins(version, of(version, &MetadataRequest::default()), expected);
    }
    for (version, expected) in [(1, &[0, 0, 0, 0, 0, 0][..]), (2, &[0, 0, 0, 0, 0, 0, 0])] {
        let request = InitProducerIdRequest::default().with_transactional_id(None);
        begins(version, of(version, &request), expected);
    }
    for (version, expected) in [(11, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..]), (12, &[0; 11])] {
        begins(version, of(version, &fetch_from(&[(0, 0)]).with_min_bytes(0)), expected);
    }
    begins(0, of(0, &DescribeClusterRequest::default()), &[0, 0, 0, 0, 0, 0, 0, 0, 23]);
}

/// The client id has a length of 16 bits also in a flexible header, and tagged fields follow it, also when it is null.
#[test]
fn wire_03_client_ids_that_are_null_or_empty_change_nothing() {
    let mut world = World::new("wire03");
    let all_topics = [0, 0, 1, 0, 0, 0];
    let with_tags = [&[1, 7, 2, 8, 9][..], &SOFTWARE[1..]].concat();
    let mut told = BTreeMap::new();
    for client_id in [&[0xff, 0xff][..], &[0, 0], X] {
        let mut ask = |what, frame: BytesMut| told.entry(what).or_insert_with(Vec::new).push(world.raw(&frame));
        ask("versions", frame(API_VERSIONS, 3, client_id, &SOFTWARE));
        ask("versions", frame(API_VERSIONS, 3, client_id, &with_tags));
        ask("versions before flexible", frame(API_VERSIONS, 0, client_id, &[]));
        ask("topics", frame(METADATA, 9, client_id, &all_topics));
        ask("topics", frame(METADATA, 9, client_id, &all_topics));
        ask("topics before flexible", frame(METADATA, 1, client_id, &[0xff; 4]));
    }
    for (what, answers) in told {
        assert!(answers.iter().all(|answer| *answer == answers[0] && answer.len() > 20), "{what}");
    }
}

/// No bytes, never null: of an empty partition, of one that is not known, of an offset that is not there.
#[test]
fn wire_05_records_are_never_null() {
    let mut world = World::new("wire05");
    let (id, _) = world.client.topic(TOPIC).unwrap();
    for version in Api::Fetch.versions() {
        for (topic, id, partition, offset, error) in [
            (TOPIC, id, 0, 0, 0),
            (TOPIC, id, 0, 7, 1),
            (TOPIC, id, 99, 0, 3),
            ("nosuch", Uuid::from_u128(7), 0, 0, if version >= 13 { 100 } else { 3 }),
        ] {
            let mut request = fetch_of(topic, &[(partition, offset)]).with_min_bytes(0);
            if version >= 13 {
                request.topics[0].topic = name("");
                request.topics[0].topic_id = id;
            }
            let answer = world.fetch_one(version, &request);
            assert_eq!((answer.error_code, answer.records), (error, Some(Bytes::new())), "version {version} {topic}");
        }
    }
}

#[test]
fn wire_07_answers_come_in_the_order_of_the_requests() {
    let mut world = World::new("wire07");
    let begun = Instant::now();
    let waits = world.client.send(12, &fetch_from(&[(0, 0)]).with_max_wait_ms(700));
    let quick = world.client.send(12, &MetadataRequest::default());
    assert!(world.client.receive::<FetchRequest>(12, waits).responses[0].partitions[0].error_code == 0);
    assert!(begun.elapsed() >= Duration::from_millis(700));
    assert_eq!(world.client.receive::<MetadataRequest>(12, quick).brokers.len(), 1);
}

/// Closed, and soon: a client that got no answer at all would wait for its time-out.
#[test]
fn wire_09_what_is_not_served_ends_the_connection_at_once() {
    let mut world = World::new("wire09");
    let newer = *Api::Fetch.versions().end() + 1;
    for (key, version) in [(Api::Fetch.key(), newer), (999, 0), (-1, 0), (METADATA, -1), (METADATA, 99)] {
        let mut client = Client::connect(world.broker.address);
        let begun = Instant::now();
        client.stream().write_all(&frame(key, version, X, &[0; 20])).unwrap();
        assert!(client.receive_frame().is_err(), "key {key} version {version} is answered");
        // Twenty times the second that is allowed: the machine may be busy.
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(world.send(plain(1)), (0, 0), "the others go on");
}

#[test]
fn wire_11_minus_one_means_the_brokers_default() {
    let folder = Folder::new("wire11");
    let broker = Start::on(&folder).set("num.partitions=3").start();
    let mut client = Client::connect(broker.address);
    client.create_topic("there", 1, &[]);
    let by_hand = vec![CreatableReplicaAssignment::default().with_broker_ids(vec![1.into()])];
    for version in Api::CreateTopics.versions() {
        let mut make = |topic: &str, partitions, replicas, by_hand: &[CreatableReplicaAssignment], look_only| {
            let asked = CreatableTopic::default().with_name(name(topic)).with_num_partitions(partitions);
            let asked = asked.with_replication_factor(replicas).with_assignments(by_hand.to_vec());
            let request = CreateTopicsRequest::default().with_topics(vec![asked]).with_timeout_ms(30_000);
            client.ask(version, &request.with_validate_only(look_only)).topics[0].error_code
        };
        let of_defaults = format!("defaults-{version}");
        assert_eq!(make("looked-at", -1, -1, &[], true), 0);
        assert_eq!(make(&of_defaults, -1, -1, &[], false), 0, "version {version}");
        assert_eq!(make("by-hand", -1, -1, &by_hand, true), 0);
        assert_eq!(make("none", 0, 1, &[], false), 37);
        assert_eq!(make("three", 1, 3, &[], false), 38);
        assert_eq!(make("both", 1, 1, &by_hand, false), 42);
        assert_eq!(make("there", 1, 1, &[], false), 36);
        assert_eq!(client.topic(&of_defaults).map(|(_, partitions)| partitions), Some(3));
        for not_made in ["looked-at", "by-hand", "none", "three", "both"] {
            assert_eq!(client.topic(not_made), None, "{not_made}");
        }
    }
}

/// Once Metadata names the topic without an error, the first batch is taken.
#[test]
fn wire_12_a_topic_is_announced_when_it_takes_writes() {
    let mut world = World::new("wire12");
    let ask = |client: &mut Client, version, topic: &str, may_create| {
        let topics = vec![MetadataRequestTopic::default().with_name(Some(name(topic)))];
        let request = MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(may_create);
        client.ask(version, &request).topics[0].error_code
    };
    for version in [4, 9, 13] {
        for number in 0..10 {
            let topic = format!("new-{version}-{number}");
            assert_eq!(ask(&mut world.client, version, &topic, false), 3);
            assert_eq!(world.client.topic(&topic), None, "asking alone makes none");
            loop {
                match ask(&mut world.client, version, &topic, true) {
                    0 => break,
                    error => assert!(error == 3 || error == 5, "{error}"),
                }
            }
            assert_eq!(world.short(&topic, 0, plain(1)), (0, 0, -1, 0));
        }
    }
    let folder = Folder::new("wire12-off");
    let broker = Start::on(&folder).set("auto.create.topics.enable=false").start();
    let mut client = Client::connect(broker.address);
    assert_eq!(ask(&mut client, 9, "new", true), 3);
    assert_eq!(client.topic("new"), None);
}

/// The same over versions, by the client's own decoder: nothing stands behind any answer.
#[test]
fn every_version_of_api_versions_is_read_whole() {
    let mut world = World::new("versions-whole");
    for version in Api::ApiVersions.versions() {
        let software = if version >= 3 { "x" } else { "" };
        let request = ApiVersionsRequest::default().with_client_software_name(text(software));
        let answer = world.client.ask(version, &request.with_client_software_version(text(software)));
        let keys: Vec<_> = answer.api_keys.iter().map(|api| api.api_key).collect();
        assert_eq!(keys, Api::ALL.map(Api::key));
    }
}
