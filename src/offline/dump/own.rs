//! corelane's own files: the store, logs and catalogs, checkpoints, named losses.

use std::path::Path;

use super::{Printer, Stop, content_of};
use crate::broker::catalog::CatalogRecord;
use crate::config::Overrides;
use crate::ids::LogId;
use crate::log::checkpoint::{Checkpoint, Kind, PartitionEntry, ProducerEntry};
use crate::log::group_scan::{FoundGroup, GroupScan, Step};
use crate::log::log_file::{FLAG_SNAPSHOT, Fault, FileHeader, FoundRecord, RecordKind, Records};
use crate::log::log_files::read_header;
use crate::log::losses::Losses;
use crate::log::scan::BatchFacts;
use crate::log::store::{self, StoreState};
use crate::offline::value::Value;
use crate::runtime::disk::{Access, Create, Disk};
use crate::runtime::executors::block_on;
use crate::runtime::read_only_disk::ReadOnlyDisk;
use crate::state::window::Remembered;

fn bad(what: impl std::fmt::Display) -> Stop {
    Stop::File(what.to_string())
}

fn hex(bytes: &[u8]) -> Value {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")).into()
}

/// Prints both slots of the store.
pub(super) fn print_store(printer: &mut Printer, path: &Path) -> Result<(), Stop> {
    let file = ReadOnlyDisk.open(path, Access::Buffered, Create::Never).map_err(bad)?;
    for (slot, state) in (0_u8..).zip(block_on(store::read_slots(&file, path)).map_err(bad)?) {
        let mut pairs = vec![("slot", slot.into())];
        match state {
            Ok(state) => pairs.extend(store_pairs(&state)),
            Err(Fault::Damaged) => pairs.push(("state", "empty or damaged".into())),
            Err(Fault::UnknownVersion(version)) => pairs.push(("unknown_version", version.into())),
        }
        printer.item(pairs)?;
    }
    Ok(())
}

fn store_pairs(state: &StoreState) -> Vec<(&'static str, Value)> {
    vec![
        ("counter", state.counter.into()),
        ("clean", state.clean.into()),
        ("generation", state.generation.into()),
        ("live_generation", state.live_generation.into()),
        ("store_id", hex(&state.store_id)),
        ("block_log2", state.block_log2.into()),
    ]
}

/// Prints header, groups and records of a file of the commit log or the catalog.
pub(super) fn print_log(printer: &mut Printer, path: &Path) -> Result<(), Stop> {
    let Some(header) = block_on(read_header(&ReadOnlyDisk, path)).map_err(bad)? else {
        return Ok(printer.item(vec![("header", "empty or damaged: the file is not in use".into())])?);
    };
    printer.item(vec![("header", Value::Named(header_pairs(&header)))])?;
    let file = ReadOnlyDisk.open(path, Access::Buffered, Create::Never).map_err(bad)?;
    let mut scan = GroupScan::new(&file, path, header).map_err(bad)?;
    let mut expected = None;
    loop {
        let position = scan.position;
        let group = match block_on(scan.next(expected)).map_err(bad)? {
            Step::Group(group) => group,
            Step::Damaged(group) => {
                printer.item(vec![("damaged_from", position.into()), ("to", group.position.into())])?;
                group
            }
            Step::End => break,
        };
        expected = Some(group.sequence() + 1);
        print_group(printer, &group)?;
    }
    if block_on(scan.is_torn()).map_err(bad)? {
        printer.item(vec![("torn_at", scan.position.into())])?;
    }
    Ok(())
}

fn header_pairs(header: &FileHeader) -> Vec<(&'static str, Value)> {
    vec![
        ("shard", header.shard.into()),
        ("generation", header.generation.into()),
        ("file_number", header.file_number.into()),
        ("salt", header.salt.into()),
        ("store_id", hex(&header.store_id)),
        ("size_mib", header.size_mib.into()),
        ("block_log2", header.block_log2.into()),
    ]
}

fn print_group(printer: &mut Printer, group: &FoundGroup) -> Result<(), Stop> {
    let stamp = group.header.stamp;
    printer.item(vec![(
        "group",
        Value::Named(vec![
            ("position", group.position.into()),
            ("sequence", stamp.sequence.into()),
            ("records", group.header.records.into()),
            ("payload_bytes", group.header.payload_bytes.into()),
            ("committed_ms", stamp.committed_ms.into()),
            ("snapshot", (stamp.flags & FLAG_SNAPSHOT != 0).into()),
        ]),
    )])?;
    for record in Records::new(&group.payload).flatten() {
        let data = group.payload.get(record.data_at..record.data_at + record.data_bytes).unwrap_or_default();
        printer.item(vec![("record", record_value(&record, data))])?;
    }
    Ok(())
}

fn record_value(record: &FoundRecord, data: &[u8]) -> Value {
    let of_log =
        |kind: &str| vec![("kind", kind.into()), ("log_id", record.log_id.0.into()), ("offset", record.offset.into())];
    match record.kind {
        RecordKind::BATCH => {
            let mut pairs = of_log("batch");
            pairs.push(("bytes", Value::Number(data.len() as i128)));
            if let Some(facts) = BatchFacts::read(data, 0) {
                pairs.push(("last_offset", facts.last_offset.into()));
                pairs.push(("producer_id", facts.producer_id.into()));
                pairs.push(("base_sequence", facts.base_sequence.into()));
            }
            Value::Named(pairs)
        }
        RecordKind::LOG_START => Value::Named(of_log("log start")),
        RecordKind(kind) => match CatalogRecord::decode(kind, data) {
            Ok(record) => catalog_value(&record),
            Err(error) => Value::Named(vec![("kind", kind.into()), ("error", error.to_string().into())]),
        },
    }
}

fn catalog_value(record: &CatalogRecord) -> Value {
    let logs = |logs: &[LogId]| Value::List(logs.iter().map(|log| log.0.into()).collect());
    Value::Named(match record {
        CatalogRecord::Identity { cluster_id, node_id } => {
            vec![
                ("kind", "identity".into()),
                ("cluster_id", cluster_id.as_str().into()),
                ("node_id", (*node_id).into()),
            ]
        }
        CatalogRecord::TopicMade { name, id, internal, logs: ids, overrides } => vec![
            ("kind", "topic made".into()),
            ("name", name.as_str().into()),
            ("id", id.to_string().into()),
            ("internal", (*internal).into()),
            ("logs", logs(ids)),
            ("settings", settings(overrides)),
        ],
        CatalogRecord::TopicRemoved { id } => vec![("kind", "topic removed".into()), ("id", id.to_string().into())],
        CatalogRecord::PartitionsAdded { id, logs: ids } => {
            vec![("kind", "partitions added".into()), ("id", id.to_string().into()), ("logs", logs(ids))]
        }
        CatalogRecord::PartitionLog { id, partition, log } => vec![
            ("kind", "partition has another log".into()),
            ("id", id.to_string().into()),
            ("partition", (*partition).into()),
            ("log", log.0.into()),
        ],
        CatalogRecord::TopicConfigs { id, overrides } => {
            vec![("kind", "topic settings".into()), ("id", id.to_string().into()), ("settings", settings(overrides))]
        }
        CatalogRecord::BrokerConfigs { all, broker } => {
            vec![("kind", "broker settings".into()), ("all", settings(all)), ("broker", settings(broker))]
        }
        CatalogRecord::Counters { next_log_id, next_producer_id } => vec![
            ("kind", "counters".into()),
            ("next_log_id", (*next_log_id).into()),
            ("next_producer_id", (*next_producer_id).into()),
        ],
    })
}

fn settings(overrides: &Overrides) -> Value {
    Value::List(overrides.iter().map(|(name, value)| format!("{name}={value}").into()).collect())
}

/// Prints a checkpoint.
pub(super) fn print_checkpoint(printer: &mut Printer, path: &Path) -> Result<(), Stop> {
    let checkpoint = Checkpoint::decode(&content_of(path)?).map_err(bad)?;
    let header = &checkpoint.header;
    printer.item(vec![(
        "checkpoint",
        Value::Named(vec![
            ("kind", if header.kind == Kind::Full { "full" } else { "delta" }.into()),
            ("shard", header.shard.into()),
            ("generation", header.generation.into()),
            ("seq", header.seq.into()),
            ("previous", header.previous.into()),
            ("oldest_needed_file", header.oldest_needed_file.into()),
        ]),
    )])?;
    for partition in &checkpoint.partitions {
        printer.item(vec![("partition", Value::Named(partition_pairs(partition)))])?;
    }
    for producer in checkpoint.producers() {
        printer.item(vec![("producer", Value::Named(producer_pairs(&producer)))])?;
    }
    Ok(())
}

fn partition_pairs(entry: &PartitionEntry) -> Vec<(&'static str, Value)> {
    vec![
        ("log_id", entry.log_id.0.into()),
        ("removed", entry.removed.into()),
        ("log_start", entry.log_start.into()),
        ("recovery_point", entry.recovery_point.into()),
        ("segment_base", entry.segment_base.into()),
        ("position", entry.position.into()),
        ("leader_epoch", entry.leader_epoch.into()),
        ("segment_file_bytes", entry.segment_file_bytes.into()),
    ]
}

fn producer_pairs(entry: &ProducerEntry) -> Vec<(&'static str, Value)> {
    let mut pairs = vec![("log_id", entry.log_id.0.into()), ("producer_id", entry.producer_id.0.into())];
    let Some(state) = &entry.state else {
        pairs.push(("forgotten", true.into()));
        return pairs;
    };
    let batch = |batch: &Remembered| {
        Value::Named(vec![
            ("base_offset", batch.base_offset.into()),
            ("last_offset", batch.last_offset().into()),
            ("first_sequence", batch.first_sequence.0.into()),
            ("last_sequence", batch.last_sequence().0.into()),
            ("max_timestamp", batch.max_timestamp.into()),
        ])
    };
    pairs.extend([
        ("epoch", state.epoch.0.into()),
        ("coordinator_epoch", state.coordinator_epoch.into()),
        ("last_append_ms", state.last_append_ms.into()),
        ("txn_first_offset", state.txn_first_offset().into()),
        ("window", Value::List(state.window.batches().iter().map(batch).collect())),
    ]);
    pairs
}

/// Prints the list of lost offsets.
pub(super) fn print_losses(printer: &mut Printer, path: &Path) -> Result<(), Stop> {
    for loss in Losses::decode(&content_of(path)?).map_err(bad)?.ranges() {
        let last = loss.to.plus(-1);
        printer.item(vec![("first", loss.from.into()), ("last", last.into()), ("accepted", loss.accepted.into())])?;
    }
    Ok(())
}
