//! Kafka's small text files: written for others (at checkpoints and clean stops), never needed by us after a move-in.
//!
//! ```text
//! *-offset-checkpoint      "0\n<count>\n" and a line "<topic> <partition> <offset>\n" for each
//! leader-epoch-checkpoint  "0\n<count>\n" and a line "<epoch> <start offset>\n" for each
//! partition.metadata       "version: 0\ntopic_id: <base64>", without a newline at the end
//! meta.properties          "#\n#<date>\n" and key=value lines
//! .kafka_cleanshutdown     {"version":0,"brokerEpoch":<epoch>}; there only after a clean stop
//! ```
//! Source: apache/kafka `CheckpointFile.java`, `PartitionMetadataFile.java`, `MetaProperties.java`,
//! `CleanShutdownFileHandler.java`; files written by Apache Kafka 4.4.0.

use std::fmt::Write;
use std::sync::Arc;

use crate::ids::{Offset, TopicId, TopicPartition};

/// Up to where each log is flushed.
pub const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
/// Log starts that are not the base of the first segment.
pub const LOG_STARTS: &str = "log-start-offset-checkpoint";
/// High watermarks.
pub const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
/// Up to where each compacted log is clean.
pub const CLEANER_OFFSETS: &str = "cleaner-offset-checkpoint";
/// Leader epochs of one partition.
pub const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// Topic id of one partition.
pub const PARTITION_METADATA: &str = "partition.metadata";
/// Cluster and node of a log dir.
pub const META_PROPERTIES: &str = "meta.properties";
/// Says that the last stop was clean.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

/// A text file that is not what Kafka writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Malformed {
    /// Counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// What was expected there.
    pub what: &'static str,
}

/// An offset checkpoint file.
#[must_use]
pub fn encode_offsets<'a>(entries: impl ExactSizeIterator<Item = (&'a TopicPartition, Offset)>) -> String {
    let mut text = OffsetsText::of(entries.len());
    entries.for_each(|(of, offset)| text.push(of, offset));
    text.end()
}

/// An offset checkpoint file in the making.
pub struct OffsetsText(String);

impl OffsetsText {
    /// A file of so many entries.
    #[must_use]
    pub fn of(entries: usize) -> Self {
        Self(checkpoint_head(entries))
    }

    /// The next entry.
    pub fn push(&mut self, of: &TopicPartition, offset: Offset) {
        push_line(&mut self.0, format_args!("{} {} {}", of.topic, of.partition, offset));
    }

    /// The whole text.
    #[must_use]
    pub fn end(self) -> String {
        self.0
    }
}

/// Reads an offset checkpoint file; an empty one has no entries.
///
/// # Errors
/// Names the first line that does not fit.
pub fn parse_offsets(text: &str) -> Result<Vec<(TopicPartition, Offset)>, Malformed> {
    parse_checkpoint(text, |line| {
        let mut fields = line.split(' ');
        let (topic, partition, offset) = (fields.next()?, fields.next()?, fields.next()?);
        let of = TopicPartition { topic: Arc::from(topic), partition: partition.parse().ok()? };
        fields.next().is_none().then_some((of, Offset(natural(offset)?)))
    })
}

/// A leader epoch and the first offset that was written in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderEpoch {
    /// The epoch: the store's generation.
    pub epoch: i32,
    /// First offset of it.
    pub start: Offset,
}

/// A `leader-epoch-checkpoint`.
#[must_use]
pub fn encode_leader_epochs(epochs: &[LeaderEpoch]) -> String {
    let mut text = checkpoint_head(epochs.len());
    for entry in epochs {
        push_line(&mut text, format_args!("{} {}", entry.epoch, entry.start));
    }
    text
}

/// Reads a `leader-epoch-checkpoint`; an empty one has no entries.
///
/// # Errors
/// Names the first line that does not fit.
pub fn parse_leader_epochs(text: &str) -> Result<Vec<LeaderEpoch>, Malformed> {
    parse_checkpoint(text, |line| {
        let (epoch, start) = line.split_once(' ')?;
        let epoch = epoch.parse().ok().filter(|epoch: &i32| *epoch >= 0)?;
        Some(LeaderEpoch { epoch, start: Offset(natural(start)?) })
    })
}

/// A `partition.metadata`.
#[must_use]
pub fn encode_partition_metadata(topic_id: TopicId) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

/// Reads a `partition.metadata`.
///
/// # Errors
/// Names the first line that does not fit.
pub fn parse_partition_metadata(text: &str) -> Result<TopicId, Malformed> {
    let mut lines = text.lines();
    if lines.next() != Some("version: 0") {
        return Err(Malformed { line: 1, what: "expected \"version: 0\"" });
    }
    let id = lines.next().and_then(|line| line.strip_prefix("topic_id: ")).and_then(decode_id);
    id.map(TopicId).ok_or(Malformed { line: 2, what: "expected \"topic_id: \" and 22 characters of base64" })
}

/// What `meta.properties` says about a log dir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// Id of the cluster.
    pub cluster_id: String,
    /// Id of the node.
    pub node_id: i32,
    /// Id of this log dir.
    pub directory_id: [u8; 16],
}

/// A `meta.properties`, version 1.
#[must_use]
pub fn encode_meta_properties(meta: &MetaProperties, now_ms: i64) -> String {
    format!(
        "#\n#{}\nnode.id={}\ndirectory.id={}\nversion=1\ncluster.id={}\n",
        utc_date(now_ms),
        meta.node_id,
        TopicId(meta.directory_id),
        meta.cluster_id
    )
}

/// Reads a `meta.properties`, version 1.
///
/// # Errors
/// Names the property that is missing or wrong.
pub fn parse_meta_properties(text: &str) -> Result<MetaProperties, Malformed> {
    let property = |name: &str| {
        let pairs = text.lines().filter(|line| !line.trim_start().starts_with(['#', '!']));
        pairs.filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    };
    let missing = |what| Malformed { line: 0, what };
    if property("version") != Some("1") {
        return Err(missing("expected version=1"));
    }
    Ok(MetaProperties {
        cluster_id: property("cluster.id").ok_or(missing("cluster.id is missing"))?.to_string(),
        node_id: property("node.id").and_then(|id| id.parse().ok()).ok_or(missing("node.id is no number"))?,
        directory_id: property("directory.id").and_then(decode_id).ok_or(missing("directory.id is no id"))?,
    })
}

/// A `.kafka_cleanshutdown`. Epochs of brokers are given by Kafka's controller; -1 says "not known", as Kafka itself
/// takes a missing file.
#[must_use]
pub fn encode_clean_shutdown() -> String {
    r#"{"version":0,"brokerEpoch":-1}"#.to_string()
}

fn checkpoint_head(entries: usize) -> String {
    format!("0\n{entries}\n")
}

fn push_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

fn parse_checkpoint<T>(text: &str, parse_line: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Malformed> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut lines = text.lines();
    if lines.next() != Some("0") {
        return Err(Malformed { line: 1, what: "expected version 0" });
    }
    let count = lines.next().and_then(|line| line.parse::<usize>().ok());
    let count = count.ok_or(Malformed { line: 2, what: "expected the number of entries" })?;
    let entries = lines
        .enumerate()
        .map(|(at, line)| parse_line(line).ok_or(Malformed { line: at + 3, what: "not an entry" }))
        .collect::<Result<Vec<T>, _>>()?;
    if entries.len() == count {
        Ok(entries)
    } else {
        Err(Malformed { line: 2, what: "another number of entries follows" })
    }
}

fn natural(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number| *number >= 0)
}

/// URL-safe base64 without padding, 22 characters.
fn decode_id(text: &str) -> Option<[u8; 16]> {
    if text.len() != 22 {
        return None;
    }
    let mut bits: u128 = 0;
    for (at, character) in text.bytes().enumerate() {
        let six = six_bits(character)?;
        // 22 x 6 = 132 bits: the last character carries two bits of the id and four that are zero.
        let (value, width) = if at == 21 { (six >> 4, 2) } else { (six, 6) };
        bits = (bits << width) | u128::from(value);
    }
    Some(bits.to_be_bytes())
}

fn six_bits(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

/// As Java prints a date: `Sun Nov 29 21:31:30 UTC 2026`.
fn utc_date(now_ms: i64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = now_ms.div_euclid(1000);
    let (days, of_day) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    let (year, month, day) = civil(days);
    let name = |names: &'static [&'static str], at: i64| usize::try_from(at).ok().and_then(|at| names.get(at).copied());
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        name(&WEEKDAYS, days.rem_euclid(7)).unwrap_or_default(),
        name(&MONTHS, month - 1).unwrap_or_default(),
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// Year, month and day of a number of days since 1970. Years are counted from March, so that a leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    const ERA_DAYS: i64 = 146_097;
    let since_era0 = days + 719_468;
    let (era, of_era) = (since_era0.div_euclid(ERA_DAYS), since_era0.rem_euclid(ERA_DAYS));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_printed_as_java_prints_them() {
        assert_eq!(utc_date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(utc_date(1_795_987_890_123), "Sun Nov 29 21:31:30 UTC 2026");
        assert_eq!(utc_date(951_782_400_000), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(utc_date(4_107_542_399_000), "Sun Feb 28 23:59:59 UTC 2100");
    }

    #[test]
    fn ids_are_read_as_they_are_printed() {
        for seed in 0..=255_u128 {
            let id = seed.wrapping_mul(0x9123_4567_89ab_cdef_0f1e_2d3c_4b5a_6979).to_be_bytes();
            assert_eq!(decode_id(&TopicId(id).to_string()), Some(id));
        }
        assert_eq!(decode_id("AAAAAAAAAAAAAAAAAAAAA"), None);
        assert_eq!(decode_id("AAAAAAAAAAA+AAAAAAAAAA"), None);
    }

    #[test]
    fn a_wrong_line_is_named() {
        assert_eq!(parse_offsets("0\n1\nt 0\n").map_err(|error| error.line), Err(3));
        assert_eq!(parse_offsets("0\n2\nt 0 5\n").map_err(|error| error.line), Err(2));
        assert_eq!(parse_offsets("1\n0\n").map_err(|error| error.line), Err(1));
        assert_eq!(parse_offsets("0\n1\nt 0 -5\n").map_err(|error| error.line), Err(3));
        assert_eq!(parse_leader_epochs("0\n1\n-1 5\n").map_err(|error| error.line), Err(3));
    }
}
