//! URL of a database. It contains a password, so it is printed without its user and parameters.

use std::{fmt, str::FromStr, sync::Arc};

use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

/// URL of a PostgreSQL database: `postgres://user:password@host:5432/database?sslmode=require`. Several hosts are
/// separated by commas; the store connects to the one that accepts writes.
#[derive(Clone)]
pub struct PostgresUrl(Arc<Config>);

/// Reason why a text is not the URL of a database. It does not repeat the text, because the text may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPostgresUrl {
    /// The URL has another scheme.
    #[error("it does not begin with postgres://; give a URL as in postgres://tidings@db.example.org:5432/tidings")]
    Scheme,
    /// The URL cannot be parsed.
    #[error(
        "it is not a valid URL of a database; give one as in postgres://tidings@db.example.org:5432/tidings, with %40 for \
         an @ in the password, and with sslmode=require, prefer or disable if you set sslmode"
    )]
    Syntax,
    /// The URL lacks a part.
    #[error("it has no {0}; give a URL as in postgres://tidings@db.example.org:5432/tidings")]
    Missing(&'static str),
}

impl PostgresUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// Fails if the text is not a URL of a database with a user, a host and the name of the database.
    pub fn parse(text: &str) -> Result<Self, InvalidPostgresUrl> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(InvalidPostgresUrl::Scheme);
        }
        // The library's error may quote a part of the password.
        let config = Config::from_str(text).map_err(|_| InvalidPostgresUrl::Syntax)?;
        if config.get_hosts().is_empty() {
            return Err(InvalidPostgresUrl::Missing("host"));
        }
        if config.get_user().is_none() {
            return Err(InvalidPostgresUrl::Missing("user"));
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(InvalidPostgresUrl::Missing("name of a database"));
        }
        Ok(Self(Arc::new(config)))
    }

    /// Returns whether the connection is, or may be, encrypted.
    #[must_use]
    pub fn may_be_encrypted(&self) -> bool {
        let is_remote = self.0.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)));
        is_remote && self.0.get_ssl_mode() != SslMode::Disable
    }

    /// Returns the name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        self.0.get_dbname().unwrap_or_default()
    }

    /// Returns the name of the role that connects.
    #[must_use]
    pub fn user(&self) -> &str {
        self.0.get_user().unwrap_or_default()
    }

    pub(super) fn config(&self) -> &Config {
        &self.0
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.0.get_ports();
        f.write_str("postgres://")?;
        for (index, host) in self.0.get_hosts().iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            match host {
                Host::Tcp(name) => write!(f, "{separator}{name}")?,
                #[cfg(unix)]
                Host::Unix(folder) => write!(f, "{separator}{}", folder.display())?,
            }
            if let Some(port) = ports.get(index).or(ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}", self.database())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidPostgresUrl, PostgresUrl};

    #[test]
    fn user_password_and_parameters_are_never_printed() {
        for (text, printed) in [
            ("postgres://u:secret@h/d?sslmode=require", "postgres://h:5432/d"),
            ("postgresql://u:secret@h:1,i:2/d?connect_timeout=3", "postgres://h:1,i:2/d"),
            ("postgres://u:secret@%2Frun%2Fpostgresql/d", "postgres:///run/postgresql:5432/d"),
        ] {
            let url = PostgresUrl::parse(text).unwrap();
            assert_eq!((url.to_string().as_str(), format!("{url:?}").as_str()), (printed, printed));
        }
    }

    #[test]
    fn unusable_urls_are_refused_without_a_part_of_them() {
        for (text, reason) in [
            ("host=h user=u password=secret dbname=d", InvalidPostgresUrl::Scheme),
            ("mysql://u:secret@h/d", InvalidPostgresUrl::Scheme),
            ("postgres://u:sec ret&x=sec@h:99999/d?sec=ret", InvalidPostgresUrl::Syntax),
            ("postgres://u:secret@h/d?sslmode=verify-full", InvalidPostgresUrl::Syntax),
            ("postgres://secret@/d", InvalidPostgresUrl::Missing("host")),
            ("postgres://h/d", InvalidPostgresUrl::Missing("user")),
            ("postgres://u:secret@h", InvalidPostgresUrl::Missing("name of a database")),
        ] {
            let error = PostgresUrl::parse(text).unwrap_err();
            assert_eq!(error, reason, "{text}");
            assert!(!error.to_string().contains("sec"), "{error}");
        }
    }
}
