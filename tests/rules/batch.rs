//! Batches: what was built is read back, every cut and every flipped bit is noticed, patches keep the CRC right.

use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::wire::batch::{self, BatchError, BatchHeader, Batches, HEADER_BYTES, check_crc};
use corelane::wire::builder::{BatchBuilder, Marker, control_batch};
use kafka_protocol::records::RecordBatchDecoder;
use proptest::prelude::*;

/// Three batches of 1, 2 and 3 records, one behind the other.
fn run() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut offset = 100;
    for count in 1..=3 {
        let mut builder = BatchBuilder::new().place(Offset(offset), 7);
        for index in 0..count {
            builder = builder.value(1_000 + index, b"some value");
        }
        bytes.extend_from_slice(&builder.build());
        offset += count;
    }
    bytes
}

#[test]
fn header_is_read_back_as_it_was_written() {
    let batch = BatchBuilder::new()
        .place(Offset(42), 3)
        .producer(ProducerId(9), ProducerEpoch(2), Sequence(17))
        .value(1_000, b"a")
        .value(999, b"b")
        .build();
    let header = BatchHeader::read(&batch).unwrap();
    assert_eq!(header.size(), batch.len());
    assert_eq!((header.base_offset, header.last_offset(), header.next_offset()), (Offset(42), Offset(43), Offset(44)));
    assert_eq!((header.base_sequence, header.last_sequence()), (Sequence(17), Sequence(18)));
    assert_eq!((header.base_timestamp, header.max_timestamp, header.records_count), (1_000, 1_000, 2));
    assert_eq!(header.encode(), batch[..HEADER_BYTES]);
    check_crc(&batch).unwrap();
}

/// The decoder of the protocol crate is another's reading of the same format.
#[test]
fn another_reader_agrees() {
    let batch = BatchBuilder::new()
        .place(Offset(42), 3)
        .producer(ProducerId(9), ProducerEpoch(2), Sequence(17))
        .value(1_000, b"a")
        .value(1_700, b"b")
        .build();
    let set = RecordBatchDecoder::decode(&mut batch.freeze()).unwrap();
    let seen: Vec<_> = set.records.iter().map(|r| (r.offset, r.timestamp, r.value.as_deref().unwrap())).collect();
    assert_eq!(seen, [(42, 1_000, &b"a"[..]), (43, 1_700, b"b")]);
    assert_eq!(set.records[1].sequence, 18);
}

#[test]
fn markers_are_what_kafka_writes() {
    let marker = control_batch(ProducerId(5), ProducerEpoch(1), Marker::Abort, 4, 1_000);
    let header = BatchHeader::read(&marker).unwrap();
    assert!(header.attributes.is_control() && header.attributes.is_transactional());
    assert_eq!(header.base_sequence, Sequence(-1));
    check_crc(&marker).unwrap();
    let set = RecordBatchDecoder::decode(&mut marker.freeze()).unwrap();
    assert_eq!(set.records[0].key.as_deref().unwrap(), [0, 0, 0, 0]);
    assert_eq!(set.records[0].value.as_deref().unwrap(), [0, 0, 0, 0, 0, 4]);
}

#[test]
fn every_cut_keeps_the_whole_batches() {
    let bytes = run();
    let ends: Vec<_> = Batches::new(&bytes).map(|batch| batch.unwrap()).map(|b| b.position + b.bytes.len()).collect();
    assert_eq!(ends.last(), Some(&bytes.len()));
    for cut in 0..=bytes.len() {
        let mut batches = Batches::checked(&bytes[..cut]);
        let whole = batches.by_ref().filter(Result::is_ok).count();
        let end = ends.iter().rev().find(|end| **end <= cut).copied().unwrap_or(0);
        assert_eq!(whole, ends.iter().filter(|end| **end <= cut).count(), "cut at byte {cut}");
        assert_eq!(batches.position(), end, "cut at byte {cut}");
    }
}

/// Base offset and leader epoch are outside of the CRC; everything else is inside, or breaks the frame.
#[test]
fn every_flipped_bit_behind_the_place_is_noticed() {
    let bytes = run();
    let first = BatchHeader::read(&bytes).unwrap().size();
    for bit in (8 * 8..12 * 8).chain(16 * 8..first * 8) {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = Batches::checked(&bytes).next().unwrap();
        assert!(found.is_err(), "bit {bit} flipped: {found:?}");
    }
}

#[test]
fn garbage_of_any_kind_is_named() {
    let good = BatchBuilder::new().value(0, b"x").build();
    let with = |at: usize, value: &[u8]| {
        let mut bytes = good.to_vec();
        bytes[at..at + value.len()].copy_from_slice(value);
        BatchHeader::read(&bytes).unwrap_err()
    };
    assert_eq!(with(16, &[1]), BatchError::OldMagic(1));
    assert_eq!(with(16, &[3]), BatchError::UnknownMagic(3));
    assert_eq!(with(16, &[0xff]), BatchError::UnknownMagic(-1));
    assert_eq!(with(8, &(-1_i32).to_be_bytes()), BatchError::Length(-1));
    assert_eq!(with(8, &48_i32.to_be_bytes()), BatchError::Length(48));
    assert!(matches!(with(8, &i32::MAX.to_be_bytes()), BatchError::Short { .. }));
    assert!(matches!(BatchHeader::read(&[]), Err(BatchError::Short { have: 0, .. })));
}

proptest! {
    #[test]
    fn a_place_changes_nothing_that_the_crc_covers(offset: i64, epoch: i32) {
        let mut batch = BatchBuilder::new().value(5, b"x").build();
        let before = batch.clone();
        batch::set_place(&mut batch, Offset(offset), epoch);
        let header = BatchHeader::read(&batch).unwrap();
        prop_assert_eq!((header.base_offset, header.leader_epoch), (Offset(offset), epoch));
        prop_assert_eq!(&batch[16..], &before[16..]);
        check_crc(&batch).unwrap();
    }

    #[test]
    fn timestamps_are_set_together_with_the_crc(log_append_time: bool, was: bool, max_timestamp: i64) {
        let mut batch = BatchBuilder::new()
            .value(5, b"x")
            .header(|header| header.attributes = header.attributes.with_log_append_time(was))
            .build();
        batch::set_max_timestamp(&mut batch, log_append_time, max_timestamp);
        let header = BatchHeader::read(&batch).unwrap();
        prop_assert_eq!(header.attributes.is_log_append_time(), log_append_time);
        prop_assert_eq!(header.max_timestamp, max_timestamp);
        check_crc(&batch).unwrap();
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut batches = Batches::checked(&bytes);
        while batches.next().is_some() {}
        prop_assert!(batches.position() <= bytes.len());
    }
}
