//! Origins of URLs, and credentials that are sent to one origin alone.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use base64::{Engine, engine::general_purpose::STANDARD};
use url::{Host, Url};

use crate::web::Secret;

/// Scheme, host and port of an HTTP URL (RFC 6454): the unit that credentials belong to.
///
/// Another port of a host can be the server of somebody else, and an unencrypted request can be read on its way. So the
/// host alone never decides where credentials go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    is_encrypted: bool,
    host: Host,
    port: u16,
}

impl Origin {
    /// Returns the origin of a URL; `None` if its scheme is neither `http` nor `https`.
    #[must_use]
    pub fn of(url: &Url) -> Option<Self> {
        let is_encrypted = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        Some(Self { is_encrypted, host: url.host()?.to_owned(), port: url.port_or_known_default()? })
    }

    /// Returns whether a URL is of this origin, or of the encrypted form of an unencrypted one.
    ///
    /// The encrypted form has the same port, or the default port if the origin has its default port. This is the mapping
    /// of RFC 6797 section 8.3. An encrypted origin has no unencrypted form.
    #[must_use]
    pub fn includes(&self, url: &Url) -> bool {
        let is_encrypted_form_of = |own: &Self, other: &Self| {
            let ports = (own.port, other.port);
            other.is_encrypted && !own.is_encrypted && (own.port == other.port || ports == (80, 443))
        };
        Self::of(url)
            .is_some_and(|other| *self == other || (self.host == other.host && is_encrypted_form_of(self, &other)))
    }

    /// Returns whether requests to the origin are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, default_port) = if self.is_encrypted { ("https", 443) } else { ("http", 80) };
        write!(f, "{scheme}://{}", self.host)?;
        if self.port == default_port { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

/// Value of the header `Authorization`, or of another one with the same purpose, which is sent to the origin that it was
/// configured for and to no other.
///
/// Only the client reads the value, and it asks for the URL of each request, also of those after redirections.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorization {
    origin: Origin,
    name: HeaderName,
    value: HeaderValue,
}

impl Authorization {
    /// Creates credentials of a scheme such as `Bearer`; `None` if they have characters that a header cannot carry.
    #[must_use]
    pub fn new(origin: Origin, scheme: &str, credentials: &[u8]) -> Option<Self> {
        let mut value = HeaderValue::from_bytes(&[scheme.as_bytes(), b" ", credentials].concat()).ok()?;
        value.set_sensitive(true);
        Some(Self { origin, name: AUTHORIZATION, value })
    }

    /// Creates credentials in a header of their own, as some services read them; `None` if a header cannot carry them.
    #[must_use]
    pub fn in_header(origin: Origin, name: HeaderName, credentials: &Secret) -> Option<Self> {
        let mut value = HeaderValue::from_bytes(credentials.expose()).ok()?;
        value.set_sensitive(true);
        Some(Self { origin, name, value })
    }

    /// Creates the credentials of a bearer token (RFC 6750); `None` if it has characters that a header cannot carry.
    #[must_use]
    pub fn bearer(origin: Origin, token: &Secret) -> Option<Self> {
        Self::new(origin, "Bearer", token.expose())
    }

    /// Creates the credentials of a user with a password (RFC 7617); `None` if a header cannot carry them.
    #[must_use]
    pub fn basic(origin: Origin, user: &Secret, password: &Secret) -> Option<Self> {
        let pair = [user.expose(), b":", password.expose()].concat();
        Self::new(origin, "Basic", STANDARD.encode(pair).as_bytes())
    }

    /// Returns the origin that the credentials were configured for.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns whether a request to this URL carries the credentials.
    #[must_use]
    pub fn applies_to(&self, url: &Url) -> bool {
        self.origin.includes(url)
    }
}

/// Prints no secret.
impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorization for {}", self.origin)
    }
}

/// Headers of requests, with credentials that only requests to their origin carry.
#[derive(Clone, Debug, Default)]
pub struct RequestHeaders {
    headers: HeaderMap,
    authorizations: Vec<Authorization>,
}

impl RequestHeaders {
    /// Adds credentials, or none.
    #[must_use]
    pub fn with_authorization<'a>(mut self, authorization: impl IntoIterator<Item = &'a Authorization>) -> Self {
        self.authorizations.extend(authorization.into_iter().cloned());
        self
    }

    /// Sets a header.
    pub fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    /// Sets a header that is not there yet.
    pub fn insert_default(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.entry(name).or_insert(value);
    }

    /// Returns the headers of a request to this URL.
    pub(crate) fn of_request(mut self, url: &Url) -> HeaderMap {
        for Authorization { name, value, .. } in self.authorizations.into_iter().filter(|one| one.applies_to(url)) {
            self.headers.insert(name, value);
        }
        self.headers
    }
}

/// Headers without credentials. `Authorization` has no place among them, because it would go to every URL.
impl From<HeaderMap> for RequestHeaders {
    fn from(mut headers: HeaderMap) -> Self {
        let unbound = headers.remove(AUTHORIZATION);
        debug_assert!(unbound.is_none(), "credentials are an Authorization, which belongs to an origin");
        Self { headers, authorizations: Vec::new() }
    }
}

impl From<&HeaderMap> for RequestHeaders {
    fn from(headers: &HeaderMap) -> Self {
        headers.clone().into()
    }
}

impl From<&RequestHeaders> for RequestHeaders {
    fn from(headers: &RequestHeaders) -> Self {
        headers.clone()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, header::AUTHORIZATION};
    use url::Url;

    use super::{Authorization, Origin, RequestHeaders};
    use crate::web::Secret;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn credentials_go_to_their_origin_and_its_encrypted_form() {
        for (configured, target, is_sent) in [
            ("https://h.example/a", "https://h.example/b?c", true),
            ("https://h.example/", "https://H.example:443/", true),
            ("https://h.example/", "https://h.example:8443/", false),
            ("https://h.example/", "http://h.example/", false),
            ("https://h.example:8443/", "http://h.example:8443/", false),
            ("https://127.0.0.1:8443/", "http://127.0.0.1:8444/", false),
            ("http://h.example/", "https://h.example/", true),
            ("http://h.example:8080/", "https://h.example:8080/", true),
            ("http://h.example:8080/", "https://h.example/", false),
            ("http://h.example/", "https://h.example:8443/", false),
            ("http://h.example/", "http://h.example:8080/", false),
            ("http://h.example/", "http://a.h.example/", false),
            ("http://h.example/", "http://example/", false),
            ("http://[::1]:1/", "http://[0:0:0:0:0:0:0:1]:1/", true),
        ] {
            let origin = Origin::of(&url(configured)).unwrap();
            let authorization = Authorization::bearer(origin, &Secret::new("hush")).unwrap();
            let headers = RequestHeaders::from(HeaderMap::new()).with_authorization(Some(&authorization));
            assert!(!format!("{headers:?}").contains("hush"));
            let sent = headers.of_request(&url(target));
            let expected = is_sent.then_some("Bearer hush");
            assert_eq!(sent.get(AUTHORIZATION).map(|value| value.to_str().unwrap()), expected, "{configured} {target}");
            assert!(!format!("{sent:?}").contains("hush"));
        }
        assert_eq!(Origin::of(&url("ftp://h.example/")), None);
    }

    #[test]
    fn basic_credentials_are_encoded() {
        let origin = Origin::of(&url("https://h.example:8443/")).unwrap();
        assert_eq!(origin.to_string(), "https://h.example:8443");
        let authorization = Authorization::basic(origin, &Secret::new("Aladdin"), &Secret::new("open sesame")).unwrap();
        assert_eq!(authorization.value, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(Authorization::bearer(authorization.origin, &Secret::new("a\nb")), None);
    }
}
