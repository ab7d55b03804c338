//! How transactions end, in both protocols: what their coordinator answers, also after a kill, a time-out, an expiry.

use std::time::{Duration, Instant};

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    BrokerId, DescribeTransactionsRequest, EndTxnRequest, ListOffsetsRequest, ListTransactionsRequest, ProducerId,
    TransactionalId,
};

use super::harness::client::{name, text};
use super::harness::{Broker, Client, Folder, Start};
use super::transactional_ids::{init, init_as, init_request, look, short, world};
use super::transactions::{Producer, aborted, await_stable, committed, described, mark};
use super::world::{TOPIC, World};

/// The longest that a test waits for something that is under way.
const LONG: Duration = Duration::from_secs(30);

/// Asks until the answer is not that an earlier step is under way.
fn settled<T>(mut ask: impl FnMut() -> T, is_under_way: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let answer = ask();
        if !is_under_way(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < LONG, "it never ends");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Error, producer and epoch of the answer to an end, once no earlier step is under way.
fn end(client: &mut Client, version: i16, of: (&str, i64, i16), commits: bool) -> (i16, i64, i16) {
    let asked = EndTxnRequest::default()
        .with_transactional_id(TransactionalId(text(of.0)))
        .with_producer_id(ProducerId(of.1))
        .with_producer_epoch(of.2)
        .with_committed(commits);
    let answer = settled(|| client.ask(version, &asked), |answer| answer.error_code == 51);
    (answer.error_code, answer.producer_id.0, answer.producer_epoch)
}

/// Waits until a transactional id is in a state.
fn await_state(client: &mut Client, id: &str, state: &str) {
    settled(|| described(client, id).0, |now| now != state);
}

/// Where what is stable of a partition ends.
fn stable_end(client: &mut Client, partition: i32) -> i64 {
    let asked = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(-1);
    let asked = asked.with_current_leader_epoch(-1);
    let asked = ListOffsetsTopic::default().with_name(name(TOPIC)).with_partitions(vec![asked]);
    let asked = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![asked]);
    client.ask(7, &asked.with_isolation_level(1)).topics[0].partitions[0].offset
}

/// A transaction of the older protocol with one record in partition 0.
fn classic(client: &mut Client, producer: &Producer, sequence: i32) {
    let added = settled(|| producer.add(client, 3, &[(TOPIC, 0)]), |codes| codes == &[51]);
    assert_eq!(added, [0]);
    assert_eq!(producer.send(client, 10, 0, producer.batch(sequence, 1)).0, 0);
}

/// The same in the newer one.
fn bumping(client: &mut Client, producer: &Producer, sequence: i32) {
    let sent = settled(|| producer.send(client, 12, 0, producer.batch(sequence, 1)), |sent| sent.0 == 51);
    assert_eq!(sent.0, 0);
}

#[test]
fn eos_a13_who_takes_over_ends_what_is_open() {
    let mut world = world("a13");
    let producer = Producer::new(&mut world.client, "a13");
    classic(&mut world.client, &producer, 0);
    assert_eq!(init(&mut world.client, "a13"), (51, -1, -1));
    let client = &mut world.client;
    assert_eq!(settled(|| init(client, "a13"), |answer| answer.0 == 51), (0, producer.id, 2));
    await_stable(&mut world, 2);
    assert_eq!(aborted(&committed(&mut world, 0, 0)), Some(vec![(producer.id, 0)]));
    assert_eq!(producer.send(&mut world.client, 10, 0, producer.batch(1, 1)).0, 47, "it is fenced");
}

#[test]
fn eos_d07_the_older_protocol_repeats_an_end_and_refuses_the_other() {
    let mut world = world("d07");
    let client = &mut world.client;
    let producer = Producer::new(client, "d07");
    let of = ("d07", producer.id, 0);
    for commits in [true, false] {
        assert_eq!(end(client, 4, of, commits).0, 48, "nothing was begun");
    }
    for (commits, sequence) in [(true, 0), (false, 1)] {
        classic(client, &producer, sequence);
        assert_eq!(end(client, 4, of, commits).0, 0);
        assert_eq!(end(client, 3, of, commits).0, 0, "again");
        assert_eq!(end(client, 1, of, !commits).0, 48, "the other way");
    }
    assert_eq!(end(client, 4, ("d07", producer.id, 1), true).0, 90);
    assert_eq!(end(client, 1, ("d07", producer.id, 1), true).0, 47);
    assert_eq!(end(client, 4, ("d07", producer.id + 1, 0), true).0, 49);
    assert_eq!(end(client, 4, ("nobody", producer.id, 0), true).0, 49);
    assert_eq!(end(client, 4, ("", producer.id, 0), true).0, 42);
}

#[test]
fn eos_d08_in_the_older_protocol_sequences_go_on() {
    let mut world = world("d08");
    let client = &mut world.client;
    let producer = Producer::new(client, "d08");
    for sequence in 0..3 {
        classic(client, &producer, sequence);
        assert_eq!(end(client, 4, ("d08", producer.id, 0), sequence != 1).0, 0);
    }
    await_stable(&mut world, 6);
    assert_eq!(aborted(&committed(&mut world, 0, 0)), Some(vec![(producer.id, 2)]));
}

#[test]
fn eos_d09_each_end_of_the_newer_protocol_gives_a_new_epoch_once() {
    let mut world = world("d09");
    let client = &mut world.client;
    let producer = Producer::new(client, "d09");
    let id = producer.id;
    bumping(client, &producer, 0);
    for _ in 0..2 {
        assert_eq!(end(client, 5, ("d09", id, 0), true), (0, id, 1), "also when its answer was lost");
    }
    assert_eq!(end(client, 5, ("d09", id, 0), false), (48, -1, -1));
    assert_eq!(end(client, 5, ("d09", id, 1), true), (48, -1, -1), "nothing was begun");
    assert_eq!(end(client, 5, ("d09", id, 2), true), (90, -1, -1));
    assert_eq!(end(client, 5, ("d09", id + 1, 1), true), (49, -1, -1));
}

#[test]
fn eos_d10_an_abort_of_nothing_gives_a_new_epoch() {
    let mut world = world("d10");
    let client = &mut world.client;
    let mut producer = Producer::new(client, "d10");
    let id = producer.id;
    assert_eq!(end(client, 5, ("d10", id, 0), true), (48, -1, -1));
    assert_eq!(end(client, 5, ("d10", id, 0), false), (0, id, 1), "where nothing was ever begun");
    assert_eq!(end(client, 5, ("d10", id, 1), false), (0, id, 2), "after an abort");
    producer.epoch = 2;
    bumping(client, &producer, 0);
    assert_eq!(end(client, 5, ("d10", id, 2), true), (0, id, 3));
    assert_eq!(end(client, 5, ("d10", id, 3), false), (0, id, 4), "after a commit");
    await_state(client, "d10", "CompleteAbort");
    await_stable(&mut world, 2);
    assert_eq!(aborted(&committed(&mut world, 0, 0)), Some(vec![]));
}

#[test]
fn eos_d11_what_follows_a_commit_has_the_new_epoch_and_begins_at_zero() {
    let mut world = world("d11");
    let client = &mut world.client;
    let mut producer = Producer::new(client, "d11");
    bumping(client, &producer, 0);
    assert_eq!(end(client, 5, ("d11", producer.id, 0), true), (0, producer.id, 1));
    await_state(client, "d11", "CompleteCommit");
    assert_eq!(producer.send(client, 12, 0, producer.batch(1, 1)).0, 47);
    producer.epoch = 1;
    assert_eq!(producer.send(client, 12, 0, producer.batch(2, 1)).0, 45);
    assert_eq!(producer.send(client, 12, 0, producer.batch(0, 1)), (0, 2));
}

#[test]
fn eos_d14_a_transaction_that_is_open_for_too_long_is_aborted() {
    let mut world =
        World::with("d14", |start| start.set("transaction.abort.timed.out.transaction.cleanup.interval.ms=50"));
    look(&mut world.client);
    let client = &mut world.client;
    let (_, id, epoch) = short(&client.ask(5, &init_request("d14", (-1, -1), 1000)));
    let producer = Producer { name: "d14", id, epoch };
    bumping(client, &producer, 0);
    await_state(client, "d14", "CompleteAbort");
    assert_eq!(producer.send(client, 12, 0, producer.batch(1, 1)).0, 47);
    let (code, ..) = end(client, 5, ("d14", id, 0), true);
    assert!(code == 48 || code == 90, "{code}");
    assert_eq!(end(client, 4, ("d14", id, 0), true).0, 90);
    assert_eq!(end(client, 5, ("d14", id, 0), false), (0, id, 1), "it goes on with the new epoch");
    assert_eq!(init_as(client, 5, "d14", (id, 0)), (0, id, 1));
    await_stable(&mut world, 2);
    assert_eq!(aborted(&committed(&mut world, 0, 0)), Some(vec![(id, 0)]));
}

/// A broker with the usual topic and a coordinator, on a folder that outlives it.
fn on(folder: &Folder) -> (Broker, Client) {
    let broker = Start::on(folder).start();
    let mut client = Client::connect(broker.address);
    look(&mut client);
    (broker, client)
}

#[test]
fn eos_d15_a_commit_that_was_answered_outlives_a_kill() {
    let folder = Folder::new("d15");
    let (mut broker, mut client) = on(&folder);
    client.create_topic(TOPIC, 3, &[]);
    let mut ends = [0; 3];
    for (round, commits) in [true, false, true, true].into_iter().enumerate() {
        let id = ["d15-0", "d15-1", "d15-2", "d15-3"][round];
        let mut producer = Producer::new(&mut client, id);
        for partition in 0..3 {
            assert_eq!(producer.send(&mut client, 12, partition, producer.batch(0, 2)).0, 0);
        }
        assert_eq!(producer.end(&mut client, 5, commits), 0);
        broker.kill9();
        (broker, client) = on(&folder);
        await_state(&mut client, id, if commits { "CompleteCommit" } else { "CompleteAbort" });
        for (partition, end) in (0..).zip(&mut ends) {
            let stable = settled(|| stable_end(&mut client, partition), |stable| *stable < *end + 3);
            // A marker may be there twice.
            assert!(stable <= *end + 4, "partition {partition} ends at {stable}");
            *end = client.end(TOPIC, partition);
            assert_eq!(*end, stable);
        }
    }
    broker.stop_cleanly();
}

#[test]
fn eos_d17_an_open_transaction_outlives_a_kill() {
    let folder = Folder::new("d17");
    let (broker, mut client) = on(&folder);
    client.create_topic(TOPIC, 1, &[]);
    let mut producer = Producer::new(&mut client, "d17");
    bumping(&mut client, &producer, 0);
    broker.kill9();
    let (broker, mut client) = on(&folder);
    await_state(&mut client, "d17", "Ongoing");
    assert_eq!((stable_end(&mut client, 0), client.end(TOPIC, 0)), (0, 1));
    assert_eq!(producer.send(&mut client, 12, 0, producer.batch(0, 1)), (0, 0), "again");
    assert_eq!(producer.send(&mut client, 12, 0, producer.batch(1, 1)), (0, 1));
    assert_eq!(producer.end(&mut client, 5, true), 0);
    await_state(&mut client, "d17", "CompleteCommit");
    assert_eq!((stable_end(&mut client, 0), client.end(TOPIC, 0)), (3, 3));
    broker.stop_cleanly();
}

#[test]
fn eos_d19_both_protocols_take_turns_on_one_transactional_id() {
    let mut world = world("d19");
    let client = &mut world.client;
    let mut producer = Producer::new(client, "d19");
    let id = producer.id;
    let mut sequence = 0;
    for round in 0..4 {
        classic(client, &producer, sequence);
        assert_eq!(end(client, 4, ("d19", id, producer.epoch), true).0, 0, "round {round}");
        bumping(client, &producer, sequence + 1);
        assert_eq!(end(client, 5, ("d19", id, producer.epoch), true), (0, id, producer.epoch + 1), "round {round}");
        producer.epoch += 1;
        sequence = 0;
    }
    await_stable(&mut world, 16);
    assert_eq!(aborted(&committed(&mut world, 0, 0)), Some(vec![]));
}

#[test]
fn eos_d20_a_transactional_id_that_nobody_uses_is_forgotten() {
    let mut world = World::with("d20", |start| {
        let start = start.set("transactional.id.expiration.ms=500");
        start.set("transaction.remove.expired.transaction.cleanup.interval.ms=50")
    });
    look(&mut world.client);
    let client = &mut world.client;
    let producer = Producer::new(client, "d20");
    bumping(client, &producer, 0);
    let open = Producer::new(client, "d20-open");
    let added = settled(|| open.add(client, 3, &[(TOPIC, 1)]), |codes| codes == &[51]);
    assert_eq!(added, [0]);
    assert_eq!(end(client, 5, ("d20", producer.id, 0), true), (0, producer.id, 1));
    let asked = DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(text("d20"))]);
    settled(|| client.ask(0, &asked).transaction_states[0].error_code, |code| *code != 105);
    assert_eq!(end(client, 5, ("d20", producer.id, 1), false), (49, -1, -1));
    let (error, id, epoch) = init_as(client, 5, "d20", (producer.id, 1));
    assert!((error, epoch) == (0, 0) && id != producer.id, "a new producer, whatever it was before");
    assert_eq!(described(client, "d20-open").0, "Ongoing", "what is open is kept");
}

#[test]
fn eos_d21_a_marker_from_outside_does_not_hold_the_transaction() {
    let mut world = world("d21");
    let client = &mut world.client;
    let producer = Producer::new(client, "d21");
    let id = producer.id;
    for partition in 0..2 {
        assert_eq!(producer.send(client, 12, partition, producer.batch(0, 1)).0, 0);
    }
    assert_eq!(mark(client, TOPIC, (id, 9), 1, false), 0);
    assert_eq!(end(client, 5, ("d21", id, 0), true), (0, id, 1));
    await_state(client, "d21", "CompleteCommit");
    let mut next = Producer { name: "d21", id, epoch: 1 };
    assert_eq!(next.send(client, 12, 1, next.batch(0, 1)).0, 0, "it goes on");
    assert_eq!(next.end(client, 5, true), 0);
}

#[test]
fn eos_e13_states_that_nobody_knows_are_named() {
    let mut world = world("e13");
    let client = &mut world.client;
    let open = Producer::new(client, "e13-open");
    bumping(client, &open, 0);
    Producer::new(client, "e13-empty");
    for version in 0..=1 {
        let mut listed = |states: &[&str], ids: &[i64]| {
            let asked = ListTransactionsRequest::default()
                .with_state_filters(states.iter().map(|state| text(state)).collect())
                .with_producer_id_filters(ids.iter().map(|id| ProducerId(*id)).collect());
            let answer = client.ask(version, &asked);
            let unknown: Vec<_> = answer.unknown_state_filters.iter().map(ToString::to_string).collect();
            let all = answer.transaction_states.iter();
            let mut all: Vec<_> =
                all.map(|one| (one.transactional_id.to_string(), one.transaction_state.to_string())).collect();
            all.sort_unstable();
            (answer.error_code, unknown, all)
        };
        let ongoing = ("e13-open".to_owned(), "Ongoing".to_owned());
        let empty = ("e13-empty".to_owned(), "Empty".to_owned());
        assert_eq!(listed(&["Ongoing", "Bogus"], &[]), (0, vec!["Bogus".to_owned()], vec![ongoing.clone()]));
        assert_eq!(listed(&["Bogus"], &[]), (0, vec!["Bogus".to_owned()], vec![]));
        assert_eq!(listed(&["Dead"], &[]), (0, vec![], vec![]), "known, and never seen");
        assert_eq!(listed(&[], &[open.id]), (0, vec![], vec![ongoing.clone()]));
        assert_eq!(listed(&[], &[]), (0, vec![], vec![empty, ongoing]));
    }
}
