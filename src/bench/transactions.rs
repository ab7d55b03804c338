//! `corelane bench transactions`: producers that commit one transaction after another.
//!
//! ```text
//! one record and a commit   first batch to each partition, answers ── EndTxn ── answer
//! with --interval-ms        first batches, then as many as go through for so long, answers ── EndTxn ── answer
//! ```
//! The newer protocol (KIP-890): a partition comes into the transaction with its first batch, and each commit gives the
//! producer a new epoch. While a broker still completes the last transaction it answers 51, and is asked again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;

use super::Output;
use super::client::{
    CLIENT_ID, CONCURRENT_TRANSACTIONS, Connection, END_TXN_KEY, END_TXN_VERSION, Leader, UNKNOWN_TOPIC_OR_PARTITION,
    error_name,
};
use super::drive::{Live, exact_sleeps, histogram, nanoseconds};
use super::frame::{FrameSpec, PRODUCE_KEY, ProduceFrame, TRANSACTIONAL_PRODUCE_VERSION, read_answer};
use super::progress;
use super::report::{Fields, Value, latency_fields, print};
use crate::ids::{ProducerEpoch, ProducerId, Sequence};
use crate::runtime::clock;

/// Arguments of `corelane bench transactions`.
#[derive(Args, Clone, Debug)]
pub struct TransactionsArgs {
    /// Broker to ask for leaders and coordinators
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
    /// Topic; made when it is missing
    #[arg(long, default_value = "corelane-bench")]
    pub topic: String,
    /// Each transaction writes to so many partitions, from 0 on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub partitions: i32,
    /// Beginning of the transactional ids; each connection adds its number
    #[arg(long, value_name = "TEXT", default_value = "corelane-bench")]
    pub transactional_id: String,
    /// Transactions go on for so long, as many requests as go through [default: one batch for each partition]
    #[arg(long, value_name = "MS")]
    pub interval_ms: Option<u64>,
    /// Bytes of one record's value
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub record_bytes: usize,
    /// Records of one batch
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    pub records_per_batch: i32,
    /// Producers, each with a thread and a transactional id of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Unanswered requests of one producer, at most
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub in_flight: u32,
    /// How long is measured
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub seconds: f64,
    /// Warm-up before, not counted
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub warmup_seconds: f64,
    /// Form of the result
    #[arg(long, value_enum, default_value = "text")]
    pub output: Output,
}

/// How soon a broker is asked again that still completes the last transaction.
const AGAIN: Duration = Duration::from_micros(200);

/// What one producer measured, in nanoseconds.
struct Tally {
    /// From the first request to the answer of EndTxn.
    whole: Histogram<u64>,
    /// EndTxn alone.
    commit: Histogram<u64>,
    transactions: u64,
    records: u64,
    /// Requests that were answered 51.
    again: u64,
    last: Duration,
}

impl Tally {
    fn new() -> Self {
        Self { whole: histogram(), commit: histogram(), transactions: 0, records: 0, again: 0, last: Duration::ZERO }
    }

    fn add(&mut self, other: &Self) {
        // Both have the same bounds, so adding cannot fail.
        let _ = self.whole.add(&other.whole);
        let _ = self.commit.add(&other.commit);
        self.transactions += other.transactions;
        self.records += other.records;
        self.again += other.again;
        self.last = self.last.max(other.last);
    }
}

/// One producer.
struct Producer<'a> {
    args: &'a TransactionsArgs,
    transactional_id: String,
    connection: Connection,
    /// Where it is another broker than the leader.
    coordinator: Option<Connection>,
    identity: (ProducerId, ProducerEpoch),
    frame: ProduceFrame,
    sequences: Vec<Sequence>,
    correlation: i32,
    live: &'a Live,
}

/// Measures and prints.
pub(super) fn run(args: &TransactionsArgs) -> Result<(), String> {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !positive(args.seconds) || !(0.0..1e9).contains(&args.warmup_seconds) || args.record_bytes > 64 << 20 {
        return Err(
            "--seconds must be above 0, --warmup-seconds not negative, --record-bytes at most 64 MiB".to_owned()
        );
    }
    let leader = prepare(args)?;
    let live = Live::default();
    let producers = (0..args.connections).map(|index| Producer::open(args, &leader, index, &live));
    let producers = producers.collect::<Result<Vec<_>, _>>()?;
    let measure_from = clock::monotonic() + Duration::from_secs_f64(args.warmup_seconds);
    let end = measure_from + Duration::from_secs_f64(args.seconds);
    let tally = work(producers, &live, measure_from, end)?;
    print(args.output, &fields(args, &tally, measure_from));
    Ok(())
}

/// The leader of all partitions.
fn prepare(args: &TransactionsArgs) -> Result<Leader, String> {
    let mut connection = Connection::open(&args.bootstrap)?;
    for (key, wanted, name) in
        [(PRODUCE_KEY, TRANSACTIONAL_PRODUCE_VERSION, "Produce"), (END_TXN_KEY, END_TXN_VERSION, "EndTxn")]
    {
        let served = connection.max_version(key)?;
        if served < wanted {
            return Err(format!("the broker serves {name} up to version {served}; this needs version {wanted}"));
        }
    }
    let leaders = connection.leaders_of(&args.topic, args.partitions)?;
    let wanted = usize::try_from(args.partitions).unwrap_or(usize::MAX);
    let wanted = leaders.get(..wanted).ok_or_else(|| {
        format!("topic '{}' has {} partitions: fewer --partitions, or another --topic", args.topic, leaders.len())
    })?;
    if wanted.iter().any(|leader| leader.address != wanted[0].address) {
        return Err("the partitions have different leaders: that is not measured here".to_owned());
    }
    Ok(wanted[0].clone())
}

fn work(producers: Vec<Producer<'_>>, live: &Live, measure_from: Duration, end: Duration) -> Result<Tally, String> {
    std::thread::scope(|scope| {
        let run = |producer: Producer<'_>| {
            exact_sleeps();
            let result = producer.run(measure_from, end);
            if result.is_err() {
                live.give_up.store(true, Ordering::Relaxed);
            }
            result
        };
        let threads: Vec<_> = producers.into_iter().map(|producer| scope.spawn(move || run(producer))).collect();
        progress::show(live, end, || threads.iter().all(std::thread::ScopedJoinHandle::is_finished));
        let mut all = Tally::new();
        for thread in threads {
            all.add(&thread.join().unwrap_or_else(|_| Err("a producer's thread panicked".to_owned()))?);
        }
        Ok(all)
    })
}

impl<'a> Producer<'a> {
    fn open(args: &'a TransactionsArgs, leader: &Leader, index: u32, live: &'a Live) -> Result<Self, String> {
        let transactional_id = format!("{}-{index}", args.transactional_id);
        let mut connection = Connection::open(&leader.address)?;
        let address = connection.coordinator_of(&transactional_id)?;
        let mut coordinator = if address == leader.address { None } else { Some(Connection::open(&address)?) };
        let identity = coordinator.as_mut().unwrap_or(&mut connection).init_transactions(&transactional_id)?;
        let frame = ProduceFrame::new(&FrameSpec {
            client_id: CLIENT_ID,
            topic: &args.topic,
            partition: 0,
            acks: -1,
            timeout_ms: 30_000,
            record_bytes: args.record_bytes,
            records: args.records_per_batch,
            producer: Some(identity),
            transactional_id: Some(&transactional_id),
        });
        let sequences = (0..args.partitions).map(|_| Sequence(0)).collect();
        Ok(Self { args, transactional_id, connection, coordinator, identity, frame, sequences, correlation: 0, live })
    }

    fn run(mut self, measure_from: Duration, end: Duration) -> Result<Tally, String> {
        let mut tally = Tally::new();
        while clock::monotonic() < end && !self.live.give_up.load(Ordering::Relaxed) {
            let begun = clock::monotonic();
            let before = tally.again;
            let batches = self.begin(&mut tally)? + self.go_on(begun)?;
            let asked = clock::monotonic();
            self.commit(&mut tally)?;
            let now = clock::monotonic();
            let records = batches * u64::from(self.args.records_per_batch.unsigned_abs());
            self.live.records.fetch_add(records, Ordering::Relaxed);
            if begun < measure_from {
                tally.again = before;
                continue;
            }
            tally.transactions += 1;
            tally.records += records;
            tally.last = now;
            tally.whole.saturating_record(nanoseconds(now.saturating_sub(begun)));
            tally.commit.saturating_record(nanoseconds(now.saturating_sub(asked)));
        }
        Ok(tally)
    }

    /// The first batch of each partition, again and again until the last transaction is complete.
    fn begin(&mut self, tally: &mut Tally) -> Result<u64, String> {
        let mut left: Vec<_> = (0..self.sequences.len()).collect();
        while !left.is_empty() {
            left.iter().try_for_each(|partition| self.send(*partition))?;
            let mut refused = Vec::new();
            for partition in left {
                match self.answer()? {
                    0 => self.sequences[partition] = self.sequences[partition].plus(self.args.records_per_batch),
                    error if passes(error) => refused.push(partition),
                    error => return Err(format!("Produce to partition {partition}: {}", error_name(error))),
                }
            }
            if !refused.is_empty() {
                tally.again += refused.len() as u64;
                std::thread::sleep(AGAIN);
            }
            left = refused;
        }
        Ok(self.sequences.len() as u64)
    }

    /// Further batches by turns, until the transaction has lasted as long as it should.
    fn go_on(&mut self, begun: Duration) -> Result<u64, String> {
        let Some(interval_ms) = self.args.interval_ms else { return Ok(0) };
        let until = begun + Duration::from_millis(interval_ms);
        let (mut sent, mut answered) = (0_usize, 0_usize);
        loop {
            while sent - answered < self.args.in_flight as usize && clock::monotonic() < until {
                let partition = sent % self.sequences.len();
                self.send(partition)?;
                self.sequences[partition] = self.sequences[partition].plus(self.args.records_per_batch);
                sent += 1;
            }
            if sent == answered {
                return Ok(sent as u64);
            }
            let error = self.answer()?;
            if error != 0 {
                return Err(format!("Produce: {}", error_name(error)));
            }
            answered += 1;
        }
    }

    fn send(&mut self, partition: usize) -> Result<(), String> {
        self.frame.turn_to(i32::try_from(partition).unwrap_or(i32::MAX));
        self.correlation = self.correlation.wrapping_add(1);
        let frame = self.frame.stamp(self.correlation, clock::now_ms(), self.sequences[partition]);
        self.connection.send(frame)
    }

    fn answer(&mut self) -> Result<i16, String> {
        Ok(read_answer(self.connection.receive()?)?.error)
    }

    fn commit(&mut self, tally: &mut Tally) -> Result<(), String> {
        let coordinator = self.coordinator.as_mut().unwrap_or(&mut self.connection);
        loop {
            match coordinator.commit(&self.transactional_id, self.identity)? {
                Ok(identity) => {
                    if identity != self.identity {
                        self.identity = identity;
                        self.frame.set_producer(identity.0, identity.1);
                        self.sequences.fill(Sequence(0));
                    }
                    return Ok(());
                }
                Err(CONCURRENT_TRANSACTIONS) => {
                    tally.again += 1;
                    std::thread::sleep(AGAIN);
                }
                Err(error) => return Err(format!("EndTxn: {}", error_name(error))),
            }
        }
    }
}

/// The last transaction is not complete yet, or the topic is so new that its leader does not know of it.
fn passes(error: i16) -> bool {
    const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    [CONCURRENT_TRANSACTIONS, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER].contains(&error)
}

fn fields(args: &TransactionsArgs, tally: &Tally, measure_from: Duration) -> Fields {
    let seconds = tally.last.saturating_sub(measure_from).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let mut fields = vec![
        ("bench", Value::Text("transactions".to_owned())),
        ("bootstrap", Value::Text(args.bootstrap.clone())),
        ("topic", Value::Text(args.topic.clone())),
        ("partitions", Value::Whole(u64::from(args.partitions.unsigned_abs()))),
        ("record_bytes", Value::Whole(args.record_bytes as u64)),
        ("records_per_batch", Value::Whole(u64::from(args.records_per_batch.unsigned_abs()))),
        ("connections", Value::Whole(u64::from(args.connections))),
        ("in_flight", Value::Whole(u64::from(args.in_flight))),
        ("interval_ms", Value::Whole(args.interval_ms.unwrap_or_default())),
        ("seconds", Value::Part(seconds)),
        ("transactions", Value::Whole(tally.transactions)),
        ("records", Value::Whole(tally.records)),
        ("asked_again", Value::Whole(tally.again)),
        ("transactions_per_second", Value::Part(rate(tally.transactions))),
        ("records_per_second", Value::Part(rate(tally.records))),
    ];
    fields.extend(latency_fields("", &tally.whole));
    fields.extend(latency_fields("commit_", &tally.commit));
    fields
}
