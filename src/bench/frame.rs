//! One produce request as a ready frame, of which only the few bytes that differ from request to request are changed.
//!
//! ```text
//! length 4 | key 2 version 2 correlation 4 client tags | transactional id, acks, timeout, topic, partition | batch
//! batch: base offset 8, length 4, leader epoch 4, magic 1, CRC 4 | attributes 2, last offset delta 4,
//!        first and max timestamp 16, producer id 8, epoch 2, base sequence 4, count 4 | records
//! ```
//! The CRC covers what stands behind it, so it is computed anew when the time or the sequence was set.

use super::bytes::{Malformed, Put, Take};
use crate::ids::{ProducerEpoch, ProducerId, Sequence};

/// The key of Produce.
pub(super) const PRODUCE_KEY: i16 = 0;
/// Flexible, and the last version but four that names topics by name alone: served since Apache Kafka 2.8.
pub(super) const PRODUCE_VERSION: i16 = 9;
/// The first by which a partition comes into a transaction without being added before (KIP-890).
pub(super) const TRANSACTIONAL_PRODUCE_VERSION: i16 = 12;

const CORRELATION: usize = 8;
/// The bit of a batch's attributes.
const TRANSACTIONAL: i16 = 0x10;
/// Positions within the batch.
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const FIRST_TIMESTAMP: usize = 27;
const PRODUCER_ID: usize = 43;
const BASE_SEQUENCE: usize = 53;

/// What stays the same in every request of one connection.
#[derive(Clone, Debug)]
pub(super) struct FrameSpec<'a> {
    pub(super) client_id: &'a str,
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) acks: i16,
    pub(super) timeout_ms: i32,
    /// Bytes of one record's value.
    pub(super) record_bytes: usize,
    pub(super) records: i32,
    pub(super) producer: Option<(ProducerId, ProducerEpoch)>,
    pub(super) transactional_id: Option<&'a str>,
}

/// A produce request that can be sent again and again.
pub(super) struct ProduceFrame {
    bytes: Vec<u8>,
    partition: usize,
    batch: usize,
}

impl ProduceFrame {
    /// The whole frame with its length prefix.
    pub(super) fn new(spec: &FrameSpec<'_>) -> Self {
        let records = batch(spec);
        let mut put = Put::default();
        let version = spec.transactional_id.map_or(PRODUCE_VERSION, |_| TRANSACTIONAL_PRODUCE_VERSION);
        put.i32(0).i16(PRODUCE_KEY).i16(version).i32(0).string(spec.client_id).unsigned_varint(0);
        match spec.transactional_id {
            Some(id) => put.compact_string(id),
            None => put.unsigned_varint(0),
        };
        put.i16(spec.acks).i32(spec.timeout_ms);
        put.compact_count(1).compact_string(spec.topic);
        put.compact_count(1);
        let partition = put.0.len();
        put.i32(spec.partition).compact_count(records.len());
        let batch = put.0.len();
        put.raw(&records).unsigned_varint(0).unsigned_varint(0).unsigned_varint(0);
        let mut frame = Self { bytes: put.0, partition, batch };
        let length = i32::try_from(frame.bytes.len() - 4).unwrap_or(i32::MAX);
        frame.set(0, &length.to_be_bytes());
        frame.seal();
        frame
    }

    /// Makes the frame the request `correlation`, its records of the moment `now_ms`; `sequence` is -1 without
    /// idempotence.
    pub(super) fn stamp(&mut self, correlation: i32, now_ms: i64, sequence: Sequence) -> &[u8] {
        let batch = self.batch;
        self.set(CORRELATION, &correlation.to_be_bytes());
        self.set(batch + FIRST_TIMESTAMP, &now_ms.to_be_bytes());
        self.set(batch + FIRST_TIMESTAMP + 8, &now_ms.to_be_bytes());
        self.set(batch + BASE_SEQUENCE, &sequence.0.to_be_bytes());
        self.seal();
        &self.bytes
    }

    /// Makes it another producer's from the next stamp on.
    pub(super) fn set_producer(&mut self, id: ProducerId, epoch: ProducerEpoch) {
        let at = self.batch + PRODUCER_ID;
        self.set(at, &id.0.to_be_bytes());
        self.set(at + 8, &epoch.0.to_be_bytes());
    }

    /// Sends it to another partition of the topic from now on.
    pub(super) fn turn_to(&mut self, partition: i32) {
        self.set(self.partition, &partition.to_be_bytes());
    }

    /// Size of the frame in bytes, its prefix included.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn seal(&mut self) {
        // Three empty tag sections stand behind the batch.
        let end = self.bytes.len() - 3;
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &self.bytes[self.batch + ATTRIBUTES..end]);
        let crc = u32::try_from(crc).unwrap_or_default();
        self.set(self.batch + CRC, &crc.to_be_bytes());
    }

    fn set(&mut self, position: usize, bytes: &[u8]) {
        self.bytes[position..position + bytes.len()].copy_from_slice(bytes);
    }
}

fn batch(spec: &FrameSpec<'_>) -> Vec<u8> {
    let (id, epoch) = spec.producer.unwrap_or((ProducerId(-1), ProducerEpoch(-1)));
    let mut put = Put::default();
    put.i64(0).i32(0).i32(-1).i8(2).i32(0);
    let attributes = if spec.transactional_id.is_some() { TRANSACTIONAL } else { 0 };
    put.i16(attributes).i32(spec.records - 1).i64(0).i64(0).i64(id.0).i16(epoch.0).i32(-1).i32(spec.records);
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for delta in 0..spec.records {
        put_record(&mut put, delta, spec.record_bytes, &mut noise);
    }
    // The length counts what stands behind it.
    let length = i32::try_from(put.0.len() - 12).unwrap_or(i32::MAX);
    put.0[8..12].copy_from_slice(&length.to_be_bytes());
    put.0
}

fn put_record(put: &mut Put, offset_delta: i32, value_bytes: usize, noise: &mut Noise) {
    let mut body = Put::default();
    body.i8(0).varint(0).varint(i64::from(offset_delta)).varint(-1).varint(wide(value_bytes));
    body.0.extend(noise.by_ref().take(value_bytes));
    body.varint(0);
    put.varint(wide(body.0.len())).raw(&body.0);
}

fn wide(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Printable bytes without a pattern (xorshift64), the same in every run.
struct Noise(u64);

impl Iterator for Noise {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Some(b' ' + u8::try_from((self.0 >> 32) % 95).unwrap_or_default())
    }
}

/// What one produce request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) correlation: i32,
    pub(super) error: i16,
    pub(super) base_offset: i64,
}

/// Reads the answer to a [`ProduceFrame`] (without its length prefix).
pub(super) fn read_answer(body: &[u8]) -> Result<Answer, Malformed> {
    let mut take = Take(body);
    let correlation = take.i32()?;
    take.skip_tags()?;
    if take.compact_count()? != 1 {
        return Err(Malformed);
    }
    take.compact_string()?;
    if take.compact_count()? != 1 {
        return Err(Malformed);
    }
    take.i32()?;
    Ok(Answer { correlation, error: take.i16()?, base_offset: take.i64()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> FrameSpec<'static> {
        let producer = Some((ProducerId(7), ProducerEpoch(1)));
        FrameSpec {
            client_id: "c",
            topic: "t",
            partition: 3,
            acks: -1,
            timeout_ms: 1000,
            record_bytes: 10,
            records: 2,
            producer,
            transactional_id: None,
        }
    }

    #[test]
    fn the_frame_is_laid_out_as_the_protocol_says() {
        let mut frame = ProduceFrame::new(&spec());
        let bytes = frame.stamp(5, 1_700_000_000_000, Sequence(9)).to_vec();
        let mut take = Take(&bytes);
        assert_eq!(take.count(), Ok(bytes.len() - 4));
        assert_eq!((take.i16(), take.i16(), take.i32(), take.string()), (Ok(0), Ok(9), Ok(5), Ok("c")));
        take.raw(2).unwrap();
        assert_eq!((take.i16(), take.i32()), (Ok(-1), Ok(1000)));
        assert_eq!((take.compact_count(), take.compact_string(), take.compact_count()), (Ok(1), Ok("t"), Ok(1)));
        assert_eq!(take.i32(), Ok(3));
        let batch_bytes = take.compact_count().unwrap();
        let batch = take.raw(batch_bytes).unwrap();
        assert_eq!(take.0, [0, 0, 0]);
        let mut take = Take(batch);
        assert_eq!((take.i64(), take.count()), (Ok(0), Ok(batch_bytes - 12)));
        take.raw(5).unwrap();
        let crc = take.i32().unwrap().cast_unsigned();
        assert_eq!(u64::from(crc), crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, take.0));
        assert_eq!((take.i16(), take.i32()), (Ok(0), Ok(1)));
        assert_eq!((take.i64(), take.i64()), (Ok(1_700_000_000_000), Ok(1_700_000_000_000)));
        assert_eq!((take.i64(), take.i16(), take.i32(), take.i32()), (Ok(7), Ok(1), Ok(9), Ok(2)));
        // A record: length, attributes, time, offset, no key, ten bytes, no headers.
        assert_eq!(take.0[..6], [32, 0, 0, 0, 1, 20]);
        assert_eq!(take.0.len(), 2 * 17);
        let mut other = ProduceFrame::new(&FrameSpec { partition: 258, ..spec() });
        frame.turn_to(258);
        assert_eq!(frame.stamp(1, 2, Sequence(3)), other.stamp(1, 2, Sequence(3)));
    }

    #[test]
    fn an_answer_is_read_to_its_offset() {
        let mut put = Put::default();
        put.i32(5).unsigned_varint(0).compact_count(1).compact_string("t").compact_count(1).i32(3).i16(0).i64(42);
        assert_eq!(read_answer(&put.0), Ok(Answer { correlation: 5, error: 0, base_offset: 42 }));
        for cut in 0..put.0.len() {
            assert_eq!(read_answer(&put.0[..cut]), Err(Malformed), "cut at {cut}");
        }
    }
}
