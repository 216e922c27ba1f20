//! Memory that a parser takes, for each byte of its input.

use peak_alloc::PeakAlloc;

/// Counts what the whole program allocates, so one parser is measured at a time.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Maximum memory of a parser, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryLimit {
    /// For each byte of the input.
    pub(crate) per_byte: usize,
    /// For any input: buffers, tables that are made once, and texts of errors.
    pub(crate) fixed: usize,
}

/// Runs a parser and returns its result.
///
/// # Panics
/// Panics if the parser takes more memory for an input of `bytes` bytes than `limit`, its result included.
pub(crate) fn limited<T>(bytes: usize, limit: MemoryLimit, parse: impl FnOnce() -> T) -> T {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = parse();
    let taken = ALLOCATOR.peak_usage().saturating_sub(before);
    let most = limit.fixed + limit.per_byte * bytes;
    assert!(taken <= most, "{taken} bytes of memory for an input of {bytes} bytes; at most {most} are allowed");
    if std::env::var_os("SHOW_MEMORY").is_some() {
        println!("{bytes} bytes of input took {taken} bytes of memory, of at most {most}");
    }
    result
}
