//! The authority that a broker's certificate is checked against, where it is not one that the operating
//! system trusts.

use std::path::{Path, PathBuf};

use rustls::pki_types::{CertificateDer, pem::PemObject};

/// Why the certificates of an authority cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificates in {} cannot be read: {reason}", path.display())]
pub struct InvalidAuthority {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// Reads the certificates in a PEM file. It waits for the disk.
///
/// # Errors
/// When it cannot be read, or holds none.
pub fn authority(path: &Path) -> Result<Vec<CertificateDer<'static>>, InvalidAuthority> {
    let unreadable = |reason: String| InvalidAuthority { path: path.to_owned(), reason };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| unreadable(error.to_string()))?;
    if read.is_empty() { Err(unreadable("it holds none".to_owned())) } else { Ok(read) }
}
