//! Names and numbers that every layer shares. Distinct types keep offsets, sequences and positions from mixing.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// Offset of a record within one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

impl Offset {
    /// The offset `count` records further; there is none behind the largest.
    #[must_use]
    pub fn plus(self, count: i64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Sequence number of a record within one producer and partition; `i32::MAX` is followed by 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sequence(pub i32);

impl Sequence {
    /// The sequence `count` records further, wrapping at 31 bits.
    ///
    /// Source: apache/kafka `DefaultRecordBatch.incrementSequence`.
    #[must_use]
    pub fn plus(self, count: i32) -> Self {
        Self(self.0.wrapping_add(count) & i32::MAX)
    }
}

/// Who writes: handed out by InitProducerId, never repeated within the life of a data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

/// Which incarnation of a producer id; an older epoch is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerEpoch(pub i16);

/// One pinned core and what it owns, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

impl ShardId {
    /// As an index into per-shard tables.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0)
    }
}

/// One partition and one life of it: given by the catalog, never used again (storage rule S11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u64);

/// A topic's id as Kafka's: 16 bytes, printed as URL-safe base64 without padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The id that means "none" on the wire.
    pub const ZERO: Self = Self([0; 16]);
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = [0_u8; 22];
        let mut bits: u32 = 0;
        let mut held = 0;
        let mut at = 0;
        for byte in self.0.iter().copied().chain([0]) {
            bits = (bits << 8) | u32::from(byte);
            held += 8;
            while held >= 6 && at < text.len() {
                held -= 6;
                text[at] = ALPHABET[((bits >> held) & 63) as usize];
                at += 1;
            }
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// A partition by the names that people use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition index, from 0.
    pub partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A map whose order is the same in every process that has done the same, so that a simulated run can be repeated.
///
/// For keys that the broker gives out itself: with those that clients choose, one could make them all collide.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_wraps_after_the_largest_31_bit_number() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).plus(3), Sequence(1));
        assert_eq!(Sequence(5).plus(1), Sequence(6));
    }

    #[test]
    fn topic_id_prints_as_kafka_prints_it() {
        assert_eq!(TopicId::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        let id = TopicId([0xfb, 0xff, 0xbf, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xff]);
        assert_eq!(id.to_string(), "-_-_AQIDBAUGBwgJCgsM_w");
    }
}
