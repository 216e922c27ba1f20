//! The socket under a connection, encrypted or not.

use std::{path::PathBuf, sync::Arc};

use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf, split},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{StompError, StompSettings};
use crate::broker::authority;

/// What octets go through.
pub(super) trait AnyStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> AnyStream for S {}

/// One half of a socket reads, the other writes. It is closed when both are dropped.
pub(super) type Reading = ReadHalf<Box<dyn AnyStream>>;
pub(super) type Writing = WriteHalf<Box<dyn AnyStream>>;

/// Opens a socket to the broker, encrypted where the address says so. Nothing here is bounded in time; dropping
/// the future ends it all.
pub(super) async fn open(settings: &StompSettings) -> Result<(Reading, Writing), StompError> {
    let address = &settings.address;
    let unreachable = |error: std::io::Error| StompError::Unreachable(error.to_string());
    let socket = TcpStream::connect((address.host(), address.port())).await.map_err(unreachable)?;
    // What is written is written whole, and is waited for.
    socket.set_nodelay(true).map_err(unreachable)?;
    let stream: Box<dyn AnyStream> = if address.is_encrypted() {
        let refused = |error: String| StompError::Tls(error);
        let name = ServerName::try_from(address.host().to_owned()).map_err(|error| refused(error.to_string()))?;
        let connector = TlsConnector::from(Arc::new(trust(settings.ca.clone()).await?));
        Box::new(connector.connect(name, socket).await.map_err(|error| refused(error.to_string()))?)
    } else {
        Box::new(socket)
    };
    Ok(split(stream))
}

/// What certificates are checked with: those of the authority in `ca` alone, or of all that the
/// operating system trusts.
async fn trust(ca: Option<PathBuf>) -> Result<ClientConfig, StompError> {
    let read = tokio::task::spawn_blocking(move || {
        let mut trusted = RootCertStore::empty();
        match ca {
            Some(path) => trusted.add_parsable_certificates(authority(&path)?),
            None => trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        };
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| StompError::Tls(error.to_string()))?;
        Ok(config.with_root_certificates(trusted).with_no_client_auth())
    });
    read.await.unwrap_or_else(|error| Err(StompError::Tls(error.to_string())))
}
