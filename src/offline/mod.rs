//! The commands that work on the files of a stopped broker: look, say, and change nothing that was not asked for.
//!
//! What reads a format here is what recovery reads it with; there is no second parser of anything. Everything is read in
//! pieces, so that a folder of any size takes little memory.

mod accept_loss;
pub mod catalog;
mod dump;
pub mod finding;
pub mod folder;
mod import;
pub mod progress;
mod repair_catalog;
pub mod value;
pub mod verify;

use crate::config::offline_args::{DumpArgs, ImportArgs, RepairArgs, RepairCommand, VerifyArgs};

/// Exit status of a command that could not do what was asked, and of `verify` when it has found damage.
const FAILED: u8 = 1;
/// Exit status of `verify` when it cannot check anything.
const CANNOT: u8 = 2;

/// Why a command ends with another status than 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// A sentence for people; `None` where everything was said on standard output.
    pub sentence: Option<String>,
    /// Exit status.
    pub status: u8,
}

impl Failed {
    /// With a sentence.
    #[must_use]
    pub fn with(status: u8, sentence: String) -> Self {
        Self { sentence: Some(sentence), status }
    }
}

impl From<String> for Failed {
    fn from(sentence: String) -> Self {
        Self::with(FAILED, sentence)
    }
}

/// `corelane verify`: checks a data folder.
///
/// # Errors
/// Status 1 for damage, 2 when it cannot be checked.
pub fn verify(args: &VerifyArgs) -> Result<(), Failed> {
    verify::run(args)
}

/// `corelane dump`: prints files.
///
/// # Errors
/// A sentence: a file that cannot be read.
pub fn dump(args: &DumpArgs) -> Result<(), Failed> {
    dump::run(args)
}

/// `corelane import`: takes the folder of a partition in.
///
/// # Errors
/// A sentence: what stands against it. Nothing was changed then, if it does not say otherwise.
pub fn import(args: &ImportArgs) -> Result<(), Failed> {
    import::run(args)
}

/// `corelane repair`: see [`RepairCommand`].
///
/// # Errors
/// A sentence: what stands against it. Nothing was changed then, if it does not say otherwise.
pub fn repair(args: &RepairArgs) -> Result<(), Failed> {
    match &args.what {
        RepairCommand::Catalog(args) => repair_catalog::run(args),
        RepairCommand::AcceptLoss(args) => accept_loss::run(args),
    }
}
