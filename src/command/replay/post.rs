//! Posts one message and retries until the outcome is final.

use std::{error::Error, io, path::Path, time::Duration};

use bytes::Bytes;
use reqwest::{
    Client, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
};
use serde::Deserialize;
use tidings::http_client::{describe_error, is_transient};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::super::{
    file,
    http::{backoff, describe_denial, describe_response, header_map, read_body, retry_after},
};

/// Outcome of posting one message.
#[derive(Debug)]
pub(super) enum PostOutcome {
    /// The message is in the journal now.
    Accepted,
    /// The journal contained the event before.
    Duplicate,
    /// The message reports no change.
    Unchanged,
    /// The hook refused the message permanently, for this reason.
    Refused(String),
    /// The message could not be posted, for this reason.
    Failed(String),
    /// No message can be posted to this hook: it does not exist, needs another token, or has an untrusted certificate.
    HookUnusable(String),
}

impl PostOutcome {
    /// Returns the reason if the message was refused or failed.
    pub(super) fn reason(&self) -> Option<String> {
        match self {
            Self::Accepted | Self::Duplicate | Self::Unchanged => None,
            Self::Refused(reason) => Some(format!("refused: {reason}")),
            Self::Failed(reason) | Self::HookUnusable(reason) => Some(format!("failed: {reason}")),
        }
    }
}

/// Posts messages to one hook.
pub(super) struct Poster {
    client: Client,
    to: Url,
    headers: HeaderMap,
    retries: u32,
    stop: CancellationToken,
}

/// Result of one attempt.
enum Attempt {
    Final(PostOutcome),
    /// `is_unreachable`: there was no connection, so no other message arrives either.
    Retry {
        reason: String,
        after: Option<Duration>,
        is_unreachable: bool,
    },
}

impl Poster {
    /// Makes the poster of messages to a hook with an HTTP client for it.
    pub(super) fn new(client: Client, to: Url, headers: HeaderMap, retries: u32, stop: CancellationToken) -> Self {
        Self { client, to, headers, retries, stop }
    }

    /// Posts the message in this file. Transient errors are retried, up to the configured number of times.
    pub(super) async fn post(&self, path: &Path) -> PostOutcome {
        let (headers, body) = match self.message(path) {
            Ok(message) => message,
            Err(reason) => return PostOutcome::Failed(reason),
        };
        let mut backoff = backoff();
        loop {
            let (reason, after, is_unreachable) = match self.post_once(&headers, &body).await {
                Attempt::Final(outcome) => return outcome,
                Attempt::Retry { reason, after, is_unreachable } => (reason, after, is_unreachable),
            };
            if backoff.failures() == self.retries {
                let reason = format!("{reason} ({} tries)", self.retries + 1);
                return match is_unreachable {
                    true => PostOutcome::HookUnusable(reason),
                    false => PostOutcome::Failed(reason),
                };
            }
            let wait = backoff.next_wait();
            tokio::select! {
                () = tokio::time::sleep(after.unwrap_or(wait)) => {}
                () = self.stop.cancelled() => return PostOutcome::Failed(format!("{reason} (stopped before another try)")),
            }
        }
    }

    fn message(&self, path: &Path) -> Result<(HeaderMap, Bytes), String> {
        let body = file::read(path).map_err(|error| file::cannot_read(path, &error))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(file::media_type(path)));
        // Precedence: the sidecar of the message, then `--header`, then the extension; `extend` overwrites.
        headers.extend(self.headers.clone());
        headers.extend(header_map(&file::sidecar_headers(path)?)?);
        Ok((headers, body.into()))
    }

    async fn post_once(&self, headers: &HeaderMap, body: &Bytes) -> Attempt {
        let request = self.client.post(self.to.clone()).headers(headers.clone()).body(body.clone());
        match request.send().await {
            Ok(response) => self.classify(response).await,
            Err(error) if is_tls_error(&error) => Attempt::Final(PostOutcome::HookUnusable(describe_error(&error))),
            Err(error) => {
                Attempt::Retry { reason: describe_error(&error), after: None, is_unreachable: error.is_connect() }
            }
        }
    }

    /// Classifies a response.
    async fn classify(&self, response: Response) -> Attempt {
        let status = response.status();
        if status.is_redirection() {
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
            return Attempt::Final(PostOutcome::HookUnusable(format!(
                "the hook redirects ({status}) to {target}; post to that URL"
            )));
        }
        let after = retry_after(response.headers());
        let body = match read_body(response).await {
            Ok(body) => body,
            Err(error) => {
                return Attempt::Retry { reason: describe_error(&error), after: None, is_unreachable: false };
            }
        };
        if status.is_success() {
            Attempt::Final(outcome_of(&body))
        } else if is_transient(status) {
            Attempt::Retry { reason: describe_response(status, &body), after, is_unreachable: false }
        } else if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let has_token = self.headers.contains_key(AUTHORIZATION);
            let scope = format!("publish:{}", self.source());
            Attempt::Final(PostOutcome::HookUnusable(describe_denial(status, &body, has_token, &scope)))
        } else if is_hook_error(status) {
            Attempt::Final(PostOutcome::HookUnusable(describe_response(status, &body)))
        } else {
            Attempt::Final(PostOutcome::Refused(describe_response(status, &body)))
        }
    }

    /// Returns the name of the source in the URL of the hook.
    fn source(&self) -> &str {
        self.to.path().rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("SOURCE")
    }
}

/// Returns whether the TLS handshake failed, as it would for every other message.
fn is_tls_error(error: &(dyn Error + 'static)) -> bool {
    // `io::Error::source` skips the wrapped error and returns the source of that error.
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let cause = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    error.is::<rustls::Error>() || cause.is_some_and(is_tls_error)
}

/// Returns whether the status concerns the hook, and would be the same for every message.
fn is_hook_error(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE)
}

fn outcome_of(body: &[u8]) -> PostOutcome {
    #[derive(Deserialize)]
    struct Receipt {
        outcome: String,
    }
    match serde_json::from_slice::<Receipt>(body).map(|receipt| receipt.outcome).as_deref() {
        Ok("duplicate") => PostOutcome::Duplicate,
        Ok("unchanged") => PostOutcome::Unchanged,
        // The hook of another program, with a success body of its own.
        _ => PostOutcome::Accepted,
    }
}
