//! Produce on the owning core: stage in the order of arrival, write, wait for what the client asked for.

use std::rc::Rc;

use super::enlisting::Parking;
use super::messages::{AckLevel, Answer, CheckedBatch, PartitionKey, ProduceItem, Produced};
use super::partition::{Partition, StageContext, Staged};
use super::shard::{InTail, Served, Shard, Undurable};
use crate::config::Durability;
use crate::ids::Offset;
use crate::log::commit_log::CommitLog;
use crate::log::log_file::LogRecord;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::runtime::signal::Receiver;
use crate::state::producers::Enlisted;
use crate::wire::admission::Refused;
use crate::wire::error_code::ErrorCode;

/// What the tail cache needs beside the bytes of a batch.
const KEPT_BYTES: usize = 128;

/// One batch of a request, after staging.
pub(super) struct Waiting<D: Disk> {
    produced: Produced,
    /// What a good answer waits for.
    wait: Option<Wait<D>>,
}

/// A batch that has its place.
struct Wait<D: Disk> {
    partition: Rc<Partition<D>>,
    /// The offset behind it.
    end: Offset,
    is_transactional: bool,
}

/// One batch of a request.
enum Begun<D: Disk> {
    Staged(Waiting<D>),
    /// It waits for its producer's coordinator.
    Parked(Receiver<Waiting<D>>),
}

/// A batch that does not begin a transaction.
pub(super) const NOT_ENLISTED: Enlisted = Enlisted { holds: false, lowest: None, adds: false };

impl<D: Disk> Shard<D> {
    /// Stages the batches of one request, in order; the answer comes when they are as safe as was asked.
    pub(super) fn produce(self: &Rc<Self>, items: Vec<ProduceItem>, level: AckLevel) -> Served {
        if !self.has_room_for(&items) {
            return self.produce_later(items, level);
        }
        self.produce_now(items, level)
    }

    fn produce_now(self: &Rc<Self>, items: Vec<ProduceItem>, level: AckLevel) -> Served {
        let mut to_ask = Vec::new();
        let begun: Vec<_> = items.into_iter().map(|item| self.begin_item(item, &mut to_ask)).collect();
        self.write_what_is_awaited(&begun, level);
        self.ask_for_parked(to_ask);
        let is_settled = |one: &Begun<D>| match one {
            Begun::Staged(waiting) => level == AckLevel::None || waiting.wait.is_none(),
            Begun::Parked(_) => false,
        };
        if begun.iter().all(is_settled) {
            let produced = begun.into_iter().map(|one| match one {
                Begun::Staged(waiting) => waiting.produced,
                Begun::Parked(_) => refused_for_now(),
            });
            return Served::Now(Answer::Produced(produced.collect()));
        }
        let work = self.begin_work();
        let log = self.log().clone();
        Served::Later(Box::pin(async move {
            let mut results = Vec::with_capacity(begun.len());
            for one in begun {
                let waiting = match one {
                    Begun::Staged(waiting) => Some(waiting),
                    Begun::Parked(parked) => parked.await,
                };
                results.push(match waiting {
                    Some(waiting) => settle(&log, waiting, level).await,
                    None => refused_for_now(),
                });
            }
            drop(work);
            Answer::Produced(results)
        }))
    }

    /// While the commit log has no room, requests wait here in the order in which they came.
    ///
    /// Connections bound what waits, but those that leave meanwhile leave their requests behind, and come again with the
    /// same: beyond what all connections together may have in flight, requests are refused.
    fn produce_later(self: &Rc<Self>, items: Vec<ProduceItem>, level: AckLevel) -> Served {
        let bytes = bytes_of(&items, usize::MAX).0;
        if self.stalled_bytes.get() + bytes > self.stalled_bytes_max() {
            return Served::Now(Answer::Produced(items.iter().map(|_| refused_for_now()).collect()));
        }
        self.stalled_bytes.set(self.stalled_bytes.get() + bytes);
        let (sender, receiver) = crate::runtime::signal::once();
        let is_first = {
            let mut stalled = self.stalled.borrow_mut();
            stalled.push_back((items, level, sender));
            stalled.len() == 1
        };
        if is_first {
            host::spawn(Queue::Requests, Rc::clone(self).unstall());
        }
        Served::Later(Box::pin(async move { receiver.await.unwrap_or(Answer::Produced(Vec::new())) }))
    }

    fn stalled_bytes_max(&self) -> usize {
        self.config().memory_budget_bytes.saturating_mul(self.all_shards().count())
    }

    async fn unstall(self: Rc<Self>) {
        loop {
            let Some(bytes) = self.stalled.borrow().front().map(|(items, ..)| self.room_wanted(items)) else { return };
            // A failed log has no room ever again; staging then answers with the storage error.
            let _has_room = self.log().wait_for_room(bytes).await;
            if !self.produce_first_stalled() {
                return;
            }
        }
    }

    fn produce_first_stalled(self: &Rc<Self>) -> bool {
        let first = self.stalled.borrow_mut().pop_front();
        let Some((items, level, sender)) = first else { return false };
        self.stalled_bytes.set(self.stalled_bytes.get().saturating_sub(bytes_of(&items, usize::MAX).0));
        match self.produce_now(items, level) {
            Served::Now(answer) => sender.send(answer),
            Served::Later(answer) => {
                host::spawn(Queue::Requests, async move { sender.send(answer.await) });
            }
        }
        true
    }

    /// No file of the commit log will become free before a restart: who waits for one is told.
    pub(super) fn refuse_stalled(self: &Rc<Self>) {
        while self.produce_first_stalled() {}
    }

    fn has_room_for(&self, items: &[ProduceItem]) -> bool {
        if self.log().is_failed() || self.log_is_pinned.get() {
            return true; // staging refuses what cannot be taken
        }
        self.stalled.borrow().is_empty() && self.log().has_room(self.room_wanted(items))
    }

    /// Nobody waits for what no file of the log can take: it is refused when it is staged.
    fn room_wanted(&self, items: &[ProduceItem]) -> usize {
        let (total, largest) = bytes_of(items, self.log().record_bytes_max());
        self.log().room_for(total, largest)
    }

    fn log_takes(&self, bytes: usize) -> bool {
        let log = self.log();
        !log.is_failed() && bytes <= log.record_bytes_max() && (!self.log_is_pinned.get() || log.has_room(bytes))
    }

    /// Stages a batch, unless its producer's coordinator has to be asked first: then what has to be asked is in `to_ask`.
    fn begin_item(self: &Rc<Self>, item: ProduceItem, to_ask: &mut Vec<Parking>) -> Begun<D> {
        match self.must_wait(&item, to_ask) {
            true => Begun::Parked(self.park(item)),
            false => Begun::Staged(self.stage_item(item)),
        }
    }

    pub(super) fn stage_item(self: &Rc<Self>, item: ProduceItem) -> Waiting<D> {
        let Some(partition) = self.partition(item.key) else {
            return Waiting { produced: refused(ErrorCode::UnknownTopicOrPartition, Offset(-1)), wait: None };
        };
        let batch = match item.checked {
            Ok(batch) => batch,
            Err(reason) => return Waiting { produced: refused_for(reason, partition.log_start()), wait: None },
        };
        let enlisted = match &item.entry {
            None => NOT_ENLISTED,
            Some(entry) => partition.enlisted(batch.header.producer_id, entry),
        };
        match self.stage(&partition, &batch, enlisted) {
            Ok(staged) => {
                let produced = Produced {
                    error: ErrorCode::None,
                    base_offset: staged.base_offset,
                    log_append_time_ms: staged.log_append_time_ms,
                    log_start_offset: partition.log_start(),
                    detail: None,
                };
                let wait = Wait { partition, end: staged.end, is_transactional: staged.is_transactional };
                Waiting { produced, wait: Some(wait) }
            }
            Err(error) => Waiting { produced: refused(error, start_beside(error, &partition)), wait: None },
        }
    }

    fn stage(
        self: &Rc<Self>,
        partition: &Rc<Partition<D>>,
        batch: &CheckedBatch,
        enlisted: Enlisted,
    ) -> Result<Staged, ErrorCode> {
        self.stage_by(partition, batch.bytes.len(), |context| {
            context.enlisted = enlisted;
            partition.stage(batch, context)
        })
    }

    /// Has the partition give its place to something of so many bytes, and sends it on its way.
    pub(super) fn stage_by(
        self: &Rc<Self>,
        partition: &Rc<Partition<D>>,
        bytes: usize,
        stage: impl FnOnce(&mut StageContext<'_>) -> Result<Staged, ErrorCode>,
    ) -> Result<Staged, ErrorCode> {
        let log = self.log();
        let tick = self.tick.get() + 1;
        self.tick.set(tick);
        let mut context = StageContext {
            leader_epoch: self.leader_epoch(),
            now_ms: clock::now_ms(),
            admits: !self.disk_is_full.get() && self.log_takes(bytes),
            arena: &mut self.arena.borrow_mut(),
            tick,
            enlisted: NOT_ENLISTED,
        };
        let mut staged = stage(&mut context)?;
        if let Some(stored) = staged.stored.take() {
            let bytes = stored.len() + KEPT_BYTES;
            let is_lazy = partition.durability() == Durability::PageCache && !staged.is_transactional;
            let group = log.push(LogRecord::batch(partition.log_id, staged.base_offset, stored), is_lazy);
            let undurable = Undurable { group, partition: Rc::clone(partition), end: staged.end };
            self.undurable.borrow_mut().push_back(undurable);
            self.unwritten.borrow_mut().push(Rc::clone(partition));
            if staged.begins_epoch {
                self.write_epochs_soon(partition);
            }
            if staged.begins_segment {
                self.write_snapshots_soon(partition);
            }
            self.keep_in_tail(partition, staged.base_offset, bytes);
        }
        if staged.is_new_producer {
            self.note_new_producer();
        }
        Ok(staged)
    }

    /// The tail cache of all partitions together has one bound; the oldest batch leaves first.
    fn keep_in_tail(&self, partition: &Rc<Partition<D>>, base: Offset, bytes: usize) {
        let mut order = self.tail_order.borrow_mut();
        order.push_back(InTail { partition: Rc::clone(partition), base, bytes });
        let mut held = self.tail_bytes.get() + bytes;
        while held > self.config().tail_cache_bytes {
            let Some(oldest) = order.pop_front() else { break };
            oldest.partition.drop_tail_through(oldest.base);
            held -= oldest.bytes;
        }
        self.tail_bytes.set(held);
    }

    /// The tail cache lets deleted partitions go, and with them the descriptors that keep their room on the disk taken.
    pub(super) fn forget_tails_of_closed(&self) {
        let mut order = self.tail_order.borrow_mut();
        order.retain(|kept| !kept.partition.is_closed());
        self.tail_bytes.set(order.iter().map(|kept| kept.bytes).sum());
    }

    /// Who waits for the kernel only does not wait for the commit log: its bytes go to the segment at once.
    fn write_what_is_awaited(self: &Rc<Self>, begun: &[Begun<D>], level: AckLevel) {
        let waits_for_kernel = |one: &Begun<D>| {
            let Begun::Staged(waiting) = one else { return false };
            waiting
                .wait
                .as_ref()
                .is_some_and(|wait| level != AckLevel::Durable || wait.partition.durability() == Durability::PageCache)
        };
        if begun.iter().any(waits_for_kernel) {
            self.write_segments();
        }
    }

    /// Hands everything staged to the kernel; before each group of the commit log, and when somebody waits for it.
    pub(super) fn write_segments(self: &Rc<Self>) {
        let mut partitions = std::mem::take(&mut *self.unwritten.borrow_mut());
        for partition in partitions.drain(..) {
            if partition.write_little(&self.waiters) {
                self.write_rest_of(partition);
            } else {
                self.note_stuck(&partition);
            }
        }
        // Keeps the list's memory for the next group.
        let mut unwritten = self.unwritten.borrow_mut();
        if unwritten.is_empty() {
            *unwritten = partitions;
        }
    }

    pub(super) fn write_rest_of(self: &Rc<Self>, partition: Rc<Partition<D>>) {
        let shard = Rc::clone(self);
        host::spawn(Queue::Requests, async move {
            partition.write_rest(&shard.waiters).await;
            shard.note_stuck(&partition);
        });
    }

    /// After a write: if it found no room it is tried again by and by.
    pub(super) fn note_stuck(&self, partition: &Rc<Partition<D>>) {
        if partition.is_stuck() && !partition.is_closed() && !partition.is_listed_as_stuck.replace(true) {
            self.stuck.borrow_mut().push(Rc::clone(partition));
        }
    }

    /// The groups up to `group` are on disk.
    pub(super) fn note_durable(&self, group: u64) {
        loop {
            let next = {
                let mut undurable = self.undurable.borrow_mut();
                match undurable.front() {
                    Some(front) if front.group <= group => undurable.pop_front(),
                    _ => None,
                }
            };
            let Some(done) = next else { return };
            done.partition.note_durable(done.end, &self.waiters);
        }
    }

    /// The commit log failed: nobody waits for it any more.
    pub(super) fn note_failed(&self) {
        for failed in self.undurable.borrow_mut().drain(..) {
            failed.partition.wake_all();
        }
    }

    pub(super) fn find_partition(&self, key: PartitionKey) -> Result<Rc<Partition<D>>, ErrorCode> {
        self.partition(key).ok_or(ErrorCode::UnknownTopicOrPartition)
    }
}

/// Waits until the batch is as safe as was asked.
async fn settle<D: Disk>(log: &CommitLog<D>, one: Waiting<D>, level: AckLevel) -> Produced {
    let Some(Wait { partition, end, is_transactional }) = one.wait else { return one.produced };
    if is_transactional && level != AckLevel::None {
        // A commit must not outlive its data, whatever the client wants.
        return if partition.is_durable(log, end).await { one.produced } else { refused_for_now() };
    }
    let mark = match level {
        AckLevel::None => return one.produced,
        AckLevel::Written => &partition.written,
        AckLevel::Durable => &partition.high_watermark,
    };
    // A partition without room tries again by itself; the client's retry then finds its batch.
    let gives_up = || partition.is_failed() || partition.is_stuck() || partition.is_closed() || log.is_failed();
    if mark.reached(super::partition::unsigned(end), gives_up).await {
        return one.produced;
    }
    refused_for_now()
}

/// Bytes of all batches of at most `bytes_max` bytes, and of the largest.
fn bytes_of(items: &[ProduceItem], bytes_max: usize) -> (usize, usize) {
    let bytes = |item: &ProduceItem| item.checked.as_ref().map_or(0, |batch| batch.bytes.len());
    let sizes = || items.iter().map(bytes).filter(|bytes| *bytes <= bytes_max);
    (sizes().sum(), sizes().max().unwrap_or(0))
}

/// A batch that the coordinator does not want in the transaction.
pub(super) fn not_enlisted<D: Disk>(error: ErrorCode) -> Waiting<D> {
    Waiting { produced: refused(error, Offset(-1)), wait: None }
}

fn refused_for_now() -> Produced {
    refused(ErrorCode::KafkaStorageError, Offset(-1))
}

fn refused(error: ErrorCode, log_start_offset: Offset) -> Produced {
    Produced { error, base_offset: Offset(-1), log_append_time_ms: -1, log_start_offset, detail: None }
}

fn refused_for(reason: Refused, log_start: Offset) -> Produced {
    let log_start = if reason.tells_log_start { log_start } else { Offset(-1) };
    Produced { detail: Some(Box::new(reason.clone())), ..refused(reason.error, log_start) }
}

/// Kafka tells the log start beside the errors of the producer check (45, 47, 48) and leaves it out beside the others.
///
/// Source: apache/kafka `ReplicaManager.appendRecordsToLeader`.
fn start_beside<D: Disk>(error: ErrorCode, partition: &Partition<D>) -> Offset {
    match error {
        ErrorCode::RecordListTooLarge | ErrorCode::KafkaStorageError => Offset(-1),
        _ => partition.log_start(),
    }
}
