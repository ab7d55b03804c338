//! The log start of a partition on its owning core (docs/adr/0008-log-start.md).
//!
//! The order is the guarantee (storage rule S8): a record in the commit log, durable → clients see the new start and are
//! answered → files wholly below it are renamed, and unlinked after `file.delete.delay.ms`. A start that was seen is never
//! taken back; one that was only planned may be found after a crash, since it never lies above what is durable.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::messages::{Answer, Ask, Deleted, Deletion};
use super::partition::{Partition, unsigned};
use super::shard::{Served, Shard};
use crate::ids::{Offset, ShardId};
use crate::log::log_file::LogRecord;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::runtime::signal::first_of;
use crate::wire::error_code::ErrorCode;

/// The offset by which a client means the high watermark.
const HIGH_WATERMARK: Offset = Offset(-1);
/// The shortest time that a request waits for the disk. Kafka answers from memory and so never runs into a short time-out
/// with one replica; ours would be refused for something that is done a moment later.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Segments renamed without letting other tasks run.
const RENAMED_IN_A_ROW: usize = 16;

/// What a deletion waits for: the start of that partition at or above that offset.
type Begun<D> = Result<(Rc<Partition<D>>, Offset), ErrorCode>;

impl<D: Disk> Shard<D> {
    /// Has the owners of these partitions move their log starts; one result for each, in order.
    pub async fn delete_records(self: &Rc<Self>, items: Vec<Deletion>, patience: Duration) -> Vec<Deleted> {
        let mut results = vec![refused(ErrorCode::UnknownServerError); items.len()];
        let mut by_owner: BTreeMap<ShardId, (Vec<usize>, Vec<Deletion>)> = BTreeMap::new();
        for (at, item) in items.into_iter().enumerate() {
            let (places, items) = by_owner.entry(self.owner(item.key)).or_default();
            places.push(at);
            items.push(item);
        }
        let ask = |(owner, (places, items))| (places, self.ask(owner, Ask::DeleteRecords(items, patience)));
        for (places, answer) in by_owner.into_iter().map(ask).collect::<Vec<_>>() {
            let Answer::Deleted(some) = answer.await else { continue };
            places.into_iter().zip(some).for_each(|(place, one)| results[place] = one);
        }
        results
    }

    /// Moves log starts here; answered when they are durable and visible, or when time is up.
    pub(super) fn move_log_starts(self: &Rc<Self>, items: &[Deletion], patience: Duration) -> Served {
        let begun: Vec<_> = items.iter().map(|item| (*item, self.begin_deletion(item))).collect();
        let deadline = clock::monotonic() + patience.max(PATIENCE_MIN);
        let shard = Rc::clone(self);
        Served::Later(Box::pin(async move {
            let mut results = Vec::with_capacity(begun.len());
            for (item, one) in begun {
                let one = match one {
                    Err(ErrorCode::KafkaStorageError) => shard.begin_deletion_later(&item, deadline).await,
                    other => other,
                };
                results.push(shard.end_deletion(one, deadline).await);
            }
            Answer::Deleted(results)
        }))
    }

    fn begin_deletion(self: &Rc<Self>, item: &Deletion) -> Begun<D> {
        let partition = self.find_partition(item.key)?;
        let high_watermark = partition.high_watermark();
        let to = if item.before == HIGH_WATERMARK { high_watermark } else { item.before };
        if to < Offset(0) || to > high_watermark {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        self.move_log_start(&partition, to)?;
        Ok((partition, to))
    }

    /// [`Self::begin_deletion`] once the commit log has room: it is short of it only until a checkpoint is made.
    async fn begin_deletion_later(self: &Rc<Self>, item: &Deletion, deadline: Duration) -> Begun<D> {
        loop {
            let wait = deadline.saturating_sub(clock::monotonic());
            let log = self.log().clone();
            let has_room = async move { Some(log.wait_for_reserved_room(0).await) };
            let late = async move {
                clock::sleep(wait).await;
                None
            };
            match first_of(vec![Box::pin(has_room), Box::pin(late)]).await {
                Some(true) => {}
                Some(false) => return Err(ErrorCode::KafkaStorageError),
                None => return Err(ErrorCode::RequestTimedOut),
            }
            match self.begin_deletion(item) {
                Err(ErrorCode::KafkaStorageError) => {} // somebody was faster
                begun => return begun,
            }
        }
    }

    /// Makes sure that everything below `to`, which is not above the high watermark, will be gone: a start that is there or
    /// on its way already is not moved again.
    ///
    /// # Errors
    /// 56 when even the room kept for this is used up in the commit log. Nothing has changed then.
    pub(super) fn move_log_start(self: &Rc<Self>, partition: &Rc<Partition<D>>, to: Offset) -> Result<(), ErrorCode> {
        if to <= partition.planned_start() {
            return Ok(());
        }
        self.begin_segment_behind(partition, to);
        let record = LogRecord::log_start(partition.log_id, to);
        let group = self.log().push_reserved(record).ok_or(ErrorCode::KafkaStorageError)?;
        // In the same step, so that a checkpoint which covers the record's group has the start in it.
        partition.plan_start(to);
        let (shard, partition, work) = (Rc::clone(self), Rc::clone(partition), self.begin_work());
        host::spawn(Queue::Requests, async move {
            if shard.log().wait_durable(group).await {
                partition.show_start(to, &shard.waiters);
                shard.remove_below_start(&partition);
            } else {
                partition.start_moved.wake_all();
            }
            drop(work);
        });
        Ok(())
    }

    /// Where everything goes, the name of an empty segment keeps the end.
    pub(super) fn begin_segment_behind(&self, partition: &Rc<Partition<D>>, start: Offset) {
        if partition.roll_behind(start, clock::now_ms()) {
            self.write_snapshots_soon(partition);
        }
    }

    async fn end_deletion(&self, begun: Begun<D>, deadline: Duration) -> Deleted {
        let (partition, to) = match begun {
            Ok(begun) => begun,
            Err(error) => return Deleted { error, low_watermark: Offset(-1) },
        };
        match self.start_reached(&partition, to, deadline).await {
            Some(true) => Deleted { error: ErrorCode::None, low_watermark: partition.log_start() },
            Some(false) if partition.is_closed() => refused(ErrorCode::UnknownTopicOrPartition),
            Some(false) => refused(ErrorCode::KafkaStorageError),
            None => Deleted { error: ErrorCode::RequestTimedOut, low_watermark: partition.log_start() },
        }
    }

    /// `None` when time is up, false when it will not happen any more.
    async fn start_reached(&self, partition: &Rc<Partition<D>>, to: Offset, deadline: Duration) -> Option<bool> {
        if partition.log_start() >= to {
            return Some(true);
        }
        let wait = deadline.saturating_sub(clock::monotonic());
        let (log, partition) = (self.log().clone(), Rc::clone(partition));
        let reached = async move {
            let gives_up = || partition.is_closed() || log.is_failed();
            Some(partition.start_moved.reached(unsigned(to), gives_up).await)
        };
        let late = async move {
            clock::sleep(wait).await;
            None
        };
        first_of(vec![Box::pin(reached), Box::pin(late)]).await
    }

    /// Removes the segments that lie wholly below the log start, in the background.
    pub(super) fn remove_below_start(self: &Rc<Self>, partition: &Rc<Partition<D>>) {
        if !partition.log.borrow().has_segment_below_start() {
            return;
        }
        let (shard, partition) = (Rc::clone(self), Rc::clone(partition));
        host::spawn(Queue::Background, async move {
            let removed = shard.retire_segments(&partition).await;
            shard.unlink_later(&partition, &removed).await;
        });
    }

    /// Renames the files; not beside a checkpoint, which writes derived files of the segments that it found.
    async fn retire_segments(&self, partition: &Partition<D>) -> Vec<Offset> {
        let Some(checkpointer) = self.checkpointer.get() else { return Vec::new() };
        let _turn = checkpointer.my_turn().await;
        let mut removed = Vec::new();
        while !partition.is_closed() && !self.is_closing.get() {
            let retired = partition.log.borrow_mut().retire_first();
            match retired {
                Ok(Some(base)) => removed.push(base),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("{}: a deleted segment cannot be renamed: {error}", partition.name);
                    break;
                }
            }
            if removed.len().is_multiple_of(RENAMED_IN_A_ROW) {
                host::yield_now().await;
            }
        }
        if !removed.is_empty() {
            partition.mark_dirty(); // the folder is to be flushed
        }
        removed
    }

    /// Unlinks renamed files after the topic's delay. What a stop leaves is unlinked by the next start.
    pub(super) async fn unlink_later(&self, partition: &Partition<D>, bases: &[Offset]) {
        if bases.is_empty() {
            return;
        }
        let delay_ms =
            self.catalog().topic_by_id(partition.key.topic).map_or(0, |topic| topic.settings.file_delete_delay_ms);
        clock::sleep(Duration::from_millis(u64::try_from(delay_ms).unwrap_or(0))).await;
        let folder = partition.log.borrow().folder().to_path_buf();
        for base in bases {
            if partition.is_closed() {
                return; // gone with its folder
            }
            if let Err(error) = self.remove_segment_files(&folder, *base).await {
                tracing::warn!("{}: a deleted segment cannot be unlinked: {error}", partition.name);
            }
        }
    }
}

fn refused(error: ErrorCode) -> Deleted {
    Deleted { error, low_watermark: Offset(-1) }
}
