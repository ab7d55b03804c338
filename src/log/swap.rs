//! Puts a compacted segment in the place of those that it was made of, so that a crash leaves the old ones or the new one.
//!
//! ```text
//! 1  .log.cleaned, .txnindex.cleaned    written and flushed                         ← a start removes them
//! 2  .txnindex.swap, then .log.swap     renamed, folder flushed                     ← from here on a start goes on
//! 3  the old files                      renamed to .deleted, `.log` of each last
//! 4  .txnindex, then .log               renamed from .swap, folder flushed
//! 5  .index, .timeindex, .seal          written; derived (storage rule S15)
//! ```
//! There always is a `.txnindex`, if an empty one, so that of two with one name a start knows the new one.
//!
//! Source: apache/kafka `LocalLog.replaceSegments`, `LogLoader.removeTempFilesAndCollectSwapFiles`.

use std::io;
use std::path::Path;
use std::rc::Rc;

use super::names::{self, CLEANED, Kind, SWAP};
use super::scan::Scanner;
use super::segment::Segment;
use crate::ids::Offset;
use crate::runtime::disk::{Access, Create, Disk, DiskFile, Entry};

/// One read while a file is checked.
const READ_BYTES: usize = 1 << 20;

/// What compaction writes itself, in the order in which it gets its names: `.log` decides, and comes last.
const WRITTEN: [Kind; 2] = [Kind::TxnIndex, Kind::Log];

/// Step 2: what was written counts once the folder is flushed.
///
/// # Errors
/// Those of the renames; it may be called again.
pub fn commit<D: Disk>(disk: &D, folder: &Path, base: Offset) -> io::Result<()> {
    for kind in WRITTEN {
        let path = names::path(folder, base, kind);
        disk.rename(&names::with_ending(&path, CLEANED), &names::with_ending(&path, SWAP))?;
    }
    Ok(())
}

/// Steps 3 and 4, without waiting in between: the old segments give their names up.
///
/// Shapes: each of `replaced` is held ([`Segment::hold`]); one of them has the base offset `base`.
///
/// # Errors
/// Those of the renames. Readers of the old segments go on; the next start does the rest.
pub fn put_in_place<D: Disk>(disk: &D, folder: &Path, base: Offset, replaced: &[Rc<Segment<D>>]) -> io::Result<()> {
    for segment in replaced {
        // The producers as of its first offset are what they were.
        let kept = (segment.base() == base).then_some(Kind::Snapshot);
        segment.mark_deleted_but(kept)?;
    }
    rename_swapped(disk, folder, base)
}

fn rename_swapped<D: Disk>(disk: &D, folder: &Path, base: Offset) -> io::Result<()> {
    for kind in WRITTEN {
        let path = names::path(folder, base, kind);
        match disk.rename(&names::with_ending(&path, SWAP), &path) {
            // The crash came between the two renames.
            Err(error) if error.kind() == io::ErrorKind::NotFound && kind == Kind::TxnIndex => {}
            other => other?,
        }
    }
    Ok(())
}

/// Removes what an attempt has written that came to nothing.
///
/// # Errors
/// Those of the disk.
pub async fn discard<D: Disk>(disk: &D, folder: &Path, base: Offset) -> io::Result<()> {
    for kind in WRITTEN {
        disk.remove_file(&names::with_ending(&names::path(folder, base, kind), CLEANED)).await?;
    }
    Ok(())
}

/// At a start: finishes what had come to step 2, and removes what had not. Says what was done.
///
/// # Errors
/// Those of the disk; it may be called again.
pub async fn finish<D: Disk>(disk: &D, folder: &Path) -> io::Result<Vec<String>> {
    let entries = match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    for entry in entries.iter().filter(|entry| names::parse_with(&entry.name, CLEANED).is_some()) {
        disk.remove_file(&folder.join(&entry.name)).await?;
    }
    let swapped: Vec<_> = entries.iter().filter_map(|entry| names::parse_with(&entry.name, SWAP)).collect();
    let mut notes = Vec::new();
    for (base, _) in swapped.iter().filter(|(_, kind)| *kind == Kind::Log) {
        notes.push(finish_one(disk, folder, *base, &entries).await?);
    }
    // Without its `.log`, step 2 was not done; of another release, the rest can be made anew.
    for (base, kind) in swapped {
        let path = names::with_ending(&names::path(folder, base, kind), SWAP);
        if kind != Kind::Log && disk.file_bytes(&path).is_ok() {
            disk.remove_file(&path).await?;
        }
    }
    if !notes.is_empty() {
        disk.sync_dir(folder).await?;
    }
    Ok(notes)
}

async fn finish_one<D: Disk>(disk: &D, folder: &Path, base: Offset, entries: &[Entry]) -> io::Result<String> {
    let swap = names::with_ending(&names::path(folder, base, Kind::Log), SWAP);
    let end = end_of(disk, folder, base).await?;
    let Some(end) = end else {
        // It was flushed before it got this name, so something else has spoilt it; the old ones are better, if they are there.
        let old = names::path(folder, base, Kind::Log);
        if disk.file_bytes(&old).is_ok() {
            disk.remove_file(&swap).await?;
            return Ok(format!("{}: is damaged, the segments that it was made of are used", swap.display()));
        }
        rename_swapped(disk, folder, base)?;
        return Ok(format!("{}: is damaged, and what it was made of is gone", swap.display()));
    };
    for (old, kind) in replaced_files(entries, base, end) {
        let is_new = kind == Kind::TxnIndex
            && old == base
            && disk.file_bytes(&names::with_ending(&names::path(folder, base, kind), SWAP)).is_err();
        if !is_new {
            disk.remove_file(&names::path(folder, old, kind)).await?;
        }
    }
    disk.sync_dir(folder).await?;
    rename_swapped(disk, folder, base)?;
    Ok(format!("{}: compaction was interrupted and is finished", names::path(folder, base, Kind::Log).display()))
}

/// The files whose content is in the new segment, `.log` of each last.
fn replaced_files(entries: &[Entry], base: Offset, end: Offset) -> Vec<(Offset, Kind)> {
    let is_replaced =
        |(of, kind): &(Offset, Kind)| (base..end).contains(of) && !(*of == base && *kind == Kind::Snapshot);
    let mut files: Vec<_> = entries.iter().filter_map(|entry| names::parse(&entry.name)).filter(is_replaced).collect();
    files.sort_by_key(|(of, kind)| (*of, *kind == Kind::Log));
    files
}

/// The offset behind the last batch of a `.log.swap`; `None` when it is damaged.
async fn end_of<D: Disk>(disk: &D, folder: &Path, base: Offset) -> io::Result<Option<Offset>> {
    let path = names::with_ending(&names::path(folder, base, Kind::Log), SWAP);
    let bytes = disk.file_bytes(&path)?;
    let file = disk.open(&path, Access::Buffered, Create::Never)?;
    let mut scanner = Scanner::new(bytes, 0, base);
    while !scanner.is_done() {
        let chunk = file.read_at(scanner.wants(), READ_BYTES).await?;
        if chunk.is_empty() {
            break;
        }
        scanner.feed(&chunk, &mut |_, _| ());
    }
    let end = scanner.finish();
    Ok((end.stop.is_none() && end.batches > 0).then_some(end.next_offset))
}
