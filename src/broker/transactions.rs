//! Transactions: one coordinator for each partition of `__transaction_state`, on the core that owns it.
//!
//! Source: docs/adr/0015-transactions.md.

use std::rc::Rc;

use super::messages::Answer;
use super::shard::{LocalFuture, Served, Shard};
use crate::ids::TopicPartition;
use crate::runtime::disk::Disk;
use crate::state::transactions::messages::{self as transactions, Enlisting, Speaker};
use crate::wire::error_code::ErrorCode;

impl<D: Disk> Shard<D> {
    /// Asks the coordinator of a transactional id whether partitions are, or may come, into its transaction; durable there
    /// when this says none.
    pub(super) fn enlist(
        self: &Rc<Self>,
        speaker: Speaker,
        partitions: Vec<TopicPartition>,
        enlisting: Enlisting,
    ) -> LocalFuture<ErrorCode> {
        let _ = (speaker, partitions, enlisting);
        Box::pin(std::future::ready(ErrorCode::NotCoordinator))
    }

    /// Asks one of this shard's coordinators.
    pub(super) fn serve_transaction(self: &Rc<Self>, partition: i32, command: transactions::Command) -> Served {
        let _ = partition;
        Served::Now(Answer::Transaction(Box::new(command.refused(ErrorCode::NotCoordinator))))
    }
}
