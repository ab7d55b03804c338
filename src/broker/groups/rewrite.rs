//! Keeps a coordinator's log short: what is kept is written anew at the end, and the log start moves there.
//!
//! Nothing may be on its way meanwhile: an older value would be written behind a newer one. Clients are told to come again
//! (14) for as long as it takes, which is some ms for each 10,000 records. A crash in between leaves a log that says
//! the same, some of it twice.

use std::rc::Rc;

use super::coordinator::{Coordinator, Phase};
use crate::broker::shard::Shard;
use crate::ids::Offset;
use crate::runtime::disk::Disk;
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::{GroupRecord, KeyValue};

/// Keys and values in one batch: far below what a topic accepts, whatever stands around them.
const BATCH_BYTES: usize = 256 << 10;

impl<D: Disk> Shard<D> {
    /// Writes all that is kept, then moves the log start to where that begins.
    pub(super) async fn rewrite_groups(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) {
        let from = coordinator.partition.log.borrow().end();
        let records = coordinator.groups.borrow().kept();
        let written = self.write_anew(coordinator, &records).await;
        let moved = written.and_then(|bytes| self.let_go_of(coordinator, from).map(|()| bytes));
        let least = self.config().groups.rewrite_bytes;
        match moved {
            Ok(bytes) => coordinator.note_rewritten(bytes, least),
            Err(error) => {
                tracing::warn!("{}: cannot be shortened now: {error}", coordinator.partition.name);
                // Tried again after as much has come.
                coordinator.note_rewritten(0, least);
            }
        }
        self.settle_doubt(coordinator);
    }

    /// Bytes that it took.
    async fn write_anew(
        self: &Rc<Self>,
        coordinator: &Coordinator<D>,
        records: &[GroupRecord],
    ) -> Result<u64, ErrorCode> {
        let mut bytes = 0;
        for batch in in_batches(self.encoded(coordinator, records)?) {
            if coordinator.phase() != Phase::Doubtful {
                return Err(ErrorCode::NotCoordinator);
            }
            let appended = self.append_batch(coordinator, &batch).await?;
            coordinator.note_appended(appended);
            bytes += appended.bytes;
        }
        Ok(bytes)
    }

    fn let_go_of(self: &Rc<Self>, coordinator: &Coordinator<D>, below: Offset) -> Result<(), ErrorCode> {
        if coordinator.phase() != Phase::Doubtful {
            return Err(ErrorCode::NotCoordinator);
        }
        self.move_log_start(&coordinator.partition, below)
    }
}

fn in_batches(records: Vec<KeyValue>) -> Vec<Vec<KeyValue>> {
    let mut batches: Vec<Vec<KeyValue>> = Vec::new();
    let mut room = 0;
    for record in records {
        let size = record.key.len() + record.value.as_ref().map_or(0, |value| value.len());
        match batches.last_mut().filter(|_| size <= room) {
            Some(batch) => {
                room -= size;
                batch.push(record);
            }
            None => {
                room = BATCH_BYTES.saturating_sub(size);
                batches.push(vec![record]);
            }
        }
    }
    batches
}
