//! Compaction on the owning core: looks for the dirtiest log, compacts it, goes to sleep when there is none.
//!
//! One task for each shard, in the background queue. A round reads and writes beside everything else; only the exchange of
//! files takes its turn with checkpoints and removals. What a round has done stays, whenever it is stopped.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::cleaner_pace::RoundPace;
use super::messages::PartitionKey;
use super::partition::Partition;
use super::shard::Shard;
use crate::config::TopicSettings;
use crate::ids::{Offset, ProducerId};
use crate::log::compacted::Compacted;
use crate::log::compactor::{self, CompactionError, Compactor};
use crate::log::index::IndexRules;
use crate::log::log_files::is_no_space;
use crate::log::segment::{Sealing, Segment};
use crate::log::swap;
use crate::log::txn_index::AbortedTxn;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::state::compaction::offset_map::{MapLimits, OffsetMap};
use crate::state::compaction::retention::LastOfProducer;
use crate::state::compaction::transactions::CleanedTransactions;
use crate::state::compaction::{self, Candidate, CompactionRules, LogFacts};
use crate::wire::unpack::Unpacker;

/// How long the task sleeps at a time: a stop must not wait for it.
const NAP: Duration = Duration::from_secs(1);
/// A backoff of 0 must not keep the core busy.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// Logs looked at without letting other tasks run.
const LOOKS_IN_A_ROW: usize = 16;

/// How far compaction has come with a partition.
#[derive(Debug, Default)]
pub struct Cleaning {
    /// Segments that end at or below this may be touched.
    pub(super) touchable_below: Cell<Offset>,
    /// Where the last round has ended; `None` before the seals were asked.
    cleaned_to: Cell<Option<Offset>>,
    /// A round has failed in a way that the next would, too: it is left alone until a restart.
    is_uncleanable: Cell<bool>,
}

impl Cleaning {
    /// Where the last round has ended, if there was one.
    #[must_use]
    pub fn cleaned_to(&self) -> Option<Offset> {
        self.cleaned_to.get().filter(|cleaned_to| cleaned_to.0 > 0)
    }
}

/// A partition that may be compacted.
struct Found<D: Disk> {
    partition: Rc<Partition<D>>,
    rules: CompactionRules,
    delete_retention_ms: i64,
    index: IndexRules,
    /// What may be done now.
    candidate: Option<Candidate>,
    /// It waits for the floor to be raised.
    is_blocked: bool,
}

impl<D: Disk> Shard<D> {
    /// Compacts what is dirty, for as long as the shard lives.
    pub(super) async fn keep_compacting(self: Rc<Self>) {
        if !self.config().cleaner.is_enabled {
            return;
        }
        let unpacker = RefCell::new(Unpacker::new());
        loop {
            while self.compact_one(&unpacker).await {}
            let backoff = Duration::from_millis(self.catalog().config().cleaner.backoff_ms);
            let until = clock::monotonic() + backoff.max(BACKOFF_MIN);
            loop {
                if self.is_stopping() || self.is_closing.get() || self.log().is_failed() {
                    return;
                }
                let left = until.saturating_sub(clock::monotonic());
                if left.is_zero() {
                    break;
                }
                clock::sleep(left.min(NAP)).await;
            }
        }
    }

    /// Compacts the dirtiest log; false when there is none.
    async fn compact_one(self: &Rc<Self>, unpacker: &RefCell<Unpacker>) -> bool {
        if self.is_stopping() || self.disk_is_full.get() {
            return false;
        }
        let mut found = self.look_for_dirty().await;
        let candidates: Vec<_> = found.iter().filter_map(|found| found.candidate).collect();
        let Some(at) = compaction::dirtiest(&candidates) else {
            let blocked: Vec<_> =
                found.iter().filter(|found| found.is_blocked).map(|found| Rc::clone(&found.partition)).collect();
            return !blocked.is_empty() && self.raise_cleaning_floor(&blocked).await;
        };
        found.retain(|found| found.candidate.is_some());
        let chosen = found.swap_remove(at);
        let (partition, candidate) = (Rc::clone(&chosen.partition), candidates[at]);
        match self.compact(&chosen, &candidate, unpacker).await {
            Ok(goes_on) => goes_on,
            Err(CompactionError::Stopped) => !self.is_stopping(),
            Err(CompactionError::Disk(error)) if is_no_space(&error) => {
                tracing::warn!("{}: no room for compaction, it is tried again later: {error}", partition.name);
                false
            }
            Err(_) if partition.is_closed() => true,
            Err(error) => {
                partition.cleaning.is_uncleanable.set(true);
                tracing::error!(
                    "{}: compaction failed, the log stays as it is until a restart: {error}",
                    partition.name
                );
                true
            }
        }
    }

    /// The logs of compacted topics, each with what may be done about it.
    async fn look_for_dirty(self: &Rc<Self>) -> Vec<Found<D>> {
        let mut found = Vec::new();
        for (partition, settings) in self.compacted_partitions() {
            match self.look_at(&partition, &settings).await {
                Ok(one) => found.push(one),
                Err(_) if partition.is_closed() => {}
                Err(error) => {
                    partition.cleaning.is_uncleanable.set(true);
                    tracing::error!("{}: compaction cannot read the log: {error}", partition.name);
                }
            }
            if found.len().is_multiple_of(LOOKS_IN_A_ROW) {
                host::yield_now().await;
            }
        }
        found
    }

    fn compacted_partitions(&self) -> Vec<(Rc<Partition<D>>, TopicSettings)> {
        let catalog = self.catalog();
        let mut all = Vec::new();
        for topic in catalog.topics().filter(|topic| topic.settings.cleanup_compact) {
            for partition in 0..topic.partition_count() {
                let partition = self.partition(PartitionKey { topic: topic.id, partition });
                all.extend(partition.map(|partition| (partition, topic.settings.clone())));
            }
        }
        let is_sound = |partition: &Partition<D>| {
            !partition.cleaning.is_uncleanable.get() && !partition.is_failed() && !partition.is_closed()
        };
        all.retain(|(partition, _)| is_sound(partition));
        all
    }

    async fn look_at(&self, partition: &Rc<Partition<D>>, settings: &TopicSettings) -> std::io::Result<Found<D>> {
        let rules = CompactionRules {
            dirty_ratio_min: settings.min_cleanable_dirty_ratio,
            lag_ms_min: settings.min_compaction_lag_ms,
            lag_ms_max: settings.max_compaction_lag_ms,
            segment_bytes: settings.segment_bytes,
            index_bytes: u64::from(settings.segment_index_bytes),
        };
        let closed = closed_segments(partition);
        if partition.cleaning.cleaned_to.get().is_none() {
            partition.cleaning.cleaned_to.set(Some(clean_end(&closed).await));
        }
        let asks_for_times = rules.lag_ms_min > 0 || rules.lag_ms_max < i64::MAX;
        let mut facts = Vec::with_capacity(closed.len());
        for segment in &closed {
            facts.push(segment.facts(asks_for_times).await?);
        }
        let judge = |untouchable_from| {
            let (start, cleaned_to) = (partition.log_start(), partition.cleaning.cleaned_to.get());
            let log = LogFacts { start, cleaned_to, untouchable_from, closed: &facts };
            compaction::judge(&log, &rules, clock::now_ms()).filter(|candidate| candidate.is_due)
        };
        // What is not decided yet stays as it is.
        let stable = partition.last_stable_offset();
        let candidate = judge(stable.min(partition.cleaning.touchable_below.get()));
        let is_blocked = candidate.is_none() && judge(stable).is_some();
        let index =
            IndexRules { interval_bytes: settings.index_interval_bytes, index_bytes_max: settings.segment_index_bytes };
        let delete_retention_ms = settings.delete_retention_ms;
        Ok(Found { partition: Rc::clone(partition), rules, delete_retention_ms, index, candidate, is_blocked })
    }

    /// One round; false when somebody else has changed the log meanwhile.
    async fn compact(
        self: &Rc<Self>,
        found: &Found<D>,
        candidate: &Candidate,
        unpacker: &RefCell<Unpacker>,
    ) -> Result<bool, CompactionError> {
        let partition = &found.partition;
        let (begun, before) = (clock::monotonic(), partition.log.borrow().bytes());
        let pace = RoundPace::begin(self, partition);
        let work = Compactor {
            disk: &self.disk,
            pace: &pace,
            unpacker,
            unpacked_bytes_max: self.config().unpacked_batch_max_bytes as u64,
            now_ms: clock::now_ms(),
            delete_retention_ms: found.delete_retention_ms,
        };
        let mut segments = closed_segments(partition);
        segments.truncate(candidate.segments);
        let aborted = aborted_transactions(partition).await?;
        let mut map = self.empty_map(candidate);
        work.collect_keys(&segments, candidate.first_dirty, aborted.clone(), &mut map).await?;
        let Some(end) = map.end().filter(|end| *end > candidate.first_dirty) else {
            let what = "one batch has more keys than log.cleaner.dedupe.buffer.size has room for";
            return Err(CompactionError::Disk(std::io::Error::other(what)));
        };
        segments.retain(|segment| segment.base() < end);
        let mut facts = Vec::with_capacity(segments.len());
        for segment in &segments {
            facts.push(segment.facts(false).await?);
        }
        let mut transactions = CleanedTransactions::new(aborted, Offset(0));
        for range in compaction::group(&facts, &found.rules) {
            let group = &segments[range];
            if !self.compact_group(&work, found, group, &map, end, &mut transactions).await? {
                return Ok(false);
            }
        }
        partition.cleaning.cleaned_to.set(Some(end));
        let (after, took_ms) = (partition.log.borrow().bytes(), (clock::monotonic() - begun).as_millis());
        let (name, keys) = (&partition.name, map.len());
        tracing::info!("{name}: compacted up to offset {end}: {before} bytes to {after}, {keys} keys, {took_ms} ms");
        Ok(true)
    }

    fn empty_map(&self, candidate: &Candidate) -> OffsetMap {
        let cleaner = self.catalog().config().cleaner.clone();
        let shards = usize::try_from(self.shards()).unwrap_or(1);
        let limits =
            MapLimits { bytes_max: cleaner.dedupe_buffer_bytes / shards.max(1), load_max: cleaner.load_factor };
        let records = u64::try_from(candidate.end.0 - candidate.first_dirty.0).unwrap_or(0);
        OffsetMap::new(records, limits, (host::random(), host::random()))
    }

    async fn compact_group(
        self: &Rc<Self>,
        work: &Compactor<'_, D, RoundPace<'_, D>>,
        found: &Found<D>,
        group: &[Rc<Segment<D>>],
        map: &OffsetMap,
        end: Offset,
        transactions: &mut CleanedTransactions,
    ) -> Result<bool, CompactionError> {
        let partition = &found.partition;
        let (Some(base), Some(last)) = (group.first().map(|first| first.base()), group.last()) else { return Ok(true) };
        let is_clean = last.end() <= end;
        let last_of = |id: ProducerId| last_of_producer(partition, id);
        let folder = partition.log.borrow().folder().to_path_buf();
        let exchanged = match work.write_group(group, map, transactions, found.index, last_of).await {
            Ok(written) => self.exchange(partition, group, written, is_clean).await,
            Err(error) => Err(error),
        };
        if !matches!(exchanged, Ok(true)) && !partition.is_closed() {
            // What is left of it otherwise the next start removes.
            swap::discard(&self.disk, &folder, base).await.unwrap_or_default();
        }
        exchanged
    }

    /// What was written takes the place of what it was made of; not beside a checkpoint or a removal.
    async fn exchange(
        self: &Rc<Self>,
        partition: &Rc<Partition<D>>,
        group: &[Rc<Segment<D>>],
        written: Compacted<D>,
        is_clean: bool,
    ) -> Result<bool, CompactionError> {
        let Some(checkpointer) = self.checkpointer.get() else { return Ok(false) };
        let _turn = checkpointer.my_turn().await;
        let is_over = || partition.is_closed() || self.is_closing.get();
        hold_all(group).await?;
        if is_over() || partition.log.borrow().place_of(group).is_none() {
            group.iter().for_each(|segment| segment.let_go());
            return if is_over() { Err(CompactionError::Stopped) } else { Ok(false) };
        }
        // From here on the names belong to whoever finishes it: this, or the next start.
        let folder = Rc::clone(partition.log.borrow().folder());
        let (base, aborts) = (written.base(), written.aborts());
        swap::commit(&self.disk, &folder, base)?;
        self.disk.sync_dir(&folder).await?;
        if is_over() {
            return Err(CompactionError::Stopped); // the next start finishes it
        }
        let segment = Rc::new(written.into_segment(clock::now_ms()));
        {
            let mut log = partition.log.borrow_mut();
            // Nobody else changes the list below the active segment without this turn.
            let Some(at) = log.place_of(group) else { return Ok(false) };
            swap::put_in_place(&self.disk, &folder, base, group)?;
            log.replace(at, group.len(), Rc::clone(&segment));
        }
        // Batches in there may be among the newest in memory, with all their records.
        partition.drop_tail_through(Offset(segment.end().0 - 1));
        self.disk.sync_dir(&folder).await?;
        let sealing = Sealing { clean: is_clean, aborts, ..self.sealing(partition, false) };
        segment.seal(sealing).await?;
        segment.sync_seal().await?;
        compactor::remove_empty_abort_index(&self.disk, &segment).await?;
        segment.close_handles();
        let (shard, partition) = (Rc::clone(self), Rc::clone(partition));
        let bases: Vec<_> = group.iter().map(|segment| segment.base()).collect();
        host::spawn(Queue::Background, async move { shard.unlink_later(&partition, &bases).await });
        Ok(true)
    }
}

async fn hold_all<D: Disk>(group: &[Rc<Segment<D>>]) -> std::io::Result<()> {
    for segment in group {
        if let Err(error) = segment.hold().await {
            group.iter().for_each(|segment| segment.let_go());
            return Err(error);
        }
    }
    Ok(())
}

fn all_segments<D: Disk>(partition: &Partition<D>) -> Vec<Rc<Segment<D>>> {
    partition.log.borrow().segments().to_vec()
}

/// All that is known to be aborted: an entry that is missing would have its marker removed while its records stay.
async fn aborted_transactions<D: Disk>(partition: &Partition<D>) -> std::io::Result<Vec<AbortedTxn>> {
    let mut aborted = Vec::new();
    for segment in all_segments(partition) {
        partition.load_aborted(&segment).await?;
        segment.visit_aborted(|txn| {
            aborted.push(*txn);
            false
        });
    }
    Ok(aborted)
}

fn closed_segments<D: Disk>(partition: &Partition<D>) -> Vec<Rc<Segment<D>>> {
    let mut segments = all_segments(partition);
    segments.pop();
    segments
}

/// The end of the segments that an earlier life has compacted, as far as their seals say so.
async fn clean_end<D: Disk>(closed: &[Rc<Segment<D>>]) -> Offset {
    let mut end = Offset(0);
    for segment in closed {
        if !segment.read_seal().await.is_some_and(|seal| seal.clean) {
            break;
        }
        end = segment.end();
    }
    end
}

fn last_of_producer<D: Disk>(partition: &Partition<D>, id: ProducerId) -> Option<LastOfProducer> {
    let producers = partition.producers.borrow();
    let state = producers.get(id)?;
    Some(LastOfProducer { offset: state.window.newest().map(|batch| batch.last_offset()), epoch: state.epoch })
}
