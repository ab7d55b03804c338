//! Waiting within one shard, with plain wakers: works on every executor, allocates nothing per wait beyond the waker.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::clock;

/// A number that only grows, with tasks waiting for it to reach a value.
///
/// The commit log's durable group, a partition's written end and high watermark are such numbers.
#[derive(Debug, Default)]
pub struct Mark {
    value: Cell<u64>,
    /// How often everybody was woken without a change.
    calls: Cell<u64>,
    waiting: RefCell<Vec<(u64, Waker)>>,
}

impl Mark {
    /// A mark at `value`.
    #[must_use]
    pub fn at(value: u64) -> Self {
        Self { value: Cell::new(value), ..Self::default() }
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.value.get()
    }

    /// Raises the value and wakes whoever waited for it; a lower value changes nothing.
    pub fn raise(&self, value: u64) {
        if value <= self.value.get() {
            return;
        }
        self.value.set(value);
        let mut waiting = self.waiting.borrow_mut();
        let mut at = 0;
        while at < waiting.len() {
            if waiting[at].0 <= value {
                waiting.swap_remove(at).1.wake();
            } else {
                at += 1;
            }
        }
    }

    /// Wakes everybody without a change, so that they look at something else (a failure, a stop).
    pub fn wake_all(&self) {
        self.calls.set(self.calls.get() + 1);
        for (_, waker) in self.waiting.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// Ready when the value is at least `wanted` or `give_up` says so; true if the value was reached.
    pub async fn reached(&self, wanted: u64, give_up: impl Fn() -> bool) -> bool {
        let mut listed = None;
        std::future::poll_fn(|context| {
            if self.value.get() >= wanted {
                return Poll::Ready(true);
            }
            if give_up() {
                return Poll::Ready(false);
            }
            // Polled for another reason, it is still in the list: a task that waits long is not put there again and again.
            let entry = Some((self.calls.get(), context.waker().data()));
            if listed != entry {
                listed = entry;
                self.waiting.borrow_mut().push((wanted, context.waker().clone()));
            }
            Poll::Pending
        })
        .await
    }
}

/// Lets callers in one after another, in the order in which they came; a caller that gives up is left out.
#[derive(Debug, Default)]
pub struct Turns {
    given: Cell<u64>,
    serving: Mark,
    ended: RefCell<BTreeSet<u64>>,
}

impl Turns {
    /// Waits for everybody who came before; the turn lasts until it is dropped.
    pub async fn mine(&self) -> Turn<'_> {
        let number = self.given.get();
        self.given.set(number + 1);
        let turn = Turn { turns: self, number };
        self.serving.reached(number, || false).await;
        turn
    }

    fn end(&self, number: u64) {
        let mut ended = self.ended.borrow_mut();
        ended.insert(number);
        let mut next = self.serving.get();
        while ended.remove(&next) {
            next += 1;
        }
        self.serving.raise(next);
    }
}

/// One caller's turn; ends when dropped, also when it never came.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.end(self.number);
    }
}

/// A door bell for one waiting task: a ring while nobody waits is remembered.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Bell {
    /// Rings.
    pub fn ring(&self) {
        self.rung.set(true);
        if let Some(waker) = self.waiting.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Ready once rung since the last time.
    pub async fn rung(&self) {
        std::future::poll_fn(|context| {
            if self.rung.replace(false) {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    sender_gone: bool,
}

/// Gives one value to a [`Receiver`] of the same shard.
pub struct Sender<T>(Rc<RefCell<Slot<T>>>);

/// Waits for the value of a [`Sender`]; `None` when the sender was dropped without one.
pub struct Receiver<T>(Rc<RefCell<Slot<T>>>);

/// A channel for one value within a shard.
#[must_use]
pub fn once<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Rc::new(RefCell::new(Slot { value: None, waker: None, sender_gone: false }));
    (Sender(Rc::clone(&slot)), Receiver(slot))
}

impl<T> Sender<T> {
    /// Hands the value over.
    pub fn send(self, value: T) {
        self.0.borrow_mut().value = Some(value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut slot = self.0.borrow_mut();
        slot.sender_gone = true;
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.borrow_mut();
        if let Some(value) = slot.value.take() {
            return Poll::Ready(Some(value));
        }
        if slot.sender_gone {
            return Poll::Ready(None);
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Ready when the first of the futures is; the others are dropped. Never ready without any.
pub async fn first_of<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T>>>>) -> T {
    std::future::poll_fn(|context| {
        for future in &mut futures {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(value);
            }
        }
        Poll::Pending
    })
    .await
}

/// Ready once `bell` is rung or `duration` has passed.
pub async fn rung_or_elapsed(bell: &Bell, duration: Duration) {
    let mut rung = std::pin::pin!(bell.rung());
    let mut elapsed = std::pin::pin!(clock::sleep(duration));
    std::future::poll_fn(|context| {
        if rung.as_mut().poll(context).is_ready() || elapsed.as_mut().poll(context).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_is_polled_often_waits_once() {
        let mark = Mark::at(1);
        let mut reached = Box::pin(mark.reached(3, || false));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            assert!(reached.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(mark.waiting.borrow().len(), 1);
        mark.wake_all();
        assert!(reached.as_mut().poll(&mut context).is_pending());
        assert_eq!(mark.waiting.borrow().len(), 1, "whoever was woken in vain waits again");
        mark.raise(3);
        assert_eq!(reached.as_mut().poll(&mut context), Poll::Ready(true));
    }
}
