//! A coordinator's surroundings for the groups: clocks, a log that takes records when told to, clients that ask.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use corelane::ids::{Offset, ProducerEpoch, ProducerId, TopicId};
use corelane::state::enlisting::Protocol;
use corelane::state::groups::messages::{
    Answer, Command, Commit, DeleteOffsets, Described, Join, Joined, Leave, Left, Membership, OffsetKept,
    OffsetToCommit, OffsetsWanted, Sync, Synced, TopicWanted, Transaction,
};
use corelane::state::groups::{Append, AppendId, Effects, GroupSettings, Groups, Moment, Ticket};
use corelane::state::transactions::messages::{Outcome, Speaker};
use corelane::wire::error_code::ErrorCode;
use corelane::wire::internal::GroupRecord;

/// Kafka's defaults.
pub fn settings() -> GroupSettings {
    GroupSettings {
        session_timeout_ms_min: 6_000,
        session_timeout_ms_max: 1_800_000,
        initial_rebalance_delay_ms: 3_000,
        members_max: i32::MAX,
        offset_metadata_bytes_max: 4_096,
        offsets_retention_ms: 10_080 * 60_000,
    }
}

/// Wall clock when a world begins.
pub const WALL_MS: i64 = 1_000_000;

/// What is in the log, each at the offset that is its place.
#[derive(Clone, Debug)]
pub enum Logged {
    /// A record, and the producer of whose transaction it is.
    Record(Option<ProducerId>, GroupRecord),
    /// A marker.
    Marker(ProducerId, Outcome),
}

/// What is on its way into the log.
#[derive(Debug)]
pub struct OnItsWay {
    pub id: AppendId,
    pub content: Vec<Logged>,
}

impl OnItsWay {
    fn of(append: Append) -> Self {
        let producer = append.writer.map(|writer| writer.producer_id);
        let content = append.records.into_iter().map(|record| Logged::Record(producer, record)).collect();
        Self { id: append.id, content }
    }
}

pub struct World {
    pub groups: Groups,
    pub settings: GroupSettings,
    /// Uptime; the wall clock runs beside it.
    pub now_ms: u64,
    /// Appends that have not ended.
    pub appends: VecDeque<OnItsWay>,
    /// What is in the log.
    pub log: Vec<Logged>,
    /// The log takes everything at once.
    pub quick_log: bool,
    pub answers: HashMap<Ticket, Answer>,
    pub asked: u64,
    random: u128,
}

impl World {
    pub fn new() -> Self {
        Self::with(settings())
    }

    pub fn with(settings: GroupSettings) -> Self {
        Self {
            groups: Groups::new(settings.clone()),
            settings,
            now_ms: 5_000,
            appends: VecDeque::new(),
            log: Vec::new(),
            quick_log: true,
            answers: HashMap::new(),
            asked: 0,
            random: 77,
        }
    }

    pub fn moment(&mut self) -> Moment {
        self.random = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d_9e37_79b9_7f4a_7c15).wrapping_add(1);
        Moment { wall_ms: self.wall_ms(), uptime_ms: self.now_ms, random: self.random }
    }

    pub fn wall_ms(&self) -> i64 {
        WALL_MS + self.now_ms as i64
    }

    /// Asks; the answer may come later.
    pub fn ask(&mut self, command: Command) -> Ticket {
        let ticket = Ticket(self.asked);
        self.asked += 1;
        let at = self.moment();
        let effects = self.groups.handle(at, ticket, command);
        self.take(effects);
        ticket
    }

    /// Asks what is answered at once.
    pub fn now(&mut self, command: Command) -> Answer {
        let ticket = self.ask(command);
        self.answer(ticket).expect("answered at once")
    }

    /// Takes an answer, if it has come.
    pub fn answer(&mut self, ticket: Ticket) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    fn take(&mut self, effects: Effects) {
        for (ticket, answer) in effects.answers {
            assert!(ticket.0 < self.asked, "nobody asked {ticket:?}");
            assert!(self.answers.insert(ticket, answer).is_none(), "{ticket:?} was answered twice");
        }
        for append in effects.appends {
            assert!((1..=1000).contains(&append.records.len()));
            self.appends.push_back(OnItsWay::of(append));
        }
        if self.quick_log {
            self.flush();
        }
    }

    /// The log takes everything that is under way.
    pub fn flush(&mut self) {
        while !self.appends.is_empty() {
            self.end_append(Ok(()));
        }
    }

    /// The oldest append ends.
    pub fn end_append(&mut self, result: Result<(), ErrorCode>) {
        let append = self.appends.pop_front().expect("an append is under way");
        let result = result.map(|()| Offset(self.log.len() as i64));
        if result.is_ok() {
            self.log.extend(append.content);
        }
        let at = self.moment();
        let effects = self.groups.appended(at, append.id, result);
        self.take(effects);
    }

    /// A marker goes into the log behind everything that is under way.
    pub fn marker(&mut self, producer: i64, outcome: Outcome) {
        let producer = ProducerId(producer);
        let id = self.groups.marker_staged(producer, outcome);
        self.appends.push_back(OnItsWay { id, content: vec![Logged::Marker(producer, outcome)] });
        if self.quick_log {
            self.flush();
        }
    }

    /// Time passes, and what is due is done when it is due.
    pub fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while let Some(due_ms) = self.groups.next_deadline_ms().filter(|due_ms| *due_ms <= until) {
            self.now_ms = self.now_ms.max(due_ms);
            self.tick();
        }
        self.now_ms = until;
        self.tick();
    }

    pub fn tick(&mut self) {
        let at = self.moment();
        let effects = self.groups.tick(at);
        self.take(effects);
    }

    pub fn expire(&mut self) {
        let at = self.moment();
        let effects = self.groups.expire(at);
        self.take(effects);
    }

    /// The coordinator starts again on the same log; what is under way is lost.
    pub fn restart(&mut self) {
        self.appends.clear();
        self.groups = replayed(&self.log, &self.settings);
        let at = self.moment();
        self.groups.loaded(at);
    }

    pub fn joined(&mut self, ticket: Ticket) -> Joined {
        match self.answer(ticket) {
            Some(Answer::Joined(joined)) => joined,
            other => panic!("{ticket:?} got {other:?}"),
        }
    }

    pub fn synced(&mut self, ticket: Ticket) -> Synced {
        match self.answer(ticket) {
            Some(Answer::Synced(synced)) => synced,
            other => panic!("{ticket:?} got {other:?}"),
        }
    }

    pub fn done(&mut self, command: Command) -> ErrorCode {
        match self.now(command) {
            Answer::Done(error) => error,
            other => panic!("{other:?}"),
        }
    }

    pub fn heartbeat(&mut self, who: &Membership) -> ErrorCode {
        self.done(Command::Heartbeat(who.clone()))
    }

    pub fn commit(&mut self, who: &Membership, offset: i64) -> ErrorCode {
        self.commit_to(who, "t", 0, offset)
    }

    pub fn commit_to(&mut self, who: &Membership, topic: &str, partition: i32, offset: i64) -> ErrorCode {
        match self.now(commit(who, vec![to_commit(topic, partition, offset)])) {
            Answer::Committed(codes) => codes[0],
            other => panic!("{other:?}"),
        }
    }

    pub fn describe(&mut self, group: &str) -> Described {
        match self.now(Command::Describe { group: group.to_owned() }) {
            Answer::Described(described) => described,
            other => panic!("{other:?}"),
        }
    }

    pub fn state(&mut self, group: &str) -> String {
        self.describe(group).state
    }

    pub fn listed(&mut self) -> Vec<(String, String)> {
        match self.now(Command::List) {
            Answer::Listed(ErrorCode::None, groups) => {
                groups.into_iter().map(|group| (group.group, group.state)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// All offsets of a group: topic, partition, offset.
    pub fn offsets(&mut self, group: &str) -> Vec<(String, i32, i64)> {
        let all = self.fetch(group, None);
        all.into_iter()
            .flat_map(|(topic, kept)| kept.into_iter().map(move |k| (topic.clone(), k.partition, k.offset.0)))
            .collect()
    }

    pub fn fetch(&mut self, group: &str, topics: Option<Vec<TopicWanted>>) -> Vec<(String, Vec<OffsetKept>)> {
        let wanted = OffsetsWanted { group: group.to_owned(), member: None, topics, require_stable: true };
        match self.now(Command::Offsets(wanted)) {
            Answer::Offsets(kept) if kept.error.is_none() => kept.topics,
            other => panic!("{other:?}"),
        }
    }

    pub fn leave(&mut self, group: &str, members: &[(&str, Option<&str>)]) -> Vec<ErrorCode> {
        let Answer::Left(Left { error, members }) = self.now(leave(group, members)) else { panic!() };
        assert_eq!(error, ErrorCode::None);
        members.into_iter().map(|(_, _, error)| error).collect()
    }

    pub fn delete_offsets(&mut self, group: &str, partitions: &[(&str, i32)]) -> (ErrorCode, Vec<ErrorCode>) {
        let partitions = partitions.iter().map(|(topic, partition)| ((*topic).to_owned(), *partition)).collect();
        match self.now(Command::DeleteOffsets(DeleteOffsets { group: group.to_owned(), partitions })) {
            Answer::OffsetsDeleted(error, codes) => (error, codes),
            other => panic!("{other:?}"),
        }
    }

    /// Brings a new group to its first assignment; the first client leads, each is assigned its client id.
    pub fn stable(&mut self, group: &str, clients: &[&str]) -> Vec<Membership> {
        let joins: Vec<Join> = clients.iter().map(|client| consumer(group, client)).collect();
        self.stable_with(joins)
    }

    pub fn stable_with(&mut self, joins: Vec<Join>) -> Vec<Membership> {
        let group = joins[0].group.clone();
        let asked: Vec<(Join, Ticket)> =
            joins.into_iter().map(|join| (join.clone(), self.ask(Command::Join(join)))).collect();
        self.pass(10_000);
        let joined: Vec<(Join, Joined)> = asked.into_iter().map(|(join, ticket)| (join, self.joined(ticket))).collect();
        self.assign(&group, joined)
    }

    /// All sync; each member is assigned its client id.
    pub fn assign(&mut self, group: &str, joined: Vec<(Join, Joined)>) -> Vec<Membership> {
        let plan: Vec<(String, Bytes)> =
            joined.iter().map(|(join, j)| (j.member_id.clone(), Bytes::from(join.client_id.clone()))).collect();
        let members: Vec<Membership> = joined
            .iter()
            .map(|(join, j)| Membership {
                instance_id: join.instance_id.clone(),
                ..who(group, &j.member_id, j.generation)
            })
            .collect();
        let leader = joined[0].1.leader.clone();
        let asked: Vec<Ticket> = members
            .iter()
            .map(|member| {
                let assignments = if member.member_id == leader { plan.clone() } else { Vec::new() };
                self.ask(sync(member, assignments))
            })
            .collect();
        for (ticket, (join, _)) in asked.into_iter().zip(&joined) {
            let synced = self.synced(ticket);
            assert_eq!((synced.error, synced.assignment), (ErrorCode::None, Bytes::from(join.client_id.clone())));
        }
        members
    }
}

/// What a log makes, before it is said to be whole.
pub fn replayed(log: &[Logged], settings: &GroupSettings) -> Groups {
    let mut groups = Groups::new(settings.clone());
    for (logged, at) in log.iter().zip(0..) {
        match logged {
            Logged::Record(producer, record) => groups.replay(Offset(at), *producer, record.clone()),
            Logged::Marker(producer, outcome) => groups.replay_marker(*producer, *outcome),
        }
    }
    groups
}

/// What a consumer says to its assignor: it reads these topics.
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0];
    bytes.extend((topics.len() as i32).to_be_bytes());
    for topic in topics {
        bytes.extend((topic.len() as i16).to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend((-1_i32).to_be_bytes());
    bytes.into()
}

pub fn protocols(names: &[&str], topics: &[&str]) -> Vec<(String, Bytes)> {
    names.iter().map(|name| ((*name).to_owned(), subscription(topics))).collect()
}

/// A consumer of topic `t` that joins without an id, in a version that does not ask for one first.
pub fn consumer(group: &str, client: &str) -> Join {
    Join {
        group: group.to_owned(),
        member_id: String::new(),
        instance_id: None,
        client_id: client.to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".to_owned(),
        protocols: protocols(&["range"], &["t"]),
        wants_member_id_first: false,
        may_skip_assignment: false,
    }
}

pub fn fixed(group: &str, client: &str, instance: &str) -> Join {
    Join { instance_id: Some(instance.to_owned()), ..consumer(group, client) }
}

pub fn again(join: &Join, who: &Membership) -> Join {
    Join { member_id: who.member_id.clone(), ..join.clone() }
}

pub fn who(group: &str, member_id: &str, generation: i32) -> Membership {
    Membership { group: group.to_owned(), generation, member_id: member_id.to_owned(), instance_id: None }
}

/// Who manages its partitions itself.
pub fn nobody(group: &str) -> Membership {
    who(group, "", -1)
}

pub fn sync(member: &Membership, assignments: Vec<(String, Bytes)>) -> Command {
    Command::Sync(Sync { who: member.clone(), protocol_type: None, protocol: None, assignments })
}

pub fn leave(group: &str, members: &[(&str, Option<&str>)]) -> Command {
    let members = members.iter().map(|(id, instance)| ((*id).to_owned(), instance.map(str::to_owned))).collect();
    Command::Leave(Leave { group: group.to_owned(), members })
}

pub fn commit(who: &Membership, offsets: Vec<OffsetToCommit>) -> Command {
    Command::Commit(Commit { who: who.clone(), retention_ms: None, offsets, transaction: None })
}

/// The same as part of a producer's transaction.
pub fn commit_in(producer: i64, who: &Membership, offsets: Vec<OffsetToCommit>) -> Command {
    let (producer_id, epoch) = (ProducerId(producer), ProducerEpoch(0));
    let speaker = Speaker { transactional_id: format!("tx{producer}"), producer_id, epoch };
    let transaction = Some(Transaction { speaker, protocol: Protocol::Adds, entry: None });
    Command::Commit(Commit { who: who.clone(), retention_ms: None, offsets, transaction })
}

pub fn to_commit(topic: &str, partition: i32, offset: i64) -> OffsetToCommit {
    OffsetToCommit {
        topic: topic.to_owned(),
        topic_id: TopicId::ZERO,
        partition,
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: String::new(),
    }
}
