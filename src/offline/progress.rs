//! Says on standard error how far a long command has come: every second on a terminal, else from time to time.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::clock;

const EVERY_ON_A_TERMINAL: Duration = Duration::from_secs(1);
const EVERY_ELSEWHERE: Duration = Duration::from_secs(5);
const MIB: u64 = 1 << 20;

/// Bytes done of bytes to do; shared by all threads of a command.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: AtomicU64,
    done: AtomicU64,
    said: Mutex<Duration>,
    is_terminal: bool,
}

impl Progress {
    /// Nothing done yet.
    #[must_use]
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
            said: Mutex::new(clock::monotonic()),
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// There is more to do.
    pub fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were done.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// More is done; says so when it is time.
    pub fn advance(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Somebody else is just saying something: that will do.
        let Ok(mut said) = self.said.try_lock() else { return };
        let now = clock::monotonic();
        let every = if self.is_terminal { EVERY_ON_A_TERMINAL } else { EVERY_ELSEWHERE };
        if now.saturating_sub(*said) < every {
            return;
        }
        *said = now;
        let total = self.total.load(Ordering::Relaxed).max(done);
        let line = format!("{} {} of {} MiB", self.what, done / MIB, total / MIB);
        let mut out = std::io::stderr();
        // A terminal that is gone is no reason to stop.
        let _ = if self.is_terminal { write!(out, "\r\x1b[K{line}") } else { writeln!(out, "corelane: {line}") };
        let _ = out.flush();
    }

    /// Clears the line, so that the result stands alone.
    pub fn end(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
