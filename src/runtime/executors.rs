//! One pinned glommio executor per shard: start, stop, what a panic does.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use glommio::{GlommioError, Latency, LocalExecutorBuilder, Placement, Shares, TaskQueueHandle};

use super::host::Queue;
use super::pace;
use crate::ids::ShardId;

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
    start_with(cpus, spin, vec![(); cpus.len()], move |shard, ()| make(shard))
}

/// As [`start`], and hands each shard its own of `parts` (the receiving end of its lane, say).
///
/// Shapes: `parts` holds one entry for each of `cpus`.
///
/// # Errors
/// As [`start`].
pub fn start_with<P, M, F, T>(cpus: &[usize], spin: Duration, parts: Vec<P>, make: M) -> io::Result<Shards<T>>
where
    P: Send + 'static,
    M: Fn(ShardId, P) -> F + Clone + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    assert!(cpus.len() == parts.len(), "{} processors and {} parts", cpus.len(), parts.len());
    let mut threads = Vec::with_capacity(cpus.len());
    for ((shard, &cpu), part) in (0..).map(ShardId).zip(cpus).zip(parts) {
        let make = make.clone();
        let thread = thread::Builder::new().name(format!("shard-{}", shard.0));
        threads.push(thread.spawn(move || run(cpu, spin, move || make(shard, part)))?);
    }
    Ok(Shards { threads })
}

fn run<F: Future>(cpu: usize, spin: Duration, make: impl FnOnce() -> F) -> io::Result<F::Output> {
    let executor = LocalExecutorBuilder::new(Placement::Fixed(cpu))
        .preempt_timer(pace::GLOMMIO_PREEMPT)
        .spin_before_park(spin)
        .io_memory(IO_MEMORY_BYTES)
        .make()
        .map_err(plain_error::<()>)?;
    executor.run(async {
        open_queues();
        pace::start().await?;
        let result = pace::paced(make()).await;
        pace::stop();
        Ok(result)
    })
}

fn open_queues() {
    let executor = glommio::executor();
    let requests = executor.current_task_queue();
    let background = executor.create_task_queue(Shares::Static(BACKGROUND_SHARES), Latency::NotImportant, "background");
    QUEUES.set(Some(Queues { requests, background }));
}

/// True on a thread that [`start`] made: there the ring may be used.
#[must_use]
pub fn on_shard() -> bool {
    QUEUES.get().is_some()
}

/// Runs a future on a thread without an executor, where every call of the disk blocks: nothing there waits.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
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
    match glommio::spawn_local_into(pace::paced(task), handle) {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::runtime::{clock, host, signal, startup};

    #[test]
    fn shards_are_named_and_return_results_in_order() {
        let cpu = startup::choose_cpus(Some(1)).unwrap()[0];
        let shards = start(&[cpu, cpu, cpu], Duration::ZERO, |shard| async move {
            assert!(on_shard());
            (shard, thread::current().name().map(str::to_string))
        });
        let named = |shard: u32| (ShardId(shard), Some(format!("shard-{shard}")));
        let ended: Vec<_> = shards.unwrap().join().into_iter().map(Result::unwrap).collect();
        assert_eq!(ended, [named(0), named(1), named(2)]);
        assert!(!on_shard());
    }

    #[test]
    fn a_processor_that_does_not_exist_is_an_error_of_that_shard() {
        let cpu = startup::choose_cpus(Some(1)).unwrap()[0];
        let ended = start(&[cpu, 100_000], Duration::ZERO, |_| async {}).unwrap().join();
        assert!(ended[0].is_ok() && ended[1].is_err());
    }

    /// Without the pace a timer would fire when the busy task ends, here never.
    #[test]
    fn a_timer_is_in_time_beside_a_busy_task() {
        let cpu = startup::choose_cpus(Some(1)).unwrap();
        let late = start(&cpu, Duration::ZERO, |_| async {
            let stop = Rc::new(Cell::new(false));
            let busy = Rc::clone(&stop);
            host::spawn(Queue::Background, async move {
                while !busy.get() {
                    host::yield_now().await;
                }
            });
            let before = clock::monotonic();
            for _ in 0..10 {
                clock::sleep(Duration::from_millis(1)).await;
            }
            stop.set(true);
            clock::monotonic() - before - Duration::from_millis(10)
        });
        let late = late.unwrap().join().remove(0).unwrap();
        assert!(late < Duration::from_millis(50), "ten timers were late by {late:?} together");
    }

    #[test]
    fn both_queues_run_what_is_spawned() {
        let cpu = startup::choose_cpus(Some(1)).unwrap();
        let ran = start(&cpu, Duration::ZERO, |_| async {
            let ran = Rc::new(RefCell::new(Vec::new()));
            let done = Rc::new(signal::Mark::default());
            for queue in [Queue::Requests, Queue::Background] {
                let (ran, done) = (Rc::clone(&ran), Rc::clone(&done));
                host::spawn(queue, async move {
                    ran.borrow_mut().push(queue);
                    done.raise(done.get() + 1);
                });
            }
            done.reached(2, || false).await;
            ran.take()
        });
        assert_eq!(ran.unwrap().join().remove(0).unwrap().len(), 2);
    }

    #[test]
    fn blocking_calls_return_their_value_on_and_off_a_shard() {
        let cpu = startup::choose_cpus(Some(1)).unwrap();
        let on = start(&cpu, Duration::ZERO, |_| blocking(|| thread::current().name().map(str::to_string)));
        assert_ne!(on.unwrap().join().remove(0).unwrap().as_deref(), Some("shard-0"));
    }

    /// Runs in a process of its own, see below.
    #[test]
    #[ignore = "ends the process"]
    fn child_panics_in_a_task() {
        abort_on_panic();
        let cpu = startup::choose_cpus(Some(1)).unwrap();
        let shards = start(&cpu, Duration::ZERO, |_| async {
            host::spawn(Queue::Background, async { panic!("planted") });
            std::future::pending::<()>().await;
        });
        let _never = shards.unwrap().join();
    }

    /// glommio alone would end the executor and leave the process half alive.
    #[test]
    fn a_panic_in_any_task_ends_the_process() {
        let name = "runtime::executors::tests::child_panics_in_a_task";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.status), Some(6), "{child:?}");
        assert!(String::from_utf8_lossy(&child.stderr).contains("planted"));
    }
}
