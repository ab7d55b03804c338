//! `corelane repair accept-loss`: a partition that refuses writes because acknowledged records are gone takes them again
//! (docs/adr/0013-named-losses.md).

use std::path::PathBuf;

use super::Failed;
use super::folder::Held;
use crate::broker::catalog::names;
use crate::config::offline_args::AcceptLossArgs;
use crate::log::layout::Layout;
use crate::log::losses;
use crate::runtime::executors::block_on;
use crate::runtime::real_disk::RealDisk;

/// See the module.
///
/// # Errors
/// A sentence: what stands against it.
pub(super) fn run(args: &AcceptLossArgs) -> Result<(), Failed> {
    let held = Held::take(args.data.as_ref())?;
    let (partition, folder) = (&args.partition, folder_of(&held.layout, &args.partition)?);
    let mut losses = block_on(losses::read(&RealDisk, &folder)).map_err(|error| error.to_string())?;
    let Some(lost) = losses.open() else {
        println!("{partition}: nothing is lost that was not accepted already");
        return Ok(());
    };
    println!("{partition}: {lost} were acknowledged and are lost");
    println!(
        "  accepted means: they are not used again, readers go on behind them, and the partition takes new records"
    );
    if !args.yes {
        println!("  nothing was changed; give --yes to accept it");
        return Ok(());
    }
    losses.accept_all();
    block_on(losses::write(&RealDisk, &folder, &losses)).map_err(|error| error.to_string())?;
    println!("  accepted, noted in {}", folder.join(losses::FILE_NAME).display());
    Ok(())
}

fn folder_of(layout: &Layout, partition: &str) -> Result<PathBuf, Failed> {
    let parts = partition.rsplit_once('-');
    let is_partition = parts.is_some_and(|(topic, number)| names::is_valid(topic) && number.parse::<u32>().is_ok());
    let folder = layout.kafka().join(partition);
    if is_partition && folder.is_dir() {
        return Ok(folder);
    }
    Err(Failed::from(format!(
        "there is no partition {partition} in {}: name one as TOPIC-PARTITION, for example orders-0",
        layout.kafka().display()
    )))
}
