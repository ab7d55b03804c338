//! Fetch sessions against a model that keeps plain lists, and the rules of room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corelane::ids::{Offset, TopicId};
use corelane::state::fetch_sessions::{
    Answered, Begun, FetchSessions, NO_SESSION, NewSession, SessionLimits, shard_of,
};
use corelane::wire::error_code::ErrorCode;
use corelane::wire::fetch::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};
use corelane::wire::topic::TopicRef;
use kafka_protocol::protocol::StrBytes;
use proptest::prelude::*;

fn limits(slots: usize, bytes_max: usize) -> SessionLimits {
    SessionLimits { slots, bytes_max, ids: 1..1000 }
}

fn by_name(number: u8) -> TopicRef {
    TopicRef::Name(StrBytes::from_string(format!("topic-{number}")))
}

fn at(index: i32, offset: i64) -> FetchPartition {
    FetchPartition {
        index,
        current_leader_epoch: -1,
        fetch_offset: Offset(offset),
        last_fetched_epoch: -1,
        log_start_offset: Offset(-1),
        max_bytes: 100,
    }
}

fn request(session_id: i32, session_epoch: i32) -> FetchRequest {
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 0,
        isolation_level: 0,
        session_id,
        session_epoch,
        topics: Vec::new(),
        forgotten: Vec::new(),
        rack_id: StrBytes::default(),
    }
}

fn new(now_ms: i64) -> NewSession {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let random = DRAWN.fetch_add(1, Ordering::Relaxed);
    NewSession { is_privileged: false, by_id: false, now_ms, random }
}

fn nobody(_: TopicId) -> Option<Arc<str>> {
    None
}

fn quiet(topic: &TopicRef, partition: FetchPartition) -> Answered<'_> {
    Answered {
        topic,
        partition,
        error: ErrorCode::None,
        high_watermark: Offset(0),
        log_start: Offset(0),
        has_records: false,
        diverges: false,
    }
}

/// A session of so many partitions of one topic.
fn create(sessions: &mut FetchSessions, new: NewSession, partitions: i32) -> i32 {
    let topic = by_name(0);
    sessions.create(new, (0..partitions).map(|index| quiet(&topic, at(index, 0))), nobody)
}

#[derive(Clone, Debug)]
enum Step {
    Want(u8, i32, i64),
    Forget(u8, i32),
    /// Partition, its state: error, watermark, log start, records, diverges.
    Set(u8, i32, (bool, i64, i64, bool, bool)),
}

fn step() -> impl Strategy<Value = Step> {
    let place = (0_u8..3, 0..3);
    prop_oneof![
        (place.clone(), 0_i64..9).prop_map(|((topic, index), offset)| Step::Want(topic, index, offset)),
        place.clone().prop_map(|(topic, index)| Step::Forget(topic, index)),
        (place, (prop::bool::weighted(0.2), 0_i64..3, 0_i64..2, any::<bool>(), prop::bool::weighted(0.1)))
            .prop_map(|((topic, index), state)| Step::Set(topic, index, state)),
    ]
}

/// What a partition is like, and what a session knows of it.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    error: bool,
    high_watermark: i64,
    log_start: i64,
    has_records: bool,
    diverges: bool,
}

impl State {
    fn answered<'a>(&self, topic: &'a TopicRef, partition: FetchPartition) -> Answered<'a> {
        Answered {
            topic,
            partition,
            error: if self.error { ErrorCode::OffsetOutOfRange } else { ErrorCode::None },
            high_watermark: Offset(if self.error { -1 } else { self.high_watermark }),
            log_start: Offset(if self.error { -1 } else { self.log_start }),
            has_records: self.has_records && !self.error,
            diverges: self.diverges && !self.error,
        }
    }
}

/// As KIP-227 says it: a list of partitions with what was last said of each.
#[derive(Debug)]
struct Model {
    partitions: Vec<(u8, FetchPartition, (i64, i64))>,
}

impl Model {
    fn place(&self, topic: u8, index: i32) -> Option<usize> {
        self.partitions.iter().position(|(known, asked, _)| (*known, asked.index) == (topic, index))
    }

    fn answer(&mut self, answered: &[(u8, Answered<'_>)]) -> Vec<bool> {
        let mut goes_out = Vec::new();
        for (topic, one) in answered {
            let place = self.place(*topic, one.partition.index).unwrap();
            let said = (one.high_watermark.0, one.log_start.0);
            let is_error = one.error != ErrorCode::None;
            goes_out.push(is_error || one.has_records || one.diverges || self.partitions[place].2 != said);
            self.partitions[place].2 = if is_error { (-1, said.1) } else { said };
            if one.has_records {
                let moved = self.partitions.remove(place);
                self.partitions.push(moved);
            }
        }
        goes_out
    }
}

proptest! {
    #[test]
    fn a_session_wants_and_answers_what_the_model_does(rounds in prop::collection::vec(prop::collection::vec(step(), 0..6), 1..12)) {
        let mut sessions = FetchSessions::new(limits(10, 1 << 20));
        let mut states = [[State::default(); 3]; 3];
        let topics = [by_name(0), by_name(1), by_name(2)];
        let mut model = Model { partitions: vec![(0, at(0, 0), (0, 0)), (1, at(1, 0), (0, 0))] };
        let begun = [quiet(&topics[0], at(0, 0)), quiet(&topics[1], at(1, 0))];
        let id = sessions.create(new(0), begun.into_iter(), nobody);
        for (round, steps) in (1..).zip(rounds) {
            let mut next = request(id, round);
            for step in &steps {
                if let Step::Want(topic, index, offset) = step {
                    let asked = at(*index, *offset);
                    next.topics.push(FetchTopic { topic: topics[usize::from(*topic)].clone(), partitions: vec![asked] });
                    match model.place(*topic, *index) {
                        Some(place) => model.partitions[place].1 = asked,
                        None => model.partitions.push((*topic, asked, (-1, -1))),
                    }
                }
            }
            for step in &steps {
                match step {
                    Step::Forget(topic, index) => {
                        let topic_ref = topics[usize::from(*topic)].clone();
                        next.forgotten.push(ForgottenTopic { topic: topic_ref, partitions: vec![*index] });
                        if let Some(place) = model.place(*topic, *index) {
                            model.partitions.remove(place);
                        }
                    }
                    Step::Set(topic, index, (error, high_watermark, log_start, has_records, diverges)) => {
                        states[usize::from(*topic)][*index as usize] = State {
                            error: *error,
                            high_watermark: *high_watermark,
                            log_start: *log_start,
                            has_records: *has_records,
                            diverges: *diverges,
                        };
                    }
                    Step::Want(..) => {}
                }
            }
            let begun = sessions.begin(&next, false, 0).unwrap();
            if model.partitions.is_empty() {
                prop_assert_eq!(begun, Begun::Without);
                prop_assert!(sessions.is_empty() && sessions.bytes() == 0);
                return Ok(());
            }
            prop_assert_eq!(begun, Begun::Next { id, epoch: round + 1 });
            let asked = sessions.asked(id, nobody);
            let expected: Vec<_> =
                model.partitions.iter().map(|(topic, asked, _)| (topics[usize::from(*topic)].clone(), *asked)).collect();
            let wanted: Vec<_> = asked.iter().map(|one| (one.topic.clone(), one.partition)).collect();
            prop_assert_eq!(wanted, expected);
            let numbered: Vec<_> = model.partitions.iter().map(|(topic, asked, _)| (*topic, *asked)).collect();
            let answered: Vec<_> = numbered.iter().map(|(topic, asked)| {
                let state = states[usize::from(*topic)][asked.index as usize];
                (*topic, state.answered(&topics[usize::from(*topic)], *asked))
            }).collect();
            let goes_out = sessions.answer(id, round + 1, answered.iter().map(|(_, one)| *one)).unwrap();
            prop_assert_eq!(goes_out, model.answer(&answered));
        }
        prop_assert!(sessions.end(id));
        prop_assert_eq!(sessions.bytes(), 0);
    }

    /// Ids of all shards are above 0, of one shard each, and that shard is found again.
    #[test]
    fn ids_tell_their_shard(shards in 1_u32..130, shard in 0_u32..130, random in any::<u64>()) {
        let shard = shard % shards;
        let mut sessions = FetchSessions::new(SessionLimits::of_shard(shard, shards, 1000, 1 << 20));
        let id = create(&mut sessions, NewSession { random, ..new(0) }, 1);
        prop_assert!(id > 0 || 1000 < shards as usize);
        prop_assert_eq!(shard_of(id, shards), Some(shard));
        let slots: usize = (0..shards).map(|shard| SessionLimits::of_shard(shard, shards, 1000, 0).slots).sum();
        prop_assert_eq!(slots, 1000);
    }
}

#[test]
fn no_id_of_none_belongs_to_a_shard() {
    for shards in [1, 2, 3, 8] {
        assert_eq!([shard_of(0, shards), shard_of(-1, shards), shard_of(i32::MIN, shards)], [None; 3]);
    }
    assert_eq!(shard_of(i32::MAX, 2), None, "above the last range");
}

#[test]
fn epochs_go_round_above_zero() {
    let mut sessions = FetchSessions::new(limits(10, 1 << 20));
    let id = create(&mut sessions, new(0), 1);
    assert_eq!(sessions.begin(&request(id, 1), false, 0), Ok(Begun::Next { id, epoch: 2 }));
    assert_eq!(sessions.begin(&request(id, 1), false, 0), Err(ErrorCode::InvalidFetchSessionEpoch));
    assert_eq!(sessions.begin(&request(id, 2), true, 0), Err(ErrorCode::FetchSessionTopicIdError));
    assert_eq!(sessions.answer(id, 1, std::iter::empty()), Err(ErrorCode::InvalidFetchSessionEpoch));
    assert_eq!(sessions.answer(id + 1, 2, std::iter::empty()), Err(ErrorCode::InvalidFetchSessionEpoch));
}

/// Nobody young is pushed out by a client; the oldest of those idle for two minutes goes first.
#[test]
fn sessions_make_room_by_age_and_size() {
    let mut sessions = FetchSessions::new(limits(2, 1 << 20));
    let small = create(&mut sessions, new(0), 1);
    let large = create(&mut sessions, new(0), 5);
    assert_eq!(create(&mut sessions, new(120_000), 9), NO_SESSION, "both are young");
    let use_at = |sessions: &mut FetchSessions, id, epoch, now_ms| {
        assert!(sessions.begin(&request(id, epoch), false, now_ms).is_ok(), "{id}");
    };
    use_at(&mut sessions, small, 1, 130_000);
    use_at(&mut sessions, large, 1, 130_000);
    let middle = create(&mut sessions, new(130_001), 3);
    assert!(middle > 0, "the small one is old enough, and worth less");
    assert_eq!(sessions.begin(&request(small, 2), false, 130_001), Err(ErrorCode::FetchSessionIdNotFound));
    assert_eq!(create(&mut sessions, new(130_002), 4), NO_SESSION, "one is worth more, the other is young");
    use_at(&mut sessions, middle, 1, 200_000);
    let stale = create(&mut sessions, new(250_001), 1);
    assert!(stale > 0, "the large one was idle for more than two minutes");
    assert_eq!(sessions.begin(&request(large, 2), false, 250_001), Err(ErrorCode::FetchSessionIdNotFound));
    assert_eq!(sessions.len(), 2);
}

#[test]
fn followers_push_clients_out_and_not_each_other() {
    let mut sessions = FetchSessions::new(limits(1, 1 << 20));
    let client = create(&mut sessions, new(0), 9);
    let privileged = NewSession { is_privileged: true, ..new(0) };
    let follower = create(&mut sessions, privileged, 1);
    assert!(follower > 0 && sessions.begin(&request(client, 1), false, 0).is_err());
    assert_eq!(create(&mut sessions, privileged, 9), NO_SESSION);
    assert_eq!(create(&mut sessions, new(0), 9), NO_SESSION);
    assert!(sessions.begin(&request(follower, 1), false, 130_000).is_ok());
    assert_eq!(create(&mut sessions, new(130_000), 9), NO_SESSION, "a client's never pushes out a follower's");
    let larger = NewSession { now_ms: 130_000, ..privileged };
    assert!(create(&mut sessions, larger, 9) > 0);
}

/// Memory is bounded, however many partitions clients name: a session that would be too large is none.
#[test]
fn sessions_take_no_more_memory_than_their_limit() {
    const LIMIT: usize = 100_000;
    let mut sessions = FetchSessions::new(limits(1000, LIMIT));
    assert_eq!(create(&mut sessions, new(0), 1000), NO_SESSION, "no session takes more than an eighth");
    let mut made = 0;
    while create(&mut sessions, new(0), 20) != NO_SESSION {
        made += 1;
        assert!(sessions.bytes() <= LIMIT);
    }
    assert!(made >= 10, "{made}");
    assert!(create(&mut sessions, new(120_001), 20) > 0, "what is stale makes room");
    let mut sessions = FetchSessions::new(limits(9, LIMIT));
    let id = create(&mut sessions, new(0), 1);
    let mut grows = request(id, 1);
    let partitions = (0..1000).map(|index| at(index, 0)).collect();
    grows.topics.push(FetchTopic { topic: by_name(0), partitions });
    assert_eq!(sessions.begin(&grows, false, 0), Err(ErrorCode::FetchSessionIdNotFound), "as one that was pushed out");
    assert_eq!((sessions.len(), sessions.bytes()), (0, 0));
    let mut none = FetchSessions::new(limits(0, LIMIT));
    assert_eq!(create(&mut none, new(0), 1), NO_SESSION);
}

/// A topic by id keeps the name that it once had; one that is not there yet gets its name when it comes.
#[test]
fn names_are_kept_and_found_later() {
    let mut sessions = FetchSessions::new(limits(10, 1 << 20));
    let id_of = |number| TopicId([number; 16]);
    let topic = TopicRef::Id(id_of(1));
    let new = NewSession { by_id: true, ..new(0) };
    let id = sessions.create(new, [quiet(&topic, at(0, 0))].into_iter(), nobody);
    assert_eq!(sessions.asked(id, nobody)[0].name, None);
    let named = |asked: TopicId| (asked == id_of(1)).then(|| Arc::from("t"));
    assert_eq!(sessions.asked(id, named)[0].name.as_deref(), Some("t"));
    assert_eq!(sessions.asked(id, nobody)[0].name.as_deref(), Some("t"), "also when it is deleted");
}
