//! Checkpoints: read back as written, never when damaged; full and deltas merged are the state.

use std::collections::BTreeMap;
use std::fs;

use std::sync::Arc;

use bytes::Bytes;
use corelane::ids::{LogId, Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::log::checkpoint::{
    Checkpoint, Damage, Encoder, HEADER_BYTES, Header, Kind, PartitionEntry, ProducerEntry,
};
use corelane::log::checkpoint_chain::{self, Named, View, Writer};
use corelane::log::crc::crc32c;
use corelane::runtime::disk::Disk;
use corelane::state::producers::ProducerState;
use corelane::state::window::Remembered;
use proptest::prelude::*;

use crate::plain_disk::{Folder, PlainDisk, run};

fn header(kind: Kind, generation: u64, seq: u64, previous: u64) -> Header {
    Header { kind, shard: 3, generation, seq, previous, oldest_needed_file: 8 }
}

fn partition(log_id: u64, point: i64) -> PartitionEntry {
    PartitionEntry {
        log_id: LogId(log_id),
        removed: false,
        log_start: Offset(point / 2),
        recovery_point: Offset(point),
        segment_base: Offset(point / 3),
        position: point as u64 * 100,
        leader_epoch: 5,
        segment_file_bytes: point as u64 * 100 + 7,
        abort_check: point as u32 & 0xff_ffff,
    }
}

fn producer(log_id: u64, id: i64, batches: usize, at: i64) -> ProducerEntry {
    let mut state = ProducerState::new(ProducerEpoch(2));
    state.last_append_ms = at;
    state.set_txn_first_offset((at % 2 == 0).then_some(Offset(at)));
    state.window = (0..batches as i64)
        .map(|back| Remembered {
            base_offset: Offset(at * 10 + back),
            last_offset_delta: back as i32,
            first_sequence: Sequence((at + back) as i32),
            max_timestamp: at,
        })
        .collect();
    ProducerEntry { log_id: LogId(log_id), producer_id: ProducerId(id), state: Some(state) }
}

/// What goes into a checkpoint, and comes out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    pub header: Header,
    pub partitions: Vec<PartitionEntry>,
    pub producers: Vec<ProducerEntry>,
}

impl Content {
    fn put(&self, to: &mut Encoder) {
        self.partitions.iter().for_each(|entry| to.partition(entry));
        self.producers.iter().for_each(|entry| to.producer(entry));
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Bytes {
        let mut encoder = Encoder::default();
        self.put(&mut encoder);
        let (header, rest) = encoder.finish(&self.header);
        [vec![header], rest].concat().concat().into()
    }

    pub fn decode(file: &[u8]) -> Result<Self, Damage> {
        let read = Checkpoint::decode(&Bytes::copy_from_slice(file))?;
        Ok(Self { header: read.header, producers: read.producers().collect(), partitions: read.partitions })
    }

    async fn write<D: Disk>(&self, disk: &D, folder: &std::path::Path) -> std::io::Result<Named> {
        let mut writer = Writer::begin(disk, folder)?;
        self.put(writer.entries());
        writer.write_out().await?;
        writer.finish(&self.header).await
    }
}

fn sample() -> Content {
    Content {
        header: header(Kind::Full, 4, 9, 8),
        partitions: vec![partition(1, 10), PartitionEntry { removed: true, ..partition(2, 0) }],
        producers: (0..=5)
            .map(|batches| producer(1, batches as i64, batches, 7))
            .chain([ProducerEntry { state: None, ..producer(1, 3, 0, 0) }])
            .collect(),
    }
}

#[test]
fn entries_have_their_documented_sizes() {
    let bytes = |partitions: usize, producers: usize, batches: usize| {
        let header = header(Kind::Full, 1, 1, 0);
        let partitions = (0..partitions).map(|at| partition(at as u64, 1)).collect();
        let producers = (0..producers).map(|at| producer(0, at as i64, batches, 1)).collect();
        Content { header, partitions, producers }.encode().len()
    };
    assert_eq!(bytes(0, 0, 0), 72 + 32);
    assert_eq!(bytes(3, 0, 0), 72 + 24 + 3 * 56 + 32);
    assert_eq!(bytes(0, 2, 5), 72 + 24 + 2 * (40 + 5 * 28) + 32);
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed_and_what_is_behind_is_ignored() {
    let whole = sample().encode();
    for cut in 0..whole.len() {
        assert!(Content::decode(&whole[..cut]).is_err(), "cut at byte {cut}");
    }
    for bit in 0..whole.len() * 8 {
        let mut bent = whole.to_vec();
        bent[bit / 8] ^= 1 << (bit % 8);
        assert!(Content::decode(&bent).is_err(), "bit {bit}");
    }
    let mut longer = whole.to_vec();
    longer.extend([0xaa; 5000]);
    assert_eq!(Content::decode(&longer), Ok(sample()));
}

/// More than a block holds: entries do not straddle blocks, a lost block is noticed.
#[test]
fn large_checkpoints_are_cut_into_blocks() {
    let mut checkpoint = sample();
    checkpoint.partitions = (0..40_000).map(|at| partition(at, at as i64)).collect();
    checkpoint.producers = (0..20_000).map(|at| producer(1, at, at as usize % 6, at)).collect();
    let file = checkpoint.encode();
    assert!(Content::decode(&file) == Ok(checkpoint));
    let first_block = 72..72 + 24 + (1 << 20) / 56 * 56;
    assert_eq!(&file[first_block.end..first_block.end + 4], b"CLBK");
    let without: Vec<u8> = file[..first_block.start].iter().chain(&file[first_block.end..]).copied().collect();
    assert_eq!(Content::decode(&without), Err(Damage::Counts));
}

fn write(folder: &Folder, checkpoint: &Content) {
    run(checkpoint.write(&PlainDisk::default(), folder.path())).unwrap();
}

fn view(folders: &[&Folder]) -> View {
    let mut view = View::default();
    for folder in folders {
        view.absorb(&run(checkpoint_chain::read_folder(&PlainDisk::default(), folder.path())).unwrap().checkpoints);
    }
    view
}

fn point(view: &View, log_id: u64) -> Option<i64> {
    view.logs.get(&LogId(log_id)).map(|merged| merged.partition.recovery_point.0)
}

fn delta(generation: u64, seq: u64, log_id: u64, point: i64) -> Content {
    let header = header(Kind::Delta, generation, seq, seq - 1);
    Content { header, partitions: vec![partition(log_id, point)], producers: vec![] }
}

fn full(generation: u64, seq: u64, points: &[(u64, i64)]) -> Content {
    let partitions = points.iter().map(|(log_id, point)| partition(*log_id, *point)).collect();
    Content { header: header(Kind::Full, generation, seq, seq - 1), partitions, producers: vec![] }
}

fn damage(folder: &Folder, name: &str) {
    let path = folder.path().join(name);
    let mut file = fs::read(&path).unwrap();
    file[80] ^= 1;
    fs::write(path, file).unwrap();
}

#[test]
fn a_damaged_delta_ends_its_chain_and_a_damaged_full_one_leaves_the_chain_before() {
    let folder = Folder::new();
    for checkpoint in [full(1, 1, &[(7, 10), (8, 10)]), delta(1, 2, 7, 20), delta(1, 3, 7, 30), delta(1, 4, 8, 40)] {
        write(&folder, &checkpoint);
    }
    assert_eq!((point(&view(&[&folder]), 7), point(&view(&[&folder]), 8)), (Some(30), Some(40)));
    damage(&folder, "checkpoint-3.delta");
    assert_eq!((point(&view(&[&folder]), 7), point(&view(&[&folder]), 8)), (Some(20), Some(10)));
    write(&folder, &full(1, 5, &[(7, 50), (8, 50)]));
    write(&folder, &delta(1, 6, 7, 60));
    assert_eq!((point(&view(&[&folder]), 7), point(&view(&[&folder]), 8)), (Some(60), Some(50)));
    damage(&folder, "checkpoint-5.full");
    assert_eq!((point(&view(&[&folder]), 7), point(&view(&[&folder]), 8)), (Some(20), Some(10)));
    let found = run(checkpoint_chain::read_folder(&PlainDisk::default(), folder.path())).unwrap();
    assert_eq!((found.damaged.len(), found.next_seq()), (2, 7));
}

/// A start with another number of cores may be cut short after some shards wrote their full checkpoints.
#[test]
fn a_partition_on_its_way_to_another_shard_is_not_lost() {
    let (zero, one) = (Folder::new(), Folder::new());
    write(&zero, &full(1, 1, &[(7, 10), (8, 10)]));
    write(&zero, &delta(1, 2, 8, 20));
    write(&zero, &full(2, 3, &[(7, 11)]));
    let before = view(&[&zero, &one]);
    assert_eq!((point(&before, 7), point(&before, 8)), (Some(11), Some(20)));
    write(&one, &full(2, 1, &[(8, 21)]));
    for order in [[&zero, &one], [&one, &zero]] {
        let after = view(&order);
        assert_eq!((point(&after, 7), point(&after, 8)), (Some(11), Some(21)));
        assert_eq!(after.logs[&LogId(8)].age, (2, 1));
    }
}

#[test]
fn a_delta_of_another_generation_continues_nothing() {
    let folder = Folder::new();
    write(&folder, &full(1, 1, &[(7, 10)]));
    write(&folder, &delta(2, 2, 7, 99));
    assert_eq!(point(&view(&[&folder]), 7), Some(10));
}

#[test]
fn a_later_release_is_refused_by_name() {
    let folder = Folder::new();
    write(&folder, &full(1, 1, &[(7, 10)]));
    let path = folder.path().join("checkpoint-1.full");
    let mut file = fs::read(&path).unwrap();
    file[8] = 2;
    fs::write(&path, &file).unwrap();
    let found = run(checkpoint_chain::read_folder(&PlainDisk::default(), folder.path())).unwrap();
    assert_eq!((found.checkpoints.len(), found.damaged.len()), (0, 1), "a flipped bit is damage");
    let crc = crc32c(&file[..HEADER_BYTES - 4]);
    file[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, file).unwrap();
    let refused = run(checkpoint_chain::read_folder(&PlainDisk::default(), folder.path())).unwrap_err().to_string();
    assert!(refused.contains("checkpoint-1.full") && refused.contains("version 2"), "{refused}");
}

#[test]
fn the_chain_before_the_newest_full_one_is_kept() {
    let folder = Folder::new();
    let list = || checkpoint_chain::list(&PlainDisk::default(), folder.path()).unwrap();
    assert!(checkpoint_chain::wants_full(&list()));
    write(&folder, &full(1, 1, &[(7, 10)]));
    write(&folder, &delta(1, 2, 7, 20));
    assert_eq!(checkpoint_chain::deletable(&list()).len(), 0);
    write(&folder, &full(1, 3, &[(7, 30)]));
    write(&folder, &delta(1, 4, 7, 40));
    assert_eq!(checkpoint_chain::deletable(&list()).len(), 0);
    write(&folder, &full(1, 5, &[(7, 50)]));
    let old = checkpoint_chain::deletable(&list());
    let old: Vec<_> = old.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(old, ["checkpoint-1.full", "checkpoint-2.delta"]);
}

#[test]
fn a_full_one_is_wanted_after_sixteen_deltas_or_half_its_size() {
    let folder = Folder::new();
    let list = || checkpoint_chain::list(&PlainDisk::default(), folder.path()).unwrap();
    let many: Vec<_> = (0..1000).map(|at| (at, 1)).collect();
    write(&folder, &full(1, 1, &many));
    for seq in 2..17 {
        write(&folder, &delta(1, seq, 7, 1));
        assert!(!checkpoint_chain::wants_full(&list()), "{seq}");
    }
    write(&folder, &delta(1, 17, 7, 1));
    assert!(checkpoint_chain::wants_full(&list()));
    write(&folder, &full(1, 18, &many));
    assert!(!checkpoint_chain::wants_full(&list()));
    write(&folder, &Content { header: header(Kind::Delta, 1, 19, 18), ..full(1, 19, &many[..600]) });
    assert!(checkpoint_chain::wants_full(&list()));
}

#[test]
fn a_spare_takes_the_next_checkpoint_and_leaves_no_tail() {
    let folder = Folder::new();
    let disk = PlainDisk::default();
    run(checkpoint_chain::prepare_spare(&disk, folder.path(), 3_000_000)).unwrap();
    assert_eq!(fs::metadata(folder.path().join("checkpoint.spare")).unwrap().len(), 3_000_000);
    let named = run(sample().write(&disk, folder.path())).unwrap();
    assert_eq!(fs::metadata(&named.path).unwrap().len(), named.bytes);
    assert!(!folder.path().join("checkpoint.spare").exists());
}

/// One change of a shard's state between two checkpoints.
#[derive(Clone, Debug)]
enum Change {
    Append { log_id: u64, producer: i64, batches: usize },
    Expire { log_id: u64, producer: i64 },
    Delete { log_id: u64 },
    Checkpoint { full: bool },
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (1_u64..4, 0_i64..4, 1_usize..6)
            .prop_map(|(log_id, producer, batches)| Change::Append { log_id, producer, batches }),
        1 => (1_u64..4, 0_i64..4).prop_map(|(log_id, producer)| Change::Expire { log_id, producer }),
        1 => (1_u64..4).prop_map(|log_id| Change::Delete { log_id }),
        3 => any::<bool>().prop_map(|full| Change::Checkpoint { full }),
    ]
}

#[derive(Default)]
struct Model {
    /// Ids are never used again: each life of a partition has another one.
    lives: [u64; 4],
    partitions: BTreeMap<u64, PartitionEntry>,
    producers: BTreeMap<(u64, i64), ProducerEntry>,
    changed_partitions: BTreeMap<u64, PartitionEntry>,
    changed_producers: BTreeMap<(u64, i64), ProducerEntry>,
}

impl Model {
    fn id(&self, slot: u64) -> u64 {
        slot + 10 * self.lives[slot as usize]
    }

    fn apply(&mut self, change: &Change, at: i64) {
        match *change {
            Change::Append { log_id, producer: id, batches } => {
                let log_id = self.id(log_id);
                self.partitions.insert(log_id, partition(log_id, at));
                self.producers.insert((log_id, id), producer(log_id, id, batches, at));
                self.changed_partitions.insert(log_id, partition(log_id, at));
                self.changed_producers.insert((log_id, id), producer(log_id, id, batches, at));
            }
            Change::Expire { log_id, producer: id } => {
                let log_id = self.id(log_id);
                if self.producers.remove(&(log_id, id)).is_some() {
                    let gone = ProducerEntry { state: None, ..producer(log_id, id, 0, at) };
                    self.changed_producers.insert((log_id, id), gone);
                }
            }
            Change::Delete { log_id: slot } => {
                let log_id = self.id(slot);
                self.lives[slot as usize] += 1;
                if self.partitions.remove(&log_id).is_some() {
                    self.producers.retain(|(of, _), _| *of != log_id);
                    self.changed_producers.retain(|(of, _), _| *of != log_id);
                    self.changed_partitions.insert(log_id, PartitionEntry { removed: true, ..partition(log_id, 0) });
                }
            }
            Change::Checkpoint { .. } => {}
        }
    }

    fn take(&mut self, full: bool, seq: u64) -> Content {
        let kind = if full { Kind::Full } else { Kind::Delta };
        let changed_partitions = std::mem::take(&mut self.changed_partitions);
        let changed_producers = std::mem::take(&mut self.changed_producers);
        let (partitions, producers) = if full {
            (self.partitions.clone(), self.producers.clone())
        } else {
            (changed_partitions, changed_producers)
        };
        Content {
            header: header(kind, 1, seq, seq - 1),
            partitions: partitions.into_values().collect(),
            producers: producers.into_values().collect(),
        }
    }
}

proptest! {
    /// Whatever happened: full and deltas merged are the state at the last checkpoint.
    #[test]
    fn full_and_deltas_merged_are_the_state(changes in prop::collection::vec(any_change(), 1..60)) {
        let mut model = Model::default();
        let mut chain = vec![model.take(true, 1)];
        for (at, change) in changes.iter().enumerate() {
            model.apply(change, at as i64);
            if let Change::Checkpoint { full } = change {
                let seq = chain.last().unwrap().header.seq + 1;
                if *full {
                    // Older chains may hold logs that are deleted since; the catalog drops those.
                    chain.clear();
                }
                chain.push(model.take(*full || chain.is_empty(), seq));
            }
        }
        chain.push(model.take(false, chain.last().unwrap().header.seq + 1));
        chain.reverse();
        let read = |content: &Content| Arc::new(Checkpoint::decode(&content.encode()).unwrap());
        let read: Vec<_> = chain.iter().map(read).collect();
        let mut view = View::default();
        view.absorb(&read);
        let partitions: BTreeMap<_, _> = view.logs.iter().map(|(id, merged)| (id.0, merged.partition)).collect();
        let mut producers = BTreeMap::new();
        for entry in view.producers() {
            let key = (entry.log_id.0, entry.producer_id.0);
            match entry.state {
                Some(_) => _ = producers.insert(key, entry),
                None => _ = producers.remove(&key),
            }
        }
        prop_assert_eq!(partitions, model.partitions);
        prop_assert_eq!(producers, model.producers);
    }
}
