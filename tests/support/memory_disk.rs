//! A disk in memory, for tests and for the simulator.
//!
//! Files are sparse: pages of zeros cost nothing. Data through the page cache is durable after a flush of its file, names
//! after a flush of their folder, everything after `sync_fs`; a power cut leaves of the rest each sector in any version
//! since the last flush, sizes likewise, and of each folder's changes some of the first. Direct writes are durable when
//! they return; one that is running may be torn at any sector.
//!
//! A disk for which nothing was said answers at once and always does what it is told. [`MemoryDisk::simulate`] makes calls
//! take their time, in virtual time and by dice; [`MemoryDisk::end_at`] lets the program end within a call,
//! [`MemoryDisk::fail`] lets calls fail; [`MemoryDisk::end`] is what comes of the disk when the program has ended.

mod content;
pub mod faults;
mod file;
mod tree;
pub mod watch;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use corelane::runtime::clock;
use corelane::runtime::disk::{Access, Create, Disk, Entry, Space};
use corelane::runtime::open_files::{OpenFiles, Slot};

use self::content::Content;
use self::faults::{Call, End, Failure, Faults, Point};
pub use self::file::MemoryFile;
use self::tree::{Node, Tree};
use super::dice::Dice;

/// What happens to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// Only this many bytes are written, and the count says so.
    Short(usize),
    /// Only this many bytes are written, and an error is returned; so are all writes after it (the power is gone).
    Dead(usize),
}

#[derive(Default)]
struct Inner {
    tree: Tree,
    writes: Cell<u64>,
    fault: Cell<Option<(u64, WriteFault)>>,
    capacity: Cell<Option<u64>>,
    /// The next flush of a file whose path ends in this fails.
    bad_sync: RefCell<Option<String>>,
    sync_takes: Cell<Duration>,
    held: Cell<bool>,
    faults: Faults,
    watch: watch::Watch,
    /// How many files may be open.
    open_max: Cell<Option<usize>>,
    open: Cell<usize>,
    most_open: Cell<usize>,
    open_files: OpenFiles<MemoryFile>,
    /// Something was lost by a failed flush.
    has_lost: Cell<bool>,
}

/// The disk; a clone is the same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk(Rc<Inner>);

/// What a power cut found that was not on disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unflushed {
    pub files: usize,
    pub names: usize,
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

    /// A copy that no longer changes with this one: what a new process finds after a kill.
    pub fn copy(&self) -> Self {
        let tree = Tree { root: self.0.tree.root.copied() };
        Self(Rc::new(Inner { tree, ..Inner::default() }))
    }

    /// A copy as it is after a power cut; `below(n)` draws a number below n, 0 for the worst.
    pub fn power_cut(&self, mut below: impl FnMut(usize) -> usize) -> Self {
        let copy = self.copy();
        copy.lose_unflushed(&mut below);
        copy
    }

    fn lose_unflushed(&self, below: &mut impl FnMut(usize) -> usize) -> Unflushed {
        let root = &self.0.tree.root;
        let mut lost = Unflushed { names: root.pending(), files: 0 };
        root.cut_names(below);
        root.walk(&mut |node| match node {
            Node::Folder(folder) => {
                lost.names += folder.pending();
                folder.cut_names(below);
            }
            Node::File(file) => {
                let file = &mut *file.borrow_mut();
                lost.files += usize::from(!file.is_flushed());
                file.cut(below);
            }
        });
        root.flush_all();
        lost
    }

    /// The process has ended in this way; what is left is for the next one, which begins without faults.
    pub fn end(&self, end: End) -> Unflushed {
        let faults = &self.0.faults;
        for flight in std::mem::take(&mut *faults.flights.borrow_mut()).into_iter().flatten() {
            faults.tear(&flight, end);
        }
        let below = &mut |bound: usize| faults.below(bound);
        let mut lost = Unflushed::default();
        if end != End::Kill {
            lost = self.lose_unflushed(below);
        } else if self.0.has_lost.get() {
            self.0.tree.root.walk(&mut |node| {
                if let Node::File(file) = node {
                    file.borrow_mut().forget_lost(below);
                }
            });
        }
        self.0.has_lost.set(false);
        faults.begin_again();
        lost
    }

    /// What has been seen of the commit log's files; a new life begins.
    pub fn at_the_end(&self) -> watch::AtTheEnd {
        if let Some((call, path)) = self.0.faults.last() {
            self.0.watch.last(call, &path);
        }
        self.0.watch.at_the_end()
    }

    /// From now on calls that may wait for the device take their time, and come back in any order.
    pub fn simulate(&self, dice: Dice) {
        self.0.faults.simulate(dice);
    }

    /// The program ends within the call that this point meets; then [`Self::is_over`].
    pub fn end_at(&self, point: Point, end: End) {
        self.0.faults.end_at(point, end);
    }

    /// Lets calls fail.
    pub fn fail(&self, failure: Failure) {
        self.0.faults.fail(failure);
    }

    /// Takes [`Self::fail`] back.
    pub fn stop_failing(&self) {
        self.0.faults.stop_failing();
    }

    /// Everything is on disk as it is: for what somebody does to the files while no program runs.
    pub fn settle(&self) {
        self.0.tree.root.flush_all();
    }

    /// The program has come to its end: every call is refused.
    pub fn is_over(&self) -> bool {
        self.0.faults.is_over()
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.0.faults.calls()
    }

    /// Calls that failed because somebody wanted it.
    pub fn failed(&self) -> u64 {
        self.0.faults.failed()
    }

    /// From now on all calls and what is read and written make a number: [`Self::traced`].
    pub fn trace(&self) {
        self.0.faults.trace();
    }

    /// The same for two runs whose calls and answers were the same.
    pub fn traced(&self) -> u64 {
        self.0.faults.traced()
    }

    /// Pages that hold something: what the disk really costs.
    pub fn pages(&self) -> usize {
        let mut pages = 0;
        self.0.tree.root.files(Path::new("/"), &mut |_, file| pages += file.borrow().content.pages());
        pages
    }

    pub fn put(&self, path: &Path, content: Vec<u8>) {
        self.0.tree.put(path, Content::of(&content));
    }

    pub fn content(&self, path: &Path) -> Vec<u8> {
        self.0.tree.file(path).unwrap().borrow().content.to_vec()
    }

    /// Changes the bytes of a file in place.
    pub fn change(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let file = self.0.tree.file(path).unwrap();
        let mut bytes = file.borrow().content.to_vec();
        change(&mut bytes);
        file.borrow_mut().content = Content::of(&bytes);
    }

    pub fn remove(&self, path: &Path) {
        self.0.watch.removed(path);
        let _gone = self.0.tree.within(path, |folder, name| folder.unset(name));
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        self.0.tree.root.files(Path::new("/"), &mut |path, _| paths.push(path));
        paths
    }

    pub fn total_bytes(&self) -> u64 {
        let mut bytes = 0;
        self.0.tree.root.files(Path::new("/"), &mut |_, file| bytes += file.borrow().content.size() as u64);
        bytes
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

    /// Waits as long as the device takes; an error when the program ended meanwhile.
    async fn device(&self) -> io::Result<()> {
        if let Some(delay) = self.0.faults.delay() {
            clock::sleep(delay).await;
        }
        self.0.faults.still()
    }
}

impl Disk for MemoryDisk {
    type File = MemoryFile;

    fn open(&self, path: &Path, access: Access, create: Create) -> io::Result<MemoryFile> {
        let Inner { tree, faults, .. } = &*self.0;
        faults.pass(Call::Open, path)?;
        let node = match (tree.file(path), create) {
            (Ok(node), Create::Never | Create::IfMissing) => node,
            (Ok(node), Create::Truncate) => {
                node.borrow_mut().truncate(0);
                node
            }
            (Err(error), Create::Never) => return Err(error),
            (Err(error), _) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            (Err(_), _) => tree.put(path, Content::default()),
        };
        if let Some(most) = self.0.open_max.get() {
            self.0.open_files.make_room(|| self.0.open.get() >= most);
        }
        self.0.open.set(self.0.open.get() + 1);
        self.0.most_open.set(self.0.most_open.get().max(self.0.open.get()));
        Ok(MemoryFile::new(self.clone(), node, path, access == Access::DirectSync))
    }

    fn keep(&self, slot: &Rc<Slot<MemoryFile>>) {
        self.0.open_files.keep(slot);
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.faults.pass(Call::MakeFolder, path)?;
        self.0.tree.make_folders(path, false);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.0.faults.pass(Call::List, path)?;
        let Ok(folder) = self.0.tree.folder(path) else { return Ok(Vec::new()) };
        let entry = |(name, node): (Rc<str>, Node)| match node {
            Node::File(file) => {
                Entry { name: name.to_string(), is_dir: false, bytes: file.borrow().content.size() as u64 }
            }
            Node::Folder(_) => Entry { name: name.to_string(), is_dir: true, bytes: 0 },
        };
        Ok(folder.entries().into_iter().map(entry).collect())
    }

    fn file_bytes(&self, path: &Path) -> io::Result<u64> {
        self.0.faults.still()?;
        Ok(self.0.tree.file(path)?.borrow().content.size() as u64)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.faults.pass(Call::Rename, from)?;
        self.0.faults.note("rename", to, 0, &[]);
        self.0.watch.renamed(to);
        self.0.tree.rename(from, to)
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.faults.pass(Call::Remove, path)?;
        self.device().await?;
        self.remove(path);
        Ok(())
    }

    async fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.faults.pass(Call::RemoveFolder, path)?;
        let mut folders = Vec::new();
        if let Ok(folder) = self.0.tree.folder(path) {
            folders.push(Rc::clone(&folder));
            folder.walk(&mut |node| {
                if let Node::Folder(folder) = node {
                    folders.push(Rc::clone(folder));
                }
            });
        }
        for folder in folders.into_iter().rev() {
            for (name, _) in folder.entries() {
                self.device().await?;
                folder.unset(&name);
            }
        }
        self.device().await?;
        self.remove(path);
        Ok(())
    }

    async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.faults.pass(Call::SyncFolder, path)?;
        let Ok(folder) = self.0.tree.folder(path) else { return Ok(()) };
        // What comes meanwhile is the next flush's.
        let count = folder.count();
        self.device().await?;
        folder.flush(count);
        Ok(())
    }

    async fn sync_fs(&self, path: &Path) -> io::Result<()> {
        self.0.faults.pass(Call::SyncAll, path)?;
        self.device().await?;
        self.0.tree.root.flush_all();
        Ok(())
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        let total_bytes = self.0.capacity.get().unwrap_or(1 << 40);
        let used = if self.0.capacity.get().is_some() { self.total_bytes() } else { 0 };
        Ok(Space { total_bytes, free_bytes: total_bytes.saturating_sub(used) })
    }
}
