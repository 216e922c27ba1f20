//! Speaking AMQP 0-9-1 to a broker: what the source that reads queues and the delivery that writes to
//! exchanges have in common.
//!
//! The library (lapin) is never waited for without a bound, and never recovers a connection by
//! itself: its own recovery hides an outage from whoever waits for a confirmation. Whoever uses a
//! connection supervises it: on any error it drops what it has, waits as [`Backoff`] says, and
//! connects again. What of that an administrator is to see stands in [`ConnectionStatus`].
//!
//! It knows nothing of messages: bytes and properties go through.

mod address;
mod backoff;
mod connection;
mod error;
mod queue;
mod socket;
mod status;

pub use address::{Address, InvalidAddress};
pub use backoff::Backoff;
pub use connection::{Channel, Connection, Connector, Consumer, QueueType};
pub use error::AmqpError;
pub use lapin::{message::Delivery, types::ShortString};
pub use queue::{OpenQueue, QueueSettings};
pub use status::{CONNECTION_FAILURES, CONNECTION_STATE, ConnectionState, ConnectionStatus, Failure, Shown};

/// The metric of messages that a broker delivered although it had delivered them before.
pub const REDELIVERED: &str = "tidings_redelivered_messages_total";

/// Counts that a broker delivered a message to a source again.
pub fn delivered_again(source: &str) {
    metrics::counter!(REDELIVERED, "source" => source.to_owned()).increment(1);
}
