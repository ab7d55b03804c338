//! The way of a transactional id's record into the log: one batch for each, in order, many on their way at a time.

use std::future::ready;
use std::rc::Rc;

use super::coordinator::{Coordinator, Pending};
use crate::broker::own_log::Settled;
use crate::broker::shard::Shard;
use crate::runtime::disk::Disk;
use crate::runtime::host::{self, Queue};
use crate::state::transactions::Append;
use crate::wire::batch::Codec;

/// As in Kafka: these records are small, and each is a batch of its own.
const CODEC: i16 = Codec::None as i16;

impl<D: Disk> Shard<D> {
    /// Stages one append; what comes of it arrives in the order of the appends.
    pub(super) fn append_transaction(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>, append: &Append) {
        let batch = match coordinator.log.encoded(append.record.encode()) {
            Ok(record) => self.append_own(&coordinator.log, CODEC, &[record]),
            Err(error) => Box::pin(ready(Err(error))),
        };
        coordinator.queue(Pending { id: append.id, batch });
        // One task for all that is on its way: it wakes once for each durable group of the commit log.
        if !coordinator.is_settling.replace(true) {
            host::spawn(Queue::Requests, Rc::clone(self).settle_transactions(Rc::clone(coordinator)));
        }
    }

    async fn settle_transactions(self: Rc<Self>, coordinator: Rc<Coordinator<D>>) {
        while let Some(pending) = coordinator.next_append() {
            let result = pending.batch.await;
            match result {
                Ok(appended) => coordinator.log.note_appended(appended),
                Err(_) => coordinator.log.doubt(),
            }
            let result = result.map(|_| ());
            let effects = coordinator.transactions.borrow_mut().appended(super::moment(), pending.id, result);
            self.carry_out_transactions(&coordinator, effects);
        }
        coordinator.is_settling.set(false);
        self.settle_transaction_doubt(&coordinator);
    }

    /// With nothing on its way: memory that agrees with the log goes on, other memory is made anew from the log.
    fn settle_transaction_doubt(self: &Rc<Self>, coordinator: &Rc<Coordinator<D>>) {
        match coordinator.log.settle_doubt() {
            None => {}
            Some(Settled::Serves) => self.take_held_markers(coordinator),
            Some(Settled::LoadsAgain) => {
                coordinator.refuse_all();
                let name = &coordinator.log.partition.name;
                tracing::warn!("{name}: an append may have failed, its transactional ids are read again");
                let (shard, coordinator) = (Rc::clone(self), Rc::clone(coordinator));
                host::spawn(Queue::Requests, async move {
                    let log = shard.log();
                    if coordinator.log.all_durable(|| log.is_failed()).await {
                        shard.load_transactions_of(&coordinator).await;
                    }
                });
            }
        }
    }
}
