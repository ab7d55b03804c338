//! Where in a dense table an id stands: an open hash table of positions, eight bytes a bucket.
//!
//! It knows neither ids nor keys: who asks brings a hash ("tag") that nobody outside can foresee, and says whether the entry
//! at a position is the wanted one. The upper bits of the tag choose the bucket, so that growing needs no entry.

/// The position of an empty bucket.
const EMPTY: u32 = u32::MAX;
const BITS_MIN: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tag: u32,
    at: u32,
}

const NONE: Bucket = Bucket { tag: 0, at: EMPTY };

/// Positions by tag; linear probing, at most three quarters full.
#[derive(Debug, Default)]
pub(super) struct Index {
    buckets: Vec<Bucket>,
    bits: u32,
    count: usize,
}

impl Index {
    /// The position with this tag that `is_it` accepts.
    pub(super) fn find(&self, tag: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut bucket = self.home(tag)?;
        loop {
            let Bucket { tag: found, at } = self.buckets[bucket];
            if at == EMPTY {
                return None;
            }
            if found == tag && is_it(at) {
                return Some(at);
            }
            bucket = self.next(bucket);
        }
    }

    /// Adds a position that is not there yet.
    pub(super) fn insert(&mut self, tag: u32, at: u32) {
        assert!(at != EMPTY, "a table has at most 2^32 - 1 entries");
        if (self.count + 1) * 4 > self.buckets.len() * 3 {
            self.resize((self.bits + 1).max(BITS_MIN));
        }
        self.count += 1;
        self.put(Bucket { tag, at });
    }

    /// The entry has moved.
    pub(super) fn moved(&mut self, tag: u32, from: u32, to: u32) {
        let bucket = self.bucket_of(tag, from);
        self.buckets[bucket].at = to;
    }

    /// Takes a position out.
    pub(super) fn remove(&mut self, tag: u32, at: u32) {
        let mut hole = self.bucket_of(tag, at);
        self.count -= 1;
        let mut bucket = self.next(hole);
        loop {
            let moving = self.buckets[bucket];
            if moving.at == EMPTY {
                break;
            }
            // What the hole does not cut off from its home may stay; the rest closes the gap.
            if self.distance(moving.tag, bucket) >= self.gap(hole, bucket) {
                self.buckets[hole] = moving;
                hole = bucket;
            }
            bucket = self.next(bucket);
        }
        self.buckets[hole] = NONE;
        if self.bits > BITS_MIN && self.count * 8 < self.buckets.len() {
            self.resize(self.bits - 1);
        }
    }

    fn put(&mut self, new: Bucket) {
        let Some(mut bucket) = self.home(new.tag) else { return };
        while self.buckets[bucket].at != EMPTY {
            bucket = self.next(bucket);
        }
        self.buckets[bucket] = new;
    }

    fn resize(&mut self, bits: u32) {
        let old = std::mem::replace(&mut self.buckets, vec![NONE; 1 << bits]);
        self.bits = bits;
        old.into_iter().filter(|bucket| bucket.at != EMPTY).for_each(|bucket| self.put(bucket));
    }

    fn bucket_of(&self, tag: u32, at: u32) -> usize {
        let home = self.home(tag).unwrap_or_default();
        let mut bucket = home;
        while self.buckets[bucket].at != at {
            assert!(self.buckets[bucket].at != EMPTY, "position {at} is not in the index");
            bucket = self.next(bucket);
        }
        bucket
    }

    fn home(&self, tag: u32) -> Option<usize> {
        (!self.buckets.is_empty()).then(|| (tag >> (u32::BITS - self.bits)) as usize)
    }

    fn next(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    /// Buckets from the home of `tag` to `bucket`.
    fn distance(&self, tag: u32, bucket: usize) -> usize {
        self.gap(self.home(tag).unwrap_or_default(), bucket)
    }

    fn gap(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Few different tags, so that buckets collide and wrap around.
    #[test]
    fn it_agrees_with_a_map() {
        let mut index = Index::default();
        let mut model: HashMap<u32, u32> = HashMap::new();
        let mut state = 7_u64;
        for step in 0..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = u32::try_from(state >> 33).unwrap() % 300;
            let tag = (at % 40).wrapping_mul(0x0fff_ff01) | 0xf000_0000 * (at & 1);
            match (model.contains_key(&at), step % 3) {
                (true, 0) => {
                    index.remove(tag, at);
                    model.remove(&at);
                }
                (true, 1) => {
                    let to = at + 1000 * (1 + step % 7);
                    index.moved(tag, at, to);
                    index.moved(tag, to, at);
                }
                (true, _) => {}
                (false, _) => {
                    index.insert(tag, at);
                    model.insert(at, tag);
                }
            }
            assert_eq!(index.find(tag, |found| found == at).is_some(), model.contains_key(&at));
        }
        assert_eq!(index.count, model.len());
        for (at, tag) in model {
            assert_eq!(index.find(tag, |found| found == at), Some(at));
        }
    }
}
