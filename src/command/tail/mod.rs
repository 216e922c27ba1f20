//! `tidings tail`: follow the stream of a gateway, a line a change.
//!
//! Whatever cuts the stream off, it is taken up again after the last change that was shown: a gateway that is
//! being started again, a network that is away, an answer that says later. What the gateway refuses for good
//! ends it, with the gateway's own words.

mod events;
mod line;

use std::{
    io::{self, Write},
    time::Duration,
};

use clap::Args;
use reqwest::{
    Client, Response,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
};
use tidings::{
    http_client::{is_transient, trouble},
    retry::Backoff,
    web::Secret,
};
use url::{Url, form_urlencoded};

use self::{
    events::{Event, Events},
    line::Shown,
};
use super::{
    Failure,
    http::{backoff, client_for, http_url, retry_after, token, told, why, with_token},
    runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings tail
  tidings tail https://tidings.example.org --after 41
  tidings tail --after 0 --filter change=DELETE --filter object=http://h/objects/demo: --format json
  TIDINGS_TOKEN=tdg_… tidings tail https://tidings.example.org --filter visibility=true

A line tells the number of the change, when it was received, what happened (add, update, delete, state,
mixed), the source, the object and how many items; with --format json it is the change itself.

What breaks off is taken up again after the last change that was shown, with a growing pause, for ever.
Ctrl-C ends it and says where to go on; so does a reader of the output that has read enough.

Exit codes:
  0  ended by Ctrl-C, or by who reads the output
  1  the gateway refused; standard error says why
  2  wrong usage";

/// How much of the output is put together before it is written, in bytes.
const OUTPUT_BYTES: usize = 64 << 10;

/// Follow the changes of a gateway as they come.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Tail {
    /// The gateway.
    #[arg(value_name = "URL", env = "TIDINGS_GATEWAY", default_value = "http://127.0.0.1:8395", value_parser = http_url)]
    url: Url,
    /// The number of the change after which to begin; 0 is the place before the first of all. Without it: with the next change.
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// Which changes, as NAME=VALUE with the parameters of /feed; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = condition)]
    filter: Vec<(String, String)>,
    /// How changes are shown.
    #[arg(long, value_enum, default_value_t = Shown::Text)]
    format: Shown,
    /// How long nothing may come, not even a sign of life, until it connects anew, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
    /// The token to send. Others on this machine can see arguments, and not the environment.
    #[arg(long, env = "TIDINGS_TOKEN", hide_env_values = true, value_parser = token)]
    token: Option<Secret>,
}

fn condition(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE, as in change=DELETE")?;
    match name {
        "after" => Err("give --after instead".to_owned()),
        "format" => Err("tail reads JSON; give --format to choose what is shown".to_owned()),
        _ => Ok((name.to_owned(), value.to_owned())),
    }
}

/// Why one connection came to its end.
enum Ended {
    /// It may be tried again, after that time at least.
    Cut { reason: String, after: Option<Duration> },
    /// The stream ended in good order, as one does from time to time.
    Over,
    /// It is no use.
    Refused(String),
    /// Nobody reads the output any more.
    Unread,
}

impl Tail {
    pub(super) fn run(self) -> Result<(), Failure> {
        let follower = Follower::new(self).map_err(Failure::Usage)?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let ended = runtime.block_on(follower.run());
        // A write that its reader does not take, or a look-up of a name, would keep it.
        runtime.shutdown_background();
        ended
    }
}

/// What follows a stream, through all its connections.
struct Follower {
    client: Client,
    url: Url,
    headers: HeaderMap,
    shown: Shown,
    /// The identifier of the last change that was shown, or that needs not be.
    last: String,
    /// Waits since something came.
    backoff: Backoff,
    retry: Duration,
}

impl Follower {
    fn new(tail: Tail) -> Result<Self, String> {
        let mut headers = with_token(HeaderMap::new(), tail.token.as_ref())?;
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let timeout = Duration::from_secs(tail.timeout);
        let client = client_for(&tail.url).read_timeout(timeout).build().map_err(|error| trouble(&error))?;
        Ok(Self {
            client,
            url: stream_of(tail.url, &tail.filter),
            headers,
            shown: tail.format,
            last: tail.after.map(|after| after.to_string()).unwrap_or_default(),
            backoff: backoff(),
            retry: Duration::ZERO,
        })
    }

    /// Follows until Ctrl-C.
    async fn run(mut self) -> Result<(), Failure> {
        let ended = tokio::select! {
            _ = tokio::signal::ctrl_c() => Ok(()),
            ended = self.follow() => ended,
        };
        if ended.is_ok() {
            match self.last.as_str() {
                "" => say("stopped before the first change"),
                last => say(&format!("stopped; go on with --after {last}")),
            }
        }
        ended
    }

    async fn follow(&mut self) -> Result<(), Failure> {
        loop {
            let (reason, after) = match self.connection().await {
                Ended::Refused(reason) => return Err(Failure::Failed(reason)),
                Ended::Unread => return Ok(()),
                Ended::Over if self.backoff.failures() == 0 => {
                    tokio::time::sleep(backoff().next_wait().max(self.retry)).await;
                    continue;
                }
                Ended::Over => ("the stream ended before anything came".to_owned(), None),
                Ended::Cut { reason, after } => (reason, after),
            };
            // One line for the same trouble, however long it lasts.
            if self.backoff.failures() == 0 {
                say(&format!("{reason}; trying again"));
            }
            let wait = self.backoff.next_wait().max(self.retry).max(after.unwrap_or_default());
            tokio::time::sleep(wait).await;
        }
    }

    /// One connection, from its beginning to its end.
    async fn connection(&mut self) -> Ended {
        let mut request = self.client.get(self.url.clone()).headers(self.headers.clone());
        if !self.last.is_empty() {
            request = request.header("last-event-id", &self.last);
        }
        let mut stream = match request.send().await {
            Ok(response) => match opened(response).await {
                Ok(stream) => stream,
                Err(ended) => return ended,
            },
            Err(error) => return Ended::Cut { reason: trouble(&error), after: None },
        };
        let mut events = Events::after(&self.last);
        loop {
            let piece = match stream.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ended::Over,
                Err(error) => return Ended::Cut { reason: trouble(&error), after: None },
            };
            if self.backoff.failures() > 0 {
                say("connected again");
                self.backoff.reset();
            }
            let came = match events.take(&piece) {
                Ok(came) => came,
                Err(error) => return Ended::Refused(error.to_string()),
            };
            if let Err(ended) = self.show(came).await {
                return ended;
            }
            events.last_id().clone_into(&mut self.last);
            self.retry = events.retry_millis().map_or(self.retry, Duration::from_millis).min(Duration::from_secs(60));
        }
    }

    /// Writes the events, and keeps after each write where that got to.
    async fn show(&mut self, came: Vec<Event>) -> Result<(), Ended> {
        let mut lines = String::new();
        let mut came = came.into_iter().peekable();
        while let Some(event) = came.next() {
            lines.push_str(&self.shown.line(&event));
            if lines.len() >= OUTPUT_BYTES || came.peek().is_none() {
                let written = tokio::task::spawn_blocking({
                    let lines = std::mem::take(&mut lines);
                    move || {
                        let mut out = io::stdout().lock();
                        out.write_all(lines.as_bytes()).and_then(|()| out.flush())
                    }
                });
                match written.await {
                    Ok(Ok(())) => self.last = event.id,
                    Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Err(Ended::Unread),
                    Ok(Err(error)) => {
                        return Err(Ended::Refused(format!("cannot write to standard output: {error}")));
                    }
                    Err(_) => return Err(Ended::Refused("cannot write to standard output".to_owned())),
                }
            }
        }
        Ok(())
    }
}

/// The address of the stream of a gateway; one that is a stream's already is taken as it is.
fn stream_of(mut url: Url, filter: &[(String, String)]) -> Url {
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

/// The stream, if the answer is one.
async fn opened(response: Response) -> Result<Response, Ended> {
    let status = response.status();
    if status.is_redirection() {
        let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
        return Err(Ended::Refused(format!("the gateway answers {status} and points to {target}; follow that")));
    }
    let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if status.is_success() && media_type.eq_ignore_ascii_case("text/event-stream") {
        return Ok(response);
    }
    if status.is_success() {
        let reason = format!("what is there is no stream of events but {media_type:?}; give the address of a gateway");
        return Err(Ended::Refused(reason));
    }
    let after = retry_after(response.headers());
    let told = told(response).await.map_err(|error| Ended::Cut { reason: trouble(&error), after: None })?;
    let reason = why(status, &told);
    Err(if is_transient(status) { Ended::Cut { reason, after } } else { Ended::Refused(reason) })
}

#[cfg(test)]
mod tests {
    use super::{Url, condition, stream_of};

    #[test]
    fn the_address_is_that_of_a_gateway_or_of_its_stream() {
        let address = |url: &str, filter: &[&str]| {
            let filter: Vec<_> = filter.iter().map(|told| condition(told).unwrap()).collect();
            stream_of(Url::parse(url).unwrap(), &filter).to_string()
        };
        assert_eq!(address("http://h:8080", &[]), "http://h:8080/stream");
        assert_eq!(address("https://h/tidings/", &[]), "https://h/tidings/stream");
        let filtered = address("http://h/stream?source=a", &["object=http://h/1?a=b&c", "change=ADD"]);
        assert_eq!(filtered, "http://h/stream?source=a&object=http%3A%2F%2Fh%2F1%3Fa%3Db%26c&change=ADD");
        assert!(condition("DELETE").is_err() && condition("after=1").is_err() && condition("format=xml").is_err());
    }
}
