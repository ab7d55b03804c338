//! The command line, as typed.

use super::listeners::Endpoint;
use super::offline_args::{DumpArgs, ImportArgs, RepairArgs, VerifyArgs};
use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;

/// The whole command line. `B` is what `corelane bench` takes; the load generator stands above this module.
#[derive(Debug, Parser)]
#[command(
    name = "corelane",
    version,
    about = "A log broker that speaks the Kafka protocol: one core, one shard, durable by default."
)]
#[command(after_help = "Without a command the broker is started, as by `corelane serve`.")]
pub struct Args<B: ClapArgs> {
    /// What to do; nothing means serve.
    #[command(subcommand)]
    command: Option<Command<B>>,
}

impl<B: ClapArgs> Args<B> {
    /// What to do.
    #[must_use]
    pub fn command(self) -> Command<B> {
        self.command.unwrap_or_else(|| Command::Serve(BrokerArgs::default()))
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command<B: ClapArgs> {
    /// Start the broker
    Serve(BrokerArgs),
    /// Show the settings
    Config(ConfigArgs),
    /// Load a broker and measure it
    Bench(B),
    /// Check every file of a stopped broker's data folder; writes nothing
    Verify(VerifyArgs),
    /// Print what files of a data folder hold
    Dump(DumpArgs),
    /// Take the folder of a partition into a stopped broker's data folder
    Import(ImportArgs),
    /// Repair a stopped broker's data folder
    Repair(RepairArgs),
}

/// Arguments of `corelane config`.
#[derive(Debug, ClapArgs)]
pub struct ConfigArgs {
    /// What to show.
    #[command(subcommand)]
    pub what: ConfigCommand,
}

/// What `corelane config` does.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting with its value and where it was set
    Show(BrokerArgs),
    /// Print what every setting is for, as Markdown
    Docs,
}

/// Arguments of everything that needs the broker's settings.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct BrokerArgs {
    /// Address to listen on; port 0 takes a free one [setting: listeners]
    #[arg(long, value_name = "HOST:PORT", value_parser = Endpoint::parse)]
    pub listen: Option<Endpoint>,
    /// Address that clients are told to connect to [setting: advertised.listeners]
    #[arg(long, value_name = "HOST:PORT", value_parser = Endpoint::parse)]
    pub advertise: Option<Endpoint>,
    /// Folder of the data [setting: log.dirs]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Number of cores to use, one shard each [setting: corelane.cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: Option<u32>,
    /// File of settings, in Kafka's properties format
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Any other setting, by name; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
}

/// A setting given on the command line.
pub(super) struct Given {
    pub flag: &'static str,
    pub name: String,
    pub value: String,
}

impl BrokerArgs {
    /// Every setting given on the command line, under its own name.
    pub(super) fn given(&self) -> Result<Vec<Given>, String> {
        let mut given: Vec<Given> = Vec::new();
        let mut push = |flag, name: &str, value: String| given.push(Given { flag, name: name.to_owned(), value });
        if let Some(listen) = &self.listen {
            push("--listen", "listeners", format!("PLAINTEXT://{listen}"));
        }
        if let Some(advertise) = &self.advertise {
            push("--advertise", "advertised.listeners", format!("PLAINTEXT://{advertise}"));
        }
        if let Some(folder) = &self.data_dir {
            let folder = folder.to_str().ok_or_else(|| format!("--data-dir {} is not UTF-8.", folder.display()))?;
            push("--data-dir", "log.dirs", folder.to_owned());
        }
        if let Some(cores) = self.cores {
            push("--cores", "corelane.cores", cores.to_string());
        }
        for (name, value) in &self.set {
            push("--set", name, value.clone());
        }
        Ok(given)
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| "it is not KEY=VALUE".to_owned())?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[derive(Debug, ClapArgs)]
    struct NoBench {}

    fn parse(words: &[&str]) -> Result<Command<NoBench>, clap::Error> {
        Args::try_parse_from([&["corelane"], words].concat()).map(Args::command)
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Args::<NoBench>::command_factory_check();
    }

    impl Args<NoBench> {
        fn command_factory_check() {
            <Self as CommandFactory>::command().debug_assert();
        }
    }

    #[test]
    fn nothing_means_serve() {
        assert!(matches!(parse(&[]), Ok(Command::Serve(_))));
    }

    #[test]
    fn flags_are_settings() {
        let words =
            ["serve", "--listen", "[::1]:0", "--data-dir", "/d", "--cores", "2", "--set", "a=b=c", "--set", "d="];
        let Ok(Command::Serve(args)) = parse(&words) else { panic!("{words:?} is refused") };
        let given: Vec<_> = args.given().unwrap().into_iter().map(|given| (given.name, given.value)).collect();
        let pairs = [
            ("listeners", "PLAINTEXT://[::1]:0"),
            ("log.dirs", "/d"),
            ("corelane.cores", "2"),
            ("a", "b=c"),
            ("d", ""),
        ];
        assert_eq!(given, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn wrong_arguments_end_with_2() {
        for words in [
            &["serve", "--listen", "9092"][..],
            &["serve", "--cores", "0"],
            &["serve", "--set", "a"],
            &["srve"],
            &["config"],
            &["verify"],
            &["dump", "--json"],
            &["import"],
            &["repair"],
            &["repair", "accept-loss", "--yes"],
        ] {
            assert_eq!(parse(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
        assert_eq!(parse(&["--version"]).unwrap_err().exit_code(), 0);
    }
}
