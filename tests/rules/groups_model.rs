//! Groups under random commands, time and results of appends: what must hold whatever happens.
//!
//! - A ticket is answered at most once; once everything has ended and all time-outs are over, exactly once.
//! - What is assigned belongs to one member at a time; who syncs is in the group, in the generation that is.
//! - A replay of what is in the log gives what is kept and what waits for markers; what is kept restores itself.
//! - Of what is committed the newest record counts, and who wants what is stable is told where a transaction is open.
//! - A stable group with nothing under way is after a restart what it was.
//! - When nobody asks any more, every group ends empty and no deadline is left.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use corelane::ids::{ProducerId, TopicId};
use corelane::state::groups::messages::{
    Answer, Command, Commit, DeleteOffsets, Join, Membership, OffsetsWanted, TopicWanted,
};
use corelane::state::groups::{GroupSettings, Ticket};
use corelane::state::transactions::messages::Outcome;
use corelane::wire::error_code::ErrorCode;
use corelane::wire::internal::GroupRecord;
use proptest::prelude::*;

use super::groups_world::{
    Logged, World, commit, commit_in, consumer, leave, nobody, protocols, replayed, settings, subscription, sync,
    to_commit, who,
};

const GROUPS: [&str; 3] = ["g0", "g1", "g2"];
const TOPICS: [&str; 3] = ["t", "u", "v"];

/// A client: what it would join with, and what it knows of its place.
#[derive(Clone, Debug)]
struct Client {
    join: Join,
    member: Option<Membership>,
    /// Other members, if it leads.
    others: Vec<String>,
}

impl Client {
    fn new(number: u8) -> Self {
        let group = GROUPS[usize::from(number) % GROUPS.len()];
        let base = consumer(group, &format!("c{number}"));
        let join = Join {
            // Two clients share each static name: doubles.
            instance_id: (number % 4 == 3).then(|| format!("i{}", number % 8)),
            wants_member_id_first: number.is_multiple_of(2),
            may_skip_assignment: number.is_multiple_of(5),
            session_timeout_ms: if number.is_multiple_of(3) { 6_000 } else { 30_000 },
            rebalance_timeout_ms: if number.is_multiple_of(2) { 5_000 } else { 20_000 },
            protocol_type: if number == 17 { "connect".to_owned() } else { base.protocol_type.clone() },
            ..base
        };
        Self { join, member: None, others: Vec::new() }
    }

    /// Who it thinks it is.
    fn who(&self) -> Membership {
        let group = &self.join.group;
        let member = self.member.clone().unwrap_or_else(|| who(group, "never given", 0));
        Membership { instance_id: self.join.instance_id.clone(), ..member }
    }
}

/// One step of somebody.
#[derive(Clone, Debug)]
enum Act {
    Join { client: u8, with_id: bool, protocols: u8 },
    Sync { client: u8, off: i8 },
    Heartbeat { client: u8, off: i8 },
    Leave { client: u8, by_name: bool },
    Commit { client: u8, alone: bool, topic: u8, partition: u8, offset: u8, retention: bool },
    CommitIn { producer: u8, client: u8, alone: bool, topic: u8, partition: u8, offset: u8 },
    Marker { producer: u8, commit: bool },
    DeleteOffsets { group: u8, topic: u8, partition: u8 },
    DeleteGroup { group: u8 },
    TopicDeleted { topic: u8 },
    Pass { ms: u16 },
    Log { results: u8, failure: u8 },
    Expire,
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let client = 0..18_u8;
    prop_oneof![
        8 => (client.clone(), any::<bool>(), 0..8_u8).prop_map(|(client, with_id, protocols)| Act::Join { client, with_id, protocols }),
        6 => (client.clone(), -1..10_i8).prop_map(|(client, off)| Act::Sync { client, off }),
        3 => (client.clone(), -1..10_i8).prop_map(|(client, off)| Act::Heartbeat { client, off }),
        1 => (client.clone(), any::<bool>()).prop_map(|(client, by_name)| Act::Leave { client, by_name }),
        3 => (0..3_u8, client.clone(), any::<bool>(), 0..3_u8, 0..2_u8, any::<u8>()).prop_map(
            |(producer, client, alone, topic, partition, offset)| Act::CommitIn { producer, client, alone, topic, partition, offset }
        ),
        2 => (0..3_u8, any::<bool>()).prop_map(|(producer, commit)| Act::Marker { producer, commit }),
        3 => (client, any::<bool>(), 0..3_u8, 0..2_u8, any::<u8>(), any::<bool>()).prop_map(
            |(client, alone, topic, partition, offset, retention)| Act::Commit { client, alone, topic, partition, offset, retention }
        ),
        1 => (0..3_u8, 0..3_u8, 0..2_u8).prop_map(|(group, topic, partition)| Act::DeleteOffsets { group, topic, partition }),
        1 => (0..3_u8).prop_map(|group| Act::DeleteGroup { group }),
        1 => (0..3_u8).prop_map(|topic| Act::TopicDeleted { topic }),
        4 => prop_oneof![0..50_u16, 1_000..8_000_u16].prop_map(|ms| Act::Pass { ms }),
        6 => (1..4_u8, 0..12_u8).prop_map(|(results, failure)| Act::Log { results, failure }),
        1 => Just(Act::Expire),
        1 => prop_oneof![9 => Just(Act::Expire), 1 => Just(Act::Restart)],
    ]
}

/// Why a ticket was drawn.
#[derive(Clone, Debug)]
enum Asked {
    Join(u8),
    Sync(Membership),
    Heartbeat(Membership),
    DeleteGroup(String),
    Other,
}

struct Model {
    world: World,
    clients: Vec<Client>,
    waiting: BTreeMap<Ticket, Asked>,
    /// Assignment and whose it is.
    owners: HashMap<Bytes, Membership>,
    plans: u32,
}

impl Model {
    fn new() -> Self {
        let settings = GroupSettings {
            initial_rebalance_delay_ms: 1_000,
            members_max: 6,
            offsets_retention_ms: 60_000,
            ..settings()
        };
        let mut world = World::with(settings);
        world.quick_log = false;
        Self {
            world,
            clients: (0..18).map(Client::new).collect(),
            waiting: BTreeMap::new(),
            owners: HashMap::new(),
            plans: 0,
        }
    }

    fn ask(&mut self, asked: Asked, command: Command) {
        let ticket = self.world.ask(command);
        self.waiting.insert(ticket, asked);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Join { client, with_id, protocols: choice } => self.join(client, with_id, choice),
            Act::Sync { client, off } => self.sync(client, off),
            Act::Heartbeat { client, off } => {
                let who = self.who(client, off);
                self.ask(Asked::Heartbeat(who.clone()), Command::Heartbeat(who));
            }
            Act::Leave { client, by_name } => {
                let who = self.clients[usize::from(client)].who();
                let id = if by_name { "" } else { who.member_id.as_str() };
                self.ask(Asked::Other, leave(&who.group, &[(id, who.instance_id.as_deref())]));
            }
            Act::Commit { client, alone, topic, partition, offset, retention } => {
                let who = self.clients[usize::from(client)].who();
                let who = if alone { nobody(&who.group) } else { who };
                let offsets = vec![to_commit(TOPICS[usize::from(topic)], i32::from(partition), i64::from(offset))];
                let retention_ms = retention.then_some(i64::from(offset) * 100);
                self.ask(Asked::Other, Command::Commit(Commit { who, retention_ms, offsets, transaction: None }));
            }
            Act::CommitIn { producer, client, alone, topic, partition, offset } => {
                let who = self.clients[usize::from(client)].who();
                let who = if alone { nobody(&who.group) } else { who };
                let offsets = vec![to_commit(TOPICS[usize::from(topic)], i32::from(partition), i64::from(offset))];
                self.ask(Asked::Other, commit_in(i64::from(producer), &who, offsets));
            }
            Act::Marker { producer, commit } => {
                let outcome = if commit { Outcome::Commit } else { Outcome::Abort };
                self.world.marker(i64::from(producer), outcome);
            }
            Act::DeleteOffsets { group, topic, partition } => {
                let partitions = vec![(TOPICS[usize::from(topic)].to_owned(), i32::from(partition))];
                let group = GROUPS[usize::from(group)].to_owned();
                self.ask(Asked::Other, Command::DeleteOffsets(DeleteOffsets { group, partitions }));
            }
            Act::DeleteGroup { group } => {
                let group = GROUPS[usize::from(group)].to_owned();
                self.ask(Asked::DeleteGroup(group.clone()), Command::DeleteGroup { group });
            }
            Act::TopicDeleted { topic } => {
                let topic = TOPICS[usize::from(topic)].to_owned();
                self.ask(Asked::Other, Command::TopicDeleted { topic, topic_id: TopicId::ZERO });
            }
            Act::Pass { ms } => self.world.pass(u64::from(ms)),
            Act::Log { results, failure } => self.log(results, failure),
            Act::Expire => self.world.expire(),
            Act::Restart => self.restart(),
        }
        self.look();
    }

    fn join(&mut self, client: u8, with_id: bool, choice: u8) {
        let known = &self.clients[usize::from(client)];
        let mut join = known.join.clone();
        if with_id && let Some(member) = &known.member {
            join.member_id = member.member_id.clone();
        }
        match choice {
            0..4 => {}
            4 => join.protocols = protocols(&["range", "sticky"], &["t"]),
            5 => join.protocols = protocols(&["sticky", "range"], &["t", "u"]),
            6 => join.protocols = vec![("range".to_owned(), Bytes::from("?"))],
            _ => join.protocols = vec![("other".to_owned(), subscription(&["v"]))],
        }
        self.ask(Asked::Join(client), Command::Join(join));
    }

    /// Who a client is, now and then in a wrong generation.
    fn who(&self, client: u8, off: i8) -> Membership {
        let who = self.clients[usize::from(client)].who();
        let off = if off > 1 { 0 } else { i32::from(off) };
        Membership { generation: who.generation + off, ..who }
    }

    fn sync(&mut self, client: u8, off: i8) {
        let who = self.who(client, off);
        self.plans += 1;
        let plan = self.plans;
        let everybody = self.clients[usize::from(client)].others.iter();
        let assignments = everybody.map(|id| (id.clone(), Bytes::from(format!("plan {plan} for {id}")))).collect();
        self.ask(Asked::Sync(who.clone()), sync(&who, assignments));
    }

    fn log(&mut self, results: u8, failure: u8) {
        for _ in 0..results {
            if self.world.appends.is_empty() {
                return;
            }
            self.world.end_append(match failure {
                0 => Err(ErrorCode::KafkaStorageError),
                1 => Err(ErrorCode::RequestTimedOut),
                2 => Err(ErrorCode::MessageTooLarge),
                _ => Ok(()),
            });
            self.look();
        }
    }

    /// The coordinator's process ends: whoever waits is told by their closed connection.
    fn restart(&mut self) {
        self.world.restart();
        self.waiting.clear();
    }

    /// Holds what was answered against what is.
    fn look(&mut self) {
        let mut answers: Vec<_> = self.world.answers.drain().collect();
        answers.sort_by_key(|(ticket, _)| *ticket);
        for (ticket, answer) in answers {
            let asked = self.waiting.remove(&ticket).unwrap_or_else(|| panic!("{ticket:?} was answered before"));
            self.check(asked, answer);
        }
        let replayed = replayed(&self.world.log, &self.world.settings);
        assert_eq!(replayed.kept(), self.world.groups.kept());
        assert_eq!(replayed.pending(), self.world.groups.pending());
        self.offsets_are_those_of_the_log();
        self.stable_groups_survive();
        let somebody_waits_for_time = self.world.appends.is_empty() && !self.waiting.is_empty();
        assert!(!somebody_waits_for_time || self.world.groups.next_deadline_ms().is_some(), "{:?}", self.waiting);
    }

    fn check(&mut self, asked: Asked, answer: Answer) {
        match (asked, answer) {
            (Asked::Join(client), Answer::Joined(joined)) => {
                let client = &mut self.clients[usize::from(client)];
                let group = client.join.group.clone();
                if joined.error == ErrorCode::MemberIdRequired {
                    client.member = Some(who(&group, &joined.member_id, -1));
                } else if joined.error.is_none() {
                    let leads = joined.leader == joined.member_id;
                    assert!(joined.members.is_empty() || leads);
                    client.others = joined.members.into_iter().map(|member| member.member_id).collect();
                    client.member = Some(who(&group, &joined.member_id, joined.generation));
                    assert!(joined.protocol.is_some() && joined.protocol_type.is_some());
                    self.assert_is_in(&group, &joined.member_id);
                }
            }
            (Asked::Sync(who), Answer::Synced(synced)) => {
                if synced.error.is_none() {
                    self.assert_is_in(&who.group, &who.member_id);
                    self.own(who, synced.assignment);
                }
            }
            (Asked::Heartbeat(who), Answer::Done(error)) => {
                if error.is_none() || error == ErrorCode::RebalanceInProgress {
                    self.assert_is_in(&who.group, &who.member_id);
                }
            }
            (Asked::DeleteGroup(group), Answer::Done(error)) => {
                if error.is_none() {
                    assert!(!self.world.groups.kept().iter().any(|record| is_of(record, &group)), "{group} is gone");
                }
            }
            (Asked::Other, Answer::Left(_) | Answer::Committed(_) | Answer::OffsetsDeleted(..) | Answer::Done(_)) => {}
            (asked, answer) => panic!("{asked:?} got {answer:?}"),
        }
    }

    /// An answer of a call may be followed by more of the same call; only calls that end in one answer are looked at.
    fn assert_is_in(&mut self, group: &str, member_id: &str) {
        let described = self.describe(group);
        let others_may_have_come_after = self.waiting.is_empty();
        let found = described.members.iter().any(|member| member.member_id == member_id);
        assert!(
            found || others_may_have_come_after || described.state != "Stable",
            "{member_id} is not in {described:?}"
        );
    }

    fn describe(&mut self, group: &str) -> corelane::state::groups::messages::Described {
        self.world.describe(group)
    }

    fn own(&mut self, who: Membership, assignment: Bytes) {
        if assignment.is_empty() {
            return;
        }
        let before = self.owners.insert(assignment.clone(), who.clone());
        if let Some(before) = before.filter(|before| before.member_id != who.member_id) {
            let described = self.describe(&who.group);
            let both = described.members.iter().any(|member| member.member_id == before.member_id);
            assert!(!both, "{assignment:?} belongs to {} and {}", before.member_id, who.member_id);
            assert_eq!(before.generation, who.generation, "handed on within its generation alone");
        }
    }

    /// What is answered about every partition, held against a plain reading of the log.
    fn offsets_are_those_of_the_log(&mut self) {
        let written = Written::of(&self.world.log);
        for group in GROUPS {
            for require_stable in [false, true] {
                let topics = TOPICS.map(|topic| TopicWanted {
                    topic: topic.to_owned(),
                    topic_id: TopicId::ZERO,
                    partitions: vec![0, 1],
                });
                let (group, topics) = (group.to_owned(), Some(topics.to_vec()));
                let wanted = OffsetsWanted { group: group.clone(), member: None, topics, require_stable };
                let Answer::Offsets(found) = self.world.now(Command::Offsets(wanted)) else { panic!() };
                for (topic, partitions) in found.topics {
                    for found in partitions {
                        let place = (group.clone(), topic.clone(), found.partition);
                        let is_open = require_stable && written.is_open(&place);
                        let told = if is_open {
                            (-1, ErrorCode::UnstableOffsetCommit)
                        } else {
                            (written.newest(&place).unwrap_or(-1), ErrorCode::None)
                        };
                        assert_eq!((found.offset.0, found.error), told, "{place:?}");
                    }
                }
            }
        }
    }

    fn stable_groups_survive(&mut self) {
        if !self.world.appends.is_empty() {
            return;
        }
        let mut later = replayed(&self.world.log, &self.world.settings);
        let at = self.world.moment();
        later.loaded(at);
        for group in GROUPS {
            let live = self.describe(group);
            if live.state == "Stable" && live.members.len() <= 6 {
                let ticket = Ticket(u64::MAX);
                let effects = later.handle(at, ticket, Command::Describe { group: group.to_owned() });
                let Some((_, Answer::Described(mut replayed))) = effects.answers.into_iter().next() else { panic!() };
                let mut live = live;
                for member in live.members.iter_mut().chain(&mut replayed.members) {
                    // What a member says may be newer than the record, while its own time-outs may be older.
                    member.metadata = Bytes::new();
                }
                assert_eq!(live, replayed);
            }
        }
    }

    /// Nobody asks any more.
    fn end(&mut self) {
        for _ in 0..10_000 {
            if let Some(due_ms) = self.world.groups.next_deadline_ms() {
                let now_ms = self.world.now_ms;
                self.world.pass(due_ms.saturating_sub(now_ms));
            } else if self.world.appends.is_empty() {
                break;
            }
            self.look();
            self.log(u8::MAX, u8::MAX);
        }
        assert_eq!(self.world.groups.next_deadline_ms(), None);
        assert!(self.waiting.is_empty(), "never answered: {:?}", self.waiting);
        assert!(self.world.listed().iter().all(|(_, state)| state == "Empty"), "{:?}", self.world.listed());
        (0..3).for_each(|producer| self.world.marker(producer, Outcome::Commit));
        self.log(u8::MAX, u8::MAX);
        self.world.pass(120_000);
        self.world.expire();
        self.world.flush();
        assert_eq!((self.world.listed(), self.world.groups.kept()), (vec![], vec![]), "all has expired");
    }
}

type Place = (String, String, i32);

/// Offsets that a log speaks of: where, in which order they were written, and by whose open transaction.
struct Written(Vec<(Place, Option<ProducerId>, i64)>);

impl Written {
    fn of(log: &[Logged]) -> Self {
        let mut all: Vec<(Place, Option<ProducerId>, i64)> = Vec::new();
        for logged in log {
            match logged {
                Logged::Record(producer, GroupRecord::Offset { group, topic, partition, value }) => {
                    let place = (group.clone(), topic.clone(), *partition);
                    match value {
                        Some(value) => all.push((place, *producer, value.offset.0)),
                        None => all.retain(|(other, ..)| *other != place),
                    }
                }
                Logged::Record(_, GroupRecord::Group { .. }) => {}
                Logged::Marker(ended, Outcome::Abort) => all.retain(|(_, producer, _)| *producer != Some(*ended)),
                Logged::Marker(ended, Outcome::Commit) => {
                    let of_ended = all.iter_mut().filter(|(_, producer, _)| *producer == Some(*ended));
                    of_ended.for_each(|(_, producer, _)| *producer = None);
                }
            }
        }
        Self(all)
    }

    fn is_open(&self, wanted: &Place) -> bool {
        self.0.iter().any(|(place, producer, _)| place == wanted && producer.is_some())
    }

    fn newest(&self, wanted: &Place) -> Option<i64> {
        let committed = self.0.iter().rev().find(|(place, producer, _)| place == wanted && producer.is_none());
        committed.map(|(_, _, offset)| *offset)
    }
}

fn is_of(record: &GroupRecord, wanted: &str) -> bool {
    match record {
        GroupRecord::Offset { group, .. } | GroupRecord::Group { group, .. } => group == wanted,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens(acts in prop::collection::vec(act(), 1..120)) {
        let mut model = Model::new();
        for act in acts {
            model.act(act);
        }
        model.end();
    }
}

/// Many members that join, sync and beat: nothing here grows with the square of their number.
#[test]
fn ten_thousand_members() {
    let mut world = World::new();
    let clients: Vec<String> = (0..10_000).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = clients.iter().map(String::as_str).collect();
    let members = world.stable("g", &names);
    for _ in 0..3 {
        for member in &members {
            assert_eq!(world.heartbeat(member), ErrorCode::None);
        }
        world.pass(9_999);
    }
    let ticket = world.ask(commit(&members[5], vec![to_commit("t", 0, 1)]));
    assert_eq!(world.answer(ticket), Some(Answer::Committed(vec![ErrorCode::None])));
    world.pass(70_000);
    assert_eq!(world.state("g"), "Empty");
}
