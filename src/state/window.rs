//! The last batches of one producer, by which a retry is told from something new.

use super::producer::Original;
use crate::ids::{Offset, Sequence};

/// Batches that are remembered: the most that clients send without waiting for an answer.
pub const WINDOW_BATCHES: usize = 5;

/// One batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Its largest timestamp as stored, in ms.
    pub max_timestamp: i64,
    /// Sequence of its first record.
    pub first_sequence: Sequence,
    /// Number of its offsets, less one.
    pub last_offset_delta: i32,
}

impl Remembered {
    const NONE: Self =
        Self { base_offset: Offset(-1), max_timestamp: -1, first_sequence: Sequence(-1), last_offset_delta: 0 };

    /// Sequence of its last record.
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        self.first_sequence.plus(self.last_offset_delta)
    }

    /// Offset of its last record.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(i64::from(self.last_offset_delta))
    }

    pub(super) fn original(&self) -> Original {
        Original { base_offset: self.base_offset, last_offset: self.last_offset(), max_timestamp: self.max_timestamp }
    }
}

/// Up to five batches, oldest first, their sequences without a gap.
#[derive(Clone, Copy)]
pub struct Window {
    batches: [Remembered; WINDOW_BATCHES],
    count: u8,
}

impl Default for Window {
    fn default() -> Self {
        Self { batches: [Remembered::NONE; WINDOW_BATCHES], count: 0 }
    }
}

impl Window {
    /// The batches, oldest first.
    #[must_use]
    pub fn batches(&self) -> &[Remembered] {
        &self.batches[..usize::from(self.count)]
    }

    /// The batch that was appended last.
    #[must_use]
    pub fn newest(&self) -> Option<&Remembered> {
        self.batches().last()
    }

    /// Adds a batch; the oldest of five makes room.
    pub fn push(&mut self, batch: Remembered) {
        let at = usize::from(self.count);
        if at < WINDOW_BATCHES {
            self.batches[at] = batch;
            self.count += 1;
        } else {
            self.batches.rotate_left(1);
            self.batches[WINDOW_BATCHES - 1] = batch;
        }
    }

    /// The batch with exactly these sequences.
    #[must_use]
    pub fn find(&self, first: Sequence, last_offset_delta: i32) -> Option<&Remembered> {
        self.batches()
            .iter()
            .rev()
            .find(|seen| seen.first_sequence == first && seen.last_offset_delta == last_offset_delta)
    }
}

impl PartialEq for Window {
    fn eq(&self, other: &Self) -> bool {
        self.batches() == other.batches()
    }
}

impl Eq for Window {}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.batches()).finish()
    }
}

impl FromIterator<Remembered> for Window {
    fn from_iter<I: IntoIterator<Item = Remembered>>(batches: I) -> Self {
        let mut window = Self::default();
        batches.into_iter().for_each(|batch| window.push(batch));
        window
    }
}
