//! ListOffsets on the owning core, and the sizes of logs.

use std::io;
use std::rc::Rc;

use super::messages::{EpochEnd, EpochQuery, FoundOffset, OffsetQuery};
use super::partition::Partition;
use super::shard::Shard;
use crate::ids::{Offset, TopicPartition};
use crate::log::index::TimestampOffset;
use crate::log::scan::BatchFacts;
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;
use crate::wire::timestamps;

/// Timestamps that mean something else.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

impl<D: Disk> Shard<D> {
    /// Answers the queries in order.
    pub(super) async fn find_offsets(self: Rc<Self>, queries: Vec<OffsetQuery>) -> Vec<FoundOffset> {
        let mut found = Vec::with_capacity(queries.len());
        for query in queries {
            found.push(self.find_offset(&query).await.unwrap_or_else(not_found));
        }
        found
    }

    async fn find_offset(&self, query: &OffsetQuery) -> Result<FoundOffset, ErrorCode> {
        let partition = self.find_partition(query.key)?;
        self.check_epoch(query.leader_epoch)?;
        let found = match query.timestamp {
            LATEST => Ok(Some(TimestampOffset { timestamp: -1, offset: partition.readable_end(query.is_committed) })),
            EARLIEST | EARLIEST_LOCAL => Ok(Some(TimestampOffset { timestamp: -1, offset: partition.log_start() })),
            LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(None),
            MAX_TIMESTAMP => find_newest(&partition).await,
            time => find_by_time(&partition, time).await,
        };
        let is_special = matches!(query.timestamp, LATEST | EARLIEST | EARLIEST_LOCAL);
        let upper = partition.readable_end(query.is_committed);
        let seen = found.map(|found| found.filter(|found| is_special || found.offset < upper));
        seen.map(|found| self.with_epoch(&partition, query, found)).map_err(|error| {
            tracing::error!("{}: the look-up of an offset failed: {error}", partition.name);
            ErrorCode::KafkaStorageError
        })
    }

    /// Adds the epoch that the offset was written in; at the end of the log it is the present one.
    fn with_epoch(&self, partition: &Partition<D>, query: &OffsetQuery, found: Option<TimestampOffset>) -> FoundOffset {
        let Some(TimestampOffset { offset, timestamp }) = found else { return not_found(ErrorCode::None) };
        let is_written = query.timestamp != LATEST && offset < partition.high_watermark();
        let leader_epoch = if is_written { partition.epoch_at(offset).unwrap_or(-1) } else { self.leader_epoch() };
        FoundOffset { error: ErrorCode::None, offset, timestamp, leader_epoch }
    }

    /// Says where epochs end, in the order of the queries.
    pub(super) fn epoch_ends(&self, queries: &[EpochQuery]) -> Vec<EpochEnd> {
        let end_of = |query: &EpochQuery| {
            let partition = self.find_partition(query.key)?;
            self.check_epoch(query.leader_epoch)?;
            Ok(partition.epoch_end(query.epoch))
        };
        queries.iter().map(end_of).collect()
    }

    /// Bytes of each partition of this shard.
    pub(super) fn sizes(&self) -> Vec<(TopicPartition, u64)> {
        let partitions = self.partitions.borrow();
        partitions.values().map(|partition| (partition.name.clone(), partition.log.borrow().bytes())).collect()
    }
}

/// The batch that holds `offset`, or the first one behind it.
pub(super) async fn batch_at<D: Disk>(partition: &Partition<D>, offset: Offset) -> io::Result<Option<BatchFacts>> {
    for readable in partition.readable_from(offset) {
        if let Some(batch) = readable.segment.locate(offset, readable.upper).await? {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

async fn find_by_time<D: Disk>(partition: &Partition<D>, time: i64) -> io::Result<Option<TimestampOffset>> {
    let from = partition.log_start();
    for readable in partition.readable_from(from) {
        let exact = |batch: &[u8]| timestamps::first_at_or_after(batch, time, from).map(pair);
        if let Some(found) = readable.segment.find_by_time(time, from, readable.upper, exact).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The first record that has the largest timestamp of the log; where no record has one, as in Kafka, the first record.
async fn find_newest<D: Disk>(partition: &Partition<D>) -> io::Result<Option<TimestampOffset>> {
    let mut newest: Option<TimestampOffset> = None;
    let log_start = partition.log_start();
    for readable in partition.readable_from(log_start) {
        let exact = |batch: &[u8]| timestamps::newest(batch).map(pair);
        let found = readable.segment.find_newest(readable.upper, exact).await?;
        newest = match (newest, found) {
            (Some(known), Some(found)) if found.timestamp <= known.timestamp => Some(known),
            (known, found) => found.or(known),
        };
    }
    if newest.is_some() {
        return Ok(newest);
    }
    let first = batch_at(partition, log_start).await?;
    Ok(first.map(|first| TimestampOffset { timestamp: -1, offset: first.base_offset }))
}

fn pair(found: (Offset, i64)) -> TimestampOffset {
    TimestampOffset { timestamp: found.1, offset: found.0 }
}

fn not_found(error: ErrorCode) -> FoundOffset {
    FoundOffset { error, offset: Offset(-1), timestamp: -1, leader_epoch: -1 }
}
