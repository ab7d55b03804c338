//! A disk in memory whose writes can be counted, failed, and torn.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corelane::runtime::aligned::AlignedBuf;
use corelane::runtime::clock;
use corelane::runtime::disk::{Access, Create, Disk, DiskFile, Entry, Space};
use corelane::runtime::open_files::{OpenFiles, Slot};

type Content = Rc<RefCell<Vec<u8>>>;

/// What happens to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// Only this many bytes are written, and the count says so.
    Short(usize),
    /// Only this many bytes are written, and an error is returned; so are all writes after it (the power is gone).
    Dead(usize),
}

/// What a power cut leaves for sure. Removals count as durable at once, and so do renames of folders and over other files.
#[derive(Clone, Default)]
struct Durable {
    /// Content as of the last flush.
    synced: BTreeMap<PathBuf, Vec<u8>>,
    /// Files whose names are on disk.
    named: BTreeSet<PathBuf>,
    /// Files whose every write is durable.
    direct: BTreeSet<PathBuf>,
    /// Files that were renamed in a folder that was not flushed since, in order: a cut undoes some of the last.
    renamed: Vec<(PathBuf, PathBuf)>,
}

impl Durable {
    fn rename(&mut self, from: &Path, to: &Path) {
        if let Some(content) = self.synced.remove(from) {
            self.synced.insert(to.to_owned(), content);
        }
        for set in [&mut self.named, &mut self.direct] {
            if set.remove(from) {
                set.insert(to.to_owned());
            }
        }
    }

    fn remove(&mut self, path: &Path) {
        self.synced.remove(path);
        self.named.remove(path);
        self.direct.remove(path);
        self.renamed.retain(|(_, to)| to != path);
    }
}

#[derive(Default)]
struct Inner {
    durable: RefCell<Durable>,
    files: RefCell<BTreeMap<PathBuf, Content>>,
    writes: Cell<u64>,
    fault: Cell<Option<(u64, WriteFault)>>,
    capacity: Cell<Option<u64>>,
    /// The next flush of a file whose path ends in this fails.
    bad_sync: RefCell<Option<String>>,
    sync_takes: Cell<Duration>,
    held: Cell<bool>,
    /// How many files may be open.
    open_max: Cell<Option<usize>>,
    open: Cell<usize>,
    most_open: Cell<usize>,
    open_files: OpenFiles<MemoryFile>,
}

/// The disk; a clone is the same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk(Rc<Inner>);

pub struct MemoryFile {
    disk: MemoryDisk,
    content: Content,
    path: PathBuf,
    direct: bool,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let open = &self.disk.0.open;
        open.set(open.get() - 1);
    }
}

impl MemoryDisk {
    /// Lets so many files be open at a time.
    pub fn bound_open_files(&self, most: usize) {
        self.0.open_max.set(Some(most));
        self.0.most_open.set(self.0.open.get());
    }

    /// Files that are open now, and the most that were at a time.
    pub fn open_files(&self) -> (usize, usize) {
        (self.0.open.get(), self.0.most_open.get())
    }

    /// A copy that no longer changes with this one.
    pub fn copy(&self) -> Self {
        let copy = Self::default();
        for (path, content) in self.0.files.borrow().iter() {
            copy.put(path, content.borrow().clone());
        }
        *copy.0.durable.borrow_mut() = self.0.durable.borrow().clone();
        copy
    }

    /// What is left after a power cut: of what was not flushed any sector may be old or new, and new names may be missing.
    pub fn power_cut(&self, mut below: impl FnMut(usize) -> usize) -> Self {
        let before = self.copy();
        before.undo_renames(&mut below);
        before.lose_unflushed(below)
    }

    fn undo_renames(&self, below: &mut impl FnMut(usize) -> usize) {
        let renamed = std::mem::take(&mut self.0.durable.borrow_mut().renamed);
        let kept = below(renamed.len() + 1);
        for (from, to) in renamed[kept..].iter().rev() {
            // What was renamed again and then removed is gone for good.
            if self.find(from).is_err() && self.find(to).is_ok() {
                self.move_file(to, from);
            }
        }
    }

    fn move_file(&self, from: &Path, to: &Path) {
        let content = self.0.files.borrow_mut().remove(from).unwrap();
        self.0.durable.borrow_mut().rename(from, to);
        self.0.files.borrow_mut().insert(to.to_owned(), content);
    }

    fn lose_unflushed(&self, mut below: impl FnMut(usize) -> usize) -> Self {
        let durable = self.0.durable.borrow();
        let left = Self::default();
        for (path, content) in self.0.files.borrow().iter() {
            if !durable.named.contains(path) && below(2) == 0 {
                continue;
            }
            let now = content.borrow();
            let old = durable.synced.get(path).map_or(&[][..], Vec::as_slice);
            let is_safe = durable.direct.contains(path) || *old == now[..];
            left.put(path, if is_safe { now.clone() } else { mixed(old, &now, &mut below) });
        }
        left.sync_all();
        left.0.durable.borrow_mut().direct.clone_from(&durable.direct);
        left
    }

    fn sync_all(&self) {
        let files = self.0.files.borrow();
        let durable = &mut *self.0.durable.borrow_mut();
        durable.renamed.clear();
        durable.named.extend(files.keys().cloned());
        for (path, content) in files.iter().filter(|(path, _)| !durable.direct.contains(*path)) {
            durable.synced.insert(path.clone(), content.borrow().clone());
        }
    }

    pub fn put(&self, path: &Path, content: Vec<u8>) {
        self.0.files.borrow_mut().insert(path.to_owned(), Rc::new(RefCell::new(content)));
    }

    pub fn content(&self, path: &Path) -> Vec<u8> {
        self.0.files.borrow()[path].borrow().clone()
    }

    /// Changes the bytes of a file in place.
    pub fn change(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.0.files.borrow()[path].borrow_mut());
    }

    pub fn remove(&self, path: &Path) {
        self.0.files.borrow_mut().remove(path);
        self.0.durable.borrow_mut().remove(path);
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.files.borrow().keys().cloned().collect()
    }

    pub fn total_bytes(&self) -> u64 {
        self.0.files.borrow().values().map(|content| content.borrow().len() as u64).sum()
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.0.writes.get()
    }

    /// Lets the write that comes after `after` more end in `fault`.
    pub fn fail_write(&self, after: u64, fault: WriteFault) {
        self.0.fault.set(Some((self.writes() + after, fault)));
    }

    /// No write fails that has not failed yet; false when the power is gone already.
    pub fn mend(&self) -> bool {
        let is_alive = self.0.fault.get().is_none_or(|(at, _)| at >= self.writes());
        if is_alive {
            self.0.fault.set(None);
        }
        is_alive
    }

    /// Lets all files together not be larger than this.
    pub fn limit(&self, capacity: Option<u64>) {
        self.0.capacity.set(capacity);
    }

    /// Lets the next flush of a file whose path ends in `ending` fail.
    pub fn fail_sync(&self, ending: &str) {
        *self.0.bad_sync.borrow_mut() = Some(ending.to_owned());
    }

    /// How long a flush takes from now on.
    pub fn slow_sync(&self, takes: Duration) {
        self.0.sync_takes.set(takes);
    }

    /// Direct writes through the ring wait as long as this is true.
    pub fn hold_blocks(&self, held: bool) {
        self.0.held.set(held);
    }

    fn find(&self, path: &Path) -> io::Result<Content> {
        self.0.files.borrow().get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Each sector old or new, the size either or between.
fn mixed(old: &[u8], now: &[u8], below: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    const SECTOR: usize = 512;
    let (short, long) = (old.len().min(now.len()), old.len().max(now.len()));
    let length = [old.len(), now.len(), short + below(long - short + 1)][below(3)];
    let mut left = vec![0; length];
    for at in (0..length).step_by(SECTOR) {
        let from = if below(2) == 0 { old } else { now };
        let end = from.len().min(at + SECTOR).min(length);
        if at < end {
            left[at..end].copy_from_slice(&from[at..end]);
        }
    }
    left
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn open(&self, path: &Path, access: Access, create: Create) -> io::Result<MemoryFile> {
        let content = match (self.find(path), create) {
            (Ok(content), Create::Never | Create::IfMissing) => content,
            (Err(error), Create::Never) => return Err(error),
            _ => {
                self.put(path, Vec::new());
                self.find(path)?
            }
        };
        if access == Access::DirectSync {
            self.0.durable.borrow_mut().direct.insert(path.to_owned());
        }
        if let Some(most) = self.0.open_max.get() {
            self.0.open_files.make_room(|| self.0.open.get() >= most);
        }
        self.0.open.set(self.0.open.get() + 1);
        self.0.most_open.set(self.0.most_open.get().max(self.0.open.get()));
        Ok(MemoryFile { disk: self.clone(), content, path: path.to_owned(), direct: access == Access::DirectSync })
    }

    fn keep(&self, slot: &Rc<Slot<MemoryFile>>) {
        self.0.open_files.keep(slot);
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let files = self.0.files.borrow();
        let mut entries: Vec<Entry> = files
            .iter()
            .filter_map(|(file, content)| {
                let rest = file.strip_prefix(path).ok()?;
                let name = rest.iter().next()?.to_str()?.to_owned();
                let is_dir = rest.iter().count() > 1;
                Some(Entry { name, is_dir, bytes: if is_dir { 0 } else { content.borrow().len() as u64 } })
            })
            .collect();
        entries.dedup();
        Ok(entries)
    }

    fn file_bytes(&self, path: &Path) -> io::Result<u64> {
        Ok(self.find(path)?.borrow().len() as u64)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let moved: Vec<_> = self.paths().into_iter().filter(|path| path.starts_with(from)).collect();
        if moved.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        for path in moved {
            let rest = path.strip_prefix(from).unwrap();
            let moved_to = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            let is_new = rest.as_os_str().is_empty() && self.find(&moved_to).is_err();
            self.move_file(&path, &moved_to);
            if is_new {
                self.0.durable.borrow_mut().renamed.push((path, moved_to));
            }
        }
        Ok(())
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.remove(path);
        Ok(())
    }

    async fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let gone = self.paths().into_iter().filter(|file| file.starts_with(path));
        gone.for_each(|file| self.remove(&file));
        Ok(())
    }

    async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let names = self.paths().into_iter().filter(|file| file.parent() == Some(path));
        let durable = &mut *self.0.durable.borrow_mut();
        durable.named.extend(names);
        durable.renamed.retain(|(from, _)| from.parent() != Some(path));
        Ok(())
    }

    async fn sync_fs(&self, _path: &Path) -> io::Result<()> {
        self.sync_all();
        Ok(())
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        let total_bytes = self.0.capacity.get().unwrap_or(1 << 40);
        Ok(Space { total_bytes, free_bytes: total_bytes.saturating_sub(self.total_bytes()) })
    }
}

impl MemoryFile {
    fn write(&self, position: u64, bytes: &[u8]) -> io::Result<usize> {
        let inner = &self.disk.0;
        let number = inner.writes.replace(inner.writes.get() + 1);
        let position = usize::try_from(position).unwrap();
        if self.direct {
            assert!(position.is_multiple_of(4096) && bytes.len().is_multiple_of(4096), "direct write out of line");
        }
        match inner.fault.get() {
            Some((at, WriteFault::Short(taken))) if at == number => {
                Ok(self.store(position, &bytes[..taken.min(bytes.len())]))
            }
            Some((at, WriteFault::Dead(taken))) if at <= number => {
                if at == number {
                    self.store(position, &bytes[..taken.min(bytes.len())]);
                }
                Err(io::Error::other("the disk is gone"))
            }
            _ => Ok(self.store(position, &bytes[..self.allowed(position, bytes.len())])),
        }
    }

    fn allowed(&self, position: usize, length: usize) -> usize {
        let Some(capacity) = self.disk.0.capacity.get() else { return length };
        let has = self.content.borrow().len();
        let growth = (position + length).saturating_sub(has);
        let over = (self.disk.total_bytes() + growth as u64).saturating_sub(capacity);
        length - usize::try_from(over).unwrap().min(growth).next_multiple_of(4096).min(length)
    }

    fn store(&self, position: usize, bytes: &[u8]) -> usize {
        let mut content = self.content.borrow_mut();
        if content.len() == position {
            content.extend_from_slice(bytes);
            return bytes.len();
        }
        if content.len() < position + bytes.len() {
            content.resize(position + bytes.len(), 0);
        }
        content[position..position + bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }
}

impl DiskFile for MemoryFile {
    fn write_now(&self, position: u64, parts: &[&[u8]]) -> io::Result<usize> {
        self.write(position, &parts.concat())
    }

    async fn write_at(&self, position: u64, bytes: Bytes) -> io::Result<usize> {
        self.write(position, &bytes)
    }

    fn read_now(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let content = self.content.borrow();
        let from = usize::try_from(position).unwrap().min(content.len());
        let count = into.len().min(content.len() - from);
        into[..count].copy_from_slice(&content[from..from + count]);
        Ok(count)
    }

    async fn read_at(&self, position: u64, bytes: usize) -> io::Result<Bytes> {
        if self.direct {
            assert!(position.is_multiple_of(4096) && bytes.is_multiple_of(4096), "direct read out of line");
        }
        let left = self.content.borrow().len().saturating_sub(usize::try_from(position).unwrap());
        let mut into = vec![0; bytes.min(left)];
        let count = self.read_now(position, &mut into)?;
        into.truncate(count);
        Ok(into.into())
    }

    fn write_blocks_now(&self, position: u64, blocks: &[u8]) -> io::Result<usize> {
        self.write(position, blocks)
    }

    async fn write_blocks(&self, position: u64, blocks: AlignedBuf) -> io::Result<usize> {
        clock::sleep(Duration::from_micros(60)).await;
        while self.disk.0.held.get() {
            clock::sleep(Duration::from_millis(1)).await;
        }
        self.write(position, blocks.bytes())
    }

    async fn sync_data(&self) -> io::Result<()> {
        let takes = self.disk.0.sync_takes.get();
        if !takes.is_zero() {
            clock::sleep(takes).await;
        }
        let mut bad = self.disk.0.bad_sync.borrow_mut();
        if bad.as_ref().is_some_and(|ending| self.path.to_string_lossy().ends_with(ending.as_str())) {
            *bad = None;
            return Err(io::Error::other("the flush failed"));
        }
        if !self.direct {
            let content = self.content.borrow().clone();
            self.disk.0.durable.borrow_mut().synced.insert(self.path.clone(), content);
        }
        Ok(())
    }

    async fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.content.borrow_mut().resize(usize::try_from(bytes).unwrap(), 0);
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.content.borrow().len() as u64)
    }
}
