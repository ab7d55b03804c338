//! The files of one partition, the shard's commit log, recovery.

pub mod catalog_log;
pub mod checkpoint;
pub mod checkpoint_chain;
pub mod commit_log;
pub mod commit_pace;
pub mod crc;
pub mod group_queue;
mod group_scan;
pub mod index;
pub mod kafka_files;
pub mod layout;
pub mod leader_epochs;
pub mod log_file;
pub mod log_files;
mod log_maker;
mod log_pool;
pub mod log_reader;
pub mod names;
pub mod partition_log;
pub mod recover;
pub mod scan;
pub mod seal;
pub mod segment;
pub mod segment_derived;
pub mod segment_read;
pub mod snapshot;
pub mod store;
