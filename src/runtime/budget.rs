//! The memory budget of one shard: what requests and their answers may take together.
//!
//! First come, first served. Who wants more than there is waits until nothing else is out, then takes all of it.
//! An exhausted budget stops the reading of sockets; TCP does the rest.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Units (bytes) shared by everything on one shard.
pub struct Budget {
    total: usize,
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Rc<Waiting>>>,
    waits: Cell<u64>,
}

struct Waiting {
    wanted: usize,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Units taken out of a [`Budget`]; dropping it gives them back.
pub struct Units {
    budget: Rc<Budget>,
    held: usize,
}

impl Budget {
    /// A budget of `total` units, all free.
    #[must_use]
    pub fn new(total: usize) -> Rc<Self> {
        Rc::new(Self { total, free: Cell::new(total), waiting: RefCell::default(), waits: Cell::new(0) })
    }

    /// Units that nobody holds.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.get()
    }

    /// True while somebody waits for units.
    #[must_use]
    pub fn is_short(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// How often somebody had to wait, since the start.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits.get()
    }

    /// Takes `units`, or all there are if it is more than that; waits its turn.
    pub async fn take(self: &Rc<Self>, units: usize) -> Units {
        let wanted = units.min(self.total);
        if self.waiting.borrow().is_empty() && self.try_take(wanted) {
            return Units { budget: Rc::clone(self), held: wanted };
        }
        self.waits.set(self.waits.get() + 1);
        let waiting = Rc::new(Waiting { wanted, granted: Cell::new(false), waker: RefCell::default() });
        self.waiting.borrow_mut().push_back(Rc::clone(&waiting));
        Turn { budget: Rc::clone(self), waiting }.await;
        Units { budget: Rc::clone(self), held: wanted }
    }

    /// Takes what there is of `units` now, perhaps nothing; never waits, and never before those who do.
    #[must_use]
    pub fn take_some(self: &Rc<Self>, units: usize) -> Units {
        let held = if self.is_short() { 0 } else { units.min(self.free.get()) };
        self.free.set(self.free.get() - held);
        Units { budget: Rc::clone(self), held }
    }

    fn try_take(&self, units: usize) -> bool {
        let enough = self.free.get() >= units;
        if enough {
            self.free.set(self.free.get() - units);
        }
        enough
    }

    fn give_back(&self, units: usize) {
        self.free.set(self.free.get() + units);
        self.serve();
    }

    /// Grants to those in front as far as the units reach.
    fn serve(&self) {
        loop {
            let Some(first) = self.waiting.borrow().front().cloned() else { return };
            if !self.try_take(first.wanted) {
                return;
            }
            self.waiting.borrow_mut().pop_front();
            first.granted.set(true);
            if let Some(waker) = first.waker.take() {
                waker.wake();
            }
        }
    }
}

/// A place in the queue. Leaving it early passes the turn on.
struct Turn {
    budget: Rc<Budget>,
    waiting: Rc<Waiting>,
}

impl Future for Turn {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.waiting.granted.replace(false) {
            return Poll::Ready(());
        }
        *self.waiting.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.waiting.granted.get() {
            self.budget.give_back(self.waiting.wanted);
            return;
        }
        let mine = &self.waiting;
        self.budget.waiting.borrow_mut().retain(|waiting| !Rc::ptr_eq(waiting, mine));
        self.budget.serve();
    }
}

impl Units {
    /// How many are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Gives back all but `keep`, for instance while a fetch is parked.
    pub fn shrink_to(&mut self, keep: usize) {
        let back = self.held.saturating_sub(keep);
        self.held -= back;
        self.budget.give_back(back);
    }
}

impl fmt::Debug for Units {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} units", self.held)
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        self.budget.give_back(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn now<F: Future>(future: F) -> Option<F::Output> {
        match poll(std::pin::pin!(future)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn first_come_first_served() {
        let budget = Budget::new(10);
        let mut first = now(budget.take(6)).unwrap();
        let mut large = Box::pin(budget.take(8));
        let mut small = Box::pin(budget.take(1));
        assert!(poll(large.as_mut()).is_pending());
        assert!(poll(small.as_mut()).is_pending(), "a small wish must not pass a large one");
        assert!(budget.is_short());
        first.shrink_to(2);
        let Poll::Ready(large) = poll(large.as_mut()) else { panic!("8 are free") };
        assert!(poll(small.as_mut()).is_pending());
        drop(large);
        assert!(poll(small.as_mut()).is_ready());
        assert_eq!(budget.waits(), 2);
    }

    #[test]
    fn who_wants_more_than_there_is_waits_for_all() {
        let budget = Budget::new(10);
        let little = now(budget.take(1)).unwrap();
        let mut huge = Box::pin(budget.take(1000));
        assert!(poll(huge.as_mut()).is_pending());
        drop(little);
        let Poll::Ready(huge) = poll(huge.as_mut()) else { panic!("nothing else is out") };
        assert_eq!((huge.held(), budget.free()), (10, 0));
        drop(huge);
        assert_eq!(budget.free(), 10);
    }

    #[test]
    fn who_takes_some_takes_what_there_is() {
        let budget = Budget::new(10);
        let mut first = budget.take_some(7);
        let second = budget.take_some(7);
        assert_eq!([first.held(), second.held(), budget.take_some(7).held()], [7, 3, 0]);
        first.shrink_to(2);
        assert_eq!((budget.free(), budget.take_some(1).held()), (5, 1));
        let mut waits = Box::pin(budget.take(6));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(budget.take_some(1).held(), 0, "those who wait go first");
        drop((first, second));
        assert!(poll(waits.as_mut()).is_ready());
        assert_eq!(budget.free(), 10);
    }

    #[test]
    fn leaving_the_queue_passes_the_turn_on() {
        let budget = Budget::new(10);
        let all = now(budget.take(10)).unwrap();
        let mut granted = Box::pin(budget.take(10));
        let mut waiting = Box::pin(budget.take(10));
        let mut last = Box::pin(budget.take(3));
        assert!(poll(granted.as_mut()).is_pending() && poll(waiting.as_mut()).is_pending());
        assert!(poll(last.as_mut()).is_pending());
        drop(all);
        drop(granted);
        drop(waiting);
        assert!(poll(last.as_mut()).is_ready());
        assert_eq!(budget.free(), 10);
        assert!(!budget.is_short());
    }
}
