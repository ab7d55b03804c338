//! The abort indexes beside the segments: each abort marker that ended something must be in one, or readers of committed
//! records would see what was aborted.

use super::Check;
use super::partition::Place;
use crate::log::names::{self, Kind};
use crate::log::txn_index::{self, AbortedTxn};
use crate::runtime::disk::Disk;
use crate::runtime::executors::block_on;
use crate::runtime::read_only_disk::ReadOnlyDisk;

/// Looks for what the batches have told of in the files. What is behind the recovery point need not be there yet.
pub(super) fn check(check: &Check, place: &Place, aborted: &[AbortedTxn]) {
    const FOLLOWS: &str = "A start, or the first reader of committed records, makes it anew from the batches.";
    let bases = place.entries.iter().filter_map(|entry| match names::parse(&entry.name) {
        Some((base, Kind::Log)) => Some(base),
        _ => None,
    });
    let mut bases: Vec<_> = bases.collect();
    bases.sort_unstable();
    for (at, base) in bases.iter().enumerate() {
        let next = bases.get(at + 1);
        let is_flushed = |txn: &&AbortedTxn| {
            place.is_clean || place.entry.is_some_and(|entry| txn.last_offset < entry.recovery_point)
        };
        let is_here = |txn: &&AbortedTxn| txn.last_offset >= *base && next.is_none_or(|next| txn.last_offset < *next);
        let wanted: Vec<_> = aborted.iter().filter(is_here).filter(is_flushed).collect();
        if wanted.is_empty() {
            continue;
        }
        let path = names::path(&place.folder, *base, Kind::TxnIndex);
        let file = block_on(ReadOnlyDisk.read_file(&path)).unwrap_or_default();
        // What cannot be decoded is named elsewhere.
        let Ok(known) = txn_index::decode(&file) else { continue };
        let is_known = |txn: &AbortedTxn| {
            known.iter().any(|one| (one.producer_id, one.last_offset) == (txn.producer_id, txn.last_offset))
        };
        let missing = wanted.iter().filter(|txn| !is_known(txn)).count();
        if let Some(first) = wanted.iter().find(|txn| !is_known(txn)) {
            let (id, marker) = (first.producer_id.0, first.last_offset);
            let what = format!(
                "{missing} aborted transactions are not in it, the first is that of producer {id} up to {marker}"
            );
            check.findings.damage(&path, None, what, FOLLOWS);
        }
    }
}
