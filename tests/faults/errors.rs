//! Every call of the disk fails once while the broker serves: EIO, and a write that is cut short. What was answered well is
//! there after a restart, once; what was refused may be sent again; the others go on; nobody waits for ever.

use std::cell::RefCell;
use std::rc::Rc;

use crate::cluster::{Cluster, begin_life_on};
use crate::history::{SETTINGS, Shared, check, go_on, run};
use crate::points::{AFTER, CALLS, FILES, guarded};
use crate::runs_all;
use crate::support::memory_disk::MemoryDisk;
use crate::support::memory_disk::faults::{Call, Failure, Fault, Point};
use crate::support::mini_host;
use crate::world::SHARDS;

/// Requests that were refused in a run; `None` where no call met the point.
fn fails(from: Point, fault: Fault) -> Result<Option<usize>, String> {
    let disk = MemoryDisk::default();
    disk.fail(Failure { from, times: 1, fault });
    let told = Shared::default();
    run(&disk, &told);
    if disk.failed() == 0 {
        return Ok(None);
    }
    let left = disk.copy();
    let told = told.borrow().clone();
    let refused = told.refused;
    mini_host::run(3, async move {
        begin_life_on(&left);
        let cluster =
            Cluster::start(&left, SETTINGS, SHARDS).await.map_err(|sentence| format!("refused: {sentence}"))?;
        check(&cluster, &told, None).await?;
        go_on(&cluster, &Rc::new(RefCell::new(told)), None).await
    })?;
    Ok(Some(refused))
}

#[test]
fn log_10_every_call_may_fail_once_and_nothing_that_was_answered_is_lost() {
    let mut broken = Vec::new();
    let (mut kinds, mut runs) = (0, 0);
    println!("calls that fail once: requests refused in each run");
    for (call, part) in CALLS.into_iter().chain([Call::Read]).flat_map(|call| FILES.map(|part| (call, part))) {
        let mut row = Vec::new();
        let is_write = matches!(call, Call::Write | Call::WriteBlocks);
        let faults = if is_write { &[Fault::Error, Fault::Short][..] } else { &[Fault::Error] };
        for (after, fault) in AFTER.into_iter().flat_map(|after| faults.iter().map(move |fault| (after, *fault))) {
            if !runs_all() && after > 0 {
                break;
            }
            match guarded(|| fails(Point { call: Some(call), part, after }, fault)) {
                Ok(None) => break,
                Ok(Some(refused)) => row.push(refused),
                Err(wrong) => {
                    let wrong = format!("{call:?} {part} after {after} {fault:?}: {wrong}");
                    println!("{wrong}");
                    broken.push(wrong);
                }
            }
            runs += 1;
        }
        if !row.is_empty() {
            kinds += 1;
            println!("{:50} {row:?}", format!("{call:?} {part}"));
        }
    }
    println!("{kinds} kinds of calls, {runs} runs");
    let shown: Vec<_> = broken.iter().take(30).map(String::as_str).collect();
    assert!(broken.is_empty(), "{} of {runs} runs broke a promise:\n{}", broken.len(), shown.join("\n"));
    assert!(kinds > 60, "only {kinds} kinds of calls were met");
}
