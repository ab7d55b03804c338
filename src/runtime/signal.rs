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
    waiting: RefCell<Vec<Waiting>>,
    next_place: Cell<u64>,
}

#[derive(Debug)]
struct Waiting {
    place: u64,
    wanted: u64,
    waker: Waker,
}

/// One wait's entry in the list, however often its task is polled; gone when the wait is.
struct Place<'a> {
    mark: &'a Mark,
    number: Cell<Option<u64>>,
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
            if waiting[at].wanted <= value {
                waiting.swap_remove(at).waker.wake();
            } else {
                at += 1;
            }
        }
    }

    /// Wakes everybody without a change, so that they look at something else (a failure, a stop).
    pub fn wake_all(&self) {
        for waiting in self.waiting.borrow_mut().drain(..) {
            waiting.waker.wake();
        }
    }

    /// Ready when the value is at least `wanted` or `give_up` says so; true if the value was reached.
    pub async fn reached(&self, wanted: u64, give_up: impl Fn() -> bool) -> bool {
        let place = Place { mark: self, number: Cell::new(None) };
        std::future::poll_fn(|context| {
            if self.value.get() >= wanted {
                // Raising the value took the entry out.
                place.number.set(None);
                return Poll::Ready(true);
            }
            if give_up() {
                return Poll::Ready(false);
            }
            place.wait(wanted, context.waker());
            Poll::Pending
        })
        .await
    }
}

impl Place<'_> {
    /// Enters the list, or renews the entry: a waker more with each poll would add up without bound.
    fn wait(&self, wanted: u64, waker: &Waker) {
        let mut list = self.mark.waiting.borrow_mut();
        let mine = self.number.get().and_then(|number| list.iter_mut().find(|waiting| waiting.place == number));
        if let Some(waiting) = mine {
            waiting.waker.clone_from(waker);
            return;
        }
        let place = self.mark.next_place.replace(self.mark.next_place.get() + 1);
        self.number.set(Some(place));
        list.push(Waiting { place, wanted, waker: waker.clone() });
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            self.mark.waiting.borrow_mut().retain(|waiting| waiting.place != number);
        }
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
    use std::pin::pin;

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A connection's task is polled for each byte that its peer sends; what it waits for must not grow by that.
    #[test]
    fn a_wait_that_is_polled_often_is_one_entry() {
        let mark = Mark::default();
        {
            let mut wait = pin!(mark.reached(1, || false));
            (0..100).for_each(|_| assert!(poll(wait.as_mut()).is_pending()));
            assert_eq!(mark.waiting.borrow().len(), 1);
            mark.wake_all();
            assert!(poll(wait.as_mut()).is_pending());
            assert_eq!(mark.waiting.borrow().len(), 1);
        }
        assert!(mark.waiting.borrow().is_empty(), "a wait that was given up left its entry");
    }

    #[test]
    fn a_mark_wakes_those_whose_value_is_reached() {
        let mark = Mark::at(3);
        let mut near = Box::pin(mark.reached(4, || false));
        let mut far = Box::pin(mark.reached(9, || false));
        assert!(poll(near.as_mut()).is_pending() && poll(far.as_mut()).is_pending());
        mark.raise(5);
        mark.raise(2);
        assert_eq!((mark.get(), poll(near.as_mut())), (5, Poll::Ready(true)));
        assert!(poll(far.as_mut()).is_pending());
        assert_eq!(mark.waiting.borrow().len(), 1);
    }
}
