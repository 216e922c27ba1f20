//! Errors of lookups, and their meaning for the next request.

use std::time::Duration;

use axum::http::StatusCode;

use crate::http_client::is_transient;

/// Reason why a lookup has no result. No variant contains a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The repository failed so often that the circuit is open.
    #[error("the circuit is open after too many failures of the repository; next attempt in {} ms", retry_after.as_millis())]
    CircuitOpen {
        /// Time until the next request is allowed.
        retry_after: Duration,
    },
    /// The request was not sent, because all in-flight requests were taken for a whole request timeout.
    #[error("no request slot was free within {} seconds: {in_flight} are in flight, as many as in_flight of [sources.NAME.repository] allows", within.as_secs_f32())]
    NoFreeRequest {
        /// Maximum number of requests in flight.
        in_flight: usize,
        /// Time that was waited.
        within: Duration,
    },
    /// The repository did not respond.
    #[error("the repository does not respond: {0}")]
    NoResponse(String),
    /// A message needs several responses, and not all of them arrived in time.
    #[error("the repository did not respond to all requests within {} seconds, including the wait for a free slot", within.as_secs_f32())]
    Timeout {
        /// Time that was waited.
        within: Duration,
    },
    /// The repository denied access.
    #[error(
        "the repository denies access with status {}; check username and password of [sources.NAME.repository]",
        .0.as_u16()
    )]
    AccessDenied(StatusCode),
    /// The status is no answer to the request.
    #[error("the repository responds with status {}", .0.as_u16())]
    Status(StatusCode),
    /// The response cannot be parsed.
    #[error("cannot parse the response of the repository: {0}")]
    InvalidResponse(String),
    /// The requested URI is outside the repository.
    #[error("the URI is outside this repository")]
    OutsideRepository,
}

impl LookupError {
    /// True if other requests to the repository would fail now as well. A status of 403 is about one resource, such as one that
    /// holds an embargo, which only administrators may read.
    pub(super) fn is_host_failure(&self) -> bool {
        matches!(self, Self::NoResponse(_) | Self::AccessDenied(StatusCode::UNAUTHORIZED))
            || (matches!(self, Self::Status(_)) && self.is_transient())
    }

    /// Returns the minimum time until the same request can succeed, if known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::CircuitOpen { retry_after } => Some(*retry_after),
            _ => None,
        }
    }

    /// True if the same request may succeed soon without anyone's intervention.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::CircuitOpen { .. } | Self::NoFreeRequest { .. } | Self::NoResponse(_) | Self::Timeout { .. } => true,
            Self::Status(status) => is_transient(*status),
            Self::AccessDenied(_) | Self::InvalidResponse(_) | Self::OutsideRepository => false,
        }
    }
}
