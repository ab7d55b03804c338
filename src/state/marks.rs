//! A mark or none for each entry of a dense table, one bit an entry.

/// Which entries are marked.
#[derive(Debug, Default)]
pub(super) struct Marks {
    words: Vec<u64>,
    entries: usize,
    marked: usize,
}

impl Marks {
    /// So many entries without a mark.
    pub(super) fn of(entries: usize) -> Self {
        Self { words: vec![0; entries.div_ceil(64)], entries, marked: 0 }
    }

    /// Adds an entry behind the others, without a mark; gives its place.
    pub(super) fn add(&mut self) -> u32 {
        if self.entries.is_multiple_of(64) {
            self.words.push(0);
        }
        self.entries += 1;
        u32::try_from(self.entries - 1).unwrap_or(u32::MAX)
    }

    /// Number of marks.
    pub(super) fn count(&self) -> usize {
        self.marked
    }

    pub(super) fn set(&mut self, at: u32, marked: bool) {
        let (word, bit) = place(at);
        let before = self.words[word] & bit != 0;
        self.words[word] = if marked { self.words[word] | bit } else { self.words[word] & !bit };
        self.marked = self.marked + usize::from(marked) - usize::from(before);
    }

    pub(super) fn get(&self, at: u32) -> bool {
        let (word, bit) = place(at);
        self.words[word] & bit != 0
    }

    /// The first marked entry at `from` or behind it.
    pub(super) fn first_from(&self, from: u32) -> Option<u32> {
        let (first, bit) = place(from);
        let mut left = self.words.get(first)? & !(bit - 1);
        let mut word = first;
        while left == 0 {
            word += 1;
            left = *self.words.get(word)?;
        }
        u32::try_from(word * 64).ok().map(|base| base + left.trailing_zeros())
    }

    /// The entry is gone, and the last one stands in its place.
    pub(super) fn swap_remove(&mut self, at: u32) {
        let last = u32::try_from(self.entries - 1).unwrap_or(u32::MAX);
        let moved = self.get(last);
        self.set(last, false);
        if at != last {
            self.set(at, moved);
        }
        self.entries -= 1;
        self.words.truncate(self.entries.div_ceil(64));
    }
}

fn place(at: u32) -> (usize, u64) {
    (at as usize / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_move_with_their_entries() {
        let mut marks = Marks::default();
        (0..200).for_each(|_| _ = marks.add());
        for at in [0, 63, 64, 130, 199] {
            marks.set(at, true);
            marks.set(at, true);
        }
        assert_eq!((marks.count(), marks.first_from(1), marks.first_from(131)), (5, Some(63), Some(199)));
        marks.swap_remove(5);
        assert_eq!((marks.count(), marks.first_from(1), marks.first_from(131)), (5, Some(5), None));
        marks.swap_remove(5);
        assert_eq!((marks.count(), marks.first_from(1)), (4, Some(63)));
        (0..198).for_each(|_| marks.swap_remove(0));
        assert_eq!((marks.count(), marks.first_from(0)), (0, None));
    }
}
