//! Answers that come back through this shard's own lane: a slab of numbered slots, each with a task waiting at it.
//!
//! A request carries `(shard, slot)`; the reply names the slot. A slot whose task stopped waiting stays reserved until its
//! reply arrives, so that no reply reaches another request.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

enum Slot<R> {
    /// Not in use; the next free slot, if any.
    Free(Option<u32>),
    /// Somebody waits.
    Open(Option<Waker>),
    /// The answer is here and not yet fetched.
    Done(R),
    /// Nobody waits any more; the answer is still under way.
    Left,
}

struct Slab<R> {
    slots: Vec<Slot<R>>,
    free: Option<u32>,
    open: usize,
}

/// The slots of one shard; clones share them.
pub struct Replies<R> {
    slab: Rc<RefCell<Slab<R>>>,
}

impl<R> Clone for Replies<R> {
    fn clone(&self) -> Self {
        Self { slab: Rc::clone(&self.slab) }
    }
}

impl<R> Default for Replies<R> {
    fn default() -> Self {
        Self { slab: Rc::new(RefCell::new(Slab { slots: Vec::new(), free: None, open: 0 })) }
    }
}

impl<R> Replies<R> {
    /// Reserves a slot: its number for the request, and the future of its answer.
    pub fn open(&self) -> (u32, Reply<R>) {
        let slot = self.slab.borrow_mut().reserve();
        (slot, Reply { slab: Rc::clone(&self.slab), slot, fetched: false })
    }

    /// Delivers the answer of `slot`. Panics when the slot awaits none: a reply was sent twice.
    pub fn complete(&self, slot: u32, answer: R) {
        let waker = self.slab.borrow_mut().complete(slot, answer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Answers under way, also those that nobody waits for any more.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.slab.borrow().open
    }
}

impl<R> Slab<R> {
    fn reserve(&mut self) -> u32 {
        self.open += 1;
        let Some(slot) = self.free else {
            self.slots.push(Slot::Open(None));
            return u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 requests are under way");
        };
        let Slot::Free(next) = self.slots[slot as usize] else { unreachable!("slot {slot} is in the free list") };
        self.free = next;
        self.slots[slot as usize] = Slot::Open(None);
        slot
    }

    fn release(&mut self, slot: u32) {
        self.slots[slot as usize] = Slot::Free(self.free.replace(slot));
    }

    fn complete(&mut self, slot: u32, answer: R) -> Option<Waker> {
        let waker = match &mut self.slots[slot as usize] {
            Slot::Open(waker) => {
                let waker = waker.take();
                self.slots[slot as usize] = Slot::Done(answer);
                waker
            }
            Slot::Left => {
                self.release(slot);
                None
            }
            Slot::Free(_) | Slot::Done(_) => panic!("slot {slot} was answered twice"),
        };
        self.open -= 1;
        waker
    }

    fn fetch(&mut self, slot: u32, waker: &Waker) -> Option<R> {
        if let Slot::Open(waiting) = &mut self.slots[slot as usize] {
            *waiting = Some(waker.clone());
            return None;
        }
        let Slot::Done(answer) = std::mem::replace(&mut self.slots[slot as usize], Slot::Left) else {
            unreachable!("slot {slot} is not the waiting task's any more");
        };
        self.release(slot);
        Some(answer)
    }

    fn leave(&mut self, slot: u32) {
        match self.slots[slot as usize] {
            Slot::Open(_) => self.slots[slot as usize] = Slot::Left,
            Slot::Done(_) => self.release(slot),
            Slot::Free(_) | Slot::Left => unreachable!("slot {slot} is not the waiting task's any more"),
        }
    }
}

/// The answer of one slot.
#[must_use]
pub struct Reply<R> {
    slab: Rc<RefCell<Slab<R>>>,
    slot: u32,
    fetched: bool,
}

impl<R> Future for Reply<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let answer = self.slab.borrow_mut().fetch(self.slot, context.waker());
        match answer {
            Some(answer) => {
                self.fetched = true;
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        }
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        if !self.fetched {
            self.slab.borrow_mut().leave(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<R>(reply: &mut Reply<R>) -> Poll<R> {
        Pin::new(reply).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_answer_reaches_the_task_that_opened_the_slot() {
        let replies = Replies::default();
        let (first, mut first_reply) = replies.open();
        let (second, mut second_reply) = replies.open();
        replies.complete(second, "second");
        assert!(poll(&mut first_reply).is_pending());
        assert_eq!(poll(&mut second_reply), Poll::Ready("second"));
        replies.complete(first, "first");
        assert_eq!(poll(&mut first_reply), Poll::Ready("first"));
        assert_eq!(replies.open_count(), 0);
    }

    #[test]
    fn a_slot_that_was_left_is_not_given_out_before_its_answer_came() {
        let replies = Replies::default();
        let (left, reply) = replies.open();
        drop(reply);
        let (other, mut other_reply) = replies.open();
        assert_ne!(left, other);
        replies.complete(left, "late");
        assert!(poll(&mut other_reply).is_pending());
        let (again, _reply) = replies.open();
        assert_eq!(again, left, "an answered slot is used again");
    }

    #[test]
    fn an_answer_that_nobody_fetches_frees_its_slot() {
        let replies = Replies::default();
        let (slot, reply) = replies.open();
        replies.complete(slot, 1);
        drop(reply);
        assert_eq!(replies.open().0, slot);
    }

    #[test]
    #[should_panic(expected = "answered twice")]
    fn a_second_answer_is_a_bug() {
        let replies = Replies::default();
        let (slot, _reply) = replies.open();
        replies.complete(slot, 1);
        replies.complete(slot, 2);
    }
}
