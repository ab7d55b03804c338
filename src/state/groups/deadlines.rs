//! When something is due, by uptime: sessions of members, rounds, syncs. Moving one costs no allocation.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a deadline stands; its owner keeps this to move or to take it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    at_ms: u64,
    number: u64,
}

/// What is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// In which group.
    pub group: Arc<str>,
    /// What of it.
    pub what: What,
}

/// What of a group is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A member, or one that was given an id, was not heard of for its session time-out.
    Session(Arc<str>),
    /// Nobody else is waited for in this round.
    Round,
    /// Who has not asked for its assignment by now is gone.
    Sync,
}

/// All deadlines of one coordinator.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    due: BTreeMap<Key, Due>,
    numbers: u64,
}

impl Deadlines {
    /// Sets the deadline that `key` names, or makes one.
    pub fn set(&mut self, key: &mut Option<Key>, at_ms: u64, due: impl FnOnce() -> Due) {
        let due = key.take().and_then(|key| self.due.remove(&key)).unwrap_or_else(due);
        let new = Key { at_ms, number: self.numbers };
        self.numbers += 1;
        self.due.insert(new, due);
        *key = Some(new);
    }

    /// Takes a deadline back.
    pub fn clear(&mut self, key: &mut Option<Key>) {
        if let Some(key) = key.take() {
            self.due.remove(&key);
        }
    }

    /// The first one.
    pub fn first_ms(&self) -> Option<u64> {
        self.due.first_key_value().map(|(key, _)| key.at_ms)
    }

    /// A mark: what is set from now on is not given by [`Self::pop`] with this mark.
    pub fn mark(&self) -> u64 {
        self.numbers
    }

    /// The next one that has passed and that was set before the mark, so that a look at them always ends.
    pub fn pop(&mut self, now_ms: u64, mark: u64) -> Option<Due> {
        let key = *self.due.first_key_value()?.0;
        if key.at_ms > now_ms || key.number >= mark {
            return None;
        }
        self.due.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(member: &str) -> Due {
        Due { group: "g".into(), what: What::Session(member.into()) }
    }

    #[test]
    fn a_moved_deadline_is_given_once_and_at_its_new_time() {
        let mut deadlines = Deadlines::default();
        let mut key = None;
        deadlines.set(&mut key, 10, || due("a"));
        deadlines.set(&mut key, 20, || due("never made"));
        let mark = deadlines.mark();
        assert_eq!(deadlines.pop(19, mark), None);
        assert_eq!(deadlines.first_ms(), Some(20));
        assert_eq!(deadlines.pop(20, mark), Some(due("a")));
        assert_eq!(deadlines.pop(20, mark), None);
        assert_eq!(deadlines.first_ms(), None);
    }

    #[test]
    fn what_is_set_after_the_mark_waits_for_the_next_look() {
        let mut deadlines = Deadlines::default();
        deadlines.set(&mut None, 5, || due("a"));
        let mark = deadlines.mark();
        assert_eq!(deadlines.pop(5, mark), Some(due("a")));
        deadlines.set(&mut None, 5, || due("b"));
        assert_eq!(deadlines.pop(5, mark), None);
        assert_eq!(deadlines.pop(5, deadlines.mark()), Some(due("b")));
    }
}
