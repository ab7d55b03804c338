//! A group of 50 members over 400 partitions through joins, leaves, kills and a restart of the broker: at every moment
//! no partition has two owners, and each time all have one again.
//!
//! With `GROUP_BALANCE_ADDRESS` the same runs against the broker there, which is not restarted then; that is how
//! `scripts/group-balance` compares the times, which are printed as `balance STRATEGY STEP MILLISECONDS`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{DescribeGroupsRequest, FindCoordinatorRequest, GroupId};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, ClientContext, Message, TopicPartitionList};

use super::harness::client::text;
use super::harness::rdkafka_clients::RdProducer;
use super::harness::{Client, Folder, Start};

const MEMBERS: usize = 50;
/// Members that leave, that come, and that are killed.
const SOME: usize = 10;
const PARTITIONS: i32 = 400;
const TOPIC: &str = "balanced";
/// The shortest that brokers take as they come.
const SESSION_MS: &str = "6000";
const PATIENCE: Duration = Duration::from_secs(90);

/// What the members believe at this moment.
#[derive(Default)]
struct Table {
    /// Partition → members that read it.
    owners: BTreeMap<i32, BTreeSet<usize>>,
    members: BTreeSet<usize>,
    /// Members that got the record of a partition, by the record's value.
    received: BTreeMap<(String, i32), BTreeSet<usize>>,
    problems: Vec<String>,
}

impl Table {
    fn forget(&mut self, member: usize) {
        self.members.remove(&member);
        self.owners.values_mut().for_each(|owners| {
            owners.remove(&member);
        });
    }

    /// Every partition has one owner, and nobody has more than a fair share.
    fn is_balanced(&self) -> bool {
        let mut shares: BTreeMap<usize, usize> = BTreeMap::new();
        for owners in self.owners.values() {
            match owners.first() {
                Some(owner) => *shares.entry(*owner).or_default() += 1,
                None => return false,
            }
        }
        let fair = (PARTITIONS as usize).div_ceil(self.members.len());
        let owned: usize = shares.values().sum();
        owned == PARTITIONS as usize
            && shares.len() == self.members.len()
            && shares.values().all(|share| *share <= fair)
    }

    fn owned(&self) -> usize {
        self.owners.values().filter(|owners| !owners.is_empty()).count()
    }
}

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    changed: Condvar,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // A test that fails while it holds this shall say why it failed, not that.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        change(&mut self.table());
        self.changed.notify_all();
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Table) -> bool) {
        let table = self.table();
        let waited = self.changed.wait_timeout_while(table, PATIENCE, |table| !is_so(table)).unwrap();
        let (owned, members) = (waited.0.owned(), waited.0.members.len());
        let (problems, timed_out) = (waited.0.problems.clone(), waited.1.timed_out());
        drop(waited);
        assert_eq!(problems, Vec::<String>::new(), "{what}");
        assert!(!timed_out, "{what} does not happen: {owned} partitions are owned, by {members} members at most");
    }
}

/// The callbacks of one member.
struct Watch {
    number: usize,
    shared: Arc<Shared>,
}

impl ClientContext for Watch {
    // That the broker is down now and then is what is tested.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if std::env::var_os("TEST_VERBOSE").is_some() {
            eprintln!("{} {level:?} {facility} {message}", self.number);
        }
    }

    fn error(&self, _error: KafkaError, _reason: &str) {}
}

impl ConsumerContext for Watch {
    /// Counted as an owner before it reads.
    fn pre_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Assign(list) = rebalance else { return };
        self.shared.change(|table| {
            for partition in partitions(list) {
                let owners = table.owners.entry(partition).or_default();
                if table.members.contains(&self.number) {
                    owners.insert(self.number);
                }
                if owners.len() > 1 {
                    table.problems.push(format!("partition {partition} is owned by {owners:?}"));
                }
            }
        });
    }

    /// Counted as an owner until it has stopped to read.
    fn post_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(list) = rebalance else { return };
        self.shared.change(|table| {
            for partition in partitions(list) {
                table.owners.entry(partition).or_default().remove(&self.number);
            }
        });
    }
}

fn partitions(list: &TopicPartitionList) -> Vec<i32> {
    list.elements().iter().map(|element| element.partition()).collect()
}

/// A member in a thread of its own.
struct Member {
    number: usize,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BaseConsumer<Watch>>,
}

impl Member {
    fn start(number: usize, config: &ClientConfig, shared: &Arc<Shared>) -> Self {
        shared.change(|table| {
            table.members.insert(number);
        });
        let watch = Watch { number, shared: Arc::clone(shared) };
        let consumer: BaseConsumer<Watch> = config.create_with_context(watch).unwrap();
        consumer.subscribe(&[TOPIC]).unwrap();
        let (stop, shared) = (Arc::new(AtomicBool::new(false)), Arc::clone(shared));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) {
                    let value = String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
                    let key = (value, message.partition());
                    shared.change(|table| {
                        table.received.entry(key).or_default().insert(number);
                    });
                }
            }
            consumer
        });
        Self { number, stop, thread }
    }
}

/// Leave the group, one word each.
fn leave(members: Vec<Member>, shared: &Shared) {
    members.iter().for_each(|member| member.stop.store(true, Ordering::Relaxed));
    let leaving = members.into_iter().map(|member| (member.number, member.thread.join().unwrap()));
    let leaving: Vec<_> = leaving.map(|(number, consumer)| (number, thread::spawn(move || drop(consumer)))).collect();
    for (number, closed) in leaving {
        closed.join().unwrap();
        shared.change(|table| table.forget(number));
    }
}

/// Stop without a word: they are static members, whose clients do not say goodbye.
fn kill(members: Vec<Member>, shared: &Shared) {
    members.iter().for_each(|member| member.stop.store(true, Ordering::Relaxed));
    let killed: Vec<_> = members.into_iter().map(|member| (member.number, member.thread.join().unwrap())).collect();
    shared.change(|table| killed.iter().for_each(|(number, _)| table.forget(*number)));
    let closing: Vec<_> = killed.into_iter().map(|(_, consumer)| thread::spawn(move || drop(consumer))).collect();
    closing.into_iter().for_each(|closed| closed.join().unwrap());
}

struct Balance {
    name: &'static str,
    strategy: &'static str,
    address: SocketAddr,
    shared: Arc<Shared>,
    started: usize,
}

impl Balance {
    fn new(name: &'static str, strategy: &'static str, address: SocketAddr) -> Self {
        let shared = Arc::new(Shared::default());
        (0..PARTITIONS)
            .for_each(|partition| shared.change(|table| drop(table.owners.insert(partition, BTreeSet::new()))));
        Self { name, strategy, address, shared, started: 0 }
    }

    fn group(&self) -> String {
        format!("group-{}", self.name)
    }

    fn start(&mut self, count: usize, are_static: bool) -> Vec<Member> {
        let members = self.started..self.started + count;
        self.started += count;
        let start = |number: usize| {
            let mut config = ClientConfig::new();
            config
                .set("bootstrap.servers", self.address.to_string())
                .set("group.id", self.group())
                .set("client.id", format!("{}-{number}", self.name))
                .set("partition.assignment.strategy", self.strategy)
                .set("session.timeout.ms", SESSION_MS)
                .set("heartbeat.interval.ms", "500")
                .set("auto.offset.reset", "earliest")
                .set("auto.commit.interval.ms", "1000")
                .set("reconnect.backoff.ms", "20")
                .set("reconnect.backoff.max.ms", "200");
            if are_static {
                config.set("group.instance.id", format!("static-{number}"));
            }
            Member::start(number, &config, &self.shared)
        };
        members.map(start).collect()
    }

    fn await_balance(&self, step: &str, begin: Instant) {
        self.shared.wait_until(step, Table::is_balanced);
        println!("balance {} {step} {}", self.name, begin.elapsed().as_millis());
        self.check_the_brokers_view();
        self.check_records(step);
    }

    /// The coordinator comes to tell of the same: each partition assigned once, to as many members as there are.
    fn check_the_brokers_view(&self) {
        let until = Instant::now() + PATIENCE;
        let members = self.shared.table().members.len();
        let expected = (0, "Stable".to_owned(), members, (0..PARTITIONS).collect());
        let mut client = Client::connect(self.address);
        loop {
            let view = self.brokers_view(&mut client);
            if view == expected {
                return;
            }
            // It may be reading its log after a start, or end a round that the clients do not wait for.
            assert!(Instant::now() < until, "the broker knows {view:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Error, state, number of members, all assigned partitions.
    fn brokers_view(&self, client: &mut Client) -> (i16, String, usize, Vec<i32>) {
        let request = DescribeGroupsRequest::default().with_groups(vec![GroupId(text(&self.group()))]);
        let group = client.ask(5, &request).groups.remove(0);
        let mut assigned: Vec<i32> =
            group.members.iter().flat_map(|member| assignment(member.member_assignment.clone())).collect();
        assigned.sort_unstable();
        (group.error_code, group.group_state.to_string(), group.members.len(), assigned)
    }

    /// A record of each partition reaches somebody, and nobody else.
    fn check_records(&self, step: &str) {
        let producer = RdProducer::new(&self.address.to_string(), &[]);
        let value = format!("{} {step}", self.name);
        (0..PARTITIONS).for_each(|partition| producer.send(TOPIC, partition, value.as_bytes()));
        producer.finish();
        let key = |partition| (value.clone(), partition);
        self.shared.wait_until("a record of each partition arrives", |table| {
            (0..PARTITIONS).all(|partition| table.received.contains_key(&key(partition)))
        });
        let table = self.shared.table();
        for partition in 0..PARTITIONS {
            assert_eq!(table.received[&key(partition)].len(), 1, "readers of partition {partition}, {step}");
        }
    }
}

/// The partitions in a member's assignment.
///
/// Source: apache/kafka `ConsumerProtocolAssignment.json`.
fn assignment(mut bytes: Bytes) -> Vec<i32> {
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.get_i16();
    let mut partitions = Vec::new();
    for _ in 0..bytes.get_i32() {
        let name = usize::from(bytes.get_u16());
        bytes.advance(name);
        partitions.extend((0..bytes.get_i32()).map(|_| bytes.get_i32()).collect::<Vec<_>>());
    }
    partitions
}

/// Everybody comes, some leave, some come, some are killed; gives the group as it is then.
fn before_the_restart(balance: &mut Balance) -> Vec<Member> {
    let begin = Instant::now();
    let mut members = balance.start(MEMBERS - SOME, false);
    let doomed = balance.start(SOME, true);
    balance.await_balance("first", begin);

    let begin = Instant::now();
    leave(members.drain(..SOME).collect(), &balance.shared);
    balance.await_balance("left", begin);

    let begin = Instant::now();
    members.extend(balance.start(SOME, false));
    balance.await_balance("joined", begin);

    let begin = Instant::now();
    kill(doomed, &balance.shared);
    balance.await_balance("killed", begin);
    members
}

/// Until the topic of the offsets is made: how long that takes is another question.
fn await_coordinator(client: &mut Client) {
    let until = Instant::now() + PATIENCE;
    let groups = DescribeGroupsRequest::default().with_groups(vec![GroupId(text("nobody"))]);
    loop {
        let found = client.ask(3, &FindCoordinatorRequest::default().with_key(text("nobody"))).error_code;
        if found == 0 && client.ask(5, &groups).groups[0].error_code == 0 {
            return;
        }
        assert!(Instant::now() < until, "no coordinator: error {found}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn run(name: &'static str, strategy: &'static str) {
    if let Ok(address) = std::env::var("GROUP_BALANCE_ADDRESS") {
        let address = address.parse().unwrap();
        let mut client = Client::connect(address);
        if client.topic(TOPIC).is_none() {
            client.create_topic(TOPIC, PARTITIONS, &[]);
        }
        await_coordinator(&mut client);
        let mut balance = Balance::new(name, strategy, address);
        let members = before_the_restart(&mut balance);
        leave(members, &balance.shared);
        return;
    }
    let folder = Folder::new(&format!("balance-{name}"));
    let start = Start::on_fixed_port(&folder).set("group.initial.rebalance.delay.ms=0");
    let broker = start.start();
    Client::connect(broker.address).create_topic(TOPIC, PARTITIONS, &[]);
    let mut balance = Balance::new(name, strategy, broker.address);
    let members = before_the_restart(&mut balance);
    broker.stop_cleanly();
    let begin = Instant::now();
    let broker = start.start();
    balance.await_balance("restarted", begin);
    broker.kill9();
    let begin = Instant::now();
    let broker = start.start();
    balance.await_balance("killed-broker", begin);
    leave(members, &balance.shared);
    broker.stop_cleanly();
}

#[test]
fn fifty_eager_members_keep_their_balance() {
    run("eager", "range");
}

#[test]
fn fifty_cooperative_members_keep_their_balance() {
    run("cooperative", "cooperative-sticky");
}
