//! AMQP 0-9-1 client, shared by the source that reads queues and the delivery that publishes to exchanges.
//!
//! Every wait for the library (lapin) has a timeout, and its own connection recovery is off, because that
//! would hide an outage from a caller that waits for a confirmation. The owner of a connection supervises it
//! (`broker`).
//!
//! The client does not look into messages; it passes bytes and properties through.

mod broker_url;
mod connection;
mod error;
mod frames;
mod queue;
mod socket;
mod stream;

pub use crate::broker::Resolver;
pub use broker_url::{BrokerUrl, InvalidBrokerUrl};
pub use connection::{Channel, Connection, Connector, ConsumedMessage, Consumer, QueueType};
pub use error::AmqpError;
pub use frames::{Correction, DEEPEST, FrameScanner, LARGEST_FRAME, MalformedFrame, Notes};
pub use lapin::{message::Delivery, types::ShortString};
pub use queue::{OpenQueue, QueueSettings, probed};
