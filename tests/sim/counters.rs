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

    pub fn assert_interesting(&self) {
        let missing: Vec<_> =
            IMPORTANT.iter().filter(|what| self.0.get(*what).is_none_or(|count| *count == 0)).collect();
        assert!(missing.is_empty(), "these never happened: {missing:?}");
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, count)| writeln!(into, "{count:>12}  {what}"))
    }
}
