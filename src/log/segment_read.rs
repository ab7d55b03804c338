//! The reading side of a segment: find an offset or a time, read whole batches, walk everything.
//!
//! Headers are hopped over in small reads from the index's floor on; records are never decoded here. Where the exact
//! record matters, the caller gives a function that looks into one batch.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::index::{Indexes, TimestampOffset};
use super::names::Kind;
use super::scan::{BatchFacts, HEADER_BYTES, ScanEnd, Scanner};
use super::segment::Segment;
use crate::ids::Offset;
use crate::runtime::disk::{Disk, DiskFile};

/// One read while hopping: an index interval and what stands around it.
const HOP_BYTES: usize = 8 << 10;
/// One read while walking everything.
const WALK_BYTES: usize = 1 << 20;
/// Sequential readers remembered in each segment.
const CURSORS_MAX: usize = 8;

/// Whole batches out of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where they begin in the file.
    pub position: u64,
    /// Base offset of the first one; the offset that was asked for is in it or before it.
    pub base_offset: Offset,
    /// The offset that follows them.
    pub next_offset: Offset,
    /// The batches, at least one.
    pub bytes: Bytes,
}

impl Chunk {
    /// The whole batches at the start of `bytes`, where `first` is; `None` when not even that one is whole or fits.
    fn cut(mut bytes: Bytes, first: &BatchFacts, limits: ReadLimits) -> Option<Self> {
        let fits = limits.bytes_max.max(if limits.first_whole { first.bytes as usize } else { 0 });
        bytes.truncate(fits);
        let (whole, next_offset) = whole_batches(&bytes, first.position);
        bytes.truncate(whole);
        (whole > 0).then_some(Self { position: first.position, base_offset: first.base_offset, next_offset, bytes })
    }
}

/// What may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// No more bytes than this, except for `first_whole`.
    pub bytes_max: usize,
    /// End of what the reader may see, as a position in this file; a batch boundary.
    pub upper: u64,
    /// The first batch is handed out whole even when it is larger than `bytes_max`.
    pub first_whole: bool,
}

impl ReadLimits {
    fn below_upper(&self, position: u64, wanted: usize) -> usize {
        usize::try_from(self.upper.saturating_sub(position)).unwrap_or(usize::MAX).min(wanted)
    }
}

impl<D: Disk> Segment<D> {
    /// The first batch that holds `offset` or begins behind it, below the position `upper`.
    ///
    /// # Errors
    /// Those of reading; `InvalidData` with file and position when there is no batch where one must be.
    pub async fn locate(&self, offset: Offset, upper: u64) -> io::Result<Option<BatchFacts>> {
        let mut headers = Headers::new(self, upper)?;
        let mut position = self.floor(&mut headers, offset).await?;
        while position < upper {
            let batch = headers.must_have(position).await?;
            if batch.last_offset >= offset {
                return Ok(Some(batch));
            }
            position = batch.end_position();
        }
        Ok(None)
    }

    /// Whole batches from the one that holds `offset` on; `None` when nothing (that fits) is there.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub async fn read(&self, offset: Offset, limits: ReadLimits) -> io::Result<Option<Chunk>> {
        let chunk = match self.read_at_once(offset, limits).await? {
            Some(chunk) => Some(chunk),
            None => self.read_located(offset, limits).await?,
        };
        if let Some(chunk) = &chunk {
            self.remember_cursor(chunk.next_offset, chunk.position + chunk.bytes.len() as u64);
        }
        Ok(chunk)
    }

    /// The usual case, one read: the batch is near the floor and not large. `None` says nothing.
    async fn read_at_once(&self, offset: Offset, limits: ReadLimits) -> io::Result<Option<Chunk>> {
        let floor = match self.take_cursor(offset) {
            Some(position) => position,
            None => {
                self.load_indexes().await?;
                self.index_floor(offset)
            }
        };
        let wanted = limits.below_upper(floor, limits.bytes_max.saturating_add(HOP_BYTES));
        let bytes = self.log_file()?.read_at(floor, wanted).await?;
        let Some(first) = find_batch(&bytes, floor, offset) else { return Ok(None) };
        let from = usize::try_from(first.position - floor).unwrap_or(usize::MAX);
        Ok(Chunk::cut(bytes.slice(from..), &first, limits))
    }

    async fn read_located(&self, offset: Offset, limits: ReadLimits) -> io::Result<Option<Chunk>> {
        let Some(first) = self.locate(offset, limits.upper).await? else { return Ok(None) };
        let least = if limits.first_whole { first.bytes as usize } else { 0 };
        let wanted = limits.below_upper(first.position, limits.bytes_max.max(least));
        if wanted < first.bytes as usize {
            return Ok(None);
        }
        let bytes = self.log_file()?.read_at(first.position, wanted).await?;
        Chunk::cut(bytes, &first, limits).map(Some).ok_or_else(|| self.no_batch(first.position))
    }

    /// The first record at or behind `from` whose timestamp is at least `timestamp`.
    ///
    /// Shapes: `exact` gets one whole batch and finds the record in it, with its timestamp; `None` when there is none
    /// (then the search goes on behind that batch).
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub async fn find_by_time(
        &self,
        timestamp: i64,
        from: Offset,
        upper: u64,
        mut exact: impl FnMut(&[u8]) -> Option<TimestampOffset>,
    ) -> io::Result<Option<TimestampOffset>> {
        self.load_indexes().await?;
        let mut position =
            self.state.borrow().indexes.as_ref().map_or(0, |indexes| indexes.lookup_time(timestamp, from));
        let mut headers = Headers::new(self, upper)?;
        if headers.at(position).await?.is_none() {
            position = 0;
        }
        while position < upper {
            let batch = headers.must_have(position).await?;
            if batch.max_timestamp >= timestamp && batch.last_offset >= from {
                let bytes = self.read_batch(&batch).await?;
                if let Some(found) = exact(&bytes) {
                    return Ok(Some(found));
                }
            }
            position = batch.end_position();
        }
        Ok(None)
    }

    /// The first record that has the largest timestamp of the segment; `exact` finds it in its batch.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub async fn find_newest(
        &self,
        upper: u64,
        mut exact: impl FnMut(&[u8]) -> Option<TimestampOffset>,
    ) -> io::Result<Option<TimestampOffset>> {
        self.load_indexes().await?;
        let Some(newest) = self.newest_timestamp() else { return Ok(None) };
        let Some(batch) = self.locate(newest.offset, upper).await? else { return Ok(None) };
        let bytes = self.read_batch(&batch).await?;
        Ok(exact(&bytes))
    }

    /// The whole bytes of one batch.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub async fn read_batch(&self, batch: &BatchFacts) -> io::Result<Bytes> {
        let bytes = self.log_file()?.read_at(batch.position, batch.bytes as usize).await?;
        if bytes.len() == batch.bytes as usize { Ok(bytes) } else { Err(self.no_batch(batch.position)) }
    }

    /// Checks everything from `from` to `file_bytes` and hands out each whole batch with its bytes.
    ///
    /// # Errors
    /// Those of reading; bytes that are no batch are not an error but the end.
    pub async fn walk(
        &self,
        from: u64,
        file_bytes: u64,
        min_offset: Offset,
        on_batch: impl FnMut(&BatchFacts, &[u8]),
    ) -> io::Result<ScanEnd> {
        self.scan(Scanner::new(file_bytes, from, min_offset), on_batch).await
    }

    /// The same with a scan of one's own.
    pub(super) async fn scan(
        &self,
        mut scanner: Scanner,
        mut on_batch: impl FnMut(&BatchFacts, &[u8]),
    ) -> io::Result<ScanEnd> {
        let file = self.log_file()?;
        while !scanner.is_done() {
            let chunk = file.read_at(scanner.wants(), WALK_BYTES).await?;
            if chunk.is_empty() {
                break;
            }
            scanner.feed(&chunk, &mut on_batch);
        }
        Ok(scanner.finish())
    }

    pub(super) async fn first_header(&self) -> io::Result<Option<BatchFacts>> {
        Headers::new(self, self.bytes())?.at(0).await
    }

    /// Hands out the headers from `from` to `upper`; false when something there is no batch.
    pub(super) async fn hop(&self, from: u64, upper: u64, mut on_batch: impl FnMut(&BatchFacts)) -> io::Result<bool> {
        let mut headers = Headers::new(self, upper)?;
        let mut position = from;
        while position < upper {
            let Some(batch) = headers.at(position).await? else { return Ok(false) };
            on_batch(&batch);
            position = batch.end_position();
        }
        Ok(true)
    }

    /// Hands out the bytes of `.log` from `from` to `to` in large pieces.
    pub(super) async fn read_through(&self, from: u64, to: u64, mut on_chunk: impl FnMut(&[u8])) -> io::Result<()> {
        let file = self.log_file()?;
        let mut position = from;
        while position < to {
            let wanted = usize::try_from(to - position).unwrap_or(usize::MAX).min(WALK_BYTES);
            let chunk = file.read_at(position, wanted).await?;
            if chunk.is_empty() {
                return Err(self.no_batch(position));
            }
            on_chunk(&chunk);
            position += chunk.len() as u64;
        }
        Ok(())
    }

    /// Where to begin to hop: a reader's last end, else the index; an index that points at no batch is made anew.
    async fn floor(&self, headers: &mut Headers<'_, D>, offset: Offset) -> io::Result<u64> {
        if let Some(position) = self.take_cursor(offset) {
            return Ok(position);
        }
        self.load_indexes().await?;
        let position = self.index_floor(offset);
        if headers.may_begin(position, offset).await? {
            return Ok(position);
        }
        self.rebuild().await?;
        let position = self.index_floor(offset);
        Ok(if headers.may_begin(position, offset).await? { position } else { 0 })
    }

    fn index_floor(&self, offset: Offset) -> u64 {
        self.state.borrow().indexes.as_ref().map_or(0, |indexes: &Indexes| indexes.offsets.lookup(offset))
    }

    fn take_cursor(&self, offset: Offset) -> Option<u64> {
        let cursors = &mut self.state.borrow_mut().cursors;
        let at = cursors.iter().position(|(next, _)| *next == offset)?;
        Some(cursors.remove(at).1)
    }

    fn remember_cursor(&self, next: Offset, position: u64) {
        let cursors = &mut self.state.borrow_mut().cursors;
        if cursors.len() == CURSORS_MAX {
            cursors.remove(0);
        }
        cursors.push((next, position));
    }

    fn no_batch(&self, position: u64) -> io::Error {
        let path = self.path(Kind::Log);
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: no record batch at byte {position}", path.display()))
    }
}

/// The batch that holds `offset`, looked for from the start of `bytes`, where a batch at or before it must begin.
fn find_batch(bytes: &[u8], position: u64, offset: Offset) -> Option<BatchFacts> {
    let mut batch = BatchFacts::read(bytes, position)?;
    if position > 0 && batch.base_offset > offset {
        return None;
    }
    while batch.last_offset < offset {
        let at = usize::try_from(batch.end_position() - position).ok()?;
        batch = BatchFacts::read(bytes.get(at..)?, batch.end_position())?;
    }
    Some(batch)
}

/// Length of the whole batches at the start of `bytes` and the offset that follows them.
fn whole_batches(bytes: &[u8], position: u64) -> (usize, Offset) {
    let mut whole = 0;
    let mut next = Offset(0);
    while let Some(batch) = BatchFacts::read(&bytes[whole..], position + whole as u64) {
        if bytes.len() - whole < batch.bytes as usize {
            break;
        }
        whole += batch.bytes as usize;
        next = batch.next_offset();
    }
    (whole, next)
}

/// Batch headers by position, through small reads.
struct Headers<'a, D: Disk> {
    segment: &'a Segment<D>,
    file: Rc<D::File>,
    upper: u64,
    chunk: Bytes,
    chunk_at: u64,
}

impl<'a, D: Disk> Headers<'a, D> {
    fn new(segment: &'a Segment<D>, upper: u64) -> io::Result<Self> {
        Ok(Self { segment, file: segment.log_file()?, upper, chunk: Bytes::new(), chunk_at: 0 })
    }

    /// The header at `position`; `None` where none can be, or a batch that reaches over `upper`.
    async fn at(&mut self, position: u64) -> io::Result<Option<BatchFacts>> {
        if self.held(position).is_none() {
            self.chunk = self.file.read_at(position, HOP_BYTES).await?;
            self.chunk_at = position;
        }
        let batch = self.held(position).and_then(|header| BatchFacts::read(header, position));
        Ok(batch.filter(|batch| batch.end_position() <= self.upper))
    }

    /// True when looking for `offset` may begin at `position`.
    async fn may_begin(&mut self, position: u64, offset: Offset) -> io::Result<bool> {
        Ok(position == 0 || self.at(position).await?.is_some_and(|batch| batch.base_offset <= offset))
    }

    async fn must_have(&mut self, position: u64) -> io::Result<BatchFacts> {
        self.at(position).await?.ok_or_else(|| self.segment.no_batch(position))
    }

    fn held(&self, position: u64) -> Option<&[u8]> {
        let at = usize::try_from(position.checked_sub(self.chunk_at)?).ok()?;
        self.chunk.get(at..at + HEADER_BYTES)
    }
}
