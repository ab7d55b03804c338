//! What a segment's derived files hold and how they come back: indexes and seal (storage rule S15).

use std::io;

use bytes::Bytes;

use super::crc::{RunningCrc, crc32c};
use super::index::{Indexes, OffsetIndex, TimeIndex, TimestampOffset, Unwritten};
use super::names::Kind;
use super::scan::ScanEnd;
use super::seal::{FileCrcs, Seal};
use super::segment::Segment;
use crate::ids::LogId;
use crate::runtime::disk::{Access, Create, Disk, DiskFile, short_write};
use crate::state::compaction::SegmentFacts;

/// Who writes a seal, and what only the partition knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealing {
    /// The segment goes on after the next start.
    pub open: bool,
    /// Compaction has looked at each of its keys.
    pub clean: bool,
    /// Which partition.
    pub log_id: LogId,
    /// The store's generation.
    pub generation: u64,
    /// Entries of the abort index and its checksum.
    pub aborts: (u32, u32),
}

impl<D: Disk> Segment<D> {
    /// Writes the index entries that the files lack, and one for the largest timestamp so far.
    ///
    /// # Errors
    /// Those of the disk; entries stay unwritten then.
    pub async fn flush_indexes(&self) -> io::Result<()> {
        // A file that somebody shortened is noticed before anything is written; then all of it is.
        while !self.flush_unwritten().await? {
            if let Some(indexes) = &mut self.state.borrow_mut().indexes {
                indexes.forget_written();
            }
        }
        Ok(())
    }

    /// Writes the indexes and the seal; the caller makes them durable ([`Self::sync_seal`]).
    ///
    /// Shapes: everything that was noted is written.
    ///
    /// # Errors
    /// Those of the disk. Without a seal the segment is read again at a start, so nothing is lost.
    pub async fn seal(&self, by: Sealing) -> io::Result<()> {
        self.load_indexes().await?;
        self.flush_indexes().await?;
        let log = self.log_crc().await?;
        let content = self.seal_facts(by, log).encode();
        self.check_name()?;
        let file = self.disk.open(&self.path(Kind::Seal), Access::Buffered, Create::Truncate)?;
        let bytes = content.len();
        let written = file.write_at(0, content).await?;
        self.check_written(written, bytes)
    }

    /// Makes the seal durable.
    ///
    /// # Errors
    /// Those of the disk.
    pub async fn sync_seal(&self) -> io::Result<()> {
        let file = self.disk.open(&self.path(Kind::Seal), Access::Buffered, Create::Never)?;
        file.sync_data().await
    }

    /// Reads the seal; `None` when there is none or it does not fit the segment.
    pub async fn read_seal(&self) -> Option<Seal> {
        let file = self.disk.read_file(&self.path(Kind::Seal)).await.ok()?;
        let seal = Seal::decode(&file).ok()?;
        let fits = seal.base == self.base && seal.log_bytes == self.bytes();
        fits.then_some(seal)
    }

    /// What compaction looks at; `with_times` also the timestamps, which may have to be read.
    ///
    /// # Errors
    /// Those of [`Self::load_indexes`].
    pub async fn facts(&self, with_times: bool) -> io::Result<SegmentFacts> {
        let is_known = self.state.borrow().first_timestamp.is_some();
        if with_times && !is_known {
            self.load_indexes().await?;
        }
        let state = self.state.borrow();
        // At most one entry of 12 bytes for each interval, and one for the last timestamp.
        let entries = state.bytes / u64::from(self.rules.interval_bytes.max(61)) + 1;
        Ok(SegmentFacts {
            base: self.base,
            end: state.end,
            bytes: state.bytes,
            index_bytes: entries * 12,
            first_timestamp: state.first_timestamp.unwrap_or(-1),
            max_timestamp: state.newest.map_or(-1, |newest| newest.timestamp),
        })
    }

    /// Time of the newest record, in milliseconds since 1970, if it is known without a look at the disk.
    #[must_use]
    pub fn known_newest_ms(&self) -> Option<i64> {
        self.newest_timestamp().map(|newest| newest.timestamp).or(self.looked_up_ms.get())
    }

    /// The same, from the seal where it fits; without any timestamp the time at which the file was written last.
    ///
    /// # Errors
    /// Those of the disk.
    ///
    /// Source: apache/kafka `LogSegment.largestTimestamp`.
    pub async fn newest_ms(&self) -> io::Result<i64> {
        if let Some(known) = self.known_newest_ms() {
            return Ok(known);
        }
        let newest_ms = match self.look_up_newest().await? {
            Some(newest) => newest.timestamp,
            None => self.disk.modified_ms(&self.path(Kind::Log))?.unwrap_or(self.created_ms),
        };
        self.looked_up_ms.set(Some(newest_ms));
        Ok(newest_ms)
    }

    async fn look_up_newest(&self) -> io::Result<Option<TimestampOffset>> {
        let is_loaded = self.state.borrow().indexes.is_some();
        match self.read_seal().await.filter(|_| !is_loaded) {
            Some(seal) => Ok(seal.newest),
            None => {
                self.load_indexes().await?;
                Ok(self.newest_timestamp())
            }
        }
    }

    /// Makes the indexes and timestamps known: from the files where they fit the seal (or ascend, without a seal), else
    /// from the segment itself. Nothing happens when they are known already.
    ///
    /// # Errors
    /// Those of reading the segment. Damage of a derived file is not an error (storage rule S15).
    pub async fn load_indexes(&self) -> io::Result<()> {
        if self.state.borrow().indexes.is_some() {
            return Ok(());
        }
        let seal = self.read_seal().await;
        if let (Some(indexes), Some(seal)) = (self.read_indexes(seal.as_ref()).await, seal) {
            self.adopt(indexes, seal.first_timestamp, seal.newest, Some(seal.crcs.log));
            return Ok(());
        }
        // Behind an open seal the index may have grown; a closed segment's files must be as they were.
        let grown = seal.is_none_or(|seal| seal.open);
        match self.read_indexes(None).await.filter(|_| grown) {
            Some(indexes) => self.complete(indexes).await,
            None => self.rebuild().await.map(|_| ()),
        }
    }

    /// Reads the segment from its start, within [`Known::bytes`](super::segment::Known::bytes), and makes the indexes anew.
    ///
    /// # Errors
    /// Those of reading. Bytes that are no batch end the rebuilding: what lies behind is reached by no index.
    pub async fn rebuild(&self) -> io::Result<ScanEnd> {
        let mut indexes = Indexes::new(self.base, self.rules);
        let mut first_timestamp = None;
        let mut crc = RunningCrc::default();
        let bytes = self.bytes();
        let end = self
            .walk(0, bytes, self.base, |batch, bytes| {
                first_timestamp.get_or_insert(batch.max_timestamp);
                indexes.note_batch(batch);
                crc.add(bytes);
            })
            .await?;
        indexes.forget_written();
        let mut state = self.state.borrow_mut();
        if state.bytes != bytes {
            // Batches were noted meanwhile, in the present indexes; those must stay.
            return Ok(end);
        }
        state.newest = indexes.newest_timestamp();
        state.first_timestamp = first_timestamp;
        state.crc = Some((end.position, crc));
        state.indexes = Some(indexes);
        Ok(end)
    }

    /// False when a file is shorter than what it was said to hold.
    async fn flush_unwritten(&self) -> io::Result<bool> {
        let Some((offsets, times)) = self.unwritten_entries() else { return Ok(true) };
        let offsets_whole = self.append_index(Kind::Index, offsets.position, offsets.bytes).await?;
        let times_whole = self.append_index(Kind::TimeIndex, times.position, times.bytes).await?;
        if !offsets_whole || !times_whole {
            return Ok(false);
        }
        if let Some(indexes) = &mut self.state.borrow_mut().indexes {
            indexes.offsets.mark_written(offsets.entries);
            indexes.times.mark_written(times.entries);
        }
        Ok(true)
    }

    fn unwritten_entries(&self) -> Option<(Unwritten, Unwritten)> {
        let mut state = self.state.borrow_mut();
        let indexes = state.indexes.as_mut()?;
        indexes.note_newest_timestamp();
        Some((indexes.offsets.unwritten(), indexes.times.unwritten()))
    }

    async fn append_index(&self, kind: Kind, position: u64, bytes: Bytes) -> io::Result<bool> {
        let path = self.path(kind);
        self.check_name()?;
        let file = self.disk.open(&path, Access::Buffered, Create::IfMissing)?;
        let there = file.bytes()?;
        if there < position {
            return Ok(false);
        }
        if there > position {
            file.truncate(position).await?;
        }
        let wanted = bytes.len();
        let written = if wanted == 0 { 0 } else { file.write_at(position, bytes).await? };
        if written == wanted { Ok(true) } else { Err(short_write(&path, written, wanted)) }
    }

    async fn read_indexes(&self, seal: Option<&Seal>) -> Option<Indexes> {
        let offsets = self.disk.read_file(&self.path(Kind::Index)).await.ok()?;
        let times = self.disk.read_file(&self.path(Kind::TimeIndex)).await.ok()?;
        if seal.is_some_and(|seal| seal.crcs.index != crc32c(&offsets) || seal.crcs.timeindex != crc32c(&times)) {
            return None;
        }
        let (bytes, end) = (self.bytes(), self.end());
        let offsets = OffsetIndex::load(self.base, &offsets, bytes, end).ok()?;
        let times = TimeIndex::load(self.base, &times, end).ok()?;
        Some(Indexes::loaded(self.base, self.rules, offsets, times))
    }

    /// Takes indexes without a seal over: what lies behind their newest entries is read from the batch headers, so the
    /// result is the same whatever part of the files had reached the disk.
    async fn complete(&self, mut indexes: Indexes) -> io::Result<()> {
        let upper = self.bytes();
        let first_timestamp = self.first_header().await?.map(|first| first.max_timestamp);
        let from = indexes.position_of_newest();
        let whole = self.hop(from, upper, |batch| indexes.note_batch(batch)).await?;
        if !whole {
            return self.rebuild().await.map(|_| ());
        }
        let newest = indexes.newest_timestamp();
        self.adopt(indexes, first_timestamp, newest, None);
        Ok(())
    }

    fn adopt(
        &self,
        mut indexes: Indexes,
        first_timestamp: Option<i64>,
        newest: Option<TimestampOffset>,
        log_crc: Option<u32>,
    ) {
        if let Some(newest) = newest {
            indexes.set_newest_timestamp(newest);
        }
        let mut state = self.state.borrow_mut();
        state.first_timestamp = first_timestamp;
        state.newest = newest;
        state.crc = log_crc.map(|crc| (state.bytes, RunningCrc::resume(crc)));
        state.indexes = Some(indexes);
    }

    async fn log_crc(&self) -> io::Result<u32> {
        let (bytes, known) = {
            let state = self.state.borrow();
            (state.bytes, state.crc)
        };
        let (covered, mut crc) = known.filter(|(covered, _)| *covered <= bytes).unwrap_or_default();
        self.read_through(covered, bytes, |chunk| crc.add(chunk)).await?;
        self.state.borrow_mut().crc = Some((bytes, crc));
        Ok(crc.value())
    }

    fn seal_facts(&self, by: Sealing, log: u32) -> Seal {
        let state = self.state.borrow();
        let (index, timeindex) = state.indexes.as_ref().map(Indexes::file_crcs).unwrap_or_default();
        Seal {
            open: by.open,
            clean: by.clean,
            log_id: by.log_id,
            generation: by.generation,
            base: self.base,
            end: state.end,
            log_bytes: state.bytes,
            newest: state.newest,
            first_timestamp: state.first_timestamp,
            abort_entries: by.aborts.0,
            crcs: FileCrcs { log, txnindex: by.aborts.1, index, timeindex },
        }
    }
}
