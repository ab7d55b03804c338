//! The seam to the disk: everything that the log needs of a file system, and no more.
//!
//! Two implementations exist: [`crate::runtime::real_disk::RealDisk`] (io_uring and plain system calls on one shard)
//! and the simulator's in-memory disk, which tears, reorders and loses what was not synced.
//! What is part of the contract: short counts are visible and are an error of *that* write; a buffered write is
//! durable only after [`DiskFile::sync_data`]; a name (created, renamed, removed) is durable only after
//! [`Disk::sync_dir`] of its folder or [`Disk::sync_fs`].

#![allow(async_fn_in_trait, reason = "nothing here moves between threads")]

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use nix::errno::Errno;

use super::aligned::AlignedBuf;
use super::open_files::Slot;

/// How the bytes of a file travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache; durable after a sync.
    Buffered,
    /// `O_DIRECT | O_DSYNC`: positions, lengths and buffers are multiples of the block; durable when the write returns.
    DirectSync,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Must exist.
    Never,
    /// Opened if it exists, made empty if not.
    IfMissing,
    /// Made empty, also when it existed.
    Truncate,
}

/// Room on the file system of the data folder, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system.
    pub total_bytes: u64,
    /// What an unprivileged writer may still take.
    pub free_bytes: u64,
}

/// One name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// File name without the folder.
    pub name: String,
    /// True for a folder.
    pub is_dir: bool,
    /// Size in bytes; 0 for a folder.
    pub bytes: u64,
}

/// A file system as one shard sees it.
///
/// Functions without `async` are short system calls made inline; those that may wait for the device are `async`.
pub trait Disk: Clone + 'static {
    /// An open file; dropping it closes it.
    type File: DiskFile;

    /// Opens or makes a file.
    fn open(&self, path: &Path, access: Access, create: Create) -> io::Result<Self::File>;
    /// The file of `slot` was opened: a disk that holds a bounded number of descriptors may close it again.
    fn keep(&self, slot: &Rc<Slot<Self::File>>) {
        let _unbounded = slot;
    }
    /// While nobody else waits for this core (at a start), reads may hold it: they are quicker by far.
    fn set_unshared(&self, unshared: bool) {
        let _reads_are_alike = unshared;
    }
    /// Makes a folder and its parents; succeeds when it is there.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names in a folder, sorted by name.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// The names alone of what is in a folder, in any order.
    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        Ok(self.list(path)?.into_iter().map(|entry| entry.name).collect())
    }
    /// Size of a file in bytes; `NotFound` when it is not there.
    fn file_bytes(&self, path: &Path) -> io::Result<u64>;
    /// When a file was written last, in milliseconds since 1970; `None` on a disk that keeps no times.
    fn modified_ms(&self, _path: &Path) -> io::Result<Option<i64>> {
        Ok(None)
    }
    /// Renames a file or folder, replacing a file of that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; succeeds when it is not there.
    async fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with its content.
    async fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    async fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes everything on the file system that holds `path` durable.
    async fn sync_fs(&self, path: &Path) -> io::Result<()>;
    /// Room on the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Reads a whole file (for small ones: state files, indexes).
    async fn read_file(&self, path: &Path) -> io::Result<Bytes> {
        let file = self.open(path, Access::Buffered, Create::Never)?;
        let bytes = file.bytes()?;
        file.read_at(0, usize::try_from(bytes).map_err(io::Error::other)?).await
    }
    /// Writes a file so that after a crash either the old or the new content is there: new name, sync, rename, folder sync.
    async fn write_file_atomically(&self, path: &Path, content: Bytes) -> io::Result<()> {
        let temporary = temporary_name(path);
        let file = self.open(&temporary, Access::Buffered, Create::Truncate)?;
        let bytes = content.len();
        let written = file.write_at(0, content).await?;
        if written != bytes {
            return Err(short_write(&temporary, written, bytes));
        }
        file.sync_data().await?;
        self.rename(&temporary, path)?;
        match path.parent() {
            Some(folder) => self.sync_dir(folder).await,
            None => Ok(()),
        }
    }
}

/// An open file. Shared within a shard by `Rc`; calls may overlap when their ranges do not.
pub trait DiskFile: 'static {
    /// Writes `parts` one after another from `position` on, inline; returns how many bytes were taken.
    fn write_now(&self, position: u64, parts: &[&[u8]]) -> io::Result<usize>;
    /// Writes `bytes` at `position` without holding the core for long; returns how many bytes were taken.
    async fn write_at(&self, position: u64, bytes: Bytes) -> io::Result<usize>;
    /// Reads up to `into.len()` bytes inline (for ranges that are surely in the page cache); 0 at the end of the file.
    fn read_now(&self, position: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Reads up to `bytes` bytes; shorter only at the end of the file.
    async fn read_at(&self, position: u64, bytes: usize) -> io::Result<Bytes>;
    /// Writes blocks inline ([`Access::DirectSync`] only; a whole slice of an [`AlignedBuf`]): holds the core for one commit.
    fn write_blocks_now(&self, position: u64, blocks: &[u8]) -> io::Result<usize>;
    /// Writes blocks through the ring ([`Access::DirectSync`] only): the core goes on meanwhile.
    async fn write_blocks(&self, position: u64, blocks: AlignedBuf) -> io::Result<usize>;
    /// [`Self::write_blocks`] of so many zeros, whole blocks; a disk that knows zeros needs no buffer of them.
    async fn write_zeros(&self, position: u64, bytes: usize) -> io::Result<usize> {
        self.write_blocks(position, AlignedBuf::zeroed(bytes)).await
    }
    /// Makes every completed write of this file durable (fdatasync).
    async fn sync_data(&self) -> io::Result<()>;
    /// Sets the size.
    async fn truncate(&self, bytes: u64) -> io::Result<()>;
    /// Size in bytes.
    fn bytes(&self) -> io::Result<u64>;
}

/// True for the error of a process (or a host) that has no descriptor left: nothing was done, and it passes.
#[must_use]
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

/// The error for a write that took fewer bytes than it was given.
#[must_use]
pub fn short_write(path: &Path, written: usize, wanted: usize) -> io::Error {
    io::Error::new(
        io::ErrorKind::WriteZero,
        format!("{}: only {written} of {wanted} bytes were written", path.display()),
    )
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    path.with_file_name(name)
}
