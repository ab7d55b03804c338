//! An allocator that knows how much is taken, and how much was at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counted.
pub struct Counting {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Counting {
    /// Nothing is taken.
    pub const fn new() -> Self {
        Self { now: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    /// Forgets the peak; gives what is taken now.
    pub fn start(&self) -> usize {
        let now = self.now.load(Ordering::SeqCst);
        self.peak.store(now, Ordering::SeqCst);
        now
    }

    /// The most that was taken since the start.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    fn taken(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.peak.fetch_max(now, Ordering::SeqCst);
    }

    fn given_back(&self, bytes: usize) {
        self.now.fetch_sub(bytes, Ordering::SeqCst);
    }
}

/// What the C library's allocator keeps for an allocation: a header, in steps of 16, at least 32.
fn with_overhead(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16).max(32)
}

#[expect(unsafe_code, reason = "an allocator is unsafe by nature; this one only counts")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.taken(with_overhead(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.given_back(with_overhead(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // While it is moved both may exist.
        self.taken(with_overhead(new_size));
        self.given_back(with_overhead(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
