//! Posting one message until it has an answer that counts.

use std::{error::Error, io, path::Path, time::Duration};

use bytes::Bytes;
use reqwest::{
    Client, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
};
use serde::Deserialize;
use tidings::http_client::{is_transient, trouble};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::super::{
    file,
    http::{backoff, client_for, header_map, retry_after, told, why},
};

/// What became of a message.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is in the journal now.
    Accepted,
    /// It had been there before.
    Duplicate,
    /// It told of nothing that changed.
    Unchanged,
    /// The hook refuses it for good, and says why.
    Refused(String),
    /// It could not be posted, and why.
    Failed(String),
    /// No message can be posted, and why: the hook is not there, needs another token, or cannot be trusted.
    NoHook(String),
}

impl Outcome {
    /// Why it was not taken.
    pub(super) fn reason(&self) -> Option<String> {
        match self {
            Self::Accepted | Self::Duplicate | Self::Unchanged => None,
            Self::Refused(reason) => Some(format!("refused: {reason}")),
            Self::Failed(reason) | Self::NoHook(reason) => Some(format!("failed: {reason}")),
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

/// An answer, or that there was none.
enum Answer {
    Final(Outcome),
    Again { reason: String, after: Option<Duration> },
}

impl Poster {
    /// # Errors
    /// When the system's certificates cannot be loaded.
    pub(super) fn new(
        to: Url,
        headers: HeaderMap,
        retries: u32,
        timeout: Duration,
        stop: CancellationToken,
    ) -> Result<Self, String> {
        let client = client_for(&to).timeout(timeout).build().map_err(|error| trouble(&error))?;
        Ok(Self { client, to, headers, retries, stop })
    }

    /// Posts the message in this file, again and again if that may help.
    pub(super) async fn post(&self, path: &Path) -> Outcome {
        let (headers, body) = match self.message(path) {
            Ok(message) => message,
            Err(reason) => return Outcome::Failed(reason),
        };
        let mut backoff = backoff();
        loop {
            let (reason, after) = match self.post_once(&headers, &body).await {
                Answer::Final(outcome) => return outcome,
                Answer::Again { reason, after } => (reason, after),
            };
            if backoff.failures() == self.retries {
                return Outcome::Failed(format!("{reason} ({} tries)", self.retries + 1));
            }
            let wait = backoff.next_wait();
            tokio::select! {
                () = tokio::time::sleep(after.unwrap_or(wait)) => {}
                () = self.stop.cancelled() => return Outcome::Failed(format!("{reason} (stopped before another try)")),
            }
        }
    }

    fn message(&self, path: &Path) -> Result<(HeaderMap, Bytes), String> {
        let body = file::read(path).map_err(|error| file::cannot_read(path, &error))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(file::media_type(path)));
        // What is said of one message counts before what is said of all, and that before the name:
        // extending replaces what is there.
        headers.extend(self.headers.clone());
        headers.extend(header_map(&file::headers_beside(path)?)?);
        Ok((headers, body.into()))
    }

    async fn post_once(&self, headers: &HeaderMap, body: &Bytes) -> Answer {
        let request = self.client.post(self.to.clone()).headers(headers.clone()).body(body.clone());
        match request.send().await {
            Ok(response) => judge(response).await,
            Err(error) if is_of_tls(&error) => Answer::Final(Outcome::NoHook(trouble(&error))),
            Err(error) => Answer::Again { reason: trouble(&error), after: None },
        }
    }
}

/// Whether the two do not agree on an encrypted connection, which no other message changes.
fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    // An error of I/O names as its source that of the error in it, and not that error.
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let cause = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    error.is::<rustls::Error>() || cause.is_some_and(is_of_tls)
}

/// Whether an answer concerns the hook and the sender, and would be the same for every message.
fn concerns_the_hook(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::GONE
    )
}

/// What an answer means.
async fn judge(response: Response) -> Answer {
    let status = response.status();
    if status.is_redirection() {
        let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
        return Answer::Final(Outcome::NoHook(format!("the hook answers {status} and points to {target}; post there")));
    }
    let after = retry_after(response.headers());
    let told = match told(response).await {
        Ok(told) => told,
        Err(error) => return Answer::Again { reason: trouble(&error), after: None },
    };
    if status.is_success() {
        Answer::Final(outcome_of(&told))
    } else if is_transient(status) {
        Answer::Again { reason: why(status, &told), after }
    } else if concerns_the_hook(status) {
        Answer::Final(Outcome::NoHook(why(status, &told)))
    } else {
        Answer::Final(Outcome::Refused(why(status, &told)))
    }
}

fn outcome_of(told: &[u8]) -> Outcome {
    #[derive(Deserialize)]
    struct Receipt {
        outcome: String,
    }
    match serde_json::from_slice::<Receipt>(told).map(|receipt| receipt.outcome).as_deref() {
        Ok("duplicate") => Outcome::Duplicate,
        Ok("unchanged") => Outcome::Unchanged,
        // A hook that is not of Tidings has its own words for yes.
        _ => Outcome::Accepted,
    }
}
