//! What lies below the recovery point: flushed, not walked, and missed only when names, sizes or seals tell of it
//! (docs/adr/0013-named-losses.md). What is gone comes out of the commit log as far as that still has it.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::{Files, Recovery, Searched, Step, Stopped};
use crate::ids::Offset;
use crate::log::closed;
use crate::log::log_reader::RecordReader;
use crate::log::names::{self, Kind};
use crate::log::scan::{BatchFacts, Gaps};
use crate::log::segment::Segment;
use crate::runtime::clock;
use crate::runtime::disk::Disk;

impl<D: Disk, F: FnMut(&BatchFacts, &[u8], Option<i64>)> Recovery<'_, D, F> {
    /// Adds the segments that must be there and are not to `files`, without a byte.
    pub(super) fn add_missing(&mut self, files: &mut Files, orphans: BTreeSet<Offset>) {
        if self.given.entry.is_none() {
            return;
        }
        let mut missing: BTreeSet<Offset> = orphans.into_iter().filter(|base| *base < self.point.base).collect();
        if self.start < self.point.offset {
            if self.point.position > 0 {
                missing.insert(self.point.base);
            }
            let first = files.iter().map(|file| file.0).chain(missing.iter().copied()).min();
            if first.is_none_or(|first| first > self.start) {
                missing.insert(self.name_of_first());
            }
        }
        missing.retain(|base| files.iter().all(|file| file.0 != *base));
        files.extend(missing.iter().map(|base| (*base, 0)));
        files.sort_unstable();
        self.missing = missing;
    }

    /// A first segment that left no trace gets the offset of a batch in the commit log at or below the log start.
    fn name_of_first(&self) -> Offset {
        let logged = self.given.located.iter().map(|one| one.offset).filter(|offset| *offset <= self.start);
        logged.max().unwrap_or(self.start)
    }

    /// A segment below the recovery point, which ends where the next one begins. Its seal says how long it must be.
    pub(super) async fn adopt_closed(
        &mut self,
        base: Offset,
        bytes: u64,
        end: Offset,
        reader: &mut RecordReader<D>,
    ) -> Step<()> {
        let sealed = match self.sealed.contains(&base) {
            true => closed::sealed_bytes(self.disk, &self.given.folder, base).await,
            false => None,
        };
        let sealed = sealed.unwrap_or(bytes);
        if self.missing.contains(&base) || bytes < sealed {
            return self.mend(base, end, reader).await;
        }
        let segment = self.existing(base, sealed, end);
        if bytes > sealed {
            let path = segment.path(Kind::Log);
            self.notes.push(format!("{}: {} bytes behind its end are not looked at", path.display(), bytes - sealed));
        }
        self.segments.push(segment);
        Ok(())
    }

    /// A segment whose file is gone, or shorter than what was flushed: what is whole is kept, and the rest comes out of the
    /// commit log as far as that has it.
    pub(super) async fn mend(&mut self, base: Offset, end: Offset, reader: &mut RecordReader<D>) -> Step<()> {
        if self.given.searched != Searched::All {
            return Err(Stopped::WantsMore);
        }
        self.has_changed = true;
        let is_missing = self.missing.contains(&base);
        let from = base.max(self.start);
        if is_missing && !self.given.located.iter().any(|one| one.offset >= base && one.offset < end) {
            self.lose(from, end).await?;
            if self.segments.is_empty() {
                self.start = self.start.max(end);
            }
            return Ok(self.remove_segment(base).await?);
        }
        self.remove_seal(base).await?;
        let segment = if is_missing { self.make(base)? } else { self.existing(base, 0, base) };
        let (bytes, whole_end) = Self::keep_whole(&segment, end).await?;
        let path = segment.path(Kind::Log);
        self.notes.push(format!("{}: is cut or gone, {bytes} bytes of it are whole", path.display()));
        self.refill(&segment, whole_end, end, reader).await?;
        segment.flush_indexes().await?;
        self.segments.push(segment);
        Ok(())
    }

    /// An empty segment.
    pub(super) fn make(&self, base: Offset) -> std::io::Result<Rc<Segment<D>>> {
        let (disk, folder) = (self.disk.clone(), Rc::clone(&self.given.folder));
        Segment::create(disk, folder, base, self.given.rules.index, clock::now_ms()).map(Rc::new)
    }

    /// Cuts a segment behind its last whole batch below `end`.
    async fn keep_whole(segment: &Segment<D>, end: Offset) -> std::io::Result<(u64, Offset)> {
        let mut whole = (0, segment.base());
        let note = |batch: &BatchFacts, _: &[u8]| {
            if batch.next_offset() <= end {
                whole = (batch.end_position(), batch.next_offset());
            }
        };
        segment.recover(0, segment.base(), Gaps::Allowed, note).await?;
        if segment.bytes() > whole.0 {
            segment.truncate(whole.0, whole.1).await?;
        }
        Ok(whole)
    }

    /// Appends what the commit log still has of a stretch below the recovery point. Its producers are in the checkpoint.
    async fn refill(
        &mut self,
        segment: &Segment<D>,
        from: Offset,
        to: Offset,
        reader: &mut RecordReader<D>,
    ) -> Step<()> {
        let mut end = from;
        for one in self.given.located {
            if one.offset < end || one.offset >= to {
                continue;
            }
            let (facts, bytes) = self.read(one, reader).await?;
            if facts.next_offset() > self.start {
                self.lose(end.max(self.start), facts.base_offset).await?;
                let position = segment.bytes();
                segment.note_batch(&BatchFacts { position, ..facts });
                segment.write_now(position, &[&bytes])?;
            }
            end = facts.next_offset();
        }
        self.lose(end.max(self.start), to).await
    }

    /// A seal must not outlive what it says: it goes before the bytes of its segment change.
    pub(super) async fn remove_seal(&self, base: Offset) -> std::io::Result<()> {
        self.disk.remove_file(&names::path(&self.given.folder, base, Kind::Seal)).await
    }
}
