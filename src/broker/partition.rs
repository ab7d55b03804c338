//! One partition on its owning core: check → offset → remember, in one step without an await; reads; the high watermark.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::BytesMut;

use super::cleaner::Cleaning;
use super::messages::{CheckedBatch, PartitionKey, Records};
use super::snapshots::Snapshots;
use super::tail::Tail;
use super::waiters::{Waiters, Watcher};
use crate::config::{Durability, TopicSettings};
use crate::ids::{LogId, Offset, TopicPartition};
use crate::log::leader_epochs::LeaderEpochs;
use crate::log::log_files::is_no_space;
use crate::log::partition_log::{LogRules, PartitionLog, Readable};
use crate::log::segment::Incoming;
use crate::runtime::disk::{Disk, is_out_of_descriptors};
use crate::runtime::signal::Mark;
use crate::state::enlisting::Enlistments;
use crate::state::producers::{Appended, BatchIdentity, Enlisted, Producers, Refusal, Verdict};
use crate::wire::error_code::ErrorCode;
use crate::wire::stored::StoredBatch;

/// Batches up to this size are copied out of the receive buffer, which they would keep alive.
const COPY_BYTES_MAX: usize = 4 << 10;
/// Memory that small batches are copied into, in bytes.
const ARENA_BYTES: usize = 256 << 10;
/// What is handed to the kernel without letting other tasks run.
const WRITE_BYTES: usize = 64 << 10;

/// What staging needs of the shard.
pub struct StageContext<'a> {
    /// The store's generation.
    pub leader_epoch: i32,
    /// Broker time.
    pub now_ms: i64,
    /// False while nothing new may be written: the disk is full or the commit log failed.
    pub admits: bool,
    /// Where small batches are copied to.
    pub arena: &'a mut BytesMut,
    /// Order of use, for the eviction of producers.
    pub tick: u64,
    /// Whether a batch may begin a transaction.
    pub enlisted: Enlisted,
}

/// A batch that has its offsets, now or since an earlier append.
pub struct Staged {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// What the answer waits for: the offset behind the last record.
    pub end: Offset,
    /// The time for the answer; -1 for none.
    pub log_append_time_ms: i64,
    /// The batch for the commit log; `None` for a retry of what is staged or written.
    pub stored: Option<StoredBatch>,
    /// Its producer had not written here, as far as is known.
    pub is_new_producer: bool,
    /// It is the first batch of the partition since the start.
    pub begins_epoch: bool,
    /// It is the first batch of a segment behind another one.
    pub begins_segment: bool,
    /// It belongs to a transaction: nobody is told of it before it is durable.
    pub is_transactional: bool,
}

/// One partition.
pub struct Partition<D: Disk> {
    /// Topic id and index.
    pub key: PartitionKey,
    /// By name.
    pub name: TopicPartition,
    /// Which life of it.
    pub log_id: LogId,
    /// The files.
    pub log: RefCell<PartitionLog<D>>,
    /// Who wrote here.
    pub producers: RefCell<Producers>,
    /// First offset that is not readable yet.
    pub high_watermark: Mark,
    /// First offset that readers of what is committed must not see.
    pub last_stable: Mark,
    /// First offset that is not in the kernel yet.
    pub written: Mark,
    /// First offset that the commit log does not hold durably.
    pub durable: Mark,
    /// Smallest offset that a client may read, for those who wait for it to move.
    pub start_moved: Mark,
    /// The log start that is on its way into the commit log, or the present one.
    planned_start: Cell<Offset>,
    tail: RefCell<Tail>,
    durability: Cell<Durability>,
    segment_bytes: Cell<u64>,
    watchers: RefCell<Vec<Rc<Watcher>>>,
    /// Of readers of what is committed.
    pub(super) stable_watchers: RefCell<Vec<Rc<Watcher>>>,
    /// What coordinators were asked, for batches that are not here yet.
    pub(super) enlistments: RefCell<Enlistments>,
    is_failed: Cell<bool>,
    /// Acknowledged records are missing: nothing new is taken until somebody has accepted that.
    has_lost: Cell<bool>,
    /// A write found no room, or no descriptor: nothing new is taken until it has gone through.
    is_stuck: Cell<bool>,
    pub(super) is_listed_as_stuck: Cell<bool>,
    is_writing: Cell<bool>,
    is_dirty: Cell<bool>,
    is_closed: Cell<bool>,
    /// Kafka's producer snapshots that are not written yet.
    pub(super) snapshots: Snapshots,
    /// Which leader epoch begins at which offset.
    pub(super) epochs: RefCell<LeaderEpochs>,
    /// A batch was appended since the start.
    is_epoch_begun: Cell<bool>,
    /// The next checkpoint seals closed segments that reach above this offset.
    pub sealed_through: Cell<Offset>,
    /// Everything below is durable in the segments, as far as the last checkpoint says.
    pub recovery_point: Cell<Offset>,
    /// Base of the segment that the last checkpoint calls the active one.
    pub checkpointed_base: Cell<Offset>,
    /// How far compaction has come.
    pub cleaning: Cleaning,
}

impl<D: Disk> Partition<D> {
    /// A partition whose whole log is readable and durable: a new one, or as recovery found it.
    #[must_use]
    pub fn new(
        key: PartitionKey,
        name: TopicPartition,
        log_id: LogId,
        settings: &TopicSettings,
        log: PartitionLog<D>,
        mut producers: Producers,
    ) -> Self {
        let (start, end) = (log.start(), log.end());
        let stable = producers.stable_below(end).max(start);
        Self {
            key,
            name,
            log_id,
            log: RefCell::new(log),
            producers: RefCell::new(producers),
            high_watermark: Mark::at(unsigned(end)),
            last_stable: Mark::at(unsigned(stable)),
            written: Mark::at(unsigned(end)),
            durable: Mark::at(unsigned(end)),
            start_moved: Mark::at(unsigned(start)),
            planned_start: Cell::new(start),
            tail: RefCell::default(),
            durability: Cell::new(settings.durability),
            segment_bytes: Cell::new(settings.segment_bytes),
            watchers: RefCell::default(),
            stable_watchers: RefCell::default(),
            enlistments: RefCell::default(),
            is_failed: Cell::new(false),
            has_lost: Cell::new(false),
            is_stuck: Cell::new(false),
            is_listed_as_stuck: Cell::new(false),
            is_writing: Cell::new(false),
            is_dirty: Cell::new(false),
            is_closed: Cell::new(false),
            snapshots: Snapshots::default(),
            epochs: RefCell::default(),
            is_epoch_begun: Cell::new(false),
            sealed_through: Cell::new(end),
            recovery_point: Cell::new(end),
            checkpointed_base: Cell::default(),
            cleaning: Cleaning::default(),
        }
    }

    /// Takes new settings of the topic.
    pub fn set_settings(&self, settings: &TopicSettings) {
        self.durability.set(settings.durability);
        self.segment_bytes.set(settings.segment_bytes);
        self.log.borrow_mut().set_rules(LogRules::of(settings));
    }

    /// What `acks=all` promises here.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability.get()
    }

    /// First offset that is not readable yet.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        signed(self.high_watermark.get())
    }

    /// Smallest offset that a client may read.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.log.borrow().start()
    }

    /// The log start that a checkpoint must hold: the one that is on its way into the commit log, or the present one.
    #[must_use]
    pub fn planned_start(&self) -> Offset {
        self.planned_start.get()
    }

    /// A record with this start was given to the commit log.
    pub fn plan_start(&self, start: Offset) {
        self.planned_start.set(self.planned_start.get().max(start));
        self.is_dirty.set(true);
    }

    /// The record with this start is durable: clients may see it.
    pub fn show_start(&self, start: Offset, waiters: &Waiters) {
        self.log.borrow_mut().move_start(start);
        self.start_moved.raise(unsigned(self.log_start()));
        self.raise_last_stable(waiters);
    }

    /// Where all records lie below `start`, a new segment is begun there, so that they can go and its name keeps the end;
    /// true if that was done.
    pub fn roll_behind(&self, start: Offset, now_ms: i64) -> bool {
        if self.is_failed.get() {
            return false;
        }
        let rolled = self.log.borrow_mut().roll_behind(start, now_ms);
        match rolled {
            Ok(true) => self.take_snapshot(self.log.borrow().end()),
            Ok(false) => {}
            // The old segment stays until the next roll; the commit log and the checkpoint have the start all the same.
            Err(ref error) => {
                tracing::warn!("{}: cannot begin a segment behind the deleted records: {error}", self.name)
            }
        }
        rolled.unwrap_or(false)
    }

    /// True once a write of this partition failed: it takes nothing new (architecture decision D10).
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.is_failed.get()
    }

    /// True once the topic was deleted or the shard stops: who waits here gives up.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Nobody may wait here any more.
    pub fn close(&self, waiters: &Waiters) {
        self.is_closed.set(true);
        self.log.borrow().segments().iter().for_each(|segment| segment.leave());
        self.wake_all();
        self.start_moved.wake_all();
        self.wake_watchers(waiters);
        self.wake_stable_watchers(waiters);
    }

    /// Whoever waits for batches to get on looks at what has become of the partition.
    pub(super) fn wake_all(&self) {
        self.written.wake_all();
        self.durable.wake_all();
        self.high_watermark.wake_all();
    }

    /// Refuses new batches from now on, and tells those who wait.
    pub fn fail(&self, why: &std::io::Error) {
        if !self.is_failed.replace(true) {
            tracing::error!("{}: a write failed, the partition takes no new records until a restart: {why}", self.name);
        }
        self.wake_all();
    }

    /// Recovery could not bring everything back, and nobody has accepted that yet: nothing new is taken; what is there is
    /// whole, and can be read.
    pub fn refuse_after_loss(&self) {
        self.has_lost.set(true);
    }

    /// True if anything was staged since the last time this was asked.
    pub fn take_dirty(&self) -> bool {
        self.is_dirty.replace(false)
    }

    /// The next checkpoint must look at it.
    pub fn mark_dirty(&self) {
        self.is_dirty.set(true);
    }

    /// True when the next checkpoint must look at it.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.is_dirty.get()
    }

    /// Decides on one checked batch, and if it is new gives it offsets and remembers it. One step: no await, no I/O but
    /// the making of a segment file at a roll.
    ///
    /// # Errors
    /// 18 for a batch above the segment size, 45, 47 and 48 of the decision table, 56 when nothing may be written. State is
    /// unchanged in every case.
    ///
    /// Source: apache/kafka `UnifiedLog.append`.
    pub fn stage(&self, batch: &CheckedBatch, context: &mut StageContext<'_>) -> Result<Staged, ErrorCode> {
        if batch.bytes.len() as u64 > self.segment_bytes.get() {
            return Err(ErrorCode::RecordListTooLarge);
        }
        let identity = identity_of(batch);
        // On a line of its own: in the head of the match the borrow would live as long as the match.
        let checked = match identity.transactional {
            false => self.producers.borrow().check(&identity),
            true => self.producers.borrow().check_transactional(&identity, context.enlisted),
        };
        match checked.map_err(code_of)? {
            Verdict::Append => {}
            Verdict::Duplicate(original) => {
                self.producers.borrow_mut().touch(identity.producer_id, context.tick);
                return Ok(Staged {
                    base_offset: original.base_offset,
                    end: original.last_offset.plus(1),
                    log_append_time_ms: original.max_timestamp,
                    stored: None,
                    is_new_producer: false,
                    begins_epoch: false,
                    begins_segment: false,
                    is_transactional: identity.transactional,
                });
            }
        }
        let mut staged = self.append(batch, context)?;
        let appended = Appended {
            base_offset: staged.base_offset,
            max_timestamp: batch.header.max_timestamp,
            append_ms: context.now_ms,
        };
        staged.is_new_producer = self.producers.borrow_mut().remember(&identity, &appended, context.tick);
        if identity.transactional {
            self.enlistments.borrow_mut().end(identity.producer_id);
        }
        Ok(staged)
    }

    /// Gives a batch its place behind all others; what it says of its producer is to be remembered in the same step.
    ///
    /// # Errors
    /// 56 when nothing may be written.
    pub(super) fn append(&self, batch: &CheckedBatch, context: &mut StageContext<'_>) -> Result<Staged, ErrorCode> {
        if !context.admits || self.is_failed.get() || self.is_stuck.get() || self.has_lost.get() {
            return Err(ErrorCode::KafkaStorageError);
        }
        let header = &batch.header;
        let mut log = self.log.borrow_mut();
        let base_offset = log.end();
        let incoming = Incoming {
            bytes: batch.bytes.len() as u64,
            last_offset: base_offset.plus(i64::from(header.last_offset_delta)),
            max_timestamp: header.max_timestamp,
        };
        let begins_segment = log.prepare(&incoming, context.now_ms).map_err(|error| {
            tracing::error!("{}: cannot begin a segment, the batch is refused: {error}", self.name);
            ErrorCode::KafkaStorageError
        })?;
        let mut stored = StoredBatch::place(&batch.bytes, base_offset, context.leader_epoch);
        if stored.len() <= COPY_BYTES_MAX {
            if context.arena.capacity() < stored.len() {
                *context.arena = BytesMut::with_capacity(ARENA_BYTES);
            }
            stored.move_into(context.arena);
        }
        log.stage(stored.clone());
        let end = log.end();
        drop(log);
        if begins_segment {
            self.take_snapshot(base_offset);
        }
        self.tail.borrow_mut().push(stored.clone(), end);
        let begins_epoch = !self.is_epoch_begun.replace(true);
        if begins_epoch {
            self.begin_epoch(context.leader_epoch, base_offset);
        }
        self.is_dirty.set(true);
        let log_append_time_ms = batch.log_append_time_ms;
        Ok(Staged {
            base_offset,
            end,
            log_append_time_ms,
            stored: Some(stored),
            is_new_producer: false,
            begins_epoch,
            begins_segment,
            is_transactional: header.attributes.is_transactional(),
        })
    }

    /// Hands what is staged to the kernel: inline as far as it is little. True when more is left for [`Self::write_rest`].
    pub fn write_little(&self, waiters: &Waiters) -> bool {
        if self.is_writing.get() || !self.may_write() {
            return false;
        }
        let result = self.log.borrow_mut().write_some(WRITE_BYTES);
        self.note_written(result, waiters);
        !self.is_stuck.get() && !self.log.borrow().is_written()
    }

    /// Hands everything that is staged to the kernel, a little at a time.
    pub async fn write_rest(&self, waiters: &Waiters) {
        if self.is_writing.replace(true) {
            return;
        }
        while self.may_write() && !self.is_stuck.get() && !self.log.borrow().is_written() {
            let result = self.log.borrow_mut().write_some(WRITE_BYTES);
            self.note_written(result, waiters);
            crate::runtime::host::yield_now().await;
        }
        self.is_writing.set(false);
    }

    /// A deleted partition writes nothing any more: its name may belong to another one by now.
    fn may_write(&self) -> bool {
        !self.is_failed.get() && !self.is_closed.get()
    }

    fn note_written(&self, result: std::io::Result<Offset>, waiters: &Waiters) {
        match result {
            Ok(written_end) => {
                self.is_stuck.set(false);
                self.written.raise(unsigned(written_end));
                self.raise_high_watermark(waiters);
            }
            Err(error) if is_no_space(&error) || is_out_of_descriptors(&error) => {
                if !self.is_stuck.replace(true) {
                    tracing::warn!("{}: nothing could be written, it is tried again each second: {error}", self.name);
                }
                self.wake_all();
            }
            Err(error) => self.fail(&error),
        }
    }

    /// True while a write waits for room on the disk; [`Self::write_little`] tries it again.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.get()
    }

    /// Everything below `end` is on disk in the commit log.
    pub fn note_durable(&self, end: Offset, waiters: &Waiters) {
        self.durable.raise(unsigned(end));
        self.raise_high_watermark(waiters);
    }

    /// First offset that the commit log does not hold durably.
    #[must_use]
    pub fn durable_end(&self) -> Offset {
        signed(self.durable.get())
    }

    /// A record is readable once it is as durable as the topic promises (architecture decision D2).
    fn raise_high_watermark(&self, waiters: &Waiters) {
        let written = signed(self.written.get());
        let reached = match self.durability.get() {
            Durability::Disk => written.min(self.durable_end()),
            Durability::PageCache => written,
        };
        if reached <= self.high_watermark() {
            return;
        }
        self.log.borrow_mut().make_visible(reached);
        self.high_watermark.raise(unsigned(reached));
        self.raise_last_stable(waiters);
        self.wake_watchers(waiters);
    }

    /// `watcher` is woken when there is more to read; for a reader of what is committed that means more of that.
    pub fn watch(&self, watcher: &Rc<Watcher>, is_committed: bool) {
        let mut watchers = if is_committed { &self.stable_watchers } else { &self.watchers }.borrow_mut();
        if watchers.len() == watchers.capacity() {
            watchers.retain(|watcher| !watcher.is_done());
        }
        watchers.push(Rc::clone(watcher));
    }

    fn wake_watchers(&self, waiters: &Waiters) {
        for watcher in self.watchers.borrow_mut().drain(..) {
            waiters.wake(&watcher);
        }
    }

    /// Batches from memory, all of them below `upper`; `None` when the files must be read.
    #[must_use]
    pub fn read_tail(&self, offset: Offset, upper: Offset, bytes_max: usize, first_whole: bool) -> Option<Records> {
        self.tail.borrow().read(offset, upper, bytes_max, first_whole)
    }

    /// The oldest batch in memory makes room.
    pub fn drop_tail_through(&self, base: Offset) {
        self.tail.borrow_mut().drop_through(base);
    }

    /// The segments to look for `offset` in, oldest first.
    #[must_use]
    pub fn readable_from(&self, offset: Offset) -> Vec<Readable<D>> {
        self.log.borrow().readable_from(offset).collect()
    }
}

fn identity_of(batch: &CheckedBatch) -> BatchIdentity {
    let header = &batch.header;
    BatchIdentity {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        last_offset_delta: header.last_offset_delta,
        transactional: header.attributes.is_transactional(),
    }
}

fn code_of(refusal: Refusal) -> ErrorCode {
    match refusal {
        Refusal::Fenced { .. } => ErrorCode::InvalidProducerEpoch,
        Refusal::OutOfOrder { .. } => ErrorCode::OutOfOrderSequenceNumber,
        Refusal::InvalidTxnState { .. } | Refusal::NotEnlisted { .. } => ErrorCode::InvalidTxnState,
    }
}

/// Offsets in a [`Mark`].
#[must_use]
pub fn unsigned(offset: Offset) -> u64 {
    u64::try_from(offset.0).unwrap_or(0)
}

pub(super) fn signed(mark: u64) -> Offset {
    Offset(i64::try_from(mark).unwrap_or(i64::MAX))
}
