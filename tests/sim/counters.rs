//! What happened in all runs. A run that shows nothing proves nothing: the important ones must not be zero.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, Default)]
pub struct Counters(BTreeMap<&'static str, u64>);

/// What must have happened in a few hundred runs.
const IMPORTANT: &[&str] = &[
    "runs",
    "operations",
    "batches acknowledged",
    "kills",
    "power cuts",
    "power cuts with unflushed data",
    "clean stops",
    "ended while recovering",
    "ended within a call",
    "cores changed",
    "records deleted by request",
    "topics deleted",
    "topics made",
    "offsets committed",
    "epochs bumped",
    "retries that found their batch",
    "members found again",
    "settings changed",
    "clock stepped",
    "power cuts with unflushed names",
    "derived files spoilt while it was down",
    "lives with failing calls",
    "ended on a recycled file of the commit log",
    "ended with groups in more than one file",
    "ended within a group (between segment and commit log)",
    "ended within the write of a segment (before the commit log)",
    "ended within a checkpoint",
    "ended within the flush of a partition",
    "ended within the making of a segment",
    "partitions found empty at their end",
];

/// What must have happened in a thousand.
const RARE: &[&str] = &[
    "disk full",
    "starts that failed with the disk",
    "ended while checking",
    "ended while stopping",
    "ended within a change of the catalog",
    "ended within a write of the store",
    "ended within a removal",
    "ended within a rename",
    "ended within a truncation",
    "ended within the flush of names",
];

impl Counters {
    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    pub fn one(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn absorb(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add(what, *count));
    }

    /// After so many runs.
    pub fn assert_interesting(&self, runs: u64) {
        let wanted = IMPORTANT.iter().chain(if runs < 1_000 { &[] } else { RARE });
        let missing: Vec<_> = wanted.filter(|what| self.0.get(*what).is_none_or(|count| *count == 0)).collect();
        assert!(missing.is_empty(), "these never happened: {missing:?}");
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, count)| writeln!(into, "{count:>12}  {what}"))
    }
}
