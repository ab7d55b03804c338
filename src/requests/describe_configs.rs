//! DescribeConfigs (32), versions 1 to 4: settings of topics and of the broker.
//!
//! 1 has sources and synonyms · 3 types and documentation · 4 is flexible.
//! Left out: broker loggers, client metrics and groups as resources (INVALID_REQUEST).
//!
//! Memory: settings are written one resource at a time; a request whose answer would be larger than 64 × its size +
//! 1 MiB gets INVALID_REQUEST for the resources that no longer fit.

use std::collections::HashSet;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::response::{self, Body};
use crate::broker::catalog::alter::{BROKER, TOPIC};
use crate::broker::catalog::{Catalog, names};
use crate::config::{self, ConfigEntry, Scope};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Counted, Sink, Writer};

/// Kafka's sentence for a resource type that it does not describe.
const UNKNOWN_TYPE: &str = "This most likely occurs because of a request being malformed by the client library or the \
                            message was sent to an incompatible broker. See the broker logs for more details.";

/// A resource that is asked for.
#[derive(Debug)]
struct Resource {
    kind: i8,
    name: StrBytes,
    /// Names of the settings that are wanted; none for all.
    keys: Option<HashSet<StrBytes>>,
}

/// Answers DescribeConfigs.
///
/// # Errors
/// Where the bytes are not the request.
pub fn answer(catalog: &Catalog, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let resources = reader.array_of("the resources", 3, read_resource)?;
    let synonyms = reader.i8("include_synonyms")? != 0;
    let documentation = request.version >= 3 && reader.i8("include_documentation")? != 0;
    reader.skip_tagged("the request")?;
    let form = Form { version: request.version, synonyms, documentation };
    let mut answer = Answer { catalog, resources, form, described: 0 };
    answer.described = answer.how_many_fit(request);
    Ok(response::frame(request, &answer))
}

fn read_resource(reader: &mut Reader) -> Result<Resource, WireError> {
    let kind = reader.i8("a resource's type")?;
    let name = reader.text("a resource's name")?;
    let keys = match reader.nullable_count("the configuration keys", 1)? {
        // Kafka describes everything for an empty list too.
        None | Some(0) => None,
        Some(count) => Some(read_keys(reader, count)?),
    };
    reader.skip_tagged("a resource")?;
    Ok(Resource { kind, name, keys })
}

/// A set that grows with what is there, not with what is claimed: the same key may come a million times.
fn read_keys(reader: &mut Reader, count: usize) -> Result<HashSet<StrBytes>, WireError> {
    let mut keys = HashSet::new();
    for _ in 0..count {
        keys.insert(reader.text("a configuration key")?);
    }
    Ok(keys)
}

/// How much is said about a setting.
#[derive(Clone, Copy)]
struct Form {
    version: i16,
    synonyms: bool,
    documentation: bool,
}

struct Answer<'a> {
    catalog: &'a Catalog,
    resources: Vec<Resource>,
    form: Form,
    /// So many resources are described, the others refused.
    described: usize,
}

type Described = Result<Vec<ConfigEntry>, (ErrorCode, String)>;

impl Answer<'_> {
    /// Number of resources whose description fits into what the answer may take.
    fn how_many_fit(&self, request: &Request) -> usize {
        let mut bytes = 0;
        for (index, resource) in self.resources.iter().enumerate() {
            let mut counted = Counted::default();
            let out = &mut Writer::new(&mut counted, request.is_flexible());
            write_result(out, resource, &self.describe(resource), self.form);
            bytes += counted.0;
            if bytes > request.answer_bytes_max() {
                return index;
            }
        }
        self.resources.len()
    }

    fn describe(&self, resource: &Resource) -> Described {
        let entries = match resource.kind {
            TOPIC => self.describe_topic(&resource.name)?,
            BROKER => self.describe_broker(&resource.name)?,
            _ => return Err((ErrorCode::InvalidRequest, UNKNOWN_TYPE.to_owned())),
        };
        let wanted =
            |entry: &ConfigEntry| resource.keys.as_ref().is_none_or(|keys| keys.contains(entry.name.as_bytes()));
        Ok(entries.into_iter().filter(wanted).collect())
    }

    fn describe_topic(&self, name: &str) -> Described {
        names::check(name).map_err(|why| (ErrorCode::InvalidTopicException, why))?;
        let topic = self.catalog.topic(name).ok_or((ErrorCode::UnknownTopicOrPartition, String::new()))?;
        Ok(config::describe_topic(self.catalog.config(), &topic.overrides))
    }

    fn describe_broker(&self, name: &str) -> Described {
        let config = self.catalog.config();
        let scope = Scope::to_describe(name, self.catalog.node_id());
        Ok(match scope.map_err(|why| (ErrorCode::InvalidRequest, why))? {
            Scope::AllBrokers => config::describe_all_brokers(config),
            Scope::ThisBroker => config::describe_broker(config),
        })
    }
}

impl Body for Answer<'_> {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.resources.len()));
        let too_large = Err((ErrorCode::InvalidRequest, too_many(self.described)));
        for (index, resource) in self.resources.iter().enumerate() {
            if index < self.described {
                write_result(out, resource, &self.describe(resource), self.form);
            } else {
                write_result(out, resource, &too_large, self.form);
            }
        }
        out.no_tagged();
    }
}

fn too_many(described: usize) -> String {
    format!("Too much for one answer: ask for at most {described} such resources at a time, or name the configs.")
}

fn write_result<S: Sink>(out: &mut Writer<'_, S>, resource: &Resource, described: &Described, form: Form) {
    let (error, message) = match described {
        Ok(_) => (ErrorCode::None, ""),
        Err((error, message)) => (*error, message.as_str()),
    };
    out.i16(error.code());
    out.nullable_text(Some(message));
    out.i8(resource.kind);
    out.nullable_text(Some(&resource.name));
    let entries = described.as_deref().unwrap_or_default();
    out.count(Some(entries.len()));
    for entry in entries {
        write_entry(out, entry, form);
    }
    out.no_tagged();
}

fn write_entry<S: Sink>(out: &mut Writer<'_, S>, entry: &ConfigEntry, form: Form) {
    out.nullable_text(Some(entry.name));
    out.nullable_text(entry.value.as_deref());
    out.i8(i8::from(entry.read_only));
    out.i8(entry.source.code());
    out.i8(0); // not sensitive
    let synonyms = if form.synonyms { entry.synonyms.as_slice() } else { &[] };
    out.count(Some(synonyms.len()));
    for synonym in synonyms {
        out.nullable_text(Some(synonym.name));
        out.nullable_text(Some(&synonym.value));
        out.i8(synonym.source.code());
        out.no_tagged();
    }
    if form.version >= 3 {
        out.i8(entry.kind.code());
        out.nullable_text(form.documentation.then_some(entry.documentation));
    }
    out.no_tagged();
}
