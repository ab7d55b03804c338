//! Which segments of a log may go because of their age or the size of the log, and where the log begins then.
//!
//! Guarantees: segments go from the oldest on, whole; the log start never moves back and never above the high watermark;
//! the decision is that of Apache Kafka for the same segments.
//!
//! ```text
//!  below the log start │ too many bytes │ too old │ kept …            (in this order, each on what the one before left)
//!                                                 └─ new log start: the base of the first segment kept, or the end
//! ```
//! Source: apache/kafka `UnifiedLog.deleteOldSegments`, `deletableSegments`.

use crate::ids::Offset;

/// One segment, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Offset of its first record, as in its name.
    pub base: Offset,
    /// Its size.
    pub bytes: u64,
    /// Time of its newest record, milliseconds since 1970; `None` while nobody has looked.
    pub newest_ms: Option<i64>,
}

/// Where a log begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Smallest offset that a client may read.
    pub start: Offset,
    /// First offset that is not readable yet.
    pub high_watermark: Offset,
    /// Offset that the next record gets.
    pub end: Offset,
}

/// What a topic keeps; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `retention.bytes`.
    pub bytes: Option<u64>,
    /// `retention.ms`.
    pub age_ms: Option<i64>,
}

/// What is to be done about a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing may go.
    Keep,
    /// It depends on how old the segment at this place is: to be asked again with that.
    HowOld(usize),
    /// Everything below goes: the log begins here.
    BeginAt(Offset),
}

/// Decides about one log.
///
/// Shapes: `segments` are all of the log, oldest first; the last one is appended to.
/// Units: milliseconds since 1970, bytes.
#[must_use]
pub fn decide(segments: &[Candidate], bounds: &Bounds, limits: &Limits, now_ms: i64) -> Decision {
    let log = Log { segments, bounds };
    let mut gone = log.below_start();
    gone += log.too_large(gone, limits.bytes);
    while let Some(oldest) = log.may_go(gone) {
        match (limits.age_ms, oldest.newest_ms) {
            (None, _) => break,
            (Some(_), None) => return Decision::HowOld(gone),
            (Some(age_ms), Some(newest_ms)) if now_ms.saturating_sub(newest_ms) > age_ms => gone += 1,
            (Some(_), Some(_)) => break,
        }
    }
    match gone.checked_sub(1) {
        Some(last) => Decision::BeginAt(log.end_of(last).max(bounds.start)),
        None => Decision::Keep,
    }
}

struct Log<'a> {
    segments: &'a [Candidate],
    bounds: &'a Bounds,
}

impl Log<'_> {
    fn end_of(&self, at: usize) -> Offset {
        self.segments.get(at + 1).map_or(self.bounds.end, |next| next.base)
    }

    /// The segment at `at` if it is wholly readable and not an empty one to append to.
    fn may_go(&self, at: usize) -> Option<&Candidate> {
        let is_last = at + 1 >= self.segments.len();
        let is_readable = self.end_of(at) <= self.bounds.high_watermark;
        self.segments.get(at).filter(|segment| is_readable && !(is_last && segment.bytes == 0))
    }

    /// Kafka leaves the last segment here, also where DeleteRecords has emptied it.
    fn below_start(&self) -> usize {
        (0..).take_while(|at| self.may_go(*at).is_some() && self.end_of(*at) <= self.bounds.start).count()
    }

    /// Segments from `from` on without which the log is still as large as it may be.
    fn too_large(&self, from: usize, limit: Option<u64>) -> usize {
        let bytes: u64 = self.segments[from..].iter().map(|segment| segment.bytes).sum();
        let Some(mut excess) = limit.and_then(|limit| bytes.checked_sub(limit)) else { return 0 };
        let mut goes = |at| match self.may_go(at).and_then(|segment| excess.checked_sub(segment.bytes)) {
            Some(less) => {
                excess = less;
                true
            }
            None => false,
        };
        (from..).take_while(|at| goes(*at)).count()
    }
}
