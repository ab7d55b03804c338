//! What the batches of a partition say, one after another: whether offsets go on, whether their records can be read,
//! whether they are what the commit log holds, and what snapshots and leader epochs must say about them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::partition::{Place, lost_below};
use super::{Check, Counts, aborts};
use crate::broker::recovery;
use crate::ids::Offset;
use crate::log::crc::crc32c;
use crate::log::kafka_files;
use crate::log::leader_epochs::LeaderEpochs;
use crate::log::log_reader::Located;
use crate::log::names::{self, Kind};
use crate::log::scan::BatchFacts;
use crate::log::snapshot::{self, SnapshotEntry};
use crate::log::txn_index::AbortedTxn;
use crate::runtime::disk::Disk;
use crate::runtime::executors::block_on;
use crate::runtime::host;
use crate::runtime::read_only_disk::ReadOnlyDisk;
use crate::state::producers::Producers;
use crate::wire::batch::BatchHeader;
use crate::wire::records::{Offsets, RecordRules, STEP_BYTES, Step, WalkError, Walker};
use crate::wire::unpack::Unpacker;

/// Findings about batches of one partition; more of them say nothing new.
const BATCHES_NAMED: usize = 50;
/// Any record may stand in a batch of a log.
const RULES: RecordRules = RecordRules {
    key_required: false,
    timestamps: None,
    unpacked_bytes_max: u64::MAX,
    offsets: Offsets::Ascending { judged_from: 0 },
};

/// The batches of one partition, from the first to the last.
pub(super) struct Walk<'a> {
    check: &'a Check,
    place: &'a Place,
    /// Where the next batch should begin; `None` before the first one.
    next: Option<Offset>,
    first: Option<Offset>,
    located: VecDeque<Located>,
    producers: Producers,
    /// What abort markers have ended.
    aborted: Vec<AbortedTxn>,
    snapshots: VecDeque<(Offset, PathBuf)>,
    epochs: Option<LeaderEpochs>,
    unpacker: Unpacker,
    named: usize,
    /// Everything so far could be read: what is derived from it must fit.
    is_whole: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(check: &'a Check, place: &'a Place) -> Self {
        let snapshot = |name: &str| match names::parse(name) {
            Some((offset, Kind::Snapshot)) => Some((offset, place.folder.join(name))),
            _ => None,
        };
        let recovery_point = place.entry.map_or(Offset(0), |entry| entry.recovery_point);
        let needed = |one: &&Located| one.offset >= recovery_point && one.offset >= place.log_start;
        Self {
            check,
            place,
            next: None,
            first: None,
            located: place.located.iter().filter(needed).copied().collect(),
            producers: Producers::new(host::random()),
            aborted: Vec::new(),
            snapshots: place.entries.iter().filter_map(|entry| snapshot(&entry.name)).collect(),
            epochs: read_epochs(check, place),
            unpacker: Unpacker::new(),
            named: 0,
            is_whole: true,
        }
    }

    /// Where the log goes on, as far as it was read.
    pub(super) fn next(&self) -> Option<Offset> {
        self.next
    }

    /// The first offset from `from` on that the commit log holds.
    pub(super) fn first_in_log(&self, from: Offset) -> Option<Offset> {
        self.located.iter().map(|one| one.offset).find(|offset| *offset >= from)
    }

    /// Bytes that are no batch came: what is derived cannot be compared behind them.
    pub(super) fn broken(&mut self) {
        self.is_whole = false;
    }

    /// The log goes on behind bytes that could not be read.
    pub(super) fn pass_to(&mut self, next: Offset) {
        self.broken();
        self.next = Some(next);
    }

    /// One batch whose checksum is right.
    pub(super) fn batch(&mut self, path: &Path, facts: &BatchFacts, bytes: &[u8]) {
        Counts::add(&self.check.counts.batches, 1);
        self.check_snapshots(facts.base_offset);
        self.check_gap(path, facts);
        self.check_records(path, facts, bytes);
        self.check_commit_log(path, facts, bytes);
        self.check_epoch(path, facts);
        self.note_producer(facts, bytes);
        self.first.get_or_insert(facts.base_offset);
        self.next = Some(facts.next_offset());
    }

    fn damage(&mut self, path: &Path, position: u64, what: String, follows: &str) {
        self.named += 1;
        if self.named <= BATCHES_NAMED {
            self.check.findings.damage(path, Some(position), what, follows);
        }
    }

    fn check_gap(&mut self, path: &Path, facts: &BatchFacts) {
        let Some(next) = self.next.map(|next| next.max(self.place.log_start)) else { return };
        let is_gap = facts.base_offset > next && !self.place.may_have_gaps();
        if is_gap && !self.place.losses.covers(next, facts.base_offset) {
            let what = format!(
                "offsets {next} to {} are in no batch; the next one begins at {}",
                facts.base_offset.0 - 1,
                facts.base_offset
            );
            self.damage(path, facts.position, what, &lost_below(self.place));
        }
    }

    /// The checksum was right, so what is wrong here was written so.
    fn check_records(&mut self, path: &Path, facts: &BatchFacts, bytes: &[u8]) {
        match walk_records(bytes, &mut self.unpacker) {
            Ok(()) => Counts::add(&self.check.counts.records, u64::try_from(facts.records_count).unwrap_or(0)),
            Err(error) => {
                let what = format!(
                    "the records of the batch at offsets {} to {} cannot be read: {error}",
                    facts.base_offset, facts.last_offset
                );
                self.damage(
                    path,
                    facts.position,
                    what,
                    "Consumers cannot read past it. Its checksum is right: it was stored so.",
                );
            }
        }
    }

    /// A batch that both have must be the same in both (storage rule S9).
    fn check_commit_log(&mut self, path: &Path, facts: &BatchFacts, bytes: &[u8]) {
        while let Some(one) = self.located.pop_front_if(|one| one.offset <= facts.last_offset) {
            let same =
                one.offset == facts.base_offset && one.data_bytes == facts.bytes && one.data_crc == crc32c(bytes);
            // A batch below the present one that no segment holds is a gap, which has been named.
            if !same && one.offset >= facts.base_offset {
                let what = format!(
                    "the batch at offset {} is not the one in the commit log, which was acknowledged",
                    one.offset
                );
                self.damage(
                    path,
                    facts.position,
                    what,
                    "A start takes the commit log's, and keeps this one in a file of its own.",
                );
            }
        }
    }

    fn check_epoch(&mut self, path: &Path, facts: &BatchFacts) {
        let Some(epochs) = &self.epochs else { return };
        if facts.leader_epoch < 0 || facts.base_offset < self.place.log_start {
            return;
        }
        let listed = epochs.at(facts.base_offset);
        if listed == Some(facts.leader_epoch) {
            return;
        }
        let newest = epochs.entries().last().map_or(-1, |last| last.epoch);
        let lags = facts.leader_epoch > newest;
        let what = format!(
            "the batch at offset {} is of leader epoch {}, {} says {}",
            facts.base_offset,
            facts.leader_epoch,
            kafka_files::LEADER_EPOCHS,
            listed.map_or_else(|| "nothing of it".to_string(), |listed| listed.to_string())
        );
        let follows = if lags {
            "The list is behind; a start completes it from the batches."
        } else {
            "One of the two was changed. Readers that ask where their log and this one part may be told wrong."
        };
        self.check.findings.damage_unless(lags && !self.place.is_clean, path, Some(facts.position), what, follows);
        // The rest of the log would say the same again and again.
        self.epochs = None;
    }

    fn note_producer(&mut self, facts: &BatchFacts, bytes: &[u8]) {
        let aborted = recovery::replay(&mut self.producers, facts, bytes, facts.max_timestamp);
        self.aborted.extend(aborted);
    }

    /// Compares the snapshots as of offsets up to `offset`, in front of the batch that begins there.
    fn check_snapshots(&mut self, offset: Offset) {
        while let Some((as_of, path)) = self.snapshots.pop_front_if(|(as_of, _)| *as_of <= offset) {
            self.check_snapshot(as_of, &path);
        }
    }

    fn check_snapshot(&self, as_of: Offset, path: &Path) {
        const FOLLOWS: &str =
            "It is used only where all checkpoints are lost; then an older one is taken, or the batches.";
        let content = match block_on(ReadOnlyDisk.read_file(path)) {
            Ok(content) => content,
            Err(error) => return self.check.findings.damage(path, None, error.to_string(), FOLLOWS),
        };
        let entries = match snapshot::decode(&content) {
            Ok(entries) => entries,
            Err(damage) => return self.check.findings.damage(path, None, damage.to_string(), FOLLOWS),
        };
        if !self.is_whole {
            return;
        }
        if let Some(what) = entries.iter().find_map(|entry| self.contradiction(as_of, entry)) {
            self.check.findings.damage(path, None, what, FOLLOWS);
        }
    }

    /// What the batches in front of a snapshot say otherwise.
    fn contradiction(&self, as_of: Offset, entry: &SnapshotEntry) -> Option<String> {
        let id = entry.producer_id.0;
        let first = self.first.unwrap_or(as_of);
        if entry.last_offset >= as_of.0 {
            return Some(format!(
                "it names offset {} of producer {id}, and is as of offset {as_of}",
                entry.last_offset
            ));
        }
        let newest = self.producers.get(entry.producer_id).map(|state| (state.epoch, state.window.newest()));
        match newest {
            None if entry.last_offset >= first.0 && !self.place.may_have_gaps() => {
                Some(format!("it names offset {} of producer {id}, who has no batch there", entry.last_offset))
            }
            Some((epoch, Some(newest))) => {
                let same = (epoch, newest.last_offset().0, newest.last_sequence().0)
                    == (entry.epoch, entry.last_offset, entry.last_sequence);
                let what = || {
                    format!(
                        "it says that producer {id} ended with sequence {} at offset {} in epoch {}; its batches say sequence \
                         {} at offset {} in epoch {}",
                        entry.last_sequence,
                        entry.last_offset,
                        entry.epoch.0,
                        newest.last_sequence().0,
                        newest.last_offset(),
                        epoch.0
                    )
                };
                (!same).then(what)
            }
            _ => None,
        }
    }

    /// The log is read: what must come behind it, and what stands beside it.
    pub(super) fn finish(mut self) {
        let end = self.next.unwrap_or(self.place.log_start);
        self.check_snapshots(end);
        for (as_of, path) in std::mem::take(&mut self.snapshots) {
            // What a broken batch hides may reach further.
            let is_odd = self.is_whole && self.place.entry.is_none_or(|entry| as_of > entry.recovery_point.max(end));
            let in_log = self.place.located.last().is_some_and(|last| last.offset >= end);
            if is_odd && !in_log {
                let what = format!("it is as of offset {as_of}, the log ends at {end}");
                self.check.findings.damage(&path, None, what, "Records, or their segment, may be missing.");
            } else {
                self.check_snapshot_alone(&path);
            }
        }
        aborts::check(self.check, self.place, &self.aborted);
        self.check_end(end);
        self.check_what_comes_back(end);
        if self.named > BATCHES_NAMED {
            let what = format!("{} more batches are wrong", self.named - BATCHES_NAMED);
            self.check.findings.damage(&self.place.folder, None, what, "");
        }
    }

    fn check_snapshot_alone(&self, path: &Path) {
        let read = block_on(ReadOnlyDisk.read_file(path)).map_err(|error| error.to_string());
        if let Err(what) = read.and_then(|content| snapshot::decode(&content).map_err(|damage| damage.to_string())) {
            self.check.findings.damage(path, None, what, "It is used only where all checkpoints are lost.");
        }
    }

    /// Everything below the recovery point was flushed.
    fn check_end(&self, end: Offset) {
        let Some(entry) = self.place.entry.filter(|entry| end < entry.recovery_point) else { return };
        let from = end.max(self.place.log_start);
        let has_active =
            self.place.entries.iter().any(|file| names::parse(&file.name) == Some((entry.segment_base, Kind::Log)));
        if from < entry.recovery_point && !self.place.losses.covers(from, entry.recovery_point) && has_active {
            let what = format!("the log ends at offset {end}; up to {} everything was flushed", entry.recovery_point);
            self.check.findings.damage(&self.place.folder, None, what, lost_below(self.place));
        }
    }

    /// What the commit log will add at the next start.
    fn check_what_comes_back(&self, end: Offset) {
        let mut behind = self.located.iter().filter(|one| one.offset >= end).map(|one| one.offset);
        let Some(first) = behind.next() else { return };
        let last = behind.next_back().unwrap_or(first);
        if first > end && !self.place.may_have_gaps() && !self.place.losses.covers(end, first) {
            let what = format!("offsets {end} to {} are neither in the segments nor in the commit log", first.0 - 1);
            self.check.findings.damage(&self.place.folder, None, what, lost_below(self.place));
        }
        let what =
            format!("the batches from offset {first} to the one at {last} are in the commit log and in no segment");
        self.check.findings.note(&self.place.folder, None, what, "A start writes them to the segments.");
    }
}

fn walk_records(batch: &[u8], unpacker: &mut Unpacker) -> Result<(), WalkError> {
    let Ok(header) = BatchHeader::read(batch) else {
        return Err(WalkError::Broken { index: 0, what: "the batch has no header" });
    };
    let mut walker = Walker::start(&Bytes::copy_from_slice(batch), &header, &RULES, unpacker)?;
    let walked = loop {
        match walker.step(STEP_BYTES) {
            Ok(Step::More) => {}
            Ok(Step::Done(_)) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    walker.recycle(unpacker);
    walked
}

/// What `leader-epoch-checkpoint` says; `None` when it is not there or cannot be read.
fn read_epochs(check: &Check, place: &Place) -> Option<LeaderEpochs> {
    const FOLLOWS: &str = "Nothing is lost: a start makes it anew from the batches.";
    let path = place.folder.join(kafka_files::LEADER_EPOCHS);
    let bytes =
        place.entries.iter().any(|entry| matches!(names::parse(&entry.name), Some((_, Kind::Log))) && entry.bytes > 0);
    let content = match block_on(ReadOnlyDisk.read_file(&path)) {
        Ok(content) => content,
        Err(error) => {
            if bytes {
                check.findings.damage_unless(
                    !place.is_clean,
                    &path,
                    None,
                    format!("it cannot be read: {error}"),
                    FOLLOWS,
                );
            }
            return None;
        }
    };
    let parsed = kafka_files::parse_leader_epochs(&String::from_utf8_lossy(&content));
    let is_whole = content.is_empty() || content.ends_with(b"\n");
    match parsed {
        Ok(entries) if is_whole => Some(LeaderEpochs::of(&entries)),
        Ok(_) => {
            check.findings.damage_unless(!place.is_clean, &path, None, "its last line is cut off", FOLLOWS);
            None
        }
        Err(malformed) => {
            check.findings.damage_unless(
                !place.is_clean && content.is_empty(),
                &path,
                None,
                malformed.to_string(),
                FOLLOWS,
            );
            None
        }
    }
}
