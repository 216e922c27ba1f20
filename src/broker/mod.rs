//! What every connection to a broker has in common, whatever is spoken on it: where the broker is and
//! whom it trusts, and how the connection is, for those who administer it.
//!
//! `amqp` and `stomp` speak; whoever uses their connections supervises them: on any error it drops what
//! it has, waits for a while, and connects again. What of that an administrator is to see stands in
//! [`ConnectionStatus`].

mod authority;
mod endpoint;
mod socket;
mod status;

pub use authority::{InvalidAuthority, authority};
pub use endpoint::{Endpoint, InvalidEndpoint, Schemes};
pub use socket::{Resolver, Resolving, SocketError, SocketGuard, Stream, open as open_socket, system_resolver};
pub use status::{CONNECTION_FAILURES, CONNECTION_STATE, ConnectionState, ConnectionStatus, Failure, Shown};

/// The metric of messages that a broker delivered although it had delivered them before.
pub const REDELIVERED: &str = "tidings_redelivered_messages_total";

/// Counts that a broker delivered a message to a source again.
pub fn delivered_again(source: &str) {
    metrics::counter!(REDELIVERED, "source" => source.to_owned()).increment(1);
}
