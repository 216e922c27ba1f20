//! Every error over HTTP is a problem document (RFC 9457), so that a script can branch on its
//! `type` and a person can read from its `detail` what to do.
//!
//! A problem has two messages: `detail` is for the client; the cause is for the log alone, since
//! it may tell of paths, queries and other clients. The codes are documented in `docs/problems.md`,
//! and a test compares the two lists.

use std::{error::Error, time::Duration};

use axum::{
    http::{
        HeaderValue, StatusCode,
        header::{ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::inflate::Coding;

/// What sort of problem it is. The code is stable: clients branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemCode {
    /// The bytes of a message are not of the format that the source's dialect reads.
    MalformedMessage,
    /// A message is well-formed, and what it says cannot be taken.
    UnprocessableMessage,
    /// No source of that name is configured.
    UnknownSource,
    /// The request brings no token or signature that is known.
    Unauthorized,
    /// The token is known, and it is not for this.
    Forbidden,
    /// A page of another site made a browser send the request.
    CrossSiteRequest,
    /// The request is for a host that the gateway is not known as.
    MisdirectedRequest,
    /// There is nothing at that address.
    NotFound,
    /// There was something at that address, and it is no longer kept.
    Gone,
    /// The address does not answer to that method.
    MethodNotAllowed,
    /// None of the media types that the client accepts is offered.
    NotAcceptable,
    /// A query parameter is unknown, missing, given twice or not of its type.
    InvalidQuery,
    /// The request cannot be read: its body broke off, or a header contradicts it.
    BadRequest,
    /// What is asked for goes against how things are: it is defined elsewhere, or there is no room.
    Conflict,
    /// The definition of a subscription is wrong, or it cannot go on where it is told to.
    InvalidSubscription,
    /// What a WebSub subscriber asks of the hub is wrong.
    InvalidHubRequest,
    /// The request body is larger than the limit.
    BodyTooLarge,
    /// The path with its query is longer than the limit.
    AddressTooLong,
    /// The header fields are more or longer than the limit.
    HeadTooLarge,
    /// The request body is in a content coding that is not read here.
    UnsupportedEncoding,
    /// A source sends more messages than it may.
    TooManyMessages,
    /// The request took longer than the limit.
    Timeout,
    /// The gateway cannot take requests at present: it is full, or it is stopping.
    Unavailable,
    /// The gateway failed; the reason is in its log.
    Internal,
}

impl ProblemCode {
    /// Every code.
    pub const ALL: [Self; 24] = [
        Self::MalformedMessage,
        Self::UnprocessableMessage,
        Self::UnknownSource,
        Self::Unauthorized,
        Self::Forbidden,
        Self::CrossSiteRequest,
        Self::MisdirectedRequest,
        Self::NotFound,
        Self::Gone,
        Self::MethodNotAllowed,
        Self::NotAcceptable,
        Self::InvalidQuery,
        Self::BadRequest,
        Self::Conflict,
        Self::InvalidSubscription,
        Self::InvalidHubRequest,
        Self::BodyTooLarge,
        Self::AddressTooLong,
        Self::HeadTooLarge,
        Self::UnsupportedEncoding,
        Self::TooManyMessages,
        Self::Timeout,
        Self::Unavailable,
        Self::Internal,
    ];

    /// The code as it stands at the end of `type`.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.facts().0
    }

    /// The status code of the answer.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.facts().1
    }

    /// The title: the same for every problem of the code (RFC 9457 section 3.1.3).
    #[must_use]
    pub fn title(self) -> &'static str {
        self.facts().2
    }

    fn facts(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::MalformedMessage => ("malformed-message", StatusCode::BAD_REQUEST, "The message is malformed"),
            Self::UnprocessableMessage => {
                ("unprocessable-message", StatusCode::UNPROCESSABLE_ENTITY, "The message cannot be taken")
            }
            Self::UnknownSource => ("unknown-source", StatusCode::NOT_FOUND, "No such source"),
            Self::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, "Who asks is not known"),
            Self::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "The token is not for this"),
            Self::CrossSiteRequest => ("cross-site-request", StatusCode::FORBIDDEN, "Forbidden"),
            Self::MisdirectedRequest => ("misdirected-request", StatusCode::MISDIRECTED_REQUEST, "Misdirected Request"),
            Self::NotFound => ("not-found", StatusCode::NOT_FOUND, "Nothing is there"),
            Self::Gone => ("gone", StatusCode::GONE, "It is no longer kept"),
            Self::MethodNotAllowed => {
                ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, "The method is not allowed there")
            }
            Self::NotAcceptable => ("not-acceptable", StatusCode::NOT_ACCEPTABLE, "No acceptable media type"),
            Self::InvalidQuery => ("invalid-query", StatusCode::BAD_REQUEST, "The query is invalid"),
            Self::BadRequest => ("bad-request", StatusCode::BAD_REQUEST, "The request cannot be read"),
            Self::Conflict => ("conflict", StatusCode::CONFLICT, "It cannot be done as things are"),
            Self::InvalidSubscription => {
                ("invalid-subscription", StatusCode::UNPROCESSABLE_ENTITY, "The subscription is wrong")
            }
            Self::InvalidHubRequest => {
                ("invalid-hub-request", StatusCode::BAD_REQUEST, "The request to the hub is wrong")
            }
            Self::BodyTooLarge => ("body-too-large", StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Self::AddressTooLong => ("address-too-long", StatusCode::URI_TOO_LONG, "The address is too long"),
            Self::HeadTooLarge => {
                ("head-too-large", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "The header fields are too large")
            }
            Self::UnsupportedEncoding => {
                ("unsupported-encoding", StatusCode::UNSUPPORTED_MEDIA_TYPE, "The content coding is not read here")
            }
            Self::TooManyMessages => {
                ("too-many-messages", StatusCode::TOO_MANY_REQUESTS, "The source sends too many messages")
            }
            // 503 rather than 408: the time goes into waiting for the journal more often than for the
            // client, and a client that retries a 5xx does the right thing.
            Self::Timeout => ("timeout", StatusCode::SERVICE_UNAVAILABLE, "The request took too long"),
            Self::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "Not available at present"),
            Self::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, "The gateway failed"),
        }
    }
}

/// A problem document (RFC 9457) as the answer to a request.
#[derive(Debug)]
pub struct Problem {
    code: ProblemCode,
    detail: String,
    instance: Option<String>,
    extensions: Map<String, Value>,
    retry_after: Option<Duration>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// The members that RFC 9457 section 3.1 defines; an extension cannot take their names.
const STANDARD_MEMBERS: [&str; 5] = ["type", "title", "status", "detail", "instance"];

impl Problem {
    /// The media type of a problem document.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// When to come back after a passing failure: about when a disk has been given room.
    pub(super) const COME_BACK: Duration = Duration::from_secs(5);

    /// A problem. `detail` tells the client what is wrong, where, and what to do.
    #[must_use]
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), instance: None, extensions: Map::new(), retry_after: None, cause: None }
    }

    /// A failure of the gateway: the client learns that it failed, the log learns why.
    #[must_use]
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let detail = "The gateway failed on this request; the reason is in its log. Try again later.";
        Self::new(ProblemCode::Internal, detail).because(cause)
    }

    /// Something behind the gateway's surface failed. When the failure is passing the client learns
    /// what it is and when to come back; when it is not, only that the gateway failed.
    #[must_use]
    pub fn failure(what: &str, passing: bool, cause: impl Error + Send + Sync + 'static) -> Self {
        if passing {
            let problem = Self::new(ProblemCode::Unavailable, format!("{what}: {cause}."));
            problem.retry_after(Self::COME_BACK).because(cause)
        } else {
            Self::internal(cause)
        }
    }

    /// Adds the URI reference of this occurrence, such as that of a quarantine entry.
    #[must_use]
    pub fn at(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Adds an extension member (RFC 9457 section 3.2). The names of standard members are refused
    /// in silence: what they say is said by the other methods.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if !STANDARD_MEMBERS.contains(&name) {
            self.extensions.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Adds a `Retry-After`, rounded up to whole seconds.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Replaces the detail, for a client that may not see it.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds the cause, which the log shows and the client never sees.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// What sort of problem it is.
    #[must_use]
    pub fn code(&self) -> ProblemCode {
        self.code
    }

    /// What the client is told.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The document, its members in the order in which people read them.
    #[must_use]
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            r#type: String,
            title: &'static str,
            status: u16,
            detail: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            instance: Option<&'a str>,
            #[serde(flatten)]
            extensions: &'a Map<String, Value>,
        }
        let document = Document {
            r#type: format!("urn:tidings:problem:{}", self.code.code()),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            detail: &self.detail,
            instance: self.instance.as_deref(),
            extensions: &self.extensions,
        };
        serde_json::to_string(&document).unwrap_or_default()
    }

    fn log(&self) {
        let code = self.code.code();
        let cause = self.cause.as_deref().map(causes).unwrap_or_default();
        if self.code.status().is_server_error() {
            tracing::error!(code, detail = self.detail.as_str(), cause, "request failed");
        } else {
            // The detail may repeat what the client wrote in its path and query, which no log shows.
            tracing::debug!(code, cause, "request refused");
        }
    }
}

/// An error and what caused it, in one line.
fn causes(error: &(dyn Error + Send + Sync + 'static)) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        line.push_str(": ");
        line.push_str(&source.to_string());
        next = source.source();
    }
    line
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.log();
        let mut response = (self.code.status(), self.to_json()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(Self::MEDIA_TYPE));
        if self.code == ProblemCode::UnsupportedEncoding {
            // RFC 9110 section 15.5.16.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(Coding::READ));
        }
        if self.code == ProblemCode::Unauthorized {
            // No 401 goes without (RFC 9110 section 15.5.2); Bearer must have a parameter (RFC 6750 section 3).
            // Each has a field of its own: Chromium reads one scheme of a field, and asks for no password else.
            for scheme in [r#"Bearer realm="tidings""#, r#"Basic realm="tidings""#] {
                headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
            }
        }
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use axum::{body::to_bytes, response::IntoResponse};
    use serde_json::{Value, json};

    use super::{Problem, ProblemCode};

    #[test]
    fn the_documented_codes_are_the_codes() {
        let page = include_str!("../../docs/problems.md");
        let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let rows: Vec<String> = ProblemCode::ALL
            .iter()
            .map(|code| format!("| `{}` | {} | {} |", code.code(), code.status().as_u16(), code.title()))
            .collect();
        assert_eq!(documented.len(), rows.len(), "docs/problems.md has another number of codes");
        for (documented, row) in documented.into_iter().zip(&rows) {
            assert!(documented.starts_with(row), "docs/problems.md says\n{documented}\nand the code says\n{row}");
        }
    }

    #[tokio::test]
    async fn shows_the_client_the_detail_and_not_the_cause() {
        let problem = Problem::new(ProblemCode::Unavailable, "The journal is full; try again.")
            .at("/quarantine/7")
            .with("quarantine", 7)
            .with("status", 200)
            .retry_after(Duration::from_millis(1_200))
            .because(io::Error::other("disk /dev/secret"));
        let response = problem.into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["content-type"], Problem::MEDIA_TYPE);
        assert_eq!(response.headers()["retry-after"], "2");
        let body: Value = serde_json::from_slice(&to_bytes(response.into_body(), 4096).await.unwrap()).unwrap();
        let expected = json!({
            "type": "urn:tidings:problem:unavailable",
            "title": "Not available at present",
            "status": 503,
            "detail": "The journal is full; try again.",
            "instance": "/quarantine/7",
            "quarantine": 7,
        });
        assert_eq!(body, expected);
    }
}
