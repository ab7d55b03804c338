//! `corelane verify`: every checksum, every derived file against what it is derived from, the catalog against the folders.
//!
//! Order: store → catalog → checkpoints and commit logs → partitions (on two threads) → Kafka's files of the whole log dir.
//! What a crash leaves behind and a start puts right is a note; everything else that is not as it was left is damage.

mod aborts;
mod batches;
mod derived;
mod folder_files;
mod kafka_dir;
mod own;
mod partition;
mod segment;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::finding::{Finding, Findings, Weight};
use super::folder::Watched;
use super::progress::Progress;
use super::value::Value;
use super::{FAILED, Failed};
use crate::broker::catalog::Catalog;
use crate::config::offline_args::VerifyArgs;
use crate::ids::TopicPartition;
use crate::log::checkpoint_chain::View;
use crate::log::layout::Layout;
use crate::log::log_reader::LogContents;

/// Threads that read partitions.
const THREADS: usize = 2;

/// What was looked at, in numbers.
#[derive(Debug, Default)]
pub struct Counts {
    partitions: AtomicU64,
    segments: AtomicU64,
    batches: AtomicU64,
    records: AtomicU64,
}

impl Counts {
    fn add(to: &AtomicU64, count: u64) {
        to.fetch_add(count, Ordering::Relaxed);
    }
}

/// What the files beside the partitions say, as far as they can be read.
struct Known {
    layout: Layout,
    /// The last stop was in order; false where nobody knows.
    is_clean: bool,
    /// `None` when it cannot be read.
    catalog: Option<Catalog>,
    view: View,
    contents: LogContents,
}

/// Everything that the checks share.
struct Check {
    known: Known,
    findings: Arc<Findings>,
    progress: Progress,
    counts: Counts,
}

/// The result of checking a data folder.
#[derive(Debug)]
pub struct Verified {
    /// What was found, damage first.
    pub findings: Vec<Finding>,
    /// What was looked at.
    pub counts: Counts,
    /// Bytes that were read of segments.
    pub bytes: u64,
    /// The last stop was in order.
    pub is_clean: bool,
    folder: PathBuf,
}

impl Verified {
    /// Findings that are damage.
    #[must_use]
    pub fn damages(&self) -> usize {
        self.findings.iter().filter(|finding| finding.weight == Weight::Damage).count()
    }

    fn number(of: &AtomicU64) -> u64 {
        of.load(Ordering::Relaxed)
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text: String = self.findings.iter().map(|finding| finding.text() + "\n").collect();
        let counts = &self.counts;
        let verdict = match self.damages() {
            0 => "sound".to_string(),
            1 => "1 damage".to_string(),
            more => format!("{more} damages"),
        };
        text += &format!(
            "{}: {verdict}. {} partitions, {} segments, {} batches, {} records, {} bytes were checked; the last stop was {}.\n",
            self.folder.display(),
            Self::number(&counts.partitions),
            Self::number(&counts.segments),
            Self::number(&counts.batches),
            Self::number(&counts.records),
            self.bytes,
            if self.is_clean { "in order" } else { "not in order, the next start recovers" }
        );
        text
    }

    /// For programs.
    #[must_use]
    pub fn value(&self) -> Value {
        let counts = &self.counts;
        Value::Named(vec![
            ("folder", self.folder.display().to_string().into()),
            ("sound", (self.damages() == 0).into()),
            ("clean", self.is_clean.into()),
            ("partitions", Self::number(&counts.partitions).into()),
            ("segments", Self::number(&counts.segments).into()),
            ("batches", Self::number(&counts.batches).into()),
            ("records", Self::number(&counts.records).into()),
            ("bytes", self.bytes.into()),
            ("findings", Value::List(self.findings.iter().map(Finding::value).collect())),
        ])
    }
}

/// Checks a data folder and prints what was found.
///
/// # Errors
/// Status 1 for damage, 2 when it cannot be checked.
#[expect(clippy::print_stdout, reason = "the result is what was asked for")]
pub(super) fn run(args: &VerifyArgs) -> Result<(), Failed> {
    let watched = Watched::take(&args.folder)?;
    let verified = check(&watched);
    if args.json {
        println!("{}", verified.value().json());
    } else {
        print!("{}", verified.text());
    }
    if verified.damages() == 0 { Ok(()) } else { Err(Failed { sentence: None, status: FAILED }) }
}

/// Reads `TOPIC-PARTITION`.
pub(super) use folder_files::partition_name;

/// Checks the folder of one partition that belongs to no data folder of this host.
pub(super) fn check_folder(folder: &Path, name: &TopicPartition) -> Vec<Finding> {
    let findings = Arc::new(Findings::new(folder.parent().unwrap_or(folder)));
    let known = Known {
        layout: Layout::new(folder),
        is_clean: true,
        catalog: None,
        view: View::default(),
        contents: LogContents::default(),
    };
    let check = Check { known, findings, progress: Progress::new("checked"), counts: Counts::default() };
    let job = partition::job_of(folder.to_path_buf(), name.clone());
    check.progress.expect(job.bytes);
    partition::check(&check, &job);
    check.progress.end();
    check.findings.take()
}

/// Checks a data folder that no broker uses.
#[must_use]
pub fn check(watched: &Watched) -> Verified {
    let layout = watched.layout.clone();
    let folder = layout.root().to_path_buf();
    let findings = Arc::new(Findings::new(&folder));
    let known = own::read(&layout, &findings);
    let check = Check { known, findings, progress: Progress::new("checked"), counts: Counts::default() };
    check.partitions();
    kafka_dir::check(&check);
    check.progress.end();
    Verified {
        findings: check.findings.take(),
        bytes: check.progress.done(),
        is_clean: check.known.is_clean,
        counts: check.counts,
        folder,
    }
}

impl Check {
    fn partitions(&self) {
        let jobs = partition::jobs(self);
        self.progress.expect(jobs.iter().map(|job| job.bytes).sum());
        let queue = Mutex::new(VecDeque::from(jobs));
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while let Some(job) = next() {
                        partition::check(self, &job);
                    }
                });
            }
        });
    }
}
