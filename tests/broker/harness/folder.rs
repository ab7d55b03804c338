//! Temporary folders, and what lies in a data folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder that goes with the test, unless the test fails.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("corelane-test-{}-{number}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The data folder of the broker.
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The folder of one partition.
    pub fn partition(&self, topic: &str, partition: i32) -> PathBuf {
        self.data().join(format!("kafka/{topic}-{partition}"))
    }

    /// The segments of one partition, oldest first.
    pub fn segments(&self, topic: &str, partition: i32) -> Vec<PathBuf> {
        files_ending(&self.partition(topic, partition), ".log")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Nothing depends on it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Files of a folder by the end of their name, in the order of their names.
pub fn files_ending(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    files.sort();
    files
}
