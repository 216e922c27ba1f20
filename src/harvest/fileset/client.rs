//! Requests to the interfaces of platforms: redirections, limits, and the classification of failures.

use std::time::Duration;

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, LOCATION},
};
use chrono::Utc;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::timeout;
use url::Url;

use super::{
    IngestFailure, RetryRule,
    answers::{BodyError, MAX_REASON_BYTES},
    json::{self, List, QUOTED_CHARS, Text},
};
use crate::{
    format::fileset::status::IngestStatus,
    harvest::{HarvestBudget, Hosts, body::ReceivedBody},
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

/// Time until the headers of a response, and between two pieces of a body.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for a document of an interface, of a web archive or of archive.org, and for a landing page, each with all its
/// redirections and waits. A server that drips would otherwise keep the place of a job for hours.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Limits of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Maximum size of a response of an interface, in bytes: a record with its files, or a list.
    pub answer_bytes: usize,
    /// Maximum size of a landing page, in bytes.
    pub page_bytes: usize,
    /// Time for an exchange: for a document of an interface or a landing page, with all redirections and waits.
    pub exchange: Duration,
    /// Maximum size of a description that a page names: of a crate or of a bag, in bytes.
    pub description_bytes: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { answer_bytes: 16 << 20, page_bytes: 16 << 20, description_bytes: 8 << 20, exchange: EXCHANGE_TIMEOUT }
    }
}

/// Client for landing pages and the interfaces of platforms. Clones share their connections.
#[derive(Clone)]
pub struct PlatformClient {
    pub(super) client: Client,
    pub(super) policy: OutboundPolicy,
    pub(super) hosts: Hosts,
    pub(super) limits: ClientLimits,
    pub(super) budget: HarvestBudget,
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
    pub async fn new(
        policy: OutboundPolicy,
        hosts: Hosts,
        limits: ClientLimits,
        budget: HarvestBudget,
    ) -> Result<Self, ClientError> {
        let settings = ClientSettings {
            response_timeout: RESPONSE_TIMEOUT,
            body_timeout: RESPONSE_TIMEOUT,
            ..ClientSettings::new(policy.clone())
        };
        Ok(Self { client: Client::new(settings).await?, policy, hosts, limits, budget })
    }

    /// Requests a JSON document from the interface of a platform.
    ///
    /// # Errors
    /// Fails with a status of the platform: `platform-404`, `platform-restricted`, `platform-http-error`,
    /// `platform-error`, or `platform-bad-answer` if the response is no such document.
    pub(super) async fn json<T: DeserializeOwned + Send + 'static>(
        &self,
        url: &Url,
        token: Option<&PlatformToken>,
    ) -> Result<T, IngestFailure> {
        self.json_as(url, token, self.limits.answer_bytes, |document: T| Ok(document)).await
    }

    /// Requests a JSON document of at most `max_bytes`, and makes something of it where it is parsed.
    ///
    /// # Errors
    /// In the cases of [`PlatformClient::json`], and those of `make`.
    pub(super) async fn json_as<D: DeserializeOwned, T: Send + 'static>(
        &self,
        url: &Url,
        token: Option<&PlatformToken>,
        max_bytes: usize,
        make: impl FnOnce(D) -> Result<T, IngestFailure> + Send + 'static,
    ) -> Result<T, IngestFailure> {
        let accept = HeaderValue::from_static("application/json");
        let body = self.document(url, token, accept, max_bytes).await?;
        let made = self.read_json(body, max_bytes, make).await.map_err(|error| unreadable(url, error))?;
        let no_document =
            |reason| IngestFailure::bad_answer(format!("the answer of {} cannot be read: {reason}", named(url)));
        made.map_err(no_document)?
    }

    /// Requests a text, and makes something of it.
    ///
    /// # Errors
    /// In the cases of [`PlatformClient::json`], and those of `make`.
    pub(super) async fn text_as<T: Send + 'static>(
        &self,
        url: &Url,
        make: impl FnOnce(&str) -> Result<T, IngestFailure> + Send + 'static,
    ) -> Result<T, IngestFailure> {
        let max_bytes = self.limits.description_bytes;
        let body = self.document(url, None, HeaderValue::from_static("text/plain, */*;q=0.5"), max_bytes).await?;
        let made = self.read(body, max_bytes, move |body, _| str::from_utf8(&body).map(make)).await;
        let no_text = |_| IngestFailure::bad_answer(format!("the answer of {} is no text in UTF-8", named(url)));
        made.map_err(|error| unreadable(url, error))?.map_err(no_text)?
    }

    /// Requests a document, and follows redirections.
    async fn document(
        &self,
        url: &Url,
        token: Option<&PlatformToken>,
        accept: HeaderValue,
        max_bytes: usize,
    ) -> Result<ReceivedBody, IngestFailure> {
        let authorization = token.and_then(|token| token.authorization(url));
        let headers = HeaderMap::from_iter([(ACCEPT, accept)]);
        let headers = RequestHeaders::from(headers).with_authorization(authorization.as_ref());
        let document = async {
            let mut url = url.clone();
            for _ in 0..=MAX_REDIRECTS {
                let response = self.open_when_free(&url, &headers).await?;
                if !response.status.is_redirection() {
                    return self.body_of_success(&url, response, max_bytes).await;
                }
                let location = response.headers.get(LOCATION).and_then(|location| location.to_str().ok());
                let Some(next) = location.and_then(|location| url.join(location).ok()) else {
                    return Err(IngestFailure::bad_answer(format!("{} redirects to no valid URL", named(&url))));
                };
                url = next;
            }
            Err(IngestFailure::bad_answer(format!("{} redirects more than {MAX_REDIRECTS} times", named(&url))))
        };
        self.exchange(url, IngestStatus::PLATFORM_ERROR, document).await
    }

    /// Waits for an exchange with a server: all its requests, redirections, waits and pieces of bodies.
    ///
    /// # Errors
    /// Fails with this status if the exchange takes longer than the limit for it, and in its own cases.
    pub(super) async fn exchange<T>(
        &self,
        url: &Url,
        status: IngestStatus,
        exchange: impl Future<Output = Result<T, IngestFailure>>,
    ) -> Result<T, IngestFailure> {
        timeout(self.limits.exchange, exchange).await.unwrap_or_else(|_| {
            let message = format!("{} has not answered within {} s", named(url), self.limits.exchange.as_secs());
            Err(IngestFailure::transient(status, message))
        })
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
            let mut permit = permit.map_err(|rest| busy(url, "it accepts no requests for now", rest))?;
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
                return Err(busy(url, &format!("it answers {}", response.status), wait));
            }
        }
    }

    /// Receives the body of a response that must be a success.
    async fn body_of_success(
        &self,
        url: &Url,
        response: ResponseStream,
        max_bytes: usize,
    ) -> Result<ReceivedBody, IngestFailure> {
        let status = response.status;
        if status.is_client_error() || status.is_server_error() {
            return Err(self.refusal(url, response).await);
        }
        let body = self.receive(response, max_bytes).await.map_err(|error| unreadable(url, error))?;
        // A challenge for robots answers 202 without a body, or 200 with a page.
        if status != StatusCode::OK || body.length() == 0 {
            let (name, bytes) = (named(url), body.length());
            return Err(IngestFailure::bad_answer(format!(
                "{name} answers {status} with {bytes} bytes; 200 was expected"
            )));
        }
        Ok(body)
    }

    /// Returns the failure for an answer with the status of an error.
    async fn refusal(&self, url: &Url, response: ResponseStream) -> IngestFailure {
        let status = response.status;
        let reason = self.reason(response).await.map_or_else(String::new, |reason| format!(": {reason}"));
        let message = format!("{} answers {status}{reason}", named(url));
        match status {
            StatusCode::NOT_FOUND => IngestFailure::permanent(IngestStatus::PLATFORM_404, message),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::GONE => {
                IngestFailure::restricted(message, None)
            }
            _ if status.is_server_error() => IngestFailure::transient(IngestStatus::PLATFORM_HTTP_ERROR, message),
            _ => IngestFailure::permanent(IngestStatus::PLATFORM_HTTP_ERROR, message),
        }
    }

    /// Returns the reason that a platform gives in the body of an error, in one of the usual members.
    async fn reason(&self, response: ResponseStream) -> Option<String> {
        let body = self.receive(response, MAX_REASON_BYTES).await.ok()?;
        let reason = self.read_json(body, MAX_REASON_BYTES, |Reason { message, error, errors }| {
            let detail = errors.into_iter().next().and_then(|error| error.detail.0);
            message.0.or(error.0).or(detail)
        });
        let reason = reason.await.ok()?.ok()??;
        Some(line(&reason, QUOTED_CHARS).to_string())
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
pub(super) fn busy(url: &Url, how: &str, wait: Duration) -> IngestFailure {
    let message = format!("{} is busy: {how}", named(url));
    let retry = RetryRule::Backoff(Some(wait));
    IngestFailure { retry, ..IngestFailure::transient(IngestStatus::PLATFORM_HTTP_ERROR, message) }
}

/// Documents of errors.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Reason>];

/// Reasons in the body of an error.
#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    message: Text,
    #[serde(default)]
    error: Text,
    #[serde(default)]
    errors: List<ReasonDetail>,
}

#[derive(Deserialize)]
struct ReasonDetail {
    #[serde(default)]
    detail: Text,
}

/// Returns the failure for an answer of an interface that cannot be read.
fn unreadable(url: &Url, error: BodyError) -> IngestFailure {
    let name = named(url);
    match error {
        BodyError::TooLarge(bytes) => {
            IngestFailure::bad_answer(format!("the answer of {name} has more than {bytes} bytes"))
        }
        BodyError::Broken(error) => IngestFailure::transient(IngestStatus::PLATFORM_ERROR, format!("{name}: {error}")),
        BodyError::Encoding(reason) => {
            IngestFailure::bad_answer(format!("the answer of {name} cannot be decoded: {reason}"))
        }
        BodyError::Failed(reason) => {
            IngestFailure::transient(IngestStatus::PLATFORM_ERROR, format!("{name}: {reason}"))
        }
    }
}

/// Returns a URL for people, without its query, which may be a credential.
pub(super) fn named(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

pub(super) fn text_header(headers: &HeaderMap, name: impl axum::http::header::AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
