//! A delivery of a broker as the intake takes it: headers as text, the body inflated.

use bytes::Bytes;
use lapin::types::{AMQPValue, FieldTable};

use crate::{
    amqp::{Delivery, Received},
    broker::delivered_again,
    format::{Headers, Place, Rejection},
    intake::{Arrived, EventId, Incoming, SourceName},
    source::brokered::whole,
};

/// Under this name dialects find the routing key.
const ROUTING_KEY: &str = "routing-key";

/// Under this name stands the exchange.
const EXCHANGE: &str = "exchange";

/// The message of a delivery as the intake takes it. A body of more than `largest` bytes, deflated or inflated, is
/// for no dialect, and neither is a message that is not as it was published.
pub(super) fn arrived(received: Received, largest: usize, source: &SourceName) -> Arrived {
    let Received { delivery, corrections } = received;
    if delivery.redelivered {
        delivered_again(source.as_str());
    }
    let properties = &delivery.properties;
    let coding = properties.content_encoding().as_ref().map(ToString::to_string);
    let incoming = Incoming {
        content_type: properties.content_type().as_ref().map(ToString::to_string),
        headers: headers(&delivery),
        transport_id: properties.message_id().as_ref().and_then(|id| EventId::parse(id.as_str())),
        redelivered: delivery.redelivered,
        body: Bytes::from(delivery.data),
    };
    match whole(incoming, coding.as_deref(), largest) {
        Arrived::Whole(incoming) if !corrections.is_empty() => {
            let reasons: Vec<_> = corrections.iter().map(ToString::to_string).collect();
            let reason = format!(
                "{}; the gateway reads no such message, and shows it corrected: `?` stands for each octet that is not \
                 UTF-8, and deep headers are left out",
                reasons.join(", and ")
            );
            Arrived::Unreadable { incoming, rejection: Rejection::malformed(Place::Message, reason), coded: false }
        }
        arrived => arrived,
    }
}

/// The routing key and the exchange, then what the sender has given, as far as it is text or can be
/// written as such. What the sender gives under the names of the first two does not count.
fn headers(delivery: &Delivery) -> Headers {
    let mut headers = Headers::default();
    headers.push(ROUTING_KEY, delivery.routing_key.as_str());
    headers.push(EXCHANGE, delivery.exchange.as_str());
    let none = FieldTable::default();
    let told = delivery.properties.headers().as_ref().unwrap_or(&none);
    for (name, value) in told {
        let name = name.as_str();
        let is_taken = [ROUTING_KEY, EXCHANGE].iter().any(|taken| name.eq_ignore_ascii_case(taken));
        if let Some(text) = text(value).filter(|_| !is_taken) {
            headers.push(name, text);
        }
    }
    headers
}

/// A value of a header as text; `None` where it is a table, a list, bytes or nothing.
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

    use super::{Received, arrived};
    use crate::{
        amqp::Correction,
        intake::{Arrived, SourceName},
    };

    fn delivery(properties: BasicProperties, body: &[u8]) -> Delivery {
        let mut delivery = Delivery::mock(1, "sfm_exchange".into(), "harvest.start.x.y".into(), false, body.to_vec());
        delivery.properties = properties;
        delivery
    }

    fn of(properties: BasicProperties, body: &[u8]) -> Arrived {
        corrected(properties, body, &[])
    }

    fn corrected(properties: BasicProperties, body: &[u8], corrections: &[Correction]) -> Arrived {
        let received = Received { delivery: delivery(properties, body), corrections: corrections.to_vec() };
        arrived(received, 1000, &SourceName::parse("s").unwrap())
    }

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn encoded(coding: &str) -> BasicProperties {
        BasicProperties::default().with_content_encoding(coding.into())
    }

    #[test]
    fn headers_are_text_and_the_routing_key_is_the_brokers() {
        let mut told = FieldTable::default();
        told.insert("Routing-Key".into(), AMQPValue::LongString("forged".into()));
        told.insert("org.example.count".into(), AMQPValue::LongInt(-3));
        told.insert("List".into(), AMQPValue::FieldArray(FieldArray::default()));
        told.insert("bytes".into(), AMQPValue::LongString(vec![0xff].into()));
        let properties = BasicProperties::default()
            .with_headers(told)
            .with_content_type("application/json".into())
            .with_message_id(" id-1 ".into());
        let Arrived::Whole(incoming) = of(properties, b"{}") else { panic!() };
        let headers: Vec<_> = incoming.headers.iter().collect();
        let expected =
            [("routing-key", "harvest.start.x.y"), ("exchange", "sfm_exchange"), ("org.example.count", "-3")];
        assert_eq!(headers, expected);
        assert_eq!(incoming.content_type.as_deref(), Some("application/json"));
        assert_eq!(incoming.transport_id.unwrap().as_str(), "id-1");
    }

    #[test]
    fn a_corrected_message_is_for_no_dialect() {
        let corrections = [Correction::NotUtf8("the routing key"), Correction::TooDeep];
        let arrived = corrected(encoded("gzip"), &gzip(b"text"), &corrections);
        let Arrived::Unreadable { incoming, rejection, coded: false } = arrived else { panic!() };
        assert_eq!(incoming.body, "text");
        let expected = "the routing key is not UTF-8, and its headers are nested more than 32 levels deep; ";
        assert!(rejection.reason.starts_with(expected), "{rejection}");
    }

    #[test]
    fn a_body_is_inflated_and_a_charset_is_no_coding() {
        for (coding, body) in [("gzip", gzip(b"text")), ("utf-8", b"text".to_vec()), ("", b"text".to_vec())] {
            let Arrived::Whole(incoming) = of(encoded(coding), &body) else { panic!("{coding}") };
            assert_eq!(incoming.body, "text");
        }
    }

    #[test]
    fn what_no_dialect_may_see_is_kept_as_it_came_with_its_reason() {
        let bomb = gzip(&[0; 1001]);
        for (coding, body, told) in [
            ("utf-8", &[b'x'; 1001][..], "it has 1001 bytes, and limits.body_bytes is 1000"),
            ("gzip", &bomb, "of gzip inflate to more, and limits.body_bytes is 1000"),
            ("gzip", b"text", "it tells the content encoding \"gzip\" and is not of it"),
            ("br", b"text", "the content encoding \"br\" is not read; gzip and zstd are"),
        ] {
            let Arrived::Unreadable { incoming, rejection, .. } = of(encoded(coding), body) else { panic!("{told}") };
            assert_eq!(incoming.body, body);
            assert!(rejection.reason.contains(told), "{rejection}");
        }
    }
}
