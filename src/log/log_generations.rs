//! Which generation of the commit logs is the live one, where the store's word for it may be lost.
//!
//! The store has two slots, and the newer one may be damaged. The older one then says that an earlier generation is live,
//! whose log files may be used again already. But a generation writes its first group only when the store has called it live
//! (storage rule S13), so the logs prove it: the newest generation with a group is the live one.

use std::io;
use std::path::PathBuf;

use super::group_scan::{GroupScan, Step};
use super::log_files::{FoundLog, list_log_files, named};
use crate::runtime::disk::{Access, Create, Disk};

/// The newest generation above `known` of which a log file holds a group; `known` where there is none.
///
/// # Errors
/// What the disk says; `InvalidData` for a file of a later version.
pub async fn newest_begun<D: Disk>(disk: &D, folders: &[PathBuf], store_id: [u8; 16], known: u64) -> io::Result<u64> {
    let mut newest = known;
    for folder in folders {
        for log in list_log_files(disk, folder).await? {
            let generation =
                log.header.filter(|header| header.store_id == store_id).map_or(0, |found| found.generation);
            if generation > newest && holds_group(disk, &log).await? {
                newest = generation;
            }
        }
    }
    Ok(newest)
}

async fn holds_group<D: Disk>(disk: &D, log: &FoundLog) -> io::Result<bool> {
    let Some(header) = log.header else { return Ok(false) };
    let file = disk.open(&log.path, Access::DirectSync, Create::Never).map_err(named(&log.path, "cannot open"))?;
    let mut scan = GroupScan::new(&file, &log.path, header)?;
    Ok(!matches!(scan.next(None).await?, Step::End))
}
