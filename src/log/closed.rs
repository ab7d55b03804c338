//! What a start can tell of segments that it does not read: from names, sizes and seals (docs/adr/0013-named-losses.md).
//!
//! Segments wholly below the recovery point were flushed and are not walked, so that a start costs what the commit log
//! holds and not what the data is. Pure but for one small read per closed segment.

use std::collections::BTreeSet;
use std::path::Path;

use super::names::{self, Kind};
use super::seal::Seal;
use crate::ids::Offset;
use crate::runtime::disk::Disk;

/// Bases that have an index or a seal and no `.log`: whoever removes a segment removes `.log` last, so it was lost.
///
/// A snapshot says nothing: Kafka's are named by the end of the log, where no segment needs to be.
#[must_use]
pub fn without_log(found: &[String]) -> BTreeSet<Offset> {
    let named = || found.iter().filter_map(|name| names::parse(name));
    let logs: BTreeSet<Offset> = named().filter(|(_, kind)| *kind == Kind::Log).map(|(base, _)| base).collect();
    let derived =
        named().filter(|(_, kind)| matches!(kind, Kind::Index | Kind::TimeIndex | Kind::TxnIndex | Kind::Seal));
    derived.map(|(base, _)| base).filter(|base| !logs.contains(base)).collect()
}

/// Bases that have a seal.
#[must_use]
pub fn sealed(found: &[String]) -> BTreeSet<Offset> {
    let named = found.iter().filter_map(|name| names::parse(name));
    named.filter(|(_, kind)| *kind == Kind::Seal).map(|(base, _)| base).collect()
}

/// The size that a closed segment was sealed with; `None` where no seal says so, which proves nothing.
pub async fn sealed_bytes<D: Disk>(disk: &D, folder: &Path, base: Offset) -> Option<u64> {
    let file = disk.read_file(&names::path(folder, base, Kind::Seal)).await.ok()?;
    let seal = Seal::decode(&file).ok().filter(|seal| seal.base == base && !seal.open)?;
    Some(seal.log_bytes)
}
