//! Offsets of groups: who may commit, what is kept and found again, what is forgotten.

use corelane::ids::{Offset, TopicId};
use corelane::state::groups::messages::{Answer, Command, Commit, Join, Membership, OffsetToCommit, TopicWanted};
use corelane::state::groups::{GroupSettings, Ticket};
use corelane::wire::error_code::ErrorCode;
use corelane::wire::internal::GroupRecord;

use super::groups_world::{
    Logged, World, again, commit, consumer, nobody, replayed, settings, subscription, to_commit, who,
};

const NONE: ErrorCode = ErrorCode::None;

fn wanted(topic: &str, partitions: &[i32]) -> TopicWanted {
    TopicWanted { topic: topic.to_owned(), topic_id: TopicId::ZERO, partitions: partitions.to_vec() }
}

fn codes(world: &mut World, ticket: Ticket) -> Vec<ErrorCode> {
    match world.answer(ticket) {
        Some(Answer::Committed(codes)) => codes,
        other => panic!("{other:?}"),
    }
}

fn delete_group(world: &mut World, group: &str) -> ErrorCode {
    world.done(Command::DeleteGroup { group: group.to_owned() })
}

/// GRP-05, and what else stands around it.
#[test]
fn who_may_commit() {
    let mut world = World::new();
    let member = world.stable("g", &["m"]).remove(0);
    assert_eq!(world.commit(&member, 1), NONE);
    assert_eq!(world.commit(&Membership { generation: 0, ..member.clone() }, 2), ErrorCode::IllegalGeneration);
    assert_eq!(world.commit(&Membership { generation: -1, ..member.clone() }, 2), ErrorCode::IllegalGeneration);
    assert_eq!(world.commit(&who("g", "x", 1), 2), ErrorCode::UnknownMemberId);
    assert_eq!(world.commit(&nobody("g"), 2), ErrorCode::UnknownMemberId, "while members are active");
    assert_eq!(
        world.commit(&Membership { instance_id: Some("i".into()), ..nobody("g") }, 2),
        ErrorCode::UnknownMemberId
    );
    let newcomer = world.ask(Command::Join(consumer("g", "n")));
    assert_eq!(world.commit(&member, 3), NONE, "before the round the old generation may commit");
    let back = world.ask(Command::Join(again(&consumer("g", "m"), &member)));
    let (back, _) = (world.joined(back), world.joined(newcomer));
    let now = Membership { generation: back.generation, ..member.clone() };
    assert_eq!(world.commit(&now, 4), ErrorCode::RebalanceInProgress, "while the leader's assignments are awaited");
    assert_eq!(world.commit(&member, 4), ErrorCode::IllegalGeneration);
    world.pass(100_000);
    assert_eq!(world.state("g"), "Empty");
    assert_eq!(world.commit(&nobody("g"), 5), NONE);
    assert_eq!(world.commit(&who("g", "whoever", -1), 6), NONE, "as Kafka");
    assert_eq!(world.commit(&who("g", "whoever", 0), 7), ErrorCode::UnknownMemberId);
    assert_eq!(world.commit(&who("unknown", "x", 0), 1), ErrorCode::GroupIdNotFound);
    assert_eq!(world.offsets("g"), [("t".to_owned(), 0, 6)]);
    assert_eq!(world.listed().len(), 1, "nothing is left of a group that never was");
}

#[test]
fn a_commit_is_a_sign_of_life() {
    let mut world = World::new();
    let member = world.stable("g", &["m"]).remove(0);
    for offset in 0..5 {
        world.pass(9_999);
        assert_eq!(world.commit(&member, offset), NONE);
    }
}

#[test]
fn a_commit_without_group_makes_a_simple_one() {
    let mut world = World::new();
    world.quick_log = false;
    let ticket = world.ask(commit(&nobody("simple"), vec![to_commit("t", 0, 5)]));
    assert_eq!((world.answer(ticket), world.offsets("simple"), world.listed()), (None, vec![], vec![]));
    world.flush();
    assert_eq!(codes(&mut world, ticket), [NONE]);
    let described = world.describe("simple");
    assert_eq!((described.state.as_str(), described.protocol_type.as_str()), ("Empty", ""));
    world.restart();
    assert_eq!(world.offsets("simple"), [("t".to_owned(), 0, 5)]);
    assert_eq!(world.listed().len(), 1);
}

#[test]
fn a_text_that_is_too_long_is_refused_alone() {
    let mut world = World::new();
    let long = |text: String| OffsetToCommit { metadata: text, ..to_commit("t", 1, 1) };
    let ticket = world.ask(commit(
        &nobody("g"),
        vec![to_commit("t", 0, 1), long("x".repeat(4_097)), long("ö".repeat(4_096)), long("\u{1f600}".repeat(2_049))],
    ));
    let too_long = ErrorCode::OffsetMetadataTooLarge;
    assert_eq!(codes(&mut world, ticket), [NONE, too_long, NONE, too_long], "counted as Java counts");
    let ticket = world.ask(commit(&nobody("h"), vec![long("x".repeat(5_000))]));
    assert_eq!(codes(&mut world, ticket), [too_long]);
    assert_eq!(world.listed().len(), 1, "a group of which nothing was kept is none");
}

#[test]
fn commits_are_kept_in_the_order_of_the_log() {
    let mut world = World::new();
    world.quick_log = false;
    let tickets: Vec<Ticket> = (0..4).map(|n| world.ask(commit(&nobody("g"), vec![to_commit("t", 0, n)]))).collect();
    assert_eq!(world.appends.len(), 4, "many under way at once");
    let ids: Vec<_> = world.appends.iter().map(|append| append.id).collect();
    let at = world.moment();
    assert_eq!(world.groups.appended(at, ids[1], Ok(Offset(1))).answers, [], "the first is not in the log yet");
    let effects = world.groups.appended(at, ids[0], Ok(Offset(0)));
    assert_eq!(effects.answers.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), &tickets[..2]);
    assert_eq!(world.offsets("g"), [("t".to_owned(), 0, 1)]);
    let effects = world.groups.appended(at, ids[2], Err(ErrorCode::RequestTimedOut));
    assert_eq!(effects.answers, [(tickets[2], Answer::Committed(vec![ErrorCode::CoordinatorNotAvailable]))]);
    assert_eq!(world.offsets("g"), [("t".to_owned(), 0, 1)], "not known to be in the log: not applied");
    world.groups.appended(at, ids[3], Ok(Offset(3)));
    assert_eq!(world.offsets("g"), [("t".to_owned(), 0, 3)]);
}

#[test]
fn offsets_come_in_the_order_asked_or_sorted() {
    let mut world = World::new();
    for (topic, partition, offset) in [("u", 2, 20), ("t", 1, 0), ("u", 0, 7), ("s", 0, 1)] {
        world.commit_to(&nobody("g"), topic, partition, offset);
    }
    let all = [("s", 0, 1), ("t", 1, 0), ("u", 0, 7), ("u", 2, 20)].map(|(topic, p, o)| (topic.to_owned(), p, o));
    assert_eq!(world.offsets("g"), all);
    let some = world.fetch("g", Some(vec![wanted("u", &[2, 1]), wanted("none", &[0]), wanted("t", &[1])]));
    let flat: Vec<_> = some
        .iter()
        .flat_map(|(topic, kept)| kept.iter().map(move |k| (topic.as_str(), k.partition, k.offset.0)))
        .collect();
    assert_eq!(flat, [("u", 2, 20), ("u", 1, -1), ("none", 0, -1), ("t", 1, 0)]);
    let missing = &some[0].1[1];
    assert_eq!((missing.leader_epoch, missing.metadata.as_str(), missing.error), (-1, "", NONE));
    assert_eq!(world.fetch("g", Some(Vec::new())), []);
    assert_eq!(world.offsets("unknown"), []);
    let unknown = world.fetch("unknown", Some(vec![wanted("t", &[0])]));
    assert_eq!((unknown[0].1[0].offset, unknown[0].1[0].error), (Offset(-1), NONE));
}

#[test]
fn an_offset_of_an_earlier_topic_of_the_same_name_is_not_given() {
    let mut world = World::new();
    let (old, new) = (TopicId([1; 16]), TopicId([2; 16]));
    world.now(commit(&nobody("g"), vec![OffsetToCommit { topic_id: old, leader_epoch: 3, ..to_commit("t", 0, 9) }]));
    let mut ask = |topic_id| {
        let kept = world.fetch("g", Some(vec![TopicWanted { topic_id, ..wanted("t", &[0]) }]));
        (kept[0].1[0].offset.0, kept[0].1[0].leader_epoch)
    };
    assert_eq!((ask(old), ask(TopicId::ZERO), ask(new)), ((9, 3), (9, 3), (-1, -1)));
}

#[test]
fn offsets_of_topics_that_are_read_are_not_deleted() {
    let mut world = World::new();
    let member = world.stable("g", &["m"]).remove(0);
    world.commit_to(&member, "t", 0, 1);
    world.commit_to(&member, "u", 0, 2);
    let (error, codes) = world.delete_offsets("g", &[("t", 0), ("u", 0), ("u", 1)]);
    assert_eq!((error, codes), (NONE, vec![ErrorCode::GroupSubscribedToTopic, NONE, NONE]));
    assert_eq!(world.offsets("g"), [("t".to_owned(), 0, 1)]);
    assert_eq!(world.delete_offsets("unknown", &[("t", 0)]).0, ErrorCode::GroupIdNotFound);
    assert_eq!(world.delete_offsets("", &[("t", 0)]).0, ErrorCode::InvalidGroupId);
    assert_eq!(world.leave("g", &[(&member.member_id, None)]), [NONE]);
    assert_eq!(world.delete_offsets("g", &[("t", 0)]), (NONE, vec![NONE]), "nobody reads it any more");
    assert_eq!(world.offsets("g"), []);
    assert_eq!(world.describe("g").error, NONE, "the group stays");
}

#[test]
fn offsets_of_a_group_of_another_type_are_deleted_only_when_it_is_empty() {
    let mut world = World::new();
    let connect = Join { protocol_type: "connect".into(), ..consumer("g", "c") };
    let member = world.stable_with(vec![connect]).remove(0);
    world.commit(&member, 1);
    assert_eq!(world.delete_offsets("g", &[("t", 0)]).0, ErrorCode::NonEmptyGroup);
    world.leave("g", &[(&member.member_id, None)]);
    assert_eq!(world.delete_offsets("g", &[("t", 0)]), (NONE, vec![NONE]));
}

#[test]
fn consumers_whose_words_are_not_understood_read_everything() {
    let mut world = World::new();
    let strange = Join { protocols: vec![("range".to_owned(), "?".into())], ..consumer("g", "c") };
    let member = world.stable_with(vec![strange]).remove(0);
    world.commit_to(&member, "u", 0, 1);
    assert_eq!(world.delete_offsets("g", &[("u", 0)]).1, [ErrorCode::GroupSubscribedToTopic]);
}

#[test]
fn a_deletion_covers_commits_that_are_under_way() {
    let mut world = World::new();
    world.quick_log = false;
    world.ask(commit(&nobody("g"), vec![to_commit("t", 0, 1)]));
    let delete = corelane::state::groups::messages::DeleteOffsets {
        group: "g".to_owned(),
        partitions: vec![("t".to_owned(), 0)],
    };
    world.ask(Command::DeleteOffsets(delete));
    world.flush();
    assert_eq!(world.offsets("g"), []);
    world.ask(commit(&nobody("h"), vec![to_commit("t", 0, 1)]));
    let ticket = world.ask(Command::DeleteGroup { group: "h".to_owned() });
    world.flush();
    assert_eq!(world.answer(ticket), Some(Answer::Done(NONE)));
    assert_eq!((world.offsets("h"), world.describe("h").error), (vec![], ErrorCode::GroupIdNotFound));
    assert_eq!(replayed(&world.log, &world.settings).kept(), world.groups.kept());
}

#[test]
fn groups_are_deleted_when_nobody_is_in_them() {
    let mut world = World::new();
    let member = world.stable("g", &["m"]).remove(0);
    world.commit(&member, 1);
    assert_eq!(delete_group(&mut world, "g"), ErrorCode::NonEmptyGroup);
    assert_eq!(delete_group(&mut world, "unknown"), ErrorCode::GroupIdNotFound);
    assert_eq!(delete_group(&mut world, ""), ErrorCode::GroupIdNotFound);
    world.leave("g", &[(&member.member_id, None)]);
    assert_eq!(delete_group(&mut world, "g"), NONE);
    assert_eq!((world.listed(), world.offsets("g"), world.groups.kept()), (vec![], vec![], vec![]));
    assert_eq!(replayed(&world.log, &world.settings).kept(), []);
    assert_eq!(world.stable("g", &["m"])[0].generation, 1, "a new group of the same name begins anew");
}

#[test]
fn what_is_asked_while_a_group_is_removed_waits_for_that() {
    for result in [Ok(()), Err(ErrorCode::KafkaStorageError)] {
        let mut world = World::new();
        world.commit(&nobody("g"), 1);
        world.quick_log = false;
        let removal = world.ask(Command::DeleteGroup { group: "g".to_owned() });
        let commit = world.ask(commit(&nobody("g"), vec![to_commit("u", 0, 2)]));
        let twice = world.ask(Command::DeleteGroup { group: "g".to_owned() });
        assert_eq!(world.appends.len(), 1);
        assert_eq!(world.offsets("g").len(), 1, "looking is allowed");
        world.end_append(result);
        let told = if result.is_ok() { NONE } else { ErrorCode::NotCoordinator };
        assert_eq!(world.answer(removal), Some(Answer::Done(told)));
        world.flush();
        assert_eq!(codes(&mut world, commit), [NONE]);
        assert_eq!(world.answer(twice), Some(Answer::Done(NONE)));
        assert_eq!(world.groups.kept(), []);
    }
}

#[test]
fn the_removal_of_many_offsets_goes_in_parts_and_fails_as_one() {
    let mut world = World::new();
    let many: Vec<OffsetToCommit> = (0..2_500).map(|partition| to_commit("t", partition, 1)).collect();
    world.now(commit(&nobody("g"), many));
    world.quick_log = false;
    let ticket = world.ask(Command::DeleteGroup { group: "g".to_owned() });
    assert_eq!(world.appends.iter().map(|append| append.content.len()).collect::<Vec<_>>(), [1_000, 1_000, 501]);
    world.end_append(Ok(()));
    world.end_append(Err(ErrorCode::RequestTimedOut));
    world.end_append(Ok(()));
    assert_eq!(world.answer(ticket), Some(Answer::Done(ErrorCode::CoordinatorNotAvailable)));
    assert_eq!(world.offsets("g").len(), 1_000);
    assert_eq!(world.groups.kept(), replayed(&world.log, &world.settings).kept());
}

#[test]
fn a_topic_that_is_gone_leaves_no_offsets() {
    let mut world = World::new();
    let (old, new) = (TopicId([1; 16]), TopicId([2; 16]));
    let of = |topic_id, partition| OffsetToCommit { topic_id, ..to_commit("t", partition, 1) };
    world.now(commit(&nobody("g"), vec![of(old, 0), of(new, 1), of(TopicId::ZERO, 2), to_commit("u", 0, 1)]));
    world.now(commit(&nobody("h"), vec![of(old, 0)]));
    world.quick_log = false;
    world.ask(commit(&nobody("h"), vec![of(old, 5)]));
    let ticket = world.ask(Command::TopicDeleted { topic: "t".to_owned(), topic_id: old });
    assert_eq!(world.answer(ticket), None);
    world.flush();
    assert_eq!(world.answer(ticket), Some(Answer::Done(NONE)));
    assert_eq!(world.offsets("g"), [("t".to_owned(), 1, 1), ("u".to_owned(), 0, 1)]);
    assert_eq!(world.offsets("h"), []);
    assert_eq!(world.done(Command::TopicDeleted { topic: "unknown".to_owned(), topic_id: old }), NONE);
}

const DAY_MS: u64 = 86_400_000;

#[test]
fn a_simple_group_keeps_each_offset_for_seven_days_after_its_commit() {
    let mut world = World::new();
    world.commit_to(&nobody("g"), "t", 0, 1);
    world.pass(DAY_MS);
    world.commit_to(&nobody("g"), "t", 1, 2);
    world.pass(6 * DAY_MS - 1);
    world.expire();
    assert_eq!(world.offsets("g").len(), 2);
    world.pass(1);
    world.expire();
    assert_eq!(world.offsets("g"), [("t".to_owned(), 1, 2)]);
    world.pass(DAY_MS);
    world.expire();
    assert_eq!(world.groups.kept(), []);
    assert_eq!(world.listed(), []);
    assert!(
        matches!(world.log.last(), Some(Logged::Record(None, GroupRecord::Group { value: None, .. }))),
        "a group with nothing is removed"
    );
    assert_eq!(replayed(&world.log, &world.settings).kept(), []);
}

#[test]
fn a_group_keeps_its_offsets_for_seven_days_after_it_became_empty() {
    let mut world = World::new();
    let patient = Join { session_timeout_ms: 1_800_000, ..consumer("g", "m") };
    let member = world.stable_with(vec![patient]).remove(0);
    world.commit_to(&member, "t", 0, 1);
    world.commit_to(&member, "u", 0, 1);
    for _ in 0..8 * 48 {
        world.pass(DAY_MS / 48 - 1);
        assert_eq!(world.heartbeat(&member), NONE);
    }
    world.expire();
    assert_eq!(world.offsets("g"), [("t".to_owned(), 0, 1)], "what nobody reads goes, seven days after its commit");
    assert_eq!(world.leave("g", &[(&member.member_id, None)]), [NONE]);
    world.pass(7 * DAY_MS - 1);
    world.expire();
    world.restart();
    world.expire();
    assert_eq!(world.offsets("g").len(), 1);
    world.pass(1);
    world.expire();
    assert_eq!((world.offsets("g"), world.listed()), (vec![], vec![]));
}

#[test]
fn no_offset_expires_in_a_round_and_none_in_a_group_of_another_type_with_members() {
    let mut world = World::with(GroupSettings { offsets_retention_ms: 1_000, ..settings() });
    let connect = Join { protocol_type: "connect".into(), ..consumer("c", "c") };
    let member = world.stable_with(vec![connect]).remove(0);
    world.commit(&member, 1);
    world.pass(5_000);
    world.expire();
    assert_eq!(world.offsets("c").len(), 1);
    let member = world.stable("g", &["m"]).remove(0);
    world.commit_to(&member, "u", 0, 1);
    world.ask(Command::Join(consumer("g", "n")));
    world.pass(5_000);
    world.expire();
    assert_eq!((world.state("g").as_str(), world.offsets("g").len()), ("PreparingRebalance", 1));
}

#[test]
fn an_offset_with_a_time_of_its_own_goes_then() {
    let mut world = World::new();
    let own = |retention_ms| Commit {
        who: nobody("g"),
        retention_ms: Some(retention_ms),
        offsets: vec![to_commit("t", 0, 1)],
        transaction: None,
    };
    world.now(Command::Commit(own(60_000)));
    world.pass(59_999);
    world.expire();
    assert_eq!(world.offsets("g").len(), 1);
    world.pass(1);
    world.expire();
    assert_eq!(world.offsets("g"), []);
    world.now(Command::Commit(own(-1)));
    world.pass(6 * DAY_MS);
    world.expire();
    assert_eq!(world.offsets("g").len(), 1, "-1 is the broker's own rule");
}

#[test]
fn a_group_with_something_under_way_does_not_expire() {
    let mut world = World::with(GroupSettings { offsets_retention_ms: 1_000, ..settings() });
    world.commit_to(&nobody("g"), "t", 0, 1);
    world.pass(2_000);
    world.quick_log = false;
    world.ask(commit(&nobody("g"), vec![to_commit("t", 0, 2)]));
    world.expire();
    assert_eq!(world.appends.len(), 1);
    world.flush();
    assert_eq!(world.offsets("g"), [("t".to_owned(), 0, 2)]);
}

#[test]
fn a_member_of_several_topics_reads_them_all() {
    let mut world = World::new();
    let both = Join { protocols: vec![("range".to_owned(), subscription(&["t", "u"]))], ..consumer("g", "m") };
    let member = world.stable_with(vec![both]).remove(0);
    for topic in ["t", "u", "v"] {
        world.commit_to(&member, topic, 0, 1);
    }
    let subscribed = ErrorCode::GroupSubscribedToTopic;
    assert_eq!(world.delete_offsets("g", &[("t", 0), ("u", 0), ("v", 0)]).1, [subscribed, subscribed, NONE]);
    world.restart();
    assert_eq!(world.delete_offsets("g", &[("t", 0)]).1, [subscribed]);
}
