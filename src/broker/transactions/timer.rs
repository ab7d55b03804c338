//! One sleeping task for all coordinators of a shard: transactions that are open for too long, transactional ids that
//! nobody uses any more.

use std::rc::Rc;
use std::time::Duration;

use crate::broker::shard::Shard;
use crate::runtime::disk::Disk;
use crate::runtime::signal::rung_or_elapsed;
use crate::runtime::{clock, host};

/// Transactional ids that are forgotten before other tasks run.
const EXPIRED_IN_A_ROW: usize = 100;

impl<D: Disk> Shard<D> {
    /// Does what is due until the shard stops.
    pub(in crate::broker) async fn run_transaction_timer(self: Rc<Self>) {
        let config = self.config().transactions.clone();
        let time_outs = Duration::from_millis(config.time_out_check_interval_ms);
        let expiry = Duration::from_millis(config.expiration_check_interval_ms);
        let now = clock::monotonic();
        let (mut next_time_out, mut next_expiry) = (now.saturating_add(time_outs), now.saturating_add(expiry));
        while !self.is_stopping() {
            let wait = next_time_out.min(next_expiry).saturating_sub(clock::monotonic());
            rung_or_elapsed(&self.transactions.stops, wait).await;
            if clock::monotonic() >= next_time_out {
                self.time_out_transactions();
                next_time_out = clock::monotonic().saturating_add(time_outs);
            }
            if clock::monotonic() >= next_expiry {
                self.expire_transactional_ids().await;
                next_expiry = clock::monotonic().saturating_add(expiry);
            }
        }
    }

    fn time_out_transactions(self: &Rc<Self>) {
        for coordinator in self.transactions.all() {
            if coordinator.log.serves().is_err() {
                continue;
            }
            let overdue = coordinator.transactions.borrow().overdue(super::moment());
            for command in overdue {
                let id = command.transactional_id().unwrap_or_default();
                tracing::info!("{id}: the transaction has been open for too long, it is aborted");
                let ticket = coordinator.next_ticket();
                let effects = coordinator.transactions.borrow_mut().handle(super::moment(), ticket, command, None);
                self.carry_out_transactions(&coordinator, effects);
            }
        }
    }

    async fn expire_transactional_ids(self: &Rc<Self>) {
        for coordinator in self.transactions.all() {
            while coordinator.log.serves().is_ok() {
                let effects = coordinator.transactions.borrow_mut().expire(super::moment(), EXPIRED_IN_A_ROW);
                let is_last = effects.appends.len() < EXPIRED_IN_A_ROW;
                self.carry_out_transactions(&coordinator, effects);
                host::yield_now().await;
                if is_last {
                    break;
                }
            }
        }
    }
}
