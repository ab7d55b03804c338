//! One segment: every batch of it, in reads of one size, beside its indexes and its seal.

use std::path::{Path, PathBuf};

use super::batches::Walk;
use super::derived::Derived;
use super::partition::{Place, lost_below};
use super::{Check, Counts};
use crate::ids::Offset;
use crate::log::crc::RunningCrc;
use crate::log::names::{self, Kind};
use crate::log::scan::{BatchFacts, HEADER_BYTES, ScanEnd, Scanner, Stop};
use crate::runtime::disk::{Access, Create, Disk, DiskFile};
use crate::runtime::read_only_disk::{ReadOnlyDisk, ReadOnlyFile};

/// One read.
const READ_BYTES: usize = 1 << 20;
/// Stretches of one segment that cannot be read; more of them say nothing new.
const STOPS_NAMED: usize = 20;

/// Which segment.
pub(super) struct Subject {
    pub(super) base: Offset,
    pub(super) bytes: u64,
    /// It is the one that is appended to.
    pub(super) is_last: bool,
}

struct Reading<'a> {
    check: &'a Check,
    place: &'a Place,
    subject: &'a Subject,
    path: PathBuf,
    file: ReadOnlyFile,
    buffer: Vec<u8>,
    crc: RunningCrc,
    /// Bytes that `crc` covers.
    covered: u64,
    derived: Derived,
    stops: usize,
}

/// Checks one segment; its batches go to `walk`.
pub(super) fn check(check: &Check, place: &Place, walk: &mut Walk<'_>, subject: &Subject) {
    Counts::add(&check.counts.segments, 1);
    let path = names::path(&place.folder, subject.base, Kind::Log);
    let file = match ReadOnlyDisk.open(&path, Access::Buffered, Create::Never) {
        Ok(file) => file,
        Err(error) => {
            check.findings.damage(&path, None, format!("it cannot be read: {error}"), "");
            return walk.broken();
        }
    };
    let derived = Derived::read(check, place, subject);
    let mut reading = Reading {
        check,
        place,
        subject,
        path,
        file,
        buffer: vec![0; READ_BYTES],
        crc: RunningCrc::default(),
        covered: 0,
        derived,
        stops: 0,
    };
    reading.check_size();
    reading.read_all(walk);
}

impl Reading<'_> {
    fn flushed(&self) -> u64 {
        self.place.flushed_bytes(self.subject.base, self.subject.bytes)
    }

    fn check_size(&self) {
        let (bytes, flushed) = (self.subject.bytes, self.flushed());
        if bytes < flushed {
            let what = format!("it has {bytes} bytes, {flushed} were flushed");
            self.check.findings.damage(&self.path, Some(bytes), what, lost_below(self.place));
        }
    }

    /// Reads from batch to batch; where one is bad, it goes on behind it if anything says where that is.
    fn read_all(&mut self, walk: &mut Walk<'_>) {
        let mut position = 0;
        let mut least = walk.next().map_or(self.subject.base, |next| next.max(self.subject.base));
        loop {
            let end = match self.scan(position, least, walk) {
                Ok(end) => end,
                Err(error) => {
                    let what = format!("it cannot be read: {error}");
                    self.check.findings.damage(&self.path, Some(position), what, "The device has an error there.");
                    return walk.broken();
                }
            };
            let Some(stop) = end.stop else {
                return self.derived.finish(self.check, self.place, self.subject, &end, Some(self.crc.value()));
            };
            if self.is_unflushed_tail(&end, stop, walk) {
                self.advance(self.subject.bytes.saturating_sub(end.position));
                return self.derived.finish(self.check, self.place, self.subject, &end, None);
            }
            let behind = self.behind(&end, stop);
            self.name_stop(&end, stop, behind.as_ref());
            walk.broken();
            let Some((next, offset)) = behind.filter(|_| self.stops < STOPS_NAMED) else {
                self.advance(self.subject.bytes.saturating_sub(end.position));
                return self.derived.finish_broken(self.check, self.place, self.subject);
            };
            if let Err(error) = self.cover(next) {
                self.check.findings.damage(&self.path, Some(position), format!("it cannot be read: {error}"), "");
                return;
            }
            self.derived.pass(next);
            if let Some(offset) = offset {
                walk.pass_to(offset.max(least));
                least = offset.max(least);
            }
            position = next;
        }
    }

    fn scan(&mut self, from: u64, least: Offset, walk: &mut Walk<'_>) -> std::io::Result<ScanEnd> {
        let mut scanner = Scanner::new(self.subject.bytes, from, least);
        while !scanner.is_done() {
            let at = scanner.wants();
            let read = self.file.read_now(at, &mut self.buffer)?;
            if read == 0 {
                break;
            }
            self.advance(read as u64);
            let chunk = &self.buffer[..read];
            let (crc, covered, derived) = (&mut self.crc, &mut self.covered, &mut self.derived);
            let path = &self.path;
            let (check, place) = (self.check, self.place);
            scanner.feed(chunk, &mut |facts: &BatchFacts, bytes: &[u8]| {
                crc.add(bytes);
                *covered = facts.end_position();
                derived.batch(check, place, facts);
                walk.batch(path, facts, bytes);
            });
        }
        Ok(scanner.finish())
    }

    fn advance(&self, bytes: u64) {
        self.check.progress.advance(bytes);
    }

    /// Bytes behind the last flush that a start cuts off, or brings back from the commit log.
    fn is_unflushed_tail(&self, end: &ScanEnd, stop: Stop, walk: &Walk<'_>) -> bool {
        if self.place.is_clean || end.position < self.flushed() {
            return false;
        }
        let rest = self.subject.bytes - end.position;
        let what = format!("{stop}: {rest} bytes behind the last flush are no whole batches");
        let follows = match walk.first_in_log(end.next_offset) {
            Some(offset) => format!(
                "As after a crash: a start cuts them off, and the commit log holds what was acknowledged, from offset {offset} on."
            ),
            None => "As after a crash: a start cuts them off. The commit log holds no batch from here on, so nobody was told of one \
                     that is durable."
                .to_string(),
        };
        self.check.findings.note(&self.path, Some(end.position), what, follows);
        true
    }

    /// Where reading can go on behind a bad stretch, and which offset is the least there.
    fn behind(&self, end: &ScanEnd, stop: Stop) -> Option<(u64, Option<Offset>)> {
        let facts = self.facts_at(end.position);
        match (stop, facts) {
            (Stop::Checksum, Some(facts)) => Some((facts.end_position(), Some(facts.next_offset()))),
            (Stop::OffsetBack, Some(facts)) => Some((facts.end_position(), None)),
            _ => self.derived.next_batch_behind(end.position).map(|(position, _)| (position, None)),
        }
        .filter(|(position, _)| *position > end.position && *position < self.subject.bytes)
    }

    fn facts_at(&self, position: u64) -> Option<BatchFacts> {
        let mut header = [0; HEADER_BYTES];
        let read = self.file.read_now(position, &mut header).ok()?;
        BatchFacts::read(header.get(..read)?, position)
    }

    fn name_stop(&mut self, end: &ScanEnd, stop: Stop, behind: Option<&(u64, Option<Offset>)>) {
        self.stops += 1;
        let what = match (stop, self.facts_at(end.position)) {
            (Stop::Checksum, Some(facts)) => {
                format!("{stop}, which says that it holds the offsets {} to {}", facts.base_offset, facts.last_offset)
            }
            (Stop::OffsetBack, Some(facts)) => format!(
                "{stop}: it says that it begins at {}, where {} or more is expected",
                facts.base_offset, end.next_offset
            ),
            _ => format!("{stop}, where offset {} should follow", end.next_offset),
        };
        let reach = match behind {
            Some((position, _)) => format!("What follows from byte {position} on can be read."),
            None => format!(
                "The {} bytes from here to the end of the file cannot be read.",
                self.subject.bytes - end.position
            ),
        };
        let follows = format!("{reach} {}", self.consequence(end.position));
        self.check.findings.damage(&self.path, Some(end.position), what, follows);
    }

    fn consequence(&self, position: u64) -> String {
        if self.place.is_clean
            && self.subject.is_last
            && self.place.entry.is_none_or(|entry| position >= entry.position)
        {
            return "These bytes are behind the end of the log as it was left: a start cuts them off.".to_string();
        }
        format!("A start does not look at flushed bytes; a consumer that comes here fails. {}", lost_below(self.place))
    }

    /// Goes on with the file's checksum over bytes that are no batches.
    fn cover(&mut self, to: u64) -> std::io::Result<()> {
        while self.covered < to {
            let wanted = usize::try_from(to - self.covered).unwrap_or(usize::MAX).min(self.buffer.len());
            let read = self.file.read_now(self.covered, &mut self.buffer[..wanted])?;
            if read == 0 {
                return Ok(());
            }
            self.crc.add(&self.buffer[..read]);
            self.covered += read as u64;
        }
        Ok(())
    }
}

/// The name of a file in findings that are about a segment's neighbours.
pub(super) fn file_of(place: &Place, base: Offset, kind: Kind) -> PathBuf {
    names::path(&place.folder, base, kind)
}

/// The content of a small file; `None` when it is not there.
pub(super) fn content_of(path: &Path) -> std::io::Result<Option<bytes::Bytes>> {
    match crate::runtime::executors::block_on(ReadOnlyDisk.read_file(path)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}
