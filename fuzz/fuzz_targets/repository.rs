//! Lookup responses of a repository.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::format::{Limits, Rejection, fedora_objects, fedora_rest, ldp};

fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    check(fedora_rest::datastream_profile(input, limits).map(|_| 1), limits);
    check(fedora_rest::datastream_history(input, limits).map(|all| all.len()), limits);
    check(fedora_rest::datastreams(input, limits).map(|all| all.len()), limits);
    check(fedora_rest::relations(input, limits).map(|_| 1), limits);
    // Only the size of the response limits a page of objects.
    check(fedora_objects::object_page(input, limits).map(|_| 1), limits);
    check(ldp::parse_description(input, "http://h/rest/a").map(|_| 1), limits);
    if let Ok(header) = std::str::from_utf8(input) {
        for target in ldp::link_targets([header], "type") {
            assert!(header.contains(target));
        }
    }
});

/// Checks that a parsed response respects the limits, and that an error is short.
fn check(result: Result<usize, Rejection>, limits: Limits) {
    match result {
        Ok(count) => assert!(count <= limits.items),
        Err(rejection) => assert!(rejection.to_string().len() < 4096),
    }
}
