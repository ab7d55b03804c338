//! Requests of one connection that have begun and whose answers are not written: answered in the order of asking.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use super::{Begun, Charge, Outcome};
use crate::broker::shard::LocalFuture;
use crate::runtime::budget::Units;

/// Answers that go out together, in bytes; a larger one goes alone.
const TOGETHER_BYTES: usize = 64 * 1024;

enum Place {
    Done(Outcome),
    Waiting(LocalFuture<Outcome>),
}

/// Answers that are ready, in order.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) answers: Vec<Bytes>,
    pub(super) requests: usize,
    pub(super) close: Option<String>,
    charges: Vec<Charge>,
    units: Vec<Units>,
    bytes: usize,
}

/// The queue between the reading and the writing half of a connection.
#[derive(Default)]
pub(super) struct Queue {
    places: RefCell<VecDeque<(Place, Charge)>>,
    writer: RefCell<Option<Waker>>,
}

impl Queue {
    pub(super) fn push(&self, begun: Begun, charge: Charge) {
        let place = match begun {
            Begun::Now(outcome) => Place::Done(outcome),
            Begun::Later(outcome) => Place::Waiting(outcome),
        };
        self.places.borrow_mut().push_back((place, charge));
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// Takes the answers that are ready at the front; waits while there is none.
    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Ready> {
        let mut ready = Ready::default();
        while ready.bytes < TOGETHER_BYTES && ready.close.is_none() {
            let Some((place, charge)) = self.places.borrow_mut().pop_front() else { break };
            match ended(place, context) {
                Ok(outcome) => ready.add(outcome, charge),
                Err(place) => {
                    self.places.borrow_mut().push_front((place, charge));
                    break;
                }
            }
        }
        if ready.requests > 0 {
            return Poll::Ready(ready);
        }
        *self.writer.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

fn ended(place: Place, context: &mut Context<'_>) -> Result<Outcome, Place> {
    match place {
        Place::Done(outcome) => Ok(outcome),
        Place::Waiting(mut waiting) => match waiting.as_mut().poll(context) {
            Poll::Ready(outcome) => Ok(outcome),
            Poll::Pending => Err(Place::Waiting(waiting)),
        },
    }
}

impl Ready {
    fn add(&mut self, outcome: Outcome, charge: Charge) {
        self.requests += 1;
        let (answer, units) = match outcome {
            Outcome::Answer(answer) => (answer, None),
            Outcome::Charged(answer, units) => (answer, Some(units)),
            Outcome::Nothing => return,
            Outcome::Close(line) => {
                self.close = Some(line);
                return;
            }
        };
        self.bytes += answer.len();
        self.answers.push(answer);
        self.charges.push(charge);
        self.units.extend(units);
    }

    /// The answers in as few pieces as is cheap: small ones are copied together, so that they leave in one write.
    pub(super) fn pieces(&mut self) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut small = BytesMut::new();
        for answer in std::mem::take(&mut self.answers) {
            if self.requests == 1 || answer.len() >= TOGETHER_BYTES {
                pieces.extend((!small.is_empty()).then(|| small.split().freeze()));
                pieces.push(answer);
            } else {
                small.extend_from_slice(&answer);
            }
        }
        pieces.extend((!small.is_empty()).then(|| small.freeze()));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::runtime::budget::Budget;
    use crate::runtime::signal::{Sender, once};

    fn poll(queue: &Queue) -> Option<Vec<Bytes>> {
        match queue.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(mut ready) => Some(ready.pieces()),
            Poll::Pending => None,
        }
    }

    fn charge(budget: &Rc<Budget>) -> Charge {
        let mut charge = Box::pin(Charge::take(budget, 1));
        match charge.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(charge) => charge,
            Poll::Pending => panic!("the budget of the test is too small"),
        }
    }

    fn later(queue: &Queue, budget: &Rc<Budget>) -> Sender<Outcome> {
        let (sender, receiver) = once();
        let outcome = async { receiver.await.unwrap_or(Outcome::Nothing) };
        queue.push(Begun::Later(Box::pin(outcome)), charge(budget));
        sender
    }

    fn answer(text: &'static str) -> Outcome {
        Outcome::Answer(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn answers_leave_in_the_order_of_asking_and_together() {
        let (queue, budget) = (Queue::default(), Budget::new(10));
        let first = later(&queue, &budget);
        let second = later(&queue, &budget);
        queue.push(Begun::Now(answer("c")), charge(&budget));
        second.send(answer("b"));
        assert_eq!(poll(&queue), None);
        first.send(answer("a"));
        assert_eq!(poll(&queue), Some(vec![Bytes::from_static(b"abc")]));
        assert_eq!(budget.free(), 10);
    }

    #[test]
    fn a_request_without_answer_holds_nothing_up() {
        let (queue, budget) = (Queue::default(), Budget::new(10));
        queue.push(Begun::Now(Outcome::Nothing), charge(&budget));
        queue.push(Begun::Now(answer("b")), charge(&budget));
        assert_eq!(poll(&queue), Some(vec![Bytes::from_static(b"b")]));
    }

    #[test]
    fn a_large_answer_is_not_copied() {
        let (queue, budget) = (Queue::default(), Budget::new(10));
        let large = Bytes::from(vec![1; TOGETHER_BYTES]);
        queue.push(Begun::Now(answer("a")), charge(&budget));
        queue.push(Begun::Now(answer("b")), charge(&budget));
        queue.push(Begun::Now(Outcome::Answer(large.clone())), charge(&budget));
        queue.push(Begun::Now(answer("c")), charge(&budget));
        let pieces = poll(&queue).unwrap();
        assert_eq!(pieces, [Bytes::from_static(b"ab"), large.clone()]);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert_eq!(poll(&queue), Some(vec![Bytes::from_static(b"c")]));
    }

    #[test]
    fn the_memory_of_an_answer_is_held_until_it_is_written() {
        let (queue, budget) = (Queue::default(), Budget::new(10));
        let outcome = Outcome::Charged(Bytes::from_static(b"a"), budget.take_some(5));
        queue.push(Begun::Now(outcome), charge(&budget));
        let Poll::Ready(mut ready) = queue.poll_ready(&mut Context::from_waker(Waker::noop())) else { panic!() };
        assert_eq!((ready.pieces(), budget.free()), (vec![Bytes::from_static(b"a")], 4));
        drop(ready);
        assert_eq!(budget.free(), 10);
    }

    #[test]
    fn nothing_leaves_behind_a_close() {
        let (queue, budget) = (Queue::default(), Budget::new(10));
        queue.push(Begun::Now(answer("a")), charge(&budget));
        queue.push(Begun::Now(Outcome::Close("line".to_string())), charge(&budget));
        queue.push(Begun::Now(answer("b")), charge(&budget));
        let Poll::Ready(mut ready) = queue.poll_ready(&mut Context::from_waker(Waker::noop())) else { panic!() };
        assert_eq!(ready.close.as_deref(), Some("line"));
        assert_eq!(ready.pieces(), [Bytes::from_static(b"a")]);
    }
}
