//! `corelane import`: takes the folder of a partition in, from Apache Kafka or from another corelane.
//!
//! Order: everything is checked → the files are copied beside, and flushed → the generation is raised above the leader
//! epochs that came along → the catalog gives the partition a log of its own → the folder gets its name. A crash before the
//! last step leaves an empty partition, and the command may be given again. No checkpoint knows the new log, so the next
//! start reads and checks all of it, and takes what producers did from its batches and its newest `.snapshot`.

mod source;
mod target;

use super::Failed;
use super::folder::Held;
use crate::config::offline_args::ImportArgs;
use source::Source;
use target::Target;

/// Takes a folder in, or says what that would do.
///
/// # Errors
/// A sentence: what stands against it.
#[expect(clippy::print_stdout, reason = "the result is what was asked for")]
pub(super) fn run(args: &ImportArgs) -> Result<(), Failed> {
    let held = Held::take(args.data.as_ref())?;
    let source = Source::check(&args.partition_folder)?;
    let target = Target::plan(&held, &source, args.topic.as_deref())?;
    println!("{}", source.text());
    println!("{}", target.text());
    if !args.yes {
        println!("Nothing was changed. With --yes it is done.");
        return Ok(());
    }
    target.take_in(&held, &source)?;
    println!("Done. The next start reads and checks all of it once more, and makes its indexes.");
    Ok(())
}
