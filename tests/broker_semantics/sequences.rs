//! The decision table of idempotent producers.

use corelane::ids::Sequence;

use super::harness::Client;
use super::world::*;

/// A producer id that no broker of these tests has given away.
const P: i64 = 70_000;

#[test]
fn eos_b01_sequences_count_records() {
    let mut world = World::new("b01");
    assert_eq!(world.send(of(P, 0, 3)), (0, 0));
    assert_eq!(world.send(of(P, 3, 1)), (0, 3));
}

/// Also IDP-03.
#[test]
fn eos_b04_a_gap_is_refused_and_does_no_harm() {
    let mut world = World::new("b04");
    world.send(of(P, 0, 3));
    assert_eq!(world.short(TOPIC, 0, of(P, 5, 1)), (45, -1, -1, 0), "Kafka tells the log start");
    assert_eq!(world.end(), 3);
    assert_eq!(world.send(of(P, 3, 1)), (0, 3));
}

#[test]
fn eos_b05_what_overlaps_a_known_batch_is_refused() {
    let mut world = World::new("b05");
    world.send(of(P, 0, 3));
    for (sequence, records) in [(0, 2), (1, 2), (0, 4)] {
        assert_eq!(world.short(TOPIC, 0, of(P, sequence, records)), (45, -1, -1, 0));
    }
    assert_eq!(world.end(), 3);
}

/// Also IDP-06: the error is 47 in every version.
#[test]
fn eos_b06_a_new_epoch_begins_at_zero_and_fences_the_old_one() {
    let mut world = World::new("b06");
    world.send(of(P, 0, 3));
    assert_eq!(world.short(TOPIC, 0, of_epoch(P, 1, 5, 1)), (45, -1, -1, 0));
    assert_eq!(world.send(of_epoch(P, 1, 0, 1)), (0, 3));
    assert_eq!(world.short(TOPIC, 0, of(P, 3, 1)), (47, -1, -1, 0));
    assert_eq!(world.short(TOPIC, 0, of(P, 0, 3)), (47, -1, -1, 0), "also a retry");
    let old = of(P, 3, 1).build();
    for version in 3..=12 {
        assert_eq!(errors(&world.answers(version, &request(-1, &[(TOPIC, 0, Some(&old[..]))]))), [47]);
    }
    assert_eq!(world.end(), 4);
}

/// Also IDP-08.
#[test]
fn eos_b07_a_producer_that_is_not_known_may_begin_anywhere() {
    let mut world = World::new("b07");
    assert_eq!(world.send(of(P, 7, 8)), (0, 0));
    assert_eq!(world.send(of(P, 17, 1)), (45, -1));
    assert_eq!(world.send(of(P, 15, 1)), (0, 8));
    assert_eq!(world.send(of(P, 0, 1)), (45, -1));
    let single = [7, 8, 0].map(|sequence| world.short(TOPIC, 1, of(P, sequence, 1)));
    assert_eq!(single, [(0, 0, -1, 0), (0, 1, -1, 0), (45, -1, -1, 0)]);
}

/// Also IDP-04.
#[test]
fn eos_b08_after_the_largest_sequence_comes_zero() {
    let mut world = World::new("b08");
    assert_eq!(world.send(of(P, i32::MAX, 1)), (0, 0));
    assert_eq!(world.send(of(P, 0, 1)), (0, 1));
    for (partition, sequence, expected) in [(1, 0, (0, 3, -1, 0)), (2, i32::MIN, (87, -1, -1, 0))] {
        assert_eq!(world.short(TOPIC, partition, of(P, i32::MAX - 2, 3)), (0, 0, -1, 0));
        let next = of(P, 0, 1).header(|header| header.base_sequence = Sequence(sequence));
        assert_eq!(world.short(TOPIC, partition, next), expected);
    }
}

#[test]
fn eos_b09_a_batch_may_cross_the_largest_sequence() {
    let mut world = World::new("b09");
    assert_eq!(world.send(of(P, i32::MAX - 1, 4)), (0, 0));
    assert_eq!(world.send(of(P, i32::MAX - 1, 4)), (0, 0));
    assert_eq!(world.send(of(P, 2, 1)), (0, 4));
}

/// Also IDP-13.
#[test]
fn eos_b11_five_in_flight_stay_in_order() {
    let mut world = World::new("b11");
    for round in 0..20 {
        let first = round * 5;
        let batches: Vec<_> = (first..first + 5).map(|sequence| of(P, sequence, 1).build()).collect();
        let sent: Vec<_> = batches.iter().map(|batch| world.client.send_batch(TOPIC, 0, -1, batch)).collect();
        for (offset, correlation) in (first..).zip(sent) {
            let produced = world.client.receive_produced(correlation);
            assert_eq!((produced.error, produced.base_offset), (0, i64::from(offset)));
        }
    }
}

#[test]
fn eos_b14_without_acks_a_retry_is_dropped_in_silence_and_a_gap_closes_the_connection() {
    let mut world = World::new("b14");
    world.send(of(P, 0, 3));
    world.client.send_batch(TOPIC, 0, 0, &of(P, 0, 3).build());
    assert_eq!(world.end(), 3, "the connection is open and nothing was written");
    world.client.send_batch(TOPIC, 0, 0, &of(P, 3, 1).build());
    world.await_end(4);
    world.client.send_batch(TOPIC, 0, 0, &of(P, 9, 1).build());
    assert!(world.client.is_closed());
    assert_eq!(Client::connect(world.broker.address).end(TOPIC, 0), 4);
}

/// Also IDP-18: without a producer id there is nothing to check.
#[test]
fn eos_b16_batches_of_nobody_are_all_written() {
    let mut world = World::new("b16");
    for offset in 0..5 {
        assert_eq!(world.send(plain(1)), (0, offset));
    }
    assert_eq!(world.send(of_epoch(-1, -1, 5, 1)), (0, 5), "whatever its sequence");
}

/// Also IDP-19: what happens to one partition does not touch another.
#[test]
fn eos_b17_each_partition_has_its_own_sequences() {
    let mut world = World::new("b17");
    for partition in 0..3 {
        assert_eq!(world.short(TOPIC, partition, of(P, 0, 2)), (0, 0, -1, 0));
    }
    let (gap, good) = (of(P, 9, 1).build(), of(P, 2, 1).build());
    let both = request(-1, &[(TOPIC, 0, Some(&gap[..])), (TOPIC, 2, Some(&good[..]))]);
    let short = |world: &mut World| world.answers(9, &both).iter().map(shortened).collect::<Vec<_>>();
    assert_eq!(short(&mut world), [(45, -1, -1, 0), (0, 2, -1, 0)]);
    assert_eq!(short(&mut world)[1], (0, 2, TIME, 0), "the retry");
    assert_eq!(world.client.end(TOPIC, 2), 3);
}

/// Also IDP-14: a batch that fails for another reason leaves no trace.
#[test]
fn eos_b20_size_comes_before_the_epoch_and_changes_no_state() {
    let mut world = World::with_special("b20", "max.message.bytes", "1000");
    assert_eq!(world.short("special", 0, of_epoch(P, 3, 0, 1)), (0, 0, -1, 0));
    let large = |epoch, sequence| of_epoch(P, epoch, sequence, 1).value(TIME, &[b'x'; 2000]);
    assert_eq!(world.short("special", 0, large(0, 0)), (10, -1, -1, -1));
    assert_eq!(world.short("special", 0, large(3, 1)), (10, -1, -1, -1));
    assert_eq!(world.short("special", 0, of_epoch(P, 3, 1, 1)), (0, 1, -1, 0));
}
