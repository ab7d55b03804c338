//! The running broker from outside: the real binary, real files, kill -9, unmodified clients and hostile ones.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "no simulator turns the hands here")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

mod connections;
mod damage;
mod descriptors;
mod full_disk;
mod group_balance;
mod groups;
mod harness;
mod hostile;
mod kill;
mod log_start;
mod offline_tools;
mod open_transactions;
mod readers;
mod restart;
mod startup;
mod topics;
mod torture;
mod verify;
mod window;
