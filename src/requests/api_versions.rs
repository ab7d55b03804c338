//! ApiVersions (18), versions 0 to 4: what is served.
//!
//! 1 adds throttle_time_ms · 2 changes nothing · 3 is flexible, takes the client's software name and version, adds
//! supported and finalized features · 4 sends features whose minimum is 0 as well. Any higher version is answered too,
//! in the form of version 0 with UNSUPPORTED_VERSION, so that the client can go on in one that is served.
//! Left out: version 5 (checks a cluster and node id that the client expects).
//!
//! Features: `metadata.version`, by which tools tell the release, and `transaction.version`, by which producers choose the
//! protocol of KIP-890. One whose minimum is 0 is not sent as supported before version 4: clients refuse it there.

use bytes::Bytes;

use super::response::{self, Body};
use super::{Api, Request};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

/// A capability of the cluster by name, with the levels that the broker knows and the one that is in force.
struct Feature {
    name: &'static str,
    levels: (i16, i16),
    in_force: i16,
}

/// Metadata version 33 is Apache Kafka 4.4's.
const FEATURES: [Feature; 2] = [
    Feature { name: "metadata.version", levels: (7, 33), in_force: 33 },
    Feature { name: "transaction.version", levels: (0, 2), in_force: 2 },
];

/// First version in which the minimum of a supported feature may be 0.
const ZERO_FROM: i16 = 4;

/// Answers ApiVersions.
///
/// # Errors
/// Where the bytes are not the request.
pub fn answer(request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let error = match read(request, body)? {
        true => ErrorCode::None,
        false => ErrorCode::InvalidRequest,
    };
    Ok(response::frame(request, &Answer { error, apis: if error.is_none() { &Api::ALL } else { &[] } }))
}

/// The answer to a version that is not served: the form of version 0, with the versions of this one key.
#[must_use]
pub fn unsupported(request: &Request) -> Bytes {
    let answer = Answer { error: ErrorCode::UnsupportedVersion, apis: &[Api::ApiVersions] };
    response::encode(request, 0, &answer)
}

/// Reads the request; false for a software name or version that Kafka does not accept.
fn read(request: &Request, body: Bytes) -> Result<bool, WireError> {
    if request.version < 3 {
        return Ok(true);
    }
    let mut reader = request.reader(body);
    let name = reader.text("the client's software name")?;
    let version = reader.text("the client's software version")?;
    reader.skip_tagged("the request")?;
    Ok(is_software(&name) && is_software(&version))
}

/// Letters, digits, '-' and '.', with a letter or digit at both ends.
///
/// Source: KIP-511; apache/kafka `ApiVersionsRequest.isValid`.
fn is_software(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

struct Answer<'a> {
    error: ErrorCode,
    apis: &'a [Api],
}

impl Body for Answer<'_> {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i16(self.error.code());
        out.count(Some(self.apis.len()));
        for api in self.apis {
            out.i16(api.key());
            out.i16(*api.versions().start());
            out.i16(*api.versions().end());
            out.no_tagged();
        }
        if version >= 1 {
            out.i32(0); // throttle time
        }
        if version >= 3 {
            self.write_tagged(out, version);
        }
    }
}

impl Answer<'_> {
    fn write_tagged<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        if !self.error.is_none() {
            return out.no_tagged();
        }
        out.varint(3);
        out.tagged(0, |out| {
            let told = || FEATURES.iter().filter(|feature| version >= ZERO_FROM || feature.levels.0 > 0);
            out.count(Some(told().count()));
            for feature in told() {
                write_feature(out, feature.name, feature.levels.0, feature.levels.1);
            }
        });
        out.tagged(1, |out| out.i64(0)); // epoch of the finalized features
        out.tagged(2, |out| {
            out.count(Some(FEATURES.len()));
            for feature in &FEATURES {
                // The order is maximum, minimum here, and minimum, maximum above.
                write_feature(out, feature.name, feature.in_force, feature.in_force);
            }
        });
    }
}

fn write_feature<S: Sink>(out: &mut Writer<'_, S>, name: &str, first: i16, second: i16) {
    out.nullable_text(Some(name));
    out.i16(first);
    out.i16(second);
    out.no_tagged();
}
