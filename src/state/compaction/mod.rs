//! Compaction of a log: which part may be compacted now, which log comes first, which segments become one.
//!
//! ```text
//!  log start      first dirty          first untouchable        end
//!      │─── clean ─────│────── dirty ──────────│── not yet ──────│
//! ```
//! *Dirty* is what no round has looked at for keys yet. A round collects the newest offset of each key of the dirty part
//! ([`offset_map`]) and then writes the segments below its end anew without what was overtaken ([`retention`]).
//!
//! Source: apache/kafka `LogCleanerManager.java`, `LogToClean.java`, `Cleaner.groupSegmentsBySize`.

pub mod offset_map;
pub mod retention;
pub mod transactions;

use std::ops::Range;

use crate::ids::Offset;

/// What is known of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// First offset, as in the name.
    pub base: Offset,
    /// Offset that follows the last one.
    pub end: Offset,
    /// Size of the records.
    pub bytes: u64,
    /// Size of the larger of its two indexes.
    pub index_bytes: u64,
    /// Largest timestamp of the first batch; -1 for none.
    pub first_timestamp: i64,
    /// Largest timestamp; -1 for none.
    pub max_timestamp: i64,
}

/// What the topic's configuration says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionRules {
    /// `min.cleanable.dirty.ratio`.
    pub dirty_ratio_min: f64,
    /// `min.compaction.lag.ms`.
    pub lag_ms_min: i64,
    /// `max.compaction.lag.ms`.
    pub lag_ms_max: i64,
    /// `segment.bytes`: small segments are put together up to this size.
    pub segment_bytes: u64,
    /// `segment.index.bytes`, likewise.
    pub index_bytes: u64,
}

/// One log as it stands.
#[derive(Clone, Copy, Debug)]
pub struct LogFacts<'a> {
    /// Smallest offset that a client may read.
    pub start: Offset,
    /// Where the last round ended; `None` when there was none.
    pub cleaned_to: Option<Offset>,
    /// What lies at or above is not compacted: not stable yet, or still needed as it is for recovery.
    pub untouchable_from: Offset,
    /// The closed segments, oldest first.
    pub closed: &'a [SegmentFacts],
}

/// A log that may be compacted now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Where the dirty part begins.
    pub first_dirty: Offset,
    /// The end of the last segment that may be touched.
    pub end: Offset,
    /// Closed segments below `end`.
    pub segments: usize,
    /// Share of the dirty bytes.
    pub dirty_ratio: f64,
    /// There is enough to do, or it has waited for too long.
    pub is_due: bool,
}

/// Looks for what may be compacted; `None` when nothing dirty may be touched.
///
/// Only whole segments are touched, and the active one never.
#[must_use]
pub fn judge(log: &LogFacts<'_>, rules: &CompactionRules, now_ms: i64) -> Option<Candidate> {
    let first_dirty = first_dirty(log);
    let is_dirty = |segment: &SegmentFacts| segment.end > first_dirty;
    let is_young = |segment: &SegmentFacts| {
        rules.lag_ms_min > 0 && is_dirty(segment) && segment.max_timestamp > now_ms.saturating_sub(rules.lag_ms_min)
    };
    let may_be_touched = |segment: &&SegmentFacts| segment.end <= log.untouchable_from && !is_young(segment);
    let segments = log.closed.iter().take_while(may_be_touched).count();
    let touchable = &log.closed[..segments];
    let end = touchable.last()?.end;
    let clean_bytes: u64 =
        touchable.iter().filter(|segment| segment.base < first_dirty).map(|segment| segment.bytes).sum();
    let dirty_bytes: u64 = touchable.iter().filter(|segment| is_dirty(segment)).map(|segment| segment.bytes).sum();
    if dirty_bytes == 0 {
        return None;
    }
    let dirty_ratio = share(dirty_bytes, clean_bytes + dirty_bytes);
    let oldest = touchable.iter().filter(|segment| is_dirty(segment)).map(|segment| segment.first_timestamp);
    let oldest = oldest.filter(|timestamp| *timestamp > 0).min();
    let has_waited = oldest.is_some_and(|oldest| oldest < now_ms.saturating_sub(rules.lag_ms_max));
    let is_due = has_waited || dirty_ratio > rules.dirty_ratio_min;
    Some(Candidate { first_dirty, end, segments, dirty_ratio, is_due })
}

/// Where the dirty part begins: an end that does not fit the log (records were lost) counts as none.
fn first_dirty(log: &LogFacts<'_>) -> Offset {
    let end = log.closed.last().map_or(log.start, |last| last.end);
    let cleaned_to = log.cleaned_to.filter(|cleaned_to| *cleaned_to <= end);
    cleaned_to.unwrap_or(log.start).max(log.start)
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The due candidate with the largest share of dirty bytes; of equal ones the first.
#[must_use]
pub fn dirtiest<'a>(candidates: impl IntoIterator<Item = &'a Candidate>) -> Option<usize> {
    let due = candidates.into_iter().enumerate().filter(|(_, candidate)| candidate.is_due);
    let mut best: Option<(usize, f64)> = None;
    for (at, candidate) in due {
        if best.is_none_or(|(_, ratio)| candidate.dirty_ratio > ratio) {
            best = Some((at, candidate.dirty_ratio));
        }
    }
    best.map(|(at, _)| at)
}

/// Which neighbouring segments are written as one: together no larger than one segment may be.
///
/// Shapes: `segments` are those below the end of the round, oldest first; the ranges cover all of them, in order.
#[must_use]
pub fn group(segments: &[SegmentFacts], rules: &CompactionRules) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let (mut bytes, mut index_bytes) = (0, 0);
    for (at, segment) in segments.iter().enumerate() {
        let fits = groups.last().is_some_and(|last| {
            let base = segments[last.start].base;
            let spans = i32::try_from(segment.end.0.saturating_sub(1).saturating_sub(base.0)).is_ok();
            bytes + segment.bytes <= rules.segment_bytes
                && index_bytes + segment.index_bytes <= rules.index_bytes
                && spans
        });
        match groups.last_mut() {
            Some(last) if fits => {
                last.end = at + 1;
                bytes += segment.bytes;
                index_bytes += segment.index_bytes;
            }
            _ => {
                groups.push(at..at + 1);
                (bytes, index_bytes) = (segment.bytes, segment.index_bytes);
            }
        }
    }
    groups
}
