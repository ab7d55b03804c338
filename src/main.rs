//! The command `corelane`.

use clap::Parser;
use corelane::config::args::{Args, BrokerArgs, Command, ConfigCommand};
use corelane::config::{self, ConfigError};
use std::process::ExitCode;

/// Arguments of `corelane bench`.
#[derive(Debug, clap::Args)]
struct BenchArgs {}

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
        Command::Bench(_) => Ok(()), // the load generator is not built yet
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelane: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

fn serve(args: &BrokerArgs) -> Result<(), ConfigError> {
    let loaded = config::load(args)?;
    for warning in &loaded.warnings {
        eprintln!("corelane: warning: {warning}");
    }
    Ok(())
}

fn show(args: &BrokerArgs) -> Result<(), ConfigError> {
    let loaded = config::load(args)?;
    for warning in &loaded.warnings {
        eprintln!("corelane: warning: {warning}");
    }
    print!("{}", config::show(&loaded.config));
    Ok(())
}
