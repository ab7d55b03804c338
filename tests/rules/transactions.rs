//! The coordinator of transactions without anything around it: rules that need many calls or a failing log, and whatever
//! happens against what must never be.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use corelane::ids::{ProducerEpoch, ProducerId, TopicPartition};
use corelane::state::transactions::messages::{Answer, Command, Enlisting, Outcome, Protocol, Speaker};
use corelane::state::transactions::{
    Append, Effects, Ending, Moment, PATIENCE_MS, Ticket, TransactionSettings, Transactions, transitions,
};
use corelane::wire::error_code::ErrorCode;
use corelane::wire::internal::KeyValue;
use corelane::wire::transaction_record::{NO_EPOCH, NO_PRODUCER, Status, TransactionRecord, TransactionValue};
use proptest::prelude::*;

const NAME: &str = "tx";
const TIMEOUT_MS: i32 = 60_000;

fn settings() -> TransactionSettings {
    TransactionSettings { timeout_ms_max: 900_000, expiration_ms: 604_800_000 }
}

fn partition(partition: i32) -> TopicPartition {
    TopicPartition { topic: Arc::from("t"), partition }
}

/// A coordinator's surroundings: clocks, a log that takes records when told to, partitions that take markers.
struct World {
    transactions: Transactions,
    now_ms: u64,
    appends: VecDeque<Append>,
    log: Vec<TransactionRecord>,
    endings: Vec<Ending>,
    waits: Vec<(Ticket, Arc<str>)>,
    answers: HashMap<Ticket, Answer>,
    asked: u64,
    next_id: i64,
    /// Everything is appended and marked at once.
    is_quick: bool,
}

impl World {
    fn new() -> Self {
        Self {
            transactions: Transactions::new(settings()),
            now_ms: 1_000,
            appends: VecDeque::new(),
            log: Vec::new(),
            endings: Vec::new(),
            waits: Vec::new(),
            answers: HashMap::new(),
            asked: 0,
            next_id: 1_000,
            is_quick: true,
        }
    }

    fn at(&self) -> Moment {
        Moment { wall_ms: 1_000_000 + self.now_ms as i64, uptime_ms: self.now_ms }
    }

    fn begin(&mut self, command: Command) -> Ticket {
        self.asked += 1;
        let ticket = Ticket(self.asked);
        let effects = self.transactions.handle(self.at(), ticket, command, None);
        self.take(effects);
        ticket
    }

    fn ask(&mut self, command: Command) -> Answer {
        let ticket = self.begin(command);
        self.answers.remove(&ticket).expect("an answer")
    }

    fn take(&mut self, effects: Effects) {
        for (ticket, answer) in effects.answers {
            assert!(self.answers.insert(ticket, answer).is_none(), "{ticket:?} is answered twice");
        }
        self.appends.extend(effects.appends);
        self.endings.extend(effects.endings);
        self.waits.extend(effects.waits);
        if let Some((ticket, command)) = effects.wants_id {
            self.next_id += 1;
            let effects = self.transactions.handle(self.at(), ticket, command, Some(ProducerId(self.next_id)));
            assert!(effects.wants_id.is_none(), "one id is enough");
            self.take(effects);
        }
        while self.is_quick && self.step() {}
    }

    /// Does one thing that is under way.
    fn step(&mut self) -> bool {
        self.append(Ok(())) || self.mark(usize::MAX)
    }

    /// The oldest append ends.
    fn append(&mut self, result: Result<(), ErrorCode>) -> bool {
        let Some(append) = self.appends.pop_front() else { return false };
        if result.is_ok() {
            self.log.push(append.record);
        }
        let effects = self.transactions.appended(self.at(), append.id, result);
        self.take(effects);
        true
    }

    /// So many partitions of the oldest ending get their marker.
    fn mark(&mut self, most: usize) -> bool {
        if self.endings.is_empty() {
            return false;
        }
        let mut ending = self.endings.remove(0);
        let left = ending.partitions.split_off(most.min(ending.partitions.len()));
        let effects = self.transactions.marked(self.at(), &ending, &ending.partitions);
        if !left.is_empty() {
            self.endings.push(Ending { partitions: left, ..ending });
        }
        self.take(effects);
        true
    }

    fn init(&mut self, given: Option<(i64, i16)>) -> Result<(i64, i16), ErrorCode> {
        let given = given.map(|(id, epoch)| (ProducerId(id), ProducerEpoch(epoch)));
        pair(self.ask(Command::Init { transactional_id: NAME.to_owned(), timeout_ms: TIMEOUT_MS, given }))
    }

    fn enlist(&mut self, of: (i64, i16), partitions: &[i32]) -> ErrorCode {
        match self.ask(enlist(of, partitions)) {
            Answer::Enlisted(error) => error,
            other => panic!("{other:?}"),
        }
    }

    fn end(&mut self, of: (i64, i16), outcome: Outcome) -> Result<(i64, i16), ErrorCode> {
        pair(self.ask(Command::End { speaker: speaker(of), outcome, protocol: Protocol::Bumping }))
    }

    /// What is kept of the transactional id.
    fn kept(&self) -> TransactionValue {
        self.transactions.kept().remove(0).value.unwrap()
    }

    /// The same coordinator after a restart.
    fn restart(&mut self) {
        self.appends.clear();
        self.endings.clear();
        self.waits.clear();
        self.transactions = Transactions::new(settings());
        for record in self.log.clone() {
            self.transactions.replay(record);
        }
        let effects = self.transactions.loaded(self.at());
        self.take(effects);
    }

    fn time_out(&mut self) {
        for command in self.transactions.overdue(self.at()) {
            self.begin(command);
        }
    }
}

fn pair(answer: Answer) -> Result<(i64, i16), ErrorCode> {
    match answer {
        Answer::Producer(answer) => answer.map(|(id, epoch)| (id.0, epoch.0)),
        other => panic!("{other:?}"),
    }
}

fn speaker((id, epoch): (i64, i16)) -> Speaker {
    Speaker { transactional_id: NAME.to_owned(), producer_id: ProducerId(id), epoch: ProducerEpoch(epoch) }
}

fn enlist(of: (i64, i16), partitions: &[i32]) -> Command {
    let partitions = partitions.iter().copied().map(partition).collect();
    Command::Enlist { speaker: speaker(of), partitions, enlisting: Enlisting::Add }
}

#[test]
fn eos_a14_behind_the_last_epoch_comes_another_producer() {
    let mut world = World::new();
    let (id, mut epoch) = world.init(None).unwrap();
    while epoch < 32_766 {
        assert_eq!(world.init(None), Ok((id, epoch + 1)));
        epoch += 1;
    }
    let (next, epoch) = world.init(None).unwrap();
    assert!(next != id && epoch == 0);
    // Also where the producer says who it is, and asks again.
    let mut world = World::new();
    let (id, mut epoch) = world.init(None).unwrap();
    while epoch < 32_766 {
        (_, epoch) = world.init(Some((id, epoch))).unwrap();
    }
    let (next, epoch) = world.init(Some((id, 32_766))).unwrap();
    assert!(next != id && epoch == 0);
    assert_eq!(world.init(Some((id, 32_766))), Ok((next, 0)), "its answer was lost");
    assert_eq!(world.init(Some((id, 32_765))), Err(ErrorCode::ProducerFenced));
}

#[test]
fn eos_d12_the_last_epoch_commits_and_another_producer_goes_on() {
    let mut world = World::new();
    let (id, mut epoch) = world.init(None).unwrap();
    while epoch < 32_766 {
        (_, epoch) = world.end((id, epoch), Outcome::Abort).unwrap();
    }
    assert_eq!(world.enlist((id, epoch), &[0]), ErrorCode::None);
    let (next, zero) = world.end((id, epoch), Outcome::Commit).unwrap();
    assert!(next != id && zero == 0);
    let prepared = world.log.iter().rev().nth(1).unwrap().value.clone().unwrap();
    assert_eq!((prepared.status, prepared.producer_id.0, prepared.epoch.0), (Status::PrepareCommit, id, 32_767));
    assert_eq!(world.end((id, epoch), Outcome::Commit), Ok((next, 0)), "its answer was lost");
    assert_eq!(world.end((id, epoch), Outcome::Abort), Err(ErrorCode::InvalidTxnState));
    assert_eq!(world.end((id, 32_765), Outcome::Commit), Err(ErrorCode::InvalidProducerIdMapping));
    assert_eq!(world.enlist((next, 0), &[0]), ErrorCode::None);
}

/// A producer in its last epoch that was too slow: nobody is ever told the epoch that is kept for fencing.
#[test]
fn the_epoch_above_the_last_is_nobodys() {
    let mut world = World::new();
    let (id, mut epoch) = world.init(None).unwrap();
    while epoch < 32_766 {
        (_, epoch) = world.end((id, epoch), Outcome::Abort).unwrap();
    }
    assert_eq!(world.enlist((id, epoch), &[0]), ErrorCode::None);
    world.now_ms += 60_001;
    world.time_out();
    let (next, zero) = world.end((id, epoch), Outcome::Abort).unwrap();
    assert!(next != id && zero == 0);
}

#[test]
fn partitions_that_come_while_one_is_on_its_way_are_written_together() {
    let mut world = World::new();
    let of = world.init(None).unwrap();
    world.is_quick = false;
    let tickets: Vec<_> = [0, 1, 2, 1].map(|one| world.begin(enlist(of, &[one]))).to_vec();
    assert_eq!(world.appends.len(), 1, "the first alone");
    assert!(world.answers.is_empty());
    world.append(Ok(()));
    assert_eq!((world.appends.len(), world.answers.len()), (1, 1), "the others together");
    world.append(Ok(()));
    for ticket in tickets {
        assert_eq!(world.answers[&ticket], Answer::Enlisted(ErrorCode::None));
    }
    assert_eq!(world.kept().partitions, [0, 1, 2].map(partition));
    // What fails is told to those that it was for, and to nobody else.
    let (first, second) = (world.begin(enlist(of, &[3])), world.begin(enlist(of, &[4])));
    world.append(Err(ErrorCode::RequestTimedOut));
    assert_eq!(world.answers[&first], Answer::Enlisted(ErrorCode::CoordinatorNotAvailable));
    world.append(Ok(()));
    assert_eq!(world.answers[&second], Answer::Enlisted(ErrorCode::None));
    assert_eq!(world.kept().partitions, [0, 1, 2, 4].map(partition));
}

#[test]
fn the_next_transaction_waits_for_the_end_of_the_one_before_but_not_for_ever() {
    let mut world = World::new();
    let of = world.init(None).unwrap();
    assert_eq!(world.enlist(of, &[0, 1]), ErrorCode::None);
    world.is_quick = false;
    let end = world.begin(Command::End { speaker: speaker(of), outcome: Outcome::Commit, protocol: Protocol::Bumping });
    assert!(world.answers.is_empty(), "nothing is durable yet");
    world.append(Ok(()));
    let next = (of.0, of.1 + 1);
    assert_eq!(pair(world.answers[&end].clone()), Ok(next), "before any marker is there");
    let patient = world.begin(enlist(next, &[5]));
    let hasty = world.begin(Command::Add { speaker: speaker(next), partitions: vec![partition(5)] });
    assert_eq!(world.answers[&hasty], Answer::Done(ErrorCode::ConcurrentTransactions));
    world.mark(1);
    assert!(world.appends.is_empty(), "one marker is missing");
    world.mark(1);
    world.append(Ok(()));
    world.append(Ok(()));
    assert_eq!(world.answers[&patient], Answer::Enlisted(ErrorCode::None));
    assert_eq!(world.kept().status, Status::Ongoing);
    // Where the markers take too long, the owner is told to come again.
    world.begin(Command::End { speaker: speaker(next), outcome: Outcome::Abort, protocol: Protocol::Bumping });
    world.append(Ok(()));
    let late = world.begin(enlist((of.0, of.1 + 2), &[5]));
    world.now_ms += PATIENCE_MS;
    let (ticket, name) = world.waits.pop().unwrap();
    assert_eq!(ticket, late);
    let effects = world.transactions.give_up(&name, ticket);
    world.take(effects);
    assert_eq!(world.answers[&late], Answer::Enlisted(ErrorCode::ConcurrentTransactions));
}

#[test]
fn a_transaction_that_is_about_to_end_is_ended_after_a_restart_as_it_was_to_end() {
    for outcome in [Outcome::Commit, Outcome::Abort] {
        for protocol in [Protocol::Classic, Protocol::Bumping] {
            let mut world = World::new();
            let of = world.init(None).unwrap();
            assert_eq!(world.enlist(of, &[0, 1]), ErrorCode::None);
            world.is_quick = false;
            world.begin(Command::End { speaker: speaker(of), outcome, protocol });
            world.append(Ok(()));
            world.mark(1);
            world.restart();
            let epoch = of.1 + i16::from(protocol == Protocol::Bumping);
            let again = &world.endings[0];
            assert_eq!(again.partitions, [0, 1].map(partition), "all of them, also those that have a marker");
            assert_eq!((again.producer_id.0, again.epoch.0, again.outcome), (of.0, epoch, outcome));
            assert_eq!(again.bumps_epoch, protocol == Protocol::Bumping);
            world.mark(2);
            world.append(Err(ErrorCode::KafkaStorageError));
            assert!(world.endings[0].is_repeated, "that it is complete could not be written: once more, later");
            world.mark(2);
            world.append(Ok(()));
            let complete = if outcome == Outcome::Commit { Status::CompleteCommit } else { Status::CompleteAbort };
            assert_eq!(world.kept().status, complete);
        }
    }
}

#[test]
fn an_open_transaction_has_the_rest_of_its_time_after_a_restart() {
    let mut world = World::new();
    let of = world.init(None).unwrap();
    assert_eq!(world.enlist(of, &[0]), ErrorCode::None);
    world.now_ms += 40_000;
    assert_eq!(world.enlist(of, &[1]), ErrorCode::None, "its time is that of the first partition");
    world.restart();
    world.now_ms += 20_000;
    assert!(world.transactions.overdue(world.at()).is_empty());
    world.now_ms += 1;
    world.time_out();
    assert_eq!(world.kept().status, Status::CompleteAbort);
    assert_eq!(world.end(of, Outcome::Commit), Err(ErrorCode::ProducerFenced));
    assert_eq!(world.init(Some(of)), Ok((of.0, of.1 + 1)), "no further epoch");
    assert!(world.transactions.overdue(world.at()).is_empty());
}

#[test]
fn the_call_whose_answer_was_lost_is_known_after_a_restart() {
    let mut world = World::new();
    let of = world.init(None).unwrap();
    assert_eq!(world.init(Some(of)), Ok((of.0, 1)));
    world.restart();
    assert_eq!(world.init(Some(of)), Ok((of.0, 1)));
}

fn value() -> TransactionValue {
    TransactionValue {
        producer_id: ProducerId(7),
        previous_producer_id: NO_PRODUCER,
        next_producer_id: NO_PRODUCER,
        epoch: ProducerEpoch(3),
        last_epoch: NO_EPOCH,
        timeout_ms: 60_000,
        status: Status::Ongoing,
        partitions: vec![partition(0), partition(4), TopicPartition { topic: Arc::from("u"), partition: 1 }],
        updated_ms: 1_700_000_000_001,
        begun_ms: 1_700_000_000_000,
        protocol: 0,
    }
}

#[test]
fn records_are_read_as_they_were_written() {
    let plain = value();
    let full = TransactionValue {
        previous_producer_id: ProducerId(5),
        next_producer_id: ProducerId(9),
        last_epoch: ProducerEpoch(2),
        protocol: 2,
        ..value()
    };
    let empty = TransactionValue { status: Status::Empty, partitions: Vec::new(), begun_ms: -1, ..value() };
    for value in [Some(plain), Some(full), Some(empty), None] {
        let record = TransactionRecord { transactional_id: Arc::from(NAME), value };
        assert_eq!(TransactionRecord::decode(record.encode().unwrap()), Ok(record));
    }
}

/// Fields and tags as in Kafka's schema, byte by byte; version 0 has no tags and long lengths.
#[test]
fn records_have_kafkas_form() {
    let one = TransactionValue { partitions: vec![partition(4)], protocol: 2, ..value() };
    let record = TransactionRecord { transactional_id: Arc::from(NAME), value: Some(one.clone()) };
    let KeyValue { key, value } = record.encode().unwrap();
    assert_eq!(&key[..], [0, 0, 0, 2, b't', b'x']);
    let head = [0, 0, 0, 0, 0, 0, 0, 7, 0, 3, 0, 0, 0xea, 0x60, 1];
    let times = [1_700_000_000_001_i64.to_be_bytes(), 1_700_000_000_000_i64.to_be_bytes()].concat();
    let new = [&[0, 1], &head[..], &[2, 2, b't', 2, 0, 0, 0, 4, 0], &times, &[1, 2, 2, 0, 2]].concat();
    assert_eq!(value.unwrap()[..], new[..]);
    let old = [&[0, 0], &head[..], &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 4], &times].concat();
    let decoded = TransactionRecord::decode(KeyValue { key, value: Some(Bytes::from(old)) }).unwrap();
    assert_eq!(decoded.value, Some(TransactionValue { protocol: 0, ..one }));
}

/// What happens; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Act {
    Init { given: u8 },
    Enlist { who: u8, partition: i32, verify: bool },
    Add { who: u8, partition: i32 },
    End { who: u8, commits: bool, bumping: bool },
    Log { fails: bool },
    Mark { most: usize },
    GiveUp,
    Pass { ms: u64 },
    TimeOut,
    Expire,
    Restart,
}

fn an_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0_u8..4).prop_map(|given| Act::Init { given }),
        4 => (0_u8..4, 0..3, any::<bool>()).prop_map(|(who, partition, verify)| Act::Enlist { who, partition, verify }),
        2 => (0_u8..4, 0..3).prop_map(|(who, partition)| Act::Add { who, partition }),
        4 => (0_u8..4, any::<bool>(), any::<bool>()).prop_map(|(who, commits, bumping)| Act::End { who, commits, bumping }),
        8 => (0_u8..6).prop_map(|fails| Act::Log { fails: fails == 0 }),
        6 => (1_usize..3).prop_map(|most| Act::Mark { most }),
        1 => Just(Act::GiveUp),
        1 => prop_oneof![Just(50_u64), Just(30_000), Just(61_000)].prop_map(|ms| Act::Pass { ms }),
        1 => Just(Act::TimeOut),
        1 => Just(Act::Expire),
        1 => Just(Act::Restart),
    ]
}

/// What must hold, seen from the log alone.
#[derive(Default)]
struct Watcher {
    last: Option<TransactionValue>,
    /// Producers that were replaced.
    gone: BTreeSet<i64>,
    seen: usize,
    /// Partitions that have a marker of the ending in the log.
    marked: BTreeSet<TopicPartition>,
}

impl Watcher {
    fn look(&mut self, world: &World) {
        for record in &world.log[self.seen..] {
            self.check(record.value.as_ref());
            self.last.clone_from(&record.value);
        }
        self.seen = world.log.len();
        let mut on_their_way: BTreeMap<&str, u32> = BTreeMap::new();
        for append in &world.appends {
            *on_their_way.entry(&append.record.transactional_id).or_default() += 1;
        }
        assert!(on_their_way.values().all(|count| *count == 1), "one record on its way at a time");
    }

    fn check(&mut self, next: Option<&TransactionValue>) {
        let before = self.last.as_ref();
        let statuses = (before.map(|value| value.status), next.map(|value| value.status));
        assert!(transitions::is_legal(statuses.0, statuses.1), "{statuses:?}");
        let Some(next) = next else { return };
        assert!(!self.gone.contains(&next.producer_id.0), "a producer comes back");
        let Some(before) = before else { return };
        if before.producer_id == next.producer_id {
            assert!(before.epoch <= next.epoch, "an epoch goes back");
        } else {
            self.gone.insert(before.producer_id.0);
        }
        match (before.status, next.status) {
            (Status::Ongoing, Status::Ongoing) => {
                assert!(before.partitions.iter().all(|one| next.partitions.contains(one)), "a partition is lost");
            }
            (Status::Ongoing, _) => assert_eq!(before.partitions, next.partitions),
            (Status::PrepareCommit | Status::PrepareAbort, _) => {
                let unmarked = before.partitions.iter().find(|one| !self.marked.contains(one));
                assert_eq!(unmarked, None, "complete without a marker");
            }
            _ => {}
        }
        self.marked.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens(acts in prop::collection::vec(an_act(), 1..80)) {
        run(&acts);
    }
}

fn run(acts: &[Act]) {
    let mut world = World::new();
    world.is_quick = false;
    let mut watcher = Watcher::default();
    // Producers as clients know them: the newest, the one before, and two that never were.
    let mut known = [(1, 0), (1, 0), (5, 5), (1_001, 9)];
    let mut lost = Vec::new();
    for act in acts {
        let ticket = play(&mut world, &mut watcher, &known, &mut lost, act);
        if let Some(ticket) = ticket {
            lost.push(ticket);
        }
        for answer in world.answers.values() {
            if let Answer::Producer(Ok((id, epoch))) = answer
                && known[0] < (id.0, epoch.0)
            {
                known[1] = std::mem::replace(&mut known[0], (id.0, epoch.0));
            }
        }
        watcher.look(&world);
    }
    // Everything comes to its end, everybody is answered, and a restart finds the same.
    loop {
        let mut moved = world.append(Ok(()));
        watcher.look(&world);
        if !world.endings.is_empty() {
            watcher.marked.extend(world.endings[0].partitions.iter().cloned());
            moved |= world.mark(usize::MAX);
        }
        watcher.look(&world);
        if !moved {
            break;
        }
    }
    for ticket in lost {
        assert!(world.answers.contains_key(&ticket), "{ticket:?} waits for ever");
    }
    let live = world.transactions.kept();
    world.restart();
    assert_eq!(world.transactions.kept(), live);
}

fn play(
    world: &mut World,
    watcher: &mut Watcher,
    known: &[(i64, i16); 4],
    lost: &mut Vec<Ticket>,
    act: &Act,
) -> Option<Ticket> {
    let of = |who: u8| known[usize::from(who)];
    match *act {
        Act::Init { given } => {
            let given = (given < 3).then(|| of(given)).map(|(id, epoch)| (ProducerId(id), ProducerEpoch(epoch)));
            let init = Command::Init { transactional_id: NAME.to_owned(), timeout_ms: TIMEOUT_MS, given };
            return Some(world.begin(init));
        }
        Act::Enlist { who, partition: index, verify } => {
            let enlisting = if verify { Enlisting::Verify } else { Enlisting::Add };
            let partitions = vec![partition(index)];
            return Some(world.begin(Command::Enlist { speaker: speaker(of(who)), partitions, enlisting }));
        }
        Act::Add { who, partition: index } => {
            return Some(world.begin(Command::Add { speaker: speaker(of(who)), partitions: vec![partition(index)] }));
        }
        Act::End { who, commits, bumping } => {
            let outcome = if commits { Outcome::Commit } else { Outcome::Abort };
            let protocol = if bumping { Protocol::Bumping } else { Protocol::Classic };
            return Some(world.begin(Command::End { speaker: speaker(of(who)), outcome, protocol }));
        }
        Act::Log { fails } => {
            let result = if fails { Err(ErrorCode::RequestTimedOut) } else { Ok(()) };
            world.append(result);
        }
        Act::Mark { most } => {
            if let Some(ending) = world.endings.first() {
                watcher.marked.extend(ending.partitions.iter().take(most).cloned());
            }
            world.mark(most);
        }
        Act::GiveUp => {
            if let Some((ticket, name)) = world.waits.pop() {
                let effects = world.transactions.give_up(&name, ticket);
                world.take(effects);
            }
        }
        Act::Pass { ms } => world.now_ms += ms,
        Act::TimeOut => world.time_out(),
        Act::Expire => {
            let at = Moment { wall_ms: world.at().wall_ms + 604_800_000, ..world.at() };
            let effects = world.transactions.expire(at, 10);
            world.take(effects);
        }
        Act::Restart => {
            // Whoever waits is told by the host.
            lost.retain(|ticket| world.answers.contains_key(ticket));
            watcher.marked.clear();
            world.restart();
        }
    }
    None
}
