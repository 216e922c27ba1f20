//! Parsed URL of an AMQP broker.

use std::fmt;

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};

use super::frames::LARGEST_FRAME;
use crate::broker::{Endpoint, InvalidEndpoint, Schemes};

/// Default user and password of RabbitMQ, which accepts them only from its own host.
const GUEST: &str = "guest";

/// Default virtual host.
const DEFAULT_VHOST: &str = "/";

static SCHEMES: Schemes = Schemes {
    plain: &["amqp"],
    encrypted: &["amqps"],
    port: 5672,
    encrypted_port: 5671,
    neither: "is neither amqp nor amqps",
};

/// URL of a broker: `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps` for TLS.
///
/// Its display form has no password.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerUrl(Endpoint);

/// Reason why a text is no URL of a broker. The message does not repeat the text, which may contain a
/// password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; use one such as amqp://user:password@broker.example.org:5672/%2f")]
pub struct InvalidBrokerUrl(InvalidEndpoint);

impl BrokerUrl {
    /// Parses a URL. The default port is 5672, or 5671 with TLS. The default virtual host is `/`, and the
    /// default user and password are `guest`.
    ///
    /// # Errors
    /// Fails if the text is no such URL.
    pub fn parse(text: &str) -> Result<Self, InvalidBrokerUrl> {
        let endpoint = Endpoint::parse(text, &SCHEMES).map_err(InvalidBrokerUrl)?;
        let endpoint = endpoint.or(GUEST, GUEST, DEFAULT_VHOST);
        // AMQP 0-9-1 encodes the name as a short string.
        if endpoint.vhost().is_some_and(|vhost| vhost.len() > 255) {
            return Err(InvalidBrokerUrl(InvalidEndpoint("has a virtual host of more than 255 bytes")));
        }
        Ok(Self(endpoint))
    }

    /// True if the connection uses TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.0.is_encrypted()
    }

    /// Returns the host name or IP address. An IPv6 address has no brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.host()
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Returns the parts of the URL that all broker protocols share.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.0
    }

    /// Converts the URL to the library's type. It contains the password and must not be logged.
    pub(super) fn to_uri(&self, heartbeat_seconds: u16) -> AMQPUri {
        let password = self.0.password().map(|password| String::from_utf8_lossy(password.expose()).into_owned());
        AMQPUri {
            scheme: if self.is_encrypted() { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: self.0.user().unwrap_or(GUEST).to_owned(),
                    password: password.unwrap_or_default(),
                },
                host: self.host().to_owned(),
                port: self.port(),
            },
            vhost: self.0.vhost().unwrap_or(DEFAULT_VHOST).to_owned(),
            query: AMQPQueryString {
                frame_max: u32::try_from(LARGEST_FRAME).ok(),
                heartbeat: Some(heartbeat_seconds),
                ..AMQPQueryString::default()
            },
        }
    }
}

/// Writes the URL without its password.
impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{BrokerUrl, InvalidBrokerUrl};
    use crate::broker::InvalidEndpoint;

    fn display(text: &str) -> String {
        BrokerUrl::parse(text).unwrap().to_string()
    }

    #[test]
    fn missing_parts_have_the_defaults_of_a_broker() {
        assert_eq!(display("amqp://h"), "amqp://guest@h:5672/%2F");
        assert_eq!(display("amqps://h"), "amqps://guest@h:5671/%2F");
        assert_eq!(BrokerUrl::parse("amqp://h").unwrap(), BrokerUrl::parse("amqp://guest:guest@h:5672/%2f").unwrap());
    }

    #[test]
    fn every_part_is_decoded_and_the_password_is_not_shown() {
        let broker_url = BrokerUrl::parse("amqp://me%40x:hush%2f@[::1]:7/a%20b").unwrap();
        assert_eq!(broker_url.to_string(), "amqp://me%40x@[::1]:7/a%20b");
        assert_eq!(format!("{broker_url:?}"), broker_url.to_string());
        let uri = broker_url.to_uri(5);
        assert_eq!((uri.authority.host.as_str(), uri.vhost.as_str()), ("::1", "a b"));
        assert_eq!(uri.authority.userinfo.username, "me@x");
        assert_eq!(uri.authority.userinfo.password, "hush/");
        // A numeric address is a valid host, although the scheme is not special for URL parsers.
        assert_eq!(BrokerUrl::parse("amqp://127.0.0.1:1").unwrap().host(), "127.0.0.1");
    }

    #[test]
    fn invalid_url_is_refused_without_being_repeated() {
        for (text, reason) in [
            ("hush", "is not a URL (percent-encode / : and @ in user and password: %2f, %3a, %40)"),
            ("http://me:hush@h", "is neither amqp nor amqps"),
            ("amqp:///hush", "has no host"),
            ("amqp://me@h", "has a user without a password"),
            ("amqp://:hush@h", "has a password without a user"),
            ("amqp://me:hush@h/", "ends in a slash: leave it out, or name the virtual host / by /%2f"),
            (
                "amqp://me:hu@sh/x@h/v",
                "has an @ behind the host: percent-encode / : and @ in user and password (%2f, %3a, %40)",
            ),
            ("amqp://me:hush@h//", "has a slash in its virtual host: write it as %2f"),
            ("amqp://me:hush@h/a/b", "has a slash in its virtual host: write it as %2f"),
            ("amqp://me:hush@h/a?heartbeat=1", "has a query or a fragment, which a broker does not support"),
            ("amqp://me:%ff@h", "is not UTF-8 where it is percent-encoded"),
        ] {
            assert_eq!(BrokerUrl::parse(text), Err(InvalidBrokerUrl(InvalidEndpoint(reason))), "{text}");
        }
    }
}
