//! What the requests of the catalog ask of the shard that serves the connection, and nothing else of it.

#![allow(async_fn_in_trait, reason = "nothing here moves between threads")]

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::broker::catalog::{Catalog, Command, ItemResult};
use crate::broker::messages::{Deleted, Deletion};
use crate::broker::shard::Shard;
use crate::ids::TopicPartition;
use crate::runtime::disk::{Disk, Space};
use crate::wire::error_code::ErrorCode;

/// The shard as the requests of the catalog see it; tests put a catalog without files behind it.
pub trait Cluster {
    /// The catalog as this shard sees it now.
    fn catalog(&self) -> Arc<Catalog>;
    /// Changes the catalog; durable and visible on every shard when it returns.
    ///
    /// # Errors
    /// The code for every item, when nothing could be changed.
    async fn change_catalog(&self, command: Command) -> Result<Vec<ItemResult>, ErrorCode>;
    /// Moves log starts, waiting about so long for each to be durable; one result for each, in order.
    async fn delete_records(&self, items: Vec<Deletion>, patience: Duration) -> Vec<Deleted>;
    /// Host and port that clients are told.
    fn advertised(&self) -> (String, i32);
    /// The folder that Kafka's tools see as the log dir.
    fn log_dir(&self) -> String;
    /// Leader epoch of every partition.
    fn leader_epoch(&self) -> i32;
    /// Bytes on disk of each partition of every shard.
    async fn log_sizes(&self) -> Vec<(TopicPartition, u64)>;
    /// Room on the file system of the data folder; zeros where it does not say.
    fn disk_space(&self) -> Space;
}

impl<D: Disk> Cluster for Rc<Shard<D>> {
    fn catalog(&self) -> Arc<Catalog> {
        Shard::catalog(self)
    }

    async fn change_catalog(&self, command: Command) -> Result<Vec<ItemResult>, ErrorCode> {
        Shard::change_catalog(self, command).await
    }

    async fn delete_records(&self, items: Vec<Deletion>, patience: Duration) -> Vec<Deleted> {
        Shard::delete_records(self, items, patience).await
    }

    fn advertised(&self) -> (String, i32) {
        Shard::advertised(self)
    }

    fn log_dir(&self) -> String {
        Shard::log_dir(self)
    }

    fn leader_epoch(&self) -> i32 {
        Shard::leader_epoch(self)
    }

    async fn log_sizes(&self) -> Vec<(TopicPartition, u64)> {
        Shard::log_sizes(self).await
    }

    fn disk_space(&self) -> Space {
        Shard::disk_space(self)
    }
}
