//! The command `corelane`.

use std::process::ExitCode;

use clap::Parser;
use corelane::bench::{self, BenchArgs};
use corelane::config::args::{Args, BrokerArgs, Command, ConfigCommand};
use corelane::config::{self, ConfigError};
use corelane::offline::{self, Failed};
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
        Command::Verify(args) => offline::verify(&args),
        Command::Dump(args) => offline::dump(&args),
        Command::Import(args) => offline::import(&args),
        Command::Repair(args) => offline::repair(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { sentence, status }) => {
            if let Some(sentence) = sentence {
                eprintln!("corelane: {sentence}");
            }
            ExitCode::from(status)
        }
    }
}

fn serve(args: &BrokerArgs) -> Result<(), Failed> {
    let config = load(args)?;
    server::run(config).map_err(failed)
}

fn show(args: &BrokerArgs) -> Result<(), Failed> {
    print!("{}", config::show(&load(args)?));
    Ok(())
}

fn load(args: &BrokerArgs) -> Result<config::Config, Failed> {
    let loaded =
        config::load(args).map_err(|error: ConfigError| Failed::with(error.exit_status(), error.to_string()))?;
    for warning in &loaded.warnings {
        eprintln!("corelane: warning: {warning}");
    }
    Ok(loaded.config)
}

fn failed(sentence: String) -> Failed {
    Failed::with(FAILED, sentence)
}
