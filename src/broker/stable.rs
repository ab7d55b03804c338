//! What readers of committed records may see of a partition: up to the last stable offset, and without what was aborted.

use std::rc::Rc;

use super::partition::{Partition, signed, unsigned};
use super::waiters::Waiters;
use crate::ids::Offset;
use crate::runtime::disk::Disk;

impl<D: Disk> Partition<D> {
    /// First offset that readers of what is committed must not see; never above the high watermark, never below the log
    /// start.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        signed(self.last_stable.get())
    }

    /// The end of what a reader may see.
    #[must_use]
    pub fn readable_end(&self, is_committed: bool) -> Offset {
        if is_committed { self.last_stable_offset() } else { self.high_watermark() }
    }

    /// The high watermark or the log start has moved. What was aborted is known since its marker was staged, so it is before
    /// this.
    pub(super) fn raise_last_stable(&self, waiters: &Waiters) {
        let stable = self.producers.borrow_mut().stable_below(self.high_watermark()).max(self.log_start());
        if stable <= self.last_stable_offset() {
            return;
        }
        self.last_stable.raise(unsigned(stable));
        self.wake_stable_watchers(waiters);
    }

    pub(super) fn wake_stable_watchers(&self, waiters: &Waiters) {
        for watcher in self.stable_watchers.borrow_mut().drain(..) {
            waiters.wake(&watcher);
        }
    }

    /// `true` while nothing was committed beyond what `seen` covers.
    #[must_use]
    pub fn has_read_all(self: &Rc<Self>, seen: Offset, is_committed: bool) -> bool {
        self.readable_end(is_committed) == seen
    }
}
