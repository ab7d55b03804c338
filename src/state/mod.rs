//! Decisions: no I/O, clock, async, threads or randomness. Time comes in as `now_ms`.

pub mod fetch_sessions;
pub mod producers;
pub mod window;
