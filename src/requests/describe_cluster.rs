//! DescribeCluster (60), versions 0 to 2: cluster id, controller, brokers.
//!
//! 1 asks for brokers or controllers · 2 for fenced brokers too.
//! Left out: racks (null); there is one broker, which is never fenced and is its own controller.

use bytes::Bytes;

use super::Request;
use super::cluster::Cluster;
use super::partition_info::{CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED};
use super::response::{self, Body};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

/// Endpoint type of brokers, the only one on this listener.
const BROKERS: i8 = 1;
/// Endpoint type of controllers.
const CONTROLLERS: i8 = 2;

/// Answers DescribeCluster.
///
/// # Errors
/// Where the bytes are not the request.
pub fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let operations = reader.i8("include_cluster_authorized_operations")? != 0;
    let endpoints = if request.version >= 1 { reader.i8("endpoint_type")? } else { BROKERS };
    if request.version >= 2 {
        reader.i8("include_fenced_brokers")?;
    }
    reader.skip_tagged("the request")?;
    let answer = match endpoints {
        BROKERS => describe(cluster, operations),
        CONTROLLERS => refusal(
            ErrorCode::MismatchedEndpointType,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
                .to_owned(),
        ),
        other => refusal(ErrorCode::UnsupportedEndpointType, format!("Unsupported endpoint type {other}")),
    };
    Ok(response::frame(request, &answer))
}

struct Broker {
    host: String,
    port: i32,
}

struct Answer {
    error: ErrorCode,
    message: Option<String>,
    cluster_id: String,
    node_id: i32,
    broker: Option<Broker>,
    operations: i32,
}

fn describe(cluster: &impl Cluster, operations: bool) -> Answer {
    let catalog = cluster.catalog();
    let (host, port) = cluster.advertised();
    Answer {
        error: ErrorCode::None,
        message: None,
        cluster_id: catalog.cluster_id().to_owned(),
        node_id: catalog.node_id(),
        broker: Some(Broker { host, port }),
        operations: if operations { CLUSTER_OPERATIONS } else { OPERATIONS_NOT_ASKED },
    }
}

fn refusal(error: ErrorCode, message: String) -> Answer {
    let (message, operations) = (Some(message), OPERATIONS_NOT_ASKED);
    Answer { error, message, cluster_id: String::new(), node_id: -1, broker: None, operations }
}

impl Body for Answer {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i32(0); // throttle time
        out.i16(self.error.code());
        out.nullable_text(self.message.as_deref());
        if version >= 1 {
            out.i8(BROKERS);
        }
        out.nullable_text(Some(&self.cluster_id));
        out.i32(self.node_id); // controller
        out.count(Some(usize::from(self.broker.is_some())));
        if let Some(broker) = &self.broker {
            out.i32(self.node_id);
            out.nullable_text(Some(&broker.host));
            out.i32(broker.port);
            out.nullable_text(None); // rack
            if version >= 2 {
                out.i8(0); // not fenced
            }
            out.no_tagged();
        }
        out.i32(self.operations);
        out.no_tagged();
    }
}
