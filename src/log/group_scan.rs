//! Reads the groups of one log file, and tells the end of a log from damage in it.
//!
//! Guarantees: a group is taken only if checksums, file number, salt and sequence fit, and only where the previous one
//! ended. Behind a bad group nothing is taken for granted: later blocks are only searched for a whole valid group of the
//! same salt and a higher number, whose presence shows that the bad one had been written whole (storage rules S2, S3).

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::crc::crc32c;
use super::log_file::{Fault, FileHeader, GroupHeader, HEADER_BYTES, Records};
use super::log_files::{named, unknown_version};
use crate::runtime::aligned::BLOCK;
use crate::runtime::disk::DiskFile;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 1 << 20;

/// The part of a file that was read last.
#[derive(Debug, Default)]
pub(crate) struct Window {
    at: u64,
    bytes: Bytes,
}

impl Window {
    /// `length` bytes from `at` on, fewer only at the end of the file; reads `ahead` bytes when it must read.
    pub(crate) async fn get<F: DiskFile>(
        &mut self,
        file: &F,
        at: u64,
        length: usize,
        ahead: usize,
    ) -> io::Result<Bytes> {
        if at < self.at || at + length as u64 > self.at + self.bytes.len() as u64 {
            // Direct reads want whole blocks.
            let start = at / BLOCK as u64 * BLOCK as u64;
            let before = usize::try_from(at - start).map_err(io::Error::other)?;
            self.bytes = file.read_at(start, (before + length).max(ahead).next_multiple_of(BLOCK)).await?;
            self.at = start;
        }
        let from = usize::try_from(at - self.at).map_err(io::Error::other)?.min(self.bytes.len());
        Ok(self.bytes.slice(from..self.bytes.len().min(from + length)))
    }
}

/// A valid group.
#[derive(Debug)]
pub(crate) struct FoundGroup {
    pub(crate) header: GroupHeader,
    /// Position of the group in the file.
    pub(crate) position: u64,
    /// Its records.
    pub(crate) payload: Bytes,
}

impl FoundGroup {
    pub(crate) fn sequence(&self) -> u64 {
        self.header.stamp.sequence
    }

    /// Position of the first record.
    pub(crate) fn payload_at(&self) -> u64 {
        self.position + HEADER_BYTES as u64
    }
}

/// What stands at the place where the next group is expected.
#[derive(Debug)]
pub(crate) enum Step {
    /// That group.
    Group(FoundGroup),
    /// Something bad, and behind it this group.
    Damaged(FoundGroup),
    /// Nothing more in this file.
    End,
}

/// The groups of one file, one after another.
pub(crate) struct GroupScan<'a, F> {
    file: &'a F,
    path: &'a Path,
    header: FileHeader,
    /// Where the next group is expected.
    pub(crate) position: u64,
    end: u64,
    window: Window,
}

impl<'a, F: DiskFile> GroupScan<'a, F> {
    pub(crate) fn new(file: &'a F, path: &'a Path, header: FileHeader) -> io::Result<Self> {
        let bytes = file.bytes().map_err(named(path, "cannot find the size of"))?;
        let end = bytes.min(header.file_bytes());
        Ok(Self { file, path, header, position: header.first_group(), end, window: Window::default() })
    }

    /// Whether the file is shorter than when it was begun.
    pub(crate) fn is_cut(&self) -> bool {
        self.end < self.header.file_bytes()
    }

    /// The next group; `expected` is its number, or `None` where any number may come first.
    pub(crate) async fn next(&mut self, expected: Option<u64>) -> io::Result<Step> {
        if let Some(group) = self.group_at(self.position).await?
            && expected.is_none_or(|expected| expected == group.sequence())
        {
            return Ok(Step::Group(self.pass(group)));
        }
        let mut position = self.position;
        while position < self.end {
            if let Some(group) = self.group_at(position).await?
                && expected.is_none_or(|expected| expected < group.sequence())
            {
                return Ok(Step::Damaged(self.pass(group)));
            }
            position += self.header.block_bytes() as u64;
        }
        Ok(Step::End)
    }

    /// Whether a group of this use of the file was begun where the next one is expected: its end did not come to the disk,
    /// or something has changed it since.
    pub(crate) async fn is_torn(&mut self) -> io::Result<bool> {
        let bytes = self.read(self.position, HEADER_BYTES).await?;
        Ok(GroupHeader::is_begun(&bytes, &self.header))
    }

    fn pass(&mut self, group: FoundGroup) -> FoundGroup {
        self.position = group.position + group.header.disk_bytes(&self.header) as u64;
        group
    }

    /// The valid group that begins at `position`, if there is one.
    async fn group_at(&mut self, position: u64) -> io::Result<Option<FoundGroup>> {
        if position + self.header.block_bytes() as u64 > self.end {
            return Ok(None);
        }
        let bytes = self.read(position, HEADER_BYTES).await?;
        let Some(header) = self.known(GroupHeader::decode(&bytes, &self.header))? else { return Ok(None) };
        if position + header.disk_bytes(&self.header) as u64 > self.end {
            return Ok(None);
        }
        let payload = self.read(position + HEADER_BYTES as u64, header.payload_bytes as usize).await?;
        if crc32c(&payload) != header.payload_crc || !self.are_records_whole(&header, &payload)? {
            return Ok(None);
        }
        Ok(Some(FoundGroup { header, position, payload }))
    }

    fn are_records_whole(&self, header: &GroupHeader, payload: &[u8]) -> io::Result<bool> {
        let mut count = 0;
        for record in Records::new(payload) {
            if self.known(record)?.is_none() {
                return Ok(false);
            }
            count += 1;
        }
        Ok(count == header.records)
    }

    fn known<T>(&self, found: Result<T, Fault>) -> io::Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Fault::Damaged) => Ok(None),
            Err(Fault::UnknownVersion(version)) => Err(unknown_version(self.path, version)),
        }
    }

    async fn read(&mut self, at: u64, length: usize) -> io::Result<Bytes> {
        self.window.get(self.file, at, length, READ_BYTES).await.map_err(named(self.path, "cannot read"))
    }
}
