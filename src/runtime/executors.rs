//! One pinned glommio executor per shard: start, stop, what a panic does.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use glommio::{GlommioError, Latency, LocalExecutorBuilder, Placement, Shares, TaskQueueHandle};

use super::host::Queue;
use crate::ids::ShardId;

/// How long a task may run before the executor looks at timers and the ring again, if the task asks.
///
/// glommio's own 100 ms make a timer late by as much beside a busy task.
const PREEMPT: Duration = Duration::from_micros(250);
/// Memory that each executor registers with the kernel, in bytes; three times as much is pinned.
const IO_MEMORY_BYTES: usize = 1024 * 1024;
/// Share of the core that background tasks get, where requests have 1000.
const BACKGROUND_SHARES: usize = 100;

thread_local! {
    static QUEUES: Cell<Option<Queues>> = const { Cell::new(None) };
}

#[derive(Clone, Copy)]
struct Queues {
    requests: TaskQueueHandle,
    background: TaskQueueHandle,
}

/// Shards that run; [`Shards::join`] waits for their end.
pub struct Shards<T> {
    threads: Vec<JoinHandle<io::Result<T>>>,
}

impl<T> Shards<T> {
    /// Waits until every shard has ended; results in the order of the shards.
    #[must_use]
    pub fn join(self) -> Vec<io::Result<T>> {
        self.threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    }
}

fn panicked() -> io::Error {
    io::Error::other("the shard's thread panicked")
}

/// Starts one pinned executor per entry of `cpus`; shard n runs on `cpus[n]` what `make` gives for it.
///
/// `spin` is how long an idle executor looks for work before it sleeps: quicker hops on cores of its own, a loss on shared ones.
///
/// # Errors
/// When a thread cannot be made. What keeps an executor from starting comes out of [`Shards::join`].
pub fn start<M, F, T>(cpus: &[usize], spin: Duration, make: M) -> io::Result<Shards<T>>
where
    M: Fn(ShardId) -> F + Clone + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let mut threads = Vec::with_capacity(cpus.len());
    for (shard, &cpu) in (0..).map(ShardId).zip(cpus) {
        let make = make.clone();
        let thread = thread::Builder::new().name(format!("shard-{}", shard.0));
        threads.push(thread.spawn(move || run(cpu, spin, move || make(shard)))?);
    }
    Ok(Shards { threads })
}

fn run<F: Future>(cpu: usize, spin: Duration, make: impl FnOnce() -> F) -> io::Result<F::Output> {
    let executor = LocalExecutorBuilder::new(Placement::Fixed(cpu))
        .preempt_timer(PREEMPT)
        .spin_before_park(spin)
        .io_memory(IO_MEMORY_BYTES)
        .make()
        .map_err(plain_error::<()>)?;
    Ok(executor.run(async {
        open_queues();
        make().await
    }))
}

fn open_queues() {
    let executor = glommio::executor();
    let requests = executor.current_task_queue();
    let background =
        executor.create_task_queue(Shares::Static(BACKGROUND_SHARES), Latency::NotImportant, "background");
    QUEUES.set(Some(Queues { requests, background }));
}

/// True on a thread that [`start`] made: there the ring may be used.
#[must_use]
pub fn on_shard() -> bool {
    QUEUES.get().is_some()
}

/// Prints the panic and ends the process: a shard that lost a task is worse than one that restarts and recovers.
pub fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

pub(super) fn spawn(queue: Queue, task: impl Future<Output = ()> + 'static) {
    let Some(queues) = QUEUES.get() else {
        glommio::spawn_local(task).detach();
        return;
    };
    let handle = match queue {
        Queue::Requests => queues.requests,
        Queue::Background => queues.background,
    };
    match glommio::spawn_local_into(task, handle) {
        Ok(task) => drop(task.detach()),
        Err(error) => unreachable!("the queues of a shard live as long as it: {error}"),
    }
}

pub(super) async fn sleep(duration: Duration) {
    glommio::timer::sleep(duration).await;
}

/// Runs a call that may block for long beside the executor; on a thread without one, right here.
pub(super) async fn blocking<R: Send + 'static>(call: impl FnOnce() -> R + Send + 'static) -> R {
    if on_shard() { glommio::executor().spawn_blocking(call).await } else { call() }
}

/// The error as the system call gave it, with its number, which glommio's own conversion drops.
pub(super) fn plain_error<T>(error: GlommioError<T>) -> io::Error {
    match error {
        GlommioError::IoError(source) | GlommioError::EnhancedIoError { source, .. } => source,
        other => other.into(),
    }
}
