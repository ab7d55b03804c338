//! Below which offsets compaction may touch segments (storage rule S14, docs/adr/0010-compaction.md).
//!
//! A compacted segment is no longer what the commit log and older checkpoints describe. So nothing that a recovery could
//! still read may describe it: every checkpoint that is kept has a recovery point above it and names a later segment as the
//! one that is written to, and every file of the commit log that held a batch of it has lost its header. Both come by themselves while records come; here they are brought
//! about when compaction waits for them:
//!
//! ```text
//! full checkpoint ─► what is below its active segments ─► the log goes on in a new file ─► full checkpoint: older ones are
//! removed, the file is given up ─► its header goes ─► folder flushed ─► what was below may be touched
//! ```

use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::checkpointer::PAUSE;
use super::partition::Partition;
use super::shard::Shard;
use crate::ids::Offset;
use crate::runtime::clock;
use crate::runtime::disk::Disk;

/// So much longer than it takes to raise it is waited before the next time.
const REST_FACTOR: u32 = 20;

impl<D: Disk> Shard<D> {
    /// Lets compaction touch what is durable now; false when that cannot be at present.
    pub(super) async fn raise_cleaning_floor(self: &Rc<Self>, of: &[Rc<Partition<D>>]) -> bool {
        let begun = clock::monotonic();
        if begun < self.cleaning_rests_until.get() {
            return false;
        }
        let raised = self.try_to_raise(of).await;
        let took = clock::monotonic().saturating_sub(begun);
        self.cleaning_rests_until.set(clock::monotonic() + took * REST_FACTOR);
        raised.unwrap_or_else(|error| {
            tracing::warn!("{}: compaction waits, a checkpoint for it failed: {error}", self.id());
            false
        })
    }

    async fn try_to_raise(self: &Rc<Self>, of: &[Rc<Partition<D>>]) -> io::Result<bool> {
        let Some(checkpointer) = self.checkpointer.get() else { return Ok(false) };
        let (points, seq, covered) = {
            let _turn = checkpointer.my_turn().await;
            if self.is_closing.get() {
                return Ok(false);
            }
            self.checkpoint_in_turn(checkpointer, true, PAUSE).await?;
            (points_of(of), checkpointer.newest(), self.log().last_sequence())
        };
        if !self.log().turn_over(covered).await {
            return Ok(false);
        }
        {
            let _turn = checkpointer.my_turn().await;
            if self.is_closing.get() {
                return Ok(false);
            }
            self.checkpoint_in_turn(checkpointer, true, PAUSE).await?;
        }
        // A failed partition keeps both its checkpoints and its files of the log.
        if !checkpointer.has_none_before(seq) || !self.log().forget(covered).await {
            return Ok(false);
        }
        self.disk.sync_dir(checkpointer.folder()).await?;
        for (partition, point) in points {
            partition.cleaning.touchable_below.set(partition.cleaning.touchable_below.get().max(point));
        }
        Ok(true)
    }
}

/// What the full checkpoint that was just written says; one that failed meanwhile is not in it. The segment that it names
/// as the active one must stay under its name, also when it ends at the recovery point: its absence would look like a loss.
fn points_of<D: Disk>(of: &[Rc<Partition<D>>]) -> Vec<(Rc<Partition<D>>, Offset)> {
    let sound = of.iter().filter(|partition| !partition.is_failed() && !partition.is_closed());
    let point = |partition: &Partition<D>| partition.recovery_point.get().min(partition.checkpointed_base.get());
    sound.map(|partition| (Rc::clone(partition), point(partition))).collect()
}

/// Kept on the shard: when the next attempt may come.
pub(super) type RestsUntil = std::cell::Cell<Duration>;
