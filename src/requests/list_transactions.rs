//! ListTransactions (66), versions 0 and 1: transactional ids by state, producer and age.
//!
//! 1 has the least time that a transaction has been open. Left out: version 2 (a regular expression for names).
//!
//! Source: apache/kafka `TransactionStateManager.listTransactionStates`; the answers were compared with Apache Kafka 4.4.0.

use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::response::{self, Body};
use crate::broker::shard::Shard;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::state::transactions::messages::Listed;
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};
use crate::wire::transaction_record::Status;

/// States of Kafka's that a client may name and that no transactional id here is ever in.
const NEVER: [&str; 2] = ["Dead", "PrepareEpochFence"];

struct Filters {
    states: Vec<StrBytes>,
    producer_ids: Vec<i64>,
    duration_ms: i64,
}

/// Answers ListTransactions.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let filters = read(request, body)?;
    let (error, mut listed) = match shard.list_transactions().await {
        Ok(listed) => (ErrorCode::None, listed),
        Err(error) => (error, Vec::new()),
    };
    let now_ms = clock::now_ms();
    listed.retain(|one| filters.let_pass(one, now_ms));
    let is_known = |name: &str| NEVER.contains(&name) || Status::ALL.iter().any(|status| status.name() == name);
    let unknown = filters.states.into_iter().filter(|name| !is_known(name)).collect();
    Ok(response::frame(request, &Response { error, unknown, listed }))
}

fn read(request: &Request, body: Bytes) -> Result<Filters, WireError> {
    let mut reader = request.reader(body);
    let states = reader.array_of("the states", 1, |reader| reader.text("a state"))?;
    let producer_ids = reader.array_of("the producer ids", 8, |reader| reader.i64("a producer id"))?;
    let duration_ms = if request.version >= 1 { reader.i64("the duration")? } else { -1 };
    reader.skip_tagged("the request")?;
    Ok(Filters { states, producer_ids, duration_ms })
}

impl Filters {
    fn let_pass(&self, one: &Listed, now_ms: i64) -> bool {
        (self.producer_ids.is_empty() || self.producer_ids.contains(&one.producer_id.0))
            && (self.states.is_empty() || self.states.iter().any(|name| **name == *one.status.name()))
            && (self.duration_ms < 0 || now_ms.saturating_sub(one.begun_ms) > self.duration_ms)
    }
}

struct Response {
    error: ErrorCode,
    unknown: Vec<StrBytes>,
    listed: Vec<Listed>,
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.i16(self.error.code());
        out.count(Some(self.unknown.len()));
        for name in &self.unknown {
            out.nullable_text(Some(name));
        }
        out.count(Some(self.listed.len()));
        for one in &self.listed {
            out.nullable_text(Some(&one.transactional_id));
            out.i64(one.producer_id.0);
            out.nullable_text(Some(one.status.name()));
            out.no_tagged();
        }
        out.no_tagged();
    }
}
