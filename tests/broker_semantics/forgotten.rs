//! Producers that are forgotten: idle ones, and the oldest of too many.

use std::time::{Duration, Instant};

use super::world::*;

const P: i64 = 70_000;
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// Also IDP-08, after expiry.
#[test]
fn eos_b19_a_producer_that_was_idle_for_too_long_may_begin_anywhere() {
    let mut world = World::with("b19", |start| {
        start.set("producer.id.expiration.ms=1000").set("producer.id.expiration.check.interval.ms=50")
    });
    assert_eq!(world.send(of(P, 0, 3)), (0, 0));
    let begun = Instant::now();
    let accepted = loop {
        // While it is known this is a gap, which changes nothing.
        match world.send(of(P, 9, 1)) {
            (45, -1) => assert!(begun.elapsed() < LONG, "it is never forgotten"),
            answer => break answer,
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(accepted, (0, 3));
    assert!(begun.elapsed() > Duration::from_millis(900), "forgotten too soon");
    assert_eq!(world.send(of(P, 10, 1)), (0, 4));
}

/// The limit is one for all partitions of a core, and a retry counts as use.
#[test]
fn eos_c06_beyond_the_limit_the_producer_that_was_used_longest_ago_is_forgotten() {
    let mut world = World::with("c06", |start| start.cores(1).set("corelane.producers.max=3"));
    for (partition, producer) in [(0, 1), (1, 2), (2, 3)] {
        assert_eq!(world.short(TOPIC, partition, of(producer, 0, 3)), (0, 0, -1, 0));
    }
    assert_eq!(world.short(TOPIC, 0, of(1, 0, 3)), (0, 0, TIME + 2, 0), "a retry");
    assert_eq!(world.short(TOPIC, 0, of(4, 0, 1)), (0, 3, -1, 0), "one too many: 2 goes");
    assert_eq!(world.short(TOPIC, 1, of(2, 9, 1)), (0, 3, -1, 0), "2 comes back, and 3 goes");
    assert_eq!(world.short(TOPIC, 0, of(1, 0, 3)), (0, 0, TIME + 2, 0), "1 is known");
    assert_eq!(world.short(TOPIC, 0, of(4, 0, 1)), (0, 3, TIME, 0), "4 is known");
    assert_eq!(world.short(TOPIC, 1, of(2, 11, 1)), (45, -1, -1, 0), "2 is known");
    assert_eq!(world.short(TOPIC, 2, of(3, 5, 1)), (0, 3, -1, 0), "3 is not");
}
