//! Decisions: no I/O, clock, async, threads or randomness. Time comes in as `now_ms`.

pub mod groups;
pub mod producers;
pub mod window;
