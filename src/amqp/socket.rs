//! The connection of the library over a socket of the gateway's own.
//!
//! lapin reads and writes in a thread of its own for as long as its socket is open. Letting go of a connection that a
//! silent peer has accepted ends neither the thread nor the socket, so each attempt would leave one of both behind.
//! Here the socket is shut down when its [`SocketGuard`] is dropped, and the thread ends by itself.

use std::{
    io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use lapin::{AsyncTcpStream, ConnectionProperties};

use super::{
    address::Address,
    connection::HEARTBEAT_SECONDS,
    error::{AmqpError, Step},
    frames::Notes,
    stream::{self, ScannedStream},
};
use crate::broker::{Resolver, SocketGuard, open_socket};

/// Opens a socket to the broker, encrypted where the address says so, and a connection over it.
/// Nothing here is bounded in time; dropping the future ends it all.
pub(super) async fn connect(
    address: &Address,
    ca: Option<&Path>,
    resolver: &Resolver,
    properties: ConnectionProperties,
    notes: Notes,
) -> Result<(lapin::Connection, SocketGuard), AmqpError> {
    let (socket, guard) = open_socket(address.endpoint(), ca, resolver).await?;
    // The library asks for a socket once, because it is told never to connect again.
    let opened = Mutex::new(Some(AsyncTcpStream::Plain(ScannedStream::over(socket, notes))));
    let hand_over = async move |_, _| {
        let stream = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    };
    let uri = address.to_uri(HEARTBEAT_SECONDS);
    let connection = lapin::Connection::connector(uri, stream::runtime(), hand_over, properties).await;
    let connection = connection.map_err(|error| AmqpError::at(Step::Connect, &error))?;
    Ok((connection, guard))
}
