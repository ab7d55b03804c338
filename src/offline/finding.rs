//! What a check has found: file, place, what is wrong there, and what follows from it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::value::Value;

/// How much a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Something is not as it was left.
    Damage,
    /// Worth knowing, and as it may be: after `kill -9`, say.
    Note,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it means.
    pub weight: Weight,
    /// File or folder, below the data folder where it is in there.
    pub file: PathBuf,
    /// Where in the file, in bytes.
    pub position: Option<u64>,
    /// What is there.
    pub what: String,
    /// Whether a start mends it, what is lost, what to do.
    pub follows: String,
}

impl Finding {
    /// In two or three lines, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let word = match self.weight {
            Weight::Damage => "DAMAGE",
            Weight::Note => "note  ",
        };
        let at = self.position.map_or(String::new(), |position| format!(" at byte {position}"));
        let follows = if self.follows.is_empty() { String::new() } else { format!("\n       {}", self.follows) };
        format!("{word} {}{at}: {}{follows}", self.file.display(), self.what)
    }

    /// For programs.
    #[must_use]
    pub fn value(&self) -> Value {
        Value::Named(vec![
            ("weight", if self.weight == Weight::Damage { "damage" } else { "note" }.into()),
            ("file", self.file.display().to_string().into()),
            ("position", self.position.into()),
            ("what", self.what.as_str().into()),
            ("follows", self.follows.as_str().into()),
        ])
    }
}

/// Findings of all threads, with files named as seen from the data folder.
#[derive(Debug)]
pub struct Findings {
    root: PathBuf,
    all: Mutex<Vec<Finding>>,
}

impl Findings {
    /// None yet, about the data folder `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), all: Mutex::default() }
    }

    /// Adds damage.
    pub fn damage(&self, file: &Path, position: Option<u64>, what: impl Into<String>, follows: impl Into<String>) {
        self.add(Weight::Damage, file, position, what.into(), follows.into());
    }

    /// Adds something worth knowing.
    pub fn note(&self, file: &Path, position: Option<u64>, what: impl Into<String>, follows: impl Into<String>) {
        self.add(Weight::Note, file, position, what.into(), follows.into());
    }

    /// Adds damage, or a note where `normal` says that it may be so.
    pub fn damage_unless(
        &self,
        normal: bool,
        file: &Path,
        position: Option<u64>,
        what: impl Into<String>,
        follows: impl Into<String>,
    ) {
        let weight = if normal { Weight::Note } else { Weight::Damage };
        self.add(weight, file, position, what.into(), follows.into());
    }

    fn add(&self, weight: Weight, file: &Path, position: Option<u64>, what: String, follows: String) {
        let file = file.strip_prefix(&self.root).unwrap_or(file).to_path_buf();
        self.list().push(Finding { weight, file, position, what, follows });
    }

    fn list(&self) -> MutexGuard<'_, Vec<Finding>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them: damage first, then by file and place.
    #[must_use]
    pub fn take(&self) -> Vec<Finding> {
        let mut all = std::mem::take(&mut *self.list());
        all.sort_by(|one, next| (one.weight, &one.file, one.position).cmp(&(next.weight, &next.file, next.position)));
        all
    }
}
