//! Which assignors all members know, and which one they choose.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

/// How many members know each assignor.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<String, usize>);

impl Known {
    /// A member came that knows these.
    pub fn add(&mut self, protocols: &[(String, Bytes)]) {
        for name in distinct(protocols) {
            *self.0.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// A member went that knew these.
    pub fn remove(&mut self, protocols: &[(String, Bytes)]) {
        for name in distinct(protocols) {
            if let Some(count) = self.0.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(name);
                }
            }
        }
    }

    /// Whether an assignor is known to so many.
    pub fn is_known_to(&self, name: &str, members: usize) -> bool {
        self.0.get(name).copied().unwrap_or(0) == members
    }

    /// The assignor that most prefer, among those that all of them know.
    pub fn choose<'a>(&self, voters: impl ExactSizeIterator<Item = &'a [(String, Bytes)]>) -> Option<String> {
        let members = voters.len();
        let mut votes: Vec<(&str, usize)> = Vec::new();
        for protocols in voters {
            let choice =
                protocols.iter().map(|(name, _)| name.as_str()).find(|name| self.is_known_to(name, members))?;
            match votes.iter_mut().find(|(name, _)| *name == choice) {
                Some((_, count)) => *count += 1,
                None => votes.push((choice, 1)),
            }
        }
        let table = (votes.len() * 4).div_ceil(3).next_power_of_two().max(16);
        votes.sort_by_key(|(name, _)| java_bucket(name, table));
        let most = votes.iter().map(|(_, count)| *count).max()?;
        votes.iter().find(|(_, count)| *count == most).map(|(name, _)| (*name).to_owned())
    }
}

/// The names, each once.
fn distinct(protocols: &[(String, Bytes)]) -> HashSet<&str> {
    protocols.iter().map(|(name, _)| name.as_str()).collect()
}

/// Where a name stands in a hash map of Java with so many buckets: Kafka takes the first of those with most votes in
/// that order, so a tie ends as it does there.
fn java_bucket(name: &str, buckets: usize) -> usize {
    let hash = name.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
    (hash ^ (hash >> 16)) as usize & (buckets - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(members: &[&[&str]]) -> Option<String> {
        let members: Vec<Vec<(String, Bytes)>> =
            members.iter().map(|names| names.iter().map(|name| ((*name).to_owned(), Bytes::new())).collect()).collect();
        let mut known = Known::default();
        members.iter().for_each(|protocols| known.add(protocols));
        known.choose(members.iter().map(Vec::as_slice))
    }

    #[test]
    fn most_votes_among_what_all_know() {
        assert_eq!(choose(&[&["a", "b"], &["b", "a"], &["b", "a"]]).as_deref(), Some("b"));
        assert_eq!(choose(&[&["a", "b"], &["a", "b"], &["b"]]).as_deref(), Some("b"), "a is not known to all");
        assert_eq!(choose(&[&["a", "a"]]).as_deref(), Some("a"), "named twice is known once");
        assert_eq!(choose(&[&["a"], &["b"]]), None);
        assert_eq!(choose(&[]), None);
    }
}
