//! STOMP frames from a broker. The decoder returns the same frames wherever the input is split, and buffers no more
//! bytes than its limits allow. A decoded frame is the same after encoding.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use tidings::stomp::{Body, Decoder, Frame, HEAD_BYTES, MalformedFrame, Version, encode};

/// Maximum length of a body that is retained, in bytes.
const MAX_BODY_BYTES: usize = 100;

/// Decodes the input in pieces of `size` octets.
fn read(version: Version, octets: &[u8], size: usize) -> (Vec<Frame>, Option<MalformedFrame>) {
    let (mut decoder, mut buffer, mut frames) = (Decoder::new(version, MAX_BODY_BYTES), BytesMut::new(), Vec::new());
    for part in octets.chunks(size) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(malformed) => return (frames, Some(malformed)),
            }
        }
        assert!(buffer.len() <= HEAD_BYTES + MAX_BODY_BYTES + part.len(), "{} bytes are buffered", buffer.len());
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
        let encoded = |frame: &Frame| {
            let headers = frame.headers.iter().filter(|(name, _)| name != "content-length");
            let headers: Vec<_> = headers.map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let mut out = Vec::new();
            encode(&mut out, version, frame.command, &headers, body);
            out
        };
        let first = encoded(&frame);
        // Excluded: STOMP 1.1 and CONNECTED cannot represent a carriage return at the end of a header, and CONNECTED
        // cannot represent a line break or a colon in a header name.
        let (again, _) = read(version, &first, first.len());
        if let [again] = &again[..]
            && newer
            && !matches!(frame.command.name(), "CONNECT" | "CONNECTED")
        {
            assert_eq!(encoded(again), first);
            assert_eq!(again.body, frame.body);
        }
    }
});
