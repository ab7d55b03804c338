//! Properties of what decides and of what is on disk, each against a simple model.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, missing_docs, reason = "tests")]

mod catalog_log;
mod commit_log;
mod log_reader;
mod memory_disk;
mod mini_host;
mod store;
