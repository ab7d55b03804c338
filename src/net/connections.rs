//! All connections of one shard: their limits, their memory, and the sweep that closes what is dead.
//!
//! Time is counted in ticks of the sweep, so that reading and writing need no clock and no timer.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::frames::NoFrame;
use crate::ids::ShardId;
use crate::runtime::budget::{Budget, Units};
use crate::runtime::clock;
use crate::runtime::host::{self, Queue};
use crate::runtime::net::Stream;
use crate::runtime::signal::Mark;

/// Ticks within which a limit is kept: a connection is closed at most a quarter late.
const TICKS_PER_LIMIT: u32 = 4;
/// Bounds of the time between two ticks.
const TICK_MIN: Duration = Duration::from_millis(25);
const TICK_MAX: Duration = Duration::from_secs(5);

/// What a connection may do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest frame, in bytes (`socket.request.max.bytes`).
    pub frame_bytes_max: usize,
    /// Requests of one connection that may be unanswered.
    pub unanswered_max: usize,
    /// Silence after which a connection is closed (`connections.max.idle.ms`).
    pub idle_max: Duration,
    /// Silence after which a half-sent frame is given up while others wait for the memory it holds.
    pub stalled_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 100 * 1024 * 1024,
            unanswered_max: 64,
            idle_max: Duration::from_secs(600),
            stalled_max: Duration::from_secs(10),
        }
    }
}

/// Memory taken for one request, from before its frame is read until its answer is written.
#[derive(Clone)]
pub struct Charge {
    units: Rc<RefCell<Units>>,
    budget: Rc<Budget>,
}

impl Charge {
    pub(super) async fn take(budget: &Rc<Budget>, bytes: usize) -> Self {
        let units = budget.take(bytes).await;
        Self { units: Rc::new(RefCell::new(units)), budget: Rc::clone(budget) }
    }

    /// Gives all of it back, for a request that waits for something else than memory.
    pub fn park(&self) {
        self.units.borrow_mut().shrink_to(0);
    }

    /// Gives back all but `bytes`, for instance when the size of the answer is known.
    pub fn shrink_to(&self, bytes: usize) {
        self.units.borrow_mut().shrink_to(bytes);
    }

    /// Gives it back and takes `bytes` instead; waits for its turn with nothing in hand, so that nobody waits in a ring.
    pub async fn change_to(&self, bytes: usize) {
        self.park();
        let units = self.budget.take(bytes).await;
        *self.units.borrow_mut() = units;
    }
}

/// What the sweep looks at, kept by the connection itself.
pub(super) struct Watch {
    pub(super) stream: Stream,
    clock: Rc<Cell<u32>>,
    /// Tick of the last byte read or written.
    progress: Cell<u32>,
    /// Something of the broker's is waited for: memory, a lane, an answer.
    broker_works: Cell<bool>,
    /// Requests begun whose answers are not written.
    pub(super) unanswered: Cell<usize>,
    /// An answer is being written.
    pub(super) writing: Cell<bool>,
    /// A frame has begun and is not complete.
    pub(super) in_frame: Cell<bool>,
    /// No more requests are read.
    stopping: Cell<bool>,
    /// The connection's task, to be woken when it shall stop.
    task: RefCell<Option<Waker>>,
}

impl Watch {
    pub(super) fn progressed(&self) {
        self.progress.set(self.clock.get());
    }

    fn silent_ticks(&self) -> u32 {
        self.clock.get().wrapping_sub(self.progress.get())
    }

    /// Ready when no more requests shall be read.
    pub(super) fn poll_stopped(&self, context: &Context<'_>) -> Poll<NoFrame> {
        if self.stopping.get() {
            return Poll::Ready(NoFrame::Stopped);
        }
        let mut task = self.task.borrow_mut();
        match &*task {
            Some(same) if same.will_wake(context.waker()) => {}
            _ => *task = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    fn stop(&self) {
        self.stopping.set(true);
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Keeps the sweep away while `work` runs.
    pub(super) async fn while_broker_works<T>(&self, work: impl Future<Output = T>) -> T {
        self.broker_works.set(true);
        let done = work.await;
        self.broker_works.set(false);
        self.progressed();
        done
    }

    /// True when nothing but the peer can bring this connection on.
    fn waits_for_peer(&self) -> bool {
        !self.broker_works.get() && (self.unanswered.get() == 0 || self.writing.get())
    }
}

/// The connections of one shard.
pub struct Connections {
    shard: ShardId,
    limits: Limits,
    budget: Rc<Budget>,
    watches: RefCell<HashMap<u64, Rc<Watch>>>,
    next: Cell<u64>,
    clock: Rc<Cell<u32>>,
    stopping: Cell<bool>,
    ended: Mark,
}

impl Connections {
    /// No connections yet; starts the sweep.
    #[must_use]
    pub fn new(shard: ShardId, limits: Limits, budget: Rc<Budget>) -> Rc<Self> {
        let connections = Rc::new(Self {
            shard,
            limits,
            budget,
            watches: RefCell::default(),
            next: Cell::new(0),
            clock: Rc::default(),
            stopping: Cell::new(false),
            ended: Mark::default(),
        });
        host::spawn(Queue::Requests, sweep(Rc::downgrade(&connections)));
        connections
    }

    /// How many are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.watches.borrow().len()
    }

    /// Their limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The memory they share.
    #[must_use]
    pub fn budget(&self) -> &Rc<Budget> {
        &self.budget
    }

    pub(super) fn shard(&self) -> ShardId {
        self.shard
    }

    /// First step of a clean stop: reads no more requests; answers those that have begun, then closes.
    pub fn stop_reading(&self) {
        self.stopping.set(true);
        for watch in self.watches.borrow().values() {
            watch.stop();
        }
    }

    /// Closes what is left.
    pub fn close_all(&self) {
        self.watches.borrow().values().for_each(|watch| watch.stream.shut_down());
    }

    /// Waits until no connection is open; meant for after [`Connections::stop_reading`].
    pub async fn all_closed(&self) {
        while self.count() > 0 {
            let seen = self.ended.get();
            self.ended.reached(seen + 1, || self.count() == 0).await;
        }
    }

    pub(super) fn enter(self: &Rc<Self>, stream: Stream) -> (u64, Rc<Watch>) {
        let number = self.next.replace(self.next.get() + 1);
        let watch = Rc::new(Watch {
            stream,
            clock: Rc::clone(&self.clock),
            progress: Cell::new(self.clock.get()),
            broker_works: Cell::new(false),
            unanswered: Cell::new(0),
            writing: Cell::new(false),
            in_frame: Cell::new(false),
            stopping: Cell::new(self.stopping.get()),
            task: RefCell::default(),
        });
        self.watches.borrow_mut().insert(number, Rc::clone(&watch));
        (number, watch)
    }

    pub(super) fn leave(&self, number: u64) {
        self.watches.borrow_mut().remove(&number);
        self.ended.raise(self.ended.get() + 1);
    }

    fn tick_length(&self) -> Duration {
        (self.limits.idle_max.min(self.limits.stalled_max) / TICKS_PER_LIMIT).clamp(TICK_MIN, TICK_MAX)
    }

    /// Closes what has been silent for too long.
    fn tick(&self, length: Duration) {
        self.clock.set(self.clock.get().wrapping_add(1));
        let idle = ticks(self.limits.idle_max, length);
        let stalled = ticks(self.limits.stalled_max, length).min(idle);
        let short = self.budget.is_short();
        for watch in self.watches.borrow().values().filter(|watch| watch.waits_for_peer()) {
            let allowed = if short && watch.in_frame.get() { stalled } else { idle };
            if watch.silent_ticks() > allowed {
                watch.stream.shut_down();
            }
        }
    }
}

fn ticks(limit: Duration, length: Duration) -> u32 {
    u32::try_from(limit.as_micros() / length.as_micros().max(1)).unwrap_or(u32::MAX)
}

async fn sweep(connections: Weak<Connections>) {
    while let Some(shard) = connections.upgrade() {
        let length = shard.tick_length();
        shard.tick(length);
        drop(shard);
        clock::sleep(length).await;
    }
}
