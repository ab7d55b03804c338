//! Markers on the core that owns their partition: staged in order like every batch, answered when they are durable.
//!
//! With the marker of an aborted transaction its entry in the abort index comes into memory, in the same step; the last
//! stable offset passes the marker once it is durable (docs/adr/0015-transactions.md).

use std::rc::Rc;

use super::catalog::settings::OFFSETS_TOPIC;
use super::messages::{Answer, CheckedBatch, Marker};
use super::own_log::{Appended, OnItsWay};
use super::partition::{Partition, StageContext, Staged, unsigned};
use super::shard::{LocalFuture, Served, Shard};
use crate::config::TimestampType;
use crate::ids::Offset;
use crate::log::txn_index::AbortedTxn;
use crate::runtime::clock;
use crate::runtime::disk::Disk;
use crate::state::producers::{Ending, MarkerRefusal};
use crate::state::transactions::messages::Outcome;
use crate::wire::batch::{BatchHeader, set_max_timestamp};
use crate::wire::builder::{self, Marker as Kind};
use crate::wire::error_code::ErrorCode;

impl<D: Disk> Shard<D> {
    /// Stages markers; the answer comes when they are durable.
    pub(super) fn write_markers(self: &Rc<Self>, markers: Vec<Marker>) -> Served {
        let on_their_way: Vec<_> = markers.into_iter().map(|marker| self.write_marker(marker)).collect();
        let work = self.begin_work();
        Served::Later(Box::pin(async move {
            let mut results = Vec::with_capacity(on_their_way.len());
            for one in on_their_way {
                results.push(one.await);
            }
            drop(work);
            Answer::Marked(results)
        }))
    }

    fn write_marker(self: &Rc<Self>, marker: Marker) -> LocalFuture<ErrorCode> {
        let staged = self.find_partition(marker.key).and_then(|partition| {
            self.takes_group_marker(marker.key)?;
            let staged = self.stage_marker(&partition, &marker)?;
            Ok((partition, staged))
        });
        match staged {
            Err(error) => Box::pin(std::future::ready(error)),
            Ok((partition, staged)) => {
                let is_of_groups = &*partition.name.topic == OFFSETS_TOPIC;
                let on_its_way = self.durable(partition, &staged);
                match is_of_groups {
                    true => self.pass_group_marker(marker.key, marker, on_its_way),
                    false => Box::pin(async move { on_its_way.await.err().unwrap_or(ErrorCode::None) }),
                }
            }
        }
    }

    fn stage_marker(self: &Rc<Self>, partition: &Rc<Partition<D>>, marker: &Marker) -> Result<Staged, ErrorCode> {
        let batch = self.marker_batch(partition, marker)?;
        let bytes = batch.bytes.len();
        if !self.log().has_room(bytes) {
            return Err(ErrorCode::KafkaStorageError); // it is sent again
        }
        self.stage_by(partition, bytes, |context| partition.stage_marker(marker, &batch, context))
    }

    fn marker_batch(&self, partition: &Partition<D>, marker: &Marker) -> Result<CheckedBatch, ErrorCode> {
        let kind = match marker.outcome {
            Outcome::Commit => Kind::Commit,
            Outcome::Abort => Kind::Abort,
        };
        let now_ms = clock::now_ms();
        let catalog = self.catalog();
        let topic = catalog.topic_by_id(partition.key.topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let log_append_time = topic.settings.timestamp_type == TimestampType::LogAppendTime;
        let Marker { producer_id, epoch, coordinator_epoch, .. } = *marker;
        let mut bytes = builder::control_batch(producer_id, epoch, kind, coordinator_epoch, now_ms);
        if log_append_time {
            set_max_timestamp(&mut bytes, true, now_ms);
        }
        let bytes = bytes.freeze();
        let header = BatchHeader::read(&bytes).map_err(|_| ErrorCode::UnknownServerError)?;
        Ok(CheckedBatch { header, bytes, log_append_time_ms: -1 })
    }

    /// Ready when what was staged is durable, whatever the topic promises, and readable.
    pub(super) fn durable(&self, partition: Rc<Partition<D>>, staged: &Staged) -> OnItsWay {
        let (log, base, end) = (self.log().clone(), staged.base_offset, staged.end);
        Box::pin(async move {
            match partition.is_durable(&log, end).await {
                true => Ok(Appended { base, end }),
                false => Err(ErrorCode::KafkaStorageError),
            }
        })
    }
}

impl<D: Disk> Partition<D> {
    /// Decides on a marker, and gives it its place.
    ///
    /// # Errors
    /// 47 and 52 for old epochs, 56 when nothing may be written. State is unchanged then.
    fn stage_marker(
        &self,
        marker: &Marker,
        batch: &CheckedBatch,
        context: &mut StageContext<'_>,
    ) -> Result<Staged, ErrorCode> {
        let Marker { producer_id, epoch, coordinator_epoch, bumps_epoch, .. } = *marker;
        let ending = Ending { producer_id, epoch, coordinator_epoch, bumps_epoch };
        // On a line of its own: the borrow would live as long as what it is handed to.
        let checked = self.producers.borrow().check_marker(&ending);
        checked.map_err(|refusal| {
            tracing::warn!("{}: a marker of producer {} is refused: {refusal}", self.name, producer_id.0);
            code_of(refusal)
        })?;
        let mut staged = self.append(batch, context)?;
        let at = staged.base_offset;
        let ended = self.producers.borrow_mut().remember_marker(&ending, at, context.now_ms, context.tick);
        staged.is_new_producer = ended.is_new_producer;
        self.enlistments.borrow_mut().end(producer_id);
        if let (Outcome::Abort, Some(first_offset)) = (marker.outcome, ended.first_offset) {
            let last_stable_offset = ended.last_stable_offset;
            self.log.borrow().note_aborted(AbortedTxn {
                producer_id,
                first_offset,
                last_offset: at,
                last_stable_offset,
            });
        }
        Ok(staged)
    }

    /// Waits until everything below `end` is in the commit log and readable; false where it is not known to be.
    pub(super) async fn is_durable(&self, log: &crate::log::commit_log::CommitLog<D>, end: Offset) -> bool {
        let gives_up = || self.is_failed() || self.is_stuck() || self.is_closed() || log.is_failed();
        let end = unsigned(end);
        self.durable.reached(end, gives_up).await && self.high_watermark.reached(end, gives_up).await
    }
}

fn code_of(refusal: MarkerRefusal) -> ErrorCode {
    match refusal {
        MarkerRefusal::Fenced { .. } => ErrorCode::InvalidProducerEpoch,
        MarkerRefusal::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
    }
}
