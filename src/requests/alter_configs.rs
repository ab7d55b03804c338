//! AlterConfigs (33), versions 0 to 2: sets all settings of topics and of the broker at once; those that are not named go.
//!
//! 1 changes nothing · 2 is flexible. Old, but librdkafka's administration still has it.
//! Left out: broker loggers, client metrics and groups as resources (INVALID_REQUEST). A resource that is named twice is
//! refused, where Apache Kafka gives no answer.

use bytes::Bytes;

use super::Request;
use super::cluster::Cluster;
use super::incremental_alter_configs;
use crate::broker::catalog::alter::Unnamed;
use crate::wire::reader::WireError;

/// Answers AlterConfigs.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    incremental_alter_configs::change(cluster, request, body, Unnamed::Go).await
}
