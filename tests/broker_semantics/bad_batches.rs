//! Batches that are refused at the door: error, and whether the answer tells the log start.

use corelane::ids::{Offset, Sequence};
use corelane::wire::batch::{Attributes, Codec, set_crc};
use corelane::wire::builder::BatchBuilder;

use super::harness::batches::whole;
use super::world::*;

const P: i64 = 70_000;
/// Kafka leaves out the log start beside errors of frame, size and checksum, and tells it beside those of content.
const UNTOLD: i64 = -1;
const TOLD: i64 = 0;

impl World {
    /// The records must be refused like this, leave nothing behind, and not disturb the other partition of the request.
    fn refuses(&mut self, topic: &str, records: Option<&[u8]>, error: i16, log_start: i64) {
        let (end, other_end) = (self.client.end(topic, 0), self.client.end(TOPIC, 2));
        let good = plain(1).build();
        let answers = self.answers(9, &request(-1, &[(topic, 0, records), (TOPIC, 2, Some(&good[..]))]));
        assert_eq!(shortened(&answers[0]), (error, -1, -1, log_start), "{:?}", answers[0].error_message);
        assert_eq!(shortened(&answers[1]), (0, other_end, -1, 0));
        assert_eq!(self.client.end(topic, 0), end);
    }

    /// Bytes in which no batch can be told make the whole request be refused, as in Kafka, whichever comes first.
    fn refuses_all(&mut self, records: &[u8]) {
        let ends = [0, 2].map(|partition| self.client.end(TOPIC, partition));
        let good = plain(1).build();
        let mut parts = [(TOPIC, 0, Some(records)), (TOPIC, 2, Some(&good[..])), ("nope", 0, Some(&good[..]))];
        for acks in [-1, 2] {
            parts.reverse();
            let answers = self.answers(9, &request(acks, &parts));
            assert_eq!(errors(&answers), [2, 2, 2]);
            assert!(answers.iter().all(|one| one.error_message.is_some() && one.log_start_offset == UNTOLD));
        }
        assert_eq!([0, 2].map(|partition| self.client.end(TOPIC, partition)), ends);
    }

    fn refuses_batch(&mut self, batch: BatchBuilder, error: i16, log_start: i64) {
        self.refuses(TOPIC, Some(&batch.build()), error, log_start);
    }
}

/// Also WIRE-20 and WIRE-21.
#[test]
fn eos_b21_what_is_no_single_good_batch_is_refused() {
    let mut world = World::new("b21");
    let good = plain(3).build();
    world.refuses(TOPIC, None, 87, UNTOLD);
    world.refuses(TOPIC, Some(b""), 87, UNTOLD);
    world.refuses(TOPIC, Some(b"abc"), 87, UNTOLD);
    world.refuses_all(&[0; 61]);
    world.refuses(TOPIC, Some(&good[..good.len() - 1]), 87, UNTOLD);
    world.refuses(TOPIC, Some(&[&good[..], &good[..]].concat()), 87, UNTOLD);
    world.refuses(TOPIC, Some(&[&good[..], &[0; 61]].concat()), 2, UNTOLD);
    for magic in [0, 1] {
        world.refuses_batch(plain(1).header(|header| header.magic = magic), 87, UNTOLD);
    }
    for magic in [3, -1] {
        world.refuses_all(&plain(1).header(|header| header.magic = magic).build());
    }
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    world.refuses(TOPIC, Some(&flipped), 2, UNTOLD);
    world.refuses_batch(plain(1).header(|header| header.base_offset = Offset(5)), 87, TOLD);
}

/// A batch whose length field says something else, of any format.
fn with_length(magic: u8, length: i32) -> Vec<u8> {
    let mut batch = plain(3).build().to_vec();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[16] = magic;
    batch
}

/// What follows the one batch is looked at as Kafka's reader of batches does: first its length, then its format, then
/// whether it is all there.
#[test]
fn eos_b21_lengths_decide_what_a_second_batch_is() {
    let mut world = World::new("b21-lengths");
    let good = plain(3).build();
    let whole = good.len() as i32 - 12;
    for magic in [0, 1, 2] {
        for length in [-1, 0, 13] {
            world.refuses_all(&with_length(magic, length));
            world.refuses(TOPIC, Some(&[&good[..], &with_length(magic, length)].concat()), 2, UNTOLD);
        }
        for length in [14, 48, 49, whole] {
            world.refuses(TOPIC, Some(&[&good[..], &with_length(magic, length)].concat()), 87, UNTOLD);
        }
        let cut_off = [&good[..], &with_length(magic, whole + 1)].concat();
        assert_eq!(world.answer(TOPIC, 0, &cut_off).error_code, 0, "format {magic}");
        world.refuses(TOPIC, Some(&with_length(magic, whole + 1)), 87, UNTOLD);
    }
    for length in [14, 22, 50] {
        world.refuses(TOPIC, Some(&with_length(1, length)), 87, UNTOLD);
    }
    world.refuses(TOPIC, Some(&with_length(2, 14)), 2, UNTOLD);
}

/// Kafka says in words what is wrong with single records, and with bytes that are no batch; clients have their own words
/// for the rest.
#[test]
fn only_some_reasons_are_told_in_words() {
    let mut world = World::with_special("words", "cleanup.policy", "compact");
    let mut broken = plain(3).build().to_vec();
    *broken.last_mut().unwrap() ^= 1;
    let good = plain(3).build();
    let zeros = [0; 61];
    let mut has_words = |topic, records: &[u8]| {
        let answer = world.answer(topic, 0, records);
        assert_ne!(answer.error_code, 0);
        answer.error_message.is_some()
    };
    assert!(has_words(TOPIC, &zeros) && has_words(TOPIC, &with_length(7, 100)) && has_words("special", &good));
    for silent in [&b""[..], b"abc", &broken, &[&good[..], &zeros].concat(), &[&good[..], &good].concat()] {
        assert!(!has_words(TOPIC, silent));
    }
    let gap = [of(P, 0, 1), of(P, 5, 1)].map(|batch| world.answer(TOPIC, 0, &batch.build()));
    assert_eq!((gap[1].error_code, gap[1].error_message.is_some()), (45, false));
}

/// Attribute bits that mean nothing are kept, unless the attributes are written anew.
#[test]
fn unknown_attribute_bits_go_where_the_broker_sets_the_time() {
    let mut world = World::with_special("bits", "message.timestamp.type", "LogAppendTime");
    let batch = || plain(1).header(|header| header.attributes = Attributes(0x100)).build();
    for (topic, expected) in [(TOPIC, 0x100), ("special", 1 << 3)] {
        assert_eq!(world.answer(topic, 0, &batch()).error_code, 0);
        assert_eq!(whole(&world.client.read_all(topic, 0))[0].facts.attributes, expected);
    }
}

/// Kafka answers -1, or not at all; these are refused like other bad content.
#[test]
fn eos_b21_payload_that_cannot_be_read_is_refused() {
    let mut world = World::new("b21-payload");
    for codec in 1..=7 {
        let mut batch = plain(3).build();
        batch[22] = codec; // the low byte of the attributes
        set_crc(&mut batch);
        world.refuses(TOPIC, Some(&batch), 87, TOLD);
    }
}

/// A second batch that was cut off is dropped, as in Kafka.
#[test]
fn the_start_of_a_second_batch_is_dropped() {
    let mut world = World::new("rest");
    let good = plain(3).build();
    for (offset, rest) in [(0, &b"abc"[..]), (3, &good[..good.len() - 3])] {
        assert_eq!(shortened(&world.answer(TOPIC, 0, &[&good[..], rest].concat())), (0, offset, -1, 0));
    }
}

/// Also IDP-18.
#[test]
fn eos_b22_counts_and_sequences_must_fit() {
    let mut world = World::new("b22");
    for (count, last_delta) in [(0, 2), (0, -1), (2, 2), (3, 5), (3, -1), (4, 3)] {
        let batch = plain(3).header(|header| {
            header.records_count = count;
            header.last_offset_delta = last_delta;
        });
        world.refuses_batch(batch, 87, TOLD);
    }
    for sequence in [-1, i32::MIN] {
        world.refuses_batch(of(P, 0, 1).header(|header| header.base_sequence = Sequence(sequence)), 87, TOLD);
    }
}

#[test]
fn eos_b23_clients_write_no_control_batches() {
    let mut world = World::new("b23");
    let control = |batch: BatchBuilder| batch.header(|header| header.attributes = Attributes(1 << 5));
    world.refuses_batch(control(plain(1)), 87, TOLD);
    world.refuses_batch(control(of(P, 0, 1)), 87, TOLD);
}

#[test]
fn eos_b24_every_record_without_a_key_is_named_where_the_topic_compacts() {
    let mut world = World::with_special("b24", "cleanup.policy", "compact");
    let keyed = |key: Option<&'static [u8]>| corelane::wire::builder::Record { key, ..Default::default() };
    let keys = [None, Some(&b"k"[..]), None];
    let batch = keys.into_iter().fold(of(P, 0, 0), |batch, key| batch.record(keyed(key))).build();
    let answer = world.answer("special", 0, &batch);
    assert_eq!(shortened(&answer), (87, -1, -1, TOLD));
    let named: Vec<_> = answer.record_errors.iter().map(|one| one.batch_index).collect();
    assert_eq!(named, [0, 2]);
    assert!(answer.error_message.is_some() && answer.record_errors[0].batch_index_error_message.is_some());
    let good = of(P, 0, 0).record(keyed(Some(b"k")));
    assert_eq!(world.short("special", 0, good), (0, 0, -1, 0), "the sequence has not moved");
}

/// Also LOG-12.
#[test]
fn eos_b25_a_timestamp_too_far_ahead_is_refused() {
    let mut world = World::new("b25");
    let now = now_ms();
    let batch = BatchBuilder::new().value(now, b"a").value(now + 7_200_000, b"b").build();
    let answer = world.answer(TOPIC, 0, &batch);
    assert_eq!(shortened(&answer), (32, -1, -1, TOLD));
    assert_eq!(answer.record_errors.iter().map(|one| one.batch_index).collect::<Vec<_>>(), [1]);
    assert_eq!(world.send(BatchBuilder::new().value(now + 1_800_000, b"a")), (0, 0));
    assert_eq!(world.send(BatchBuilder::new().value(-1, b"a")), (0, 1), "no timestamp is none too far");
}

/// On a topic of the client's time the claim is corrected.
#[test]
fn clients_do_not_claim_the_brokers_time() {
    let mut world = World::with_special("claim", "message.timestamp.type", "LogAppendTime");
    let claim = || plain(2).header(|header| header.attributes = Attributes(1 << 3)).build();
    let answer = world.answer("special", 0, &claim());
    assert_eq!(shortened(&answer), (32, -1, -1, TOLD));
    assert_eq!(answer.record_errors.iter().map(|one| one.batch_index).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(shortened(&world.answer(TOPIC, 0, &claim())), (0, 0, -1, 0));
    let all = world.client.read_all(TOPIC, 0);
    assert_eq!(whole(&all)[0].facts.attributes, 0);
}

#[test]
fn eos_b26_zstd_needs_version_seven() {
    let mut world = World::new("b26");
    let batch = plain(3).codec(Codec::Zstd).build();
    let asked = request(-1, &[(TOPIC, 0, Some(&batch[..]))]);
    for version in 3..=6 {
        assert_eq!(errors(&world.answers(version, &asked)), [76]);
        let two = request(-1, &[(TOPIC, 0, Some(&[&batch[..], &batch[..]].concat()))]);
        assert_eq!(errors(&world.answers(version, &two)), [76], "before their number");
    }
    assert_eq!(errors(&world.answers(7, &asked)), [0]);
}

/// Also WIRE-22.
#[test]
fn a_batch_that_is_too_large_is_refused() {
    let mut world = World::with_special("large", "max.message.bytes", "1000");
    world.refuses("special", Some(&plain(1).value(TIME, &[b'x'; 2000]).build()), 10, UNTOLD);
    let mut world = World::with_special("large-segment", "segment.bytes", "1048576");
    world.client.create_topic("both", 1, &[("segment.bytes", "1048576"), ("max.message.bytes", "4000000")]);
    world.refuses("both", Some(&plain(1).value(TIME, &vec![b'x'; 2_000_000]).build()), 18, UNTOLD);
}
