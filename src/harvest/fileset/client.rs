//! Requests to the interfaces of platforms: redirections, limits, and the classification of failures.

use std::time::Duration;

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, LOCATION},
};
use chrono::Utc;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use url::Url;

use super::{IngestFailure, RetryRule};
use crate::{
    format::fileset::status::IngestStatus,
    harvest::Hosts,
    http_client::{
        Authorization, Client, ClientError, ClientSettings, Origin, OutboundPolicy, OutboundUrl, RequestHeaders,
        ResponseStream, rate_limit_reset,
    },
    text::line,
    web::Secret,
};

/// Maximum number of redirections of a request to an interface.
const MAX_REDIRECTS: usize = 5;

/// Maximum number of requests to a busy server, and the longest wait between two of them.
const BUSY_ATTEMPTS: usize = 4;
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Wait if a busy server does not say for how long.
const BUSY: Duration = Duration::from_secs(10);

/// Number of characters of a response that a message quotes.
const QUOTED_CHARS: usize = 80;

/// Time until the headers of a response, and between two pieces of a body.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for a document of an interface, and for a landing page, each with all its redirections and waits. A server that
/// drips would otherwise keep the place of a job for hours.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Limits of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Maximum size of a response of an interface, in bytes.
    pub answer_bytes: usize,
    /// Maximum size of a landing page, in bytes.
    pub page_bytes: usize,
    /// Time for a document of an interface or a landing page, with all redirections and waits.
    pub exchange: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { answer_bytes: 64 << 20, page_bytes: 128 << 20, exchange: EXCHANGE_TIMEOUT }
    }
}

/// Client for landing pages and the interfaces of platforms. Clones share their connections.
#[derive(Clone)]
pub struct PlatformClient {
    pub(super) client: Client,
    pub(super) policy: OutboundPolicy,
    pub(super) hosts: Hosts,
    pub(super) limits: ClientLimits,
}

/// Access token of a platform, which is sent as `Authorization: Bearer`.
#[derive(Clone)]
pub struct PlatformToken(Secret);

impl PlatformToken {
    /// Creates a token; `None` if it has characters that a header cannot carry.
    #[must_use]
    pub fn new(secret: &Secret) -> Option<Self> {
        HeaderValue::from_bytes(secret.expose()).ok().map(|_| Self(secret.clone()))
    }

    /// Returns the token for the origin of a URL.
    pub(super) fn authorization(&self, url: &Url) -> Option<Authorization> {
        Authorization::bearer(Origin::of(url)?, &self.0)
    }
}

/// Prints no secret.
impl std::fmt::Debug for PlatformToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlatformToken")
    }
}

impl PlatformClient {
    /// Creates a client. It connects when the first request is sent.
    ///
    /// # Errors
    /// Fails if the HTTP library cannot be set up.
    pub async fn new(policy: OutboundPolicy, hosts: Hosts, limits: ClientLimits) -> Result<Self, ClientError> {
        let settings = ClientSettings {
            response_timeout: RESPONSE_TIMEOUT,
            body_timeout: RESPONSE_TIMEOUT,
            ..ClientSettings::new(policy.clone())
        };
        Ok(Self { client: Client::new(settings).await?, policy, hosts, limits })
    }

    /// Requests a JSON document from the interface of a platform.
    ///
    /// # Errors
    /// Fails with a status of the platform: `platform-404`, `platform-restricted`, `platform-http-error`,
    /// `platform-error`, or `platform-bad-answer` if the response is no such document.
    pub async fn json<T: DeserializeOwned>(
        &self,
        url: &Url,
        token: Option<&PlatformToken>,
    ) -> Result<T, IngestFailure> {
        let body = self.document(url, token, HeaderValue::from_static("application/json")).await?;
        let mut document = serde_json::Deserializer::from_slice(&body);
        serde_path_to_error::deserialize(&mut document).map_err(|error| {
            let start: String = String::from_utf8_lossy(&body).chars().take(QUOTED_CHARS).collect();
            let place = error.path().to_string();
            let reason = if error.inner().is_data() {
                format!("{place}: {}", error.inner())
            } else {
                format!("it is no JSON: {start:?}")
            };
            IngestFailure::bad_answer(format!("the answer of {} cannot be read: {reason}", named(url)))
        })
    }

    /// Requests a text.
    ///
    /// # Errors
    /// In the cases of [`PlatformClient::json`].
    pub async fn text(&self, url: &Url) -> Result<String, IngestFailure> {
        let body = self.document(url, None, HeaderValue::from_static("text/plain, */*;q=0.5")).await?;
        let no_text = |_| IngestFailure::bad_answer(format!("the answer of {} is no text in UTF-8", named(url)));
        String::from_utf8(body).map_err(no_text)
    }

    /// Requests a document, and follows redirections.
    async fn document(
        &self,
        url: &Url,
        token: Option<&PlatformToken>,
        accept: HeaderValue,
    ) -> Result<Vec<u8>, IngestFailure> {
        let document = timeout(self.limits.exchange, self.redirected_document(url, token, accept)).await;
        document.unwrap_or_else(|_| {
            let message = format!("{} has not answered within {} s", named(url), self.limits.exchange.as_secs());
            Err(IngestFailure::transient(IngestStatus::PLATFORM_ERROR, message))
        })
    }

    async fn redirected_document(
        &self,
        url: &Url,
        token: Option<&PlatformToken>,
        accept: HeaderValue,
    ) -> Result<Vec<u8>, IngestFailure> {
        let mut url = url.clone();
        let authorization = token.and_then(|token| token.authorization(&url));
        let headers = HeaderMap::from_iter([(ACCEPT, accept)]);
        let headers = RequestHeaders::from(headers).with_authorization(authorization.as_ref());
        for _ in 0..=MAX_REDIRECTS {
            let response = self.open_when_free(&url, &headers).await?;
            if !response.status.is_redirection() {
                return self.body_of_success(&url, response).await;
            }
            let location = response.headers.get(LOCATION).and_then(|location| location.to_str().ok());
            let Some(next) = location.and_then(|location| url.join(location).ok()) else {
                return Err(IngestFailure::bad_answer(format!("{} redirects to no valid URL", named(&url))));
            };
            url = next;
        }
        Err(IngestFailure::bad_answer(format!("{} redirects more than {MAX_REDIRECTS} times", named(&url))))
    }

    /// Opens a response, and waits for a server that is busy for a short time.
    pub(super) async fn open_when_free(
        &self,
        url: &Url,
        headers: &RequestHeaders,
    ) -> Result<ResponseStream, IngestFailure> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let target = self.target(url).map_err(|reason| IngestFailure {
                retry: RetryRule::AfterFix,
                ..IngestFailure::permanent(IngestStatus::PLATFORM_ERROR, reason)
            })?;
            // The job gives its place to others meanwhile.
            let permit = self.hosts.permit_within(&target.origin(), LONGEST_WAIT).await;
            let mut permit = permit.map_err(|rest| busy(url, "it accepts no requests for now".to_owned(), rest))?;
            let response = self.client.open(&target, headers).await.map_err(|error| {
                let message = format!("{}: {}", named(url), error.for_everybody());
                IngestFailure::transient(IngestStatus::PLATFORM_ERROR, message)
            })?;
            if !matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                return Ok(response);
            }
            let wait = rate_limit_reset(&response.headers, Utc::now()).unwrap_or(BUSY);
            permit.pause(wait);
            if attempts == BUSY_ATTEMPTS || wait > LONGEST_WAIT {
                return Err(busy(url, format!("it answers {}", response.status), wait));
            }
        }
    }

    /// Reads the body of a response that must be a success.
    async fn body_of_success(&self, url: &Url, response: ResponseStream) -> Result<Vec<u8>, IngestFailure> {
        let (status, name) = (response.status, named(url));
        let failure = |body: &[u8]| {
            let message = format!("{name} answers {status}{}", reason_of(body));
            match status {
                StatusCode::NOT_FOUND => IngestFailure::permanent(IngestStatus::PLATFORM_404, message),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::GONE => {
                    IngestFailure::restricted(message, None)
                }
                _ if status.is_server_error() => IngestFailure::transient(IngestStatus::PLATFORM_HTTP_ERROR, message),
                _ => IngestFailure::permanent(IngestStatus::PLATFORM_HTTP_ERROR, message),
            }
        };
        let body = self.body(response, self.limits.answer_bytes).await;
        let body = body.map_err(|reason| match reason {
            BodyError::TooLarge(bytes) => {
                IngestFailure::bad_answer(format!("the answer of {name} has more than {bytes} bytes"))
            }
            BodyError::Broken(error) => {
                IngestFailure::transient(IngestStatus::PLATFORM_ERROR, format!("{name}: {error}"))
            }
        })?;
        if status.is_client_error() || status.is_server_error() {
            return Err(failure(&body));
        }
        // A challenge for robots answers 202 without a body, or 200 with a page.
        if status != StatusCode::OK || body.is_empty() {
            let bytes = body.len();
            return Err(IngestFailure::bad_answer(format!(
                "{name} answers {status} with {bytes} bytes; 200 was expected"
            )));
        }
        Ok(body)
    }

    /// Reads a body.
    pub(super) async fn body(&self, mut response: ResponseStream, max_bytes: usize) -> Result<Vec<u8>, BodyError> {
        let mut body = Vec::new();
        while let Some(piece) = response.piece().await.map_err(BodyError::Broken)? {
            if body.len() + piece.len() > max_bytes {
                return Err(BodyError::TooLarge(max_bytes));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// Checks the target of a request.
    pub(super) fn target(&self, url: &Url) -> Result<OutboundUrl, String> {
        let mut url = url.clone();
        url.set_fragment(None);
        let parsed = OutboundUrl::parse(url.as_str(), &self.policy);
        parsed.map_err(|error| format!("{}: {}", named(&url), error.for_everybody()))
    }
}

/// Returns the failure of a server that wants no requests for this time.
pub(super) fn busy(url: &Url, how: String, wait: Duration) -> IngestFailure {
    let message = format!("{} is busy: {how}", named(url));
    let retry = RetryRule::Backoff(Some(wait));
    IngestFailure { retry, ..IngestFailure::transient(IngestStatus::PLATFORM_HTTP_ERROR, message) }
}

/// Reason why there is no body.
pub(super) enum BodyError {
    /// It has more bytes than this.
    TooLarge(usize),
    /// The connection broke.
    Broken(ClientError),
}

/// Returns a URL for people, without its query, which may be a credential.
pub(super) fn named(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

pub(super) fn text_header(headers: &HeaderMap, name: impl axum::http::header::AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns the reason that a platform gives in the body of an error, in one of the usual members.
fn reason_of(body: &[u8]) -> String {
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(body) else { return String::new() };
    let reason =
        ["/message", "/error", "/errors/0/detail"].iter().find_map(|pointer| document.pointer(pointer)?.as_str());
    reason.map_or_else(String::new, |reason| format!(": {}", line(reason, QUOTED_CHARS)))
}
