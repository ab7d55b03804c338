//! Lanes: one inbound queue per shard, many senders, one receiving task, and a bell that wakes it.
//!
//! ```text
//! sender                          receiver (in poll)
//!   1 push into the queue           1 take from the queue; something there: done
//!   2 fence                         2 store the waker, arm the bell, fence
//!   3 armed? disarm and wake        3 take again; something there: disarm, done
//!                                   4 pending
//! ```
//! With both fences either the receiver's second look sees the message or the sender sees the bell armed.
//! Wake-ups are the whole cost of a hop, so a busy receiver costs its senders one load each.
//!
//! Nothing blocks and nothing is dropped: what does not fit waits in the sender's [`Outbox`], which then calls itself
//! congested so that connections stop reading. Only plain threads may wait for room.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError};

use super::host::{self, Queue};
use super::signal::Mark;
use crate::ids::ShardId;

/// Messages that one lane holds before its senders keep them.
pub const LANE_MESSAGES: usize = 4096;
/// How long an outbox waits before it tries a full lane again, if no reply lets it try earlier.
const RETRY: Duration = Duration::from_millis(1);

/// Wakes the one receiving task of a lane from any thread.
#[derive(Default)]
struct Bell {
    armed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    /// The receiver is about to sleep.
    fn arm(&self, waker: &Waker) {
        let mut stored = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &*stored {
            Some(same) if same.will_wake(waker) => {}
            _ => *stored = Some(waker.clone()),
        }
        drop(stored);
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The receiver found something after all.
    fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Wakes the receiver if it sleeps; to be called after pushing.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if !self.armed.load(Ordering::Relaxed) || !self.armed.swap(false, Ordering::AcqRel) {
            return;
        }
        // Under the lock, so that the receiver cannot end with its waker in use.
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }

    /// The receiver ends: its waker must not outlive it on another thread.
    fn forget(&self) {
        self.disarm();
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

struct Target<M> {
    /// Empty only while being dropped.
    queue: Option<Sender<M>>,
    bell: Arc<Bell>,
}

impl<M> Clone for Target<M> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), bell: Arc::clone(&self.bell) }
    }
}

impl<M> Target<M> {
    /// Puts `message` into the lane, or returns it when the lane is full. A lane without receiver swallows it.
    fn push(&self, message: M) -> Result<(), M> {
        let Some(queue) = &self.queue else { return Ok(()) };
        match queue.try_send(message) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(message)) => Err(message),
        }
    }
}

impl<M> Drop for Target<M> {
    fn drop(&mut self) {
        // The last sender's leaving ends the receiver, which has to look to see it.
        self.queue = None;
        self.bell.ring();
    }
}

/// The sending ends of all lanes. Goes to any thread; shards send through an [`Outbox`] made of it.
pub struct LaneSenders<M> {
    targets: Vec<Target<M>>,
}

impl<M> Clone for LaneSenders<M> {
    fn clone(&self) -> Self {
        Self { targets: self.targets.clone() }
    }
}

impl<M> LaneSenders<M> {
    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.targets.len()
    }

    /// Sends and wakes; returns the message when the lane is full.
    pub fn try_send(&self, to: ShardId, message: M) -> Result<(), M> {
        let target = &self.targets[to.index()];
        target.push(message)?;
        target.bell.ring();
        Ok(())
    }

    /// Sends and wakes; waits for room. For plain threads alone: on a shard it would stop the core.
    pub fn send_from_thread(&self, to: ShardId, message: M) {
        let target = &self.targets[to.index()];
        if let Some(queue) = &target.queue {
            // A lane without receiver swallows what is sent.
            let _gone = queue.send(message);
        }
        target.bell.ring();
    }
}

/// One lane per shard: the senders (clone them for every shard and the acceptor) and each shard's receiver.
#[must_use]
pub fn mesh<M>(shards: usize) -> (LaneSenders<M>, Vec<LaneReceiver<M>>) {
    mesh_of(shards, LANE_MESSAGES)
}

fn mesh_of<M>(shards: usize, messages: usize) -> (LaneSenders<M>, Vec<LaneReceiver<M>>) {
    let mut targets = Vec::with_capacity(shards);
    let mut receivers = Vec::with_capacity(shards);
    for _ in 0..shards {
        let (queue, inbound) = crossbeam_channel::bounded(messages);
        let bell = Arc::new(Bell::default());
        targets.push(Target { queue: Some(queue), bell: Arc::clone(&bell) });
        receivers.push(LaneReceiver { queue: inbound, bell, was_busy: false });
    }
    (LaneSenders { targets }, receivers)
}

/// The receiving end of one lane: for one task, which lives until every sender is gone.
pub struct LaneReceiver<M> {
    queue: Receiver<M>,
    bell: Arc<Bell>,
    was_busy: bool,
}

impl<M> LaneReceiver<M> {
    /// Messages waiting now.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.queue.len()
    }

    /// Waits for messages and moves up to `up_to` of them into `into`; false when every sender is gone and all is read.
    ///
    /// Lets other tasks run first when the last batch was a full one.
    pub async fn next_batch(&mut self, up_to: usize, into: &mut Vec<M>) -> bool {
        if std::mem::take(&mut self.was_busy) {
            host::yield_now().await;
        }
        let some = poll_fn(|context| self.poll_batch(context, up_to, into)).await;
        self.was_busy = into.len() >= up_to;
        some
    }

    fn poll_batch(&self, context: &Context<'_>, up_to: usize, into: &mut Vec<M>) -> Poll<bool> {
        if let Some(some) = self.take(up_to, into) {
            return Poll::Ready(some);
        }
        self.bell.arm(context.waker());
        match self.take(up_to, into) {
            Some(some) => {
                self.bell.disarm();
                Poll::Ready(some)
            }
            None => Poll::Pending,
        }
    }

    /// Some(true): there was something; Some(false): there will never be anything again; None: nothing now.
    fn take(&self, up_to: usize, into: &mut Vec<M>) -> Option<bool> {
        let before = into.len();
        while into.len() - before < up_to {
            match self.queue.try_recv() {
                Ok(message) => into.push(message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Some(into.len() > before),
            }
        }
        (into.len() > before).then_some(true)
    }
}

impl<M> Drop for LaneReceiver<M> {
    fn drop(&mut self) {
        self.bell.forget();
    }
}

/// One shard's way to all lanes; share it by `Rc`. What is sent to one shard through it keeps its order.
pub struct Outbox<M> {
    senders: LaneSenders<M>,
    kept: Vec<RefCell<VecDeque<M>>>,
    unrung: Vec<Cell<bool>>,
    retrying: Cell<bool>,
    cleared: Mark,
}

impl<M: 'static> Outbox<M> {
    /// An outbox over `senders`.
    #[must_use]
    pub fn new(senders: LaneSenders<M>) -> Rc<Self> {
        let shards = senders.shards();
        Rc::new(Self {
            senders,
            kept: (0..shards).map(|_| RefCell::default()).collect(),
            unrung: (0..shards).map(|_| Cell::new(false)).collect(),
            retrying: Cell::new(false),
            cleared: Mark::default(),
        })
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.senders.shards()
    }

    /// Sends and wakes the receiver. What does not fit is kept and sent later.
    pub fn send(self: &Rc<Self>, to: ShardId, message: M) {
        self.push(to, message);
        self.ring();
    }

    /// Sends without waking; [`Outbox::ring`] must follow, once for several messages.
    pub fn push(self: &Rc<Self>, to: ShardId, message: M) {
        let kept = &self.kept[to.index()];
        if !kept.borrow().is_empty() {
            kept.borrow_mut().push_back(message);
            return;
        }
        self.unrung[to.index()].set(true);
        if let Err(message) = self.senders.targets[to.index()].push(message) {
            kept.borrow_mut().push_back(message);
            self.retry_later();
        }
    }

    /// Wakes the receivers of everything pushed since the last time.
    pub fn ring(&self) {
        for (unrung, target) in self.unrung.iter().zip(&self.senders.targets) {
            if unrung.take() {
                target.bell.ring();
            }
        }
    }

    /// True while messages to that shard are kept here because its lane is full.
    #[must_use]
    pub fn is_congested(&self, to: ShardId) -> bool {
        !self.kept[to.index()].borrow().is_empty()
    }

    /// Messages that are kept, over all shards.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.iter().map(|kept| kept.borrow().len()).sum()
    }

    /// Waits until no lane is congested: what reads connections awaits this before it takes more.
    pub async fn clear(&self) {
        while self.kept() > 0 {
            let seen = self.cleared.get();
            self.cleared.reached(seen + 1, || self.kept() == 0).await;
        }
    }

    /// Tries to send what is kept; true when nothing is left. Worth calling whenever a reply came in.
    pub fn retry(&self) -> bool {
        for (index, kept) in self.kept.iter().enumerate() {
            self.retry_one(index, &mut kept.borrow_mut());
        }
        self.ring();
        let all = self.kept() == 0;
        if all {
            self.cleared.raise(self.cleared.get() + 1);
        }
        all
    }

    fn retry_one(&self, index: usize, kept: &mut VecDeque<M>) {
        while let Some(message) = kept.pop_front() {
            if let Err(message) = self.senders.targets[index].push(message) {
                kept.push_front(message);
                return;
            }
            self.unrung[index].set(true);
        }
    }

    fn retry_later(self: &Rc<Self>) {
        if self.retrying.replace(true) {
            return;
        }
        let outbox = Rc::clone(self);
        host::spawn(Queue::Requests, async move {
            while !outbox.retry() {
                host::sleep(RETRY).await;
            }
            outbox.retrying.set(false);
        });
    }
}

#[cfg(test)]
#[path = "lane/tests.rs"]
mod tests;
