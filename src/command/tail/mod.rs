//! `tidings tail`: follows the stream of a gateway and prints one line per change.
//!
//! After an interruption the command reconnects and resumes after the last change that it printed. Interruptions are
//! a restart of the gateway, a network failure and a transient status. A permanent refusal ends the command with the
//! message of the gateway.

mod event_stream;
mod line;

use std::{io, time::Duration};

use clap::Args;
use reqwest::{
    Client, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
};
use tidings::{
    http_client::{describe_error, is_transient},
    retry::Backoff,
    web::Secret,
};
use url::{Url, form_urlencoded};

use self::{
    event_stream::{Event, EventParser},
    line::LineFormat,
};
use super::{
    Failure,
    http::{backoff, client_for, describe_response, http_url, read_body, retry_after, token, with_token},
    runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings tail
  tidings tail https://tidings.example.org --after 41
  tidings tail --after 0 --filter change=DELETE --filter object=http://h/objects/demo: --format json
  TIDINGS_TOKEN=tdg_… tidings tail https://tidings.example.org --filter visibility=true

Each line contains the number of the change, the time of receipt, the kind (add, update, delete, state, mixed), the \
source, the object and the number of items. With --format json each line is the change as JSON.

After an interruption the command reconnects, with an increasing pause and no limit, and resumes after the last change \
that it printed. It ends at Ctrl-C or when the output pipe is closed, and prints the option that resumes at this point.

Exit codes:
  0  ended by Ctrl-C or by a closed output pipe
  1  the gateway refused the request; standard error says why
  2  wrong usage";

/// Size at which collected output is written, in bytes.
const OUTPUT_BYTES: usize = 64 << 10;

/// Follow the changes of a gateway.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Tail {
    /// URL of the gateway.
    #[arg(value_name = "URL", env = "TIDINGS_GATEWAY", default_value = "http://127.0.0.1:8395", value_parser = http_url)]
    url: Url,
    /// Number of the change after which to start; 0 starts with the first change. Default: start with the next change.
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// Filter condition, with the query parameters of /feed, as in change=DELETE; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = condition)]
    filter: Vec<(String, String)>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = LineFormat::Text)]
    format: LineFormat,
    /// Maximum time without data, heartbeats included, before the command reconnects, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
    /// Token to send. Prefer the environment variable, because other users of this machine can see command-line
    /// arguments.
    #[arg(long, env = "TIDINGS_TOKEN", hide_env_values = true, value_parser = token)]
    token: Option<Secret>,
}

fn condition(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE, as in change=DELETE")?;
    match name {
        "after" => Err("give --after instead".to_owned()),
        "format" => Err("give --format instead".to_owned()),
        _ => Ok((name.to_owned(), value.to_owned())),
    }
}

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
}

impl Tail {
    pub(super) fn run(self) -> Result<(), Failure> {
        let follower = Follower::new(self).map_err(Failure::Usage)?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let result = runtime.block_on(follower.run());
        // Does not wait for a pending DNS lookup, or for output that nobody reads.
        runtime.shutdown_background();
        result
    }
}

/// Follows a stream through all its connections.
struct Follower {
    client: Client,
    url: Url,
    headers: HeaderMap,
    line_format: LineFormat,
    /// Event id of the last change that was printed or filtered out.
    last_id: String,
    /// Waits between failed connections; reset when data arrives.
    backoff: Backoff,
    retry: Duration,
}

impl Follower {
    fn new(tail: Tail) -> Result<Self, String> {
        let mut headers = with_token(HeaderMap::new(), tail.token.as_ref())?;
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let timeout = Duration::from_secs(tail.timeout);
        let client = client_for(&tail.url).read_timeout(timeout).build().map_err(|error| describe_error(&error))?;
        Ok(Self {
            client,
            url: stream_url(tail.url, &tail.filter),
            headers,
            line_format: tail.format,
            last_id: tail.after.map(|after| after.to_string()).unwrap_or_default(),
            backoff: backoff(),
            retry: Duration::ZERO,
        })
    }

    /// Follows the stream until Ctrl-C.
    async fn run(mut self) -> Result<(), Failure> {
        let result = tokio::select! {
            _ = tokio::signal::ctrl_c() => Ok(()),
            result = self.follow() => result,
        };
        if result.is_ok() {
            match self.last_id.as_str() {
                "" => say("stopped before the first change"),
                last => say(&format!("stopped; resume with --after {last}")),
            }
        }
        result
    }

    async fn follow(&mut self) -> Result<(), Failure> {
        loop {
            let (reason, after) = match self.connection().await {
                ConnectionEnd::Refused(reason) => return Err(Failure::Failed(reason)),
                ConnectionEnd::OutputClosed => return Ok(()),
                ConnectionEnd::Closed if self.backoff.failures() == 0 => {
                    tokio::time::sleep(backoff().next_wait().max(self.retry)).await;
                    continue;
                }
                ConnectionEnd::Closed => ("the gateway closed the stream before it sent data".to_owned(), None),
                ConnectionEnd::Interrupted { reason, after } => (reason, after),
            };
            // Only the first of several failures is reported.
            if self.backoff.failures() == 0 {
                say(&format!("{reason}; retrying"));
            }
            let wait = self.backoff.next_wait().max(self.retry).max(after.unwrap_or_default());
            tokio::time::sleep(wait).await;
        }
    }

    /// Opens one connection and reads it until it ends.
    async fn connection(&mut self) -> ConnectionEnd {
        let mut request = self.client.get(self.url.clone()).headers(self.headers.clone());
        if !self.last_id.is_empty() {
            request = request.header("last-event-id", &self.last_id);
        }
        let mut stream = match request.send().await {
            Ok(response) => match into_stream(response).await {
                Ok(stream) => stream,
                Err(end) => return end,
            },
            Err(error) => return ConnectionEnd::Interrupted { reason: describe_error(&error), after: None },
        };
        let mut events = EventParser::after(&self.last_id);
        loop {
            let piece = match stream.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return ConnectionEnd::Closed,
                Err(error) => return ConnectionEnd::Interrupted { reason: describe_error(&error), after: None },
            };
            if self.backoff.failures() > 0 {
                say("reconnected");
                self.backoff.reset();
            }
            let received = match events.feed(&piece) {
                Ok(received) => received,
                Err(error) => return ConnectionEnd::Refused(error.to_string()),
            };
            if let Err(end) = self.write(received).await {
                return end;
            }
            events.last_id().clone_into(&mut self.last_id);
            self.retry = events.retry_millis().map_or(self.retry, Duration::from_millis).min(Duration::from_secs(60));
        }
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

/// Returns the URL of the stream of a gateway, with the filter as its query. The URL of a stream keeps its path.
fn stream_url(mut url: Url, filter: &[(String, String)]) -> Url {
    url.set_fragment(None);
    if !url.path().ends_with("/stream") {
        let path = format!("{}/stream", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    if !filter.is_empty() {
        let mut query = form_urlencoded::Serializer::new(url.query().unwrap_or_default().to_owned());
        let query = query.extend_pairs(filter).finish();
        url.set_query(Some(&query));
    }
    url
}

/// Returns the response if it is an event stream.
async fn into_stream(response: Response) -> Result<Response, ConnectionEnd> {
    let status = response.status();
    if status.is_redirection() {
        let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
        return Err(ConnectionEnd::Refused(format!("the gateway redirects ({status}) to {target}; give that URL")));
    }
    let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if status.is_success() && media_type.eq_ignore_ascii_case("text/event-stream") {
        return Ok(response);
    }
    if status.is_success() {
        let reason = format!(
            "the response has the media type {media_type:?} and is not an event stream; give the URL of a gateway"
        );
        return Err(ConnectionEnd::Refused(reason));
    }
    let after = retry_after(response.headers());
    let body = read_body(response)
        .await
        .map_err(|error| ConnectionEnd::Interrupted { reason: describe_error(&error), after: None })?;
    let reason = match describe_response(status, &body) {
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

#[cfg(test)]
mod tests {
    use super::{Url, condition, stream_url};

    #[test]
    fn stream_url_accepts_a_gateway_or_its_stream() {
        let address = |url: &str, filter: &[&str]| {
            let filter: Vec<_> = filter.iter().map(|text| condition(text).unwrap()).collect();
            stream_url(Url::parse(url).unwrap(), &filter).to_string()
        };
        assert_eq!(address("http://h:8080", &[]), "http://h:8080/stream");
        assert_eq!(address("https://h/tidings/", &[]), "https://h/tidings/stream");
        let filtered = address("http://h/stream?source=a", &["object=http://h/1?a=b&c", "change=ADD"]);
        assert_eq!(filtered, "http://h/stream?source=a&object=http%3A%2F%2Fh%2F1%3Fa%3Db%26c&change=ADD");
        assert!(condition("DELETE").is_err() && condition("after=1").is_err() && condition("format=xml").is_err());
    }
}
