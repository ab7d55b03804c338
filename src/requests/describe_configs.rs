//! DescribeConfigs (32), versions 1 to 4: settings of topics and of the broker.
//!
//! 1 has sources and synonyms · 3 types and documentation · 4 is flexible.
//! Left out: broker loggers, client metrics and groups as resources (INVALID_REQUEST).
//!
//! Memory and time: resources are described one by one, with room for other tasks in between; those for which there is
//! no room in the answer any more (36 × the request + 896 KiB, at most 16 MiB) get INVALID_REQUEST.

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::response::{self, MALFORMED, each_once};
use crate::broker::catalog::alter::{BROKER, CLIENT_METRICS, GROUP, LOGGER, TOPIC, unknown_type};
use crate::broker::catalog::{Catalog, names};
use crate::config::{self, ConfigEntry, Scope};
use crate::runtime::host;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// A resource that is asked for.
#[derive(Debug)]
struct Resource {
    kind: i8,
    name: StrBytes,
    /// Names of the settings that are wanted, each once, ascending; none for all.
    keys: Option<Vec<StrBytes>>,
}

/// Bytes that an answer may take per byte of the request, and beside that: with what reading the request takes the sum
/// stays within 64 × the frame + 1 MiB.
const ANSWER_TIMES: usize = 36;
const ANSWER_BYTES_MORE: usize = 896 << 10;
/// Bytes that an answer may take at all.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// More than the description of one resource takes. Memory that is asked for and not written costs nothing, while a
/// buffer that grows is there twice.
const RESOURCE_BYTES_MAX: usize = 64 << 10;
/// Resources described before other tasks run: about 100 µs.
const RESOURCES_IN_A_ROW: usize = 4;

/// Answers DescribeConfigs.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer(catalog: &Catalog, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let resources = reader.array_of("the resources", 3, read_resource)?;
    let synonyms = reader.i8("include_synonyms")? != 0;
    let documentation = request.version >= 3 && reader.i8("include_documentation")? != 0;
    reader.skip_tagged("the request")?;
    let form = Form { version: request.version, synonyms, documentation };
    let frame = describe_all(catalog, request, &resources, form).await;
    Ok(response::close(frame))
}

/// The answer, written as it grows: to count it first would be to describe everything twice.
async fn describe_all(catalog: &Catalog, request: &Request, resources: &[Resource], form: Form) -> BytesMut {
    let flexible = request.is_flexible();
    let room = request.frame_bytes.saturating_mul(ANSWER_TIMES).saturating_add(ANSWER_BYTES_MORE).min(ANSWER_BYTES_MAX);
    // A refusal takes less than twice what its resource took in the request.
    let refusals = request.frame_bytes.saturating_mul(2);
    let expected = resources.len().saturating_mul(RESOURCE_BYTES_MAX).min(room) + RESOURCE_BYTES_MAX + refusals;
    let mut frame = response::open(request, request.version, expected);
    let out = &mut Writer::new(&mut frame, flexible);
    out.i32(0); // throttle time
    out.count(Some(resources.len()));
    let mut refused = None;
    for (index, resource) in resources.iter().enumerate() {
        let before = frame.len();
        if refused.is_none() {
            write_result(&mut Writer::new(&mut frame, flexible), resource, &describe(catalog, resource), form);
            if frame.len() > room {
                frame.truncate(before);
                refused = Some(too_many(index));
            }
        }
        if let Some(why) = &mut refused {
            // The sentence stands once: a thousand of them would be what is to be avoided here.
            let refusal = Err((ErrorCode::InvalidRequest, std::mem::take(why)));
            write_result(&mut Writer::new(&mut frame, flexible), resource, &refusal, form);
        } else if index % RESOURCES_IN_A_ROW == RESOURCES_IN_A_ROW - 1 {
            host::yield_now().await;
        }
    }
    Writer::new(&mut frame, flexible).no_tagged();
    frame
}

fn read_resource(reader: &mut Reader) -> Result<Resource, WireError> {
    let kind = reader.i8("a resource's type")?;
    let name = reader.text("a resource's name")?;
    let keys = reader.nullable_array_of("the configuration keys", 1, |reader| reader.text("a configuration key"))?;
    // Kafka describes everything for an empty list too.
    let keys = keys.filter(|keys| !keys.is_empty()).map(each_once);
    reader.skip_tagged("a resource")?;
    Ok(Resource { kind, name, keys })
}

fn is_among(keys: &[StrBytes], name: &str) -> bool {
    keys.binary_search_by(|key| key.as_str().cmp(name)).is_ok()
}

/// How much is said about a setting.
#[derive(Clone, Copy)]
struct Form {
    version: i16,
    synonyms: bool,
    documentation: bool,
}

type Described = Result<Vec<ConfigEntry>, (ErrorCode, String)>;

fn describe(catalog: &Catalog, resource: &Resource) -> Described {
    let entries = match resource.kind {
        TOPIC => describe_topic(catalog, &resource.name)?,
        BROKER => describe_broker(catalog, &resource.name)?,
        LOGGER | CLIENT_METRICS | GROUP => return Err((ErrorCode::InvalidRequest, unknown_type(resource.kind))),
        _ => return Err((ErrorCode::InvalidRequest, MALFORMED.to_owned())),
    };
    let wanted = |entry: &ConfigEntry| resource.keys.as_ref().is_none_or(|keys| is_among(keys, entry.name));
    Ok(entries.into_iter().filter(wanted).collect())
}

fn describe_topic(catalog: &Catalog, name: &str) -> Described {
    names::check(name).map_err(|why| (ErrorCode::InvalidTopicException, why))?;
    let topic = catalog.topic(name).ok_or((ErrorCode::UnknownTopicOrPartition, String::new()))?;
    Ok(config::describe_topic(catalog.config(), &topic.overrides))
}

fn describe_broker(catalog: &Catalog, name: &str) -> Described {
    let config = catalog.config();
    let scope = Scope::to_describe(name, catalog.node_id());
    Ok(match scope.map_err(|why| (ErrorCode::InvalidRequest, why))? {
        Scope::AllBrokers => config::describe_all_brokers(config),
        Scope::ThisBroker => config::describe_broker(config),
    })
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
