//! The bytes of one file, in pages that exist only where something else than zeros was written, and what of them a power
//! cut may undo.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;

/// What the kernel keeps together.
pub const PAGE: usize = 4096;
/// What a disk writes whole or not at all.
pub const SECTOR: usize = 512;

type Page = Rc<[u8; PAGE]>;

const ZEROS: [u8; PAGE] = [0; PAGE];

/// Bytes of a file; a clone shares its pages until one of the two writes.
#[derive(Clone, Default)]
pub struct Content {
    pages: Vec<Option<Page>>,
    size: usize,
}

/// From this size on buffers for reads are used again and again.
const LENT_BYTES: usize = 64 << 10;

thread_local! {
    /// Buffers of zeros.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that is lent to a reader: zeros, but where it was used.
struct Lent {
    bytes: Vec<u8>,
    length: usize,
    used: Vec<std::ops::Range<usize>>,
}

impl Lent {
    fn of(length: usize) -> Self {
        let mut bytes = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        if bytes.len() < length {
            bytes = vec![0; length.next_power_of_two()];
        }
        Self { bytes, length, used: Vec::new() }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.used.drain(..).for_each(|used| bytes[used].fill(0));
        // Gone with its thread otherwise.
        let _kept = SPARE.try_with(|spare| spare.borrow_mut().push(bytes));
    }
}

/// One page's part of a range: page number, where in it, where in the range.
fn parts(position: usize, length: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (at, left) = (position + done, length - done);
        let within = at % PAGE;
        let count = left.min(PAGE - within);
        done += count;
        (count > 0).then_some((at / PAGE, within, done - count..done))
    })
}

impl Content {
    pub fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Pages that hold something.
    pub fn pages(&self) -> usize {
        self.pages.iter().flatten().count()
    }

    /// Bytes that are read from `position` on; fewer than asked for at the end.
    pub fn read(&self, position: usize, into: &mut [u8]) -> usize {
        let count = into.len().min(self.size.saturating_sub(position));
        for (page, within, range) in parts(position, count) {
            let length = range.len();
            match self.pages.get(page).and_then(Option::as_ref) {
                Some(page) => into[range].copy_from_slice(&page[within..within + length]),
                None => into[range].fill(0),
            }
        }
        count
    }

    /// The same as bytes to be given away; what is zero costs nothing.
    pub fn bytes(&self, position: usize, length: usize) -> Bytes {
        let length = length.min(self.size.saturating_sub(position));
        if length < LENT_BYTES {
            return self.slice(position, length).into();
        }
        let mut lent = Lent::of(length);
        for (page, within, range) in parts(position, length) {
            if let Some(page) = self.pages.get(page).and_then(Option::as_ref) {
                let count = range.len();
                lent.used.push(range.clone());
                lent.bytes[range].copy_from_slice(&page[within..within + count]);
            }
        }
        Bytes::from_owner(lent)
    }

    pub fn slice(&self, position: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length.min(self.size.saturating_sub(position))];
        self.read(position, &mut bytes);
        bytes
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.slice(0, self.size)
    }

    pub fn write(&mut self, position: usize, bytes: &[u8]) {
        self.reach(position + bytes.len());
        for (page, within, range) in parts(position, bytes.len()) {
            let (bytes, slot) = (&bytes[range], &mut self.pages[page]);
            if bytes == &ZEROS[..bytes.len()] {
                Self::clear(slot, within..within + bytes.len());
                continue;
            }
            let page = slot.get_or_insert_with(|| Rc::new(ZEROS));
            Rc::make_mut(page)[within..within + bytes.len()].copy_from_slice(bytes);
        }
    }

    pub fn write_zeros(&mut self, position: usize, length: usize) {
        self.reach(position + length);
        for (page, within, range) in parts(position, length) {
            Self::clear(&mut self.pages[page], within..within + range.len());
        }
    }

    fn reach(&mut self, end: usize) {
        self.size = self.size.max(end);
        let pages = self.size.div_ceil(PAGE);
        if self.pages.len() < pages {
            self.pages.resize(pages, None);
        }
    }

    fn clear(slot: &mut Option<Page>, range: std::ops::Range<usize>) {
        match slot {
            Some(_) if range.len() == PAGE => *slot = None,
            Some(page) => Rc::make_mut(page)[range].fill(0),
            None => {}
        }
    }

    pub fn resize(&mut self, size: usize) {
        if size < self.size {
            self.pages.truncate(size.div_ceil(PAGE));
            if !size.is_multiple_of(PAGE)
                && let Some(Some(page)) = self.pages.last_mut()
            {
                Rc::make_mut(page)[size % PAGE..].fill(0);
            }
        } else {
            self.pages.resize(size.div_ceil(PAGE), None);
        }
        self.size = size;
    }
}

/// One change of a file that is not on disk yet: what was there before.
#[derive(Clone)]
struct Change {
    number: u64,
    position: usize,
    length: usize,
    /// Empty where nothing but zeros was there.
    before: Box<[u8]>,
    size_before: usize,
    /// A flush of it failed: no later one brings it to disk.
    is_lost: bool,
}

impl Change {
    /// Puts one sector back to what it was before this change.
    fn undo_sector(&self, content: &mut Content, sector: usize) {
        let from = self.position.max(sector * SECTOR);
        let to = (self.position + self.length).min((sector + 1) * SECTOR);
        if from >= to {
            return;
        }
        match self.before.get(from - self.position..to - self.position) {
            Some(before) => content.write(from, before),
            None => content.write(from, &ZEROS[..to - from]),
        }
    }
}

/// A file: what programs read, and what of it the disk may not have.
#[derive(Clone, Default)]
pub struct Stored {
    pub content: Content,
    changes: Vec<Change>,
    /// Changes so far, flushed or not.
    count: u64,
}

impl Stored {
    pub fn of(content: Content) -> Self {
        Self { content, ..Self::default() }
    }

    /// Through the page cache: a power cut may undo it until it is flushed.
    pub fn write(&mut self, position: usize, bytes: &[u8]) {
        self.note(position, bytes.len());
        self.content.write(position, bytes);
    }

    /// Past the page cache, on disk at once; so is what was known of the file before.
    pub fn write_through(&mut self, position: usize, bytes: &[u8]) {
        self.changes.clear();
        self.content.write(position, bytes);
    }

    /// [`Self::write_through`] of so many zeros.
    pub fn write_zeros_through(&mut self, position: usize, length: usize) {
        self.changes.clear();
        self.content.write_zeros(position, length);
    }

    pub fn truncate(&mut self, size: usize) {
        if size < self.content.size() {
            self.note(size, self.content.size() - size);
        } else {
            self.note(size, 0);
        }
        self.content.resize(size);
    }

    fn note(&mut self, position: usize, length: usize) {
        self.dirty_again(position, length);
        let size_before = self.content.size();
        let mut before = self.content.slice(position, length);
        if before.len() < length && !before.is_empty() {
            before.resize(length, 0);
        }
        let number = self.count;
        self.count += 1;
        self.changes.push(Change { number, position, length, before: before.into(), size_before, is_lost: false });
    }

    /// Pages that are written again are written whole at the next flush, with what an earlier one has lost of them.
    fn dirty_again(&mut self, position: usize, length: usize) {
        let (from, to) = (position / PAGE, (position + length).div_ceil(PAGE));
        let touched = |change: &&mut Change| {
            change.position / PAGE < to && from < (change.position + change.length).div_ceil(PAGE)
        };
        self.changes.iter_mut().filter(touched).for_each(|change| change.is_lost = false);
    }

    /// Changes so far, for [`Self::flush`].
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_flushed(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes before the one with this number are on disk, apart from those that are lost.
    pub fn flush(&mut self, before: u64) {
        self.changes.retain(|change| change.number >= before || change.is_lost);
    }

    /// A flush failed: the kernel believes that all is written, and it is not.
    pub fn lose(&mut self) {
        self.changes.iter_mut().for_each(|change| change.is_lost = true);
    }

    /// The program ended: of what a failed flush has lost, some may have left the page cache. True if there was any.
    pub fn forget_lost(&mut self, below: &mut impl FnMut(usize) -> usize) -> bool {
        let lost = self.changes.iter().rposition(|change| change.is_lost);
        let Some(last) = lost else { return false };
        let later = self.changes.split_off(last + 1);
        if later.is_empty() && below(2) == 0 {
            self.cut(below);
        }
        self.changes = later;
        true
    }

    /// Undoes what was not flushed, as a power cut may: each sector any version since its last flush, the size likewise.
    pub fn cut(&mut self, below: &mut impl FnMut(usize) -> usize) {
        let changes = std::mem::take(&mut self.changes);
        if changes.is_empty() {
            return;
        }
        // All lost, all kept, a moment between, or each sector for itself.
        let manner = below(8);
        let whole = match manner {
            0 => Some(0),
            1 => Some(changes.len()),
            2 | 3 => Some(below(changes.len() + 1)),
            _ => None,
        };
        let size_at = whole.unwrap_or_else(|| below(changes.len() + 1));
        let size = changes.get(size_at).map_or(self.content.size(), |change| change.size_before);
        for (sector, touched) in by_sector(&changes) {
            let kept = match whole {
                Some(whole) => touched.iter().take_while(|at| **at < whole).count(),
                None => below(touched.len() + 1),
            };
            for at in touched[kept..].iter().rev() {
                changes[*at].undo_sector(&mut self.content, sector);
            }
        }
        self.content.resize(size);
    }
}

/// Which changes touched which sector, in order.
fn by_sector(changes: &[Change]) -> BTreeMap<usize, Vec<usize>> {
    let mut touched: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, change) in changes.iter().enumerate() {
        if change.length > 0 {
            for sector in change.position / SECTOR..(change.position + change.length).div_ceil(SECTOR) {
                touched.entry(sector).or_default().push(at);
            }
        }
    }
    touched
}
