//! Compaction at work on the files of one partition: collects keys, then writes groups of segments anew.
//!
//! Sources are read through the page cache batch by batch, each with its checksum checked, so that damage is found here
//! and not carried on. All work is cut into steps, between which whoever paces it ([`Pace`]) lets others run. What is
//! written gets its place by [`super::swap`].

#![allow(async_fn_in_trait, reason = "nothing here moves between threads")]

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;

use super::compacted::Compacted;
use super::index::IndexRules;
use super::names::{self, Kind};
use super::scan::BatchFacts;
use super::segment::Segment;
use super::txn_index::AbortedTxn;
use crate::ids::{Offset, ProducerEpoch, ProducerId};
use crate::runtime::disk::{Disk, DiskFile};
use crate::state::compaction::offset_map::OffsetMap;
use crate::state::compaction::retention::{BatchSeen, LastOfProducer, judge_batch, keeps_record};
use crate::state::compaction::transactions::{CleanedTransactions, Marker};
use crate::wire::batch::{BatchHeader, check_crc};
use crate::wire::refill::{self, BatchRules, ControlKind, RecordScan, Refill, Refilled};
use crate::wire::unpack::Unpacker;

/// One read of a source.
const READ_BYTES: usize = 128 << 10;
/// What of one batch is done before others may run: with small records, or gzip, about 200 µs.
const STEP_BYTES: usize = 16 << 10;

/// Why a compaction came to no end.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] io::Error),
    /// A source cannot be read as batches of records: it is left as it is.
    #[error("{path}: at byte {position}: {what}")]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where in it.
        position: u64,
        /// What is wrong there.
        what: String,
    },
    /// Whoever paces it has ended it.
    #[error("it was stopped")]
    Stopped,
}

/// The compaction was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl From<Stopped> for CompactionError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// Lets others run between two steps of the work.
pub trait Pace {
    /// So many bytes of records were looked at or written anew in memory.
    async fn work(&self, bytes: usize) -> Result<(), Stopped>;
    /// So many bytes are about to be read, or were written.
    async fn io(&self, bytes: usize) -> Result<(), Stopped>;
}

/// What a round needs beside the segments.
pub struct Compactor<'a, D: Disk, P: Pace> {
    /// Where the files are.
    pub disk: &'a D,
    /// Who paces it.
    pub pace: &'a P,
    /// What compressed batches are unpacked with.
    pub unpacker: &'a RefCell<Unpacker>,
    /// A batch that unpacks to more is damage.
    pub unpacked_bytes_max: u64,
    /// Broker time at the beginning of the round.
    pub now_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
}

impl<D: Disk, P: Pace> Compactor<'_, D, P> {
    /// Notes the newest offset of each key from `from` on, as far as the map takes them.
    ///
    /// Shapes: `segments` are those up to the end of the round, oldest first; `aborted` all entries of their abort indexes.
    ///
    /// # Errors
    /// See [`CompactionError`].
    pub async fn collect_keys(
        &self,
        segments: &[Rc<Segment<D>>],
        from: Offset,
        aborted: Vec<AbortedTxn>,
        map: &mut OffsetMap,
    ) -> Result<(), CompactionError> {
        let mut transactions = CleanedTransactions::new(aborted, from);
        for segment in segments.iter().filter(|segment| segment.end() > from) {
            let begin = match segment.base() >= from {
                true => 0,
                false => segment.locate(from, segment.bytes()).await?.map_or(segment.bytes(), |batch| batch.position),
            };
            let mut source = Source::new(segment, begin)?;
            while let Some(batch) = source.next(self.pace).await? {
                if !self.collect_batch(segment, &batch, from, &mut transactions, map).await? {
                    return Ok(());
                }
                map.note_end(batch.facts.next_offset());
                self.pace.work(batch.bytes.len()).await?;
            }
            map.note_end(segment.end());
        }
        Ok(())
    }

    /// False when the map is full.
    async fn collect_batch(
        &self,
        segment: &Segment<D>,
        batch: &SourceBatch,
        from: Offset,
        transactions: &mut CleanedTransactions,
        map: &mut OffsetMap,
    ) -> Result<bool, CompactionError> {
        let seen = batch.seen();
        if let Some(marker) = seen.marker {
            transactions.on_marker(seen.producer_id, seen.last_offset, marker);
            return Ok(true);
        }
        if transactions.on_batch(seen.producer_id, seen.last_offset, seen.is_transactional) {
            return Ok(true);
        }
        let unpacker = || self.unpacker.borrow_mut();
        let damaged = |what: String| damaged(segment, batch.facts.position, what);
        let scan = RecordScan::start(&batch.bytes, &batch.header, self.unpacked_bytes_max, &mut unpacker());
        let mut scan = scan.map_err(|error| damaged(error.to_string()))?;
        let mut has_room = true;
        loop {
            let stepped = scan.step(STEP_BYTES, &mut unpacker(), |record| {
                if let Some(key) = record.key.filter(|_| record.offset >= from && has_room) {
                    has_room = map.note(key, record.offset).is_ok();
                }
            });
            let is_done = stepped.map_err(|error| damaged(error.to_string()))?;
            if is_done || !has_room {
                scan.recycle(&mut unpacker());
                return Ok(has_room);
            }
            if let Err(stopped) = self.pace.work(STEP_BYTES).await {
                scan.recycle(&mut unpacker());
                return Err(stopped.into());
            }
        }
    }

    /// Writes a group of neighbouring segments anew, as one; on disk, and without a name that counts, when this returns.
    ///
    /// Shapes: `group` holds at least one segment; the groups of a round are written in order.
    ///
    /// # Errors
    /// See [`CompactionError`]; what was written is to be removed by [`super::swap::discard`].
    pub async fn write_group(
        &self,
        group: &[Rc<Segment<D>>],
        map: &OffsetMap,
        transactions: &mut CleanedTransactions,
        rules: IndexRules,
        last_of_producer: impl Fn(ProducerId) -> Option<LastOfProducer>,
    ) -> Result<Compacted<D>, CompactionError> {
        let (first, last) = match group {
            [first, .., last] => (first, last),
            [only] => (only, only),
            [] => panic!("a group without segments"),
        };
        let mut written = Compacted::begin(self.disk.clone(), Rc::clone(first.folder()), first.base(), rules)?;
        for segment in group {
            let mut source = Source::new(segment, 0)?;
            while let Some(batch) = source.next(self.pace).await? {
                let seen = batch.seen();
                let verdict =
                    judge_batch(&seen, last.end(), last_of_producer(seen.producer_id), transactions, self.now_ms);
                let rules = BatchRules {
                    keeps_empty: verdict.keeps_header,
                    is_spent_marker: verdict.is_spent_marker,
                    delete_horizon_ms: self.now_ms.saturating_add(self.delete_retention_ms),
                };
                let left = match (verdict.drops_records, verdict.keeps_header) {
                    (true, false) => Refilled::Gone,
                    (true, true) => Refilled::Anew(refill::empty_batch(&batch.header)),
                    (false, _) => self.refill(segment, &batch, &seen, rules, map).await?,
                };
                self.pace.work(batch.bytes.len()).await?;
                let bytes = match left {
                    Refilled::Gone => continue,
                    Refilled::AsItWas => batch.bytes,
                    Refilled::Anew(bytes) => bytes,
                };
                written.add(&bytes).await?;
                self.pace.io(bytes.len()).await?;
            }
        }
        written.add_aborted(transactions.take_kept());
        written.finish().await?;
        Ok(written)
    }

    async fn refill(
        &self,
        segment: &Segment<D>,
        batch: &SourceBatch,
        seen: &BatchSeen,
        rules: BatchRules,
        map: &OffsetMap,
    ) -> Result<Refilled, CompactionError> {
        let unpacker = || self.unpacker.borrow_mut();
        let damaged = |what: String| damaged(segment, batch.facts.position, what);
        let refill = Refill::start(&batch.bytes, &batch.header, rules, self.unpacked_bytes_max, &mut unpacker());
        let mut refill = refill.map_err(|error| damaged(error.to_string()))?;
        loop {
            let stepped = refill.step(STEP_BYTES, &mut unpacker(), |record| {
                let (horizon_ms, is_marker) = (seen.delete_horizon_ms, seen.marker.is_some());
                is_marker || keeps_record(map, record.offset, record.key, record.has_value, horizon_ms, self.now_ms)
            });
            match stepped.map_err(|error| damaged(error.to_string()))? {
                Some(left) => return Ok(left),
                None => {
                    if let Err(stopped) = self.pace.work(STEP_BYTES).await {
                        refill.recycle(&mut unpacker());
                        return Err(stopped.into());
                    }
                }
            }
        }
    }
}

/// Removes the abort index that says nothing: Kafka has none then.
///
/// # Errors
/// Those of the disk.
pub async fn remove_empty_abort_index<D: Disk>(disk: &D, segment: &Segment<D>) -> io::Result<()> {
    let path = names::path(segment.folder(), segment.base(), Kind::TxnIndex);
    match disk.file_bytes(&path) {
        Ok(0) => disk.remove_file(&path).await,
        _ => Ok(()),
    }
}

fn damaged<D: Disk>(segment: &Segment<D>, position: u64, what: String) -> CompactionError {
    CompactionError::Damaged { path: segment.path(Kind::Log), position, what }
}

/// One batch of a source.
struct SourceBatch {
    facts: BatchFacts,
    header: BatchHeader,
    bytes: Bytes,
}

impl SourceBatch {
    fn seen(&self) -> BatchSeen {
        let attributes = self.header.attributes;
        let marker = attributes.is_control().then(|| match refill::control_kind(&self.bytes, &self.header) {
            ControlKind::Abort => Marker::Abort,
            ControlKind::Commit => Marker::Commit,
            ControlKind::Other => Marker::Other,
            ControlKind::Empty => Marker::Empty,
        });
        BatchSeen {
            last_offset: self.facts.last_offset,
            producer_id: ProducerId(self.facts.producer_id),
            epoch: ProducerEpoch(self.facts.producer_epoch),
            marker,
            is_transactional: attributes.is_transactional(),
            delete_horizon_ms: attributes.has_delete_horizon().then_some(self.header.base_timestamp),
        }
    }
}

/// The batches of one segment, one after the other.
struct Source<'a, D: Disk> {
    segment: &'a Segment<D>,
    file: Rc<D::File>,
    position: u64,
    upper: u64,
    chunk: Bytes,
}

impl<'a, D: Disk> Source<'a, D> {
    fn new(segment: &'a Segment<D>, position: u64) -> io::Result<Self> {
        Ok(Self { segment, file: segment.log_file()?, position, upper: segment.bytes(), chunk: Bytes::new() })
    }

    async fn next(&mut self, pace: &impl Pace) -> Result<Option<SourceBatch>, CompactionError> {
        if self.position >= self.upper {
            return Ok(None);
        }
        let facts = match BatchFacts::read(&self.chunk, self.position) {
            Some(facts) if facts.bytes as usize <= self.chunk.len() => facts,
            _ => self.read_on(pace).await?,
        };
        let bytes = self.chunk.split_to((facts.bytes as usize).min(self.chunk.len()));
        let position = self.position;
        self.position = facts.end_position();
        check_crc(&bytes).map_err(|error| damaged(self.segment, position, error.to_string()))?;
        let header = BatchHeader::read(&bytes).map_err(|error| damaged(self.segment, position, error.to_string()))?;
        Ok(Some(SourceBatch { facts, header, bytes }))
    }

    /// Reads from where the next batch begins, at least as far as it goes.
    async fn read_on(&mut self, pace: &impl Pace) -> Result<BatchFacts, CompactionError> {
        let mut wanted = READ_BYTES;
        loop {
            let left = usize::try_from(self.upper - self.position).unwrap_or(usize::MAX);
            pace.io(wanted.min(left)).await?;
            self.chunk = self.file.read_at(self.position, wanted.min(left)).await?;
            let facts = BatchFacts::read(&self.chunk, self.position);
            match facts {
                Some(facts) if facts.bytes as usize <= self.chunk.len() => return Ok(facts),
                Some(facts) if facts.bytes as usize > wanted && facts.bytes as usize <= left => {
                    wanted = facts.bytes as usize;
                }
                _ => {
                    let what = "no whole record batch begins here".to_owned();
                    return Err(damaged(self.segment, self.position, what));
                }
            }
        }
    }
}
