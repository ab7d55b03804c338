//! Requests of the catalog, written and read by `kafka-protocol` as a client would; the expected answers are those that
//! Apache Kafka 4.4.0 gave to the same requests.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use corelane::requests::cluster::Cluster;
use corelane::requests::{Api, Outcome};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request as KafkaRequest, StrBytes};
use proptest::prelude::*;
use uuid::Uuid;

use super::bare::Bare;

impl Bare {
    fn create(&self, topics: &[(&str, i32)]) {
        let topics = topics.iter().map(|(name, partitions)| {
            let topic = CreatableTopic::default().with_name(TopicName(text(name)));
            topic.with_num_partitions(*partitions).with_replication_factor(1)
        });
        let answer = self.ask(7, CreateTopicsRequest::default().with_topics(topics.collect()));
        assert!(answer.topics.iter().all(|topic| topic.error_code == 0), "{answer:?}");
    }

    fn id_of(&self, name: &str) -> Uuid {
        Uuid::from_bytes(self.catalog().topic(name).unwrap().id.0)
    }

    /// Sends a request as a client of that version and reads the answer, which must be used up.
    fn ask<R: KafkaRequest>(&self, version: i16, request: R) -> R::Response
    where
        R::Response: Decodable,
    {
        let mut frame = BytesMut::new();
        let header = RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(version);
        let header = header.with_correlation_id(77).with_client_id(Some(text("rules")));
        header.encode(&mut frame, R::header_version(version)).unwrap();
        request.encode(&mut frame, version).unwrap();
        let Outcome::Answer(answer) = self.send(frame.freeze()) else { panic!("no answer to {:?}", R::KEY) };
        read_answer::<R>(version, answer)
    }
}

fn read_answer<R: KafkaRequest>(version: i16, mut answer: Bytes) -> R::Response
where
    R::Response: Decodable,
{
    let length = u32::from_be_bytes(answer.split_to(4)[..].try_into().unwrap());
    assert_eq!(length as usize, answer.len(), "the length in front");
    let header = ResponseHeader::decode(&mut answer, R::Response::header_version(version)).unwrap();
    assert_eq!(header.correlation_id, 77);
    let response = R::Response::decode(&mut answer, version).unwrap();
    assert!(answer.is_empty(), "{} bytes behind the answer", answer.len());
    response
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(TopicName(text(name))))
}

fn identified(id: Uuid) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(None).with_topic_id(id)
}

fn metadata_of(topics: Vec<MetadataRequestTopic>, may_create: bool) -> MetadataRequest {
    MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(may_create)
}

/// (error, name) of each topic, sorted by name.
fn topics_in(answer: &MetadataResponse) -> Vec<(i16, String)> {
    let name = |topic: &metadata_response::MetadataResponseTopic| topic.name.clone().map(|name| name.to_string());
    let mut topics: Vec<_> =
        answer.topics.iter().map(|topic| (topic.error_code, name(topic).unwrap_or_default())).collect();
    topics.sort_by(|one, other| one.1.cmp(&other.1));
    topics
}

fn expected(topics: &[(i16, &str)]) -> Vec<(i16, String)> {
    topics.iter().map(|(error, name)| (*error, (*name).to_owned())).collect()
}

#[test]
fn api_versions_answers_every_version() {
    let bare = Bare::new();
    for version in 0..=4 {
        let software = if version >= 3 { "rules-1.0" } else { "" };
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text(software))
            .with_client_software_version(text(software));
        let answer = bare.ask(version, request);
        assert_eq!(answer.error_code, 0);
        let keys: Vec<i16> = answer.api_keys.iter().map(|api| api.api_key).collect();
        assert_eq!(
            keys,
            [
                0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 32, 33, 35,
                37, 42, 44, 47, 60, 61, 65, 66, 75
            ]
        );
        let produce = &answer.api_keys[0];
        assert_eq!((produce.min_version, produce.max_version), (0, 13), "old librdkafka looks for version 0");
        if version >= 3 {
            assert!(answer.finalized_features_epoch >= 0);
            let finalized = &answer.finalized_features;
            let names: Vec<_> = finalized.iter().map(|feature| &*feature.name).collect();
            assert_eq!(names, ["metadata.version", "transaction.version"]);
            let supported = &answer.supported_features[0];
            assert_eq!((supported.min_version, supported.max_version), (7, 33));
        }
    }
}

/// WIRE-01: the body of a version that nobody knows is not looked at; the answer has the form of version 0.
#[test]
fn api_versions_of_the_future_falls_back_to_version_0() {
    let bare = Bare::new();
    for version in [5, 105_i16] {
        let mut frame = BytesMut::new();
        frame.put_i16(18);
        frame.put_i16(version);
        frame.put_i32(77);
        frame.put_slice(&[0, 1, b'x', 0, 0xff, 0xff, 0xff]);
        let Outcome::Answer(answer) = bare.send(frame.freeze()) else { panic!("version {version} is not answered") };
        let answer = read_answer::<ApiVersionsRequest>(0, answer);
        assert_eq!(answer.error_code, 35);
        assert_eq!(answer.api_keys.len(), 1);
        let api = &answer.api_keys[0];
        assert_eq!((api.api_key, api.min_version, api.max_version), (18, 0, 4));
    }
}

#[test]
fn api_versions_refuses_software_names_that_kafka_refuses() {
    let bare = Bare::new();
    for (name, version, error) in [("x", "1", 0), ("", "1", 42), ("x y", "1", 42), ("-x", "1", 42), ("x", "1.", 42)] {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text(name))
            .with_client_software_version(text(version));
        let answer = bare.ask(3, request);
        assert_eq!((answer.error_code, answer.api_keys.is_empty()), (error, error != 0), "{name:?} {version:?}");
    }
}

/// WIRE-09: never silence, never an answer in another form.
#[test]
fn what_is_not_served_is_closed() {
    let bare = Bare::new();
    for (key, version) in [(999_i16, 0_i16), (-1, 0), (8, 1), (8, 11), (1, 19), (3, 14), (19, 1), (3, -1)] {
        let mut frame = BytesMut::new();
        frame.put_i16(key);
        frame.put_i16(version);
        frame.put_slice(&[0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0]);
        assert!(matches!(bare.send(frame.freeze()), Outcome::Close(_)), "key {key} version {version}");
    }
}

/// WIRE-06: null and empty lists mean different things by version.
#[test]
fn metadata_tells_no_topics_from_all_topics() {
    let bare = Bare::new();
    bare.create(&[("a", 1), ("b", 2), ("c", 3)]);
    let all = expected(&[(0, "a"), (0, "b"), (0, "c")]);
    assert_eq!(topics_in(&bare.ask(0, metadata_of(vec![], true))), all, "version 0 has no null");
    for version in 1..=13 {
        let null = bare.ask(version, MetadataRequest::default().with_topics(None));
        assert_eq!(topics_in(&null), all, "version {version} null");
        let none = bare.ask(version, metadata_of(vec![], true));
        assert!(none.topics.is_empty(), "version {version} []");
        assert_eq!(none.brokers.len(), 1);
        assert_eq!((none.brokers[0].port, &*none.brokers[0].host), (9092, "broker.example"));
        assert_eq!(none.controller_id, BrokerId(1));
        if version >= 2 {
            assert_eq!(none.cluster_id.as_deref(), Some("3iNd9icRQyOff_fmZqX4Mw"));
        }
    }
}

#[test]
fn metadata_by_name_in_every_version() {
    let bare = Bare::new();
    bare.create(&[("a.b", 2), ("__consumer_offsets", 1)]);
    for version in 4..=13 {
        let topics = ["a.b", "nope", "a.b", "bad name", "", "__consumer_offsets"].map(named).to_vec();
        let answer = bare.ask(version, metadata_of(topics, false));
        let each_once = [(17, ""), (0, "__consumer_offsets"), (0, "a.b"), (17, "bad name"), (3, "nope")];
        assert_eq!(topics_in(&answer), expected(&each_once), "version {version}");
        for topic in &answer.topics {
            let name = topic.name.as_deref().map(|name| &**name);
            assert_eq!(topic.is_internal, name == Some("__consumer_offsets"));
            assert_eq!(topic.topic_id.is_nil(), version < 10 || topic.error_code != 0);
            assert_eq!(topic.topic_authorized_operations, i32::MIN);
        }
        let topic = answer.topics.iter().find(|topic| topic.partitions.len() == 2).unwrap();
        for (index, partition) in topic.partitions.iter().enumerate() {
            assert_eq!((partition.error_code, partition.partition_index as usize), (0, index));
            assert_eq!(partition.leader_id, BrokerId(1));
            assert_eq!(partition.leader_epoch, if version >= 7 { 5 } else { -1 });
            assert_eq!((&*partition.replica_nodes, &*partition.isr_nodes), (&[BrokerId(1)][..], &[BrokerId(1)][..]));
            assert!(partition.offline_replicas.is_empty());
        }
    }
    assert!(bare.catalog().topic("nope").is_none(), "looking does not make a topic");
}

#[test]
fn metadata_by_id() {
    let bare = Bare::new();
    bare.create(&[("a", 1)]);
    let (known, unknown) = (bare.id_of("a"), Uuid::from_u128(7));
    for version in 12..=13 {
        let topics = vec![identified(known), identified(unknown), identified(known), named("ignored")];
        let answer = bare.ask(version, metadata_of(topics, true));
        assert_eq!(topics_in(&answer), expected(&[(100, ""), (0, "a")]), "version {version}");
        let missing = answer.topics.iter().find(|topic| topic.error_code == 100).unwrap();
        assert_eq!((&missing.name, missing.topic_id), (&None, unknown));
    }
    // Ids came into the request with version 10, but are served from 12 on.
    let answer = bare.ask(10, metadata_of(vec![identified(known)], true));
    assert_eq!((answer.brokers.len(), answer.topics[0].error_code), (0, 42));
    let nameless = bare.ask(12, metadata_of(vec![identified(Uuid::nil())], true));
    assert_eq!((nameless.brokers.len(), nameless.topics[0].error_code), (0, -1));
}

/// WIRE-12: a topic that is announced takes writes; and none is made unless client and broker want it.
#[test]
fn metadata_makes_missing_topics_only_when_both_sides_want_it() {
    let bare = Bare::new();
    bare.create(&[("a.b", 1)]);
    let asked = || ["new", "bad name", "a_b", "__consumer_offsets"].map(named).to_vec();
    let answer = bare.ask(4, metadata_of(asked(), false));
    assert_eq!(topics_in(&answer), expected(&[(3, "__consumer_offsets"), (3, "a_b"), (17, "bad name"), (3, "new")]));
    let answer = bare.ask(4, metadata_of(asked(), true));
    assert_eq!(
        topics_in(&answer),
        expected(&[(0, "__consumer_offsets"), (3, "a_b"), (17, "bad name"), (0, "new")]),
        "a name that collides stays unknown, as in Kafka"
    );
    assert_eq!(bare.catalog().topic("new").unwrap().partitions.len(), 3);
    let offsets = Arc::clone(bare.catalog().topic("__consumer_offsets").unwrap());
    assert!(offsets.internal && offsets.settings.cleanup_compact && offsets.partitions.len() == 50);
    assert_eq!(topics_in(&bare.ask(1, metadata_of(vec![named("v1")], true))), expected(&[(0, "v1")]));

    let off = Bare::with(&[("auto.create.topics.enable", "false")]);
    assert_eq!(topics_in(&off.ask(4, metadata_of(vec![named("new")], true))), expected(&[(3, "new")]));
    assert!(off.catalog().topic("new").is_none());
}

#[test]
fn authorized_operations_are_told_when_asked() {
    let bare = Bare::new();
    bare.create(&[("a", 1)]);
    let request = metadata_of(vec![named("a")], false)
        .with_include_cluster_authorized_operations(true)
        .with_include_topic_authorized_operations(true);
    let answer = bare.ask(8, request);
    assert_eq!((answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations), (8096, 3576));
    let cluster = bare.ask(1, DescribeClusterRequest::default().with_include_cluster_authorized_operations(true));
    assert_eq!(cluster.cluster_authorized_operations, 8096);
}

#[test]
fn create_topics_in_every_version() {
    let bare = Bare::new();
    for version in 2..=7 {
        let topic = |name: &str| CreatableTopic::default().with_name(TopicName(text(name))).with_num_partitions(2);
        let topics = vec![
            topic(&format!("t{version}")).with_replication_factor(1),
            topic("bad name").with_replication_factor(1),
            topic("twice"),
            topic("twice"),
        ];
        let answer = bare.ask(version, CreateTopicsRequest::default().with_topics(topics));
        assert_eq!(answer.topics.len(), 3, "a name that is there twice is answered once");
        let (made, bad, twice) = (&answer.topics[0], &answer.topics[1], &answer.topics[2]);
        assert_eq!((made.error_code, bad.error_code, twice.error_code), (0, 17, 42));
        assert_eq!(twice.error_message.as_deref(), Some("Duplicate topic name."));
        if version >= 5 {
            assert_eq!((made.num_partitions, made.replication_factor), (2, 1));
            assert_eq!((bad.num_partitions, bad.replication_factor), (-1, -1));
            let configs = made.configs.as_ref().unwrap();
            let policy = configs.iter().find(|config| &*config.name == "cleanup.policy").unwrap();
            assert_eq!((policy.value.as_deref(), policy.config_source), (Some("delete"), 5));
            assert_eq!(bad.configs.as_deref(), Some(&[][..]));
        }
        if version >= 7 {
            assert_eq!(made.topic_id, bare.id_of("t7"));
            assert!(bad.topic_id.is_nil());
        }
    }
}

#[test]
fn validate_only_makes_nothing() {
    let bare = Bare::new();
    let topic = CreatableTopic::default().with_name(TopicName(text("t"))).with_num_partitions(1);
    let topic = topic.with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_validate_only(true);
    let answer = bare.ask(7, request);
    assert_eq!((answer.topics[0].error_code, answer.topics[0].num_partitions), (0, 1));
    assert!(bare.catalog().topic("t").is_none());
}

#[test]
fn delete_topics_by_name() {
    for version in 1..=6 {
        let bare = Bare::new();
        bare.create(&[("a", 1), ("b", 1)]);
        let names = ["a", "nope", "b", "b", ""].map(|name| TopicName(text(name)));
        let request = if version < 6 {
            DeleteTopicsRequest::default().with_topic_names(names.to_vec())
        } else {
            let topics = names.map(|name| DeleteTopicState::default().with_name(Some(name)));
            DeleteTopicsRequest::default().with_topics(topics.to_vec())
        };
        let answer = bare.ask(version, request);
        let mut told: Vec<_> = answer
            .responses
            .iter()
            .map(|item| (item.name.clone().unwrap().to_string(), item.error_code, item.error_message.as_deref()))
            .collect();
        told.sort();
        let unknown = Some("This server does not host this topic-partition.").filter(|_| version >= 5);
        let twice = Some("Duplicate topic name.").filter(|_| version >= 5);
        let expected = [("", 3, unknown), ("a", 0, None), ("b", 42, twice), ("nope", 3, unknown)];
        assert_eq!(told, expected.map(|(name, error, message)| (name.to_owned(), error, message)), "{version}");
        assert!(bare.catalog().topic("a").is_none() && bare.catalog().topic("b").is_some());
    }
}

#[test]
fn delete_topics_by_id() {
    let bare = Bare::new();
    bare.create(&[("a", 1), ("b", 1), ("c", 1)]);
    let (a, b, c) = (bare.id_of("a"), bare.id_of("b"), bare.id_of("c"));
    let item = |name: Option<&str>, id: Uuid| {
        DeleteTopicState::default().with_name(name.map(|name| TopicName(text(name)))).with_topic_id(id)
    };
    let delete = |topics: Vec<DeleteTopicState>| {
        let answer = bare.ask(6, DeleteTopicsRequest::default().with_topics(topics));
        let name = |item: &delete_topics_response::DeletableTopicResult| item.name.clone().map(|name| name.to_string());
        let line = |item: &delete_topics_response::DeletableTopicResult| {
            (name(item), item.topic_id, item.error_code, item.error_message.as_deref().map(str::to_owned))
        };
        answer.responses.iter().map(line).collect::<Vec<_>>()
    };
    let refused = |name: Option<&str>, id, error, message: &str| {
        vec![(name.map(str::to_owned), id, error, Some(message.to_owned()))]
    };
    let neither = "Neither topic name nor id were specified.";
    assert_eq!(delete(vec![item(None, Uuid::nil())]), refused(None, Uuid::nil(), 42, neither));
    let both = "You may not specify both topic name and topic id.";
    assert_eq!(delete(vec![item(Some("a"), a)]), refused(Some("a"), a, 42, both));
    let unknown = Uuid::from_u128(7);
    let message = "This server does not host this topic ID.";
    assert_eq!(delete(vec![item(None, unknown)]), refused(None, unknown, 100, message));
    assert_eq!(delete(vec![item(None, b), item(None, b)]), refused(None, b, 42, "Duplicate topic id."));
    let supplied = "The provided topic name maps to an ID that was already supplied.";
    assert_eq!(delete(vec![item(Some("c"), Uuid::nil()), item(None, c)]), refused(Some("c"), c, 42, supplied));
    assert_eq!(delete(vec![item(None, a)]), [(Some("a".to_owned()), a, 0, None)]);
    assert!(bare.catalog().topic("a").is_none() && bare.catalog().topics().len() == 2);
}

/// WIRE-14: a topic made again under the same name is another topic.
#[test]
fn a_topic_made_again_has_another_id() {
    let bare = Bare::new();
    bare.create(&[("t", 1)]);
    let (old, old_log) = (bare.id_of("t"), bare.catalog().topic("t").unwrap().partitions[0]);
    let item = DeleteTopicState::default().with_topic_id(old);
    bare.ask(6, DeleteTopicsRequest::default().with_topics(vec![item.with_name(None)]));
    bare.create(&[("t", 1)]);
    assert_ne!(bare.id_of("t"), old);
    assert_ne!(bare.catalog().topic("t").unwrap().partitions[0], old_log);
    let answer = bare.ask(12, metadata_of(vec![identified(old)], true));
    assert_eq!(answer.topics[0].error_code, 100);
}

#[test]
fn create_partitions_in_every_version() {
    let bare = Bare::new();
    bare.create(&[("a", 1)]);
    for version in 0..=3_i16 {
        let topic = |name: &str, count| {
            create_partitions_request::CreatePartitionsTopic::default()
                .with_name(TopicName(text(name)))
                .with_count(count)
                .with_assignments(None)
        };
        let topics = vec![topic("a", i32::from(version) + 2), topic("nope", 3), topic("x", 1), topic("x", 1)];
        let answer = bare.ask(version, CreatePartitionsRequest::default().with_topics(topics));
        let told: Vec<_> = answer.results.iter().map(|item| (item.name.to_string(), item.error_code)).collect();
        assert_eq!(told, [("a".to_owned(), 0), ("nope".to_owned(), 3), ("x".to_owned(), 42)]);
        assert_eq!(bare.catalog().topic("a").unwrap().partition_count(), i32::from(version) + 2);
    }
}

fn alterable(name: &str, operation: i8, value: Option<&str>) -> AlterableConfig {
    AlterableConfig::default().with_name(text(name)).with_config_operation(operation).with_value(value.map(text))
}

#[test]
fn incremental_alter_configs_in_every_version() {
    let bare = Bare::new();
    bare.create(&[("dc", 1)]);
    for version in 0..=1 {
        let resource = |kind, name: &str, configs| {
            AlterConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configs(configs)
        };
        let resources = vec![
            resource(2, "nope", vec![alterable("retention.ms", 0, Some("77"))]),
            resource(2, "dc", vec![alterable("retention.ms", 0, Some("99"))]),
            resource(4, "1", vec![alterable("log.segment.bytes", 0, Some("20000000"))]),
            resource(4, "2", vec![alterable("log.segment.bytes", 0, Some("20000000"))]),
            resource(8, "1", vec![alterable("root", 0, Some("INFO"))]),
        ];
        let answer = bare.ask(version, IncrementalAlterConfigsRequest::default().with_resources(resources));
        let told: Vec<_> = answer.responses.iter().map(|item| (item.resource_type, item.error_code)).collect();
        assert_eq!(told, [(2, 3), (2, 0), (4, 0), (4, 42), (8, 42)]);
        assert_eq!(answer.responses[0].error_message.as_deref(), Some("The topic 'nope' does not exist."));
    }
    assert_eq!(bare.catalog().topic("dc").unwrap().overrides["retention.ms"], "99");
    assert_eq!(bare.catalog().topic("dc").unwrap().settings.segment_bytes, 20_000_000);
}

/// What AlterConfigs does not name goes; refusals are those of IncrementalAlterConfigs.
#[test]
fn alter_configs_sets_everything_at_once_in_every_version() {
    use alter_configs_request::{AlterConfigsResource, AlterableConfig};
    let config = |(name, value): (&str, Option<&str>)| {
        AlterableConfig::default().with_name(text(name)).with_value(value.map(text))
    };
    let resource = |kind, name: &str, configs: &[(&str, Option<&str>)]| {
        let configs = configs.iter().copied().map(config).collect();
        let resource = AlterConfigsResource::default().with_resource_type(kind);
        resource.with_resource_name(text(name)).with_configs(configs)
    };
    let request = |resources, validate_only| {
        AlterConfigsRequest::default().with_resources(resources).with_validate_only(validate_only)
    };
    for version in 0..=2 {
        let bare = Bare::new();
        bare.create(&[("dc", 1)]);
        let ask = |resources, validate_only| {
            let answer = bare.ask(version, request(resources, validate_only));
            answer.responses.iter().map(|item| item.error_code).collect::<Vec<_>>()
        };
        let set = || bare.catalog().topic("dc").unwrap().overrides.clone().into_iter().collect::<Vec<_>>();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(ask(vec![resource(2, "dc", &[("retention.ms", Some("1000"))])], false), [0]);
        assert_eq!(ask(vec![resource(2, "dc", &[("cleanup.policy", Some("compact"))])], true), [0]);
        assert_eq!(set(), [pair("retention.ms", "1000")], "only looked at");
        assert_eq!(ask(vec![resource(2, "dc", &[("cleanup.policy", Some("compact"))])], false), [0]);
        assert_eq!(set(), [pair("cleanup.policy", "compact")]);
        let refused = vec![
            resource(2, "dc", &[("retention.ms", None)]),
            resource(2, "nope", &[("retention.ms", Some("1"))]),
            resource(2, "", &[]),
            resource(8, "1", &[("root", Some("DEBUG"))]),
            resource(4, "2", &[]),
            resource(4, "1", &[("message.max.bytes", Some("a"))]),
        ];
        assert_eq!(ask(refused, false), [42, 3, 42, 42, 42, 42]);
        assert_eq!(ask(vec![resource(2, "dc", &[("nosuch", Some("1"))])], false), [40]);
        assert_eq!(ask(vec![resource(2, "dc", &[]), resource(2, "dc", &[])], false), [42, 42]);
        assert_eq!(set(), [pair("cleanup.policy", "compact")]);
        assert_eq!(ask(vec![resource(4, "1", &[("log.segment.bytes", Some("20000000"))])], false), [0]);
        assert_eq!(ask(vec![resource(4, "1", &[("message.max.bytes", Some("2000000"))])], false), [0]);
        let dynamic = bare.catalog().dynamic().broker.clone();
        assert_eq!(dynamic.into_iter().collect::<Vec<_>>(), [pair("message.max.bytes", "2000000")]);
        assert_eq!(ask(vec![resource(2, "dc", &[]), resource(4, "1", &[])], false), [0, 0]);
        assert!(set().is_empty() && bare.catalog().dynamic().broker.is_empty());
    }
}

fn described(kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResource {
    let keys = keys.map(|keys| keys.iter().map(|key| text(key)).collect());
    DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(keys)
}

#[test]
fn describe_configs_in_every_version() {
    let bare = Bare::new();
    let configs = vec![create_topics_request::CreatableTopicConfig::default()];
    let configs = configs.into_iter().map(|c| c.with_name(text("retention.ms")).with_value(Some(text("1000"))));
    let topic = CreatableTopic::default().with_name(TopicName(text("dc"))).with_num_partitions(1);
    let topic = topic.with_replication_factor(1).with_configs(configs.collect());
    bare.ask(7, CreateTopicsRequest::default().with_topics(vec![topic]));
    for version in 1..=4 {
        let keys = ["retention.ms", "segment.bytes", "nope"];
        let request = DescribeConfigsRequest::default()
            .with_resources(vec![described(2, "dc", Some(&keys))])
            .with_include_synonyms(true)
            .with_include_documentation(version >= 3);
        let answer = bare.ask(version, request);
        let result = &answer.results[0];
        assert_eq!((result.error_code, result.error_message.as_deref()), (0, Some("")));
        let names: Vec<_> = result.configs.iter().map(|config| &*config.name).collect();
        assert_eq!(names, ["retention.ms", "segment.bytes"]);
        let retention = &result.configs[0];
        assert_eq!((retention.value.as_deref(), retention.config_source), (Some("1000"), 1));
        assert_eq!(&*retention.synonyms[0].name, "retention.ms");
        assert!(version < 3 || retention.documentation.as_ref().is_some_and(|text| !text.is_empty()));
        let segment = &result.configs[1];
        assert_eq!((segment.value.as_deref(), segment.config_source), (Some("1073741824"), 5));
        assert_eq!(&*segment.synonyms[0].name, "log.segment.bytes");
        assert!(!segment.read_only && !segment.is_sensitive);
    }
}

#[test]
fn describe_configs_of_what_is_not_there() {
    let bare = Bare::new();
    bare.create(&[("dc", 1)]);
    let one =
        |resource| bare.ask(4, DescribeConfigsRequest::default().with_resources(vec![resource])).results.remove(0);
    let told = |resource| {
        let result = one(resource);
        (result.error_code, result.error_message.as_deref().unwrap_or("null").to_owned())
    };
    assert_eq!(told(described(2, "nope", None)), (3, String::new()));
    assert_eq!(told(described(2, "", None)), (17, "Topic name is invalid: the empty string is not allowed".to_owned()));
    let stranger = "Unexpected broker id, expected 1 or empty string, but received 2";
    assert_eq!(told(described(4, "2", None)), (42, stranger.to_owned()));
    assert_eq!(told(described(4, "x", None)), (42, "Broker id must be an integer, but it is: x".to_owned()));
    let (code, message) = told(described(99, "x", None));
    assert_eq!(code, 42);
    assert!(message.starts_with("This most likely occurs because of a request being malformed"), "{message}");
    assert!(one(described(2, "dc", Some(&[]))).configs.len() > 20, "no keys means all");
    assert!(one(described(4, "1", None)).configs.len() > 30);
    assert!(one(described(4, "", None)).configs.is_empty(), "nothing was changed for all brokers");
}

/// D12: the same topic ten thousand times over is not described ten thousand times over.
#[test]
fn describe_configs_stays_within_its_memory() {
    let bare = Bare::new();
    bare.create(&[("dc", 1)]);
    let resources = vec![described(2, "dc", None); 10_000];
    let request = DescribeConfigsRequest::default().with_resources(resources).with_include_documentation(true);
    let answer = bare.ask(4, request);
    let fit = answer.results.iter().take_while(|result| result.error_code == 0).count();
    let refused = &answer.results[fit..];
    assert!((100..2_000).contains(&fit), "{fit} described");
    assert!(refused.iter().all(|result| result.error_code == 42 && result.configs.is_empty()));
    let sentence =
        format!("Too much for one answer: ask for at most {fit} such resources at a time, or name the configs.");
    assert_eq!(refused[0].error_message.as_deref(), Some(&*sentence));
}

/// More elements than anybody means are not looked at.
#[test]
fn arrays_of_more_than_a_hundred_thousand_close_the_connection() {
    let bare = Bare::new();
    for (count, is_closed) in [(100_000, false), (100_001, true)] {
        let mut frame = BytesMut::new();
        frame.put_slice(&[0, 3, 0, 0, 0, 0, 0, 7, 0xff, 0xff]);
        frame.put_u32(count);
        frame.put_bytes(0, count as usize * 2);
        assert_eq!(matches!(bare.send(frame.freeze()), Outcome::Close(_)), is_closed, "{count}");
    }
}

#[test]
fn describe_cluster_in_every_version() {
    let bare = Bare::new();
    for version in 0..=2 {
        let answer = bare.ask(version, DescribeClusterRequest::default());
        assert_eq!(
            (answer.error_code, &*answer.cluster_id, answer.controller_id),
            (0, "3iNd9icRQyOff_fmZqX4Mw", BrokerId(1))
        );
        assert_eq!((answer.brokers[0].port, answer.cluster_authorized_operations), (9092, i32::MIN));
    }
    let controllers = bare.ask(1, DescribeClusterRequest::default().with_endpoint_type(2));
    assert_eq!((controllers.error_code, &*controllers.cluster_id, controllers.controller_id), (114, "", BrokerId(-1)));
    assert_eq!(bare.ask(1, DescribeClusterRequest::default().with_endpoint_type(3)).error_code, 115);
}

#[test]
fn describe_log_dirs_in_every_version() {
    let bare = Bare::new();
    bare.create(&[("a", 2), ("b", 1)]);
    let topic = |name: &str, partitions: &[i32]| {
        DescribableLogDirTopic::default().with_topic(TopicName(text(name))).with_partitions(partitions.to_vec())
    };
    for version in 1..=4 {
        let topics = vec![topic("a", &[0, 5]), topic("nope", &[0]), topic("a", &[0])];
        let answer = bare.ask(version, DescribeLogDirsRequest::default().with_topics(Some(topics)));
        let folder = &answer.results[0];
        assert_eq!((folder.error_code, &*folder.log_dir), (0, "/data/kafka"));
        assert_eq!(folder.topics.len(), 1);
        assert_eq!(folder.topics[0].partitions.len(), 1, "partitions that are not there are passed over");
        assert_eq!(folder.topics[0].partitions[0].partition_size, 100);
        if version >= 4 {
            assert_eq!((folder.total_bytes, folder.usable_bytes), (1000, 400));
        }
        let all = bare.ask(version, DescribeLogDirsRequest::default().with_topics(None));
        let partitions: usize = all.results[0].topics.iter().map(|topic| topic.partitions.len()).sum();
        assert_eq!(partitions, 3);
        let none = bare.ask(version, DescribeLogDirsRequest::default().with_topics(Some(vec![])));
        assert!(none.results[0].topics.is_empty());
    }
}

fn page(topics: &[&str], limit: i32, cursor: Option<(&str, i32)>) -> DescribeTopicPartitionsRequest {
    let topics = topics.iter().map(|name| TopicRequest::default().with_name(TopicName(text(name))));
    let cursor = cursor.map(|(topic, partition)| {
        Cursor::default().with_topic_name(TopicName(text(topic))).with_partition_index(partition)
    });
    DescribeTopicPartitionsRequest::default()
        .with_topics(topics.collect())
        .with_response_partition_limit(limit)
        .with_cursor(cursor)
}

/// What a page holds: (error, topic, partitions) in order, and where it goes on.
type Page = (Vec<(i16, String, Vec<i32>)>, Option<(String, i32)>);

fn turn(bare: &Bare, request: DescribeTopicPartitionsRequest) -> Page {
    let answer = bare.ask(0, request);
    let line = |topic: &describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic| {
        let partitions = topic.partitions.iter().map(|partition| partition.partition_index).collect();
        (topic.error_code, topic.name.clone().unwrap().to_string(), partitions)
    };
    let next = answer.next_cursor.map(|cursor| (cursor.topic_name.to_string(), cursor.partition_index));
    (answer.topics.iter().map(line).collect(), next)
}

/// As Kafka tells them: of every name that is only unknown, of none in a request that is wrong.
#[test]
fn describe_topic_partitions_tells_the_operations_of_unknown_topics() {
    let bare = Bare::new();
    bare.create(&[("dc", 1)]);
    let operations = |cursor: Option<(&str, i32)>| {
        let answer = bare.ask(0, page(&["dc", "nope", "bad name", ""], 2000, cursor));
        answer.topics.iter().map(|topic| topic.topic_authorized_operations).collect::<Vec<_>>()
    };
    assert_eq!(operations(None), [i32::MIN, 3576, 3576, 3576]);
    assert_eq!(operations(Some(("b", 0))), [i32::MIN; 4]);
}

#[test]
fn describe_topic_partitions_in_pages() {
    let bare = Bare::new();
    bare.create(&[("as1", 2), ("dc", 2)]);
    let lines = |lines: &[(i16, &str, &[i32])]| -> Vec<(i16, String, Vec<i32>)> {
        lines.iter().map(|(error, name, partitions)| (*error, (*name).to_owned(), partitions.to_vec())).collect()
    };
    let at = |topic: &str, partition| Some((topic.to_owned(), partition));
    let both = lines(&[(0, "as1", &[0, 1]), (17, "bad name", &[]), (0, "dc", &[0, 1]), (3, "nope", &[])]);
    assert_eq!(turn(&bare, page(&["dc", "nope", "bad name", "dc", "as1"], 2000, None)), (both, None));
    assert_eq!(turn(&bare, page(&["dc", "as1"], 1, None)), (lines(&[(0, "as1", &[0])]), at("as1", 1)));
    assert_eq!(turn(&bare, page(&["dc"], -1, None)), (lines(&[(0, "dc", &[0])]), at("dc", 1)));
    assert_eq!(turn(&bare, page(&["dc", "as1"], 2000, Some(("dc", 1)))), (lines(&[(0, "dc", &[1])]), None));
    assert_eq!(turn(&bare, page(&["dc", "as1"], 2000, Some(("dc", 9)))), (lines(&[(0, "dc", &[])]), None));
    let refused = lines(&[(42, "as1", &[]), (42, "dc", &[])]);
    assert_eq!(turn(&bare, page(&["dc", "as1"], 2000, Some(("b", 0)))), (refused.clone(), None));
    assert_eq!(turn(&bare, page(&["dc", "as1"], 2000, Some(("dc", -1)))), (refused, None));
    // A page that is full ends before the next name, whether there is such a topic or not.
    let full = lines(&[(0, "as1", &[0, 1])]);
    assert_eq!(turn(&bare, page(&["as1"], 2, None)), (full.clone(), None));
    assert_eq!(turn(&bare, page(&["as1", "dc"], 2, None)), (full.clone(), at("dc", 0)));
    assert_eq!(turn(&bare, page(&["as1", "asx"], 2, None)), (full, at("asx", 0)));
    let all = lines(&[(0, "as1", &[1]), (0, "dc", &[0, 1])]);
    assert_eq!(turn(&bare, page(&[], 2000, Some(("as1", 1)))), (all, None));
}

/// Turning the pages meets every partition once, whatever their size.
#[test]
fn pages_lead_through_every_partition() {
    let bare = Bare::new();
    bare.create(&[("a", 3), ("b", 1), ("c", 4), ("d", 2)]);
    for limit in 1..=11 {
        let mut met = Vec::new();
        let mut cursor: Option<(String, i32)> = None;
        loop {
            let from = cursor.as_ref().map(|(topic, partition)| (topic.as_str(), *partition));
            let (lines, next) = turn(&bare, page(&[], limit, from));
            for (_, topic, partitions) in lines {
                met.extend(partitions.into_iter().map(|partition| format!("{topic}{partition}")));
            }
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(met, ["a0", "a1", "a2", "b0", "c0", "c1", "c2", "c3", "d0", "d1"], "limit {limit}");
    }
}

const COLD: [Api; 23] = [
    Api::Metadata,
    Api::ApiVersions,
    Api::CreateTopics,
    Api::DeleteTopics,
    Api::DescribeConfigs,
    Api::AlterConfigs,
    Api::DescribeLogDirs,
    Api::CreatePartitions,
    Api::IncrementalAlterConfigs,
    Api::DescribeCluster,
    Api::DescribeTopicPartitions,
    Api::OffsetCommit,
    Api::TxnOffsetCommit,
    Api::OffsetFetch,
    Api::FindCoordinator,
    Api::JoinGroup,
    Api::Heartbeat,
    Api::LeaveGroup,
    Api::SyncGroup,
    Api::DescribeGroups,
    Api::ListGroups,
    Api::DeleteGroups,
    Api::OffsetDelete,
];

fn a_frame() -> impl Strategy<Value = Bytes> {
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..120),
        // Counts and lengths of 2^31 - 1, in both forms, between small numbers.
        prop::collection::vec(
            prop_oneof![
                Just(vec![0x7f, 0xff, 0xff, 0xff]),
                Just(vec![0xff, 0xff, 0xff, 0xff, 0x0f]),
                Just(vec![0x7f, 0xff]),
                Just(vec![0xff, 0xff, 0xff, 0xff]),
                Just(vec![0, 1]),
                Just(vec![0, 0, 0, 1]),
                Just(vec![2]),
                Just(vec![0]),
            ],
            0..24
        )
        .prop_map(|pieces| pieces.concat()),
    ];
    (prop::sample::select(COLD.to_vec()), 0..14_i16, body).prop_map(|(api, version, body)| {
        let mut frame = BytesMut::new();
        frame.put_i16(api.key());
        frame.put_i16(version.min(*api.versions().end()).max(*api.versions().start()));
        frame.put_slice(&[0, 0, 0, 77, 0xff, 0xff]);
        frame.put_slice(&body);
        frame.freeze()
    })
}

proptest! {
    /// LIM-03: whatever lengths and counts a frame claims, it is answered or the connection closed; nothing breaks.
    #[test]
    fn hostile_frames_are_answered_or_closed(frames in prop::collection::vec(a_frame(), 1..8)) {
        let bare = Bare::new();
        bare.create(&[("a", 1)]);
        for frame in frames {
            let bytes = frame.len();
            if let Outcome::Answer(answer) = bare.send(frame) {
                prop_assert!(answer.len() <= 64 * bytes + (1 << 20));
            }
        }
    }
}
