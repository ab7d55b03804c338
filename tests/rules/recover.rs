//! Recovery of one partition against the list of its batches: every cut, every way in which files are lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use corelane::ids::Offset;
use corelane::log::losses::Losses;
use corelane::log::names::{self, Kind};
use corelane::log::segment_read::ReadLimits;
use corelane::wire::batch;
use proptest::prelude::*;

use crate::memory_disk::{MemoryDisk, WriteFault};
use crate::partition_life::{Back, FOLDER, LOG_FILE, Life, Made, Places, append, batches, log_image, segments};
use crate::plain_disk::run;

/// What happened to the bytes behind the recovery point, at a byte of them.
#[derive(Clone, Copy, Debug)]
enum Tear {
    None,
    /// The file ends there; later files are as they were.
    Cut,
    /// Zeros from there to the end of the file.
    Zeros,
    /// One byte is another.
    Flip,
    /// The file of that byte is not there, nor are later ones.
    FilesGone,
    /// The file of that byte is not there, later ones are.
    FileGone,
    /// Bytes that are nothing, behind everything.
    Behind,
}

#[derive(Clone, Debug)]
struct Case {
    batches: Vec<Made>,
    places: Places,
    tear: Tear,
    /// Where, in thousandths of the bytes behind the recovery point.
    at: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let shapes = prop::collection::vec((1_usize..4, 0_usize..120), 1..16);
    let shares = (0_usize..=100, 0_usize..=100, 0_usize..=100, 0_usize..=100);
    let tears = [Tear::None, Tear::Cut, Tear::Zeros, Tear::Flip, Tear::FilesGone, Tear::FileGone, Tear::Behind];
    let tear = (prop::sample::select(tears.to_vec()), 0_usize..1000);
    let start = prop::option::weighted(0.3, 0_usize..=100);
    (shapes, prop::bool::weighted(0.75), shares, start, 200_u64..900, 1_usize..4, tear).prop_map(
        |(shapes, has_checkpoint, shares, start, segment_bytes, group, (tear, at))| {
            let batches = batches(&shapes);
            let count = batches.len();
            let point = if has_checkpoint { shares.0 * count / 100 } else { 0 };
            let behind = |share: usize| point + share * (count - point) / 100;
            let logged_to = behind(shares.1).max(usize::from(!has_checkpoint));
            // A torn file wholly below the log start ends nothing, so that more may come back than is counted here.
            let start_max = if matches!(tear, Tear::None) { logged_to } else { point };
            let start_max = start_max.checked_sub(1).map_or(0, |last| batches[last].end);
            let places = Places {
                segment_bytes,
                checkpoint: has_checkpoint.then_some(point),
                written: behind(shares.2),
                logged: shares.3 * point.min(logged_to) / 100..logged_to,
                log_start: start.map(|share| share as i64 * start_max / 100),
                group,
            };
            Case { batches, places, tear, at }
        },
    )
}

impl Case {
    fn point(&self) -> usize {
        self.places.checkpoint.unwrap_or(0)
    }

    /// Spoils the disk; returns how many batches of the segments are whole before the first spoilt byte.
    fn tear(&self, life: &Life) -> usize {
        let files = segments(&life.disk);
        let Some((last, _)) = files.last() else { return self.places.written };
        let path_of = |base: i64| names::path(Path::new(FOLDER), Offset(base), Kind::Log);
        if matches!(self.tear, Tear::Behind) {
            life.disk.change(&path_of(*last), |bytes| bytes.extend_from_slice(&[0xa5; 70]));
            return self.places.written;
        }
        let behind = &self.batches[self.point()..self.places.written];
        let bytes: usize = behind.iter().map(|batch| batch.bytes.len()).sum();
        let mut at = self.at * bytes / 1000;
        let Some(whole) = behind.iter().position(|batch| {
            let is_here = at < batch.bytes.len();
            at -= if is_here { 0 } else { batch.bytes.len() };
            is_here
        }) else {
            return self.places.written;
        };
        let file = files.iter().rposition(|file| file.0 <= behind[whole].base).unwrap();
        let base = files[file].0;
        if matches!(self.tear, Tear::Flip) && (0..8).contains(&at) || (12..16).contains(&at) {
            // No checksum covers base offset and leader epoch; without a checkpoint a jump in offsets may be meant.
            at += 20;
        }
        if matches!(self.tear, Tear::Zeros) && behind[whole].bytes[at..].iter().all(|byte| *byte == 0) {
            at = 17;
        }
        let before: usize = self
            .batches
            .iter()
            .filter(|batch| (base..behind[whole].base).contains(&batch.base))
            .map(|b| b.bytes.len())
            .sum();
        let position = before + at;
        let is_promised = life.entry.is_some_and(|entry| entry.segment_base.0 == base && entry.position > 0);
        let first_of_file = self.batches.iter().position(|batch| batch.base == base).unwrap();
        match self.tear {
            Tear::Cut => life.disk.change(&path_of(base), |bytes| bytes.truncate(position)),
            Tear::Zeros => life.disk.change(&path_of(base), |bytes| bytes[position..].fill(0)),
            Tear::Flip => life.disk.change(&path_of(base), |bytes| bytes[position] ^= 0x10),
            Tear::FilesGone if !is_promised => files[file..].iter().for_each(|file| life.disk.remove(&path_of(file.0))),
            Tear::FileGone if !is_promised => life.disk.remove(&path_of(base)),
            _ => return self.places.written,
        }
        match self.tear {
            Tear::FilesGone | Tear::FileGone => first_of_file,
            _ => self.point() + whole,
        }
    }

    /// Batches that must be there, given how many were whole in the segments, and where the log must end.
    fn expected(&self, whole: usize) -> (Vec<&Made>, usize, i64) {
        let end = whole.max(self.places.logged.end);
        let end_offset = end.checked_sub(1).map_or(0, |last| self.batches[last].end);
        (self.batches[..end].iter().collect(), end, end_offset.max(self.places.log_start.unwrap_or(0)))
    }

    fn check(&self, life: &Life, back: &Back, whole: usize) {
        let (batches, end, end_offset) = self.expected(whole);
        let recovered = &back.recovered;
        assert!(back.lost().is_empty(), "{:?}", back.notes);
        assert_eq!((recovered.log.start().0, recovered.log.end().0), (self.places.log_start.unwrap_or(0), end_offset));
        assert_eq!(back.heard, life.told(self.point(), end));
        check_content(&life.disk, &batches, recovered.log.start().0);
        for batch in batches.iter().filter(|batch| batch.end > recovered.log.start().0) {
            assert_eq!(read(back, batch.base, 1).as_deref(), Some(&batch.bytes[..]), "offset {}", batch.base);
        }
    }
}

/// The segments hold the batches in order, of which only those below `start` may be missing, and nothing else.
fn check_content(disk: &MemoryDisk, batches: &[&Made], start: i64) {
    let mut found = &content(disk)[..];
    for batch in batches {
        match found.strip_prefix(&batch.bytes[..]) {
            Some(behind) => found = behind,
            None => assert!(batch.end <= start, "the batch at {} is missing", batch.base),
        }
    }
    assert!(found.is_empty(), "{} bytes do not belong there", found.len());
}

/// Reads like a fetch: `None` at the end.
fn read(back: &Back, offset: i64, bytes_max: usize) -> Option<Bytes> {
    back.recovered.log.readable_from(Offset(offset)).find_map(|readable| {
        let limits = ReadLimits { bytes_max, upper: readable.upper, first_whole: true };
        run(readable.segment.read(Offset(offset), limits)).unwrap().map(|chunk| chunk.bytes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_was_promised_is_there_and_a_second_start_changes_nothing(case in case()) {
        let life = Life::new(case.batches.clone(), case.places.clone());
        let whole = case.tear(&life);
        let back = life.recover(&life.disk).unwrap();
        case.check(&life, &back, whole);
        let once = segments(&life.disk);
        let (_, end, _) = case.expected(whole);
        let again = life.recover(&life.disk).unwrap();
        case.check(&life, &again, end);
        prop_assert!(case.places.log_start.is_some() || segments(&life.disk) == once);
        prop_assert!(again.notes.is_empty(), "{:?}", again.notes);
    }

    /// The power goes again at each step of recovery: what comes of the next start is the same.
    #[test]
    fn a_start_that_is_cut_short_is_repeated(case in case(), taken in 0_usize..300) {
        let life = Life::new(case.batches.clone(), case.places.clone());
        let whole = case.tear(&life);
        let torn = life.disk.copy();
        for step in 0.. {
            let disk = torn.copy();
            disk.fail_write(step, WriteFault::Dead(taken));
            let has_ended = life.recover(&disk).is_ok();
            let disk = disk.copy();
            let back = life.recover(&disk).unwrap();
            let cut = Life { disk, batches: case.batches.clone(), places: case.places.clone(), known_losses: Losses::default(), ..life };
            case.check(&cut, &back, whole);
            if has_ended {
                break;
            }
        }
    }
}

/// Ten batches of two records, four to a segment; a checkpoint below the sixth.
fn ten(places: Places) -> Life {
    Life::new(batches(&[(2, 40); 10]), places)
}

fn places(checkpoint: Option<usize>, written: usize, logged: std::ops::Range<usize>) -> Places {
    Places {
        segment_bytes: 4 * batches(&[(2, 40)])[0].bytes.len() as u64,
        checkpoint,
        written,
        logged,
        log_start: None,
        group: 1,
    }
}

fn log_path(base: i64) -> PathBuf {
    names::path(Path::new(FOLDER), Offset(base), Kind::Log)
}

fn bytes_of(batches: &[Made]) -> Vec<u8> {
    batches.iter().flat_map(|batch| batch.bytes.to_vec()).collect()
}

fn content(disk: &MemoryDisk) -> Vec<u8> {
    segments(disk).into_iter().flat_map(|file| file.1).collect()
}

#[test]
fn every_cut_of_the_segments_is_filled_up_from_the_commit_log() {
    let life = ten(places(Some(5), 10, 4..10));
    let bytes = life.batches[0].bytes.len();
    assert_eq!(segments(&life.disk).iter().map(|file| file.0).collect::<Vec<_>>(), [0, 8, 16]);
    for (base, from, to) in [(8, bytes, 4 * bytes), (16, 0, 2 * bytes)] {
        for cut in from..to {
            let disk = life.disk.copy();
            disk.change(&log_path(base), |bytes| bytes.truncate(cut));
            let back = life.recover(&disk).unwrap();
            assert_eq!((back.recovered.log.end(), back.lost().len()), (Offset(20), 0), "cut at {cut}");
            assert_eq!(content(&disk), bytes_of(&life.batches), "cut at {cut}");
        }
    }
}

/// The recovery point stands at the end of a full segment, and in an empty one.
#[test]
fn a_segment_that_begins_at_the_recovery_point_is_walked() {
    for written in 8..=10 {
        let life = ten(places(Some(8), written, 8..10));
        let back = life.recover(&life.disk).unwrap();
        assert_eq!(back.heard, life.told(8, 10));
        assert_eq!(content(&life.disk), bytes_of(&life.batches));
    }
    let mut life = ten(places(Some(8), 8, 8..10));
    life.disk.put(&log_path(16), Vec::new());
    let entry = life.entry.unwrap();
    life.entry = Some(corelane::log::checkpoint::PartitionEntry { segment_base: Offset(16), position: 0, ..entry });
    life.recover(&life.disk).unwrap();
    assert_eq!(segments(&life.disk)[2], (16, bytes_of(&life.batches[8..])));
}

#[test]
fn nothing_is_read_or_heard_where_everything_is_as_the_checkpoint_says() {
    let life = ten(places(Some(10), 10, 3..9));
    let before = life.disk.writes();
    let back = life.recover(&life.disk).unwrap();
    assert_eq!((back.heard.len(), back.recovered.log.end()), (0, Offset(20)));
    assert_eq!(life.disk.writes(), before);
    assert_eq!(read(&back, 19, 1).as_deref(), Some(&life.batches[9].bytes[..]));
}

/// Another batch at an offset than the one that was acknowledged (storage rule S9).
#[test]
fn an_unequal_batch_gives_way_and_is_kept_aside() {
    let life = ten(places(Some(5), 10, 4..8));
    let other = |at: usize| {
        let mut bytes = life.batches[at].bytes.to_vec();
        let last = bytes.len() - 3;
        bytes[last] ^= 1;
        batch::set_crc(&mut bytes);
        bytes
    };
    let size = life.batches[0].bytes.len();
    for (at, base, position) in [(5, 8, size), (7, 8, 3 * size)] {
        let disk = life.disk.copy();
        disk.change(&log_path(base), |bytes| bytes[position..position + size].copy_from_slice(&other(at)));
        let back = life.recover(&disk).unwrap();
        assert_eq!(content(&disk), bytes_of(&life.batches[..8]), "what was never acknowledged went with it");
        assert_eq!(back.heard, life.told(5, 8));
        assert!(back.notes[0].contains(&format!("the batch at offset {} is not the one", 2 * at)), "{:?}", back.notes);
        let kept: Vec<_> = disk.paths().into_iter().filter(|path| path.to_string_lossy().contains("unequal")).collect();
        assert_eq!(kept.len(), 2, "both segments from there on: {kept:?}");
        assert!(disk.content(&kept[0]).starts_with(&other(at)));
    }
    let unlogged = life.disk.copy();
    unlogged.change(&log_path(16), |bytes| bytes[..size].copy_from_slice(&other(8)));
    assert!(life.recover(&unlogged).unwrap().notes.is_empty(), "nobody was told of that one");
}

/// Damage in the commit log where the segments lack something too (storage rules S3, S7).
#[test]
fn what_is_nowhere_is_a_gap_that_is_told() {
    let life = ten(places(Some(5), 6, 5..10));
    let group = |at: usize| 8192 + at * 4096;
    let flip = |at: usize| {
        let disk = life.disk.copy();
        disk.change(Path::new(LOG_FILE), |bytes| bytes[group(at) + 100] ^= 1);
        disk
    };
    let whole = flip(0);
    let back = life.recover(&whole).unwrap();
    assert!(back.lost().is_empty(), "the segment has what the log has lost: {:?}", back.notes);
    assert_eq!(content(&whole), bytes_of(&life.batches));

    let disk = flip(2);
    let back = life.recover(&disk).unwrap();
    assert!(!back.lost().is_empty() && back.notes[0].contains("offsets 14 to 15 are neither"), "{:?}", back.notes);
    assert_eq!(back.recovered.log.end(), Offset(20));
    assert_eq!(read(&back, 14, 1), read(&back, 16, 1), "a reader goes on behind the gap");
    let again = life.recover(&disk).unwrap();
    assert_eq!(again.recovered.log.end(), Offset(20));
    assert_eq!(content(&disk), [bytes_of(&life.batches[..7]), bytes_of(&life.batches[8..])].concat());
}

#[test]
fn lost_files_below_the_recovery_point_are_told_and_their_offsets_not_used_again() {
    let life = ten(places(Some(10), 10, 10..10));
    for (lost, start, gap) in [(vec![0], 8, (0, 8)), (vec![16], 0, (16, 20)), (vec![0, 8, 16], 20, (0, 20))] {
        let disk = life.disk.copy();
        lost.iter().for_each(|base| disk.remove(&log_path(*base)));
        let mut back = life.recover(&disk).unwrap();
        assert_eq!(back.lost(), [gap], "{:?}", back.notes);
        assert_eq!((back.recovered.log.start().0, back.recovered.log.end().0), (start, 20));
        let next = Made::new(20, 2, 40);
        append(&mut back.recovered.log, &next);
        assert_eq!(read(&back, 20, 1), Some(next.bytes));
    }
}

/// Nobody reads segments below the recovery point at a start; what their names and seals say is enough to miss them.
#[test]
fn what_is_gone_in_the_middle_is_told_once_and_for_all() {
    let size = ten(places(Some(10), 10, 10..10)).batches[0].bytes.len();
    let damages = [
        ("removed", (8, 16), None),
        ("emptied", (8, 16), Some(0)),
        ("cut between batches", (12, 16), Some(2 * size)),
        ("cut within a batch", (10, 16), Some(2 * size - 1)),
    ];
    for (what, (from, to), kept) in damages {
        let mut life = ten(places(Some(10), 10, 10..10));
        match kept {
            Some(kept) => life.disk.change(&log_path(8), |content| content.truncate(kept)),
            None => life.disk.remove(&log_path(8)),
        }
        for _ in 0..2 {
            let back = life.recover(&life.disk.copy()).unwrap();
            assert_eq!(back.lost(), [(from, to)], "{what}: {:?}", back.notes);
            assert_eq!(read(&back, from, 1).as_deref(), Some(&life.batches[8].bytes[..]), "{what}: behind the gap");
            assert_eq!(back.recovered.log.end(), Offset(20));
        }
        life.recover(&life.disk).unwrap();
        assert!(life.known_losses.add(Offset(from), Offset(to)));
        for _ in 0..3 {
            let back = life.recover(&life.disk).unwrap();
            assert!(back.recovered.losses == life.known_losses, "{what} again: {:?}", back.notes);
            assert!(back.notes.is_empty(), "{what} again: {:?}", back.notes);
        }
    }
}

/// Bytes behind what was sealed are nobody's.
#[test]
fn a_closed_segment_that_has_grown_is_read_as_far_as_it_was_sealed() {
    let life = ten(places(Some(10), 10, 10..10));
    life.disk.change(&log_path(8), |content| content.extend_from_slice(&[0xa5; 200]));
    let back = life.recover(&life.disk).unwrap();
    assert!(back.lost().is_empty() && back.notes[0].contains("200 bytes behind its end"), "{:?}", back.notes);
    assert_eq!(read(&back, 14, 1).as_deref(), Some(&life.batches[7].bytes[..]));
    assert_eq!(read(&back, 16, 1).as_deref(), Some(&life.batches[8].bytes[..]));
}

/// A seal does not outlive what it says: after the walk the segments behind the recovery point have none.
#[test]
fn seals_behind_the_recovery_point_go_with_the_walk() {
    let sealed =
        |life: &Life, base| life.disk.paths().contains(&names::path(Path::new(FOLDER), Offset(base), Kind::Seal));
    let mut life = ten(places(Some(10), 10, 8..10));
    assert!(sealed(&life, 0) && sealed(&life, 8));
    life.entry = ten(places(Some(5), 10, 8..10)).entry;
    life.disk.change(&log_path(8), |content| content.truncate(content.len() - 5));
    let back = life.recover(&life.disk).unwrap();
    assert_eq!(back.lost(), [(14, 16)], "{:?}", back.notes);
    assert!(sealed(&life, 0) && !sealed(&life, 8));
}

/// The file with the recovery point is lost, the one behind it is not: of the lost one comes back what the commit log has.
#[test]
fn a_lost_file_costs_nothing_behind_it() {
    let mut life = ten(places(Some(7), 9, 6..10));
    life.disk.remove(&log_path(8));
    for _ in 0..3 {
        let back = life.recover(&life.disk).unwrap();
        assert_eq!(back.lost(), [(8, 12)], "{:?}", back.notes);
        assert_eq!(back.recovered.log.end(), Offset(20));
        assert_eq!(content(&life.disk), [bytes_of(&life.batches[..4]), bytes_of(&life.batches[6..])].concat());
        // What a start has found is on disk before it goes on.
        life.known_losses = back.recovered.losses;
    }
}

/// A start that is cut short after it has mended what it could: the next one does not do it twice.
#[test]
fn a_hole_below_the_recovery_point_is_mended_once() {
    for (kept, logged) in [(1, 6..10), (2, 7..10), (0, 5..10), (1, 5..7), (0, 10..10)] {
        let mut life = ten(places(Some(7), 9, logged.clone()));
        let size = life.batches[0].bytes.len();
        life.disk.change(&log_path(8), |bytes| bytes.truncate(kept * size + 7));
        let first = life.recover(&life.disk).unwrap();
        let expected = content(&life.disk);
        let holds = |at: usize| at < 4 + kept || logged.contains(&at);
        let left: Vec<Made> = (0..10).filter(|at| holds(*at)).map(|at| life.batches[at].clone()).collect();
        assert_eq!(expected, bytes_of(&left), "{kept} kept, {logged:?} in the log: {:?}", first.notes);
        life.known_losses = first.recovered.losses;
        for _ in 0..2 {
            let again = life.recover(&life.disk).unwrap();
            assert_eq!(content(&life.disk), expected, "{kept} kept, {logged:?} in the log: {:?}", again.notes);
            assert!(again.recovered.losses == life.known_losses);
        }
    }
}

/// No checksum covers the base offset of a batch.
#[test]
fn a_base_offset_that_jumps_is_not_believed() {
    let life = ten(places(Some(5), 10, 5..6));
    let eighth = 2 * life.batches[0].bytes.len();
    life.disk.change(&log_path(8), |bytes| bytes[eighth + 3] = 1);
    let back = life.recover(&life.disk).unwrap();
    assert_eq!(back.recovered.log.end(), Offset(12));
    assert!(back.notes[0].contains("behind a gap in the offsets"), "{:?}", back.notes);
}

/// A file that is shorter than what was flushed: the commit log may still have the rest.
#[test]
fn a_short_file_is_filled_up_where_the_commit_log_can() {
    for (logged, has_lost, written) in [(4..10, false, 7), (4..10, false, 9), (6..10, true, 7), (7..7, true, 7)] {
        let life = ten(places(Some(7), written, logged.clone()));
        life.disk.change(&log_path(8), |bytes| bytes.truncate(bytes.len() / 3 + 2));
        let back = life.recover(&life.disk).unwrap();
        assert_eq!(!back.lost().is_empty(), has_lost, "{:?}", back.notes);
        assert_eq!(back.recovered.log.end().0, if logged.is_empty() { 14 } else { 20 });
        assert_eq!(back.heard, life.told(7, if logged.is_empty() { 7 } else { 10 }), "others are in the checkpoint");
        assert!(has_lost || content(&life.disk) == bytes_of(&life.batches));
    }
}

/// With no checkpoint left nothing that is whole may be removed, even behind a bad place.
#[test]
fn without_a_checkpoint_a_bad_place_costs_only_itself() {
    let mut life = ten(places(Some(7), 10, 8..10));
    life.entry = None;
    life.disk.change(&log_path(0), |bytes| bytes[life.batches[0].bytes.len() + 30] ^= 1);
    let back = life.recover(&life.disk).unwrap();
    assert!(!back.lost().is_empty());
    assert_eq!(content(&life.disk), [bytes_of(&life.batches[..1]), bytes_of(&life.batches[4..])].concat());
    assert_eq!(read(&back, 8, 1).as_deref(), Some(&life.batches[4].bytes[..]));
}

/// The name of the first file was not durable when the power went, that of the second was.
#[test]
fn without_a_checkpoint_the_commit_log_brings_the_first_file_back() {
    let life = ten(places(None, 10, 0..9));
    life.disk.remove(&log_path(0));
    let back = life.recover(&life.disk).unwrap();
    assert!(back.lost().is_empty(), "{:?}", back.notes);
    assert_eq!((back.recovered.log.start(), back.recovered.log.end()), (Offset(0), Offset(18)));
    assert_eq!(content(&life.disk), bytes_of(&life.batches[..9]));
}

/// All records were deleted, and the segment with them: neither start nor end go back (storage rule S7).
#[test]
fn after_everything_was_deleted_the_log_goes_on_where_it_ended() {
    for written in [5, 7] {
        let life = ten(Places { log_start: Some(20), ..places(Some(5), written, 5..10) });
        let mut back = life.recover(&life.disk).unwrap();
        assert_eq!((back.recovered.log.start(), back.recovered.log.end()), (Offset(20), Offset(20)));
        assert_eq!(back.heard, life.told(5, 10), "producers are remembered all the same");
        append(&mut back.recovered.log, &Made::new(20, 1, 3));
        assert_eq!(back.recovered.log.end(), Offset(21));
    }
}

/// The log start is durable although what was below it is nowhere.
#[test]
fn the_end_is_never_below_the_log_start() {
    let life = ten(Places { log_start: Some(20), ..places(Some(5), 5, 5..7) });
    let mut back = life.recover(&life.disk).unwrap();
    assert_eq!((back.recovered.log.start(), back.recovered.log.end()), (Offset(20), Offset(20)));
    let next = Made::new(20, 2, 40);
    append(&mut back.recovered.log, &next);
    assert_eq!(read(&back, 20, 1), Some(next.bytes));
}

/// Segments below the log start were unlinked after the checkpoint; what was not in the commit log yet is kept.
#[test]
fn segments_that_were_deleted_are_not_missed() {
    for (written, base) in [(10, 16), (10, 8)] {
        let life = ten(Places { log_start: Some(base + 3), ..places(Some(3), written, 2..9) });
        [0, 8].iter().filter(|gone| **gone < base).for_each(|gone| life.disk.remove(&log_path(*gone)));
        for _ in 0..2 {
            let back = life.recover(&life.disk).unwrap();
            assert!(back.lost().is_empty(), "{:?}", back.notes);
            assert_eq!((back.recovered.log.start().0, back.recovered.log.end().0), (base + 3, 20));
            assert_eq!(back.heard, life.told(3, 10));
            assert_eq!(content(&life.disk), bytes_of(&life.batches[base as usize / 2..]));
        }
    }
}

/// Bytes that the commit log calls a batch and that are none stop the start before anything is appended.
#[test]
fn a_commit_log_without_batches_is_refused() {
    let life = ten(places(Some(5), 5, 5..6));
    let mut wrong = life.batches.clone();
    wrong[5].bytes = Bytes::from_static(b"no batch at all");
    life.disk.put(Path::new(LOG_FILE), log_image(&wrong, &life.places));
    let error = life.recover(&life.disk).err().unwrap();
    assert!(error.to_string().contains("holds no batch for offset 10"), "{error}");
}

/// Index files that say nothing true change nothing.
#[test]
fn derived_files_may_be_anything() {
    let life = ten(places(Some(5), 9, 4..10));
    let names: BTreeMap<_, _> =
        Kind::ALL.into_iter().filter(|kind| *kind != Kind::Log).map(|kind| (kind.suffix(), kind)).collect();
    for junk in [vec![], vec![0; 24], vec![0xff; 25], (0..=255).collect()] {
        let disk = life.disk.copy();
        for (kind, base) in names.values().flat_map(|kind| [0, 8, 16].map(|base| (*kind, base))) {
            disk.put(&names::path(Path::new(FOLDER), Offset(base), kind), junk.clone());
        }
        let back = life.recover(&disk).unwrap();
        assert_eq!(content(&disk), bytes_of(&life.batches));
        for batch in &life.batches {
            assert_eq!(read(&back, batch.end - 1, 1).as_deref(), Some(&batch.bytes[..]));
        }
    }
}
