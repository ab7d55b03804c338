//! The command `corelane`.

use std::process::ExitCode;

use clap::Parser;
use corelane::bench::{self, BenchArgs};
use corelane::config::args::{Args, BrokerArgs, Command, ConfigCommand};
use corelane::config::{self, ConfigError};
use corelane::server;

/// Exit status when the broker or a tool fails; wrong arguments have clap's own, 2.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let done = match Args::<BenchArgs>::parse().command() {
        Command::Serve(args) => serve(&args),
        Command::Config(args) => match args.what {
            ConfigCommand::Show(args) => show(&args),
            ConfigCommand::Docs => {
                print!("{}", config::markdown());
                Ok(())
            }
        },
        Command::Bench(args) => bench::run(args).map_err(failed),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((sentence, status)) => {
            eprintln!("corelane: {sentence}");
            ExitCode::from(status)
        }
    }
}

fn serve(args: &BrokerArgs) -> Result<(), (String, u8)> {
    let config = load(args)?;
    server::run(config).map_err(failed)
}

fn show(args: &BrokerArgs) -> Result<(), (String, u8)> {
    print!("{}", config::show(&load(args)?));
    Ok(())
}

fn load(args: &BrokerArgs) -> Result<config::Config, (String, u8)> {
    let loaded = config::load(args).map_err(|error: ConfigError| (error.to_string(), error.exit_status()))?;
    for warning in &loaded.warnings {
        eprintln!("corelane: warning: {warning}");
    }
    Ok(loaded.config)
}

fn failed(sentence: String) -> (String, u8) {
    (sentence, FAILED)
}
