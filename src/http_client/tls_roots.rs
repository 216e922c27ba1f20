//! Trusted CA certificates of the HTTP client: those of a PEM file, or those of the operating system.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Reason why certificates cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum TlsRootsError {
    /// The file of the CA certificates cannot be used.
    #[error("cannot read the CA certificate {}: {reason}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// The operating system has no CA certificates.
    #[error("the operating system has no CA certificates (install the package ca-certificates): {0}")]
    System(String),
    /// rustls refuses the configuration.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// CA certificates of the operating system, loaded once, because there are hundreds of them and the gateway
/// has many clients.
static SYSTEM_ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();

/// Returns the TLS configuration for HTTP/2 and HTTP/1.1. The call reads files.
pub(super) fn client_config(ca: Option<&Path>) -> Result<ClientConfig, TlsRootsError> {
    let mut config = tls_client_config(ca)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the TLS configuration for any protocol: it trusts the CA certificates of a PEM file, or those of the
/// operating system. The call reads files.
///
/// # Errors
/// Fails if the certificates cannot be read.
pub fn tls_client_config(ca: Option<&Path>) -> Result<ClientConfig, TlsRootsError> {
    let roots = match (ca, SYSTEM_ROOTS.get()) {
        (Some(path), _) => Arc::new(read_ca_certificates(path)?),
        (None, Some(roots)) => Arc::clone(roots),
        (None, None) => {
            let read = load_system_roots()?;
            Arc::clone(SYSTEM_ROOTS.get_or_init(|| Arc::new(read)))
        }
    };
    Ok(with_roots(roots)?)
}

/// Returns a TLS configuration that trusts nobody, for connections that are not encrypted.
///
/// # Errors
/// Fails if the library refuses the configuration.
pub fn tls_without_roots() -> Result<ClientConfig, TlsRootsError> {
    Ok(with_roots(Arc::new(RootCertStore::empty()))?)
}

/// Returns the TLS configuration of the client for unencrypted requests, which the library needs as well.
pub(super) fn no_roots() -> Result<ClientConfig, Arc<TlsRootsError>> {
    tls_without_roots().map_err(Arc::new)
}

fn with_roots(roots: Arc<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}

/// Checks that a PEM file contains at least one usable CA certificate.
///
/// # Errors
/// Fails if the file cannot be read, or contains none.
pub fn check_ca_certificates(path: &Path) -> Result<(), TlsRootsError> {
    read_ca_certificates(path).map(|_| ())
}

fn read_ca_certificates(path: &Path) -> Result<RootCertStore, TlsRootsError> {
    let unusable = |reason: String| TlsRootsError::Authority { path: path.to_owned(), reason };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| unusable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read);
    if roots.is_empty() { Err(unusable("the file contains no certificate".to_owned())) } else { Ok(roots) }
}

fn load_system_roots() -> Result<RootCertStore, TlsRootsError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let reasons: Vec<_> = loaded.errors.iter().map(ToString::to_string).collect();
        return Err(TlsRootsError::System(reasons.join("; ")));
    }
    Ok(roots)
}
