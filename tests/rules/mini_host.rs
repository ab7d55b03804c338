//! An executor for one thread with a virtual clock: time passes only when no task is ready.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use corelane::runtime::host::{self, Host, LocalTask, Queue};

type Ready = Arc<Mutex<Vec<usize>>>;

struct TaskWaker {
    task: usize,
    ready: Ready,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().unwrap();
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

#[derive(Default)]
struct Inner {
    ready: Ready,
    tasks: RefCell<Vec<Option<LocalTask>>>,
    timers: RefCell<BTreeMap<(Duration, u64), Waker>>,
    timers_made: Cell<u64>,
    now: Cell<Duration>,
    seed: Cell<u64>,
}

#[derive(Clone)]
struct MiniHost(Rc<Inner>);

impl Host for MiniHost {
    fn spawn(&self, _queue: Queue, task: LocalTask) {
        let mut tasks = self.0.tasks.borrow_mut();
        tasks.push(Some(task));
        self.0.ready.lock().unwrap().push(tasks.len() - 1);
    }

    fn sleep(&self, duration: Duration) -> LocalTask {
        let host = self.0.clone();
        let key = (host.now.get() + duration, host.timers_made.get());
        host.timers_made.set(key.1 + 1);
        Box::pin(std::future::poll_fn(move |context| {
            if host.now.get() >= key.0 {
                return Poll::Ready(());
            }
            host.timers.borrow_mut().insert(key, context.waker().clone());
            Poll::Pending
        }))
    }

    fn wall_ms(&self) -> i64 {
        1_700_000_000_000 + i64::try_from(self.0.now.get().as_millis()).unwrap()
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
    fn poll(&self, task: usize) -> bool {
        let Some(mut future) = self.0.tasks.borrow_mut()[task].take() else { return false };
        let waker = Waker::from(Arc::new(TaskWaker { task, ready: self.0.ready.clone() }));
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if !done {
            self.0.tasks.borrow_mut()[task] = Some(future);
        }
        done
    }

    /// Runs everything that is ready, then lets the clock jump to the next timer; false when nothing can happen any more.
    fn turn(&self) -> bool {
        let ready = std::mem::take(&mut *self.0.ready.lock().unwrap());
        if !ready.is_empty() {
            for task in ready {
                self.poll(task);
            }
            return true;
        }
        let Some(((at, _), waker)) = self.0.timers.borrow_mut().pop_first() else { return false };
        self.0.now.set(self.0.now.get().max(at));
        waker.wake();
        true
    }
}

/// Runs `main` and what it spawns until `main` is done; what is still running then is dropped, as by a kill.
pub fn run<T: 'static>(seed: u64, main: impl Future<Output = T> + 'static) -> T {
    let host = MiniHost(Rc::default());
    host.0.seed.set(seed | 1 << 40);
    host::install(Some(Rc::new(host.clone())));
    let result = Rc::new(RefCell::new(None));
    let slot = result.clone();
    host.spawn(Queue::Requests, Box::pin(async move { *slot.borrow_mut() = Some(main.await) }));
    while result.borrow().is_none() {
        assert!(host.turn(), "everybody waits for something that cannot happen");
    }
    let tasks = std::mem::take(&mut *host.0.tasks.borrow_mut());
    drop(tasks);
    host::install(None);
    result.take().unwrap()
}
