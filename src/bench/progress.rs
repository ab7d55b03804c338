//! One line that says how it goes, for people who watch: only when standard error is a terminal.

use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::drive::Live;
use crate::runtime::clock;

/// Two lines a second are read well and cost nothing.
const EVERY: Duration = Duration::from_millis(500);
/// How soon the end is seen.
const LOOK: Duration = Duration::from_millis(20);

/// Shows progress until `done`.
pub(super) fn show(live: &Live, end: Duration, done: impl Fn() -> bool) {
    let terminal = std::io::stderr().is_terminal();
    let (mut shown, mut records) = (clock::monotonic(), 0);
    while !done() {
        std::thread::sleep(LOOK);
        let now = clock::monotonic();
        if terminal && now.saturating_sub(shown) >= EVERY {
            let total = live.records.load(Ordering::Relaxed);
            line(total, total - records, now.saturating_sub(shown), live.errors.load(Ordering::Relaxed), end, now);
            (shown, records) = (now, total);
        }
    }
    if terminal {
        // Clears the line, so that the result stands alone.
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn line(total: u64, fresh: u64, took: Duration, errors: u64, end: Duration, now: Duration) {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = fresh as f64 / took.as_secs_f64();
    let left =
        if end == Duration::MAX { String::new() } else { format!(", {} s left", end.saturating_sub(now).as_secs()) };
    let mut out = std::io::stderr();
    // A terminal that is gone is no reason to stop measuring.
    let _ = write!(out, "\r\x1b[K{total} records, {rate:.0}/s, {errors} errors{left}");
    let _ = out.flush();
}
