//! A segment on a real file system against the list of its batches: reads, times, crashes, lost derived files.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use corelane::ids::{LogId, Offset};
use corelane::log::index::{IndexRules, TimestampOffset};
use corelane::log::names::Kind;
use corelane::log::scan::{Gaps, Stop};
use corelane::log::segment::{Incoming, Known, RollRules, Sealing, Segment, remove_deleted};
use corelane::log::segment_read::ReadLimits;
use proptest::prelude::*;

use crate::plain_disk::{Folder, PlainDisk, run};
use crate::sample::{Sample, concat, fixture_path, plain_samples, samples};

const RULES: IndexRules = IndexRules { interval_bytes: 300, index_bytes_max: 10 << 20 };
const SEALING: Sealing = Sealing { open: false, clean: false, log_id: LogId(9), generation: 4, aborts: (0, 0) };

fn create(folder: &Folder, base: i64) -> Segment<PlainDisk> {
    Segment::create(PlainDisk::default(), folder.shared(), Offset(base), RULES, 0).unwrap()
}

fn existing(folder: &Path, base: i64, bytes: u64, end: i64) -> Segment<PlainDisk> {
    let known = Known { bytes, end: Offset(end) };
    Segment::existing(PlainDisk::default(), Rc::from(folder), Offset(base), RULES, 0, known)
}

fn append(segment: &Segment<PlainDisk>, all: &[Sample]) {
    for (at, sample) in all.iter().enumerate() {
        let bytes = sample.bytes();
        let position = segment.bytes();
        segment.note_batch(&sample.facts(position));
        match at % 2 {
            0 => segment.write_now(position, &[&bytes[..10], &bytes[10..]]).unwrap(),
            _ => run(segment.write(position, Bytes::from(bytes))).unwrap(),
        }
    }
}

fn written(base: i64, all: &[Sample]) -> (Folder, Segment<PlainDisk>) {
    let folder = Folder::new();
    let segment = create(&folder, base);
    append(&segment, all);
    (folder, segment)
}

/// What a read must give: whole batches from the one that holds `offset`, as many as fit.
fn expected(all: &[Sample], offset: i64, limits: ReadLimits) -> Option<Vec<u8>> {
    let mut position = 0;
    let mut bytes: Vec<u8> = Vec::new();
    for sample in all {
        let batch = sample.bytes();
        let end = position + batch.len() as u64;
        if end > limits.upper {
            break;
        }
        if sample.end() > offset {
            let first = bytes.is_empty() && limits.first_whole;
            if bytes.len() + batch.len() > limits.bytes_max && !first {
                break;
            }
            bytes.extend(batch);
        }
        position = end;
    }
    (!bytes.is_empty()).then_some(bytes)
}

fn read_everything(segment: &Segment<PlainDisk>, all: &[Sample]) {
    for offset in all[0].base..all.last().unwrap().end() {
        let limits = ReadLimits { bytes_max: 700, upper: segment.bytes(), first_whole: true };
        let chunk = run(segment.read(Offset(offset), limits)).unwrap().map(|chunk| chunk.bytes.to_vec());
        assert_eq!(chunk, expected(all, offset, limits), "offset {offset}");
    }
}

fn exact(all: &[Sample], timestamp: i64, from: i64) -> impl FnMut(&[u8]) -> Option<TimestampOffset> {
    move |batch| {
        let base = i64::from_be_bytes(batch[..8].try_into().unwrap());
        all.iter().find(|sample| sample.base == base).unwrap().first_at_least(timestamp, from)
    }
}

#[test]
fn what_was_written_is_read_by_offset_within_limits() {
    let all = plain_samples(50, 30);
    let (_folder, segment) = written(50, &all);
    assert_eq!((segment.bytes() as usize, segment.end()), (concat(&all).len(), Offset(all.last().unwrap().end())));
    let mut boundary = 0;
    for upper in all.iter().map(|sample| {
        boundary += sample.bytes().len() as u64;
        boundary
    }) {
        for bytes_max in [0, 100, 400, 5000] {
            for first_whole in [true, false] {
                let limits = ReadLimits { bytes_max, upper, first_whole };
                for offset in 50..segment.end().0 + 2 {
                    let chunk = run(segment.read(Offset(offset), limits)).unwrap().map(|chunk| chunk.bytes.to_vec());
                    assert_eq!(chunk, expected(&all, offset, limits), "offset {offset}, {limits:?}");
                }
            }
        }
    }
}

/// FET-10: the first record that is late enough, with its own timestamp.
#[test]
fn the_first_record_of_a_time_is_found() {
    let all = samples(0, &[(vec![2, 4], 10), (vec![6, 8], 10)]);
    let (_folder, segment) = written(0, &all);
    let found = |timestamp: i64| {
        let found =
            run(segment.find_by_time(timestamp, Offset(0), segment.bytes(), exact(&all, timestamp, 0))).unwrap();
        found.map_or((-1, -1), |found| (found.offset.0, found.timestamp))
    };
    let asked = [1, 2, 3, 5, 8, 9].map(found);
    assert_eq!(asked, [(0, 2), (0, 2), (1, 4), (2, 6), (3, 8), (-1, -1)]);
}

/// FET-11: the newest timestamp inside a batch; nothing in an empty segment.
#[test]
fn the_newest_record_is_found_inside_its_batch() {
    let all = samples(0, &[(vec![5], 10), (vec![10, 30, 20], 10), (vec![30, 7], 10)]);
    let (_folder, segment) = written(0, &all);
    let found = run(segment.find_newest(segment.bytes(), exact(&all, 30, 0))).unwrap();
    assert_eq!(found, Some(TimestampOffset { timestamp: 30, offset: Offset(2) }));
    let folder = Folder::new();
    assert_eq!(run(create(&folder, 7).find_newest(0, |_| panic!("nothing to look into"))).unwrap(), None);
}

/// LOG-04: derived files cost time only, whatever became of them.
#[test]
fn derived_files_may_be_lost_short_or_wrong() {
    let all = plain_samples(0, 40);
    let (folder, segment) = written(0, &all);
    run(segment.seal(SEALING)).unwrap();
    let (bytes, end) = (segment.bytes(), segment.end().0);
    let files = [Kind::Index, Kind::TimeIndex, Kind::Seal].map(|kind| segment.path(kind));
    let whole = files.clone().map(|path| fs::read(path).unwrap());
    for (path, content) in files.iter().zip(&whole) {
        let zeros = vec![0; content.len()];
        let ascending: Vec<u8> = (1..=content.len() as u8).collect();
        for damage in [None, Some(&[][..]), Some(&content[..8]), Some(&content[..7]), Some(&zeros), Some(&ascending)] {
            match damage {
                Some(damage) => fs::write(path, damage).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            let again = existing(folder.path(), 0, bytes, end);
            read_everything(&again, &all);
            assert_eq!(again.newest_timestamp(), None.or(segment.newest_timestamp()), "{}", path.display());
            run(again.seal(SEALING)).unwrap();
            for (path, content) in files.iter().zip(&whole) {
                assert!(&fs::read(path).unwrap() == content, "{} is as it was", path.display());
            }
        }
    }
}

/// A time index that ascends and lies: only the seal can tell.
#[test]
fn a_seal_tells_a_bent_index_from_a_good_one() {
    let all = plain_samples(0, 40);
    let (folder, segment) = written(0, &all);
    run(segment.seal(SEALING)).unwrap();
    let path = segment.path(Kind::TimeIndex);
    let mut bent = fs::read(&path).unwrap();
    for entry in bent.chunks_exact_mut(12) {
        let timestamp = i64::from_be_bytes(entry[..8].try_into().unwrap()) - 10;
        entry[..8].copy_from_slice(&timestamp.to_be_bytes());
    }
    fs::write(&path, bent).unwrap();
    let again = existing(folder.path(), 0, segment.bytes(), segment.end().0);
    for time in 1000..1040 {
        let found = run(again.find_by_time(time, Offset(0), again.bytes(), exact(&all, time, 0))).unwrap();
        assert_eq!(found.map(|found| found.timestamp), Some(time));
    }
}

#[test]
fn a_seal_knows_the_segment_and_its_checksum() {
    let all = plain_samples(0, 20);
    let (folder, segment) = written(0, &all);
    run(segment.seal(SEALING)).unwrap();
    let seal = run(segment.read_seal()).unwrap();
    assert_eq!(seal.crcs.log, corelane::log::crc::crc32c(&concat(&all)));
    assert_eq!((seal.end, seal.first_timestamp), (segment.end(), Some(1000)));
    let shorter = existing(folder.path(), 0, segment.bytes() - 1, segment.end().0);
    assert_eq!(run(shorter.read_seal()), None, "a seal of another size is not used");
}

/// A clean stop leaves an open seal; the segment goes on, and its checksum too.
#[test]
fn a_segment_goes_on_after_a_clean_stop() {
    let all = plain_samples(0, 40);
    let (folder, segment) = written(0, &all[..15]);
    run(segment.seal(Sealing { open: true, ..SEALING })).unwrap();
    let again = existing(folder.path(), 0, segment.bytes(), segment.end().0);
    run(again.load_indexes()).unwrap();
    append(&again, &all[15..]);
    run(again.seal(SEALING)).unwrap();
    assert_eq!(run(again.read_seal()).unwrap().crcs.log, corelane::log::crc::crc32c(&concat(&all)));
    read_everything(&again, &all);
}

/// LOG-01, LOG-02: recovery keeps whole batches from the recovery point on and cuts what is behind them.
#[test]
fn recovery_keeps_whole_batches_at_every_cut() {
    let all = plain_samples(0, 12);
    let kept = 6;
    for cut in (concat(&all[..kept]).len()..=concat(&all).len()).step_by(7) {
        for tail in
            [&[][..], &[0; 100], b"garbage that is no batch, and long enough to be read as a header of one....."]
        {
            let (folder, segment) = written(0, &all[..kept]);
            run(segment.flush_indexes()).unwrap();
            append(&segment, &all[kept..]);
            run(segment.flush_indexes()).unwrap();
            let path = segment.path(Kind::Log);
            let mut file = fs::read(&path).unwrap();
            file.truncate(cut);
            file.extend_from_slice(tail);
            fs::write(&path, &file).unwrap();
            let point = concat(&all[..kept]).len() as u64;
            let again = existing(folder.path(), 0, file.len() as u64, i64::MAX);
            let mut seen = 0;
            let end = run(again.recover(point, Offset(all[kept].base), Gaps::Refused, |_, _| seen += 1)).unwrap();
            let whole = (0..=all.len()).rev().find(|count| concat(&all[..*count]).len() <= cut).unwrap();
            assert_eq!((seen, end.position), (whole - kept, concat(&all[..whole]).len() as u64), "cut at byte {cut}");
            assert_eq!(fs::metadata(&path).unwrap().len(), end.position, "the file is cut there");
            assert!(tail != [0; 100] || cut as u64 > end.position || end.stop == Some(Stop::Zeros));
            append(&again, &all[whole..]);
            read_everything(&again, &all);
            assert_eq!(again.newest_timestamp(), segment.newest_timestamp());
            run(again.flush_indexes()).unwrap();
            let fresh = existing(folder.path(), 0, again.bytes(), again.end().0);
            run(fresh.load_indexes()).unwrap();
            read_everything(&fresh, &all);
        }
    }
}

/// LOG-06: an empty file named by the next offset is an empty segment.
#[test]
fn an_empty_file_is_an_empty_segment() {
    let folder = Folder::new();
    drop(create(&folder, 100));
    let again = existing(folder.path(), 100, 0, 100);
    let end = run(again.recover(0, Offset(100), Gaps::Allowed, |_, _| ())).unwrap();
    assert_eq!((end.position, end.next_offset, end.stop), (0, Offset(100), None));
    append(&again, &plain_samples(100, 3));
    read_everything(&again, &plain_samples(100, 3));
}

#[test]
fn a_new_segment_does_not_overwrite_another() {
    let (folder, _segment) = written(0, &plain_samples(0, 2));
    let again = Segment::create(PlainDisk::default(), folder.shared(), Offset(0), RULES, 0);
    assert_eq!(again.err().map(|error| error.kind()), Some(std::io::ErrorKind::AlreadyExists));
}

#[test]
fn a_short_write_is_an_error_and_the_same_write_may_be_tried_again() {
    let folder = Folder::new();
    let disk = PlainDisk::default();
    let segment = Segment::create(disk.clone(), folder.shared(), Offset(0), RULES, 0).unwrap();
    let all = plain_samples(0, 2);
    append(&segment, &all[..1]);
    let (bytes, position) = (all[1].bytes(), segment.bytes());
    segment.note_batch(&all[1].facts(position));
    disk.cut_next_write.set(Some(13));
    let refused = segment.write_now(position, &[&bytes]).unwrap_err();
    assert!(refused.to_string().contains("only 13 of"), "{refused}");
    segment.write_now(position, &[&bytes]).unwrap();
    read_everything(&segment, &all);
    run(segment.seal(SEALING)).unwrap();
    assert_eq!(run(segment.read_seal()).unwrap().crcs.log, corelane::log::crc::crc32c(&concat(&all)));
}

#[test]
fn rolling_follows_size_first_timestamp_and_offsets() {
    let rules = RollRules { segment_bytes: 1000, segment_ms: 100, jitter_ms: 10 };
    let (_folder, segment) = written(0, &samples(0, &[(vec![5000, 5050], 100)]));
    let fits = Incoming { bytes: 1000 - segment.bytes(), last_offset: Offset(9), max_timestamp: 5140 };
    assert!(!segment.should_roll(&rules, &fits, i64::MAX));
    assert!(segment.should_roll(&rules, &Incoming { bytes: fits.bytes + 1, ..fits }, 0), "too large");
    assert!(segment.should_roll(&rules, &Incoming { max_timestamp: 5141, ..fits }, 0), "first batch's largest + 90 ms");
    let far = Incoming { last_offset: Offset(1 << 31), ..fits };
    assert!(segment.should_roll(&rules, &far, 0), "31 bits of relative offset");
    let folder = Folder::new();
    let empty = create(&folder, 0);
    assert!(!empty.should_roll(&rules, &Incoming { bytes: 5000, ..fits }, i64::MAX), "an empty one takes anything");
    let (_folder, untimed) = written(0, &samples(0, &[(vec![-1], 10)]));
    assert!(!untimed.should_roll(&rules, &Incoming { max_timestamp: -1, ..fits }, 90));
    assert!(untimed.should_roll(&rules, &Incoming { max_timestamp: -1, ..fits }, 91), "without timestamps: its age");
}

#[test]
fn a_segment_of_kafka_is_read_with_its_own_indexes() {
    for (name, records) in [("kafka-plain", 150), ("kafka-gzip", 170)] {
        let bytes = fs::metadata(fixture_path(&format!("{name}/00000000000000000000.log"))).unwrap().len();
        let segment = existing(&fixture_path(name), 0, bytes, records);
        for offset in 0..records {
            let batch = run(segment.locate(Offset(offset), bytes)).unwrap().unwrap();
            assert!(batch.base_offset.0 <= offset && offset <= batch.last_offset.0, "{name}: offset {offset}");
        }
        assert_eq!(run(segment.locate(Offset(records), bytes)).unwrap(), None, "{name}");
        assert_eq!(segment.newest_timestamp().map(|newest| newest.offset), Some(Offset(records - 1)), "{name}");
    }
}

#[test]
fn deleted_files_wait_for_their_removal_and_readers_go_on() {
    let all = plain_samples(0, 5);
    let (folder, segment) = written(0, &all);
    run(segment.seal(SEALING)).unwrap();
    let names = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    segment.mark_deleted().unwrap();
    assert!(names().len() == 4 && names().iter().all(|name| name.ends_with(".deleted")), "{:?}", names());
    read_everything(&segment, &all);
    run(remove_deleted(&PlainDisk::default(), folder.path(), segment.base())).unwrap();
    assert_eq!(names().len(), 0);
}

#[test]
fn handles_and_indexes_come_back_by_themselves() {
    let all = plain_samples(0, 20);
    let (_folder, segment) = written(0, &all);
    run(segment.seal(SEALING)).unwrap();
    segment.close_handles();
    assert!(segment.has_handles(), "what was written is not flushed");
    run(segment.sync()).unwrap();
    segment.close_handles();
    assert!(!segment.has_handles());
    read_everything(&segment, &all);
    assert!(segment.has_handles());
    assert!(!segment.close_if_idle(), "it was used since");
    assert!(segment.close_if_idle() && !segment.has_handles(), "it was not");
    read_everything(&segment, &all);
}

/// Readers that go on where they stopped, while the segment grows and is cut.
#[test]
fn sequential_readers_see_every_batch_once() {
    let all = plain_samples(0, 60);
    let (_folder, segment) = written(0, &all[..30]);
    let read_from = |mut next: Offset, bytes_max: usize| {
        let mut seen = Vec::new();
        let limits = ReadLimits { bytes_max, upper: segment.bytes(), first_whole: true };
        while let Some(chunk) = run(segment.read(next, limits)).unwrap() {
            assert_eq!(chunk.base_offset, next);
            seen.extend_from_slice(&chunk.bytes);
            next = chunk.next_offset;
        }
        (next, seen)
    };
    for bytes_max in [1, 150, 1000, 1 << 20] {
        assert_eq!(read_from(Offset(0), bytes_max), (segment.end(), concat(&all[..30])), "{bytes_max}");
    }
    run(segment.truncate(concat(&all[..20]).len() as u64, Offset(all[20].base))).unwrap();
    append(&segment, &samples(all[20].base, &[(vec![9; 4], 1)]));
    append(&segment, &samples(all[20].base + 4, &vec![(vec![9], 70); 40]));
    for bytes_max in [1, 150, 1000, 1 << 20] {
        assert_eq!(read_from(Offset(0), bytes_max).1.len() as u64, segment.bytes(), "{bytes_max}");
    }
}

fn shapes() -> impl Strategy<Value = Vec<(Vec<i64>, usize)>> {
    prop::collection::vec((prop::collection::vec(0_i64..50, 1..4), 0_usize..200), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// By time, with timestamps in any order: the same record as looking at all of them.
    #[test]
    fn times_are_found_as_by_looking_at_all_records(shapes in shapes(), time in 0_i64..55, from in 0_i64..40) {
        let all = samples(0, &shapes);
        let (_folder, segment) = written(0, &all);
        let found = run(segment.find_by_time(time, Offset(from), segment.bytes(), exact(&all, time, from))).unwrap();
        prop_assert_eq!(found, all.iter().find_map(|sample| sample.first_at_least(time, from)));
        let newest = shapes.iter().flat_map(|(times, _)| times).max().copied().unwrap();
        let found = run(segment.find_newest(segment.bytes(), exact(&all, newest, 0))).unwrap();
        prop_assert_eq!(found, all.iter().find_map(|sample| sample.first_at_least(newest, 0)));
    }

    /// Any part of the index files may have reached the disk before a power cut.
    #[test]
    fn a_crash_of_the_index_files_changes_no_answer(shapes in shapes(), index in 0_u64..200, timeindex in 0_u64..300) {
        let all = samples(0, &shapes);
        let (folder, segment) = written(0, &all);
        run(segment.flush_indexes()).unwrap();
        for (kind, bytes) in [(Kind::Index, index), (Kind::TimeIndex, timeindex)] {
            let file = fs::OpenOptions::new().write(true).open(segment.path(kind)).unwrap();
            if bytes < file.metadata().unwrap().len() {
                file.set_len(bytes).unwrap();
            }
        }
        let again = existing(folder.path(), 0, segment.bytes(), segment.end().0);
        run(again.load_indexes()).unwrap();
        prop_assert_eq!(again.newest_timestamp(), segment.newest_timestamp());
        read_everything(&again, &all);
    }
}
