//! Producers of one partition against a simple model, and the decision table row by row.

use std::collections::HashMap;

use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::state::eviction::{Eviction, draw_step, line_up_to};
use corelane::state::producers::{
    Appended, BatchIdentity, Ended, Ending, Enlisted, MarkerRefusal, Original, ProducerState, Producers, Refusal,
    Verdict,
};
use corelane::state::window::WINDOW_BATCHES;
use proptest::prelude::*;

const P: ProducerId = ProducerId(7);

fn batch(epoch: i16, base_sequence: i32, count: i32) -> BatchIdentity {
    BatchIdentity {
        producer_id: P,
        epoch: ProducerEpoch(epoch),
        base_sequence: Sequence(base_sequence),
        last_offset_delta: count - 1,
        transactional: false,
    }
}

fn ending(producer_id: ProducerId, epoch: i16, coordinator_epoch: i32) -> Ending {
    Ending { producer_id, epoch: ProducerEpoch(epoch), coordinator_epoch, bumps_epoch: false }
}

/// A partition: its producers and its end.
struct Partition {
    producers: Producers,
    log_end: i64,
    now_ms: i64,
}

impl Partition {
    fn new() -> Self {
        Self { producers: Producers::new(1), log_end: 0, now_ms: 1_000 }
    }

    /// What the owner does: check, give an offset, remember. The coordinator says yes to everything.
    fn append(&mut self, batch: BatchIdentity) -> Result<Verdict, Refusal> {
        self.append_as(batch, Enlisted { holds: true, lowest: None, adds: false })
    }

    fn append_as(&mut self, batch: BatchIdentity, enlisted: Enlisted) -> Result<Verdict, Refusal> {
        let verdict = match batch.transactional {
            true => self.producers.check_transactional(&batch, enlisted)?,
            false => self.producers.check(&batch)?,
        };
        if verdict == Verdict::Append {
            let appended = self.appended();
            self.producers.remember(&batch, &appended, 0);
            self.log_end += i64::from(batch.last_offset_delta) + 1;
        }
        Ok(verdict)
    }

    fn appended(&self) -> Appended {
        Appended { base_offset: Offset(self.log_end), max_timestamp: 10_000 + self.log_end, append_ms: self.now_ms }
    }

    /// Appends a marker of an older protocol.
    fn marker(&mut self, epoch: i16, coordinator_epoch: i32) -> Ended {
        let at = Offset(self.log_end);
        self.log_end += 1;
        self.producers.replay_marker(&ending(P, epoch, coordinator_epoch), at, 2_000)
    }

    /// Appends, and asserts that it was new.
    fn accept(&mut self, batch: BatchIdentity) {
        assert_eq!(self.append(batch), Ok(Verdict::Append), "{batch:?}");
    }

    fn out_of_order(&mut self, batch: BatchIdentity) {
        let before = self.producers.get(P).cloned();
        assert!(matches!(self.append(batch), Err(Refusal::OutOfOrder { .. })), "{batch:?}");
        assert_eq!(self.producers.get(P).cloned(), before, "a refusal changes nothing");
    }

    fn duplicate_at(&mut self, batch: BatchIdentity, base_offset: i64) {
        let original = Original {
            base_offset: Offset(base_offset),
            last_offset: Offset(base_offset + i64::from(batch.last_offset_delta)),
            max_timestamp: 10_000 + base_offset,
        };
        assert_eq!(self.append(batch), Ok(Verdict::Duplicate(original)), "{batch:?}");
    }
}

#[test]
fn d0_batches_without_producer_are_never_held_against_each_other() {
    let mut partition = Partition::new();
    let plain = BatchIdentity { producer_id: ProducerId(-1), ..batch(-1, -1, 1) };
    partition.accept(plain);
    partition.accept(plain);
    assert!(partition.producers.is_empty());
}

#[test]
fn d1_the_last_five_are_duplicates_and_older_ones_out_of_order() {
    let mut partition = Partition::new();
    for index in 0..6 {
        partition.accept(batch(0, index * 3, 3));
    }
    for index in [3, 1, 5, 2, 4, 1] {
        partition.duplicate_at(batch(0, index * 3, 3), i64::from(index) * 3);
    }
    partition.out_of_order(batch(0, 0, 3));
    assert_eq!(partition.log_end, 18);
    partition.accept(batch(0, 18, 1));
}

#[test]
fn d4_d7_d8_epochs() {
    let mut partition = Partition::new();
    partition.accept(batch(0, 0, 1));
    partition.out_of_order(batch(1, 5, 1));
    partition.out_of_order(batch(1, 1, 1));
    partition.accept(batch(1, 0, 1));
    for fenced in [batch(0, 1, 1), batch(0, 0, 1)] {
        assert!(matches!(partition.append(fenced), Err(Refusal::Fenced { current: ProducerEpoch(1), .. })));
    }
    partition.duplicate_at(batch(1, 0, 1), 1);
    partition.accept(batch(1, 1, 1));
}

#[test]
fn d9_an_unknown_producer_may_begin_anywhere() {
    let mut partition = Partition::new();
    partition.accept(batch(0, 7, 8));
    partition.out_of_order(batch(0, 17, 1));
    partition.accept(batch(0, 15, 1));
    partition.out_of_order(batch(0, 0, 1));
}

#[test]
fn d10_d11_after_a_marker_of_a_new_epoch_the_sequence_begins_at_zero() {
    let mut partition = Partition::new();
    partition.accept(batch(0, 0, 2));
    partition.marker(1, 3);
    partition.out_of_order(batch(1, 2, 1));
    partition.accept(batch(1, 0, 1));
    partition.marker(1, 3);
    partition.accept(batch(1, 1, 1));
    assert_eq!(partition.producers.get(P).unwrap().coordinator_epoch, 3);
}

#[test]
fn d13_everything_that_is_neither_next_nor_known() {
    let mut partition = Partition::new();
    partition.accept(batch(0, 0, 3));
    for bad in [batch(0, 0, 2), batch(0, 1, 2), batch(0, 0, 4), batch(0, 4, 1), batch(0, 2, 1)] {
        partition.out_of_order(bad);
    }
    partition.accept(batch(0, 3, 1));
}

fn transactional(epoch: i16, base_sequence: i32) -> BatchIdentity {
    BatchIdentity { transactional: true, ..batch(epoch, base_sequence, 1) }
}

const YES: Enlisted = Enlisted { holds: true, lowest: None, adds: false };
const NO: Enlisted = Enlisted { holds: false, ..YES };

#[test]
fn d2_d3_a_transaction_begins_with_the_coordinators_word() {
    let mut partition = Partition::new();
    let not_enlisted = Err(Refusal::NotEnlisted { producer_id: P });
    assert_eq!(partition.append_as(transactional(1, 0), NO), not_enlisted, "also of a producer that is not known");
    partition.accept(transactional(1, 0));
    assert_eq!(partition.append_as(transactional(1, 1), NO), Ok(Verdict::Append), "it is open here");
    assert_eq!(partition.append_as(transactional(2, 0), NO), not_enlisted, "of that epoch none is open");
    assert!(matches!(partition.append_as(transactional(0, 2), NO), Err(Refusal::Fenced { .. })), "D2 before D3");
    partition.marker(1, 0);
    assert_eq!(partition.append_as(transactional(1, 2), NO), not_enlisted, "the marker has ended it");
    let known = partition.append_as(transactional(1, 1), NO);
    assert!(matches!(known, Ok(Verdict::Duplicate(_))), "D1 before D3");
    partition.accept(transactional(1, 2));
}

#[test]
fn d5_d6_nothing_begins_above_what_was_asked_for() {
    let mut partition = Partition::new();
    let lowest = |lowest, adds| Enlisted { holds: true, lowest: Some(Sequence(lowest)), adds };
    let above = partition.append_as(transactional(0, 5), lowest(3, false));
    assert!(matches!(above, Err(Refusal::OutOfOrder { expected: Sequence(3), .. })));
    let unknown = partition.append_as(transactional(0, 5), lowest(5, true));
    assert!(matches!(unknown, Err(Refusal::OutOfOrder { expected: Sequence(0), .. })), "a new one begins with 0");
    assert_eq!(
        partition.append_as(transactional(0, 5), lowest(5, false)),
        Ok(Verdict::Append),
        "D9 for older versions"
    );
}

#[test]
fn markers_by_protocol_epoch_and_coordinator() {
    let mut partition = Partition::new();
    let refused = |partition: &Partition, epoch, coordinator, bumps_epoch| {
        let ending = Ending { bumps_epoch, ..ending(P, epoch, coordinator) };
        partition.producers.check_marker(&ending).err()
    };
    let fenced = |given| Some(MarkerRefusal::Fenced { given: ProducerEpoch(given), current: ProducerEpoch(3) });
    assert_eq!(refused(&partition, 0, 0, true), None, "of a producer that is not known");
    partition.accept(transactional(3, 0));
    assert_eq!((refused(&partition, 2, 9, false), refused(&partition, 2, 9, true)), (fenced(2), fenced(2)));
    assert_eq!((refused(&partition, 3, 9, false), refused(&partition, 3, 9, true)), (None, fenced(3)));
    assert_eq!((refused(&partition, 4, 9, false), refused(&partition, 4, 9, true)), (None, None));
    partition.marker(3, 5);
    assert_eq!(refused(&partition, 3, 5, true), None, "the same again");
    let old = Some(MarkerRefusal::CoordinatorFenced { given: 4, current: 5 });
    assert_eq!((refused(&partition, 3, 4, false), refused(&partition, 4, 4, true)), (old, old));
}

#[test]
fn what_is_stable_ends_before_the_first_transaction_whose_end_is_not_readable() {
    let mut producers = Producers::new(1);
    let open = |producers: &mut Producers, id, at| {
        let batch = BatchIdentity { producer_id: ProducerId(id), ..transactional(0, at) };
        producers.remember(&batch, &Appended { base_offset: Offset(i64::from(at)), max_timestamp: 0, append_ms: 0 }, 0);
    };
    let end = |producers: &mut Producers, id, at| {
        let ended = producers.remember_marker(&ending(ProducerId(id), 0, 0), Offset(at), 0, 0);
        (ended.first_offset.map(|first| first.0), ended.last_stable_offset.0)
    };
    let stable = |producers: &mut Producers, high| producers.stable_below(Offset(high)).0;
    assert_eq!(stable(&mut producers, 3), 3);
    open(&mut producers, 1, 3);
    open(&mut producers, 2, 5);
    open(&mut producers, 1, 6);
    assert_eq!([3, 4, 9].map(|high| stable(&mut producers, high)), [3, 3, 3]);
    assert_eq!(end(&mut producers, 1, 7), (Some(3), 5), "the other is open");
    assert_eq!(stable(&mut producers, 7), 3, "nobody may read the marker yet");
    assert_eq!(stable(&mut producers, 8), 5);
    assert_eq!(end(&mut producers, 1, 8), (None, 5), "once more, and nothing is open");
    assert_eq!(end(&mut producers, 2, 9), (Some(5), 10));
    assert_eq!([9, 10, 11].map(|high| stable(&mut producers, high)), [5, 10, 11]);
    open(&mut producers, 3, 11);
    assert!(!producers.may_be_evicted(ProducerId(3), 0) && producers.expire(i64::MAX) == 2);
    assert_eq!((stable(&mut producers, 20), producers.open_txns().count()), (11, 1));
    assert_eq!((producers.late_txns(-1).count(), producers.late_txns(0).count()), (0, 1));
    assert!(producers.forget(ProducerId(3)));
    assert_eq!(stable(&mut producers, 20), 20, "who is forgotten holds nobody up");
}

/// Offsets of groups are written in a producer's name without a sequence.
#[test]
fn batches_without_sequence_are_told_apart_by_epoch_alone() {
    let mut partition = Partition::new();
    partition.accept(transactional(1, -1));
    partition.accept(transactional(1, -1));
    assert!(matches!(partition.append(transactional(0, -1)), Err(Refusal::Fenced { .. })));
    let state = partition.producers.get(P).unwrap();
    assert_eq!((state.window.batches().len(), state.txn_first_offset()), (0, Some(Offset(0))));
    assert_eq!(partition.marker(2, 1).first_offset, Some(Offset(0)));
    assert!(matches!(partition.append(transactional(1, -1)), Err(Refusal::Fenced { .. })));
}

#[test]
fn d14_no_writes_beside_an_open_transaction() {
    let mut partition = Partition::new();
    partition.accept(BatchIdentity { transactional: true, ..batch(0, 0, 1) });
    partition.accept(BatchIdentity { transactional: true, ..batch(0, 1, 1) });
    assert_eq!(partition.producers.get(P).unwrap().txn_first_offset(), Some(Offset(0)));
    assert!(matches!(partition.append(batch(0, 2, 1)), Err(Refusal::InvalidTxnState { .. })));
    partition.accept(BatchIdentity { producer_id: ProducerId(8), ..batch(0, 2, 1) });
    partition.marker(0, 0);
    partition.accept(batch(0, 2, 1));
}

#[test]
fn sequences_wrap_after_31_bits() {
    let mut partition = Partition::new();
    partition.accept(batch(0, i32::MAX - 1, 4));
    partition.duplicate_at(batch(0, i32::MAX - 1, 4), 0);
    partition.out_of_order(batch(0, 3, 1));
    partition.accept(batch(0, 2, 1));
    let mut partition = Partition::new();
    partition.accept(batch(0, i32::MAX, 1));
    partition.accept(batch(0, 0, 1));
    partition.duplicate_at(batch(0, i32::MAX, 1), 0);
}

#[test]
fn idle_producers_expire_by_append_time_unless_in_a_transaction() {
    let mut partition = Partition::new();
    partition.accept(batch(0, 0, 1));
    partition.accept(BatchIdentity { producer_id: ProducerId(8), transactional: true, ..batch(0, 0, 1) });
    assert_eq!(partition.producers.expire(999), 0);
    partition.producers.touch(P, 5);
    assert_eq!(partition.producers.expire(1_000), 1, "a retry is no append");
    assert!(partition.producers.get(P).is_none());
    assert!(partition.producers.get(ProducerId(8)).is_some());
    partition.accept(batch(0, 9, 1));
}

/// Several tables whose entries together have a limit, as a shard's partitions have.
struct Tables {
    tables: Vec<Producers>,
    eviction: Eviction<(usize, ProducerId)>,
    tick: u64,
}

impl Tables {
    fn new(count: usize) -> Self {
        let tables = (0..count as u64).map(Producers::new).collect();
        Self { tables, eviction: Eviction::default(), tick: 0 }
    }

    fn append(&mut self, table: usize, id: i64, transactional: bool) {
        self.tick += 1;
        let known = self.tables[table].get(ProducerId(id)).and_then(|state| state.window.newest().copied());
        let sequence = known.map_or(0, |newest| newest.last_sequence().0 + 1);
        let identity = BatchIdentity { producer_id: ProducerId(id), transactional, ..batch(0, sequence, 1) };
        let appended = Appended { base_offset: Offset(self.tick as i64), max_timestamp: 0, append_ms: 0 };
        assert_eq!(self.tables[table].remember(&identity, &appended, self.tick), known.is_none());
    }

    fn touch(&mut self, table: usize, id: i64) {
        self.tick += 1;
        self.tables[table].touch(ProducerId(id), self.tick);
    }

    fn end_transaction(&mut self, table: usize, id: i64) {
        self.tick += 1;
        self.tables[table].remember_marker(&ending(ProducerId(id), 0, 0), Offset(i64::MAX - 1), 0, self.tick);
    }

    fn evict(&mut self) -> Option<(usize, i64)> {
        let tables = &self.tables;
        let is_at = |(table, id): (usize, ProducerId), tick| tables[table].may_be_evicted(id, tick);
        let found = self.eviction.next(is_at).or_else(|| {
            let count = tables.iter().map(Producers::len).sum();
            let drawn = tables.iter().flat_map(|table| table.uses().step_by(draw_step(count)));
            let until = |tick| {
                let all = tables.iter().enumerate();
                all.flat_map(move |(at, table)| table.used_until(tick).map(move |(tick, id)| (tick, (at, id))))
            };
            let oldest: Vec<_> = until(line_up_to(drawn.collect())).collect();
            self.eviction.line_up(if oldest.is_empty() { until(u64::MAX).collect() } else { oldest });
            self.eviction.next(is_at)
        })?;
        assert!(self.tables[found.0].forget(found.1));
        Some((found.0, found.1.0))
    }
}

#[test]
fn the_least_recently_used_of_all_tables_is_evicted_first() {
    let mut tables = Tables::new(2);
    tables.append(0, 2, true);
    tables.append(0, 3, false);
    tables.append(1, 4, false);
    tables.append(0, 1, false);
    tables.touch(0, 3);
    assert_eq!(tables.evict(), Some((1, 4)), "the oldest that may go");
    assert_eq!(tables.evict(), Some((0, 1)));
    tables.end_transaction(0, 2);
    assert_eq!((tables.evict(), tables.evict(), tables.evict()), (Some((0, 3)), Some((0, 2)), None));
}

/// The model keeps the entries in the order of their use.
#[test]
fn evictions_agree_with_a_list() {
    let mut state = 7_u64;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % end
    };
    let mut tables = Tables::new(3);
    let mut model: Vec<(usize, i64)> = Vec::new();
    for round in 0..60_000_u32 {
        let table = below(3) as usize;
        let id = below(if round < 20_000 { 3_000 } else { 40 }) as i64;
        match below(10) {
            0..6 => {
                tables.append(table, id, false);
                model.retain(|known| *known != (table, id));
                model.push((table, id));
            }
            6 if model.contains(&(table, id)) => {
                tables.touch(table, id);
                model.retain(|known| *known != (table, id));
                model.push((table, id));
            }
            7 => {
                tables.tables[table].forget(ProducerId(id));
                model.retain(|known| *known != (table, id));
            }
            8 if !model.is_empty() => assert_eq!(tables.evict(), Some(model.remove(0))),
            _ => {}
        }
        assert_eq!(tables.tables.iter().map(Producers::len).sum::<usize>(), model.len());
    }
    let all: Vec<_> = std::iter::from_fn(|| tables.evict()).collect();
    assert_eq!(all, model);
}

#[test]
fn what_is_brought_back_was_used_when_it_was_appended() {
    let mut producers = Producers::new(1);
    for (id, append_ms) in [(1, 30), (2, 10), (3, 20)] {
        let mut live = Producers::new(1);
        let identity = BatchIdentity { producer_id: ProducerId(id), ..batch(0, 0, 1) };
        live.remember(&identity, &Appended { base_offset: Offset(id), max_timestamp: 0, append_ms }, 0);
        producers.restore(ProducerId(id), *live.get(ProducerId(id)).unwrap());
    }
    let replayed = Appended { base_offset: Offset(9), max_timestamp: 0, append_ms: 40 };
    producers.replay(&BatchIdentity { producer_id: ProducerId(2), ..batch(0, 1, 1) }, &replayed);
    let mut order: Vec<_> = producers.used_until(u64::MAX).collect();
    order.sort_unstable();
    assert_eq!(order, [(20, ProducerId(3)), (30, ProducerId(1)), (40, ProducerId(2))]);
}

/// What a checkpoint takes, in order.
fn taken(producers: &mut Producers, count_max: usize) -> Vec<(i64, Option<i64>)> {
    let mut all = Vec::new();
    producers.take_changes(count_max, |id, state| all.push((id.0, state.map(|state| state.last_append_ms))));
    all
}

#[test]
fn what_changed_is_taken_once_and_an_end_before_what_comes_after_it() {
    let mut partition = Partition::new();
    partition.accept(batch(0, 0, 1));
    partition.accept(batch(0, 1, 1));
    assert_eq!(taken(&mut partition.producers, 10), [(P.0, Some(1_000))]);
    assert_eq!(taken(&mut partition.producers, 10), []);
    assert!(partition.producers.forget(P) && !partition.producers.forget(P));
    partition.accept(batch(0, 9, 1));
    partition.accept(BatchIdentity { producer_id: ProducerId(8), ..batch(0, 0, 1) });
    assert!(partition.producers.forget(ProducerId(8)));
    assert_eq!(partition.producers.changed_count(), 3);
    assert_eq!(taken(&mut partition.producers, 1), [(P.0, None)]);
    assert_eq!(taken(&mut partition.producers, 10), [(8, None), (P.0, Some(1_000))]);
    assert_eq!(partition.producers.changed_count(), 0);
}

/// What the notes promise of memory per producer and partition.
#[test]
fn an_entry_is_small() {
    assert!(std::mem::size_of::<corelane::state::producers::ProducerState>() + 24 <= 200);
}

/// A slow and obvious reading of the table: all batches ever accepted, by epoch.
#[derive(Default)]
struct Model {
    accepted: HashMap<i64, Vec<(i16, i32, i32, i64)>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Append,
    Duplicate(i64),
    Fenced,
    OutOfOrder,
}

impl Model {
    fn answer(&self, batch: &BatchIdentity) -> Answer {
        let (epoch, first, count) = (batch.epoch.0, batch.base_sequence.0, batch.last_offset_delta + 1);
        let Some(all) = self.accepted.get(&batch.producer_id.0) else { return Answer::Append };
        let current = all.iter().map(|seen| seen.0).max().unwrap();
        let of_epoch: Vec<_> = all.iter().filter(|seen| seen.0 == current).collect();
        let recent = of_epoch.iter().rev().take(WINDOW_BATCHES);
        if epoch == current
            && let Some(seen) = recent.into_iter().find(|seen| (seen.1, seen.2) == (first, count))
        {
            return Answer::Duplicate(seen.3);
        }
        let last = of_epoch.last().unwrap();
        let next = (i64::from(last.1) + i64::from(last.2)) % (1 << 31);
        match epoch.cmp(&current) {
            std::cmp::Ordering::Less => Answer::Fenced,
            std::cmp::Ordering::Greater if first == 0 => Answer::Append,
            std::cmp::Ordering::Equal if i64::from(first) == next => Answer::Append,
            _ => Answer::OutOfOrder,
        }
    }
}

/// Batches near to what would be right: the next one, a retry, a gap, another epoch.
fn moves() -> impl Strategy<Value = Vec<(i64, i16, i32, i32, bool)>> {
    prop::collection::vec((0_i64..3, -1_i16..=1, -8_i32..4, 1_i32..4, prop::bool::weighted(0.7)), 1..200)
}

fn to_answer(verdict: Result<Verdict, Refusal>) -> Answer {
    match verdict {
        Ok(Verdict::Append) => Answer::Append,
        Ok(Verdict::Duplicate(original)) => Answer::Duplicate(original.base_offset.0),
        Err(Refusal::Fenced { .. }) => Answer::Fenced,
        Err(_) => Answer::OutOfOrder,
    }
}

proptest! {
    #[test]
    fn the_table_agrees_with_the_model_and_replay_with_live(start in prop::sample::select(vec![0, 5, i32::MAX - 9]), moves in moves()) {
        let mut partition = Partition::new();
        let mut model = Model::default();
        let mut log = Vec::new();
        let mut checkpoint = None;
        for (at, (id, epoch_step, step, count, next)) in moves.into_iter().enumerate() {
            let seen = model.accepted.get(&id).and_then(|all| all.last()).copied();
            let (epoch, last, last_count, _) = seen.unwrap_or((0, start, 0, 0));
            let following = Sequence(last).plus(last_count);
            let identity = BatchIdentity {
                producer_id: ProducerId(id),
                epoch: ProducerEpoch(if next { epoch } else { epoch + epoch_step }),
                base_sequence: if next { following } else { Sequence(following.0.wrapping_add(step) & i32::MAX) },
                last_offset_delta: count - 1,
                transactional: false,
            };
            let base_offset = partition.log_end;
            let appended = partition.appended();
            let expected = model.answer(&identity);
            let answer = to_answer(partition.append(identity));
            prop_assert_eq!(&answer, &expected, "{:?}", identity);
            if answer == Answer::Append {
                let entry = (identity.epoch.0, identity.base_sequence.0, count, base_offset);
                model.accepted.entry(id).or_default().push(entry);
                log.push((identity, appended));
            }
            if at == 50 {
                checkpoint = Some(partition.producers.iter().map(|(id, s)| (id, *s)).collect::<Vec<_>>());
            }
        }
        let mut replayed = Producers::new(2);
        log.iter().for_each(|(identity, appended)| replayed.replay(identity, appended));
        assert_same(&replayed, &partition.producers);
        let mut restored = Producers::new(3);
        checkpoint.into_iter().flatten().for_each(|(id, state)| restored.restore(id, state));
        log.iter().for_each(|(identity, appended)| restored.replay(identity, appended));
        assert_same(&restored, &partition.producers);
    }
}

/// What happens between two steps of a checkpoint.
#[derive(Clone, Copy, Debug)]
enum Between {
    Append(i64),
    Forget(i64),
    Step(usize),
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        4 => (0_i64..40).prop_map(Between::Append),
        2 => (0_i64..40).prop_map(Between::Forget),
        2 => (1_usize..8).prop_map(Between::Step),
    ]
}

/// A checkpoint as a reader merges it: of two entries of a producer the later one counts.
#[derive(Default)]
struct Merged(HashMap<i64, ProducerState>);

impl Merged {
    fn take(&mut self) -> impl FnMut(ProducerId, Option<&ProducerState>) {
        |id, state| match state {
            Some(state) => _ = self.0.insert(id.0, *state),
            None => _ = self.0.remove(&id.0),
        }
    }
}

proptest! {
    /// Taken in steps, with appends and forgetting in between: a full one and deltas upon it are the state at their ends.
    #[test]
    fn a_checkpoint_in_steps_is_the_state_at_its_end(rounds in prop::collection::vec(prop::collection::vec(between(), 0..80), 1..6)) {
        let (mut producers, mut merged, mut offset) = (Producers::new(1), Merged::default(), 0);
        let mut sweep = None;
        for (round, moves) in rounds.into_iter().enumerate() {
            if round == 2 {
                // A full one begins anew.
                merged = Merged::default();
                sweep = Some(producers.begin_taking_all());
            }
            for one in moves {
                match one {
                    Between::Append(id) => {
                        let identity = BatchIdentity { producer_id: ProducerId(id), ..batch(0, 0, 1) };
                        let appended = Appended { base_offset: Offset(offset), max_timestamp: offset, append_ms: offset };
                        producers.remember(&identity, &appended, 0);
                        offset += 1;
                    }
                    Between::Forget(id) => _ = producers.forget(ProducerId(id)),
                    Between::Step(count_max) => match &mut sweep {
                        Some(sweep) => _ = producers.take_some_of_all(sweep, count_max, merged.take()),
                        None => producers.take_changes(count_max, merged.take()),
                    },
                }
            }
            if let Some(mut sweep) = sweep.take() {
                while producers.take_some_of_all(&mut sweep, 3, merged.take()) {}
            }
            producers.take_changes(usize::MAX, merged.take());
            prop_assert_eq!(producers.changed_count(), 0);
            let state: HashMap<_, _> = producers.iter().map(|(id, state)| (id.0, *state)).collect();
            prop_assert_eq!(&merged.0, &state);
        }
    }

    /// A scan in steps forgets exactly those that are idle, whatever comes and goes meanwhile.
    #[test]
    fn a_scan_in_steps_forgets_the_idle_ones(old in prop::collection::btree_set(0_i64..60, 0..60), moves in prop::collection::vec(between(), 0..60)) {
        let mut producers = Producers::new(1);
        let append = |producers: &mut Producers, id, append_ms| {
            let identity = BatchIdentity { producer_id: ProducerId(id), ..batch(0, 0, 1) };
            producers.remember(&identity, &Appended { base_offset: Offset(0), max_timestamp: 0, append_ms }, 0);
        };
        (0..60).for_each(|id| append(&mut producers, id, if old.contains(&id) { 5 } else { 50 }));
        let mut expected: std::collections::BTreeSet<_> = (0..60).filter(|id| !old.contains(id)).collect();
        let mut sweep = producers.sweep();
        for one in moves {
            match one {
                Between::Append(id) => {
                    append(&mut producers, id, 50);
                    expected.insert(id);
                }
                Between::Forget(id) => {
                    producers.forget(ProducerId(id));
                    expected.remove(&id);
                }
                Between::Step(count_max) => _ = producers.expire_some(&mut sweep, count_max, 10),
            }
        }
        while producers.expire_some(&mut sweep, 7, 10).is_some() {}
        let left: std::collections::BTreeSet<_> = producers.iter().map(|(id, _)| id.0).collect();
        prop_assert_eq!(left, expected);
    }
}

/// A replay from a checkpoint may begin before it; what the checkpoint holds is not remembered twice.
fn assert_same(left: &Producers, right: &Producers) {
    let sorted = |producers: &Producers| {
        let mut all: Vec<_> = producers.iter().map(|(id, state)| (id, *state)).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    };
    assert_eq!(sorted(left), sorted(right));
}
