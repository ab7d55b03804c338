//! The rules of what decides and of what is on disk: against simple models, and at every cut.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod batch;
mod checkpoint;
mod codec;
mod config;
mod frames;
mod fuzz;
mod index;
mod kafka_files;
mod kafka_folder;
mod plain_disk;
mod producers;
mod records;
mod sample;
mod scan;
mod seal;
mod segment;
