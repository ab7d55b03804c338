//! kill -9 again and again under producers, a group, retention, compaction and DeleteRecords: what was acknowledged and may
//! not have been removed is there, once, at its offset; what was read stays; the ends of the logs never go back.
//!
//! A few cycles here; `scripts/torture` runs as many as one likes, with the release build.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use corelane::offline::folder::Watched;
use corelane::offline::verify::check;

use super::groups::{self, commit, commit_request, kept, once_loaded};
use super::harness::rdkafka_clients::{RdProducer, read_topic_while_it_shrinks};
use super::harness::{Broker, Client, Folder, Random, Start};

/// Cycles without `TORTURE_CYCLES`.
const CYCLES: u64 = 3;
/// From so many cycles on a run in which nothing was removed, compacted or deleted has shown nothing, and fails.
const CYCLES_THAT_SHOW: u64 = 40;
/// A broker lives at most so long before it is killed.
const LIFE_MS: u64 = 500;
/// A start is killed within this time.
const START_MS: u64 = 120;
/// Pause of a producer between some records: some thousand a second.
const PAUSE: Duration = Duration::from_millis(10);
const KEYS: u64 = 40;
const GROUP: &str = "tortured";

/// What may go of a topic.
#[derive(Clone, Copy, PartialEq)]
enum Keeps {
    /// Records of the last so many milliseconds.
    Age(i64),
    /// The newest so many bytes.
    Bytes(u64),
    /// What is not below the log start that the test has asked for.
    WhatIsNotDeleted,
    /// The newest record of each key.
    NewestOfKey,
}

struct Topic {
    name: &'static str,
    partitions: i32,
    /// Records between two pauses.
    burst: usize,
    keeps: Keeps,
    settings: &'static [(&'static str, &'static str)],
}

const TOPICS: [Topic; 4] = [
    Topic {
        name: "aged",
        partitions: 3,
        burst: 40,
        keeps: Keeps::Age(4_000),
        settings: &[("retention.ms", "4000"), ("file.delete.delay.ms", "300")],
    },
    Topic {
        name: "sized",
        partitions: 2,
        burst: 40,
        keeps: Keeps::Bytes(3 << 20),
        settings: &[
            ("retention.bytes", "3145728"),
            ("corelane.durability", "page-cache"),
            ("file.delete.delay.ms", "0"),
        ],
    },
    Topic {
        name: "shortened",
        partitions: 2,
        burst: 40,
        keeps: Keeps::WhatIsNotDeleted,
        settings: &[("file.delete.delay.ms", "0")],
    },
    Topic {
        name: "compacted",
        partitions: 2,
        burst: 6,
        keeps: Keeps::NewestOfKey,
        settings: &[
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("segment.ms", "500"),
            ("file.delete.delay.ms", "0"),
        ],
    },
];

fn now_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Who sends to one topic: its records are numbered for each partition.
struct Source {
    topic: &'static Topic,
    producer: RdProducer,
    next: Vec<u64>,
}

impl Source {
    fn new(topic: &'static Topic, bootstrap: &str) -> Self {
        let codec = if topic.keeps == Keeps::WhatIsNotDeleted { "zstd" } else { "none" };
        let producer = RdProducer::new(bootstrap, &[("compression.type", codec)]);
        Self { topic, producer, next: vec![0; topic.partitions as usize] }
    }

    /// Sends until `is_over`; while `is_held` it only waits for what was sent.
    fn run(&mut self, flags: &Flags) {
        while !flags.is_over.load(Ordering::Relaxed) {
            if flags.is_held.load(Ordering::Relaxed) {
                thread::sleep(PAUSE);
                continue;
            }
            (0..self.topic.burst).for_each(|_| self.send());
            thread::sleep(PAUSE);
        }
    }

    fn send(&mut self) {
        let partition = (0..self.next.len()).min_by_key(|at| self.next[*at]).unwrap();
        let number = self.next[partition];
        self.next[partition] += 1;
        let mut value = format!("{number} {} ", now_ms()).into_bytes();
        let filling = (number * 7919 + partition as u64 * 104_729) % 1_500;
        value.extend((0..filling).map(|at| (at * 31 + number) as u8));
        let key = key_of(number);
        self.producer.send_keyed(self.topic.name, partition as i32, Some(key.as_bytes()), &value);
    }
}

fn key_of(number: u64) -> String {
    format!("key {}", number % KEYS)
}

/// Number and time in a value.
fn read_value(value: &[u8]) -> (u64, i64) {
    let mut words = value.splitn(3, |byte| *byte == b' ').map(|word| std::str::from_utf8(word).unwrap_or(""));
    (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap())
}

#[derive(Default)]
struct Flags {
    is_over: AtomicBool,
    is_held: AtomicBool,
}

/// Ends the producers, also when the test fails.
struct Over<'a>(&'a Flags);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

type Records = BTreeMap<(i32, i64), Vec<u8>>;

/// What is known of one topic from earlier looks.
#[derive(Default)]
struct Seen {
    bounds: Vec<(i64, i64)>,
    records: Records,
    deleted_to: Vec<i64>,
}

#[derive(Debug, Default)]
struct Counters {
    kills: u64,
    kills_in_start: u64,
    looks: u64,
    acknowledged: u64,
    read: u64,
    removed_by: BTreeMap<&'static str, i64>,
    compacted_away: usize,
    deletions: u64,
    commits: u64,
}

impl Counters {
    /// Whatever was to go on beside the kills has happened.
    fn check_what_went_on(&self) {
        assert!(self.compacted_away > 0, "compaction has removed nothing: {self:#?}");
        for topic in TOPICS.iter().filter(|topic| topic.keeps != Keeps::NewestOfKey) {
            let removed = self.removed_by.get(topic.name).copied().unwrap_or(0);
            assert!(removed > 0, "nothing was removed of {}: {self:#?}", topic.name);
        }
        assert!(self.deletions > 0 && self.commits > 0 && self.kills_in_start > 0, "{self:#?}");
    }
}

struct Torture {
    folder: Folder,
    start: Start,
    random: Random,
    counters: Counters,
    seen: Vec<Seen>,
    /// Offsets of the group: acknowledged and sent.
    committed: (i64, i64),
}

impl Torture {
    fn new(folder: Folder, random: Random) -> Self {
        // Small files and frequent checkpoints, so that kills hit rolls, reuse of log files, checkpoints and removals.
        let start = Start::on_fixed_port(&folder)
            .set("corelane.log.file.bytes=4194304")
            .set("corelane.checkpoint.interval.ms=150")
            .set("log.retention.check.interval.ms=100")
            .set("log.segment.bytes=1048576");
        let seen = TOPICS.iter().map(|_| Seen::default()).collect();
        Self { folder, start, random, counters: Counters::default(), seen, committed: (-1, -1) }
    }

    /// kill -9 after a while, perhaps some more while it starts, and a start that comes to its end.
    fn kill_and_start(&mut self, broker: Broker) -> Broker {
        broker.kill9();
        self.counters.kills += 1;
        while self.random.below(3) == 0 {
            let mut child = self.start.command().spawn().unwrap();
            thread::sleep(Duration::from_millis(self.random.below(START_MS)));
            child.kill().unwrap();
            child.wait().unwrap();
            self.counters.kills_in_start += 1;
        }
        self.keep_a_copy();
        let cores = 1 + self.random.below(2) as usize;
        self.start.clone().cores(cores).start()
    }

    /// The folder as the last start found it; nothing in it may be called damaged.
    fn keep_a_copy(&self) {
        let (data, copy) = (self.folder.data(), self.copy());
        let _old = std::fs::remove_dir_all(&copy);
        let done = Command::new("cp").args(["-a", "--reflink=auto"]).arg(&data).arg(&copy).status();
        assert!(done.unwrap().success());
        let verified = check(&Watched::take(&copy).unwrap());
        assert_eq!(verified.damages(), 0, "{}", verified.text());
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("before-the-last-start")
    }

    fn live(&mut self, client: &mut Client) {
        let until = now_ms() + self.random.below(LIFE_MS) as i64;
        while now_ms() < until {
            self.shorten(client);
            self.commit(client);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Deletes records of one partition up to somewhere.
    fn shorten(&mut self, client: &mut Client) {
        let at = TOPICS.iter().position(|topic| topic.keeps == Keeps::WhatIsNotDeleted).unwrap();
        if self.random.below(5) > 0 {
            return;
        }
        let partition = self.random.below(TOPICS[at].partitions as u64) as i32;
        let start = client.offset_at(TOPICS[at].name, partition, -2);
        let end = client.end(TOPICS[at].name, partition);
        let before = start + self.random.below((end - start) as u64 + 1) as i64;
        let deleted_to = &mut self.seen[at].deleted_to;
        deleted_to.resize(TOPICS[at].partitions as usize, 0);
        deleted_to[partition as usize] = before;
        let (error, low) = client.delete_records(TOPICS[at].name, partition, before);
        assert!(error == 0 && low >= before, "{error}, {low} for {before}");
        self.counters.deletions += 1;
    }

    fn commit(&mut self, client: &mut Client) {
        self.committed.1 += 1;
        let error = commit(client, &commit_request(GROUP, self.committed.1));
        if error == 0 {
            self.committed.0 = self.committed.1;
            self.counters.commits += 1;
        }
    }

    fn look_at_group(&mut self, client: &mut Client) {
        let found = once_loaded(|| kept(client, GROUP));
        let promised = self.committed.0..=self.committed.1;
        assert!(promised.contains(&found), "the group's offset is {found}, promised was {promised:?}");
        self.committed.0 = found;
    }

    /// With nobody writing: each topic against what was promised and what was seen before.
    fn look(&mut self, broker: &Broker, sources: &[(&'static Topic, &RdProducer)]) {
        let mut client = Client::connect(broker.address);
        self.look_at_group(&mut client);
        for (at, (topic, producer)) in sources.iter().enumerate() {
            producer.finish();
            let records = read_topic_while_it_shrinks(&broker.bootstrap(), topic.name);
            let bounds: Vec<_> = (0..topic.partitions)
                .map(|partition| (client.offset_at(topic.name, partition, -2), client.end(topic.name, partition)))
                .collect();
            self.check_bounds(at, topic, &bounds);
            check_promised(topic, &bounds, &records, &producer.promises.acknowledged());
            check_order(topic, &records);
            self.check_stays(at, topic, &bounds, &records);
            self.counters.read += records.len() as u64;
            if topic.keeps == Keeps::NewestOfKey {
                let promised = producer.promises.acknowledged();
                self.counters.compacted_away += promised.keys().filter(|place| !records.contains_key(place)).count();
            }
            producer.promises.keep(|place| records.contains_key(place));
            if let Keeps::Bytes(least) = topic.keeps {
                check_size(topic, &bounds, &records, least);
            }
        }
        self.counters.looks += 1;
    }

    fn check_bounds(&mut self, at: usize, topic: &'static Topic, bounds: &[(i64, i64)]) {
        let seen = &mut self.seen[at];
        for (partition, (old, new)) in seen.bounds.iter().zip(bounds).enumerate() {
            let what = format!("{}-{partition}: {old:?}, now {new:?}", topic.name);
            assert!(old.0 <= new.0 && old.1 <= new.1 && new.0 <= new.1, "a log went back: {what}");
            if topic.keeps == Keeps::WhatIsNotDeleted {
                let asked = seen.deleted_to.get(partition).copied().unwrap_or(0);
                assert!(new.0 <= asked.max(old.0), "more is gone than was asked for, {asked}: {what}");
            }
            *self.counters.removed_by.entry(topic.name).or_default() += new.0 - old.0;
        }
        seen.bounds = bounds.to_vec();
    }

    /// A record that was read and may still be there is as it was.
    fn check_stays(&mut self, at: usize, topic: &Topic, bounds: &[(i64, i64)], records: &Records) {
        let before = std::mem::replace(&mut self.seen[at].records, records.clone());
        for ((partition, offset), value) in before {
            match records.get(&(partition, offset)) {
                Some(now) => assert!(*now == value, "{}-{partition} at {offset} has changed", topic.name),
                None => assert!(
                    topic.keeps == Keeps::NewestOfKey || offset < bounds[partition as usize].0,
                    "{}-{partition} at {offset} was read and is gone",
                    topic.name
                ),
            }
        }
    }
}

/// Whatever was acknowledged and may not be gone is there, and nothing else is.
fn check_promised(topic: &Topic, bounds: &[(i64, i64)], records: &Records, promised: &Records) {
    let young_ms = match topic.keeps {
        Keeps::Age(age_ms) => now_ms() - age_ms,
        _ => i64::MAX,
    };
    let mut newest: BTreeMap<(i32, String), i64> = BTreeMap::new();
    for ((partition, offset), value) in promised {
        let what = || format!("{}-{partition} at {offset}, log {:?}", topic.name, bounds[*partition as usize]);
        let (number, sent_ms) = read_value(value);
        newest.insert((*partition, key_of(number)), *offset);
        match records.get(&(*partition, *offset)) {
            Some(found) => assert!(found == value, "not what was acknowledged: {}", what()),
            None if topic.keeps == Keeps::NewestOfKey => {}
            None => {
                assert!(*offset < bounds[*partition as usize].0, "acknowledged and not there: {}", what());
                assert!(sent_ms <= young_ms, "removed before its time: {}", what());
            }
        }
    }
    if topic.keeps == Keeps::NewestOfKey {
        for ((partition, key), offset) in newest {
            assert!(
                records.contains_key(&(partition, offset)),
                "{}-{partition}: newest of {key} at {offset}",
                topic.name
            );
        }
    }
    for place in records.keys() {
        assert!(promised.contains_key(place), "{} {place:?}: nobody was promised that", topic.name);
    }
}

/// What is left is at least as large as it may always be; the headers of batches are left out of account.
fn check_size(topic: &Topic, bounds: &[(i64, i64)], records: &Records, least: u64) {
    for (partition, (start, _)) in (0..).zip(bounds) {
        let values = records.range((partition, i64::MIN)..(partition + 1, i64::MIN));
        let bytes: u64 = values.map(|(_, value)| value.len() as u64).sum();
        // A record has some 30 bytes beside its value, and a batch of a few of them 61.
        assert!(*start == 0 || bytes >= least * 9 / 10, "{}-{partition}: {bytes} bytes are left", topic.name);
    }
}

/// The records of a partition in the order in which they were sent, none twice; without compaction none is missing.
fn check_order(topic: &Topic, records: &Records) {
    let mut last: BTreeMap<i32, u64> = BTreeMap::new();
    for ((partition, offset), value) in records {
        let (number, _) = read_value(value);
        let before = last.insert(*partition, number);
        let what = format!("{}-{partition} at {offset}: number {number} behind {before:?}", topic.name);
        let is_compacted = topic.keeps == Keeps::NewestOfKey;
        assert!(before.is_none_or(|before| number == before + 1 || is_compacted && number > before), "{what}");
    }
}

/// Says how to go on from a failure.
struct Hint(u64, PathBuf);

impl Drop for Hint {
    fn drop(&mut self) {
        if thread::panicking() {
            let (cycle, path) = (self.0, self.1.display());
            eprintln!(
                "failed in cycle {cycle}; {path} has the data and, in before-the-last-start, what the start found"
            );
            eprintln!("again: scripts/torture --cycles {cycle} --seed SEED, with the TEST_SEED that is printed above");
        }
    }
}

#[test]
fn kills_over_and_over() {
    let cycles = std::env::var("TORTURE_CYCLES").ok().and_then(|cycles| cycles.parse().ok()).unwrap_or(CYCLES);
    let mut torture = Torture::new(Folder::new("torture"), Random::new("torture"));
    let mut hint = Hint(0, torture.folder.path().to_owned());
    let broker = torture.start.start();
    let mut client = Client::connect(broker.address);
    client.create_topic(groups::TOPIC, 1, &[]);
    for topic in &TOPICS {
        client.create_topic(topic.name, topic.partitions, topic.settings);
    }
    let mut sources: Vec<_> = TOPICS.iter().map(|topic| Source::new(topic, &broker.bootstrap())).collect();
    let producers: Vec<_> = sources.iter().map(|source| (source.topic, source.producer.clone())).collect();
    let producers: Vec<_> = producers.iter().map(|(topic, producer)| (*topic, producer)).collect();
    let flags = Flags::default();
    let broker = thread::scope(|scope| {
        let mut broker = broker;
        let _over = Over(&flags);
        for source in &mut sources {
            scope.spawn(|| source.run(&flags));
        }
        for cycle in 1..=cycles {
            hint.0 = cycle;
            torture.live(&mut client);
            broker = torture.kill_and_start(broker);
            client = Client::connect(broker.address);
            if torture.random.below(3) > 0 || cycle == cycles {
                flags.is_held.store(true, Ordering::Relaxed);
                thread::sleep(3 * PAUSE);
                torture.look(&broker, &producers);
                flags.is_held.store(false, Ordering::Relaxed);
            }
            if cycle % 20 == 0 {
                println!("cycle {cycle}: {:?}", torture.counters);
            }
        }
        broker
    });
    torture.counters.acknowledged = producers.iter().map(|(_, producer)| producer.promises.reports()).sum();
    println!("{cycles} cycles: {:#?}", torture.counters);
    if cycles >= CYCLES_THAT_SHOW {
        torture.counters.check_what_went_on();
    }
    broker.stop_cleanly();
}
