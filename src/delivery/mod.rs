//! How subscribers are told: one engine for every push subscription, and one file a way to push.
//!
//! Changes come from the journal by number; the engine ([`engine`]) filters them, has the format
//! write them, hands them to the subscription's [`Delivery`], and moves the cursor, durably, once the
//! receiver has confirmed. At least once, in order, without a gap; the identifier of a message is its
//! change's, so that a receiver can drop a repeat.
//!
//! To add a delivery: one new file, and one line in [`DELIVERIES`].

mod amqp;
mod answer;
mod attempts;
mod cursors;
mod definition;
mod engine;
mod flight;
mod key;
mod memory;
pub mod metrics;
mod rate;
mod runner;
mod schema;
mod secret_url;
mod start;
mod status;
mod subscriptions;
mod webhook;
pub mod websub;

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Map, Value};

pub use attempts::{Attempt, AttemptOutcome, Attempts};
pub use definition::{Definition, InvalidDefinition, Maker};
pub use engine::Tuning;
pub use key::{Key, Takes};
pub use runner::Runner;
pub use start::{InvalidStart, Start};
pub use status::{Snapshot, State};
pub use subscriptions::{Listed, OperationError, Subscriptions};

use crate::{
    format::FormatKind,
    journal::RecordedChange,
    model::{Seq, SubscriptionName},
};

/// Something that is being done.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Every way to push, by name.
pub static DELIVERIES: &[&DeliveryKind] = &[&amqp::AMQP, &webhook::WEBHOOK];

/// A way to push, as subscriptions name it.
pub struct DeliveryKind {
    /// The name in a definition.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// The keys of its settings, which stand in a definition beside those that all have.
    pub keys: &'static [Key],
    /// Reads its settings.
    pub read: fn(Map<String, Value>, &Maker<'_>) -> Read,
}

/// The settings of a delivery, or what is wrong with them.
pub type Read = Result<Arc<dyn Blueprint>, InvalidDefinition>;

/// The settings of a delivery, read and checked.
pub trait Blueprint: Send + Sync {
    /// Makes the delivery. It does nothing until it is told to connect. Where an attempt is more than a line in a
    /// log, it is kept in `attempts`.
    fn build(&self, subscription: &SubscriptionName, attempts: &Arc<Attempts>) -> Box<dyn Delivery>;

    /// How many changes go into one message at the most. With more than one the format must have batches.
    fn max_batch(&self) -> usize {
        1
    }

    /// After how long a time of failures the subscription is paused; `None` is never.
    fn pause_after(&self) -> Option<Duration> {
        None
    }

    /// The settings with their defaults, and without anything secret.
    fn shown(&self) -> Map<String, Value>;
}

/// The connection to one receiver.
///
/// The engine connects, sends, and closes when anything went wrong; then it waits and connects anew.
/// Whatever it calls is bounded in time by it as well, and may be broken off at any await: what was
/// sent and not confirmed is sent again.
pub trait Delivery: Send {
    /// Connects, and sets up at the receiver what is needed.
    ///
    /// # Errors
    /// When there is no connection; the engine tries again.
    fn connect(&mut self) -> Doing<'_, Result<(), DeliveryError>>;

    /// Sends one message, and gives back what will tell its outcome. Messages are sent in order, and
    /// a later one may be sent before an earlier one has its outcome: up to [`Delivery::window`].
    ///
    /// # Errors
    /// When the connection has failed.
    fn send(&mut self, message: Outgoing) -> Doing<'_, Result<Pending, DeliveryError>>;

    /// Waits until the connection has failed, so that it is known before the next message.
    fn failed(&mut self) -> Doing<'_, DeliveryError>;

    /// Closes the connection, as far as there is one.
    fn close(&mut self) -> Doing<'_, ()>;

    /// How much may be on its way at once.
    fn window(&self) -> Window;

    /// Maximum number of bytes in the body of a message of several changes; a change that is larger goes alone.
    fn batch_bytes(&self) -> usize {
        BATCH_BYTES
    }

    /// Bytes that a change adds to a message.
    fn size_in_message(&self, _: &RecordedChange, encoded: &Bytes) -> usize {
        encoded.len()
    }

    /// Maximum number of bytes that an in-flight message of this size takes in memory beside its body and the JSON of its
    /// change.
    fn extra_bytes(&self, _size: usize) -> usize {
        0
    }

    /// All changes up to this one are done with: none of them is sent again in this session or a later one.
    fn settled_through(&mut self, _: Seq) {}
}

/// Bytes of a batch. Servers and proxies take a megabyte (nginx: 1 048 576 bytes) unless they are set up otherwise.
const BATCH_BYTES: usize = 900_000;

/// What will tell the outcome of a message.
pub type Pending = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Bounds on what is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How many messages, 1 at least.
    pub messages: usize,
    /// How many changes one message may have. With 1, bodies are as the format writes them; with more, each is a
    /// batch of the format, that of one change too.
    pub changes: usize,
    /// How many bytes of them; one message may have more.
    pub bytes: usize,
    /// How long the outcome of one may take; after that the connection counts as failed.
    pub patience: Duration,
}

/// A message to be sent.
#[derive(Clone)]
pub struct Outgoing {
    /// The change that it tells. Its identifier is the message's, however often it is sent.
    pub change: Arc<RecordedChange>,
    /// The changes that it tells behind that one.
    pub more: Vec<Arc<RecordedChange>>,
    /// Whether the body is a batch of the format.
    pub is_batch: bool,
    /// What the body is written in. It tells what headers go with it ([`FormatKind::headers`]).
    pub format: &'static FormatKind,
    /// The body.
    pub body: Bytes,
}

impl Outgoing {
    /// The media type of the body.
    #[must_use]
    pub fn media_type(&self) -> &'static str {
        match self.format.batch {
            Some(batch) if self.is_batch => batch.media_type,
            _ => self.format.media_type,
        }
    }
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has it.
    Delivered,
    /// Nobody wants it at present, and that is to be counted and no more.
    Unroutable,
    /// It did not arrive, and may if it is sent again.
    Retry {
        /// Why.
        reason: String,
        /// How long the receiver asks to be left alone.
        after: Option<Duration>,
    },
    /// The message is larger than the receiver accepts. Several changes are sent again in smaller messages at once; a
    /// single change is sent again later.
    TooLarge {
        /// Why.
        reason: String,
    },
    /// The receiver will never take this message: it becomes a dead letter, and the rest goes on.
    Refused {
        /// Why.
        reason: String,
    },
    /// The receiver wants no more at all: the subscription ends.
    Gone {
        /// Why.
        reason: String,
    },
}

/// Why there is no connection. It is tried again in any case: what is wrong may be mended at the
/// receiver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeliveryError(pub String);
