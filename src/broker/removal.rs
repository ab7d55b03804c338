//! Files that nobody needs any more go one after another, at a pace that other work does not feel (storage.md §4).
//!
//! A deleted partition's folder has a name of its own by then, and a deleted segment's files have the ending `.deleted`:
//! what is still there when the broker ends, the next start finds and removes the same way.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::shard::Shard;
use crate::ids::Offset;
use crate::log::names::Kind;
use crate::log::segment::remove_deleted;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::runtime::signal::Turns;

/// Time for each file that all shards together remove: 2,000 a second, where a file system at full speed does 9,000.
const FILE_TIME: Duration = Duration::from_micros(500);
/// What may be ahead of its time, so that a few files need no timer.
const AHEAD_MAX: Duration = Duration::from_millis(20);

/// What a shard has to remove, and how fast it may.
#[derive(Default)]
pub(super) struct Removal {
    /// When the next file may go.
    free_at: Cell<Duration>,
    /// Folders go one after another.
    turns: Turns,
    /// Folders of deleted partitions that an earlier run has left.
    leftovers: RefCell<Vec<PathBuf>>,
}

impl Removal {
    /// Waits until so many files may go, where each takes `file_time`.
    async fn wait(&self, files: u32, file_time: Duration) {
        let now = clock::monotonic();
        let at = self.free_at.get().max(now);
        self.free_at.set(at + file_time * files);
        if at > now + AHEAD_MAX {
            clock::sleep(at - now).await;
        }
    }
}

impl<D: Disk> Shard<D> {
    /// Waits until so many files may be removed.
    async fn may_remove(&self, files: u32) {
        self.removal.wait(files, FILE_TIME * self.shards()).await;
    }

    /// Removes the files of deleted segments that are renamed already.
    pub(super) async fn remove_segment_files(&self, folder: &Path, base: Offset) -> io::Result<()> {
        self.may_remove(u32::try_from(Kind::ALL.len()).unwrap_or(u32::MAX)).await;
        remove_deleted(&self.disk, folder, base).await
    }

    /// Removes the folder of a deleted partition after `delay`; nobody waits for it.
    pub(super) fn remove_folder_later(self: &Rc<Self>, folder: PathBuf, delay: Duration) {
        let shard = Rc::clone(self);
        host::spawn(Queue::Background, async move {
            clock::sleep(delay).await;
            let _turn = shard.removal.turns.mine().await;
            if let Err(error) = shard.remove_folder(&folder).await {
                let folder = folder.display();
                tracing::warn!("{folder}: cannot be removed now, the next start tries again: {error}");
            }
        });
    }

    async fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        let entries = match self.disk.list(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for file in entries.iter().filter(|entry| !entry.is_dir) {
            self.may_remove(1).await;
            self.disk.remove_file(&folder.join(&file.name)).await?;
        }
        self.may_remove(1).await;
        self.disk.remove_dir_all(folder).await
    }

    /// Takes over this shard's part of what an earlier run has left.
    pub(super) fn take_leftovers(&self, all: &[PathBuf]) {
        let (shards, own) = (self.shards() as usize, self.id.0 as usize);
        self.removal.leftovers.borrow_mut().extend(all.iter().skip(own).step_by(shards).cloned());
    }

    /// Begins to remove what was taken over.
    pub(super) fn remove_leftovers(self: &Rc<Self>) {
        let leftovers = std::mem::take(&mut *self.removal.leftovers.borrow_mut());
        leftovers.into_iter().for_each(|folder| self.remove_folder_later(folder, Duration::ZERO));
    }
}
