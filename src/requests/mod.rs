//! Requests: one file per API key: decode → ask the broker → encode.
//!
//! What is not hot is read field by field from the frame (`wire::reader`) and written by one description that first
//! counts its bytes and then fills a buffer of exactly that size, so that no frame makes memory grow by more than a
//! fixed multiple of its own size, whatever counts it claims and however often it names the same thing.

pub mod add_offsets_to_txn;
pub mod add_partitions_to_txn;
pub mod alter_configs;
pub mod api;
pub mod api_versions;
pub mod cluster;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_topic_partitions;
pub mod describe_transactions;
pub mod end_txn;
pub mod fetch;
mod fetch_plan;
pub mod find_coordinator;
pub mod groups;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
mod judged;
pub mod leave_group;
pub mod list_groups;
pub mod list_offsets;
pub mod list_transactions;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
mod partition_info;
pub mod produce;
pub mod response;
pub mod sync_group;
mod transactions;
pub mod txn_offset_commit;
pub mod write_txn_markers;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

pub use api::Api;

use crate::broker::shard::Shard;
use crate::runtime::budget::Units;
use crate::runtime::disk::Disk;
use crate::wire::frame;
use crate::wire::reader::{Reader, WireError};

/// Elements of one array; more close the connection. No client names that many topics, and sorting a million of them
/// would hold the core for a second.
const ELEMENTS_MAX: usize = 100_000;

/// How a request ends.
#[derive(Debug)]
pub enum Outcome {
    /// This goes out: one whole frame with its length prefix.
    Answer(Bytes),
    /// The same, and the memory that is taken for it until it is written.
    Charged(Bytes, Units),
    /// Nothing goes out (produce with acks 0).
    Nothing,
    /// The connection ends, with this line in the log; earlier answers still go out.
    Close(String),
}

/// A request whose place in the order of requests is fixed.
pub enum Begun {
    /// It has ended already.
    Now(Outcome),
    /// It ends later; the next request of the connection may begin meanwhile.
    Later(Pin<Box<dyn Future<Output = Outcome>>>),
}

/// A request that is served here: what its header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub api: Api,
    /// In which version.
    pub version: i16,
    /// Number by which the client finds the answer.
    pub correlation_id: i32,
    /// Name that the client gives itself.
    pub client_id: Option<StrBytes>,
    /// Size of the whole frame, without the length in front.
    pub frame_bytes: usize,
}

impl Request {
    /// True when lengths are compact and structures end in tagged fields.
    #[must_use]
    pub fn is_flexible(&self) -> bool {
        self.api.is_flexible(self.version)
    }

    /// A place in the body from which its fields are taken.
    #[must_use]
    pub fn reader(&self, body: Bytes) -> Reader {
        Reader::new(body, self.is_flexible()).with_count_max(ELEMENTS_MAX)
    }
}

/// Begins a request of a client at `peer`: reads the header, and gives the body to the file of its API key.
pub async fn begin<D: Disk>(shard: &Rc<Shard<D>>, peer: IpAddr, frame: Bytes) -> Begun {
    let (request, body) = match read(frame) {
        Ok(read) => read,
        Err(refused) => return Begun::Now(refused),
    };
    match dispatch(shard, &request, peer, body).await {
        Ok(begun) => begun,
        Err(error) => {
            let line = format!("{:?} version {} cannot be read: {error}", request.api, request.version);
            Begun::Now(Outcome::Close(line))
        }
    }
}

/// Reads the header of a frame; gives what is asked and the body.
///
/// # Errors
/// How the request ends instead: for a header that cannot be read, a key or a version that is not served.
pub fn read(frame: Bytes) -> Result<(Request, Bytes), Outcome> {
    let frame_bytes = frame.len();
    let (header, body) = frame::read_request_header(frame)
        .map_err(|error| Outcome::Close(format!("a request cannot be read: {error}")))?;
    let key = header.api_key as i16;
    let api = Api::from_key(key)
        .ok_or_else(|| Outcome::Close(format!("{:?} (API key {key}) is not served", header.api_key)))?;
    let request = Request {
        api,
        version: header.api_version,
        correlation_id: header.correlation_id,
        client_id: header.client_id,
        frame_bytes,
    };
    if api.versions().contains(&request.version) { Ok((request, body)) } else { Err(refuse_version(&request)) }
}

/// A version that is not served: ApiVersions has an answer that every client can read, others have none.
fn refuse_version(request: &Request) -> Outcome {
    match request.api {
        Api::ApiVersions => Outcome::Answer(api_versions::unsupported(request)),
        api => Outcome::Close(format!(
            "{api:?} version {} is not served (versions {} to {} are)",
            request.version,
            api.versions().start(),
            api.versions().end()
        )),
    }
}

async fn dispatch<D: Disk>(
    shard: &Rc<Shard<D>>,
    request: &Request,
    peer: IpAddr,
    body: Bytes,
) -> Result<Begun, WireError> {
    let answer = match request.api {
        Api::Produce => return produce::begin(shard, request, body).await,
        Api::Fetch => return fetch::begin(shard, request, body).await,
        Api::ListOffsets => list_offsets::answer(shard, request, body).await?,
        Api::DeleteRecords => delete_records::answer(shard, request, body).await?,
        Api::InitProducerId => init_producer_id::answer(shard, request, body).await?,
        Api::Metadata => metadata::answer(shard, request, body).await?,
        Api::OffsetCommit => offset_commit::answer(shard, request, body).await?,
        Api::OffsetFetch => offset_fetch::answer(shard, request, body).await?,
        Api::FindCoordinator => find_coordinator::answer(shard, request, body).await?,
        Api::JoinGroup => {
            let join = join_group::read(request, peer, body)?;
            let (shard, request) = (Rc::clone(shard), request.clone());
            return Ok(later(async move { join_group::answer(&shard, &request, join).await }));
        }
        Api::Heartbeat => heartbeat::answer(shard, request, body).await?,
        Api::LeaveGroup => leave_group::answer(shard, request, body).await?,
        Api::SyncGroup => {
            let sync = sync_group::read(request, body)?;
            let (shard, request) = (Rc::clone(shard), request.clone());
            return Ok(later(async move { sync_group::answer(&shard, &request, sync).await }));
        }
        Api::DescribeGroups => describe_groups::answer(shard, request, body).await?,
        Api::ListGroups => list_groups::answer(shard, request, body).await?,
        Api::ApiVersions => api_versions::answer(request, body)?,
        Api::CreateTopics => create_topics::answer(shard, request, body).await?,
        Api::DeleteTopics => delete_topics::answer(shard, request, body).await?,
        Api::OffsetForLeaderEpoch => offset_for_leader_epoch::answer(shard, request, body).await?,
        Api::AddPartitionsToTxn => add_partitions_to_txn::answer(shard, request, body).await?,
        Api::AddOffsetsToTxn => add_offsets_to_txn::answer(shard, request, body).await?,
        Api::EndTxn => end_txn::answer(shard, request, body).await?,
        Api::WriteTxnMarkers => write_txn_markers::answer(shard, request, body).await?,
        Api::TxnOffsetCommit => txn_offset_commit::answer(shard, request, body).await?,
        Api::DescribeConfigs => describe_configs::answer(&shard.catalog(), request, body).await?,
        Api::AlterConfigs => alter_configs::answer(shard, request, body).await?,
        Api::DescribeLogDirs => describe_log_dirs::answer(shard, request, body).await?,
        Api::CreatePartitions => create_partitions::answer(shard, request, body).await?,
        Api::DeleteGroups => delete_groups::answer(shard, request, body).await?,
        Api::OffsetDelete => offset_delete::answer(shard, request, body).await?,
        Api::IncrementalAlterConfigs => incremental_alter_configs::answer(shard, request, body).await?,
        Api::DescribeCluster => describe_cluster::answer(shard, request, body)?,
        Api::DescribeProducers => describe_producers::answer(shard, request, body).await?,
        Api::DescribeTransactions => describe_transactions::answer(shard, request, body).await?,
        Api::ListTransactions => list_transactions::answer(shard, request, body).await?,
        Api::DescribeTopicPartitions => describe_topic_partitions::answer(shard, request, body)?,
    };
    Ok(Begun::Now(Outcome::Answer(answer)))
}

/// An answer that waits for other clients: not awaited where it begins, so that the connection notices a client that leaves.
fn later(answer: impl Future<Output = Bytes> + 'static) -> Begun {
    Begun::Later(Box::pin(async move { Outcome::Answer(answer.await) }))
}

/// Bytes of memory that a frame takes from its arrival to its answer, charged to the budget before it is read.
///
/// Units: bytes. Where an answer speaks of what exists (all topics, all configs) it may be larger than this; the budget
/// is about what clients send. The factors are measured by `tests/memory`: small fields become larger values, so a name
/// of one byte takes a pointer, a length and a place in a list.
#[must_use]
pub fn cost(api_key: i16, frame_bytes: usize) -> usize {
    let times = match Api::from_key(api_key) {
        // Refused by closing once the header is read; record batches are slices of the frame until they are in the log.
        None | Some(Api::Produce) => 1,
        Some(Api::ApiVersions | Api::DescribeCluster | Api::DescribeLogDirs | Api::InitProducerId) => 4,
        Some(Api::Heartbeat | Api::AddOffsetsToTxn | Api::EndTxn) => 8,
        Some(Api::Metadata | Api::ListGroups) => 18,
        Some(
            Api::CreateTopics
            | Api::CreatePartitions
            | Api::DescribeTopicPartitions
            | Api::OffsetCommit
            | Api::TxnOffsetCommit
            | Api::OffsetDelete
            | Api::FindCoordinator
            | Api::JoinGroup
            | Api::LeaveGroup
            | Api::SyncGroup
            | Api::DeleteGroups
            | Api::WriteTxnMarkers
            | Api::ListTransactions,
        ) => 40,
        Some(Api::Fetch | Api::ListOffsets | Api::OffsetForLeaderEpoch | Api::DeleteRecords) => 48,
        Some(
            Api::DeleteTopics
            | Api::DescribeConfigs
            | Api::AlterConfigs
            | Api::IncrementalAlterConfigs
            | Api::OffsetFetch
            | Api::DescribeProducers
            | Api::DescribeGroups
            | Api::DescribeTransactions
            | Api::AddPartitionsToTxn,
        ) => 60,
    };
    frame_bytes.saturating_mul(times)
}
