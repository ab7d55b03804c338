//! Spoils valid frames and batches in random ways: whatever comes of it is read or refused, never worse.
//!
//! The number of cases is set by `CORELANE_FUZZ_CASES`, the seed by `CORELANE_FUZZ_SEED`; a case that panics is
//! named by its number, and the same seed gives the same cases.

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

use super::frames::{fetch_frame, produce_frame};
use super::records::rules;

const CASES: u64 = 20_000;

/// Numbers that readers are known to stumble over, as they stand in a frame.
const TRAPS: [&[u8]; 12] = [
    &[0xff; 4],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0x80, 0, 0, 0],
    &[0, 0, 0, 0],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x80, 0x08],
    &[0xfe, 0xff, 0xff, 0xff, 0x0f],
    &[0x7f, 0xff],
    &[0x80, 0],
    &[0xff, 0xfe],
    &[0xff; 10],
];

/// A small generator of numbers, the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() >> 32).unwrap() % end.max(1)
    }

    /// Spoils `bytes` in one to four places from `from` on.
    fn spoil(&mut self, bytes: &mut Vec<u8>, from: usize) {
        for _ in 0..=self.below(4) {
            let at = from + self.below(bytes.len().saturating_sub(from));
            match self.below(6) {
                _ if at >= bytes.len() => {}
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.roll().to_be_bytes()[0],
                2 => bytes.truncate(at),
                3 => drop(bytes.splice(at..at, self.trap().iter().copied())),
                4 => {
                    let trap = self.trap();
                    let end = bytes.len().min(at + trap.len());
                    bytes[at..end].copy_from_slice(&trap[..end - at]);
                }
                _ => {
                    let end = at + self.below(bytes.len() - at);
                    let copied = bytes[at..end].to_vec();
                    bytes.splice(at..at, copied);
                }
            }
        }
    }

    fn trap(&mut self) -> &'static [u8] {
        TRAPS[self.below(TRAPS.len())]
    }
}

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

fn number_of(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// Runs a case after the other; says which one it was if one panics.
fn run(mut case: impl FnMut(&mut Dice) -> usize) -> usize {
    struct Number(u64);
    impl Drop for Number {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("case {} panicked", self.0);
            }
        }
    }
    let seed = number_of("CORELANE_FUZZ_SEED", 1);
    let mut passed = 0;
    for number in 0..number_of("CORELANE_FUZZ_CASES", CASES) {
        let _number = Number(number);
        let mut dice = Dice((seed << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        passed += case(&mut dice);
    }
    passed
}

#[test]
fn spoilt_requests_do_no_harm() {
    let frames = frames(&batches());
    let mut unpacker = Unpacker::new();
    let passed = run(|dice| {
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
    let passed = run(|dice| {
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
    run(|dice| {
        let mut bytes = all.to_vec();
        let from = dice.below(bytes.len());
        dice.spoil(&mut bytes, from);
        let mut batches = Batches::checked(&bytes);
        let whole: usize = batches.by_ref().flatten().map(|batch| batch.bytes.len()).sum();
        assert_eq!(whole, batches.position());
        usize::from(whole > 0)
    });
}
