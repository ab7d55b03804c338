//! Markers in `__consumer_offsets`: they end transactions whose offsets the groups keep, in the order of the log.

use std::rc::Rc;

use super::coordinator::Pending;
use crate::broker::messages::{Marker, PartitionKey};
use crate::broker::own_log::{OnItsWay, Phase};
use crate::broker::shard::{LocalFuture, Shard};
use crate::runtime::disk::Disk;
use crate::runtime::signal::once;
use crate::wire::error_code::ErrorCode;

impl<D: Disk> Shard<D> {
    /// Whether a marker may be staged in a partition now. A coordinator that is reading its log, or is about
    /// to, would miss it.
    ///
    /// # Errors
    /// 6, after which it is sent again.
    pub(in crate::broker) fn takes_group_marker(&self, key: PartitionKey) -> Result<(), ErrorCode> {
        match self.groups.at(key).map(|coordinator| coordinator.log.phase()) {
            Some(Phase::Loading | Phase::Doubtful | Phase::Closed) => Err(ErrorCode::NotLeaderOrFollower),
            // A failed one knows nothing until the next start, and then it reads the marker.
            Some(Phase::Serving | Phase::Failed) | None => Ok(()),
        }
    }

    /// A marker was staged in a partition of the groups, in this very step: it takes its place among their appends. What it
    /// gives says none once the marker is durable and the groups know of it.
    pub(in crate::broker) fn pass_group_marker(
        self: &Rc<Self>,
        key: PartitionKey,
        marker: Marker,
        on_its_way: OnItsWay,
    ) -> LocalFuture<ErrorCode> {
        let Some(coordinator) = self.groups.at(key).filter(|coordinator| coordinator.log.serves().is_ok()) else {
            return Box::pin(async move { on_its_way.await.err().unwrap_or(ErrorCode::None) });
        };
        let id = coordinator.groups.borrow_mut().marker_staged(marker.producer_id, marker.outcome);
        let (sender, receiver) = once();
        self.queue_append(&coordinator, Pending { id, batch: on_its_way, applied: Some(sender) });
        Box::pin(async move { receiver.await.unwrap_or(ErrorCode::KafkaStorageError) })
    }
}
