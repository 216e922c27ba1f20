//! What a broker sends over AMQP: however it is cut the same octets pass, none of them is changed but in place, and
//! what passed is not changed when it is scanned again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::amqp::{FrameScanner, LARGEST_FRAME, MalformedFrame, Notes};

/// Scans all of it, so many octets at a time; gives what passed.
fn scan(octets: &[u8], cut: usize) -> (Vec<u8>, Option<MalformedFrame>) {
    let mut scanner = FrameScanner::new(Notes::default());
    let (mut passed, mut waiting) = (Vec::new(), Vec::new());
    for part in octets.chunks(cut) {
        waiting.extend_from_slice(part);
        match scanner.scan(&mut waiting) {
            Ok(count) => passed.extend(waiting.drain(..count)),
            Err(malformed) => return (passed, Some(malformed)),
        }
        assert!(waiting.len() < LARGEST_FRAME, "{} octets wait", waiting.len());
    }
    (passed, None)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, octets) = input;
    let (whole, malformed) = scan(octets, octets.len().max(1));
    let (parts, other) = scan(octets, usize::from(cut).max(1));
    assert_eq!(malformed, other);
    // Of octets in one part that end malformed, none passes.
    assert_eq!(whole, if malformed.is_none() { parts.as_slice() } else { &[] });
    assert!(parts.len() <= octets.len());
    let (again, _) = scan(&parts, parts.len().max(1));
    assert_eq!(again, parts);
});
