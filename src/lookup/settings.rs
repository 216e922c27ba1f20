//! Settings of a repository: its URL, credentials and limits.

use std::{fmt, path::PathBuf, time::Duration};

use url::Url;

use crate::{
    format::{RepositoryApi, stated_dates::DatePredicates},
    http_client::{InvalidOutboundUrl, OutboundPolicy, OutboundUrl},
    web::Secret,
};

named_values! {
    /// Policy for looking up the facts that a source's messages do not contain.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Mode {
        /// No lookups.
        #[default]
        Off = "off",
        /// Lookups; changes that could not be completed are marked incomplete and completed later.
        BestEffort = "best-effort",
        /// Lookups; an event waits, unacknowledged, until the repository responds.
        Required = "required",
    }
}

/// The repository of a source.
#[derive(Clone, Debug)]
pub struct RepositorySettings {
    /// API of the repository.
    pub api: RepositoryApi,
    /// URL for requests.
    pub url: BaseUrl,
    /// Base URLs of the repository in its messages, if they differ from `url`: a public URL, or the URL that
    /// the repository uses for itself.
    pub public_urls: Vec<BaseUrl>,
    /// Credentials of the requests; `None` for anonymous requests.
    pub credentials: Option<Credentials>,
    /// PEM file of the CA certificates to trust instead of those of the operating system.
    pub ca: Option<PathBuf>,
    /// Maximum time of a request, from the connection to the end of the response.
    pub timeout: Duration,
    /// Maximum number of concurrent requests, at least 1.
    pub in_flight: usize,
    /// Maximum number of cached responses.
    pub cached_answers: usize,
    /// Predicates of dates of visibility; no dates are read if there are none.
    pub dates: DatePredicates,
}

impl RepositorySettings {
    /// Default maximum time of a request.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Default maximum number of concurrent requests.
    pub const IN_FLIGHT: usize = 64;

    /// Default maximum number of cached responses.
    pub const CACHED_ANSWERS: usize = 1000;

    /// Creates settings with default limits.
    #[must_use]
    pub fn new(api: RepositoryApi, url: BaseUrl) -> Self {
        Self {
            api,
            url,
            public_urls: Vec::new(),
            credentials: None,
            ca: None,
            timeout: Self::TIMEOUT,
            in_flight: Self::IN_FLIGHT,
            cached_answers: Self::CACHED_ANSWERS,
            dates: DatePredicates::default(),
        }
    }

    /// Returns the path of a message's URI below the repository's base URL, with its leading slash. `None` if
    /// the URI is outside this repository; another host must never receive these credentials.
    #[must_use]
    pub fn path_of(&self, uri: &str) -> Option<String> {
        let uri = Url::parse(uri).ok()?;
        let bases = std::iter::once(&self.url).chain(&self.public_urls);
        let paths = bases.filter_map(|base| base.path_of(uri.as_str()));
        paths.min_by_key(|path| path.len()).map(str::to_owned)
    }
}

/// Credentials of HTTP Basic authentication.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// User name.
    pub username: Secret,
    /// Password.
    pub password: Secret,
}

/// The base URL of a repository, without a slash at its end.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

/// Reason why a text is no base URL. The message does not repeat the text, which may contain a password by
/// mistake.
#[derive(Debug, thiserror::Error)]
pub enum InvalidBaseUrl {
    /// The text is no HTTP URL.
    #[error(transparent)]
    Address(#[from] InvalidOutboundUrl),
    /// The URL contains credentials, which would be shown.
    #[error("it has a user or a password; set username and password instead, which are never shown")]
    Credentials,
    /// The URL has a query, so paths cannot be appended.
    #[error("it has a query; use the URL that paths like /objects/demo:5 can be appended to")]
    Query,
}

impl BaseUrl {
    /// Parses a base URL, and removes slashes at its end.
    ///
    /// # Errors
    /// Fails if paths cannot be appended to the URL.
    pub fn parse(text: &str) -> Result<Self, InvalidBaseUrl> {
        let to = OutboundUrl::parse(text.trim(), &OutboundPolicy::unrestricted())?;
        if to.has_user() {
            return Err(InvalidBaseUrl::Credentials);
        }
        if to.expose().query().is_some() {
            return Err(InvalidBaseUrl::Query);
        }
        Ok(Self(to.expose().as_str().trim_end_matches('/').to_owned()))
    }

    /// Returns the URL as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the URL of `path` below this base URL; `None` if the path leaves it, as with `..`.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<OutboundUrl> {
        let to = OutboundUrl::parse(&format!("{}{path}", self.0), &OutboundPolicy::unrestricted()).ok()?;
        self.path_of(to.expose().as_str()).is_some().then_some(to)
    }

    fn path_of<'u>(&self, uri: &'u str) -> Option<&'u str> {
        let path = uri.strip_prefix(self.0.as_str())?;
        (path.is_empty() || path.starts_with(['/', '?'])).then_some(path)
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{BaseUrl, RepositoryApi, RepositorySettings};

    #[test]
    fn base_url_has_no_query_fragment_or_credentials() {
        assert_eq!(BaseUrl::parse(" http://H:8080/fedora/ ").unwrap().as_str(), "http://h:8080/fedora");
        for (text, why) in [
            ("fedora:8080/rest", "neither https:// nor http://"),
            ("/rest", "not a URL"),
            ("http://fedoraAdmin:hush@h/fedora", "username and password"),
            ("http://h/fedora?x=hush", "a query"),
            ("http://h/fedora#hush", "a fragment"),
        ] {
            let error = BaseUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn paths_never_leave_the_repository() {
        let base = BaseUrl::parse("http://h/fedora").unwrap();
        assert_eq!(
            base.at("/objects/a:1?format=xml").unwrap().expose().as_str(),
            "http://h/fedora/objects/a:1?format=xml"
        );
        for path in ["/../admin", "/a/../../admin", "/%2e%2e/admin", "x/objects", ".example.org/", "@evil.example/"] {
            assert!(base.at(path).is_none(), "{path}");
        }
        let root = BaseUrl::parse("http://h").unwrap();
        for path in [".example.org/", "@evil.example/", ":81/"] {
            assert!(root.at(path).is_none(), "{path}");
        }
        assert!(root.at("/objects").is_some());
    }

    #[test]
    fn repository_is_recognized_by_each_base_url() {
        let base = |text| BaseUrl::parse(text).unwrap();
        let mut settings = RepositorySettings::new(RepositoryApi::Fedora3, base("http://inner:8080/fedora"));
        settings.public_urls =
            vec![base("https://repository.example.org/"), base("https://repository.example.org/fedora")];
        for (uri, path) in [
            ("http://inner:8080/fedora/objects/a:1", Some("/objects/a:1")),
            ("https://repository.example.org/fedora/objects/a:1", Some("/objects/a:1")),
            ("https://repository.example.org/objects/a:1", Some("/objects/a:1")),
            ("http://inner:8080/fedora", Some("")),
            ("HTTPS://Repository.example.org:443/fedora/objects/a:1%2Fb", Some("/objects/a:1%2Fb")),
            ("http://inner:8080/fedora/../objects/a:1", None),
            ("http://inner:8080/fedora3/objects/a:1", None),
            ("http://inner:80800/fedora/objects/a:1", None),
            ("http://evil.example/fedora/objects/a:1", None),
            ("urn:uuid:1", None),
        ] {
            assert_eq!(settings.path_of(uri).as_deref(), path, "{uri}");
        }
    }
}
