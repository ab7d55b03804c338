//! What is there, against what the clients were told.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::super::harness::Client;
use super::super::harness::rdkafka_clients::read_topic_committed;
use super::copier::GROUP;
use super::{CALL, PARTITIONS, patience};

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Committed,
    Aborted,
    /// The commit was asked for and never answered.
    Unknown,
}

/// What a writer has sent.
#[derive(Debug)]
pub struct Transaction {
    pub fate: Fate,
    /// Of each record.
    pub partitions: Vec<i32>,
}

/// What the clients were told, and what they did.
#[derive(Debug, Default)]
pub struct Told {
    /// By writer and number.
    transactions: BTreeMap<(usize, u64), Transaction>,
    pub taken_over: u64,
    pub zombies: u64,
    pub copied: u64,
    pub rewound: u64,
}

impl Told {
    pub fn note(&mut self, writer: usize, number: u64, transaction: Transaction) {
        self.transactions.insert((writer, number), transaction);
    }

    fn count(&self, fate: Fate) -> usize {
        self.transactions.values().filter(|transaction| transaction.fate == fate).count()
    }
}

/// What happened.
#[derive(Default)]
pub struct Counters {
    pub kills: u64,
    pub kills_in_start: u64,
    looks: u64,
    visible: usize,
    copies: usize,
    told: Arc<Mutex<Told>>,
}

impl Counters {
    pub fn told(&self) -> Arc<Mutex<Told>> {
        Arc::clone(&self.told)
    }

    /// Waits until both kinds of clients have committed something, so that there is something to look at.
    pub fn wait_for_commits(&self) {
        let begun = Instant::now();
        loop {
            let told = self.told.lock().unwrap();
            if told.count(Fate::Committed) > 0 && told.copied > 0 {
                return;
            }
            assert!(begun.elapsed() < patience(), "nothing is committed for long: {told:?}");
            drop(told);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A run in which nothing was at stake shows nothing.
    pub fn assert_that_it_happened(&self, kills: u64) {
        let told = self.told.lock().unwrap();
        let seen = [told.count(Fate::Committed), self.visible, self.copies, told.copied as usize];
        assert!(seen.iter().all(|count| *count > 0), "nothing was committed: {self}");
        assert!(kills < 20 || (told.count(Fate::Aborted) > 0 && told.rewound > 0), "nothing was aborted: {self}");
        assert!(kills < 100 || told.zombies > 0, "no zombie: {self}");
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(told) = self.told.try_lock() else { return f.write_str("(busy)") };
        write!(
            f,
            "{} in starts, {} looks; writers: {} committed, {} aborted, {} unknown, {} taken over, {} zombies; copiers: {} \
             committed, {} rewound; {} records visible, {} copied",
            self.kills_in_start,
            self.looks,
            told.count(Fate::Committed),
            told.count(Fate::Aborted),
            told.count(Fate::Unknown),
            told.taken_over,
            told.zombies,
            told.copied,
            told.rewound,
            self.visible,
            self.copies,
        )
    }
}

pub fn make_topics(bootstrap: &str) {
    let mut client = Client::connect(bootstrap.parse().unwrap());
    ["in", "copied"].into_iter().for_each(|name| client.create_topic(name, PARTITIONS, &[]));
}

type Values = BTreeMap<(i32, i64), Vec<u8>>;

/// With nobody writing.
pub fn check(bootstrap: &str, counters: &mut Counters) {
    nothing_stays_open(bootstrap);
    let read = read_topic_committed(bootstrap, "in");
    let told = counters.told();
    check_transactions(&read, &told.lock().unwrap());
    let copied = read_topic_committed(bootstrap, "copied");
    let offsets = committed_offsets(bootstrap);
    for partition in 0..PARTITIONS {
        check_copies(partition, &read, &copied, offsets[&partition]);
    }
    counters.looks += 1;
    counters.visible = read.len();
    counters.copies = copied.len();
}

/// Readers of what is committed come to the end of every partition.
fn nothing_stays_open(bootstrap: &str) {
    let ends = |isolation: &str| -> Vec<i64> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "ends")
            .set("isolation.level", isolation)
            .create()
            .unwrap();
        let places = ["in", "copied"].into_iter().flat_map(|topic| (0..PARTITIONS).map(move |at| (topic, at)));
        places.map(|(topic, at)| consumer.fetch_watermarks(topic, at, CALL).unwrap().1).collect()
    };
    let begun = Instant::now();
    loop {
        let (stable, all) = (ends("read_committed"), ends("read_uncommitted"));
        if stable == all {
            return;
        }
        assert!(begun.elapsed() < patience(), "transactions stay open: last stable offsets {stable:?}, ends {all:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Writer, number, index and count in a value.
fn parse(value: &[u8]) -> (usize, u64, usize, usize) {
    let text = std::str::from_utf8(value).unwrap();
    let numbers: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
    (numbers[0] as usize, numbers[1], numbers[2] as usize, numbers[3] as usize)
}

fn check_transactions(read: &Values, told: &Told) {
    let mut found: BTreeMap<(usize, u64), Vec<(usize, i32)>> = BTreeMap::new();
    let mut last: BTreeMap<(i32, usize), (u64, usize)> = BTreeMap::new();
    for ((partition, offset), value) in read {
        let (writer, number, index, count) = parse(value);
        let before = last.insert((*partition, writer), (number, index));
        let place = format!("in-{partition} at {offset}, writer {writer}, transaction {number}, record {index}");
        assert!(
            before.is_none_or(|before| before < (number, index)),
            "out of order or twice: {place}, behind {before:?}"
        );
        let sent = &told.transactions[&(writer, number)];
        assert_eq!((sent.partitions.len(), sent.partitions[index]), (count, *partition), "{place}");
        found.entry((writer, number)).or_default().push((index, *partition));
    }
    for (name, transaction) in &told.transactions {
        let there = found.get(name).map_or(0, Vec::len);
        let sent = transaction.partitions.len();
        let is_right = match transaction.fate {
            Fate::Committed => there == sent,
            Fate::Aborted => there == 0,
            Fate::Unknown => there == 0 || there == sent,
        };
        assert!(is_right, "{name:?} was {:?}: {there} of {sent} records are visible", transaction.fate);
    }
}

/// Next offset of each partition of "in".
fn committed_offsets(bootstrap: &str) -> BTreeMap<i32, i64> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", GROUP)
        .set("isolation.level", "read_committed")
        .create()
        .unwrap();
    let mut all = TopicPartitionList::new();
    (0..PARTITIONS).for_each(|at| {
        all.add_partition("in", at);
    });
    let found = consumer.committed_offsets(all, CALL).unwrap();
    let offset_of = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
    found.elements().iter().map(|one| (one.partition(), offset_of(one.offset()))).collect()
}

/// What lies below the group's offset was copied, once and in order, and nothing else.
fn check_copies(partition: i32, read: &Values, copied: &Values, committed: i64) {
    let of = |values: &Values, below: i64| -> Vec<String> {
        let own = values.range((partition, 0)..(partition, below));
        own.map(|(_, value)| String::from_utf8(value.clone()).unwrap()).collect()
    };
    let (wanted, copies) = (of(read, committed), of(copied, i64::MAX));
    let differs = wanted.iter().zip(&copies).position(|(one, other)| one != other);
    assert!(
        wanted == copies,
        "in-{partition}: {} records below the offset {committed}, {} copies; the first difference is at {differs:?}",
        wanted.len(),
        copies.len()
    );
}
