//! An executor for one thread with a virtual clock: time passes only when no task is ready.
//!
//! Tasks run in the order in which they were woken, unless [`MiniHost::shuffle`] draws the order by dice; then some also
//! have to wait for a while, as if their core was taken away.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use corelane::runtime::host::{self, Host, LocalTask, Queue};

use super::dice::Dice;

/// Turns without an end: some tasks wake each other for ever.
const POLLS_MAX: u64 = 20_000_000;
/// One in so many wake-ups is late, where the order is drawn.
const LATE_ONE_IN: usize = 32;
/// By how much at most, in µs.
const LATE_MAX: usize = 3_000;

type Ready = Arc<Mutex<Vec<usize>>>;

struct TaskWaker {
    task: usize,
    is_queued: AtomicBool,
    ready: Ready,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().unwrap().push(self.task);
        }
    }
}

struct Task {
    future: Option<LocalTask>,
    waker: Arc<TaskWaker>,
}

#[derive(Default)]
struct Inner {
    ready: Ready,
    /// What was ready when it was last looked at.
    turn: RefCell<Vec<usize>>,
    tasks: RefCell<Vec<Task>>,
    free: RefCell<Vec<usize>>,
    timers: RefCell<BTreeMap<(Duration, u64), Waker>>,
    timers_made: Cell<u64>,
    now: Cell<Duration>,
    wall_offset_ms: Cell<i64>,
    seed: Cell<u64>,
    order: RefCell<Option<Dice>>,
    polls: Cell<u64>,
}

/// See the module; a clone is the same executor.
#[derive(Clone, Default)]
pub struct MiniHost(Rc<Inner>);

/// Ready at a time.
struct Sleep {
    host: Rc<Inner>,
    key: (Duration, u64),
    is_set: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.host.now.get() >= self.key.0 {
            return Poll::Ready(());
        }
        self.is_set = true;
        self.host.timers.borrow_mut().insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.is_set {
            self.host.timers.borrow_mut().remove(&self.key);
        }
    }
}

impl Host for MiniHost {
    fn spawn(&self, _queue: Queue, task: LocalTask) {
        let mut tasks = self.0.tasks.borrow_mut();
        let at = self.0.free.borrow_mut().pop().unwrap_or(tasks.len());
        let waker = Arc::new(TaskWaker { task: at, is_queued: AtomicBool::new(false), ready: self.0.ready.clone() });
        let made = Task { future: Some(task), waker };
        made.waker.wake_by_ref();
        if at == tasks.len() { tasks.push(made) } else { tasks[at] = made }
    }

    fn sleep(&self, duration: Duration) -> LocalTask {
        let number = self.0.timers_made.get();
        self.0.timers_made.set(number + 1);
        let key = (self.0.now.get().saturating_add(duration), number);
        Box::pin(Sleep { host: Rc::clone(&self.0), key, is_set: false })
    }

    fn wall_ms(&self) -> i64 {
        1_700_000_000_000 + self.0.wall_offset_ms.get() + i64::try_from(self.0.now.get().as_millis()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.0.now.get()
    }

    fn random(&self) -> u64 {
        let mut seed = self.0.seed.get();
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        self.0.seed.set(seed);
        seed.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

impl MiniHost {
    /// An executor whose random numbers come from `seed`.
    pub fn new(seed: u64) -> Self {
        let host = Self::default();
        host.0.seed.set(seed | 1 << 40);
        host
    }

    /// Ready tasks run in an order that the dice draw, and some are late.
    pub fn shuffle(&self, dice: Dice) {
        *self.0.order.borrow_mut() = Some(dice);
    }

    /// The wall clock begins so much later (or earlier) than it would, or steps by that much when it runs.
    pub fn step_wall(&self, by_ms: i64) {
        self.0.wall_offset_ms.set(self.0.wall_offset_ms.get() + by_ms);
    }

    /// Times that a task ran.
    pub fn polls(&self) -> u64 {
        self.0.polls.get()
    }

    fn poll(&self, at: usize) {
        let (future, waker) = {
            let task = &mut self.0.tasks.borrow_mut()[at];
            task.waker.is_queued.store(false, Ordering::Relaxed);
            (task.future.take(), Arc::clone(&task.waker))
        };
        let Some(mut future) = future else { return };
        self.0.polls.set(self.0.polls.get() + 1);
        let waker = Waker::from(waker);
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            drop(future);
            self.0.free.borrow_mut().push(at);
        } else {
            self.0.tasks.borrow_mut()[at].future = Some(future);
        }
    }

    /// The next task to run, if one is ready.
    fn next(&self) -> Option<usize> {
        let turn = &mut *self.0.turn.borrow_mut();
        let order = &mut *self.0.order.borrow_mut();
        if order.is_some() || turn.is_empty() {
            let ready = &mut *self.0.ready.lock().unwrap();
            if order.is_none() {
                turn.extend(ready.drain(..).rev());
            } else {
                turn.append(ready);
            }
        }
        let Some(dice) = order else { return turn.pop() };
        while !turn.is_empty() {
            let at = turn.swap_remove(dice.below(turn.len()));
            if dice.below(LATE_ONE_IN) > 0 {
                return Some(at);
            }
            self.make_late(at, Duration::from_micros(dice.below(LATE_MAX) as u64));
        }
        None
    }

    fn make_late(&self, at: usize, by: Duration) {
        let waker = Arc::clone(&self.0.tasks.borrow()[at].waker);
        waker.is_queued.store(false, Ordering::Relaxed);
        let number = self.0.timers_made.get();
        self.0.timers_made.set(number + 1);
        self.0.timers.borrow_mut().insert((self.0.now.get() + by, number), Waker::from(waker));
    }

    /// Runs one ready task, or lets the clock jump to the next timer; false when nothing can happen any more.
    fn turn(&self) -> bool {
        if let Some(task) = self.next() {
            self.poll(task);
            return true;
        }
        let Some(((at, _), waker)) = self.0.timers.borrow_mut().pop_first() else { return false };
        self.0.now.set(self.0.now.get().max(at));
        waker.wake();
        true
    }

    /// Runs `main` and what it spawns until `main` is done or `is_over` says so (then `None`); what is still running then is
    /// dropped, as by a kill.
    pub fn run<T: 'static>(self, main: impl Future<Output = T> + 'static, is_over: impl Fn() -> bool) -> Option<T> {
        host::install(Some(Rc::new(self.clone())));
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.spawn(Queue::Requests, Box::pin(async move { *slot.borrow_mut() = Some(main.await) }));
        while result.borrow().is_none() && !is_over() {
            assert!(self.turn(), "everybody waits for something that cannot happen");
            assert!(self.polls() < POLLS_MAX, "tasks keep each other busy for ever");
        }
        // Dropping one task may wake, and even start, others: none of them runs any more.
        loop {
            let tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
            self.0.free.borrow_mut().clear();
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        host::install(None);
        result.take()
    }
}

/// Runs `main` and what it spawns until `main` is done; what is still running then is dropped, as by a kill.
pub fn run<T: 'static>(seed: u64, main: impl Future<Output = T> + 'static) -> T {
    MiniHost::new(seed).run(main, || false).unwrap()
}
