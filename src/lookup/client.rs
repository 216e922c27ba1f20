//! HTTP client of one repository. Requests go to the configured URL only, and their time, size and number are
//! limited.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use bytes::Bytes;
use chrono::Utc;
use futures_util::FutureExt;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use super::{
    breaker::{CircuitBreaker, Permit},
    error::LookupError,
    settings::{Credentials, RepositorySettings},
};
use crate::{
    http_client::{
        self, Authorization, Client, ClientError, Origin, OutboundPolicy, OutboundUrl, RequestHeaders, ResponseStream,
        retry_after,
    },
    model::SourceName,
};

/// Maximum size of a response body, in bytes; enough for a list of about ten thousand datastreams.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// Metric name: number of requests to repositories by outcome.
pub const LOOKUPS: &str = "tidings_lookups_total";

/// Handle to a repository. Clones share its connections and limits.
#[derive(Clone)]
pub struct Repository(Arc<Inner>);

struct Inner {
    settings: RepositorySettings,
    client: Client,
    authorization: Option<Authorization>,
    in_flight: Arc<Semaphore>,
    breaker: CircuitBreaker,
    /// Notified when the repository responds again.
    recovered: Notify,
    succeeded: metrics::Counter,
    failed: metrics::Counter,
}

/// Response of a repository.
#[derive(Clone, Debug)]
pub enum LookupResponse {
    /// The resource exists.
    Found(Resource),
    /// The resource does not exist, or no longer (404, 410).
    NotFound,
}

/// A resource of the repository.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Response headers.
    pub headers: HeaderMap,
    /// The complete body; empty after a HEAD request.
    pub body: Bytes,
}

/// A resource whose body is read in chunks, because it may be too large for memory.
pub struct ResourceStream {
    /// Response headers.
    pub headers: HeaderMap,
    stream: ResponseStream,
}

impl ResourceStream {
    /// Returns the next chunk of the body; `None` at the end.
    ///
    /// # Errors
    /// Fails if the connection breaks, or the next chunk does not arrive in time.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, LookupError> {
        self.stream.piece().await.map_err(|error| LookupError::NoResponse(error.to_string()))
    }
}

impl LookupResponse {
    /// Returns the resource; `None` if it does not exist.
    pub(super) fn into_resource(self) -> Option<Resource> {
        match self {
            Self::Found(resource) => Some(resource),
            Self::NotFound => None,
        }
    }

    /// Returns the size of the body in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Found(resource) => resource.body.len(),
            Self::NotFound => 0,
        }
    }
}

impl Repository {
    /// Creates the client for the repository of `source`. No request is sent yet.
    ///
    /// # Errors
    /// Fails if the HTTP library cannot be set up.
    pub async fn new(source: &SourceName, settings: RepositorySettings) -> Result<Self, ClientError> {
        let client = http_client::ClientSettings {
            ca: settings.ca.clone(),
            connect_timeout: settings.timeout,
            response_timeout: settings.timeout,
            max_body_bytes: MAX_RESPONSE_BYTES,
            body_timeout: settings.timeout,
            // The URL comes from the operator's configuration, so it may point to an internal host.
            ..http_client::ClientSettings::new(OutboundPolicy::unrestricted())
        };
        let client = Client::new(client).await?;
        let authorization = authorization(&settings);
        let in_flight = Arc::new(Semaphore::new(settings.in_flight.max(1)));
        let [succeeded, failed] = ["answered", "failed"].map(|outcome| {
            let counter = metrics::counter!(LOOKUPS, "source" => source.to_string(), "outcome" => outcome);
            // A rate() query needs the initial zero.
            counter.increment(0);
            counter
        });
        let (breaker, recovered) = (CircuitBreaker::default(), Notify::new());
        let inner = Inner { settings, client, authorization, in_flight, breaker, recovered, succeeded, failed };
        Ok(Self(Arc::new(inner)))
    }

    /// Returns the settings of the repository.
    #[must_use]
    pub fn settings(&self) -> &RepositorySettings {
        &self.0.settings
    }

    /// Sends a GET request for `path` below the repository's URL, with `accept` as the media type.
    ///
    /// # Errors
    /// Fails if there is no usable response.
    pub async fn get(&self, path: &str, accept: &'static str) -> Result<LookupResponse, LookupError> {
        self.request(Method::GET, path, &[("accept", accept)]).await
    }

    /// Sends a HEAD request for `path` below the repository's URL and returns the response headers.
    ///
    /// # Errors
    /// In the cases of [`Repository::get`].
    pub async fn head(
        &self,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Result<LookupResponse, LookupError> {
        self.request(Method::HEAD, path, headers).await
    }

    /// Sends a GET request for `path` below the repository's URL and streams the body; `None` if the resource
    /// does not exist.
    ///
    /// # Errors
    /// In the cases of [`Repository::get`].
    pub async fn open(&self, path: &str, accept: &'static str) -> Result<Option<ResourceStream>, LookupError> {
        let Inner { settings, client, breaker, .. } = &*self.0;
        let to = settings.url.at(path).ok_or(LookupError::OutsideRepository)?;
        let _permit = self.in_flight_permit().await?;
        let permit = breaker.permit(Instant::now()).map_err(|retry_after| LookupError::CircuitOpen { retry_after })?;
        let (outcome, wait) = match client.open(&to, self.headers(&[("accept", accept)])).await {
            Ok(stream) => {
                let wait = retry_after(&stream.headers, Utc::now());
                let is_there = resource_exists(stream.status);
                let body =
                    |is_there: bool| is_there.then(|| ResourceStream { headers: stream.headers.clone(), stream });
                (is_there.map(body), wait)
            }
            Err(error) => (Err(LookupError::NoResponse(error.to_string())), None),
        };
        self.record_outcome(permit, outcome.as_ref().err(), wait);
        outcome
    }

    /// Returns the time until the next request is allowed, while the circuit is open.
    #[must_use]
    pub fn circuit_open_for(&self) -> Option<Duration> {
        self.0.breaker.open_for(Instant::now())
    }

    /// Waits until the repository responds again after failures.
    pub async fn wait_for_recovery(&self) {
        self.0.recovered.notified().await;
    }

    /// Forgets that the repository has responded again before now: the requests of the caller may have shown that.
    pub fn forget_recovery(&self) {
        let _ = self.0.recovered.notified().now_or_never();
    }

    /// Sends a request and waits for the response.
    ///
    /// The request runs in a task of its own, which ends by the request timeout. A caller that gives up
    /// therefore neither occupies its permit longer than that nor hides a failure from the circuit breaker.
    async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Result<LookupResponse, LookupError> {
        let to = self.0.settings.url.at(path).ok_or(LookupError::OutsideRepository)?;
        let permit = self.in_flight_permit().await?;
        let headers = self.headers(headers);
        let request = tokio::spawn(self.clone().send(permit, method, to, headers));
        request
            .await
            .unwrap_or_else(|broken| Err(LookupError::NoResponse(format!("the request task failed: {broken}"))))
    }

    /// Acquires a permit for one more request in flight, and waits for it no longer than one request timeout.
    async fn in_flight_permit(&self) -> Result<OwnedSemaphorePermit, LookupError> {
        let Inner { settings, in_flight, .. } = &*self.0;
        let within = settings.timeout;
        match timeout(within, Arc::clone(in_flight).acquire_owned()).await {
            // The semaphore is never closed.
            Ok(permit) => permit.map_err(|closed| LookupError::NoResponse(closed.to_string())),
            Err(_) => Err(LookupError::NoFreeRequest { in_flight: settings.in_flight, within }),
        }
    }

    async fn send(
        self,
        _permit: OwnedSemaphorePermit,
        method: Method,
        to: OutboundUrl,
        headers: RequestHeaders,
    ) -> Result<LookupResponse, LookupError> {
        let Inner { settings, client, breaker, .. } = &*self.0;
        let permit = breaker.permit(Instant::now()).map_err(|retry_after| LookupError::CircuitOpen { retry_after })?;
        let sending = async {
            if method == Method::HEAD { client.head(&to, headers).await } else { client.get(&to, headers).await }
        };
        let response = match timeout(settings.timeout, sending).await {
            Ok(response) => response,
            Err(_) => Err(ClientError::Timeout(settings.timeout.as_secs())),
        };
        let (outcome, wait) = match response {
            Ok(response) => {
                let wait = retry_after(&response.headers, Utc::now());
                (interpret(response, &method), wait)
            }
            Err(error) => (Err(LookupError::NoResponse(error.to_string())), None),
        };
        self.record_outcome(permit, outcome.as_ref().err(), wait);
        outcome
    }

    /// Reports the outcome of a request to the circuit breaker and the metrics.
    fn record_outcome(&self, permit: Permit<'_>, error: Option<&LookupError>, wait: Option<Duration>) {
        let Inner { settings, succeeded, failed, recovered, .. } = &*self.0;
        let Some(error) = error else {
            succeeded.increment(1);
            if permit.succeeded() {
                tracing::debug!(repository = %settings.url, "the repository responds again");
                recovered.notify_one();
            }
            return;
        };
        failed.increment(1);
        if !error.is_host_failure() {
            // The repository works; only this request failed.
            if permit.succeeded() {
                recovered.notify_one();
            }
        } else if permit.failed(Instant::now(), wait) {
            tracing::warn!(repository = %settings.url, %error, "the repository failed too often; the circuit is open");
        }
    }

    fn headers(&self, pairs: &[(&'static str, &'static str)]) -> RequestHeaders {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        RequestHeaders::from(headers).with_authorization(self.0.authorization.as_ref())
    }
}

/// Converts an HTTP response to a lookup response.
fn interpret(response: http_client::BoundedResponse, method: &Method) -> Result<LookupResponse, LookupError> {
    // A HEAD response for external content describes that content (RFC 9110 section 15.4.8). The redirect is
    // not followed.
    if response.status == StatusCode::TEMPORARY_REDIRECT && *method == Method::HEAD {
        return Ok(LookupResponse::Found(Resource { headers: response.headers, body: Bytes::new() }));
    }
    match resource_exists(response.status) {
        Ok(false) => Ok(LookupResponse::NotFound),
        Ok(true) if response.is_complete => {
            Ok(LookupResponse::Found(Resource { headers: response.headers, body: response.body_start }))
        }
        Ok(true) if response.body_start.len() >= MAX_RESPONSE_BYTES => {
            Err(LookupError::InvalidResponse(format!("it has more than {MAX_RESPONSE_BYTES} bytes")))
        }
        Ok(true) => Err(LookupError::NoResponse("the response was interrupted".to_owned())),
        Err(error) => Err(error),
    }
}

/// Returns whether a resource exists, judging by the status.
fn resource_exists(status: StatusCode) -> Result<bool, LookupError> {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(false),
        StatusCode::OK => Ok(true),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(LookupError::AccessDenied(status)),
        status => Err(LookupError::Status(status)),
    }
}

/// Returns the credentials for the origin of the repository.
fn authorization(settings: &RepositorySettings) -> Option<Authorization> {
    let Credentials { username, password } = settings.credentials.as_ref()?;
    let url = settings.url.at("")?;
    Authorization::basic(Origin::of(url.expose())?, username, password)
}

#[cfg(test)]
mod tests;
