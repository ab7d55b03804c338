//! One partition: its names, its segments from the first to the last, and what lies beside them.

use std::path::PathBuf;
use std::sync::Arc;

use super::batches::Walk;
use super::{Check, Counts, derived, folder_files, segment};
use crate::broker::catalog::Topic;
use crate::ids::{LogId, Offset, TopicPartition};
use crate::log::checkpoint::PartitionEntry;
use crate::log::log_reader::Located;
use crate::log::losses::{self, Losses};
use crate::log::names::{self, Kind};
use crate::runtime::disk::{Disk, Entry};
use crate::runtime::executors::block_on;
use crate::runtime::read_only_disk::ReadOnlyDisk;

/// One partition to be checked.
pub(super) struct Job {
    pub(super) folder: PathBuf,
    pub(super) name: TopicPartition,
    /// The topic as the catalog has it; `None` where the catalog cannot be read.
    pub(super) topic: Option<Arc<Topic>>,
    pub(super) bytes: u64,
}

/// What is known of a partition before its segments are read.
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) entries: Vec<Entry>,
    pub(super) topic: Option<Arc<Topic>>,
    pub(super) log_id: Option<LogId>,
    /// Its newest entry in a checkpoint.
    pub(super) entry: Option<PartitionEntry>,
    /// Its batches in the commit log, by offset; of two with one offset the first.
    pub(super) located: Vec<Located>,
    pub(super) log_start: Offset,
    pub(super) losses: Losses,
    /// The last stop was in order.
    pub(super) is_clean: bool,
}

impl Place {
    /// Offsets may be missing between batches.
    pub(super) fn may_have_gaps(&self) -> bool {
        self.topic.as_ref().is_none_or(|topic| topic.settings.cleanup_compact)
    }

    /// Up to this byte everything of a segment was flushed: what is wrong below is damage, what is wrong behind comes back
    /// from the commit log, as far as anybody was told of it.
    pub(super) fn flushed_bytes(&self, base: Offset, bytes: u64) -> u64 {
        match self.entry {
            _ if self.is_clean => {
                bytes.max(self.entry.filter(|entry| entry.segment_base == base).map_or(0, |e| e.position))
            }
            Some(entry) if base == entry.segment_base => entry.position,
            Some(entry) if base < entry.recovery_point => bytes,
            _ => 0,
        }
    }

    /// Derived files of a segment may lack what came after the last checkpoint.
    pub(super) fn may_lag(&self, base: Offset) -> bool {
        !self.is_clean && self.entry.is_none_or(|entry| base >= entry.segment_base)
    }
}

/// The partitions that the catalog knows; without a catalog those that have folders.
pub(super) fn jobs(check: &Check) -> Vec<Job> {
    let known = &check.known;
    let kafka = known.layout.kafka();
    let mut jobs = Vec::new();
    match &known.catalog {
        Some(catalog) => {
            for topic in catalog.topics() {
                for partition in 0..topic.partition_count() {
                    let name = TopicPartition { topic: Arc::clone(&topic.name), partition };
                    jobs.push(job(check, name, Some(Arc::clone(topic))));
                }
            }
        }
        None => {
            for entry in ReadOnlyDisk.list(&kafka).unwrap_or_default().into_iter().filter(|entry| entry.is_dir) {
                if let Some(name) = folder_files::partition_name(&entry.name) {
                    jobs.push(job(check, name, None));
                }
            }
        }
    }
    jobs
}

fn job(check: &Check, name: TopicPartition, topic: Option<Arc<Topic>>) -> Job {
    Job { topic, ..job_of(check.known.layout.partition(&name), name) }
}

/// A folder of which nothing is known.
pub(super) fn job_of(folder: PathBuf, name: TopicPartition) -> Job {
    let entries = ReadOnlyDisk.list(&folder).unwrap_or_default();
    let logs = entries.iter().filter(|entry| matches!(names::parse(&entry.name), Some((_, Kind::Log))));
    Job { folder, name, topic: None, bytes: logs.map(|entry| entry.bytes).sum() }
}

/// Checks everything in one partition's folder.
pub(super) fn check(check: &Check, job: &Job) {
    Counts::add(&check.counts.partitions, 1);
    let Some(place) = look(check, job) else { return };
    folder_files::check(check, &place);
    let segments = segments(&place);
    check_beginning(check, &place, &segments);
    let mut walk = Walk::new(check, &place);
    for (at, (base, bytes)) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        segment::check(check, &place, &mut walk, &segment::Subject { base: *base, bytes: *bytes, is_last });
    }
    walk.finish();
    derived::check_orphans(check, &place, &segments);
}

/// What is known of the partition; `None` when there is no folder to be looked at.
fn look(check: &Check, job: &Job) -> Option<Place> {
    let known = &check.known;
    let folder = job.folder.clone();
    let log_id = job.topic.as_ref().and_then(|topic| topic.log_id(job.name.partition));
    let entry = log_id.and_then(|log_id| known.view.logs.get(&log_id)).map(|merged| merged.partition);
    let mut located = log_id.and_then(|log_id| known.contents.batches.get(&log_id)).cloned().unwrap_or_default();
    located.sort_by_key(|one| one.offset);
    located.dedup_by_key(|one| one.offset);
    let entries = match ReadOnlyDisk.list(&folder) {
        Ok(entries) => entries,
        Err(error) => {
            let had_records = entry.is_some_and(|entry| entry.recovery_point > entry.log_start);
            let what = format!("the folder of the partition cannot be read: {error}");
            let follows = if had_records {
                "A start makes it anew, says which offsets are lost, and takes no new records until the loss is accepted."
            } else {
                "It held no records; a start makes it anew."
            };
            check.findings.damage_unless(!known.is_clean && !had_records, &folder, None, what, follows);
            return None;
        }
    };
    let losses = block_on(losses::read(&ReadOnlyDisk, &folder)).unwrap_or_else(|error| {
        check.findings.damage(&folder.join(losses::FILE_NAME), None, error.to_string(), "The broker does not start.");
        Losses::default()
    });
    let logged_start = log_id.and_then(|log_id| known.contents.log_starts.get(&log_id)).copied();
    let known_start = logged_start.into_iter().chain(entry.map(|entry| entry.log_start)).max();
    let first = entries.iter().find_map(|entry| match names::parse(&entry.name) {
        Some((base, Kind::Log)) => Some(base),
        _ => None,
    });
    Some(Place {
        folder,
        entries,
        topic: job.topic.clone(),
        log_id,
        entry,
        located,
        log_start: known_start.or(first).unwrap_or_default(),
        losses,
        is_clean: known.is_clean,
    })
}

fn segments(place: &Place) -> Vec<(Offset, u64)> {
    let log = |entry: &Entry| match names::parse(&entry.name) {
        Some((base, Kind::Log)) if !entry.is_dir => Some((base, entry.bytes)),
        _ => None,
    };
    place.entries.iter().filter_map(log).collect()
}

/// Segments that a checkpoint promises and that are not there.
fn check_beginning(check: &Check, place: &Place, segments: &[(Offset, u64)]) {
    let Some(entry) = place.entry else { return };
    let first = segments.first().map_or(entry.recovery_point, |first| first.0);
    let missing_to = first.min(entry.recovery_point);
    if place.log_start < missing_to && !place.losses.covers(place.log_start, missing_to) {
        let what = format!("segments are missing: offsets {} to {} have no file", place.log_start, missing_to.0 - 1);
        check.findings.damage(&place.folder, None, what, lost_below(place));
    }
    let has_active = segments.iter().any(|(base, _)| *base == entry.segment_base);
    if entry.position > 0 && !has_active && first < entry.segment_base {
        let from = entry.segment_base.max(place.log_start);
        if from < entry.recovery_point && !place.losses.covers(from, entry.recovery_point) {
            let what = format!("it is missing: offsets {from} to {} were flushed to it", entry.recovery_point.0 - 1);
            check.findings.damage(
                &names::path(&place.folder, entry.segment_base, Kind::Log),
                None,
                what,
                lost_below(place),
            );
        }
    }
}

/// What follows from flushed records that are gone.
pub(super) fn lost_below(place: &Place) -> String {
    let topic = place.folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!(
        "Acknowledged records are lost, unless the commit log still holds them. Put the file back from a copy, or let the \
         partition go on without them: `corelane repair accept-loss {topic}`."
    )
}
