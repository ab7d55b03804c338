//! The scan keeps exactly the whole batches, however the file is cut, bent or read.

use corelane::ids::Offset;
use corelane::log::scan::{BatchFacts, ScanEnd, Scanner, Stop};
use proptest::prelude::*;

use crate::sample::{Sample, concat, fixture, plain_samples};

fn scan(file: &[u8], read_bytes: usize, min_offset: i64) -> (ScanEnd, Vec<BatchFacts>) {
    let mut scanner = Scanner::new(file.len() as u64, 0, Offset(min_offset));
    let mut seen = Vec::new();
    while !scanner.is_done() {
        let at = scanner.wants() as usize;
        let until = (at + read_bytes).min(file.len());
        scanner.feed(&file[at..until], &mut |facts, bytes| {
            let at = facts.position as usize;
            assert_eq!(bytes, &file[at..at + facts.bytes as usize]);
            seen.push(*facts);
        });
    }
    (scanner.finish(), seen)
}

/// End position and next offset of the whole batches within the first `bytes` bytes.
fn whole_before(samples: &[Sample], bytes: usize) -> (u64, Offset, u64) {
    let (mut position, mut next, mut batches) = (0, samples[0].base, 0);
    for sample in samples {
        let size = sample.bytes().len();
        if position + size > bytes {
            break;
        }
        position += size;
        next = sample.end();
        batches += 1;
    }
    (position as u64, Offset(next), batches)
}

/// A crash may cut the file anywhere: at each cut, the scan keeps exactly the whole batches.
#[test]
fn every_cut_keeps_whole_batches() {
    let samples = plain_samples(100, 5);
    let file = concat(&samples);
    for cut in 0..=file.len() {
        for read_bytes in [1, 60, 61, 64, 1 << 20] {
            let (end, _) = scan(&file[..cut], read_bytes, 100);
            assert_eq!((end.position, end.next_offset, end.batches), whole_before(&samples, cut), "cut at byte {cut}");
            // The first bytes of a base offset are zeros like any others.
            let left = &file[end.position as usize..cut];
            let stop = if left.iter().all(|byte| *byte == 0) { Stop::Zeros } else { Stop::Torn };
            assert_eq!(end.stop, (!left.is_empty()).then_some(stop), "cut at byte {cut}");
        }
    }
}

/// A flipped bit is found unless it is in the four bytes that no checksum covers and nobody relies on.
#[test]
fn every_flipped_bit_ends_the_scan_at_its_batch() {
    let samples = plain_samples(100, 3);
    let file = concat(&samples);
    for bit in 0..file.len() * 8 {
        let mut bent = file.clone();
        bent[bit / 8] ^= 1 << (bit % 8);
        let (kept, ..) = whole_before(&samples, bit / 8);
        let in_batch = bit / 8 - kept as usize;
        let (end, _) = scan(&bent, 1 << 20, 100);
        if (12..16).contains(&in_batch) {
            assert_eq!(end.stop, None, "the leader epoch is not covered");
        } else if in_batch < 8 {
            // The base offset is not covered either; ascending offsets are what can be checked.
            assert!(end.position >= kept);
        } else {
            assert_eq!(end.position, kept, "bit {bit}");
            assert!(end.stop.is_some(), "bit {bit}");
        }
    }
}

/// LOG-02: zeros are the end, also when they end inside a header; garbage is told apart.
#[test]
fn log_02_zeros_behind_the_last_batch_are_no_damage() {
    let samples = plain_samples(0, 4);
    let whole = concat(&samples);
    for zeros in 1..200 {
        let mut file = whole.clone();
        file.resize(whole.len() + zeros, 0);
        for read_bytes in [1, 7, 1 << 20] {
            let (end, _) = scan(&file, read_bytes, 0);
            assert_eq!((end.position, end.stop), (whole.len() as u64, Some(Stop::Zeros)), "{zeros} zeros");
        }
        *file.last_mut().unwrap() = 1;
        let (end, _) = scan(&file, 1 << 20, 0);
        assert_eq!(end.position, whole.len() as u64);
        assert!(end.stop == Some(Stop::Torn) || zeros > 61 || end.stop == Some(Stop::NoHeader), "{:?}", end.stop);
    }
}

/// LOG-02, second case: a checksum that happens to be 0 is a checksum.
#[test]
fn log_02_a_batch_whose_checksum_is_zero_is_kept() {
    let batch = with_checksum_zero(Sample { base: 0, timestamps: vec![5], value_bytes: 40 }.bytes());
    assert_eq!(&batch[17..21], &[0; 4]);
    let mut file = batch.clone();
    file.extend(Sample { base: 1, timestamps: vec![6], value_bytes: 10 }.bytes());
    let (end, seen) = scan(&file, 1 << 20, 0);
    assert_eq!((end.stop, seen.len()), (None, 2));
}

/// Chooses four bytes of the value so that the CRC becomes 0: CRC is linear, so each bit's effect can be measured alone.
fn with_checksum_zero(mut batch: Vec<u8>) -> Vec<u8> {
    let at = batch.len() - 8;
    let crc = |batch: &[u8]| corelane::log::crc::crc32c(&batch[21..]);
    batch[at..at + 4].fill(0);
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for bit in 0..32 {
        let mut changed = batch.clone();
        changed[at + bit / 8] ^= 1 << (bit % 8);
        rows.push((crc(&changed) ^ crc(&batch), 1 << bit));
    }
    let mut wanted = crc(&batch);
    let mut chosen = 0;
    for column in 0..32 {
        let pivot = rows.iter().position(|(effect, _)| effect >> column & 1 == 1).unwrap();
        let (effect, bits) = rows.swap_remove(pivot);
        for row in rows.iter_mut().filter(|row| row.0 >> column & 1 == 1) {
            *row = (row.0 ^ effect, row.1 ^ bits);
        }
        if wanted >> column & 1 == 1 {
            wanted ^= effect;
            chosen ^= bits;
        }
    }
    for bit in 0..32 {
        batch[at + bit / 8] |= u8::from(chosen >> bit & 1 == 1) << (bit % 8);
    }
    let crc = crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

#[test]
fn offsets_that_go_back_end_the_scan() {
    let mut file = Sample { base: 10, timestamps: vec![1, 1], value_bytes: 5 }.bytes();
    let first = file.len() as u64;
    file.extend(Sample { base: 11, timestamps: vec![1], value_bytes: 5 }.bytes());
    let (end, _) = scan(&file, 1 << 20, 10);
    assert_eq!((end.position, end.stop), (first, Some(Stop::OffsetBack)));
    assert_eq!(scan(&file, 1 << 20, 11).0.stop, Some(Stop::OffsetBack));
}

#[test]
fn segments_of_kafka_are_whole() {
    for (name, records) in [("kafka-plain", 150), ("kafka-gzip", 170)] {
        let file = fixture(&format!("{name}/00000000000000000000.log"));
        let (end, seen) = scan(&file, 1000, 0);
        assert_eq!((end.position, end.stop), (file.len() as u64, None), "{name}");
        assert_eq!(end.next_offset, Offset(records), "{name}");
        assert_eq!(seen.iter().map(|batch| i64::from(batch.records_count)).sum::<i64>(), records, "{name}");
        assert!(seen.iter().all(|batch| batch.producer_id >= 0 && !batch.is_control()), "{name}");
    }
}

proptest! {
    /// Whatever the bytes are, the scan ends within them and hands out nothing twice.
    #[test]
    fn garbage_never_panics(mut file in prop::collection::vec(any::<u8>(), 0..400), length in 0_i32..400, read_bytes in 1_usize..100) {
        if file.len() > 17 {
            file[8..12].copy_from_slice(&length.to_be_bytes());
            file[16] = 2;
        }
        let (end, _) = scan(&file, read_bytes, 0);
        prop_assert!(end.position <= file.len() as u64);
    }
}
