//! Open files that may be closed again at any moment, so that a shard with any number of files holds a bounded number of
//! descriptors: what was not used for long goes first (second chance, as in a page cache).
//!
//! A file with writes that were not flushed is flushed before it is closed. The kernel tells a failed write-out to those
//! who have the file open, and may forget it with the last of them: a flush by a later descriptor would prove nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};

use super::disk::DiskFile;
use super::host::{self, Queue};

/// Files looked at for one that is opened: enough to find one that may go, and less than a microsecond.
const LOOKS: usize = 64;
/// Files that are flushed at the same time so that they can be closed.
const FLUSHES_MAX: usize = 16;

/// A file of which the owner can do without the descriptor: it opens the file again when there is none.
#[derive(Debug)]
pub struct Slot<F> {
    file: RefCell<Option<Rc<F>>>,
    was_used: Cell<bool>,
    is_listed: Cell<bool>,
    is_pinned: Cell<bool>,
    is_flushing: Cell<bool>,
    writes: Cell<u64>,
    /// Of these.
    flushed: Cell<u64>,
    /// A flush that nobody waited for has failed.
    failure: RefCell<Option<String>>,
}

impl<F> Default for Slot<F> {
    fn default() -> Self {
        Self {
            file: RefCell::new(None),
            was_used: Cell::default(),
            is_listed: Cell::default(),
            is_pinned: Cell::default(),
            is_flushing: Cell::default(),
            writes: Cell::default(),
            flushed: Cell::default(),
            failure: RefCell::default(),
        }
    }
}

impl<F: DiskFile> Slot<F> {
    /// The file, if it is open.
    #[must_use]
    pub fn get(&self) -> Option<Rc<F>> {
        self.was_used.set(true);
        self.file.borrow().clone()
    }

    /// The file was opened.
    pub fn put(&self, file: Rc<F>) {
        self.was_used.set(true);
        *self.file.borrow_mut() = Some(file);
    }

    /// True while it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.file.borrow().is_some()
    }

    /// True once if the file was used since this was last asked.
    pub fn take_used(&self) -> bool {
        self.was_used.replace(false)
    }

    /// The file stays open as long as its owner: it has no name any more.
    pub fn pin(&self) {
        self.is_pinned.set(true);
    }

    /// It may be closed again after all.
    pub fn unpin(&self) {
        self.is_pinned.set(false);
    }

    /// True when it stays open.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.is_pinned.get()
    }

    /// Bytes are about to be written, or cut.
    pub fn note_write(&self) {
        self.writes.set(self.writes.get() + 1);
    }

    /// True when every write is on disk.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.flushed.get() == self.writes.get() && self.failure.borrow().is_none()
    }

    /// Makes every write so far durable through `file`.
    ///
    /// # Errors
    /// Those of the disk, also one that an earlier flush met: a later success proves nothing for it.
    pub async fn flush(&self, file: &F) -> io::Result<()> {
        let writes = self.writes.get();
        self.note_flushed(writes, file.sync_data().await)
    }

    /// The flush of the first `writes` writes came to this.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn note_flushed(&self, writes: u64, flushed: io::Result<()>) -> io::Result<()> {
        if let Some(failure) = &*self.failure.borrow() {
            return Err(io::Error::other(failure.clone()));
        }
        match flushed {
            Ok(()) => self.flushed.set(self.flushed.get().max(writes)),
            // Nothing was tried.
            Err(error) if super::disk::is_out_of_descriptors(&error) => return Err(error),
            Err(error) => {
                *self.failure.borrow_mut() = Some(error.to_string());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Closes the file unless it has writes that were not flushed, or somebody is using it.
    pub fn close(&self) {
        let mut file = self.file.borrow_mut();
        if self.is_flushed() && !self.is_pinned.get() && file.as_ref().is_some_and(|file| Rc::strong_count(file) == 1) {
            *file = None;
        }
    }

    /// The file with its writes so far, if it waits to be flushed and nobody is at it.
    pub(super) fn unflushed(&self) -> Option<(Rc<F>, u64)> {
        let file = self.file.borrow().clone()?;
        let is_idle = !self.is_flushing.get() && self.failure.borrow().is_none();
        (is_idle && !self.is_flushed()).then(|| (file, self.writes.get()))
    }
}

/// The files of one shard that may be closed.
#[derive(Debug)]
pub struct OpenFiles<F> {
    /// In the order in which they will be looked at.
    kept: RefCell<VecDeque<Weak<Slot<F>>>>,
    flushes: Rc<Cell<usize>>,
}

impl<F> Default for OpenFiles<F> {
    fn default() -> Self {
        Self { kept: RefCell::default(), flushes: Rc::default() }
    }
}

impl<F: DiskFile> OpenFiles<F> {
    /// The file of `slot` was opened: it may be closed when others need its descriptor.
    pub fn keep(&self, slot: &Rc<Slot<F>>) {
        if !slot.is_listed.replace(true) {
            self.kept.borrow_mut().push_back(Rc::downgrade(slot));
        }
        self.forget_closed();
    }

    /// One comes, so one that is closed or gone may go: the list stays as short as what is open.
    fn forget_closed(&self) {
        let mut kept = self.kept.borrow_mut();
        let Some(oldest) = kept.pop_front() else { return };
        match oldest.upgrade() {
            Some(slot) if slot.is_open() => kept.push_back(oldest),
            Some(slot) => slot.is_listed.set(false),
            None => {}
        }
    }

    /// Number of files in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.borrow().len()
    }

    /// True while no file is in the list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes files that were not used lately while `is_too_many` says so, and begins to flush those that cannot be closed
    /// before that. Looks at a few only: it is asked again with the next file.
    pub fn make_room(&self, is_too_many: impl Fn() -> bool) {
        for _ in 0..LOOKS {
            if !is_too_many() || !self.look_at_next(|slot| self.flush_and_close(slot)) {
                return;
            }
        }
    }

    /// Closes the next file that may go; `hurry` closes one that must be flushed before. False when there is none at all.
    pub(super) fn look_at_next(&self, hurry: impl FnOnce(&Rc<Slot<F>>)) -> bool {
        let Some(oldest) = self.kept.borrow_mut().pop_front() else { return false };
        let Some(slot) = oldest.upgrade() else { return true };
        if !slot.take_used() {
            slot.close();
            if slot.is_open() {
                hurry(&slot);
            }
        }
        if slot.is_open() {
            self.kept.borrow_mut().push_back(oldest);
        } else {
            slot.is_listed.set(false);
        }
        true
    }

    fn flush_and_close(&self, slot: &Rc<Slot<F>>) {
        if self.flushes.get() >= FLUSHES_MAX {
            return;
        }
        let Some((file, writes)) = slot.unflushed() else { return };
        self.flushes.set(self.flushes.get() + 1);
        slot.is_flushing.set(true);
        let (slot, flushes) = (Rc::clone(slot), Rc::clone(&self.flushes));
        host::spawn(Queue::Background, async move {
            // Whoever flushes the file next is told of a failure.
            let _told = slot.note_flushed(writes, file.sync_data().await);
            drop(file);
            slot.is_flushing.set(false);
            flushes.set(flushes.get() - 1);
            if !slot.was_used.get() {
                slot.close();
            }
        });
    }
}
