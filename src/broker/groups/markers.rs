//! Markers in `__consumer_offsets`: they end transactions whose offsets the groups keep, in the order of the log.

use std::rc::Rc;

use crate::broker::messages::{Marker, PartitionKey};
use crate::broker::own_log::OnItsWay;
use crate::broker::shard::{LocalFuture, Shard};
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;

impl<D: Disk> Shard<D> {
    /// A marker was staged in a partition of the groups, in this very step: it takes its place among their appends. What it
    /// gives says none once the marker is durable and the groups know of it.
    pub(in crate::broker) fn pass_group_marker(
        self: &Rc<Self>,
        key: PartitionKey,
        marker: Marker,
        on_its_way: OnItsWay,
    ) -> LocalFuture<ErrorCode> {
        let _ = (key, marker);
        Box::pin(async move { on_its_way.await.err().unwrap_or(ErrorCode::None) })
    }
}
