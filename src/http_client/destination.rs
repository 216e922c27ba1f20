//! Where a request may go.
//!
//! Whoever may tell the gateway an address to send to can have it speak, in its own name, to whatever
//! it reaches: services of its own host, of the network behind the firewall, of the cloud that it runs in. So an
//! address that does not come from the operator's configuration leads to the public internet, encrypted, or to what
//! the operator has listed.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::{address, allow::AllowList};
use crate::web::Secret;

/// The longest address, in bytes.
const LONGEST: usize = 2048;

/// Length of the shortest value of a query that may be a secret, in bytes.
const SHORTEST_SECRET: usize = 4;

/// What is shown in place of a query.
const HIDDEN: &str = "(hidden)";

/// The rule on where requests may go. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Guard(Option<Arc<AllowList>>);

/// Why a request may not go there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// It would not be encrypted.
    #[error(
        "it is not encrypted; give an address that begins with https:// (of a broker: amqps://), or list its host in delivery.allow"
    )]
    Unencrypted,
    /// It leads to no host of the public internet.
    #[error("it leads to {address}, which is {what}; what is meant to be reached there is listed in delivery.allow")]
    Special {
        /// Where it leads.
        address: IpAddr,
        /// What that is.
        what: &'static str,
    },
    /// It leads to the gateway's own host.
    #[error("it leads to the host of the gateway itself; if that is meant, list {0} in delivery.allow")]
    Local(String),
}

/// Why an address is none that a request could go to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDestination {
    /// It cannot be read. It is not repeated: it may have a password.
    #[error("it is not an address; give one as in https://indexer.example.org/changes")]
    Unreadable,
    /// It is too long.
    #[error("it has more than {LONGEST} bytes")]
    TooLong,
    /// It is of another kind.
    #[error("it begins with neither https:// nor http://")]
    Scheme,
    /// It has a fragment, which is never sent.
    #[error("it has a fragment (#), which is never sent; leave that out")]
    Fragment,
    /// It leads where it may not.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
}

/// An address that requests may go to, as far as can be told before its name is looked up.
///
/// It is shown without its user, its password and its query, which may be what lets one in.
#[derive(Clone)]
pub struct Destination(Url);

impl Guard {
    /// For addresses that are the operator's own word: they may lead anywhere.
    #[must_use]
    pub fn of_the_operator() -> Self {
        Self(None)
    }

    /// For all others: they lead to the public internet, encrypted, or to what is listed.
    #[must_use]
    pub fn of_others(allow: AllowList) -> Self {
        Self(Some(Arc::new(allow)))
    }

    /// Whether a request may go to an address, as far as it tells.
    ///
    /// # Errors
    /// When it may not, whatever its name leads to.
    pub fn check(&self, url: &Url) -> Result<(), NotAllowed> {
        url.host().map_or(Ok(()), |host| self.check_host(&host, url.scheme() == "https"))
    }

    /// Checks a host of another protocol than HTTP, as far as its name tells. An IPv6 address has no brackets.
    ///
    /// # Errors
    /// When no connection may go there, whatever the name leads to.
    pub fn check_named(&self, host: &str, is_encrypted: bool) -> Result<(), NotAllowed> {
        match host.parse().map_or_else(|_| Host::parse(host), |ip| Ok(ip_host(ip))) {
            Ok(host) => self.check_host(&host, is_encrypted),
            // A name that is none has no address either.
            Err(_) => Ok(()),
        }
    }

    fn check_host(&self, host: &Host<impl AsRef<str>>, is_encrypted: bool) -> Result<(), NotAllowed> {
        let Some(allow) = &self.0 else { return Ok(()) };
        let name = match host {
            Host::Ipv4(ip) => return self.check_address("", (*ip).into(), is_encrypted),
            Host::Ipv6(ip) => return self.check_address("", (*ip).into(), is_encrypted),
            Host::Domain(name) => name.as_ref(),
        };
        // With networks listed, a name may lead into one of them, which is known when it is resolved.
        if allow.has_name(name) || allow.has_networks() {
            Ok(())
        } else if !is_encrypted {
            Err(NotAllowed::Unencrypted)
        } else if is_local(name) {
            Err(NotAllowed::Local(name.to_owned()))
        } else {
            Ok(())
        }
    }

    /// Of the addresses of a host, those that a request may go to.
    ///
    /// # Errors
    /// When there is none, why not to the first.
    pub(super) fn allowed(
        &self,
        host: &str,
        found: Vec<IpAddr>,
        is_encrypted: bool,
    ) -> Result<Vec<IpAddr>, NotAllowed> {
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in found {
            match self.check_address(host, address, is_encrypted) {
                Ok(()) => allowed.push(address),
                Err(error) => {
                    tracing::debug!(host, %address, reason = %error, "an address of a host is left out");
                    refused.get_or_insert(error);
                }
            }
        }
        match refused {
            Some(refused) if allowed.is_empty() => Err(refused),
            _ => Ok(allowed),
        }
    }

    fn check_address(&self, host: &str, address: IpAddr, is_encrypted: bool) -> Result<(), NotAllowed> {
        let Some(allow) = &self.0 else { return Ok(()) };
        if allow.has_name(host) || allow.has_address(address) {
            return Ok(());
        }
        match address::special(address) {
            Some(what) => Err(NotAllowed::Special { address, what }),
            None if !is_encrypted => Err(NotAllowed::Unencrypted),
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

/// Names that never leave the host (RFC 6761 section 6.3).
fn is_local(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

/// The last two labels of a name; three where the name ends as those below `co.uk` or `ac.at` do.
fn registrable(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    let dots: Vec<_> = name.rmatch_indices('.').map(|(at, _)| at).collect();
    let is_country = dots.first().is_some_and(|last| name.len() - last - 1 == 2);
    let is_short = dots.first().zip(dots.get(1)).is_some_and(|(last, second)| last - second - 1 <= 3);
    let begins = dots.get(if is_country && is_short { 2 } else { 1 });
    begins.map_or(name, |at| &name[at + 1..])
}

/// Whether a segment of a path may be a token: a long one, or one of letters and digits without the look of a word.
fn looks_secret(segment: &str) -> bool {
    let has = |is: fn(char) -> bool| segment.chars().any(is);
    let kinds = [has(|c| c.is_ascii_digit()), has(|c| c.is_ascii_lowercase()), has(|c| c.is_ascii_uppercase())];
    let kinds = kinds.into_iter().filter(|has| *has).count();
    match segment.len() {
        0..8 => false,
        8..20 => kinds >= 2,
        _ => true,
    }
}

impl Destination {
    /// Reads an address, and checks it as far as it tells where it leads.
    ///
    /// # Errors
    /// When it is no address of HTTP, or leads where it may not. No error repeats it.
    pub fn parse(text: &str, guard: &Guard) -> Result<Self, InvalidDestination> {
        if text.len() > LONGEST {
            return Err(InvalidDestination::TooLong);
        }
        let url = Url::parse(text).map_err(|_| InvalidDestination::Unreadable)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidDestination::Scheme);
        }
        if url.fragment().is_some() {
            return Err(InvalidDestination::Fragment);
        }
        guard.check(&url)?;
        Ok(Self(url))
    }

    /// The whole address, for the one place that connects to it.
    #[must_use]
    pub fn expose(&self) -> &Url {
        &self.0
    }

    /// The same address with more parameters behind its query.
    #[must_use]
    pub fn with_query<'a>(&self, parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut url = self.0.clone();
        url.query_pairs_mut().extend_pairs(parameters);
        Self(url)
    }

    /// Scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }

    /// Name or address of the host by which its owner is known: of a name, the part that is registered, as far as that
    /// can be told without a list of registries; of an IPv6 address, its network.
    #[must_use]
    pub fn site(&self) -> String {
        match self.0.host() {
            Some(Host::Domain(name)) => registrable(name).to_owned(),
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => match address::carried(ip.into()) {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).to_string(),
            },
            None => String::new(),
        }
    }

    /// Whether another address differs from this one in its query alone, or in nothing.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.0.origin() == other.0.origin() && self.0.path() == other.0.path()
    }

    /// What of it may be what lets one in: the password, the query and the values in it, and segments of the path that
    /// look like a token; each as it stands in it and decoded. Longer ones come first.
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
        let segments = self.0.path().split('/').filter(|segment| looks_secret(segment));
        // Shorter values are no secrets, and would be found in every text.
        let parts =
            values.chain(segments).flat_map(|part| [part.to_owned(), plain(part), plain(&part.replace('+', " "))]);
        let parts = parts.filter(|part| part.len() >= SHORTEST_SECRET);
        let whole = [credentials, password.to_owned(), plain(password), query.to_owned(), plain(query)];
        let mut all: Vec<_> = whole.into_iter().filter(|part| !part.is_empty()).chain(parts).collect();
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        all.into_iter().map(Secret::new).collect()
    }

    /// Whether it has a user or a password.
    #[must_use]
    pub fn has_user(&self) -> bool {
        !self.0.username().is_empty() || self.0.password().is_some()
    }

    /// Whether it is what is shown of one that has a query, and not the address itself.
    #[must_use]
    pub fn is_as_shown(&self) -> bool {
        self.0.query() == Some(HIDDEN)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.0.path())?;
        if self.0.query().is_some() { write!(f, "?{HIDDEN}") } else { Ok(()) }
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
