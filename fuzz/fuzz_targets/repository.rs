//! Answers of a repository that is asked what a message does not say.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::format::{Limits, Rejection, fedora_objects, fedora_rest, ldp};

fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    told(fedora_rest::datastream_profile(input, limits).map(|_| 1), limits);
    told(fedora_rest::datastream_history(input, limits).map(|all| all.len()), limits);
    told(fedora_rest::datastreams(input, limits).map(|all| all.len()), limits);
    told(fedora_rest::relations(input, limits).map(|_| 1), limits);
    // A page of objects is bounded by the answer alone.
    told(fedora_objects::object_page(input, limits).map(|_| 1), limits);
    told(ldp::description(input, "http://h/rest/a").map(|_| 1), limits);
    if let Ok(header) = std::str::from_utf8(input) {
        for target in ldp::links([header], "type") {
            assert!(header.contains(target));
        }
    }
});

/// No more is taken than the limits allow, and a refusal can be printed and is short.
fn told(read: Result<usize, Rejection>, limits: Limits) {
    match read {
        Ok(count) => assert!(count <= limits.items),
        Err(rejection) => assert!(rejection.to_string().len() < 4096),
    }
}
