//! Client of a bucket: the library with the HTTP client of the gateway.

use std::{error::Error, sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig,
    aws::AmazonS3Builder,
    client::{HttpClient, HttpConnector, HttpError},
    path::Path,
    prefix::PrefixStore,
};

use super::S3Settings;
use crate::{
    http_client::{describe_error, unrestricted_client},
    web::Secret,
};

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a response, and of the next piece of its body. A request with a part of a file is sent in the same time.
const SILENCE: Duration = Duration::from_secs(120);

/// Maximum number of repetitions of a request, and the time after which none begins.
const RETRIES: usize = 3;
const RETRY_TIME: Duration = Duration::from_secs(60);

/// First and longest wait between two repetitions.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Opens a bucket. No request is sent, so a server that is down is noticed later.
pub(in crate::files) fn open(settings: &S3Settings) -> Result<Arc<dyn ObjectStore>, String> {
    let S3Settings { endpoint, region, bucket, prefix, access_key, secret_key, ca } = settings;
    let is_encrypted = endpoint.scheme() == "https";
    let client = unrestricted_client(ca.as_deref(), is_encrypted, CONNECT_TIMEOUT, SILENCE);
    let key = |secret: &Secret| String::from_utf8_lossy(secret.expose()).into_owned();
    let objects = AmazonS3Builder::new()
        .with_endpoint(endpoint.as_str())
        .with_region(region.to_string())
        .with_bucket_name(bucket.to_string())
        .with_access_key_id(key(access_key))
        .with_secret_access_key(key(secret_key))
        .with_retry(RetryConfig {
            backoff: BackoffConfig { init_backoff: FIRST_WAIT, max_backoff: LONGEST_WAIT, base: 2.0 },
            max_retries: RETRIES,
            retry_timeout: RETRY_TIME,
        })
        // Not every server has the request that deletes several objects.
        .with_disable_bulk_delete(true)
        .with_http_connector(Connector(client.map_err(|error| error.to_string())?))
        .build()
        .map_err(|error| error.to_string())?;
    if prefix.is_empty() {
        return Ok(Arc::new(objects));
    }
    Ok(Arc::new(PrefixStore::new(objects, Path::from_iter(prefix.iter().map(ToString::to_string)))))
}

/// Passes the HTTP client of the gateway to the library, whose own one has other CA certificates and proxies.
#[derive(Debug)]
struct Connector(reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient, object_store::Error> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// Describes a connection that could not be opened, or broke; `None` if there was a response.
pub(super) fn connection_error(error: &object_store::Error) -> Option<String> {
    let mut cause: &(dyn Error + 'static) = error;
    while !cause.is::<HttpError>() {
        cause = cause.source()?;
    }
    let error = cause.source().and_then(|cause| cause.downcast_ref::<reqwest::Error>());
    Some(error.map_or_else(|| "the request was interrupted".to_owned(), describe_error))
}
