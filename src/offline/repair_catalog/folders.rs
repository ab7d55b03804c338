//! Which topics the folders of a log dir show.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::{partition_name, topic_of};
use crate::broker::catalog::names;
use crate::broker::catalog_host::new_topic_id;
use crate::ids::TopicId;
use crate::log::layout::Layout;
use crate::offline::Failed;
use crate::runtime::disk::Disk;
use crate::runtime::real_disk::RealDisk;

/// A topic as its folders show it.
pub(super) struct FoundTopic {
    pub(super) name: Arc<str>,
    pub(super) id: TopicId,
    /// One more than the highest partition that has a folder.
    pub(super) count: i32,
    pub(super) folders: BTreeMap<i32, PathBuf>,
}

/// The topics, by name.
///
/// # Errors
/// A sentence: folders of one topic that name different ids.
pub(super) fn find(layout: &Layout) -> Result<Vec<FoundTopic>, Failed> {
    let kafka = layout.kafka();
    let entries = RealDisk.list(&kafka).map_err(|error| format!("{}: {error}", kafka.display()))?;
    let mut found: BTreeMap<Arc<str>, BTreeMap<i32, PathBuf>> = BTreeMap::new();
    for entry in entries.into_iter().filter(|entry| entry.is_dir) {
        // Deleted and strange folders end in something that is no number.
        let Some(of) = partition_name(&entry.name).filter(|of| names::is_valid(&of.topic)) else { continue };
        found.entry(of.topic).or_default().insert(of.partition, kafka.join(&entry.name));
    }
    found.into_iter().map(|(name, folders)| topic(name, folders)).collect()
}

fn topic(name: Arc<str>, folders: BTreeMap<i32, PathBuf>) -> Result<FoundTopic, Failed> {
    let mut id = None;
    for folder in folders.values() {
        let Some(named) = topic_of(folder) else { continue };
        if *id.get_or_insert(named) != named {
            let sentence = format!(
                "the folders of the topic {name} name different topic ids, {} another than those before: move away what does \
                 not belong here",
                folder.display()
            );
            return Err(sentence.into());
        }
    }
    let count = folders.keys().next_back().map_or(0, |last| last + 1);
    Ok(FoundTopic { name, id: id.unwrap_or_else(new_topic_id), count, folders })
}
