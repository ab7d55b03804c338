//! The rules of what decides and of what is on disk: against simple models, and at every cut.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod bare;
mod batch;
mod catalog;
mod catalog_log;
mod checkpoint;
mod cleaner;
mod codec;
mod commit_log;
mod committed;
mod compaction;
mod config;
mod fetch_sessions;
mod forgotten;
mod frames;
mod frozen;
mod fuzz;
mod fuzz_recovery;
mod groups;
mod groups_host;
mod groups_members;
mod groups_model;
mod groups_offsets;
mod groups_transactions;
mod groups_world;
mod held_up;
mod index;
mod internal;
mod kafka_files;
mod kafka_folder;
mod log_reader;
mod log_start;
mod losses;
mod open_files;
mod partition_life;
mod plain_disk;
mod producers;
mod records;
mod recover;
mod refill;
mod removal;
mod requests;
mod retention;
mod retention_host;
mod sample;
mod scan;
mod seal;
mod segment;
mod shard;
mod shard_fetch;
mod snapshots;
mod store;
mod transactions;

use support::{dice, memory_disk, mini_host};
