//! A MESSAGE of a broker as the intake takes it: its headers, the body inflated.

use bytes::Bytes;

use crate::{
    broker::delivered_again,
    format::{Headers, Place, Rejection},
    intake::{Arrived, EventId, Incoming, SourceName},
    source::brokered::whole,
    stomp::{Body, Frame, HEAD_BYTES, modified_utf8},
};

/// What the frame brought for a source. A body of more than `largest` bytes, deflated or inflated, is for no
/// dialect; of one that was left out the headers are kept.
pub(super) fn arrived(frame: Frame, largest: usize, source: &SourceName) -> Arrived {
    let redelivered = frame.header("redelivered") == Some("true");
    if redelivered {
        delivered_again(source.as_str());
    }
    let coding = frame.header("content-encoding").map(str::to_owned);
    let (content_type, transport_id) = (frame.header("content-type").map(str::to_owned), transport_id(&frame));
    let (body, left_out) = match frame.body {
        Body::Whole(body) => (body, None),
        Body::TooLarge(bytes) => (Bytes::new(), Some(LeftOut::Body(bytes))),
        Body::LongHead(bytes, body) => (body, Some(LeftOut::Headers(bytes))),
    };
    let headers: Headers = frame.headers.into_iter().collect();
    let incoming = Incoming { content_type, headers, transport_id, redelivered, body };
    let arrived = whole(incoming, coding.as_deref(), largest);
    let reason = match (&arrived, left_out) {
        (_, Some(LeftOut::Body(bytes))) => format!(
            "it has {bytes} bytes, and was left out; limits.body_bytes is {largest}; raise it if such messages are \
             meant, and have it sent again"
        ),
        (Arrived::Whole(_), Some(LeftOut::Headers(bytes))) => format!(
            "its headers have {bytes} bytes, and {HEAD_BYTES} are read; most of them were left out; have it sent again \
             with fewer or shorter headers"
        ),
        _ => return readable(arrived),
    };
    let (Arrived::Whole(incoming) | Arrived::Unreadable { incoming, .. }) = arrived;
    let rejection = Rejection::unprocessable(Place::Message, reason);
    Arrived::Unreadable { incoming, rejection, coded: false }
}

/// The part of a message that was not kept, and its size in bytes.
enum LeftOut {
    Body(u64),
    Headers(u64),
}

/// The message with its body in UTF-8, where it is in Java's modified UTF-8: the text of a JMS message comes so.
fn readable(arrived: Arrived) -> Arrived {
    let Arrived::Whole(mut incoming) = arrived else { return arrived };
    if std::str::from_utf8(&incoming.body).is_err()
        && let Some(text) = modified_utf8::decode(&incoming.body)
    {
        incoming.body = text.into();
    }
    Arrived::Whole(incoming)
}

/// The identifier of the message, where it is that of the message and not of this delivery of it: those of JMS begin
/// so, and a broker gives them when the message is sent (JMS 2.0, section 3.4.3). RabbitMQ's is another one with each
/// delivery.
fn transport_id(frame: &Frame) -> Option<EventId> {
    frame.header("message-id").filter(|id| id.starts_with("ID:")).and_then(EventId::parse)
}

#[cfg(test)]
mod tests {
    use super::{super::super::brokered::Message, arrived};
    use crate::{
        intake::{Arrived, SourceName},
        stomp::{Body, Command, Delivered, Frame},
    };

    fn frame(headers: &[(&str, &str)], body: Body) -> Frame {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Frame { command: Command::Message, headers, body }
    }

    fn source() -> SourceName {
        SourceName::parse("s").unwrap()
    }

    #[test]
    fn headers_are_handed_over_and_the_first_of_a_name_counts() {
        let headers = [
            ("destination", "/topic/fedora"),
            ("message-id", "ID:h-1:2:3"),
            ("org.fcrepo.jms.baseURL", "http://h/rest"),
            ("org.fcrepo.jms.baseURL", "http://forged"),
            ("content-type", "application/ld+json"),
            ("redelivered", "true"),
        ];
        let Arrived::Whole(incoming) = arrived(frame(&headers, Body::Whole("{}".into())), 10, &source()) else {
            panic!()
        };
        assert_eq!(incoming.headers.get("org.fcrepo.jms.baseurl"), Some("http://h/rest"));
        assert_eq!(incoming.headers.get("destination"), Some("/topic/fedora"));
        assert_eq!(incoming.content_type.as_deref(), Some("application/ld+json"));
        assert_eq!(incoming.transport_id.unwrap().as_str(), "ID:h-1:2:3");
        assert!(incoming.redelivered);
    }

    #[test]
    fn the_identifier_of_a_delivery_is_not_that_of_the_message() {
        let of = frame(&[("message-id", "T_1@@session-x@@7")], Body::Whole("{}".into()));
        let Arrived::Whole(incoming) = arrived(of, 10, &source()) else { panic!() };
        assert!(incoming.transport_id.is_none() && !incoming.redelivered);
    }

    #[test]
    fn the_text_of_a_jms_message_is_utf_8_for_the_dialect() {
        for (body, expected) in
            [(&b"\"\xED\xA0\xBD\xED\xB8\x80\""[..], "\"\u{1F600}\"".as_bytes()), (b"\xE9t\xE9", b"\xE9t\xE9")]
        {
            let Arrived::Whole(incoming) = arrived(frame(&[], Body::Whole(body.into())), 10, &source()) else {
                panic!()
            };
            assert_eq!(incoming.body, expected);
        }
    }

    #[test]
    fn a_message_without_its_headers_is_for_no_dialect() {
        let of = frame(&[("ack", "1")], Body::LongHead(70_000, "{}".into()));
        let Arrived::Unreadable { incoming, rejection, .. } = arrived(of, 10, &source()) else { panic!() };
        assert_eq!(incoming.body, "{}");
        assert!(rejection.reason.starts_with("its headers have 70000 bytes, and 65536 are read"), "{rejection}");
    }

    #[test]
    fn what_was_left_out_is_told() {
        let delivered = Delivered { frame: frame(&[], Body::TooLarge(7)), mark: "m".to_owned() };
        let Arrived::Unreadable { incoming, rejection, .. } = delivered.arrived(5, &source()) else { panic!() };
        assert!(incoming.body.is_empty() && rejection.reason.starts_with("it has 7 bytes, and was left out"));
    }
}
