//! Indexes, snapshots, seals and Kafka's text files.

use std::path::Path;

use super::{Printer, Stop, content_of};
use crate::ids::Offset;
use crate::log::index::{OffsetIndex, TimeIndex, TimestampOffset};
use crate::log::kafka_files;
use crate::log::names::Kind;
use crate::log::seal::Seal;
use crate::log::{snapshot, txn_index};
use crate::offline::value::Value;

fn bad(damage: impl std::fmt::Display) -> Stop {
    Stop::File(damage.to_string())
}

/// Prints a file that stands beside a segment.
pub(super) fn print(printer: &mut Printer, path: &Path, kind: Kind) -> Result<(), Stop> {
    let file = content_of(path)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let base = name.get(..20).and_then(|digits| digits.parse().ok()).map_or(Offset(0), Offset);
    let largest = Offset(i64::MAX);
    match kind {
        Kind::Index => {
            for (offset, position) in OffsetIndex::load(base, &file, u64::MAX, largest).map_err(bad)?.entries() {
                printer.item(vec![("offset", offset.into()), ("position", position.into())])?;
            }
        }
        Kind::TimeIndex => {
            for entry in TimeIndex::load(base, &file, largest).map_err(bad)?.entries() {
                printer.item(vec![("timestamp", entry.timestamp.into()), ("offset", entry.offset.into())])?;
            }
        }
        Kind::TxnIndex => {
            for entry in txn_index::decode(&file).map_err(bad)? {
                printer.item(vec![
                    ("producer_id", entry.producer_id.0.into()),
                    ("first_offset", entry.first_offset.into()),
                    ("last_offset", entry.last_offset.into()),
                    ("last_stable_offset", entry.last_stable_offset.into()),
                ])?;
            }
        }
        Kind::Snapshot => print_snapshot(printer, &file)?,
        Kind::Seal => printer.item(seal_pairs(&Seal::decode(&file).map_err(bad)?))?,
        Kind::Log => {}
    }
    Ok(())
}

fn print_snapshot(printer: &mut Printer, file: &[u8]) -> Result<(), Stop> {
    for entry in snapshot::decode(file).map_err(bad)? {
        printer.item(vec![
            ("producer_id", entry.producer_id.0.into()),
            ("epoch", entry.epoch.0.into()),
            ("last_sequence", entry.last_sequence.into()),
            ("last_offset", entry.last_offset.into()),
            ("offset_delta", entry.offset_delta.into()),
            ("timestamp", entry.timestamp.into()),
            ("coordinator_epoch", entry.coordinator_epoch.into()),
            ("txn_first_offset", entry.txn_first_offset.into()),
        ])?;
    }
    Ok(())
}

fn seal_pairs(seal: &Seal) -> Vec<(&'static str, Value)> {
    let newest = |of: fn(TimestampOffset) -> Value| seal.newest.map_or(Value::Null, of);
    vec![
        ("open", seal.open.into()),
        ("log_id", seal.log_id.0.into()),
        ("generation", seal.generation.into()),
        ("base", seal.base.into()),
        ("end", seal.end.into()),
        ("log_bytes", seal.log_bytes.into()),
        ("max_timestamp", newest(|newest| newest.timestamp.into())),
        ("max_timestamp_offset", newest(|newest| newest.offset.into())),
        ("first_timestamp", seal.first_timestamp.into()),
        ("abort_entries", seal.abort_entries.into()),
        ("log_crc", seal.crcs.log.into()),
        ("txnindex_crc", seal.crcs.txnindex.into()),
        ("index_crc", seal.crcs.index.into()),
        ("timeindex_crc", seal.crcs.timeindex.into()),
    ]
}

/// Prints leader epochs.
pub(super) fn print_epochs(printer: &mut Printer, path: &Path) -> Result<(), Stop> {
    let file = content_of(path)?;
    for entry in kafka_files::parse_leader_epochs(&String::from_utf8_lossy(&file)).map_err(bad)? {
        printer.item(vec![("epoch", entry.epoch.into()), ("start_offset", entry.start.into())])?;
    }
    Ok(())
}

/// Prints a file of text as it is.
pub(super) fn print_text(printer: &mut Printer, path: &Path) -> Result<(), Stop> {
    let file = content_of(path)?;
    for line in String::from_utf8_lossy(&file).lines() {
        printer.item(vec![("line", line.into())])?;
    }
    Ok(())
}
