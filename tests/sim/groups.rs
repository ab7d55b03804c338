//! Groups whose consumers assign themselves and commit offsets.

use std::time::Duration;

use bytes::Bytes;
use corelane::broker::groups::partition_of;
use corelane::ids::{Offset, TopicId};
use corelane::runtime::clock;
use corelane::state::groups::messages::{
    Answer, Command, Commit, Join, Membership, OffsetToCommit, OffsetsWanted, Sync, TopicWanted,
};
use corelane::wire::error_code::ErrorCode;

use crate::cluster::in_time;
use crate::support::dice::Dice;
use crate::world::{Client, Group};

/// The topic that all offsets are for; it is never deleted.
pub const ANCHOR: &str = "anchor";
/// How long a coordinator may load, in tries of 1 ms.
const LOADING_MAX: usize = 20_000;

pub fn made(number: usize) -> Group {
    Group { name: format!("group-{number}"), committed: -1, ..Group::default() }
}

async fn ask(client: &Client, group: &str, command: Command, dice: &mut Dice) -> Answer {
    let (shard, group) = (client.cluster.shard(dice.below(8)).clone(), group.to_owned());
    client.world.borrow_mut().operate();
    in_time("a coordinator", async move { shard.ask_group(&group, command).await }).await
}

fn who(group: &Group) -> Membership {
    let (generation, member_id) = group.member.clone().unwrap_or((-1, String::new()));
    Membership { group: group.name.clone(), generation, member_id, instance_id: None }
}

fn commit_of(group: &Group, topic_id: TopicId, offset: i64) -> Command {
    let who = who(group);
    let offset = OffsetToCommit {
        topic: ANCHOR.to_owned(),
        topic_id,
        partition: 0,
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: format!("{offset}"),
    };
    Command::Commit(Commit { who, retention_ms: None, offsets: vec![offset], transaction: None })
}

fn wanted(group: &str) -> Command {
    let topic = TopicWanted { topic: ANCHOR.to_owned(), topic_id: TopicId::ZERO, partitions: vec![0] };
    Command::Offsets(OffsetsWanted {
        group: group.to_owned(),
        member: None,
        topics: Some(vec![topic]),
        require_stable: false,
    })
}

/// The kept offset, or why it is not told.
async fn kept(client: &Client, group: &str, dice: &mut Dice) -> Result<i64, ErrorCode> {
    let Answer::Offsets(kept) = ask(client, group, wanted(group), dice).await else { panic!() };
    if !kept.error.is_none() {
        return Err(kept.error);
    }
    let kept = &kept.topics[0].1[0];
    assert!(kept.error.is_none());
    if kept.offset.0 >= 0 {
        assert_eq!(kept.metadata, format!("{}", kept.offset.0), "beside an offset stands what was said with it");
    }
    Ok(kept.offset.0)
}

/// Commits one offset after the other until this life ends.
pub async fn commit(client: Client, at: usize, mut dice: Dice) {
    let Some(anchor) = client.cluster.topic(ANCHOR) else { return };
    while client.goes_on() {
        if dice.below(12) == 0 {
            join(&client, at, &mut dice).await;
        }
        let (known, offset) = {
            let group = &mut client.world.borrow_mut().groups[at];
            let newest = group.doubtful.last().copied().unwrap_or(group.committed);
            group.doubtful.push(newest + 1 + dice.below(5) as i64);
            (group.clone(), *group.doubtful.last().unwrap())
        };
        let name = known.name.clone();
        let command = commit_of(&known, anchor.id, offset);
        let Answer::Committed(codes) = ask(&client, &name, command, &mut dice).await else { panic!() };
        match codes[0] {
            ErrorCode::None => {
                let world = &mut *client.world.borrow_mut();
                world.one("offsets committed");
                world.groups[at].committed = offset;
                world.groups[at].doubtful.clear();
            }
            // It loads, or the disk refuses.
            ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
            | ErrorCode::KafkaStorageError
            | ErrorCode::UnknownServerError => {}
            // Its last try to join has left somebody there.
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration | ErrorCode::RebalanceInProgress
                if known.member.is_none() => {}
            other => panic!("{name}: {other:?} for {:?}", known.member),
        }
        if dice.below(4) == 0
            && let Ok(found) = kept(&client, &name, &mut dice).await
        {
            check_kept(&client.world.borrow().groups[at], found);
        }
        clock::sleep(Duration::from_micros(dice.below(80_000) as u64)).await;
    }
}

/// Becomes the only member of a group, or its next generation.
async fn join(client: &Client, at: usize, dice: &mut Dice) {
    let (name, member_id) = {
        let group = &mut client.world.borrow_mut().groups[at];
        // Nobody knows how far it comes.
        let before = group.member.take();
        (group.name.clone(), before.map_or(String::new(), |member| member.1))
    };
    let joining = Command::Join(Join {
        group: name.clone(),
        member_id,
        instance_id: None,
        client_id: "client".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout_ms: 1_800_000,
        rebalance_timeout_ms: 1_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"sub"))],
        wants_member_id_first: false,
        may_skip_assignment: true,
    });
    let Answer::Joined(joined) = ask(client, &name, joining, dice).await else { panic!() };
    if !joined.error.is_none() {
        return;
    }
    let member = (joined.generation, joined.member_id.clone());
    let who = Membership { group: name.clone(), generation: member.0, member_id: member.1.clone(), instance_id: None };
    let assignments = vec![(joined.member_id, Bytes::from_static(b"all of it"))];
    let syncing = Command::Sync(Sync { who, protocol_type: None, protocol: None, assignments });
    let Answer::Synced(synced) = ask(client, &name, syncing, dice).await else { panic!() };
    if synced.error.is_none() {
        assert_eq!(synced.assignment, &b"all of it"[..]);
        let world = &mut *client.world.borrow_mut();
        world.groups[at].member = Some(member);
        world.one("members joined");
    }
}

/// A member that was there and did not leave is there, in the generation that it knows.
async fn check_member(client: &Client, at: usize, dice: &mut Dice) {
    let group = client.world.borrow().groups[at].clone();
    if group.member.is_none() {
        return;
    }
    let Answer::Done(error) = ask(client, &group.name, Command::Heartbeat(who(&group)), dice).await else { panic!() };
    assert_eq!(error, ErrorCode::None, "{}: member {:?}", group.name, group.member);
    client.world.borrow_mut().one("members found again");
}

fn check_kept(group: &Group, found: i64) {
    let is_known = found == group.committed || group.doubtful.contains(&found);
    assert!(is_known, "{}: {found} is kept, {} was promised, then {:?}", group.name, group.committed, group.doubtful);
}

/// After a start: what is kept is what was promised, or what nobody got an answer for.
pub async fn check(client: &Client, dice: &mut Dice) {
    let count = client.world.borrow().groups.len();
    for at in 0..count {
        let name = client.world.borrow().groups[at].name.clone();
        let mut tries = 0;
        let found = loop {
            match kept(client, &name, dice).await {
                Ok(found) => break found,
                Err(ErrorCode::CoordinatorLoadInProgress | ErrorCode::CoordinatorNotAvailable) => {}
                Err(other) => panic!("{name}: {other:?}"),
            }
            tries += 1;
            assert!(tries < LOADING_MAX, "{name} ({}) loads for ever", partition_of(&name, 2));
            clock::sleep(Duration::from_millis(1)).await;
        };
        let group = &mut client.world.borrow_mut().groups[at];
        check_kept(group, found);
        (group.committed, group.doubtful) = (found, Vec::new());
    }
    for at in 0..count {
        check_member(client, at, dice).await;
    }
}
