//! A coordinator's start: everything in its partition, oldest first, before anybody is answered.
//!
//! Transactions that were about to end are then brought to their end: all of their partitions get their marker, some of
//! them for the second time.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::coordinator::Coordinator;
use crate::broker::own_log::Phase;
use crate::broker::shard::Shard;
use crate::ids::Offset;
use crate::runtime::disk::Disk;
use crate::state::transactions::{TransactionSettings, Transactions};
use crate::wire::contents::Contents;
use crate::wire::internal::RecordError;
use crate::wire::transaction_record::TransactionRecord;

impl<D: Disk> Shard<D> {
    /// Loads one after the other, those of empty partitions at once.
    pub(super) fn load_transactions(self: &Rc<Self>, coordinators: Vec<Rc<Coordinator<D>>>) {
        let (empty, others): (Vec<_>, Vec<_>) =
            coordinators.into_iter().partition(|coordinator| coordinator.log.is_empty());
        for coordinator in empty {
            let end = coordinator.log.partition.high_watermark();
            coordinator.loaded(Transactions::new(self.transaction_settings()), end);
        }
        self.load_in_turn("transactional ids", others, async |shard, coordinator| {
            shard.load_transactions_of(coordinator).await
        });
    }

    /// Reads a partition and lets its transactional ids be served; tells how many records there were.
    pub(super) async fn load_transactions_of(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) -> usize {
        match self.replay_transactions(coordinator).await {
            Ok((mut transactions, end, records)) => {
                let effects = transactions.loaded(super::moment());
                coordinator.loaded(transactions, end);
                self.carry_out_transactions(coordinator, effects);
                records
            }
            Err(why) => {
                coordinator.log.enter(Phase::Failed);
                let name = &coordinator.log.partition.name;
                tracing::error!("{name}: the transactional ids in it are not served until the next start: {why}");
                0
            }
        }
    }

    /// What is kept, the offset behind it, and records that were read.
    async fn replay_transactions(
        self: &Rc<Self>,
        coordinator: &Coordinator<D>,
    ) -> Result<(Transactions, Offset, usize), String> {
        let mut transactions = Transactions::new(self.transaction_settings());
        let (mut records, mut passed_over) = (0, BTreeMap::new());
        let bytes_max = self.config().unpacked_batch_max_bytes as u64;
        let load_bytes = self.config().transactions.load_bytes;
        let end = self.each_own_batch(&coordinator.log, load_bytes, |bytes, batch| {
            let whole = bytes.slice_ref(batch.bytes);
            let contents = Contents::of(&whole, &batch.header, bytes_max, &mut self.unpacker().borrow_mut());
            for record in contents.map_err(|error| error.to_string())? {
                records += 1;
                match TransactionRecord::decode(record.map_err(|error| error.to_string())?) {
                    Ok(record) => transactions.replay(record),
                    Err(error @ (RecordError::UnknownKey(_) | RecordError::UnknownValue(_))) => {
                        *passed_over.entry(error.to_string()).or_insert(0_usize) += 1;
                    }
                    Err(error) => return Err(error.to_string()),
                }
            }
            Ok(())
        });
        let end = end.await?;
        for (what, times) in passed_over {
            tracing::warn!("{}: passed over {times} records: {what}", coordinator.log.partition.name);
        }
        Ok((transactions, end, records))
    }

    pub(super) fn transaction_settings(&self) -> TransactionSettings {
        let config = &self.config().transactions;
        TransactionSettings { timeout_ms_max: config.timeout_ms_max, expiration_ms: config.expiration_ms }
    }
}
