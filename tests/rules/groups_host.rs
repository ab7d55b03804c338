//! The coordinators of one shard on a disk in memory: what a client was told outlives a power cut, memory and log never part,
//! nobody is given what was overtaken, and nobody waits for ever.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelane::broker::messages::{Answer as ShardAnswer, Ask, OffsetQuery, PartitionKey};
use corelane::ids::{Offset, ShardId, TopicId};
use corelane::runtime::clock;
use corelane::runtime::host::{self, Queue};
use corelane::runtime::signal::{Receiver, once};
use corelane::state::groups::messages::{
    Answer, Command, Commit, Described, Join, Joined, Membership, OffsetToCommit, OffsetsWanted, Sync, Synced,
    TopicWanted,
};
use corelane::wire::error_code::ErrorCode;

use crate::dice::{Dice, run};
use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::shard::{DATA, Node, SMALL, fill_up, wait, within};

const TOPIC: &str = "t";
const NAMES: [&str; 3] = ["g", "h", "another"];
const INTERNAL: &str = "__consumer_offsets";
/// The coordinators' logs are compacted whenever a second has passed.
const COMPACTED: [(&str, &str); 3] =
    [("log.roll.ms", "1000"), ("log.cleaner.min.cleanable.ratio", "0.01"), ("log.cleaner.backoff.ms", "100")];

fn nobody(group: &str) -> Membership {
    Membership { group: group.to_owned(), generation: -1, member_id: String::new(), instance_id: None }
}

fn commit_by(who: Membership, topic_id: TopicId, offset: i64) -> Command {
    let offset = OffsetToCommit {
        topic: TOPIC.to_owned(),
        topic_id,
        partition: 0,
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: String::new(),
    };
    Command::Commit(Commit { who, retention_ms: None, offsets: vec![offset], transaction: None })
}

fn commit(group: &str, topic: PartitionKey, offset: i64) -> Command {
    commit_by(nobody(group), topic.topic, offset)
}

fn join(group: &str, member_id: &str) -> Command {
    Command::Join(Join {
        group: group.to_owned(),
        member_id: member_id.to_owned(),
        instance_id: None,
        client_id: "client".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"sub"))],
        wants_member_id_first: false,
        may_skip_assignment: true,
    })
}

/// Asks without waiting: the question is on its way when this returns.
fn begin(node: &Node, group: &str, command: Command) -> Receiver<Answer> {
    let (sender, receiver) = once();
    let (shard, group) = (Rc::clone(&node.shard), group.to_owned());
    host::spawn(Queue::Requests, async move { sender.send(shard.ask_group(&group, command).await) });
    receiver
}

async fn ask(node: &Node, group: &str, command: Command) -> Answer {
    let answer = begin(node, group, command);
    within(30, answer).await.flatten().expect("an answer")
}

async fn committed(node: &Node, group: &str, topic: PartitionKey, offset: i64) -> ErrorCode {
    let Answer::Committed(codes) = ask(node, group, commit(group, topic, offset)).await else { panic!() };
    codes[0]
}

/// The kept offset, or why it is not told.
async fn kept(node: &Node, group: &str) -> Result<i64, ErrorCode> {
    let topic = TopicWanted { topic: TOPIC.to_owned(), topic_id: TopicId::ZERO, partitions: vec![0] };
    let wanted =
        OffsetsWanted { group: group.to_owned(), member: None, topics: Some(vec![topic]), require_stable: false };
    let Answer::Offsets(kept) = ask(node, group, Command::Offsets(wanted)).await else { panic!() };
    if kept.error.is_none() { Ok(kept.topics[0].1[0].offset.0) } else { Err(kept.error) }
}

/// The kept offset once the coordinator has loaded.
async fn kept_at_last(node: &Node, group: &str) -> i64 {
    loop {
        match kept(node, group).await {
            Ok(offset) => return offset,
            Err(error) => assert_eq!(error, ErrorCode::CoordinatorLoadInProgress),
        }
        wait(1).await;
    }
}

/// The groups' partition, and where its log begins and ends.
async fn log_of(node: &Node, group: &str) -> (PartitionKey, i64, i64) {
    let partition = node.shard.group_partition(group).await.unwrap();
    let topic = node.shard.catalog().topic(INTERNAL).unwrap().id;
    let key = PartitionKey { topic, partition };
    let query = |timestamp| OffsetQuery { key, timestamp, leader_epoch: -1, is_committed: false };
    let ShardAnswer::Offsets(found) = node.ask(Ask::Offsets(vec![query(-2), query(-1)])).await else { panic!() };
    (key, found[0].offset.0, found[1].offset.0)
}

/// One life of the broker: looks whether what was promised is there, makes new promises, and ends without power.
async fn a_life(disk: MemoryDisk, promised: Rc<RefCell<[i64; 3]>>, mut dice: Dice) -> MemoryDisk {
    // Cheap promises elsewhere: the broker's own topic does not take part in them.
    let mut settings: Vec<_> = SMALL.iter().copied().chain([("corelane.durability", "page-cache")]).collect();
    if dice.below(2) == 0 {
        settings.extend(COMPACTED);
    }
    let node = Node::start(&disk, &settings).await;
    let topic = match node.shard.catalog().topic(TOPIC) {
        Some(topic) => PartitionKey { topic: topic.id, partition: 0 },
        None => node.create(TOPIC).await,
    };
    let mut offset = 0;
    for (group, name) in NAMES.into_iter().enumerate() {
        let (found, least) = (kept_at_last(&node, name).await, promised.borrow()[group]);
        assert!(found >= least, "{found} after a promise of {least}");
        offset = offset.max(found);
    }
    for _ in 0..dice.below(40) {
        let group = dice.below(3);
        offset += 1;
        let answer = begin(&node, NAMES[group], commit(NAMES[group], topic, offset));
        // Some are on their way when the power goes.
        if dice.below(3) > 0 {
            let Some(Answer::Committed(codes)) = answer.await else { panic!() };
            match codes[0] {
                ErrorCode::None => promised.borrow_mut()[group] = offset,
                error => assert_eq!(error, ErrorCode::CoordinatorLoadInProgress, "it writes anew what it keeps"),
            }
        }
        if dice.below(10) == 0 {
            wait(dice.below(1500) as u64).await;
        }
    }
    disk.power_cut(|bound| dice.below(bound))
}

#[test]
fn what_was_committed_before_a_power_cut_is_there_afterwards() {
    run(1_000, |dice| {
        let promised = Rc::new(RefCell::new([-1; 3]));
        let disk = Rc::new(RefCell::new(MemoryDisk::default()));
        for _ in 0..6 {
            let (promised, left) = (Rc::clone(&promised), Rc::clone(&disk));
            let (before, dice) = (disk.borrow().clone(), dice.other());
            mini_host::run(1, async move {
                let after = a_life(before, promised, dice).await;
                *left.borrow_mut() = after;
            });
        }
        1
    });
}

#[test]
fn nobody_is_given_an_offset_that_was_overtaken_while_the_log_is_read() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        // Many reads for few records.
        let settings: Vec<_> = SMALL.iter().copied().chain([("offsets.load.buffer.size", "100")]).collect();
        let node = Node::start(&disk, &settings).await;
        let topic = node.create(TOPIC).await;
        for offset in 1..=200 {
            assert_eq!(committed(&node, "g", topic, offset).await, ErrorCode::None);
        }
        let node = Node::start(&disk.copy(), &settings).await;
        let mut refused = 0;
        let found = loop {
            match kept(&node, "g").await {
                Ok(found) => break found,
                Err(error) => assert_eq!(error, ErrorCode::CoordinatorLoadInProgress),
            }
            let heartbeat = Command::Heartbeat(nobody("g"));
            if refused == 0 {
                assert_eq!(ask(&node, "g", heartbeat).await, Answer::Done(ErrorCode::None), "as Kafka answers it");
                assert_eq!(node.shard.list_groups().await.0, ErrorCode::CoordinatorLoadInProgress);
            }
            refused += 1;
        };
        assert_eq!(found, 200);
        assert!(refused > 5, "the log was read at once: {refused}");
    });
}

fn is_disk_full(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress)
}

#[test]
fn after_a_full_disk_memory_and_log_are_one_again() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let settings: Vec<_> = SMALL.iter().copied().filter(|(name, _)| !name.contains("checkpoint")).collect();
        let node = Node::start(&disk, &settings).await;
        let topic = node.create(TOPIC).await;
        assert_eq!(committed(&node, "g", topic, 1).await, ErrorCode::None);
        fill_up(&disk).await;
        let mut failed = 0;
        for offset in 2..40 {
            failed += u32::from(is_disk_full(committed(&node, "g", topic, offset).await));
            wait(100).await;
        }
        assert!(failed > 30, "{failed}");
        disk.limit(None);
        wait(5000).await;
        let now = kept_at_last(&node, "g").await;
        let again = Node::start(&disk.copy(), &settings).await;
        assert_eq!(kept_at_last(&again, "g").await, now, "a restart knows something else");
        assert_eq!(committed(&node, "g", topic, 100).await, ErrorCode::None);
        assert_eq!(kept(&node, "g").await, Ok(100));
    });
}

#[test]
fn whoever_waits_for_the_disk_for_too_long_is_told() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let topic = node.create(TOPIC).await;
        assert_eq!(committed(&node, "g", topic, 1).await, ErrorCode::None);
        disk.hold_blocks(true);
        let begun = clock::monotonic();
        assert_eq!(committed(&node, "g", topic, 2).await, ErrorCode::CoordinatorNotAvailable);
        let waited_ms = (clock::monotonic() - begun).as_millis();
        assert!((4_900..5_100).contains(&waited_ms), "{waited_ms}");
        assert_eq!(kept(&node, "g").await, Ok(1), "it is not on disk, so it is not so");
        disk.hold_blocks(false);
        wait(1000).await;
        assert_eq!(kept(&node, "g").await, Ok(2));
    });
}

#[test]
fn many_commits_share_a_flush_and_end_in_order() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let topic = node.create(TOPIC).await;
        assert_eq!(committed(&node, "g", topic, 0).await, ErrorCode::None);
        disk.hold_blocks(true);
        let answers: Vec<_> = (1..=100).map(|offset| begin(&node, "g", commit("g", topic, offset))).collect();
        wait(10).await;
        let writes = disk.writes();
        disk.hold_blocks(false);
        for answer in answers {
            assert_eq!(answer.await, Some(Answer::Committed(vec![ErrorCode::None])));
        }
        assert!(disk.writes() - writes < 20, "{} writes", disk.writes() - writes);
        assert_eq!(kept(&node, "g").await, Ok(100));
    });
}

async fn joined(answer: Receiver<Answer>) -> Joined {
    let Some(Some(Answer::Joined(joined))) = within(60, answer).await else { panic!("no answer to a join") };
    joined
}

fn who(of: &Joined, group: &str) -> Membership {
    let (generation, member_id) = (of.generation, of.member_id.clone());
    Membership { group: group.to_owned(), generation, member_id, instance_id: None }
}

async fn synced(node: &Node, of: &Joined, assignments: &[(&str, &str)]) -> Synced {
    let owned = |(member, what): &(&str, &str)| ((*member).to_owned(), Bytes::copy_from_slice(what.as_bytes()));
    let sync = Sync {
        who: who(of, "g"),
        protocol_type: None,
        protocol: None,
        assignments: assignments.iter().map(owned).collect(),
    };
    let Answer::Synced(synced) = ask(node, "g", Command::Sync(sync)).await else { panic!() };
    synced
}

async fn described(node: &Node) -> Described {
    let command = Command::Describe { group: "g".to_owned() };
    let Answer::Described(described) = ask(node, "g", command).await else { panic!() };
    described
}

/// A group of two with an assignment.
async fn group_of_two(node: &Node) -> (Joined, Joined) {
    let (one, two) = (begin(node, "g", join("g", "")), begin(node, "g", join("g", "")));
    let (one, two) = (joined(one).await, joined(two).await);
    let (leader, other) = if one.member_id == one.leader { (one, two) } else { (two, one) };
    assert_eq!((leader.error, leader.members.len(), other.generation), (ErrorCode::None, 2, leader.generation));
    let mine = synced(node, &leader, &[(&leader.member_id, "a"), (&other.member_id, "b")]).await;
    assert_eq!((mine.error, &*mine.assignment), (ErrorCode::None, &b"a"[..]));
    assert_eq!(&*synced(node, &other, &[]).await.assignment, b"b");
    (leader, other)
}

#[test]
fn a_group_lives_through_a_power_cut_without_a_new_round() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let topic = node.create(TOPIC).await;
        let (leader, other) = group_of_two(&node).await;
        let Answer::Committed(codes) = ask(&node, "g", commit_by(who(&leader, "g"), topic.topic, 5)).await else {
            panic!()
        };
        assert_eq!(codes, [ErrorCode::None]);
        let node = Node::start(&disk.power_cut(|bound| bound / 2), SMALL).await;
        assert_eq!(kept_at_last(&node, "g").await, 5);
        for member in [&leader, &other] {
            let heartbeat = Command::Heartbeat(who(member, "g"));
            assert_eq!(ask(&node, "g", heartbeat).await, Answer::Done(ErrorCode::None));
        }
        let found = described(&node).await;
        assert_eq!((&*found.state, found.members.len()), ("Stable", 2));
        // One of them is never heard of again: the timer finds that out by itself.
        for _ in 0..3 {
            wait(4000).await;
            ask(&node, "g", Command::Heartbeat(who(&leader, "g"))).await;
        }
        assert_eq!(described(&node).await.state, "PreparingRebalance");
        let heartbeat = ask(&node, "g", Command::Heartbeat(who(&leader, "g"))).await;
        assert_eq!(heartbeat, Answer::Done(ErrorCode::RebalanceInProgress));
    });
}

#[test]
fn a_deleted_topics_offsets_go_with_it() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let topic = node.create(TOPIC).await;
        for group in ["g", "h"] {
            assert_eq!(committed(&node, group, topic, 7).await, ErrorCode::None);
        }
        node.delete(topic).await;
        wait(100).await;
        let same_name = node.create(TOPIC).await;
        assert_eq!((kept(&node, "g").await, kept(&node, "h").await), (Ok(-1), Ok(-1)));
        assert_eq!(committed(&node, "g", same_name, 1).await, ErrorCode::None);
        let node = Node::start(&disk.copy(), SMALL).await;
        assert_eq!((kept_at_last(&node, "g").await, kept_at_last(&node, "h").await), (1, -1));
    });
}

#[test]
fn a_deleted_topics_offsets_go_even_if_the_broker_goes_before_they_are_forgotten() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let topic = node.create(TOPIC).await;
        assert_eq!(committed(&node, "g", topic, 7).await, ErrorCode::None);
        let crashed = disk.copy();
        node.delete(topic).await;
        // The deletion is in the catalog, and nothing else has happened.
        let of_catalog = |path: &PathBuf| path.to_string_lossy().contains("catalog");
        let files: Vec<_> = disk.paths().into_iter().filter(of_catalog).collect();
        assert!(!files.is_empty());
        files.iter().for_each(|path| crashed.put(path, disk.content(path)));
        let node = Node::start(&crashed, SMALL).await;
        assert!(node.shard.catalog().topic(TOPIC).is_none());
        kept_at_last(&node, "g").await;
        wait(100).await;
        assert_eq!(kept(&node, "g").await, Ok(-1));
        let same_name = node.create(TOPIC).await;
        assert_eq!(committed(&node, "g", same_name, 1).await, ErrorCode::None);
        let node = Node::start(&crashed.copy(), SMALL).await;
        assert_eq!(kept_at_last(&node, "g").await, 1);
    });
}

#[test]
fn at_a_stop_those_who_wait_for_others_are_sent_away_and_commits_end_well() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Rc::new(Node::start(&disk, SMALL).await);
        let topic = node.create(TOPIC).await;
        assert_eq!(committed(&node, "other", topic, 1).await, ErrorCode::None);
        let (joining, committing) =
            (begin(&node, "g", join("g", "")), begin(&node, "other", commit("other", topic, 2)));
        wait(0).await;
        let closing = Rc::clone(&node);
        let begun = clock::monotonic();
        assert_eq!(within(60, async move { closing.close().await }).await, Some(Ok(())));
        assert!(clock::monotonic() - begun < Duration::from_secs(2), "the first round alone is 3 s");
        assert_eq!(joined(joining).await.error, ErrorCode::NotCoordinator);
        let Some(Answer::Committed(codes)) = committing.await else { panic!() };
        assert_eq!(committed(&node, "other", topic, 3).await, ErrorCode::NotCoordinator, "too late");
        let node = Node::start(&disk.copy(), SMALL).await;
        let found = kept_at_last(&node, "other").await;
        assert_eq!(found == 2, codes == [ErrorCode::None]);
    });
}

#[test]
fn without_its_topic_there_is_no_group_and_with_a_new_one_they_begin_anew() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let node = Node::start(&disk, SMALL).await;
        let topic = node.create(TOPIC).await;
        assert_eq!(node.shard.list_groups().await, (ErrorCode::None, vec![]));
        assert!(node.shard.catalog().topic(INTERNAL).is_none(), "made only when it is needed");
        assert_eq!(committed(&node, "g", topic, 7).await, ErrorCode::None);
        let made = node.shard.catalog().topic(INTERNAL).cloned().unwrap();
        assert_eq!((made.internal, made.partition_count(), made.settings.cleanup_compact), (true, 50, true));
        let joining = begin(&node, "g", join("g", ""));
        wait(1).await;
        let (key, _, records) = log_of(&node, "g").await;
        assert!(records >= 1);
        node.delete(PartitionKey { topic: made.id, partition: 0 }).await;
        assert_eq!(joined(joining).await.error, ErrorCode::NotCoordinator);
        let direct = Ask::Group { partition: key.partition, command: Box::new(Command::List) };
        let ShardAnswer::Group(answer) = node.shard.ask(ShardId(0), direct).await else { panic!() };
        assert_eq!(*answer, Answer::Listed(ErrorCode::NotCoordinator, vec![]));
        assert_eq!(kept(&node, "g").await, Ok(-1));
        assert_eq!(committed(&node, "g", topic, 8).await, ErrorCode::None);
        assert_eq!(kept(&node, "g").await, Ok(8));
    });
}

#[test]
fn a_log_that_is_compacted_says_the_same() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let settings: Vec<_> = SMALL.iter().copied().chain(COMPACTED).collect();
        let node = Node::start(&disk, &settings).await;
        let topic = node.create(TOPIC).await;
        let (leader, _) = group_of_two(&node).await;
        let partition = node.shard.group_partition("g").await.unwrap();
        let mut neighbour = 0;
        // In the same log, kept since its beginning.
        while node.shard.group_partition(&format!("n{neighbour}")).await.unwrap() != partition {
            neighbour += 1;
        }
        let neighbour = format!("n{neighbour}");
        assert_eq!(committed(&node, &neighbour, topic, 77).await, ErrorCode::None);
        let mut last = -1;
        for round in 0..60 {
            // Several on their way at a time.
            let offsets = round * 5..round * 5 + 5;
            let answers: Vec<_> = offsets
                .map(|offset| (offset, begin(&node, "g", commit_by(who(&leader, "g"), topic.topic, offset))))
                .collect();
            for (offset, answer) in answers {
                let Some(Answer::Committed(codes)) = answer.await else { panic!() };
                assert_eq!(codes, [ErrorCode::None], "nobody waits for compaction");
                last = offset;
            }
            wait(50).await;
        }
        wait(1_100).await;
        // This one closes the segment that holds the others.
        assert_eq!(committed(&node, &neighbour, topic, 77).await, ErrorCode::None);
        wait(1_000).await;
        let (_, start, end) = log_of(&node, "g").await;
        assert!(start == 0 && end > 300, "from {start} to {end}");
        let folder = Path::new(DATA).join(format!("kafka/{INTERNAL}-{partition}"));
        let paths = disk.paths().into_iter().filter(|path| path.starts_with(&folder));
        let logs = paths.filter(|path| path.extension().is_some_and(|ending| ending == "log"));
        let bytes: usize = logs.map(|path| disk.content(&path).len()).sum();
        assert!(bytes < 3_000, "{bytes} bytes are left of {end} records");
        for node in [node, Node::start(&disk.copy(), &settings).await] {
            assert_eq!(kept_at_last(&node, "g").await, last);
            assert_eq!(kept_at_last(&node, &neighbour).await, 77);
            let found = described(&node).await;
            assert_eq!((&*found.state, found.members.len()), ("Stable", 2));
        }
    });
}

#[test]
fn what_nobody_reads_any_more_expires_by_itself() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let more = [("offsets.retention.minutes", "1"), ("offsets.retention.check.interval.ms", "1000")];
        let settings: Vec<_> = SMALL.iter().copied().chain(more).collect();
        let node = Node::start(&disk, &settings).await;
        let topic = node.create(TOPIC).await;
        assert_eq!(committed(&node, "g", topic, 7).await, ErrorCode::None);
        wait(58_000).await;
        assert_eq!(kept(&node, "g").await, Ok(7));
        wait(4_000).await;
        assert_eq!(kept(&node, "g").await, Ok(-1));
        let node = Node::start(&disk.copy(), &settings).await;
        assert_eq!(kept_at_last(&node, "g").await, -1, "the tombstone is in the log");
    });
}
