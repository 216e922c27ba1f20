//! Where a broker is and who asks: the URL of the configuration, taken apart.

use std::fmt;

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::web::Secret;

/// The user and the password of a broker as it is installed; it lets them in from its own machine alone.
const GUEST: &str = "guest";

/// The virtual host of a broker as it is installed.
const DEFAULT_VHOST: &str = "/";

/// The address of a broker: `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps` for TLS.
///
/// It prints without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    tls: bool,
    host: String,
    port: u16,
    user: String,
    password: Secret,
    vhost: String,
}

/// Why a text is no address of a broker. It does not repeat the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it {0}; give an address as in amqp://user:password@broker.example.org:5672/%2f")]
pub struct InvalidAddress(&'static str);

impl Address {
    /// Takes an address. The port is 5672 where none is given, 5671 with TLS; the virtual host is `/`;
    /// user and password are `guest`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let url = Url::parse(text.trim()).map_err(|_| InvalidAddress("is not a URL"))?;
        let tls = match url.scheme() {
            "amqp" => false,
            "amqps" => true,
            _ => return Err(InvalidAddress("is neither amqp nor amqps")),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(InvalidAddress("has no host"))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(InvalidAddress("has a query or a fragment, and neither means anything here"));
        }
        let (user, password) = match (url.username(), url.password()) {
            ("", None) => (GUEST.to_owned(), GUEST.to_owned()),
            ("", Some(_)) => return Err(InvalidAddress("has a password without a user")),
            (_, None) => return Err(InvalidAddress("has a user without a password")),
            (user, Some(password)) => (decoded(user)?, decoded(password)?),
        };
        let vhost = match url.path() {
            "" => DEFAULT_VHOST.to_owned(),
            "/" => return Err(InvalidAddress("ends in a slash: leave it out, or name the virtual host / by /%2f")),
            path => match path.strip_prefix('/').unwrap_or(path) {
                name if name.contains('/') => {
                    return Err(InvalidAddress("has a slash in its virtual host: write it as %2f"));
                }
                name => decoded(name)?,
            },
        };
        // AMQP 0-9-1 carries the name in a short string.
        if vhost.len() > 255 {
            return Err(InvalidAddress("has a virtual host of more than 255 bytes"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port().unwrap_or(if tls { 5671 } else { 5672 });
        Ok(Self { tls, host, port, user, password: Secret::new(password), vhost })
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// The name or IP address of the host; an IPv6 address stands without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The library's form of it, with the password: it must not be printed.
    pub(super) fn to_uri(&self, heartbeat_seconds: u16) -> AMQPUri {
        AMQPUri {
            scheme: if self.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: self.user.clone(),
                    password: String::from_utf8_lossy(self.password.expose()).into_owned(),
                },
                host: self.host.clone(),
                port: self.port,
            },
            vhost: self.vhost.clone(),
            query: AMQPQueryString { heartbeat: Some(heartbeat_seconds), ..AMQPQueryString::default() },
        }
    }
}

fn decoded(part: &str) -> Result<String, InvalidAddress> {
    let text = percent_decode_str(part).decode_utf8();
    text.map(std::borrow::Cow::into_owned).map_err(|_| InvalidAddress("is not UTF-8 where it is percent-encoded"))
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tls, host, port, user, vhost, .. } = self;
        let scheme = if *tls { "amqps" } else { "amqp" };
        let encoded = |part| percent_encoding::utf8_percent_encode(part, percent_encoding::NON_ALPHANUMERIC);
        let (user, vhost) = (encoded(user), encoded(vhost));
        if host.contains(':') {
            write!(f, "{scheme}://{user}@[{host}]:{port}/{vhost}")
        } else {
            write!(f, "{scheme}://{user}@{host}:{port}/{vhost}")
        }
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
            assert_eq!(Address::parse(text), Err(InvalidAddress(told)), "{text}");
        }
    }
}
