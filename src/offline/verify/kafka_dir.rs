//! What lies in `kafka/` beside the partitions: Kafka's text files, written for others, and folders of nobody.

use std::collections::HashMap;
use std::path::Path;

use super::Check;
use super::folder_files::partition_name;
use super::segment::content_of;
use crate::broker::catalog_host::DELETED_FOLDER;
use crate::ids::{Offset, TopicPartition};
use crate::log::kafka_files::{self, CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, META_PROPERTIES, RECOVERY_POINTS};
use crate::log::names::{self, Kind};
use crate::runtime::disk::{Disk, Entry};
use crate::runtime::read_only_disk::ReadOnlyDisk;

const FOR_KAFKA: &str =
    "corelane does not need it, a Kafka that takes the folder over does. The next clean stop writes it anew.";
const CHECKPOINTS: [&str; 4] = [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS];

/// Checks all of it.
pub(super) fn check(check: &Check) {
    let kafka = check.known.layout.kafka();
    let entries = match ReadOnlyDisk.list(&kafka) {
        Ok(entries) => entries,
        Err(error) => return check.findings.damage(&kafka, None, format!("it cannot be listed: {error}"), ""),
    };
    for entry in &entries {
        let path = kafka.join(&entry.name);
        if entry.is_dir {
            name_folder(check, &path, entry);
        } else if CHECKPOINTS.contains(&entry.name.as_str()) {
            check_offsets(check, &path, &entry.name);
        } else if entry.name == META_PROPERTIES {
            check_identity(check, &path);
        } else if !matches!(entry.name.as_str(), kafka_files::CLEAN_SHUTDOWN | ".lock") {
            check.findings.note(&path, None, "no file of a log dir has this name", "It is left alone.");
        }
    }
    if check.known.is_clean {
        for name in [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, META_PROPERTIES, kafka_files::CLEAN_SHUTDOWN] {
            if !entries.iter().any(|entry| entry.name == name) {
                check.findings.damage(&kafka.join(name), None, "it is missing", FOR_KAFKA);
            }
        }
    }
}

fn name_folder(check: &Check, path: &Path, entry: &Entry) {
    if entry.name.ends_with(DELETED_FOLDER) {
        return check.findings.note(path, None, "a deleted partition", "A start goes on removing it.");
    }
    let Some(catalog) = &check.known.catalog else { return };
    let name = partition_name(&entry.name);
    if name.as_ref().is_none_or(|name| catalog.log_id(name).is_none()) {
        let follows = "It is left alone. `corelane import` takes the folder of a partition in.";
        check.findings.note(path, None, "it belongs to no topic that the catalog knows", follows);
    }
}

fn check_identity(check: &Check, path: &Path) {
    let Ok(Some(content)) = content_of(path) else { return };
    let follows = "A start makes it anew.";
    match kafka_files::parse_meta_properties(&String::from_utf8_lossy(&content)) {
        Err(malformed) => check.findings.damage(path, None, malformed.to_string(), follows),
        Ok(meta) => {
            let Some(catalog) = &check.known.catalog else { return };
            if meta.node_id != catalog.node_id() || meta.cluster_id != catalog.cluster_id() {
                let what = format!(
                    "it names node {} of cluster {}, the catalog says node {} of cluster {}",
                    meta.node_id,
                    meta.cluster_id,
                    catalog.node_id(),
                    catalog.cluster_id()
                );
                check.findings.damage(path, None, what, follows);
            }
        }
    }
}

/// After a clean stop they say what the checkpoints say; after a crash they are of an earlier stop.
fn check_offsets(check: &Check, path: &Path, name: &str) {
    let content = match content_of(path) {
        Ok(content) => content.unwrap_or_default(),
        Err(error) => return check.findings.damage(path, None, format!("it cannot be read: {error}"), FOR_KAFKA),
    };
    let listed = match kafka_files::parse_offsets(&String::from_utf8_lossy(&content)) {
        Ok(listed) => listed,
        Err(malformed) => {
            let normal = !check.known.is_clean && content.is_empty();
            return check.findings.damage_unless(normal, path, None, malformed.to_string(), FOR_KAFKA);
        }
    };
    let (true, Some(catalog)) = (check.known.is_clean && name != CLEANER_OFFSETS, &check.known.catalog) else { return };
    let listed: HashMap<TopicPartition, Offset> = listed.into_iter().collect();
    let is_of_starts = name == LOG_STARTS;
    for topic in catalog.topics() {
        for partition in 0..topic.partition_count() {
            let of = TopicPartition { topic: topic.name.clone(), partition };
            let entry = catalog.log_id(&of).and_then(|log_id| check.known.view.logs.get(&log_id));
            let Some(entry) = entry.map(|merged| merged.partition) else { continue };
            let told = listed.get(&of).copied();
            let right = if is_of_starts { entry.log_start } else { entry.recovery_point };
            // A log that begins with its first segment has no line among the log starts.
            let known = if is_of_starts { told.or_else(|| first_segment(check, &of)) } else { told };
            if known != Some(right) && (known.is_some() || !is_of_starts) {
                let said = known.map_or_else(|| "nothing".to_string(), |known| known.to_string());
                let what = format!("it says {said} for {of}, the checkpoint says {right}");
                return check.findings.damage(path, None, what, FOR_KAFKA);
            }
        }
    }
}

fn first_segment(check: &Check, of: &TopicPartition) -> Option<Offset> {
    let entries = ReadOnlyDisk.list(&check.known.layout.partition(of)).ok()?;
    entries.iter().find_map(|entry| match names::parse(&entry.name) {
        Some((base, Kind::Log)) => Some(base),
        _ => None,
    })
}
