//! Layout of the methods that a broker sends, and of the properties of a message (AMQP 0-9-1, and RabbitMQ's
//! extensions).

use std::collections::HashMap;

use super::{Correction, Notes};

/// A field, as far as the scanner distinguishes types.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    /// That many octets that need no check.
    Octets(usize),
    /// A delivery tag.
    DeliveryTag,
    /// A short string, with its name for a correction.
    ShortString(&'static str),
    LongString,
    Table,
}

use Field::{DeliveryTag, LongString, Octets, ShortString, Table};

const CONSUMER_TAG: Field = ShortString("the consumer tag");
const EXCHANGE: Field = ShortString("the exchange");
const ROUTING_KEY: Field = ShortString("the routing key");
const REPLY_TEXT: Field = ShortString("the reply text");

/// Reply code, reply text, and the class and the method that failed.
const CLOSE: &[Field] = &[Octets(2), REPLY_TEXT, Octets(4)];

/// `connection.blocked`, with its reason. The broker accepts no messages until [`UNBLOCKED`].
pub(super) const BLOCKED: (u16, u16) = (10, 60);

/// `connection.unblocked`.
pub(super) const UNBLOCKED: (u16, u16) = (10, 61);

/// Returns the arguments of a method, or `None` if no broker sends it.
#[expect(clippy::match_same_arms, reason = "the methods are listed by class, as in the specification")]
pub(super) fn method(class: u16, method: u16) -> Option<&'static [Field]> {
    Some(match (class, method) {
        // connection
        (10, 10) => &[Octets(2), Table, LongString, LongString],
        (10, 20) | (20, 11) => &[LongString],
        (10, 30) => &[Octets(8)],
        (10, 41) => &[ShortString("a reserved argument")],
        (10, 50) | (20, 40) => CLOSE,
        BLOCKED => &[ShortString("the reason of a block")],
        (10, 51 | 71) | UNBLOCKED => &[],
        // channel
        (20, 20 | 21) => &[Octets(1)],
        (20, 41) => &[],
        // exchange
        (40, 11 | 21 | 31 | 51) => &[],
        // queue
        (50, 11) => &[ShortString("the name of a queue"), Octets(8)],
        (50, 21 | 51) => &[],
        (50, 31 | 41) => &[Octets(4)],
        // basic
        (60, 11 | 111) => &[],
        (60, 21 | 31) => &[CONSUMER_TAG],
        (60, 30) => &[CONSUMER_TAG, Octets(1)],
        (60, 50) => &[Octets(2), REPLY_TEXT, EXCHANGE, ROUTING_KEY],
        (60, 60) => &[CONSUMER_TAG, DeliveryTag, Octets(1), EXCHANGE, ROUTING_KEY],
        (60, 71) => &[DeliveryTag, Octets(1), EXCHANGE, ROUTING_KEY, Octets(4)],
        (60, 72) => &[ShortString("a reserved argument")],
        (60, 80 | 120) => &[Octets(9)],
        // confirm, tx
        (85, 11) | (90, 11 | 21 | 31) => &[],
        _ => return None,
    })
}

/// Name of the property that identifies a message.
pub(super) const MESSAGE_ID: &str = "message-id";

/// Properties of a message, in the order of their flags.
pub(super) const PROPERTIES: [(&str, Field); 14] = [
    ("content-type", ShortString("the property content-type")),
    ("content-encoding", ShortString("the property content-encoding")),
    ("headers", Table),
    ("delivery-mode", Octets(1)),
    ("priority", Octets(1)),
    ("correlation-id", ShortString("the property correlation-id")),
    ("reply-to", ShortString("the property reply-to")),
    ("expiration", ShortString("the property expiration")),
    (MESSAGE_ID, ShortString("the property message-id")),
    ("timestamp", Octets(8)),
    ("type", ShortString("the property type")),
    ("user-id", ShortString("the property user-id")),
    ("app-id", ShortString("the property app-id")),
    ("cluster-id", ShortString("the property cluster-id")),
];

/// The kind of content that a method announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnouncedContent {
    Delivery(u64),
    Return,
}

/// Returns the content that a method announces, if the scanner records notes about it.
pub(super) fn announced_content(class: u16, method: u16, tag: Option<u64>) -> Option<AnnouncedContent> {
    match ((class, method), tag) {
        ((60, 60), Some(tag)) => Some(AnnouncedContent::Delivery(tag)),
        ((60, 50), _) => Some(AnnouncedContent::Return),
        _ => None,
    }
}

/// Announced contents by channel whose content header has not arrived yet, with the corrections of the method.
#[derive(Debug, Default)]
pub(super) struct PendingContents(HashMap<u16, (AnnouncedContent, Vec<Correction>)>);

impl PendingContents {
    pub(super) fn begins(&mut self, channel: u16, announced: Option<AnnouncedContent>, corrections: Vec<Correction>) {
        match announced {
            Some(announced) => self.0.insert(channel, (announced, corrections)),
            None => self.0.remove(&channel),
        };
    }

    pub(super) fn ends(
        &mut self,
        channel: u16,
        corrections: Vec<Correction>,
        message_id: Option<String>,
        notes: &Notes,
    ) {
        let Some((announced, mut all)) = self.0.remove(&channel) else { return };
        all.extend(corrections);
        match announced {
            AnnouncedContent::Delivery(tag) if !all.is_empty() => notes.corrected(channel, tag, all),
            AnnouncedContent::Delivery(_) => {}
            AnnouncedContent::Return => notes.returned(channel, message_id.unwrap_or_default()),
        }
    }
}
