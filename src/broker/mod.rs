//! Shards, partitions, catalog, routing.

pub mod catalog;
