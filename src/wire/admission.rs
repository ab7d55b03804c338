//! What a client's records must fulfil before their partition's owner sees them, in Kafka's order.
//!
//! ```text
//! row   needs             check                                                        answer
//!   4   request version   one batch, of format 2, no zstd before version 7             87, 2, 76
//!   8   -                 base offset is 0                                             87
//!   9   topic             size                                                         10
//!  10   -                 CRC                                                          2
//!  11   -                 count and last offset delta                                  87
//!  12   -                 no control batch                                             87
//!  13   -                 base sequence; transactional only with a producer id         87
//!  14   topic, now        every record can be read, has its key and a fair timestamp   87, 32
//!  16   topic             fits into a segment (checked by the owner)                   18
//! ```
//! The first failure is the answer. Rows that need the state of other parts of the broker are theirs.
//!
//! Source: apache/kafka `ProduceRequest.validateRecords`, `UnifiedLog.append`, `LogValidator`.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;

use super::batch::{self, Attributes, BatchError, BatchHeader, Codec};
use super::error_code::ErrorCode;
use super::produce::RecordFault;
use super::records::{Fault, Offsets, RecordRules, Step, WalkError, Walked, Walker};
use super::unpack::Unpacker;

/// First version of Produce that may carry zstd.
const ZSTD_FROM: i16 = 7;

/// Bytes of CRC that cost about as much as one byte of unpacking.
const CRC_BYTES_PER_STEP_BYTE: usize = 16;

/// Faults that the summary of a refused batch names.
const FAULTS_NAMED: usize = 3;

/// A range of timestamps that holds none.
const NO_TIME: (i64, i64) = (i64::MAX, i64::MIN);

/// What a topic wants of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicRules {
    /// `max.message.bytes`: largest batch, as received.
    pub max_message_bytes: usize,
    /// `segment.bytes`: largest batch that has a place.
    pub segment_bytes: usize,
    /// Whether `cleanup.policy` compacts, so that each record needs a key.
    pub compact: bool,
    /// `message.timestamp.type`: the broker's time instead of the client's.
    pub log_append_time: bool,
    /// `message.timestamp.before.max.ms`: how far back a client's timestamp may lie.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far ahead a client's timestamp may lie.
    pub timestamp_after_max_ms: i64,
    /// `corelane.unpacked.batch.max.bytes`: most bytes that a batch may unpack to.
    pub unpacked_batch_max_bytes: u64,
}

/// Why records are not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The protocol's code.
    pub error: ErrorCode,
    /// The reason in a sentence.
    pub message: String,
    /// Records that are to blame, if single ones are.
    pub record_errors: Vec<RecordFault>,
    /// Whether the answer tells the log start offset; otherwise it says -1.
    pub tells_log_start: bool,
    /// Whether the answer tells the sentence: Kafka tells one for few reasons, and clients show it instead of their own.
    pub tells_message: bool,
}

impl Refused {
    fn new(error: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { error, message, record_errors: Vec::new(), tells_log_start: false, tells_message: false }
    }

    /// Bytes in which no batch can be told.
    fn corrupt(error: &BatchError) -> Self {
        Self::new(ErrorCode::CorruptMessage, error.to_string())
    }

    fn and_say_so(self) -> Self {
        Self { tells_message: true, ..self }
    }

    /// A batch that breaks a rule of its content.
    fn invalid(message: impl Into<String>) -> Self {
        Self { tells_log_start: true, ..Self::new(ErrorCode::InvalidRecord, message) }
    }
}

/// The one batch of a partition's records, as yet unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    /// Its header.
    pub header: BatchHeader,
    /// All of it.
    pub batch: Bytes,
}

impl Framed {
    /// Finds the batch (row 4): what a request must fulfil, whatever the topic.
    ///
    /// # Errors
    /// 87 for no batch, several ones or an old format; 2 for one that cannot be told; 76 for zstd before version 7.
    pub fn find(records: Option<Bytes>, version: i16) -> Result<Self, Refused> {
        let records = records.unwrap_or_default();
        let no_batch = || Refused::new(ErrorCode::InvalidRecord, "the request holds no whole record batch");
        let first = BatchHeader::first_of_run(&records).map_err(|error| Refused::corrupt(&error))?;
        let (magic, size) = first.ok_or_else(no_batch)?;
        if magic != batch::MAGIC {
            return Err(Refused::new(ErrorCode::InvalidRecord, BatchError::OldMagic(magic).to_string()));
        }
        let header = BatchHeader::read(&records);
        let codec = header.as_ref().ok().and_then(|header| header.attributes.codec());
        if version < ZSTD_FROM && codec == Some(Codec::Zstd) {
            let message = format!("version {version} of Produce does not know zstd; version {ZSTD_FROM} does");
            return Err(Refused::new(ErrorCode::UnsupportedCompressionType, message));
        }
        check_rest(records.get(size..).unwrap_or_default())?;
        let header = header.map_err(|error| Refused::corrupt(&error))?;
        Ok(Self { header, batch: records.slice(..size) })
    }
}

/// What may follow the one batch: nothing, or the start of a second one that was cut off, which is dropped.
///
/// Source: apache/kafka `ProduceRequest.validateRecords`, `UnifiedLog.trimInvalidBytes`.
fn check_rest(rest: &[u8]) -> Result<(), Refused> {
    match BatchHeader::first_of_run(rest) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(Refused::new(
            ErrorCode::InvalidRecord,
            "a produce request holds exactly one record batch per partition",
        )),
        Err(error) => Err(Refused::corrupt(&error)),
    }
}

/// What must be changed in a batch before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Nothing: its timestamps are right.
    Keep,
    /// Kind and maximum of its timestamps, by [`batch::set_max_timestamp`].
    Set {
        /// Whether the broker's time takes the place of the client's.
        log_append_time: bool,
        /// Largest timestamp, in ms.
        max_timestamp: i64,
    },
}

impl Stamp {
    /// Changes a copy of the batch.
    pub fn apply(self, batch: &mut [u8]) {
        if let Self::Set { log_append_time, max_timestamp } = self {
            batch::set_max_timestamp(batch, log_append_time, max_timestamp);
        }
    }
}

/// A batch that may be appended as far as its bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Its header as received.
    pub header: BatchHeader,
    /// All of it as received.
    pub batch: Bytes,
    /// What must be changed before it is stored.
    pub stamp: Stamp,
    /// Largest timestamp as it will be stored, in ms.
    pub max_timestamp: i64,
    /// Index of the first record that has it.
    pub max_timestamp_index: i32,
}

impl Checked {
    /// Row 16, for the owner: whether the batch fits into a segment.
    ///
    /// # Errors
    /// 18 if it does not.
    pub fn check_segment(&self, segment_bytes: usize) -> Result<(), Refused> {
        if self.batch.len() <= segment_bytes {
            return Ok(());
        }
        let message = format!("a batch of {} bytes does not fit into segment.bytes={segment_bytes}", self.batch.len());
        Err(Refused::new(ErrorCode::RecordListTooLarge, message))
    }
}

/// Where a check stands after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do: let others run, then go on.
    More,
    /// The batch may be appended.
    Done(Checked),
}

/// Rows 8 to 14 for one batch, in steps of bounded work.
#[derive(Debug)]
pub struct Admission {
    framed: Framed,
    rules: TopicRules,
    now_ms: i64,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Crc(CrcSteps),
    Walk(Box<Walker>),
    Over,
}

impl Admission {
    /// Begins with the rows that cost nothing: 8 and 9.
    ///
    /// # Errors
    /// 87 for a base offset other than 0, 10 for a batch that is too large.
    pub fn start(framed: Framed, rules: TopicRules, now_ms: i64) -> Result<Self, Refused> {
        let base_offset = framed.header.base_offset;
        if base_offset.0 != 0 {
            return Err(Refused::invalid(format!("the base offset of a client's batch is 0, not {base_offset}")));
        }
        if framed.batch.len() > rules.max_message_bytes {
            let message = format!(
                "the batch has {} bytes, the topic allows max.message.bytes={}",
                framed.batch.len(),
                rules.max_message_bytes
            );
            return Err(Refused::new(ErrorCode::MessageTooLarge, message));
        }
        Ok(Self { framed, rules, now_ms, phase: Phase::Crc(CrcSteps::default()) })
    }

    /// Goes on for about as much work as unpacking and walking `bytes_max` bytes.
    ///
    /// # Errors
    /// The first failure of rows 10 to 14; the check is over then.
    ///
    /// # Panics
    /// If it is called again after it has ended.
    pub fn step(&mut self, bytes_max: usize, unpacker: &mut Unpacker) -> Result<Progress, Refused> {
        match &mut self.phase {
            Phase::Crc(steps) => match steps.step(&self.framed.batch, bytes_max) {
                None => Ok(Progress::More),
                Some(computed) => {
                    self.begin_walk(computed, unpacker)?;
                    self.walk(bytes_max, unpacker)
                }
            },
            Phase::Walk(_) => self.walk(bytes_max, unpacker),
            Phase::Over => panic!("a check that has ended was asked to go on"),
        }
    }

    /// Does all of it at once, for small batches.
    ///
    /// # Errors
    /// The first failure of rows 10 to 14.
    pub fn finish(mut self, unpacker: &mut Unpacker) -> Result<Checked, Refused> {
        loop {
            if let Progress::Done(checked) = self.step(usize::MAX, unpacker)? {
                return Ok(checked);
            }
        }
    }

    /// Gives the contexts of a check back that is not gone on with.
    pub fn give_up(self, unpacker: &mut Unpacker) {
        if let Phase::Walk(walker) = self.phase {
            walker.recycle(unpacker);
        }
    }

    /// Rows 10 to 13, then makes ready for 14.
    fn begin_walk(&mut self, computed_crc: u32, unpacker: &mut Unpacker) -> Result<(), Refused> {
        let header = &self.framed.header;
        self.phase = Phase::Over;
        if header.crc != computed_crc {
            let message = format!("the CRC of the batch is {computed_crc:#010x}, its header says {:#010x}", header.crc);
            return Err(Refused::new(ErrorCode::CorruptMessage, message));
        }
        check_shape(header)?;
        let rules = record_rules(&self.rules, header.attributes, self.now_ms);
        let walker = Walker::start(&self.framed.batch, header, &rules, unpacker).map_err(refuse_walk)?;
        self.phase = Phase::Walk(Box::new(walker));
        Ok(())
    }

    /// Row 14.
    fn walk(&mut self, bytes_max: usize, unpacker: &mut Unpacker) -> Result<Progress, Refused> {
        let Phase::Walk(mut walker) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Ok(Progress::More);
        };
        match walker.step(bytes_max) {
            Ok(Step::More) => {
                self.phase = Phase::Walk(walker);
                Ok(Progress::More)
            }
            Ok(Step::Done(walked)) => {
                walker.recycle(unpacker);
                self.conclude(walked).map(Progress::Done)
            }
            Err(error) => {
                walker.recycle(unpacker);
                Err(refuse_walk(error))
            }
        }
    }

    fn conclude(&mut self, walked: Walked) -> Result<Checked, Refused> {
        if !walked.faults.is_empty() {
            let rules = record_rules(&self.rules, self.framed.header.attributes, self.now_ms);
            return Err(refuse_faults(&walked.faults, rules.timestamps));
        }
        let header = self.framed.header;
        let (max_timestamp, max_timestamp_index) = match self.rules.log_append_time {
            true => (self.now_ms, 0),
            false => (walked.max_timestamp, walked.max_timestamp_index),
        };
        let stamp = stamp(&header, self.rules.log_append_time, max_timestamp);
        let batch = std::mem::take(&mut self.framed.batch);
        Ok(Checked { header, batch, stamp, max_timestamp, max_timestamp_index })
    }
}

/// A CRC on its way through a batch.
#[derive(Debug, Default)]
struct CrcSteps {
    digest: Option<Box<crc_fast::Digest>>,
    read: usize,
}

impl CrcSteps {
    /// Goes on; gives the CRC once it has seen the whole batch. Most batches need one step and no digest.
    fn step(&mut self, batch: &[u8], bytes_max: usize) -> Option<u32> {
        let covered = batch.get(batch::CRC_START..).unwrap_or_default();
        let part_bytes = bytes_max.saturating_mul(CRC_BYTES_PER_STEP_BYTE);
        if covered.len() <= part_bytes && self.digest.is_none() {
            return Some(batch::computed_crc(batch));
        }
        let digest = self.digest.get_or_insert_with(|| Box::new(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi)));
        let rest = covered.get(self.read..).unwrap_or_default();
        let part = rest.get(..part_bytes.max(1)).unwrap_or(rest);
        digest.update(part);
        self.read += part.len();
        (self.read == covered.len()).then(|| u32::try_from(digest.finalize()).unwrap_or_default())
    }
}

/// What differs from the header as received; a client's maximum that is wrong is put right, as Kafka does.
fn stamp(header: &BatchHeader, log_append_time: bool, max_timestamp: i64) -> Stamp {
    if header.attributes.is_log_append_time() == log_append_time && header.max_timestamp == max_timestamp {
        return Stamp::Keep;
    }
    Stamp::Set { log_append_time, max_timestamp }
}

/// Rows 11 to 13: what the header alone must fulfil.
fn check_shape(header: &BatchHeader) -> Result<(), Refused> {
    let BatchHeader { records_count, last_offset_delta, attributes, base_sequence, .. } = *header;
    if last_offset_delta < 0 || records_count <= 0 || records_count - 1 != last_offset_delta {
        return Err(Refused::invalid(format!(
            "a batch of {records_count} records cannot have the last offset delta {last_offset_delta}"
        )));
    }
    if attributes.is_control() {
        return Err(Refused::invalid("clients do not write control records"));
    }
    if header.is_idempotent() && base_sequence.0 < 0 {
        return Err(Refused::invalid(format!(
            "the sequence {} of producer {} is negative",
            base_sequence.0, header.producer_id.0
        )));
    }
    if attributes.is_transactional() && !header.is_idempotent() {
        return Err(Refused::invalid("a transactional batch needs a producer id"));
    }
    Ok(())
}

/// Where the broker sets the time, a client that claims to have set the broker's is refused; elsewhere its claim is
/// corrected.
///
/// Source: apache/kafka `LogValidator.validateTimestamp`.
fn record_rules(rules: &TopicRules, claimed: Attributes, now_ms: i64) -> RecordRules {
    let earliest = now_ms.saturating_sub(rules.timestamp_before_max_ms);
    let latest = now_ms.saturating_add(rules.timestamp_after_max_ms);
    RecordRules {
        key_required: rules.compact,
        timestamps: match (rules.log_append_time, claimed.is_log_append_time()) {
            (false, _) => Some((earliest, latest)),
            (true, false) => None,
            (true, true) => Some(NO_TIME),
        },
        unpacked_bytes_max: rules.unpacked_batch_max_bytes,
        offsets: Offsets::Dense,
    }
}

fn refuse_walk(error: WalkError) -> Refused {
    Refused::invalid(error.to_string())
}

/// One bad record refuses the batch: 32 if any is out of time, else 87; every bad one is listed.
///
/// Source: apache/kafka `LogValidator.processRecordErrors`.
fn refuse_faults(faults: &[(i32, Fault)], timestamps: Option<(i64, i64)>) -> Refused {
    let record_errors: Vec<_> = faults
        .iter()
        .map(|(index, fault)| RecordFault { index: *index, message: Some(describe(*fault, timestamps)) })
        .collect();
    let by_time = faults.iter().any(|(_, fault)| matches!(fault, Fault::Timestamp(_)));
    let error = if by_time { ErrorCode::InvalidTimestamp } else { ErrorCode::InvalidRecord };
    let message = summarise(&record_errors);
    Refused { error, record_errors, ..Refused::invalid(message).and_say_so() }
}

fn describe(fault: Fault, timestamps: Option<(i64, i64)>) -> String {
    match (fault, timestamps) {
        (Fault::NoKey, _) => "a compacted topic needs a key in each record".to_owned(),
        (Fault::Timestamp(_), Some(NO_TIME)) => {
            "the timestamps claim to be the broker's (LogAppendTime), which only a broker may say".to_owned()
        }
        (Fault::Timestamp(timestamp), Some((earliest, latest))) => {
            format!("timestamp {timestamp} is out of range: the topic accepts {earliest} to {latest}")
        }
        (Fault::Timestamp(timestamp), None) => format!("timestamp {timestamp} is out of range"),
    }
}

fn summarise(record_errors: &[RecordFault]) -> String {
    let named: Vec<_> = record_errors
        .iter()
        .take(FAULTS_NAMED)
        .map(|fault| format!("record {}: {}", fault.index, fault.message.as_deref().unwrap_or_default()))
        .collect();
    let more = record_errors.len().saturating_sub(FAULTS_NAMED);
    let tail = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("the batch was refused for {} of its records: {}{tail}", record_errors.len(), named.join("; "))
}
