//! The newest offset of each key, in a bounded amount of memory.
//!
//! Keys are not kept, only 128 bits of them, made with a secret that is drawn anew for each map: two keys that meet would
//! cost the older one its record, so nobody may be able to choose such keys. Offsets stand beside them in one flat table.
//!
//! Source: apache/kafka `SkimpyOffsetMap.java`, which uses MD5.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::ids::Offset;

/// Bytes of one place of the table.
pub const SLOT_BYTES: usize = 24;

/// How large a map may become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapLimits {
    /// `log.cleaner.dedupe.buffer.size`, of one shard.
    pub bytes_max: usize,
    /// `log.cleaner.io.buffer.load.factor`: which share of the places may be taken.
    pub load_max: f64,
}

/// A key does not fit in any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// See the module.
#[derive(Debug)]
pub struct OffsetMap {
    /// Two halves of the key's hash and its offset plus one; 0 is an empty place.
    slots: Vec<[u64; 3]>,
    secret: (u64, u64),
    count: usize,
    count_max: usize,
    end: Option<Offset>,
}

impl OffsetMap {
    /// An empty map for at most `records` different keys, or fewer where the limits say so.
    #[must_use]
    pub fn new(records: u64, limits: MapLimits, secret: (u64, u64)) -> Self {
        let slots_max = (limits.bytes_max / SLOT_BYTES).max(2);
        let load = limits.load_max.clamp(0.05, 0.95);
        let wanted = usize::try_from(records.saturating_mul(2).saturating_add(2)).unwrap_or(usize::MAX);
        let slots = wanted.min(slots_max);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a table's size, rounded down"
        )]
        let count_max = ((slots as f64 * load) as usize).clamp(1, slots - 1);
        // Zeroed memory is not touched before it is used.
        Self { slots: vec![[0; 3]; slots], secret, count: 0, count_max, end: None }
    }

    /// Notes that `key` has a record at `offset`, which is above all that was noted before.
    ///
    /// # Errors
    /// `Full`; nothing has changed then.
    pub fn note(&mut self, key: &[u8], offset: Offset) -> Result<(), Full> {
        if self.count >= self.count_max {
            return Err(Full);
        }
        let hash = self.hash(key);
        let at = self.place_of(hash);
        let slot = &mut self.slots[at];
        if slot[2] == 0 {
            self.count += 1;
        }
        *slot = [hash.0, hash.1, offset.0.cast_unsigned().wrapping_add(1)];
        Ok(())
    }

    /// The newest offset of `key`, if it was noted.
    #[must_use]
    pub fn newest(&self, key: &[u8]) -> Option<Offset> {
        let slot = self.slots[self.place_of(self.hash(key))];
        (slot[2] > 0).then(|| Offset(slot[2].wrapping_sub(1).cast_signed()))
    }

    /// Every record below `end` was noted.
    pub fn note_end(&mut self, end: Offset) {
        self.end = self.end.max(Some(end));
    }

    /// The offset below which every record was noted; `None` where not even one batch was.
    #[must_use]
    pub fn end(&self) -> Option<Offset> {
        self.end
    }

    /// Number of different keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        let mut hasher = SipHasher24::new_with_keys(self.secret.0, self.secret.1);
        hasher.write(key);
        let hash = hasher.finish128();
        (hash.h1, hash.h2)
    }

    /// The place of a key: where it is, or the empty one where it would go. There always is an empty one.
    fn place_of(&self, hash: (u64, u64)) -> usize {
        let slots = self.slots.len() as u64;
        // The upper half of the product spreads over any number of places, without a division.
        let mut at = usize::try_from((u128::from(hash.0) * u128::from(slots)) >> 64).unwrap_or(0);
        loop {
            let slot = &self.slots[at];
            if slot[2] == 0 || (slot[0], slot[1]) == hash {
                return at;
            }
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
    }
}
