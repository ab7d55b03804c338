//! Where in a dense table an id stands: an open hash table of positions, four bytes a bucket, at most three quarters full.
//!
//! It knows neither ids nor keys: who asks brings a hash that nobody outside can foresee, and says whether the entry at a
//! position is the wanted one. Small, so that a million positions stay near the core.
//!
//! ```text
//! bucket u32, with 2^bits buckets   low `bits` bits: position + 1, 0 for none | the rest: low bits of the hash
//! home of an entry                  high `bits` bits of its hash
//! ```

const BITS_MIN: u32 = 3;
/// So many buckets leave four bits of the hash in each, and three quarters of them can be used.
const BITS_MAX: u32 = 28;

/// Positions by hash; linear probing.
#[derive(Debug, Default)]
pub(super) struct Index {
    buckets: Vec<u32>,
    bits: u32,
    count: usize,
}

impl Index {
    /// The position with this hash that `is_it` accepts.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.buckets.is_empty() {
            return None;
        }
        let wanted = self.tag(hash);
        let mut bucket = self.home(hash);
        loop {
            let found = self.buckets[bucket];
            if found == 0 {
                return None;
            }
            let at = self.position(found);
            if found & !self.mask() == wanted && is_it(at) {
                return Some(at);
            }
            bucket = self.next(bucket);
        }
    }

    /// Adds a position that is not there yet; `hash_of` tells the hash of each position.
    pub(super) fn insert(&mut self, hash: u64, at: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.count + 1) * 4 > self.buckets.len() * 3 {
            self.resize((self.bits + 1).max(BITS_MIN), hash_of);
        }
        self.count += 1;
        self.put(hash, at);
    }

    /// The entry has moved.
    pub(super) fn moved(&mut self, hash: u64, from: u32, to: u32) {
        let bucket = self.bucket_of(hash, from);
        self.buckets[bucket] = self.tag(hash) | (to + 1);
    }

    /// Takes a position out; `hash_of` tells the hash of every other one.
    pub(super) fn remove(&mut self, hash: u64, at: u32, hash_of: impl Fn(u32) -> u64) {
        let mut hole = self.bucket_of(hash, at);
        let mut bucket = self.next(hole);
        while self.buckets[bucket] != 0 {
            let home = self.home(hash_of(self.position(self.buckets[bucket])));
            // What the hole does not cut off from its home may stay; the rest closes the gap.
            if self.gap(home, bucket) >= self.gap(hole, bucket) {
                self.buckets[hole] = self.buckets[bucket];
                hole = bucket;
            }
            bucket = self.next(bucket);
        }
        self.buckets[hole] = 0;
        self.count -= 1;
    }

    /// Gives memory back that so few positions do not need; they are 0 to below their number.
    pub(super) fn shrink(&mut self, hash_of: impl Fn(u32) -> u64) {
        if self.bits > BITS_MIN && self.count * 8 < self.buckets.len() {
            self.resize(self.bits - 1, hash_of);
        }
    }

    fn resize(&mut self, bits: u32, hash_of: impl Fn(u32) -> u64) {
        assert!(bits <= BITS_MAX, "{} producers on one partition are too many", self.count);
        self.buckets = Vec::new(); // before the new ones are there, so that both never are
        self.buckets = vec![0; 1 << bits];
        self.bits = bits;
        for at in 0..u32::try_from(self.count).unwrap_or(u32::MAX) {
            self.put(hash_of(at), at);
        }
    }

    fn put(&mut self, hash: u64, at: u32) {
        let mut bucket = self.home(hash);
        while self.buckets[bucket] != 0 {
            bucket = self.next(bucket);
        }
        self.buckets[bucket] = self.tag(hash) | (at + 1);
    }

    fn bucket_of(&self, hash: u64, at: u32) -> usize {
        let mut bucket = self.home(hash);
        while self.position(self.buckets[bucket]) != at {
            assert!(self.buckets[bucket] != 0, "position {at} is not in the index");
            bucket = self.next(bucket);
        }
        bucket
    }

    fn mask(&self) -> u32 {
        (1 << self.bits) - 1
    }

    /// The position in a bucket; out of every range for an empty one.
    fn position(&self, bucket: u32) -> u32 {
        (bucket & self.mask()).wrapping_sub(1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
    fn tag(&self, hash: u64) -> u32 {
        (hash as u32) << self.bits
    }

    fn home(&self, hash: u64) -> usize {
        usize::try_from(hash >> (u64::BITS - self.bits)).unwrap_or_default()
    }

    fn next(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    /// Buckets from one to another, the wrap at the end included.
    fn gap(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few different hashes, so that buckets collide and wrap around.
    fn hash_of(id: u32) -> u64 {
        u64::from(id % 40).wrapping_mul(0x0600_0000_0000_0001) | u64::from(id & 1) << 63 | u64::from(id & 1) << 62
    }

    /// A dense table as the producers keep theirs.
    #[test]
    fn it_agrees_with_a_list() {
        let (mut index, mut ids) = (Index::default(), Vec::new());
        let mut state = 7_u64;
        for step in 0..40_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = u32::try_from(state >> 33).unwrap() % 300;
            let found = index.find(hash_of(id), |at| ids[at as usize] == id);
            assert_eq!(found, ids.iter().position(|known| *known == id).map(|at| u32::try_from(at).unwrap()));
            let shrinks = step / 5_000 % 2 == 1;
            match found {
                None if !shrinks || step % 7 == 0 => {
                    let at = u32::try_from(ids.len()).unwrap();
                    index.insert(hash_of(id), at, |at| hash_of(ids[at as usize]));
                    ids.push(id);
                }
                Some(at) if shrinks || step % 7 == 0 => {
                    index.remove(hash_of(id), at, |at| hash_of(ids[at as usize]));
                    ids.swap_remove(at as usize);
                    if let Some(moved) = ids.get(at as usize) {
                        index.moved(hash_of(*moved), u32::try_from(ids.len()).unwrap(), at);
                    }
                    index.shrink(|at| hash_of(ids[at as usize]));
                }
                _ => {}
            }
        }
    }
}
