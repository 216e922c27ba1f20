//! Push delivery: one engine runs every push subscription, and each kind of delivery is one module.
//!
//! The engine ([`engine`]) reads changes from the journal in the order of their numbers, filters them, encodes
//! them in the subscription's format and sends them through its [`Delivery`]. After the receiver has confirmed
//! a message, the engine advances the durable cursor. Delivery is at least once, in order and without gaps. A
//! message keeps its change's identifier, so a receiver can drop duplicates.
//!
//! To add a delivery, add a module and list it in [`DELIVERIES`].

mod amqp;
mod attempts;
mod change_notices;
mod cursors;
mod definition;
mod engine;
mod guarded_resolver;
mod http_outcome;
mod in_flight;
#[cfg(feature = "kafka")]
mod kafka;
mod memory;
pub mod metrics;
mod runner;
mod schema;
mod secret_url;
mod start_position;
mod status;
mod stomp;
mod subscriptions;
mod webhook;
pub mod websub;
pub mod xesam;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

pub use attempts::{Attempt, AttemptLog, AttemptOutcome};
pub use definition::{COMMON_KEYS, Definition, DefinitionContext, InvalidDefinition};
pub use engine::EngineTimeouts;
pub use runner::Runner;
pub use start_position::{InvalidStartPosition, StartPosition};
pub use status::{StatusSnapshot, SubscriptionState};
pub use subscriptions::{
    ChangeProgress, MAX_SUBSCRIPTIONS, OperationError, RepeatedChanges, RewoundChanges, SKIPPED_BY, SentChange,
    SubscriptionHealth, SubscriptionInfo, SubscriptionProgress, Subscriptions,
};

use crate::{
    format::FormatKind,
    journal::RecordedChange,
    model::{Seq, SubscriptionName},
    settings::{Key, Setting},
};

/// All kinds of delivery, by name.
pub static DELIVERIES: &[&DeliveryKind] = &[
    &amqp::AMQP,
    &webhook::WEBHOOK,
    #[cfg(feature = "kafka")]
    &kafka::KAFKA,
    &stomp::STOMP,
];

/// A kind of delivery that a subscription can name.
pub struct DeliveryKind {
    /// Value of the key `delivery` in a definition.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Whether messages have routing keys. Some formats need them.
    pub has_routing_keys: bool,
    /// Settings of this delivery. A definition lists them beside the keys that all subscriptions share.
    pub settings: &'static [Key],
    /// Parses the settings.
    pub parse: fn(&Setting, &DefinitionContext<'_>) -> ConfigResult,
}

/// Parsed settings of a delivery, or the error in them.
pub type ConfigResult = Result<Arc<dyn DeliveryConfig>, InvalidDefinition>;

/// The parsed and validated settings of a delivery.
pub trait DeliveryConfig: Send + Sync {
    /// Creates the delivery without connecting it. Deliveries that report attempts record them in `attempts`.
    fn build(&self, subscription: &SubscriptionName, attempts: &Arc<AttemptLog>) -> Box<dyn Delivery>;

    /// Returns the maximum number of changes in one message. If it exceeds 1, the format must support batches.
    fn max_batch(&self) -> usize {
        1
    }

    /// Returns the duration of uninterrupted failures after which the subscription is paused; `None` means
    /// never.
    fn pause_after(&self) -> Option<Duration> {
        None
    }

    /// Connects to the receiver under a name, and checks the settings as far as this sends and changes nothing. `None` if
    /// connecting says nothing. The error has the words of [`Delivery::connect`].
    fn probe<'s>(&'s self, _name: &'s str) -> Option<BoxFuture<'s, Result<(), String>>> {
        None
    }

    /// Returns the settings with defaults filled in and secrets removed.
    fn redacted(&self) -> Map<String, Value>;
}

/// A connection to one receiver.
///
/// The engine connects, sends, and closes the connection after any failure; then it waits and connects again.
/// The engine limits the duration of every call and may cancel a call at any await point. It sends unconfirmed
/// messages again.
pub trait Delivery: Send {
    /// Connects, and sets up the receiver where the delivery requires it.
    ///
    /// # Errors
    /// Fails if the connection cannot be made; the engine retries.
    fn connect(&mut self) -> BoxFuture<'_, Result<(), DeliveryError>>;

    /// Sends one message and returns a future of its outcome. The engine sends messages in order. It may send
    /// more messages before the first outcome arrives, up to [`Delivery::window`].
    ///
    /// # Errors
    /// Fails if the connection has failed.
    fn send(&mut self, message: Outgoing) -> BoxFuture<'_, Result<DeliveryFuture, DeliveryError>>;

    /// Waits until the connection fails, so that the engine notices this before it sends the next message.
    fn wait_for_failure(&mut self) -> BoxFuture<'_, DeliveryError>;

    /// Returns why the receiver accepts nothing at present, if it has said so over the open connection.
    fn block(&self) -> Option<String> {
        None
    }

    /// Closes the connection, if one is open.
    fn close(&mut self) -> BoxFuture<'_, ()>;

    /// Returns the bounds on in-flight messages.
    fn window(&self) -> Window;

    /// Maximum number of bytes in the body of a batch. A larger change is sent alone.
    fn batch_bytes(&self) -> usize {
        BATCH_BYTES
    }

    /// Returns the number of bytes that a change adds to a message.
    fn size_in_message(&self, _: &RecordedChange, encoded: &Bytes) -> usize {
        encoded.len()
    }

    /// Returns the maximum number of additional bytes in memory for an in-flight message of this size, beside
    /// its body and the JSON of its change.
    fn extra_bytes(&self, _size: usize) -> usize {
        0
    }

    /// Notifies the delivery that all changes up to this one are complete: no session will send them again.
    fn settled_through(&mut self, _: Seq) {}
}

/// Maximum size of a batch in bytes. Most servers and proxies accept one megabyte by default (nginx: 1 048 576
/// bytes).
const BATCH_BYTES: usize = 900_000;

/// Future of a message's outcome.
pub type DeliveryFuture = BoxFuture<'static, DeliveryOutcome>;

/// Bounds on in-flight messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Maximum number of messages, at least 1.
    pub messages: usize,
    /// Maximum number of changes in one message. With 1, a body is one encoded change; with more, every body is
    /// a batch of the format, even if it contains one change.
    pub changes: usize,
    /// Maximum number of bytes; a single message may exceed it.
    pub bytes: usize,
    /// Maximum time until the outcome of a message arrives. After it, the connection counts as failed.
    pub outcome_timeout: Duration,
}

/// Header of a message that an administrator has sent again. Its value is `true`.
const REPEAT_HEADER: &str = "tidings-repeat";

/// A message to send.
#[derive(Clone)]
pub struct Outgoing {
    /// The first change. Its identifier identifies the message in every attempt.
    pub change: Arc<RecordedChange>,
    /// The changes after the first.
    pub more: Vec<Arc<RecordedChange>>,
    /// Whether the body is a batch of the format.
    pub is_batch: bool,
    /// Whether an administrator has the change sent again. The message says so, where it has headers.
    pub is_repeat: bool,
    /// Format of the body. It also provides the headers ([`FormatKind::headers`]).
    pub format: &'static FormatKind,
    /// Encoded body.
    pub body: Bytes,
}

impl Outgoing {
    /// Returns the media type of the body.
    #[must_use]
    pub fn media_type(&self) -> &'static str {
        match self.format.batch {
            Some(batch) if self.is_batch => batch.media_type,
            _ => self.format.media_type,
        }
    }
}

/// Outcome of sending a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The receiver accepted the message.
    Delivered,
    /// No queue receives the message at present; the message is counted and dropped.
    Unroutable,
    /// The message was not delivered; sending it again may succeed.
    Retry {
        /// Cause of the failure.
        reason: String,
        /// Delay that the receiver requests before the next attempt.
        after: Option<Duration>,
    },
    /// The message is larger than the receiver accepts. The engine immediately sends several changes again in
    /// smaller messages; it sends a single change again later.
    TooLarge {
        /// Cause of the failure.
        reason: String,
    },
    /// The receiver permanently refuses this message: it becomes a dead letter, and delivery continues.
    Refused {
        /// Cause of the refusal.
        reason: String,
    },
    /// The receiver wants no further messages: the subscription ends.
    Gone {
        /// Cause that the receiver reported.
        reason: String,
    },
}

impl DeliveryOutcome {
    /// Adds why the receiver accepts nothing at present to the cause of a failure that may pass.
    fn because(self, block: Option<String>) -> Self {
        match (self, block) {
            (Self::Retry { reason, after }, Some(block)) => Self::Retry { reason: format!("{reason}: {block}"), after },
            (outcome, _) => outcome,
        }
    }
}

/// Failure to connect. The engine always retries, because the receiver's operator may fix the cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeliveryError(pub String);
