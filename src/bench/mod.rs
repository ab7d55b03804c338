//! The load generator behind `corelane bench`: plain threads and blocking sockets, against any Kafka-compatible broker.
//!
//! It shares no code with the broker's own request handling, so that a fault of one side cannot hide in the other.
//! Latencies are kept in nanoseconds and reported in microseconds.

mod bytes;
mod client;
mod drive;
mod floor;
mod frame;
mod produce;
mod progress;
mod report;
mod transactions;

use clap::{Args, Subcommand, ValueEnum};

pub use floor::FloorArgs;
pub use produce::ProduceArgs;
pub use transactions::TransactionsArgs;

/// Arguments of `corelane bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// What is measured.
    #[command(subcommand)]
    pub what: What,
}

/// What `corelane bench` can measure.
#[derive(Subcommand, Clone, Debug)]
pub enum What {
    /// Produce to a topic and report acknowledgement latency and rate
    Produce(ProduceArgs),
    /// Write in transactions and report how long a commit takes and what they cost
    Transactions(TransactionsArgs),
    /// What this host can do at best: a blocking loop of echo and durable write, and each of them alone
    Floor(FloorArgs),
}

/// How results are printed on standard output.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Lines for people.
    Text,
    /// One JSON object on one line.
    Json,
}

/// Runs one measurement and prints its result.
///
/// # Errors
/// A sentence for people: the broker cannot be reached, refuses, or does not answer what the protocol says; or
/// requests failed during the measurement (the result is printed all the same).
pub fn run(args: BenchArgs) -> Result<(), String> {
    match args.what {
        What::Produce(args) => produce::run(&args),
        What::Transactions(args) => transactions::run(&args),
        What::Floor(args) => floor::run(&args),
    }
}
