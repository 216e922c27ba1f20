//! Parts of a connection to a broker that all protocols share: the broker's URL, the CA certificates, the
//! socket, and the state of the connection for administrators.
//!
//! `amqp`, `stomp` and `kafka` implement the protocols. The owner of a connection supervises it: after any error it
//! closes the connection, waits, and connects again. It reports the state to [`ConnectionStatus`].

mod ca_certificates;
mod endpoint;
mod socket;
mod status;

pub use ca_certificates::{InvalidCaCertificates, read_ca_certificates};
pub use endpoint::{Endpoint, InvalidEndpoint, Schemes};
pub use socket::{
    ResolveFuture, Resolver, SocketError, SocketGuard, Stream, open as open_socket, system_resolver, tls_config,
};
pub use status::{
    CONNECTION_FAILURES, CONNECTION_LAG, CONNECTION_STATE, ConnectionFailure, ConnectionState, ConnectionStatus,
    ConnectionView,
};

/// Metric name: number of messages that a broker delivered again.
pub const REDELIVERED: &str = "tidings_redelivered_messages_total";

/// Shows the series of redeliveries of a source, because a `rate()` query needs the initial zero.
pub fn register_redeliveries(source: &str) {
    metrics::counter!(REDELIVERED, "source" => source.to_owned()).increment(0);
}

/// Counts a message that the broker delivered to a source again.
pub fn count_redelivery(source: &str) {
    metrics::counter!(REDELIVERED, "source" => source.to_owned()).increment(1);
}
