//! A broker without files and network: the requests of the catalog and of groups, answered in one call.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use corelane::broker::catalog::{Catalog, CatalogRecord, Command, ItemResult, decide};
use corelane::broker::messages::{Deleted, Deletion};
use corelane::config::Config;
use corelane::ids::{Offset, TopicId, TopicPartition};
use corelane::requests::cluster::Cluster;
use corelane::requests::groups::Groups;
use corelane::requests::{
    self, Api, Outcome, Request, alter_configs, api_versions, create_partitions, create_topics, delete_groups,
    delete_records, delete_topics, describe_cluster, describe_configs, describe_groups, describe_log_dirs,
    describe_topic_partitions, find_coordinator, heartbeat, incremental_alter_configs, join_group, leave_group,
    list_groups, metadata, offset_commit, offset_delete, offset_fetch, sync_group, txn_offset_commit,
};
use corelane::runtime::disk::Space;
use corelane::state::groups::messages::{self, ListedGroup};
use corelane::state::groups::{self, Effects, GroupSettings, Moment, Ticket};
use corelane::wire::error_code::ErrorCode;
use corelane::wire::reader::WireError;

const SETTINGS: GroupSettings = GroupSettings {
    session_timeout_ms_min: 6_000,
    session_timeout_ms_max: 1_800_000,
    initial_rebalance_delay_ms: 3_000,
    members_max: i32::MAX,
    offset_metadata_bytes_max: 4_096,
    offsets_retention_ms: 604_800_000,
};

/// A broker that has a catalog, groups, and nothing else. Its clock stands unless somebody waits.
pub struct Bare {
    catalog: RefCell<Arc<Catalog>>,
    next_id: RefCell<u8>,
    groups: RefCell<groups::Groups>,
    uptime_ms: Cell<u64>,
    next_ticket: Cell<u64>,
}

impl Bare {
    pub fn with(settings: &[(&str, &str)]) -> Self {
        let mut catalog = Catalog::new(Arc::new(Config::with(settings).unwrap()));
        catalog.apply(&CatalogRecord::Identity { cluster_id: "3iNd9icRQyOff_fmZqX4Mw".to_owned(), node_id: 1 });
        Self {
            catalog: RefCell::new(Arc::new(catalog)),
            next_id: RefCell::new(2),
            groups: RefCell::new(groups::Groups::new(SETTINGS)),
            uptime_ms: Cell::new(0),
            next_ticket: Cell::new(0),
        }
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

impl Bare {
    fn moment(&self) -> Moment {
        self.next_ticket.set(self.next_ticket.get() + 1);
        let (uptime_ms, number) = (self.uptime_ms.get(), u128::from(self.next_ticket.get()));
        Moment { wall_ms: 1_700_000_000_000 + uptime_ms.cast_signed(), uptime_ms, random: number << 64 }
    }

    /// What the groups answer to a command; time passes until they do.
    fn ask_groups(&self, command: messages::Command) -> messages::Answer {
        let mut groups = self.groups.borrow_mut();
        let at = self.moment();
        let ticket = Ticket(self.next_ticket.get());
        let mut effects = groups.handle(at, ticket, command);
        loop {
            let Effects { answers, appends } = effects;
            if let Some((_, answer)) = answers.into_iter().find(|(answered, _)| *answered == ticket) {
                return answer;
            }
            effects = Effects::default();
            if appends.is_empty() {
                let deadline = groups.next_deadline_ms().expect("an answer that comes some time");
                self.uptime_ms.set(deadline.max(self.uptime_ms.get()));
                effects = groups.tick(self.moment());
            }
            for append in appends {
                let after = groups.appended(self.moment(), append.id, Ok(Offset(0)));
                effects.answers.extend(after.answers);
                effects.appends.extend(after.appends);
            }
        }
    }
}

impl Groups for Bare {
    async fn group_partition(&self, _group: &str) -> Result<i32, ErrorCode> {
        Ok(0)
    }

    async fn find_transaction_coordinator(&self) -> Result<(), ErrorCode> {
        Ok(())
    }

    async fn ask_group(&self, _group: &str, command: messages::Command) -> messages::Answer {
        self.ask_groups(command)
    }

    async fn list_groups(&self) -> (ErrorCode, Vec<ListedGroup>) {
        match self.ask_groups(messages::Command::List) {
            messages::Answer::Listed(error, groups) => (error, groups),
            other => panic!("a list is answered by {other:?}"),
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

    async fn delete_records(&self, items: Vec<Deletion>, _patience: Duration) -> Vec<Deleted> {
        let refused = Deleted { error: ErrorCode::OffsetOutOfRange, low_watermark: Offset(-1) };
        items.iter().map(|_| refused).collect()
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
        Api::DeleteRecords => delete_records::answer(cluster, request, body).await,
        Api::DeleteTopics => delete_topics::answer(cluster, request, body).await,
        Api::DescribeConfigs => describe_configs::answer(&cluster.catalog(), request, body).await,
        Api::DescribeLogDirs => describe_log_dirs::answer(cluster, request, body).await,
        Api::CreatePartitions => create_partitions::answer(cluster, request, body).await,
        Api::AlterConfigs => alter_configs::answer(cluster, request, body).await,
        Api::IncrementalAlterConfigs => incremental_alter_configs::answer(cluster, request, body).await,
        Api::DescribeCluster => describe_cluster::answer(cluster, request, body),
        Api::OffsetCommit => offset_commit::answer(cluster, request, body).await,
        Api::TxnOffsetCommit => txn_offset_commit::answer(cluster, request, body).await,
        Api::OffsetFetch => offset_fetch::answer(cluster, request, body).await,
        Api::FindCoordinator => find_coordinator::answer(cluster, request, body).await,
        Api::JoinGroup => {
            let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Ok(join_group::answer(cluster, request, join_group::read(request, peer, body)?).await)
        }
        Api::Heartbeat => heartbeat::answer(cluster, request, body).await,
        Api::LeaveGroup => leave_group::answer(cluster, request, body).await,
        Api::SyncGroup => Ok(sync_group::answer(cluster, request, sync_group::read(request, body)?).await),
        Api::DescribeGroups => describe_groups::answer(cluster, request, body).await,
        Api::ListGroups => list_groups::answer(cluster, request, body).await,
        Api::DeleteGroups => delete_groups::answer(cluster, request, body).await,
        Api::OffsetDelete => offset_delete::answer(cluster, request, body).await,
        Api::DescribeTopicPartitions => describe_topic_partitions::answer(cluster, request, body),
        Api::Produce
        | Api::Fetch
        | Api::ListOffsets
        | Api::InitProducerId
        | Api::OffsetForLeaderEpoch
        | Api::AddPartitionsToTxn
        | Api::AddOffsetsToTxn
        | Api::EndTxn
        | Api::WriteTxnMarkers
        | Api::DescribeProducers
        | Api::DescribeTransactions
        | Api::ListTransactions => Err(WireError::Short("not asked here")),
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
