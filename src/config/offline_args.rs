//! The command line of the commands that work on files, as typed.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

/// Arguments of `corelane verify`.
#[derive(Clone, Debug, ClapArgs)]
pub struct VerifyArgs {
    /// The data folder (log.dirs) of a broker that is stopped
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `corelane dump`.
#[derive(Clone, Debug, ClapArgs)]
pub struct DumpArgs {
    /// Files of a data folder: segments, indexes, snapshots, seals, logs, catalogs, checkpoints, the store
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    pub json: bool,
    /// Print keys and values of records, in this form
    #[arg(long, value_name = "FORM")]
    pub values: Option<ValueForm>,
}

/// How keys and values are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ValueForm {
    /// As UTF-8; other bytes as \xNN
    Text,
    /// As base64
    Base64,
}

/// Arguments of `corelane import`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ImportArgs {
    /// The folder of one partition, TOPIC-PARTITION, of a stopped Apache Kafka or corelane
    #[arg(value_name = "PARTITION_FOLDER")]
    pub partition_folder: PathBuf,
    /// The data folder that takes it in; its broker must be stopped [setting: log.dirs]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The topic that it becomes a partition of; the one in the folder's name if not given
    #[arg(long, value_name = "NAME")]
    pub topic: Option<String>,
    /// Do it; without this it is only said what would be done
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `corelane repair`.
#[derive(Clone, Debug, ClapArgs)]
pub struct RepairArgs {
    /// What is repaired.
    #[command(subcommand)]
    pub what: RepairCommand,
}

/// What `corelane repair` does.
#[derive(Clone, Debug, Subcommand)]
pub enum RepairCommand {
    /// Make a lost or unreadable catalog anew from the folders of the partitions
    Catalog(RepairCatalogArgs),
    /// Let a partition take records again although acknowledged ones of it are lost
    AcceptLoss(AcceptLossArgs),
}

/// Arguments of `corelane repair catalog`.
#[derive(Clone, Debug, ClapArgs)]
pub struct RepairCatalogArgs {
    /// The data folder; its broker must be stopped [setting: log.dirs]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Do it; without this it is only said what would be done
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `corelane repair accept-loss`.
#[derive(Clone, Debug, ClapArgs)]
pub struct AcceptLossArgs {
    /// The partition, as TOPIC-PARTITION
    #[arg(value_name = "TOPIC-PARTITION")]
    pub partition: String,
    /// The data folder; its broker must be stopped [setting: log.dirs]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Do it; without this it is only said what would be done
    #[arg(long)]
    pub yes: bool,
}
