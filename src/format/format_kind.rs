//! Description of a format: its name, media type and writers, its headers, and how it joins several changes.

use std::borrow::Cow;

use crate::model::{Change, ContentObjectModification, Uri};

/// A format that views, subscriptions and the command line offer.
pub struct FormatKind {
    /// Name in the configuration and on the command line.
    pub name: &'static str,
    /// Media type of the output.
    pub media_type: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Writes a change of the journal, including its number, source, time of receipt and late aspects.
    pub write: fn(&Change) -> Vec<u8>,
    /// Writes a modification alone, without the data that the journal adds.
    pub write_modification: fn(&ContentObjectModification) -> Vec<u8>,
    /// Decides which changes have a message in this format; `None` if all have. Deliveries, pages and streams leave the
    /// others out.
    pub covers: Option<fn(&Change) -> bool>,
    /// Headers of the message besides the content type.
    pub extra_headers: ExtraHeaders,
    /// Splits a change into messages for a topic exchange, if the format decides about their number and routing keys.
    /// [`FormatKind::write`] then lists these messages.
    pub routed: Option<fn(&Change) -> Vec<RoutedMessage>>,
    /// Syntax for several changes in one body, if the format supports it.
    pub batch: Option<Batch>,
}

impl FormatKind {
    /// Returns the headers for the body of a change.
    #[must_use]
    pub fn headers(&self, change: &Change, protocol: HeaderProtocol) -> Vec<Header> {
        match self.extra_headers {
            ExtraHeaders::None => Vec::new(),
            ExtraHeaders::Redundant(write) | ExtraHeaders::Required(write) => write(change, protocol),
        }
    }

    /// Returns whether a change has a message in this format.
    #[must_use]
    pub fn covers(&self, change: &Change) -> bool {
        self.covers.is_none_or(|covers| covers(change))
    }

    /// Returns whether the body contains the whole change. If not, only deliveries with headers or routing keys
    /// offer the format, and views do not.
    #[must_use]
    pub fn is_self_contained(&self) -> bool {
        !matches!(self.extra_headers, ExtraHeaders::Required(_)) && self.routed.is_none()
    }
}

/// One of the messages that a change becomes at a topic exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedMessage {
    /// Routing key, at most 255 bytes.
    pub routing_key: &'static str,
    /// Body.
    pub body: String,
    /// The object or item that the message is about.
    pub resource: Uri,
}

/// Headers that a format adds to a message.
#[derive(Clone, Copy)]
pub enum ExtraHeaders {
    /// No headers.
    None,
    /// Headers that repeat parts of the body for receivers that look for them there.
    Redundant(fn(&Change, HeaderProtocol) -> Vec<Header>),
    /// Headers with data that the body does not contain.
    Required(fn(&Change, HeaderProtocol) -> Vec<Header>),
}

/// Protocol that carries the headers. Standards name and encode the same header differently for each protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderProtocol {
    /// HTTP headers.
    Http,
    /// AMQP 0-9-1 headers, which RabbitMQ passes to AMQP 1.0 clients as application properties.
    Amqp,
    /// Headers of Kafka records.
    Kafka,
    /// STOMP headers, which ActiveMQ passes to JMS clients as properties.
    Stomp,
}

/// A header of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name: a token (RFC 9110 section 5.6.2) of at most 255 bytes.
    pub name: Cow<'static, str>,
    /// Value: visible ASCII characters and inner spaces for HTTP, any text for the others.
    pub value: String,
}

/// Syntax of a body that joins the bodies of several changes.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Media type of the joined body.
    pub media_type: &'static str,
    /// Text before the first body.
    pub open: &'static str,
    /// Text between two bodies.
    pub between: &'static str,
    /// Text after the last body.
    pub close: &'static str,
}

impl Batch {
    /// Joins bodies from [`FormatKind::write`] into one, in their order.
    #[must_use]
    pub fn join<B: AsRef<[u8]>>(&self, bodies: &[B]) -> Vec<u8> {
        let inside: usize = bodies.iter().map(|body| body.as_ref().len() + self.between.len()).sum();
        let mut joined = Vec::with_capacity(self.open.len() + inside + self.close.len());
        joined.extend_from_slice(self.open.as_bytes());
        for (index, body) in bodies.iter().enumerate() {
            if index > 0 {
                joined.extend_from_slice(self.between.as_bytes());
            }
            joined.extend_from_slice(body.as_ref());
        }
        joined.extend_from_slice(self.close.as_bytes());
        joined
    }
}
