//! TLS with a certificate and key from two PEM files, which can be reloaded while the gateway runs.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use chrono::{DateTime, TimeDelta, Utc};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
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
    #[error("{}", pair(certificate, key, error))]
    Pair {
        /// Path of the certificate.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
        /// Cause.
        error: rustls::Error,
    },
}

/// Returns why a certificate and a key cannot be used together.
fn pair(certificate: &Path, key: &Path, error: &rustls::Error) -> String {
    let (certificate, key) = (certificate.display(), key.display());
    match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("the key in {key} does not belong to the certificate in {certificate}")
        }
        error => format!("the certificate {certificate} cannot be used with the key {key}: {error}"),
    }
}

/// Returns the cause of a failure to read a file, without the words that the message around it already has.
fn cause(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "the file contains none in PEM".to_owned(),
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

    /// Returns a warning if the certificate has expired, or expires within two weeks.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let end = self.expires()?;
        let (path, day) = (self.certificate.display(), end.format("%F"));
        match end - Utc::now() {
            left if left <= TimeDelta::zero() => Some(format!("the certificate {path} expired on {day}")),
            left if left <= EXPIRES_SOON => Some(format!("the certificate {path} expires on {day}")),
            _ => None,
        }
    }

    /// Returns the end of the certificate; `None` if it is unknown.
    #[must_use]
    pub fn expires(&self) -> Option<DateTime<Utc>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).expires
    }

    /// Makes the handshake of a new connection. A client that speaks HTTP without TLS gets a response that says so.
    pub(super) fn accept(
        &self,
        mut stream: TcpStream,
    ) -> impl Future<Output = io::Result<TlsStream<TcpStream>>> + Send + 'static {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).config);
        async move {
            let mut first = [0];
            stream.peek(&mut first).await?;
            // A TLS record begins with the number 22, a request with the name of its method.
            if first[0].is_ascii_uppercase() {
                refuse_plain_http(&mut stream).await?;
                return Err(io::Error::other("the client speaks HTTP without TLS"));
            }
            TlsAcceptor::from(current).accept(stream).await
        }
    }
}

/// Time before the end of a certificate or token at which it is a problem.
pub const EXPIRES_SOON: TimeDelta = TimeDelta::days(14);

/// Response to a client that speaks HTTP without TLS.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 53\r\nConnection: close\r\n\r\nThis port speaks TLS: use a URL with https, not http\n";

/// Sends the response and reads what the client still sends, because an unread request would reset the connection before
/// the client has the response.
async fn refuse_plain_http(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_HTTP).await?;
    stream.shutdown().await?;
    let (mut buffer, mut rest) = ([0; 4096], MAX_PLAIN_REQUEST);
    while rest > 0 {
        match stream.read(&mut buffer).await? {
            0 => break,
            read => rest = rest.saturating_sub(read),
        }
    }
    Ok(())
}

/// Maximum number of bytes that are read of a request without TLS.
const MAX_PLAIN_REQUEST: usize = 64 << 10;

fn load_config(certificate: &Path, key: &Path) -> Result<Loaded, TlsError> {
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) });
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
