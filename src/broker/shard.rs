//! The loop of one core. Only what the requests of the catalog need of it stands here so far.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crate::broker::catalog::{Catalog, Command, ItemResult, decide};
use crate::config::Config;
use crate::ids::{TopicId, TopicPartition};
use crate::runtime::disk::{Disk, Space};
use crate::runtime::host;
use crate::wire::error_code::ErrorCode;

/// One core and what it owns.
pub struct Shard<D: Disk> {
    config: Arc<Config>,
    catalog: RefCell<Arc<Catalog>>,
    disk: D,
}

impl<D: Disk> Shard<D> {
    /// A shard with this catalog.
    #[must_use]
    pub fn new(config: Arc<Config>, catalog: Catalog, disk: D) -> Rc<Self> {
        Rc::new(Self { config, catalog: RefCell::new(Arc::new(catalog)), disk })
    }

    /// The catalog as this shard sees it.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    /// The settings that the process was started with.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Changes the catalog; durable and visible when it returns.
    ///
    /// # Errors
    /// The code for every item, when nothing could be changed.
    #[expect(clippy::unused_async, reason = "the change is made durable here")]
    pub async fn change_catalog(&self, command: Command) -> Result<Vec<ItemResult>, ErrorCode> {
        let decision = decide(&self.catalog(), &command, random_id);
        *self.catalog.borrow_mut() = Arc::new(decision.next);
        Ok(decision.results)
    }

    /// The address that clients are told.
    #[must_use]
    pub fn advertised(&self) -> (String, i32) {
        (self.config.advertised.host.clone(), i32::from(self.config.advertised.port))
    }

    /// The leader epoch of every partition: the store's generation.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        0
    }

    /// Bytes on disk of each partition of every shard.
    #[expect(clippy::unused_async, reason = "other shards are asked here")]
    pub async fn log_sizes(&self) -> Vec<(TopicPartition, u64)> {
        let sizes = |topic: &Arc<crate::broker::catalog::Topic>| {
            let topic = Arc::clone(topic);
            (0..topic.partition_count())
                .map(move |partition| (TopicPartition { topic: Arc::clone(&topic.name), partition }, 0))
        };
        self.catalog().topics().flat_map(sizes).collect()
    }

    /// Room on the file system of the data folder.
    #[must_use]
    pub fn disk_space(&self) -> Space {
        let unknown = Space { total_bytes: 0, free_bytes: 0 };
        self.disk.space(Path::new(&self.config.data_dir)).unwrap_or(unknown)
    }
}

fn random_id() -> TopicId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&host::random().to_be_bytes());
    id[8..].copy_from_slice(&host::random().to_be_bytes());
    TopicId(id)
}
