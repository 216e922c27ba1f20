//! Parsed URL of a broker.

use std::{borrow::Cow, fmt};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use crate::web::Secret;

/// URL schemes of a protocol, and their default ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schemes {
    /// Schemes without encryption; the first one is used for display.
    pub plain: &'static [&'static str],
    /// Schemes with TLS; the first one is used for display.
    pub encrypted: &'static [&'static str],
    /// Default port without encryption.
    pub port: u16,
    /// Default port with TLS.
    pub encrypted_port: u16,
    /// Error text for a URL with another scheme.
    pub neither: &'static str,
}

/// URL of a broker: `SCHEME://USER:PASSWORD@HOST:PORT/VHOST`.
///
/// Its display form has no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    schemes: &'static Schemes,
    tls: bool,
    host: String,
    port: u16,
    credentials: Option<(String, Secret)>,
    vhost: Option<String>,
}

/// Reason why a text is no URL of a broker. The message does not repeat the text, which may contain a
/// password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it {0}")]
pub struct InvalidEndpoint(pub &'static str);

impl Endpoint {
    /// Parses a URL with one of the schemes.
    ///
    /// # Errors
    /// Fails if the text is no such URL.
    pub fn parse(text: &str, schemes: &'static Schemes) -> Result<Self, InvalidEndpoint> {
        let url = Url::parse(text.trim()).map_err(|_| {
            InvalidEndpoint("is not a URL (percent-encode / : and @ in user and password: %2f, %3a, %40)")
        })?;
        let tls = match url.scheme() {
            scheme if schemes.plain.contains(&scheme) => false,
            scheme if schemes.encrypted.contains(&scheme) => true,
            _ => return Err(InvalidEndpoint(schemes.neither)),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(InvalidEndpoint("has no host"))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(InvalidEndpoint("has a query or a fragment, which a broker does not support"));
        }
        let credentials = match (url.username(), url.password()) {
            ("", None) => None,
            ("", Some(_)) => return Err(InvalidEndpoint("has a password without a user")),
            (_, None) => return Err(InvalidEndpoint("has a user without a password")),
            (user, Some(password)) => Some((decoded(user)?, Secret::new(decoded(password)?))),
        };
        let vhost = match url.path() {
            "" => None,
            "/" => return Err(InvalidEndpoint("ends in a slash: leave it out, or name the virtual host / by /%2f")),
            path => match path.strip_prefix('/').unwrap_or(path) {
                // The authority ends at the first slash, so this @ follows an unencoded slash in the password.
                name if name.contains('@') => {
                    let reason =
                        "has an @ behind the host: percent-encode / : and @ in user and password (%2f, %3a, %40)";
                    return Err(InvalidEndpoint(reason));
                }
                name if name.contains('/') => {
                    return Err(InvalidEndpoint("has a slash in its virtual host: write it as %2f"));
                }
                name => Some(decoded(name)?),
            },
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port().unwrap_or(if tls { schemes.encrypted_port } else { schemes.port });
        Ok(Self { schemes, tls, host, port, credentials, vhost })
    }

    /// Sets the user, the password and the virtual host that the URL does not contain.
    #[must_use]
    pub fn or(mut self, user: &str, password: &str, vhost: &str) -> Self {
        self.credentials.get_or_insert_with(|| (user.to_owned(), Secret::new(password)));
        self.vhost.get_or_insert_with(|| vhost.to_owned());
        self
    }

    /// True if the connection uses TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// Returns the host name or IP address. An IPv6 address has no brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the user.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.credentials.as_ref().map(|(user, _)| user.as_str())
    }

    /// Returns the password, which is UTF-8.
    #[must_use]
    pub fn password(&self) -> Option<&Secret> {
        self.credentials.as_ref().map(|(_, password)| password)
    }

    /// Returns the virtual host.
    #[must_use]
    pub fn vhost(&self) -> Option<&str> {
        self.vhost.as_deref()
    }
}

fn decoded(part: &str) -> Result<String, InvalidEndpoint> {
    let text = percent_decode_str(part).decode_utf8();
    text.map(Cow::into_owned).map_err(|_| InvalidEndpoint("is not UTF-8 where it is percent-encoded"))
}

/// Writes the URL without its password.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schemes = if self.tls { self.schemes.encrypted } else { self.schemes.plain };
        let encoded = |part| utf8_percent_encode(part, NON_ALPHANUMERIC);
        write!(f, "{}://", schemes.first().copied().unwrap_or_default())?;
        if let Some(user) = self.user() {
            write!(f, "{}@", encoded(user))?;
        }
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }?;
        self.vhost().map_or(Ok(()), |vhost| write!(f, "/{}", encoded(vhost)))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
