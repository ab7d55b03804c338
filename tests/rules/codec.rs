//! Compressed payloads: each codec in each form that clients write, of any size, cut and spoilt.

use std::io::Write;

use bytes::BytesMut;
use corelane::wire::admission::{Admission, Checked, Framed, Refused, TopicRules};
use corelane::wire::batch::{Codec, HEADER_BYTES};
use corelane::wire::builder::{BatchBuilder, compress};
use corelane::wire::error_code::ErrorCode;
use corelane::wire::unpack::Unpacker;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use proptest::prelude::*;

use super::records::{NOW_MS, rules, with_payload};

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn check_with(batch: BytesMut, rules: TopicRules) -> Result<Checked, Refused> {
    let framed = Framed::find(Some(batch.freeze()), 13)?;
    Admission::start(framed, rules, NOW_MS)?.finish(&mut Unpacker::new())
}

fn check(batch: BytesMut) -> Result<Checked, Refused> {
    check_with(batch, TopicRules { max_message_bytes: usize::MAX, ..rules() })
}

/// Records of `sizes`, their bytes half repeating and half not.
fn records(sizes: &[usize]) -> BatchBuilder {
    let mut state = 1_u32;
    sizes.iter().fold(BatchBuilder::new(), |builder, size| {
        let value: Vec<u8> = (0..*size)
            .map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if at % 64 < 32 { b'r' } else { state.to_be_bytes()[0] }
            })
            .collect();
        builder.value(0, &value)
    })
}

/// The records of a batch without compression.
fn plain(builder: &BatchBuilder) -> Vec<u8> {
    builder.clone().build()[HEADER_BYTES..].to_vec()
}

fn lz4(info: FrameInfo, bytes: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Records smaller and larger than every buffer and block on the way.
#[test]
fn records_of_all_sizes_are_walked_in_all_codecs() {
    let sizes = [0, 1, 30, 31, 32, 4_000, 65_535, 65_536, 65_537, 131_072, 200_000, 1_000_000, 3];
    for codec in CODECS {
        let checked = check(records(&sizes).codec(codec).build()).unwrap();
        assert_eq!(checked.header.records_count, 13, "{codec:?}");
    }
    check(records(&sizes).raw_snappy().build()).unwrap();
    check(records(&[10, 20]).raw_snappy().build()).unwrap();
}

#[test]
fn every_cut_of_a_payload_is_noticed() {
    for codec in CODECS {
        let packed = compress(codec, &plain(&records(&[300, 300])));
        check(with_payload(2, codec as i16, &packed)).unwrap();
        for cut in 0..packed.len() {
            let refused = check(with_payload(2, codec as i16, &packed[..cut])).unwrap_err();
            assert_eq!(refused.error, ErrorCode::InvalidRecord, "{codec:?} cut at byte {cut}");
        }
        let longer = [&packed[..], b"more"].concat();
        assert!(check(with_payload(2, codec as i16, &longer)).is_err(), "{codec:?} with bytes behind it");
    }
}

#[test]
fn cut_raw_snappy_is_noticed_in_large_blocks_too() {
    let packed = records(&[300_000]).raw_snappy().build()[HEADER_BYTES..].to_vec();
    check(with_payload(1, 2, &packed)).unwrap();
    for cut in (0..packed.len()).step_by(997) {
        assert!(check(with_payload(1, 2, &packed[..cut])).is_err(), "cut at byte {cut}");
    }
}

/// 100,000 bytes announced, one literal byte, then a copy of two from two bytes back; from one back would be right.
#[test]
fn snappy_never_copies_from_before_its_start() {
    let block = |offset| [0xa0, 0x8d, 0x06, 0, b'a', 1 << 2 | 2, offset, 0];
    for (offset, what) in [(0, "not valid"), (1, "cut off"), (2, "not valid")] {
        let refused = check(with_payload(1, 2, &block(offset))).unwrap_err();
        assert!(refused.message.contains(what), "offset {offset}: {}", refused.message);
    }
}

/// A value that comes again 70,000 bytes later, as copies with offsets of four bytes: franz-go's compressor writes such.
#[test]
fn snappy_copies_from_further_back_than_a_block() {
    let value: Vec<u8> = (0..70_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bytes = plain(&BatchBuilder::new().value(0, &value).value(0, &value));
    let first = bytes.windows(64).position(|window| *window == value[..64]).unwrap();
    let second = bytes.len() - 1 - value.len();
    let mut packed = Vec::new();
    let mut left = bytes.len();
    while left > 127 {
        packed.push(left as u8 | 0x80);
        left >>= 7;
    }
    packed.push(left as u8);
    packed.push(62 << 2); // a literal whose length has three bytes
    packed.extend_from_slice(&(second as u32 - 1).to_le_bytes()[..3]);
    packed.extend_from_slice(&bytes[..second]);
    for part in value.chunks(64) {
        packed.push((part.len() as u8 - 1) << 2 | 3);
        packed.extend_from_slice(&((second - first) as u32).to_le_bytes());
    }
    packed.extend_from_slice(&[0, bytes[bytes.len() - 1]]);
    assert_eq!(snap::raw::Decoder::new().decompress_vec(&packed).unwrap(), bytes, "it is what was meant");
    check(with_payload(2, 2, &packed)).unwrap();
}

#[test]
fn gzip_members_and_zstd_frames_may_follow_each_other() {
    let bytes = plain(&records(&[1_000, 1_000]));
    for codec in [Codec::Gzip, Codec::Zstd] {
        let (head, tail) = bytes.split_at(777);
        let packed = [compress(codec, head), compress(codec, tail)].concat();
        check(with_payload(2, codec as i16, &packed)).unwrap();
    }
}

#[test]
fn lz4_frames_of_all_kinds() {
    for (size, bytes) in [
        (BlockSize::Max64KB, 70_000),
        (BlockSize::Max256KB, 300_000),
        (BlockSize::Max1MB, 1_100_000),
        (BlockSize::Max4MB, 4_300_000),
    ] {
        let bytes = plain(&records(&[10, bytes]));
        let info = FrameInfo::new().block_size(size);
        check(with_payload(2, 3, &lz4(info.clone(), &bytes))).unwrap();
        check(with_payload(2, 3, &lz4(info.clone().block_checksums(true), &bytes))).unwrap();
        check(with_payload(2, 3, &lz4(info.clone().content_checksum(true), &bytes))).unwrap();
        check(with_payload(2, 3, &lz4(info.content_size(Some(bytes.len() as u64)), &bytes))).unwrap();
    }
    let linked = lz4(FrameInfo::new().block_mode(BlockMode::Linked), &plain(&records(&[10, 10])));
    let refused = check(with_payload(2, 3, &linked)).unwrap_err();
    assert!(refused.message.contains("depend"), "{}", refused.message);
}

#[test]
fn lz4_checksums_are_checked() {
    let bytes = plain(&records(&[200]));
    for info in [FrameInfo::new().block_checksums(true), FrameInfo::new().content_checksum(true)] {
        let packed = lz4(info, &bytes);
        for at in 0..packed.len() {
            let mut spoilt = packed.clone();
            spoilt[at] ^= 0x10;
            assert!(check(with_payload(1, 3, &spoilt)).is_err(), "byte {at} of {}", packed.len());
        }
    }
}

#[test]
fn a_payload_that_unpacks_to_too_much_is_refused() {
    let builder = BatchBuilder::new().value(0, &vec![0; 3_000_000]);
    for codec in CODECS {
        let batch = builder.clone().codec(codec).build();
        let at_most = |unpacked_batch_max_bytes| TopicRules { unpacked_batch_max_bytes, ..rules() };
        let refused = check_with(batch.clone(), at_most(2_999_999)).unwrap_err();
        assert_eq!(refused.error, ErrorCode::InvalidRecord, "{codec:?}");
        assert!(refused.message.contains("2999999"), "{}", refused.message);
        check_with(batch, at_most(3_000_100)).unwrap();
    }
}

/// Level 22 asks for a window of 128 MiB; small batches of such a producer must pass, a bomb must not fill it.
#[test]
fn a_zstd_window_is_allowed_but_not_filled_for_nothing() {
    let pack = |bytes: &[u8]| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 22).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    check(with_payload(1, 4, &pack(&plain(&records(&[100_000]))))).unwrap();
    let bomb = pack(&plain(&BatchBuilder::new().value(0, &vec![0; 9_000_000])));
    assert!(bomb.len() < 10_000);
    assert_eq!(check(with_payload(1, 4, &bomb)).unwrap_err().error, ErrorCode::InvalidRecord);
}

/// A context that a broken payload has left behind serves the next batch.
#[test]
fn contexts_survive_broken_payloads() {
    let mut unpacker = Unpacker::new();
    for codec in CODECS {
        let good = records(&[1_000, 50]).codec(codec).build();
        let packed = &good[HEADER_BYTES..];
        for cut in [0, 5, packed.len() / 2, packed.len() - 1] {
            for (batch, passes) in [(with_payload(2, codec as i16, &packed[..cut]), false), (good.clone(), true)] {
                let framed = Framed::find(Some(batch.freeze()), 13).unwrap();
                let result = Admission::start(framed, rules(), NOW_MS).unwrap().finish(&mut unpacker);
                assert_eq!(result.is_ok(), passes, "{codec:?} after a cut at byte {cut}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn what_is_packed_is_walked(sizes in prop::collection::vec(0_usize..100_000, 1..8), codec in 0_usize..4) {
        let builder = records(&sizes).codec(CODECS[codec]);
        let checked = check(builder.build()).unwrap();
        prop_assert_eq!(usize::try_from(checked.header.records_count).unwrap(), sizes.len());
    }

    /// Our unpacking of large snappy blocks agrees with the library's about what is valid.
    #[test]
    fn spoilt_snappy_is_judged_as_the_library_does(at: prop::sample::Index, bit in 0_u8..8) {
        let mut packed = records(&[100_000]).raw_snappy().build()[HEADER_BYTES..].to_vec();
        let at = at.index(packed.len());
        packed[at] ^= 1_u8 << bit;
        let theirs = snap::raw::Decoder::new().decompress_vec(&packed);
        let ours = check(with_payload(1, 2, &packed));
        prop_assert!(theirs.is_ok() || ours.is_err(), "byte {at}");
    }
}
