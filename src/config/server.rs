//! `[server]` and `[delivery]`: how readers reach the gateway, and where it may send requests.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::value::{Allowed, FilePath, Host, ListenAddress};
use crate::settings::{Flag, List, Seconds, TextType, settings};

settings! {
    /// `[server]`: socket address, public URL, TLS and shutdown of the gateway.
    #[derive(Clone, Debug)]
    pub struct ServerConfig {
        /// Socket address to listen on; port 0 selects a free port.
        pub listen: ListenAddress,
        /// URL at which readers reach the gateway, if it differs from `listen`.
        pub public_url: Option<PublicUrl>,
        /// Additional host names at which the gateway is reached, besides the host of `public_url`.
        pub hosts: List<Host>,
        /// Maximum time to stop, 1 to 600 seconds.
        pub grace as "grace_seconds": Seconds<1, 600>,
        /// Time without a change after which a stream sends a comment, 1 to 3600 seconds.
        pub heartbeat as "heartbeat_seconds": Seconds<1, 3600>,
        /// Whether a public socket address is allowed without access control.
        pub insecure: Flag,
        /// `[server.tls]`: certificate and key. Without them, connections are not encrypted.
        pub tls: Option<TlsFiles>,
    }
}

settings! {
    /// `[server.tls]`: certificate and key, as PEM files.
    #[derive(Clone, Debug)]
    pub struct TlsFiles {
        /// Certificate, followed by its intermediate certificates.
        pub certificate: FilePath,
        /// Private key of the certificate.
        pub key: FilePath,
    }
}

settings! {
    /// `[delivery]`: settings that apply to all subscriptions.
    #[derive(Clone, Debug)]
    pub struct DeliveryTable {
        /// Targets outside the public internet that subscriptions may have if they are created over HTTP.
        pub allow: Allowed,
    }
}

impl ServerConfig {
    /// Returns the URL of a gateway that listens on `bound`.
    #[must_use]
    pub fn url_at(&self, bound: SocketAddr) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{bound}")
    }

    /// Returns the URL at which programs on this machine reach the gateway.
    #[must_use]
    pub fn url_on_this_machine(&self) -> String {
        self.url_at(reachable(self.listen))
    }

    /// Returns the URL at which readers reach the gateway when it listens on `bound`.
    #[must_use]
    pub fn public_url_at(&self, bound: SocketAddr) -> PublicUrl {
        self.public_url.clone().unwrap_or_else(|| PublicUrl(self.url_at(reachable(bound))))
    }

    /// Returns whether links in feeds and responses are unusable on other machines. This is so when the gateway
    /// listens on all IP addresses, because it cannot know which of them readers use.
    #[must_use]
    pub fn lacks_public_url(&self) -> bool {
        self.public_url.is_none() && self.listen.ip().to_canonical().is_unspecified()
    }
}

/// Returns the socket address at which this machine reaches a listener on `bound`. It replaces `0.0.0.0` and `::`,
/// because they mean all IP addresses and cannot be connected to.
fn reachable(mut bound: SocketAddr) -> SocketAddr {
    if bound.ip().to_canonical().is_unspecified() {
        bound.set_ip(if bound.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    bound
}

/// URL at which readers reach the gateway: `http` or `https`, a host and an optional path. It has no trailing slash, so
/// that paths can be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Returns the URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The errors do not repeat the text, because it may contain a password by mistake.
impl TextType for PublicUrl {
    type Value = Self;

    fn parse(text: &str) -> Result<Self, String> {
        let invalid = |reason: &str| format!("it {reason}; give a URL as in https://tidings.example.org");
        let url = url::Url::parse(text).map_err(|_| invalid("is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("is neither http nor https"));
        }
        let is_plain =
            url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
        if !is_plain {
            return Err(invalid("has a user, a query or a fragment"));
        }
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }
}
