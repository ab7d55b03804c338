//! The way of a group's records into the log: one batch for each append, in order, many on their way at a time.

use std::future::ready;
use std::rc::Rc;

use super::coordinator::{Coordinator, Pending};
use crate::broker::own_log::Settled;
use crate::broker::shard::Shard;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::state::groups::Append;
use crate::wire::error_code::ErrorCode;
use crate::wire::internal::GroupRecord;

impl<D: Disk> Shard<D> {
    /// Stages one append; what comes of it arrives in the order of the appends.
    pub(super) fn append_group_records(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, append: &Append) {
        let batch = match coordinator
            .log
            .encoded(append.records.iter().map(GroupRecord::encode).collect::<Result<Vec<_>, _>>())
        {
            Ok(records) => {
                self.append_own_in(&coordinator.log, self.config().groups.codec, append.writer.clone(), &records)
            }
            Err(error) => Box::pin(ready(Err(error))),
        };
        self.queue_append(coordinator, Pending { id: append.id, batch, applied: None });
    }

    /// Takes up what was staged just now, behind all that was staged before.
    pub(super) fn queue_append(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, pending: Pending) {
        coordinator.queue(pending);
        // One task for all that is on its way: it wakes once for each durable group of the commit log.
        if !coordinator.is_settling.replace(true) {
            host::spawn(Queue::Requests, Rc::clone(self).settle_appends(Rc::clone(coordinator)));
        }
    }

    async fn settle_appends(self: Rc<Self>, coordinator: Rc<Coordinator<D>>) {
        while let Some(pending) = coordinator.next_append() {
            let result = pending.batch.await;
            match result {
                Ok(appended) => coordinator.log.note_appended(appended),
                Err(error) if is_refusal(error) => {}
                Err(_) => coordinator.log.doubt(),
            }
            let result = result.map(|appended| appended.base);
            let effects = coordinator.groups.borrow_mut().appended(super::moment(), pending.id, result);
            self.carry_out(&coordinator, effects);
            if let Some(applied) = pending.applied {
                applied.send(result.err().unwrap_or(ErrorCode::None));
            }
        }
        coordinator.is_settling.set(false);
        self.settle_doubt(&coordinator);
    }

    /// With nothing on its way: memory that agrees with the log goes on, other memory is made anew from the log.
    pub(super) fn settle_doubt(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) {
        match coordinator.log.settle_doubt() {
            None => {}
            Some(Settled::Serves) => self.look_at_deadline(coordinator),
            Some(Settled::LoadsAgain) => {
                coordinator.refuse_all();
                let name = &coordinator.log.partition.name;
                tracing::warn!("{name}: an append may have failed, its groups are read again");
                let (shard, coordinator) = (Rc::clone(self), Rc::clone(coordinator));
                host::spawn(Queue::Requests, async move { shard.load_again(&coordinator).await });
            }
        }
    }

    /// Loads once all that was staged is durable; if that will not be, the partition takes nothing until a restart, and
    /// neither do its groups.
    async fn load_again(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) {
        let log = self.log();
        if coordinator.log.all_durable(|| log.is_failed()).await {
            self.load_coordinator(coordinator).await;
        }
    }
}

/// Whether the partition refused an append for its producer's sake: nothing was staged, log and memory still agree.
fn is_refusal(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::InvalidProducerEpoch | ErrorCode::InvalidTxnState)
}
