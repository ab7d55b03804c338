//! The rules of what decides and of what is on disk: against simple models, and at every cut.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod bare;
mod batch;
mod catalog;
mod catalog_log;
mod checkpoint;
mod codec;
mod commit_log;
mod config;
mod crashes;
mod dice;
mod fetch_sessions;
mod frames;
mod fuzz;
mod fuzz_recovery;
mod groups_host;
mod index;
mod internal;
mod kafka_files;
mod kafka_folder;
mod log_reader;
mod log_start;
mod memory_disk;
mod mini_host;
mod partition_life;
mod plain_disk;
mod producers;
mod records;
mod recover;
mod requests;
mod sample;
mod scan;
mod seal;
mod segment;
mod shard;
mod store;
