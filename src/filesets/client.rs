//! Requests to the interfaces of platforms: redirections, limits, and the classification of failures.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header::ACCEPT};
use chrono::Utc;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::timeout;
use url::Url;

use super::{
    IngestFailure, PlatformToken, RetryRule,
    answers::{BodyError, MAX_REASON_BYTES},
    check::is_page_start,
    json::{self, List, NoDocument, QUOTED_CHARS, Text, TextOr, TextOrList, document},
};
use crate::{
    format::fileset::status::IngestStatus,
    http_client::{
        Client, ClientError, ClientSettings, OutboundPolicy, OutboundUrl, RequestHeaders, ResponseStream, is_transient,
        rate_limit_reset, redirection_target,
    },
    text::line,
    transfer::{HarvestBudget, Hosts, body::ReceivedBody},
};

/// Maximum number of redirections of a request to an interface.
const MAX_REDIRECTS: usize = 5;

/// Maximum number of requests to a busy server, and the longest wait between two of them.
const BUSY_ATTEMPTS: usize = 4;
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Wait if a busy server does not say for how long.
const BUSY: Duration = Duration::from_secs(10);

/// Maximum number of requests to a gateway in front of a platform that fails, and the wait between two of them.
const BROKEN_ATTEMPTS: usize = 3;
const BROKEN: Duration = Duration::from_secs(2);

/// Media types of texts.
const ACCEPT_TEXT: &str = "text/plain, */*;q=0.5";

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

impl PlatformClient {
    /// Creates a client. It connects when the first request is sent. `contact` is the operator's address, for those of the
    /// platforms.
    ///
    /// # Errors
    /// Fails if the HTTP library cannot be set up.
    pub async fn new(
        policy: OutboundPolicy,
        hosts: Hosts,
        limits: ClientLimits,
        budget: HarvestBudget,
        contact: Option<Arc<str>>,
    ) -> Result<Self, ClientError> {
        let settings = ClientSettings {
            response_timeout: RESPONSE_TIMEOUT,
            body_timeout: RESPONSE_TIMEOUT,
            contact,
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
        made.map_err(|reason| {
            let message = format!("the answer of {} cannot be read: {reason}", named(url));
            match reason {
                NoDocument::Form(_) => IngestFailure::bad_answer(message),
                // A filter for robots answers with a page, and a proxy with a part of the document.
                NoDocument::Syntax(_) => IngestFailure::transient(IngestStatus::PLATFORM_BAD_ANSWER, message),
            }
        })?
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
        let (max_bytes, accept) = (self.limits.description_bytes, HeaderValue::from_static(ACCEPT_TEXT));
        let body = self.document(url, None, accept, max_bytes).await?;
        self.text_of(url, body, make).await
    }

    /// Requests a text that need not be there, and makes something of it; returns `None` if the server says that it has none.
    ///
    /// # Errors
    /// In the cases of [`PlatformClient::json`], and those of `make`.
    pub(super) async fn optional_text_as<T: Send + 'static>(
        &self,
        url: &Url,
        make: impl FnOnce(&str) -> Result<T, IngestFailure> + Send + 'static,
    ) -> Result<Option<T>, IngestFailure> {
        let accept = HeaderValue::from_static(ACCEPT_TEXT);
        match self.document_if(url, None, accept, self.limits.description_bytes, true).await? {
            Some(body) => self.text_of(url, body, make).await.map(Some),
            None => Ok(None),
        }
    }

    /// Makes something of a text. A byte order mark before it is none of it. A page is no text of a dataset, but a challenge for
    /// robots, and says nothing about what is there.
    async fn text_of<T: Send + 'static>(
        &self,
        url: &Url,
        body: ReceivedBody,
        make: impl FnOnce(&str) -> Result<T, IngestFailure> + Send + 'static,
    ) -> Result<T, IngestFailure> {
        let name = named(url);
        let make = move |text: &str| {
            if is_page_start(text.as_bytes()) {
                let message = format!("{name} answers with a page; a text was expected");
                return Err(IngestFailure::transient(IngestStatus::PLATFORM_BAD_ANSWER, message));
            }
            make(text.strip_prefix('\u{feff}').unwrap_or(text))
        };
        let max_bytes = self.limits.description_bytes;
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
        let document = self.document_if(url, token, accept, max_bytes, false).await?;
        document.ok_or_else(|| IngestFailure::bad_answer(format!("{} has no answer", named(url))))
    }

    /// Requests a document, and follows redirections; returns `None` if it may be absent, and the server says that it is.
    async fn document_if(
        &self,
        url: &Url,
        token: Option<&PlatformToken>,
        accept: HeaderValue,
        max_bytes: usize,
        may_be_absent: bool,
    ) -> Result<Option<ReceivedBody>, IngestFailure> {
        let document = async {
            let mut url = url.clone();
            let authorization = token.and_then(|token| token.authorization(&url));
            // A text may be empty, such as the manifest of an empty bag.
            let may_be_empty = accept == ACCEPT_TEXT;
            let headers = HeaderMap::from_iter([(ACCEPT, accept)]);
            let headers = RequestHeaders::from(headers).with_authorization(authorization.as_ref());
            for _ in 0..=MAX_REDIRECTS {
                let response = self.open_when_free(&url, &headers).await?;
                if may_be_absent {
                    match response.status {
                        StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
                        status @ StatusCode::FORBIDDEN => {
                            let voice = self.voice(response).await;
                            return if voice == Voice::ObjectStore {
                                Ok(None)
                            } else {
                                Err(refusal(&url, status, &voice))
                            };
                        }
                        _ => {}
                    }
                }
                if !response.status.is_redirection() {
                    return self.body_of_success(&url, response, max_bytes, may_be_empty).await.map(Some);
                }
                let Some(next) = redirection_target(&response.headers, &url) else {
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
            let is_broken = matches!(response.status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT);
            if is_broken && attempts < BROKEN_ATTEMPTS {
                permit.pause(rate_limit_reset(&response.headers, Utc::now()).unwrap_or(BROKEN).min(LONGEST_WAIT));
                continue;
            }
            if !matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                return Ok(response);
            }
            let wait = rate_limit_reset(&response.headers, Utc::now()).unwrap_or(BUSY);
            permit.pause(wait);
            if attempts >= BUSY_ATTEMPTS || wait > LONGEST_WAIT {
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
        may_be_empty: bool,
    ) -> Result<ReceivedBody, IngestFailure> {
        let status = response.status;
        if status.is_client_error() || status.is_server_error() {
            return Err(refusal(url, status, &self.voice(response).await));
        }
        let body = self.receive(response, max_bytes).await.map_err(|error| unreadable(url, error))?;
        // A challenge for robots answers 202 without a body, or 200 with a page.
        if status != StatusCode::OK || (body.length() == 0 && !may_be_empty) {
            let (name, bytes) = (named(url), body.length());
            let message = format!("{name} answers {status} with {bytes} bytes; 200 was expected");
            return Err(IngestFailure::transient(IngestStatus::PLATFORM_BAD_ANSWER, message));
        }
        Ok(body)
    }

    /// Returns the author of the body of an error.
    async fn voice(&self, response: ResponseStream) -> Voice {
        match self.receive(response, MAX_REASON_BYTES).await {
            Ok(body) => self.read(body, MAX_REASON_BYTES, |body, _| Voice::of(&body)).await.unwrap_or(Voice::Other),
            Err(_) => Voice::Other,
        }
    }

    /// Checks the target of a request.
    pub(super) fn target(&self, url: &Url) -> Result<OutboundUrl, String> {
        let mut url = url.clone();
        url.set_fragment(None);
        let parsed = OutboundUrl::of_server(url.as_str(), &self.policy);
        parsed.map_err(|error| format!("{}: {}", named(&url), error.for_everybody()))
    }
}

/// Returns the failure for an answer with the status of an error. The status alone is no verdict about a dataset: a traffic
/// filter or a proxy in front of the platform gives the same ones, so only an answer in JSON counts.
fn refusal(url: &Url, status: StatusCode, voice: &Voice) -> IngestFailure {
    let message = format!("{} answers {status}{}", named(url), voice.reason());
    match status {
        _ if !voice.is_platform() || is_transient(status) => {
            IngestFailure::transient(IngestStatus::PLATFORM_HTTP_ERROR, message)
        }
        StatusCode::NOT_FOUND => IngestFailure::permanent(IngestStatus::PLATFORM_404, message),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::GONE => IngestFailure::restricted(message, None),
        _ => IngestFailure::permanent(IngestStatus::PLATFORM_HTTP_ERROR, message),
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

/// Author of the body of an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// The interface of the platform, perhaps with a reason.
    Platform(Option<String>),
    /// An object store like S3, which says this of an object that it does not have to somebody who may not list the objects.
    ObjectStore,
    /// Something else, such as a traffic filter with a page.
    Other,
}

/// Code in the error document of an object store, whether in XML or, for the web, in HTML.
const ACCESS_DENIED: &[u8] = b"AccessDenied";

impl Voice {
    /// Reads the body of an error, which is small. All platforms answer in JSON.
    pub(super) fn of(body: &[u8]) -> Self {
        match document::<Reason>(body) {
            Ok(Reason { message, error, errors }) => {
                let errors = if let TextOrList::List(errors) = errors { errors } else { List::default() };
                let first = errors.into_iter().next().and_then(TextOr::object);
                let detail = first.and_then(|error| error.detail.0.or(error.title.0));
                let reason = message.0.or(error.0).or(detail);
                Self::Platform(reason.map(|reason| line(&reason, QUOTED_CHARS).to_string()))
            }
            Err(NoDocument::Form(_)) => Self::Platform(None),
            Err(NoDocument::Syntax(_)) if memchr::memmem::find(body, ACCESS_DENIED).is_some() => Self::ObjectStore,
            Err(NoDocument::Syntax(_)) => Self::Other,
        }
    }

    pub(super) fn is_platform(&self) -> bool {
        matches!(self, Self::Platform(_))
    }

    /// Returns the reason after a colon, or nothing.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Platform(Some(reason)) => format!(": {reason}"),
            Self::Platform(None) | Self::ObjectStore | Self::Other => String::new(),
        }
    }
}

/// Reasons in the body of an error, in one of the usual members.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reason {
    message: Text,
    error: Text,
    errors: TextOrList<TextOr<ReasonDetail>>,
}

#[derive(Deserialize)]
struct ReasonDetail {
    #[serde(default)]
    detail: Text,
    #[serde(default)]
    title: Text,
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
