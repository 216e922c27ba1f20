//! STOMP 1.1 and 1.2 client, for ActiveMQ, Artemis and RabbitMQ.
//!
//! The codec is our own. Of the maintained clients on crates.io, async-stomp has a licence that `deny.toml`
//! does not allow (EUPL-1.2), and iridium-stomp has no TLS and reconnects without informing its caller, who
//! must know that unacknowledged messages are delivered again. The crates stomp, tokio-stomp, stomp-rs and
//! stomp-parser are unmaintained, or leave the connection to their caller. None of them can discard a body
//! that is too large and continue, so one such message would block its queue forever. The gateway needs only a
//! small part of the protocol: five outgoing and four incoming frames.
//!
//! The client does not look into messages; it passes headers and bodies through.

mod connection;
mod connector;
mod decode;
mod error;
mod frame;
pub mod modified_utf8;
mod publisher;
mod settings;
mod socket;

pub use connection::{Delivery, Reader, Writer};
pub use connector::Connector;
pub use decode::{Decoder, HEAD_BYTES};
pub use error::{MalformedFrame, StompError};
pub use frame::{Body, Command, Frame, Version, encode};
pub use publisher::{Publisher, Receipt};
pub use settings::{
    Acknowledge, InvalidBrokerUrl, InvalidHeader, StompSettings, address, parse_destination, parse_header,
};
