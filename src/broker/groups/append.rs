//! The way of a group's records into the log: one batch for each append, in order, many on their way at a time.

use std::future::ready;
use std::rc::Rc;

use super::coordinator::{Appended, Coordinator, OnItsWay, Pending, Phase};
use crate::broker::messages::{AckLevel, Answer, Ask, CheckedBatch, ProduceItem};
use crate::broker::partition::unsigned;
use crate::broker::shard::Shard;
use crate::ids::{ProducerEpoch, ProducerId, Sequence};
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::state::groups::Append;
use crate::wire::batch::{Attributes, BatchHeader, Codec};
use crate::wire::builder::{BatchBuilder, Record};
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::{GroupRecord, KeyValue};

impl<D: Disk> Shard<D> {
    /// Stages one append; what comes of it arrives in the order of the appends.
    pub(super) fn append_group_records(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, append: &Append) {
        let batch = match self.encoded(coordinator, &append.records) {
            Ok(records) => self.append_batch(coordinator, &records),
            Err(error) => Box::pin(ready(Err(error))),
        };
        coordinator.queue(Pending { id: append.id, batch });
        // One task for all that is on its way: it wakes once for each durable group of the commit log.
        if !coordinator.is_settling.replace(true) {
            host::spawn(Queue::Requests, Rc::clone(self).settle_appends(Rc::clone(coordinator)));
        }
    }

    async fn settle_appends(self: Rc<Self>, coordinator: Rc<Coordinator<D>>) {
        while let Some(pending) = coordinator.next_append() {
            let result = pending.batch.await;
            match result {
                Ok(appended) => coordinator.note_appended(appended),
                Err(_) => coordinator.doubt(),
            }
            let result = result.map(|_| ());
            let effects = coordinator.groups.borrow_mut().appended(super::moment(), pending.id, result);
            self.carry_out(&coordinator, effects);
            if coordinator.has_grown() {
                // Nothing new, until nothing is on its way.
                coordinator.doubt();
            }
        }
        coordinator.is_settling.set(false);
        self.settle_doubt(&coordinator);
    }

    /// With nothing on its way: memory that agrees with the log goes on, other memory is made anew from the log.
    pub(super) fn settle_doubt(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) {
        if coordinator.phase() != Phase::Doubtful {
            return;
        }
        let (shard, coordinator) = (Rc::clone(self), Rc::clone(coordinator));
        if !coordinator.agrees_with_log() {
            coordinator.enter(Phase::Loading);
            coordinator.refuse_all();
            tracing::warn!("{}: an append may have failed, its groups are read again", coordinator.partition.name);
            host::spawn(Queue::Requests, async move { shard.load_again(&coordinator).await });
        } else if coordinator.has_grown() {
            host::spawn(Queue::Requests, async move { shard.rewrite_groups(&coordinator).await });
        } else {
            coordinator.enter(Phase::Serving);
            self.look_at_deadline(&coordinator);
        }
    }

    /// Loads once all that was staged is durable; if that will not be, the partition takes nothing until a restart, and
    /// neither do its groups.
    async fn load_again(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) {
        let (partition, log) = (&coordinator.partition, self.log());
        let end = unsigned(partition.log.borrow().end());
        let gives_up = || partition.is_failed() || partition.is_closed() || log.is_failed();
        if partition.high_watermark.reached(end, gives_up).await {
            self.load_coordinator(coordinator).await;
        }
    }

    /// Keys and values of records.
    ///
    /// # Errors
    /// -1 where a name is longer than the schema allows.
    pub(super) fn encoded(
        &self,
        coordinator: &Coordinator<D>,
        records: &[GroupRecord],
    ) -> Result<Vec<KeyValue>, ErrorCode> {
        let encoded: Result<_, _> = records.iter().map(GroupRecord::encode).collect();
        encoded.map_err(|error| {
            tracing::warn!("{}: refused: {error}", coordinator.partition.name);
            ErrorCode::UnknownServerError
        })
    }

    /// Stages records as one batch.
    pub(super) fn append_batch(self: &Rc<Self>, coordinator: &Coordinator<D>, records: &[KeyValue]) -> OnItsWay {
        let key = coordinator.partition.key;
        let batch = match self.batch_of(coordinator, records) {
            Ok(batch) => batch,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let (count, bytes) = (i64::from(batch.header.records_count), batch.bytes.len() as u64);
        let item = ProduceItem { key, checked: Ok(batch), entry: None };
        let produced = self.ask(self.id(), Ask::Produce(vec![item], AckLevel::Durable));
        Box::pin(async move {
            let Answer::Produced(results) = produced.await else { unreachable!("a produce is answered as one") };
            // Nothing comes back where the shard could not even keep the request.
            let produced = results.first().ok_or(ErrorCode::KafkaStorageError)?;
            match produced.error {
                ErrorCode::None => {
                    let base = produced.base_offset;
                    Ok(Appended { base, end: base.plus(count), bytes })
                }
                error => Err(error),
            }
        })
    }

    fn batch_of(&self, coordinator: &Coordinator<D>, records: &[KeyValue]) -> Result<CheckedBatch, ErrorCode> {
        let codec = Attributes(self.config().groups.codec).codec().unwrap_or(Codec::None);
        let timestamp = clock::now_ms();
        // Kafka's coordinators number the records of each batch from 0 on, though nobody's sequence it is.
        let builder = BatchBuilder::new().codec(codec).producer(ProducerId(-1), ProducerEpoch(-1), Sequence(0));
        let add = |builder: BatchBuilder, record: &KeyValue| {
            builder.record(Record { timestamp, key: Some(&record.key), value: record.value.as_deref(), headers: &[] })
        };
        let bytes = records.iter().fold(builder, add).build().freeze();
        let catalog = self.catalog();
        let topic = catalog.topic_by_id(coordinator.partition.key.topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if bytes.len() > topic.settings.max_message_bytes {
            return Err(ErrorCode::MessageTooLarge);
        }
        let header = BatchHeader::read(&bytes).map_err(|_| ErrorCode::UnknownServerError)?;
        Ok(CheckedBatch { header, bytes, log_append_time_ms: -1 })
    }
}
