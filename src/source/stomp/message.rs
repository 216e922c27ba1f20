//! Conversion of a STOMP MESSAGE to a message for the intake: headers as text, body decompressed.

use bytes::Bytes;

use crate::{
    broker::count_redelivery,
    format::{Headers, Location, Rejection},
    intake::{EventId, Incoming, ReceivedMessage, SourceName},
    source::consumer::decompress,
    stomp::{Body, Frame, HEAD_BYTES, modified_utf8},
};

/// Converts a frame. A body of more than `max_body_bytes` bytes, compressed or decompressed, is unreadable. If the
/// body was dropped, the headers are kept.
pub(super) fn read_frame(frame: Frame, max_body_bytes: usize, source: &SourceName) -> ReceivedMessage {
    let redelivered = frame.header("redelivered") == Some("true");
    if redelivered {
        count_redelivery(source.as_str());
    }
    let encoding = frame.header("content-encoding").map(str::to_owned);
    let (content_type, transport_id) = (frame.header("content-type").map(str::to_owned), transport_id(&frame));
    let (body, dropped) = match frame.body {
        Body::Whole(body) => (body, None),
        Body::TooLarge(bytes) => (Bytes::new(), Some(DroppedPart::Body(bytes))),
        Body::LongHead(bytes, body) => (body, Some(DroppedPart::Headers(bytes))),
    };
    let headers: Headers = frame.headers.into_iter().collect();
    let incoming = Incoming { content_type, headers, transport_id, redelivered, body, set: None };
    let received = decompress(incoming, encoding.as_deref(), max_body_bytes);
    let reason = match (&received, dropped) {
        (_, Some(DroppedPart::Body(bytes))) => format!(
            "its body of {bytes} bytes was dropped; limits.body_bytes is {max_body_bytes}; raise it if such messages are \
             expected, and send the message again"
        ),
        (ReceivedMessage::Readable(_), Some(DroppedPart::Headers(bytes))) => format!(
            "its headers have {bytes} bytes, more than {HEAD_BYTES}; most of them were dropped; send the message again \
             with fewer or shorter headers"
        ),
        _ => return decode_modified_utf8(received),
    };
    let (ReceivedMessage::Readable(incoming) | ReceivedMessage::Unreadable { incoming, .. }) = received;
    let rejection = Rejection::unprocessable(Location::Message, reason);
    ReceivedMessage::Unreadable { incoming, rejection, encoded: false }
}

/// The part of a message that the decoder dropped, and its size in bytes.
enum DroppedPart {
    Body(u64),
    Headers(u64),
}

/// Converts a body in Java's modified UTF-8 to UTF-8. The text of JMS messages has this encoding.
fn decode_modified_utf8(received: ReceivedMessage) -> ReceivedMessage {
    let ReceivedMessage::Readable(mut incoming) = received else { return received };
    if std::str::from_utf8(&incoming.body).is_err()
        && let Some(text) = modified_utf8::decode(&incoming.body)
    {
        incoming.body = text.into();
    }
    ReceivedMessage::Readable(incoming)
}

/// Returns the identifier of the message, if it identifies the message and not a delivery. JMS identifiers
/// start with `ID:`, and the broker assigns them when the message is sent (JMS 2.0, section 3.4.3). RabbitMQ
/// assigns a new one to each delivery.
fn transport_id(frame: &Frame) -> Option<EventId> {
    frame.header("message-id").filter(|id| id.starts_with("ID:")).and_then(EventId::parse)
}

#[cfg(test)]
mod tests {
    use super::read_frame;
    use crate::{
        intake::{ReceivedMessage, SourceName},
        stomp::{Body, Command, Frame},
    };

    fn frame(headers: &[(&str, &str)], body: Body) -> Frame {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Frame { command: Command::Message, headers, body }
    }

    fn source() -> SourceName {
        SourceName::parse("s").unwrap()
    }

    #[test]
    fn headers_are_copied_and_the_first_of_a_name_counts() {
        let headers = [
            ("destination", "/topic/fedora"),
            ("message-id", "ID:h-1:2:3"),
            ("org.fcrepo.jms.baseURL", "http://h/rest"),
            ("org.fcrepo.jms.baseURL", "http://forged"),
            ("content-type", "application/ld+json"),
            ("redelivered", "true"),
        ];
        let ReceivedMessage::Readable(incoming) = read_frame(frame(&headers, Body::Whole("{}".into())), 10, &source())
        else {
            panic!()
        };
        assert_eq!(incoming.headers.get("org.fcrepo.jms.baseurl"), Some("http://h/rest"));
        assert_eq!(incoming.headers.get("destination"), Some("/topic/fedora"));
        assert_eq!(incoming.content_type.as_deref(), Some("application/ld+json"));
        assert_eq!(incoming.transport_id.unwrap().as_str(), "ID:h-1:2:3");
        assert!(incoming.redelivered);
    }

    #[test]
    fn identifier_of_a_delivery_is_no_message_identifier() {
        let of = frame(&[("message-id", "T_1@@session-x@@7")], Body::Whole("{}".into()));
        let ReceivedMessage::Readable(incoming) = read_frame(of, 10, &source()) else { panic!() };
        assert!(incoming.transport_id.is_none() && !incoming.redelivered);
    }

    #[test]
    fn text_of_a_jms_message_is_converted_to_utf_8() {
        for (body, expected) in
            [(&b"\"\xED\xA0\xBD\xED\xB8\x80\""[..], "\"\u{1F600}\"".as_bytes()), (b"\xE9t\xE9", b"\xE9t\xE9")]
        {
            let ReceivedMessage::Readable(incoming) = read_frame(frame(&[], Body::Whole(body.into())), 10, &source())
            else {
                panic!()
            };
            assert_eq!(incoming.body, expected);
        }
    }

    #[test]
    fn message_with_dropped_headers_is_unreadable() {
        let of = frame(&[("ack", "1")], Body::LongHead(70_000, "{}".into()));
        let ReceivedMessage::Unreadable { incoming, rejection, .. } = read_frame(of, 10, &source()) else { panic!() };
        assert_eq!(incoming.body, "{}");
        assert!(rejection.reason.starts_with("its headers have 70000 bytes, more than 65536"), "{rejection}");
    }

    #[test]
    fn dropped_body_is_reported_with_its_size() {
        let of = frame(&[], Body::TooLarge(7));
        let ReceivedMessage::Unreadable { incoming, rejection, .. } = read_frame(of, 5, &source()) else { panic!() };
        assert!(incoming.body.is_empty() && rejection.reason.starts_with("its body of 7 bytes was dropped"));
    }
}
