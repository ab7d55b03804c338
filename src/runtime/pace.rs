//! Keeps a busy executor looking at its ring: after a while of tasks without a pause, a byte to itself makes it look.
//!
//! glommio has a timer for this, which it arms before it runs what is ready. When the kernel takes the core away just then,
//! the timer has fired before the first task runs; glommio 0.9 takes "interrupted before anything ran" for "nothing to run"
//! and sleeps beside its ready tasks, until something else happens on that shard. An own byte through a socket interrupts it
//! likewise, but is an event that somebody waits for, and beside such a one it does not sleep. So glommio's timer is set to
//! never ([`GLOMMIO_PREEMPT`]) and this stands in for it.
//!
//! ```text
//! task polled ── gap since the last poll? ── the executor was elsewhere: count from now
//!       └─ no gap for BUSY_MAX ── write a byte ── completion in the ring ── executor stops running tasks, looks, goes on
//! ```
//!
//! No task of its own is needed, which would have to wait for its share of the core: the bytes are awaited from within the
//! polls of the others.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use glommio::net::UnixDatagram;

use super::clock;
use super::executors::plain_error;

/// What glommio is told instead: longer than any shard is busy without a pause.
pub(super) const GLOMMIO_PREEMPT: Duration = Duration::from_secs(3600);
/// How long tasks may run one after another before the executor looks at timers, lanes and the ring.
const BUSY_MAX: Duration = Duration::from_micros(250);
/// A longer pause between two polls means that the executor has most likely just looked.
const ELSEWHERE: Duration = Duration::from_micros(5);
/// A longer pause means that it has slept.
const ASLEEP: Duration = Duration::from_micros(100);
/// How long short pauses are believed to be looks, when no byte has proved one.
const UNPROVED_MAX: Duration = Duration::from_millis(5);
/// Time in which an executor without tasks has certainly looked.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// A socket to oneself. It receives through the ring whose completions interrupt the executor; a stream's readiness would
/// not.
struct Bell {
    ours: UnixDatagram,
    theirs: Rc<UnixDatagram>,
    heard: Pin<Box<dyn Future<Output = ()>>>,
}

/// The pace of one executor.
struct Pace {
    /// A bell is heard only once its wish to receive is in the ring, one look after it was last heard: two take turns.
    bells: [Bell; 2],
    /// The bell to be rung next.
    next: usize,
    /// The bell that was rung and not yet heard.
    rung: Option<usize>,
    /// End of the last poll.
    ended: Duration,
    /// Since when tasks have run without a pause.
    busy_since: Duration,
    /// When the executor last looked for certain.
    proved: Duration,
}

thread_local! {
    static PACE: RefCell<Option<Pace>> = const { RefCell::new(None) };
}

/// Starts to keep the pace of this thread's executor; to be awaited before any other task is spawned.
pub(super) async fn start() -> io::Result<()> {
    let bells = [Bell::new()?, Bell::new()?];
    PACE.set(Some(Pace {
        bells,
        next: 0,
        rung: None,
        ended: Duration::ZERO,
        busy_since: Duration::ZERO,
        proved: Duration::ZERO,
    }));
    // With nothing else to run the executor looks at its ring, which puts the first wishes there.
    glommio::timer::sleep(FIRST_LOOK).await;
    Ok(())
}

/// Ends it, before the executor goes.
pub(super) fn stop() {
    PACE.take();
}

/// Runs `task` so that its polls are counted.
pub(super) async fn paced<T>(task: impl Future<Output = T>) -> T {
    let mut task = pin!(task);
    poll_fn(|context| {
        with(Pace::begin);
        let polled = task.as_mut().poll(context);
        with(|pace| pace.ended = clock::monotonic());
        polled
    })
    .await
}

fn with(act: impl Fn(&mut Pace)) {
    PACE.with_borrow_mut(|pace| pace.as_mut().map(act));
}

impl Pace {
    /// A task is about to be polled.
    fn begin(&mut self) {
        let now = clock::monotonic();
        let pause = now.saturating_sub(self.ended);
        let heard = self.rung.is_some_and(|bell| self.bells[bell].is_heard());
        if heard {
            self.rung = None;
        }
        if heard || pause > ASLEEP {
            self.proved = now;
        }
        if heard || pause > ELSEWHERE {
            self.busy_since = now;
        }
        if self.rung.is_none() && self.is_overdue(now) {
            self.rung = self.bells[self.next].ring().then_some(self.next);
            self.next = (self.next + 1) % self.bells.len();
        }
    }

    fn is_overdue(&self, now: Duration) -> bool {
        now.saturating_sub(self.busy_since) > BUSY_MAX || now.saturating_sub(self.proved) > UNPROVED_MAX
    }
}

impl Bell {
    fn new() -> io::Result<Self> {
        let (ours, theirs) = UnixDatagram::pair().map_err(plain_error)?;
        let theirs = Rc::new(theirs);
        let mut bell = Self { ours, heard: hear(Rc::clone(&theirs)), theirs };
        // Nothing was sent yet; this puts the wish to receive on its way.
        bell.is_heard();
        Ok(bell)
    }

    /// Sends the byte; true when it is under way.
    fn ring(&self) -> bool {
        let sent = pin!(self.ours.send(&[1]));
        // One byte at a time is under way in each socket: it is sent at once.
        sent.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// True when the byte has come, once; then listens for the next.
    fn is_heard(&mut self) -> bool {
        let context = &mut Context::from_waker(Waker::noop());
        let heard = self.heard.as_mut().poll(context).is_ready();
        if heard {
            self.heard = hear(Rc::clone(&self.theirs));
            // Nothing was sent yet; as in `new`.
            let _waits = self.heard.as_mut().poll(context);
        }
        heard
    }
}

fn hear(bell: Rc<UnixDatagram>) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        // Cannot fail while the other end is open; if it did, the executor would only look more often.
        let _received = bell.recv(&mut [0]).await;
    })
}
