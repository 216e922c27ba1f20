//! Protection of browser users against requests that a page of another site makes a browser send (cross-site request
//! forgery), and against host names that another site points at the gateway (DNS rebinding).
//!
//! A browser attaches stored credentials and can reach internal addresses, whichever page causes the request. It
//! declares the origin of a request in `Origin` and `Sec-Fetch-Site` (W3C Fetch Metadata); other programs send
//! neither.

use std::net::IpAddr;

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{HOST, ORIGIN},
    uri::Authority,
};
use url::{Host, Origin, Url};

use super::{Problem, ProblemCode};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Maximum length of a host name in an error message, in characters.
const MAX_LOGGED_HOST: usize = 100;

/// Host name of the gateway, in lower case and without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// Parses a name; `None` for an IP address, a URL or a name with a port.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match Host::parse(text).ok()? {
            Host::Domain(name) => Some(Self(name.trim_end_matches('.').to_owned())).filter(|name| !name.0.is_empty()),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }
}

/// The gateway's own URLs and host names, as a browser sees them.
#[derive(Clone, Debug, Default)]
pub struct OwnSite {
    /// Origins of the configured URLs of the gateway.
    origins: Vec<Origin>,
    /// Host names of the gateway, in addition to IP addresses and names of the loopback interface.
    hosts: Vec<HostName>,
    /// `true` if connections to the gateway are encrypted.
    encrypted: bool,
    /// `true` if requests for other hosts are refused.
    checks_host: bool,
}

/// Reason why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForeignSite {
    /// A page of another site made a browser send the request.
    CrossSite,
    /// The request names an unknown host.
    Host(String),
}

impl OwnSite {
    /// Creates the site of a gateway with these URLs and additional host names. With `checks_host`, requests for
    /// other hosts are refused. A gateway without access control needs this: otherwise, if a host name of another
    /// site resolves to the gateway, that site's pages have the same origin as the gateway.
    #[must_use]
    pub fn new(urls: &[&str], hosts: &[HostName], encrypted: bool, checks_host: bool) -> Self {
        let urls: Vec<_> = urls.iter().filter_map(|url| Url::parse(url).ok()).collect();
        let names = urls.iter().filter_map(|url| HostName::parse(url.host_str()?));
        let hosts = names.chain(hosts.iter().cloned()).collect();
        Self { origins: urls.iter().map(Url::origin).collect(), hosts, encrypted, checks_host }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Checks the method, URL and headers of a request.
    pub(super) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ForeignSite> {
        if self.checks_host {
            self.check_host(uri, headers)?;
        }
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) || self.is_same_site(headers) {
            Ok(())
        } else {
            Err(ForeignSite::CrossSite)
        }
    }

    /// Checks all hosts that a request names, in the absolute form of its target and in `Host`. A request of HTTP/1.0
    /// without `Host` is from no browser.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ForeignSite> {
        let foreign =
            |host: &[u8]| ForeignSite::Host(String::from_utf8_lossy(host).chars().take(MAX_LOGGED_HOST).collect());
        if let Some(authority) = uri.authority().filter(|authority| !self.is_own(authority.host())) {
            return Err(foreign(authority.as_str().as_bytes()));
        }
        let is_foreign = |host: &&HeaderValue| !host_of(host).is_some_and(|authority| self.is_own(authority.host()));
        headers.get_all(HOST).iter().find(is_foreign).map_or(Ok(()), |host| Err(foreign(host.as_bytes())))
    }

    /// Returns `true` for a host name of the gateway. All IP addresses are accepted, because another site cannot
    /// redirect them.
    fn is_own(&self, host: &str) -> bool {
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host == "localhost" || address.parse::<IpAddr>().is_ok() {
            return true;
        }
        match Host::parse(host) {
            Ok(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                // RFC 6761 section 6.3: these names resolve to the loopback interface.
                let is_loopback = name == "localhost" || name.ends_with(".localhost");
                is_loopback || self.hosts.iter().any(|own| own.0 == name)
            }
            Ok(Host::Ipv4(_) | Host::Ipv6(_)) => true,
            Err(_) => false,
        }
    }

    /// Returns `true` if a page of the gateway, or no page, caused a request with these headers.
    fn is_same_site(&self, headers: &HeaderMap) -> bool {
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
        let mut origins = headers.get_all(ORIGIN).iter();
        sites.all(|site| site == "same-origin" || site == "none")
            && origins.all(|origin| self.is_own_origin(origin, headers))
    }

    /// Returns `true` if an origin is that of one of the gateway's URLs or of the host that the request names.
    fn is_own_origin(&self, origin: &HeaderValue, headers: &HeaderMap) -> bool {
        let Some(origin) = origin.to_str().ok().and_then(|origin| Url::parse(origin).ok()) else { return false };
        let origin = origin.origin();
        if self.origins.contains(&origin) {
            return true;
        }
        let Some(host) = headers.get(HOST).and_then(host_of).filter(|host| self.is_own(host.host())) else {
            return false;
        };
        // A proxy in front of a gateway without TLS may use TLS.
        let schemes = if self.encrypted { &["https"][..] } else { &["http", "https"] };
        schemes.iter().any(|scheme| Url::parse(&format!("{scheme}://{host}")).is_ok_and(|own| own.origin() == origin))
    }
}

/// Parses the host and port of a `Host` header; `None` if it contains anything else.
fn host_of(field: &HeaderValue) -> Option<Authority> {
    Authority::try_from(field.as_bytes()).ok().filter(|authority| !authority.as_str().contains('@'))
}

impl ForeignSite {
    /// Returns the reason for the log.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::CrossSite => "a page of another site made a browser send the request".to_owned(),
            Self::Host(host) => format!("the request is for the host {host:?}"),
        }
    }

    /// Returns the problem for the client.
    pub(super) fn problem(&self) -> Problem {
        match self {
            Self::CrossSite => Problem::new(
                ProblemCode::CrossSiteRequest,
                "According to Sec-Fetch-Site or Origin, a page of another site made the browser send this request. Send it \
                 from a page of the gateway, or without these headers. If the page belongs to the gateway, set \
                 server.public_url in the configuration to the URL that the browser shows.",
            ),
            Self::Host(host) => Problem::new(
                ProblemCode::MisdirectedRequest,
                format!(
                    "The request is for the host {host:?}. Without access control, the gateway only accepts IP addresses, \
                     localhost and the names in its configuration. Add the name to server.hosts, or use it in \
                     server.public_url."
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ForeignSite, HeaderMap, HeaderName, HeaderValue, HostName, Method, OwnSite, Uri};

    fn site(checks_host: bool) -> OwnSite {
        let urls = ["https://tidings.example.org/path", "http://127.0.0.1:8080"];
        OwnSite::new(&urls, &[HostName::parse("Gateway").unwrap()], false, checks_host)
    }

    fn check(site: &OwnSite, method: &Method, target: &str, fields: &[(&str, &str)]) -> Result<(), ForeignSite> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        site.check(method, &target.parse::<Uri>().unwrap(), &headers)
    }

    #[test]
    fn foreign_hosts_are_refused() {
        let open = site(true);
        for own in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "[::1]:8080",
            "[::1]",
            "[::ffff:127.0.0.1]:1",
            "192.0.2.7:80",
            "127.1",
            "localhost",
            "LOCALHOST:9",
            "localhost.",
            "tidings.localhost:8080",
            "tidings.example.org",
            "Tidings.Example.ORG.:443",
            "gateway:8080",
        ] {
            assert_eq!(check(&open, &Method::GET, "/feed", &[("host", own)]), Ok(()), "{own}");
            assert_eq!(check(&open, &Method::GET, &format!("http://{own}/feed"), &[]), Ok(()), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "tidings.example.org.evil.example",
            "nottidings.example.org",
            "127.0.0.1.evil.example",
            "evil.example@127.0.0.1",
            "127.0.0.1@evil.example",
            "127.0.0.1, evil.example",
            "http://127.0.0.1",
            "[::1",
            "",
        ] {
            let refused = check(&open, &Method::GET, "/feed", &[("host", foreign)]);
            assert!(matches!(refused, Err(ForeignSite::Host(_))), "{foreign}: {refused:?}");
            assert_eq!(check(&site(false), &Method::GET, "/feed", &[("host", foreign)]), Ok(()), "{foreign}");
        }
        let two = [("host", "127.0.0.1"), ("host", "evil.example")];
        assert_eq!(check(&open, &Method::GET, "/", &two), Err(ForeignSite::Host("evil.example".to_owned())));
        let absolute = check(&open, &Method::GET, "http://evil.example:8080/feed", &[("host", "127.0.0.1")]);
        assert_eq!(absolute, Err(ForeignSite::Host("evil.example:8080".to_owned())));
        assert_eq!(check(&open, &Method::GET, "/feed", &[]), Ok(()), "HTTP/1.0 needs no Host");
    }

    #[test]
    fn only_same_site_pages_may_post() {
        let host = ("host", "127.0.0.1:8080");
        let posts: [(&[(&str, &str)], bool); 20] = [
            (&[host], true),
            (&[host, ("sec-fetch-site", "same-origin")], true),
            (&[host, ("sec-fetch-site", "none")], true),
            (&[host, ("sec-fetch-site", "same-site")], false),
            (&[host, ("sec-fetch-site", "cross-site")], false),
            (&[host, ("sec-fetch-site", "")], false),
            (&[host, ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")], false),
            (&[host, ("origin", "http://127.0.0.1:8080")], true),
            (&[host, ("origin", "https://tidings.example.org")], true),
            (&[("host", "localhost:8080"), ("origin", "http://localhost:8080")], true),
            (&[("host", "gateway"), ("origin", "https://gateway")], true),
            (&[("host", "evil.example"), ("origin", "http://evil.example")], false),
            (&[host, ("origin", "http://127.0.0.1:9090")], false),
            (&[host, ("origin", "http://tidings.example.org")], false),
            (&[host, ("origin", "https://evil.example")], false),
            (&[host, ("origin", "null")], false),
            (&[host, ("origin", "")], false),
            (&[host, ("origin", "http://127.0.0.1:8080"), ("origin", "null")], false),
            (&[host, ("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")], false),
            (&[host, ("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "cross-site")], false),
        ];
        for (fields, is_own) in posts {
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
                let expected = if is_own { Ok(()) } else { Err(ForeignSite::CrossSite) };
                assert_eq!(check(&site(false), &method, "/hub", fields), expected, "{method} {fields:?}");
            }
            for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
                assert_eq!(check(&site(false), &method, "/feed", fields), Ok(()), "{method} {fields:?}");
            }
        }
        let encrypted = OwnSite::new(&["https://127.0.0.1:8443"], &[], true, true);
        let plain = [("host", "localhost:8443"), ("origin", "http://localhost:8443")];
        assert_eq!(check(&encrypted, &Method::POST, "/hub", &plain), Err(ForeignSite::CrossSite));
    }

    #[test]
    fn invalid_host_names_are_rejected() {
        for wrong in ["", ".", "127.0.0.1", "[::1]", "http://gateway", "gateway:8080", "gate way", "gateway/"] {
            assert_eq!(HostName::parse(wrong), None, "{wrong}");
        }
        assert_eq!(HostName::parse("Gateway.Internal."), Some(HostName("gateway.internal".to_owned())));
    }
}
