//! What the wire costs a produce request: header, CRC, the walk in each codec, the request around it.
//!
//! `cargo bench --bench decode`; prints nanoseconds per call, and per KiB where bytes are what costs.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock itself")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence, TopicId};
use corelane::wire::admission::{Admission, Framed, TopicRules};
use corelane::wire::batch::{BatchHeader, Codec, HEADER_BYTES, check_crc};
use corelane::wire::builder::{BatchBuilder, Record};
use corelane::wire::error_code::ErrorCode;
use corelane::wire::fetch::{FetchResponse, FetchedPartition, FetchedTopic};
use corelane::wire::produce::{PartitionAppended, ProduceRequest, ProduceResponse, TopicAppended};
use corelane::wire::stored::{RecordData, StoredBatch};
use corelane::wire::topic::TopicRef;
use corelane::wire::unpack::Unpacker;

const RULES: TopicRules = TopicRules {
    max_message_bytes: usize::MAX,
    segment_bytes: 1 << 30,
    compact: false,
    log_append_time: false,
    timestamp_before_max_ms: i64::MAX,
    timestamp_after_max_ms: i64::MAX,
    unpacked_batch_max_bytes: 256 << 20,
};

/// Prints the best of ten measurements; `kib` is what one call works on, 0 where that says nothing.
fn measure<T>(name: &str, kib: f64, mut call: impl FnMut() -> T) {
    let calls = calls_in(Duration::from_millis(10), &mut call);
    let best = (0..10).map(|_| time_of(calls, &mut call)).min().unwrap();
    let nanos = best.as_secs_f64() * 1e9 / f64::from(calls);
    let per_kib = if kib > 0.0 {
        format!("{:10.1} ns/KiB {:8.2} GB/s", nanos / kib, kib * 1024.0 / nanos)
    } else {
        String::new()
    };
    println!("{name:44} {nanos:12.1} ns {per_kib}");
}

fn calls_in<T>(duration: Duration, call: &mut impl FnMut() -> T) -> u32 {
    let mut calls = 1;
    while time_of(calls, call) < duration && calls < 1 << 24 {
        calls *= 2;
    }
    calls
}

fn time_of<T>(calls: u32, call: &mut impl FnMut() -> T) -> Duration {
    let start = Instant::now();
    for _ in 0..calls {
        black_box(call());
    }
    start.elapsed()
}

/// A batch of `count` records of `value_bytes` each, that compress to about a half.
fn batch(codec: Codec, count: usize, value_bytes: usize) -> Bytes {
    let mut state = 1_u64;
    let mut builder = BatchBuilder::new().codec(codec).producer(ProducerId(1), ProducerEpoch(0), Sequence(0));
    for _ in 0..count {
        let value: Vec<u8> = (0..value_bytes)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                b'a' + (state.to_be_bytes()[0] & 15)
            })
            .collect();
        builder = builder.record(Record { timestamp: 1, key: None, value: Some(&value), headers: &[] });
    }
    builder.build().freeze()
}

fn kib(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes).unwrap()) / 1024.0
}

/// A produce request of version 9 for one partition, header left out.
fn produce_body(records: &Bytes) -> Bytes {
    let mut body = vec![0, 0xff, 0xff, 0, 0, 5, 0xdc, 2, 6];
    body.extend_from_slice(b"topic");
    body.extend_from_slice(&[2, 0, 0, 0, 0]);
    let mut length = records.len() + 1;
    while length >= 0x80 {
        body.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    body.push(u8::try_from(length).unwrap());
    body.extend_from_slice(records);
    body.extend_from_slice(&[0, 0, 0]);
    body.into()
}

fn main() {
    measure_batches();
    measure_codecs();
    measure_frames();
}

fn measure_batches() {
    for (count, value_bytes) in [(1, 100), (1, 1024), (16, 1024), (1000, 100), (1000, 10)] {
        let batch = batch(Codec::None, count, value_bytes);
        let kib = kib(batch.len() - HEADER_BYTES);
        let mut unpacker = Unpacker::new();
        println!("\n{count} records of {value_bytes} bytes");
        measure("  header", 0.0, || BatchHeader::read(black_box(&batch)).unwrap());
        measure("  CRC", kib, || check_crc(black_box(&batch)).unwrap());
        measure("  all checks", kib, || admit(&batch, &mut unpacker));
    }
}

fn admit(batch: &Bytes, unpacker: &mut Unpacker) {
    let framed = Framed::find(Some(black_box(batch).clone()), 13).unwrap();
    black_box(Admission::start(framed, RULES, 1).unwrap().finish(unpacker).unwrap());
}

fn measure_codecs() {
    println!("\nall checks, per unpacked KiB");
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut unpacker = Unpacker::new();
        for (count, value_bytes) in [(1, 100), (16, 1024), (1000, 100), (1000, 1024)] {
            let batch = batch(codec, count, value_bytes);
            measure(&format!("  {codec:?}, {count} records of {value_bytes} bytes"), kib(count * value_bytes), || {
                admit(&batch, &mut unpacker);
            });
        }
    }
    let raw = BatchBuilder::new().value(1, &batch(Codec::None, 1000, 1024)).raw_snappy().build().freeze();
    let mut unpacker = Unpacker::new();
    measure("  Snappy, one raw block of 1 MiB", 1024.0, || admit(&raw, &mut unpacker));
}

fn measure_frames() {
    println!("\nframes");
    let records = batch(Codec::None, 1, 1024);
    let body = produce_body(&records);
    measure("  produce request, one partition", 0.0, || ProduceRequest::read(black_box(&body).clone(), 9).unwrap());
    let topic = TopicRef::Id(TopicId([1; 16]));
    let partitions = vec![PartitionAppended::appended(0, Offset(1), -1, Offset(0))];
    let response = ProduceResponse { topics: vec![TopicAppended { topic: topic.clone(), partitions }], throttle_ms: 0 };
    measure("  produce response, one partition", 0.0, || black_box(&response).encode(13, 1));
    for batches in [0, 1, 64] {
        let partition = FetchedPartition {
            records: vec![RecordData::Batch(StoredBatch::whole(&records)); batches],
            ..FetchedPartition::failed(0, ErrorCode::None)
        };
        let topics = vec![FetchedTopic { topic: topic.clone(), partitions: vec![partition] }];
        let response = FetchResponse { throttle_ms: 0, error: ErrorCode::None, session_id: 0, topics, leader: None };
        measure(&format!("  fetch response, {batches} batches of 1 KiB"), 0.0, || black_box(&response).encode(16, 1));
    }
}
