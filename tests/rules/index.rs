//! Indexes against a list of all batches, and against the files that Kafka made of the same batches.

use corelane::ids::Offset;
use corelane::log::index::{IndexDamage, IndexRules, Indexes, OffsetIndex, TimeIndex};
use corelane::log::scan::{BatchFacts, Scanner};
use proptest::prelude::*;

use crate::sample::{Sample, fixture, samples};

fn rules(interval_bytes: u32) -> IndexRules {
    IndexRules { interval_bytes, ..IndexRules::default() }
}

fn facts(samples: &[Sample]) -> Vec<BatchFacts> {
    let mut position = 0;
    let at = |sample: &Sample| {
        let facts = sample.facts(position);
        position = facts.end_position();
        facts
    };
    samples.iter().map(at).collect()
}

fn build(base: i64, interval_bytes: u32, batches: &[BatchFacts]) -> Indexes {
    let mut indexes = Indexes::new(Offset(base), rules(interval_bytes));
    batches.iter().for_each(|batch| indexes.note_batch(batch));
    indexes
}

fn shapes() -> impl Strategy<Value = Vec<(Vec<i64>, usize)>> {
    prop::collection::vec((prop::collection::vec(0_i64..50, 1..4), 0_usize..200), 1..40)
}

#[test]
fn the_files_are_those_that_kafka_makes_of_the_same_batches() {
    for name in ["kafka-plain", "kafka-gzip"] {
        let log = fixture(&format!("{name}/00000000000000000000.log"));
        let mut indexes = Indexes::new(Offset(0), rules(512));
        let mut scanner = Scanner::new(log.len() as u64, 0, Offset(0));
        scanner.feed(&log, &mut |batch, _| indexes.note_batch(batch));
        indexes.note_newest_timestamp();
        let (index, timeindex) = files(name);
        assert_eq!(indexes.offsets.unwritten().bytes, index, "{name}");
        assert_eq!(indexes.times.unwritten().bytes, timeindex, "{name}");
    }
}

#[test]
fn files_of_kafka_are_read() {
    for (name, end) in [("kafka-plain", 150), ("kafka-gzip", 170)] {
        let (index, timeindex) = files(name);
        let offsets = OffsetIndex::load(Offset(0), &index, u64::MAX, Offset(end)).unwrap();
        let times = TimeIndex::load(Offset(0), &timeindex, Offset(end)).unwrap();
        assert_eq!((offsets.len() * 8, times.len() * 12), (index.len(), timeindex.len()), "{name}");
    }
}

fn files(name: &str) -> (Vec<u8>, Vec<u8>) {
    let of = |suffix: &str| fixture(&format!("{name}/00000000000000000000{suffix}"));
    (of(".index"), of(".timeindex"))
}

#[test]
fn files_that_kafka_left_with_zeros_at_the_end_are_made_anew() {
    let (mut index, mut timeindex) = files("kafka-plain");
    index.resize(index.len() + 80, 0);
    timeindex.resize(timeindex.len() + 120, 0);
    assert_eq!(OffsetIndex::load(Offset(0), &index, u64::MAX, Offset(150)).err(), Some(IndexDamage::Order));
    assert_eq!(TimeIndex::load(Offset(0), &timeindex, Offset(150)).err(), Some(IndexDamage::Order));
    assert_eq!(OffsetIndex::load(Offset(0), &index[1..], u64::MAX, Offset(150)).err(), Some(IndexDamage::Size));
}

#[test]
fn a_full_index_and_a_far_offset_ask_for_a_new_segment() {
    let batches = facts(&samples(0, &vec![(vec![1], 100); 12]));
    let mut indexes = Indexes::new(Offset(0), IndexRules { interval_bytes: 0, index_bytes_max: 80 });
    assert!(indexes.can_hold(Offset(i64::from(i32::MAX))) && !indexes.can_hold(Offset(i64::from(i32::MAX) + 1)));
    let full_at = batches.iter().position(|batch| {
        indexes.note_batch(batch);
        indexes.is_full()
    });
    assert_eq!(full_at, Some(10), "ten entries fit; the first batch has none");
}

proptest! {
    /// The floor is a batch that does not begin behind the offset, and no further back than an interval allows.
    #[test]
    fn lookup_finds_a_floor(shapes in shapes(), interval in 0_u32..400, base in 0_i64..1000) {
        let batches = facts(&samples(base, &shapes));
        let indexes = build(base, interval, &batches);
        let end = batches.last().unwrap().next_offset();
        for offset in base..end.0 {
            let position = indexes.offsets.lookup(Offset(offset));
            let floor = batches.iter().find(|batch| batch.position == position).expect("a batch begins there");
            prop_assert!(floor.base_offset.0 <= offset);
            let holder = batches.iter().find(|batch| batch.last_offset.0 >= offset).unwrap();
            let largest = u64::from(batches.iter().map(|batch| batch.bytes).max().unwrap());
            prop_assert!(holder.position - position <= u64::from(interval) + 2 * largest);
        }
    }

    /// Nothing before the floor of a time is late enough.
    #[test]
    fn lookup_by_time_passes_nothing_over(shapes in shapes(), interval in 0_u32..400, time in 0_i64..60, from in 0_i64..60) {
        let batches = facts(&samples(0, &shapes));
        let indexes = build(0, interval, &batches);
        let floor = indexes.lookup_time(time, Offset(from));
        let first = batches.iter().find(|batch| batch.max_timestamp >= time && batch.last_offset.0 >= from);
        if let Some(first) = first {
            prop_assert!(floor <= first.position);
        }
    }

    /// What reached the files before a crash does not matter: the headers behind it give the same entries again.
    #[test]
    fn part_of_the_files_and_the_headers_give_the_same_indexes(
        shapes in shapes(), interval in 0_u32..400, offsets_kept in 0_usize..40, times_kept in 0_usize..40, flush_at in 0_usize..40,
    ) {
        let batches = facts(&samples(0, &shapes));
        let mut whole = Indexes::new(Offset(0), rules(interval));
        for (at, batch) in batches.iter().enumerate() {
            whole.note_batch(batch);
            if at == flush_at {
                whole.note_newest_timestamp();
            }
        }
        let (index, timeindex) = (whole.offsets.unwritten().bytes, whole.times.unwritten().bytes);
        let end = batches.last().unwrap();
        let offsets = &index[..(offsets_kept * 8).min(index.len())];
        let times = &timeindex[..(times_kept * 12).min(timeindex.len())];
        let mut found = Indexes::loaded(
            Offset(0),
            rules(interval),
            OffsetIndex::load(Offset(0), offsets, end.end_position(), end.next_offset()).unwrap(),
            TimeIndex::load(Offset(0), times, end.next_offset()).unwrap(),
        );
        let from = found.position_of_newest();
        batches.iter().filter(|batch| batch.position >= from).for_each(|batch| found.note_batch(batch));
        found.forget_written();
        prop_assert_eq!(found.newest_timestamp(), whole.newest_timestamp());
        prop_assert_eq!(found.offsets.unwritten().bytes, index);
        let (mut found, mut whole) = (found, whole);
        found.note_newest_timestamp();
        whole.note_newest_timestamp();
        prop_assert_eq!(found.times.last(), whole.times.last());
    }

    /// Entries are handed out once each, in pieces that make up the whole file.
    #[test]
    fn pieces_make_up_the_files(shapes in shapes(), interval in 0_u32..400, every in 1_usize..10) {
        let batches = facts(&samples(0, &shapes));
        let mut indexes = Indexes::new(Offset(0), rules(interval));
        let (mut index, mut timeindex) = (Vec::new(), Vec::new());
        for (at, batch) in batches.iter().enumerate() {
            indexes.note_batch(batch);
            if at % every == 0 || at + 1 == batches.len() {
                let (offsets, times) = (indexes.offsets.unwritten(), indexes.times.unwritten());
                prop_assert_eq!((offsets.position, times.position), (index.len() as u64, timeindex.len() as u64));
                index.extend(&offsets.bytes);
                timeindex.extend(&times.bytes);
                indexes.offsets.mark_written(offsets.entries);
                indexes.times.mark_written(times.entries);
            }
        }
        prop_assert!(indexes.is_written());
        indexes.forget_written();
        prop_assert_eq!(indexes.offsets.unwritten().bytes, index);
        prop_assert_eq!(indexes.times.unwritten().bytes, timeindex);
    }
}
