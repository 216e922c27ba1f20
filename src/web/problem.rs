//! HTTP errors as problem documents (RFC 9457): a script can branch on `type`, and `detail` explains to a person how
//! to fix the problem.
//!
//! A problem has two messages. `detail` is for the client. The cause is only logged, because it may mention paths,
//! queries and other clients. The codes are documented in `docs/problems.md`; a test compares the two lists.

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

use super::decompress::Encoding;

/// Kind of problem. The code is stable, because clients branch on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemCode {
    /// The message is not in the format that the source's dialect parses.
    MalformedMessage,
    /// The message is well-formed, but its content is not acceptable.
    UnprocessableMessage,
    /// No source of that name is configured.
    UnknownSource,
    /// The request carries no valid token or signature.
    Unauthorized,
    /// The token is valid but lacks the required scope.
    Forbidden,
    /// A page of another site made a browser send the request.
    CrossSiteRequest,
    /// The request names a host that is not one of the gateway's host names.
    MisdirectedRequest,
    /// No resource exists at the URL.
    NotFound,
    /// The resource existed and has been removed by retention.
    Gone,
    /// The resource does not support the method.
    MethodNotAllowed,
    /// The resource has no representation in an accepted media type.
    NotAcceptable,
    /// A query parameter is unknown, missing, repeated or of the wrong type.
    InvalidQuery,
    /// The request cannot be parsed: its body ended early, or a header contradicts it.
    BadRequest,
    /// The request conflicts with the current state: for example, the item is defined elsewhere, or a limit is
    /// reached.
    Conflict,
    /// The definition of a subscription is invalid, or the subscription cannot start where requested.
    InvalidSubscription,
    /// The definition of a harvest is invalid.
    InvalidHarvest,
    /// The configuration is invalid.
    InvalidConfiguration,
    /// A WebSub subscriber's request to the hub is invalid.
    InvalidHubRequest,
    /// The request body is larger than the limit.
    BodyTooLarge,
    /// The path with its query is longer than the limit.
    AddressTooLong,
    /// The request headers exceed the limit on their number or size.
    HeadTooLarge,
    /// The request body has an unsupported content encoding.
    UnsupportedEncoding,
    /// The requested range is beyond the end of the file.
    RangeNotSatisfiable,
    /// The source exceeds its rate limit.
    TooManyMessages,
    /// The request exceeded the time limit.
    Timeout,
    /// The gateway cannot serve requests at present: it is overloaded or stopping.
    Unavailable,
    /// A change of the journal is damaged and cannot be read.
    DamagedChange,
    /// An object of the registry is damaged and cannot be read.
    DamagedObject,
    /// The gateway failed; the cause is in its log.
    Internal,
}

impl ProblemCode {
    /// All codes.
    pub const ALL: [Self; 29] = [
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
        Self::InvalidHarvest,
        Self::InvalidConfiguration,
        Self::InvalidHubRequest,
        Self::BodyTooLarge,
        Self::AddressTooLong,
        Self::HeadTooLarge,
        Self::UnsupportedEncoding,
        Self::RangeNotSatisfiable,
        Self::TooManyMessages,
        Self::Timeout,
        Self::Unavailable,
        Self::DamagedChange,
        Self::DamagedObject,
        Self::Internal,
    ];

    /// Returns the code, which is the last part of `type`.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.facts().0
    }

    /// Returns the HTTP status code of the response.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.facts().1
    }

    /// Returns the title, which is the reason phrase of the status code. `type` and `detail` say the rest.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.status().canonical_reason().unwrap_or("Error")
    }

    /// Returns what the code means, in one clause without a full stop, for the description of the HTTP interface.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.facts().2
    }

    fn facts(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::MalformedMessage => ("malformed-message", StatusCode::BAD_REQUEST, "The message cannot be parsed"),
            Self::UnprocessableMessage => (
                "unprocessable-message",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The message was parsed, but its content is not acceptable",
            ),
            Self::UnknownSource => ("unknown-source", StatusCode::NOT_FOUND, "No source of that name is configured"),
            Self::Unauthorized => {
                ("unauthorized", StatusCode::UNAUTHORIZED, "The request carries no valid token or signature")
            }
            Self::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "The token lacks the required scope"),
            Self::CrossSiteRequest => {
                ("cross-site-request", StatusCode::FORBIDDEN, "A page of another site made a browser send the request")
            }
            Self::MisdirectedRequest => {
                ("misdirected-request", StatusCode::MISDIRECTED_REQUEST, "The request names an unknown host")
            }
            Self::NotFound => ("not-found", StatusCode::NOT_FOUND, "The resource does not exist"),
            Self::Gone => ("gone", StatusCode::GONE, "The resource has been removed by retention"),
            Self::MethodNotAllowed => {
                ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, "The resource does not support the method")
            }
            Self::NotAcceptable => {
                ("not-acceptable", StatusCode::NOT_ACCEPTABLE, "No accepted media type is available")
            }
            Self::InvalidQuery => ("invalid-query", StatusCode::BAD_REQUEST, "A query parameter is invalid"),
            Self::BadRequest => ("bad-request", StatusCode::BAD_REQUEST, "The request cannot be parsed"),
            Self::Conflict => ("conflict", StatusCode::CONFLICT, "The request conflicts with the current state"),
            Self::InvalidSubscription => (
                "invalid-subscription",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The definition or start position of the subscription is invalid",
            ),
            Self::InvalidHarvest => {
                ("invalid-harvest", StatusCode::UNPROCESSABLE_ENTITY, "The definition of the harvest is invalid")
            }
            Self::InvalidConfiguration => {
                ("invalid-configuration", StatusCode::UNPROCESSABLE_ENTITY, "The configuration is invalid")
            }
            Self::InvalidHubRequest => {
                ("invalid-hub-request", StatusCode::BAD_REQUEST, "The request to the hub is invalid")
            }
            Self::BodyTooLarge => ("body-too-large", StatusCode::PAYLOAD_TOO_LARGE, "The body exceeds the size limit"),
            Self::AddressTooLong => ("address-too-long", StatusCode::URI_TOO_LONG, "The URL exceeds the length limit"),
            Self::HeadTooLarge => {
                ("head-too-large", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers exceed the size limit")
            }
            Self::UnsupportedEncoding => {
                ("unsupported-encoding", StatusCode::UNSUPPORTED_MEDIA_TYPE, "The content encoding is not supported")
            }
            Self::RangeNotSatisfiable => (
                "range-not-satisfiable",
                StatusCode::RANGE_NOT_SATISFIABLE,
                "The requested range is beyond the end of the file",
            ),
            Self::TooManyMessages => {
                ("too-many-messages", StatusCode::TOO_MANY_REQUESTS, "The source exceeds its rate limit")
            }
            // 503 instead of 408, because a request usually waits for the journal and not for the client. Clients
            // that retry a 5xx do the right thing.
            Self::Timeout => ("timeout", StatusCode::SERVICE_UNAVAILABLE, "The request exceeded the time limit"),
            Self::Unavailable => {
                ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "The gateway is overloaded, stopping or not ready")
            }
            Self::DamagedChange => {
                ("damaged-change", StatusCode::INTERNAL_SERVER_ERROR, "The next change is damaged and cannot be read")
            }
            Self::DamagedObject => (
                "damaged-object",
                StatusCode::INTERNAL_SERVER_ERROR,
                "The next object of the registry is damaged and cannot be read",
            ),
            Self::Internal => {
                ("internal", StatusCode::INTERNAL_SERVER_ERROR, "The gateway failed to process the request")
            }
        }
    }
}

/// Problem document (RFC 9457), sent as the response to a request.
#[derive(Debug)]
pub struct Problem {
    code: ProblemCode,
    detail: String,
    instance: Option<String>,
    extensions: Map<String, Value>,
    retry_after: Option<Duration>,
    cause: Option<Box<dyn Error + Send + Sync>>,
    /// Whether the component that failed has logged the cause.
    is_logged: bool,
}

/// Members defined by RFC 9457 section 3.1. Extension members cannot have these names.
const STANDARD_MEMBERS: [&str; 5] = ["type", "title", "status", "detail", "instance"];

impl Problem {
    /// The media type of a problem document.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// Value of `Retry-After` after a transient failure. An operator needs about this long to free disk space.
    pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

    /// Creates a problem. `detail` names the error, its place and the remedy for the client.
    #[must_use]
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            instance: None,
            extensions: Map::new(),
            retry_after: None,
            cause: None,
            is_logged: false,
        }
    }

    /// Creates a problem for a failure of the gateway. The client learns only that the gateway failed; the cause is
    /// logged.
    #[must_use]
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let detail = "The gateway failed to process this request; the cause is in its log. Try again later.";
        Self::new(ProblemCode::Internal, detail).because(cause)
    }

    /// Creates a problem for a failed component. The client learns the cause and when to retry if the failure is
    /// transient, and otherwise only that the gateway failed.
    #[must_use]
    pub fn failure(what: &str, is_transient: bool, cause: impl Error + Send + Sync + 'static) -> Self {
        if is_transient {
            let problem = Self::new(ProblemCode::Unavailable, format!("{what}: {cause}."));
            problem.retry_after(Self::RETRY_AFTER).because(cause)
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

    /// Adds an extension member (RFC 9457 section 3.2). Names of standard members are ignored: other methods set
    /// them.
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

    /// Replaces the detail, for a client that is not allowed to see it.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Says whether the component that failed has logged the cause. During an outage it does so once, however many
    /// requests fail.
    #[must_use]
    pub fn logged(self, is_logged: bool) -> Self {
        Self { is_logged, ..self }
    }

    /// Adds the cause, which is logged and never sent to the client.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Returns the kind of problem.
    #[must_use]
    pub fn code(&self) -> ProblemCode {
        self.code
    }

    /// Returns the detail.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the document, with its members in reading order.
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
        if self.is_logged {
            tracing::debug!(code, cause, "request failed");
        } else if self.code.status().is_server_error() {
            tracing::error!(code, detail = self.detail.as_str(), cause, "request failed");
        } else {
            // The detail may repeat parts of the path and the query, which are never logged.
            tracing::debug!(code, cause, "request refused");
        }
    }
}

/// Returns an error and its chain of causes in one line.
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
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(Encoding::SUPPORTED));
        }
        if self.code == ProblemCode::Unauthorized {
            // RFC 9110 section 15.5.2 requires this header for 401; RFC 6750 section 3 requires a parameter for
            // Bearer.
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
mod tests;
