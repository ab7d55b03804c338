//! Reads on the owning core: what is there now, and watches for when there is more.

use std::rc::Rc;

use bytes::Bytes;

use super::messages::{Answer, Fetched, PartitionKey, ReadItem, ReadLimits, Records, Watch, WatchItem};
use super::partition::Partition;
use super::shard::{Served, Shard};
use crate::ids::{Offset, ProducerId, ShardId};
use crate::log::scan::BatchFacts;
use crate::log::segment_read::{Chunk, ReadLimits as FileLimits};
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;
use crate::wire::stored::RecordData;

impl<D: Disk> Shard<D> {
    /// Reads what is there now: from memory at once, from files when they come.
    pub(super) fn read(self: &Rc<Self>, items: Vec<ReadItem>, limits: ReadLimits) -> Served {
        let mut reader = Reader {
            items: items.into_iter(),
            left: limits.bytes_max,
            first_whole: limits.first_whole,
            done: Vec::new(),
        };
        match self.read_from_memory(&mut reader) {
            None => Served::Now(Answer::Read(reader.done)),
            Some(first) => {
                let shard = Rc::clone(self);
                Served::Later(Box::pin(async move {
                    let mut missed = Some(first);
                    while let Some((item, partition)) = missed {
                        let fetched = read_files(&partition, &item, reader.left, reader.first_whole).await;
                        reader.add(with_aborted(&partition, &item, fetched).await);
                        missed = shard.read_from_memory(&mut reader);
                    }
                    Answer::Read(reader.done)
                }))
            }
        }
    }

    /// Goes on until a partition must be read from its files.
    fn read_from_memory(&self, reader: &mut Reader) -> Option<(ReadItem, Rc<Partition<D>>)> {
        while let Some(item) = reader.items.next() {
            let partition = match self.readable(&item) {
                Ok(partition) => partition,
                Err(unreadable) => {
                    reader.add(unreadable);
                    continue;
                }
            };
            let bytes_max = item.bytes_max.min(reader.left);
            let upper = partition.readable_end(item.is_committed);
            let has_more = item.offset < upper;
            if !has_more || (bytes_max == 0 && !reader.first_whole) {
                reader.add(found(&partition, Records { is_cut: has_more, ..Records::default() }));
                continue;
            }
            let read = partition.read_tail(item.offset, upper, bytes_max, reader.first_whole);
            let aborted = read.as_ref().and_then(|records| aborted_in_memory(&partition, &item, records));
            match read.zip(aborted) {
                Some((records, aborted)) => reader.add(Fetched { aborted, ..found(&partition, records) }),
                None => return Some((item, partition)),
            }
        }
        None
    }

    /// The partition to read from, or what there is to say instead.
    fn readable(&self, item: &ReadItem) -> Result<Rc<Partition<D>>, Fetched> {
        let partition = self.find_partition(item.key).map_err(failed)?;
        self.check_epoch(item.leader_epoch).map_err(failed)?;
        if item.last_epoch >= 0
            && let Some(diverging) = diverges(&partition, item).map_err(failed)?
        {
            return Err(Fetched { diverging: Some(diverging), ..found(&partition, Records::default()) });
        }
        // Above the high watermark and not above the end: written, and not promised to anybody yet.
        let end = partition.log.borrow().end();
        if item.offset < partition.log_start() || item.offset > end {
            return Err(failed(ErrorCode::OffsetOutOfRange));
        }
        Ok(partition)
    }

    /// The epoch that a client believes in: older ones are fenced, newer ones not known here; -1 is none.
    pub(super) fn check_epoch(&self, believed: i32) -> Result<(), ErrorCode> {
        match believed {
            -1 => Ok(()),
            older if older < self.leader_epoch() => Err(ErrorCode::FencedLeaderEpoch),
            newer if newer > self.leader_epoch() => Err(ErrorCode::UnknownLeaderEpoch),
            _ => Ok(()),
        }
    }

    /// Answers when one of the partitions has more than the fetch has seen, or its time is up.
    pub(super) fn watch(self: &Rc<Self>, items: &[WatchItem], watch: Watch) -> Served {
        let partitions: Option<Vec<_>> = items
            .iter()
            .map(|item| self.partition(item.key).filter(|one| one.readable_end(item.is_committed) == item.seen))
            .collect();
        let Some(partitions) = partitions.filter(|_| !self.is_stopping()) else { return Served::Now(Answer::Woken) };
        let (watcher, woken) = self.waiters.add(watch.wait);
        for (partition, item) in partitions.iter().zip(items) {
            partition.watch(&watcher, item.is_committed);
        }
        let key = (watch.from, watch.number);
        self.watches.borrow_mut().insert(key, watcher);
        let shard = Rc::clone(self);
        Served::Later(Box::pin(async move {
            woken.await;
            shard.watches.borrow_mut().remove(&key);
            Answer::Woken
        }))
    }

    /// The asker does not wait any more: its watch answers now, so that its slot is free.
    pub(super) fn unwatch(&self, from: ShardId, number: u64) {
        let watcher = self.watches.borrow_mut().remove(&(from, number));
        if let Some(watcher) = watcher {
            self.waiters.wake(&watcher);
        }
    }

    /// True when the partition is here and has nothing that `seen` does not cover.
    #[must_use]
    pub fn has_nothing_new(&self, key: PartitionKey, seen: Offset) -> bool {
        self.partition(key).is_some_and(|partition| partition.high_watermark() == seen)
    }
}

/// Where the client's log and ours part, if they do before the offset that it asks for.
///
/// Source: KIP-595; apache/kafka `Partition.readRecords`.
fn diverges<D: Disk>(partition: &Partition<D>, item: &ReadItem) -> Result<Option<(i32, Offset)>, ErrorCode> {
    let (epoch, end) = partition.epoch_end(item.last_epoch).ok_or(ErrorCode::OffsetOutOfRange)?;
    if item.offset < partition.log_start() {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok((epoch < item.last_epoch || end < item.offset).then_some((epoch, end)))
}

struct Reader {
    items: std::vec::IntoIter<ReadItem>,
    /// Bytes that may still be read.
    left: usize,
    /// Nothing was found yet, so the first batch goes out whatever its size.
    first_whole: bool,
    done: Vec<Fetched>,
}

impl Reader {
    fn add(&mut self, fetched: Fetched) {
        self.left = self.left.saturating_sub(fetched.records.bytes);
        self.first_whole &= fetched.records.bytes == 0;
        self.done.push(fetched);
    }
}

async fn read_files<D: Disk>(
    partition: &Partition<D>,
    item: &ReadItem,
    bytes_left: usize,
    first_whole: bool,
) -> Fetched {
    if item.offset < partition.log_start() {
        return failed(ErrorCode::OffsetOutOfRange); // deleted since it was asked for
    }
    let bytes_max = item.bytes_max.min(bytes_left);
    // As it was before anything was awaited: what is read is not above it.
    let upper = partition.readable_end(item.is_committed);
    for readable in partition.readable_from(item.offset) {
        let limits = FileLimits { bytes_max, upper: readable.upper, first_whole };
        let read = readable.segment.read(item.offset, limits).await;
        if partition.is_closed() {
            // The name of the file may be another topic's by now.
            return failed(ErrorCode::UnknownTopicOrPartition);
        }
        match read {
            Ok(Some(chunk)) => {
                let (content, next_offset) = cut_at(chunk, upper);
                let (bytes, is_cut) = (content.len(), next_offset < upper);
                let parts = if bytes > 0 { vec![RecordData::Whole(content)] } else { Vec::new() };
                return found(partition, Records { parts, bytes, is_cut });
            }
            Ok(None) if readable.segment.end() > item.offset => break,
            Ok(None) => {}
            Err(error) => {
                tracing::error!("{}: reading from offset {} failed: {error}", partition.name, item.offset);
                return failed(ErrorCode::KafkaStorageError);
            }
        }
    }
    let is_cut = item.offset < upper;
    found(partition, Records { is_cut, ..Records::default() })
}

/// The batches below `upper`, a batch boundary, and the offset behind them.
fn cut_at(mut chunk: Chunk, upper: Offset) -> (Bytes, Offset) {
    if chunk.next_offset <= upper {
        return (chunk.bytes, chunk.next_offset);
    }
    let (mut whole, mut next_offset) = (0, chunk.base_offset);
    while let Some(batch) = BatchFacts::read(&chunk.bytes[whole..], 0).filter(|batch| batch.next_offset() <= upper) {
        whole += batch.bytes as usize;
        next_offset = batch.next_offset();
    }
    chunk.bytes.truncate(whole);
    (chunk.bytes, next_offset)
}

/// What a reader of committed records must leave out of what was read from memory; `None` when an index must be read.
fn aborted_in_memory<D: Disk>(
    partition: &Partition<D>,
    item: &ReadItem,
    records: &Records,
) -> Option<Vec<(ProducerId, Offset)>> {
    match records.end().filter(|_| item.is_committed) {
        Some(end) => partition.aborted_in_memory(item.offset, end),
        None => Some(Vec::new()),
    }
}

/// Adds what a reader of committed records must leave out: where that cannot be told, it gets nothing at all.
async fn with_aborted<D: Disk>(partition: &Partition<D>, item: &ReadItem, fetched: Fetched) -> Fetched {
    let Some(end) = fetched.records.end().filter(|_| item.is_committed) else { return fetched };
    match partition.aborted_between(item.offset, end).await {
        Ok(aborted) => Fetched { aborted, ..fetched },
        Err(_) if partition.is_closed() => failed(ErrorCode::UnknownTopicOrPartition),
        Err(error) => {
            tracing::error!(
                "{}: the aborted transactions from offset {} on are not known: {error}",
                partition.name,
                item.offset
            );
            failed(ErrorCode::KafkaStorageError)
        }
    }
}

fn found<D: Disk>(partition: &Partition<D>, records: Records) -> Fetched {
    Fetched {
        error: ErrorCode::None,
        high_watermark: partition.high_watermark(),
        last_stable_offset: partition.last_stable_offset(),
        log_start_offset: partition.log_start(),
        diverging: None,
        records,
        aborted: Vec::new(),
    }
}

/// An answer without records.
#[must_use]
pub fn failed(error: ErrorCode) -> Fetched {
    let none = Offset(-1);
    Fetched {
        error,
        high_watermark: none,
        last_stable_offset: none,
        log_start_offset: none,
        diverging: None,
        records: Records::default(),
        aborted: Vec::new(),
    }
}
