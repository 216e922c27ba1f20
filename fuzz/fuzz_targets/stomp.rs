//! What a broker sends over STOMP: however it is cut it is read as the same frames, no more is held than the bounds
//! allow, and a frame that was read is the same after it is written.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use tidings::stomp::{Body, Decoder, Frame, HEAD_BYTES, Malformed, Version, encode};

/// The largest body that is kept.
const LARGEST: usize = 100;

/// Reads all of it, so many octets at a time.
fn read(version: Version, octets: &[u8], cut: usize) -> (Vec<Frame>, Option<Malformed>) {
    let (mut decoder, mut buffer, mut frames) = (Decoder::new(version, LARGEST), BytesMut::new(), Vec::new());
    for part in octets.chunks(cut) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(malformed) => return (frames, Some(malformed)),
            }
        }
        assert!(buffer.len() <= HEAD_BYTES + LARGEST + part.len(), "{} bytes are held", buffer.len());
    }
    (frames, None)
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (newer, cut, octets) = input;
    let version = if newer { Version::V1_2 } else { Version::V1_1 };
    let whole = read(version, octets, octets.len().max(1));
    assert_eq!(read(version, octets, usize::from(cut).max(1)), whole);
    for frame in whole.0 {
        let Body::Whole(body) = &frame.body else { continue };
        let written = |frame: &Frame| {
            let headers = frame.headers.iter().filter(|(name, _)| name != "content-length");
            let headers: Vec<_> = headers.map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let mut out = Vec::new();
            encode(&mut out, version, frame.command, &headers, body);
            out
        };
        let first = written(&frame);
        // A carriage return at the end of a header cannot be written in STOMP 1.1, nor in CONNECTED, and a line break
        // or a colon in a name not in CONNECTED; the second writing is the same as the first nevertheless.
        let (again, _) = read(version, &first, first.len());
        if let [again] = &again[..]
            && newer
            && !matches!(frame.command.name(), "CONNECT" | "CONNECTED")
        {
            assert_eq!(written(again), first);
            assert_eq!(again.body, frame.body);
        }
    }
});
