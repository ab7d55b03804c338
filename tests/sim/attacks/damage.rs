//! What happens to files while the broker is down: bits flipped, files removed, emptied, zeroed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corelane::log::crc::crc32c;
use corelane::log::log_file::{FileHeader, GroupHeader, RecordKind, Records};
use corelane::log::scan::BatchFacts;

use crate::cluster::DATA;
use crate::readers::mark_of;
use crate::support::dice::Dice;
use crate::support::memory_disk::MemoryDisk;
use crate::world::{Mark, World};

const BLOCK: usize = 4096;

/// A group of the commit log.
struct Group {
    path: PathBuf,
    position: usize,
    bytes: usize,
    sequence: u64,
    batches: Vec<Mark>,
    has_log_start: bool,
}

/// What a damage may cost.
#[derive(Debug, Default)]
pub struct Costs {
    /// Batches that may be gone.
    pub batches: Vec<Mark>,
    /// Log starts may go back.
    pub log_starts: bool,
    /// Partitions may refuse new batches although nothing is missing.
    pub refusals: bool,
}

fn below(folder: &str, disk: &MemoryDisk) -> Vec<PathBuf> {
    let folder = Path::new(DATA).join(folder);
    disk.paths().into_iter().filter(|path| path.starts_with(&folder)).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The files of all commit logs, by the folder of their shard and their number.
fn log_files(disk: &MemoryDisk) -> BTreeMap<(PathBuf, u64), (PathBuf, FileHeader, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for path in below("corelane", disk).into_iter().filter(|path| name(path).starts_with("log-")) {
        let content = disk.content(&path);
        if let Ok(header) = FileHeader::find(&content) {
            let folder = path.parent().unwrap().to_owned();
            found.insert((folder, header.file_number), (path, header, content));
        }
    }
    found
}

/// The highest number of a file of any commit log.
pub fn newest_log_file(disk: &MemoryDisk) -> u64 {
    log_files(disk).keys().map(|(_, number)| *number).max().unwrap_or(0)
}

/// The generation whose commit log is replayed at the next start; `None` after a stop in order.
fn live_generation(disk: &MemoryDisk) -> Option<u64> {
    let path = Path::new(DATA).join("corelane/store");
    let content = if disk.paths().contains(&path) { disk.content(&path) } else { return None };
    let number = |slot: &[u8], at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().unwrap());
    let slots = [0, BLOCK].into_iter().filter_map(|at| content.get(at..at + 64));
    let good = slots.filter(|slot| crc32c(&slot[..60]).to_le_bytes() == slot[60..]);
    let newest = good.max_by_key(|slot| number(slot, 16))?;
    let is_clean = newest[12] & 1 == 1;
    (!is_clean).then(|| number(newest, 32))
}

/// The groups of every shard that the next start reads, in order.
fn groups(disk: &MemoryDisk) -> Vec<Vec<Group>> {
    let Some(live) = live_generation(disk) else { return Vec::new() };
    let mut by_shard: BTreeMap<PathBuf, Vec<Group>> = BTreeMap::new();
    for ((folder, _), (path, header, content)) in log_files(disk) {
        if header.generation != live {
            continue;
        }
        let groups = by_shard.entry(folder).or_default();
        let mut position = usize::try_from(header.first_group()).unwrap();
        while let Some(group) = group_at(&path, &header, &content, position)
            && groups.last().is_none_or(|last| last.sequence + 1 == group.sequence)
        {
            position += group.bytes;
            groups.push(group);
        }
    }
    by_shard.into_values().collect()
}

fn group_at(path: &Path, file: &FileHeader, content: &[u8], position: usize) -> Option<Group> {
    let header = GroupHeader::decode(content.get(position..)?, file).ok()?;
    let payload = content.get(position + 64..)?.get(..header.payload_bytes as usize)?;
    if crc32c(payload) != header.payload_crc {
        return None;
    }
    let records: Vec<_> = Records::new(payload).flatten().collect();
    let data = |record: &corelane::log::log_file::FoundRecord| BatchFacts::read(&payload[record.data_at..], 0);
    let batches = records.iter().filter(|record| record.kind == RecordKind::BATCH).filter_map(data);
    Some(Group {
        path: path.to_owned(),
        position,
        bytes: header.disk_bytes(file),
        sequence: header.stamp.sequence,
        batches: batches.map(|facts| mark_of(&facts)).collect(),
        has_log_start: records.iter().any(|record| record.kind == RecordKind::LOG_START),
    })
}

/// Spoils a group that others stand behind; `None` where there is none.
pub fn spoil_group(disk: &MemoryDisk, dice: &mut Dice) -> Option<Costs> {
    let mut shards = groups(disk);
    shards.iter_mut().for_each(|groups| drop(groups.pop()));
    let mut old: Vec<Group> = shards.into_iter().flatten().collect();
    if old.is_empty() {
        return None;
    }
    let group = old.swap_remove(dice.below(old.len()));
    let at = group.position + [dice.below(64), 64 + dice.below(64)][dice.below(2)];
    disk.change(&group.path, |bytes| bytes[at] ^= 1 << dice.below(8));
    // A bit of the header or of the payload may be one that nobody asks for: then nothing is lost, which is no less right.
    Some(Costs { batches: group.batches, log_starts: group.has_log_start, refusals: true })
}

/// Destroys the newest checkpoint of a shard, or one that a newer one builds upon.
pub fn spoil_checkpoint(disk: &MemoryDisk, dice: &mut Dice) -> Option<Costs> {
    let mut found: Vec<_> = below("corelane", disk)
        .into_iter()
        .filter(|path| name(path).starts_with("checkpoint-") && !name(path).ends_with(".spare"))
        .collect();
    let number =
        |path: &Path| name(path)["checkpoint-".len()..].split('.').next().and_then(|seq| seq.parse::<u64>().ok());
    found.sort_by_key(|path| (number(path), path.clone()));
    let newest = found.len().checked_sub(1)?;
    let at = newest - dice.below(4.min(newest + 1));
    spoil(disk, &found[at], dice);
    Some(Costs { batches: Vec::new(), log_starts: true, refusals: true })
}

/// Empties what says whose a folder is, and removes segments without a byte; costs nothing but time.
pub fn spoil_small(disk: &MemoryDisk, world: &mut World, dice: &mut Dice) {
    for path in below("kafka", disk).into_iter().filter(|path| name(path) == "partition.metadata") {
        if dice.below(3) == 0 {
            empty(disk, &path, dice);
            world.one("files that say whose a folder is emptied");
        }
    }
    remove_empty_segments(disk, world, dice);
}

/// A segment without a byte has nothing to lose but its name. The first name of several is where the log begins, as far as no
/// checkpoint knows better: that one stays.
fn remove_empty_segments(disk: &MemoryDisk, world: &mut World, dice: &mut Dice) {
    let logs: Vec<_> = below("kafka", disk).into_iter().filter(|path| name(path).ends_with(".log")).collect();
    for (at, path) in logs.iter().enumerate() {
        let stands_beside = |other: Option<&PathBuf>| other.is_some_and(|other| other.parent() == path.parent());
        let is_first = at == 0 || !stands_beside(logs.get(at - 1));
        let is_first_of_several = is_first && stands_beside(logs.get(at + 1));
        if !is_first_of_several && dice.below(2) == 0 && disk.content(path).is_empty() {
            // With its indexes: an index without its segment says that records are missing.
            let (folder, stem) = (path.parent(), path.file_stem());
            let is_its = |other: &PathBuf| other.parent() == folder && other.file_stem() == stem;
            disk.paths().iter().filter(|other| is_its(other)).for_each(|other| disk.remove(other));
            world.one("empty segments removed");
        }
    }
}

fn empty(disk: &MemoryDisk, path: &Path, dice: &mut Dice) {
    if dice.below(2) == 0 { disk.remove(path) } else { disk.change(path, Vec::clear) }
}

fn spoil(disk: &MemoryDisk, path: &Path, dice: &mut Dice) {
    let mut how = dice.below(5);
    if disk.content(path).is_empty() {
        how = 0;
    }
    match how {
        0 | 1 => empty(disk, path, dice),
        2 => disk.change(path, |bytes| bytes.fill(0)),
        3 => disk.change(path, |bytes| bytes.truncate(dice.below(bytes.len()))),
        _ => disk.change(path, |bytes| {
            let at = dice.below(bytes.len());
            bytes[at] ^= 1 << dice.below(8);
        }),
    }
}
