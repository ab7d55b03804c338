//! Every step of writing × the ways in which a program can end there: killed, without power (what was not flushed may be
//! lost, the write that runs is torn, the block beside it spoilt), killed and one bit of that file flipped.
//!
//! A step is a kind of call on a kind of file; of the calls of each that one run of `history.rs` makes, some are the last.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::cluster::{Cluster, begin_life_on};
use crate::history::{PAGE_CACHED, SETTINGS, Shared, check, go_on, run};
use crate::runs_all;
use crate::support::dice::Dice;
use crate::support::memory_disk::MemoryDisk;
use crate::support::memory_disk::faults::{Call, End, Point};
use crate::support::mini_host;
use crate::world::SHARDS;

/// Calls of each kind.
pub const CALLS: [Call; 11] = [
    Call::Open,
    Call::MakeFolder,
    Call::Write,
    Call::WriteBlocks,
    Call::Truncate,
    Call::SyncData,
    Call::SyncFolder,
    Call::SyncAll,
    Call::Rename,
    Call::Remove,
    Call::RemoveFolder,
];

/// Kinds of files and folders, as parts of their paths.
pub const FILES: [&str; 27] = [
    "/store",
    "/catalog-",
    "/shard-0/log-",
    "/shard-0/checkpoint",
    "/corelane/shard-0",
    "/a-0/0",
    "/kafka/c-0",
    ".log.cleaned",
    ".txnindex.cleaned",
    ".log.swap",
    ".txnindex.swap",
    ".log",
    ".log.deleted",
    ".index",
    ".timeindex",
    ".seal",
    ".snapshot",
    "/leader-epoch-checkpoint",
    "/partition.metadata",
    "/lost-offsets",
    "/meta.properties",
    "/recovery-point-offset-checkpoint",
    "/.kafka_cleanshutdown",
    "/kafka/a-0",
    "/kafka/gone-0",
    "/__consumer_offsets-0/0",
    "-delete",
];

/// Which of the calls that meet a step: the first, and a later one.
pub const AFTER: [u64; 2] = [0, 9];

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Killed,
    Torn,
    TornBeside,
    Flipped,
}

const WAYS: [Way; 4] = [Way::Killed, Way::Torn, Way::TornBeside, Way::Flipped];

/// What came of a run and the start after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Came {
    Whole,
    /// The flipped file lost something, or could not be used.
    Spared,
    /// The run came to its end before.
    NotMet,
}

fn ends_at(point: Point, way: Way, seed: u64) -> Result<Came, String> {
    let disk = MemoryDisk::default();
    disk.simulate(Dice::of(seed));
    let end = match way {
        Way::Killed | Way::Flipped => End::Kill,
        Way::Torn => End::PowerCut { spoils: false },
        Way::TornBeside => End::PowerCut { spoils: true },
    };
    disk.end_at(point, end);
    let told = Shared::default();
    run(&disk, &told);
    if !disk.is_over() {
        return Ok(Came::NotMet);
    }
    let _lost = disk.end(end);
    let mut left = disk.copy();
    let spared = if way == Way::Flipped { flip(&left, point.part, &mut Dice::of(seed)) } else { None };
    if matches!(way, Way::Torn | Way::TornBeside) {
        // Only the kernel had what was answered there.
        told.borrow_mut().lines.retain(|line| line.topic != PAGE_CACHED);
    }
    // Twice: what the first start has done must be right for the second.
    let mut came = Came::Whole;
    for _ in 0..2 {
        let (used, told, spared) = (left.clone(), Rc::clone(&told), spared.clone());
        came = came.max(mini_host::run(3, async move { start_and_look(&used, &told, spared.as_deref()).await })?);
        left = left.copy();
    }
    Ok(came)
}

/// Flips one bit of one file of that kind that holds anything; gives the file.
fn flip(disk: &MemoryDisk, part: &str, dice: &mut Dice) -> Option<PathBuf> {
    let is_meant = |path: &PathBuf| path.to_string_lossy().contains(part);
    let files: Vec<_> = disk.paths().into_iter().filter(is_meant).collect();
    if files.is_empty() {
        return None;
    }
    let path = files[dice.below(files.len())].clone();
    disk.change(&path, |bytes| {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if used > 0 {
            bytes[dice.below(used)] ^= 1 << dice.below(8);
        }
    });
    Some(path)
}

async fn start_and_look(disk: &MemoryDisk, told: &Shared, spared: Option<&Path>) -> Result<Came, String> {
    begin_life_on(disk);
    let cluster = match Cluster::start(disk, SETTINGS, SHARDS).await {
        Ok(cluster) => cluster,
        Err(sentence) => {
            let name = spared.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            let folder =
                spared.and_then(Path::parent).and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            let names_it = name.is_some_and(|name| sentence.contains(&name))
                || folder.is_some_and(|name| sentence.contains(&name));
            return if names_it { Ok(Came::Spared) } else { Err(format!("refused: {sentence}")) };
        }
    };
    let is_log = spared.is_some_and(|path| path.extension().is_some_and(|ending| ending == "log" || ending == "swap"));
    let promised = told.borrow().clone();
    check(&cluster, &promised, spared.filter(|_| is_log)).await?;
    go_on(&cluster, told, spared.filter(|_| is_log)).await?;
    Ok(if is_log { Came::Spared } else { Came::Whole })
}

pub fn guarded<T>(case: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(case)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", said.unwrap_or_default()))
    })
}

#[test]
fn the_program_may_end_at_every_step_of_writing() {
    let mut broken = Vec::new();
    let (mut steps, mut met, mut seed) = (0, 0, 0);
    println!("outcomes of runs that end at a step, by the way they end");
    let points = CALLS.into_iter().flat_map(|call| FILES.map(|part| (call, part)));
    for (at, (call, part)) in points.enumerate() {
        let mut row: BTreeMap<Way, BTreeMap<Came, usize>> = BTreeMap::new();
        for after in AFTER {
            let mut is_met = false;
            for way in WAYS {
                seed += 1;
                if !runs_all() && (after > 0 || way != WAYS[at % WAYS.len()]) {
                    continue;
                }
                let point = Point { call: Some(call), part, after };
                match guarded(|| ends_at(point, way, seed)) {
                    Ok(Came::NotMet) => break,
                    Ok(came) => *row.entry(way).or_default().entry(came).or_default() += 1,
                    Err(wrong) => {
                        let wrong = format!("{call:?} {part} after {after} {way:?} (seed {seed}): {wrong}");
                        println!("{wrong}");
                        broken.push(wrong);
                    }
                }
                is_met = true;
                met += 1;
            }
            if !is_met {
                break;
            }
        }
        if !row.is_empty() {
            steps += 1;
            println!("{:50} {row:?}", format!("{call:?} {part}"));
        }
    }
    println!("{steps} kinds of steps, {met} runs ended at one");
    let shown: Vec<_> = broken.iter().take(30).map(String::as_str).collect();
    assert!(broken.is_empty(), "{} of {met} runs broke a promise:\n{}", broken.len(), shown.join("\n"));
    assert!(steps > 60, "only {steps} kinds of steps were met");
}
