//! The body of a message as a dialect is given it: inflated, and no larger than it may be.

use crate::{
    format::{Place, Rejection},
    intake::{Arrived, Incoming},
    web::{Inflated, inflate},
};

/// The message with its body inflated, if it tells a content encoding. A body of more than `largest` bytes,
/// as it came or inflated, is for no dialect.
pub(in crate::source) fn whole(mut incoming: Incoming, coding: Option<&str>, largest: usize) -> Arrived {
    let unreadable = |incoming, rejection, coded| Arrived::Unreadable { incoming, rejection, coded };
    let bytes = incoming.body.len();
    if bytes > largest {
        let is_coded = coding.is_some_and(|coding| !matches!(inflate(coding, b"", 0), Inflated::AsItIs));
        return unreadable(incoming, too_large(&format!("it has {bytes} bytes"), largest), is_coded);
    }
    let Some(coding) = coding else { return Arrived::Whole(incoming) };
    match inflate(coding, &incoming.body, largest) {
        Inflated::AsItIs => Arrived::Whole(incoming),
        Inflated::Body(body) => {
            incoming.body = body;
            Arrived::Whole(incoming)
        }
        Inflated::TooLarge => {
            let what = format!("its {bytes} bytes of {coding} inflate to more");
            unreadable(incoming, too_large(&what, largest), true)
        }
        Inflated::Corrupt(reason) => {
            let reason = format!("it tells the content encoding {coding:?} and is not of it: {reason}");
            unreadable(incoming, Rejection::malformed(Place::Message, reason), true)
        }
        Inflated::Unknown => {
            let reason = format!("the content encoding {coding:?} is not read; gzip and zstd are");
            unreadable(incoming, Rejection::malformed(Place::Message, reason), true)
        }
    }
}

fn too_large(what: &str, largest: usize) -> Rejection {
    let reason = format!("{what}, and limits.body_bytes is {largest}; raise it if such messages are meant");
    Rejection::unprocessable(Place::Message, reason)
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

    use super::{Incoming, whole};
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

    /// A brotli stream of one meta-block that is not compressed.
    fn brotli() -> Vec<u8> {
        let length = u32::try_from(START.len() - 1).unwrap();
        let header = (length << 4) | (1 << 20);
        let header = header.to_le_bytes();
        [&header[..3], START.as_bytes(), &[3]].concat()
    }

    #[test]
    fn nothing_is_kept_of_a_body_whose_credentials_cannot_be_seen() {
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
        for (way, body, coding) in ways {
            let headers = [("routing-key", "harvest.start.twitter.twitter_filter")].into_iter().collect();
            let body = Bytes::from(body);
            let incoming = Incoming { content_type: None, headers, body, transport_id: None, redelivered: false };
            let batch = Batch::read(&source, vec![whole(incoming, coding, 1 << 20)]);
            assert_eq!(batch.rejected_bodies(), [Bytes::new()], "{way}");
        }
    }
}
