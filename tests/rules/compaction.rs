//! Compaction against a simple model: which records are left of a log, round after round.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use corelane::ids::{LogId, Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::log::compactor::{self, Compactor, Pace, Stopped};
use corelane::log::index::IndexRules;
use corelane::log::names::{self, Kind};
use corelane::log::scan::BatchFacts;
use corelane::log::segment::{Known, Sealing, Segment};
use corelane::log::swap;
use corelane::log::txn_index::{self, AbortedTxn};
use corelane::runtime::disk::{Access, Create, Disk, DiskFile};
use corelane::state::compaction::offset_map::{Full, MapLimits, OffsetMap};
use corelane::state::compaction::retention::LastOfProducer;
use corelane::state::compaction::transactions::CleanedTransactions;
use corelane::state::compaction::{self, Candidate, CompactionRules, LogFacts, SegmentFacts};
use corelane::wire::batch::{BatchHeader, Batches, Codec};
use corelane::wire::builder::{BatchBuilder, Marker, Record, control_batch};
use corelane::wire::refill::{ControlKind, control_kind};
use corelane::wire::unpack::Unpacker;
use proptest::prelude::*;

use crate::dice::Dice;
use crate::memory_disk::MemoryDisk;
use crate::mini_host;
use crate::refill::plain_records;

pub const FOLDER: &str = "/log";
pub const RULES: IndexRules = IndexRules { interval_bytes: 200, index_bytes_max: 10 << 20 };
pub const RETENTION_MS: i64 = 1_000;
const SEALING: Sealing = Sealing { open: false, clean: false, log_id: LogId(9), generation: 4, aborts: (0, 0) };

/// What the files of the abort indexes tell of.
pub async fn aborted_transactions(disk: &MemoryDisk, segments: &[Rc<Segment<MemoryDisk>>]) -> Vec<AbortedTxn> {
    let mut aborted = Vec::new();
    for segment in segments {
        let Ok(content) = disk.read_file(&segment.path(Kind::TxnIndex)).await else { continue };
        aborted.extend(txn_index::decode(&content).unwrap());
    }
    aborted
}

/// Steps are not counted.
pub struct AtOnce;

impl Pace for AtOnce {
    async fn work(&self, _bytes: usize) -> Result<(), Stopped> {
        Ok(())
    }

    async fn io(&self, _bytes: usize) -> Result<(), Stopped> {
        Ok(())
    }
}

/// One step of a log that is being written.
#[derive(Clone, Debug)]
pub enum Op {
    /// A batch by a producer (0 is nobody), in a transaction or not: keys, and whether there is a value.
    Write { producer: i64, in_txn: bool, codec: usize, records: Vec<(u8, bool)> },
    /// The end of a producer's transaction.
    End { producer: i64, commit: bool },
    /// A new segment.
    Roll,
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let records = prop::collection::vec((0_u8..7, prop::bool::weighted(0.7)), 1..5);
    let write = (0_i64..4, any::<bool>(), 0_usize..5, records).prop_map(|(producer, in_txn, codec, records)| {
        Op::Write { producer, in_txn: in_txn && producer > 0, codec, records }
    });
    let end = (1_i64..4, any::<bool>()).prop_map(|(producer, commit)| Op::End { producer, commit });
    prop::collection::vec(prop_oneof![6 => write, 2 => end, 2 => Just(Op::Roll)], 1..60)
}

/// A record as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    key: u8,
    value: Option<Vec<u8>>,
    /// First offset of its batch.
    batch: i64,
}

/// A log on a disk in memory and what must be in it.
pub struct World {
    pub disk: MemoryDisk,
    pub segments: Vec<Rc<Segment<MemoryDisk>>>,
    records: BTreeMap<i64, Kept>,
    aborted: HashSet<i64>,
    /// Offsets of the records of transactions that were not ended yet, and where these began.
    open: HashMap<i64, (i64, Vec<i64>)>,
    last_of: HashMap<i64, i64>,
    horizons: HashMap<i64, i64>,
    sequences: HashMap<i64, i32>,
    cleaned_to: i64,
    now_ms: i64,
}

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

impl World {
    pub fn new() -> Self {
        let disk = MemoryDisk::default();
        let first = Segment::create(disk.clone(), Path::new(FOLDER).into(), Offset(0), RULES, 0).unwrap();
        Self {
            disk,
            segments: vec![Rc::new(first)],
            records: BTreeMap::new(),
            aborted: HashSet::new(),
            open: HashMap::new(),
            last_of: HashMap::new(),
            horizons: HashMap::new(),
            sequences: HashMap::new(),
            cleaned_to: 0,
            now_ms: 10_000,
        }
    }

    pub async fn of(ops: &[Op]) -> Self {
        let mut world = Self::new();
        for op in ops {
            world.apply(op).await;
        }
        let mut open: Vec<_> = world.open.keys().copied().collect();
        open.sort_unstable();
        for producer in open {
            world.end(producer, false).await;
        }
        world.roll().await;
        world
    }

    fn active(&self) -> &Rc<Segment<MemoryDisk>> {
        self.segments.last().unwrap()
    }

    async fn apply(&mut self, op: &Op) {
        match op {
            Op::Roll => self.roll().await,
            Op::End { producer, commit } if self.open.contains_key(producer) => self.end(*producer, *commit).await,
            Op::End { .. } => {}
            Op::Write { producer, in_txn, codec, records } => {
                // A producer with an open transaction writes nothing else.
                let in_txn = *in_txn || self.open.contains_key(producer);
                self.write(*producer, in_txn, CODECS[*codec], records).await;
            }
        }
    }

    async fn write(&mut self, producer: i64, in_txn: bool, codec: Codec, records: &[(u8, bool)]) {
        let base = self.active().end().0;
        let mut builder = BatchBuilder::new().place(Offset(base), 1).codec(codec);
        if producer > 0 {
            let sequence = self.sequences.entry(producer).or_default();
            builder = builder.producer(ProducerId(producer), ProducerEpoch(0), Sequence(*sequence));
            *sequence += records.len() as i32;
            self.last_of.insert(producer, base + records.len() as i64 - 1);
        }
        if in_txn {
            builder = builder.transactional();
            self.open.entry(producer).or_insert((base, Vec::new()));
        }
        for (at, (key, has_value)) in (0..).zip(records) {
            let value = format!("value of offset {}", base + at).into_bytes();
            let value = has_value.then_some(value);
            let record = Record { timestamp: base + at, key: Some(&[*key]), value: value.as_deref(), headers: &[] };
            builder = builder.record(record);
            self.records.insert(base + at, Kept { key: *key, value, batch: base });
            if in_txn {
                self.open.get_mut(&producer).unwrap().1.push(base + at);
            }
        }
        self.append(&builder.build().freeze()).await;
    }

    async fn end(&mut self, producer: i64, commit: bool) {
        let (first, offsets) = self.open.remove(&producer).unwrap();
        let offset = self.active().end();
        let marker = if commit { Marker::Commit } else { Marker::Abort };
        let mut batch = control_batch(ProducerId(producer), ProducerEpoch(0), marker, 0, offset.0);
        corelane::wire::batch::set_place(&mut batch, offset, 1);
        self.append(&batch.freeze()).await;
        if !commit {
            self.aborted.extend(offsets);
            let txn = AbortedTxn {
                producer_id: ProducerId(producer),
                first_offset: Offset(first),
                last_offset: offset,
                last_stable_offset: Offset(first),
            };
            self.add_aborted(txn).await;
        }
    }

    async fn add_aborted(&self, txn: AbortedTxn) {
        let path = self.active().path(Kind::TxnIndex);
        let file = self.disk.open(&path, Access::Buffered, Create::IfMissing).unwrap();
        let end = file.bytes().unwrap();
        file.write_at(end, txn_index::encode(&[txn])).await.unwrap();
        file.sync_data().await.unwrap();
    }

    async fn append(&self, batch: &Bytes) {
        let segment = self.active();
        let position = segment.bytes();
        segment.note_batch(&BatchFacts::read(batch, position).unwrap());
        segment.write(position, batch.clone()).await.unwrap();
    }

    async fn roll(&mut self) {
        let active = self.active();
        if active.bytes() == 0 {
            return;
        }
        active.sync().await.unwrap();
        active.seal(SEALING).await.unwrap();
        active.sync_seal().await.unwrap();
        let next = Segment::create(self.disk.clone(), Path::new(FOLDER).into(), active.end(), RULES, 0).unwrap();
        self.segments.push(Rc::new(next));
        self.disk.sync_fs(Path::new(FOLDER)).await.unwrap();
    }

    fn closed(&self) -> &[Rc<Segment<MemoryDisk>>] {
        &self.segments[..self.segments.len() - 1]
    }

    /// One round over the first `count` closed segments, with a map for so many keys; then the model's.
    pub async fn round(&mut self, count: usize, keys_max: usize, rules: &CompactionRules) {
        let count = count.min(self.closed().len());
        if count == 0 || self.segments[count - 1].end().0 <= self.cleaned_to {
            return; // nothing is dirty
        }
        let (end, beyond) = self.compact(count, keys_max, rules).await;
        self.model(end, &beyond);
        self.cleaned_to = self.cleaned_to.max(end);
    }

    fn map(&self, keys_max: usize) -> OffsetMap {
        let limits = MapLimits { bytes_max: (keys_max + 1) * 24, load_max: 0.95 };
        OffsetMap::new(keys_max as u64, limits, (1, 2))
    }

    fn compactor<'a>(&'a self, unpacker: &'a RefCell<Unpacker>) -> Compactor<'a, MemoryDisk, AtOnce> {
        Compactor {
            disk: &self.disk,
            pace: &AtOnce,
            unpacker,
            unpacked_bytes_max: 1 << 20,
            now_ms: self.now_ms,
            delete_retention_ms: RETENTION_MS,
        }
    }

    /// What the host of the compactor does; gives the end of what was compacted, and records of the batch there that a full map
    /// has heard of.
    async fn compact(&mut self, count: usize, keys_max: usize, rules: &CompactionRules) -> (i64, HashMap<u8, i64>) {
        let unpacker = RefCell::default();
        let aborted = aborted_transactions(&self.disk, &self.segments).await;
        let mut map = self.map(keys_max);
        let dirty = Offset(self.cleaned_to);
        let work = self.compactor(&unpacker);
        work.collect_keys(&self.segments[..count], dirty, aborted.clone(), &mut map).await.unwrap();
        let end = map.end().unwrap_or(dirty);
        let taken = self.segments[..count].iter().take_while(|segment| segment.base() < end).count();
        let facts: Vec<_> = self.segments[..taken].iter().map(|segment| facts_of(segment)).collect();
        let mut transactions = CleanedTransactions::new(aborted, Offset(0));
        let mut done = Vec::new();
        for range in compaction::group(&facts, rules) {
            let group = &self.segments[range];
            let last_of = |id: ProducerId| {
                let offset = self.last_of.get(&id.0).map(|offset| Offset(*offset));
                offset.map(|offset| LastOfProducer { offset: Some(offset), epoch: ProducerEpoch(0) })
            };
            let work = self.compactor(&unpacker);
            let written = work.write_group(group, &map, &mut transactions, RULES, last_of).await.unwrap();
            done.push(put_in_place(&self.disk, group, written).await);
        }
        self.segments.splice(..taken, done);
        let noted = (0..7).filter_map(|key| map.newest(&[key]).map(|newest| (key, newest.0)));
        let beyond: HashMap<_, _> = noted.filter(|(_, newest)| *newest >= end.0).collect();
        let is_there = |(key, at): (&u8, &i64)| self.records[at].key == *key && !self.aborted.contains(at);
        assert!(beyond.iter().all(is_there), "{beyond:?}");
        (end.0, beyond)
    }

    /// The same on the model.
    fn model(&mut self, end: i64, beyond: &HashMap<u8, i64>) {
        let mut newest: HashMap<u8, i64> = HashMap::new();
        for (offset, kept) in self.records.range(self.cleaned_to..end.max(self.cleaned_to)) {
            if !self.aborted.contains(offset) {
                newest.insert(kept.key, *offset);
            }
        }
        newest.extend(beyond);
        let (aborted, horizons, now_ms) = (&self.aborted, &self.horizons, self.now_ms);
        // Where the map was full within the first batch, nothing is written anew.
        let written = self.segments.iter().filter(|segment| segment.base().0 < end);
        let segments_end = written.map(|segment| segment.end().0).max().unwrap_or(end);
        self.records.retain(|offset, kept| {
            if aborted.contains(offset) {
                return *offset >= segments_end;
            }
            let is_newest = newest.get(&kept.key).is_none_or(|newest| offset >= newest);
            let is_past = horizons.get(&kept.batch).is_some_and(|horizon| *horizon <= now_ms);
            *offset >= end || (is_newest && (kept.value.is_some() || !is_past))
        });
        for (_, kept) in self.records.range(..segments_end) {
            if kept.value.is_none() {
                self.horizons.entry(kept.batch).or_insert(now_ms + RETENTION_MS);
            }
        }
    }

    /// Every whole batch of the log, with the segment that it is in.
    pub fn batches(&self) -> Vec<(usize, Bytes)> {
        let mut all = Vec::new();
        for (at, segment) in self.segments.iter().enumerate() {
            let bytes = Bytes::from(self.disk.content(&segment.path(Kind::Log)));
            assert_eq!(bytes.len() as u64, segment.bytes());
            all.extend(Batches::checked(&bytes).map(|batch| (at, bytes.slice_ref(batch.unwrap().bytes))));
        }
        all
    }

    /// Offset, key and value of what is in the files.
    fn found(&self) -> BTreeMap<i64, (u8, Option<Vec<u8>>)> {
        let mut found = BTreeMap::new();
        for (_, batch) in self.batches() {
            let header = BatchHeader::read(&batch).unwrap();
            if !header.attributes.is_control() {
                found.extend(records(&batch));
            }
        }
        found
    }

    fn check(&self) {
        let expected: BTreeMap<_, _> =
            self.records.iter().map(|(offset, kept)| (*offset, (kept.key, kept.value.clone()))).collect();
        assert_eq!(self.found(), expected);
        self.check_order();
        self.check_producers();
    }

    /// Offsets ascend, and each segment ends where the next begins.
    fn check_order(&self) {
        let mut next = 0;
        let mut last = 0;
        for (segment, batch) in self.batches() {
            let header = BatchHeader::read(&batch).unwrap();
            if segment != last {
                assert_eq!(self.segments[last].end().0, next, "the last batch tells where its segment ends");
                last = segment;
            }
            assert!(header.base_offset.0 >= next, "offset went back");
            next = header.next_offset().0;
        }
        for two in self.segments.windows(2) {
            assert_eq!(two[0].end(), two[1].base());
        }
    }

    /// The newest batch of a producer is there, with its sequence, if nothing of it else.
    fn check_producers(&self) {
        let headers: Vec<_> = self.batches().into_iter().map(|(_, batch)| BatchHeader::read(&batch).unwrap()).collect();
        for (producer, last) in &self.last_of {
            let is_it = |header: &&BatchHeader| header.producer_id.0 == *producer && header.last_offset().0 == *last;
            let newest = headers.iter().find(is_it).unwrap_or_else(|| panic!("producer {producer} is forgotten"));
            assert_eq!(newest.last_sequence().0 + 1, self.sequences[producer]);
        }
    }
}

/// Offset, and key and value.
type Told = (i64, (u8, Option<Vec<u8>>));

fn records(batch: &Bytes) -> Vec<Told> {
    plain_records(batch).into_iter().map(|(offset, _, key, value)| (offset, (key.unwrap()[0], value))).collect()
}

pub async fn put_in_place(
    disk: &MemoryDisk,
    group: &[Rc<Segment<MemoryDisk>>],
    written: corelane::log::compacted::Compacted<MemoryDisk>,
) -> Rc<Segment<MemoryDisk>> {
    let (folder, base, aborts) = (Path::new(FOLDER), written.base(), written.aborts());
    for segment in group {
        segment.hold().await.unwrap();
    }
    swap::commit(disk, folder, base).unwrap();
    disk.sync_dir(folder).await.unwrap();
    swap::put_in_place(disk, folder, base, group).unwrap();
    let segment = Rc::new(written.into_segment(0));
    disk.sync_dir(folder).await.unwrap();
    segment.seal(Sealing { clean: true, aborts, ..SEALING }).await.unwrap();
    segment.sync_seal().await.unwrap();
    compactor::remove_empty_abort_index(disk, &segment).await.unwrap();
    disk.sync_fs(folder).await.unwrap();
    segment
}

pub fn facts_of(segment: &Segment<MemoryDisk>) -> SegmentFacts {
    let (base, end, bytes) = (segment.base(), segment.end(), segment.bytes());
    SegmentFacts { base, end, bytes, index_bytes: bytes / 20, first_timestamp: 1, max_timestamp: 1 }
}

pub const COMPACTION: CompactionRules = CompactionRules {
    dirty_ratio_min: 0.5,
    lag_ms_min: 0,
    lag_ms_max: i64::MAX,
    segment_bytes: 2_000,
    index_bytes: 1 << 20,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 150 } else { 2_000 }))]

    #[test]
    fn what_is_left_is_what_the_model_says(
        ops in ops(),
        rounds in prop::collection::vec((0_usize..20, 3_usize..60, 0_i64..900), 1..5),
    ) {
        mini_host::run(1, async move {
            let mut world = World::of(&ops).await;
            world.check();
            for (count, keys, later_ms) in rounds {
                world.round(count, keys, &COMPACTION).await;
                world.check();
                world.now_ms += later_ms;
            }
        });
    }

    /// Rounds over the same log come to an end: headers and markers go as segments are put together, records do not, and
    /// then every byte stays, until time has passed.
    #[test]
    fn more_rounds_change_nothing(ops in ops()) {
        mini_host::run(1, async move {
            let mut world = World::of(&ops).await;
            let mut before = None;
            for _ in 0..20 {
                world.cleaned_to = 0;
                let all = world.segments.len();
                world.round(all, 1_000, &COMPACTION).await;
                world.check();
                let after: Vec<_> = world.batches().into_iter().map(|(_, batch)| batch).collect();
                if before.as_ref() == Some(&after) {
                    return;
                }
                before = Some(after);
            }
            panic!("each round changes something");
        });
    }

    /// The newest value of each key of the whole log survives any rounds, and a marker survives its records.
    #[test]
    fn what_a_reader_comes_to_is_never_changed(ops in ops(), rounds in prop::collection::vec((0_usize..20, 0_i64..3_000), 1..6)) {
        mini_host::run(1, async move {
            let mut world = World::of(&ops).await;
            let expected = world.state();
            for (count, later_ms) in rounds {
                world.round(count, 1_000, &COMPACTION).await;
                assert_eq!(world.state(), expected);
                world.now_ms += later_ms;
            }
        });
    }

    #[test]
    fn the_map_gives_the_newest_offset_and_says_when_it_is_full(keys in prop::collection::vec(0_u16..300, 0..600), room in 1_usize..400) {
        let limits = MapLimits { bytes_max: room * 24, load_max: 0.9 };
        let mut map = OffsetMap::new(600, limits, (3, 4));
        let mut model = HashMap::new();
        let mut was_full = false;
        for (offset, key) in (0_i64..).zip(keys) {
            match map.note(&key.to_be_bytes(), Offset(offset)) {
                Ok(()) => {
                    prop_assert!(!was_full);
                    model.insert(key, offset);
                }
                Err(Full) => was_full = true,
            }
            prop_assert_eq!(map.len(), model.len());
        }
        prop_assert_eq!(was_full, model.len() >= ((room.max(2) as f64 * 0.9) as usize).max(1) && was_full);
        for key in 0_u16..300 {
            prop_assert_eq!(map.newest(&key.to_be_bytes()), model.get(&key).map(|offset| Offset(*offset)));
        }
    }

    #[test]
    fn groups_cover_everything_and_are_no_larger_than_a_segment(sizes in prop::collection::vec((0_u64..900, 1_i64..(1 << 30)), 0..40)) {
        let rules = CompactionRules { segment_bytes: 1_000, index_bytes: 50, ..COMPACTION };
        let mut base = 0;
        let facts: Vec<_> = sizes.iter().map(|(bytes, span)| {
            let segment = SegmentFacts { base: Offset(base), end: Offset(base + span), bytes: *bytes, index_bytes: bytes / 20, first_timestamp: 1, max_timestamp: 1 };
            base += span;
            segment
        }).collect();
        let groups = compaction::group(&facts, &rules);
        prop_assert_eq!(groups.iter().cloned().flatten().collect::<Vec<_>>(), (0..facts.len()).collect::<Vec<_>>());
        let fits = |range: &[SegmentFacts]| {
            let (bytes, index) = range.iter().fold((0, 0), |sum, one| (sum.0 + one.bytes, sum.1 + one.index_bytes));
            let span = range.last().unwrap().end.0 - 1 - range[0].base.0;
            bytes <= 1_000 && index <= 50 && span <= i64::from(i32::MAX)
        };
        for group in &groups {
            prop_assert!(group.len() == 1 || fits(&facts[group.clone()]));
        }
        for two in groups.windows(2) {
            prop_assert!(!fits(&facts[two[0].start..two[1].start + 1]), "they could have been one");
        }
    }
}

impl World {
    /// The newest value of each key, as a reader of committed records sees it at the end, and the transactions it must know.
    fn state(&self) -> BTreeMap<u8, (i64, Vec<u8>)> {
        let mut state = BTreeMap::new();
        let mut open: HashMap<i64, Vec<Told>> = HashMap::new();
        let mut see = |offset: i64, key: u8, value: Option<Vec<u8>>| match value {
            // An older value must not come back behind a newer one.
            _ if state.get(&key).is_some_and(|(newest, _): &(i64, Vec<u8>)| *newest > offset) => {}
            Some(value) => _ = state.insert(key, (offset, value)),
            None => _ = state.remove(&key),
        };
        let mut ended = Vec::new();
        for (_, batch) in self.batches() {
            let header = BatchHeader::read(&batch).unwrap();
            let producer = header.producer_id.0;
            if header.attributes.is_control() {
                let written = open.remove(&producer).unwrap_or_default();
                match control_kind(&batch, &header) {
                    ControlKind::Commit => ended.extend(written),
                    ControlKind::Abort => {}
                    other => assert!(written.is_empty(), "{other:?} ends a transaction of which records are left"),
                }
            } else if header.attributes.is_transactional() {
                open.entry(producer).or_default().extend(records(&batch));
            } else {
                ended.extend(records(&batch));
            }
        }
        assert!(open.values().all(Vec::is_empty), "records without a marker");
        ended.sort_by_key(|(offset, _)| *offset);
        ended.into_iter().for_each(|(offset, (key, value))| see(offset, key, value));
        state
    }
}

impl World {
    /// The log as a start finds it on a disk.
    async fn found_on(&self, disk: &MemoryDisk) -> Self {
        let folder = Path::new(FOLDER);
        swap::finish(disk, folder).await.unwrap();
        let mut found = Self { disk: disk.clone(), segments: Vec::new(), ..Self::new() };
        let files: Vec<_> = disk.list(folder).unwrap().into_iter().map(|entry| (entry.name, entry.bytes)).collect();
        let is_left = |name: &str| name.ends_with(names::CLEANED) || name.ends_with(names::SWAP);
        assert!(!files.iter().any(|(name, _)| is_left(name)), "{files:?}");
        let logs: Vec<_> = files.iter().filter_map(|(name, bytes)| Some((names::parse(name)?, *bytes))).collect();
        let logs: Vec<_> = logs.into_iter().filter(|((_, kind), _)| *kind == Kind::Log).collect();
        for (at, ((base, _), bytes)) in logs.iter().enumerate() {
            let end = logs.get(at + 1).map_or(self.active().end(), |next| next.0.0);
            let known = Known { bytes: *bytes, end };
            let segment = Segment::existing(disk.clone(), folder.into(), *base, RULES, 0, known);
            assert_eq!(segment.rebuild().await.unwrap().stop, None);
            found.segments.push(Rc::new(segment));
        }
        found
    }
}

/// The power goes at any moment of an exchange: a start has the old segments or the new one, never both or neither, and the
/// aborted transactions that belong to them.
#[test]
fn a_crash_in_an_exchange_leaves_the_old_segments_or_the_new_one() {
    let mut dice = Dice::of(3);
    let (mut old, mut new, mut between) = (0, 0, 0);
    for _ in 0..60 {
        let ops: Vec<_> = (0..60).map(|_| random_op(&mut dice)).collect();
        let mut cuts = dice.other();
        let counts = mini_host::run(1, async move {
            let world = World::of(&ops).await;
            let expected = world.state();
            let before = world.found();
            let count = (world.segments.len() - 1).min(4);
            let group = &world.segments[..count];
            if count < 2 {
                return (0, 0, 0);
            }
            let unpacker = RefCell::default();
            let aborted = aborted_transactions(&world.disk, &world.segments).await;
            let mut map = world.map(1_000);
            let work = world.compactor(&unpacker);
            work.collect_keys(group, Offset(0), aborted.clone(), &mut map).await.unwrap();
            let mut transactions = CleanedTransactions::new(aborted, Offset(0));
            let written = work.write_group(group, &map, &mut transactions, RULES, |_| None).await.unwrap();
            let mut moments = vec![world.disk.copy()];
            for segment in group {
                segment.hold().await.unwrap();
            }
            let folder = Path::new(FOLDER);
            swap::commit(&world.disk, folder, written.base()).unwrap();
            moments.push(world.disk.copy());
            world.disk.sync_dir(folder).await.unwrap();
            moments.push(world.disk.copy());
            swap::put_in_place(&world.disk, folder, written.base(), group).unwrap();
            moments.push(world.disk.copy());
            world.disk.sync_dir(folder).await.unwrap();
            moments.push(world.disk.copy());
            let (mut old, mut new, mut between) = (0, 0, 0);
            for moment in moments {
                for times in 0..8 {
                    let left = if times == 0 { moment.copy() } else { moment.power_cut(|below| cuts.below(below)) };
                    between +=
                        usize::from(left.paths().iter().any(|path| path.to_str().unwrap().ends_with(names::SWAP)));
                    // The start is cut off, too, and comes again.
                    if times % 2 == 1 {
                        swap::finish(&left, folder).await.unwrap();
                    }
                    let left = if times % 2 == 1 { left.power_cut(|below| cuts.below(below)) } else { left };
                    let found = world.found_on(&left).await;
                    assert_eq!(found.state(), expected);
                    let is_old = found.found() == before;
                    old += usize::from(is_old);
                    new += usize::from(!is_old);
                    // Each aborted transaction of which records are left is in an index.
                    let known = aborted_transactions(&left, &found.segments).await;
                    for (_, batch) in found.batches() {
                        let header = BatchHeader::read(&batch).unwrap();
                        let is_aborted =
                            world.aborted.contains(&header.base_offset.0) && header.attributes.is_transactional();
                        let is_known = known.iter().any(|txn| {
                            let range = txn.first_offset..=txn.last_offset;
                            txn.producer_id == header.producer_id && range.contains(&header.base_offset)
                        });
                        assert!(!is_aborted || is_known, "{header:?} of an aborted transaction would be shown");
                    }
                }
            }
            (old, new, between)
        });
        (old, new, between) = (old + counts.0, new + counts.1, between + counts.2);
    }
    assert!(old > 100 && new > 100 && between > 100, "{old} {new} {between}");
}

fn random_op(dice: &mut Dice) -> Op {
    match dice.below(10) {
        0..6 => {
            let producer = dice.below(4) as i64;
            let records = (0..=dice.below(4)).map(|_| (dice.below(7) as u8, dice.below(3) > 0)).collect();
            Op::Write { producer, in_txn: producer > 0 && dice.below(2) == 0, codec: dice.below(5), records }
        }
        6..8 => Op::End { producer: 1 + dice.below(3) as i64, commit: dice.below(2) == 0 },
        _ => Op::Roll,
    }
}

fn segment(base: i64, bytes: u64, timestamps: (i64, i64)) -> SegmentFacts {
    let (first_timestamp, max_timestamp) = timestamps;
    SegmentFacts { base: Offset(base), end: Offset(base + 10), bytes, index_bytes: 8, first_timestamp, max_timestamp }
}

fn judged(
    closed: &[SegmentFacts],
    cleaned_to: Option<i64>,
    untouchable: i64,
    rules: &CompactionRules,
) -> Option<Candidate> {
    let facts = LogFacts {
        start: Offset(0),
        cleaned_to: cleaned_to.map(Offset),
        untouchable_from: Offset(untouchable),
        closed,
    };
    compaction::judge(&facts, rules, 10_000)
}

#[test]
fn what_may_be_compacted_and_when_it_is_due() {
    let closed = [segment(0, 300, (10, 20)), segment(10, 100, (5_000, 6_000)), segment(20, 200, (8_000, 9_000))];
    let all = judged(&closed, None, 1_000, &COMPACTION).unwrap();
    assert_eq!((all.first_dirty, all.end, all.segments, all.is_due), (Offset(0), Offset(30), 3, true));
    // Half of the bytes are dirty: that is not above the ratio.
    let half = judged(&closed, Some(10), 1_000, &COMPACTION).unwrap();
    assert_eq!((half.first_dirty, half.is_due), (Offset(10), false));
    assert!((half.dirty_ratio - 0.5).abs() < 1e-9);
    assert_eq!(judged(&closed, Some(30), 1_000, &COMPACTION), None, "all is clean");
    // A segment that reaches above what is stable, or needed for recovery, is not touched, nor one behind it.
    assert_eq!(judged(&closed, None, 29, &COMPACTION).unwrap().segments, 2);
    assert_eq!(judged(&closed, None, 9, &COMPACTION), None);
    // Young records wait, also those behind them.
    let patient = CompactionRules { lag_ms_min: 4_500, ..COMPACTION };
    assert_eq!(judged(&closed, None, 1_000, &patient).unwrap().segments, 1);
    // Old ones are due, however few they are.
    let impatient = CompactionRules { lag_ms_max: 4_000, dirty_ratio_min: 1.0, ..COMPACTION };
    assert!(judged(&closed, Some(10), 1_000, &impatient).unwrap().is_due);
    assert!(!judged(&closed, Some(20), 1_000, &impatient).unwrap().is_due);
    // An end that the log does not have is forgotten.
    assert_eq!(judged(&closed, Some(99), 1_000, &COMPACTION).unwrap().first_dirty, Offset(0));
}

#[test]
fn the_dirtiest_log_comes_first() {
    let candidate =
        |dirty_ratio, is_due| Candidate { first_dirty: Offset(0), end: Offset(9), segments: 1, dirty_ratio, is_due };
    let all = [candidate(0.6, true), candidate(0.9, false), candidate(0.8, true), candidate(0.8, true)];
    assert_eq!(compaction::dirtiest(&all), Some(2));
    assert_eq!(compaction::dirtiest(&all[1..2]), None);
}

#[test]
fn a_name_of_what_is_being_written_is_read_back() {
    let path = names::with_ending(&names::path(Path::new(FOLDER), Offset(7), Kind::Log), names::SWAP);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert_eq!(names::parse_with(name, names::SWAP), Some((Offset(7), Kind::Log)));
    assert_eq!(names::parse(name), None);
}
