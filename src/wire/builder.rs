//! Builds record batches: control batches, the load generator and tests.

use bytes::{BufMut, Bytes, BytesMut};

use super::batch::{Attributes, BatchHeader, Codec, HEADER_BYTES, LENGTH_END, MAGIC, set_crc};
use super::pack::{Packer, snappy_block};
use super::varint;
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence};

/// One record to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// Milliseconds since 1970; -1 for none.
    pub timestamp: i64,
    /// Key, if it has one.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers in order; a name may occur more than once.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// Whether the records before a marker count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// They never happened.
    Abort,
    /// They happened.
    Commit,
}

/// Puts records together into one batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    records: BytesMut,
    raw_snappy: bool,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty batch: offset 0, uncompressed, nobody's.
    #[must_use]
    pub fn new() -> Self {
        let header = BatchHeader {
            base_offset: Offset(0),
            batch_length: 0,
            leader_epoch: -1,
            magic: MAGIC,
            crc: 0,
            attributes: Attributes(0),
            last_offset_delta: -1,
            base_timestamp: -1,
            max_timestamp: -1,
            producer_id: ProducerId(-1),
            producer_epoch: ProducerEpoch(-1),
            base_sequence: Sequence(-1),
            records_count: 0,
        };
        Self { header, records: BytesMut::new(), raw_snappy: false }
    }

    /// Names the writer and the sequence of the first record.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: Sequence) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Gives it a place in the log.
    #[must_use]
    pub fn place(mut self, base_offset: Offset, leader_epoch: i32) -> Self {
        self.header.base_offset = base_offset;
        self.header.leader_epoch = leader_epoch;
        self
    }

    /// Compresses the records; snappy gets the xerial framing of the Java client.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.header.attributes = self.header.attributes.with_codec(codec);
        self
    }

    /// Compresses the records with snappy as one raw block, as librdkafka may do.
    #[must_use]
    pub fn raw_snappy(mut self) -> Self {
        self.raw_snappy = true;
        self.codec(Codec::Snappy)
    }

    /// Makes it part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.header.attributes = self.header.attributes.with_transactional(true);
        self
    }

    /// Adds a record.
    ///
    /// # Panics
    /// Where a batch would hold more than 2³¹ records or a record more than 2³¹ bytes.
    #[must_use]
    pub fn record(mut self, record: Record<'_>) -> Self {
        if self.header.records_count == 0 {
            self.header.base_timestamp = record.timestamp;
        }
        self.header.max_timestamp = self.header.max_timestamp.max(record.timestamp);
        let timestamp_delta = record.timestamp.wrapping_sub(self.header.base_timestamp);
        put_record(&mut self.records, record, timestamp_delta, self.header.records_count);
        self.header.last_offset_delta = self.header.records_count;
        self.header.records_count += 1;
        self
    }

    /// Adds a record without key and headers.
    #[must_use]
    pub fn value(self, timestamp: i64, value: &[u8]) -> Self {
        self.record(Record { timestamp, value: Some(value), ..Record::default() })
    }

    /// Changes the header before the CRC is computed: for batches that are wrong on purpose.
    #[must_use]
    pub fn header(mut self, change: impl FnOnce(&mut BatchHeader)) -> Self {
        change(&mut self.header);
        self
    }

    /// The batch, with length and CRC.
    #[must_use]
    pub fn build(self) -> BytesMut {
        let payload = self.compressed();
        let mut batch = BytesMut::with_capacity(HEADER_BYTES + payload.len());
        let batch_length = length_of(HEADER_BYTES - LENGTH_END + payload.len());
        batch.put_slice(&BatchHeader { batch_length, ..self.header }.encode());
        batch.put_slice(&payload);
        set_crc(&mut batch);
        batch
    }

    fn compressed(&self) -> Bytes {
        let codec = self.header.attributes.codec();
        if codec == Some(Codec::Snappy) && self.raw_snappy {
            return Bytes::from(snappy_block(&self.records).expect("snappy into memory"));
        }
        match codec {
            None | Some(Codec::None) => Bytes::copy_from_slice(&self.records),
            Some(codec) => Bytes::from(compress(codec, &self.records)),
        }
    }
}

/// A marker that ends a transaction on one partition.
#[must_use]
pub fn control_batch(
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    marker: Marker,
    coordinator_epoch: i32,
    now_ms: i64,
) -> BytesMut {
    let key = [0, 0, 0, u8::from(marker == Marker::Commit)];
    let mut value = [0; 6];
    if let Some(place) = value.last_chunk_mut() {
        *place = coordinator_epoch.to_be_bytes();
    }
    BatchBuilder::new()
        .producer(producer_id, epoch, Sequence(-1))
        .transactional()
        .record(Record { timestamp: now_ms, key: Some(&key), value: Some(&value), headers: &[] })
        .header(|header| header.attributes = header.attributes.with_control(true))
        .build()
}

/// Compresses records as the Java client does.
///
/// # Panics
/// If compressing into memory fails, which would be a bug.
#[must_use]
pub fn compress(codec: Codec, records: &[u8]) -> Vec<u8> {
    let packed = Packer::new(codec, Some(records.len() as u64)).and_then(|mut packer| {
        packer.add(records)?;
        packer.finish()
    });
    packed.expect("compressing into memory")
}

/// Writes one record with its length in front.
fn put_record(out: &mut BytesMut, record: Record<'_>, timestamp_delta: i64, offset_delta: i32) {
    let mut body = BytesMut::with_capacity(32 + record.value.map_or(0, <[u8]>::len));
    body.put_u8(0);
    varint::put_i64(&mut body, timestamp_delta);
    varint::put_i32(&mut body, offset_delta);
    put_field(&mut body, record.key);
    put_field(&mut body, record.value);
    varint::put_i32(&mut body, length_of(record.headers.len()));
    for (name, value) in record.headers {
        put_field(&mut body, Some(name.as_bytes()));
        put_field(&mut body, *value);
    }
    varint::put_i32(out, length_of(body.len()));
    out.put_slice(&body);
}

/// Writes a length and the bytes, or -1.
fn put_field(out: &mut BytesMut, field: Option<&[u8]>) {
    varint::put_i32(out, field.map_or(-1, |bytes| length_of(bytes.len())));
    out.put_slice(field.unwrap_or_default());
}

fn length_of(bytes: usize) -> i32 {
    i32::try_from(bytes).expect("a batch holds less than 2^31 bytes")
}
