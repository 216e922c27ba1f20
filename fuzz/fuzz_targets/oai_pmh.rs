//! Responses of a repository with OAI-PMH: none panics, or takes more time than its size.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let _ = tidings::harvest::oai_pmh::count_records(body);
});
