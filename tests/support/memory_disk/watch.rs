//! What the disk has seen of the commit log's files: how often each was begun, and which hold groups that no checkpoint
//! covers yet.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::faults::Call;

#[derive(Default)]
pub struct Watch(RefCell<Seen>);

#[derive(Default)]
struct Seen {
    /// How often each file of a commit log was begun.
    begun: BTreeMap<PathBuf, u64>,
    /// By folder: files with groups since the last checkpoint.
    uncovered: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// By folder: the file that the last group went to.
    current: BTreeMap<PathBuf, PathBuf>,
    /// The call within which the program ended.
    last: Option<(Call, PathBuf)>,
    checkpoints: u64,
}

/// What a life's end has found.
#[derive(Clone, Debug, Default)]
pub struct AtTheEnd {
    /// The call within which it ended.
    pub last: Option<(Call, PathBuf)>,
    /// A commit log was writing to a file that had been used before.
    pub is_on_recycled: bool,
    /// A commit log had groups in more than one file that no checkpoint covered.
    pub is_in_several: bool,
    /// How often the file that was begun most often was begun.
    pub begun_max: u64,
    /// Checkpoints so far.
    pub checkpoints: u64,
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

impl Watch {
    /// A direct write is about to be made.
    pub fn wrote(&self, path: &Path, position: usize) {
        if !name(path).starts_with("log-") {
            return;
        }
        let seen = &mut *self.0.borrow_mut();
        let folder = path.parent().unwrap_or(path);
        if position == 0 {
            *seen.begun.entry(path.to_owned()).or_default() += 1;
        } else if seen.current.get(folder).is_none_or(|current| current != path) {
            seen.current.insert(folder.to_owned(), path.to_owned());
            seen.uncovered.entry(folder.to_owned()).or_default().insert(path.to_owned());
        }
    }

    pub fn renamed(&self, to: &Path) {
        if name(to).starts_with("checkpoint-") {
            let seen = &mut *self.0.borrow_mut();
            seen.checkpoints += 1;
            if let Some(folder) = to.parent() {
                seen.uncovered.remove(folder);
            }
        }
    }

    pub fn removed(&self, path: &Path) {
        self.0.borrow_mut().begun.remove(path);
    }

    pub fn last(&self, call: Call, path: &Path) {
        self.0.borrow_mut().last = Some((call, path.to_owned()));
    }

    /// What it came to; a new life begins.
    pub fn at_the_end(&self) -> AtTheEnd {
        let seen = &mut *self.0.borrow_mut();
        let is_recycled = |path: &PathBuf| seen.begun.get(path).is_some_and(|begun| *begun > 1);
        let found = AtTheEnd {
            last: seen.last.take(),
            is_on_recycled: seen.current.values().any(is_recycled),
            is_in_several: seen.uncovered.values().any(|files| files.len() > 1),
            begun_max: seen.begun.values().copied().max().unwrap_or_default(),
            checkpoints: seen.checkpoints,
        };
        seen.current.clear();
        seen.uncovered.clear();
        found
    }
}
