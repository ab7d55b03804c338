//! The walk over records, and the checks around it in Kafka's order.

use bytes::{Bytes, BytesMut};
use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::wire::admission::{Admission, Checked, Framed, Progress, Refused, Stamp, TopicRules};
use corelane::wire::batch::{self, BatchHeader, Codec, HEADER_BYTES};
use corelane::wire::builder::{BatchBuilder, Record};
use corelane::wire::error_code::ErrorCode;
use corelane::wire::unpack::Unpacker;

pub(crate) const NOW_MS: i64 = 1_700_000_000_000;
const PRODUCE: i16 = 13;

pub(crate) fn rules() -> TopicRules {
    TopicRules {
        max_message_bytes: 1_048_588,
        segment_bytes: 1 << 30,
        compact: false,
        log_append_time: false,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        unpacked_batch_max_bytes: 256 << 20,
    }
}

fn check_with(batch: BytesMut, rules: TopicRules) -> Result<Checked, Refused> {
    let framed = Framed::find(Some(batch.freeze()), PRODUCE)?;
    Admission::start(framed, rules, NOW_MS)?.finish(&mut Unpacker::new())
}

fn check(batch: BytesMut) -> Result<Checked, Refused> {
    check_with(batch, rules())
}

/// A batch whose payload is given as bytes, with a right CRC.
pub(crate) fn with_payload(count: i32, codec: i16, payload: &[u8]) -> BytesMut {
    let header = BatchBuilder::new().value(NOW_MS, b"").header(|header| {
        header.records_count = count;
        header.last_offset_delta = count - 1;
        header.attributes.0 = codec;
    });
    let mut batch = BytesMut::from(&header.build()[..HEADER_BYTES]);
    batch.extend_from_slice(payload);
    let length = i32::try_from(batch.len() - 12).unwrap();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch::set_crc(&mut batch);
    batch
}

fn payload_of(batch: &BytesMut) -> Vec<u8> {
    batch[HEADER_BYTES..].to_vec()
}

fn three() -> BatchBuilder {
    BatchBuilder::new().value(NOW_MS, b"a").value(NOW_MS + 5, b"b").value(NOW_MS + 5, b"c")
}

/// The code of a refusal, and whether its answer tells the log start.
fn refused(batch: BytesMut) -> (ErrorCode, bool) {
    let refused = check(batch).unwrap_err();
    assert!(!refused.message.is_empty());
    (refused.error, refused.tells_log_start)
}

#[test]
fn a_sound_batch_passes_as_it_is() {
    let batch = three().build();
    let checked = check(batch.clone()).unwrap();
    assert_eq!(checked.batch, batch);
    assert_eq!(checked.stamp, Stamp::Keep);
    assert_eq!((checked.max_timestamp, checked.max_timestamp_index), (NOW_MS + 5, 1), "the first of two equal ones");
}

#[test]
fn headers_and_nulls_are_walked_over() {
    let long = vec![b'x'; 300];
    let headers = [("", None), ("same", Some(&b"1"[..])), ("same", Some(&long[..]))];
    let mut batch = BatchBuilder::new();
    for (key, value) in [(None, None), (Some(&b""[..]), Some(&b""[..])), (Some(&long[..]), Some(&long[..]))] {
        batch = batch.record(Record { timestamp: NOW_MS, key, value, headers: &headers });
    }
    check(batch.build()).unwrap();
}

#[test]
fn row_4_one_batch_of_format_2() {
    let good = three().build();
    assert_eq!(Framed::find(None, PRODUCE).unwrap_err().error, ErrorCode::InvalidRecord);
    assert_eq!(Framed::find(Some(Bytes::new()), PRODUCE).unwrap_err().error, ErrorCode::InvalidRecord);
    let two = [&good[..], &good[..]].concat();
    assert_eq!(Framed::find(Some(two.into()), PRODUCE).unwrap_err().error, ErrorCode::InvalidRecord);
    let cut = good.clone().freeze().slice(..good.len() - 1);
    assert_eq!(Framed::find(Some(cut), PRODUCE).unwrap_err().error, ErrorCode::InvalidRecord);
    for rest in [&good[..11], &good[..40]] {
        let framed = Framed::find(Some([&good[..], rest].concat().into()), PRODUCE).unwrap();
        assert_eq!(framed.batch, good, "the start of a second batch is dropped, as Kafka does");
    }
    let zeros = [&good[..], &[0; 20]].concat();
    assert_eq!(Framed::find(Some(zeros.into()), PRODUCE).unwrap_err().error, ErrorCode::CorruptMessage);
    for (magic, error) in [(0, ErrorCode::InvalidRecord), (1, ErrorCode::InvalidRecord), (3, ErrorCode::CorruptMessage)]
    {
        let mut batch = good.clone();
        batch[16] = magic;
        assert_eq!(refused(batch), (error, false), "magic {magic}");
    }
    let zstd = three().codec(Codec::Zstd).build().freeze();
    assert_eq!(Framed::find(Some(zstd.clone()), 6).unwrap_err().error, ErrorCode::UnsupportedCompressionType);
    Framed::find(Some(zstd), 7).unwrap();
}

#[test]
fn rows_8_to_13_in_their_order() {
    // Each is wrong in its own row and in all that follow; the first one is the answer.
    let shape = |header: &mut BatchHeader| {
        header.records_count = 5;
        header.attributes = header.attributes.with_control(true);
        header.producer_id = ProducerId(1);
    };
    let bad_crc = |mut batch: BytesMut| {
        let last = batch.len() - 1;
        batch[last] ^= 1;
        batch
    };
    let small = TopicRules { max_message_bytes: 10, ..rules() };
    let batch = bad_crc(three().place(Offset(5), 0).header(shape).build());
    assert_eq!(check_with(batch, small).unwrap_err().error, ErrorCode::InvalidRecord, "row 8");
    let refused_size = check_with(bad_crc(three().header(shape).build()), small).unwrap_err();
    assert_eq!((refused_size.error, refused_size.tells_log_start), (ErrorCode::MessageTooLarge, false), "row 9");
    assert_eq!(refused(bad_crc(three().header(shape).build())), (ErrorCode::CorruptMessage, false), "row 10");
    assert_eq!(refused(three().header(shape).build()), (ErrorCode::InvalidRecord, true), "row 11");
}

#[test]
fn each_rule_of_the_header_refuses_alone() {
    type Change = fn(&mut BatchHeader);
    let bad: [(&str, Change); 7] = [
        ("no records", |h| (h.records_count, h.last_offset_delta) = (0, -1)),
        ("no records, delta 0", |h| h.records_count = 0),
        ("count above delta + 1", |h| h.records_count = 4),
        ("delta at its limit", |h| h.last_offset_delta = i32::MAX),
        ("control", |h| h.attributes = h.attributes.with_control(true)),
        ("negative sequence", |h| h.producer_id = ProducerId(1)),
        ("transactional without producer", |h| h.attributes = h.attributes.with_transactional(true)),
    ];
    for (what, change) in bad {
        assert_eq!(refused(three().header(change).build()), (ErrorCode::InvalidRecord, true), "{what}");
    }
    let good = three().producer(ProducerId(1), ProducerEpoch(0), Sequence(0)).transactional();
    check(good.build()).unwrap();
}

#[test]
fn payloads_that_cannot_be_read_are_refused() {
    let good = payload_of(&three().build());
    check(with_payload(3, 0, &good)).unwrap();
    for codec in 5..=7 {
        assert_eq!(refused(with_payload(3, codec, &good)), (ErrorCode::InvalidRecord, true), "codec {codec}");
    }
    for codec in 1..=4 {
        assert_eq!(refused(with_payload(3, codec, &good)).0, ErrorCode::InvalidRecord, "garbage for codec {codec}");
        assert_eq!(refused(with_payload(3, codec, &[])).0, ErrorCode::InvalidRecord, "nothing for codec {codec}");
    }
    for count in [1, 2, 4, i32::MAX] {
        assert_eq!(refused(with_payload(count, 0, &good)).0, ErrorCode::InvalidRecord, "{count} records");
    }
    assert_eq!(refused(with_payload(3, 0, &[&good[..], &[0]].concat())).0, ErrorCode::InvalidRecord, "a byte more");
    for cut in 0..good.len() {
        assert_eq!(refused(with_payload(3, 0, &good[..cut])).0, ErrorCode::InvalidRecord, "cut at byte {cut}");
    }
}

/// The last bytes of a record may be a header's, or nothing at all.
#[test]
fn every_cut_of_records_with_headers_is_noticed() {
    let headers = [("a", None), ("b", Some(&b"value"[..]))];
    let record = Record { timestamp: NOW_MS, key: Some(b"key"), value: None, headers: &headers };
    let good = payload_of(&BatchBuilder::new().record(record).record(record).build());
    check(with_payload(2, 0, &good)).unwrap();
    for cut in 0..good.len() {
        assert_eq!(refused(with_payload(2, 0, &good[..cut])).0, ErrorCode::InvalidRecord, "cut at byte {cut}");
    }
}

/// Each field of a record is given a value that makes no sense.
#[test]
fn records_that_make_no_sense_are_refused() {
    // length 14: attributes, timestamp 0, offset 0, key "k", value "v", one header "h" = "w"
    let good = [24, 0, 0, 0, 2, b'k', 2, b'v', 2, 2, b'h', 2, b'w'];
    check(with_payload(1, 0, &good)).unwrap();
    let bad: [(&str, usize, u8); 10] = [
        ("length too small", 0, 22),
        ("length too large", 0, 26),
        ("length negative", 0, 1),
        ("offset delta not the index", 3, 2),
        ("key length below -1", 4, 3),
        ("key behind the record", 4, 126),
        ("value length below -1", 6, 5),
        ("header count negative", 8, 1),
        ("name null", 9, 1),
        ("header value behind the record", 11, 100),
    ];
    for (what, at, value) in bad {
        let mut payload = good;
        payload[at] = value;
        assert_eq!(refused(with_payload(1, 0, &payload)).0, ErrorCode::InvalidRecord, "{what}");
    }
}

#[test]
fn compacted_topics_want_a_key_in_each_record() {
    let compacted = TopicRules { compact: true, ..rules() };
    let keyed = |key| Record { timestamp: NOW_MS, key, value: Some(b"v"), headers: &[] };
    let batch = BatchBuilder::new().record(keyed(None)).record(keyed(Some(b"k"))).record(keyed(None));
    for codec in [Codec::None, Codec::Lz4] {
        let batch = batch.clone().codec(codec).build();
        let refused = check_with(batch.clone(), compacted).unwrap_err();
        let indexes: Vec<_> = refused.record_errors.iter().map(|fault| fault.index).collect();
        assert_eq!((refused.error, indexes), (ErrorCode::InvalidRecord, vec![0, 2]));
        check(batch).unwrap();
    }
    check_with(BatchBuilder::new().record(keyed(Some(b""))).build(), compacted).unwrap();
}

#[test]
fn timestamps_have_a_range_and_minus_one_has_none() {
    let hour = 3_600_000;
    let at = |timestamps: &[i64]| timestamps.iter().fold(BatchBuilder::new(), |b, t| b.value(*t, b"v")).build();
    check(at(&[NOW_MS, NOW_MS + hour, -1, 0])).unwrap();
    let refused = check(at(&[NOW_MS, NOW_MS + 2 * hour, NOW_MS + hour + 1])).unwrap_err();
    let indexes: Vec<_> = refused.record_errors.iter().map(|fault| fault.index).collect();
    assert_eq!((refused.error, indexes), (ErrorCode::InvalidTimestamp, vec![1, 2]));
    let strict = TopicRules { timestamp_before_max_ms: hour, ..rules() };
    assert_eq!(check_with(at(&[NOW_MS - hour - 1]), strict).unwrap_err().error, ErrorCode::InvalidTimestamp);
    check_with(at(&[NOW_MS - hour, -1]), strict).unwrap();
    let broker_time = TopicRules { log_append_time: true, ..strict };
    check_with(at(&[NOW_MS + 2 * hour]), broker_time).unwrap();
}

/// One record out of time makes the code 32, whatever else is wrong; each record counts once.
#[test]
fn a_bad_time_outweighs_a_missing_key() {
    let compacted = TopicRules { compact: true, ..rules() };
    let far = NOW_MS + 7_200_000;
    let batch = BatchBuilder::new()
        .value(far, b"neither key nor time")
        .record(Record { timestamp: far, key: Some(b"k"), value: None, headers: &[] })
        .build();
    let refused = check_with(batch, compacted).unwrap_err();
    assert_eq!(refused.error, ErrorCode::InvalidTimestamp);
    assert_eq!(refused.record_errors.len(), 2);
    assert!(refused.record_errors[0].message.as_deref().unwrap().contains("key"));
}

#[test]
fn the_broker_puts_time_and_maximum_right() {
    let broker_time = TopicRules { log_append_time: true, ..rules() };
    let checked = check_with(three().build(), broker_time).unwrap();
    assert_eq!(checked.stamp, Stamp::Set { log_append_time: true, max_timestamp: NOW_MS });
    assert_eq!((checked.max_timestamp, checked.max_timestamp_index), (NOW_MS, 0));

    let marked = three().header(|h| h.attributes = h.attributes.with_log_append_time(true)).build();
    let checked = check(marked).unwrap();
    assert_eq!(checked.stamp, Stamp::Set { log_append_time: false, max_timestamp: NOW_MS + 5 });

    let lying = three().header(|h| h.max_timestamp = 7).build();
    let checked = check(lying).unwrap();
    let mut stored = BytesMut::from(&checked.batch[..]);
    checked.stamp.apply(&mut stored);
    assert_eq!(stored, three().build(), "as if the client had not lied");
}

#[test]
fn a_batch_larger_than_a_segment_has_no_place() {
    let checked = check(three().build()).unwrap();
    checked.check_segment(checked.batch.len()).unwrap();
    let refused = checked.check_segment(checked.batch.len() - 1).unwrap_err();
    assert_eq!(refused.error, ErrorCode::RecordListTooLarge);
}

/// The result does not depend on how short the steps are.
#[test]
fn steps_of_any_length_see_the_same() {
    let value = [b'v'; 200];
    let mut builder = BatchBuilder::new();
    for index in 0..200 {
        builder = builder.record(Record {
            timestamp: NOW_MS + index,
            key: Some(&value[..usize::try_from(index).unwrap()]),
            value: Some(&value),
            headers: &[("h", None)],
        });
    }
    let mut unpacker = Unpacker::new();
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = builder.clone().codec(codec).build().freeze();
        for step_bytes in [1, 2, 7, 100, 1_000, 100_000] {
            let framed = Framed::find(Some(batch.clone()), PRODUCE).unwrap();
            let mut admission = Admission::start(framed, rules(), NOW_MS).unwrap();
            let mut steps = 0;
            let checked = loop {
                steps += 1;
                if let Progress::Done(checked) = admission.step(step_bytes, &mut unpacker).unwrap() {
                    break checked;
                }
            };
            assert_eq!(checked.max_timestamp_index, 199, "{codec:?} by {step_bytes}");
            assert!(steps * (step_bytes + 31) * 16 >= 1_000, "{codec:?} by {step_bytes}: only {steps} steps");
        }
    }
}
