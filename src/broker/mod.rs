//! Shards, partitions, catalog, routing.

pub mod catalog;
pub mod catalog_host;
pub mod checkpointer;
mod epochs;
pub mod fetch;
pub mod groups;
mod kafka_checkpoints;
pub mod kafka_view;
pub mod lifecycle;
mod log_start;
pub mod messages;
pub mod offsets;
pub mod partition;
pub mod periodic;
pub mod placement;
pub mod produce;
pub mod producer_ids;
pub mod producer_limits;
pub mod recovery;
mod removal;
mod retention;
pub mod shard;
mod snapshots;
pub mod tail;
pub mod waiters;
