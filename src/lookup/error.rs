//! Errors of look-ups, and what each means for the next request.

use std::time::Duration;

use axum::http::StatusCode;

use crate::http_client::is_transient;

/// Why there is no answer. None repeats a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// It has failed so often that it is left alone for a while.
    #[error("the repository has failed too often, and is left alone for {} ms", again.as_millis())]
    LeftAlone {
        /// When it may be asked again.
        again: Duration,
    },
    /// It was not asked: all requests that may be in flight were, for as long as one request may take.
    #[error("no request was free for it within {} seconds: {in_flight} are in flight, as many as in_flight of [sources.NAME.repository] allows", within.as_secs_f32())]
    Crowded {
        /// Maximum number of requests in flight.
        in_flight: usize,
        /// Time that was waited.
        within: Duration,
    },
    /// It did not answer.
    #[error("the repository does not answer: {0}")]
    Silent(String),
    /// One message needs several answers, and they did not all arrive in time.
    #[error("the repository did not answer everything within {} seconds, the wait for a free request included", within.as_secs_f32())]
    Late {
        /// Time that was waited.
        within: Duration,
    },
    /// It does not let this gateway in.
    #[error(
        "the repository answers {}: it does not let the gateway in; check username and password of [sources.NAME.repository]",
        .0.as_u16()
    )]
    Refused(StatusCode),
    /// It answers with something that is no answer to the question.
    #[error("the repository answers {}", .0.as_u16())]
    Status(StatusCode),
    /// Its answer cannot be read.
    #[error("the repository's answer cannot be read: {0}")]
    Nonsense(String),
    /// What is asked for is not in this repository.
    #[error("it is not in this repository")]
    Foreign,
}

impl LookupError {
    /// Whether other questions would fare no better at present.
    pub(super) fn is_of_the_host(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::Refused(_)) || (matches!(self, Self::Status(_)) && self.is_transient())
    }

    /// How long it is at least until the same question may be answered, where that is known.
    #[must_use]
    pub fn again(&self) -> Option<Duration> {
        match self {
            Self::LeftAlone { again } => Some(*again),
            _ => None,
        }
    }

    /// Whether the same question may be answered soon, without anybody mending anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::LeftAlone { .. } | Self::Crowded { .. } | Self::Silent(_) | Self::Late { .. } => true,
            Self::Status(status) => is_transient(*status),
            Self::Refused(_) | Self::Nonsense(_) | Self::Foreign => false,
        }
    }
}
