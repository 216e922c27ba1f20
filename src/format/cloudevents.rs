//! CloudEvents 1.0: a change as an event of that standard, with our JSON as its data.
//!
//! It is written in two modes. The structured one has attributes and data in one JSON document
//! (JSON Event Format, section 3), of which several make a batch (section 4). The binary one has the
//! data as body and the attributes in headers, which each carrier names in its own way: `ce-…` by the
//! HTTP binding; by the AMQP binding `cloudEvents_…`, the separator that a JMS client can read too. That
//! binding is of AMQP 1.0. Clients of AMQP 0-9-1 follow the one that Knative has written for RabbitMQ,
//! `ce-…`. A queue may have readers of both, so a message there has both.
//!
//! What an attribute is made of:
//!
//! * `id` is the change's own identifier: a repeat has the same.
//! * `source` names the configured source, as `urn:tidings:source:NAME`. The gateway's address is none: it
//!   may change, and what is an event's source must not.
//! * `type` is `tidings.change.` and what happened to the items. The standard would have it begin with a
//!   domain, to keep apart what different people define; to take one that belongs to somebody else would
//!   not do that.
//! * `subject` is the object, `time` the source's own.
//! * `sequence` and `recordedtime` are extensions that the standard documents: the number of the change, with
//!   zeros before it so that it sorts as text, and when the gateway received it.
//!
//! There is no `dataschema`: there is no address at which a gateway could promise one.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;

use super::{Batch, Beside, Carrier, FormatKind, Header};
use crate::model::{Change, ContentObjectModification, ItemChangeKind, Timestamp};

/// Attributes and data in one document.
pub(super) static STRUCTURED: FormatKind = FormatKind {
    name: "cloudevents",
    media_type: "application/cloudevents+json",
    about: "a CloudEvent 1.0 in JSON, with the model as its data",
    write: |change| write(&Event::of(change)),
    write_modification: |modification| write(&Event::alone(modification)),
    beside: Beside::Nothing,
    batch: Some(Batch { media_type: "application/cloudevents-batch+json", open: "[", between: ",", close: "]" }),
};

/// The data as body, and the attributes in headers.
pub(super) static BINARY: FormatKind = FormatKind {
    name: "cloudevents-binary",
    media_type: DATA_CONTENT_TYPE,
    about: "a CloudEvent 1.0 in binary mode: the model as JSON, the attributes in headers",
    write: |change| write(change),
    write_modification: |modification| write(modification),
    beside: Beside::Facts(headers),
    batch: None,
};

const SPEC_VERSION: &str = "1.0";
const DATA_CONTENT_TYPE: &str = "application/json";

/// The digits of the largest number of a change.
const SEQUENCE_DIGITS: usize = 20;

/// An event, attributes first.
#[derive(Serialize)]
struct Event<'a, D> {
    #[serde(flatten)]
    attributes: Attributes<'a>,
    datacontenttype: &'static str,
    data: &'a D,
}

/// The attributes that go into headers in binary mode.
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
            ..Self::alone(&change.modification)
        }
    }

    fn alone(told: &'a ContentObjectModification) -> Self {
        Self {
            specversion: SPEC_VERSION,
            id: told.id.to_string(),
            source: format!("urn:tidings:source:{}", told.origin.source),
            kind: format!("tidings.change.{}", ItemChangeKind::word(&told.items)),
            subject: told.object.as_str(),
            time: told.time,
            sequence: None,
            recordedtime: None,
        }
    }

    /// Each that is set, by its name and in its canonical form.
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

#[expect(clippy::expect_used, reason = "the model has no map with keys that are not strings, and a Vec takes all")]
fn write(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("the model has a JSON shape for every value")
}

fn headers(change: &Change, carrier: Carrier) -> Vec<Header> {
    let attributes = Attributes::of(change).each();
    let header =
        |prefix: &str, name: &str, value: String| Header { name: Cow::Owned(format!("{prefix}{name}")), value };
    match carrier {
        Carrier::Http => attributes
            .map(|(name, value)| header("ce-", name, utf8_percent_encode(&value, NOT_IN_HEADER).to_string()))
            .collect(),
        Carrier::Amqp => attributes
            .flat_map(|(name, value)| [header("cloudEvents_", name, value.clone()), header("ce-", name, value)])
            .collect(),
    }
}

/// ASCII characters that are percent-encoded in a header (HTTP Protocol Binding section 3.1.3.2). All other characters
/// than ASCII are too.
const NOT_IN_HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

#[cfg(test)]
mod tests {
    use super::{NOT_IN_HEADER, utf8_percent_encode};

    #[test]
    fn a_header_has_visible_ascii_alone() {
        let encoded = |value| utf8_percent_encode(value, NOT_IN_HEADER).to_string();
        assert_eq!(encoded("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(encoded("a\"%20~!"), "a%22%2520~!");
    }
}
