//! Tokens: who may do what, and for how long.

use std::fmt;

use axum::http::{HeaderMap, header::AUTHORIZATION};
use base64::{Engine, engine::general_purpose};
use chrono::{DateTime, Utc};

use crate::web::{Secret, SecretDigest};

/// A token that is let in. Of the token itself only its digest is known.
#[derive(Clone, Debug)]
pub struct Token {
    /// What the configuration calls it; it stands in the log.
    pub name: String,
    /// The SHA-256 of the token.
    pub digest: SecretDigest,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// From when on it is no longer taken; `None` is never.
    pub expires: Option<DateTime<Utc>>,
}

/// What a token may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `publish:SOURCE`: post to the hook of this source.
    PublishTo(String),
    /// `publish:*`: post to every hook.
    Publish,
    /// `read`: read the feed, the journal, the objects.
    Read,
    /// `admin`: everything, the sources and the quarantine included.
    Admin,
}

impl Scope {
    /// Takes a scope as it is written; `None` when it is none. Whether there is such a source is not
    /// looked at.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "read" => Some(Self::Read),
            "admin" => Some(Self::Admin),
            "publish:*" => Some(Self::Publish),
            _ => {
                text.strip_prefix("publish:").filter(|source| !source.is_empty()).map(|s| Self::PublishTo(s.to_owned()))
            }
        }
    }

    /// Whether who may do this may do `other`. Who has `admin` may do all: the administrator can read
    /// every message in the quarantine and have it taken in, so a line between would protect nothing.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Admin, _) | (Self::Publish, Self::PublishTo(_)) => true,
            (held, needed) => held == needed,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PublishTo(source) => write!(f, "publish:{source}"),
            Self::Publish => f.write_str("publish:*"),
            Self::Read => f.write_str("read"),
            Self::Admin => f.write_str("admin"),
        }
    }
}

/// What a request brings to be known by.
pub(super) enum Credentials {
    /// Nothing.
    None,
    /// A token.
    Token(Secret),
    /// Something that holds no token: another scheme, not base64, more than one.
    Unreadable,
}

impl Credentials {
    /// Reads `Authorization`: `Bearer TOKEN` (RFC 6750 section 2.1), or `Basic` with the token as the
    /// password of any user (RFC 7617), since feed readers know no other scheme.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut fields = headers.get_all(AUTHORIZATION).into_iter();
        let field = match (fields.next(), fields.next()) {
            (None, _) => return Self::None,
            (Some(field), None) => field.to_str().ok(),
            (Some(_), Some(_)) => None,
        };
        field.and_then(token_of).map_or(Self::Unreadable, Self::Token)
    }
}

fn token_of(field: &str) -> Option<Secret> {
    let (scheme, rest) = field.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        Some(Secret::new(rest))
    } else if scheme.eq_ignore_ascii_case("basic") {
        let decoded = general_purpose::STANDARD.decode(rest).ok()?;
        // A user name has no colon, a password may.
        let colon = decoded.iter().position(|b| *b == b':')?;
        Some(Secret::new(&decoded[colon + 1..]))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

    use super::{Credentials, Scope};

    fn token(fields: &[&str]) -> Option<String> {
        let headers: HeaderMap =
            fields.iter().map(|field| (AUTHORIZATION, HeaderValue::from_str(field).unwrap())).collect();
        match Credentials::of(&headers) {
            Credentials::None => None,
            Credentials::Token(token) => Some(String::from_utf8(token.expose().to_vec()).unwrap()),
            Credentials::Unreadable => Some("unreadable".to_owned()),
        }
    }

    #[test]
    fn a_token_comes_as_bearer_or_as_password() {
        for (fields, expected) in [
            (&[][..], None),
            (&["Bearer tdg_1"], Some("tdg_1")),
            (&["bearer  tdg_1 "], Some("tdg_1")),
            // me:tdg_1, :tdg_1, me:a:b
            (&["Basic bWU6dGRnXzE="], Some("tdg_1")),
            (&["BASIC OnRkZ18x"], Some("tdg_1")),
            (&["Basic bWU6YTpi"], Some("a:b")),
            // me
            (&["Basic bWU="], Some("unreadable")),
            (&["Basic tdg_1"], Some("unreadable")),
            (&["Digest username=\"me\""], Some("unreadable")),
            (&["tdg_1"], Some("unreadable")),
            (&[""], Some("unreadable")),
            (&["Bearer tdg_1", "Bearer tdg_2"], Some("unreadable")),
        ] {
            assert_eq!(token(fields).as_deref(), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_scope_covers_what_it_says() {
        let scopes = ["publish:a", "publish:b", "publish:*", "read", "admin"];
        let covered: Vec<Vec<&str>> = scopes
            .iter()
            .map(|held| {
                let held = Scope::parse(held).unwrap();
                scopes.into_iter().filter(|needed| held.covers(&Scope::parse(needed).unwrap())).collect()
            })
            .collect();
        let expected: [&[&str]; 5] =
            [&["publish:a"], &["publish:b"], &["publish:a", "publish:b", "publish:*"], &["read"], &scopes];
        assert_eq!(covered, expected);
        for scope in scopes {
            assert_eq!(Scope::parse(scope).unwrap().to_string(), scope);
        }
        for none in ["", "publish", "publish:", "Read", "write", "*"] {
            assert_eq!(Scope::parse(none), None, "{none}");
        }
    }
}
