//! RSS and Atom feeds: none panics, or takes more time than its size.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let _ = tidings::harvest::feed::count_entries(body);
});
