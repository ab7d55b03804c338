//! IncrementalAlterConfigs (44), versions 0 and 1: changes single settings of topics and of the broker.
//!
//! 1 is flexible.
//! Left out: broker loggers, client metrics and groups as resources (INVALID_REQUEST).

use std::sync::Arc;

use bytes::Bytes;

use super::Request;
use super::cluster::Cluster;
use super::response::{self, Body};
use crate::broker::catalog::alter::{Alteration, Change, Unnamed};
use crate::broker::catalog::{Command, ItemResult};
use crate::config::Operation;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// Answers IncrementalAlterConfigs.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(cluster: &impl Cluster, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    change(cluster, request, body, Unnamed::Stay).await
}

/// Answers AlterConfigs too, whose changes name no operation.
pub(super) async fn change(
    cluster: &impl Cluster,
    request: &Request,
    body: Bytes,
    unnamed: Unnamed,
) -> Result<Bytes, WireError> {
    let (resources, validate_only) = read(request, body, unnamed)?;
    let names: Vec<(i8, Arc<str>)> =
        resources.iter().map(|resource| (resource.resource_type, Arc::clone(&resource.resource_name))).collect();
    let results = cluster.change_catalog(Command::AlterConfigs { resources, unnamed, validate_only }).await;
    let results = results.unwrap_or_else(|error| vec![ItemResult::failed(error); names.len()]);
    Ok(response::frame(request, &Answer { names, results }))
}

fn read(request: &Request, body: Bytes, unnamed: Unnamed) -> Result<(Vec<Alteration>, bool), WireError> {
    let mut reader = request.reader(body);
    let resources = reader.array_of("the resources", 3, |reader| read_resource(reader, unnamed))?;
    let validate_only = reader.i8("validate_only")? != 0;
    reader.skip_tagged("the request")?;
    Ok((resources, validate_only))
}

fn read_resource(reader: &mut Reader, unnamed: Unnamed) -> Result<Alteration, WireError> {
    let resource = Alteration {
        resource_type: reader.i8("a resource's type")?,
        resource_name: Arc::from(&*reader.text("a resource's name")?),
        changes: reader.array_of("a resource's configs", 3, |reader| read_change(reader, unnamed))?,
    };
    reader.skip_tagged("a resource")?;
    Ok(resource)
}

fn read_change(reader: &mut Reader, unnamed: Unnamed) -> Result<Change, WireError> {
    let change = Change {
        name: reader.text("a config's name")?.to_string(),
        operation: match unnamed {
            Unnamed::Stay => Operation::from_code(reader.i8("a config's operation")?),
            Unnamed::Go => Some(Operation::Set),
        },
        value: reader.nullable_text("a config's value")?.map(|value| value.to_string()),
    };
    reader.skip_tagged("a config")?;
    Ok(change)
}

struct Answer {
    names: Vec<(i8, Arc<str>)>,
    results: Vec<ItemResult>,
}

impl Body for Answer {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.results.len()));
        for ((kind, name), result) in self.names.iter().zip(&self.results) {
            out.i16(result.error.code());
            out.nullable_text(result.message.as_deref());
            out.i8(*kind);
            out.nullable_text(Some(name));
            out.no_tagged();
        }
        out.no_tagged();
    }
}
