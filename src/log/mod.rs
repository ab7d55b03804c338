//! The files of one partition, the shard's commit log, recovery.

pub mod catalog_log;
pub mod commit_log;
pub mod commit_pace;
pub mod group_queue;
mod group_scan;
pub mod log_file;
pub mod log_files;
mod log_pool;
pub mod log_reader;
pub mod store;
