//! Shards, partitions, catalog, routing.

pub mod catalog;

pub mod shard;
