//! Transports in: how messages reach the gateway. A transport knows how to receive, to acknowledge
//! and to report, and nothing of what a message says: it hands bytes and headers to
//! [`crate::intake`] and acknowledges what the intake has put on disk.
//!
//! To add a transport: one new file here, and one variant in the list of transports that the
//! configuration reads. One that reads from a broker is a [`brokered::Broker`].

pub mod amqp;
pub mod brokered;
pub mod http;
pub mod rate;
pub mod stomp;
