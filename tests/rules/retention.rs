//! What retention lets go, against a log that is deleted from as Apache Kafka does it: one pass after another, segment by
//! segment.

use corelane::ids::Offset;
use corelane::state::retention::{Bounds, Candidate, Decision, Limits, decide};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Segment {
    records: i64,
    bytes: u64,
    newest_ms: i64,
}

#[derive(Clone, Debug)]
struct Case {
    segments: Vec<Segment>,
    /// Offset of the first segment.
    base: i64,
    start: i64,
    high_watermark: i64,
    limits: Limits,
    now_ms: i64,
}

impl Case {
    fn candidates(&self) -> Vec<Candidate> {
        let mut base = self.base;
        let mut candidates = Vec::new();
        for segment in &self.segments {
            candidates.push(Candidate { base: Offset(base), bytes: segment.bytes, newest_ms: Some(segment.newest_ms) });
            base += segment.records;
        }
        candidates
    }

    fn end(&self) -> i64 {
        self.base + self.segments.iter().map(|segment| segment.records).sum::<i64>()
    }

    fn bounds(&self) -> Bounds {
        Bounds { start: Offset(self.start), high_watermark: Offset(self.high_watermark), end: Offset(self.end()) }
    }

    fn decide(&self) -> Decision {
        decide(&self.candidates(), &self.bounds(), &self.limits, self.now_ms)
    }
}

fn case() -> impl Strategy<Value = Case> {
    let segment = (1..4_i64, 1..40_u64, 0..100_i64);
    let segment = segment.prop_map(|(records, bytes, newest_ms)| Segment { records, bytes, newest_ms });
    let limits = (prop::option::of(0..150_u64), prop::option::of(0..100_i64));
    let limits = limits.prop_map(|(bytes, age_ms)| Limits { bytes, age_ms });
    (vec(segment, 0..7), any::<bool>(), 0..50_i64, 0..30_i64, 0..6_i64, limits, 0..200_i64).prop_map(
        |(mut segments, is_empty, base, begun, unreadable, limits, now_ms)| {
            if is_empty {
                segments.push(Segment { records: 0, bytes: 0, newest_ms: 0 });
            }
            let mut case = Case { segments, base, start: 0, high_watermark: 0, limits, now_ms };
            case.high_watermark = (case.end() - unreadable).max(base);
            case.start = (base + begun).min(case.high_watermark);
            case
        },
    )
}

/// A log that is really deleted from.
struct Model {
    /// Base, bytes, newest.
    segments: Vec<(i64, u64, i64)>,
    start: i64,
    high_watermark: i64,
    end: i64,
}

impl Model {
    fn of(case: &Case) -> Self {
        let segments = case.candidates().iter().map(|one| (one.base.0, one.bytes, one.newest_ms.unwrap())).collect();
        Self { segments, start: case.start, high_watermark: case.high_watermark, end: case.end() }
    }

    fn pass(&mut self, mut goes: impl FnMut((i64, u64, i64), Option<i64>) -> bool) {
        let mut count = 0;
        while count < self.segments.len() {
            let next = self.segments.get(count + 1).map(|next| next.0);
            let is_empty_end = next.is_none() && self.segments[count].1 == 0;
            if self.high_watermark < next.unwrap_or(self.end) || is_empty_end || !goes(self.segments[count], next) {
                break;
            }
            count += 1;
        }
        if count == self.segments.len() && count > 0 {
            self.segments.push((self.end, 0, 0));
        }
        self.segments.drain(..count);
        if count > 0 {
            self.start = self.start.max(self.segments[0].0);
        }
    }

    fn delete(&mut self, limits: &Limits, now_ms: i64) {
        let start = self.start;
        self.pass(|_, next| next.is_some_and(|next| next <= start));
        let bytes: u64 = self.segments.iter().map(|segment| segment.1).sum();
        if let Some(mut excess) = limits.bytes.and_then(|limit| bytes.checked_sub(limit)) {
            self.pass(|(_, bytes, _), _| {
                let goes = excess >= bytes;
                excess -= if goes { bytes } else { 0 };
                goes
            });
        }
        if let Some(age_ms) = limits.age_ms {
            self.pass(|(_, _, newest_ms), _| now_ms - newest_ms > age_ms);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_log_begins_where_it_does_after_kafkas_passes(case in case()) {
        let mut model = Model::of(&case);
        model.delete(&case.limits, case.now_ms);
        let start = match case.decide() {
            Decision::Keep => case.start,
            Decision::BeginAt(start) => start.0,
            Decision::HowOld(at) => panic!("{at} is known"),
        };
        prop_assert_eq!(start, model.start);
        prop_assert!(start <= case.high_watermark && start >= case.start);
    }

    #[test]
    fn what_is_left_stays(case in case()) {
        let Decision::BeginAt(start) = case.decide() else { return Ok(()) };
        let mut left = case.clone();
        left.start = start.0;
        while left.segments.len() > 1 && left.base + left.segments[0].records <= start.0 {
            left.base += left.segments.remove(0).records;
        }
        if start.0 == left.end() && left.segments.iter().any(|segment| segment.bytes > 0) {
            left.base = left.end();
            left.segments = vec![Segment { records: 0, bytes: 0, newest_ms: 0 }];
        }
        prop_assert_eq!(left.decide(), Decision::Keep);
    }

    /// The age of a segment is asked for only where it matters, one after another, and the answer is the same.
    #[test]
    fn ages_that_are_told_on_request_change_nothing(case in case()) {
        let known = case.candidates();
        let mut told = known.clone();
        told.iter_mut().for_each(|one| one.newest_ms = None);
        let decision = loop {
            match decide(&told, &case.bounds(), &case.limits, case.now_ms) {
                Decision::HowOld(at) => {
                    prop_assert!(told[at].newest_ms.is_none() && case.limits.age_ms.is_some());
                    told[at].newest_ms = known[at].newest_ms;
                }
                decided => break decided,
            }
        };
        prop_assert_eq!(decision, case.decide());
        let needed = match decision {
            Decision::BeginAt(start) => known.iter().filter(|one| one.base < start).count(),
            _ => 0,
        };
        prop_assert!(told[(needed + 1).min(told.len())..].iter().all(|one| one.newest_ms.is_none()));
    }
}

#[test]
fn a_log_whose_records_are_all_below_its_start_gets_rid_of_its_last_file() {
    let case = Case {
        segments: vec![Segment { records: 3, bytes: 10, newest_ms: 0 }],
        base: 5,
        start: 8,
        high_watermark: 8,
        limits: Limits::default(),
        now_ms: 0,
    };
    assert_eq!(case.decide(), Decision::BeginAt(Offset(8)));
}
