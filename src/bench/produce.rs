//! `corelane bench produce`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::Output;
use super::client::{CLIENT_ID, Connection, Leader, error_name};
use super::drive::{Live, Plan, Stamper, Tally, Worker, exact_sleeps};
use super::frame::{FrameSpec, PRODUCE_KEY, PRODUCE_VERSION, ProduceFrame};
use super::progress;
use super::report::{Fields, Value, latency_fields, print};
use crate::runtime::clock;

/// Arguments of `corelane bench produce`.
#[derive(Args, Clone, Debug)]
pub struct ProduceArgs {
    /// Broker to ask for the partition's leader
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
    /// Topic; made when it is missing
    #[arg(long, default_value = "corelane-bench")]
    pub topic: String,
    /// Partitions of a topic that is made [default: one more than the highest of --partition]
    #[arg(long, value_name = "N")]
    pub partitions: Option<i32>,
    /// Partitions to write to, separated by commas: the first connection takes the first, the next the next
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    pub partition: Vec<i32>,
    /// All connections write to one partition after another, each measured for itself: shows which core owns which
    #[arg(long)]
    pub one_by_one: bool,
    /// Each connection writes to all partitions of the topic by turns, request by request
    #[arg(long, conflicts_with_all = ["partition", "one_by_one"])]
    pub by_turns: bool,
    /// Bytes of one record's value
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub record_bytes: usize,
    /// Records of one request, in one batch
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    pub records_per_batch: i32,
    /// Acknowledgement that is asked for
    #[arg(long, value_enum, default_value = "all")]
    pub acks: Acks,
    /// Each connection writes as an idempotent producer
    #[arg(long)]
    pub idempotent: bool,
    /// Open loop: requests a second over all connections, latency counted from when each was due [default: closed loop]
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// Connections, each with a thread of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Unanswered requests of one connection, at most
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub in_flight: u32,
    /// How long is measured
    #[arg(long, value_name = "S", default_value_t = 10.0, conflicts_with = "requests")]
    pub seconds: f64,
    /// Warm-up before, not counted
    #[arg(long, value_name = "S", default_value_t = 2.0, conflicts_with = "requests")]
    pub warmup_seconds: f64,
    /// Sends exactly this many requests, without a warm-up
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
    /// Form of the result
    #[arg(long, value_enum, default_value = "text")]
    pub output: Output,
}

/// The acknowledgement that a produce request asks for.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// As durable as the topic promises.
    All,
    /// Written by the leader.
    #[value(name = "1")]
    Leader,
    /// No answer.
    #[value(name = "0")]
    None,
}

impl Acks {
    fn on_the_wire(self) -> i16 {
        match self {
            Self::All => -1,
            Self::Leader => 1,
            Self::None => 0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Leader => "1",
            Self::None => "0",
        }
    }
}

/// A broker that is slower than the rate is given this much longer than the run; what is then left counts as unsent.
const OVERTIME: Duration = Duration::from_secs(30);

/// Measures and prints.
pub(super) fn run(args: &ProduceArgs) -> Result<(), String> {
    check(args)?;
    let leaders = prepare(args)?;
    let turns: Vec<&[Leader]> = if args.one_by_one { leaders.chunks(1).collect() } else { vec![&leaders] };
    if (args.one_by_one || args.by_turns) && leaders.iter().any(|leader| leader.address != leaders[0].address) {
        return Err("--one-by-one and --by-turns need partitions with the same leader".to_owned());
    }
    let mut connections = open(args, &leaders)?;
    let mut errors = BTreeMap::new();
    for leaders in turns {
        let (tally, measure_from) = measure(args, leaders, &mut connections)?;
        print(args.output, &fields(args, leaders, &tally, measure_from));
        for (code, count) in tally.errors {
            *errors.entry(code).or_default() += count;
        }
    }
    complain(&errors)
}

fn open(args: &ProduceArgs, leaders: &[Leader]) -> Result<Vec<Connection>, String> {
    let leaders = leaders.iter().cycle().take(args.connections as usize);
    leaders.map(|leader| Connection::open(&leader.address)).collect()
}

/// One measured run; returns when its measured part began.
fn measure(
    args: &ProduceArgs,
    leaders: &[Leader],
    connections: &mut [Connection],
) -> Result<(Tally, Duration), String> {
    let live = Live::default();
    let mut workers = Vec::with_capacity(connections.len());
    let turns = |leader| if args.by_turns { leaders } else { std::slice::from_ref(leader) };
    for ((index, connection), leader) in (0..).zip(connections).zip(leaders.iter().cycle()) {
        workers.push(worker(args, turns(leader), index, connection, &live)?);
    }
    // Producers are known and frames made: now all begin at one moment.
    let (start, measure_from, end) = times(args);
    for worker in &mut workers {
        (worker.plan.start, worker.plan.measure_from, worker.plan.end) = (start, measure_from, end);
    }
    Ok((work(workers, &live, end)?, measure_from))
}

fn check(args: &ProduceArgs) -> Result<(), String> {
    if args.idempotent && args.acks != Acks::All {
        return Err("--idempotent goes with --acks all only".to_owned());
    }
    if args.record_bytes > 64 << 20 {
        return Err("--record-bytes is at most 64 MiB".to_owned());
    }
    let positive = |name: &str, value: f64| {
        if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("{name} must be above 0")) }
    };
    positive("--seconds", args.seconds)?;
    positive("--rate", args.rate.unwrap_or(1.0))?;
    if args.partition.iter().any(|partition| *partition < 0) || !(0.0..1e9).contains(&args.warmup_seconds) {
        return Err("--partition and --warmup-seconds must not be negative".to_owned());
    }
    Ok(())
}

/// Where each of the wanted partitions is written to.
fn prepare(args: &ProduceArgs) -> Result<Vec<Leader>, String> {
    let mut connection = Connection::open(&args.bootstrap)?;
    let served = connection.max_version(PRODUCE_KEY)?;
    if served < PRODUCE_VERSION {
        return Err(format!("the broker serves Produce up to version {served}; this needs version {PRODUCE_VERSION}"));
    }
    let highest = args.partition.iter().max().copied().unwrap_or_default();
    let known = connection.leaders_of(&args.topic, args.partitions.unwrap_or(highest + 1))?;
    let find = |wanted: &i32| {
        let found = known.iter().find(|leader| leader.partition == *wanted).cloned();
        found.ok_or_else(|| {
            format!("topic '{}' has {} partitions and none with index {wanted}", args.topic, known.len())
        })
    };
    if args.by_turns { Ok(known) } else { args.partition.iter().map(find).collect() }
}

fn worker<'a>(
    args: &ProduceArgs,
    turns: &[Leader],
    index: u32,
    connection: &'a mut Connection,
    live: &'a Live,
) -> Result<Worker<'a>, String> {
    let producer = if args.idempotent { Some(connection.init_producer_id()?) } else { None };
    let partitions: Vec<_> = turns.iter().map(|leader| leader.partition).collect();
    let frame = ProduceFrame::new(&FrameSpec {
        client_id: CLIENT_ID,
        topic: &args.topic,
        partition: partitions[0],
        acks: args.acks.on_the_wire(),
        timeout_ms: 30_000,
        record_bytes: args.record_bytes,
        records: args.records_per_batch,
        producer,
        transactional_id: None,
    });
    let plan = Plan { partitions: partitions.len(), ..plan(args, index) };
    Ok(Worker { connection, stamper: Stamper::new(frame, &plan, &partitions), plan, live })
}

/// One connection's share; the times are set when all are ready.
fn plan(args: &ProduceArgs, index: u32) -> Plan {
    let connections = f64::from(args.connections);
    let share = |total: u64| {
        let (each, rest) = (total / u64::from(args.connections), total % u64::from(args.connections));
        each + u64::from(u64::from(index) < rest)
    };
    Plan {
        answered: args.acks != Acks::None,
        idempotent: args.idempotent,
        records: args.records_per_batch,
        partitions: 1,
        in_flight: args.in_flight as usize,
        start: Duration::ZERO,
        measure_from: Duration::ZERO,
        end: Duration::ZERO,
        overtime: OVERTIME,
        requests: args.requests.map_or(u64::MAX, share),
        interval: args.rate.map(|rate| Duration::from_secs_f64(connections / rate)),
        phase: args.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(f64::from(index) / rate)),
    }
}

/// Start, begin of the measured part, end.
fn times(args: &ProduceArgs) -> (Duration, Duration, Duration) {
    let start = clock::monotonic() + Duration::from_millis(5);
    if args.requests.is_some() {
        return (start, start, Duration::MAX);
    }
    let measure_from = start + Duration::from_secs_f64(args.warmup_seconds);
    (start, measure_from, measure_from + Duration::from_secs_f64(args.seconds))
}

fn work(workers: Vec<Worker<'_>>, live: &Live, end: Duration) -> Result<Tally, String> {
    std::thread::scope(|scope| {
        let run = |worker: Worker<'_>| {
            exact_sleeps();
            worker.run()
        };
        let threads = workers.into_iter().map(|worker| scope.spawn(move || run(worker))).collect::<Vec<_>>();
        progress::show(live, end, || threads.iter().all(std::thread::ScopedJoinHandle::is_finished));
        let mut all = Tally::new();
        let mut failure = Ok(());
        for thread in threads {
            match thread.join() {
                Ok(Ok(tally)) => all.add(&tally),
                Ok(Err(error)) => failure = failure.and(Err(error)),
                Err(_) => failure = failure.and(Err("a connection's thread panicked".to_owned())),
            }
        }
        failure.map(|()| all)
    })
}

fn fields(args: &ProduceArgs, leaders: &[Leader], tally: &Tally, measure_from: Duration) -> Fields {
    let partitions = match leaders {
        [first, .., last] if args.by_turns => vec![format!("{} to {} by turns", first.partition, last.partition)],
        _ => leaders.iter().map(|leader| leader.partition.to_string()).collect(),
    };
    let seconds = tally.last.saturating_sub(measure_from).as_secs_f64();
    let records = tally.requests * u64::try_from(args.records_per_batch).unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = if seconds > 0.0 { records as f64 / seconds } else { 0.0 };
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let mebibytes = rate * args.record_bytes as f64 / f64::from(1 << 20);
    let mut fields = vec![
        ("bench", Value::Text("produce".to_owned())),
        ("bootstrap", Value::Text(args.bootstrap.clone())),
        ("topic", Value::Text(args.topic.clone())),
        ("partitions", Value::Text(partitions.join(","))),
        ("record_bytes", Value::Whole(args.record_bytes as u64)),
        ("records_per_batch", Value::Whole(u64::from(args.records_per_batch.unsigned_abs()))),
        ("acks", Value::Text(args.acks.name().to_owned())),
        ("idempotent", Value::Text(args.idempotent.to_string())),
        ("connections", Value::Whole(u64::from(args.connections))),
        ("in_flight", Value::Whole(u64::from(args.in_flight))),
        ("loop", Value::Text(args.rate.map_or("closed".to_owned(), |rate| format!("open, {rate} requests/s")))),
        ("seconds", Value::Part(seconds)),
        ("requests", Value::Whole(tally.requests)),
        ("records", Value::Whole(records)),
        ("errors", Value::Whole(tally.failed())),
        ("unsent", Value::Whole(tally.unsent)),
        ("records_per_second", Value::Part(rate)),
        ("mebibytes_per_second", Value::Part(mebibytes)),
    ];
    fields.extend(latency_fields("", &tally.latency));
    fields.extend(latency_fields("from_send_", &tally.service));
    fields
}

fn complain(errors: &BTreeMap<i16, u64>) -> Result<(), String> {
    if errors.is_empty() {
        return Ok(());
    }
    let kinds = errors.iter().map(|(code, count)| format!("{count} × {}", error_name(*code)));
    Err(format!("requests were refused: {}", kinds.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ProduceArgs,
    }

    #[test]
    fn requests_are_shared_out_without_a_rest() {
        let args = Cli::parse_from(["x", "--requests", "10", "--connections", "4", "--rate", "100"]).args;
        let shares = (0..4).map(|index| plan(&args, index).requests).collect::<Vec<_>>();
        assert_eq!(shares, [3, 3, 2, 2]);
        assert_eq!(plan(&args, 1).interval, Some(Duration::from_millis(40)));
        assert_eq!(plan(&args, 1).phase, Duration::from_millis(10));
    }
}
