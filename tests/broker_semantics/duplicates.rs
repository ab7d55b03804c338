//! Retries of what was appended.

use std::sync::{Arc, Barrier};
use std::thread;

use super::harness::Client;
use super::world::*;

const P: i64 = 70_000;

#[test]
fn eos_b02_a_retry_gets_its_offset_and_is_not_written() {
    let mut world = World::new("b02");
    for _ in 0..3 {
        assert_eq!(world.send(of(P, 0, 3)), (0, 0));
        assert_eq!(world.end(), 3);
    }
}

/// Also IDP-01.
#[test]
fn eos_b03_the_last_five_batches_are_known() {
    let mut world = World::new("b03");
    for batch in 0..6 {
        assert_eq!(world.send(of(P, batch * 3, 3)), (0, i64::from(batch) * 3));
    }
    for batch in [3, 1, 5, 2, 4, 1] {
        assert_eq!(world.send(of(P, batch * 3, 3)), (0, i64::from(batch) * 3));
    }
    assert_eq!(world.send(of(P, 0, 3)), (45, -1));
    assert_eq!(world.end(), 18);
}

#[test]
fn eos_b10_a_retry_tells_the_time_of_the_original() {
    let mut world = World::with_special("b10", "message.timestamp.type", "LogAppendTime");
    assert_eq!(world.short(TOPIC, 0, of(P, 0, 3)), (0, 0, -1, 0));
    assert_eq!(world.short(TOPIC, 0, of(P, 0, 3)), (0, 0, TIME + 2, 0), "CreateTime: the largest timestamp");
    let before = now_ms();
    let original = world.short("special", 0, of(P, 0, 3));
    assert!(original.2 >= before && original.2 <= now_ms());
    let later = now_ms() + 2;
    while now_ms() < later {
        thread::yield_now();
    }
    assert_eq!(world.short("special", 0, of(P, 0, 3)), original);
}

#[test]
fn eos_b12_of_two_equal_batches_at_the_same_time_one_is_written() {
    const ROUNDS: i32 = 1000;
    let mut world = World::new("b12");
    let together = Arc::new(Barrier::new(2));
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let (mut client, together) = (Client::connect(world.broker.address), Arc::clone(&together));
            thread::spawn(move || {
                let round = |sequence| {
                    let batch = of(P, sequence, 1).build();
                    together.wait();
                    client.produce(TOPIC, 0, &batch)
                };
                (0..ROUNDS).map(round).collect::<Vec<_>>()
            })
        })
        .collect();
    for produced in writers.into_iter().flat_map(|writer| writer.join().unwrap().into_iter().enumerate()) {
        assert_eq!((produced.1.error, produced.1.base_offset), (0, produced.0 as i64));
    }
    assert_eq!(world.end(), i64::from(ROUNDS));
}
