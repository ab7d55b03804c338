//! Shards, partitions, catalog, routing.

pub mod catalog;
pub mod catalog_host;
pub mod checkpointer;
pub mod cleaner;
mod cleaner_floor;
mod cleaner_pace;
mod epochs;
pub mod fetch;
pub mod groups;
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
pub mod shard;
pub mod tail;
pub mod waiters;
