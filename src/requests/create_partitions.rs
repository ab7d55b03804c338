//! CreatePartitions (37), versions 0 to 3.
//!
//! 2 is flexible; 1 and 3 change nothing that is read here.
//! Left out: nothing; the timeout is not needed, since partitions are durable and visible when the answer is written.

use std::sync::Arc;

use bytes::Bytes;

use super::Request;
use super::cluster::Cluster;
use super::response::{self, Body};
use crate::broker::catalog::partitions::MorePartitions;
use crate::broker::catalog::{Command, ItemResult};
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Answers CreatePartitions.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let (topics, validate_only) = read(request, body)?;
    let names: Vec<Arc<str>> = topics.iter().map(|topic| Arc::clone(&topic.name)).collect();
    let count = names.len();
    let results = cluster.change_catalog(Command::CreatePartitions { topics, validate_only }).await;
    let results = results.unwrap_or_else(|error| vec![ItemResult::failed(error); count]);
    Ok(response::frame(request, &Answer(response::first_of_each(names, results))))
}

fn read(request: &Request, body: Bytes) -> Result<(Vec<MorePartitions>, bool), WireError> {
    let mut reader = request.reader(body);
    let topics = reader.array_of("the topics", 6, read_topic)?;
    reader.i32("timeout_ms")?;
    let validate_only = reader.i8("validate_only")? != 0;
    reader.skip_tagged("the request")?;
    Ok((topics, validate_only))
}

fn read_topic(reader: &mut Reader) -> Result<MorePartitions, WireError> {
    let name = Arc::from(&*reader.text("a topic's name")?);
    let count = reader.i32("a topic's count")?;
    let assignments = reader.nullable_array_of("the assignments", 1, |reader| {
        let brokers = reader.array_of("an assignment's brokers", 4, |reader| reader.i32("a broker"))?;
        reader.skip_tagged("an assignment")?;
        Ok(brokers)
    })?;
    reader.skip_tagged("a topic")?;
    Ok(MorePartitions { name, count, assignments })
}

struct Answer(Vec<(Arc<str>, ItemResult)>);

impl Body for Answer {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.0.len()));
        for (name, result) in &self.0 {
            out.nullable_text(Some(name));
            out.i16(result.error.code());
            out.nullable_text(result.message.as_deref());
            out.no_tagged();
        }
        out.no_tagged();
    }
}
