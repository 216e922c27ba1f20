//! Conversion of a Kafka record to a message for the intake: headers as text, body decompressed.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use crate::{
    format::{Headers, Location, Rejection},
    intake::{EventId, Incoming, MessageSet, ReceivedMessage},
    kafka::Record,
    source::consumer::decompress,
};

/// Prefix of the headers that describe the place of a record: topic, partition, offset, key and timestamp. Apache Camel
/// has the same names in capitals. Headers of the sender with this prefix are dropped.
const PREFIX: &str = "kafka.";

/// Header name of the routing key, for dialects. If the sender has not set it, it is the topic.
const ROUTING_KEY: &str = "routing-key";

/// Names of the headers with the media type: that of Kafka's CloudEvents binding, and that of Spring.
const CONTENT_TYPES: [&str; 2] = ["content-type", "contentType"];

/// Memory of a message beside its key, body and headers, in bytes, roughly.
const OVERHEAD_BYTES: usize = 200;

/// A message, or records that cannot be decoded.
#[derive(Debug)]
pub(super) struct KafkaMessage {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// Offsets of the record batch.
    pub(super) batch: Range<i64>,
    pub(super) content: Content,
}

/// Content of a message.
#[derive(Debug)]
pub(super) enum Content {
    /// A record with a value.
    Record(Record),
    /// Records that cannot be decoded, from the message's offset to before `end`.
    Unreadable { end: i64, reason: String },
}

impl KafkaMessage {
    /// Returns the offset after the message.
    pub(super) fn next(&self) -> i64 {
        match self.content {
            Content::Record(_) => self.offset + 1,
            Content::Unreadable { end, .. } => end,
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn size_in_memory(&self) -> usize {
        OVERHEAD_BYTES
            + match &self.content {
                Content::Record(record) => record.approximate_size(),
                Content::Unreadable { reason, .. } => reason.len(),
            }
    }

    /// Converts the message. A body of more than `max_body_bytes` bytes, compressed or decompressed, is unreadable.
    pub(super) fn read(self, max_body_bytes: usize) -> ReceivedMessage {
        let Self { topic, partition, offset, batch, content } = self;
        let mut headers = Headers::default();
        headers.push(&format!("{PREFIX}topic"), &*topic);
        headers.push(&format!("{PREFIX}partition"), partition.to_string());
        headers.push(&format!("{PREFIX}offset"), offset.to_string());
        let record = match content {
            Content::Record(record) => record,
            Content::Unreadable { end, reason } => {
                let incoming = Incoming {
                    content_type: None,
                    headers,
                    body: Bytes::new(),
                    transport_id: None,
                    redelivered: false,
                    set: None,
                };
                let last = end - 1;
                let reason = format!(
                    "the records with the offsets {offset} to {last} of partition {partition} of {topic} were skipped, \
                     because {reason}; read them with another client, and send their messages again"
                );
                let rejection = Rejection::malformed(Location::Message, reason);
                return ReceivedMessage::Unreadable { incoming, rejection, encoded: false };
            }
        };
        let timestamp = record.timestamp.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        headers.push(&format!("{PREFIX}timestamp"), &timestamp);
        if let Some(key) = record.key.as_deref().and_then(|key| std::str::from_utf8(key).ok()) {
            headers.push(&format!("{PREFIX}key"), key);
        }
        for (name, value) in &record.headers {
            let is_reserved = name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
            if let Some(value) = std::str::from_utf8(value).ok().filter(|_| !is_reserved) {
                headers.push(name, value);
            }
        }
        let content_type = CONTENT_TYPES.into_iter().find_map(|name| headers.get(name)).map(str::to_owned);
        let encoding = headers.get("content-encoding").map(str::to_owned);
        let transport_id = headers.get("message-id").and_then(EventId::parse);
        if headers.get(ROUTING_KEY).is_none() {
            headers.push(ROUTING_KEY, &*topic);
        }
        let body = Bytes::from(record.value.unwrap_or_default());
        // The offset is written with the changes, so no message is delivered again.
        let place = format!("partition {partition} of {topic}").into();
        let set = Some(MessageSet { place, offsets: batch });
        let incoming = Incoming { content_type, headers, body, transport_id, redelivered: false, set };
        decompress(incoming, encoding.as_deref(), max_body_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, KafkaMessage, MessageSet, Record};
    use crate::intake::ReceivedMessage;

    fn message(headers: &[(&str, &[u8])]) -> KafkaMessage {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        let timestamp = "2026-01-02T03:04:05.006Z".parse().unwrap();
        let record = Record { key: Some(b"http://h/1".to_vec()), value: Some(b"{}".to_vec()), headers, timestamp };
        KafkaMessage { topic: "t.1".into(), partition: 3, offset: 41, batch: 40..50, content: Content::Record(record) }
    }

    #[test]
    fn headers_are_text_and_the_place_is_the_brokers() {
        let sent = message(&[
            ("Kafka.Offset", b"1"),
            ("content-type", b"application/json"),
            ("binary", b"\xff"),
            ("message-id", b"urn:1"),
        ]);
        assert_eq!(sent.next(), 42);
        let ReceivedMessage::Readable(incoming) = sent.read(100) else { panic!() };
        let headers: Vec<_> = incoming.headers.iter().collect();
        let expected = [
            ("kafka.topic", "t.1"),
            ("kafka.partition", "3"),
            ("kafka.offset", "41"),
            ("kafka.timestamp", "2026-01-02T03:04:05.006Z"),
            ("kafka.key", "http://h/1"),
            ("content-type", "application/json"),
            ("message-id", "urn:1"),
            ("routing-key", "t.1"),
        ];
        assert_eq!(headers, expected);
        assert_eq!(incoming.content_type.as_deref(), Some("application/json"));
        assert_eq!(incoming.transport_id.unwrap().as_str(), "urn:1");
        assert_eq!(incoming.set, Some(MessageSet { place: "partition 3 of t.1".into(), offsets: 40..50 }));
    }

    #[test]
    fn routing_key_of_the_sender_is_kept() {
        let ReceivedMessage::Readable(incoming) = message(&[("routing-key", b"a.b")]).read(100) else { panic!() };
        assert_eq!(incoming.headers.get("routing-key"), Some("a.b"));
    }

    #[test]
    fn large_body_and_undecodable_records_are_unreadable() {
        let ReceivedMessage::Unreadable { rejection, .. } = message(&[]).read(1) else { panic!() };
        assert!(rejection.reason.starts_with("it has 2 bytes, and limits.body_bytes is 1"), "{rejection}");
        let content = Content::Unreadable { end: 50, reason: "the CRC is wrong".to_owned() };
        let records = KafkaMessage { content, ..message(&[]) };
        assert_eq!(records.next(), 50);
        let ReceivedMessage::Unreadable { incoming, rejection, .. } = records.read(100) else { panic!() };
        assert!(incoming.body.is_empty());
        let expected =
            "the records with the offsets 41 to 49 of partition 3 of t.1 were skipped, because the CRC is wrong";
        assert!(rejection.reason.starts_with(expected), "{rejection}");
    }
}
