//! Transactions under kill -9, seen from outside: every committed one is there whole and once, nothing of an aborted one is
//! visible to a reader of what is committed, offsets move together with the records that were made of what they passed, the
//! order of each producer is kept, and no transaction stays open.
//!
//! ```text
//! writers ──transactions──► "in" ──read_committed──► copiers ──transactions──► "copied", and the offsets of "in"
//! ```
//! Clients are librdkafka's, unmodified. They also fall silent in the middle of a transaction, and go on after another
//! instance has taken their id (zombies). A few kills here; `scripts/torture-transactions` runs as many as one likes, with
//! the release build, or against Apache Kafka.

mod check;
mod copier;
mod settle;
mod victim;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use self::check::{Counters, check};
use self::copier::Copier;
use self::victim::{Victim, victim};
use self::writer::Writer;
use super::harness::{Folder, Random};

/// Kills without `TORTURE_CYCLES`.
const KILLS: u64 = 3;
/// Kills between two looks at what is there.
const KILLS_BETWEEN_LOOKS: u64 = 10;
/// A broker lives at most so long before it is killed.
const LIFE_MS: u64 = 600;
const WRITERS: usize = 3;
/// Partitions of both topics; each copier has its own ones.
const PARTITIONS: i32 = 4;
const COPIERS: i32 = 2;
/// How long a call may take before it is made again.
const CALL: Duration = Duration::from_secs(20);

/// Longer than some starts, so that what does not come by then never comes. Those of Apache Kafka take long on a busy host.
fn patience() -> Duration {
    Duration::from_secs(if victim::is_kafka() { 300 } else { 60 })
}

/// What main and workers tell each other.
#[derive(Default)]
struct Flags {
    is_over: AtomicBool,
    /// Workers finish what they are at and wait.
    is_held: AtomicBool,
    /// How many wait.
    held: AtomicUsize,
}

impl Flags {
    /// Called by a worker between two transactions; false when it is all over.
    fn go_on(&self) -> bool {
        if self.is_held.load(Ordering::SeqCst) {
            self.held.fetch_add(1, Ordering::SeqCst);
            while self.is_held.load(Ordering::SeqCst) && !self.is_over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            self.held.fetch_sub(1, Ordering::SeqCst);
        }
        !self.is_over.load(Ordering::SeqCst)
    }
}

/// Ends the workers, also when the test fails.
struct Over<'a>(&'a Flags);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

/// Has the workers stand still, looks, and lets them go on.
fn look(flags: &Flags, workers: &[thread::ScopedJoinHandle<'_, ()>], bootstrap: &str, counters: &mut Counters) {
    flags.is_held.store(true, Ordering::SeqCst);
    while flags.held.load(Ordering::SeqCst) < workers.len() {
        assert!(!workers.iter().any(thread::ScopedJoinHandle::is_finished), "a client gave up, see above");
        thread::sleep(Duration::from_millis(5));
    }
    check(bootstrap, counters);
    flags.is_held.store(false, Ordering::SeqCst);
    while flags.held.load(Ordering::SeqCst) > 0 {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn kills_over_and_over() {
    let kills = std::env::var("TORTURE_CYCLES").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let mut random = Random::new("exactly once");
    let folder = Folder::new("exactly-once");
    let mut victim: Box<dyn Victim> = victim(&folder);
    victim.start(2);
    let bootstrap = victim.bootstrap();
    check::make_topics(&bootstrap);
    let (flags, mut counters) = (Flags::default(), Counters::default());
    let told = counters.told();
    thread::scope(|scope| {
        let _over = Over(&flags);
        let mut workers = Vec::new();
        for number in 0..WRITERS {
            let mut writer = Writer::new(number, &bootstrap, random.next(), &told);
            let flags = &flags;
            workers.push(scope.spawn(move || {
                while flags.go_on() {
                    writer.one_transaction()
                }
            }));
        }
        for number in 0..COPIERS {
            let mut copier = Copier::new(number, &bootstrap, random.next(), &told);
            let flags = &flags;
            workers.push(scope.spawn(move || {
                while flags.go_on() {
                    copier.one_transaction()
                }
            }));
        }
        for kill in 1..=kills {
            thread::sleep(Duration::from_millis(victim.settling_ms() + random.below(LIFE_MS)));
            victim.kill9();
            counters.kills += 1;
            while random.below(4) == 0 {
                victim.die_in_start(random.below(100));
                counters.kills_in_start += 1;
            }
            victim.start(1 + random.below(2) as usize);
            if kill == kills {
                counters.wait_for_commits();
            }
            if kill % KILLS_BETWEEN_LOOKS == 0 || kill == kills {
                look(&flags, &workers, &bootstrap, &mut counters);
                println!("{kill} kills: {counters}");
            }
        }
    });
    counters.assert_that_it_happened(kills);
    victim.stop();
}
