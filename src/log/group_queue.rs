//! Which records travel together: groups that wait for the disk, in order. No I/O and no clock.
//!
//! The last group is open: records join it until it has reached a limit. A group is due as soon as one of its records
//! is waited for, another group stands behind it, or it has grown enough or waited long enough.

use std::collections::VecDeque;
use std::time::Duration;

use super::log_file::{LogRecord, group_bytes};

/// Limits of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    /// Block size in bytes.
    pub block_bytes: usize,
    /// Most bytes of a group on disk, unless a single record is larger.
    pub bytes_max: usize,
    /// Most records of a group.
    pub records_max: usize,
    /// A group that nobody waits for is due at this size in bytes …
    pub lazy_bytes: usize,
    /// … or after this time.
    pub lazy_wait: Duration,
}

/// Records that will be written together.
#[derive(Debug, Default)]
pub struct Group {
    /// Its number.
    pub sequence: u64,
    /// Its content, in the order of joining.
    pub records: Vec<LogRecord>,
    /// Whether somebody waits for it.
    pub urgent: bool,
    payload_bytes: usize,
    opened_at: Duration,
}

impl Group {
    /// Bytes on disk.
    #[must_use]
    pub fn disk_bytes(&self, block_bytes: usize) -> usize {
        group_bytes(self.payload_bytes, block_bytes)
    }
}

/// When the first group is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// There is none.
    Never,
    /// At once.
    Now,
    /// After this time, unless a record joins that is waited for.
    In(Duration),
}

/// The groups that wait.
#[derive(Debug)]
pub struct GroupQueue {
    limits: GroupLimits,
    groups: VecDeque<Group>,
    last_sequence: u64,
    waiting_bytes: u64,
}

impl GroupQueue {
    /// An empty queue whose first group will be number `last_sequence` + 1.
    #[must_use]
    pub fn new(limits: GroupLimits, last_sequence: u64) -> Self {
        Self { limits, groups: VecDeque::new(), last_sequence, waiting_bytes: 0 }
    }

    /// Adds a record and returns the number of its group.
    ///
    /// `now` is only asked when a group is opened.
    pub fn push(&mut self, record: LogRecord, lazy: bool, now: impl FnOnce() -> Duration) -> u64 {
        if !self.last_has_room(&record) {
            self.last_sequence += 1;
            self.groups.push_back(Group { sequence: self.last_sequence, opened_at: now(), ..Group::default() });
        }
        let block = self.limits.block_bytes;
        let group = self.groups.back_mut().expect("a group was opened if there was none");
        let before = if group.records.is_empty() { 0 } else { group.disk_bytes(block) };
        group.payload_bytes += record.encoded_bytes();
        group.records.push(record);
        group.urgent |= !lazy;
        self.waiting_bytes += (group.disk_bytes(block) - before) as u64;
        group.sequence
    }

    fn last_has_room(&self, record: &LogRecord) -> bool {
        let Some(group) = self.groups.back() else { return false };
        group.records.len() < self.limits.records_max
            && group_bytes(group.payload_bytes + record.encoded_bytes(), self.limits.block_bytes)
                <= self.limits.bytes_max
    }

    /// When the first group is to be written, seen from `now`.
    #[must_use]
    pub fn due(&self, now: Duration) -> Due {
        let Some(first) = self.groups.front() else { return Due::Never };
        let waited = now.saturating_sub(first.opened_at);
        let full = self.groups.len() > 1 || first.payload_bytes >= self.limits.lazy_bytes;
        if first.urgent || full || waited >= self.limits.lazy_wait {
            return Due::Now;
        }
        Due::In(self.limits.lazy_wait.saturating_sub(waited))
    }

    /// Makes everything that waits due.
    pub fn hurry(&mut self) {
        if let Some(last) = self.groups.back_mut() {
            last.urgent = true;
        }
    }

    /// Takes the first group; nothing can join it any more.
    pub fn take(&mut self) -> Option<Group> {
        let group = self.groups.pop_front()?;
        self.waiting_bytes -= group.disk_bytes(self.limits.block_bytes) as u64;
        Some(group)
    }

    /// Forgets everything that waits.
    pub fn clear(&mut self) {
        self.groups.clear();
        self.waiting_bytes = 0;
    }

    /// The number given last.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// The newest number that no record can join any more.
    #[must_use]
    pub fn last_closed_sequence(&self) -> u64 {
        if self.groups.is_empty() { self.last_sequence } else { self.last_sequence - 1 }
    }

    /// Bytes on disk that everything that waits will take.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ids::{LogId, Offset};

    const LIMITS: GroupLimits = GroupLimits {
        block_bytes: 4096,
        bytes_max: 16384,
        records_max: 4,
        lazy_bytes: 8192,
        lazy_wait: Duration::from_millis(50),
    };

    fn record(bytes: usize) -> LogRecord {
        LogRecord::batch(LogId(1), Offset(0), Bytes::from(vec![7; bytes]))
    }

    fn push(queue: &mut GroupQueue, bytes: usize, lazy: bool) -> u64 {
        queue.push(record(bytes), lazy, || Duration::ZERO)
    }

    #[test]
    fn records_join_until_the_group_is_full() {
        let mut queue = GroupQueue::new(LIMITS, 9);
        let sequences: Vec<_> = (0..9).map(|_| push(&mut queue, 10, false)).collect();
        assert_eq!(sequences, [10, 10, 10, 10, 11, 11, 11, 11, 12]);
        assert_eq!(queue.waiting_bytes(), 3 * 4096);
        assert_eq!(push(&mut queue, 20_000, false), 13, "larger than a group");
        assert_eq!(push(&mut queue, 10, false), 14, "nothing joins it");
        while queue.take().is_some() {}
        assert_eq!((queue.waiting_bytes(), queue.last_sequence()), (0, 14));
    }

    #[test]
    fn a_lazy_group_waits_for_time_bytes_or_an_urgent_record() {
        let mut queue = GroupQueue::new(LIMITS, 0);
        assert_eq!(queue.due(Duration::ZERO), Due::Never);
        push(&mut queue, 10, true);
        assert_eq!(queue.due(Duration::from_millis(20)), Due::In(Duration::from_millis(30)));
        assert_eq!(queue.due(Duration::from_millis(50)), Due::Now);
        push(&mut queue, 8192, true);
        assert_eq!(queue.due(Duration::ZERO), Due::Now);
        queue.take();
        push(&mut queue, 10, true);
        push(&mut queue, 10, false);
        assert_eq!(queue.due(Duration::ZERO), Due::Now);
    }
}
