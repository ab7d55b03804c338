//! Checkpoints of one shard: what makes files of the commit log free (storage.md §5).
//!
//! The order is the guarantee (storage rule S4): note how far the log goes → segments flushed → folders flushed → state
//! file durable → log files given up. A recovery point may be ahead of the high watermark; the reverse is not possible.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::epochs;
use super::messages::LogMarks;
use super::partition::Partition;
use super::shard::Shard;
use crate::ids::{LogId, Offset, ProducerId};
use crate::log::checkpoint::{Header, Kind, PartitionEntry, ProducerEntry};
use crate::log::checkpoint_chain::{self as chain, Named, Writer};
use crate::log::names;
use crate::log::partition_log::ChangedNames;
use crate::log::segment::{Sealing, Segment};
use crate::runtime::clock;
use crate::runtime::disk::{Disk, is_out_of_descriptors};
use crate::runtime::host;
use crate::runtime::signal::{Turn, Turns, rung_or_elapsed};
use crate::state::producers::ProducerState;

/// Pause between the flushes of two partitions, so that commits beside them stay quick.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// A checkpoint that failed is tried again after this time.
const RETRY: Duration = Duration::from_secs(5);

/// The chain of checkpoint files of one shard.
pub struct Checkpointer {
    folder: PathBuf,
    names: RefCell<Vec<Named>>,
    next_seq: Cell<u64>,
    newest: Cell<u64>,
    /// An attempt failed after changes had been taken for it: only a full one says everything again.
    must_be_full: Cell<bool>,
    turns: Turns,
}

impl Checkpointer {
    /// Goes on behind the files that are in `folder`.
    #[must_use]
    pub fn new(folder: PathBuf, names: Vec<Named>, next_seq: u64) -> Self {
        let newest = names.last().map_or(0, |named| named.seq);
        Self {
            folder,
            names: RefCell::new(names),
            next_seq: Cell::new(next_seq),
            newest: Cell::new(newest),
            must_be_full: Cell::default(),
            turns: Turns::default(),
        }
    }

    /// Where the checkpoints are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Number of the newest one.
    pub(super) fn newest(&self) -> u64 {
        self.newest.get()
    }

    /// True when no checkpoint is kept that is older than number `seq`: whichever of them are lost, those that a start can
    /// still read say nothing older.
    pub(super) fn has_none_before(&self, seq: u64) -> bool {
        self.names.borrow().iter().all(|named| named.seq >= seq)
    }

    /// The right to change the files that checkpoints are about; checkpoints wait meanwhile.
    pub(super) async fn my_turn(&self) -> Turn<'_> {
        self.turns.mine().await
    }
}

impl<D: Disk> Shard<D> {
    /// Writes checkpoints when the log presses, when time has passed with something dirty, and on request.
    pub(super) async fn keep_checkpoints(self: Rc<Self>) {
        let interval = Duration::from_millis(self.config().checkpoint_interval_ms);
        let mut wait = interval;
        loop {
            rung_or_elapsed(self.log().pressure(), wait).await;
            // Not before the last group is written: while the shard stops, that may need a file to become free.
            if self.is_closing.get() || self.log().is_failed() {
                return;
            }
            wait = interval;
            if let Err(error) = self.checkpoint(false, PAUSE).await {
                tracing::error!("{}: the checkpoint failed, the commit log keeps its files: {error}", self.id);
                wait = interval.min(RETRY);
            }
        }
    }

    /// Writes one checkpoint of everything that changed since the last one; a full one if asked, or when it is time.
    ///
    /// # Errors
    /// Those of the disk. Nothing is given up then.
    pub(super) async fn checkpoint(self: &Rc<Self>, full: bool, pause: Duration) -> io::Result<()> {
        let Some(checkpointer) = self.checkpointer.get() else { return Ok(()) };
        let _turn = checkpointer.turns.mine().await;
        self.checkpoint_in_turn(checkpointer, full, pause).await
    }

    /// The same for one that has its turn.
    pub(super) async fn checkpoint_in_turn(
        self: &Rc<Self>,
        checkpointer: &Checkpointer,
        full: bool,
        pause: Duration,
    ) -> io::Result<()> {
        let is_full = full || checkpointer.must_be_full.get() || chain::wants_full(&checkpointer.names.borrow());
        if !is_full && self.has_nothing_to_tell() {
            return Ok(());
        }
        checkpointer.must_be_full.set(true);
        // Everything of these groups was staged before this moment, so the flushes below cover it.
        let covered = self.log().last_closed_sequence();
        let mut writer = Writer::begin(&self.disk, &checkpointer.folder)?;
        let (partitions, is_pinned) = self.flush_partitions(is_full, pause, &mut writer).await?;
        let oldest_needed_file =
            if is_pinned { self.log().oldest_needed_file() } else { self.log().oldest_needed_after(covered) };
        let kind = if is_full { Kind::Full } else { Kind::Delta };
        self.write_checkpoint(checkpointer, kind, writer, partitions, oldest_needed_file).await?;
        checkpointer.must_be_full.set(false);
        self.log().release_before(oldest_needed_file);
        let was_pinned = self.log_is_pinned.replace(is_pinned);
        if is_pinned && !was_pinned {
            self.refuse_stalled();
        }
        // What a failed partition left out of this one stands in an older one.
        if is_full && self.is_serving() && !is_pinned {
            self.forget_old_checkpoints(checkpointer).await;
        }
        Ok(())
    }

    /// Nothing changed since the last checkpoint, and it would free no file.
    fn has_nothing_to_tell(&self) -> bool {
        let log = self.log();
        let frees = log.oldest_needed_after(log.last_closed_sequence()) > log.oldest_needed_file();
        !frees
            && self.removed.borrow().is_empty()
            && !self.partitions.borrow().values().any(|partition| partition.is_dirty())
    }

    /// Flushes the partitions one after another; true beside the parts when a failed one still needs the commit log.
    ///
    /// After a failed write or flush nobody knows what is on disk, and a later flush proves nothing (architecture decision
    /// D10): a failed partition stays as the last checkpoint told it, and a restart brings it back from the commit log.
    async fn flush_partitions(
        &self,
        is_full: bool,
        pause: Duration,
        writer: &mut Writer<'_, D>,
    ) -> io::Result<(Vec<PartitionEntry>, bool)> {
        let mut entries = Vec::new();
        let mut is_pinned = false;
        let mut folders = MadeFolders::default();
        let is_wanted = |partition: &&Rc<Partition<D>>| {
            partition.is_failed() || is_full || (self.is_serving() && partition.is_dirty())
        };
        let partitions: Vec<_> = self.partitions.borrow().values().filter(is_wanted).cloned().collect();
        let mut pace = Pace::new(pause, partitions.len(), self.log().room_left());
        for partition in partitions {
            if partition.is_failed() {
                is_pinned = true;
                continue;
            }
            if partition.is_closed() {
                continue;
            }
            let was_dirty = match self.flush_partition(&partition, is_full, writer, &mut folders).await {
                Ok((entry, was_dirty)) => {
                    entries.push(entry);
                    was_dirty
                }
                Err(_) if partition.is_closed() => continue,
                Err(error) => {
                    partition.mark_dirty();
                    folders.stay_to_be_flushed();
                    return Err(error);
                }
            };
            self.note_progress();
            match pace.next(self.log().room_left()) {
                Some(pause) if was_dirty => clock::sleep(pause).await,
                _ => host::yield_now().await,
            }
        }
        self.sync_made_folders(folders).await?;
        Ok((entries, is_pinned))
    }

    /// Partitions' folders may have been made with their first segments: the folder that they are in is flushed once for all.
    async fn sync_made_folders(&self, made: MadeFolders<D>) -> io::Result<()> {
        if made.of.is_empty() {
            return Ok(());
        }
        let synced = self.disk.sync_dir(&self.layout.kafka()).await;
        synced.inspect_err(|_| made.stay_to_be_flushed())
    }

    /// The full checkpoint that ends recovery: everything is on disk already.
    pub(super) async fn checkpoint_all(self: &Rc<Self>) -> io::Result<()> {
        self.checkpoint(true, Duration::ZERO).await
    }

    async fn write_checkpoint(
        &self,
        checkpointer: &Checkpointer,
        kind: Kind,
        mut writer: Writer<'_, D>,
        partitions: Vec<PartitionEntry>,
        oldest_needed_file: u64,
    ) -> io::Result<()> {
        let seq = checkpointer.next_seq.get();
        let header = Header {
            kind,
            shard: self.id.0,
            generation: self.generation(),
            seq,
            previous: checkpointer.newest.get(),
            oldest_needed_file,
        };
        let removed = self.removed.borrow().clone();
        if kind == Kind::Delta {
            removed.iter().for_each(|log_id| writer.entries().partition(&removed_entry(*log_id)));
        }
        partitions.iter().for_each(|entry| writer.entries().partition(entry));
        checkpointer.next_seq.set(seq + 1);
        let named = writer.finish(&header).await?;
        // Only now: a checkpoint that failed has told nobody of them.
        self.removed.borrow_mut().retain(|log_id| !removed.contains(log_id));
        checkpointer.newest.set(seq);
        checkpointer.names.borrow_mut().push(named);
        Ok(())
    }

    async fn forget_old_checkpoints(&self, checkpointer: &Checkpointer) {
        let old = chain::deletable(&checkpointer.names.borrow());
        for path in old {
            match self.disk.remove_file(&path).await {
                Ok(()) => checkpointer.names.borrow_mut().retain(|named| named.path != path),
                Err(error) => tracing::warn!("{}: cannot be removed: {error}", path.display()),
            }
        }
    }

    /// Brings one partition to disk as it is now, and says how it is; its producers go to `writer`.
    async fn flush_partition(
        &self,
        partition: &Rc<Partition<D>>,
        is_full: bool,
        writer: &mut Writer<'_, D>,
        folders: &mut MadeFolders<D>,
    ) -> io::Result<(PartitionEntry, bool)> {
        take_most_producers(partition, is_full, self.config().checkpoint_producers_step, writer).await?;
        // One step: offsets, positions and producers that belong together, and whether they are on disk already: what was
        // staged while the producers were taken is in it and must be flushed. What is staged from now on is not in it.
        let (end, start, unsealed, active, abort_check, is_dirty) = {
            let log = partition.log.borrow();
            let from = partition.sealed_through.get();
            // One that ends there may have been flushed as the active one, and left behind without another batch.
            let is_unsealed = |segment: &&Rc<Segment<D>>| segment.end() >= from || is_last(&log, segment);
            let unsealed: Vec<_> = log.segments().iter().filter(is_unsealed).cloned().collect();
            let active = log.active().map(|active| (Rc::clone(active), active.bytes()));
            let abort_check = log.active().map_or(0, |active| active.abort_check());
            take_changed_producers(partition, usize::MAX, writer);
            let is_dirty = self.is_serving() && partition.take_dirty();
            (log.end(), partition.planned_start(), unsealed, active, abort_check, is_dirty)
        };
        writer.write_out().await?;
        // What was not touched since it was brought back, or since the last checkpoint, is on disk.
        let (segment_base, position) = active.map_or((end, 0), |(segment, bytes)| (segment.base(), bytes));
        if is_dirty {
            self.flush_files(partition, end, &unsealed, folders).await?;
            // The last one is not closed: it may be with the next record, at this very end.
            partition.sealed_through.set(segment_base);
        }
        partition.recovery_point.set(end);
        partition.checkpointed_base.set(segment_base);
        let entry = PartitionEntry {
            log_id: partition.log_id,
            removed: false,
            log_start: start,
            recovery_point: end,
            segment_base,
            position,
            leader_epoch: epochs::newest_below(partition, end),
            segment_file_bytes: position,
            abort_check,
        };
        Ok((entry, is_dirty))
    }

    async fn flush_files(
        &self,
        partition: &Rc<Partition<D>>,
        end: Offset,
        unsealed: &[Rc<Segment<D>>],
        folders: &mut MadeFolders<D>,
    ) -> io::Result<()> {
        if partition.is_stuck() {
            // Once more: while the shard stops nobody else tries, and nobody waits for room.
            partition.write_little(&self.waiters);
        }
        partition.write_rest(&self.waiters).await;
        self.note_stuck(partition);
        // A write without room is tried again each second, but not waited for: who deletes records to make room waits for
        // the end of this checkpoint.
        let gives_up = || partition.is_failed() || partition.is_stuck() || partition.is_closed();
        if !partition.written.reached(super::partition::unsigned(end), gives_up).await {
            return Err(io::Error::other(format!("{}: its segments could not be written", partition.name)));
        }
        let Some((active, closed)) = unsealed.split_last() else { return Ok(()) };
        for segment in closed {
            self.seal_closed(partition, segment).await;
            sync(partition, segment).await?;
            // Whoever reads it opens it again.
            segment.close_handles();
        }
        derived(partition, active.flush_indexes().await);
        derived(partition, write_aborts(active).await);
        sync(partition, active).await?;
        let mut changed = partition.log.borrow_mut().take_changed_names();
        changed.folder |= !closed.is_empty();
        if changed.folder {
            let folder = Rc::clone(partition.log.borrow().folder());
            let synced = self.disk.sync_dir(&folder).await;
            synced.inspect_err(|_| partition.log.borrow_mut().mark_changed_names(changed))?;
        }
        if changed.parent {
            folders.of.push(Rc::clone(partition));
        }
        Ok(())
    }

    /// Seals a segment that nothing is added to any more, and makes the seal durable, if it has none yet.
    async fn seal_closed(&self, partition: &Partition<D>, segment: &Segment<D>) {
        let may_have_one = segment.end() <= partition.sealed_through.get();
        if may_have_one && segment.read_seal().await.is_some_and(|seal| !seal.open) {
            return;
        }
        // Its name may be another topic's by now.
        if partition.is_closed() {
            return;
        }
        let sealed = self.seal(partition, segment, false).await;
        let durable = match sealed {
            Ok(()) => segment.sync_seal().await,
            failed => failed,
        };
        derived(partition, durable);
    }

    /// Writes what the seal vouches for, and the seal.
    async fn seal(&self, partition: &Partition<D>, segment: &Segment<D>, open: bool) -> io::Result<()> {
        partition.load_aborted(segment).await?;
        write_aborts(segment).await?;
        let aborts = segment.abort_facts();
        segment.seal(Sealing { aborts, ..self.sealing(partition, open) }).await
    }

    pub(super) fn sealing(&self, partition: &Partition<D>, open: bool) -> Sealing {
        Sealing { open, clean: false, log_id: partition.log_id, generation: self.generation(), aborts: (0, 0) }
    }

    /// The last act of a clean stop: every partition sealed and flushed, one full checkpoint, Kafka's own files.
    pub(super) async fn close(self: &Rc<Self>) -> Result<Vec<LogMarks>, String> {
        let in_a_sentence = |error: io::Error| format!("{} could not flush its data: {error}", self.id);
        self.log().hurry();
        let last = self.log().last_sequence();
        if !self.log().wait_durable(last).await {
            return Err(format!("{} could not write its commit log", self.id));
        }
        self.is_closing.set(true);
        self.disk.set_unshared(true);
        self.checkpoint(true, Duration::ZERO).await.map_err(in_a_sentence)?;
        if let Some(failed) = self.all_partitions().iter().find(|partition| partition.is_failed()) {
            return Err(format!(
                "{} had a failed write: the next start brings it back from the commit log",
                failed.name
            ));
        }
        let mut closed = Vec::new();
        for partition in self.all_partitions() {
            self.close_partition(&partition).await.map_err(in_a_sentence)?;
            self.note_progress();
            closed.push(partition.marks());
        }
        self.report_producers();
        self.log().stop();
        Ok(closed)
    }

    /// Writes what only others need: the seal of the active segment, Kafka's snapshot and epochs.
    async fn close_partition(&self, partition: &Rc<Partition<D>>) -> io::Result<()> {
        let active = partition.log.borrow().active().cloned();
        let Some(active) = active else { return Ok(()) };
        if self.is_as_at_the_last_stop(partition, &active).await {
            active.close_handles();
            return Ok(());
        }
        self.seal(partition, &active, true).await?;
        active.close_handles();
        super::kafka_view::write(&self.disk, partition).await
    }

    /// Nobody wrote to it since the last clean stop: its files are there, and ten thousand that are written anew would take
    /// the disk some seconds.
    async fn is_as_at_the_last_stop(&self, partition: &Partition<D>, active: &Segment<D>) -> bool {
        let (folder, end) = {
            let log = partition.log.borrow();
            (Rc::clone(log.folder()), log.end())
        };
        active.read_seal().await.is_some_and(|seal| seal.open)
            && self.disk.file_bytes(&names::path(&folder, end, names::Kind::Snapshot)).is_ok()
    }
}

/// Partitions whose folders may have been made since the last checkpoint.
struct MadeFolders<D: Disk> {
    of: Vec<Rc<Partition<D>>>,
}

impl<D: Disk> MadeFolders<D> {
    /// The checkpoint does not get as far as that: the next one has to.
    fn stay_to_be_flushed(&self) {
        for partition in &self.of {
            partition.log.borrow_mut().mark_changed_names(ChangedNames { folder: false, parent: true });
            partition.mark_dirty();
        }
    }
}

impl<D: Disk> Default for MadeFolders<D> {
    fn default() -> Self {
        Self { of: Vec::new() }
    }
}

/// How long a checkpoint waits between two partitions: it may take its time as long as the commit log does not fill up
/// quicker than the checkpoint gets on.
struct Pace {
    pause: Duration,
    total: u64,
    done: u64,
    room: u64,
}

impl Pace {
    fn new(pause: Duration, partitions: usize, room: u64) -> Self {
        Self { pause, total: partitions as u64, done: 0, room }
    }

    /// The pause behind one more partition; none when it is zero, or when the log has used up more of its room than there
    /// are partitions done.
    fn next(&mut self, room_left: u64) -> Option<Duration> {
        self.done += 1;
        let used = self.room.saturating_sub(room_left);
        let is_behind = used.saturating_mul(self.total) > self.room.saturating_mul(self.done);
        (!self.pause.is_zero() && !is_behind).then_some(self.pause)
    }
}

/// After a failed flush nobody knows what is on disk, and a later one proves nothing (architecture decision D10).
async fn sync<D: Disk>(partition: &Partition<D>, segment: &Segment<D>) -> io::Result<()> {
    let synced = segment.sync().await;
    synced.inspect_err(|error| {
        // Without a descriptor nothing was flushed, and nothing has failed either.
        if !is_out_of_descriptors(error) {
            partition.fail(error);
        }
    })
}

/// Brings the abort index to disk.
async fn write_aborts<D: Disk>(segment: &Segment<D>) -> io::Result<()> {
    segment.flush_aborts().await?;
    segment.sync_aborts().await
}

/// What can be made anew from the segment must not keep the commit log's files (storage rule S15).
fn derived<D: Disk>(partition: &Partition<D>, written: io::Result<()>) {
    if let Err(error) = written
        && !partition.is_closed()
    {
        tracing::warn!("{}: an index or a seal cannot be written, it will be made anew: {error}", partition.name);
    }
}

fn is_last<D: Disk>(log: &crate::log::partition_log::PartitionLog<D>, segment: &Rc<Segment<D>>) -> bool {
    log.active().is_some_and(|active| Rc::ptr_eq(active, segment))
}

fn removed_entry(log_id: LogId) -> PartitionEntry {
    let none = Offset(0);
    PartitionEntry {
        log_id,
        removed: true,
        log_start: none,
        recovery_point: none,
        segment_base: none,
        position: 0,
        leader_epoch: 0,
        segment_file_bytes: 0,
        abort_check: 0,
    }
}

/// Takes all but a few of the producers that a checkpoint wants, a step at a time.
///
/// What is taken here was staged before the moment that the checkpoint describes, so the flush behind that moment covers
/// it; what changes meanwhile is taken again, at the latest at that moment.
async fn take_most_producers<D: Disk>(
    partition: &Partition<D>,
    is_full: bool,
    step: usize,
    writer: &mut Writer<'_, D>,
) -> io::Result<()> {
    let mut sweep = is_full.then(|| partition.producers.borrow_mut().begin_taking_all());
    while let Some(sweep) = &mut sweep
        && partition.producers.borrow_mut().take_some_of_all(sweep, step, into(partition, writer))
    {
        writer.write_out().await?;
        host::yield_now().await;
    }
    let steps = partition.producers.borrow().changed_count() / step;
    for _ in 0..steps {
        take_changed_producers(partition, step, writer);
        writer.write_out().await?;
        host::yield_now().await;
    }
    Ok(())
}

fn take_changed_producers<D: Disk>(partition: &Partition<D>, count_max: usize, writer: &mut Writer<'_, D>) {
    partition.producers.borrow_mut().take_changes(count_max, into(partition, writer));
}

/// Adds a producer of a partition to a checkpoint.
fn into<D: Disk>(
    partition: &Partition<D>,
    writer: &mut Writer<'_, D>,
) -> impl FnMut(ProducerId, Option<&ProducerState>) {
    let (log_id, entries) = (partition.log_id, writer.entries());
    move |producer_id, state| entries.producer(&ProducerEntry { log_id, producer_id, state: state.copied() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten partitions while the log has room for a hundred bytes.
    #[test]
    fn a_checkpoint_hurries_when_the_log_fills_up_quicker_than_it_gets_on() {
        let pause = Duration::from_millis(1);
        let mut pace = Pace::new(pause, 10, 100);
        assert_eq!((pace.next(95), pace.next(80), pace.next(60)), (Some(pause), Some(pause), None));
        assert_eq!((pace.next(60), pace.next(0), pace.next(0)), (Some(pause), None, None));
        assert_eq!(Pace::new(Duration::ZERO, 10, 100).next(100), None);
        assert_eq!(Pace::new(pause, 1, 0).next(0), Some(pause), "nothing is used up");
    }
}
