//! Conversion of an AMQP delivery to a message for the intake: headers as text, body decompressed.

use bytes::Bytes;
use lapin::types::{AMQPValue, FieldTable};

use crate::{
    amqp::{ConsumedMessage, Delivery},
    broker::count_redelivery,
    format::{Headers, Location, Rejection},
    intake::{EventId, Incoming, ReceivedMessage, SourceName},
    source::consumer::decompress,
};

/// Header name of the routing key, for dialects.
const ROUTING_KEY: &str = "routing-key";

/// Header name of the exchange.
const EXCHANGE: &str = "exchange";

/// Converts a delivery. A body of more than `max_body_bytes` bytes, compressed or decompressed, is unreadable, and so
/// is a message that the frame scanner had to correct.
pub(super) fn read_delivery(received: ConsumedMessage, max_body_bytes: usize, source: &SourceName) -> ReceivedMessage {
    let ConsumedMessage { delivery, corrections } = received;
    if delivery.redelivered {
        count_redelivery(source.as_str());
    }
    let properties = &delivery.properties;
    let encoding = properties.content_encoding().as_ref().map(ToString::to_string);
    let incoming = Incoming {
        content_type: properties.content_type().as_ref().map(ToString::to_string),
        headers: headers(&delivery),
        transport_id: properties.message_id().as_ref().and_then(|id| EventId::parse(id.as_str())),
        redelivered: delivery.redelivered,
        set: None,
        body: Bytes::from(delivery.data),
    };
    match decompress(incoming, encoding.as_deref(), max_body_bytes) {
        ReceivedMessage::Readable(incoming) if !corrections.is_empty() => {
            let reasons: Vec<_> = corrections.iter().map(ToString::to_string).collect();
            let reason = format!(
                "{}; the message is quarantined and shown corrected: `?` replaces each octet that is not \
                 UTF-8, and deeply nested headers are dropped",
                reasons.join(", and ")
            );
            ReceivedMessage::Unreadable {
                incoming,
                rejection: Rejection::malformed(Location::Message, reason),
                encoded: false,
            }
        }
        received => received,
    }
}

/// Returns the routing key and the exchange, followed by the headers of the sender that have a text form.
/// Headers of the sender with one of the first two names are dropped.
fn headers(delivery: &Delivery) -> Headers {
    let mut headers = Headers::default();
    headers.push(ROUTING_KEY, delivery.routing_key.as_str());
    headers.push(EXCHANGE, delivery.exchange.as_str());
    let none = FieldTable::default();
    let sent = delivery.properties.headers().as_ref().unwrap_or(&none);
    for (name, value) in sent {
        let name = name.as_str();
        let is_reserved = [ROUTING_KEY, EXCHANGE].iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
        if let Some(text) = text(value).filter(|_| !is_reserved) {
            headers.push(name, text);
        }
    }
    headers
}

/// Converts the value of a header to text; `None` for tables, lists, bytes and void.
fn text(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok()?.to_owned(),
        AMQPValue::ShortString(text) => text.to_string(),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(number) => number.to_string(),
        AMQPValue::ShortShortUInt(number) => number.to_string(),
        AMQPValue::ShortInt(number) => number.to_string(),
        AMQPValue::ShortUInt(number) => number.to_string(),
        AMQPValue::LongInt(number) => number.to_string(),
        AMQPValue::LongUInt(number) => number.to_string(),
        AMQPValue::LongLongInt(number) => number.to_string(),
        AMQPValue::Timestamp(seconds) => seconds.to_string(),
        AMQPValue::Float(number) => number.to_string(),
        AMQPValue::Double(number) => number.to_string(),
        AMQPValue::DecimalValue(_)
        | AMQPValue::FieldArray(_)
        | AMQPValue::FieldTable(_)
        | AMQPValue::ByteArray(_)
        | AMQPValue::Void => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use lapin::{
        BasicProperties,
        message::Delivery,
        types::{AMQPValue, FieldArray, FieldTable},
    };

    use super::{ConsumedMessage, read_delivery};
    use crate::{
        amqp::Correction,
        intake::{ReceivedMessage, SourceName},
    };

    fn delivery(properties: BasicProperties, body: &[u8]) -> Delivery {
        let mut delivery = Delivery::mock(1, "sfm_exchange".into(), "harvest.start.x.y".into(), false, body.to_vec());
        delivery.properties = properties;
        delivery
    }

    fn of(properties: BasicProperties, body: &[u8]) -> ReceivedMessage {
        corrected(properties, body, &[])
    }

    fn corrected(properties: BasicProperties, body: &[u8], corrections: &[Correction]) -> ReceivedMessage {
        let received = ConsumedMessage { delivery: delivery(properties, body), corrections: corrections.to_vec() };
        read_delivery(received, 1000, &SourceName::parse("s").unwrap())
    }

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn encoded(encoding: &str) -> BasicProperties {
        BasicProperties::default().with_content_encoding(encoding.into())
    }

    #[test]
    fn headers_are_text_and_the_routing_key_is_the_brokers() {
        let mut sent = FieldTable::default();
        sent.insert("Routing-Key".into(), AMQPValue::LongString("forged".into()));
        sent.insert("org.example.count".into(), AMQPValue::LongInt(-3));
        sent.insert("List".into(), AMQPValue::FieldArray(FieldArray::default()));
        sent.insert("bytes".into(), AMQPValue::LongString(vec![0xff].into()));
        let properties = BasicProperties::default()
            .with_headers(sent)
            .with_content_type("application/json".into())
            .with_message_id(" id-1 ".into());
        let ReceivedMessage::Readable(incoming) = of(properties, b"{}") else { panic!() };
        let headers: Vec<_> = incoming.headers.iter().collect();
        let expected =
            [("routing-key", "harvest.start.x.y"), ("exchange", "sfm_exchange"), ("org.example.count", "-3")];
        assert_eq!(headers, expected);
        assert_eq!(incoming.content_type.as_deref(), Some("application/json"));
        assert_eq!(incoming.transport_id.unwrap().as_str(), "id-1");
    }

    #[test]
    fn corrected_message_is_unreadable() {
        let corrections = [Correction::NotUtf8("the routing key"), Correction::TooDeep];
        let received = corrected(encoded("gzip"), &gzip(b"text"), &corrections);
        let ReceivedMessage::Unreadable { incoming, rejection, encoded: false } = received else { panic!() };
        assert_eq!(incoming.body, "text");
        let expected = "the routing key is not UTF-8, and its headers are nested more than 32 levels deep; ";
        assert!(rejection.reason.starts_with(expected), "{rejection}");
    }

    #[test]
    fn body_is_decompressed_and_a_charset_is_no_content_encoding() {
        for (encoding, body) in [("gzip", gzip(b"text")), ("utf-8", b"text".to_vec()), ("", b"text".to_vec())] {
            let ReceivedMessage::Readable(incoming) = of(encoded(encoding), &body) else { panic!("{encoding}") };
            assert_eq!(incoming.body, "text");
        }
    }

    #[test]
    fn unreadable_body_is_kept_unchanged_with_its_reason() {
        let bomb = gzip(&[0; 1001]);
        for (encoding, body, sent) in [
            ("utf-8", &[b'x'; 1001][..], "it has 1001 bytes, and limits.body_bytes is 1000"),
            ("gzip", &bomb, "of gzip inflate to more, and limits.body_bytes is 1000"),
            ("gzip", b"text", "the body does not match its content encoding \"gzip\""),
            ("br", b"text", "the content encoding \"br\" is not supported; use gzip or zstd"),
        ] {
            let ReceivedMessage::Unreadable { incoming, rejection, .. } = of(encoded(encoding), body) else {
                panic!("{sent}")
            };
            assert_eq!(incoming.body, body);
            assert!(rejection.reason.contains(sent), "{rejection}");
        }
    }
}
