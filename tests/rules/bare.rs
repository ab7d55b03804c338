//! A broker without files and network: the requests of the catalog, answered in one call.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use corelane::broker::catalog::{Catalog, CatalogRecord, Command, ItemResult, decide};
use corelane::config::Config;
use corelane::ids::{TopicId, TopicPartition};
use corelane::requests::cluster::Cluster;
use corelane::requests::{
    self, Api, Outcome, Request, alter_configs, api_versions, create_partitions, create_topics, delete_topics,
    describe_cluster, describe_configs, describe_log_dirs, describe_topic_partitions, incremental_alter_configs,
    metadata,
};
use corelane::runtime::disk::Space;
use corelane::wire::error_code::ErrorCode;
use corelane::wire::reader::WireError;

/// A broker that has a catalog and nothing else.
pub struct Bare {
    catalog: RefCell<Arc<Catalog>>,
    next_id: RefCell<u8>,
}

impl Bare {
    pub fn with(settings: &[(&str, &str)]) -> Self {
        let mut catalog = Catalog::new(Arc::new(Config::with(settings).unwrap()));
        catalog.apply(&CatalogRecord::Identity { cluster_id: "3iNd9icRQyOff_fmZqX4Mw".to_owned(), node_id: 1 });
        Self { catalog: RefCell::new(Arc::new(catalog)), next_id: RefCell::new(2) }
    }

    pub fn new() -> Self {
        Self::with(&[("num.partitions", "3")])
    }

    pub fn send(&self, frame: Bytes) -> Outcome {
        match requests::read(frame) {
            Err(refused) => refused,
            Ok((request, body)) => match ready(answer(self, &request, body)) {
                Ok(answer) => Outcome::Answer(answer),
                Err(error) => Outcome::Close(error.to_string()),
            },
        }
    }
}

impl Cluster for Bare {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    async fn change_catalog(&self, command: Command) -> Result<Vec<ItemResult>, ErrorCode> {
        let mut ids = self.next_id.borrow_mut();
        let decision = decide(&self.catalog(), &command, || {
            *ids += 1;
            TopicId([*ids; 16])
        });
        *self.catalog.borrow_mut() = Arc::new(decision.next);
        Ok(decision.results)
    }

    fn advertised(&self) -> (String, i32) {
        ("broker.example".to_owned(), 9092)
    }

    fn log_dir(&self) -> String {
        "/data/kafka".to_owned()
    }

    fn leader_epoch(&self) -> i32 {
        5
    }

    async fn log_sizes(&self) -> Vec<(TopicPartition, u64)> {
        let catalog = self.catalog();
        let partitions = catalog.topics().flat_map(|topic| {
            (0..topic.partition_count()).map(|partition| TopicPartition { topic: Arc::clone(&topic.name), partition })
        });
        partitions.map(|at| (at, 100)).collect()
    }

    fn disk_space(&self) -> Space {
        Space { total_bytes: 1000, free_bytes: 400 }
    }
}

async fn answer(cluster: &Bare, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    match request.api {
        Api::Metadata => metadata::answer(cluster, request, body).await,
        Api::ApiVersions => api_versions::answer(request, body),
        Api::CreateTopics => create_topics::answer(cluster, request, body).await,
        Api::DeleteTopics => delete_topics::answer(cluster, request, body).await,
        Api::DescribeConfigs => describe_configs::answer(&cluster.catalog(), request, body).await,
        Api::DescribeLogDirs => describe_log_dirs::answer(cluster, request, body).await,
        Api::CreatePartitions => create_partitions::answer(cluster, request, body).await,
        Api::AlterConfigs => alter_configs::answer(cluster, request, body).await,
        Api::IncrementalAlterConfigs => incremental_alter_configs::answer(cluster, request, body).await,
        Api::DescribeCluster => describe_cluster::answer(cluster, request, body),
        Api::DescribeTopicPartitions => describe_topic_partitions::answer(cluster, request, body),
        Api::Produce | Api::Fetch | Api::ListOffsets | Api::InitProducerId => Err(WireError::Short("not asked here")),
    }
}

/// Runs a future that waits for nothing but its turn.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}
