//! AddPartitionsToTxn (24), versions 0 to 5: partitions come into a transaction before anything is written to them.
//!
//! 2 may answer 90 · 3 is flexible · 4 is for brokers: many transactions, which may only be looked at · 5 may answer 120.
//! One partition that does not exist keeps all of a transaction's from being added.
//!
//! Source: apache/kafka `KafkaApis.handleAddPartitionsToTxnRequest`; the answers were compared with Apache Kafka 4.4.0.

use std::rc::Rc;

use bytes::Bytes;

use super::Request;
use super::response::{self, Body};
use super::transactions::{Topics, each, existing, read_speaker, read_topics, told, write_codes};
use crate::broker::shard::Shard;
use crate::runtime::disk::Disk;
use crate::state::transactions::messages::{Answer, Command, Enlisting, Speaker};
use crate::wire::error_code::ErrorCode;
use crate::wire::reader::{Reader, WireError};
use crate::wire::sink::{Sink, Writer};

/// First version that may answer PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;
/// First version with many transactions.
const MANY_FROM: i16 = 4;
/// Fewest bytes of a transaction.
const TRANSACTION_BYTES_MIN: usize = 14;

struct Transaction {
    speaker: Speaker,
    verify_only: bool,
    topics: Topics<i32>,
}

/// Answers AddPartitionsToTxn.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn answer<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Bytes, WireError> {
    let transactions = read(request, body)?;
    let mut results = Vec::with_capacity(transactions.len());
    for transaction in transactions {
        let codes = add(shard, &transaction, request.version).await;
        results.push((transaction.speaker.transactional_id, codes));
    }
    Ok(response::frame(request, &Response { results }))
}

fn read(request: &Request, body: Bytes) -> Result<Vec<Transaction>, WireError> {
    let mut reader = request.reader(body);
    let transactions = if request.version < MANY_FROM {
        vec![read_one(&mut reader, false)?]
    } else {
        reader.array_of("the transactions", TRANSACTION_BYTES_MIN, |reader| {
            let transaction = read_one(reader, true)?;
            reader.skip_tagged("a transaction")?;
            Ok(transaction)
        })?
    };
    reader.skip_tagged("the request")?;
    Ok(transactions)
}

fn read_one(reader: &mut Reader, of_broker: bool) -> Result<Transaction, WireError> {
    let speaker = read_speaker(reader)?;
    let verify_only = of_broker && reader.i8("verify_only")? != 0;
    Ok(Transaction { speaker, verify_only, topics: read_topics(reader)? })
}

async fn add<D: Disk>(shard: &Rc<Shard<D>>, transaction: &Transaction, version: i16) -> Topics<(i32, ErrorCode)> {
    let topics = &transaction.topics;
    if transaction.speaker.transactional_id.is_empty() {
        return each(topics, |_, _| ErrorCode::InvalidRequest);
    }
    let partitions = match existing(&shard.catalog(), topics) {
        Ok(partitions) => partitions,
        Err(refused) => return refused,
    };
    let speaker = transaction.speaker.clone();
    let command = match (transaction.verify_only, version < MANY_FROM) {
        (true, _) => Command::Verify { speaker, partitions },
        (false, true) => Command::Add { speaker, partitions },
        (false, false) => Command::Enlist { speaker, partitions, enlisting: Enlisting::Add },
    };
    match shard.ask_transaction(command).await {
        Answer::Verified(Ok(codes)) => {
            let mut codes = codes.into_iter();
            each(topics, |_, _| codes.next().unwrap_or(ErrorCode::UnknownServerError))
        }
        Answer::Done(error) | Answer::Enlisted(error) | Answer::Verified(Err(error)) => {
            each(topics, |_, _| told(error, version, FENCED_FROM))
        }
        _ => each(topics, |_, _| ErrorCode::UnknownServerError),
    }
}

struct Response {
    results: Vec<(String, Topics<(i32, ErrorCode)>)>,
}

impl Body for Response {
    fn write<S: Sink>(&self, out: &mut Writer<'_, S>, version: i16) {
        out.i32(0); // throttle time
        if version < MANY_FROM {
            if let Some((_, topics)) = self.results.first() {
                write_codes(out, topics);
            }
            return out.no_tagged();
        }
        out.i16(ErrorCode::None.code());
        out.count(Some(self.results.len()));
        for (transactional_id, topics) in &self.results {
            out.nullable_text(Some(transactional_id));
            write_codes(out, topics);
            out.no_tagged();
        }
        out.no_tagged();
    }
}
