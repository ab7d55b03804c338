//! Walks the records of a batch once, without building or copying them: what is stored can be read.
//!
//! ```text
//! record: length · attributes 1 · timestamp delta · offset delta · key length · key · value length · value
//!         · number of headers · (name length · name · value length · value) again and again
//! ```
//! Lengths and deltas are zigzag numbers of variable length. A compressed payload is unpacked through a fixed
//! window. Both happen in steps, so that a long batch does not hold up the others of its core.

use bytes::Bytes;

use super::batch::{BatchHeader, Codec, HEADER_BYTES};
use super::unpack::{Contexts, Moved, Stream, UnpackError, Unpacker, unpacked_limit};
use super::varint::{self, Varint};

/// Unpacked bytes that are about 100 µs of work.
pub const STEP_BYTES: usize = 64 * 1024;

/// Most bytes of a record up to its key: five numbers and the attributes.
const HEAD_BYTES_MAX: usize = 4 * varint::BYTES_MAX_32 + varint::BYTES_MAX_64 + 1;

/// Fewest bytes of a whole record: its length, and six fields of one byte each.
const RECORD_BYTES_MIN: usize = 7;

/// What a topic wants of each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRules {
    /// Each record needs a key.
    pub key_required: bool,
    /// Timestamps that are accepted, in ms, both ends included; -1 always is.
    pub timestamps: Option<(i64, i64)>,
    /// Most bytes that a payload may unpack to.
    pub unpacked_bytes_max: u64,
    /// How the offsets of the records follow each other.
    pub offsets: Offsets,
}

/// How the offsets of a batch's records follow each other, counted from its base offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offsets {
    /// Each record's is its index: what clients send.
    Dense,
    /// They ascend: what compaction leaves.
    Ascending {
        /// Records below this are walked over without being judged.
        judged_from: i32,
    },
}

/// What is wrong with a record that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has no key.
    NoKey,
    /// Its timestamp, in ms, is out of range.
    Timestamp(i64),
}

/// What the walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Largest timestamp, in ms; -1 if none is larger.
    pub max_timestamp: i64,
    /// Offset of the first record that has it, counted from the base offset.
    pub max_timestamp_index: i32,
    /// Records that break the topic's rules: the same offset and what is wrong, in order.
    pub faults: Vec<(i32, Fault)>,
    /// Bytes of the records, unpacked.
    pub unpacked_bytes: u64,
}

/// Why the records of a batch cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalkError {
    /// Codec 5, 6 or 7.
    #[error("{0} is no known codec")]
    UnknownCodec(i16),
    /// The payload cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The payload unpacks to more than is allowed.
    #[error("the records unpack to more than {0} bytes")]
    TooLarge(u64),
    /// The bytes of a record make no sense.
    #[error("record {index} is broken: {what}")]
    Broken {
        /// Index within the batch.
        index: i32,
        /// What makes no sense.
        what: &'static str,
    },
    /// More or fewer records than the header says.
    #[error("the header of the batch says {expected} records, there are {found}")]
    Count {
        /// As the header says.
        expected: i32,
        /// Whole records that are there; one more than expected stands for any number more.
        found: i32,
    },
}

/// Where a walk stands after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do: let others run, then go on.
    More,
    /// All records were seen.
    Done(Walked),
}

/// One walk under way.
#[derive(Debug)]
pub struct Walker {
    payload: Bytes,
    read: usize,
    records: Records,
    packed: Option<Packed>,
}

/// A payload that is being unpacked.
#[derive(Debug)]
struct Packed {
    stream: Stream,
    contexts: Contexts,
    /// Bytes at the start of the window that were unpacked but not walked.
    kept: usize,
    unpacked_bytes_max: u64,
}

impl Walker {
    /// Makes ready to walk a batch.
    ///
    /// Shapes: `batch` is one whole batch with `header`.
    ///
    /// # Errors
    /// `UnknownCodec`, and `Unpack` where there is no memory for the codec.
    pub fn start(
        batch: &Bytes,
        header: &BatchHeader,
        rules: &RecordRules,
        unpacker: &mut Unpacker,
    ) -> Result<Self, WalkError> {
        let codec = header.attributes.codec().ok_or(WalkError::UnknownCodec(header.attributes.0 & 7))?;
        let payload = batch.slice(HEADER_BYTES.min(batch.len())..);
        let packed = if codec == Codec::None { None } else { Packed::start(codec, &payload, rules, unpacker)? };
        let faults_max = payload.len() / RECORD_BYTES_MIN + 1;
        Ok(Self { payload, read: 0, records: Records::new(header, rules, faults_max), packed })
    }

    /// Walks on, for up to about `bytes_max` unpacked bytes.
    ///
    /// # Errors
    /// Where the records cannot be read; the walk is over then.
    pub fn step(&mut self, bytes_max: usize) -> Result<Step, WalkError> {
        let at_end = match &mut self.packed {
            None => self.step_plain(bytes_max)?,
            Some(packed) => packed.step(&self.payload, &mut self.read, &mut self.records, bytes_max)?,
        };
        if at_end { self.records.finish().map(Step::Done) } else { Ok(Step::More) }
    }

    /// Gives the contexts back, whether the walk has ended or not.
    pub fn recycle(self, unpacker: &mut Unpacker) {
        if let Some(packed) = self.packed {
            unpacker.give_back(packed.contexts);
        }
    }

    /// Walks where the records lie; tells whether all were seen.
    fn step_plain(&mut self, bytes_max: usize) -> Result<bool, WalkError> {
        let rest = self.payload.get(self.read..).unwrap_or_default();
        let part = rest.get(..bytes_max.max(HEAD_BYTES_MAX)).unwrap_or(rest);
        self.read += self.records.feed(part)?;
        if part.len() < rest.len() {
            return Ok(false);
        }
        if self.read < self.payload.len() { Err(self.records.cut()) } else { Ok(true) }
    }
}

impl Packed {
    fn start(
        codec: Codec,
        payload: &Bytes,
        rules: &RecordRules,
        unpacker: &mut Unpacker,
    ) -> Result<Option<Self>, WalkError> {
        let mut contexts = unpacker.take();
        let Some(stream) = Stream::start(codec, payload, &mut contexts)? else { return Ok(None) };
        let unpacked_bytes_max = rules.unpacked_bytes_max.min(unpacked_limit(codec, payload));
        Ok(Some(Self { stream, contexts, kept: 0, unpacked_bytes_max }))
    }

    /// Unpacks and walks the next piece; tells whether it was the last.
    fn step(
        &mut self,
        payload: &[u8],
        read: &mut usize,
        records: &mut Records,
        bytes_max: usize,
    ) -> Result<bool, WalkError> {
        let mut budget = bytes_max.div_ceil(self.stream.weight()).max(1);
        while budget > 0 {
            let input = payload.get(*read..).unwrap_or_default();
            let moved = self.unpack(input, budget)?;
            if moved == Moved::default() {
                return self.end(input, records);
            }
            *read += moved.read;
            records.unpacked_bytes += moved.wrote as u64;
            if records.unpacked_bytes > self.unpacked_bytes_max {
                return Err(WalkError::TooLarge(self.unpacked_bytes_max));
            }
            self.walk(moved.wrote, records)?;
            budget = budget.saturating_sub(moved.read + moved.wrote);
        }
        Ok(false)
    }

    /// Unpacks up to `bytes_max` bytes behind what was kept; nothing moves at the end.
    fn unpack(&mut self, input: &[u8], bytes_max: usize) -> Result<Moved, UnpackError> {
        let mut window = std::mem::take(&mut self.contexts.window);
        let end = window.len().min(self.kept.saturating_add(bytes_max));
        let room = window.get_mut(self.kept..end).unwrap_or_default();
        let moved = self.stream.run(&mut self.contexts, input, room);
        self.contexts.window = window;
        moved
    }

    /// Walks what is in the window and keeps the start of a record's head that is cut.
    fn walk(&mut self, wrote: usize, records: &mut Records) -> Result<(), WalkError> {
        let filled = self.kept + wrote;
        let walked = records.feed(self.contexts.window.get(..filled).unwrap_or_default())?;
        self.contexts.window.copy_within(walked..filled, 0);
        self.kept = filled - walked;
        Ok(())
    }

    fn end(&self, input: &[u8], records: &Records) -> Result<bool, WalkError> {
        self.stream.may_end()?;
        if !input.is_empty() {
            return Err(WalkError::Broken { index: records.index, what: "bytes follow the compressed payload" });
        }
        if self.kept > 0 { Err(records.cut()) } else { Ok(true) }
    }
}

/// The field that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Head,
    ValueLength,
    HeaderCount,
    NameLength,
    HeaderValueLength,
}

/// Why a field could not be read.
enum Gap {
    Short,
    Broken(&'static str),
}

/// The records as far as they were seen.
#[derive(Debug)]
struct Records {
    count: i32,
    index: i32,
    /// Bounds of the next record's offset delta, both included.
    offset_min: i32,
    offset_max: i32,
    base_timestamp: i64,
    rules: RecordRules,
    faults_max: usize,
    field: Field,
    /// Bytes to pass over before the next field.
    skip: usize,
    /// Bytes of the record behind those.
    left: usize,
    headers_left: i32,
    max_timestamp: i64,
    max_timestamp_index: i32,
    faults: Vec<(i32, Fault)>,
    unpacked_bytes: u64,
}

/// A record up to its key.
struct Head {
    body_bytes: i32,
    timestamp_delta: i64,
    offset_delta: i32,
    key_bytes: i32,
}

impl Records {
    fn new(header: &BatchHeader, rules: &RecordRules, faults_max: usize) -> Self {
        Self {
            count: header.records_count,
            index: 0,
            offset_min: 0,
            offset_max: header.last_offset_delta,
            base_timestamp: header.base_timestamp,
            rules: *rules,
            faults_max,
            field: Field::Head,
            skip: 0,
            left: 0,
            headers_left: 0,
            max_timestamp: -1,
            max_timestamp_index: 0,
            faults: Vec::new(),
            unpacked_bytes: 0,
        }
    }

    /// Walks over `bytes` as far as whole fields are there; tells how many bytes those were.
    fn feed(&mut self, bytes: &[u8]) -> Result<usize, WalkError> {
        let mut rest = bytes;
        loop {
            match rest.split_at_checked(self.skip) {
                Some((_, behind)) => rest = behind,
                None => {
                    self.skip -= rest.len();
                    return Ok(bytes.len());
                }
            }
            self.skip = 0;
            match self.next_field(&mut rest) {
                Ok(()) => {}
                Err(Gap::Short) => return Ok(bytes.len() - rest.len()),
                Err(Gap::Broken(what)) => return Err(WalkError::Broken { index: self.index, what }),
            }
            if self.index > self.count {
                return Err(WalkError::Count { expected: self.count, found: self.index });
            }
        }
    }

    /// Reads one field, which `rest` moves over only if it is wholly there.
    fn next_field(&mut self, rest: &mut &[u8]) -> Result<(), Gap> {
        match self.field {
            Field::Head => self.head(rest)?,
            Field::ValueLength => {
                self.skip_nullable(rest, "the length of its value")?;
                self.field = Field::HeaderCount;
            }
            Field::HeaderCount => self.header_count(rest)?,
            Field::NameLength => self.name_length(rest)?,
            Field::HeaderValueLength => {
                self.skip_nullable(rest, "the length of a header's value")?;
                self.headers_left -= 1;
                self.next_header()?;
            }
        }
        Ok(())
    }

    fn head(&mut self, rest: &mut &[u8]) -> Result<(), Gap> {
        let (head, bytes, body_at) = read_head(rest)?;
        let used = bytes - body_at;
        let body_bytes = usize::try_from(head.body_bytes).map_err(|_| Gap::Broken("its length is negative"))?;
        self.left = body_bytes.checked_sub(used).ok_or(Gap::Broken("it is longer than its length"))?;
        self.skip_field(head.key_bytes, "the length of its key")?;
        self.check_offset(head.offset_delta)?;
        self.judge(&head);
        self.field = Field::ValueLength;
        advance(rest, bytes);
        Ok(())
    }

    fn check_offset(&mut self, delta: i32) -> Result<(), Gap> {
        match self.rules.offsets {
            Offsets::Dense if delta != self.index => return Err(Gap::Broken("its offset delta is not its index")),
            Offsets::Ascending { .. } if !(self.offset_min..=self.offset_max).contains(&delta) => {
                return Err(Gap::Broken("its offset delta does not ascend"));
            }
            _ => {}
        }
        self.offset_min = delta.saturating_add(1);
        Ok(())
    }

    /// Holds the record against the topic's rules; a missing key comes before a bad timestamp.
    ///
    /// Source: apache/kafka `LogValidator.validateRecord`.
    fn judge(&mut self, head: &Head) {
        let timestamp = self.base_timestamp.wrapping_add(head.timestamp_delta);
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.max_timestamp_index = head.offset_delta;
        }
        let in_range =
            timestamp == -1 || self.rules.timestamps.is_none_or(|(min, max)| (min..=max).contains(&timestamp));
        let fault = match () {
            () if self.rules.key_required && head.key_bytes < 0 => Fault::NoKey,
            () if !in_range => Fault::Timestamp(timestamp),
            () => return,
        };
        let is_judged = match self.rules.offsets {
            Offsets::Dense => true,
            Offsets::Ascending { judged_from } => head.offset_delta >= judged_from,
        };
        if is_judged && self.faults.len() < self.faults_max {
            self.faults.push((head.offset_delta, fault));
        }
    }

    fn header_count(&mut self, rest: &mut &[u8]) -> Result<(), Gap> {
        let (count, bytes) = number(varint::read_i32(rest))?;
        self.use_up(bytes)?;
        if count < 0 {
            return Err(Gap::Broken("its number of headers is negative"));
        }
        self.headers_left = count;
        advance(rest, bytes);
        self.next_header()
    }

    fn name_length(&mut self, rest: &mut &[u8]) -> Result<(), Gap> {
        let (length, bytes) = number(varint::read_i32(rest))?;
        self.use_up(bytes)?;
        if length < 0 {
            return Err(Gap::Broken("a header has no name"));
        }
        self.skip_field(length, "the length of a header's name")?;
        self.field = Field::HeaderValueLength;
        advance(rest, bytes);
        Ok(())
    }

    /// After a header, or the number of headers: the next header, or the next record.
    fn next_header(&mut self) -> Result<(), Gap> {
        if self.headers_left > 0 {
            self.field = Field::NameLength;
            return Ok(());
        }
        if self.left > 0 {
            return Err(Gap::Broken("it is shorter than its length"));
        }
        self.field = Field::Head;
        self.index = self.index.saturating_add(1);
        Ok(())
    }

    /// Reads a length, -1 for none, and passes over that many bytes.
    fn skip_nullable(&mut self, rest: &mut &[u8], what: &'static str) -> Result<(), Gap> {
        let (length, bytes) = number(varint::read_i32(rest))?;
        self.use_up(bytes)?;
        self.skip_field(length, what)?;
        advance(rest, bytes);
        Ok(())
    }

    fn skip_field(&mut self, length: i32, what: &'static str) -> Result<(), Gap> {
        if length == -1 {
            return Ok(());
        }
        self.skip = usize::try_from(length).map_err(|_| Gap::Broken(what))?;
        self.left = self.left.checked_sub(self.skip).ok_or(Gap::Broken(what))?;
        Ok(())
    }

    fn use_up(&mut self, bytes: usize) -> Result<(), Gap> {
        self.left = self.left.checked_sub(bytes).ok_or(Gap::Broken("it is longer than its length"))?;
        Ok(())
    }

    /// The error for bytes that end inside of a record.
    fn cut(&self) -> WalkError {
        WalkError::Broken { index: self.index, what: "the payload ends inside of it" }
    }

    fn finish(&mut self) -> Result<Walked, WalkError> {
        if self.skip > 0 || self.field != Field::Head {
            return Err(self.cut());
        }
        if self.index != self.count {
            return Err(WalkError::Count { expected: self.count, found: self.index });
        }
        Ok(Walked {
            max_timestamp: self.max_timestamp,
            max_timestamp_index: self.max_timestamp_index,
            faults: std::mem::take(&mut self.faults),
            unpacked_bytes: self.unpacked_bytes,
        })
    }
}

/// Reads a record up to its key; gives also the bytes that took, and where the part starts that its length counts.
fn read_head(bytes: &[u8]) -> Result<(Head, usize, usize), Gap> {
    let mut rest = bytes;
    let body_bytes = take_i32(&mut rest)?;
    let body_at = bytes.len() - rest.len();
    let (_attributes, behind) = rest.split_first().ok_or(Gap::Short)?;
    rest = behind;
    let (timestamp_delta, length) = number(varint::read_i64(rest))?;
    advance(&mut rest, length);
    let offset_delta = take_i32(&mut rest)?;
    let key_bytes = take_i32(&mut rest)?;
    Ok((Head { body_bytes, timestamp_delta, offset_delta, key_bytes }, bytes.len() - rest.len(), body_at))
}

fn take_i32(rest: &mut &[u8]) -> Result<i32, Gap> {
    let (value, length) = number(varint::read_i32(rest))?;
    advance(rest, length);
    Ok(value)
}

fn number<T>(varint: Varint<T>) -> Result<(T, usize), Gap> {
    match varint {
        Varint::Number(value, length) => Ok((value, length)),
        Varint::Short => Err(Gap::Short),
        Varint::Long => Err(Gap::Broken("a number does not end")),
    }
}

fn advance(rest: &mut &[u8], bytes: usize) {
    *rest = rest.get(bytes..).unwrap_or_default();
}
