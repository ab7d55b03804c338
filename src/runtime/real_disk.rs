//! The disk of one shard: short calls inline, long ones through the ring, the rest on glommio's blocking thread.
//!
//! On a thread without a shard's executor (tools, tests) every call blocks instead; see [`executors::on_shard`].
//!
//! Quirks of kernel and glommio that are handled here, each with a test below:
//! - glommio's idea whether a device can be polled comes from the first file it opens, and an empty file gives a wrong
//!   one: [`settle_device`] opens one that is not empty first.
//! - glommio opens by path, and a path may have moved on: files are opened again through `/proc/self/fd`.
//! - a file system may refuse `O_DIRECT`: such a file is written with `O_DSYNC` alone.
//! - a read or write may be cut short or interrupted by a signal.
//!
//! A shard holds a bounded number of descriptors ([`bound_descriptors`]): what [`Disk::keep`] was told of is closed to make
//! room, and when the process has none left all the same, the file that was opened last waits for a flush of another.

use std::cell::{Cell, OnceCell, RefCell};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use bytes::{Bytes, BytesMut};
use glommio::io::{BufferedFile, Directory, DmaFile};
use nix::fcntl::OFlag;

use super::aligned::AlignedBuf;
use super::disk::{Access, Create, Disk, DiskFile, Entry, Space, is_out_of_descriptors};
use super::executors::{self, plain_error};
use super::host;
use super::open_files::{OpenFiles, Slot};

/// What one inline write may carry, in bytes: some microseconds of the core.
const INLINE_WRITE_BYTES: usize = 64 * 1024;
/// What one read through the ring may carry, in bytes.
const RING_READ_BYTES: usize = 1024 * 1024;
/// How many slices the kernel takes in one call.
const SLICES_MAX: usize = 1024;

/// Files that are looked at for one that may go when the process has no descriptor left.
const LOOKS_IN_NEED: usize = 1024;

/// Descriptors that the files of one shard may hold.
static DESCRIPTORS_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);

thread_local! {
    /// Descriptors that the files of this shard hold.
    static DESCRIPTORS: Cell<usize> = const { Cell::new(0) };
    static OPEN_FILES: OpenFiles<RealFile> = OpenFiles::default();
    /// Nobody waits for this core: see [`Disk::set_unshared`].
    static UNSHARED: Cell<bool> = const { Cell::new(false) };
}

/// The files of one shard may hold this many descriptors; segments are closed to keep to it.
pub fn bound_descriptors(of_one_shard: usize) {
    DESCRIPTORS_MAX.store(of_one_shard, Ordering::Relaxed);
}

/// Tries again with a descriptor that segments have given up, when the process has none left.
fn with_descriptor<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    OPEN_FILES.with(|files| {
        files.make_room(|| DESCRIPTORS.get() >= DESCRIPTORS_MAX.load(Ordering::Relaxed));
    });
    match open() {
        Err(error) if is_out_of_descriptors(&error) && close_one() => open(),
        other => other,
    }
}

/// Closes a segment's file, and if need be waits until its bytes are on disk.
fn close_one() -> bool {
    let before = DESCRIPTORS.get();
    let hurry = |slot: &Rc<Slot<RealFile>>| {
        let Some((file, writes)) = slot.unflushed() else { return };
        // Whoever flushes the file next is told of a failure.
        let _told = slot.note_flushed(writes, file.file.sync_data());
        drop(file);
        slot.close();
    };
    OPEN_FILES.with(|files| {
        (0..LOOKS_IN_NEED).any(|_| !files.look_at_next(hurry) || DESCRIPTORS.get() < before);
    });
    DESCRIPTORS.get() < before
}

/// One descriptor in the count.
#[derive(Debug)]
struct Counted;

impl Counted {
    fn new() -> Self {
        DESCRIPTORS.set(DESCRIPTORS.get() + 1);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A file that outlives its thread's values is not counted any more.
        let _gone = DESCRIPTORS.try_with(|count| count.set(count.get().saturating_sub(1)));
    }
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    type File = RealFile;

    fn open(&self, path: &Path, access: Access, create: Create) -> io::Result<RealFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create != Create::Never).truncate(create == Create::Truncate);
        let (file, direct) = with_descriptor(|| match access {
            Access::Buffered => Ok((options.open(path)?, false)),
            Access::DirectSync => open_direct(&options, path),
        })?;
        Ok(RealFile::new(file, access, direct))
    }

    fn set_unshared(&self, unshared: bool) {
        UNSHARED.set(unshared);
    }

    fn keep(&self, slot: &Rc<Slot<RealFile>>) {
        OPEN_FILES.with(|files| files.keep(slot));
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries =
            fs::read_dir(path)?.map(|entry| entry.and_then(|e| describe(&e))).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        Ok(entries)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn file_bytes(&self, path: &Path) -> io::Result<u64> {
        fs::metadata(path).map(|about| about.len())
    }

    fn modified_ms(&self, path: &Path) -> io::Result<Option<i64>> {
        let since = fs::metadata(path)?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(i64::try_from(since.as_millis()).ok())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        let path = path.to_path_buf();
        executors::blocking(move || found_or_not(fs::remove_file(path))).await
    }

    async fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = path.to_path_buf();
        executors::blocking(move || found_or_not(fs::remove_dir_all(path))).await
    }

    async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if !executors::on_shard() {
            return File::open(path)?.sync_all();
        }
        // glommio takes a relative path for one below a folder that it has not opened.
        let folder = Directory::open(std::path::absolute(path)?).await.map_err(plain_error)?;
        let synced = folder.sync().await.map_err(plain_error);
        folder.close().await.map_err(plain_error)?;
        synced
    }

    async fn sync_fs(&self, path: &Path) -> io::Result<()> {
        let path = path.to_path_buf();
        executors::blocking(move || Ok(nix::unistd::syncfs(File::open(path)?)?)).await
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let about = nix::sys::statvfs::statvfs(path)?;
        let unit = about.fragment_size();
        Ok(Space { total_bytes: about.blocks() * unit, free_bytes: about.blocks_available() * unit })
    }
}

/// What makes a write of [`Access::DirectSync`] durable when it returns. The feature `planted` leaves it out on purpose,
/// so that `scripts/flush-count` can show that it notices.
const SYNCHRONOUS: OFlag = if cfg!(feature = "planted") { OFlag::empty() } else { OFlag::O_DSYNC };

/// Opens with `O_DIRECT | O_DSYNC`, or without the first where the file system has no direct writes.
fn open_direct(options: &OpenOptions, path: &Path) -> io::Result<(File, bool)> {
    let mut options = options.clone();
    let direct = options.custom_flags(OFlag::O_DIRECT.union(SYNCHRONOUS).bits()).open(path);
    match direct {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Ok((options.custom_flags(SYNCHRONOUS.bits()).open(path)?, false))
        }
        other => Ok((other?, true)),
    }
}

fn describe(entry: &fs::DirEntry) -> io::Result<Entry> {
    // The kind comes with the name; only the size of a file has to be asked for.
    let is_dir = entry.file_type()?.is_dir();
    let bytes = if is_dir { 0 } else { entry.metadata()?.len() };
    Ok(Entry { name: entry.file_name().to_string_lossy().into_owned(), is_dir, bytes })
}

fn found_or_not(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Tells this shard's executor what the device of `path` can do; to be awaited once before anything else is opened.
///
/// # Errors
/// `InvalidInput` when the file is empty (that is the trap); else what opening says.
pub async fn settle_device(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.len() == 0 {
        let text = format!("{} is empty and cannot show how its device reads", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if !executors::on_shard() {
        return Ok(());
    }
    match DmaFile::open(path).await.map_err(plain_error) {
        Ok(file) => file.close().await.map_err(plain_error),
        // No direct access here: nothing will be opened that way.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        Err(error) => Err(error),
    }
}

/// A file of the real file system.
///
/// Holds one descriptor, and one more for each way it is used beyond inline calls: glommio wants to own what it closes,
/// and what is written directly is read through the page cache, which takes any position and length.
pub struct RealFile {
    file: Arc<File>,
    access: Access,
    direct: bool,
    reader: OnceCell<(File, Counted)>,
    ring: RefCell<Option<(Rc<BufferedFile>, Counted)>>,
    ring_blocks: RefCell<Option<(Rc<DmaFile>, Counted)>>,
    _counted: Counted,
}

impl RealFile {
    fn new(file: File, access: Access, direct: bool) -> Self {
        let file = Arc::new(file);
        Self {
            file,
            access,
            direct,
            reader: OnceCell::new(),
            ring: RefCell::default(),
            ring_blocks: RefCell::default(),
            _counted: Counted::new(),
        }
    }

    /// Where the file can be opened again. Its path may lead elsewhere by now (renamed, removed); the descriptor does not.
    fn again(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// For inline reads.
    fn reader(&self) -> io::Result<&File> {
        if !self.direct {
            return Ok(&self.file);
        }
        if self.reader.get().is_none() {
            let opened = with_descriptor(|| File::open(self.again()))?;
            return Ok(&self.reader.get_or_init(|| (opened, Counted::new())).0);
        }
        self.reader.get().map(|(reader, _)| reader).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The ring's view of the file, through the page cache; opened when first needed.
    async fn ring(&self) -> io::Result<Rc<BufferedFile>> {
        if let Some((ring, _)) = &*self.ring.borrow() {
            return Ok(Rc::clone(ring));
        }
        let opened = (Rc::new(self.open_ring().await?), Counted::new());
        Ok(Rc::clone(&self.ring.borrow_mut().get_or_insert(opened).0))
    }

    async fn open_ring(&self) -> io::Result<BufferedFile> {
        let mut options = glommio::io::OpenOptions::new();
        options.read(true).write(true);
        match options.buffered_open(self.again()).await.map_err(plain_error) {
            Err(error) if is_out_of_descriptors(&error) && close_one() => {
                options.buffered_open(self.again()).await.map_err(plain_error)
            }
            other => other,
        }
    }

    /// The ring's view of the file for direct writes; opened when first needed.
    async fn ring_blocks(&self) -> io::Result<Rc<DmaFile>> {
        if let Some((ring, _)) = &*self.ring_blocks.borrow() {
            return Ok(Rc::clone(ring));
        }
        let mut options = glommio::io::OpenOptions::new();
        options.read(true).write(true).custom_flags(SYNCHRONOUS.bits());
        let opened = (Rc::new(options.dma_open(self.again()).await.map_err(plain_error)?), Counted::new());
        Ok(Rc::clone(&self.ring_blocks.borrow_mut().get_or_insert(opened).0))
    }

    async fn read_through_ring(&self, mut position: u64, bytes: usize) -> io::Result<Bytes> {
        let file = self.ring().await?;
        let mut content = BytesMut::with_capacity(bytes);
        while content.len() < bytes {
            let wanted = (bytes - content.len()).min(RING_READ_BYTES);
            let read = file.read_at(position, wanted).await.map_err(plain_error)?;
            if read.is_empty() {
                break;
            }
            content.extend_from_slice(&read);
            position += read.len() as u64;
        }
        Ok(content.freeze())
    }

    fn read_inline(&self, position: u64, bytes: usize) -> io::Result<Bytes> {
        let mut content = BytesMut::zeroed(bytes);
        let read = self.read_now(position, &mut content)?;
        content.truncate(read);
        Ok(content.freeze())
    }

    fn must_be(&self, access: Access) {
        assert!(self.access == access, "a file opened as {:?} was used as {access:?}", self.access);
    }
}

impl DiskFile for RealFile {
    fn write_now(&self, position: u64, parts: &[&[u8]]) -> io::Result<usize> {
        self.must_be(Access::Buffered);
        let mut taken = 0;
        for group in parts.chunks(SLICES_MAX) {
            let slices: Vec<IoSlice<'_>> = group.iter().map(|part| IoSlice::new(part)).collect();
            let wanted: usize = group.iter().map(|part| part.len()).sum();
            let at = file_position(position + taken as u64)?;
            let written = uninterrupted(|| Ok(nix::sys::uio::pwritev(&self.file, &slices, at)?))?;
            taken += written;
            if written < wanted {
                break;
            }
        }
        Ok(taken)
    }

    async fn write_at(&self, position: u64, bytes: Bytes) -> io::Result<usize> {
        self.must_be(Access::Buffered);
        let mut taken = 0;
        for chunk in bytes.chunks(INLINE_WRITE_BYTES) {
            if taken > 0 {
                host::yield_now().await;
            }
            let written = uninterrupted(|| self.file.write_at(chunk, position + taken as u64))?;
            taken += written;
            if written < chunk.len() {
                break;
            }
        }
        Ok(taken)
    }

    fn read_now(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.reader()?;
        let mut read = 0;
        while read < into.len() {
            let got = uninterrupted(|| file.read_at(&mut into[read..], position + read as u64))?;
            if got == 0 {
                break;
            }
            read += got;
        }
        Ok(read)
    }

    async fn read_at(&self, position: u64, bytes: usize) -> io::Result<Bytes> {
        let left = usize::try_from(self.bytes()?.saturating_sub(position)).unwrap_or(usize::MAX);
        let bytes = bytes.min(left);
        if executors::on_shard() && !UNSHARED.get() {
            self.read_through_ring(position, bytes).await
        } else {
            self.read_inline(position, bytes)
        }
    }

    fn write_blocks_now(&self, position: u64, blocks: &[u8]) -> io::Result<usize> {
        self.must_be(Access::DirectSync);
        uninterrupted(|| self.file.write_at(blocks, position))
    }

    async fn write_blocks(&self, position: u64, blocks: AlignedBuf) -> io::Result<usize> {
        self.must_be(Access::DirectSync);
        if !executors::on_shard() || !self.direct {
            return self.write_blocks_now(position, blocks.bytes());
        }
        self.ring_blocks().await?.write_at(blocks.into_dma(), position).await.map_err(plain_error)
    }

    async fn sync_data(&self) -> io::Result<()> {
        if !executors::on_shard() {
            return self.file.sync_data();
        }
        let held = self.ring.borrow().as_ref().map(|(ring, _)| Rc::clone(ring));
        if let Some(ring) = held {
            return ring.fdatasync().await.map_err(plain_error);
        }
        // A checkpoint flushes many files once: the second descriptor is not kept for that.
        let ring = self.open_ring().await?;
        let flushed = ring.fdatasync().await.map_err(plain_error);
        // What was flushed is flushed, whatever becomes of the descriptor.
        let _closed = ring.close().await;
        flushed
    }

    async fn truncate(&self, bytes: u64) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        executors::blocking(move || file.set_len(bytes)).await
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.metadata().map(|about| about.len())
    }
}

fn file_position(position: u64) -> io::Result<i64> {
    i64::try_from(position).map_err(io::Error::other)
}

/// Calls again when a signal interrupted the call.
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
#[path = "real_disk/tests.rs"]
mod tests;
