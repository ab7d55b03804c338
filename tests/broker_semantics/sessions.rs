//! Fetch sessions (KIP-227).

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use uuid::Uuid;

use super::harness::client::name;
use super::harness::{Client, Folder, Start};
use super::world::*;

/// Topic (or its id), partition, error, high watermark, base offsets.
type Part = (String, i32, i16, i64, Vec<i64>);

/// Partitions of one topic and where to read on.
type Wants<'a> = (&'a str, &'a [(i32, i64)]);

fn by_name(topics: &[Wants<'_>]) -> Vec<FetchTopic> {
    topics.iter().map(|(topic, partitions)| asked(partitions).with_topic(name(topic))).collect()
}

fn by_id(topics: &[(Uuid, &[(i32, i64)])]) -> Vec<FetchTopic> {
    topics.iter().map(|(id, partitions)| asked(partitions).with_topic_id(*id)).collect()
}

fn asked(partitions: &[(i32, i64)]) -> FetchTopic {
    let partitions = partitions.iter().map(|(index, offset)| {
        let asked = FetchPartition::default().with_partition(*index).with_fetch_offset(*offset);
        asked.with_partition_max_bytes(1 << 20).with_current_leader_epoch(-1)
    });
    FetchTopic::default().with_partitions(partitions.collect())
}

/// A step of a session; waits for nothing.
fn step(id: i32, epoch: i32, topics: Vec<FetchTopic>) -> FetchRequest {
    let request = FetchRequest::default().with_max_bytes(50 << 20).with_session_id(id).with_session_epoch(epoch);
    request.with_topics(topics)
}

fn forgetting(request: FetchRequest, topic: &str, partitions: &[i32]) -> FetchRequest {
    let mut all = request.forgotten_topics_data.clone();
    all.push(ForgottenTopic::default().with_topic(name(topic)).with_partitions(partitions.to_vec()));
    request.with_forgotten_topics_data(all)
}

fn parts(answer: &FetchResponse) -> Vec<Part> {
    let of_topic = answer.responses.iter().flat_map(|topic| {
        let called = if topic.topic_id.is_nil() { topic.topic.to_string() } else { topic.topic_id.to_string() };
        topic
            .partitions
            .iter()
            .map(move |one| (called.clone(), one.partition_index, one.error_code, one.high_watermark, bases(one)))
    });
    of_topic.collect()
}

fn part(topic: &str, index: i32, error: i16, high_watermark: i64, bases: &[i64]) -> Part {
    (topic.to_owned(), index, error, high_watermark, bases.to_vec())
}

/// Error, session, partitions.
fn short(answer: &FetchResponse) -> (i16, i32, Vec<Part>) {
    (answer.error_code, answer.session_id, parts(answer))
}

impl World {
    fn step(&mut self, request: &FetchRequest) -> (i16, i32, Vec<Part>) {
        let answer = self.fetch(12, request);
        short(&answer)
    }

    /// A new session for these; gives its id.
    fn session(&mut self, topics: Vec<FetchTopic>) -> i32 {
        let (error, id, _) = self.step(&step(0, 0, topics));
        assert_eq!(error, 0);
        assert!(id > 0);
        id
    }
}

/// Only what has changed is answered, unknown partitions each time; what gave records goes to the end (WIRE-05, KIP-227).
#[test]
fn fet_08_an_incremental_answer_lists_only_what_changed() {
    let mut world = World::new("session");
    world.client.create_topic("u", 2, &[]);
    world.send(plain(2));
    let first = by_name(&[(TOPIC, &[(0, 0), (99, 0), (1, 0)]), ("nope", &[(0, 0)]), ("u", &[(0, 0)])]);
    let (error, id, all) = world.step(&step(0, 0, first));
    let unknown = [part(TOPIC, 99, 3, -1, &[]), part("nope", 0, 3, -1, &[])];
    let known = [part(TOPIC, 0, 0, 2, &[0]), part(TOPIC, 1, 0, 0, &[]), part("u", 0, 0, 0, &[])];
    assert_eq!((error, all), (0, [known.as_slice(), unknown.as_slice()].concat()));
    assert!(id > 0);
    let (again, unknown) = (part(TOPIC, 0, 0, 2, &[0]), unknown.to_vec());
    assert_eq!(world.step(&step(id, 1, vec![])), (0, id, [vec![again], unknown.clone()].concat()));
    assert_eq!(world.step(&step(id, 2, by_name(&[(TOPIC, &[(0, 2)])]))), (0, id, unknown.clone()));
    world.send(plain(1));
    world.short("u", 0, plain(1));
    let both = vec![part("u", 0, 0, 1, &[0]), part(TOPIC, 0, 0, 3, &[2])];
    assert_eq!(world.step(&step(id, 3, vec![])), (0, id, [both.clone(), unknown.clone()].concat()));
    assert_eq!(world.step(&step(id, 4, vec![])), (0, id, [both, unknown].concat()));
    let forgets = forgetting(step(id, 5, by_name(&[(TOPIC, &[(0, 3)])])), TOPIC, &[99]);
    let forgets = forgetting(forgetting(forgets, "nope", &[0]), "nada", &[0]);
    assert_eq!(world.step(&forgets), (0, id, vec![part("u", 0, 0, 1, &[0])]));
    assert_eq!(world.step(&step(id, 6, by_name(&[("u", &[(0, 1)])]))), (0, id, vec![]));
    assert_eq!(world.step(&step(id, 7, vec![])), (0, id, vec![]));
}

#[test]
fn fet_08_session_errors_stand_at_the_top_and_alone() {
    let mut world = World::new("session-errors");
    let wants = || by_name(&[(TOPIC, &[(0, 0)])]);
    let id = world.session(wants());
    for (session, epoch, error) in [(id, 5, 71), (id, 2, 71), (id, -2, 71), (0, 1, 70), (0, -2, 70), (-1, 1, 70)] {
        assert_eq!(world.step(&step(session, epoch, wants())), (error, 0, vec![]), "{session} {epoch}");
    }
    for missing in [12345, i32::MAX, i32::MIN] {
        assert_eq!(world.step(&step(missing, 1, wants())), (70, 0, vec![]), "{missing}");
    }
    let topic = world.client.topic(TOPIC).unwrap().0;
    let by_id_step = step(id, 1, by_id(&[(topic, &[(0, 0)])]));
    assert_eq!(short(&world.fetch(13, &by_id_step)), (106, 0, vec![]));
    assert_eq!(world.step(&step(id, 1, vec![])), (0, id, vec![]), "none of that has harmed it");
    let by_ids = world.fetch(13, &step(0, 0, by_id(&[(topic, &[(0, 0)])]))).session_id;
    assert_eq!(world.step(&step(by_ids, 1, vec![])), (106, 0, vec![]));
    assert_eq!(world.step(&step(id, 1, vec![])), (71, 0, vec![]), "an epoch counts once");
}

#[test]
fn fet_08_full_requests_close_the_session_that_they_name() {
    let mut world = World::new("session-close");
    let wants = || by_name(&[(TOPIC, &[(0, 0)])]);
    let whole = vec![part(TOPIC, 0, 0, 0, &[])];
    let id = world.session(wants());
    assert_eq!(world.step(&step(id, -1, wants())), (0, 0, whole.clone()), "the last one, and none is begun");
    assert_eq!(world.step(&step(id, 1, vec![])), (70, 0, vec![]));
    let id = world.session(wants());
    let (error, other, all) = world.step(&step(id, 0, wants()));
    assert_eq!((error, all), (0, whole.clone()));
    assert!(other > 0 && other != id);
    assert_eq!(world.step(&step(id, 1, vec![])), (70, 0, vec![]));
    assert_eq!(world.step(&step(other, 1, vec![])), (0, other, vec![]));
    assert_eq!(world.step(&step(0, -1, wants())), (0, 0, whole.clone()));
    assert_eq!(world.step(&step(12345, -1, wants())), (0, 0, whole));
    let nothing = world.step(&step(0, 0, vec![]));
    assert!(nothing.0 == 0 && nothing.1 > 0 && nothing.2.is_empty(), "{nothing:?}");
}

/// A session that forgets all it has is over; what the request itself wants is answered without one.
#[test]
fn a_session_without_partitions_is_over() {
    let mut world = World::new("session-empty");
    let id = world.session(by_name(&[(TOPIC, &[(0, 0), (1, 0)])]));
    let forgets = forgetting(step(id, 1, by_name(&[(TOPIC, &[(2, 0)])])), TOPIC, &[0, 1, 2]);
    assert_eq!(world.step(&forgets), (0, 0, vec![part(TOPIC, 2, 0, 0, &[])]));
    assert_eq!(world.step(&step(id, 2, vec![])), (70, 0, vec![]));
}

#[test]
fn a_deleted_topic_is_told_by_id_and_by_name() {
    let mut world = World::new("session-deleted");
    world.client.create_topic("gone", 1, &[]);
    let id = world.client.topic("gone").unwrap().0;
    let unknown = Uuid::from_u128(7);
    let ids = world.fetch(13, &step(0, 0, by_id(&[(unknown, &[(0, 0)]), (id, &[(0, 0), (5, 0)])])));
    let never = part(&unknown.to_string(), 0, 100, -1, &[]);
    let of_gone = |index, error| part(&id.to_string(), index, error, -1, &[]);
    let kept = part(&id.to_string(), 0, 0, 0, &[]);
    assert_eq!(parts(&ids), [kept, never.clone(), of_gone(5, 3)]);
    let names = world.session(by_name(&[("gone", &[(0, 0)]), (TOPIC, &[(0, 0)])]));
    let by_ids = |world: &mut World, epoch| parts(&world.fetch(13, &step(ids.session_id, epoch, vec![])));
    world.client.delete_topic("gone");
    for epoch in [1, 2] {
        assert_eq!(by_ids(&mut world, epoch), [never.clone(), of_gone(0, 3), of_gone(5, 3)]);
    }
    assert_eq!(world.step(&step(names, 1, vec![])), (0, names, vec![part("gone", 0, 3, -1, &[])]));
    world.client.create_topic("gone", 1, &[]);
    for epoch in [3, 4] {
        assert_eq!(by_ids(&mut world, epoch), [of_gone(0, 103), never.clone(), of_gone(5, 3)]);
    }
    let again = vec![part("gone", 0, 0, 0, &[])];
    assert_eq!(world.step(&step(names, 2, vec![])), (0, names, again), "by name it is the same topic");
    assert_eq!(world.step(&step(names, 3, vec![])), (0, names, vec![]));
}

/// A partition that is named twice is answered once, where it stood first and as it was asked for last.
#[test]
fn repeated_partitions_are_answered_once() {
    let mut world = World::new("repeated");
    world.send(plain(3));
    let wants = || by_name(&[(TOPIC, &[(0, 0), (1, 0), (0, 1)]), ("nope", &[(0, 0)]), (TOPIC, &[(2, 0), (0, 3)])]);
    let once = vec![
        part(TOPIC, 0, 0, 3, &[]),
        part(TOPIC, 1, 0, 0, &[]),
        part(TOPIC, 2, 0, 0, &[]),
        part("nope", 0, 3, -1, &[]),
    ];
    assert_eq!(world.step(&step(0, -1, wants())), (0, 0, once.clone()));
    let (error, id, all) = world.step(&step(0, 0, wants()));
    assert_eq!((error, all), (0, once));
    assert_eq!(world.step(&step(id, 1, vec![])).2, [part("nope", 0, 3, -1, &[])]);
}

/// A session of one core is none on the other, and can be closed from there: connections are dealt out to both.
#[test]
fn a_session_of_another_core_is_answered_as_evicted() {
    let folder = Folder::new("session-cores");
    let broker = Start::on(&folder).start();
    let mut first = Client::connect(broker.address);
    first.create_topic(TOPIC, 1, &[]);
    let wants = || by_name(&[(TOPIC, &[(0, 0)])]);
    let id = first.ask(12, &step(0, 0, wants())).session_id;
    let mut others: Vec<_> = (0..8).map(|_| Client::connect(broker.address)).collect();
    let mut epoch = 1;
    let mut elsewhere = None;
    for other in &mut others {
        let answer = other.ask(12, &step(id, epoch, vec![]));
        match answer.error_code {
            0 => epoch += 1,
            70 => elsewhere = Some(other),
            wrong => panic!("error {wrong}"),
        }
    }
    let elsewhere = elsewhere.expect("eight connections and none on the other core");
    assert_eq!(first.ask(12, &step(id, epoch, vec![])).error_code, 0, "the session lives on where it was made");
    let moved = elsewhere.ask(12, &step(id, 0, wants())).session_id;
    assert!(moved > 0 && moved != id);
    // The other core is told by a message; it comes before long.
    while first.ask(12, &step(id, epoch + 1, vec![])).error_code != 70 {
        epoch += 1;
    }
    assert_eq!(elsewhere.ask(12, &step(moved, 1, vec![])).error_code, 0);
}

/// Without slots every request is a full one.
#[test]
fn without_slots_there_are_no_sessions() {
    let folder = Folder::new("session-slots");
    let broker = Start::on(&folder).cores(1).set("max.incremental.fetch.session.cache.slots=1").start();
    let mut client = Client::connect(broker.address);
    client.create_topic(TOPIC, 1, &[]);
    let wants = || by_name(&[(TOPIC, &[(0, 0)])]);
    let first = client.ask(12, &step(0, 0, wants()));
    assert!(first.session_id > 0);
    let second = client.ask(12, &step(0, 0, wants()));
    assert_eq!((second.session_id, second.error_code, second.responses.len()), (0, 0, 1));
    assert_eq!(client.ask(12, &step(first.session_id, 1, vec![])).error_code, 0, "a young session stays");
}

/// A waiting step is answered with what comes, and with that alone.
#[test]
fn fet_05_a_session_waits_as_a_full_fetch_does() {
    let mut world = World::new("session-waits");
    let id = world.session(by_name(&[(TOPIC, &[(0, 0), (1, 0)])]));
    let mut waiting = Client::connect(world.broker.address);
    let other = waiting.ask(12, &step(0, 0, by_name(&[(TOPIC, &[(0, 0), (1, 0)])]))).session_id;
    let waits = step(other, 1, vec![]).with_min_bytes(1).with_max_wait_ms(20_000);
    let correlation = waiting.send(12, &waits);
    world.send(plain(1));
    let answer = waiting.receive::<FetchRequest>(12, correlation);
    assert_eq!(short(&answer), (0, other, vec![part(TOPIC, 0, 0, 1, &[0])]));
    assert_eq!(world.step(&step(id, 1, vec![])), (0, id, vec![part(TOPIC, 0, 0, 1, &[0])]));
}
