//! The catalog: what live commands lead to, replay leads to; every answer as Apache Kafka 4.4.0 gave it.

use std::collections::HashSet;
use std::sync::Arc;

use corelane::broker::catalog::alter::{Alteration, BROKER, Change, TOPIC, Unnamed};
use corelane::broker::catalog::create::NewTopic;
use corelane::broker::catalog::partitions::MorePartitions;
use corelane::broker::catalog::{Catalog, CatalogRecord, Command, Decision, ItemResult, decide};
use corelane::config::{Config, Operation};
use corelane::ids::{LogId, TopicId, TopicPartition};
use proptest::prelude::*;

fn empty() -> Catalog {
    let config = Config::with(&[("num.partitions", "3")]).unwrap();
    let mut catalog = Catalog::new(Arc::new(config));
    catalog.apply(&CatalogRecord::Identity { cluster_id: "3iNd9icRQyOff_fmZqX4Mw".to_owned(), node_id: 1 });
    catalog
}

/// Ids that count up; the first two have a meaning of their own and must not be taken.
fn counting(next: &mut u8) -> impl FnMut() -> TopicId {
    move || {
        let mut id = [0; 16];
        id[15] = *next;
        *next += 1;
        TopicId(id)
    }
}

/// A catalog with the history that led to it.
struct Live {
    catalog: Catalog,
    records: Vec<CatalogRecord>,
    next_id: u8,
}

impl Live {
    fn new() -> Self {
        let catalog = empty();
        let records = catalog.snapshot_records();
        Self { catalog, records, next_id: 0 }
    }

    fn run(&mut self, command: &Command) -> Vec<ItemResult> {
        let Decision { records, results, next } = decide(&self.catalog, command, counting(&mut self.next_id));
        self.records.extend(records);
        self.catalog = next;
        results
    }

    /// Error code and sentence of the only item.
    fn answer(&mut self, command: &Command) -> (i16, Option<String>) {
        let results = self.run(command);
        let [result] = results.as_slice() else { panic!("one item, {} answers", results.len()) };
        (result.error.code(), result.message.as_deref().map(str::to_owned))
    }
}

fn topic(name: &str, partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic { name: Arc::from(name), partitions, replication_factor, ..NewTopic::default() }
}

fn create(topics: Vec<NewTopic>) -> Command {
    Command::CreateTopics { topics, validate_only: false }
}

fn change(name: &str, operation: Operation, value: Option<&str>) -> Change {
    Change { name: name.to_owned(), operation: Some(operation), value: value.map(str::to_owned) }
}

fn alter(resource_type: i8, name: &str, changes: Vec<Change>) -> Command {
    let resources = vec![Alteration { resource_type, resource_name: Arc::from(name), changes }];
    Command::AlterConfigs { resources, unnamed: Unnamed::Stay, validate_only: false }
}

fn more(name: &str, count: i32, assignments: Option<Vec<Vec<i32>>>) -> Command {
    let topics = vec![MorePartitions { name: Arc::from(name), count, assignments }];
    Command::CreatePartitions { topics, validate_only: false }
}

fn refused(code: i16, message: &str) -> (i16, Option<String>) {
    (code, Some(message.to_owned()))
}

const DONE: (i16, Option<String>) = (0, None);

#[test]
fn names_and_numbers_are_refused_as_kafka_refuses_them() {
    let mut live = Live::new();
    let mut make = |name: &str, partitions, replicas| live.answer(&create(vec![topic(name, partitions, replicas)]));
    assert_eq!(make("a.b", 1, 1), DONE);
    assert_eq!(make("a.b", 1, 1), refused(36, "Topic 'a.b' already exists."));
    assert_eq!(make("a_b", 1, 1), refused(17, "Topic 'a_b' collides with existing topic: a.b"));
    assert_eq!(make("", 1, 1), refused(17, "Topic name is invalid: the empty string is not allowed"));
    assert_eq!(make("__consumer_offsets", 1, 1), DONE);
    assert_eq!(
        make("__cluster_metadata", 1, 1),
        refused(42, "Creation of internal topic __cluster_metadata is prohibited.")
    );
    let too_few = refused(37, "Number of partitions was set to an invalid non-positive value.");
    assert_eq!(make("p", 0, 1), too_few);
    assert_eq!(make("p", -2, 1), too_few);
    let no_replicas = refused(38, "Replication factor must be larger than 0, or -1 to use the default value.");
    assert_eq!(make("p", 1, 0), no_replicas);
    assert_eq!(make("p", 1, -2), no_replicas);
    let (code, message) = make("p", 1, 3);
    assert_eq!(code, 38);
    assert_eq!(
        message.unwrap(),
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because \
         only 1 broker(s) are registered or some brokers have all their log directories cordoned."
    );
    assert_eq!(make("p", -1, -1), DONE);
    assert_eq!(live.catalog.topic("p").unwrap().partitions.len(), 3, "the broker's default");
}

#[test]
fn checks_come_in_kafkas_order() {
    let mut live = Live::new();
    let configs = vec![("nope".to_owned(), Some("1".to_owned()))];
    let with_config = |name: &str| NewTopic { configs: configs.clone(), ..topic(name, 0, 9) };
    let (name_first, _) = live.answer(&create(vec![with_config("h h")]));
    assert_eq!(name_first, 17);
    assert_eq!(live.answer(&create(vec![with_config("hh")])), refused(40, "Unknown topic config name: nope"));
    let (partitions_first, _) = live.answer(&create(vec![topic("hh", 0, 9)]));
    assert_eq!(partitions_first, 37);
}

#[test]
fn brokers_by_hand_must_be_this_one_once() {
    let mut live = Live::new();
    let mut by_hand = |partitions, replicas, assignments: &[(i32, &[i32])]| {
        let assignments = assignments.iter().map(|(partition, brokers)| (*partition, brokers.to_vec())).collect();
        live.answer(&create(vec![NewTopic { assignments, ..topic("t", partitions, replicas) }]))
    };
    assert_eq!(
        by_hand(1, 1, &[(0, &[1])]),
        refused(42, "A manual partition assignment was specified, but replication factor was not set to -1.")
    );
    assert_eq!(
        by_hand(2, -1, &[(0, &[1])]),
        refused(42, "A manual partition assignment was specified, but numPartitions was not set to -1.")
    );
    let stranger = "The manual partition assignment includes broker 2, but no such broker is registered.";
    assert_eq!(by_hand(-1, -1, &[(0, &[2])]), refused(39, stranger));
    assert_eq!(by_hand(-1, -1, &[(0, &[1, 2])]), refused(39, stranger));
    assert_eq!(
        by_hand(-1, -1, &[(0, &[1, 1])]),
        refused(39, "The manual partition assignment includes the broker 1 more than once.")
    );
    assert_eq!(
        by_hand(-1, -1, &[(0, &[])]),
        refused(39, "The manual partition assignment includes an empty replica list.")
    );
    let gap = refused(39, "partitions should be a consecutive 0-based integer sequence");
    assert_eq!(by_hand(-1, -1, &[(1, &[1])]), gap);
    assert_eq!(by_hand(-1, -1, &[(0, &[1]), (-1, &[1])]), gap);
    assert_eq!(
        by_hand(-1, -1, &[(0, &[1]), (0, &[1])]),
        refused(39, "Found multiple manual partition assignments for partition 0")
    );
    assert_eq!(by_hand(-1, -1, &[(1, &[1]), (0, &[1])]), DONE);
    assert_eq!(live.catalog.topic("t").unwrap().partitions.len(), 2);
}

#[test]
fn requests_beyond_ten_thousand_partitions_are_refused_as_a_whole() {
    let mut live = Live::new();
    let codes = |results: Vec<ItemResult>| results.iter().map(|item| item.error.code()).collect::<Vec<_>>();
    let partitions = "Excessively large number of partitions per request.";
    assert_eq!(live.answer(&create(vec![topic("big", i32::MAX, 1)])), refused(44, partitions));
    assert_eq!(
        live.answer(&create(vec![topic("big", 10_000, 1)])),
        refused(44, "Unable to perform excessively large batch operation.")
    );
    assert_eq!(codes(live.run(&create(vec![topic("b1", 6_000, 1), topic("b2", 6_000, 1)]))), [44, 44]);
    assert_eq!(codes(live.run(&create(vec![topic("b1", 6_000, 1), topic("b2", 0, 1)]))), [0, 37]);
    assert_eq!(
        live.answer(&more("b1", i32::MAX, None)),
        refused(44, "Excessively large number of additional partitions per request.")
    );
    assert_eq!(live.catalog.partition_count(), 6_000);
}

#[test]
fn a_name_that_is_there_twice_is_not_made_and_two_that_collide_are_not_both_made() {
    let mut live = Live::new();
    let results = live.run(&create(vec![topic("e1", 1, 1), topic("e1", 1, 1), topic("e2", 1, 1)]));
    let answers: Vec<_> = results.iter().map(|item| (item.error.code(), item.message.as_deref())).collect();
    assert_eq!(answers, [(42, Some("Duplicate topic name.")), (42, Some("Duplicate topic name.")), (0, None)]);
    let results = live.run(&create(vec![topic("f.1", 1, 1), topic("f_1", 1, 1)]));
    assert_eq!(results.iter().map(|item| item.error.code()).collect::<Vec<_>>(), [0, 17]);
}

#[test]
fn partitions_only_grow() {
    let mut live = Live::new();
    live.run(&create(vec![topic("cp", 2, 1)]));
    assert_eq!(live.answer(&more("cp", 2, None)), refused(37, "Topic already has 2 partition(s)."));
    assert_eq!(
        live.answer(&more("cp", -1, None)),
        refused(37, "The topic cp currently has 2 partition(s); -1 would not be an increase.")
    );
    assert_eq!(live.answer(&more("nope", 3, None)), (3, None));
    assert_eq!(
        live.answer(&more("cp", 3, Some(vec![]))),
        refused(39, "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.")
    );
    assert_eq!(
        live.answer(&more("cp", 3, Some(vec![vec![2]]))),
        refused(39, "The manual partition assignment includes broker 2, but no such broker is registered.")
    );
    assert_eq!(live.answer(&more("cp", 4, Some(vec![vec![1], vec![1]]))), DONE);
    let at = |partition| TopicPartition { topic: Arc::from("cp"), partition };
    assert_eq!(live.catalog.log_id(&at(3)), Some(LogId(4)));
    assert_eq!(live.catalog.log_id(&at(4)), None);
}

#[test]
fn settings_change_as_kafka_changes_them() {
    let mut live = Live::new();
    live.run(&create(vec![topic("dc", 1, 1)]));
    let mut on = |kind, name: &str, changes: Vec<Change>| live.answer(&alter(kind, name, changes));
    let set = |name: &str, value: &str| vec![change(name, Operation::Set, Some(value))];
    assert_eq!(on(TOPIC, "dc", set("retention.ms", "5000")), DONE);
    assert_eq!(
        on(TOPIC, "dc", set("retention.ms", "abc")),
        refused(40, "Invalid value abc for configuration retention.ms: Not a number of type LONG")
    );
    assert_eq!(
        on(TOPIC, "dc", vec![change("a", Operation::Set, None), change("b", Operation::Append, None)]),
        refused(42, "Null value not supported for : a, b")
    );
    assert_eq!(
        on(TOPIC, "nope", [set("a", "1"), set("a", "1")].concat()),
        refused(42, "Error due to duplicate config keys")
    );
    assert_eq!(on(TOPIC, "nope", set("a", "1")), refused(3, "The topic 'nope' does not exist."));
    assert_eq!(on(TOPIC, "", set("a", "1")), refused(42, "Default topic resources are not allowed."));
    assert_eq!(
        on(TOPIC, "dc", vec![change("retention.ms", Operation::Append, Some("1"))]),
        refused(40, "Can't APPEND to key retention.ms because its type is not LIST.")
    );
    assert_eq!(
        on(TOPIC, "dc", vec![Change { name: "a".to_owned(), operation: None, value: Some(String::new()) }]),
        (-1, None)
    );
    assert_eq!(on(TOPIC, "dc", vec![change("cleanup.policy", Operation::Append, Some("compact"))]), DONE);
    assert_eq!(on(BROKER, "1", set("log.retention.ms", "7000")), DONE);
    assert_eq!(
        on(BROKER, "2", set("log.retention.ms", "7000")),
        refused(42, "Unexpected broker id, expected 1, but received 2")
    );
    assert_eq!(on(BROKER, "1", set("node.id", "7")), refused(42, "Cannot update these configs dynamically: [node.id]"));
    assert_eq!(on(1, "x", set("a", "b")), refused(42, "Unknown resource type 1"));
    let topic = live.catalog.topic("dc").unwrap();
    assert_eq!(topic.overrides["cleanup.policy"], "delete,compact");
    assert!(topic.settings.cleanup_compact && topic.settings.cleanup_delete);
    assert_eq!(topic.settings.retention_ms, Some(5000), "the topic's own value wins over the broker's");
}

/// What a topic does not set itself follows the broker, at once and for topics that exist already.
#[test]
fn topics_follow_the_brokers_dynamic_settings() {
    let mut live = Live::new();
    live.run(&create(vec![topic("t", 1, 1)]));
    live.run(&alter(BROKER, "", vec![change("log.retention.ms", Operation::Set, Some("8000"))]));
    assert_eq!(live.catalog.topic("t").unwrap().settings.retention_ms, Some(8000));
    live.run(&alter(BROKER, "1", vec![change("log.retention.ms", Operation::Set, Some("9000"))]));
    assert_eq!(live.catalog.topic("t").unwrap().settings.retention_ms, Some(9000));
    live.run(&alter(BROKER, "1", vec![change("log.retention.ms", Operation::Delete, None)]));
    assert_eq!(live.catalog.topic("t").unwrap().settings.retention_ms, Some(8000));
}

#[test]
fn a_resource_may_appear_once_per_request() {
    let mut live = Live::new();
    live.run(&create(vec![topic("dc", 1, 1)]));
    let one = |value: &str| Alteration {
        resource_type: TOPIC,
        resource_name: Arc::from("dc"),
        changes: vec![change("retention.ms", Operation::Set, Some(value))],
    };
    let resources = vec![one("1"), one("2")];
    let results = live.run(&Command::AlterConfigs { resources, unnamed: Unnamed::Stay, validate_only: false });
    for result in results {
        assert_eq!(result.error.code(), 42);
        assert_eq!(result.message.as_deref(), Some("Each resource must appear at most once."));
    }
    assert!(live.catalog.topic("dc").unwrap().overrides.is_empty());
}

#[test]
fn deletion_can_be_switched_off() {
    let config = Config::with(&[("delete.topic.enable", "false")]).unwrap();
    let mut catalog = Catalog::new(Arc::new(config));
    catalog.apply(&CatalogRecord::TopicMade {
        name: "t".to_owned(),
        id: TopicId([7; 16]),
        internal: false,
        logs: vec![LogId(1)],
        overrides: Default::default(),
    });
    let decision = decide(&catalog, &Command::DeleteTopics { ids: vec![TopicId([7; 16])] }, || TopicId::ZERO);
    assert_eq!(decision.results[0].error.code(), 73);
    assert!(decision.records.is_empty());
}

/// Few names, so that they meet: existing, colliding, deleted and made again.
fn a_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "a.b", "a_b", "c", "d-1", "__consumer_offsets", "bad name", ""])
        .prop_map(str::to_owned)
}

fn a_setting() -> impl Strategy<Value = (String, String)> {
    let settings = vec![("retention.ms", "1000"), ("retention.ms", "-1"), ("segment.bytes", "1048576"), ("nope", "1")];
    prop::sample::select(settings).prop_map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn a_new_topic() -> impl Strategy<Value = NewTopic> {
    (a_name(), -1..4_i32, -1..3_i16, prop::option::of(a_setting())).prop_map(|(name, partitions, factor, setting)| {
        let configs = setting.into_iter().map(|(name, value)| (name, Some(value))).collect();
        NewTopic { name: Arc::from(name), partitions, replication_factor: factor, assignments: vec![], configs }
    })
}

fn an_alteration() -> impl Strategy<Value = Alteration> {
    let operation = prop::sample::select(vec![Operation::Set, Operation::Delete, Operation::Append]);
    let resource = prop_oneof![
        a_name().prop_map(|name| (TOPIC, name)),
        prop::sample::select(vec!["", "1"]).prop_map(|name| (BROKER, name.to_owned())),
    ];
    (resource, a_setting(), operation).prop_map(|((resource_type, resource_name), (name, value), operation)| {
        let name = if resource_type == BROKER { format!("log.{name}") } else { name };
        let changes = vec![Change { name, operation: Some(operation), value: Some(value) }];
        Alteration { resource_type, resource_name: Arc::from(resource_name), changes }
    })
}

/// A step of a history; deletions name the topic, whose id is looked up when they run.
#[derive(Clone, Debug)]
enum Step {
    Run(Command),
    Delete(String),
}

fn a_step() -> impl Strategy<Value = Step> {
    let run = prop_oneof![
        (prop::collection::vec(a_new_topic(), 1..4), any::<bool>())
            .prop_map(|(topics, validate_only)| Command::CreateTopics { topics, validate_only }),
        prop::collection::vec(a_name(), 1..4).prop_map(|names| Command::EnsureTopics { names }),
        (a_name(), 0..9, any::<bool>()).prop_map(|(name, count, validate_only)| {
            let topics = vec![MorePartitions { name: Arc::from(name), count, assignments: None }];
            Command::CreatePartitions { topics, validate_only }
        }),
        (
            prop::collection::vec(an_alteration(), 1..4),
            prop::sample::select(vec![Unnamed::Stay, Unnamed::Go]),
            any::<bool>()
        )
            .prop_map(|(resources, unnamed, validate_only)| Command::AlterConfigs {
                resources,
                unnamed,
                validate_only
            }),
        (1..1_000_u32).prop_map(|count| Command::AllocateProducerIds { count }),
    ];
    prop_oneof![4 => run.prop_map(Step::Run), 1 => a_name().prop_map(Step::Delete)]
}

fn is_validate_only(command: &Command) -> bool {
    matches!(
        command,
        Command::CreateTopics { validate_only: true, .. }
            | Command::CreatePartitions { validate_only: true, .. }
            | Command::AlterConfigs { validate_only: true, .. }
    )
}

proptest! {
    /// Whatever was asked: the records, through their bytes, lead to the same catalog, and so does a snapshot; a log id
    /// is never given out twice, not even after deletion; looking only changes nothing.
    #[test]
    fn replay_equals_live(steps in prop::collection::vec(a_step(), 1..30)) {
        let mut live = Live::new();
        let mut given: HashSet<LogId> = HashSet::new();
        let mut producer_ids = 0;
        for step in steps {
            let command = match step {
                Step::Run(command) => command,
                Step::Delete(name) => {
                    let ids = live.catalog.topic(&name).map(|topic| vec![topic.id]).unwrap_or_default();
                    Command::DeleteTopics { ids }
                }
            };
            let before = live.catalog.clone();
            let records_before = live.records.len();
            live.run(&command);
            if is_validate_only(&command) {
                prop_assert_eq!(&live.catalog, &before);
                prop_assert_eq!(live.records.len(), records_before);
            }
            prop_assert!(live.catalog.next_producer_id().0 >= producer_ids);
            producer_ids = live.catalog.next_producer_id().0;
            for record in &live.records[records_before..] {
                let (CatalogRecord::TopicMade { logs, .. } | CatalogRecord::PartitionsAdded { logs, .. }) = record else {
                    continue;
                };
                for log in logs {
                    prop_assert!(given.insert(*log), "{log:?} was given out twice");
                }
            }
        }
        let through_bytes: Vec<CatalogRecord> = live
            .records
            .iter()
            .map(|record| {
                let (kind, bytes) = record.encode();
                CatalogRecord::decode(kind, &bytes).unwrap()
            })
            .collect();
        prop_assert_eq!(&through_bytes, &live.records);
        let config = Arc::clone(empty().config());
        prop_assert_eq!(&Catalog::replay(Arc::clone(&config), &through_bytes), &live.catalog);
        prop_assert_eq!(&Catalog::replay(config, &live.catalog.snapshot_records()), &live.catalog);
        let counted: usize = live.catalog.topics().map(|topic| topic.partitions.len()).sum();
        prop_assert_eq!(counted, live.catalog.partition_count());
    }
}

fn one_of_each() -> Vec<CatalogRecord> {
    let overrides: corelane::config::Overrides = [("retention.ms".to_owned(), "1".to_owned())].into();
    vec![
        CatalogRecord::Identity { cluster_id: "3iNd9icRQyOff_fmZqX4Mw".to_owned(), node_id: 1 },
        CatalogRecord::TopicMade {
            name: "t".to_owned(),
            id: TopicId([3; 16]),
            internal: true,
            logs: vec![LogId(1), LogId(2), LogId(9)],
            overrides: overrides.clone(),
        },
        CatalogRecord::TopicRemoved { id: TopicId([3; 16]) },
        CatalogRecord::PartitionsAdded { id: TopicId([3; 16]), logs: vec![LogId(10)] },
        CatalogRecord::PartitionLog { id: TopicId([3; 16]), partition: 1, log: LogId(11) },
        CatalogRecord::TopicConfigs { id: TopicId([3; 16]), overrides: overrides.clone() },
        CatalogRecord::BrokerConfigs { all: overrides, broker: Default::default() },
        CatalogRecord::Counters { next_log_id: 4, next_producer_id: 5 },
    ]
}

/// A record that ends early anywhere is an error, never a panic and never another record.
#[test]
fn every_cut_of_a_record_is_refused() {
    for record in one_of_each() {
        let (kind, bytes) = record.encode();
        for cut in 0..bytes.len() {
            assert!(CatalogRecord::decode(kind, &bytes[..cut]).is_err(), "{record:?} cut at byte {cut}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(CatalogRecord::decode(kind, &longer).is_err(), "{record:?} with a byte too many");
        assert_eq!(CatalogRecord::decode(kind, &bytes), Ok(record));
    }
}

#[test]
fn fields_of_later_versions_are_skipped_and_kinds_of_later_versions_refused() {
    for record in one_of_each() {
        let (kind, bytes) = record.encode();
        let mut later = bytes.to_vec();
        later[0] += 1;
        later.extend_from_slice(&[0xff, 0x7f, 3, 0, 0, 0, 1, 2, 3]);
        assert_eq!(CatalogRecord::decode(kind, &later), Ok(record));
        let error = CatalogRecord::decode(200, &bytes).unwrap_err().to_string();
        assert!(error.contains("kind 200") && error.contains("newer"), "{error}");
    }
}

proptest! {
    #[test]
    fn random_bytes_are_no_record_or_one_that_can_be_written(kind in 16..24_u8, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(record) = CatalogRecord::decode(kind, &bytes) {
            let (kind, bytes) = record.encode();
            prop_assert_eq!(CatalogRecord::decode(kind, &bytes), Ok(record));
        }
    }
}
