//! The socket under a connection, and a way to end it that needs nobody's consent.
//!
//! lapin reads and writes in a thread of its own for as long as its socket is open. Letting go of a
//! connection that a silent peer has accepted ends neither the thread nor the socket, so each attempt
//! would leave one of both behind. Here the socket is shut down when its [`Cut`] is dropped, and the
//! thread ends by itself.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use lapin::{
    AsyncTcpStream, ConnectionProperties,
    tcp::{RustlsConnector, RustlsConnectorConfig},
};

use super::{
    address::Address,
    connection::HEARTBEAT_SECONDS,
    error::{AmqpError, Step},
};
use crate::broker::authority;

/// Shuts a socket down when it is dropped.
pub(super) struct Cut(#[cfg(unix)] Option<std::net::TcpStream>);

impl Cut {
    /// For the socket that has this handle.
    #[cfg(unix)]
    fn of(socket: &impl std::os::fd::AsFd) -> Self {
        Self(socket.as_fd().try_clone_to_owned().ok().map(std::net::TcpStream::from))
    }

    #[cfg(not(unix))]
    fn of<T>(_: &T) -> Self {
        Self()
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(socket) = &self.0 {
            // Where the peer has gone there is nothing to shut down.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Opens a socket to the broker, encrypted where the address says so, and a connection over it.
/// Nothing here is bounded in time; dropping the future ends it all.
pub(super) async fn connect(
    address: &Address,
    ca: Option<&Path>,
    properties: ConnectionProperties,
) -> Result<(lapin::Connection, Cut), AmqpError> {
    let at_connect = |error: lapin::Error| AmqpError::at(Step::Connect, &error);
    let unreachable = |error: io::Error| AmqpError::Unreachable(error.to_string());
    let runtime = lapin::runtime::default_runtime().map_err(at_connect)?;
    let found = tokio::net::lookup_host((address.host(), address.port())).await.map_err(unreachable)?;
    let found: Vec<_> = found.collect();
    let mut stream = AsyncTcpStream::connect(&runtime, found).await.map_err(unreachable)?;
    let AsyncTcpStream::Plain(socket) = &stream else {
        return Err(AmqpError::Unreachable("it was encrypted before it was asked to be".to_owned()));
    };
    let cut = Cut::of(socket.get_ref());
    if address.is_encrypted() {
        let connector = connector(ca.map(Path::to_owned)).await?;
        let encrypted = stream.into_rustls(&connector, address.host()).await;
        stream = encrypted.map_err(|error| AmqpError::Tls(error.to_string()))?;
    }
    // The library asks for a socket once: it is told never to connect again.
    let opened = Mutex::new(Some(stream));
    let hand_over = async move |_, _| {
        let stream = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    };
    let uri = address.to_uri(HEARTBEAT_SECONDS);
    let connection = lapin::Connection::connector(uri, runtime, hand_over, properties).await.map_err(at_connect)?;
    Ok((connection, cut))
}

/// What certificates are checked with: those of the authority in `ca` alone, or of all that the
/// operating system trusts.
async fn connector(ca: Option<PathBuf>) -> Result<RustlsConnector, AmqpError> {
    let read = tokio::task::spawn_blocking(move || {
        let mut trusted = RustlsConnectorConfig::default();
        match ca {
            Some(path) => {
                trusted.add_parsable_certificates(authority(&path).map_err(AmqpError::Authority)?);
            }
            None => {
                let native = RustlsConnectorConfig::new_with_native_certs();
                trusted = native.map_err(|error| AmqpError::Tls(error.to_string()))?;
            }
        }
        trusted.connector_with_no_client_auth().map_err(|error| AmqpError::Tls(error.to_string()))
    });
    read.await.unwrap_or_else(|error| Err(AmqpError::Tls(error.to_string())))
}
