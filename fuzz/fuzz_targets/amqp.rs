//! AMQP frames from a broker. The scanner passes the same octets wherever the input is split, changes octets only in
//! place, and does not change its own output.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidings::amqp::{FrameScanner, LARGEST_FRAME, MalformedFrame, Notes};

/// Scans the input in pieces of `size` octets; returns the octets that passed and the error, if any.
fn scan(octets: &[u8], size: usize) -> (Vec<u8>, Option<MalformedFrame>) {
    let mut scanner = FrameScanner::new(Notes::default());
    let (mut passed, mut waiting) = (Vec::new(), Vec::new());
    for part in octets.chunks(size) {
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
    // No octets of a piece pass if the piece is malformed.
    assert_eq!(whole, if malformed.is_none() { parts.as_slice() } else { &[] });
    assert!(parts.len() <= octets.len());
    let (again, _) = scan(&parts, parts.len().max(1));
    assert_eq!(again, parts);
});
