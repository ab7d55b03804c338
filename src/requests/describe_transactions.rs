//! DescribeTransactions (65), version 0: how transactional ids stand.
//!
//! Memory: each name is answered once, whatever the request repeats.
//!
//! Source: apache/kafka `TransactionCoordinator.handleDescribeTransactions`; the answers were compared with Apache Kafka
//! 4.4.0.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::Request;
use super::groups::each_first;
use super::response::{self, Body};
use crate::broker::shard::Shard;
use crate::runtime::disk::Disk;
use crate::state::transactions::messages::{Answer, Command, Described};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::WireError;
use crate::wire::sink::{Sink, Writer};

/// Transactional ids that are asked for at the same time, so that a long list takes little memory.
const AT_A_TIME: usize = 64;

/// Answers DescribeTransactions.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let mut reader = request.reader(body);
    let names = each_first(reader.array_of("the transactional ids", 1, |reader| reader.text("a transactional id"))?);
    reader.skip_tagged("the request")?;
    let mut described = Vec::with_capacity(names.len());
    for some in names.chunks(AT_A_TIME) {
        let command = |name: &StrBytes| Command::Describe { transactional_id: name.to_string() };
        let asked: Vec<_> = some.iter().map(|name| shard.ask_transaction(command(name))).collect();
        for answer in asked {
            described.push(match answer.await {
                Answer::Described(described) => described,
                _ => Err(ErrorCode::UnknownServerError),
            });
        }
    }
    Ok(response::frame(request, &Response { names, described }))
}

struct Response {
    names: Vec<StrBytes>,
    described: Vec<Result<Box<Described>, ErrorCode>>,
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, _version: i16) {
        out.i32(0); // throttle time
        out.count(Some(self.names.len()));
        for (name, described) in self.names.iter().zip(&self.described) {
            match described {
                Ok(described) => write_one(out, name, described),
                Err(error) => write_refused(out, name, *error),
            }
        }
        out.no_tagged();
    }
}

fn write_one<S: Sink>(out: &mut Writer<'_, S>, name: &str, described: &Described) {
    out.i16(ErrorCode::None.code());
    out.nullable_text(Some(name));
    out.nullable_text(Some(described.status.name()));
    out.i32(described.timeout_ms);
    out.i64(described.begun_ms);
    out.i64(described.producer_id.0);
    out.i16(described.epoch.0);
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for of in &described.partitions {
        topics.entry(&of.topic).or_default().push(of.partition);
    }
    out.count(Some(topics.len()));
    for (topic, partitions) in topics {
        out.nullable_text(Some(topic));
        out.count(Some(partitions.len()));
        partitions.into_iter().for_each(|partition| out.i32(partition));
        out.no_tagged();
    }
    out.no_tagged();
}

/// Numbers that say nothing are 0 here, as in Kafka.
fn write_refused<S: Sink>(out: &mut Writer<'_, S>, name: &str, error: ErrorCode) {
    out.i16(error.code());
    out.nullable_text(Some(name));
    out.nullable_text(Some(""));
    out.i32(0);
    out.i64(0);
    out.i64(0);
    out.i16(0);
    out.count(Some(0));
    out.no_tagged();
}
