//! `__consumer_offsets` as clients see it.

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, DescribeConfigsRequest, FindCoordinatorRequest, MetadataRequest,
};

use super::harness::client::{name, text};
use super::world::{World, errors, plain, request};

const OFFSETS: &str = "__consumer_offsets";

/// A world in which somebody has asked for the coordinator of a group.
fn world(name: &str) -> World {
    let mut world = World::new(name);
    let asked = FindCoordinatorRequest::default().with_key_type(0).with_coordinator_keys(vec![text("g")]);
    let found = world.client.ask(4, &asked).coordinators.remove(0);
    assert_eq!((found.error_code, found.port), (0, i32::from(world.broker.address.port())));
    world
}

#[test]
fn it_is_made_when_it_is_needed_and_shown_as_internal() {
    let mut world = world("offsets-made");
    let asked = MetadataRequestTopic::default().with_name(Some(name(OFFSETS)));
    let request = MetadataRequest::default().with_topics(Some(vec![asked])).with_allow_auto_topic_creation(false);
    let topic = world.client.ask(9, &request).topics.remove(0);
    assert_eq!((topic.error_code, topic.is_internal, topic.partitions.len()), (0, true, 50));
}

fn configs(world: &mut World, resource_type: i8, resource: &str) -> Vec<(String, Option<String>, i8)> {
    let resource =
        DescribeConfigsResource::default().with_resource_type(resource_type).with_resource_name(text(resource));
    let resource = resource.with_configuration_keys(None);
    let answer = world.client.ask(4, &DescribeConfigsRequest::default().with_resources(vec![resource]));
    let entries = answer.results.into_iter().flat_map(|result| result.configs);
    let value = |value: Option<kafka_protocol::protocol::StrBytes>| value.map(|value| value.to_string());
    entries.map(|entry| (entry.name.to_string(), value(entry.value), entry.config_source)).collect()
}

#[test]
fn its_settings_are_kafkas() {
    let mut world = world("offsets-configs");
    let set: Vec<_> = configs(&mut world, 2, OFFSETS).into_iter().filter(|(_, _, source)| *source == 1).collect();
    let pair = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()), 1);
    assert_eq!(
        set,
        [
            pair("cleanup.policy", "compact"),
            pair("compression.type", "producer"),
            pair("corelane.durability", "disk"),
            pair("segment.bytes", "104857600"),
        ]
    );
    let broker = configs(&mut world, 4, "1");
    for (name, value) in [
        ("group.initial.rebalance.delay.ms", "3000"),
        ("group.max.session.timeout.ms", "1800000"),
        ("group.max.size", "2147483647"),
        ("group.min.session.timeout.ms", "6000"),
        ("offset.metadata.max.bytes", "4096"),
        ("offsets.commit.timeout.ms", "5000"),
        ("offsets.load.buffer.size", "5242880"),
        ("offsets.retention.check.interval.ms", "600000"),
        ("offsets.retention.minutes", "10080"),
        ("offsets.topic.compression.codec", "0"),
        ("offsets.topic.num.partitions", "50"),
        ("offsets.topic.segment.bytes", "104857600"),
    ] {
        assert!(broker.contains(&(name.to_owned(), Some(value.to_owned()), 5)), "{name}");
    }
}

/// Row 7 of the order of checks: behind what is wrong with the records' frame and with acks, before everything else.
#[test]
fn clients_may_not_write_to_it() {
    let mut world = world("offsets-produce");
    let good = plain(1).build();
    let mut bad = good.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    for (acks, records, expected) in [(-1, Some(&good), 17), (-1, Some(&bad), 17), (2, Some(&good), 21)] {
        let records = records.map(|batch| &batch[..]);
        let answers = world.answers(9, &request(acks, &[(OFFSETS, 3, records)]));
        assert_eq!(errors(&answers), [expected]);
    }
    let answers = world.answers(9, &request(-1, &[(OFFSETS, 3, Some(&[])), (OFFSETS, 50, Some(&good))]));
    assert_eq!(errors(&answers), [87, 3]);
    assert_eq!(world.client.end(OFFSETS, 3), 0);
}

#[test]
fn it_keeps_its_partitions() {
    let mut world = world("offsets-partitions");
    let more = CreatePartitionsTopic::default().with_name(name(OFFSETS)).with_count(60).with_assignments(None);
    let asked = CreatePartitionsRequest::default().with_topics(vec![more]).with_timeout_ms(5000);
    let result = world.client.ask(3, &asked).results.remove(0);
    assert_eq!(result.error_code, 42);
    assert!(result.error_message.is_some_and(|why| why.contains("could not be found again")));
}
