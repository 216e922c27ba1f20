//! What is set of a repository that is asked: where it is, who asks, and what bounds the asking.

use std::{fmt, path::PathBuf, time::Duration};

use url::Url;

use crate::{
    format::RepositoryApi,
    http_client::{Destination, Guard, InvalidDestination},
    web::Secret,
};

named_values! {
    /// Whether a source's repository is asked what its messages do not say.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Mode {
        /// It is not.
        #[default]
        Off = "off",
        /// It is. What it does not answer is marked incomplete, and told later.
        BestEffort = "best-effort",
        /// It is, and an event waits for its answer, unacknowledged.
        Required = "required",
    }
}

/// The repository of a source.
#[derive(Clone, Debug)]
pub struct RepositorySettings {
    /// What it answers by.
    pub api: RepositoryApi,
    /// Where it is asked.
    pub url: BaseUrl,
    /// Where its messages say that it is, where that is elsewhere: a public name, or its own name for itself.
    pub public_urls: Vec<BaseUrl>,
    /// Who asks; nobody in particular, where `None`.
    pub credentials: Option<Credentials>,
    /// The authority that its certificate is checked against, and not those of the operating system.
    pub ca: Option<PathBuf>,
    /// How long a request may take, from the connection to the end of the answer.
    pub timeout: Duration,
    /// How many requests are on their way at once, at least 1.
    pub in_flight: usize,
    /// How many answers are kept for messages that ask the same.
    pub cached_answers: usize,
}

impl RepositorySettings {
    /// How long a request may take, where the configuration does not say.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// How many requests are on their way at once, where the configuration does not say.
    pub const IN_FLIGHT: usize = 64;

    /// How many answers are kept, where the configuration does not say.
    pub const CACHED_ANSWERS: usize = 1000;

    /// The repository at that address, with usual bounds.
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
        }
    }

    /// What stands behind the repository's address in a URI of its messages, with the slash that it begins with.
    /// `None` where that is no URI of this repository: another one is not asked, least of all with these credentials.
    #[must_use]
    pub fn path_of(&self, uri: &str) -> Option<String> {
        let uri = Url::parse(uri).ok()?;
        let bases = std::iter::once(&self.url).chain(&self.public_urls);
        let paths = bases.filter_map(|base| base.path_of(uri.as_str()));
        paths.min_by_key(|path| path.len()).map(str::to_owned)
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The name.
    pub username: Secret,
    /// The password.
    pub password: Secret,
}

/// The address of a repository, without a slash at its end.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

/// Why a text is not the address of a repository. It does not repeat the text, which may have a password by mistake.
#[derive(Debug, thiserror::Error)]
pub enum InvalidBaseUrl {
    /// It is no address of HTTP.
    #[error(transparent)]
    Address(#[from] InvalidDestination),
    /// It would be shown.
    #[error("it has a user or a password; give username and password beside it, which are shown nowhere")]
    Credentials,
    /// Paths are put behind it.
    #[error("it has a query; give the address that paths like /objects/demo:5 are put behind")]
    Query,
}

impl BaseUrl {
    /// Takes an address as it is written, slashes at its end aside.
    ///
    /// # Errors
    /// When it is none that paths can be put behind.
    pub fn parse(text: &str) -> Result<Self, InvalidBaseUrl> {
        let to = Destination::parse(text.trim(), &Guard::of_the_operator())?;
        if to.has_user() {
            return Err(InvalidBaseUrl::Credentials);
        }
        if to.expose().query().is_some() {
            return Err(InvalidBaseUrl::Query);
        }
        Ok(Self(to.expose().as_str().trim_end_matches('/').to_owned()))
    }

    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address that is so far behind this one; `None` where it would leave it, as with `..`.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<Destination> {
        let to = Destination::parse(&format!("{}{path}", self.0), &Guard::of_the_operator()).ok()?;
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
    fn an_address_has_nothing_behind_its_path() {
        assert_eq!(BaseUrl::parse(" http://H:8080/fedora/ ").unwrap().as_str(), "http://h:8080/fedora");
        for (text, why) in [
            ("fedora:8080/rest", "neither https:// nor http://"),
            ("/rest", "not an address"),
            ("http://fedoraAdmin:hush@h/fedora", "username and password"),
            ("http://h/fedora?x=hush", "a query"),
            ("http://h/fedora#hush", "a fragment"),
        ] {
            let refused = BaseUrl::parse(text).unwrap_err().to_string();
            assert!(refused.contains(why) && !refused.contains("hush"), "{refused}");
        }
    }

    #[test]
    fn nothing_leads_out_of_the_repository() {
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
    fn the_repository_is_known_by_each_of_its_names() {
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
