//! Whole shards with their clients on a disk in memory and a virtual clock, everything from one seed: killed, without power,
//! with a disk that fails, again and again; then everything that was promised is looked for.
//!
//! | file | what |
//! |---|---|
//! | `run.rs` | one run: some lives of the broker, how each begins and ends |
//! | `cluster.rs` | the shards of one life, and what clients may ask of them |
//! | `world.rs` | what the clients know and were promised; outlives the broker |
//! | `producers.rs`, `readers.rs`, `groups.rs`, `admin.rs` | the clients |
//! | `payers.rs`, `ledger.rs` | transactional producers, and what must come of their transactions |
//! | `attacks.rs` | what clients, people and disks do on purpose |
//! | `checks.rs` | what must be true after each start |
//! | `counters.rs` | what happened in all runs |
//! | `named.rs` | seeds that once failed |
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod attacks;
mod checks;
mod cluster;
mod counters;
mod groups;
mod ledger;
mod named;
mod payers;
mod producers;
mod readers;
mod run;
mod world;

use counters::Counters;
use run::{Options, run_one};

fn number_of(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// Says which run it was if one panics.
struct Running {
    seed: u64,
    case: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, case } = self;
            eprintln!("run {case} of seed {seed} failed; again: scripts/simulate --seed {seed} --from {case} --runs 1");
        }
    }
}

fn run_many(seed: u64, from: u64, runs: u64) -> Counters {
    let mut counters = Counters::default();
    let options = Options { trace: false, tell: std::env::var_os("SIM_TELL").is_some() };
    if options.tell {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        // A second time in one process: the first one serves.
        let _first = tracing_subscriber::fmt().with_env_filter(filter).without_time().with_test_writer().try_init();
    }
    for case in from..from + runs {
        let _running = Running { seed, case };
        run_one(seed << 32 | case, &options, &mut counters);
    }
    counters
}

/// `SIM_RUNS`, `SIM_SEED` and `SIM_FROM` say which runs; `scripts/simulate` sets them.
#[test]
fn nothing_that_was_promised_is_lost_whatever_happens() {
    let runs = number_of("SIM_RUNS", 100);
    #[expect(clippy::disallowed_methods, reason = "how fast it is")]
    let begun = std::time::Instant::now();
    let counters = run_many(number_of("SIM_SEED", 1), number_of("SIM_FROM", 0), runs);
    let seconds = begun.elapsed().as_secs_f64();
    println!("{counters}{runs} runs in {seconds:.1} s: {:.0} runs/s", runs as f64 / seconds);
    if runs >= 100 {
        counters.assert_interesting(runs);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let traced = |seed| {
        let mut counters = Counters::default();
        run_one(seed, &Options { trace: true, tell: false }, &mut counters)
    };
    for seed in 0..8 {
        assert_eq!(traced(seed), traced(seed), "seed {seed}");
    }
    assert_ne!(traced(1), traced(2));
}
