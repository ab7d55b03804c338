use std::future::Future;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;
use std::thread;
use std::time::Duration;

use super::*;
use crate::runtime::{clock, executors, startup};

const TO: ShardId = ShardId(0);

#[derive(Default)]
struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What one sender or the receiver does next; each step is one of the real functions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Push,
    Ring,
    Take,
    Arm,
    TakeAgain,
    Asleep,
}

struct Model {
    senders: LaneSenders<u32>,
    receiver: LaneReceiver<u32>,
    wakes: Arc<CountWakes>,
    waker: Waker,
    wakes_seen: usize,
    sender_steps: Vec<Vec<Step>>,
    receiver_step: Step,
    received: Vec<u32>,
}

impl Model {
    fn new(senders: usize, messages: usize) -> Self {
        let (lanes, mut receivers) = mesh_of(1, 16);
        let wakes = Arc::new(CountWakes::default());
        Self {
            senders: lanes,
            receiver: receivers.remove(0),
            waker: Waker::from(Arc::clone(&wakes)),
            wakes,
            wakes_seen: 0,
            sender_steps: vec![[Step::Ring, Step::Push].repeat(messages); senders],
            receiver_step: Step::Take,
            received: Vec::new(),
        }
    }

    /// Those who can make a step: senders by number, the receiver as the last.
    fn ready(&self) -> Vec<usize> {
        let mut ready: Vec<usize> =
            (0..self.sender_steps.len()).filter(|sender| !self.sender_steps[*sender].is_empty()).collect();
        let woken = self.wakes.0.load(Ordering::SeqCst) > self.wakes_seen;
        if self.receiver_step != Step::Asleep || woken {
            ready.push(self.sender_steps.len());
        }
        ready
    }

    fn step(&mut self, who: usize) {
        if who == self.sender_steps.len() {
            self.receiver_step = self.receive();
            return;
        }
        match self.sender_steps[who].pop() {
            Some(Step::Push) => self.senders.targets[0].push(7).unwrap(),
            Some(Step::Ring) => self.senders.targets[0].bell.ring(),
            other => panic!("{other:?} is no step of a sender"),
        }
    }

    fn receive(&mut self) -> Step {
        match self.receiver_step {
            Step::Asleep => {
                self.wakes_seen = self.wakes.0.load(Ordering::SeqCst);
                Step::Take
            }
            Step::Take if self.receiver.take(1, &mut self.received).is_some() => Step::Take,
            Step::Take => Step::Arm,
            Step::Arm => {
                self.receiver.bell.arm(&self.waker);
                Step::TakeAgain
            }
            Step::TakeAgain if self.receiver.take(1, &mut self.received).is_some() => {
                self.receiver.bell.disarm();
                Step::Take
            }
            Step::TakeAgain => Step::Asleep,
            other => panic!("{other:?} is no step of a receiver"),
        }
    }
}

/// Runs every order of steps; each must end with everything received.
fn every_order(senders: usize, messages: usize) -> usize {
    let mut orders = 0;
    let mut choices: Vec<(usize, usize)> = Vec::new();
    loop {
        let mut model = Model::new(senders, messages);
        let mut depth = 0;
        loop {
            let ready = model.ready();
            if ready.is_empty() {
                break;
            }
            if depth == choices.len() {
                choices.push((0, ready.len()));
            }
            model.step(ready[choices[depth].0]);
            depth += 1;
        }
        assert_eq!(model.received.len(), senders * messages, "the receiver sleeps beside messages after {choices:?}");
        orders += 1;
        while let Some((choice, of)) = choices.pop() {
            if choice + 1 < of {
                choices.push((choice + 1, of));
                break;
            }
        }
        if choices.is_empty() {
            return orders;
        }
    }
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    assert!(every_order(1, 3) > 100);
    assert!(every_order(2, 1) > 100);
}

/// Polls once with a waker that counts.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>, wakes: &Arc<CountWakes>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(wakes))))
}

#[test]
fn the_last_sender_leaving_ends_the_receiver() {
    let (senders, mut receivers) = mesh::<u32>(1);
    let other = senders.clone();
    let wakes = Arc::new(CountWakes::default());
    let mut batch = Vec::new();
    let mut next = pin!(receivers[0].next_batch(8, &mut batch));
    assert!(poll_once(next.as_mut(), &wakes).is_pending());
    drop(senders);
    assert!(poll_once(next.as_mut(), &wakes).is_pending());
    drop(other);
    assert!(wakes.0.load(Ordering::SeqCst) > 0, "the receiver was not woken");
    assert_eq!(poll_once(next.as_mut(), &wakes), Poll::Ready(false));
}

#[test]
fn a_full_lane_keeps_messages_in_order_and_says_so() {
    run_on_one_shard(|| async {
        let (senders, mut receivers) = mesh_of::<u32>(1, 4);
        let outbox = Outbox::new(senders);
        for number in 0..20 {
            outbox.send(TO, number);
        }
        assert!(outbox.is_congested(TO));
        assert_eq!(outbox.kept(), 16);
        let mut received = Vec::new();
        let mut receiver = receivers.remove(0);
        while received.len() < 20 {
            let before = received.len();
            assert!(receiver.next_batch(3, &mut received).await);
            assert!(received.len() - before <= 3);
        }
        outbox.clear().await;
        assert_eq!(received, (0..20).collect::<Vec<_>>());
        assert!(!outbox.is_congested(TO));
    });
}

#[test]
fn one_ring_is_enough_for_several_messages() {
    let (senders, mut receivers) = mesh::<u32>(1);
    let outbox = Outbox::new(senders);
    let wakes = Arc::new(CountWakes::default());
    let mut batch = Vec::new();
    {
        let mut next = pin!(receivers[0].next_batch(8, &mut batch));
        assert!(poll_once(next.as_mut(), &wakes).is_pending());
        (0..5).for_each(|number| outbox.push(TO, number));
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
        outbox.ring();
        outbox.ring();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        assert_eq!(poll_once(next.as_mut(), &wakes), Poll::Ready(true));
    }
    assert_eq!(batch, [0, 1, 2, 3, 4]);
}

fn run_on_one_shard<F: Future<Output = ()> + 'static>(make: impl Fn() -> F + Clone + Send + 'static) {
    let cpus = startup::choose_cpus(Some(1)).unwrap();
    let shards = executors::start(&cpus, Duration::ZERO, move |_| make()).unwrap();
    shards.join().into_iter().for_each(|ended| ended.unwrap());
}

/// Two real executors send each other questions and answers through small lanes, with a deadline.
#[test]
fn two_threads_lose_nothing() {
    const ROUNDS: u32 = 30_000;
    const DEADLINE: Duration = Duration::from_secs(60);
    let cpu = startup::choose_cpus(None).unwrap();
    let cpus = [cpu[0], cpu[cpu.len() - 1]];
    let (senders, receivers) = mesh_of::<(bool, u32)>(2, 8);
    let ends = receivers.into_iter().map(|receiver| (senders.clone(), receiver)).collect();
    drop(senders);
    let shards = executors::start_with(&cpus, Duration::ZERO, ends, move |shard, (senders, receiver)| {
        let other = ShardId(1 - shard.0);
        async move {
            let outbox = Outbox::new(senders);
            let answered = Rc::new(Cell::new(0));
            host::spawn(Queue::Requests, ask(Rc::clone(&outbox), other));
            let started = clock::monotonic();
            answer(outbox, receiver, other, Rc::clone(&answered)).await;
            assert!(clock::monotonic() - started < DEADLINE);
            answered.get()
        }
    })
    .unwrap();
    let watched = thread::spawn(move || shards.join());
    let ended = watched.join().unwrap();
    assert_eq!(ended.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [ROUNDS, ROUNDS]);

    async fn ask(outbox: Rc<Outbox<(bool, u32)>>, other: ShardId) {
        for number in 0..ROUNDS {
            outbox.send(other, (true, number));
            if number % 7 == 0 {
                host::yield_now().await;
            }
            if number % 64 == 0 {
                outbox.clear().await;
            }
        }
    }

    /// Answers every question; ends when all answers and all questions are through.
    async fn answer(
        outbox: Rc<Outbox<(bool, u32)>>,
        mut receiver: LaneReceiver<(bool, u32)>,
        other: ShardId,
        answered: Rc<Cell<u32>>,
    ) {
        let mut batch = Vec::new();
        let mut asked = 0;
        while answered.get() < ROUNDS || asked < ROUNDS {
            assert!(receiver.next_batch(256, &mut batch).await);
            for (question, number) in batch.drain(..) {
                if question {
                    assert_eq!(number, asked);
                    asked += 1;
                    outbox.push(other, (false, number));
                } else {
                    assert_eq!(number, answered.get());
                    answered.set(answered.get() + 1);
                }
            }
            outbox.ring();
            outbox.retry();
        }
        outbox.clear().await;
    }
}
