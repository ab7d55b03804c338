//! Fetches that wait for bytes or for time: one deadline map and one sleeping task per shard, no timer per fetch.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::runtime::clock;
use crate::runtime::signal::{Bell, Receiver, Sender, once, rung_or_elapsed};

/// One waiting fetch, as the partitions see it.
pub struct Watcher {
    key: (Duration, u64),
    wake: Cell<Option<Sender<()>>>,
}

impl Watcher {
    /// True once it was woken: whoever still holds it may drop it.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let wake = self.wake.take();
        let done = wake.is_none();
        self.wake.set(wake);
        done
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.take() {
            wake.send(());
        }
    }
}

/// The waiting fetches of one shard, by deadline.
#[derive(Default)]
pub struct Waiters {
    by_deadline: RefCell<BTreeMap<(Duration, u64), Rc<Watcher>>>,
    next: Cell<u64>,
    earlier: Bell,
}

impl Waiters {
    /// Adds a fetch that waits at most `wait`; the receiver is ready when it was woken, whatever the reason.
    pub fn add(&self, wait: Duration) -> (Rc<Watcher>, Receiver<()>) {
        let (sender, receiver) = once();
        let number = self.next.get();
        self.next.set(number + 1);
        let key = (clock::monotonic() + wait, number);
        let watcher = Rc::new(Watcher { key, wake: Cell::new(Some(sender)) });
        let mut by_deadline = self.by_deadline.borrow_mut();
        if by_deadline.first_key_value().is_none_or(|(first, _)| key < *first) {
            self.earlier.ring();
        }
        by_deadline.insert(key, Rc::clone(&watcher));
        (watcher, receiver)
    }

    /// Wakes a fetch, and forgets it.
    pub fn wake(&self, watcher: &Watcher) {
        self.by_deadline.borrow_mut().remove(&watcher.key);
        watcher.wake();
    }

    /// Number of fetches that wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_deadline.borrow().len()
    }

    /// Wakes everybody, for the stop.
    pub fn wake_all(&self) {
        let all = std::mem::take(&mut *self.by_deadline.borrow_mut());
        for watcher in all.values() {
            watcher.wake();
        }
    }

    /// Wakes each fetch at its deadline; runs as long as the shard.
    pub async fn run(&self) {
        loop {
            let first = self.by_deadline.borrow().first_key_value().map(|(key, _)| key.0);
            match first {
                None => self.earlier.rung().await,
                Some(deadline) => {
                    let now = clock::monotonic();
                    if deadline > now {
                        rung_or_elapsed(&self.earlier, deadline - now).await;
                    }
                    self.expire(clock::monotonic());
                }
            }
        }
    }

    fn expire(&self, now: Duration) {
        let later = self.by_deadline.borrow_mut().split_off(&(now + Duration::from_nanos(1), 0));
        let due = std::mem::replace(&mut *self.by_deadline.borrow_mut(), later);
        for watcher in due.values() {
            watcher.wake();
        }
    }
}
