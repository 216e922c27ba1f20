//! URLs of outgoing requests, and the policy for their targets.
//!
//! A user who can set a URL could make the gateway send requests to any host that it reaches: its own host,
//! the network behind the firewall, or the metadata service of its cloud. So a URL that is not from the
//! operator's configuration must lead to the public internet over TLS, or to a host that the operator has
//! listed.

mod names;

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use self::names::{is_local, is_private_name, looks_like_token, registrable};
use super::{allow::AllowList, ip_ranges};
use crate::web::Secret;

/// Maximum length of a URL that a person sets, in bytes.
const LONGEST: usize = 2048;

/// Maximum length of a URL that a server chooses, in bytes: a signed URL with the credentials of a role has some thousands.
const LONGEST_OF_SERVER: usize = 16 << 10;

/// Minimum length of a query value that counts as a secret, in bytes.
const SHORTEST_SECRET: usize = 4;

/// Replacement for a query in the display form.
const HIDDEN: &str = "(hidden)";

/// Policy for the targets of outgoing requests. Clones share the allow list.
#[derive(Clone, Debug)]
pub struct OutboundPolicy {
    /// Targets that are always allowed; `None` if all are.
    allow: Option<Arc<AllowList>>,
    /// Whether requests to other targets must be encrypted.
    is_encryption_required: bool,
}

/// Reason why the policy refuses a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// The request would not be encrypted.
    #[error("it is not encrypted; use https:// (for a broker: amqps://), or list its host in delivery.allow")]
    Unencrypted,
    /// The address is no public internet host.
    #[error("it leads to {address}, which is {what}; if that is intended, list it in delivery.allow")]
    Special {
        /// The address.
        address: IpAddr,
        /// Purpose of the address.
        what: &'static str,
    },
    /// The host is the gateway itself.
    #[error("it leads to the host of the gateway itself; if that is intended, list {0} in delivery.allow")]
    Local(String),
}

/// Reason why a text is no URL for outgoing requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutboundUrl {
    /// The text cannot be parsed. The message does not repeat it, because it may contain a password.
    #[error("it is not a URL; use one such as https://indexer.example.org/changes")]
    Unreadable,
    /// The URL is too long.
    #[error("it has more than {0} bytes")]
    TooLong(usize),
    /// The scheme is not HTTP.
    #[error("it begins with neither https:// nor http://")]
    Scheme,
    /// The URL has a fragment, which is never sent.
    #[error("it has a fragment (#), which is never sent; leave that out")]
    Fragment,
    /// A path after a URL does not begin with a slash.
    #[error("the path does not begin with a slash (/)")]
    RelativePath,
    /// A path after a URL leads out of it, by `..`.
    #[error("the path leads out of the path of the URL")]
    Outside,
    /// The policy refuses the target.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
}

impl NotAllowed {
    /// Returns the reason for everybody. A partner who names a host must not learn where that name leads inside this network,
    /// so the log alone says that.
    pub(super) fn for_everybody(&self) -> String {
        match self {
            Self::Unencrypted => self.to_string(),
            Self::Special { .. } | Self::Local(_) => {
                tracing::info!(reason = %self, "the address of a partner is not allowed");
                "the address is not allowed".to_owned()
            }
        }
    }
}

impl InvalidOutboundUrl {
    /// Returns the reason for texts that everybody can read, such as changes and results. It does not say where a name leads;
    /// the log says that.
    #[must_use]
    pub fn for_everybody(&self) -> String {
        match self {
            Self::NotAllowed(refusal) => refusal.for_everybody(),
            other => other.to_string(),
        }
    }
}

/// A URL for outgoing requests, checked as far as possible before name resolution.
///
/// Its display form has no user, password or query, because these may be credentials.
#[derive(Clone)]
pub struct OutboundUrl(Url);

impl OutboundPolicy {
    /// Returns whether both are the same policy, so that one client can serve both.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let is_same_list = match (&self.allow, &other.allow) {
            (None, None) => true,
            (Some(list), Some(other)) => Arc::ptr_eq(list, other),
            _ => false,
        };
        is_same_list && self.is_encryption_required == other.is_encryption_required
    }

    /// Returns the policy for URLs from the operator's configuration: all targets are allowed.
    #[must_use]
    pub fn unrestricted() -> Self {
        Self { allow: None, is_encryption_required: false }
    }

    /// Returns the policy for the origin of a URL from the operator's configuration, where `self` is the one for other
    /// URLs.
    ///
    /// All targets are allowed if nobody else can change where the URL leads: it has an IP address, or a name that no
    /// outsider can own, or the certificate of the server proves its name. Otherwise the owner of the name could later
    /// lead it to the inside, so its addresses must be public or listed.
    #[must_use]
    pub fn for_configured(&self, url: &Url) -> Self {
        let is_fixed = match url.host() {
            Some(Host::Domain(name)) => url.scheme() == "https" || is_private_name(name),
            Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => true,
        };
        if is_fixed { Self::unrestricted() } else { self.clone() }
    }

    /// Returns the policy for all other URLs: the public internet over TLS, and the targets in `allow`.
    #[must_use]
    pub fn restricted(allow: AllowList) -> Self {
        Self { allow: Some(Arc::new(allow)), is_encryption_required: true }
    }

    /// Returns the policy for public files that are only read: the public internet, and the targets in `allow`. Many
    /// repositories have no TLS.
    #[must_use]
    pub fn public_files(allow: AllowList) -> Self {
        Self { allow: Some(Arc::new(allow)), is_encryption_required: false }
    }

    /// Checks a URL before name resolution.
    ///
    /// # Errors
    /// Fails if the target is refused, whatever its name resolves to.
    pub fn check(&self, url: &Url) -> Result<(), NotAllowed> {
        url.host().map_or(Ok(()), |host| self.check_host(&host, url.scheme() == "https"))
    }

    /// Checks a host of another protocol than HTTP before name resolution. An IPv6 address has no brackets.
    ///
    /// # Errors
    /// Fails if the target is refused, whatever its name resolves to.
    pub fn check_named(&self, host: &str, is_encrypted: bool) -> Result<(), NotAllowed> {
        match host.parse().map_or_else(|_| Host::parse(host), |ip| Ok(ip_host(ip))) {
            Ok(host) => self.check_host(&host, is_encrypted),
            // An invalid host name has no address either.
            Err(_) => Ok(()),
        }
    }

    fn check_host(&self, host: &Host<impl AsRef<str>>, is_encrypted: bool) -> Result<(), NotAllowed> {
        let Some(allow) = &self.allow else { return Ok(()) };
        let name = match host {
            Host::Ipv4(ip) => return self.check_address("", (*ip).into(), is_encrypted),
            Host::Ipv6(ip) => return self.check_address("", (*ip).into(), is_encrypted),
            Host::Domain(name) => name.as_ref(),
        };
        // With listed networks, the name may resolve to an allowed address; that is checked after resolution.
        if allow.has_name(name) || allow.has_networks() {
            Ok(())
        } else if self.is_encryption_required && !is_encrypted {
            Err(NotAllowed::Unencrypted)
        } else if is_local(name) {
            Err(NotAllowed::Local(name.to_owned()))
        } else {
            Ok(())
        }
    }

    /// Returns the addresses of a host that the policy allows.
    ///
    /// # Errors
    /// If none is allowed: the reason for the first one.
    pub(super) fn allowed(
        &self,
        host: &str,
        addresses: Vec<IpAddr>,
        is_encrypted: bool,
    ) -> Result<Vec<IpAddr>, NotAllowed> {
        let mut first_refusal = None;
        let mut allowed = Vec::new();
        for address in addresses {
            match self.check_address(host, address, is_encrypted) {
                Ok(()) => allowed.push(address),
                Err(error) => {
                    tracing::debug!(host, %address, reason = %error, "the outbound policy refuses an address of a host");
                    first_refusal.get_or_insert(error);
                }
            }
        }
        match first_refusal {
            Some(first_refusal) if allowed.is_empty() => Err(first_refusal),
            _ => Ok(allowed),
        }
    }

    fn check_address(&self, host: &str, address: IpAddr, is_encrypted: bool) -> Result<(), NotAllowed> {
        let Some(allow) = &self.allow else { return Ok(()) };
        if allow.has_name(host) || allow.has_address(address) {
            return Ok(());
        }
        match ip_ranges::special_purpose(address) {
            Some(what) => Err(NotAllowed::Special { address, what }),
            None if self.is_encryption_required && !is_encrypted => Err(NotAllowed::Unencrypted),
            None => Ok(()),
        }
    }
}

fn ip_host(ip: IpAddr) -> Host {
    match ip {
        IpAddr::V4(ip) => Host::Ipv4(ip),
        IpAddr::V6(ip) => Host::Ipv6(ip),
    }
}

impl OutboundUrl {
    /// Parses a URL and checks it before name resolution.
    ///
    /// # Errors
    /// Fails if the text is no HTTP URL, or the policy refuses the target. No error repeats the text.
    pub fn parse(text: &str, policy: &OutboundPolicy) -> Result<Self, InvalidOutboundUrl> {
        Self::parse_within(text, policy, LONGEST)
    }

    /// Parses a URL that a server has chosen, as in a redirection or a list, which may be longer than one that people set.
    ///
    /// # Errors
    /// In the cases of [`OutboundUrl::parse`].
    pub fn of_server(text: &str, policy: &OutboundPolicy) -> Result<Self, InvalidOutboundUrl> {
        Self::parse_within(text, policy, LONGEST_OF_SERVER)
    }

    fn parse_within(text: &str, policy: &OutboundPolicy, longest: usize) -> Result<Self, InvalidOutboundUrl> {
        if text.len() > longest {
            return Err(InvalidOutboundUrl::TooLong(longest));
        }
        let url = Url::parse(text).map_err(|_| InvalidOutboundUrl::Unreadable)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidOutboundUrl::Scheme);
        }
        if url.fragment().is_some() {
            return Err(InvalidOutboundUrl::Fragment);
        }
        policy.check(&url)?;
        Ok(Self(url))
    }

    /// Returns the whole URL, with its credentials, for the code that connects to it.
    #[must_use]
    pub fn expose(&self) -> &Url {
        &self.0
    }

    /// Returns the URL with more query parameters.
    #[must_use]
    pub fn with_query<'a>(&self, parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut url = self.0.clone();
        url.query_pairs_mut().extend_pairs(parameters);
        Self(url)
    }

    /// Returns the URL with an encoded query after its own query.
    #[must_use]
    pub fn with_encoded_query(&self, query: &str) -> Self {
        let mut url = self.0.clone();
        let own = url.query().filter(|own| !own.is_empty()).map(|own| format!("{own}&{query}"));
        url.set_query(Some(own.as_deref().unwrap_or(query)));
        Self(url)
    }

    /// Returns the URL with a path, and a query if there is one, after its own path. An empty text returns the URL.
    ///
    /// # Errors
    /// Fails if the path does not begin with a slash, leads out of the URL's own path, or makes the URL too long.
    pub fn below(&self, path_and_query: &str) -> Result<Self, InvalidOutboundUrl> {
        if path_and_query.is_empty() {
            return Ok(self.clone());
        }
        let (path, query) = match path_and_query.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path_and_query, None),
        };
        if !path.starts_with('/') {
            return Err(InvalidOutboundUrl::RelativePath);
        }
        let own = self.0.path().trim_end_matches('/');
        let mut url = self.0.clone();
        url.set_path(&format!("{own}{path}"));
        url.set_query(query);
        if !url.path().strip_prefix(own).is_some_and(|rest| rest.starts_with('/')) {
            return Err(InvalidOutboundUrl::Outside);
        }
        if url.as_str().len() > LONGEST_OF_SERVER {
            return Err(InvalidOutboundUrl::TooLong(LONGEST_OF_SERVER));
        }
        Ok(Self(url))
    }

    /// Returns scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }

    /// Returns a key for the owner of the host: an estimate of the registrable domain, an IPv4 address, or the
    /// /64 network of an IPv6 address.
    #[must_use]
    pub fn site(&self) -> String {
        match self.0.host() {
            Some(Host::Domain(name)) => registrable(name).to_owned(),
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => match ip_ranges::effective_address(ip.into()) {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).to_string(),
            },
            None => String::new(),
        }
    }

    /// True if another URL differs at most in its query.
    #[must_use]
    pub fn is_same_without_query(&self, other: &Self) -> bool {
        self.0.origin() == other.0.origin() && self.0.path() == other.0.path()
    }

    /// Returns the parts of the URL that may be credentials: the password, the query and its values, and path
    /// segments that look like tokens. Each is returned as written and decoded. Longer ones come first.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        // A user without a password is a token.
        let password = self.0.password().unwrap_or_else(|| self.0.username());
        let credentials = match self.has_user() {
            false => String::new(),
            true => {
                let password = self.0.password().unwrap_or_default();
                STANDARD.encode(format!("{}:{}", plain(self.0.username()), plain(password)))
            }
        };
        let query = self.0.query().unwrap_or_default();
        let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        let segments = self.0.path().split('/').filter(|segment| looks_like_token(segment));
        // Shorter values are no secrets, and would match in every text.
        let parts =
            values.chain(segments).flat_map(|part| [part.to_owned(), plain(part), plain(&part.replace('+', " "))]);
        let parts = parts.filter(|part| part.len() >= SHORTEST_SECRET);
        let whole_parts = [credentials, password.to_owned(), plain(password), query.to_owned(), plain(query)];
        let mut all: Vec<_> = whole_parts.into_iter().filter(|part| !part.is_empty()).chain(parts).collect();
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        all.into_iter().map(Secret::new).collect()
    }

    /// True if the URL has a user or a password.
    #[must_use]
    pub fn has_user(&self) -> bool {
        !self.0.username().is_empty() || self.0.password().is_some()
    }

    /// True if the URL is the display form of a URL with a query, and not the URL itself.
    #[must_use]
    pub fn is_redacted(&self) -> bool {
        self.0.query() == Some(HIDDEN)
    }
}

impl fmt::Display for OutboundUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.0.path())?;
        if self.0.query().is_some() { write!(f, "?{HIDDEN}") } else { Ok(()) }
    }
}

impl fmt::Debug for OutboundUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
