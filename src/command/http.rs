//! What the commands that speak to a gateway share: its address, the token, and how they put what is wrong.

use std::{convert::Infallible, time::Duration};

use chrono::Utc;
use reqwest::{
    Client, ClientBuilder, Response, StatusCode,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use serde::Deserialize;
use tidings::{http_client, retry::Backoff, web::Secret};
use url::{Host, Url};

/// How long to wait for a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The name by which the commands call themselves.
pub(super) const USER_AGENT: &str = concat!("tidings/", env!("CARGO_PKG_VERSION"));

/// First wait before a request is sent again, at most.
const BASE_WAIT: Duration = Duration::from_millis(250);
/// Longest wait before a request is sent again, at most, where the gateway asks for none.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest `Retry-After` that is honoured; a longer one is cut to this.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// How much of an answer is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// How much of an answer that is no problem document is shown, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// Takes anything, since clap repeats what it refuses.
pub(super) fn token(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

pub(super) fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if matches!(url.scheme(), "http" | "https") { Ok(url) } else { Err("it is neither http nor https".to_owned()) }
}

/// Settings of a client for requests to `to` alone.
///
/// It follows no redirect. It takes a proxy from the environment, but for addresses of this machine: a proxy elsewhere
/// would reach another machine by them, and would see the token.
pub(super) fn client_for(to: &Url) -> ClientBuilder {
    let client = Client::builder().connect_timeout(CONNECT_TIMEOUT).redirect(Policy::none()).user_agent(USER_AGENT);
    if is_loopback(to) { client.no_proxy() } else { client }
}

/// Whether a URL leads to this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.to_canonical().is_loopback(),
        None => false,
    }
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

/// How long the gateway asks to be left alone.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    http_client::retry_after(headers, Utc::now()).map(|after| after.min(LONGEST_RETRY_AFTER))
}

/// The beginning of the answer's body.
pub(super) async fn told(mut response: Response) -> reqwest::Result<Vec<u8>> {
    let mut told = Vec::new();
    while told.len() < MAX_ANSWER_BYTES {
        let Some(chunk) = response.chunk().await? else { break };
        told.extend_from_slice(&chunk);
    }
    Ok(told)
}

/// The detail of the problem document, or the beginning of whatever it is.
pub(super) fn why(status: StatusCode, told: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let text = serde_json::from_slice::<Problem>(told).map_or_else(
        |_| String::from_utf8_lossy(told).chars().take(MAX_SHOWN_CHARS).collect(),
        |problem| problem.detail,
    );
    match printable(&text).trim() {
        "" => status.to_string(),
        text => format!("{status}: {text}"),
    }
}

/// The text without what would move the terminal's cursor.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the waits between the attempts of a command.
pub(super) const fn backoff() -> Backoff {
    Backoff::new(BASE_WAIT, LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::{http_url, is_loopback, why};

    #[test]
    fn addresses_of_this_machine_are_known() {
        for (url, expected) in [
            ("http://127.0.0.1:8395", true),
            ("http://127.9.9.9", true),
            ("https://[::1]:8395/", true),
            ("http://[::ffff:127.0.0.1]/", true),
            ("http://LOCALHOST:1", true),
            ("http://a.localhost", true),
            ("http://127.0.0.1.example.org", false),
            ("http://10.0.0.1", false),
            ("http://localhost.example.org", false),
        ] {
            assert_eq!(is_loopback(&http_url(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn what_the_gateway_says_cannot_play_with_the_terminal() {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let problem = r#"{"detail": "line 1:\u001b[2J no date"}"#;
        assert_eq!(why(status, problem.as_bytes()), "422 Unprocessable Entity: line 1: [2J no date");
        assert_eq!(why(status, b" oops\n"), "422 Unprocessable Entity: oops");
        assert_eq!(why(status, b""), "422 Unprocessable Entity");
    }
}
