//! Length-prefixed frames, and the headers of requests and responses.
//!
//! A request header is version 1 (key, version, correlation id, client id) or 2 (tagged fields behind it); its
//! client id always has a length of 16 bits. A response header is version 0 (correlation id) or 1 (tagged fields
//! behind it); that of ApiVersions is always 0, so that a client can read it before it knows the broker.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Encodable, StrBytes};

use super::reader::{Reader, WireError};

/// Bytes of the length in front of a frame.
pub const PREFIX_BYTES: usize = 4;

/// Who asks what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// What is asked.
    pub api_key: ApiKey,
    /// In which version.
    pub api_version: i16,
    /// Number by which the client finds the answer.
    pub correlation_id: i32,
    /// Name that the client gives itself.
    pub client_id: Option<StrBytes>,
}

/// Reads the header of a request; gives it and the body.
///
/// # Errors
/// Where the bytes are no header. `UnknownApi` tells a key that nobody knows.
///
/// Source: apache/kafka `RequestHeader.parse`, KIP-482.
pub fn read_request_header(frame: Bytes) -> Result<(RequestHeader, Bytes), WireError> {
    let mut reader = Reader::new(frame, false);
    let key = reader.i16("the API key")?;
    let api_version = reader.i16("the API version")?;
    let correlation_id = reader.i32("the correlation id")?;
    let api_key = ApiKey::try_from(key).map_err(|()| WireError::UnknownApi(key))?;
    let client_id = reader.nullable_text("the client id")?;
    let mut reader = Reader::new(reader.rest(), api_key.request_header_version(api_version) >= 2);
    reader.skip_tagged("the request header")?;
    Ok((RequestHeader { api_key, api_version, correlation_id, client_id }, reader.rest()))
}

/// Writes a whole response frame: length, header, body.
///
/// # Errors
/// What the body says that it cannot be written in this version, for the log.
pub fn encode_response<T: Encodable>(
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    body: &T,
) -> Result<BytesMut, String> {
    let size = body.compute_size(api_version).map_err(|error| error.to_string())?;
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + 5 + size);
    out.put_i32(0);
    out.put_i32(correlation_id);
    if api_key.response_header_version(api_version) >= 1 {
        out.put_u8(0);
    }
    body.encode(&mut out, api_version).map_err(|error| error.to_string())?;
    set_prefix(&mut out);
    Ok(out)
}

/// Sets the length in front of a frame to what the frame has.
pub(crate) fn set_prefix(frame: &mut BytesMut) {
    let length = i32::try_from(frame.len().saturating_sub(PREFIX_BYTES)).unwrap_or(i32::MAX);
    if let Some(prefix) = frame.first_chunk_mut() {
        *prefix = length.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(key: i16, version: i16, rest: &[u8]) -> Result<(RequestHeader, Bytes), WireError> {
        let mut frame = BytesMut::new();
        frame.put_i16(key);
        frame.put_i16(version);
        frame.put_i32(7);
        frame.put_slice(rest);
        read_request_header(frame.freeze())
    }

    /// A null client id and an empty one are both followed by the tagged fields of a flexible header.
    #[test]
    fn client_id_keeps_its_16_bit_length_in_flexible_headers() {
        for (client_id, expected) in [(&[0xff, 0xff][..], None), (&[0, 0], Some("")), (&[0, 1, b'x'], Some("x"))] {
            let rest = [client_id, &[1, 5, 2, 0, 0, 42]].concat();
            let (header, body) = header(18, 3, &rest).unwrap();
            assert_eq!(header.client_id.as_deref(), expected);
            assert_eq!(body, &[42][..], "tagged fields are skipped");
        }
        let (_, body) = header(3, 1, &[0xff, 0xff, 42]).unwrap();
        assert_eq!(body, &[42][..], "header version 1 has no tagged fields");
    }

    #[test]
    fn unknown_keys_and_short_headers_are_refused() {
        assert_eq!(header(999, 0, &[]).unwrap_err(), WireError::UnknownApi(999));
        assert_eq!(header(0, 9, &[0, 1, b'x']).unwrap_err(), WireError::Short("the request header"));
        let lengths = [0xff, 0xfe];
        assert!(matches!(header(0, 3, &lengths).unwrap_err(), WireError::Length { length: -2, .. }));
    }

    #[test]
    fn api_versions_answers_with_header_0_and_others_with_their_own() {
        let body = kafka_protocol::messages::ApiVersionsResponse::default();
        let frame = encode_response(ApiKey::ApiVersions, 3, 7, &body).unwrap();
        assert_eq!(&frame[..10], &[0, 0, 0, 12, 0, 0, 0, 7, 0, 0], "error code straight behind the correlation id");
        let body = kafka_protocol::messages::MetadataResponse::default();
        let frame = encode_response(ApiKey::Metadata, 9, 7, &body).unwrap();
        assert_eq!(frame[8], 0, "tagged fields of the header");
        assert_eq!(frame.len() - 4, usize::from(frame[3]));
    }
}
