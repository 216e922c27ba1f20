//! Speaking AMQP 0-9-1 to a broker: what the source that reads queues and the delivery that writes to
//! exchanges have in common.
//!
//! The library (lapin) is never waited for without a bound, and never recovers a connection by
//! itself: its own recovery hides an outage from whoever waits for a confirmation. Whoever uses a
//! connection supervises it (`broker`).
//!
//! It knows nothing of messages: bytes and properties go through.

mod address;
mod connection;
mod error;
mod frames;
mod queue;
mod socket;
mod stream;

pub use crate::broker::Resolver;
pub use address::{Address, InvalidAddress};
pub use connection::{Channel, Connection, Connector, Consumer, QueueType, Received};
pub use error::AmqpError;
pub use frames::{Correction, DEEPEST, FrameScanner, LARGEST_FRAME, MalformedFrame, Notes};
pub use lapin::{message::Delivery, types::ShortString};
pub use queue::{OpenQueue, QueueSettings};
