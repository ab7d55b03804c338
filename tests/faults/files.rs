//! Every file of a data folder, damaged in every way: the start serves with everything that another file proves, or refuses
//! in one sentence that names the file; it never panics.
//!
//! | file | what must come of it |
//! |---|---|
//! | `store` | one bad slot: whole. Both, or the file, gone: refused by name |
//! | `catalog-0`, `catalog-1` | the one in use: whole or refused by name, never with fewer topics. The other: whole |
//! | `log-<k>`, `checkpoint-*`, spare | whole; a later version is refused by name |
//! | `.log` | every batch that is whole in another file or before the damage is there; what is gone is named, refuses writes, and its offsets are not used again. Bytes changed in place below the recovery point are not looked for at a start (`corelane verify` does): they cost themselves, and may hide batches behind them in that segment |
//! | `.index .timeindex .txnindex .seal .snapshot`, epochs, Kafka's texts, `lock` | whole |
//! | `partition.metadata` | whole, or refused by name (another topic's id) |
//!
//! "Whole": every acknowledged batch at its offset, log starts and ends where they were, the last batches of each producer
//! known, the group's offset told, and writing goes on.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use corelane::log::scan::BatchFacts;
use corelane::wire::error_code::ErrorCode;

use crate::cluster::{Cluster, begin_life_on};
use crate::runs_all;
use crate::support::memory_disk::MemoryDisk;
use crate::support::memory_disk::faults::{Call, Failure, Fault, Point};
use crate::support::mini_host;
use crate::world::{Down, SETTINGS, SHARDS, World, committed, list, log_base, look, retry, short};

/// Without `FAULTS=all` one of so many cases is run.
const ONE_IN: usize = 7;

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Removed,
    Cut(usize),
    Zeroed { from: usize, to: usize },
    Flipped { at: usize, bit: u8 },
    Unreadable,
    NotOpened,
}

impl Damage {
    fn name(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Cut(0) => "emptied",
            Self::Cut(_) => "cut",
            Self::Zeroed { .. } => "zeroed",
            Self::Flipped { .. } => "flipped",
            Self::Unreadable => "unreadable",
            Self::NotOpened => "not opened",
        }
    }

    fn all(content: &[u8]) -> Vec<Self> {
        let mut all = vec![Self::Removed, Self::Unreadable, Self::NotOpened, Self::Cut(0)];
        // Log files are zeros behind what is used.
        let size = content.len();
        let used = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if used == 0 {
            return all;
        }
        all.extend([1, size / 3, used / 2, used - 1, size - 1].into_iter().filter(|to| *to < size).map(Self::Cut));
        all.extend([(0, size), (0, 64.min(size)), (used / 2, used)].map(|(from, to)| Self::Zeroed { from, to }));
        let heads = [0, 4, 8, 9, 16, 24, 40, 60, 4096, 4096 + 8, 8192, 8192 + 20, 8192 + 90];
        let spread = (1..5).map(|fifth| used * fifth / 5 + fifth * 7);
        let places = heads.into_iter().chain(spread).chain([used - 1]).filter(|at| *at < used);
        all.extend(places.map(|at| Self::Flipped { at, bit: (at % 8) as u8 }));
        all.dedup();
        all
    }

    fn to(self, disk: &MemoryDisk, path: &Path) {
        let fails = |call| Failure {
            from: Point { call: Some(call), part: Box::leak(path.display().to_string().into_boxed_str()), after: 0 },
            times: u64::MAX,
            fault: Fault::Error,
        };
        match self {
            Self::Removed => disk.remove(path),
            Self::Cut(to) => disk.change(path, |bytes| bytes.truncate(to)),
            Self::Zeroed { from, to } => disk.change(path, |bytes| bytes[from..to].fill(0)),
            Self::Flipped { at, bit } => disk.change(path, |bytes| bytes[at] ^= 1 << bit),
            Self::Unreadable => disk.fail(fails(Call::Read)),
            Self::NotOpened => disk.fail(fails(Call::Open)),
        }
    }

    /// The size stays, and with it everything that a start looks at below the recovery point.
    fn is_in_place(self) -> bool {
        matches!(self, Self::Zeroed { .. } | Self::Flipped { .. } | Self::Unreadable | Self::NotOpened)
    }

    fn is_of_the_disk(self) -> bool {
        matches!(self, Self::Unreadable | Self::NotOpened)
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Came {
    Whole,
    Named,
    Unnoticed,
    Refused,
}

/// What kind of file it is, as the table above calls them.
fn kind(path: &Path) -> &'static str {
    let name = path.file_name().unwrap().to_string_lossy();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending {
        "log" => ".log",
        "index" | "timeindex" | "txnindex" | "seal" | "snapshot" => "derived",
        "full" | "delta" | "spare" => "checkpoint",
        _ if name.starts_with("log-") => "log-<k>",
        _ if name.starts_with("catalog-") => "catalog",
        _ if name == "store" => "store",
        _ if name == "partition.metadata" => "partition.metadata",
        _ => "texts",
    }
}

/// Starts what is left, looks at everything, and says what came of it; an error is a broken promise.
async fn judge(disk: MemoryDisk, world: &World, path: &Path, damage: Damage) -> Result<Came, String> {
    begin_life_on(&disk);
    let cluster = match Cluster::start(&disk, SETTINGS, SHARDS).await {
        Ok(cluster) => cluster,
        Err(sentence) => return refused(&sentence, path, damage),
    };
    let mut came = Came::Whole;
    for known in &world.partitions {
        let found = look(&cluster, known).await?;
        let is_its = path.starts_with(known.folder());
        let is_log = is_its && kind(path) == ".log";
        let expected: Vec<i64> = known.living().map(|(base, _)| *base).collect();
        let lost: Vec<i64> = expected.iter().filter(|base| !found.good.contains(base)).copied().collect();
        if found.end != known.end() {
            return Err(format!("{}: the end went from {} to {}", known.topic, known.end(), found.end));
        }
        // Before the write: only the last batches are known.
        let wrong = retry(&cluster, known).await;
        let mut writer = known.clone();
        let written = writer.write(&cluster, 100).await;
        if lost.is_empty() && found.bad.is_empty() {
            if found.start != known.start {
                return Err(format!("{}: the start went from {} to {}", known.topic, known.start, found.start));
            }
            let writes = written == ErrorCode::None && writer.batches.last().unwrap().0 == known.end();
            let may_refuse = is_log && damage.is_of_the_disk();
            if !writes && !may_refuse {
                return Err(format!("{}: nothing is lost, and a write is answered {written:?}", known.topic));
            }
            if !wrong.is_empty() {
                return Err(wrong.join(", "));
            }
            continue;
        }
        if !is_log {
            return Err(format!("{}: {lost:?} are lost: {:?}", known.topic, found.bad));
        }
        came = judge_lost(world, path, damage, &lost, written)?;
    }
    let told = committed(&cluster).await;
    let is_groups = path.to_string_lossy().contains("__consumer_offsets") && kind(path) == ".log";
    if told != Ok(world.committed) && !is_groups {
        return Err(format!("the group's offset is {told:?}"));
    }
    Ok(came)
}

/// Batches of this segment are not there.
fn judge_lost(world: &World, path: &Path, damage: Damage, lost: &[i64], written: ErrorCode) -> Result<Came, String> {
    let (from, to) = world.range_of(path).unwrap();
    let outside: Vec<_> = lost.iter().filter(|base| **base < from || **base >= to).collect();
    if !outside.is_empty() {
        return Err(format!("{outside:?} were not in this file and are lost: {lost:?}"));
    }
    let logged = &world.logged[path.parent().unwrap()];
    let proven: Vec<_> = lost.iter().filter(|base| logged.contains(base)).collect();
    if !proven.is_empty() && !damage.is_in_place() {
        return Err(format!("the commit log holds {proven:?}, which are lost"));
    }
    let untouched = untouched(&world.disk.content(path), damage);
    // No checksum covers a base offset, and an index entry may point at a spoilt batch: what is behind one is not found then.
    let spoilt = lost.iter().filter(|base| !untouched.contains(base)).min();
    let is_behind = |base: &&i64| damage.is_in_place() && spoilt.is_some_and(|spoilt| spoilt < *base);
    let whole: Vec<_> = lost.iter().filter(|base| untouched.contains(base) && !is_behind(base)).collect();
    if !whole.is_empty() {
        return Err(format!("the damage does not touch {whole:?}, which are lost"));
    }
    match written {
        ErrorCode::KafkaStorageError => Ok(Came::Named),
        ErrorCode::None if damage.is_in_place() => Ok(Came::Unnoticed),
        other => Err(format!("{lost:?} are lost and a write is answered {other:?}")),
    }
}

/// The batches of a segment that a damage leaves as they were.
fn untouched(content: &[u8], damage: Damage) -> Vec<i64> {
    let mut bases = Vec::new();
    let mut at = 0;
    while let Some(facts) = BatchFacts::read(&content[at..], at as u64) {
        let end = at + facts.bytes as usize;
        let is_touched = match damage {
            Damage::Removed | Damage::Unreadable | Damage::NotOpened => true,
            Damage::Cut(to) => end > to,
            Damage::Zeroed { from, to } => at < to && from < end,
            Damage::Flipped { at: flipped, .. } => (at..end).contains(&flipped),
        };
        if !is_touched {
            bases.push(facts.base_offset.0);
        }
        at = end;
    }
    bases
}

/// A start may refuse where nothing else tells what the file told; the sentence names it.
fn refused(sentence: &str, path: &Path, damage: Damage) -> Result<Came, String> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let folder = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    if sentence.contains('\n') || !(sentence.contains(&name) || sentence.contains(&folder)) {
        return Err(format!("refused in a sentence that does not name it: {sentence:?}"));
    }
    let is_version = sentence.contains("version");
    match kind(path) {
        "store" | "catalog" | "partition.metadata" => Ok(Came::Refused),
        _ if damage.is_of_the_disk() && kind(path) != "derived" => Ok(Came::Refused),
        _ if is_version && matches!(damage, Damage::Flipped { .. }) => Ok(Came::Refused),
        _ => Err(format!("refused: {sentence:?}")),
    }
}

/// Runs a case; a panic is a broken promise like others.
fn run(world: &World, path: &Path, damage: Damage) -> Result<Came, String> {
    let disk = world.disk.copy();
    damage.to(&disk, path);
    let (again, partitions, committed) = (disk.clone(), world.partitions.clone(), world.committed);
    let given = World { disk: world.disk.clone(), partitions, committed, logged: world.logged.clone() };
    let path = path.to_path_buf();
    let judged = catch_unwind(AssertUnwindSafe(|| {
        mini_host::run(1, async move {
            let came = judge(again, &given, &path, damage).await;
            came.map_err(|wrong| {
                let left = list(&given.disk, path.parent().unwrap());
                format!("{wrong}\n      {} of {}", left.join(", "), short(path.parent().unwrap()))
            })
        })
    }));
    judged.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", said.unwrap_or_default()))
    })
}

/// Files whose like is damaged already: other partitions' segments, what is derived of them.
fn is_worth_it(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let is_other = text.contains("/b-0/") || text.contains("__consumer_offsets-");
    let is_second = text.contains("/a-1/") || text.contains("-delete/") || text.ends_with(".deleted");
    !is_second && (!is_other || log_base(path).is_some())
}

fn every_file(down: Down) {
    let world = World::new(down);
    let mut table: BTreeMap<(&str, &str), BTreeMap<Came, usize>> = BTreeMap::new();
    let mut broken = Vec::new();
    let files: Vec<PathBuf> = world.files().into_iter().filter(|path| is_worth_it(path)).collect();
    let (mut number, mut cases) = (0, 0);
    for path in &files {
        for damage in Damage::all(&world.disk.content(path)) {
            number += 1;
            if !runs_all() && number % ONE_IN != 0 {
                continue;
            }
            cases += 1;
            match run(&world, path, damage) {
                Ok(came) => *table.entry((kind(path), damage.name())).or_default().entry(came).or_default() += 1,
                Err(wrong) => {
                    let wrong = format!("{} {damage:?}: {wrong}", short(path));
                    println!("{wrong}");
                    broken.push(wrong);
                }
            }
        }
    }
    println!("{} files after {down:?}, {cases} cases", files.len());
    for ((kind, damage), came) in &table {
        println!("  {kind:20} {damage:12} {came:?}");
    }
    let shown: Vec<_> = broken.iter().take(40).map(String::as_str).collect();
    assert!(broken.is_empty(), "{} of {cases} cases broke a promise:\n{}", broken.len(), shown.join("\n"));
}

#[test]
fn every_file_may_be_damaged_after_a_stop() {
    every_file(Down::Stop);
}

#[test]
fn every_file_may_be_damaged_after_a_kill() {
    every_file(Down::Kill);
}
