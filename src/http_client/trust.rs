//! Which certificates a client believes: those of one authority, or of all that the operating system trusts.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Why certificates cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum UntrustedError {
    /// The file of the authority cannot be used.
    #[error("cannot read the authority's certificate {}: {reason}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The operating system has none.
    #[error("the operating system trusts no authority (install ca-certificates): {0}")]
    System(String),
    /// rustls does not take them.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Those of the operating system, read once: there are hundreds, and a client for each subscriber.
static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();

/// What TLS is set up with, for HTTP/2 and HTTP/1.1. It reads files.
pub(super) fn tls(ca: Option<&Path>) -> Result<ClientConfig, UntrustedError> {
    let roots = match (ca, SYSTEM.get()) {
        (Some(path), _) => Arc::new(authority(path)?),
        (None, Some(system)) => Arc::clone(system),
        (None, None) => {
            let read = system()?;
            Arc::clone(SYSTEM.get_or_init(|| Arc::new(read)))
        }
    };
    let mut config = trusting(roots)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// For a client that encrypts nothing, which the library sets up all the same.
pub(super) fn nobody() -> Result<ClientConfig, Arc<UntrustedError>> {
    trusting(Arc::new(RootCertStore::empty())).map_err(|error| Arc::new(error.into()))
}

fn trusting(roots: Arc<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}

/// Checks that a PEM file has a certificate of an authority that can be used.
///
/// # Errors
/// When it cannot be read, or has none.
pub fn check_authority(path: &Path) -> Result<(), UntrustedError> {
    authority(path).map(|_| ())
}

fn authority(path: &Path) -> Result<RootCertStore, UntrustedError> {
    let unusable = |reason: String| UntrustedError::Authority { path: path.to_owned(), reason };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| unusable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read);
    if roots.is_empty() { Err(unusable("it holds none".to_owned())) } else { Ok(roots) }
}

fn system() -> Result<RootCertStore, UntrustedError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        return Err(UntrustedError::System(reasons.join("; ")));
    }
    Ok(roots)
}
