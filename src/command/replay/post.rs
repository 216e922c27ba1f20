//! Posting one message until it has an answer that counts.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use chrono::Utc;
use reqwest::{
    Client, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
    redirect::Policy,
};
use serde::Deserialize;
use tidings::{
    http_client::{retry_after, trouble},
    web::Secret,
};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::file;

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before the first retry; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause of our own choice.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest `Retry-After` that is honoured; a longer one is cut to this.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// How much of an answer is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// How much of an answer that is no problem document is shown, in characters.
const MAX_SHOWN_CHARS: usize = 200;

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
}

impl Outcome {
    /// Why it was not taken.
    pub(super) fn reason(&self) -> Option<String> {
        match self {
            Self::Accepted | Self::Duplicate | Self::Unchanged => None,
            Self::Refused(reason) => Some(format!("refused: {reason}")),
            Self::Failed(reason) => Some(format!("failed: {reason}")),
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
        let client = Client::builder()
            .timeout(timeout)
            .connect_timeout(CONNECT_TIMEOUT.min(timeout))
            // A redirect may turn a POST into a GET, which would look like success.
            .redirect(Policy::none())
            .user_agent(concat!("tidings/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| trouble(&error))?;
        Ok(Self { client, to, headers, retries, stop })
    }

    /// Posts the message in this file, again and again if that may help.
    pub(super) async fn post(&self, path: &Path) -> Outcome {
        let (headers, body) = match self.message(path) {
            Ok(message) => message,
            Err(reason) => return Outcome::Failed(reason),
        };
        let mut tries = 0;
        loop {
            let (reason, after) = match self.post_once(&headers, &body).await {
                Answer::Final(outcome) => return outcome,
                Answer::Again { reason, after } => (reason, after),
            };
            if tries == self.retries {
                return Outcome::Failed(format!("{reason} ({} tries)", tries + 1));
            }
            tokio::select! {
                () = tokio::time::sleep(after.unwrap_or_else(|| pause(tries))) => tries += 1,
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
            Err(error) => Answer::Again { reason: trouble(&error), after: None },
        }
    }
}

/// What an answer means.
async fn judge(response: Response) -> Answer {
    let status = response.status();
    if status.is_redirection() {
        let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
        return Answer::Final(Outcome::Failed(format!("the hook answers {status} and points to {target}; post there")));
    }
    let may_pass =
        status.is_server_error() || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    let after = retry_after(response.headers(), Utc::now()).map(|after| after.min(LONGEST_RETRY_AFTER));
    let told = match told(response).await {
        Ok(told) => told,
        Err(error) => return Answer::Again { reason: trouble(&error), after: None },
    };
    if status.is_success() {
        Answer::Final(outcome_of(&told))
    } else if may_pass {
        Answer::Again { reason: why(status, &told), after }
    } else {
        Answer::Final(Outcome::Refused(why(status, &told)))
    }
}

/// The beginning of the answer's body.
async fn told(mut response: Response) -> reqwest::Result<Vec<u8>> {
    let mut told = Vec::new();
    while told.len() < MAX_ANSWER_BYTES {
        let Some(chunk) = response.chunk().await? else { break };
        told.extend_from_slice(&chunk);
    }
    Ok(told)
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

/// The detail of the problem document, or the beginning of whatever it is. What would move the
/// terminal's cursor is left out.
fn why(status: StatusCode, told: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let text = serde_json::from_slice::<Problem>(told).map_or_else(
        |_| String::from_utf8_lossy(told).chars().take(MAX_SHOWN_CHARS).collect(),
        |problem| problem.detail,
    );
    let printable: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match printable.trim() {
        "" => status.to_string(),
        text => format!("{status}: {text}"),
    }
}

/// The pause after so many retries: it doubles, and up to half of it is left to chance, so that
/// several replays do not come back at the same moment.
fn pause(retries: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(retries)).min(LONGEST_PAUSE);
    let chance = f64::from(u32::from(uuid::Uuid::new_v4().as_bytes()[0])) / 255.0;
    longest.mul_f64(0.5 + chance / 2.0)
}

/// # Errors
/// When a name or a value cannot be sent; the value is not repeated, since it may be a password.
pub(super) fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::try_from(name).map_err(|_| format!("{name:?} is not the name of a header"))?;
        let value =
            HeaderValue::try_from(value).map_err(|_| format!("the value of the header {name} cannot be sent"))?;
        map.append(name, value);
    }
    Ok(map)
}

/// Adds the token to headers that do not have their own.
///
/// # Errors
/// When the token cannot be sent; it is not repeated.
pub(super) fn with_token(mut headers: HeaderMap, token: Option<&Secret>) -> Result<HeaderMap, String> {
    if let Some(token) = token.filter(|token| !token.expose().is_empty()) {
        let value = HeaderValue::from_bytes(&[b"Bearer ", token.expose()].concat());
        let mut value = value.map_err(|_| "the token cannot be sent: it has a line break or the like".to_owned())?;
        value.set_sensitive(true);
        headers.entry(AUTHORIZATION).or_insert(value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::{FIRST_PAUSE, LONGEST_PAUSE, pause, why};

    #[test]
    fn pauses_grow_and_are_bounded() {
        for (retries, longest) in [(0, FIRST_PAUSE), (1, 2 * FIRST_PAUSE), (4, 16 * FIRST_PAUSE), (1000, LONGEST_PAUSE)]
        {
            for _ in 0..100 {
                let pause = pause(retries);
                assert!(pause <= longest && pause >= longest / 2, "{pause:?} after {retries}");
            }
        }
    }

    #[test]
    fn what_the_hook_says_cannot_play_with_the_terminal() {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let problem = r#"{"detail": "line 1:\u001b[2J no date"}"#;
        assert_eq!(why(status, problem.as_bytes()), "422 Unprocessable Entity: line 1: [2J no date");
        assert_eq!(why(status, b" oops\n"), "422 Unprocessable Entity: oops");
        assert_eq!(why(status, b""), "422 Unprocessable Entity");
    }
}
