//! Names of the files of a partition: Kafka's, and the seal.

use std::path::{Path, PathBuf};

use crate::ids::Offset;

/// What a file of a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Record batches.
    Log,
    /// Offset → position.
    Index,
    /// Timestamp → offset.
    TimeIndex,
    /// Aborted transactions.
    TxnIndex,
    /// Producers as of the offset in the name.
    Snapshot,
    /// Checksums and facts of a closed segment; ours.
    Seal,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] = [Self::Log, Self::Index, Self::TimeIndex, Self::TxnIndex, Self::Snapshot, Self::Seal];

    /// The ending, dot included.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Log => ".log",
            Self::Index => ".index",
            Self::TimeIndex => ".timeindex",
            Self::TxnIndex => ".txnindex",
            Self::Snapshot => ".snapshot",
            Self::Seal => ".seal",
        }
    }
}

/// Ending of a file that waits to be unlinked.
pub const DELETED: &str = ".deleted";

/// Ending of what compaction is writing.
pub const CLEANED: &str = ".cleaned";
/// Ending of what compaction has written and is about to put in its place.
pub const SWAP: &str = ".swap";

/// The path with another ending behind it.
#[must_use]
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(ending);
    PathBuf::from(name)
}

/// Reads a name with an ending behind it.
#[must_use]
pub fn parse_with(name: &str, ending: &str) -> Option<(Offset, Kind)> {
    parse(name.strip_suffix(ending)?)
}

/// The name of a file: 20 digits and the ending.
#[must_use]
pub fn file_name(base: Offset, kind: Kind) -> String {
    format!("{:020}{}", base.0, kind.suffix())
}

/// The path of a file in the folder of its partition.
#[must_use]
pub fn path(folder: &Path, base: Offset, kind: Kind) -> PathBuf {
    folder.join(file_name(base, kind))
}

/// Ending of a snapshot that is not whole yet.
const UNFINISHED: &str = ".tmp";

/// The path of a snapshot that is not whole yet.
#[must_use]
pub fn unfinished_snapshot(folder: &Path, as_of: Offset) -> PathBuf {
    folder.join(file_name(as_of, Kind::Snapshot) + UNFINISHED)
}

/// True for the name of a snapshot that was never finished.
#[must_use]
pub fn is_unfinished_snapshot(name: &str) -> bool {
    name.strip_suffix(UNFINISHED).and_then(parse).is_some_and(|(_, kind)| kind == Kind::Snapshot)
}

/// Reads a name; `None` for everything that is not exactly of this form.
#[must_use]
pub fn parse(name: &str) -> Option<(Offset, Kind)> {
    let (digits, suffix) = name.split_at_checked(20)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kind = Kind::ALL.into_iter().find(|kind| kind.suffix() == suffix)?;
    Some((Offset(digits.parse().ok()?), kind))
}

/// The base offset in the name of a file that waits to be unlinked.
#[must_use]
pub fn parse_deleted(name: &str) -> Option<Offset> {
    parse(name.strip_suffix(DELETED)?).map(|(base, _)| base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_others_are_left_alone() {
        for kind in Kind::ALL {
            assert_eq!(parse(&file_name(Offset(42), kind)), Some((Offset(42), kind)));
        }
        assert_eq!(file_name(Offset(42), Kind::Log), "00000000000000000042.log");
        let others =
            ["42.log", "00000000000000000042.log.deleted", "+0000000000000000042.log", "", "99999999999999999999.log"];
        for other in others {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
