//! What lies in a partition's folder beside its segments: the topic's id, named losses, files on their way, and strangers.

use std::sync::Arc;

use super::Check;
use super::partition::Place;
use super::segment::content_of;
use crate::ids::TopicPartition;
use crate::log::kafka_files;
use crate::log::losses;
use crate::log::names;

/// Endings of files that are on their way somewhere, in Kafka and here.
const ON_THEIR_WAY: [(&str, &str); 4] = [
    (".deleted", "It was deleted and waits to be removed; a start removes it."),
    (".cleaned", "A compaction was cut short; a start removes it."),
    (".swap", "A compaction was cut short; a start finishes it."),
    (".tmp", "A write was cut short; it is not used."),
];

/// Reads `TOPIC-PARTITION`.
pub(in crate::offline) fn partition_name(text: &str) -> Option<TopicPartition> {
    let (topic, partition) = text.rsplit_once('-')?;
    let digits = partition.bytes().all(|byte| byte.is_ascii_digit());
    let partition = partition.parse().ok().filter(|_| digits)?;
    (!topic.is_empty()).then(|| TopicPartition { topic: Arc::from(topic), partition })
}

/// Checks all of it.
pub(super) fn check(check: &Check, place: &Place) {
    check_metadata(check, place);
    check_losses(check, place);
    for entry in &place.entries {
        let path = place.folder.join(&entry.name);
        let known = [kafka_files::LEADER_EPOCHS, kafka_files::PARTITION_METADATA, losses::FILE_NAME];
        if names::parse(&entry.name).is_some() || known.contains(&entry.name.as_str()) {
            continue;
        }
        if let Some((_, follows)) = ON_THEIR_WAY.iter().find(|(ending, _)| entry.name.ends_with(ending)) {
            check.findings.note(&path, None, "a file on its way", *follows);
        } else if entry.name.contains(".unexpected-") || entry.name.contains(".unequal-") {
            check.findings.note(&path, None, "an earlier start has kept these bytes aside", "Nothing reads them.");
        } else {
            check.findings.note(&path, None, "no file of a partition has this name", "It is left alone.");
        }
    }
}

fn check_metadata(check: &Check, place: &Place) {
    let path = place.folder.join(kafka_files::PARTITION_METADATA);
    let follows = "A start makes it anew from the catalog.";
    let content = match content_of(&path) {
        Ok(Some(content)) => content,
        Ok(None) => return check.findings.damage(&path, None, "it is missing", follows),
        Err(error) => return check.findings.damage(&path, None, format!("it cannot be read: {error}"), ""),
    };
    match kafka_files::parse_partition_metadata(&String::from_utf8_lossy(&content)) {
        Err(malformed) => check.findings.damage(&path, None, malformed.to_string(), follows),
        Ok(id) => {
            if let Some(topic) = place.topic.as_ref().filter(|topic| topic.id != id) {
                let what = format!("it names the topic id {id}, the catalog says {}", topic.id);
                let follows = "The broker does not start with another topic's folder in this place: move it away.";
                check.findings.damage(&path, None, what, follows);
            }
        }
    }
}

fn check_losses(check: &Check, place: &Place) {
    let path = place.folder.join(losses::FILE_NAME);
    let topic = place.folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(open) = place.losses.open() {
        let what = format!("acknowledged records are lost: {open}");
        let follows = format!(
            "The partition takes no new records until that is accepted: `corelane repair accept-loss {topic}`."
        );
        check.findings.damage(&path, None, what, follows);
    } else if !place.losses.ranges().is_empty() {
        check.findings.note(&path, None, "it names lost offsets; all were accepted", "");
    }
}
