//! CloudEvents 1.0, with the JSON of the change as data.
//!
//! There are two modes. In structured mode, one JSON document contains attributes and data (JSON Event Format,
//! section 3), and several documents form a batch (section 4). In binary mode, the body is the data and headers
//! contain the attributes.
//!
//! Header names depend on the protocol. The HTTP binding uses `ce-…`. The AMQP binding, which is for AMQP 1.0,
//! uses `cloudEvents_…`, a separator that JMS clients can read. Clients of AMQP 0-9-1 use `ce-…`, as in
//! Knative's binding for RabbitMQ. A queue may have consumers of both kinds, so AMQP messages contain both.
//!
//! Attributes:
//!
//! * `id` is the identifier of the change; duplicates have the same one.
//! * `source` is the configured source, as `urn:tidings:source:NAME`. The gateway's URL is not used, because it
//!   may change and the source of an event must not.
//! * `type` is `tidings.change.` and the kind of change, or `late` if nothing in it is news. The standard recommends a domain as prefix to avoid
//!   collisions; this project owns no domain.
//! * `subject` is the object, `time` the time from the source.
//! * `sequence` and `recordedtime` are documented extensions: the number of the change, zero-padded so that it
//!   sorts as text, and the time of receipt.
//!
//! There is no `dataschema`, because a gateway cannot guarantee a URL for it.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;

use super::{Batch, ExtraHeaders, FormatKind, Header, HeaderProtocol};
use crate::model::{Change, ContentObjectModification, ItemChangeKind, Timestamp};

/// Structured mode: attributes and data in one document.
pub(super) static STRUCTURED: FormatKind = FormatKind {
    name: "cloudevents",
    media_type: "application/cloudevents+json",
    about: "a CloudEvent 1.0 in JSON, with the model as its data",
    write: |change| write(&Event::of(change)),
    write_modification: |modification| write(&Event::alone(modification)),
    covers: None,
    extra_headers: ExtraHeaders::None,
    routed: None,
    batch: Some(Batch { media_type: "application/cloudevents-batch+json", open: "[", between: ",", close: "]" }),
};

/// Binary mode: the data as body, the attributes in headers.
pub(super) static BINARY: FormatKind = FormatKind {
    name: "cloudevents-binary",
    media_type: DATA_CONTENT_TYPE,
    about: "a CloudEvent 1.0 in binary mode: the model as JSON, the attributes in headers",
    write: |change| write(change),
    write_modification: |modification| write(modification),
    covers: None,
    extra_headers: ExtraHeaders::Required(headers),
    routed: None,
    batch: None,
};

const SPEC_VERSION: &str = "1.0";
const DATA_CONTENT_TYPE: &str = "application/json";

/// Number of digits of the largest change number.
const SEQUENCE_DIGITS: usize = 20;

/// An event: attributes, then data.
#[derive(Serialize)]
struct Event<'a, D> {
    #[serde(flatten)]
    attributes: Attributes<'a>,
    datacontenttype: &'static str,
    data: &'a D,
}

/// Attributes that binary mode puts into headers.
#[derive(Serialize)]
struct Attributes<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    #[serde(rename = "type")]
    kind: String,
    subject: &'a str,
    time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recordedtime: Option<Timestamp>,
}

impl<'a> Event<'a, Change> {
    fn of(change: &'a Change) -> Self {
        let attributes = Attributes::of(change);
        Self { attributes, datacontenttype: DATA_CONTENT_TYPE, data: change }
    }
}

impl<'a> Event<'a, ContentObjectModification> {
    fn alone(modification: &'a ContentObjectModification) -> Self {
        let attributes = Attributes::alone(modification);
        Self { attributes, datacontenttype: DATA_CONTENT_TYPE, data: modification }
    }
}

impl<'a> Attributes<'a> {
    fn of(change: &'a Change) -> Self {
        Self {
            sequence: Some(format!("{:0width$}", change.seq.0, width = SEQUENCE_DIGITS)),
            recordedtime: Some(change.received),
            kind: event_type(ItemChangeKind::word(change)),
            ..Self::alone(&change.modification)
        }
    }

    fn alone(modification: &'a ContentObjectModification) -> Self {
        Self {
            specversion: SPEC_VERSION,
            id: modification.id.to_string(),
            source: format!("urn:tidings:source:{}", modification.origin.source),
            kind: event_type(ItemChangeKind::word_of(&modification.items)),
            subject: modification.object.as_str(),
            time: modification.time,
            sequence: None,
            recordedtime: None,
        }
    }

    /// Iterates over names and canonical values of the attributes that are set.
    fn each(self) -> impl Iterator<Item = (&'static str, String)> {
        let optional = [("sequence", self.sequence), ("recordedtime", self.recordedtime.map(|time| time.to_string()))];
        [
            ("specversion", self.specversion.to_owned()),
            ("id", self.id),
            ("source", self.source),
            ("type", self.kind),
            ("subject", self.subject.to_owned()),
            ("time", self.time.to_string()),
        ]
        .into_iter()
        .chain(optional.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }
}

fn event_type(word: &str) -> String {
    format!("tidings.change.{word}")
}

#[expect(clippy::expect_used, reason = "the model has no map with keys that are not strings, and a Vec takes all")]
fn write(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("the model has a JSON shape for every value")
}

fn headers(change: &Change, protocol: HeaderProtocol) -> Vec<Header> {
    let attributes = Attributes::of(change).each();
    let header =
        |prefix: &str, name: &str, value: String| Header { name: Cow::Owned(format!("{prefix}{name}")), value };
    match protocol {
        HeaderProtocol::Http => attributes
            .map(|(name, value)| header("ce-", name, utf8_percent_encode(&value, NOT_IN_HEADER).to_string()))
            .collect(),
        HeaderProtocol::Amqp => attributes
            .flat_map(|(name, value)| [header("cloudEvents_", name, value.clone()), header("ce-", name, value)])
            .collect(),
        // The prefix of the AMQP binding that JMS allows in the name of a property.
        HeaderProtocol::Stomp => attributes.map(|(name, value)| header("cloudEvents_", name, value)).collect(),
        HeaderProtocol::Kafka => attributes.map(|(name, value)| header("ce_", name, value)).collect(),
    }
}

/// ASCII characters that are percent-encoded in a header (HTTP Protocol Binding section 3.1.3.2); all non-ASCII
/// characters are encoded too.
const NOT_IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

#[cfg(test)]
mod tests {
    use super::{NOT_IN_HEADER, utf8_percent_encode};

    #[test]
    fn header_contains_only_visible_ascii() {
        let encoded = |value| utf8_percent_encode(value, NOT_IN_HEADER).to_string();
        assert_eq!(encoded("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(encoded("a\"%20~!"), "a%22%2520~!");
    }
}
