//! CA certificates that a broker's certificate is checked against instead of those of the operating system.

use std::path::{Path, PathBuf};

use rustls::pki_types::{CertificateDer, pem::PemObject};

/// Reason why CA certificates cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the CA certificates in {}: {reason}", path.display())]
pub struct InvalidCaCertificates {
    /// The file.
    pub path: PathBuf,
    /// The error.
    pub reason: String,
}

/// Reads the certificates in a PEM file. The call blocks.
///
/// # Errors
/// Fails if the file cannot be read, or contains no certificate.
pub fn read_ca_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, InvalidCaCertificates> {
    let unreadable = |reason: String| InvalidCaCertificates { path: path.to_owned(), reason };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| unreadable(error.to_string()))?;
    if read.is_empty() { Err(unreadable("the file contains no certificate".to_owned())) } else { Ok(read) }
}
