//! Memory that a parser takes, for each byte of its input.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that are allocated now, and the most since the last measurement began.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The system's allocator, which counts.
struct Counting;

fn add(bytes: usize) {
    MOST.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

fn remove(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        remove(layout.size());
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both can exist at the same time.
        add(size);
        let memory = unsafe { System.realloc(memory, layout, size) };
        remove(layout.size());
        memory
    }
}

/// Maximum memory of a parser, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimit {
    /// For each byte of the input.
    pub per_byte: usize,
    /// For any input: buffers, tables that are made once, and texts of errors.
    pub fixed: usize,
}

/// Runs a parser and returns its result.
///
/// # Panics
/// Panics if the parser takes more memory for an input of `bytes` bytes than `limit`, its result included.
pub fn limited<T>(bytes: usize, limit: MemoryLimit, parse: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Relaxed);
    MOST.store(before, Relaxed);
    let result = parse();
    let taken = MOST.load(Relaxed).saturating_sub(before);
    let most = limit.fixed + limit.per_byte * bytes;
    assert!(taken <= most, "{taken} bytes of memory for an input of {bytes} bytes; at most {most} are allowed");
    if std::env::var_os("FUZZ_SHOW_MEMORY").is_some() {
        println!("{bytes} bytes of input took {taken} bytes of memory, of at most {most}");
    }
    result
}
