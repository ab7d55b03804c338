//! How a commit is written, inline or through the ring, and what commits have cost.
//!
//! An inline write holds the core for one commit: right while commits take tens of microseconds, since requests pile up
//! in the sockets meanwhile and form the next group. A slow flush must never hold a core: that is what the ring is for.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The setting `corelane.commit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitMode {
    /// Inline while commits are short, else through the ring.
    #[default]
    Auto,
    /// Always inline.
    Inline,
    /// Always through the ring.
    Ring,
}

/// Largest group in bytes that `Auto` writes inline.
pub const INLINE_BYTES_MAX: usize = 64 << 10;
/// `Auto` writes inline while nine in ten of the recent inline commits took no longer than this many µs.
const INLINE_US_MAX: u32 = 150;
/// How many inline commits are remembered.
const RECENT: usize = 32;
/// While `Auto` uses the ring, every so many commits one is written inline, to see whether the disk has become faster;
/// on a disk whose flush takes milliseconds that costs under two parts in a hundred of the core.
const PROBE_EVERY: u32 = 64;

/// What commits have cost so far.
#[derive(Clone, Debug)]
pub struct CommitStats {
    /// Groups written.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes written, padding included.
    pub bytes: u64,
    /// Groups written inline.
    pub inline: u64,
    /// Groups written through the ring.
    pub ring: u64,
    /// Duration of the writes in µs.
    pub commit_us: Histogram<u64>,
}

impl CommitStats {
    fn new() -> Self {
        let commit_us = Histogram::new_with_bounds(1, 60_000_000, 2).expect("these bounds are valid");
        Self { groups: 0, records: 0, bytes: 0, inline: 0, ring: 0, commit_us }
    }
}

/// Decides and counts.
#[derive(Debug)]
pub(super) struct Pace {
    mode: CommitMode,
    recent_us: [u32; RECENT],
    recent_count: usize,
    since_inline: u32,
    pub(super) stats: CommitStats,
}

impl Pace {
    pub(super) fn new(mode: CommitMode) -> Self {
        Self { mode, recent_us: [0; RECENT], recent_count: 0, since_inline: 0, stats: CommitStats::new() }
    }

    /// Whether a small group that is waited for would be written inline now.
    pub(super) fn prefers_inline(&self) -> bool {
        match self.mode {
            CommitMode::Auto => self.is_disk_fast() || self.since_inline >= PROBE_EVERY,
            CommitMode::Inline => true,
            CommitMode::Ring => false,
        }
    }

    /// Whether a group of this size is written inline; one that nobody waits for goes through the ring.
    pub(super) fn is_inline(&self, bytes: usize, urgent: bool) -> bool {
        match self.mode {
            CommitMode::Auto => urgent && bytes <= INLINE_BYTES_MAX && self.prefers_inline(),
            CommitMode::Inline => true,
            CommitMode::Ring => false,
        }
    }

    fn is_disk_fast(&self) -> bool {
        let known = &self.recent_us[..self.recent_count.min(RECENT)];
        let slow = known.iter().filter(|&&us| us > INLINE_US_MAX).count();
        slow * 10 <= RECENT
    }

    pub(super) fn note(&mut self, took: Duration, bytes: usize, records: usize, inline: bool) {
        let us = took.as_micros();
        let stats = &mut self.stats;
        stats.groups += 1;
        stats.records += records as u64;
        stats.bytes += bytes as u64;
        stats.commit_us.saturating_record(u64::try_from(us).unwrap_or(u64::MAX).max(1));
        if inline {
            stats.inline += 1;
            self.remember(u32::try_from(us).unwrap_or(u32::MAX));
        } else {
            stats.ring += 1;
            self.since_inline = self.since_inline.saturating_add(1);
        }
    }

    fn remember(&mut self, us: u32) {
        self.recent_us[self.recent_count % RECENT] = us;
        self.recent_count += 1;
        self.since_inline = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(pace: &mut Pace, us: u64, inline: bool) {
        pace.note(Duration::from_micros(us), 4096, 1, inline);
    }

    #[test]
    fn a_slow_disk_moves_commits_to_the_ring_and_a_fast_one_back() {
        let mut pace = Pace::new(CommitMode::Auto);
        assert!(pace.is_inline(4096, true));
        assert!(!pace.is_inline(4096, false), "nobody waits");
        assert!(!pace.is_inline(INLINE_BYTES_MAX + 1, true), "large");
        for _ in 0..4 {
            note(&mut pace, 2_000, true);
        }
        assert!(!pace.prefers_inline());
        let mut probes = 0;
        for _ in 0..5_000 {
            let inline = pace.is_inline(4096, true);
            probes += usize::from(inline && !pace.is_disk_fast());
            note(&mut pace, 40, inline);
        }
        assert!(probes > 0 && probes <= RECENT, "{probes}");
        assert!(pace.is_disk_fast());
        assert_eq!(pace.stats.groups, 5_004);
        assert_eq!(pace.stats.inline + pace.stats.ring, 5_004);
    }

    #[test]
    fn the_setting_overrules() {
        assert!(!Pace::new(CommitMode::Ring).is_inline(4096, true));
        assert!(Pace::new(CommitMode::Inline).is_inline(1 << 20, false));
    }
}
