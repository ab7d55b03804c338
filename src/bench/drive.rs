//! How one connection is kept busy: as fast as answers come (closed loop), or at given times (open loop).
//!
//! In the open loop a request's latency counts from the moment it was *due*, so that a stall is also counted against
//! the requests that had to wait behind it ("coordinated omission").

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::client::Connection;
use super::frame::{ProduceFrame, read_answer};
use crate::ids::Sequence;
use crate::runtime::clock;

/// When requests are sent and when it ends; the same for every connection but the last three fields.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Acknowledgements are waited for (`acks` is not 0).
    pub(super) answered: bool,
    pub(super) idempotent: bool,
    pub(super) records: i32,
    /// Partitions that are written to by turns.
    pub(super) partitions: usize,
    pub(super) in_flight: usize,
    /// When the first request may be sent, of the monotonic clock.
    pub(super) start: Duration,
    /// Requests that begin before this moment are not counted.
    pub(super) measure_from: Duration,
    /// No request begins after this moment.
    pub(super) end: Duration,
    /// How long after the end an open loop goes on sending what fell due before, when the broker is too slow for it.
    pub(super) overtime: Duration,
    /// How many requests this connection sends at most.
    pub(super) requests: u64,
    /// Time between two requests of this connection; none: closed loop.
    pub(super) interval: Option<Duration>,
    /// The first request's place within the interval, so that connections do not send at the same moment.
    pub(super) phase: Duration,
}

impl Plan {
    /// True when the broker is so far behind that the rest is given up.
    fn is_overtime(&self) -> bool {
        clock::monotonic() > self.end.saturating_add(self.overtime)
    }
}

/// What the progress line reads while the connections work.
#[derive(Default)]
pub(super) struct Live {
    /// Records that are acknowledged (or sent, without acknowledgements), warm-up included.
    pub(super) records: AtomicU64,
    /// Requests that were refused.
    pub(super) errors: AtomicU64,
    /// Set when one connection failed, so that the others end.
    pub(super) give_up: AtomicBool,
}

/// What one connection, or all of them together, measured.
pub(super) struct Tally {
    /// Nanoseconds from due (open loop) or sent (closed loop) to answered.
    pub(super) latency: Histogram<u64>,
    /// Nanoseconds from sent to answered, in the open loop.
    pub(super) service: Histogram<u64>,
    /// Requests that were refused, by error code; the warm-up's too.
    pub(super) errors: BTreeMap<i16, u64>,
    /// Requests counted: answered well, begun after the warm-up.
    pub(super) requests: u64,
    /// Requests of the open loop that were due and never sent, since the broker was too slow; their wait so far is
    /// counted as their latency.
    pub(super) unsent: u64,
    /// When the last of them was answered.
    pub(super) last: Duration,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            latency: histogram(),
            service: histogram(),
            errors: BTreeMap::new(),
            requests: 0,
            unsent: 0,
            last: Duration::ZERO,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so adding cannot fail.
        let _ = self.latency.add(&other.latency);
        let _ = self.service.add(&other.service);
        for (code, count) in &other.errors {
            *self.errors.entry(*code).or_default() += count;
        }
        self.requests += other.requests;
        self.unsent += other.unsent;
        self.last = self.last.max(other.last);
    }

    pub(super) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// Up to ten minutes in nanoseconds, three digits.
pub(super) fn histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "constant arguments")]
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("these bounds are valid")
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A request on its way.
#[derive(Clone, Copy)]
struct Sent {
    due: Duration,
    sent: Duration,
}

/// One connection to one partition.
pub(super) struct Worker<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) stamper: Stamper,
    pub(super) plan: Plan,
    pub(super) live: &'a Live,
}

/// The frame, and what counts on from request to request.
///
/// Requests go to the partitions by turns; a producer counts its sequences for each partition apart.
pub(super) struct Stamper {
    frame: ProduceFrame,
    correlation: i32,
    partitions: Vec<(i32, Sequence)>,
    turn: usize,
    step: i32,
}

impl Stamper {
    /// Shapes: `partitions` holds at least one.
    pub(super) fn new(frame: ProduceFrame, plan: &Plan, partitions: &[i32]) -> Self {
        let (sequence, step) = if plan.idempotent { (Sequence(0), plan.records) } else { (Sequence(-1), 0) };
        let partitions = partitions.iter().map(|partition| (*partition, sequence)).collect();
        Self { frame, correlation: 0, partitions, turn: 0, step }
    }

    fn next(&mut self) -> &[u8] {
        let correlation = self.correlation;
        self.correlation = correlation.wrapping_add(1);
        let (partition, next) = &mut self.partitions[self.turn];
        let sequence = *next;
        if self.step > 0 {
            *next = sequence.plus(self.step);
        }
        self.frame.turn_to(*partition);
        self.turn = (self.turn + 1) % self.partitions.len();
        self.frame.stamp(correlation, clock::now_ms(), sequence)
    }
}

/// The side that reads answers: checks them and counts.
struct Judge<'a> {
    tally: Tally,
    live: &'a Live,
    measure_from: Duration,
    open_loop: bool,
    records: u64,
    correlation: i32,
    /// Of each partition, in the order of their turns.
    last_offsets: Vec<i64>,
    turn: usize,
}

impl<'a> Judge<'a> {
    fn new(plan: &Plan, live: &'a Live) -> Self {
        Self {
            tally: Tally::new(),
            live,
            measure_from: plan.measure_from,
            open_loop: plan.interval.is_some(),
            records: u64::try_from(plan.records).unwrap_or_default(),
            correlation: 0,
            last_offsets: vec![-1; plan.partitions],
            turn: 0,
        }
    }

    fn answered(&mut self, body: &[u8], request: Sent) -> Result<(), String> {
        let answer = read_answer(body)?;
        if answer.correlation != self.correlation {
            return Err(format!("answer {} came where {} was due", answer.correlation, self.correlation));
        }
        self.correlation = answer.correlation.wrapping_add(1);
        let turns = self.last_offsets.len();
        let last_offset = &mut self.last_offsets[self.turn];
        self.turn = (self.turn + 1) % turns;
        if answer.error != 0 {
            *self.tally.errors.entry(answer.error).or_default() += 1;
            self.live.errors.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        if answer.base_offset <= *last_offset {
            return Err(format!("offset {} came after {last_offset}", answer.base_offset));
        }
        *last_offset = answer.base_offset;
        self.count(request);
        Ok(())
    }

    /// Counts what fell due and was given up; without an end, everything was sent.
    fn never_sent(&mut self, mut due: Duration, plan: &Plan, interval: Duration) {
        let now = clock::monotonic();
        while plan.end < Duration::MAX && due < plan.end && plan.is_overtime() {
            self.tally.unsent += 1;
            self.tally.latency.saturating_record(nanoseconds(now.saturating_sub(due)));
            due += interval;
        }
    }

    fn count(&mut self, request: Sent) {
        self.live.records.fetch_add(self.records, Ordering::Relaxed);
        if request.due < self.measure_from {
            return;
        }
        let now = clock::monotonic();
        self.tally.requests += 1;
        self.tally.last = now;
        self.tally.latency.saturating_record(nanoseconds(now.saturating_sub(request.due)));
        if self.open_loop {
            self.tally.service.saturating_record(nanoseconds(now.saturating_sub(request.sent)));
        }
    }
}

impl Worker<'_> {
    /// Sends and reads until the plan ends.
    pub(super) fn run(self) -> Result<Tally, String> {
        let live = self.live;
        let result = match (self.plan.answered, self.plan.interval) {
            (false, _) => self.unanswered(),
            (true, None) => self.closed_loop(),
            (true, Some(interval)) if self.plan.in_flight == 1 => self.one_at_a_time(interval),
            (true, Some(interval)) => self.two_threads(interval),
        };
        if result.is_err() {
            live.give_up.store(true, Ordering::Relaxed);
        }
        result
    }

    fn goes_on(&self, sent: u64, at: Duration) -> bool {
        sent < self.plan.requests && at < self.plan.end && !self.live.give_up.load(Ordering::Relaxed)
    }

    /// Keeps `in_flight` requests unanswered; what may be sent at one moment goes out in one write.
    fn closed_loop(mut self) -> Result<Tally, String> {
        let mut judge = Judge::new(&self.plan, self.live);
        let mut waiting: VecDeque<Sent> = VecDeque::new();
        let mut frames = Vec::new();
        let mut sent = 0;
        sleep_until(self.plan.start);
        loop {
            let now = clock::monotonic();
            frames.clear();
            while waiting.len() < self.plan.in_flight && self.goes_on(sent, now) {
                frames.extend_from_slice(self.stamper.next());
                waiting.push_back(Sent { due: now, sent: now });
                sent += 1;
            }
            if !frames.is_empty() {
                self.connection.send(&frames)?;
            }
            let Some(first) = waiting.pop_front() else { return Ok(judge.tally) };
            judge.answered(self.connection.receive()?, first)?;
            while self.connection.has_answer() {
                let Some(next) = waiting.pop_front() else { break };
                judge.answered(self.connection.receive()?, next)?;
            }
        }
    }

    /// Open loop with one request in flight: the next one waits for the answer, and its latency says so.
    fn one_at_a_time(mut self, interval: Duration) -> Result<Tally, String> {
        let mut judge = Judge::new(&self.plan, self.live);
        let mut due = self.plan.start + self.plan.phase;
        let mut sent = 0;
        while self.goes_on(sent, due) && !self.plan.is_overtime() {
            sleep_until(due);
            let request = Sent { due, sent: clock::monotonic() };
            self.connection.send(self.stamper.next())?;
            judge.answered(self.connection.receive()?, request)?;
            sent += 1;
            due += interval;
        }
        judge.never_sent(due, &self.plan, interval);
        Ok(judge.tally)
    }

    /// Open loop with several in flight: one thread keeps the times, this one reads the answers.
    fn two_threads(self, interval: Duration) -> Result<Tally, String> {
        let mut judge = Judge::new(&self.plan, self.live);
        let socket = self.connection.writer()?;
        // One request more than the channel holds is in flight: the one whose answer is being waited for.
        let (on_their_way, waiting) = sync_channel(self.plan.in_flight - 1);
        let plan = self.plan.clone();
        let pacer = Pacer { plan: self.plan, stamper: self.stamper, socket, on_their_way, live: self.live };
        let unsent_from = std::thread::scope(|scope| {
            let pacing = scope.spawn(move || pacer.run(interval));
            let read = read_all(self.connection, &waiting, &mut judge);
            drop(waiting);
            let paced = pacing.join().unwrap_or_else(|_| Err("the sending thread panicked".to_owned()));
            read.and(paced)
        })?;
        judge.never_sent(unsent_from, &plan, interval);
        Ok(judge.tally)
    }

    /// `acks=0`: nobody answers, so only the rate says something. The end is the answer to another request behind.
    fn unanswered(mut self) -> Result<Tally, String> {
        let mut judge = Judge::new(&self.plan, self.live);
        let mut due = self.plan.start + self.plan.phase;
        let mut sent = 0;
        sleep_until(self.plan.start);
        while self.goes_on(sent, clock::monotonic()) {
            if let Some(interval) = self.plan.interval {
                sleep_until(due);
                due += interval;
            }
            let now = clock::monotonic();
            self.connection.send(self.stamper.next())?;
            judge.count(Sent { due: now, sent: now });
            sent += 1;
        }
        self.connection.max_version(0)?;
        judge.tally.latency.reset();
        judge.tally.service.reset();
        judge.tally.last = clock::monotonic();
        Ok(judge.tally)
    }
}

fn read_all(connection: &mut Connection, waiting: &Receiver<Sent>, judge: &mut Judge<'_>) -> Result<(), String> {
    while let Ok(request) = waiting.recv() {
        judge.answered(connection.receive()?, request)?;
    }
    Ok(())
}

/// The sending half of [`Worker::two_threads`].
struct Pacer<'a> {
    plan: Plan,
    stamper: Stamper,
    socket: TcpStream,
    on_their_way: SyncSender<Sent>,
    live: &'a Live,
}

impl Pacer<'_> {
    /// Returns when the first request would have been due that was not sent.
    fn run(mut self, interval: Duration) -> Result<Duration, String> {
        exact_sleeps();
        let mut due = self.plan.start + self.plan.phase;
        for _ in 0..self.plan.requests {
            if due >= self.plan.end || self.plan.is_overtime() || self.live.give_up.load(Ordering::Relaxed) {
                break;
            }
            sleep_until(due);
            let request = Sent { due, sent: clock::monotonic() };
            if self.on_their_way.send(request).is_err() {
                break; // the reader gave up and says why
            }
            self.socket.write_all(self.stamper.next()).map_err(|error| format!("sending failed: {error}"))?;
            due += interval;
        }
        Ok(due)
    }
}

/// Makes this thread's sleeps end when they should: Linux else adds 50 µs to save power.
pub(super) fn exact_sleeps() {
    // Where it is refused, latencies of the open loop are a little higher, no more.
    let _ = nix::sys::prctl::set_timerslack(1);
}

fn sleep_until(moment: Duration) {
    loop {
        let now = clock::monotonic();
        if now >= moment {
            return;
        }
        std::thread::sleep(moment.saturating_sub(now));
    }
}

#[cfg(test)]
mod tests;
