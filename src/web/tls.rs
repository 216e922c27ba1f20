//! TLS with a certificate and key from two PEM files, which can be reloaded while the gateway runs.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use chrono::{DateTime, Utc};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{Accept, TlsAcceptor};
use x509_cert::{Certificate, der::Decode};

/// Reason why a certificate and key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate cannot be read.
    #[error("cannot read the certificate {}: {}", path.display(), cause(error))]
    Certificate {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        error: pem::Error,
    },
    /// The key cannot be read.
    #[error("cannot read the private key {}: {}", path.display(), cause(error))]
    Key {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        error: pem::Error,
    },
    /// The certificate and the key do not match, or their type is not supported.
    #[error("the certificate {} cannot be used with the key {}: {error}", certificate.display(), key.display())]
    Pair {
        /// Path of the certificate.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
        /// Cause.
        error: rustls::Error,
    },
}

/// Returns the cause of a failure to read a file, without the words that the message around it already has.
fn cause(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// TLS configuration with the current certificate. Clones share it.
#[derive(Clone, Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<RwLock<Loaded>>,
}

/// A certificate that is in use.
#[derive(Clone, Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// End of the certificate; `None` if it is unknown.
    expires: Option<DateTime<Utc>>,
}

impl Tls {
    /// Loads the certificate, followed by its chain, and the key.
    ///
    /// # Errors
    /// When a file cannot be read, or the certificate and the key do not match.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let current = Arc::new(RwLock::new(load_config(certificate, key)?));
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), current })
    }

    /// Reloads both files. New connections use the new certificate.
    ///
    /// # Errors
    /// As [`Tls::load`]; the previous certificate then remains in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let reloaded = load_config(&self.certificate, &self.key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = reloaded;
        Ok(())
    }

    /// Returns the end of the certificate; `None` if it is unknown.
    #[must_use]
    pub fn expires(&self) -> Option<DateTime<Utc>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).expires
    }

    /// Starts the handshake of a new connection.
    pub(super) fn accept(&self, stream: TcpStream) -> Accept<TcpStream> {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).config);
        TlsAcceptor::from(current).accept(stream)
    }
}

fn load_config(certificate: &Path, key: &Path) -> Result<Loaded, TlsError> {
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| TlsError::Certificate { path: certificate.to_owned(), error })?;
    let expires = chain.first().and_then(|first| expiry(first));
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::Key { path: key.to_owned(), error })?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let mut config =
        config.map_err(|error| TlsError::Pair { certificate: certificate.to_owned(), key: key.to_owned(), error })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), expires })
}

/// Returns the end of a certificate; `None` if it cannot be parsed.
fn expiry(certificate: &CertificateDer<'_>) -> Option<DateTime<Utc>> {
    let parsed = Certificate::from_der(certificate).ok()?;
    let end = parsed.tbs_certificate.validity.not_after.to_unix_duration();
    DateTime::from_timestamp(i64::try_from(end.as_secs()).ok()?, 0)
}
