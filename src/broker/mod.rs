//! Shards, partitions, catalog, routing.

pub mod catalog;
pub mod catalog_host;
pub mod checkpointer;
pub mod fetch;
pub mod kafka_view;
pub mod lifecycle;
mod log_start;
pub mod messages;
pub mod offsets;
pub mod partition;
pub mod placement;
pub mod produce;
pub mod producer_ids;
pub mod recovery;
pub mod shard;
pub mod tail;
pub mod waiters;
