//! Requests: one file per API key: decode → ask the broker → encode.
//!
//! What is not hot is read field by field from the frame (`wire::reader`) and written by one description that first
//! counts its bytes and then fills a buffer of exactly that size, so that no frame makes memory grow by more than a
//! fixed multiple of its own size, whatever counts it claims and however often it names the same thing.

pub mod api;
pub mod api_versions;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_log_dirs;
pub mod describe_topic_partitions;
pub mod fetch;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod list_offsets;
pub mod metadata;
mod partition_info;
pub mod produce;
pub mod response;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

pub use api::Api;

use crate::broker::shard::Shard;
use crate::runtime::disk::Disk;
use crate::wire::frame;
use crate::wire::reader::{Reader, WireError};

/// How a request ends.
#[derive(Debug)]
pub enum Outcome {
    /// This goes out: one whole frame with its length prefix.
    Answer(Bytes),
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
        Reader::new(body, self.is_flexible())
    }

    /// Memory that the answer may take, so that no frame costs more than 64 × its size + 1 MiB.
    #[must_use]
    pub fn answer_bytes_max(&self) -> usize {
        self.frame_bytes.saturating_mul(64).saturating_add(1 << 20)
    }
}

/// Begins a request: reads the header, and gives the body to the file of its API key.
pub async fn begin<D: Disk>(shard: &Rc<Shard<D>>, frame: Bytes) -> Begun {
    let frame_bytes = frame.len();
    let (header, body) = match frame::read_request_header(frame) {
        Ok(read) => read,
        Err(error) => return close(format!("a request cannot be read: {error}")),
    };
    let key = header.api_key as i16;
    let Some(api) = Api::from_key(key) else {
        return close(format!("{:?} (API key {key}) is not served", header.api_key));
    };
    let request = Request {
        api,
        version: header.api_version,
        correlation_id: header.correlation_id,
        client_id: header.client_id,
        frame_bytes,
    };
    if !api.versions().contains(&request.version) {
        return refuse_version(&request);
    }
    match dispatch(shard, &request, body).await {
        Ok(begun) => begun,
        Err(error) => close(format!("{api:?} version {} cannot be read: {error}", request.version)),
    }
}

/// A version that is not served: ApiVersions has an answer that every client can read, others have none.
fn refuse_version(request: &Request) -> Begun {
    match request.api {
        Api::ApiVersions => Begun::Now(Outcome::Answer(api_versions::unsupported(request))),
        api => close(format!(
            "{api:?} version {} is not served (versions {} to {} are)",
            request.version,
            api.versions().start(),
            api.versions().end()
        )),
    }
}

async fn dispatch<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Begun, WireError> {
    let answer = match request.api {
        Api::Produce => return produce::begin(shard, request, body).await,
        Api::Fetch => return fetch::begin(shard, request, body).await,
        Api::ListOffsets => list_offsets::answer(shard, request, body).await?,
        Api::InitProducerId => init_producer_id::answer(shard, request, body).await?,
        Api::Metadata => metadata::answer(shard, request, body).await?,
        Api::ApiVersions => api_versions::answer(request, body)?,
        Api::CreateTopics => create_topics::answer(shard, request, body).await?,
        Api::DeleteTopics => delete_topics::answer(shard, request, body).await?,
        Api::DescribeConfigs => describe_configs::answer(&shard.catalog(), request, body)?,
        Api::DescribeLogDirs => describe_log_dirs::answer(shard, request, body).await?,
        Api::CreatePartitions => create_partitions::answer(shard, request, body).await?,
        Api::IncrementalAlterConfigs => incremental_alter_configs::answer(shard, request, body).await?,
        Api::DescribeCluster => describe_cluster::answer(shard, request, body)?,
        Api::DescribeTopicPartitions => describe_topic_partitions::answer(shard, request, body)?,
    };
    Ok(Begun::Now(Outcome::Answer(answer)))
}

fn close(line: String) -> Begun {
    Begun::Now(Outcome::Close(line))
}

/// Bytes of memory that a frame takes from its arrival to its answer, charged to the budget before it is read.
///
/// Units: bytes. Where an answer speaks of what exists (all topics, all configs) it may be larger than this; the budget
/// is about what clients send.
#[must_use]
pub fn cost(api_key: i16, frame_bytes: usize) -> usize {
    let times = match Api::from_key(api_key) {
        // Record batches are slices of the frame until they are in the log.
        Some(Api::Produce) => 1,
        // Refused by closing once the header is read.
        None => 1,
        // Small fields become larger values: a name of one byte takes a pointer, a length and a place in a set.
        Some(
            Api::Fetch
            | Api::ListOffsets
            | Api::Metadata
            | Api::ApiVersions
            | Api::CreateTopics
            | Api::DeleteTopics
            | Api::InitProducerId
            | Api::DescribeConfigs
            | Api::DescribeLogDirs
            | Api::CreatePartitions
            | Api::IncrementalAlterConfigs
            | Api::DescribeCluster
            | Api::DescribeTopicPartitions,
        ) => 32,
    };
    frame_bytes.saturating_mul(times)
}
