//! A batch with some of its records: what stays of it, byte by byte, in every codec and in steps of any size.

use std::io::Read;

use bytes::Bytes;
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::wire::batch::{Attributes, BatchHeader, Codec, HEADER_BYTES, check_crc};
use corelane::wire::builder::{BatchBuilder, Marker, Record, control_batch};
use corelane::wire::refill::{BatchRules, ControlKind, Refill, Refilled, control_kind, empty_batch};
use corelane::wire::unpack::Unpacker;
use kafka_protocol::records::RecordBatchDecoder;
use proptest::prelude::*;

const RULES: BatchRules = BatchRules { keeps_empty: false, is_spent_marker: false, delete_horizon_ms: 9_000 };
const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

pub type Plain = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn refilled(batch: &Bytes, rules: BatchRules, step: usize, keeps: impl Fn(i64) -> bool) -> Refilled {
    let mut unpacker = Unpacker::new();
    let header = BatchHeader::read(batch).unwrap();
    let mut refill = Refill::start(batch, &header, rules, u64::MAX, &mut unpacker).unwrap();
    loop {
        if let Some(left) = refill.step(step, &mut unpacker, |record| keeps(record.offset.0)).unwrap() {
            return left;
        }
    }
}

/// Offset, timestamp, key and value of each record, by a reader and by unpackers that are not ours.
pub fn plain_records(batch: &[u8]) -> Vec<Plain> {
    let header = BatchHeader::read(batch).unwrap();
    check_crc(batch).unwrap();
    if header.records_count == 0 {
        return Vec::new();
    }
    let mut bytes = Bytes::copy_from_slice(batch);
    let unpack = |packed: &mut Bytes, _| Ok(Bytes::from(unpacked(header.attributes.codec().unwrap(), packed)));
    let set = RecordBatchDecoder::decode_with_custom_compression(&mut bytes, Some(unpack)).unwrap();
    let plain = |record: kafka_protocol::records::Record| {
        (record.offset, record.timestamp, record.key.map(|key| key.to_vec()), record.value.map(|value| value.to_vec()))
    };
    set.records.into_iter().map(plain).collect()
}

fn unpacked(codec: Codec, packed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match codec {
        Codec::None => out.extend_from_slice(packed),
        Codec::Gzip => _ = flate2::read::GzDecoder::new(packed).read_to_end(&mut out).unwrap(),
        Codec::Lz4 => _ = lz4_flex::frame::FrameDecoder::new(packed).read_to_end(&mut out).unwrap(),
        Codec::Zstd => out = zstd::stream::decode_all(packed).unwrap(),
        Codec::Snappy => {
            let mut blocks = &packed[16..];
            while let Some((length, rest)) = blocks.split_first_chunk() {
                let (block, behind) = rest.split_at(u32::from_be_bytes(*length) as usize);
                out.extend(snap::raw::Decoder::new().decompress_vec(block).unwrap());
                blocks = behind;
            }
        }
    }
    out
}

fn batch(codec: Codec, count: i64, value_bytes: usize) -> Bytes {
    let builder = BatchBuilder::new().place(Offset(100), 5).codec(codec);
    let builder = builder.producer(ProducerId(7), ProducerEpoch(2), Sequence(30));
    let add = |builder: BatchBuilder, at: i64| {
        let (key, value) = (format!("key-{at}"), vec![at as u8; value_bytes + at as usize]);
        let headers: &[(&str, Option<&[u8]>)] = &[("name", Some(b"one")), ("name", None)];
        let value = (at % 5 != 4).then_some(value.as_slice());
        builder.record(Record { timestamp: 1_000 + at * at % 37, key: Some(key.as_bytes()), value, headers })
    };
    (0..count).fold(builder, add).build().freeze()
}

/// The whole of a small batch, as Apache Kafka 4.4.0 writes it when it keeps the second of three records.
#[test]
fn what_stays_is_written_as_kafka_writes_it() {
    let builder = BatchBuilder::new().place(Offset(10), 3).producer(ProducerId(1), ProducerEpoch(0), Sequence(4));
    let record = |timestamp, key| Record { timestamp, key: Some(key), value: Some(b"v"), headers: &[] };
    let three = [record(50, b"a"), record(70, b"b"), record(60, b"c")].into_iter();
    let batch = three.fold(builder, BatchBuilder::record).build().freeze();
    let Refilled::Anew(left) = refilled(&batch, RULES, usize::MAX, |offset| offset == 11) else { panic!() };
    let header = BatchHeader::read(&left).unwrap();
    let expected = BatchHeader {
        batch_length: header.batch_length,
        crc: header.crc,
        base_timestamp: 70,
        max_timestamp: 70,
        records_count: 1,
        ..BatchHeader::read(&batch).unwrap()
    };
    assert_eq!((header, header.last_offset_delta, header.base_sequence), (expected, 2, Sequence(4)));
    // Length 8, no attributes, no time behind the base, offset delta 1, then key, value and headers as they were.
    assert_eq!(left[HEADER_BYTES..], [16, 0, 0, 2, 2, b'b', 2, b'v', 0]);
}

#[test]
fn a_batch_that_keeps_everything_is_not_touched() {
    for codec in CODECS {
        let whole = BatchBuilder::new().codec(codec).value(5, b"one").value(6, b"two").build().freeze();
        assert_eq!(refilled(&whole, RULES, 7, |_| true), Refilled::AsItWas);
        assert_eq!(refilled(&whole, RULES, 7, |_| false), Refilled::Gone);
    }
}

#[test]
fn a_header_alone_keeps_offsets_and_producer() {
    let whole = batch(Codec::Zstd, 6, 3);
    let rules = BatchRules { keeps_empty: true, ..RULES };
    let Refilled::Anew(left) = refilled(&whole, rules, 64, |_| false) else { panic!() };
    assert_eq!(left.len(), HEADER_BYTES);
    let (old, new) = (BatchHeader::read(&whole).unwrap(), BatchHeader::read(&left).unwrap());
    let expected = BatchHeader {
        batch_length: 49,
        crc: new.crc,
        attributes: Attributes(0),
        base_timestamp: -1,
        records_count: 0,
        ..old
    };
    assert_eq!(new, expected);
    check_crc(&left).unwrap();
    assert_eq!(refilled(&left, rules, 64, |_| true), Refilled::Anew(left.clone()), "it stays what it is");
    assert_eq!(refilled(&left, RULES, 64, |_| true), Refilled::Gone);
}

#[test]
fn the_first_round_gives_tombstones_a_time_to_go_and_later_ones_keep_it() {
    for codec in CODECS {
        let whole = batch(codec, 10, 3);
        let Refilled::Anew(first) = refilled(&whole, RULES, 50, |_| true) else { panic!() };
        let header = BatchHeader::read(&first).unwrap();
        assert!(header.attributes.has_delete_horizon() && header.base_timestamp == 9_000);
        assert_eq!(plain_records(&first), plain_records(&whole), "times are as before");
        let later = BatchRules { delete_horizon_ms: 20_000, ..RULES };
        assert_eq!(refilled(&first, later, 50, |_| true), Refilled::AsItWas);
        let Refilled::Anew(second) = refilled(&first, later, 50, |offset| offset % 5 != 4) else { panic!() };
        let header = BatchHeader::read(&second).unwrap();
        assert!(header.attributes.has_delete_horizon() && header.base_timestamp == 9_000);
    }
}

#[test]
fn markers_are_told_apart_and_a_spent_one_gets_a_time_to_go() {
    for (marker, kind) in [(Marker::Abort, ControlKind::Abort), (Marker::Commit, ControlKind::Commit)] {
        let batch = control_batch(ProducerId(3), ProducerEpoch(1), marker, 7, 1_000).freeze();
        let header = BatchHeader::read(&batch).unwrap();
        assert_eq!(control_kind(&batch, &header), kind);
        let spent = BatchRules { is_spent_marker: true, ..RULES };
        let Refilled::Anew(left) = refilled(&batch, spent, 50, |_| true) else { panic!() };
        let header = BatchHeader::read(&left).unwrap();
        assert!(header.attributes.has_delete_horizon() && header.attributes.is_control());
        assert_eq!((header.base_timestamp, header.max_timestamp), (9_000, 1_000));
        assert_eq!(control_kind(&left, &header), kind);
        let empty = empty_batch(&header);
        assert_eq!(control_kind(&empty, &BatchHeader::read(&empty).unwrap()), ControlKind::Empty);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_records_that_stay_are_what_they_were(
        codec in prop::sample::select(CODECS.to_vec()),
        count in 1_i64..60,
        value_bytes in prop_oneof![0_usize..40, 30_000_usize..70_000],
        mask in any::<u64>(),
        step in 1_usize..200_000,
        log_append_time in any::<bool>(),
    ) {
        let mut whole = batch(codec, count, value_bytes).to_vec();
        if log_append_time {
            corelane::wire::batch::set_max_timestamp(&mut whole, true, 5_000);
        }
        let whole = Bytes::from(whole);
        let keeps = |offset: i64| mask & (1 << (offset - 100)) != 0;
        let time = |record: Plain| if log_append_time { (record.0, 5_000, record.2, record.3) } else { record };
        let expected: Vec<_> = plain_records(&whole).into_iter().filter(|record| keeps(record.0)).map(time).collect();
        match refilled(&whole, RULES, step, keeps) {
            Refilled::Gone => prop_assert!(expected.is_empty()),
            Refilled::AsItWas => prop_assert_eq!(expected.len() as i64, count),
            Refilled::Anew(left) => {
                let (old, new) = (BatchHeader::read(&whole).unwrap(), BatchHeader::read(&left).unwrap());
                let newest = expected.iter().map(|record| record.1).max().unwrap();
                prop_assert_eq!(plain_records(&left).into_iter().map(time).collect::<Vec<_>>(), expected);
                let fixed = |header: BatchHeader| {
                    let BatchHeader { base_offset, leader_epoch, last_offset_delta, .. } = header;
                    let producer = (header.producer_id, header.producer_epoch, header.base_sequence);
                    (base_offset, leader_epoch, last_offset_delta, producer, header.attributes.codec())
                };
                prop_assert_eq!(fixed(new), fixed(old));
                prop_assert_eq!(new.max_timestamp, newest);
            }
        }
    }

    /// Whatever a batch on the disk says, looking at it ends, without a panic.
    #[test]
    fn broken_records_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80), count in 1_i32..9, codec in 0_i16..5) {
        let mut unpacker = Unpacker::new();
        let mut batch = batch(Codec::None, 1, 1)[..HEADER_BYTES].to_vec();
        batch.extend(&bytes);
        let length = i32::try_from(batch.len() - 12).unwrap();
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[21..23].copy_from_slice(&codec.to_be_bytes());
        batch[57..61].copy_from_slice(&count.to_be_bytes());
        let batch = Bytes::from(batch);
        let header = BatchHeader::read(&batch).unwrap();
        if let Ok(mut refill) = Refill::start(&batch, &header, RULES, 1 << 20, &mut unpacker) {
            while let Ok(None) = refill.step(9, &mut unpacker, |record| record.offset.0 % 2 == 0) {}
        }
    }
}
