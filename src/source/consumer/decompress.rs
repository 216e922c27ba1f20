//! Decompression of message bodies, with a size limit.

use crate::{
    format::{Location, Rejection},
    intake::{Incoming, ReceivedMessage},
    web::{Decompression, decompress as decode},
};

/// Decompresses the body of a message according to its content encoding. A body of more than `max_body_bytes` bytes,
/// compressed or decompressed, is unreadable.
pub(in crate::source) fn decompress(
    mut incoming: Incoming,
    encoding: Option<&str>,
    max_body_bytes: usize,
) -> ReceivedMessage {
    let unreadable = |incoming, rejection, encoded| ReceivedMessage::Unreadable { incoming, rejection, encoded };
    let bytes = incoming.body.len();
    if bytes > max_body_bytes {
        let is_encoded =
            encoding.is_some_and(|encoding| !matches!(decode(encoding, b"", 0), Decompression::NotEncoded));
        return unreadable(incoming, too_large(&format!("it has {bytes} bytes"), max_body_bytes), is_encoded);
    }
    let Some(encoding) = encoding else { return ReceivedMessage::Readable(incoming) };
    match decode(encoding, &incoming.body, max_body_bytes) {
        Decompression::NotEncoded => ReceivedMessage::Readable(incoming),
        Decompression::Body(body) => {
            incoming.body = body;
            ReceivedMessage::Readable(incoming)
        }
        Decompression::TooLarge => {
            let what = format!("its {bytes} bytes of {encoding} inflate to more");
            unreadable(incoming, too_large(&what, max_body_bytes), true)
        }
        Decompression::Corrupt(reason) => {
            let reason = format!("the body does not match its content encoding {encoding:?}: {reason}");
            unreadable(incoming, Rejection::malformed(Location::Message, reason), true)
        }
        Decompression::Unsupported => {
            let reason = format!("the content encoding {encoding:?} is not supported; use gzip or zstd");
            unreadable(incoming, Rejection::malformed(Location::Message, reason), true)
        }
    }
}

fn too_large(what: &str, max_body_bytes: usize) -> Rejection {
    let reason = format!("{what}, and limits.body_bytes is {max_body_bytes}; raise it if such messages are expected");
    Rejection::unprocessable(Location::Message, reason)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use base64::{Engine, engine::general_purpose::STANDARD};
    use bytes::Bytes;
    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };

    use super::{Incoming, decompress};
    use crate::{
        format::{DIALECTS, Limits},
        intake::{Batch, Source, SourceName},
    };

    const START: &str =
        r#"{"id":"sfmui:45","credentials":{"consumer_secret":"QQQQQQQQ"},"more":"QQQQQQQQ QQQQQQQQ QQQQQQQQ"}"#;

    fn gzipped() -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(START.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib() -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(START.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn deflated() -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(START.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    /// Returns a brotli stream of one uncompressed meta-block.
    fn brotli() -> Vec<u8> {
        let length = u32::try_from(START.len() - 1).unwrap();
        let header = (length << 4) | (1 << 20);
        let header = header.to_le_bytes();
        [&header[..3], START.as_bytes(), &[3]].concat()
    }

    #[test]
    fn body_with_unreadable_encoding_is_dropped_if_it_may_contain_credentials() {
        let kind = DIALECTS.iter().find(|kind| kind.name == "sfm").unwrap();
        let settings = serde_json::json!({ "base_url": "https://h" });
        let name = SourceName::parse("sfm").unwrap();
        let source = Source::new(name, kind, settings, false, Limits::default()).unwrap();
        let mut broken = gzipped();
        broken.truncate(broken.len() - 4);
        let ways = [
            ("gzip without a coding", gzipped(), None),
            ("zlib without a coding", zlib(), None),
            ("base64", STANDARD.encode(START).into_bytes(), None),
            ("deflate", zlib(), Some("deflate")),
            ("br", brotli(), Some("br")),
            ("gzip that is cut short", broken, Some("gzip")),
            ("deflated, told to be UTF-8", deflated(), Some("utf-8")),
        ];
        for (way, body, encoding) in ways {
            let headers = [("routing-key", "harvest.start.twitter.twitter_filter")].into_iter().collect();
            let body = Bytes::from(body);
            let incoming =
                Incoming { content_type: None, headers, body, transport_id: None, redelivered: false, set: None };
            let batch = Batch::read(&source, vec![decompress(incoming, encoding, 1 << 20)]);
            assert_eq!(batch.rejected_bodies(), [Bytes::new()], "{way}");
        }
    }
}
