//! TLS: a certificate and its key from two PEM files, which can be read again while the gateway runs.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// Why a certificate and a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate cannot be read.
    #[error("cannot read the certificate {}: {error}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        error: pem::Error,
    },
    /// The key cannot be read.
    #[error("cannot read the private key {}: {error}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        error: pem::Error,
    },
    /// They do not go together, or are of a kind that cannot be used.
    #[error("the certificate {} cannot be used with the key {}: {error}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        error: rustls::Error,
    },
}

/// The certificate that is served at present. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Tls {
    /// Reads the certificate, with those that it is signed by behind it, and the key.
    ///
    /// # Errors
    /// When a file cannot be read, or the two do not go together.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let current = Arc::new(RwLock::new(pair(certificate, key)?));
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), current })
    }

    /// Reads both files again. New connections are served with what they hold now.
    ///
    /// # Errors
    /// As [`Tls::load`]; then what was served before is served on.
    pub fn reload(&self) -> Result<(), TlsError> {
        let read = pair(&self.certificate, &self.key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// The handshake of a new connection.
    pub(super) fn accept(&self, stream: TcpStream) -> Accept<TcpStream> {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        TlsAcceptor::from(current).accept(stream)
    }
}

fn pair(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| TlsError::Certificate { path: certificate.to_owned(), error })?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::Key { path: key.to_owned(), error })?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let mut config =
        config.map_err(|error| TlsError::Pair { certificate: certificate.to_owned(), key: key.to_owned(), error })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
