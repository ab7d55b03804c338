//! Fetch: what may be read, how much, and how long it takes.

use std::time::{Duration, Instant};

use corelane::wire::builder::BatchBuilder;
use kafka_protocol::messages::{BrokerId, FetchRequest};
use uuid::Uuid;

use super::harness::client::name;
use super::world::*;

/// Longer than any answer that does not wait.
const LONG_MS: i32 = 20_000;
const LONG: Duration = Duration::from_millis(LONG_MS as u64 / 2);

fn filled(name: &str, batches: i64) -> World {
    let mut world = World::new(name);
    for batch in 0..batches {
        assert_eq!(world.send(plain(10)), (0, batch * 10));
    }
    world
}

/// Bytes of one batch as `filled` writes them.
fn batch_bytes() -> i32 {
    plain(10).build().len() as i32
}

impl World {
    /// The bases that partition 0 answers, and whether that took long.
    fn timed(&mut self, request: &FetchRequest) -> (Vec<i64>, bool) {
        let begun = Instant::now();
        let answer = self.fetch_one(12, request);
        assert_eq!(answer.error_code, 0);
        (bases(&answer), begun.elapsed() > LONG)
    }
}

#[test]
fn fet_01_the_first_batch_is_whole_and_the_only_one_too_large() {
    let mut world = filled("fet01", 2);
    let large = BatchBuilder::new().value(TIME, &vec![b'x'; 1_000_000]);
    assert_eq!(world.short(TOPIC, 1, large), (0, 0, -1, 0));
    let request = |bytes_max, partition_bytes_max| {
        let mut request = fetch_from(&[(2, 0), (1, 0), (0, 0)]).with_max_bytes(bytes_max);
        for partition in &mut request.topics[0].partitions {
            partition.partition_max_bytes = partition_bytes_max;
        }
        request
    };
    for (bytes_max, partition_bytes_max) in [(1, 1), (0, 0), (1, 1 << 20), (1 << 20, 1), (-1, -1)] {
        let answer = world.fetch(12, &request(bytes_max, partition_bytes_max));
        let sizes: Vec<_> = answer.responses[0].partitions.iter().map(|one| bases(one).len()).collect();
        assert_eq!(sizes, [0, 1, 0], "{bytes_max} {partition_bytes_max}");
    }
}

#[test]
fn fet_03_an_offset_within_a_batch_gives_the_whole_batch() {
    let mut world = filled("fet03", 3);
    assert_eq!(bases(&world.fetch_one(12, &fetch_from(&[(0, 15)]))), [10, 20]);
}

#[test]
fn fet_04_outside_of_the_log_is_an_error_and_its_end_is_none() {
    let mut world = filled("fet04", 4);
    let short = |world: &mut World, offset| {
        let answer = world.fetch_one(12, &fetch_from(&[(0, offset)]));
        let marks = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset);
        (answer.error_code, marks, bases(&answer).len())
    };
    for offset in [-1, -5, 41, 99] {
        assert_eq!(short(&mut world, offset), (1, (-1, -1, -1), 0));
    }
    assert_eq!(short(&mut world, 40), (0, (40, 40, 0), 0));
    assert_eq!(short(&mut world, 0), (0, (40, 40, 0), 4));
}

#[test]
fn fet_05_an_idle_fetch_waits_as_long_as_it_says() {
    let mut world = filled("fet05", 1);
    let begun = Instant::now();
    assert_eq!(bases(&world.fetch_one(12, &fetch_from(&[(0, 10)]).with_max_wait_ms(300))), [0; 0]);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let at_once = fetch_from(&[(0, 10)]).with_min_bytes(0).with_max_wait_ms(LONG_MS);
    assert_eq!(world.timed(&at_once), (vec![], false));
}

#[test]
fn fet_05_an_append_ends_the_wait() {
    let mut world = filled("fet05-append", 1);
    let request = fetch_from(&[(1, 0), (0, 10)]).with_max_wait_ms(LONG_MS);
    let mut waiting = super::harness::Client::connect(world.broker.address);
    let begun = Instant::now();
    let correlation = waiting.send(12, &request);
    world.send(plain(1));
    let answer = waiting.receive::<FetchRequest>(12, correlation);
    assert_eq!(bases(&answer.responses[0].partitions[1]), [10]);
    assert!(begun.elapsed() < LONG);
}

/// What the limits keep out counts as found: waiting would not make it more.
#[test]
fn fewest_bytes_that_the_limits_cannot_give_are_not_waited_for() {
    let mut world = filled("min-bytes", 4);
    let bytes = batch_bytes();
    let limited = fetch_from(&[(0, 0)]).with_max_wait_ms(LONG_MS);
    let above_max = limited.clone().with_min_bytes(1 << 30).with_max_bytes(bytes + 1);
    assert_eq!(world.timed(&above_max), (vec![0], false));
    let between_batches = limited.clone().with_min_bytes(2 * bytes + 1).with_max_bytes(3 * bytes - 1);
    assert_eq!(world.timed(&between_batches), (vec![0, 10], false));
    let mut of_partition = limited.clone().with_min_bytes(bytes + 1);
    of_partition.topics[0].partitions[0].partition_max_bytes = 2 * bytes - 1;
    assert_eq!(world.timed(&of_partition), (vec![0], false));
    let more_than_there_is = limited.with_min_bytes(5 * bytes).with_max_wait_ms(300);
    let begun = Instant::now();
    assert_eq!(world.timed(&more_than_there_is).0.len(), 4);
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[test]
fn what_is_not_known_does_not_cut_the_wait_of_the_others() {
    let mut world = filled("unknown-waits", 1);
    let mut request = fetch_from(&[(0, 10), (99, 0)]).with_max_wait_ms(300);
    let begun = Instant::now();
    let answer = world.fetch(12, &request);
    assert_eq!(answer.responses[0].partitions.iter().map(|one| one.error_code).collect::<Vec<_>>(), [0, 3]);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    request.topics[0].partitions.remove(0);
    let begun = Instant::now();
    assert_eq!(world.fetch_one(12, &request.with_max_wait_ms(LONG_MS)).error_code, 3);
    let mut out_of_range = fetch_from(&[(0, 99), (1, 0)]).with_max_wait_ms(LONG_MS);
    assert_eq!(world.fetch_one(12, &out_of_range).error_code, 1);
    out_of_range.topics.clear();
    assert!(world.fetch(12, &out_of_range).responses.is_empty());
    assert!(begun.elapsed() < LONG);
}

/// Null for read_uncommitted, empty for read_committed and for what is not known; records are never null (WIRE-05).
#[test]
fn aborted_transactions_are_null_or_empty_as_in_kafka() {
    let mut world = filled("aborted", 1);
    let (id, _) = world.client.topic(TOPIC).unwrap();
    for version in 4..=18 {
        let mut list = |partition, offset, isolation| {
            let mut request = fetch_from(&[(partition, offset)]).with_isolation_level(isolation);
            request.topics[0].topic_id = id;
            if version >= 13 {
                request.topics[0].topic = name("");
            }
            let answer = world.fetch_one(version, &request);
            assert!(answer.records.is_some(), "version {version}");
            answer.aborted_transactions.map(|list| list.len())
        };
        assert_eq!((list(0, 0, 0), list(0, 10, 0), list(0, 99, 0)), (None, None, None));
        assert_eq!((list(0, 0, 1), list(0, 10, 1), list(0, 99, 1)), (Some(0), Some(0), None));
        assert_eq!((list(99, 0, 0), list(99, 0, 1)), (Some(0), Some(0)));
    }
}

#[test]
fn topics_are_named_by_id_from_version_thirteen_on() {
    let mut world = filled("fetch-v13", 1);
    let (id, _) = world.client.topic(TOPIC).unwrap();
    let mut by_id = |id, partition| {
        let mut request = fetch_from(&[(partition, 0)]);
        request.topics[0].topic = name("");
        request.topics[0].topic_id = id;
        world.fetch_one(13, &request).error_code
    };
    let unknown = Uuid::from_u128(99);
    assert_eq!((by_id(id, 0), by_id(id, 99), by_id(unknown, 0), by_id(Uuid::nil(), 0)), (0, 3, 100, 100));
}

/// Errors of the epoch; the leader and where it is come with version 16.
#[test]
fn fet_12_older_epochs_are_fenced_and_newer_ones_not_known() {
    let mut world = filled("fet12", 1);
    let (id, _) = world.client.topic(TOPIC).unwrap();
    let now = world.offset(TOPIC, -1).leader_epoch;
    let port = i32::from(world.broker.address.port());
    for version in 9..=18 {
        let mut ask = |epoch, replica| {
            let mut request = fetch_from(&[(0, 0)]).with_replica_id(BrokerId(replica));
            request.replica_state.replica_id = BrokerId(replica);
            request.topics[0].partitions[0].current_leader_epoch = epoch;
            if version >= 13 {
                request.topics[0].topic = name("");
                request.topics[0].topic_id = id;
            }
            if version >= 15 {
                request.replica_id = BrokerId(-1);
            } else {
                request.replica_state.replica_id = BrokerId(-1);
            }
            let answer = world.fetch(version, &request);
            let partition = &answer.responses[0].partitions[0];
            let endpoints: Vec<_> = answer.node_endpoints.iter().map(|node| (node.node_id.0, node.port)).collect();
            (partition.error_code, partition.current_leader.leader_epoch, endpoints)
        };
        let (told, endpoints) = if version >= 16 { (now, vec![(1, port)]) } else { (-1, vec![]) };
        assert_eq!(ask(now, -1), (0, -1, vec![]));
        assert_eq!(ask(-2, -1), (0, -1, vec![]), "no epoch");
        assert_eq!(ask(now + 5, -1), (75, -1, vec![]));
        assert_eq!(ask(now - 1, -1), (74, told, endpoints), "version {version}");
        assert_eq!(ask(-1, 5), (6, told, vec![]), "nobody follows this broker");
    }
}
