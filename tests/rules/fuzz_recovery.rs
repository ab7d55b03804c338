//! Spoils what a start reads in random ways: it is used as far as it is whole, or refused, never worse.
//! How many: `dice.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use corelane::broker::catalog::{Catalog, CatalogRecord};
use corelane::config::Config;
use corelane::ids::{LogId, Offset, ProducerEpoch, ProducerId, Sequence, TopicId};
use corelane::log::checkpoint::{Checkpoint, Header, Kind as CheckpointKind, PartitionEntry, ProducerEntry};
use corelane::log::checkpoint_chain::View;
use corelane::log::crc::crc32c;
use corelane::log::index::{IndexRules, Indexes, OffsetIndex, TimeIndex, TimestampOffset};
use corelane::log::kafka_files::{self, LeaderEpoch, MetaProperties};
use corelane::log::log_reader::RecordReader;
use corelane::log::losses::Losses;
use corelane::log::scan::Scanner;
use corelane::log::seal::{FileCrcs, Seal};
use corelane::log::snapshot::{self, SnapshotEntry};
use corelane::log::store::Store;
use corelane::state::producers::ProducerState;
use corelane::state::window::Remembered;

use crate::checkpoint::Content;
use crate::dice::{Dice, run};
use crate::memory_disk::MemoryDisk;
use crate::partition_life::{self, FOLDER, LOG_FILE, Life, Made, Places, contents, segments};
use crate::sample::{concat, plain_samples};
use crate::{mini_host, plain_disk};

/// Puts the little-endian checksum of `from..to` at `at`, where there is room.
fn mend(bytes: &mut [u8], from: usize, to: usize, at: usize) {
    if bytes.len() >= at + 4 && bytes.len() >= to {
        let crc = crc32c(&bytes[from..to]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Length of what both begin with.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[test]
fn spoilt_seals_do_no_harm() {
    let seal = Seal {
        open: true,
        clean: false,
        log_id: LogId(3),
        generation: 4,
        base: Offset(10),
        end: Offset(20),
        log_bytes: 1000,
        newest: Some(TimestampOffset { timestamp: 5, offset: Offset(11) }),
        first_timestamp: Some(4),
        abort_entries: 0,
        crcs: FileCrcs { log: 1, txnindex: 2, index: 3, timeindex: 4 },
    };
    let whole = seal.encode();
    let passed = run(1, |dice| {
        let mut bytes = whole.to_vec();
        dice.spoil(&mut bytes, 0);
        let is_changed = bytes[..] != whole[..];
        assert!(!is_changed || Seal::decode(&bytes).is_err());
        mend(&mut bytes, 0, 124, 124);
        usize::from(Seal::decode(&bytes).is_ok())
    });
    assert!(passed > 0, "some are read once the checksum is right");
}

#[test]
fn spoilt_snapshots_do_no_harm() {
    let entry = |id: i64| SnapshotEntry {
        producer_id: ProducerId(id),
        epoch: ProducerEpoch(1),
        last_sequence: 5,
        last_offset: 9,
        offset_delta: 2,
        timestamp: 1,
        coordinator_epoch: -1,
        txn_first_offset: None,
    };
    let whole = snapshot::encode(&[entry(1), entry(2), entry(3)]);
    let passed = run(1, |dice| {
        let mut bytes = whole.to_vec();
        dice.spoil(&mut bytes, 0);
        assert!(bytes[..] == whole[..] || snapshot::decode(&bytes).is_err());
        if bytes.len() > 6 {
            let crc = crc32c(&bytes[6..]).to_be_bytes();
            bytes[2..6].copy_from_slice(&crc);
        }
        usize::from(snapshot::decode(&bytes).is_ok())
    });
    assert!(passed > 0, "some are read once the checksum is right");
}

fn checkpoint() -> Content {
    let header =
        Header { kind: CheckpointKind::Full, shard: 0, generation: 4, seq: 9, previous: 8, oldest_needed_file: 2 };
    let partition = |log_id| PartitionEntry {
        log_id: LogId(log_id),
        removed: log_id == 2,
        log_start: Offset(1),
        recovery_point: Offset(9),
        segment_base: Offset(3),
        position: 100,
        leader_epoch: 1,
        segment_file_bytes: 100,
        abort_check: 0,
    };
    let batch =
        Remembered { base_offset: Offset(4), last_offset_delta: 1, first_sequence: Sequence(0), max_timestamp: 7 };
    let producer = |id| {
        let mut state = ProducerState::new(ProducerEpoch(0));
        state.window = (0..id % 6).map(|_| batch).collect();
        ProducerEntry { log_id: LogId(1), producer_id: ProducerId(id), state: (id != 2).then_some(state) }
    };
    Content { header, partitions: (0..3).map(partition).collect(), producers: (0..6).map(producer).collect() }
}

/// Makes every checksum fit what it covers, as far as the parts can be found.
fn mend_checkpoint(bytes: &mut [u8]) {
    mend(bytes, 0, 68, 68);
    let mut at = 72;
    while bytes.get(at..at + 4) == Some(b"CLBK") && bytes.len() >= at + 24 {
        let payload = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
        mend(bytes, at + 24, at.saturating_add(24 + payload), at + 16);
        mend(bytes, at, at + 20, at + 20);
        at = at.saturating_add(24 + payload);
    }
    mend(bytes, at, at.saturating_add(28), at.saturating_add(28));
}

#[test]
fn spoilt_checkpoints_do_no_harm() {
    let whole = checkpoint().encode();
    let passed = run(1, |dice| {
        let mut bytes = whole.to_vec();
        dice.spoil(&mut bytes, 0);
        assert!(bytes.starts_with(&whole) || Content::decode(&bytes).is_err());
        mend_checkpoint(&mut bytes);
        let Ok(read) = Checkpoint::decode(&bytes.into()) else { return 0 };
        let mut view = View::default();
        view.absorb(&[Arc::new(read), Arc::new(Checkpoint::decode(&whole).unwrap())]);
        view.logs.len() + view.producers().count()
    });
    assert!(passed > 0, "some are read once the checksums are right");
}

#[test]
fn spoilt_text_files_do_no_harm() {
    let name = corelane::ids::TopicPartition { topic: Arc::from("orders"), partition: 3 };
    let epochs = [LeaderEpoch { epoch: 1, start: Offset(0) }, LeaderEpoch { epoch: 3, start: Offset(77) }];
    let meta = MetaProperties { cluster_id: "3iNd9icRQyOff_fmZqX4Mw".to_owned(), node_id: 1, directory_id: [7; 16] };
    let offsets = [(&name, Offset(5)), (&name, Offset(9))];
    let files = [
        kafka_files::encode_offsets(offsets.into_iter()),
        kafka_files::encode_leader_epochs(&epochs),
        kafka_files::encode_partition_metadata(TopicId([9; 16])),
        kafka_files::encode_meta_properties(&meta, 1),
    ];
    let passed = run(1, |dice| {
        let which = dice.below(files.len());
        let mut bytes = files[which].clone().into_bytes();
        dice.spoil(&mut bytes, 0);
        let text = String::from_utf8_lossy(&bytes);
        usize::from(match which {
            0 => kafka_files::parse_offsets(&text).is_ok(),
            1 => kafka_files::parse_leader_epochs(&text).is_ok(),
            2 => kafka_files::parse_partition_metadata(&text).is_ok(),
            _ => kafka_files::parse_meta_properties(&text).is_ok(),
        })
    });
    assert!(passed > 0, "some stay readable");
}

/// An index either cannot be one, or everything that is found with it lies in the segment.
#[test]
fn spoilt_indexes_do_no_harm() {
    let samples = plain_samples(100, 60);
    let bytes = concat(&samples).len() as u64;
    let end = Offset(samples.last().unwrap().end());
    let mut indexes = Indexes::new(Offset(100), IndexRules { interval_bytes: 100, index_bytes_max: 1 << 20 });
    let mut position = 0;
    for sample in &samples {
        indexes.note_batch(&sample.facts(position));
        position += sample.bytes().len() as u64;
    }
    let files = [indexes.offsets.unwritten().bytes, indexes.times.unwritten().bytes];
    let passed = run(1, |dice| {
        let mut spoilt = files.clone().map(|file| file.to_vec());
        dice.spoil(&mut spoilt[0], 0);
        dice.spoil(&mut spoilt[1], 0);
        let base = Offset([100, i64::MAX - 5, 0][dice.below(3)]);
        if let Ok(offsets) = OffsetIndex::load(base, &spoilt[0], bytes, end.max(base)) {
            assert!(offsets.lookup(Offset(dice.below(1 << 20) as i64)) < bytes);
        }
        let times = TimeIndex::load(base, &spoilt[1], end.max(base));
        usize::from(times.is_ok_and(|times| times.lookup(1_020).is_none_or(|found| found.offset < end.max(base))))
    });
    assert!(passed > 0, "some stay readable");
}

/// Whole batches before the first spoilt byte are found, whatever the sizes of the reads.
#[test]
fn spoilt_segments_are_whole_up_to_the_first_bad_byte() {
    let samples = plain_samples(0, 12);
    let whole = concat(&samples);
    run(4, |dice| {
        let mut bytes = whole.clone();
        let from = dice.below(bytes.len());
        dice.spoil(&mut bytes, from);
        let mut scanner = Scanner::new(bytes.len() as u64, 0, Offset(0));
        let mut rest = &bytes[..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(1 + dice.below(rest.len()));
            scanner.feed(chunk, &mut |_, batch| found.extend_from_slice(batch));
            rest = behind;
        }
        let end = scanner.finish();
        assert_eq!(end.position, found.len() as u64);
        assert_eq!(found, bytes[..found.len()]);
        let mut good = 0;
        for sample in &samples {
            good += sample.bytes().len();
            assert!(good > common(&bytes, &whole) || good <= found.len(), "{good} of {} bytes", found.len());
        }
        found.len()
    });
}

#[test]
fn spoilt_stores_do_no_harm() {
    let disk = MemoryDisk::default();
    let folder = Path::new("/data/corelane");
    let path = folder.join("store");
    let maker = disk.clone();
    mini_host::run(1, async move {
        let mut store = Store::open_or_create(&maker, Path::new("/data/corelane"), 12).await.unwrap();
        store.write(store.state()).await.unwrap();
    });
    let whole = disk.content(&path);
    let known = plain_disk::run(Store::open_or_create(&disk, folder, 12)).unwrap().state();
    let passed = run(1, |dice| {
        let mut bytes = whole.clone();
        let from = [0, 0, 4096][dice.below(3)];
        let mut slot = bytes.split_off(from);
        let behind = slot.split_off(64.min(slot.len()));
        dice.spoil(&mut slot, 0);
        slot.extend(behind);
        bytes.extend(slot);
        let is_mended = dice.below(2) == 0;
        if is_mended {
            mend(&mut bytes, 0, 60, 60);
            mend(&mut bytes, 4096, 4156, 4156);
        }
        disk.put(&path, bytes);
        let Ok(store) = plain_disk::run(Store::open_or_create(&disk, folder, 12)) else { return 0 };
        assert!(is_mended || store.state().store_id == known.store_id);
        1
    });
    assert!(passed > 0, "one good slot is enough");
}

#[test]
fn spoilt_catalog_records_do_no_harm() {
    let overrides: BTreeMap<String, String> = [("segment.bytes", "1000"), ("max.message.bytes", "9")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let id = TopicId([9; 16]);
    let logs = vec![LogId(4), LogId(5)];
    let records = [
        CatalogRecord::Identity { cluster_id: "3iNd9icRQyOff_fmZqX4Mw".to_owned(), node_id: 1 },
        CatalogRecord::TopicMade {
            name: "t".into(),
            id,
            internal: false,
            logs: logs.clone(),
            overrides: overrides.clone(),
        },
        CatalogRecord::PartitionsAdded { id, logs },
        CatalogRecord::TopicConfigs { id, overrides: overrides.clone() },
        CatalogRecord::BrokerConfigs { all: overrides.clone(), broker: overrides },
        CatalogRecord::Counters { next_log_id: 6, next_producer_id: 1000 },
        CatalogRecord::TopicRemoved { id },
    ]
    .map(|record| record.encode());
    let config = Arc::new(Config::defaults());
    let passed = run(1, |dice| {
        let mut catalog = Catalog::new(Arc::clone(&config));
        let at = dice.below(records.len());
        let (kind, mut bytes) = (records[at].0, records[at].1.to_vec());
        dice.spoil(&mut bytes, 0);
        let Ok(record) = CatalogRecord::decode(kind, &bytes) else { return 0 };
        catalog.apply(&record);
        1
    });
    assert!(passed > 0, "some stay readable");
}

/// Twelve batches: eight in a checkpoint, twelve in the segments or four to twelve in the commit log.
fn life() -> Life {
    let shapes: Vec<_> = (0..12).map(|at| (1 + at % 3, 20 + at * 13 % 60)).collect();
    let places =
        Places { segment_bytes: 420, checkpoint: Some(6), written: 11, logged: 4..10, log_start: None, group: 2 };
    Life::new(partition_life::batches(&shapes), places)
}

/// Groups before the first spoilt byte are read; what is read without a mended checksum is what was written.
#[test]
fn spoilt_commit_logs_do_no_harm() {
    let life = life();
    let whole = life.disk.content(Path::new(LOG_FILE));
    let by_base: BTreeMap<i64, &Made> = life.batches.iter().map(|batch| (batch.base, batch)).collect();
    let disk = MemoryDisk::default();
    let passed = run(1, |dice| {
        let mut bytes = whole.clone();
        let at = [0, 4096, 8192, 12_288, 16_384][dice.below(5)];
        let from = at + dice.below(200);
        dice.spoil_near(&mut bytes, from, 300);
        let is_mended = dice.below(2) == 0;
        if is_mended {
            mend_log(&mut bytes);
        }
        let untouched = common(&bytes, &whole);
        disk.put(Path::new(LOG_FILE), bytes);
        let Ok(contents) = plain_disk::run(contents(&disk)) else { return 0 };
        let located: Vec<_> = contents.batches.into_values().flatten().collect();
        let mut reader = RecordReader::new(disk.clone(), contents.files);
        for one in &located {
            let data = plain_disk::run(reader.read(one)).unwrap();
            assert!(is_mended || by_base[&one.offset.0].bytes == data);
        }
        let expected = if untouched < 8192 { 0 } else { (untouched - 8192) / 4096 * 2 };
        assert!(located.len() >= expected.min(6) || is_mended, "{} of {expected} batches", located.len());
        located.len()
    });
    assert!(passed > 0, "some stay readable");
}

/// Makes the checksums of both headers and of every group fit.
fn mend_log(bytes: &mut [u8]) {
    mend(bytes, 0, 60, 60);
    mend(bytes, 4096, 4156, 4156);
    for at in (8192..bytes.len()).step_by(4096) {
        if bytes.len() > at + 64 {
            let payload = u32::from_le_bytes(bytes[at + 36..at + 40].try_into().unwrap()) as usize;
            let end = at.saturating_add(64).saturating_add(payload);
            mend(bytes, at + 64, end, at + 48);
            mend(bytes, at, at + 60, at + 60);
        }
    }
}

/// What was done to one file of a partition.
fn spoil_file(dice: &mut Dice, disk: &MemoryDisk) {
    let paths = disk.paths();
    let path = &paths[dice.below(paths.len())];
    let bytes = disk.content(path).len();
    let from = dice.below(bytes + 1);
    match dice.below(7) {
        0 => disk.remove(path),
        1 => disk.change(path, |bytes| bytes.truncate(from)),
        2 => disk.change(path, |bytes| bytes[from..].fill(0)),
        3 => disk.change(path, |bytes| bytes.extend_from_slice(&[0xa5; 90])),
        4 => {
            let other = disk.content(&paths[dice.below(paths.len())]);
            disk.put(path, other);
        }
        5 => disk.change(path, |bytes| mend_log(bytes)),
        _ => {
            let mut content = disk.content(path);
            dice.spoil_near(&mut content, from, 200);
            disk.put(path, content);
        }
    }
}

/// Whatever happens to the files, a start ends; what it gives is batches in ascending order, which can be read, and a
/// second start finds the same.
#[test]
fn spoilt_partitions_come_back_as_far_as_they_are_whole() {
    let life = life();
    let known: std::collections::BTreeSet<Bytes> = life.batches.iter().map(|batch| batch.bytes.clone()).collect();
    let passed = run(10, |dice| {
        let disk = life.disk.copy();
        for _ in 0..=dice.below(3) {
            spoil_file(dice, &disk);
        }
        let mut life = Life {
            disk: disk.clone(),
            batches: Vec::new(),
            places: life.places.clone(),
            known_losses: Losses::default(),
            ..life
        };
        if dice.below(4) == 0 {
            life.entry = None;
        }
        let Ok(back) = life.recover(&disk) else { return 0 };
        let end = back.recovered.log.end();
        // What lies below a recovery point is not looked at.
        let end_max = if life.entry.is_none() { end } else { Offset(i64::MAX) };
        let found = ascending_batches(&disk, end_max);
        assert!(back.recovered.log.start() <= end);
        assert!(life.entry.is_none_or(|entry| entry.recovery_point <= end), "the end went back to {end}");
        let again = life.recover(&disk).unwrap();
        assert_eq!(again.recovered.log.end(), end, "{:?} {:?}", back.notes, again.notes);
        assert!(ascending_batches(&disk, end_max) == found, "{:?} {:?}", back.notes, again.notes);
        found.iter().filter(|batch| known.contains(*batch)).count()
    });
    assert!(passed > 0, "some batches are left");
}

/// The batches of all segments as far as they can be walked; offsets never go back within a file, and end below `end`.
fn ascending_batches(disk: &MemoryDisk, end: Offset) -> Vec<Bytes> {
    let mut found = Vec::new();
    for (base, bytes) in segments(disk) {
        let mut scanner = Scanner::new(bytes.len() as u64, 0, Offset(base));
        scanner.feed(&bytes, &mut |_, batch| found.push(Bytes::copy_from_slice(batch)));
        let next = scanner.finish().next_offset;
        assert!(next <= end, "{FOLDER}: segment {base} ends at {next}, the log at {end}");
    }
    found
}
