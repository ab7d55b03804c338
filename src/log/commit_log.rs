//! The commit log of one shard: what makes a record durable, with one write for everything that arrived meanwhile.
//!
//! Guarantees:
//! * [`CommitLog::durable`] names only groups that are on disk, and all before them.
//! * At most one group is being written; groups are written in the order of their numbers.
//! * A block that holds acknowledged bytes is not written again before [`CommitLog::release_before`] gave its file up.
//! * After a failed write nothing more is written (architecture decision D10); whoever waits is woken.
//!
//! Three tasks meet here. Those that stage records call [`CommitLog::push`], without waiting. The commit task
//! ([`CommitLog::run`]) writes group after group. A background task makes the next file ready before it is needed.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::commit_pace::{CommitMode, CommitStats, INLINE_BYTES_MAX, Pace};
use super::group_queue::{Due, Group, GroupLimits, GroupQueue};
use super::log_file::{GroupStamp, LogRecord, encode_group, group_bytes, record_bytes};
use super::log_files::{LogFile, MIB, named};
use super::log_maker::{free_name, header_of, make_file, open_all};
use super::log_pool::{Begun, Pool, PoolLimits};
use crate::runtime::aligned::AlignedBuf;
use crate::runtime::clock;
use crate::runtime::disk::{Create, Disk, DiskFile, short_write};
use crate::runtime::host::{self, Queue};
use crate::runtime::signal::{Bell, Mark, rung_or_elapsed};

/// Sizes and habits of a commit log.
#[derive(Clone, Copy, Debug)]
pub struct CommitSettings {
    /// Size of a file in bytes, a multiple of 1 MiB and at least twice the largest record.
    pub file_bytes: u64,
    /// So much of a file is used before the next one is begun, whatever its size; for tests.
    pub used_bytes_max: u64,
    /// Size of the very first file, small so that a fresh start is quick.
    pub first_file_bytes: u64,
    /// All files together, in bytes.
    pub bytes_max: u64,
    /// Block size in bytes, as a power of two.
    pub block_log2: u16,
    /// Most bytes of a group, unless a single record is larger.
    pub group_bytes_max: usize,
    /// Most records of a group.
    pub group_records_max: usize,
    /// A group that nobody waits for is written at this size in bytes …
    pub lazy_bytes: usize,
    /// … or after this time.
    pub lazy_wait: Duration,
    /// How commits are written.
    pub mode: CommitMode,
}

impl CommitSettings {
    /// Settings for a file system of `total_bytes` that `shards` shards share: 2 to 8 files of up to 64 MiB each, together
    /// an eighth of it; files are larger only where a record of `record_bytes_max` asks for it.
    #[must_use]
    pub fn for_space(total_bytes: u64, shards: u64, record_bytes_max: u64) -> Self {
        let share = total_bytes / 8 / shards.max(1);
        let least = (share / 2).clamp(2 * MIB, 4 * MIB);
        let asked = (2 * record_bytes_max + MIB).next_multiple_of(MIB);
        let file_bytes = ((share / 8).clamp(least, 64 * MIB) / MIB * MIB).max(asked);
        let files = (share / file_bytes).clamp(2, 8);
        Self {
            file_bytes,
            used_bytes_max: u64::MAX,
            first_file_bytes: file_bytes.min(16 * MIB),
            bytes_max: files * file_bytes,
            block_log2: 12,
            group_bytes_max: usize::try_from(MIB.min(file_bytes / 4)).unwrap_or(1 << 20),
            group_records_max: 512,
            lazy_bytes: 256 << 10,
            lazy_wait: Duration::from_millis(50),
            mode: CommitMode::Auto,
        }
    }

    fn group_limits(&self) -> GroupLimits {
        GroupLimits {
            block_bytes: self.block_bytes(),
            bytes_max: self.group_bytes_max,
            records_max: self.group_records_max,
            lazy_bytes: self.lazy_bytes,
            lazy_wait: self.lazy_wait,
        }
    }

    pub(super) fn pool_limits(&self) -> PoolLimits {
        PoolLimits {
            file_bytes: self.file_bytes,
            used_bytes_max: self.used_bytes_max,
            file_bytes_least: self.first_file_bytes.min(self.file_bytes),
            bytes_max: self.bytes_max,
            reserve_bytes: MIB.min(self.usable_bytes() / 4),
        }
    }

    /// What is used of a file.
    fn usable_bytes(&self) -> u64 {
        self.file_bytes.min(self.used_bytes_max)
    }

    fn block_bytes(&self) -> usize {
        1 << self.block_log2
    }
}

/// Which log it is.
#[derive(Clone, Debug)]
pub struct LogIdentity {
    /// The shard's folder, `corelane/shard-<n>`.
    pub folder: PathBuf,
    /// The shard's number.
    pub shard: u32,
    /// Generation of the store that the groups will belong to.
    pub generation: u64,
    /// Id of the store.
    pub store_id: [u8; 16],
    /// Number of the first file: higher than any in the folder.
    pub first_file_number: u64,
}

/// The commit log of one shard; a clone is the same log.
pub struct CommitLog<D: Disk> {
    pub(super) shared: Rc<Shared<D>>,
}

impl<D: Disk> Clone for CommitLog<D> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared) }
    }
}

pub(super) struct Shared<D: Disk> {
    pub(super) disk: D,
    pub(super) identity: LogIdentity,
    pub(super) settings: CommitSettings,
    queue: RefCell<GroupQueue>,
    pub(super) pool: RefCell<Pool<D::File>>,
    pace: RefCell<Pace>,
    pub(super) next_file_number: Cell<u64>,
    pub(super) next_name: Cell<u64>,
    /// Bytes of the group that the commit task holds.
    writing_bytes: Cell<u64>,
    largest_group_bytes: Cell<usize>,
    /// Bytes of a group that waits for a file.
    pub(super) starving: Cell<Option<u64>>,
    failure: RefCell<Option<Rc<str>>>,
    pub(super) stopping: Cell<bool>,
    under_pressure: Cell<bool>,
    pub(super) durable: Mark,
    /// The next group begins a new file, if one is ready.
    wants_new_file: Cell<bool>,
    /// Raised whenever there may be more room than before.
    pub(super) supply: Mark,
    due: Bell,
    pub(super) wanted: Bell,
    pressure: Bell,
}

/// Where a group goes.
struct Place<F> {
    log: LogFile<F>,
    position: u64,
    stamp: GroupStamp,
}

impl<D: Disk> CommitLog<D> {
    /// Begins a log: its first file is made, or one of `free_files` (which nobody needs any more) is used again.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn create(
        disk: D,
        identity: LogIdentity,
        free_files: &[PathBuf],
        settings: CommitSettings,
    ) -> io::Result<Self> {
        let folder = &identity.folder;
        disk.create_dir_all(folder).map_err(named(folder, "cannot make"))?;
        let mut blanks = open_all(&disk, free_files)?;
        let name = free_name(&disk, &identity)?;
        let least = settings.pool_limits().file_bytes_least;
        let used = blanks.iter().position(|log| log.bytes >= least).map(|at| blanks.remove(at));
        let log = match used {
            Some(log) => log,
            None => make_file(&disk, &identity, name, settings.first_file_bytes).await?,
        };
        let header = header_of(&identity, &settings, identity.first_file_number, &log);
        log.begin(&header).await?;
        let made = Self::new(disk, identity, settings, Begun::new(log, header));
        made.shared.next_name.set(name + 1);
        for blank in blanks {
            made.adopt_file(blank).await?;
        }
        Ok(made)
    }

    fn new(disk: D, identity: LogIdentity, settings: CommitSettings, first: Begun<D::File>) -> Self {
        let shared = Shared {
            disk,
            queue: RefCell::new(GroupQueue::new(settings.group_limits(), 0)),
            pool: RefCell::new(Pool::new(settings.pool_limits(), first)),
            pace: RefCell::new(Pace::new(settings.mode)),
            next_file_number: Cell::new(identity.first_file_number + 1),
            next_name: Cell::default(),
            writing_bytes: Cell::default(),
            largest_group_bytes: Cell::new(settings.group_bytes_max),
            starving: Cell::default(),
            failure: RefCell::default(),
            stopping: Cell::default(),
            under_pressure: Cell::default(),
            durable: Mark::default(),
            wants_new_file: Cell::default(),
            supply: Mark::default(),
            due: Bell::default(),
            wanted: Bell::default(),
            pressure: Bell::default(),
            identity,
            settings,
        };
        Self { shared: Rc::new(shared) }
    }

    /// Gives the log a file of an earlier generation that nobody needs any more; what is more than the log may have is removed.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn adopt(&self, path: PathBuf) -> io::Result<()> {
        let log = LogFile::open(&self.shared.disk, &path, Create::Never)?;
        self.adopt_file(log).await
    }

    async fn adopt_file(&self, log: LogFile<D::File>) -> io::Result<()> {
        let refused = self.shared.pool.borrow_mut().adopt(log);
        if let Err(log) = refused {
            self.shared.disk.remove_file(&log.path).await.map_err(named(&log.path, "cannot remove"))?;
        }
        self.more_room();
        Ok(())
    }

    /// Puts a record into the open group and returns the number of that group: wait for it with [`Self::durable`].
    ///
    /// A `lazy` record may wait for up to 50 ms (a group of only such records that reached 256 KiB is written at once).
    /// Ask [`Self::has_room`] before; after a failure the record is dropped and its group never durable.
    ///
    /// # Panics
    /// For a record larger than [`Self::record_bytes_max`], a bug of the caller.
    pub fn push(&self, record: LogRecord, lazy: bool) -> u64 {
        let shared = &self.shared;
        let bytes = group_bytes(record.encoded_bytes(), shared.settings.block_bytes());
        assert!(record.data.len() <= self.record_bytes_max(), "record of {} bytes", record.data.len());
        if shared.failure.borrow().is_some() {
            return shared.queue.borrow().last_sequence() + 1;
        }
        shared.largest_group_bytes.set(shared.largest_group_bytes.get().max(bytes));
        let sequence = shared.queue.borrow_mut().push(record, lazy, clock::monotonic);
        shared.due.ring();
        sequence
    }

    /// [`Self::push`] for records that free space (log start, catalog): these may also use the last MiB of the last file.
    ///
    /// `None` when that is used up too.
    pub fn push_reserved(&self, record: LogRecord) -> Option<u64> {
        self.has_room_beside(record.data.len(), 0).then(|| self.push(record, false))
    }

    /// Largest record data in bytes that a file can take.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        usize::try_from(self.shared.settings.usable_bytes() / 2).unwrap_or(usize::MAX)
    }

    /// Whether a record with `data_bytes` of data may be pushed now.
    #[must_use]
    pub fn has_room(&self, data_bytes: usize) -> bool {
        let reserve = self.shared.pool.borrow().reserve_bytes();
        self.has_room_beside(data_bytes, reserve)
    }

    /// What to ask [`Self::has_room`] for before records of `total` bytes, each at most `largest`, are pushed: they need not
    /// fit into one file, and more than there can ever be is not waited for.
    #[must_use]
    pub fn room_for(&self, total: usize, largest: usize) -> usize {
        let quarter = usize::try_from(self.shared.settings.usable_bytes() / 4).unwrap_or(usize::MAX);
        total.min(largest.max(quarter))
    }

    /// Ready when [`Self::has_room`] is true, or the log failed: then false.
    pub async fn wait_for_room(&self, data_bytes: usize) -> bool {
        let reserve = self.shared.pool.borrow().reserve_bytes();
        self.wait_for_room_beside(data_bytes, reserve).await
    }

    /// Ready when [`Self::push_reserved`] takes a record with so many bytes of data, or the log failed: then false.
    pub async fn wait_for_reserved_room(&self, data_bytes: usize) -> bool {
        self.wait_for_room_beside(data_bytes, 0).await
    }

    async fn wait_for_room_beside(&self, data_bytes: usize, reserve: u64) -> bool {
        loop {
            if self.is_failed() {
                return false;
            }
            if self.has_room_beside(data_bytes, reserve) {
                return true;
            }
            let seen = self.shared.supply.get();
            self.starve(group_bytes(record_bytes(data_bytes), self.shared.settings.block_bytes()) as u64);
            self.shared.supply.reached(seen + 1, || self.is_failed()).await;
        }
    }

    fn has_room_beside(&self, data_bytes: usize, reserve: u64) -> bool {
        let shared = &self.shared;
        let needed = group_bytes(record_bytes(data_bytes), shared.settings.block_bytes());
        let waste = shared.largest_group_bytes.get().max(needed) as u64;
        let taken = shared.queue.borrow().waiting_bytes() + shared.writing_bytes.get();
        let pool = shared.pool.borrow();
        // The estimate is careful; where waiting could not bring more, what fits is taken.
        pool.room(waste) >= taken + needed as u64 + reserve || (taken == 0 && pool.is_all_free_for(needed as u64))
    }

    /// The highest group that is on disk; its waiters should also give up when [`Self::is_failed`].
    #[must_use]
    pub fn durable(&self) -> &Mark {
        &self.shared.durable
    }

    /// Ready when `sequence` is on disk (true) or the log failed before (false).
    pub async fn wait_durable(&self, sequence: u64) -> bool {
        self.shared.durable.reached(sequence, || self.is_failed()).await
    }

    /// True after a failed write.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.shared.failure.borrow().is_some()
    }

    /// Why the log refuses, after a failed write.
    #[must_use]
    pub fn failed(&self) -> Option<Rc<str>> {
        self.shared.failure.borrow().clone()
    }

    /// The newest group number that nothing can join any more: all its records were pushed before now.
    #[must_use]
    pub fn last_closed_sequence(&self) -> u64 {
        self.shared.queue.borrow().last_closed_sequence()
    }

    /// Number of the group that the last record pushed is in; 0 before the first.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.shared.queue.borrow().last_sequence()
    }

    /// Makes lazy groups due now.
    pub fn hurry(&self) {
        self.shared.queue.borrow_mut().hurry();
        self.shared.due.ring();
    }

    /// Rung when more than half of what the log may take is needed, or all that it could get: a checkpoint should free
    /// some of it.
    #[must_use]
    pub fn pressure(&self) -> &Bell {
        &self.shared.pressure
    }

    /// Bytes of the files that are needed, up to the end of the last group.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.shared.pool.borrow().live_bytes()
    }

    /// Bytes that the log may still take before something must be released.
    #[must_use]
    pub fn room_left(&self) -> u64 {
        self.shared.settings.bytes_max.saturating_sub(self.live_bytes())
    }

    /// Number of the oldest file that has not been released.
    #[must_use]
    pub fn oldest_needed_file(&self) -> u64 {
        self.shared.pool.borrow().oldest_needed()
    }

    /// Number of the oldest file that will still be needed once everything up to `sequence` is safe elsewhere.
    ///
    /// A checkpoint states this number, is made durable, and then calls [`Self::release_before`] with the same number.
    #[must_use]
    pub fn oldest_needed_after(&self, sequence: u64) -> u64 {
        self.shared.pool.borrow().oldest_needed_after(sequence)
    }

    /// Frees every full file with a lower number than the one that a durable checkpoint states as its oldest needed.
    pub fn release_before(&self, file_number: u64) {
        if self.shared.pool.borrow_mut().release_before(file_number) {
            self.shared.under_pressure.set(false);
            self.more_room();
        }
    }

    /// Lets what comes from now on go to another file than what was written up to `sequence`; false when that cannot be now.
    pub async fn turn_over(&self, sequence: u64) -> bool {
        self.hurry();
        if !self.wait_durable(sequence).await {
            return false;
        }
        let shared = &self.shared;
        while !shared.pool.borrow().is_apart_from(sequence) {
            if self.is_failed() || !shared.pool.borrow().has_next() {
                return false;
            }
            if shared.writing_bytes.get() == 0 {
                self.begin_new_file();
            } else {
                shared.wants_new_file.set(true);
                shared.durable.reached(shared.durable.get() + 1, || self.is_failed()).await;
            }
        }
        true
    }

    /// Not while a group is on its way, and not from a file without any: that would look as if its groups were lost.
    fn begin_new_file(&self) {
        let switched = {
            let mut pool = self.shared.pool.borrow_mut();
            pool.current.last_sequence > 0 && pool.switch()
        };
        if switched {
            self.shared.wanted.ring();
            self.ring_under_pressure();
        }
    }

    /// True when no file that a recovery could read, with whatever checkpoints, holds a group up to `sequence`.
    #[must_use]
    pub fn has_forgotten(&self, sequence: u64) -> bool {
        self.shared.durable.get() >= sequence && self.shared.pool.borrow().has_forgotten(sequence)
    }

    /// Ready when [`Self::has_forgotten`] is true (true), or will not be before more files are given up (false).
    pub async fn forget(&self, sequence: u64) -> bool {
        while !self.has_forgotten(sequence) {
            if self.is_failed() || !self.shared.pool.borrow().is_forgetting(sequence) {
                return false;
            }
            let seen = self.shared.supply.get();
            self.shared.wanted.ring();
            self.shared.supply.reached(seen + 1, || self.is_failed()).await;
        }
        true
    }

    /// What commits have cost so far.
    #[must_use]
    pub fn stats(&self) -> CommitStats {
        self.shared.pace.borrow().stats.clone()
    }

    /// Lets [`Self::run`] write what was pushed and then end.
    pub fn stop(&self) {
        self.shared.stopping.set(true);
        self.hurry();
        self.shared.wanted.ring();
    }

    /// The commit task: writes groups until the log is stopped or fails.
    ///
    /// `before_group` runs before a group is closed (records pushed there still join it), `after_commit` with the number
    /// of each group after the durable mark was raised.
    pub async fn run(self, before_group: impl Fn(), after_commit: impl Fn(u64)) {
        host::spawn(Queue::Background, self.clone().keep_a_file_ready());
        let mut scratch = AlignedBuf::zeroed(INLINE_BYTES_MAX);
        while self.group_is_due().await {
            if self.shared.pace.borrow().prefers_inline() {
                // Every connection that is ready may still put its requests into this group.
                host::yield_now().await;
            }
            before_group();
            let taken = self.shared.queue.borrow_mut().take();
            let Some(group) = taken else { continue };
            if let Err(error) = self.write_group(&group, &mut scratch).await {
                return self.fail(&error);
            }
            self.shared.durable.raise(group.sequence);
            after_commit(group.sequence);
            if self.shared.queue.borrow().waiting_bytes() == 0 {
                // Who waits for room may count again.
                self.shared.supply.raise(self.shared.supply.get() + 1);
            }
        }
    }

    /// False when there is nothing more to do.
    async fn group_is_due(&self) -> bool {
        loop {
            if self.is_failed() {
                return false;
            }
            let due = self.shared.queue.borrow().due(clock::monotonic());
            match due {
                Due::Now => return true,
                Due::Never if self.shared.stopping.get() => return false,
                Due::Never => self.shared.due.rung().await,
                Due::In(wait) => rung_or_elapsed(&self.shared.due, wait).await,
            }
        }
    }

    async fn write_group(&self, group: &Group, scratch: &mut AlignedBuf) -> io::Result<()> {
        let shared = &self.shared;
        let bytes = group.disk_bytes(shared.settings.block_bytes());
        shared.writing_bytes.set(bytes as u64);
        let place = self.place(bytes as u64, group.sequence).await?;
        let inline = shared.pace.borrow().is_inline(bytes, group.urgent);
        let started = clock::monotonic();
        if inline {
            write_inline(&place, group, bytes, scratch)?
        } else {
            write_by_ring(&place, group, bytes).await?
        }
        let took = clock::monotonic().saturating_sub(started);
        shared.pace.borrow_mut().note(took, bytes, group.records.len(), inline);
        shared.pool.borrow_mut().wrote(bytes as u64, group.sequence);
        shared.writing_bytes.set(0);
        self.ring_under_pressure();
        Ok(())
    }

    /// Finds the place of the next group; waits only when no file is ready.
    async fn place(&self, bytes: u64, sequence: u64) -> io::Result<Place<D::File>> {
        let shared = &self.shared;
        loop {
            if let Some(failure) = self.failed() {
                return Err(io::Error::other(failure.to_string()));
            }
            if shared.wants_new_file.take() {
                self.begin_new_file();
            }
            if let Some(place) = shared.place_now(bytes, sequence) {
                shared.starving.set(None);
                return Ok(place);
            }
            let switched = shared.pool.borrow_mut().switch();
            if switched {
                shared.wanted.ring();
                self.ring_under_pressure();
                continue;
            }
            let seen = shared.supply.get();
            self.starve(bytes);
            shared.supply.reached(seen + 1, || self.is_failed()).await;
        }
    }

    fn ring_under_pressure(&self) {
        let shared = &self.shared;
        if !shared.under_pressure.get() && shared.pool.borrow().is_more_than_half_live() {
            shared.under_pressure.set(true);
            shared.pressure.ring();
        }
    }

    fn starve(&self, group_bytes: u64) {
        self.shared.starving.set(Some(group_bytes));
        self.shared.wanted.ring();
        self.ring_if_starving();
    }

    /// Somebody waits for a file that only a checkpoint can free, however little is live of what the log may have.
    pub(super) fn ring_if_starving(&self) {
        if self.shared.starving.get().is_some() && self.shared.pool.borrow().needs_release() {
            self.shared.pressure.ring();
        }
    }

    pub(super) fn more_room(&self) {
        self.shared.supply.raise(self.shared.supply.get() + 1);
        self.shared.wanted.ring();
    }

    pub(super) fn fail(&self, error: &io::Error) {
        let shared = &self.shared;
        shared.failure.borrow_mut().get_or_insert_with(|| error.to_string().into());
        shared.queue.borrow_mut().clear();
        tracing::error!(
            "the commit log of {} failed and takes nothing more until a restart: {error}",
            shared.identity.folder.display()
        );
        shared.durable.wake_all();
        shared.supply.wake_all();
        for bell in [&shared.due, &shared.wanted, &shared.pressure] {
            bell.ring();
        }
    }
}

impl<D: Disk> Shared<D> {
    fn place_now(&self, bytes: u64, sequence: u64) -> Option<Place<D::File>> {
        let pool = self.pool.borrow();
        let current = &pool.current;
        pool.fits(bytes).then(|| Place {
            log: current.log.clone(),
            position: current.position,
            stamp: current.header.stamp(sequence, clock::now_ms()),
        })
    }
}

fn write_inline<F: DiskFile>(
    place: &Place<F>,
    group: &Group,
    bytes: usize,
    scratch: &mut AlignedBuf,
) -> io::Result<()> {
    if bytes > scratch.bytes().len() {
        *scratch = AlignedBuf::zeroed(bytes);
    }
    let blocks = &mut scratch.bytes_mut()[..bytes];
    encode_group(blocks, place.stamp, &group.records);
    let path = &place.log.path;
    let written = place.log.file.write_blocks_now(place.position, blocks).map_err(named(path, "cannot write"))?;
    if written == bytes { Ok(()) } else { Err(short_write(path, written, bytes)) }
}

async fn write_by_ring<F: DiskFile>(place: &Place<F>, group: &Group, bytes: usize) -> io::Result<()> {
    let mut blocks = AlignedBuf::zeroed(bytes);
    encode_group(blocks.bytes_mut(), place.stamp, &group.records);
    place.log.write(place.position, blocks).await
}
