//! What tests and simulator share: a disk in memory, an executor with a virtual clock, dice.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod dice;
pub mod memory_disk;
pub mod mini_host;
