//! Locations of stored files, as the content of items has them.

use crate::{
    files::{FileDigest, FileLinks, FileStore},
    harvest::HarvestError,
    model::{ContentLocation, Digest, DigestAlgorithm, MediaType, Uri},
};

/// Returns the location of a stored file. `public_url` is the URL of the gateway, without a trailing slash.
///
/// # Errors
/// Fails if the URL is not valid.
pub(super) fn location(
    (files, links, public_url): (&FileStore, FileLinks, &str),
    digest: FileDigest,
    size: u64,
    media_type: Option<MediaType>,
) -> Result<ContentLocation, HarvestError> {
    let in_store = match links {
        FileLinks::Gateway => None,
        FileLinks::Store => files.url(digest),
    };
    let url = in_store.unwrap_or_else(|| format!("{public_url}/files/{digest}"));
    let url = Uri::parse(&url).map_err(|error| HarvestError::fail(format!("the URL of a copy: {error}")))?;
    Ok(ContentLocation {
        media_type,
        size: Some(size),
        digest: Digest::parse(DigestAlgorithm::Sha256, &digest.to_string()).ok(),
        ..ContentLocation::at(url)
    })
}
