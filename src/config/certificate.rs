//! `ca`: a file with the CA certificates that the certificate of a server is checked against.

use std::path::PathBuf;

use crate::settings::{Setting, SettingError};

/// Validates the path of a CA certificate file in a table. The file is an error if the connection is not encrypted;
/// `encrypted` is the URL scheme to suggest.
pub(super) fn ca_certificate(
    path: Option<String>,
    is_encrypted: bool,
    encrypted: &str,
    table: &Setting,
) -> Result<Option<PathBuf>, SettingError> {
    match path {
        Some(_) if !is_encrypted => Err(table
            .at("ca")
            .invalid(format!("the connection is not encrypted; give a URL with {encrypted}, or leave ca out"))),
        Some(path) if path.is_empty() => Err(table.at("ca").invalid("it is empty; give the path of a file")),
        // Absolute, so that messages identify the file whatever the working directory is.
        path => Ok(path.map(|path| std::path::absolute(&path).unwrap_or_else(|_| path.into()))),
    }
}
