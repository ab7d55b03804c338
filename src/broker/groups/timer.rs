//! One sleeping task for all coordinators of a shard: sessions, rounds, impatient clients, offsets that expire.

use std::rc::Rc;
use std::time::Duration;

use super::coordinator::Coordinator;
use crate::broker::shard::Shard;
use crate::runtime::disk::Disk;
use crate::runtime::signal::rung_or_elapsed;
use crate::runtime::{clock, host};

/// A deadline that does not move by a tick must not keep the core busy.
const SLEEP_MIN: Duration = Duration::from_millis(1);

impl<D: Disk> Shard<D> {
    /// Does what is due until the shard stops.
    pub(in crate::broker) async fn run_group_timer(self: Rc<Self>) {
        let interval = Duration::from_millis(self.config().groups.retention_check_interval_ms);
        let mut next_expiry = clock::monotonic().saturating_add(interval);
        while !self.is_stopping() {
            self.tick_groups();
            let until = self.next_group_deadline().map_or(next_expiry, |deadline| deadline.min(next_expiry));
            let wait = until.saturating_sub(clock::monotonic()).max(SLEEP_MIN);
            self.groups.asleep_until.set(until);
            rung_or_elapsed(&self.groups.nearer, wait).await;
            self.groups.asleep_until.set(Duration::ZERO);
            if clock::monotonic() >= next_expiry {
                self.expire_offsets().await;
                next_expiry = clock::monotonic().saturating_add(interval);
            }
        }
    }

    fn next_group_deadline(&self) -> Option<Duration> {
        let deadlines = self.groups.all().into_iter().filter_map(|coordinator| coordinator.next_deadline_ms());
        deadlines.min().map(Duration::from_millis)
    }

    /// Wakes the timer if something is due before it would wake by itself.
    pub(super) fn look_at_deadline(&self, coordinator: &Coordinator<D>) {
        let deadline = coordinator.next_deadline_ms().map(Duration::from_millis);
        if deadline.is_some_and(|deadline| deadline < self.groups.asleep_until.get()) {
            self.groups.nearer.ring();
        }
    }

    fn tick_groups(self: &Rc<Self>) {
        let now_ms = clock::uptime_ms();
        for coordinator in self.groups.all() {
            coordinator.refuse_impatient(now_ms);
            if coordinator.log.serves().is_ok()
                && coordinator.next_deadline_ms().is_some_and(|deadline| deadline <= now_ms)
            {
                let effects = coordinator.groups.borrow_mut().tick(super::moment());
                self.carry_out(&coordinator, effects);
            }
        }
    }

    async fn expire_offsets(self: &Rc<Self>) {
        for coordinator in self.groups.all() {
            if coordinator.log.serves().is_ok() {
                let effects = coordinator.groups.borrow_mut().expire(super::moment());
                self.carry_out(&coordinator, effects);
            }
            host::yield_now().await;
        }
    }
}
