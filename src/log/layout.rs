//! Where things are in the data folder (storage.md §3): `kafka/` is a Kafka log dir and nothing else, `corelane/` is ours.

use std::path::{Path, PathBuf};

use crate::ids::{ShardId, TopicPartition};

/// The names in a data folder.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout of the data folder `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The Kafka log dir inside.
    #[must_use]
    pub fn kafka(&self) -> PathBuf {
        self.root.join("kafka")
    }

    /// Our own folder inside.
    #[must_use]
    pub fn own(&self) -> PathBuf {
        self.root.join("corelane")
    }

    /// The folder of one partition.
    #[must_use]
    pub fn partition(&self, of: &TopicPartition) -> PathBuf {
        self.kafka().join(of.to_string())
    }

    /// The folder of one shard: its commit log and its checkpoints.
    #[must_use]
    pub fn shard(&self, shard: ShardId) -> PathBuf {
        self.own().join(format!("shard-{}", shard.0))
    }
}
