//! Reader of the stream through all its connections, which prints the changes and keeps the cursor.

use std::{io, path::PathBuf, time::Duration};

use reqwest::{
    Client, Response, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, LOCATION},
};
use serde::Deserialize;
use tidings::{
    http_client::{describe_error, is_transient},
    retry::Backoff,
};
use tokio::time::timeout_at;
use url::Url;
use uuid::Uuid;

use super::{
    super::{
        Failure,
        gateway::GatewayUrl,
        http::{backoff, client_for, describe_denial, describe_response, read_body, retry_after},
        output::cell,
        say,
    },
    Tail,
    cursor::{Cursor, CursorError, CursorFile},
    event_stream::{Event, EventParser},
    gateway_url,
    line::LineFormat,
};

/// Size at which collected output is written, in bytes.
const OUTPUT_BYTES: usize = 64 << 10;

/// Media type of the stream.
const EVENT_STREAM: &str = "text/event-stream";

/// Number of failures in a row after which `--once` gives up. With their pauses they take some seconds.
const MAX_FAILURES: u32 = 5;

/// Maximum size of the page that says where the journal ends, in bytes. It has one object.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// Reason why a connection ended.
enum ConnectionEnd {
    /// A transient failure: reconnect after `after` at the earliest.
    Interrupted { reason: String, after: Option<Duration> },
    /// The gateway closed the stream, as it does periodically.
    Closed,
    /// The gateway refused the request permanently.
    Refused(String),
    /// The output pipe was closed.
    OutputClosed,
    /// All changes up to the head at the start are printed.
    CaughtUp,
}

impl From<CursorError> for ConnectionEnd {
    fn from(error: CursorError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// End of the journal, as `/snapshot` reports it.
#[derive(Deserialize)]
struct JournalEnd {
    journal: Uuid,
    head: u64,
}

/// Follows a stream through all its connections.
pub(super) struct Follower {
    client: Client,
    gateway: Url,
    filter: Vec<(String, String)>,
    headers: HeaderMap,
    line_format: LineFormat,
    is_once: bool,
    cursor_path: Option<PathBuf>,
    /// The file of `cursor_path`, once it is known to belong to the journal of the gateway.
    cursor: Option<CursorFile>,
    /// Head of the journal at the start, with `--once`, once it is known.
    until: Option<u64>,
    /// Event id of the last change that was printed or filtered out.
    last_id: String,
    /// Waits between failed connections; reset when data arrives.
    backoff: Backoff,
    retry: Duration,
}

impl Follower {
    /// Makes the reader. The configuration is loaded only if no URL is given.
    ///
    /// # Errors
    /// Fails if the configuration, the token or a CA certificate is invalid.
    pub(super) fn new(tail: Tail) -> Result<Self, Failure> {
        let gateway = match tail.url {
            Some(url) => url,
            None => {
                let GatewayUrl { url, is_configured } = tail.gateway.url()?;
                // Cron mails everything that a command prints.
                if is_configured && !tail.once {
                    say(&format!("using the gateway {url}"));
                }
                url
            }
        };
        let headers = tail.gateway.with_token(HeaderMap::new())?;
        let client = client_for(&gateway, tail.gateway.trust()).map_err(Failure::Usage)?;
        let client = client.read_timeout(Duration::from_secs(tail.timeout)).build();
        Ok(Self {
            client: client.map_err(|error| Failure::Usage(describe_error(&error)))?,
            gateway,
            filter: tail.filter,
            headers,
            line_format: tail.format,
            is_once: tail.once,
            cursor_path: tail.cursor,
            cursor: None,
            until: None,
            last_id: tail.after.map(|after| after.to_string()).unwrap_or_default(),
            backoff: backoff(),
            retry: Duration::ZERO,
        })
    }

    /// Follows the stream until Ctrl-C, or with `--once` until the head.
    ///
    /// # Errors
    /// Fails if the gateway refuses the request, or the cursor cannot be used.
    pub(super) async fn run(mut self) -> Result<(), Failure> {
        let (result, is_caught_up) = tokio::select! {
            _ = tokio::signal::ctrl_c() => (Ok(()), false),
            result = self.follow() => match result {
                Ok(is_caught_up) => (Ok(()), is_caught_up),
                Err(failure) => (Err(failure), false),
            },
        };
        let stored = self.store_cursor().map_err(|error| Failure::Failed(error.to_string()));
        if result.is_ok() && stored.is_ok() && !is_caught_up {
            match (&self.cursor, self.last_id.as_str()) {
                (Some(cursor), _) => say(&format!(
                    "stopped; resume with --cursor {}, which has the number {}",
                    cursor.path().display(),
                    cursor.after()
                )),
                (None, "") => say("stopped before the first change"),
                (None, last) => say(&format!("stopped; resume with --after {last}")),
            }
        }
        result.and(stored)
    }

    /// Returns whether all changes up to the head at the start are printed; otherwise the output was closed.
    async fn follow(&mut self) -> Result<bool, Failure> {
        loop {
            let (reason, after) = match self.connection().await {
                ConnectionEnd::Refused(reason) => return Err(Failure::Failed(reason)),
                ConnectionEnd::OutputClosed => return Ok(false),
                ConnectionEnd::CaughtUp => return Ok(true),
                ConnectionEnd::Closed if self.backoff.failures() == 0 => {
                    tokio::time::sleep(backoff().next_wait().max(self.retry)).await;
                    continue;
                }
                ConnectionEnd::Closed => ("the gateway closed the stream before it sent data".to_owned(), None),
                ConnectionEnd::Interrupted { reason, after } => (reason, after),
            };
            if self.is_once && self.backoff.failures() >= MAX_FAILURES {
                return Err(Failure::Failed(format!("{reason}; gave up after {} attempts", MAX_FAILURES + 1)));
            }
            // Only the first of several failures is reported.
            if self.backoff.failures() == 0 {
                say(&format!("{reason}; retrying"));
            }
            let wait = self.backoff.next_wait().max(self.retry).max(after.unwrap_or_default());
            tokio::time::sleep(wait).await;
        }
    }

    /// Reads the end of the journal if the command needs it and does not know it, and opens the cursor.
    async fn find_end(&mut self) -> Result<(), ConnectionEnd> {
        let needs_end = self.is_once && self.until.is_none() || self.cursor_path.is_some() && self.cursor.is_none();
        if !needs_end {
            return Ok(());
        }
        let request = self.client.get(gateway_url(&self.gateway, "snapshot", &[("limit".to_owned(), "1".to_owned())]));
        let response = request.headers(self.headers.clone()).send().await.map_err(|error| interrupted(&error))?;
        let mut response = self.accepted(response, "application/json").await?;
        let mut page = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| interrupted(&error))? {
            page.extend_from_slice(&chunk);
            if page.len() > MAX_PAGE_BYTES {
                return Err(ConnectionEnd::Refused(format!("the response is larger than {MAX_PAGE_BYTES} bytes")));
            }
        }
        let JournalEnd { journal, head } = serde_json::from_slice(&page).map_err(|error| {
            ConnectionEnd::Refused(format!("the response is not from a Tidings gateway: {}", cell(&error.to_string())))
        })?;
        self.connected();
        self.until = self.is_once.then_some(head);
        if let Some(path) = &self.cursor_path {
            let first = Cursor { after: self.last_id.parse().unwrap_or(head), journal };
            let cursor = CursorFile::open(path, first)?;
            self.last_id = cursor.after().to_string();
            self.cursor = Some(cursor);
        }
        Ok(())
    }

    /// Notes that the gateway responds.
    fn connected(&mut self) {
        if self.backoff.failures() > 0 {
            say("reconnected");
            self.backoff.reset();
        }
    }

    /// Number of the last change that was printed or filtered out, if there is one.
    fn printed(&self) -> Option<u64> {
        self.last_id.parse().ok()
    }

    /// Returns whether all changes up to the head at the start are printed. A number above the head is none of this journal,
    /// which the gateway reports.
    fn is_caught_up(&self, at_start: bool) -> bool {
        match (self.until, self.printed()) {
            (Some(until), Some(printed)) => printed == until || printed > until && !at_start,
            _ => false,
        }
    }

    /// Stores the number of the last change in the file of `--cursor`. The call waits for the disk, because nothing else is
    /// to be done meanwhile.
    fn store_cursor(&mut self) -> Result<(), CursorError> {
        match (self.printed(), &mut self.cursor) {
            (Some(printed), Some(cursor)) => cursor.store(printed),
            _ => Ok(()),
        }
    }

    /// Opens one connection and reads it until it ends.
    async fn connection(&mut self) -> ConnectionEnd {
        self.read().await.unwrap_or_else(|end| end)
    }

    async fn read(&mut self) -> Result<ConnectionEnd, ConnectionEnd> {
        self.find_end().await?;
        if self.is_caught_up(true) {
            return Ok(ConnectionEnd::CaughtUp);
        }
        let mut request = self.client.get(gateway_url(&self.gateway, "stream", &self.filter));
        request = request.headers(self.headers.clone()).header(ACCEPT, EVENT_STREAM);
        if !self.last_id.is_empty() {
            request = request.header("last-event-id", &self.last_id);
        }
        let response = request.send().await.map_err(|error| interrupted(&error))?;
        let mut stream = self.accepted(response, EVENT_STREAM).await?;
        let mut events = EventParser::after(&self.last_id);
        loop {
            let due = self.cursor.as_ref().zip(self.printed()).and_then(|(cursor, printed)| cursor.due(printed));
            let received = match due {
                Some(due) => match timeout_at(due, stream.chunk()).await {
                    Ok(received) => received,
                    Err(_) => {
                        self.store_cursor()?;
                        continue;
                    }
                },
                None => stream.chunk().await,
            };
            let Some(piece) = received.map_err(|error| interrupted(&error))? else { return Ok(ConnectionEnd::Closed) };
            self.connected();
            let received = events.feed(&piece).map_err(|error| ConnectionEnd::Refused(error.to_string()))?;
            self.write(received).await?;
            events.last_id().clone_into(&mut self.last_id);
            if self.is_caught_up(false) {
                return Ok(ConnectionEnd::CaughtUp);
            }
            self.retry = events.retry_millis().map_or(self.retry, Duration::from_millis).min(Duration::from_secs(60));
        }
    }

    /// Returns the response if it is successful and has this media type.
    async fn accepted(&self, response: Response, expected: &str) -> Result<Response, ConnectionEnd> {
        let status = response.status();
        if status.is_redirection() {
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
            return Err(ConnectionEnd::Refused(format!("the gateway redirects ({status}) to {target}; give that URL")));
        }
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if status.is_success() && media_type.eq_ignore_ascii_case(expected) {
            return Ok(response);
        }
        if status.is_success() {
            let reason = format!(
                "the response has the media type {media_type:?} and not {expected:?}; give the URL of a gateway"
            );
            return Err(ConnectionEnd::Refused(reason));
        }
        let after = retry_after(response.headers());
        let body = read_body(response).await.map_err(|error| interrupted(&error))?;
        let has_token = self.headers.contains_key(AUTHORIZATION);
        let reason = match describe_response(status, &body) {
            _ if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                describe_denial(status, &body, has_token, "read")
            }
            reason if status == StatusCode::NOT_FOUND => {
                let reason = reason.trim_end_matches('.');
                format!("{reason}; give the URL of the gateway itself, as in http://127.0.0.1:8395")
            }
            reason => reason,
        };
        Err(if is_transient(status) {
            ConnectionEnd::Interrupted { reason, after }
        } else {
            ConnectionEnd::Refused(reason)
        })
    }

    /// Prints the events and advances the last id after each write.
    async fn write(&mut self, received: Vec<Event>) -> Result<(), ConnectionEnd> {
        let mut lines = String::new();
        let mut received = received.into_iter().peekable();
        while let Some(event) = received.next() {
            lines.push_str(&self.line_format.line(&event));
            if lines.len() >= OUTPUT_BYTES || received.peek().is_none() {
                let written = tokio::task::spawn_blocking({
                    let (lines, format) = (std::mem::take(&mut lines), self.line_format);
                    move || format.output(&lines).write()
                });
                match written.await {
                    Ok(Ok(())) => self.last_id = event.id,
                    Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                        return Err(ConnectionEnd::OutputClosed);
                    }
                    Ok(Err(error)) => {
                        return Err(ConnectionEnd::Refused(format!("cannot write to standard output: {error}")));
                    }
                    Err(_) => return Err(ConnectionEnd::Refused("cannot write to standard output".to_owned())),
                }
            }
        }
        Ok(())
    }
}

fn interrupted(error: &reqwest::Error) -> ConnectionEnd {
    ConnectionEnd::Interrupted { reason: describe_error(error), after: None }
}
