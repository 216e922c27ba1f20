//! Tests of the decoder with frames that are split at every octet, too large or malformed.

use bytes::BytesMut;
use proptest::prelude::*;

use super::{
    super::{Body, Command, Frame, MalformedFrame, Version, encode},
    Decoder, HEAD_BYTES,
};

fn all(octets: &[u8], max_body_bytes: usize) -> Result<Vec<Frame>, MalformedFrame> {
    let (mut decoder, mut buffer) = (Decoder::new(Version::V1_2, max_body_bytes), BytesMut::from(octets));
    let mut frames = Vec::new();
    while let Some(frame) = decoder.decode(&mut buffer)? {
        frames.push(frame);
    }
    assert_eq!(decoder.is_within(&buffer), !buffer.is_empty());
    Ok(frames)
}

fn one(octets: &[u8]) -> Frame {
    let mut frames = all(octets, 100).unwrap();
    assert_eq!(frames.len(), 1);
    frames.remove(0)
}

fn whole(body: &'static [u8]) -> Body {
    Body::Whole(body.into())
}

#[test]
fn frames_are_decoded_between_heart_beats_with_any_line_ending() {
    let frame = one(b"\n\r\n\nMESSAGE\r\na:b\\c\r\na:second\n\r\nbody\0\n\n");
    assert_eq!((frame.command, frame.header("a"), frame.body.clone()), (Command::Message, Some("b:"), whole(b"body")));
    assert_eq!(frame.headers.len(), 2);
    assert_eq!(one(b"RECEIPT\n\n\0").headers, []);
    assert_eq!(one(b"CONNECTED\na: b\\c:d \n\n\0").header("a"), Some(" b\\c:d "));
    assert_eq!(one(b"MESSAGE\ncontent-length:3\n\n\0a\0\0").body, whole(b"\0a\0"));
    assert_eq!(all(b"RECEIPT\nreceipt-id:1\n\n\0\nMESSAGE\n\nx\0ERROR\n", 100).unwrap().len(), 2);
}

#[test]
fn body_that_is_too_large_is_discarded_and_the_next_frame_is_decoded() {
    for (message, bytes) in [
        (&b"MESSAGE\nid:1\ncontent-length:6\n\n123\x0056\0RECEIPT\n\n\0"[..], 6),
        (b"MESSAGE\nid:1\n\n1234567\0RECEIPT\n\n\0", 7),
    ] {
        let frames = all(message, 5).unwrap();
        assert_eq!((frames[0].header("id"), &frames[0].body), (Some("1"), &Body::TooLarge(bytes)));
        assert_eq!(frames[1].command, Command::Receipt);
    }
    assert_eq!(all(b"MESSAGE\n\n12345\0", 5).unwrap()[0].body, whole(b"12345"));
}

#[test]
fn long_head_is_shortened_and_the_next_frame_is_decoded() {
    let long = "x".repeat(9000);
    for cut in [1, 7, 4096, usize::MAX] {
        for (line, ends) in [("\n", "\n\n"), ("\r\n", "\r\n\r\n")] {
            let lines: String = (0..9).map(|number| format!("{line}h{number}:{long}")).collect();
            let head =
                format!("MESSAGE{line}ack:1\\c2{lines}{line}message-id:m{line}ack:3{line}content-length:3{ends}");
            let octets = [head.as_bytes(), b"a\0b\0RECEIPT\n\n\0"].concat();
            let (mut decoder, mut buffer) = (Decoder::new(Version::V1_2, 100), BytesMut::new());
            let mut frames = Vec::new();
            for part in octets.chunks(cut.min(octets.len())) {
                buffer.extend_from_slice(part);
                frames.extend(std::iter::from_fn(|| decoder.decode(&mut buffer).unwrap()));
                assert!(buffer.len() <= HEAD_BYTES + part.len());
            }
            assert_eq!(frames.len(), 2, "{cut}");
            assert_eq!(frames[0].body, Body::LongHead(head.len() as u64, b"a\0b"[..].into()), "{cut}");
            let kept: Vec<_> = frames[0].headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(kept, ["ack=1:2", "message-id=m", "content-length=3"]);
        }
    }
}

#[test]
fn malformed_frames_are_refused() {
    let long = [b"RECEIPT\n", "a:b\n".repeat(HEAD_BYTES / 4).as_bytes()].concat();
    for (octets, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], MalformedFrame::command(b"HTTP/1.1 400 Bad Request")),
        (b"MESSAGE\nno colon\n\n\0", MalformedFrame::NoColon),
        (b"MESSAGE\ncontent-length:-1\n\n\0", MalformedFrame::ContentLength),
        (b"MESSAGE\ncontent-length:1\n\nab\0", MalformedFrame::NoEnd),
        (b"MESSAGE\ncontent-length:101\n\n", MalformedFrame::NoEnd),
        (b"MESSAGE\na:b\0c\n\n", MalformedFrame::NulInHead),
        (&long, MalformedFrame::LongHead),
    ] {
        let octets = if octets.ends_with(b"101\n\n") { [octets, &[b'x'; 103]].concat() } else { octets.to_vec() };
        assert_eq!(all(&octets, 100).unwrap_err(), expected);
    }
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z:\\\\\n\r]{0,6}", "\\PC{0,6}"]
}

fn frames() -> impl Strategy<Value = (Vec<(String, String)>, Vec<u8>)> {
    (prop::collection::vec((texts(), texts()), 0..5), prop::collection::vec(any::<u8>(), 0..40))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encoded_frames_are_decoded_with_any_split(
        frames in prop::collection::vec(frames(), 1..5),
        cuts in prop::collection::vec(1..30usize, 1..20),
        newer in any::<bool>(),
    ) {
        let version = if newer { Version::V1_2 } else { Version::V1_1 };
        let mut octets = Vec::new();
        let mut expected = Vec::new();
        for (mut headers, body) in frames {
            headers.retain(|(name, _)| name != "content-length");
            if version == Version::V1_1 {
                // This version cannot encode a carriage return.
                headers.iter_mut().for_each(|(name, value)| {
                    *name = name.replace('\r', "");
                    *value = value.replace('\r', "");
                });
            }
            let header_refs: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            encode(&mut octets, version, Command::Message, &header_refs, &body);
            octets.push(b'\n');
            if !body.is_empty() {
                headers.push(("content-length".to_owned(), body.len().to_string()));
            }
            let body = if body.len() > 30 { Body::TooLarge(body.len() as u64) } else { Body::Whole(body.into()) };
            expected.push(Frame { command: Command::Message, headers, body });
        }
        let (mut decoder, mut buffer) = (Decoder::new(version, 30), BytesMut::new());
        let mut read = Vec::new();
        let (mut rest, mut cuts) = (&octets[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            buffer.extend_from_slice(now);
            rest = later;
            while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                read.push(frame);
            }
        }
        prop_assert_eq!(read, expected);
        prop_assert!(!decoder.is_within(&buffer));
    }

    #[test]
    fn decoder_never_panics_and_its_memory_is_bounded(
        octets in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(0), Just(b':')], 0..400),
        beginning in prop_oneof![Just(""), Just("MESSAGE\n"), Just("MESSAGE\ncontent-length:7\n"), Just("ERROR\n\n")],
    ) {
        let (mut decoder, mut buffer) = (Decoder::new(Version::V1_2, 50), BytesMut::from(beginning.as_bytes()));
        for octet in octets {
            buffer.extend_from_slice(&[octet]);
            match decoder.decode(&mut buffer) {
                Ok(Some(Frame { body: Body::Whole(body), .. })) => prop_assert!(body.len() <= 50),
                Ok(_) => prop_assert!(buffer.len() <= HEAD_BYTES + 50),
                Err(_) => return Ok(()),
            }
        }
    }
}
