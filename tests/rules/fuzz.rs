//! Spoils valid frames and batches in random ways: whatever comes of it is read or refused, never worse.
//! How many: `dice.rs`.

use bytes::{Bytes, BytesMut};
use corelane::ids::{ProducerEpoch, ProducerId, Sequence};
use corelane::wire::admission::{Admission, Framed, TopicRules};
use corelane::wire::batch::{self, Batches, Codec};
use corelane::wire::builder::{BatchBuilder, Record};
use corelane::wire::fetch::{self, FetchRequest};
use corelane::wire::frame::read_request_header;
use corelane::wire::produce::{self, ProduceRequest};
use corelane::wire::unpack::Unpacker;
use kafka_protocol::messages::ApiKey;

use super::dice::run;
use super::frames::{fetch_frame, produce_frame};
use super::records::rules;

/// Batches of every codec, one of them with a large record.
fn batches() -> Vec<Bytes> {
    let headers = [("h", Some(&b"v"[..])), ("", None)];
    let mut builder = BatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), Sequence(0));
    for (key, value) in [(Some(&b"key"[..]), Some(&b"value"[..])), (None, None), (None, Some(&[b'v'; 90]))] {
        builder = builder.record(Record { timestamp: 1, key, value, headers: &headers });
    }
    let mut batches: Vec<_> = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]
        .into_iter()
        .map(|codec| builder.clone().codec(codec).build().freeze())
        .collect();
    batches.push(builder.clone().raw_snappy().build().freeze());
    batches.push(builder.value(1, &[0; 70_000]).raw_snappy().build().freeze());
    batches
}

/// Whole requests: produce with each kind of batch, and fetch, in every version.
fn frames(batches: &[Bytes]) -> Vec<Bytes> {
    let produce = (produce::VERSION_MIN..=produce::VERSION_MAX)
        .flat_map(|version| batches.iter().map(move |records| produce_frame(version, records)));
    produce.chain((fetch::VERSION_MIN..=fetch::VERSION_MAX).map(fetch_frame)).collect()
}

/// Reads a request as the broker does; gives how far it came, so that the test can tell that it came far.
fn read_request(frame: Bytes, unpacker: &mut Unpacker) -> usize {
    let Ok((header, body)) = read_request_header(frame) else { return 0 };
    match header.api_key {
        ApiKey::Produce => match ProduceRequest::read(body, header.api_version) {
            Ok(request) => 1 + read_records(request, header.api_version, unpacker),
            Err(_) => 0,
        },
        ApiKey::Fetch => usize::from(FetchRequest::read(body, header.api_version).is_ok()),
        _ => 0,
    }
}

fn read_records(request: ProduceRequest, version: i16, unpacker: &mut Unpacker) -> usize {
    let partitions = request.topics.into_iter().flat_map(|topic| topic.partitions);
    partitions.filter(|partition| admit(partition.records.clone(), version, unpacker)).count()
}

/// Checks one partition's records; tells whether they would be appended.
fn admit(records: Option<Bytes>, version: i16, unpacker: &mut Unpacker) -> bool {
    let rules = TopicRules { unpacked_batch_max_bytes: 1 << 20, compact: version % 2 == 0, ..rules() };
    let Ok(framed) = Framed::find(records, version) else { return false };
    Admission::start(framed, rules, 1).is_ok_and(|admission| admission.finish(unpacker).is_ok())
}

#[test]
fn spoilt_requests_do_no_harm() {
    let frames = frames(&batches());
    let mut unpacker = Unpacker::new();
    let passed = run(1, |dice| {
        let mut frame = frames[dice.below(frames.len())].to_vec();
        dice.spoil(&mut frame, 0);
        read_request(frame.into(), &mut unpacker)
    });
    assert!(passed > 0, "some requests stay readable");
}

/// With the CRC put right, the spoilt bytes reach the walk and the codecs.
#[test]
fn spoilt_batches_with_a_right_crc_do_no_harm() {
    let batches = batches();
    let mut unpacker = Unpacker::new();
    let passed = run(1, |dice| {
        let mut batch = batches[dice.below(batches.len())].to_vec();
        let from = [21, 61][dice.below(2)];
        dice.spoil(&mut batch, from);
        mend(&mut batch);
        usize::from(admit(Some(batch.into()), 13, &mut unpacker))
    });
    assert!(passed > 0, "some batches stay readable");
}

/// Makes length and CRC fit the bytes.
fn mend(batch: &mut [u8]) {
    let length = i32::try_from(batch.len() - 12).unwrap();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch::set_crc(batch);
}

#[test]
fn spoilt_segments_keep_their_valid_prefix() {
    let all: BytesMut = batches().iter().flat_map(|batch| batch.iter().copied()).collect();
    run(1, |dice| {
        let mut bytes = all.to_vec();
        let from = dice.below(bytes.len());
        dice.spoil(&mut bytes, from);
        let mut batches = Batches::checked(&bytes);
        let whole: usize = batches.by_ref().flatten().map(|batch| batch.bytes.len()).sum();
        assert_eq!(whole, batches.position());
        usize::from(whole > 0)
    });
}
