//! Markers on the core that owns their partition.

use std::rc::Rc;

use super::messages::{Answer, Marker};
use super::shard::{Served, Shard};
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;

impl<D: Disk> Shard<D> {
    /// Stages markers; the answer comes when they are durable.
    pub(super) fn write_markers(self: &Rc<Self>, markers: Vec<Marker>) -> Served {
        Served::Now(Answer::Marked(markers.iter().map(|_| ErrorCode::KafkaStorageError).collect()))
    }
}
