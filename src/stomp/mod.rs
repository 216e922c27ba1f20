//! Speaking STOMP 1.1 and 1.2 to a broker, as ActiveMQ, Artemis and RabbitMQ do.
//!
//! The codec is our own. Of the clients on crates.io that are kept up, async-stomp is under a licence that
//! `deny.toml` does not allow (EUPL-1.2), and iridium-stomp has no TLS and connects again by itself, behind the
//! back of whoever must know that what was not acknowledged comes again; stomp, tokio-stomp, stomp-rs and
//! stomp-parser have not been kept up, or leave the connection to their user. None can leave out a body that is
//! too large and go on, so that one such message would hold up its queue for ever. What is needed of the
//! protocol is small: four frames that go out, four that come in.
//!
//! It knows nothing of messages: headers and bytes go through.

mod connection;
mod decode;
mod error;
mod frame;
pub mod modified_utf8;
mod settings;
mod socket;

pub use connection::{Delivered, Reader, Writer};
pub use decode::{Decoder, HEAD_BYTES};
pub use error::{Malformed, StompError};
pub use frame::{Body, Command, Frame, Version, encode};
pub use settings::{Acknowledge, InvalidAddress, StompSettings, address, is_destination, is_header};
