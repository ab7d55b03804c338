//! The log of a coordinator: where its memory and the log are to each other, and batches on their way.
//!
//! ```text
//! Loading ──read──► Serving ──an append failed──► Doubtful ──log and memory agree──► Serving
//!    │                 │                             └─────────they may differ─────► Loading
//!    └──unreadable──► Failed                  any ──topic deleted, stop──► Closed
//! ```

use std::cell::Cell;
use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::catalog::{Command, ItemResult, Topic};
use super::messages::{AckLevel, Answer, Ask, CheckedBatch, Fetched, ProduceItem, ReadItem, ReadLimits};
use super::partition::{Partition, unsigned};
use super::shard::{LocalFuture, Shard};
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::state::groups::TxnWriter;
use crate::wire::batch::{Attributes, BatchHeader, BatchRef, Batches, Codec};
use crate::wire::builder::{BatchBuilder, Record};
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::{KeyValue, TooLong};
use crate::wire::stored::RecordData;

/// Where a coordinator is in its life; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Loading,
    Serving,
    Doubtful,
    Failed,
    Closed,
}

/// How a doubt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Serves,
    LoadsAgain,
}

/// A batch that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    /// Offset of its first record.
    pub(super) base: Offset,
    /// The offset behind its last.
    pub(super) end: Offset,
}

/// A batch on its way to the log; ready when it is durable.
pub(super) type OnItsWay = LocalFuture<Result<Appended, ErrorCode>>;

/// See the module.
pub(super) struct OwnLog<D: Disk> {
    pub(super) partition: Rc<Partition<D>>,
    phase: Cell<Phase>,
    /// The end of what the coordinator knows of the log.
    applied_end: Cell<Offset>,
    /// The log has records that the coordinator does not know.
    has_missed: Cell<bool>,
}

impl<D: Disk> OwnLog<D> {
    pub(super) fn new(partition: Rc<Partition<D>>) -> Self {
        Self { partition, phase: Cell::new(Phase::Loading), applied_end: Cell::default(), has_missed: Cell::default() }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Goes on to `phase`, unless this is the end.
    pub(super) fn enter(&self, phase: Phase) {
        if self.phase.get() != Phase::Closed {
            self.phase.set(phase);
        }
    }

    pub(super) fn close(&self) {
        self.phase.set(Phase::Closed);
    }

    /// What clients are told while it does not serve: they ask again (14), or look for the coordinator again (16).
    pub(super) fn serves(&self) -> Result<(), ErrorCode> {
        match self.phase.get() {
            Phase::Serving => Ok(()),
            Phase::Loading | Phase::Doubtful => Err(ErrorCode::CoordinatorLoadInProgress),
            Phase::Failed | Phase::Closed => Err(ErrorCode::NotCoordinator),
        }
    }

    /// Everything below `end` is known to the coordinator, and it serves.
    pub(super) fn loaded(&self, end: Offset) {
        self.applied_end.set(end);
        self.has_missed.set(false);
        self.enter(Phase::Serving);
    }

    /// A batch is durable and about to be applied.
    pub(super) fn note_appended(&self, appended: Appended) {
        let Appended { base, end } = appended;
        if base != self.applied_end.replace(end) {
            self.has_missed.set(true);
            self.doubt();
        }
    }

    /// An append failed: whether its records are in the log is seen when everything behind it has settled.
    pub(super) fn doubt(&self) {
        if self.phase.get() == Phase::Serving {
            self.phase.set(Phase::Doubtful);
        }
    }

    /// True when the log holds nothing that the coordinator does not know.
    fn agrees_with_log(&self) -> bool {
        !self.has_missed.get() && self.partition.log.borrow().end() == self.applied_end.get()
    }

    /// With nothing on its way: a log in doubt serves again where memory agrees with it, and must be loaded anew otherwise.
    /// Tells which of the two has come about.
    pub(super) fn settle_doubt(&self) -> Option<Settled> {
        if self.phase.get() != Phase::Doubtful {
            return None;
        }
        let settled = if self.agrees_with_log() { Settled::Serves } else { Settled::LoadsAgain };
        self.enter(if settled == Settled::Serves { Phase::Serving } else { Phase::Loading });
        Some(settled)
    }

    /// True when the log holds nothing that anybody may read.
    pub(super) fn is_empty(&self) -> bool {
        self.partition.log_start() == self.partition.high_watermark()
    }

    /// Keys and values of what is to be appended.
    ///
    /// # Errors
    /// -1 where a name is longer than the schema allows.
    pub(super) fn encoded<T>(&self, encoded: Result<T, TooLong>) -> Result<T, ErrorCode> {
        encoded.map_err(|error| {
            tracing::warn!("{}: refused: {error}", self.partition.name);
            ErrorCode::UnknownServerError
        })
    }

    /// What was staged is durable; false if that will not be before a restart.
    pub(super) async fn all_durable(&self, is_log_failed: impl Fn() -> bool) -> bool {
        let partition = &self.partition;
        let end = unsigned(partition.log.borrow().end());
        let gives_up = || partition.is_failed() || partition.is_closed() || is_log_failed();
        partition.high_watermark.reached(end, gives_up).await
    }
}

impl<D: Disk> Shard<D> {
    /// Stages records as one batch of a coordinator.
    pub(super) fn append_own(self: &Rc<Self>, log: &OwnLog<D>, codec: i16, records: &[KeyValue]) -> OnItsWay {
        self.append_own_in(log, codec, None, records)
    }

    /// The same for records that belong to a producer's transaction.
    pub(super) fn append_own_in(
        self: &Rc<Self>,
        log: &OwnLog<D>,
        codec: i16,
        writer: Option<TxnWriter>,
        records: &[KeyValue],
    ) -> OnItsWay {
        let key = log.partition.key;
        let batch = match self.own_batch(log, codec, writer.as_ref(), records) {
            Ok(batch) => batch,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let count = i64::from(batch.header.records_count);
        let entry = writer.and_then(|writer| writer.entry);
        let item = ProduceItem { key, checked: Ok(batch), entry };
        let produced = self.ask(self.id(), Ask::Produce(vec![item], AckLevel::Durable));
        Box::pin(async move {
            let Answer::Produced(results) = produced.await else { unreachable!("a produce is answered as one") };
            // Nothing comes back where the shard could not even keep the request.
            let produced = results.first().ok_or(ErrorCode::KafkaStorageError)?;
            match produced.error {
                ErrorCode::None => {
                    let base = produced.base_offset;
                    Ok(Appended { base, end: base.plus(count) })
                }
                error => Err(error),
            }
        })
    }

    fn own_batch(
        &self,
        log: &OwnLog<D>,
        codec: i16,
        writer: Option<&TxnWriter>,
        records: &[KeyValue],
    ) -> Result<CheckedBatch, ErrorCode> {
        let codec = Attributes(codec).codec().unwrap_or(Codec::None);
        let timestamp = clock::now_ms();
        let builder = BatchBuilder::new().codec(codec);
        let builder = match writer {
            // No sequence: it is not the producer that counts here. Kafka writes 0 and knows by other ways.
            Some(writer) => builder.producer(writer.producer_id, writer.epoch, Sequence(-1)).transactional(),
            // Kafka's coordinators number the records of each batch from 0 on, though nobody's sequence it is.
            None => builder.producer(ProducerId(-1), ProducerEpoch(-1), Sequence(0)),
        };
        let add = |builder: BatchBuilder, record: &KeyValue| {
            builder.record(Record { timestamp, key: Some(&record.key), value: record.value.as_deref(), headers: &[] })
        };
        let bytes = records.iter().fold(builder, add).build().freeze();
        let catalog = self.catalog();
        let topic = catalog.topic_by_id(log.partition.key.topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if bytes.len() > topic.settings.max_message_bytes {
            return Err(ErrorCode::MessageTooLarge);
        }
        let header = BatchHeader::read(&bytes).map_err(|_| ErrorCode::UnknownServerError)?;
        Ok(CheckedBatch { header, bytes, log_append_time_ms: -1 })
    }

    /// Makes an internal topic when it is not there yet.
    ///
    /// # Errors
    /// 15 while it cannot be made.
    pub(super) async fn own_topic(self: &Rc<Self>, name: &str) -> Result<Arc<Topic>, ErrorCode> {
        if let Some(topic) = self.catalog().topic(name) {
            return Ok(Arc::clone(topic));
        }
        let made = self.change_catalog(Command::EnsureTopics { names: vec![name.to_owned()] }).await;
        let made = made.map_err(|_| ErrorCode::CoordinatorNotAvailable)?;
        made.first().and_then(ItemResult::topic).cloned().ok_or(ErrorCode::CoordinatorNotAvailable)
    }

    /// Loads coordinators one after the other, where there are any; `load` tells how many records it has read.
    pub(super) fn load_in_turn<C: 'static>(
        self: &Rc<Self>,
        what: &'static str,
        coordinators: Vec<Rc<C>>,
        load: impl AsyncFn(&Rc<Self>, &Rc<C>) -> usize + 'static,
    ) {
        if coordinators.is_empty() {
            return;
        }
        let shard = Rc::clone(self);
        host::spawn(Queue::Requests, async move {
            let (begun, mut records) = (clock::monotonic(), 0);
            for coordinator in &coordinators {
                records += load(&shard, coordinator).await;
            }
            let took_ms = (clock::monotonic() - begun).as_millis();
            tracing::info!("{}: {what} loaded, {records} records in {took_ms} ms", shard.id());
        });
    }

    /// What stands in a coordinator's log from `offset` on.
    async fn read_own(self: &Rc<Self>, log: &OwnLog<D>, offset: Offset, bytes_max: usize) -> Result<Fetched, String> {
        let item = ReadItem {
            key: log.partition.key,
            offset,
            bytes_max,
            leader_epoch: -1,
            last_epoch: -1,
            is_committed: false,
        };
        let limits = ReadLimits { bytes_max, first_whole: true };
        let Answer::Read(mut found) = self.ask(self.id(), Ask::Read(vec![item], limits)).await else {
            unreachable!("a read is answered as one")
        };
        match found.pop() {
            Some(fetched) if fetched.error.is_none() => Ok(fetched),
            Some(Fetched { error, .. }) => Err(format!("reading at offset {offset} failed: {error}")),
            None => Err(format!("reading at offset {offset} failed: {}", ErrorCode::KafkaStorageError)),
        }
    }

    /// Gives every batch of a coordinator's log to `take`, the oldest first, with the bytes that it is part of; tells the
    /// offset behind the last.
    pub(super) async fn each_own_batch(
        self: &Rc<Self>,
        log: &OwnLog<D>,
        bytes_max: usize,
        mut take: impl FnMut(&Bytes, &BatchRef<'_>) -> Result<(), String>,
    ) -> Result<Offset, String> {
        let (mut next, end) = (log.partition.log_start(), log.partition.high_watermark());
        while next < end {
            let from = next;
            for part in self.read_own(log, from, bytes_max).await?.records.parts {
                let bytes = match part {
                    RecordData::Batch(batch) => batch.to_bytes(),
                    RecordData::Whole(bytes) => bytes,
                };
                for batch in Batches::checked(&bytes) {
                    let batch = batch.map_err(|error| format!("behind offset {next}: {error}"))?;
                    // Of what was read, the first batch may begin before the offset that was asked for.
                    if batch.header.next_offset() > next {
                        let base = batch.header.base_offset;
                        take(&bytes, &batch).map_err(|why| format!("the batch at offset {base}: {why}"))?;
                        next = batch.header.next_offset();
                    }
                    host::yield_now().await;
                }
            }
            if next == from {
                return Err(format!("nothing can be read at offset {from}, the end is {end}"));
            }
        }
        Ok(next)
    }
}
