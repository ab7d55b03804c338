//! Indexes and seal of one segment, against its batches (storage rule S15: they may be missing, short or wrong, and that
//! costs time only; here it is said).

use std::collections::VecDeque;

use bytes::Bytes;

use super::Check;
use super::partition::Place;
use super::segment::{Subject, content_of, file_of};
use crate::ids::Offset;
use crate::log::crc::crc32c;
use crate::log::index::{OffsetIndex, TimeIndex, TimestampOffset};
use crate::log::names::{self, Kind};
use crate::log::scan::{BatchFacts, ScanEnd};
use crate::log::seal::{Seal, SealDamage};
use crate::log::txn_index;

const MADE_ANEW: &str = "Nothing is lost: the broker makes it anew from the segment when it is needed.";
const READERS: &str = "Readers that look for an offset or a time may start at the wrong place until it is removed: then the broker \
                       makes it anew from the segment.";

/// What stands beside one segment.
pub(super) struct Derived {
    offsets: VecDeque<(Offset, u64)>,
    times: VecDeque<TimestampOffset>,
    crcs: Crcs,
    seal: Option<Seal>,
    /// Largest timestamp so far and its batch's last offset; that of the first batch.
    newest: Option<TimestampOffset>,
    first_timestamp: Option<i64>,
    wrong_offset: Option<(u64, Offset)>,
    wrong_time: Option<TimestampOffset>,
}

/// Checksums of the derived files as they are; `None` for one that cannot be read.
#[derive(Default)]
struct Crcs {
    index: Option<u32>,
    timeindex: Option<u32>,
    txnindex: Option<u32>,
}

impl Derived {
    /// Reads the files and says what is wrong with them alone.
    pub(super) fn read(check: &Check, place: &Place, subject: &Subject) -> Self {
        let seal = read_seal(check, place, subject);
        let content = |kind| content(check, place, subject, kind, seal.is_some());
        let (index, timeindex) = (content(Kind::Index), content(Kind::TimeIndex));
        let txnindex = content(Kind::TxnIndex);
        let mut derived = Self {
            offsets: VecDeque::new(),
            times: VecDeque::new(),
            crcs: Crcs {
                index: index.as_deref().map(crc32c),
                timeindex: timeindex.as_deref().map(crc32c),
                txnindex: txnindex.as_deref().map(crc32c).or(Some(0)),
            },
            seal,
            newest: None,
            first_timestamp: None,
            wrong_offset: None,
            wrong_time: None,
        };
        let largest = Offset(i64::MAX);
        if let Some(file) = index {
            match OffsetIndex::load(subject.base, &file, u64::MAX, largest) {
                Ok(index) => derived.offsets = index.entries().collect(),
                Err(damage) => say(check, place, subject, Kind::Index, damage.to_string()),
            }
        }
        if let Some(file) = timeindex {
            match TimeIndex::load(subject.base, &file, largest) {
                Ok(times) => derived.times = times.entries().collect(),
                Err(damage) => say(check, place, subject, Kind::TimeIndex, damage.to_string()),
            }
        }
        if let Some(Err(damage)) = txnindex.map(|file| txn_index::decode(&file)) {
            say(check, place, subject, Kind::TxnIndex, damage.to_string());
        }
        derived
    }

    /// Holds the entries that are about this batch against it.
    pub(super) fn batch(&mut self, _check: &Check, _place: &Place, facts: &BatchFacts) {
        self.first_timestamp.get_or_insert(facts.max_timestamp);
        // A batch that compaction has emptied counts for nobody's newest record.
        let timestamp = facts.newest_record_timestamp();
        if timestamp > self.newest.map_or(-1, |newest| newest.timestamp) {
            self.newest = Some(TimestampOffset { timestamp, offset: facts.last_offset });
        }
        while let Some((offset, position)) = self.offsets.pop_front_if(|(_, position)| *position <= facts.position) {
            if position != facts.position || offset != facts.last_offset {
                self.wrong_offset.get_or_insert((position, offset));
            }
        }
        let newest = self.newest.map_or(-1, |newest| newest.timestamp);
        while let Some(entry) = self.times.pop_front_if(|entry| entry.offset <= facts.last_offset) {
            // The offset is that of a batch that is as new as any before it.
            if entry.offset < facts.base_offset || entry.timestamp != timestamp || entry.timestamp < newest {
                self.wrong_time.get_or_insert(entry);
            }
        }
    }

    /// Entries about bytes below `position` cannot be judged.
    pub(super) fn pass(&mut self, position: u64) {
        while self.offsets.pop_front_if(|(_, at)| *at < position).is_some() {}
    }

    /// The first batch behind `position` that the index knows.
    pub(super) fn next_batch_behind(&self, position: u64) -> Option<(u64, Offset)> {
        self.offsets.iter().find(|(_, at)| *at > position).map(|(offset, at)| (*at, *offset))
    }

    /// The segment is read to its end; `log_crc` where all of it are batches.
    pub(super) fn finish(
        &mut self,
        check: &Check,
        place: &Place,
        subject: &Subject,
        end: &ScanEnd,
        log_crc: Option<u32>,
    ) {
        let lags = place.may_lag(subject.base);
        self.say_wrong(check, place, subject);
        let ahead = (self.offsets.front().copied(), self.times.front().copied());
        if let Some((offset, position)) = ahead.0 {
            let what = format!("its entry for offset {offset} points to byte {position}, where no batch begins");
            let file = file_of(place, subject.base, Kind::Index);
            check.findings.damage_unless(lags && position >= end.position, &file, None, what, ahead_of(lags));
        }
        if let Some(entry) = ahead.1 {
            let what =
                format!("its entry for time {} names offset {}, which no batch holds", entry.timestamp, entry.offset);
            let file = file_of(place, subject.base, Kind::TimeIndex);
            check.findings.damage_unless(lags && entry.offset >= end.next_offset, &file, None, what, ahead_of(lags));
        }
        if let (Some(log_crc), Some(seal)) = (log_crc, self.seal) {
            self.check_seal(check, place, subject, end, &seal, log_crc);
        }
    }

    /// The segment could not be read to its end: what was wrong until then is wrong.
    pub(super) fn finish_broken(&mut self, check: &Check, place: &Place, subject: &Subject) {
        self.say_wrong(check, place, subject);
    }

    fn say_wrong(&mut self, check: &Check, place: &Place, subject: &Subject) {
        if let Some((position, offset)) = self.wrong_offset.take() {
            let what = format!(
                "its entry for offset {offset} points to byte {position}: no batch with that last offset begins there"
            );
            check.findings.damage(&file_of(place, subject.base, Kind::Index), None, what, READERS);
        }
        if let Some(entry) = self.wrong_time.take() {
            let what = format!(
                "its entry for time {} names offset {}, whose batch says otherwise",
                entry.timestamp, entry.offset
            );
            check.findings.damage(&file_of(place, subject.base, Kind::TimeIndex), None, what, READERS);
        }
    }

    fn check_seal(&self, check: &Check, place: &Place, subject: &Subject, end: &ScanEnd, seal: &Seal, log_crc: u32) {
        let path = file_of(place, subject.base, Kind::Seal);
        let say = |kind, what: String, follows: &str| {
            check.findings.damage(&file_of(place, subject.base, kind), None, what, follows);
        };
        if seal.crcs.log != log_crc {
            let what = "its checksum is not the one that it was sealed with, although each batch's own is right";
            let follows = "Bytes that no batch's checksum covers have changed: an offset, a length or a leader epoch. A start does \
                           not look at flushed bytes. Put the file back from a copy.";
            return say(Kind::Log, what.to_string(), follows);
        }
        let facts = (end.next_offset, self.newest, self.first_timestamp.filter(|first| *first >= 0));
        if end.batches > 0 && facts != (seal.end, seal.newest, seal.first_timestamp) {
            let what = "its end, its largest or its first timestamp are not what the batches say".to_string();
            check.findings.damage(&path, None, what, MADE_ANEW);
        }
        // Behind an open seal the indexes may have grown.
        if seal.open && !place.is_clean {
            return;
        }
        let pairs = [
            (Kind::Index, self.crcs.index, seal.crcs.index),
            (Kind::TimeIndex, self.crcs.timeindex, seal.crcs.timeindex),
            (Kind::TxnIndex, self.crcs.txnindex, seal.crcs.txnindex),
        ];
        for (kind, found, sealed) in pairs {
            if found.is_some_and(|found| found != sealed) {
                say(kind, "its checksum is not the one that it was sealed with".to_string(), MADE_ANEW);
            }
        }
    }
}

fn ahead_of(lags: bool) -> &'static str {
    if lags { "As after a crash: a start drops entries behind the end of the segment." } else { READERS }
}

fn say(check: &Check, place: &Place, subject: &Subject, kind: Kind, what: String) {
    check.findings.damage(&file_of(place, subject.base, kind), None, what, MADE_ANEW);
}

/// The content of a derived file; that it is missing is worth a word where it had to be there.
///
/// What recovery has walked gets its indexes with the next checkpoint that finds it changed, and its seal after them.
fn content(check: &Check, place: &Place, subject: &Subject, kind: Kind, is_sealed: bool) -> Option<Bytes> {
    let path = file_of(place, subject.base, kind);
    match content_of(&path) {
        Ok(Some(content)) => Some(content),
        Ok(None) => {
            // What is not checkpointed yet may have none.
            if kind != Kind::TxnIndex && subject.bytes > 0 && !place.may_lag(subject.base) {
                check.findings.damage_unless(!is_sealed, &path, None, "it is missing", MADE_ANEW);
            }
            None
        }
        Err(error) => {
            check.findings.damage(&path, None, format!("it cannot be read: {error}"), MADE_ANEW);
            None
        }
    }
}

/// The seal, if it is one of this segment as it is now.
fn read_seal(check: &Check, place: &Place, subject: &Subject) -> Option<Seal> {
    let path = file_of(place, subject.base, Kind::Seal);
    let content = match content_of(&path) {
        Ok(content) => content,
        Err(error) => {
            check.findings.damage(&path, None, format!("it cannot be read: {error}"), MADE_ANEW);
            None
        }
    };
    let Some(content) = content else {
        if place.is_clean && subject.bytes > 0 {
            let follows = "Nothing is lost; without it changes of this segment's indexes and offsets cannot be told.";
            check.findings.note(&path, None, "the segment has no seal", follows);
        }
        return None;
    };
    let seal = match Seal::decode(&content) {
        Ok(seal) => seal,
        Err(damage @ SealDamage::Version(_)) => {
            check.findings.damage(&path, None, damage.to_string(), "Start the release that wrote it.");
            return None;
        }
        Err(damage) => {
            // It is written without a flush before, and again by the checkpoint; behind a start, by the one after the first.
            let may_be_begun = place.may_lag(subject.base) || (!place.is_clean && content.is_empty());
            check.findings.damage_unless(may_be_begun, &path, None, damage.to_string(), MADE_ANEW);
            return None;
        }
    };
    if seal.base != subject.base || place.log_id.is_some_and(|log_id| log_id != seal.log_id) {
        check.findings.damage(&path, None, "it is the seal of another segment or partition", MADE_ANEW);
        return None;
    }
    if seal.log_bytes != subject.bytes {
        let grew = seal.log_bytes < subject.bytes && (seal.open || place.may_lag(subject.base));
        let what = format!("it was made for {} bytes, the segment has {}", seal.log_bytes, subject.bytes);
        let lags = place.may_lag(subject.base);
        if !grew {
            check.findings.damage_unless(lags, &path, None, what, "Bytes of the segment were cut off or added.");
        }
        return None;
    }
    Some(seal)
}

/// Files of a segment whose `.log` is not there.
pub(super) fn check_orphans(check: &Check, place: &Place, segments: &[(Offset, u64)]) {
    for entry in &place.entries {
        let Some((base, kind)) = names::parse(&entry.name) else { continue };
        let is_orphan =
            !matches!(kind, Kind::Log | Kind::Snapshot) && !segments.iter().any(|(other, _)| *other == base);
        if !is_orphan {
            continue;
        }
        // Segments that begin behind the recovery point may have lost their names in a power cut.
        let normal = place.may_lag(base) || base < place.log_start;
        let what = "the segment that it belongs to, with the ending .log, is missing";
        let follows =
            if normal { "As after a crash; a start puts it right." } else { "The records of that segment are lost." };
        check.findings.damage_unless(normal, &place.folder.join(&entry.name), None, what, follows);
    }
}
