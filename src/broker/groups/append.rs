//! The way of a group's records into the log: one batch for each append, in order, many on their way at a time.

use std::future::ready;
use std::rc::Rc;

use super::coordinator::{Coordinator, Pending, Phase};
use crate::broker::messages::{AckLevel, Answer, Ask, CheckedBatch, ProduceItem};
use crate::broker::partition::unsigned;
use crate::broker::shard::Shard;
use crate::ids::Offset;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::state::groups::Append;
use crate::wire::batch::{Attributes, BatchHeader, Codec};
use crate::wire::builder::{BatchBuilder, Record};
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::GroupRecord;

impl<D: Disk> Shard<D> {
    /// Stages one append; what comes of it arrives in the order of the appends.
    pub(super) fn append_group_records(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, append: &Append) {
        let key = coordinator.partition.key;
        let outcome = match self.batch_for(coordinator, &append.records) {
            Err(error) => Box::pin(ready(Err(error))),
            Ok(batch) => {
                let records = i64::from(batch.header.records_count);
                let item = ProduceItem { key, checked: Ok(batch) };
                let produced = self.ask(self.id(), Ask::Produce(vec![item], AckLevel::Durable));
                Box::pin(async move { outcome_of(produced.await, records) }) as crate::broker::shard::LocalFuture<_>
            }
        };
        coordinator.queue(Pending { id: append.id, outcome });
        // One task for all that is on its way: it wakes once for each durable group of the commit log.
        if !coordinator.is_settling.replace(true) {
            host::spawn(Queue::Requests, Rc::clone(self).settle_appends(Rc::clone(coordinator)));
        }
    }

    async fn settle_appends(self: Rc<Self>, coordinator: Rc<Coordinator<D>>) {
        while let Some(pending) = coordinator.next_append() {
            let result = pending.outcome.await;
            match result {
                Ok((base, end)) => coordinator.note_appended(base, end),
                Err(_) => coordinator.doubt(),
            }
            let effects = coordinator.groups.borrow_mut().appended(super::moment(), pending.id, result.map(|_| ()));
            self.carry_out(&coordinator, effects);
        }
        coordinator.is_settling.set(false);
        self.settle_doubt(&coordinator);
    }

    /// After a failed append: memory that agrees with the log goes on, other memory is made anew from the log.
    fn settle_doubt(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) {
        if coordinator.phase() != Phase::Doubtful {
            return;
        }
        if coordinator.agrees_with_log() {
            coordinator.enter(Phase::Serving);
            return self.look_at_deadline(coordinator);
        }
        coordinator.enter(Phase::Loading);
        coordinator.refuse_all();
        tracing::warn!("{}: an append may have failed, its groups are read again", coordinator.partition.name);
        let (shard, coordinator) = (Rc::clone(self), Rc::clone(coordinator));
        host::spawn(Queue::Requests, async move {
            let (partition, log) = (&coordinator.partition, shard.log());
            let end = unsigned(partition.log.borrow().end());
            let gives_up = || partition.is_failed() || partition.is_closed() || log.is_failed();
            if partition.high_watermark.reached(end, gives_up).await {
                shard.load_coordinator(&coordinator).await;
            }
            // Otherwise the partition takes nothing until a restart, and neither do its groups.
        });
    }

    fn batch_for(&self, coordinator: &Coordinator<D>, records: &[GroupRecord]) -> Result<CheckedBatch, ErrorCode> {
        let codec = Attributes(self.config().groups.codec).codec().unwrap_or(Codec::None);
        let now_ms = clock::now_ms();
        let mut builder = BatchBuilder::new().codec(codec);
        for record in records {
            let encoded = record.encode().map_err(|error| {
                tracing::warn!("{}: refused: {error}", coordinator.partition.name);
                ErrorCode::UnknownServerError
            })?;
            let (key, value) = (Some(&*encoded.key), encoded.value.as_deref());
            builder = builder.record(Record { timestamp: now_ms, key, value, headers: &[] });
        }
        let bytes = builder.build().freeze();
        let settings = self.catalog().topic_by_id(coordinator.partition.key.topic).map(|topic| topic.settings.clone());
        if settings.is_none_or(|settings| bytes.len() > settings.max_message_bytes) {
            return Err(ErrorCode::MessageTooLarge);
        }
        let header = BatchHeader::read(&bytes).map_err(|_| ErrorCode::UnknownServerError)?;
        Ok(CheckedBatch { header, bytes, log_append_time_ms: -1 })
    }
}

fn outcome_of(answer: Answer, records: i64) -> Result<(Offset, Offset), ErrorCode> {
    let Answer::Produced(results) = answer else { return Err(ErrorCode::UnknownServerError) };
    // Nothing comes back where the shard could not even keep the request.
    let Some(produced) = results.first() else { return Err(ErrorCode::KafkaStorageError) };
    match produced.error {
        ErrorCode::None => Ok((produced.base_offset, produced.base_offset.plus(records))),
        error => Err(error),
    }
}
