//! How fast compaction goes: it yields often, and never takes the disk for long.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::partition::Partition;
use super::shard::Shard;
use crate::log::compactor::{Pace, Stopped};
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host;

/// Records looked at without letting other tasks run: with small ones about 200 µs.
const WORK_BYTES: usize = 16 << 10;
/// What a batch costs beside its bytes.
const BATCH_COST: usize = 256;
/// Reads and writes between two pauses. One flush of the output is as large, and commits wait no longer than that.
const IO_BYTES: usize = 1 << 20;
/// The pause.
const PAUSE: Duration = Duration::from_millis(2);

/// One round on one partition.
pub(super) struct RoundPace<'a, D: Disk> {
    shard: &'a Shard<D>,
    partition: &'a Rc<Partition<D>>,
    /// `log.cleaner.io.max.bytes.per.second`.
    bytes_per_second: f64,
    worked: Cell<usize>,
    moved: Cell<usize>,
    /// When what was moved so far may have been moved, at the speed that is allowed.
    due: Cell<Duration>,
}

impl<'a, D: Disk> RoundPace<'a, D> {
    pub(super) fn begin(shard: &'a Shard<D>, partition: &'a Rc<Partition<D>>) -> Self {
        let bytes_per_second = shard.catalog().config().cleaner.io_bytes_per_second;
        let due = Cell::new(clock::monotonic());
        Self { shard, partition, bytes_per_second, worked: Cell::default(), moved: Cell::default(), due }
    }

    fn goes_on(&self) -> Result<(), Stopped> {
        let is_over = self.partition.is_closed() || self.partition.is_failed();
        let stops = self.shard.is_stopping() || self.shard.is_closing.get();
        if is_over || stops { Err(Stopped) } else { Ok(()) }
    }

    /// The moment before which nothing more may be moved.
    fn note_moved(&self, bytes: usize) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a speed needs no more than 52 bits")]
        let takes = Duration::try_from_secs_f64(bytes as f64 / self.bytes_per_second.max(1.0)).unwrap_or_default();
        let due = self.due.get().max(clock::monotonic().saturating_sub(Duration::from_secs(1))) + takes;
        self.due.set(due);
        due
    }
}

impl<D: Disk> Pace for RoundPace<'_, D> {
    async fn work(&self, bytes: usize) -> Result<(), Stopped> {
        let worked = self.worked.get() + bytes + BATCH_COST;
        self.worked.set(worked);
        if worked < WORK_BYTES {
            return Ok(());
        }
        self.worked.set(0);
        host::yield_now().await;
        self.goes_on()
    }

    async fn io(&self, bytes: usize) -> Result<(), Stopped> {
        self.moved.set(self.moved.get() + bytes);
        let due = self.note_moved(bytes);
        let early = due.saturating_sub(clock::monotonic());
        if !early.is_zero() {
            clock::sleep(early).await;
        } else if self.moved.get() >= IO_BYTES {
            self.moved.set(0);
            clock::sleep(PAUSE).await;
        }
        self.goes_on()
    }
}
