//! The files of one shard's commit log: which one is written, which hold what is still needed, which are free.
//!
//! ```text
//!  free ──header with a new number and salt──▶ next ──the group does not fit──▶ current ──▶ full ──released──▶ free
//!    ▲                                                                                        oldest first
//!    └── made, zero-filled
//! ```
//! Files leave `full` and `free` oldest first, so the numbers on disk never have a hole that is not damage.

use std::collections::VecDeque;

use super::log_file::FileHeader;
use super::log_files::{LogFile, MIB};

/// How large files are and how much they may take together, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolLimits {
    /// Size of a file.
    pub(super) file_bytes: u64,
    /// So much of a file is used, whatever its size.
    pub(super) used_bytes_max: u64,
    /// Smallest size worth making.
    pub(super) file_bytes_least: u64,
    /// All files together.
    pub(super) bytes_max: u64,
    /// Kept at the end of the last file for what frees space.
    pub(super) reserve_bytes: u64,
}

impl PoolLimits {
    /// What is used of a file of this size.
    fn usable(&self, file_bytes: u64) -> u64 {
        file_bytes.min(self.used_bytes_max)
    }
}

/// A file that has a header and takes groups.
#[derive(Debug)]
pub(super) struct Begun<F> {
    pub(super) log: LogFile<F>,
    pub(super) header: FileHeader,
    /// Where the next group goes.
    pub(super) position: u64,
    /// The first group in it; 0 while there is none.
    first_sequence: u64,
    /// The last group in it; 0 while there is none.
    pub(super) last_sequence: u64,
}

impl<F> Begun<F> {
    pub(super) fn new(log: LogFile<F>, header: FileHeader) -> Self {
        Self { log, header, position: header.first_group(), first_sequence: 0, last_sequence: 0 }
    }

    fn left(&self, limits: &PoolLimits) -> u64 {
        limits.usable(self.log.bytes).saturating_sub(self.position)
    }
}

/// All files of one shard.
#[derive(Debug)]
pub(super) struct Pool<F> {
    limits: PoolLimits,
    full: VecDeque<Begun<F>>,
    pub(super) current: Begun<F>,
    next: Option<Begun<F>>,
    free: VecDeque<LogFile<F>>,
    /// How many of the last of `free` still have the header of their last use: a recovery without a checkpoint reads them.
    readable_free: usize,
    /// The file that the next one is made of still has such a header.
    is_making_readable: bool,
    /// What the file being prepared will have.
    making_bytes: u64,
    /// The disk had no room for another file when last asked.
    pub(super) is_space_gone: bool,
}

impl<F> Pool<F> {
    pub(super) fn new(limits: PoolLimits, current: Begun<F>) -> Self {
        Self {
            limits,
            full: VecDeque::new(),
            current,
            next: None,
            free: VecDeque::new(),
            readable_free: 0,
            is_making_readable: false,
            making_bytes: 0,
            is_space_gone: false,
        }
    }

    pub(super) fn fits(&self, group_bytes: u64) -> bool {
        self.current.left(&self.limits) >= group_bytes
    }

    /// Goes on to the next file, if one is ready.
    pub(super) fn switch(&mut self) -> bool {
        let Some(next) = self.next.take() else { return false };
        self.full.push_back(std::mem::replace(&mut self.current, next));
        true
    }

    pub(super) fn wrote(&mut self, group_bytes: u64, sequence: u64) {
        self.current.position += group_bytes;
        if self.current.first_sequence == 0 {
            self.current.first_sequence = sequence;
        }
        self.current.last_sequence = sequence;
    }

    /// The oldest file that holds a group behind `sequence`, or the current one.
    pub(super) fn oldest_needed_after(&self, sequence: u64) -> u64 {
        let needed = self.full.iter().find(|file| file.last_sequence > sequence);
        needed.unwrap_or(&self.current).header.file_number
    }

    pub(super) fn oldest_needed(&self) -> u64 {
        self.full.front().unwrap_or(&self.current).header.file_number
    }

    /// Frees the full files with a lower number; true if there were any.
    pub(super) fn release_before(&mut self, file_number: u64) -> bool {
        let mut released = false;
        while self.full.front().is_some_and(|file| file.header.file_number < file_number) {
            self.free.extend(self.full.pop_front().map(|file| file.log));
            self.readable_free += 1;
            released = true;
        }
        released
    }

    /// Takes a file of earlier days that nobody needs any more.
    pub(super) fn adopt(&mut self, log: LogFile<F>) -> Result<(), LogFile<F>> {
        if log.bytes < self.limits.file_bytes_least || self.total_bytes() + log.bytes > self.limits.bytes_max {
            return Err(log);
        }
        self.free.push_back(log);
        self.readable_free += 1;
        Ok(())
    }

    /// The free files whose headers are those of their last use, oldest first.
    pub(super) fn readable_free(&self) -> Vec<LogFile<F>> {
        self.free.range(self.free.len() - self.readable_free..).cloned().collect()
    }

    /// The headers of the first `count` of them are gone.
    pub(super) fn note_unreadable(&mut self, count: usize) {
        self.readable_free -= count;
    }

    /// True when the file that is written holds no group up to `sequence`.
    pub(super) fn is_apart_from(&self, sequence: u64) -> bool {
        self.current.last_sequence == 0 || self.current.first_sequence > sequence
    }

    /// True when all that is missing for [`Self::has_forgotten`] is that free files lose their headers.
    pub(super) fn is_forgetting(&self, sequence: u64) -> bool {
        let is_behind = |file: &Begun<F>| file.first_sequence > sequence || file.last_sequence == 0;
        self.full.iter().chain([&self.current]).all(is_behind)
    }

    /// True when no file that a recovery could read holds a group up to `sequence`.
    pub(super) fn has_forgotten(&self, sequence: u64) -> bool {
        self.readable_free == 0 && !self.is_making_readable && self.is_forgetting(sequence)
    }

    /// Bytes that are still needed.
    pub(super) fn live_bytes(&self) -> u64 {
        self.full.iter().map(|file| self.limits.usable(file.log.bytes)).sum::<u64>() + self.current.position
    }

    pub(super) fn is_more_than_half_live(&self) -> bool {
        let PoolLimits { file_bytes, bytes_max, .. } = self.limits;
        let unused = (file_bytes - self.limits.usable(file_bytes)) * (bytes_max / file_bytes);
        self.live_bytes() > (bytes_max - unused) / 2
    }

    /// There is nothing that a further file could be made of, but full ones that could be released.
    pub(super) fn needs_release(&self) -> bool {
        let has_blank = self.next.is_some() || !self.free.is_empty() || self.making_bytes > 0;
        !has_blank && self.growth() < self.limits.file_bytes_least && !self.full.is_empty()
    }

    /// Bytes of groups that surely still fit, if none is larger than `group_bytes_max`: a file switch wastes up to that much.
    pub(super) fn room(&self, group_bytes_max: u64) -> u64 {
        let next = self.next.iter().map(|file| file.log.bytes);
        let free = self.free.iter().map(|log| log.bytes);
        let waste = group_bytes_max + self.current.header.first_group();
        let further =
            next.chain(free).chain(self.to_be_made()).map(|bytes| self.limits.usable(bytes).saturating_sub(waste));
        self.current.left(&self.limits) + further.sum::<u64>()
    }

    /// No file holds anything that could be released, and one has room for a group of this size.
    pub(super) fn is_all_free_for(&self, group_bytes: u64) -> bool {
        let head = self.current.header.first_group();
        let next = self.next.iter().map(|file| file.left(&self.limits));
        let free = self.free.iter().map(|log| self.limits.usable(log.bytes).saturating_sub(head));
        let has_room = next.chain(free).chain([self.current.left(&self.limits)]).any(|left| left >= group_bytes);
        self.full.is_empty() && has_room
    }

    fn to_be_made(&self) -> impl Iterator<Item = u64> {
        let mut growth = self.growth();
        let more = std::iter::from_fn(move || {
            let bytes = growth.min(self.limits.file_bytes);
            growth -= bytes;
            (bytes >= self.limits.file_bytes_least).then_some(bytes)
        });
        let making = if self.is_space_gone { 0 } else { self.making_bytes };
        std::iter::once(making).chain(more)
    }

    /// Bytes kept for records that free space.
    pub(super) fn reserve_bytes(&self) -> u64 {
        self.limits.reserve_bytes
    }

    /// Bytes by which the files together may still grow.
    pub(super) fn growth(&self) -> u64 {
        if self.is_space_gone { 0 } else { self.limits.bytes_max.saturating_sub(self.total_bytes()) / MIB * MIB }
    }

    fn total_bytes(&self) -> u64 {
        let begun = self.full.iter().chain(&self.next).map(|file| file.log.bytes).sum::<u64>();
        begun + self.current.log.bytes + self.free.iter().map(|log| log.bytes).sum::<u64>() + self.making_bytes
    }

    pub(super) fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// Takes what the next file will be made of, with the size that it is to get.
    pub(super) fn start_making(&mut self) -> Option<(Option<LogFile<F>>, u64)> {
        let growth = self.growth();
        let blank = self.free.pop_front();
        let is_readable = self.readable_free > self.free.len();
        self.readable_free = self.readable_free.min(self.free.len());
        let has = blank.as_ref().map_or(0, |log| log.bytes);
        let target = self.limits.file_bytes.min(has + growth).max(has);
        if target < self.limits.file_bytes_least.min(self.limits.file_bytes) {
            // At the end it counts as one that still has its header, whether it does or not.
            self.readable_free += usize::from(blank.is_some());
            self.free.extend(blank);
            return None;
        }
        self.making_bytes = target;
        self.is_making_readable = is_readable;
        Some((blank, target))
    }

    /// Ends what [`Self::start_making`] began, with or without a file.
    pub(super) fn end_making(&mut self, next: Option<Begun<F>>) {
        self.making_bytes = 0;
        self.is_making_readable = false;
        self.next = next;
    }
}
