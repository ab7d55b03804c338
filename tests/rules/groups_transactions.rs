//! Offsets of groups in transactions: who may write them, when they count, what becomes of them.

use corelane::ids::TopicId;
use corelane::state::groups::GroupSettings;
use corelane::state::groups::messages::{Answer, Command, Membership, OffsetToCommit, OffsetsWanted, TopicWanted};
use corelane::state::transactions::messages::Outcome;
use corelane::wire::error_code::ErrorCode;

use super::groups_world::{World, again, commit, commit_in, consumer, nobody, replayed, settings, to_commit, who};

const NONE: ErrorCode = ErrorCode::None;
const UNSTABLE: ErrorCode = ErrorCode::UnstableOffsetCommit;

/// Offset and error of partition 0 of `t`.
fn found(world: &mut World, group: &str, require_stable: bool) -> (i64, ErrorCode) {
    let topics = vec![TopicWanted { topic: "t".to_owned(), topic_id: TopicId::ZERO, partitions: vec![0] }];
    let wanted = OffsetsWanted { group: group.to_owned(), member: None, topics: Some(topics), require_stable };
    match world.now(Command::Offsets(wanted)) {
        Answer::Offsets(kept) => (kept.topics[0].1[0].offset.0, kept.topics[0].1[0].error),
        other => panic!("{other:?}"),
    }
}

/// Commits offset of partition 0 of `t` in a producer's transaction.
fn write(world: &mut World, producer: i64, who: &Membership, offset: i64) -> ErrorCode {
    match world.now(commit_in(producer, who, vec![to_commit("t", 0, offset)])) {
        Answer::Committed(codes) => codes[0],
        other => panic!("{other:?}"),
    }
}

fn assert_replay(world: &World) {
    let replayed = replayed(&world.log, &world.settings);
    assert_eq!(replayed.kept(), world.groups.kept());
    assert_eq!(replayed.pending(), world.groups.pending());
}

#[test]
fn they_count_from_the_marker_on() {
    for (outcome, after) in [(Outcome::Commit, 9), (Outcome::Abort, 3)] {
        let mut world = World::new();
        assert_eq!(world.commit(&nobody("g"), 3), NONE);
        assert_eq!(write(&mut world, 7, &nobody("g"), 9), NONE);
        assert_eq!((found(&mut world, "g", true), found(&mut world, "g", false)), ((-1, UNSTABLE), (3, NONE)));
        world.restart();
        assert_eq!((found(&mut world, "g", true), found(&mut world, "g", false)), ((-1, UNSTABLE), (3, NONE)));
        world.marker(8, Outcome::Commit);
        assert_eq!(found(&mut world, "g", true), (-1, UNSTABLE), "the marker of somebody else");
        world.marker(7, outcome);
        assert_eq!((found(&mut world, "g", true), found(&mut world, "g", false)), ((after, NONE), (after, NONE)));
        world.marker(7, Outcome::Abort);
        assert_eq!(found(&mut world, "g", true), (after, NONE), "a marker that comes again");
        assert!(!world.groups.has_pending());
        assert_replay(&world);
    }
}

#[test]
fn all_that_is_kept_is_refused_where_a_transaction_is_open() {
    let mut world = World::new();
    world.now(commit(&nobody("g"), vec![to_commit("t", 0, 1), to_commit("t", 1, 2)]));
    write(&mut world, 7, &nobody("g"), 5);
    world.now(commit_in(7, &nobody("g"), vec![to_commit("u", 0, 5)]));
    let all = world.fetch("g", None);
    let all: Vec<_> = all.iter().flat_map(|(topic, kept)| kept.iter().map(move |kept| (topic, kept))).collect();
    let all: Vec<_> =
        all.iter().map(|(topic, kept)| (topic.as_str(), kept.partition, kept.offset.0, kept.error)).collect();
    assert_eq!(all, [("t", 0, -1, UNSTABLE), ("t", 1, 2, NONE)], "of `u` nothing is kept yet");
}

#[test]
fn of_two_the_newest_record_counts() {
    let mut world = World::new();
    write(&mut world, 7, &nobody("g"), 5);
    world.commit(&nobody("g"), 6);
    write(&mut world, 8, &nobody("g"), 7);
    world.marker(8, Outcome::Commit);
    assert_eq!(found(&mut world, "g", false), (7, NONE));
    world.marker(7, Outcome::Commit);
    assert_eq!(found(&mut world, "g", true), (7, NONE), "the oldest of the three came last");
    assert_replay(&world);
    write(&mut world, 7, &nobody("g"), 8);
    world.commit(&nobody("g"), 9);
    world.restart();
    world.marker(7, Outcome::Commit);
    assert_eq!(found(&mut world, "g", true), (9, NONE), "also when it was read from the log");
    assert_replay(&world);
}

#[test]
fn within_an_append_the_last_counts() {
    let mut world = World::new();
    world.now(commit_in(7, &nobody("g"), vec![to_commit("t", 0, 1), to_commit("t", 0, 2)]));
    world.marker(7, Outcome::Commit);
    assert_eq!(found(&mut world, "g", true), (2, NONE));
    world.now(commit(&nobody("h"), vec![to_commit("t", 0, 2), to_commit("t", 0, 1)]));
    assert_eq!(found(&mut world, "h", true), (1, NONE));
    assert_replay(&world);
}

#[test]
fn a_marker_ends_what_was_staged_before_it() {
    let mut world = World::new();
    world.quick_log = false;
    let (before, after) = (to_commit("t", 0, 1), to_commit("t", 0, 2));
    world.ask(commit_in(7, &nobody("g"), vec![before]));
    world.marker(7, Outcome::Commit);
    world.ask(commit_in(7, &nobody("g"), vec![after]));
    let ids: Vec<_> = world.appends.iter().map(|append| append.id).collect();
    let at = world.moment();
    assert_eq!(world.groups.appended(at, ids[1], Ok(corelane::ids::Offset(1))).answers, [], "the first has not ended");
    assert_eq!(found(&mut world, "g", false), (-1, NONE));
    world.groups.appended(at, ids[0], Ok(corelane::ids::Offset(0)));
    assert_eq!(found(&mut world, "g", true), (1, NONE));
    world.groups.appended(at, ids[2], Ok(corelane::ids::Offset(2)));
    assert_eq!((found(&mut world, "g", true), found(&mut world, "g", false)), ((-1, UNSTABLE), (1, NONE)));
}

#[test]
fn a_marker_that_failed_ends_nothing() {
    let mut world = World::new();
    write(&mut world, 7, &nobody("g"), 5);
    world.quick_log = false;
    world.marker(7, Outcome::Commit);
    world.end_append(Err(ErrorCode::KafkaStorageError));
    assert_eq!(found(&mut world, "g", true), (-1, UNSTABLE));
    assert_replay(&world);
}

#[test]
fn who_may_commit_in_a_transaction() {
    let mut world = World::new();
    let member = world.stable("g", &["m"]).remove(0);
    let (wrong, unknown) = (ErrorCode::IllegalGeneration, ErrorCode::UnknownMemberId);
    assert_eq!(write(&mut world, 7, &member, 1), NONE);
    assert_eq!(write(&mut world, 7, &Membership { generation: 0, ..member.clone() }, 2), wrong);
    assert_eq!(write(&mut world, 7, &Membership { generation: -1, ..member.clone() }, 2), wrong);
    assert_eq!(write(&mut world, 7, &who("g", "x", 1), 2), unknown);
    let named = Membership { instance_id: Some("i".into()), ..nobody("g") };
    assert_eq!(write(&mut world, 7, &named, 2), unknown);
    assert_eq!(write(&mut world, 7, &nobody("g"), 3), NONE, "old clients do not say who they are");
    let newcomer = world.ask(Command::Join(consumer("g", "n")));
    let back = world.ask(Command::Join(again(&consumer("g", "m"), &member)));
    let (back, _) = (world.joined(back), world.joined(newcomer));
    assert_eq!(write(&mut world, 7, &member, 4), wrong, "the generation before");
    let now = Membership { generation: back.generation, ..member };
    assert_eq!(write(&mut world, 7, &now, 4), NONE, "also while the leader's assignments are awaited");
    assert_eq!(write(&mut world, 7, &who("unknown", "x", 0), 1), ErrorCode::GroupIdNotFound);
    assert_eq!(world.listed().len(), 1, "nothing is left of a group that never was");
    world.marker(7, Outcome::Commit);
    assert_eq!(world.offsets("g"), [("t".to_owned(), 0, 4)]);
}

/// Kafka leaves sessions to the members' own requests here.
#[test]
fn a_producer_is_no_sign_of_life_of_a_member() {
    let mut world = World::new();
    let member = world.stable("g", &["m"]).remove(0);
    world.pass(6_000);
    assert_eq!(write(&mut world, 7, &member, 1), NONE);
    world.pass(6_000);
    assert_eq!(write(&mut world, 7, &member, 2), ErrorCode::UnknownMemberId);
}

#[test]
fn a_text_that_is_too_long_is_refused_alone() {
    let mut world = World::new();
    let long = OffsetToCommit { metadata: "x".repeat(4_097), ..to_commit("t", 1, 1) };
    let answer = world.now(commit_in(7, &nobody("g"), vec![long, to_commit("t", 0, 4)]));
    assert_eq!(answer, Answer::Committed(vec![ErrorCode::OffsetMetadataTooLarge, NONE]));
    world.marker(7, Outcome::Commit);
    assert_eq!(world.offsets("g"), [("t".to_owned(), 0, 4)]);
}

#[test]
fn what_is_deleted_meanwhile_does_not_come_back() {
    type Delete = fn(&mut World) -> ErrorCode;
    let group: Delete = |world| world.done(Command::DeleteGroup { group: "g".to_owned() });
    let offsets: Delete = |world| world.delete_offsets("g", &[("t", 0)]).1[0];
    let topic: Delete = |world| world.done(Command::TopicDeleted { topic: "t".to_owned(), topic_id: TopicId::ZERO });
    for delete in [group, offsets, topic] {
        for kept in [false, true] {
            let mut world = World::new();
            if kept {
                world.commit(&nobody("g"), 1);
            }
            write(&mut world, 7, &nobody("g"), 5);
            assert_eq!(delete(&mut world), NONE);
            assert_eq!((found(&mut world, "g", true), world.groups.pending()), ((-1, NONE), vec![]));
            assert_replay(&world);
            write(&mut world, 8, &nobody("g"), 6);
            world.marker(7, Outcome::Commit);
            assert_eq!(found(&mut world, "g", false), (-1, NONE));
            world.marker(8, Outcome::Commit);
            assert_eq!(found(&mut world, "g", false), (6, NONE), "what was written behind the deletion counts");
            assert_replay(&world);
        }
    }
}

#[test]
fn a_deletion_covers_what_is_on_its_way() {
    let mut world = World::new();
    world.quick_log = false;
    world.ask(commit_in(7, &nobody("g"), vec![to_commit("t", 0, 5)]));
    world.ask(Command::TopicDeleted { topic: "t".to_owned(), topic_id: TopicId::ZERO });
    world.flush();
    world.quick_log = true;
    world.marker(7, Outcome::Commit);
    assert_eq!(found(&mut world, "g", false), (-1, NONE));
    assert_replay(&world);
}

#[test]
fn offsets_do_not_expire_under_an_open_transaction() {
    let mut world = World::with(GroupSettings { offsets_retention_ms: 60_000, ..settings() });
    world.now(commit(&nobody("g"), vec![to_commit("t", 0, 1), to_commit("t", 1, 1)]));
    write(&mut world, 7, &nobody("g"), 5);
    write(&mut world, 8, &nobody("h"), 5);
    world.pass(70_000);
    world.expire();
    assert_eq!(found(&mut world, "g", false), (1, NONE));
    assert_eq!(world.offsets("g").len(), 1, "nobody writes the other one");
    assert_eq!(world.listed().len(), 2, "a group stays that only a transaction has written to");
    world.marker(7, Outcome::Abort);
    world.marker(8, Outcome::Abort);
    world.expire();
    assert_eq!((world.offsets("g"), world.listed()), (vec![], vec![]));
    assert_replay(&world);
}
