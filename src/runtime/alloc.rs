//! The process's allocator: the system's, except that very large reservations cost address space and no memory.
//!
//! The protocol's decoder reserves room for the array length that it reads, and a peer may write any length: twelve bytes
//! can ask for 200 GB. Such a reservation is answered with pages that exist once they are written; decoding then fails on
//! the missing bytes, and nothing was lost but an address range. [`super::startup`] refuses kernels set to forbid this.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::{self, NonNull};

use nix::sys::mman::{MRemapFlags, MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mremap, munmap};

/// Reservations from here on are lazy, in bytes. Below it the system's allocator maps lazily too, but the kernel refuses
/// what is larger than its memory, and that ends the process.
pub const LAZY_BYTES: usize = 64 * 1024 * 1024;
/// Alignment that a mapping has anyway.
const PAGE: usize = 4096;

/// To be named as `#[global_allocator]` in every binary that decodes what peers send.
pub struct LazyAlloc;

fn is_lazy(layout: Layout) -> bool {
    layout.size() >= LAZY_BYTES && layout.align() <= PAGE
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
mod mapped {
    use super::*;

    // SAFETY: blocks of lazy layouts come from `map` and go to `unmap`, all others come from and go to `System`; which of
    // both is decided by the layout alone, and the caller gives the same layout at every call for one block. Mappings are
    // page aligned, and `is_lazy` asks for no more.
    unsafe impl GlobalAlloc for LazyAlloc {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if is_lazy(layout) {
                return map(layout.size());
            }
            // SAFETY: the caller's promise, passed on.
            unsafe { System.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            if is_lazy(layout) {
                // Fresh pages are zero.
                return map(layout.size());
            }
            // SAFETY: the caller's promise, passed on.
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            if is_lazy(layout) {
                // SAFETY: a lazy layout's block is a mapping of that size, and nobody uses it any more.
                return unsafe { unmap(block, layout.size()) };
            }
            // SAFETY: the caller's promise, passed on.
            unsafe { System.dealloc(block, layout) }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            // SAFETY: the caller promises that the new size, rounded up to the alignment, does not overflow.
            let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
            match (is_lazy(layout), is_lazy(new_layout)) {
                // SAFETY: the caller's promise, passed on.
                (false, false) => unsafe { System.realloc(block, layout, new_size) },
                // SAFETY: the block is a mapping of that size.
                (true, true) => unsafe { remap(block, layout.size(), new_size) },
                // SAFETY: the block has `layout`, and the copy stays within both sizes.
                _ => unsafe { self.copy_over(block, layout, new_layout) },
            }
        }
    }

    impl LazyAlloc {
        /// Moves a block between the two kinds.
        ///
        /// # Safety
        /// `block` was allocated here with `layout`.
        unsafe fn copy_over(&self, block: *mut u8, layout: Layout, new_layout: Layout) -> *mut u8 {
            // SAFETY: neither size is zero: one is lazy, the other the caller's promise.
            let moved = unsafe { self.alloc(new_layout) };
            if !moved.is_null() {
                // SAFETY: both blocks are at least that long, and the new one overlaps nothing.
                unsafe { ptr::copy_nonoverlapping(block, moved, layout.size().min(new_layout.size())) };
                // SAFETY: the old block is not used after this.
                unsafe { self.dealloc(block, layout) };
            }
            moved
        }
    }

    fn map(bytes: usize) -> *mut u8 {
        let Some(length) = NonZeroUsize::new(bytes) else { return ptr::null_mut() };
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let Ok(mapping) = (unsafe { mmap_anonymous(None, length, access, flags) }) else { return ptr::null_mut() };
        // With huge pages the first byte would cost 2 MiB. Advice only: a kernel without them refuses.
        // SAFETY: the range is the mapping just made.
        let _advised = unsafe { madvise(mapping, bytes, MmapAdvise::MADV_NOHUGEPAGE) };
        mapping.as_ptr().cast()
    }

    /// # Safety
    /// `block` is a mapping of `bytes` bytes that nobody uses any more.
    unsafe fn unmap(block: *mut u8, bytes: usize) {
        if let Some(mapping) = NonNull::new(block.cast::<c_void>()) {
            // SAFETY: the caller's promise. Fails only for ranges that are none, which the promise rules out.
            let _unmapped = unsafe { munmap(mapping, bytes) };
        }
    }

    /// # Safety
    /// `block` is a mapping of `bytes` bytes; it must not be used again unless null is returned.
    unsafe fn remap(block: *mut u8, bytes: usize, new_bytes: usize) -> *mut u8 {
        let Some(mapping) = NonNull::new(block.cast::<c_void>()) else { return ptr::null_mut() };
        // SAFETY: the caller's promise.
        let moved = unsafe { mremap(mapping, bytes, new_bytes, MRemapFlags::MREMAP_MAYMOVE, None) };
        moved.map_or(ptr::null_mut(), |moved| moved.as_ptr().cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: LazyAlloc = LazyAlloc;

    #[test]
    fn a_reservation_larger_than_the_machine_is_given_and_taken_back() {
        for _ in 0..1000 {
            let mut bytes: Vec<u8> = Vec::with_capacity(200_000_000_000);
            bytes.push(1);
            assert_eq!(bytes, [1]);
        }
    }

    /// Memory of the process that no file backs.
    fn resident_bytes() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: Vec<usize> = pages.split_whitespace().map(|number| number.parse().unwrap()).collect();
        (pages[1] - pages[2]) * PAGE
    }

    /// Runs in a process of its own, see below.
    #[test]
    #[ignore = "measures the whole process"]
    fn child_reserves() {
        let before = resident_bytes();
        let kept: Vec<Vec<u8>> = (0..100)
            .map(|_| {
                let mut bytes = Vec::with_capacity(20_000_000_000);
                bytes.push(1);
                bytes
            })
            .collect();
        let rise = resident_bytes() - before;
        assert!(rise < 1024 * 1024, "{} reservations took {rise} bytes of memory", kept.len());
    }

    #[test]
    fn reservations_cost_no_memory() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["runtime::alloc::tests::child_reserves", "--exact", "--ignored"])
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    }

    #[test]
    fn content_survives_growing_and_shrinking_over_the_border() {
        let mut bytes: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
        let before = bytes.clone();
        for room in [LAZY_BYTES, 3 * LAZY_BYTES, LAZY_BYTES * 1000] {
            bytes.reserve_exact(room);
            assert!(bytes.capacity() >= room);
            assert_eq!(bytes, before);
        }
        bytes.shrink_to(2 * LAZY_BYTES);
        assert_eq!(bytes, before);
        bytes.shrink_to_fit();
        assert_eq!(bytes, before);
    }

    #[test]
    fn zeroed_memory_is_zero() {
        let bytes = vec![0_u8; LAZY_BYTES + 4097];
        assert!(bytes.iter().step_by(4093).all(|byte| *byte == 0));
    }
}
