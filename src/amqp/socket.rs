//! Connects the library through a socket that the gateway owns.
//!
//! lapin reads and writes in a thread of its own while its socket is open. If a silent peer has accepted a
//! connection, dropping the connection ends neither the thread nor the socket, so each attempt would leak
//! both. Here, dropping the [`SocketGuard`] shuts the socket down, and the thread ends.

use std::{
    io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use lapin::{AsyncTcpStream, ConnectionProperties};

use super::{
    broker_url::BrokerUrl,
    error::{AmqpError, Step},
    frames::Notes,
    stream::{self, ScannedStream},
};
use crate::broker::{Resolver, SocketGuard, open_socket};

/// Heartbeat interval of both sides, in seconds. A broker that hangs or is unreachable is detected after twice
/// this time.
const HEARTBEAT_SECONDS: u16 = 5;

/// Opens a socket to the broker, with TLS if the URL requires it, and an AMQP connection over it. There is no
/// timeout; dropping the future ends the attempt.
pub(super) async fn connect(
    broker_url: &BrokerUrl,
    ca: Option<&Path>,
    resolver: &Resolver,
    properties: ConnectionProperties,
    notes: Notes,
) -> Result<(lapin::Connection, SocketGuard), AmqpError> {
    let (socket, guard) = open_socket(broker_url.endpoint(), ca, resolver).await?;
    // The library requests a socket once, because its recovery is off.
    let stream_slot = Mutex::new(Some(AsyncTcpStream::Plain(ScannedStream::over(socket, notes))));
    let hand_over = async move |_, _| {
        let stream = stream_slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    };
    let uri = broker_url.to_uri(HEARTBEAT_SECONDS);
    let connection = lapin::Connection::connector(uri, stream::runtime(), hand_over, properties).await;
    let connection = connection.map_err(|error| AmqpError::at(Step::Connect, &error))?;
    Ok((connection, guard))
}
