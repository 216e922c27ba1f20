//! Reasons why a transfer fails.

use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;

use crate::{
    files::FileStoreError,
    http_client::{ClientError, InvalidOutboundUrl, is_transient},
};

/// Reason why a file could not be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    /// A later attempt may succeed.
    #[error("{0}")]
    Transient(String),
    /// The server does not send, or sends too slowly. A later attempt may succeed.
    #[error("{0}")]
    TooSlow(String),
    /// The server wants no requests for now. A wait is there if it has named one.
    #[error("the server is busy ({status})")]
    Busy { status: StatusCode, wait: Option<Duration> },
    /// The server has answered with another status than that of a success. The body, which is cut, may say why.
    #[error("the server answers {status}")]
    Refused { status: StatusCode, body: Bytes },
    /// Somebody must act: the publisher, or the administrator of the gateway.
    #[error("{0}")]
    Permanent(String),
    /// The file store cannot be written, so no other file can be stored either.
    #[error(transparent)]
    Store(FileStoreError),
}

impl TransferError {
    /// Returns whether a later attempt gives the same, as far as the status says.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::Permanent(_) => true,
            Self::Refused { status, .. } => !is_transient(*status),
            Self::Transient(_) | Self::TooSlow(_) | Self::Busy { .. } | Self::Store(_) => false,
        }
    }
}

impl From<FileStoreError> for TransferError {
    fn from(error: FileStoreError) -> Self {
        match error {
            // It concerns this file alone, so it must not hold up the others.
            FileStoreError::TooLarge(_) => Self::Permanent(error.to_string()),
            other => Self::Store(other),
        }
    }
}

impl From<ClientError> for TransferError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NotAllowed(_) | ClientError::TlsRoots(_) => Self::Permanent(error.for_everybody()),
            ClientError::Timeout(_) => Self::TooSlow(error.to_string()),
            ClientError::Refused(_) | ClientError::Connection(_) => Self::Transient(error.to_string()),
        }
    }
}

impl From<InvalidOutboundUrl> for TransferError {
    fn from(error: InvalidOutboundUrl) -> Self {
        Self::Permanent(error.for_everybody())
    }
}
