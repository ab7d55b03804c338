//! Files of a commit log in the making: the next one is ready before it is needed.
//!
//! Zeros are added in paced steps beside commits, at full speed only while a commit waits for the file. A full disk makes
//! smaller files or none; it is asked again from time to time.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::commit_log::{CommitLog, CommitSettings, LogIdentity};
use super::log_file::FileHeader;
use super::log_files::{LogFile, MIB, is_no_space, log_path, name_number, named};
use super::log_pool::Begun;
use crate::runtime::disk::{Create, Disk, DiskFile};
use crate::runtime::host;
use crate::runtime::signal::rung_or_elapsed;

/// Zeros are added in steps of 1 MiB with this pause: at full speed commits beside them went from 53 to 658 µs.
const FILL_PAUSE: Duration = Duration::from_millis(10);
/// How often a full disk is asked again for room for another file.
const SPACE_RETRY: Duration = Duration::from_secs(1);

impl<D: Disk> CommitLog<D> {
    /// The background task: makes the next file ready before it is needed.
    pub(super) async fn keep_a_file_ready(self) {
        while !self.is_over() {
            match self.make_next().await {
                Ok(true) => self.more_room(),
                Ok(false) => {
                    self.ring_if_starving();
                    match self.blot_out_free().await {
                        Ok(()) => self.wait_until_wanted().await,
                        Err(error) => self.fail(&error),
                    }
                }
                Err(error) => self.fail(&error),
            }
        }
    }

    /// Nothing more will be written: the log failed, or was stopped and is done.
    fn is_over(&self) -> bool {
        let is_done = self.shared.stopping.get() && self.shared.durable.get() >= self.last_sequence();
        is_done || self.is_failed()
    }

    /// Headers of files that were given up go, so that no recovery reads them, whatever becomes of the checkpoints: what they
    /// hold may have been compacted since (storage rule S14).
    async fn blot_out_free(&self) -> io::Result<()> {
        let shared = &self.shared;
        let readable = shared.pool.borrow().readable_free();
        if readable.is_empty() {
            return Ok(());
        }
        for log in readable {
            log.end(shared.settings.block_log2).await?;
            shared.pool.borrow_mut().note_unreadable(1);
        }
        shared.supply.raise(shared.supply.get() + 1);
        Ok(())
    }

    async fn wait_until_wanted(&self) {
        let asks_again = self.shared.pool.borrow().is_space_gone;
        if asks_again {
            rung_or_elapsed(&self.shared.wanted, SPACE_RETRY).await;
            self.shared.pool.borrow_mut().is_space_gone = false;
        } else {
            self.shared.wanted.rung().await;
        }
    }

    /// Makes one file ready; false if there is one already or there is nothing to make it of.
    async fn make_next(&self) -> io::Result<bool> {
        let shared = &self.shared;
        let started = {
            let mut pool = shared.pool.borrow_mut();
            if pool.has_next() { None } else { pool.start_making() }
        };
        let Some((blank, target)) = started else { return Ok(false) };
        let filled = self.fill(blank, target).await;
        let next = match filled {
            Ok(Some(log)) => self.begin(log).await,
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        shared.pool.borrow_mut().end_making(next?);
        Ok(shared.pool.borrow().has_next())
    }

    async fn begin(&self, log: LogFile<D::File>) -> io::Result<Option<Begun<D::File>>> {
        let shared = &self.shared;
        let number = shared.next_file_number.get();
        let header = header_of(&shared.identity, &shared.settings, number, &log);
        log.begin(&header).await?;
        shared.next_file_number.set(number + 1);
        Ok(Some(Begun::new(log, header)))
    }

    /// Zero-fills up to `target` in paced steps, or to less when the disk is full or a commit waits for the file.
    async fn fill(&self, blank: Option<LogFile<D::File>>, target: u64) -> io::Result<Option<LogFile<D::File>>> {
        let shared = &self.shared;
        let is_new = blank.is_none();
        let mut log = match blank {
            Some(log) => log,
            None => match LogFile::open(&shared.disk, &self.new_path(), Create::Truncate) {
                Err(error) if is_no_space(&error) => {
                    shared.pool.borrow_mut().is_space_gone = true;
                    return Ok(None);
                }
                opened => opened?,
            },
        };
        while log.bytes < target && !self.is_large_enough(log.bytes) && !self.is_over() {
            match log.add_zeros().await {
                Err(error) if is_no_space(&error) => {
                    shared.pool.borrow_mut().is_space_gone = true;
                    break;
                }
                added => added?,
            }
            if shared.starving.get().is_none() {
                rung_or_elapsed(&shared.wanted, FILL_PAUSE).await;
            }
        }
        if self.is_over() { Ok(None) } else { self.keep_or_remove(log, is_new).await }
    }

    fn new_path(&self) -> PathBuf {
        let name = self.shared.next_name.get();
        self.shared.next_name.set(name + 1);
        log_path(&self.shared.identity.folder, name)
    }

    /// While a commit waits, a smaller file will do; it is filled up when it is used again.
    fn is_large_enough(&self, bytes: u64) -> bool {
        let Some(group_bytes) = self.shared.starving.get() else { return false };
        bytes >= self.shared.settings.first_file_bytes.max(group_bytes + MIB)
    }

    async fn keep_or_remove(&self, log: LogFile<D::File>, is_new: bool) -> io::Result<Option<LogFile<D::File>>> {
        let shared = &self.shared;
        if !is_new {
            return Ok(Some(log));
        }
        let kept = log.bytes >= shared.settings.pool_limits().file_bytes_least;
        if !kept {
            shared.disk.remove_file(&log.path).await.map_err(named(&log.path, "cannot remove"))?;
        }
        let folder = &shared.identity.folder;
        shared.disk.sync_dir(folder).await.map_err(named(folder, "cannot flush"))?;
        Ok(kept.then_some(log))
    }
}

/// Opens files that nobody needs any more.
pub(super) fn open_all<D: Disk>(disk: &D, paths: &[PathBuf]) -> io::Result<Vec<LogFile<D::File>>> {
    paths.iter().map(|path| LogFile::open(disk, path, Create::Never)).collect()
}

/// A number that no log file of the folder has in its name.
pub(super) fn free_name<D: Disk>(disk: &D, identity: &LogIdentity) -> io::Result<u64> {
    let entries = disk.list(&identity.folder).map_err(named(&identity.folder, "cannot list"))?;
    let highest = entries.iter().filter_map(|entry| name_number(&entry.name)).max();
    Ok(highest.map_or(0, |number| number + 1))
}

/// Makes a file of zeros, at full speed.
pub(super) async fn make_file<D: Disk>(
    disk: &D,
    identity: &LogIdentity,
    name: u64,
    bytes: u64,
) -> io::Result<LogFile<D::File>> {
    let folder = &identity.folder;
    let mut log = LogFile::open(disk, &log_path(folder, name), Create::Truncate)?;
    log.fill(bytes).await?;
    disk.sync_dir(folder).await.map_err(named(folder, "cannot flush"))?;
    Ok(log)
}

/// The header with which a file is begun: its salt is drawn here.
pub(super) fn header_of<F: DiskFile>(
    identity: &LogIdentity,
    settings: &CommitSettings,
    number: u64,
    log: &LogFile<F>,
) -> FileHeader {
    FileHeader {
        block_log2: settings.block_log2,
        shard: identity.shard,
        generation: identity.generation,
        file_number: number,
        salt: host::random(),
        store_id: identity.store_id,
        size_mib: log.size_mib(),
    }
}
