//! Stand-in for the client of a bucket, in a build without the feature `s3`.

use std::sync::Arc;

use object_store::ObjectStore;

use super::S3Settings;
use crate::features::missing;

/// Refuses the bucket.
pub(in crate::files) fn open(_: &S3Settings) -> Result<Arc<dyn ObjectStore>, String> {
    Err(missing("s3").unwrap_or_default())
}

/// Returns `None`, because no connection was opened.
pub(super) fn connection_error(_: &object_store::Error) -> Option<String> {
    None
}
