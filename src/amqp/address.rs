//! Where a broker is and who asks: the URL of the configuration, taken apart.

use std::fmt;

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};

use super::frames::LARGEST_FRAME;
use crate::broker::{Endpoint, InvalidEndpoint, Schemes};

/// The user and the password of a broker as it is installed; it lets them in from its own machine alone.
const GUEST: &str = "guest";

/// The virtual host of a broker as it is installed.
const DEFAULT_VHOST: &str = "/";

static SCHEMES: Schemes = Schemes {
    plain: &["amqp"],
    encrypted: &["amqps"],
    port: 5672,
    encrypted_port: 5671,
    neither: "is neither amqp nor amqps",
};

/// The address of a broker: `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps` for TLS.
///
/// It prints without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Endpoint);

/// Why a text is no address of a broker. It does not repeat the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; give an address as in amqp://user:password@broker.example.org:5672/%2f")]
pub struct InvalidAddress(InvalidEndpoint);

impl Address {
    /// Takes an address. The port is 5672 where none is given, 5671 with TLS; the virtual host is `/`;
    /// user and password are `guest`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let endpoint = Endpoint::parse(text, &SCHEMES).map_err(InvalidAddress)?;
        let endpoint = endpoint.or(GUEST, GUEST, DEFAULT_VHOST);
        // AMQP 0-9-1 carries the name in a short string.
        if endpoint.vhost().is_some_and(|vhost| vhost.len() > 255) {
            return Err(InvalidAddress(InvalidEndpoint("has a virtual host of more than 255 bytes")));
        }
        Ok(Self(endpoint))
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.0.is_encrypted()
    }

    /// The name or IP address of the host; an IPv6 address stands without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.host()
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// The parts of the address that it shares with those of other protocols.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.0
    }

    /// The library's form of it, with the password: it must not be printed.
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

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, InvalidAddress};
    use crate::broker::InvalidEndpoint;

    fn shown(text: &str) -> String {
        Address::parse(text).unwrap().to_string()
    }

    #[test]
    fn what_is_left_out_is_as_a_broker_is_installed() {
        assert_eq!(shown("amqp://h"), "amqp://guest@h:5672/%2F");
        assert_eq!(shown("amqps://h"), "amqps://guest@h:5671/%2F");
        assert_eq!(Address::parse("amqp://h").unwrap(), Address::parse("amqp://guest:guest@h:5672/%2f").unwrap());
    }

    #[test]
    fn every_part_is_decoded_and_the_password_is_not_shown() {
        let address = Address::parse("amqp://me%40x:hush%2f@[::1]:7/a%20b").unwrap();
        assert_eq!(address.to_string(), "amqp://me%40x@[::1]:7/a%20b");
        assert_eq!(format!("{address:?}"), address.to_string());
        let uri = address.to_uri(5);
        assert_eq!((uri.authority.host.as_str(), uri.vhost.as_str()), ("::1", "a b"));
        assert_eq!(uri.authority.userinfo.username, "me@x");
        assert_eq!(uri.authority.userinfo.password, "hush/");
        // An address as a number is a host too, though the scheme is none that URLs know.
        assert_eq!(Address::parse("amqp://127.0.0.1:1").unwrap().host(), "127.0.0.1");
    }

    #[test]
    fn what_is_none_is_refused_without_being_repeated() {
        for (text, told) in [
            ("hush", "is not a URL"),
            ("http://me:hush@h", "is neither amqp nor amqps"),
            ("amqp:///hush", "has no host"),
            ("amqp://me@h", "has a user without a password"),
            ("amqp://:hush@h", "has a password without a user"),
            ("amqp://me:hush@h/", "ends in a slash: leave it out, or name the virtual host / by /%2f"),
            ("amqp://me:hush@h//", "has a slash in its virtual host: write it as %2f"),
            ("amqp://me:hush@h/a/b", "has a slash in its virtual host: write it as %2f"),
            ("amqp://me:hush@h/a?heartbeat=1", "has a query or a fragment, and neither means anything here"),
            ("amqp://me:%ff@h", "is not UTF-8 where it is percent-encoded"),
        ] {
            assert_eq!(Address::parse(text), Err(InvalidAddress(InvalidEndpoint(told))), "{text}");
        }
    }
}
