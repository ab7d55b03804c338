//! What a task asks of the executor it runs on: spawn, yield, sleep, time.
//!
//! On a shard that is glommio. Where a thread has installed a [`Host`] (the simulator), it is asked instead, so the
//! same code of `log`, `broker` and `requests` runs under a virtual clock and a seeded order of tasks.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A task without a result.
pub type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

/// Which share of the core a task gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Clients wait for it.
    Requests,
    /// Recovery, checkpoints, zero-fill, deletion: a tenth of the core while clients are busy.
    Background,
}

/// An executor that stands in for glommio on this thread.
pub trait Host {
    /// Starts a task.
    fn spawn(&self, queue: Queue, task: LocalTask);
    /// Is ready after `duration` of the host's time.
    fn sleep(&self, duration: Duration) -> LocalTask;
    /// Milliseconds since 1970.
    fn wall_ms(&self) -> i64;
    /// Time since a fixed moment.
    fn monotonic(&self) -> Duration;
    /// A random number; from the seed in the simulator.
    fn random(&self) -> u64;
}

thread_local! {
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// Makes `host` (or glommio again, with `None`) the executor of this thread.
pub fn install(host: Option<Rc<dyn Host>>) {
    HOST.with(|slot| *slot.borrow_mut() = host);
}

fn installed() -> Option<Rc<dyn Host>> {
    HOST.with(|slot| slot.borrow().clone())
}

/// Starts a task on this shard that nobody waits for.
pub fn spawn(queue: Queue, task: impl Future<Output = ()> + 'static) {
    match installed() {
        Some(host) => host.spawn(queue, Box::pin(task)),
        None => super::executors::spawn(queue, task),
    }
}

/// Lets every other ready task run once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for `duration` of the host's time.
pub async fn sleep(duration: Duration) {
    match installed() {
        Some(host) => host.sleep(duration).await,
        None => super::executors::sleep(duration).await,
    }
}

/// Milliseconds since 1970.
#[must_use]
pub fn wall_ms() -> i64 {
    if let Some(host) = installed() {
        return host.wall_ms();
    }
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Time since the first call in this process.
#[must_use]
pub fn monotonic() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    if let Some(host) = installed() {
        return host.monotonic();
    }
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    let now = Instant::now();
    now.duration_since(*START.get_or_init(|| now))
}

/// A random number that an attacker cannot guess (salts, ids).
#[must_use]
pub fn random() -> u64 {
    if let Some(host) = installed() {
        return host.random();
    }
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    // The version and variant bits of a v4 id are fixed; the halves cover them for each other.
    high.rotate_left(32) ^ low
}
