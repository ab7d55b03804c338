//! The files in `corelane/`: store, catalog, checkpoints, commit logs.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Known;
use crate::broker::catalog::{Catalog, CatalogRecord};
use crate::broker::recovery::shard_folders;
use crate::config::Config;
use crate::ids::LogId;
use crate::log::catalog_log::{self, CatalogFile};
use crate::log::checkpoint::Kind;
use crate::log::checkpoint_chain::{self as chain, View};
use crate::log::layout::Layout;
use crate::log::log_file::{CATALOG_SHARD, Fault, FileHeader};
use crate::log::log_files::{FoundLog, list_log_files};
use crate::log::log_reader::{LogContents, LogFolder, read_logs};
use crate::log::store::{self, StoreState};
use crate::offline::finding::Findings;
use crate::runtime::disk::{Access, Create, Disk, DiskFile};
use crate::runtime::executors::block_on;
use crate::runtime::read_only_disk::ReadOnlyDisk;

const FROM_A_COPY: &str = "Put it back from a copy of the data folder.";
const REPAIR_CATALOG: &str = "The broker does not start. `corelane repair catalog` makes a new one from the partitions' folders; without --yes it \
     says what it would do.";

/// Reads everything beside the partitions; what cannot be read is in `findings` and missing in the result.
pub(super) fn read(layout: &Layout, findings: &Findings) -> Known {
    let own = layout.own();
    let store = check_store(&own, findings);
    let catalog = check_catalog(&own, store.as_ref(), findings);
    let is_clean = store.is_some_and(|store| store.clean);
    let (view, folders, found) = check_shards(&own, store.as_ref(), findings);
    let contents = match store.filter(|store| !store.clean) {
        Some(store) => check_logs(&folders, store, findings),
        None => LogContents::default(),
    };
    let known = Known { layout: layout.clone(), is_clean, catalog, view, contents };
    check_unknown_logs(&known, &own, findings);
    check_generations(&found, store.as_ref(), findings);
    name_strangers(&own, findings);
    known
}

/// What the store says; a file that cannot be read is damage.
fn check_store(own: &Path, findings: &Findings) -> Option<StoreState> {
    let path = own.join("store");
    let opened = ReadOnlyDisk.open(&path, Access::Buffered, Create::Never);
    let slots = opened.and_then(|file| block_on(store::read_slots(&file, &path)));
    let slots = match slots {
        Ok(slots) => slots,
        Err(error) => {
            let what = if error.kind() == io::ErrorKind::NotFound { "it is missing".into() } else { error.to_string() };
            findings.damage(&path, None, what, format!("The broker does not start. {FROM_A_COPY}"));
            return None;
        }
    };
    let newest = slots.iter().filter_map(|slot| slot.ok()).max_by_key(|state| state.counter);
    for (slot, at) in slots.iter().zip([0, 4096]) {
        let what = match slot {
            Ok(_) => continue,
            // Until the second write of its life a store has one slot.
            Err(Fault::Damaged) if newest.is_some_and(|newest| newest.counter == 1) => continue,
            Err(Fault::Damaged) => "this copy of the store's state is damaged".to_string(),
            Err(Fault::UnknownVersion(version)) => format!("it has the unknown version {version}"),
        };
        let follows = match newest {
            Some(_) => "The other copy is used; if this was the newer one, the next start recovers as after a crash.",
            None => "The broker does not start.",
        };
        findings.damage(
            &path,
            Some(at),
            what,
            format!("{follows} {}", if newest.is_none() { FROM_A_COPY } else { "" }),
        );
    }
    newest
}

/// The catalog as its newer file says; `None` when neither can be used.
fn check_catalog(own: &Path, store: Option<&StoreState>, findings: &Findings) -> Option<Catalog> {
    let mut newest: Option<(PathBuf, CatalogFile)> = None;
    let mut is_any_there = false;
    for path in catalog_log::file_paths(own) {
        match block_on(catalog_log::look_at(&ReadOnlyDisk, &path)) {
            Ok(None) => is_any_there = true,
            Ok(Some(file)) => {
                is_any_there = true;
                let number = file.header.file_number;
                // Without a snapshot it was not begun: the other one counts.
                let is_begun = file.next_sequence > 1 || file.damaged_at.is_some();
                if is_begun && newest.as_ref().is_none_or(|(_, other)| other.header.file_number < number) {
                    newest = Some((path, file));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => findings.damage(&path, None, error.to_string(), REPAIR_CATALOG),
        }
    }
    let Some((path, file)) = newest else {
        let what = if is_any_there {
            "neither catalog-0 nor catalog-1 has an intact beginning"
        } else {
            "the catalog is missing: neither catalog-0 nor catalog-1 is there"
        };
        findings.damage(&own.join("catalog-0"), None, what, REPAIR_CATALOG);
        return None;
    };
    check_catalog_file(&path, &file, store, findings)?;
    check_copies(&path, &file.header, findings);
    replay_catalog(&path, &file, findings)
}

/// `None` when a start would refuse the file.
fn check_catalog_file(path: &Path, file: &CatalogFile, store: Option<&StoreState>, findings: &Findings) -> Option<()> {
    if file.header.shard != CATALOG_SHARD || store.is_some_and(|store| store.store_id != file.header.store_id) {
        findings.damage(path, Some(0), "it belongs to another data folder", REPAIR_CATALOG);
        return None;
    }
    if file.is_cut {
        findings.damage(path, None, "it is shorter than it was made", REPAIR_CATALOG);
        return None;
    }
    if let Some(position) = file.damaged_at {
        let what = format!("the group of number {} is damaged, and whole ones follow it", file.next_sequence);
        findings.damage(path, Some(position), what, REPAIR_CATALOG);
        return None;
    }
    if file.is_torn {
        let is_clean = store.is_some_and(|store| store.clean);
        let what = format!("the last group, of number {}, is not whole", file.next_sequence);
        let follows = if is_clean {
            "The last stop was in order, so it had been whole: the last change of topics or settings, or the last block of \
             producer ids, is lost. A start does not notice. Put the file back from a copy of the data folder."
        } else {
            "A crash came while it was written: nobody was told of what it holds. If it was changed since, the last change \
             of topics or settings is lost."
        };
        findings.damage_unless(!is_clean, path, Some(file.position), what, follows);
    }
    Some(())
}

fn replay_catalog(path: &Path, file: &CatalogFile, findings: &Findings) -> Option<Catalog> {
    let mut catalog = Catalog::new(Arc::new(Config::defaults()));
    for (kind, bytes) in &file.records {
        match CatalogRecord::decode(*kind, bytes) {
            Ok(record) => catalog.apply(&record),
            Err(error) => {
                let follows = "The broker does not start. Start the release that wrote it.";
                findings.damage(path, None, format!("it holds a record that cannot be read: {error}"), follows);
                return None;
            }
        }
    }
    Some(catalog)
}

/// Of the two copies of a log file's header one is enough; that the other is damaged is worth a word.
fn check_copies(path: &Path, header: &FileHeader, findings: &Findings) {
    let copies = ReadOnlyDisk.open(path, Access::Buffered, Create::Never).and_then(|file| {
        let beginning = block_on(file.read_at(0, 2 * header.block_bytes()))?;
        Ok(FileHeader::copies(&beginning, header.block_log2))
    });
    match copies {
        Ok(copies) => {
            for (at, copy) in [0, header.block_bytes() as u64].into_iter().zip(copies) {
                if copy.as_ref() != Ok(header) {
                    let follows = "The other copy is used; nothing is lost. It goes when the file is begun anew.";
                    findings.damage(path, Some(at), "one of the two copies of the file's header is damaged", follows);
                }
            }
        }
        Err(error) => findings.damage(path, None, format!("it cannot be read: {error}"), ""),
    }
}

/// Checkpoints of all shards, where their logs are, and all log files.
fn check_shards(own: &Path, store: Option<&StoreState>, findings: &Findings) -> (View, Vec<LogFolder>, Vec<FoundLog>) {
    let mut view = View::default();
    let (mut folders, mut found) = (Vec::new(), Vec::new());
    let paths = shard_folders(&ReadOnlyDisk, own).unwrap_or_else(|error| {
        findings.damage(own, None, format!("it cannot be listed: {error}"), "");
        Vec::new()
    });
    if paths.is_empty() && store.is_some_and(|store| store.live_generation > 0) {
        let what = "there is no folder shard-<n>: checkpoints and commit logs are missing";
        findings.damage(own, None, what, lost_logs(store));
    }
    for path in paths {
        let logs = block_on(list_log_files(&ReadOnlyDisk, &path)).unwrap_or_else(|error| {
            findings.damage(&path, None, error.to_string(), "");
            Vec::new()
        });
        let oldest_needed = check_checkpoints(&path, store, &logs, &mut view, findings);
        found.extend(logs);
        name_strangers_of_shard(&path, findings);
        folders.push(LogFolder { path, oldest_needed });
    }
    (view, folders, found)
}

fn lost_logs(store: Option<&StoreState>) -> &'static str {
    if store.is_some_and(|store| store.clean) {
        "The last stop was in order: a start reads the segments as they are."
    } else {
        "What was acknowledged and is not in the segments is lost; a start says which offsets."
    }
}

/// Adds a folder's checkpoints to the view; gives the oldest log file that the newest of the live generation needs.
fn check_checkpoints(
    path: &Path,
    store: Option<&StoreState>,
    logs: &[FoundLog],
    view: &mut View,
    findings: &Findings,
) -> Option<u64> {
    const OLDER: &str = "Older checkpoints and the logs are used; nothing is lost that they prove.";
    let folder = match block_on(chain::read_folder(&ReadOnlyDisk, path)) {
        Ok(folder) => folder,
        Err(error) => {
            findings.damage(path, None, error.to_string(), "The broker does not start.");
            return None;
        }
    };
    for (path, damage) in &folder.damaged {
        findings.damage(path, None, damage.to_string(), OLDER);
    }
    let has_begun = |store: &StoreState| {
        logs.iter().any(|log| log.header.is_some_and(|header| header.generation == store.live_generation))
    };
    // A start that makes more shards, or removes some, may have been cut short: nothing was promised in such a folder.
    if folder.names.is_empty() && store.is_none_or(has_begun) {
        let follows = "A start walks all segments of these partitions and takes their beginning for the log start.";
        findings.damage(path, None, "there is no checkpoint", follows);
    }
    // They are removed one by one, the oldest first.
    let superseded = chain::deletable(&folder.names);
    for checkpoint in &folder.checkpoints {
        let header = &checkpoint.header;
        let has_predecessor = |other: &crate::log::checkpoint::Header| {
            other.generation == header.generation && other.seq == header.previous
        };
        let is_chained = folder.checkpoints.iter().any(|other| has_predecessor(&other.header));
        let own = path.join(chain::name(header.seq, header.kind));
        if header.kind == Kind::Delta && !is_chained && !superseded.contains(&own) {
            let what = format!("its predecessor, number {}, is missing or damaged", header.previous);
            findings.damage(&own, None, what, OLDER);
        }
    }
    view.absorb(&folder.checkpoints);
    let live = store.map(|store| store.live_generation);
    folder.oldest_needed(live?)
}

/// The commit logs of the live generation, as a start would read them.
fn check_logs(folders: &[LogFolder], store: StoreState, findings: &Findings) -> LogContents {
    let mut all = LogContents::default();
    for folder in folders {
        let read = read_logs(&ReadOnlyDisk, std::slice::from_ref(folder), store.live_generation, store.store_id);
        match block_on(read) {
            Ok(contents) => all.merge(contents),
            Err(error) => findings.damage(&folder.path, None, error.to_string(), "The broker does not start."),
        }
    }
    for damage in &all.damages {
        let (path, position) = damage.place();
        let follows = "Batches that are in their segments already lost nothing; of others a start names the offsets that are \
                       gone, and `corelane repair accept-loss` lets their partitions go on.";
        findings.damage(path, position, damage.what(), follows);
    }
    for (path, position) in &all.torn {
        let follows = "A crash came while it was written: nobody was told of it, and a start leaves it out. If it was \
                       changed since, batches that are acknowledged may be missing.";
        findings.note(path, Some(*position), "the last group of the log is not whole", follows);
    }
    for log in &all.found {
        if let Some(header) = log.header.filter(|header| header.generation == store.live_generation) {
            check_copies(&log.path, &header, findings);
        }
    }
    all
}

/// Logs that the catalog never gave out mean that it is older than the logs (storage rule S11).
fn check_unknown_logs(known: &Known, own: &Path, findings: &Findings) {
    let Some(catalog) = &known.catalog else { return };
    let logs = known.contents.batches.keys().chain(known.contents.log_starts.keys()).chain(known.view.logs.keys());
    let unknown: HashSet<LogId> = logs.filter(|log_id| **log_id >= catalog.next_log_id()).copied().collect();
    if let Some(LogId(least)) = unknown.iter().min() {
        let what = format!("commit log or checkpoints know log {least}, which the catalog has never given out");
        let follows =
            "The catalog is older than the data. Put the right catalog-0 and catalog-1 back into this folder.";
        findings.damage(own, None, what, follows);
    }
}

/// A log that is newer than the one that would be replayed: the store says something old.
fn check_generations(found: &[FoundLog], store: Option<&StoreState>, findings: &Findings) {
    let Some(store) = store else { return };
    for log in found {
        let Some(header) = log.header.filter(|header| header.store_id == store.store_id) else { continue };
        if header.generation > store.generation {
            let what =
                format!("it is of generation {}, the store knows of {} only", header.generation, store.generation);
            let follows = "The store is older than the logs: put the right file store back.";
            findings.damage(&log.path, Some(0), what, follows);
        }
    }
}

fn name_strangers(own: &Path, findings: &Findings) {
    let known = |name: &str| {
        matches!(name, "store" | "lock" | "catalog-0" | "catalog-1")
            || name.strip_prefix("shard-").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    name_others(own, known, findings);
}

fn name_strangers_of_shard(shard: &Path, findings: &Findings) {
    let known = |name: &str| {
        name.strip_prefix("log-").is_some_and(|number| number.parse::<u64>().is_ok()) || chain::is_own_name(name)
    };
    name_others(shard, known, findings);
}

fn name_others(folder: &Path, known: impl Fn(&str) -> bool, findings: &Findings) {
    for entry in ReadOnlyDisk.list(folder).unwrap_or_default() {
        if !known(&entry.name) {
            findings.note(&folder.join(&entry.name), None, "no file of corelane has this name", "It is left alone.");
        }
    }
}
