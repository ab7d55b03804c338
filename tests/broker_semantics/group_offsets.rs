//! Offsets of groups, and what the outside sees of groups.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use kafka_protocol::messages::*;

use super::harness::Client;
use super::harness::client::{name, text};
use super::members::*;
use super::world::TOPIC;

const NOTHING: (i64, i32, String, i16) = (-1, -1, String::new(), 0);

/// Topic, partition and offset of each.
fn offsets(answer: &OffsetFetchResponseGroup) -> Vec<(String, i32, i64)> {
    let of_topic = |topic: &offset_fetch_response::OffsetFetchResponseTopics| {
        let name = topic.name.to_string();
        let kept = topic.partitions.iter().map(move |kept| (name.clone(), kept.partition_index, kept.committed_offset));
        kept.collect::<Vec<_>>()
    };
    let mut all: Vec<_> = answer.topics.iter().flat_map(of_topic).collect();
    all.sort();
    all
}

#[test]
fn grp_03_what_was_not_committed_looks_like_that() {
    let mut world = GroupWorld::new("grp03");
    world.commit("g", &[(1, 7)]);
    assert_eq!(world.kept("unknown", TOPIC, 0), NOTHING);
    assert_eq!(world.kept("g", TOPIC, 0), NOTHING);
    assert_eq!(world.kept("g", TOPIC, 99), NOTHING);
    assert_eq!(world.kept("g", "nope", 0), NOTHING);
    for version in 1..=7 {
        let topics = [(TOPIC, vec![1, 0]), ("nope", vec![0])];
        let topics = topics.map(|(topic, partitions)| {
            OffsetFetchRequestTopic::default().with_name(name(topic)).with_partition_indexes(partitions)
        });
        let request = OffsetFetchRequest::default().with_group_id(group_id("g")).with_topics(Some(topics.to_vec()));
        let answer = world.client.ask(version, &request);
        assert_eq!(answer.error_code, 0);
        let kept: Vec<_> = answer.topics.iter().flat_map(|topic| &topic.partitions).collect();
        let kept: Vec<_> = kept.iter().map(|one| (one.partition_index, one.committed_offset, one.error_code)).collect();
        assert_eq!(kept, [(1, 7, 0), (0, -1, 0), (0, -1, 0)], "version {version}");
    }
}

#[test]
fn grp_04_null_means_all_topics_and_a_zero_is_an_offset() {
    let mut world = GroupWorld::new("grp04");
    for topic in ["a", "b"] {
        world.client.create_topic(topic, 2, &[]);
    }
    for (topic, partition, offset) in [("a", 1, 0), ("b", 0, 5), (TOPIC, 2, 9)] {
        let request = commit_of("g", "", -1, topic, &[(partition, offset, "")]);
        assert_eq!(commit_errors(&world.client.ask(COMMIT, &request)), [0]);
    }
    let all = [("a".to_owned(), 1, 0), ("b".to_owned(), 0, 5), (TOPIC.to_owned(), 2, 9)];
    for version in 2..=7 {
        let request = OffsetFetchRequest::default().with_group_id(group_id("g")).with_topics(None);
        let answer = world.client.ask(version, &request);
        let mut found: Vec<_> = answer
            .topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|kept| (topic.name.to_string(), kept)))
            .map(|(name, kept)| (name, kept.partition_index, kept.committed_offset))
            .collect();
        found.sort();
        assert_eq!(found, all, "version {version}");
        let none = request.with_topics(Some(Vec::new()));
        assert!(world.client.ask(version, &none).topics.is_empty());
    }
    for version in [8, 9] {
        let groups = vec![wanted("g", None), wanted("h", None), wanted("g", Some(&[])), wanted("i", Some(&[]))];
        let answer = world.client.ask(version, &OffsetFetchRequest::default().with_groups(groups));
        let of = |group: &str, error: i16| {
            let is_it = |one: &&OffsetFetchResponseGroup| &**one.group_id == group && one.error_code == error;
            offsets(answer.groups.iter().find(is_it).unwrap())
        };
        assert_eq!((of("g", 0), of("h", 0), of("i", 0)), (all.to_vec(), vec![], vec![]));
        assert_eq!(of("g", 42), [], "a group that is named twice is told once");
        let none = world.client.ask(version, &OffsetFetchRequest::default());
        assert!(none.groups.is_empty());
    }
    // Kafka's clients of old had no group id at all.
    world.commit("", &[(0, 3)]);
    assert_eq!(world.kept("", TOPIC, 0).0, 3);
}

/// Killed at once after the last promise: no offset but the last is ever told again.
#[test]
fn grp_08_after_a_kill_the_last_offset_or_none_yet() {
    let mut world = GroupWorld::new("grp08");
    assert_eq!(world.commit("g", &[(0, 100)]), [0]);
    assert_eq!(world.commit("g", &[(0, 200)]), [0]);
    let mut world = world.kill_and_start();
    let until = Instant::now() + Duration::from_secs(20);
    let mut told = 0;
    while told < 50 {
        assert!(Instant::now() < until, "the coordinator never loads");
        let answer = world.fetch_offsets("g", Some(&[(TOPIC, &[0])]));
        match answer.error_code {
            0 => {
                assert_eq!(answer.topics[0].partitions[0].committed_offset, 200);
                told += 1;
            }
            error => assert!([14, 16].contains(&error), "{error}"),
        }
    }
}

#[test]
fn commits_in_every_version_keep_offset_epoch_and_metadata() {
    let mut world = GroupWorld::new("commits");
    for version in 2..=9 {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(i64::from(version));
        let partition = partition.with_committed_metadata(Some(text("what I like")));
        let partition = if version >= 6 { partition.with_committed_leader_epoch(3) } else { partition };
        let topic = OffsetCommitRequestTopic::default().with_name(name(TOPIC)).with_partitions(vec![partition]);
        let group = format!("v{version}");
        let request = OffsetCommitRequest::default().with_group_id(group_id(&group)).with_topics(vec![topic]);
        let request = request.with_generation_id_or_member_epoch(-1);
        let request = if version <= 4 { request.with_retention_time_ms(60_000) } else { request };
        assert_eq!(commit_errors(&world.client.ask(version, &request)), [0], "version {version}");
        let epoch = if version >= 6 { 3 } else { -1 };
        assert_eq!(world.kept(&group, TOPIC, 0), (i64::from(version), epoch, "what I like".to_owned(), 0));
    }
}

#[test]
fn partitions_that_do_not_exist_are_refused_and_stand_first() {
    let mut world = GroupWorld::new("no-such");
    let mut request = commit_of("g", "", -1, TOPIC, &[(0, 1, ""), (9, 2, ""), (1, 3, "")]);
    request.topics.push(commit_of("g", "", -1, "nope", &[(0, 1, "")]).topics.remove(0));
    let answer = world.client.ask(9, &request);
    let told: Vec<_> = answer
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|one| (topic.name.to_string(), one)))
        .map(|(name, one)| (name, one.partition_index, one.error_code))
        .collect();
    let of = |topic: &str, partition, error| (topic.to_owned(), partition, error);
    assert_eq!(told, [of(TOPIC, 9, 3), of(TOPIC, 0, 0), of(TOPIC, 1, 0), of("nope", 0, 3)]);
    let refused = world.client.ask(9, &request.with_generation_id_or_member_epoch(5).with_member_id(text("m")));
    assert_eq!(commit_errors(&refused), [3, 25, 25, 3], "what is said of partitions stays");
    assert!(world.client.ask(9, &commit_of("g", "", -1, TOPIC, &[]).with_topics(Vec::new())).topics.is_empty());
}

#[test]
fn metadata_up_to_its_limit() {
    let mut world = GroupWorld::new("metadata");
    let (most, more) = ("m".repeat(4096), "m".repeat(4097));
    let request = commit_of("g", "", -1, TOPIC, &[(0, 1, &most), (1, 2, &more), (2, 3, "")]);
    assert_eq!(commit_errors(&world.client.ask(9, &request)), [0, 12, 0]);
    assert_eq!(world.kept("g", TOPIC, 0), (1, -1, most, 0));
    assert_eq!(world.kept("g", TOPIC, 1), NOTHING);
}

/// A version that no library here writes: bytes by hand. Gives the body of the answer.
fn raw(client: &mut Client, key: u8, version: u8, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(body.len() + 11).unwrap());
    frame.put_slice(&[0, key, 0, version, 0, 0, 0, 9, 0xff, 0xff, 0]);
    frame.put_slice(body);
    std::io::Write::write_all(client.stream(), &frame).unwrap();
    let answer = client.receive_frame().unwrap();
    assert_eq!(answer[..5], [0, 0, 0, 9, 0], "correlation id, no tagged fields");
    answer.slice(5..)
}

#[test]
fn version_10_names_topics_by_id() {
    let mut world = GroupWorld::new("by-id");
    let (id, _) = world.client.topic(TOPIC).unwrap();
    let id = id.as_bytes();
    let commit = [
        &[2, b'g', 0xff, 0xff, 0xff, 0xff, 1, 0, 3][..],
        &id[..],
        &[3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 2, b'm', 0],
        &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0, 0, 0],
        &[9; 16],
        &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
    ];
    let answer = raw(&mut world.client, 8, 10, &commit.concat());
    let expected = [
        &[0, 0, 0, 0, 3][..],
        &id[..],
        &[3, 0, 0, 0, 8, 0, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0],
        &[9; 16],
        &[2, 0, 0, 0, 0, 0, 100, 0, 0, 0],
    ];
    assert_eq!(answer, expected.concat());

    let some = [&[2, 2, b'g', 0, 0xff, 0xff, 0xff, 0xff, 3][..], &[9; 16], &[2, 0, 0, 0, 4, 0], &id[..]];
    let some = [&some.concat()[..], &[2, 0, 0, 0, 1, 0, 0, 0, 0]].concat();
    let kept = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 2, b'm', 0, 0, 0];
    let unknown = [&[9; 16][..], &[2, 0, 0, 0, 4], &[0xff; 12], &[1, 0, 100, 0, 0]];
    let expected = [&[0, 0, 0, 0, 2, 2, b'g', 3][..], &id[..], &[2], &kept, &[0], &unknown.concat(), &[0, 0, 0, 0]];
    assert_eq!(raw(&mut world.client, 9, 10, &some), expected.concat());
    let all = [2, 2, b'g', 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let expected = [&[0, 0, 0, 0, 2, 2, b'g', 2][..], &id[..], &[2], &kept, &[0, 0, 0, 0, 0]];
    assert_eq!(raw(&mut world.client, 9, 10, &all), expected.concat());
}

#[test]
fn delete_groups_in_every_version() {
    let mut world = GroupWorld::new("delete-groups");
    let member = world.alone("busy");
    for version in 0..=2 {
        world.commit("idle", &[(0, 1)]);
        let names = ["idle", "busy", "nope", "idle"].map(group_id).to_vec();
        let answer = world.client.ask(version, &DeleteGroupsRequest::default().with_groups_names(names));
        let told: Vec<_> = answer.results.iter().map(|one| (one.group_id.as_str(), one.error_code)).collect();
        assert_eq!(told, [("idle", 0), ("busy", 68), ("nope", 69)], "version {version}");
        assert_eq!(world.kept("idle", TOPIC, 0), NOTHING);
    }
    let answer = raw(&mut world.client, 42, 3, &[2, 5, b'n', b'o', b'p', b'e', 0]);
    assert_eq!(answer, [&[0, 0, 0, 0, 2][..], b"\x05nope", &[0, 69, 0, 0, 0]].concat());
    drop(member);
}

#[test]
fn offset_delete_partition_by_partition() {
    let mut world = GroupWorld::new("offset-delete");
    world.commit("g", &[(0, 1), (1, 2)]);
    let mut ask = |group: &str, topics: &[(&str, &[i32])]| {
        let topic = |(topic, partitions): &(&str, &[i32])| {
            let partition = |index: &i32| OffsetDeleteRequestPartition::default().with_partition_index(*index);
            let partitions = partitions.iter().map(partition).collect();
            OffsetDeleteRequestTopic::default().with_name(name(topic)).with_partitions(partitions)
        };
        let topics = topics.iter().map(topic).collect();
        let request = OffsetDeleteRequest::default().with_group_id(group_id(group)).with_topics(topics);
        let answer = world.client.ask(0, &request);
        let all = answer.topics.iter().flat_map(|topic| &topic.partitions);
        (answer.error_code, all.map(|one| (one.partition_index, one.error_code)).collect::<Vec<_>>())
    };
    assert_eq!(ask("", &[(TOPIC, &[0])]), (24, vec![]));
    assert_eq!(ask("nope", &[(TOPIC, &[0])]), (69, vec![]));
    assert_eq!(ask("nope", &[]), (69, vec![]));
    assert_eq!(ask("g", &[(TOPIC, &[0, 9]), ("nope", &[4])]), (0, vec![(9, 3), (0, 0), (4, 3)]));
    assert_eq!((world.kept("g", TOPIC, 0), world.kept("g", TOPIC, 1).0), (NOTHING, 2));
}

#[test]
fn describe_groups_in_every_version() {
    let mut world = GroupWorld::new("describe");
    let member = world.alone("g");
    world.commit("empty", &[(0, 1)]);
    for version in 0..=6 {
        let names = ["g", "nope", "empty", "g"].map(group_id).to_vec();
        let request = DescribeGroupsRequest::default().with_groups(names);
        let asks = version >= 3;
        let answer = world.client.ask(version, &request.with_include_authorized_operations(asks));
        assert_eq!(answer.groups.len(), 3, "each name is answered once");
        let (group, nope, empty) = (&answer.groups[0], &answer.groups[1], &answer.groups[2]);
        let states = [group, nope, empty].map(|one| (one.error_code, one.group_state.as_str()));
        let unknown = if version >= 6 { 69 } else { 0 };
        assert_eq!(states, [(0, "Stable"), (unknown, "Dead"), (0, "Empty")], "version {version}");
        assert_eq!((group.protocol_type.as_str(), group.protocol_data.as_str()), ("consumer", "range"));
        let found = &group.members[0];
        assert_eq!((found.member_id.as_str(), found.client_id.as_str()), (member.id.as_str(), "test"));
        assert_eq!(found.client_host.as_str(), "/127.0.0.1");
        assert_eq!(found.member_metadata, "metadata");
        assert_eq!(found.member_assignment, format!("of {}", member.id));
        assert!(nope.members.is_empty() && empty.members.is_empty());
        let operations = [group, nope].map(|one| one.authorized_operations);
        let of_unknown = if version >= 6 || !asks { i32::MIN } else { 3400 };
        assert_eq!(operations, [if asks { 3400 } else { i32::MIN }, of_unknown]);
        let sentence = (version >= 6).then_some("Group nope not found.");
        assert_eq!((nope.error_message.as_deref(), group.error_message.as_deref()), (sentence, None));
    }
}

#[test]
fn list_groups_by_state_and_kind() {
    let mut world = GroupWorld::new("list");
    let _member = world.alone("stable");
    let mut waits = world.member("completing");
    waits.get_id();
    assert_eq!(waits.join().error_code, 0);
    world.commit("empty", &[(0, 1)]);
    let mut listed = |version: i16, states: &[&str], kinds: &[&str]| {
        let request = ListGroupsRequest::default().with_states_filter(states.iter().map(|one| text(one)).collect());
        let request = request.with_types_filter(kinds.iter().map(|one| text(one)).collect());
        let answer = world.client.ask(version, &request);
        assert_eq!(answer.error_code, 0);
        let mut groups: Vec<_> = answer
            .groups
            .iter()
            .map(|one| [one.group_id.as_str(), &one.protocol_type, &one.group_state, &one.group_type].join(" "))
            .collect();
        groups.sort();
        groups
    };
    for version in 0..=5 {
        let groups = listed(version, &[], &[]);
        let expected = match version {
            0..4 => ["completing consumer  ", "empty   ", "stable consumer  "],
            4 => ["completing consumer CompletingRebalance ", "empty  Empty ", "stable consumer Stable "],
            _ => [
                "completing consumer CompletingRebalance classic",
                "empty  Empty classic",
                "stable consumer Stable classic",
            ],
        };
        assert_eq!(groups, expected, "version {version}");
    }
    assert_eq!(listed(4, &["sTABLE"], &[]), ["stable consumer Stable "]);
    assert_eq!(listed(4, &["Stable", "EMPTY", "nope"], &[]).len(), 2);
    assert_eq!(listed(4, &["nope"], &[]).len() + listed(4, &[""], &[]).len() + listed(4, &["Dead"], &[]).len(), 0);
    assert_eq!(listed(5, &["empty"], &["Classic"]), ["empty  Empty classic"]);
    assert_eq!(listed(5, &[], &["consumer", "share", "nope"]).len(), 0);
    assert_eq!(listed(5, &[], &["nope", "CLASSIC"]).len(), 3);
}

#[test]
fn find_coordinator_in_every_version() {
    let mut world = GroupWorld::new("find");
    let address = world.broker.address;
    for version in 0..=3 {
        let request = FindCoordinatorRequest::default().with_key(text("g"));
        let found = world.client.ask(version, &request);
        let at = (found.node_id, found.host.as_str(), found.port);
        assert_eq!((found.error_code, at), (0, (BrokerId(1), "127.0.0.1", i32::from(address.port()))));
        assert_eq!(found.error_message.as_deref(), Some(if version >= 1 { "NONE" } else { "" }));
        let mut error = |kind, key| {
            let found = world.client.ask(version, &request.clone().with_key_type(kind).with_key(text(key)));
            assert_eq!((found.node_id, found.port, found.host.len()), (BrokerId(-1), -1, 0));
            (found.error_code, found.error_message.unwrap().to_string())
        };
        if version >= 1 {
            for kind in [2, 3, -1] {
                let (code, sentence) = error(kind, "k");
                assert!(code == 42 && sentence.starts_with("This most likely occurs because of a request"));
            }
        }
    }
    for version in 4..=6 {
        let mut found = |kind, keys: &[&str]| {
            let keys = keys.iter().map(|key| text(key)).collect();
            let request = FindCoordinatorRequest::default().with_key_type(kind).with_coordinator_keys(keys);
            let answer = world.client.ask(version, &request).coordinators;
            let told = answer.iter().map(|one| (one.key.to_string(), one.error_code, *one.node_id, one.port));
            (told.collect::<Vec<_>>(), answer.first().and_then(|one| one.error_message.as_deref().map(str::len)))
        };
        let port = i32::from(address.port());
        let both = vec![("g".to_owned(), 0, 1, port), (String::new(), 0, 1, port)];
        assert_eq!(found(0, &["g", "", "g"]), (both, Some(0)));
        assert_eq!(found(1, &["tx"]), (vec![("tx".to_owned(), 0, 1, port)], Some(0)));
        assert_eq!(found(2, &["k"]), (vec![("k".to_owned(), 42, -1, -1)], Some(0)));
        assert_eq!(found(9, &["k"]), (vec![("k".to_owned(), 42, -1, -1)], Some(171)));
        assert_eq!(found(0, &[]), (vec![], None));
    }
    assert_eq!(world.client.topic("__consumer_offsets").map(|(_, partitions)| partitions), Some(5));
}
