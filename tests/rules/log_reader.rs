//! Reading a log back: exactly the whole groups, and the end of the log is told from damage.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use corelane::ids::{LogId, Offset};
use corelane::log::commit_pace::CommitMode;
use corelane::log::crc::crc32c;
use corelane::log::log_file::{FileHeader, GroupStamp, LogRecord, encode_group};
use corelane::log::log_reader::{Damage, LogFolder, read_logs};

use crate::commit_log::{FOLDER, GENERATION, STORE, batch, read, start};
use crate::memory_disk::MemoryDisk;
use crate::mini_host;

const FIRST_GROUP: usize = 8192;

fn file(number: u32) -> PathBuf {
    Path::new(FOLDER).join(format!("log-{number}"))
}

/// A log with one group per batch of the given sizes.
async fn written(sizes: &[usize]) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let (log, _) = start(&disk, CommitMode::Auto).await;
    for (offset, &bytes) in sizes.iter().enumerate() {
        assert!(log.wait_durable(log.push(batch(1, offset as i64, bytes), false)).await);
    }
    disk.copy()
}

async fn offsets(disk: &MemoryDisk) -> (Vec<i64>, Vec<Damage>) {
    let contents = read(disk, Some(1)).await;
    let batches = contents.batches.get(&LogId(1)).cloned().unwrap_or_default();
    (batches.iter().map(|batch| batch.offset.0).collect(), contents.damages)
}

fn bad(position: usize, first: Option<u64>, next_sequence: u64) -> Damage {
    Damage::BadGroups { path: file(0), position: position as u64, first_sequence: first, next_sequence }
}

#[test]
fn every_cut_of_the_last_group_keeps_the_groups_before_it() {
    mini_host::run(1, async {
        let disk = written(&[100, 100, 9_000]).await;
        let (at, payload_end) = (FIRST_GROUP + 2 * 4096, 64 + 24 + 9_000);
        for cut in (0..200).chain((200..12_288).step_by(97)).chain(payload_end - 1..payload_end + 2) {
            let copy = disk.copy();
            copy.change(&file(0), |bytes| bytes[at + cut..at + 12_288].fill(0xa5));
            let whole = if cut < payload_end { vec![0, 1] } else { vec![0, 1, 2] };
            assert_eq!(offsets(&copy).await, (whole, vec![]), "cut at byte {cut}");
        }
    });
}

#[test]
fn a_flipped_bit_in_an_old_group_is_reported_and_passed_over() {
    mini_host::run(1, async {
        let disk = written(&[100, 500, 100]).await;
        let (at, payload_end) = (FIRST_GROUP + 4096, 64 + 24 + 504);
        for flip in 0..payload_end + 8 {
            let copy = disk.copy();
            copy.change(&file(0), |bytes| bytes[at + flip] ^= 1 << (flip % 8));
            let expected =
                if flip < payload_end { (vec![0, 2], vec![bad(at, Some(2), 3)]) } else { (vec![0, 1, 2], vec![]) };
            assert_eq!(offsets(&copy).await, expected, "bit of byte {flip}");
        }
        let first = disk.copy();
        first.change(&file(0), |bytes| bytes[FIRST_GROUP + 70] ^= 1);
        assert_eq!(offsets(&first).await, (vec![1, 2], vec![bad(FIRST_GROUP, None, 2)]));
        let last = disk.copy();
        last.change(&file(0), |bytes| bytes[at + 4096 + 70] ^= 1);
        assert_eq!(offsets(&last).await, (vec![0, 1], vec![]), "not told from a torn one");
    });
}

/// Values that hold whole groups at every block, with the right file number and sequences but a guessed salt.
#[test]
fn imitated_groups_are_not_taken() {
    mini_host::run(1, async {
        let disk = MemoryDisk::default();
        let (log, _) = start(&disk, CommitMode::Auto).await;
        let header = FileHeader::find(&disk.content(&file(0))).unwrap();
        let forged =
            |salt| GroupStamp { flags: 0, salt, sequence: 0, file_number: header.file_number, committed_ms: 0 };
        let value = |salt| {
            let mut value = vec![0; 4096 - 64 - 24];
            for sequence in 1..6 {
                let mut group = vec![0; 4096];
                let record = LogRecord::batch(LogId(66), Offset(0), Bytes::from_static(b"forged"));
                encode_group(&mut group, GroupStamp { sequence, ..forged(salt) }, &[record]);
                value.extend(group);
            }
            LogRecord::batch(LogId(1), Offset(0), Bytes::from(value))
        };
        for (salt, is_taken) in [(header.salt ^ 1, false), (0, false), (header.salt, true)] {
            let position = FIRST_GROUP as u64 + log.live_bytes() - FIRST_GROUP as u64;
            assert!(log.wait_durable(log.push(value(salt), false)).await);
            let copy = disk.copy();
            copy.change(&file(0), |bytes| bytes[position as usize + 20] ^= 1);
            let contents = read(&copy, Some(1)).await;
            // With the true salt the imitation is perfect: the test would notice a reader that does not look at it.
            assert_eq!(contents.batches.contains_key(&LogId(66)), is_taken, "salt {salt:x}");
            assert_eq!(contents.damages.is_empty(), !is_taken);
        }
    });
}

/// Sixty groups of 60,000 bytes: four files.
async fn several_files() -> MemoryDisk {
    let disk = written(&[60_000; 60]).await;
    assert!(disk.paths().len() >= 3);
    disk
}

#[test]
fn a_lost_file_is_reported() {
    mini_host::run(1, async {
        let disk = several_files().await;
        let (all, damages) = offsets(&disk).await;
        assert_eq!((all, damages), ((0..60).collect(), vec![]));

        let middle = disk.copy();
        middle.remove(&file(1));
        let (found, damages) = offsets(&middle).await;
        assert!(found.len() > 20 && found.len() < 60);
        assert_eq!(damages, [Damage::MissingFiles { folder: FOLDER.into(), first: 2, last: 2 }]);

        let first = disk.copy();
        first.change(&file(0), |bytes| bytes[..8192].fill(0));
        assert_eq!(offsets(&first).await.1, [Damage::MissingFiles { folder: FOLDER.into(), first: 1, last: 1 }]);

        let none = MemoryDisk::default();
        assert_eq!(offsets(&none).await.1, [Damage::MissingFiles { folder: FOLDER.into(), first: 1, last: 1 }]);
        assert!(read(&none, None).await.damages.is_empty());
    });
}

#[test]
fn the_lost_end_of_a_file_shows_in_the_next_one() {
    mini_host::run(1, async {
        let disk = several_files().await;
        let groups = (disk.content(&file(0)).len() - FIRST_GROUP) / 61_440;
        let end = FIRST_GROUP + groups * 61_440;
        let spoiled = disk.copy();
        spoiled.change(&file(0), |bytes| bytes[end - 61_440 + 100] ^= 1);
        let (found, damages) = offsets(&spoiled).await;
        assert_eq!(found.len(), 59);
        let last = groups as u64;
        assert_eq!(damages, [bad(end - 61_440, Some(last), last + 1)]);

        let cut = disk.copy();
        cut.change(&file(0), |bytes| bytes.truncate(500_000));
        assert_eq!(offsets(&cut).await.1[0], Damage::CutFile { path: file(0) });

        let emptied = disk.copy();
        emptied.change(&file(0), |bytes| bytes[FIRST_GROUP..].fill(0));
        assert_eq!(offsets(&emptied).await.1, [bad(FIRST_GROUP, None, last + 1)]);
    });
}

#[test]
fn files_of_a_later_program_are_refused_by_name() {
    mini_host::run(1, async {
        let disk = written(&[100, 100]).await;
        for (at, sealed_from) in [(8, 0), (FIRST_GROUP + 4, FIRST_GROUP)] {
            let copy = disk.copy();
            copy.change(&file(0), |bytes| {
                bytes[at] = 9;
                let crc = crc32c(&bytes[sealed_from..sealed_from + 60]);
                bytes[sealed_from + 60..sealed_from + 64].copy_from_slice(&crc.to_le_bytes());
            });
            let folder = LogFolder { path: FOLDER.into(), oldest_needed: Some(1) };
            let error = read_logs(&copy, &[folder], GENERATION, STORE).await.unwrap_err().to_string();
            assert!(error.starts_with("/data/corelane/shard-0/log-0: written in version 9"), "{error}");
        }
    });
}

#[test]
fn logs_of_all_folders_come_together() {
    mini_host::run(1, async {
        let disk = written(&[100, 200]).await;
        let other = written(&[300]).await;
        disk.put(Path::new("/data/corelane/shard-1/log-0"), other.content(&file(0)));
        let folder =
            |shard: u32| LogFolder { path: format!("/data/corelane/shard-{shard}").into(), oldest_needed: Some(1) };
        let together = read_logs(&disk, &[folder(0), folder(1)], GENERATION, STORE).await.unwrap();
        let mut apart = read_logs(&disk, &[folder(0)], GENERATION, STORE).await.unwrap();
        apart.merge(read_logs(&disk, &[folder(1)], GENERATION, STORE).await.unwrap());
        assert_eq!(apart.batches, together.batches);
        assert_eq!((apart.files.len(), apart.groups), (together.files.len(), 3));
        assert_eq!(together.batches[&LogId(1)].len(), 3);
    });
}
