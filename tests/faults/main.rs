//! Faults, one at a time and all of them: each file of a data folder damaged in each way, the program ended at each step of
//! writing, each kind of call failing. What may come of it is stated in each module; the tables are printed.
//!
//! | file | what |
//! |---|---|
//! | `world.rs` | a data folder with something of everything in it, and what was promised about it |
//! | `files.rs` | every file missing, cut, zeroed, flipped, unreadable |
//! | `points.rs` | every step of writing × killed, torn, flipped |
//! | `errors.rs` | every call that fails while the broker serves |
//!
//! `FAULTS=all` runs every case, which takes minutes; without it a part of them is run.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

#[path = "../sim/cluster.rs"]
#[allow(dead_code, reason = "the simulator uses all of it")]
mod cluster;
#[path = "../support/mod.rs"]
mod support;

mod errors;
mod files;
mod history;
mod points;
mod world;

/// Every case is run, not a part of them.
fn runs_all() -> bool {
    std::env::var("FAULTS").is_ok_and(|value| value == "all")
}
