//! Shared parts of the commands that use HTTP: URLs, tokens, clients and descriptions of responses.

use std::{convert::Infallible, path::Path, time::Duration};

use chrono::Utc;
use reqwest::{
    Client, ClientBuilder, Response, StatusCode,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use serde::Deserialize;
use tidings::{
    http_client::{self, tls_client_config},
    retry::Backoff,
    text::line,
    web::Secret,
};
use url::{Host, Url};

use super::output::cell;

/// Maximum time to connect.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// `User-Agent` header of all commands.
pub(super) const USER_AGENT: &str = concat!("tidings/", env!("CARGO_PKG_VERSION"));

/// Maximum of the first wait before a retry.
const BASE_WAIT: Duration = Duration::from_millis(250);
/// Maximum of all later waits before a retry, if the gateway sends no `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Maximum `Retry-After` that is honoured; a longer one is reduced to this.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Maximum length of a response body that is read, in bytes; the rest is ignored.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Maximum length of a response body in a message if it is not a problem document, in characters.
const MAX_SHOWN_CHARS: usize = 200;

/// Parses a token. Accepts any text, because clap repeats rejected text in its error message.
pub(super) fn token(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

/// Parses the URL of a gateway or hook.
pub(super) fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| "give an http or https URL, as in http://127.0.0.1:8395".to_owned())
}

/// Certificates that a command trusts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trust<'a> {
    /// Against the CA certificates of a PEM file, or those of the operating system.
    Authorities(Option<&'a Path>),
    /// Not at all, for requests that contain no secret.
    Anybody,
}

/// Returns the builder of a client that sends requests only to `to`.
///
/// The client follows no redirects. It uses the proxy of the environment except for loopback URLs, because a proxy
/// would resolve these to another machine and would see the token.
///
/// # Errors
/// Fails if the CA certificates cannot be read.
pub(super) fn client_for(to: &Url, trust: Trust<'_>) -> Result<ClientBuilder, String> {
    let client = Client::builder().connect_timeout(CONNECT_TIMEOUT).redirect(Policy::none()).user_agent(USER_AGENT);
    let client = match trust {
        Trust::Anybody => client.tls_danger_accept_invalid_certs(true),
        // A file that was given is read even if nothing is encrypted, so that a wrong one is noticed.
        Trust::Authorities(ca) if ca.is_some() || to.scheme() == "https" => {
            client.tls_backend_preconfigured(tls_client_config(ca).map_err(|error| error.to_string())?)
        }
        Trust::Authorities(_) => client,
    };
    Ok(if is_loopback(to) { client.no_proxy() } else { client })
}

/// Returns whether the host of a URL is a loopback name or IP address.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.to_canonical().is_loopback(),
        None => false,
    }
}

/// Converts headers to a map.
///
/// # Errors
/// Fails if a name or a value is not valid in HTTP. The error does not repeat the value, because it may be a password.
pub(super) fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a valid header name"))?;
        let value = HeaderValue::try_from(value)
            .map_err(|_| format!("the value of the header {name} has characters that HTTP does not allow"))?;
        map.append(name, value);
    }
    Ok(map)
}

/// Adds the token as `Authorization`, unless the headers contain that header already.
///
/// # Errors
/// Fails if the token is not valid in a header. The error does not repeat it.
pub(super) fn with_token(mut headers: HeaderMap, token: Option<&Secret>) -> Result<HeaderMap, String> {
    if let Some(token) = token.filter(|token| !token.expose().is_empty()) {
        let value = HeaderValue::from_bytes(&[b"Bearer ", token.expose()].concat());
        let mut value = value.map_err(|_| "the token contains a line break or another control character".to_owned())?;
        value.set_sensitive(true);
        headers.entry(AUTHORIZATION).or_insert(value);
    }
    Ok(headers)
}

/// Returns the wait that the `Retry-After` header asks for, reduced to [`LONGEST_RETRY_AFTER`].
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    http_client::retry_after(headers, Utc::now()).map(|after| after.min(LONGEST_RETRY_AFTER))
}

/// Reads the beginning of the response body, up to [`MAX_BODY_BYTES`] or a little more.
pub(super) async fn read_body(mut response: Response) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    while body.len() < MAX_BODY_BYTES {
        let Some(chunk) = response.chunk().await? else { break };
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Describes an unsuccessful response: its status, and the detail of its problem document or the beginning of its body.
pub(super) fn describe_response(status: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let shown = match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => cell(problem.detail.trim()),
        Err(_) => line(String::from_utf8_lossy(body).trim(), MAX_SHOWN_CHARS).to_string(),
    };
    if shown.is_empty() { status.to_string() } else { format!("{status}: {shown}") }
}

/// Describes a response that denies access, and says which token is needed.
pub(super) fn describe_denial(status: StatusCode, body: &[u8], has_token: bool, scope: &str) -> String {
    let reason = match has_token {
        true => describe_response(status, body),
        // The problem document explains every way to authenticate, which a user of a command does not need.
        false => format!("{status}: this request needs a token"),
    };
    format!("{}; give a token with the scope {scope} in TIDINGS_TOKEN", reason.trim_end_matches('.'))
}

/// Returns the backoff between the attempts of a command.
pub(super) const fn backoff() -> Backoff {
    Backoff::new(BASE_WAIT, LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::{describe_response, http_url, is_loopback};

    #[test]
    fn loopback_urls_are_recognized() {
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
    fn control_characters_of_a_response_are_escaped() {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let problem = r#"{"detail": "line 1:\u001b[2J no date"}"#;
        assert_eq!(
            describe_response(status, problem.as_bytes()),
            "422 Unprocessable Entity: line 1:\\u{1b}[2J no date"
        );
        assert_eq!(describe_response(status, b" oops\n"), "422 Unprocessable Entity: oops");
        assert_eq!(describe_response(status, b""), "422 Unprocessable Entity");
    }
}
