//! Produce (0), versions 3 to 13 (0 to 2 are advertised for old librdkafka and closed, as Kafka 4 does): append batches.
//!
//! 5 tells the log start · 7 allows zstd · 8 names bad records · 9 is flexible · 10 tells the leader · 11 knows
//! TRANSACTION_ABORTABLE · 12 adds its partitions to the transaction · 13 names topics by id.

use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;

use super::{Begun, Outcome, Request};
use crate::broker::catalog::{Catalog, Topic};
use crate::broker::messages::{AckLevel, Answer, Ask, CheckedBatch, PartitionKey, ProduceItem, Produced};
use crate::broker::shard::{LocalFuture, Shard};
use crate::config::TimestampType;
use crate::ids::{Offset, ShardId};
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host;
use crate::state::enlisting::{Entry, Protocol, Question};
use crate::state::transactions::messages::Speaker;
use crate::wire::admission::{Admission, Checked, Framed, Progress, Refused, Stamp, TopicRules};
use crate::wire::batch::BatchHeader;
use crate::wire::error_code::ErrorCode;
use crate::wire::produce::{PartitionAppended, PartitionRecords, ProduceRequest, ProduceResponse, TopicAppended};
use crate::wire::reader::WireError;
use crate::wire::records::STEP_BYTES;
use crate::wire::topic::TopicRef;

/// What became of one partition so far: an answer, or the place of its batch among those that its owner was given.
enum Slot {
    Settled(PartitionAppended),
    Asked {
        index: i32,
        owner: ShardId,
        at: usize,
        /// What is answered whatever the owner says: other records for the same partition could not be told.
        instead: Option<Box<PartitionAppended>>,
    },
}

/// Begins a Produce: checks what needs no owner and hands the batches to their owners. What it returns is the answer only.
///
/// # Errors
/// Where the bytes are not the request.
pub async fn begin<D: Disk>(shard: &Rc<Shard<D>>, request: &Request, body: Bytes) -> Result<Begun, WireError> {
    let mut produce = ProduceRequest::read(body, request.version)?;
    let (version, correlation_id) = (request.version, request.correlation_id);
    produce.name_each_once();
    if let Some((error, message)) = refuse_whole(&produce) {
        let is_silent = produce.acks == 0;
        let refused = answer_all(produce, error, message.as_ref());
        return Ok(Begun::Now(finish(&refused, version, correlation_id, is_silent)));
    }
    let (acks, topics) = (produce.acks, produce.topics);
    let asker = Asker { version, acks, transactional_id: produce.transactional_id, verifies: true };
    let mut asks: Vec<(ShardId, Vec<ProduceItem>)> = Vec::with_capacity(1);
    let mut slots = Vec::with_capacity(topics.len());
    let catalog = shard.catalog();
    for topic in topics {
        let known = find_topic(&catalog, &topic.topic);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let slot = match &known {
                Err(error) => Slot::Settled(PartitionAppended::refused(partition.index, *error)),
                Ok(known) => place(shard, known, partition, &asker, &mut asks).await,
            };
            partitions.push(slot);
        }
        slots.push((topic.topic, partitions));
    }
    shard.lanes_have_room().await;
    let level = match acks {
        0 => AckLevel::None,
        1 => AckLevel::Written,
        _ => AckLevel::Durable,
    };
    let answers: Vec<_> =
        asks.into_iter().map(|(owner, items)| (owner, shard.ask(owner, Ask::Produce(items, level)))).collect();
    Ok(Begun::Later(Box::pin(async move {
        let response = gather(slots, answers).await;
        finish(&response, version, correlation_id, acks == 0)
    })))
}

/// What a request says beside its batches.
struct Asker {
    version: i16,
    acks: i16,
    transactional_id: Option<StrBytes>,
    /// Coordinators are asked also for those who add their partitions by themselves.
    verifies: bool,
}

impl Asker {
    /// How a batch comes into its transaction; `None` where it has none.
    fn entry(&self, header: &BatchHeader) -> Option<Entry> {
        if !header.attributes.is_transactional() || !header.is_idempotent() {
            return None;
        }
        let protocol = Protocol::of_produce(self.version);
        if protocol != Protocol::Adds && !self.verifies {
            return Some(Entry::Unasked);
        }
        let speaker = Speaker {
            transactional_id: self.transactional_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            producer_id: header.producer_id,
            epoch: header.producer_epoch,
        };
        Some(Entry::Ask(Box::new(Question { speaker, base_sequence: header.base_sequence, protocol })))
    }
}

/// Why the request as a whole is refused, by the first of its batches that gives a reason: it belongs to a transaction and
/// nobody says to which, it is of another producer than those before, or no batch can be told in its bytes.
///
/// Source: apache/kafka `RequestUtils.hasTransactionalRecords` and what becomes of its exceptions,
/// `ReplicaManager.handleProduceAppend`.
fn refuse_whole(produce: &ProduceRequest) -> Option<(ErrorCode, Option<Arc<str>>)> {
    let is_anonymous = produce.transactional_id.is_none();
    let mut producer = None;
    let mut has_several = false;
    let mut records =
        produce.topics.iter().flat_map(|topic| &topic.partitions).flat_map(PartitionRecords::all).flatten();
    let refused = records.find_map(|records| match BatchHeader::first_of_run(records) {
        Err(error) => Some((ErrorCode::CorruptMessage, Some(error.to_string().into()))),
        Ok(_) => {
            let header = BatchHeader::read(records).ok().filter(|header| header.attributes.is_transactional())?;
            has_several |= *producer.get_or_insert(header.producer_id) != header.producer_id;
            is_anonymous.then_some((ErrorCode::TransactionalIdAuthorizationFailed, None))
        }
    });
    refused.or_else(|| has_several.then_some((ErrorCode::InvalidProducerIdMapping, None)))
}

fn answer_all(produce: ProduceRequest, error: ErrorCode, message: Option<&Arc<str>>) -> ProduceResponse {
    let refused =
        |index| PartitionAppended { error_message: message.cloned(), ..PartitionAppended::refused(index, error) };
    let topics = produce.topics.into_iter().map(|topic| TopicAppended {
        topic: topic.topic,
        partitions: topic.partitions.iter().map(|one| refused(one.index)).collect(),
    });
    ProduceResponse { topics: topics.collect(), throttle_ms: 0 }
}

fn find_topic(catalog: &Catalog, topic: &TopicRef) -> Result<Arc<Topic>, ErrorCode> {
    match topic {
        TopicRef::Name(name) => catalog.topic(name).cloned().ok_or(ErrorCode::UnknownTopicOrPartition),
        TopicRef::Id(id) => catalog.topic_by_id(*id).cloned().ok_or(ErrorCode::UnknownTopicId),
    }
}

/// Finds the batch among all that the request says of one partition.
///
/// Of several ones the last that can be told is appended; the answer is that of the last that cannot, if there is one.
///
/// Source: apache/kafka `KafkaApis.handleProduceRequest`, which puts both into maps.
fn find_batch(partition: &PartitionRecords, version: i16) -> (Option<Framed>, Option<PartitionAppended>) {
    let (mut found, mut answer) = (None, None);
    for records in partition.all() {
        match Framed::find(records.cloned(), version) {
            Ok(framed) => found = Some(framed),
            Err(reason) => answer = Some(refused(partition.index, reason)),
        }
    }
    (found, answer)
}

/// Checks the records of one partition and puts them with the others of the same owner.
async fn place<D: Disk>(
    shard: &Rc<Shard<D>>,
    topic: &Topic,
    partition: PartitionRecords,
    asker: &Asker,
    asks: &mut Vec<(ShardId, Vec<ProduceItem>)>,
) -> Slot {
    let index = partition.index;
    if topic.log_id(index).is_none() {
        return Slot::Settled(PartitionAppended::refused(index, ErrorCode::UnknownTopicOrPartition));
    }
    let acks = asker.acks;
    let (framed, instead) = find_batch(&partition, asker.version);
    // After what is wrong with the partition and its records, as in Kafka. `min.insync.replicas` is not asked: Kafka
    // takes at most the replicas that there are, and that is one.
    let framed = match (framed, &instead) {
        (Some(framed), _) if (-1..=1).contains(&acks) && !topic.internal => framed,
        (_, Some(answer)) => return Slot::Settled(answer.clone()),
        _ => return Slot::Settled(PartitionAppended::refused(index, refusal_of(topic, acks))),
    };
    let entry = asker.entry(&framed.header);
    let checked = check(shard, topic, framed).await;
    let key = PartitionKey { topic: topic.id, partition: index };
    let owner = shard.owner(key);
    let at = match asks.iter().position(|(to, _)| *to == owner) {
        Some(at) => at,
        None => {
            asks.push((owner, Vec::with_capacity(1)));
            asks.len() - 1
        }
    };
    let items = &mut asks[at].1;
    items.push(ProduceItem { key, checked, entry });
    Slot::Asked { index, owner, at: items.len() - 1, instead: instead.map(Box::new) }
}

/// Why nothing is appended whatever the batch is.
fn refusal_of(topic: &Topic, acks: i16) -> ErrorCode {
    match topic.internal && (-1..=1).contains(&acks) {
        true => ErrorCode::InvalidTopicException,
        false => ErrorCode::InvalidRequiredAcks,
    }
}

/// CRC and walk of the records, letting other connections run between the steps of a large one.
async fn check<D: Disk>(shard: &Rc<Shard<D>>, topic: &Topic, framed: Framed) -> Result<CheckedBatch, Refused> {
    let rules = rules_of(topic, shard.config().unpacked_batch_max_bytes);
    let now_ms = clock::now_ms();
    let mut admission = Admission::start(framed, rules, now_ms)?;
    loop {
        let progress = admission.step(STEP_BYTES, &mut shard.unpacker().borrow_mut())?;
        match progress {
            Progress::Done(checked) => return Ok(stamped(checked, rules.log_append_time, now_ms)),
            Progress::More => host::yield_now().await,
        }
    }
}

fn rules_of(topic: &Topic, unpacked_batch_max_bytes: usize) -> TopicRules {
    let settings = &topic.settings;
    TopicRules {
        max_message_bytes: settings.max_message_bytes,
        segment_bytes: usize::try_from(settings.segment_bytes).unwrap_or(usize::MAX),
        compact: settings.cleanup_compact,
        log_append_time: settings.timestamp_type == TimestampType::LogAppendTime,
        timestamp_before_max_ms: settings.timestamp_before_max_ms,
        timestamp_after_max_ms: settings.timestamp_after_max_ms,
        unpacked_batch_max_bytes: unpacked_batch_max_bytes as u64,
    }
}

/// Timestamps that the broker sets are under the checksum, so they are set here, in a copy; nothing else is copied.
fn stamped(checked: Checked, log_append_time: bool, now_ms: i64) -> CheckedBatch {
    let bytes = match checked.stamp {
        Stamp::Keep => checked.batch,
        stamp @ Stamp::Set { .. } => {
            let mut copy = BytesMut::from(&checked.batch[..]);
            stamp.apply(&mut copy);
            copy.freeze()
        }
    };
    let header = BatchHeader { max_timestamp: checked.max_timestamp, ..checked.header };
    CheckedBatch { header, bytes, log_append_time_ms: if log_append_time { now_ms } else { -1 } }
}

async fn gather(slots: Vec<(TopicRef, Vec<Slot>)>, asked: Vec<(ShardId, LocalFuture<Answer>)>) -> ProduceResponse {
    let mut results = Vec::with_capacity(asked.len());
    for (owner, answer) in asked {
        if let Answer::Produced(produced) = answer.await {
            results.push((owner, produced));
        }
    }
    let answer_of = |slot: Slot| match slot {
        Slot::Settled(settled) => settled,
        Slot::Asked { instead: Some(answer), .. } => *answer,
        Slot::Asked { index, owner, at, instead: None } => {
            let produced = results.iter().find(|(from, _)| *from == owner).and_then(|(_, produced)| produced.get(at));
            produced.map_or_else(
                || PartitionAppended::refused(index, ErrorCode::KafkaStorageError),
                |produced| appended(index, produced),
            )
        }
    };
    let topics = slots
        .into_iter()
        .map(|(topic, slots)| TopicAppended { topic, partitions: slots.into_iter().map(answer_of).collect() });
    ProduceResponse { topics: topics.collect(), throttle_ms: 0 }
}

fn appended(index: i32, produced: &Produced) -> PartitionAppended {
    let mut answer = PartitionAppended::appended(
        index,
        produced.base_offset,
        produced.log_append_time_ms,
        produced.log_start_offset,
    );
    answer.error = produced.error;
    if let Some(reason) = &produced.detail {
        answer.record_errors.clone_from(&reason.record_errors);
        answer.error_message = told(reason);
    }
    answer
}

fn refused(index: i32, reason: Refused) -> PartitionAppended {
    PartitionAppended {
        error_message: told(&reason),
        record_errors: reason.record_errors,
        log_start_offset: Offset(-1),
        ..PartitionAppended::refused(index, reason.error)
    }
}

/// The sentence for the answer; all of them go to the log of a broker whose level is `debug`.
fn told(reason: &Refused) -> Option<Arc<str>> {
    tracing::debug!("a batch was refused with {}: {}", reason.error.name(), reason.message);
    reason.tells_message.then(|| reason.message.as_str().into())
}

/// Without acks there is no answer, and an error shows as a closed connection.
fn finish(response: &ProduceResponse, version: i16, correlation_id: i32, is_silent: bool) -> Outcome {
    if !is_silent {
        return Outcome::Answer(response.encode(version, correlation_id).freeze());
    }
    let errors = response.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error);
    match errors.into_iter().find(|error| *error != ErrorCode::None) {
        None => Outcome::Nothing,
        Some(error) => Outcome::Close(format!("a produce without acks was refused: {}", error.name())),
    }
}
