//! What remembering producers costs, in memory and in time on a core: `cargo bench --bench dedup`.
//!
//! Producers are drawn at random, so with a million of them hardly anything is in a near cache. `draw` is what the bench
//! itself takes, and is in the other two.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench")]
#![allow(clippy::disallowed_methods, reason = "it measures")]

#[path = "../tests/memory/counting.rs"]
#[allow(dead_code, reason = "the test of memory uses the rest")]
mod counting;

use std::hint::black_box;
use std::time::{Duration, Instant};

use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::state::producers::{Appended, BatchIdentity, Producers, Verdict};
use counting::Counting;

#[global_allocator]
static MEMORY: Counting = Counting::new();

/// Time for which each case is measured.
const MEASURED: Duration = Duration::from_secs(1);
/// Calls between two looks at the clock.
const ROUND: usize = 1 << 14;

/// Producers as one partition knows them, and what each would send next.
struct Fixture {
    producers: Producers,
    next: Vec<i32>,
    tick: u64,
    random: u64,
    bytes: usize,
}

impl Fixture {
    fn new(count: usize, batches: i32) -> Self {
        let next = vec![0; count];
        let before = MEMORY.start();
        let mut fixture = Self { producers: Producers::new(0x5eed), next, tick: 0, random: 1, bytes: 0 };
        for _ in 0..batches {
            (0..count).for_each(|at| fixture.append(at));
        }
        fixture.bytes = MEMORY.start() - before;
        fixture
    }

    fn identity(&self, at: usize, sequence: i32) -> BatchIdentity {
        BatchIdentity {
            producer_id: ProducerId(i64::try_from(at).unwrap()),
            epoch: ProducerEpoch(0),
            base_sequence: Sequence(sequence),
            last_offset_delta: 0,
            transactional: false,
        }
    }

    /// What an owner does with the next batch of a producer.
    fn append(&mut self, at: usize) {
        let identity = self.identity(at, self.next[at]);
        self.next[at] += 1;
        self.tick += 1;
        assert_eq!(self.producers.check(&identity), Ok(Verdict::Append));
        let offset = Offset(i64::try_from(self.tick).unwrap());
        self.producers.remember(
            &identity,
            &Appended { base_offset: offset, max_timestamp: 1, append_ms: 1 },
            self.tick,
        );
    }

    /// A producer drawn at random; the next one does not follow from what this one's look-up finds.
    fn draw(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 11).unwrap() % self.next.len()
    }
}

/// What this thread has had of a core so far, whoever else wants it.
fn on_core() -> Duration {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(said.split(' ').next().unwrap().parse().unwrap())
}

/// Nanoseconds of one call.
fn measure(fixture: &mut Fixture, mut call: impl FnMut(&mut Fixture, usize)) -> f64 {
    let mut calls = 0_u32;
    let begun = on_core();
    while on_core() - begun < MEASURED {
        for _ in 0..ROUND {
            let at = fixture.draw();
            call(fixture, at);
        }
        calls += u32::try_from(ROUND).unwrap();
    }
    (on_core() - begun).as_secs_f64() * 1e9 / f64::from(calls)
}

fn main() {
    println!("{:>9} {:>7} {:>11} {:>12} {:>12} {:>12}", "producers", "window", "bytes each", "draw", "retry", "append");
    for count in [1, 1_000, 1_000_000] {
        for batches in [1, 5] {
            let mut fixture = Fixture::new(count, batches);
            let each = fixture.bytes / count;
            let draw = measure(&mut fixture, |fixture, at| _ = black_box(fixture.next[at]));
            let retry = measure(&mut fixture, |fixture, at| {
                let newest = fixture.identity(at, fixture.next[at] - 1);
                assert!(matches!(fixture.producers.check(&newest), Ok(Verdict::Duplicate(_))));
            });
            let append = measure(&mut fixture, Fixture::append);
            println!("{count:>9} {batches:>7} {each:>11} {draw:>9.0} ns {retry:>9.0} ns {append:>9.0} ns");
        }
    }
    snapshot(1_000_000);
}

/// A snapshot of so many producers, some of which write on meanwhile: to fix the moment, to append beside it, to take it in
/// steps of 512 as the broker does.
fn snapshot(count: usize) {
    let mut fixture = Fixture::new(count, 1);
    let begun = Instant::now();
    assert_eq!(fixture.producers.freeze(), Some(count));
    let fixed = begun.elapsed();
    let begun = Instant::now();
    for _ in 0..ROUND {
        let at = fixture.draw();
        fixture.append(at);
    }
    let append = begun.elapsed().as_secs_f64() * 1e9 / ROUND as f64;
    let (mut taken, mut steps) = (0, Vec::new());
    loop {
        let begun = Instant::now();
        let goes_on =
            fixture.producers.take_frozen(512, |id, state| taken += usize::from(black_box((id, state)).0.0 >= 0));
        steps.push(begun.elapsed());
        if !goes_on {
            break;
        }
    }
    assert_eq!(taken, count);
    steps.sort_unstable();
    let (median, most) = (steps[steps.len() / 2], steps[steps.len() * 99 / 100]);
    println!(
        "snapshot of {count}: fixed in {fixed:?}, {append:.0} ns an append beside it, a step {median:?} (p99 {most:?})"
    );
}
