//! Socket of a connection to a broker: name resolution, TCP, and TLS if the URL requires it.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{Endpoint, InvalidCaCertificates, read_ca_certificates};
use crate::web::plain_tls_error;

/// A stream of octets in both directions.
pub trait AnyStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> AnyStream for S {}

/// A connected stream, already decrypted.
pub type Stream = Box<dyn AnyStream>;

/// Future of a host's socket addresses. The error is the reason why there are none.
pub type ResolveFuture = Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, String>> + Send>>;

/// Resolves a broker's host to the socket addresses that connections may use. Connections go to no other
/// addresses.
pub type Resolver = Arc<dyn Fn(&Endpoint) -> ResolveFuture + Send + Sync>;

/// Reason why a socket cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SocketError {
    /// No socket address accepts a connection.
    #[error("{0}")]
    Unreachable(String),
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(String),
    /// The CA certificates cannot be read.
    #[error(transparent)]
    CaCertificates(#[from] InvalidCaCertificates),
}

/// Shuts the socket down when it is dropped, even if the stream still has other owners.
pub struct SocketGuard(#[cfg(unix)] Option<std::net::TcpStream>);

impl SocketGuard {
    #[cfg(unix)]
    fn of(socket: &TcpStream) -> Self {
        use std::os::fd::AsFd;
        Self(socket.as_fd().try_clone_to_owned().ok().map(std::net::TcpStream::from))
    }

    #[cfg(not(unix))]
    fn of(_: &TcpStream) -> Self {
        Self()
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(socket) = &self.0 {
            // The shutdown fails only if the peer has already closed the connection.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Returns the resolver of the operating system, without restrictions.
#[must_use]
pub fn system_resolver() -> Resolver {
    Arc::new(|endpoint| {
        let (host, port) = (endpoint.host().to_owned(), endpoint.port());
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((host, port)).await.map_err(|error| error.to_string())?;
            Ok(addresses.collect())
        })
    })
}

/// Opens a socket to the broker, with TLS if the URL requires it. Certificates are checked against the CA
/// certificates in the PEM file `ca`, or against those of the operating system. There is no timeout; dropping
/// the future ends the attempt.
///
/// # Errors
/// Fails if the host has no address, no address accepts the connection, or the TLS handshake fails.
pub async fn open(
    endpoint: &Endpoint,
    ca: Option<&Path>,
    resolver: &Resolver,
) -> Result<(Stream, SocketGuard), SocketError> {
    let addresses = resolver(endpoint).await.map_err(SocketError::Unreachable)?;
    let unreachable = |error: io::Error| SocketError::Unreachable(error.to_string());
    let socket = TcpStream::connect(&addresses[..]).await.map_err(unreachable)?;
    // Both protocols write whole frames and wait for responses, so Nagle's algorithm only adds delay.
    socket.set_nodelay(true).map_err(unreachable)?;
    let guard = SocketGuard::of(&socket);
    if !endpoint.is_encrypted() {
        return Ok((Box::new(socket), guard));
    }
    let name = ServerName::try_from(endpoint.host().to_owned()).map_err(|error| SocketError::Tls(error.to_string()))?;
    let connector = TlsConnector::from(Arc::new(tls_config(ca.map(Path::to_owned)).await?));
    let failed = |error: io::Error| SocketError::Tls(plain_tls_error(&error).unwrap_or_else(|| error.to_string()));
    let stream = connector.connect(name, socket).await.map_err(failed)?;
    Ok((Box::new(stream), guard))
}

/// Returns a TLS configuration that trusts only the CA certificates in `ca`, or those of the operating system.
///
/// # Errors
/// Fails if the CA certificates cannot be read.
pub async fn tls_config(ca: Option<PathBuf>) -> Result<ClientConfig, SocketError> {
    let read = tokio::task::spawn_blocking(move || {
        let mut trusted = RootCertStore::empty();
        match ca {
            Some(path) => trusted.add_parsable_certificates(read_ca_certificates(&path)?),
            None => trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        };
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| SocketError::Tls(error.to_string()))?;
        Ok(config.with_root_certificates(trusted).with_no_client_auth())
    });
    read.await.unwrap_or_else(|error| Err(SocketError::Tls(error.to_string())))
}
