//! The files of one partition, the shard's commit log, recovery.

pub mod checkpoint;
pub mod checkpoint_chain;
pub mod crc;
pub mod index;
pub mod kafka_files;
pub mod names;
pub mod scan;
pub mod seal;
pub mod segment;
pub mod segment_read;
pub mod snapshot;
