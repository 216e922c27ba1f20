//! Tokens, their scopes and their expiry.

use std::{fmt, sync::Arc};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use base64::{Engine, engine::general_purpose};
use chrono::{DateTime, Utc};

use crate::{
    model::ReaderView,
    web::{Secret, SecretDigest},
};

/// Configured token. Only its digest is stored.
#[derive(Clone, Debug)]
pub struct Token {
    /// Name of the token in the configuration; it is logged.
    pub name: String,
    /// SHA-256 of the token.
    pub digest: SecretDigest,
    /// Scopes of the token.
    pub scopes: Vec<Scope>,
    /// Time of expiry; `None` means never.
    pub expires: Option<DateTime<Utc>>,
    /// Part of the journal that the owner may see; `None` if everything.
    pub view: Option<Arc<ReaderView>>,
}

/// Permission of a token.
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
    /// Parses a scope; `None` if it is invalid. Does not check that the source exists.
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

    /// Returns `true` if this scope includes `other`. The scope `admin` includes all: an administrator can read and
    /// retry every message in the quarantine, so a separation would protect nothing.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Admin, _) | (Self::Publish, Self::PublishTo(_)) => true,
            (granted, needed) => granted == needed,
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

/// Credentials of a request.
pub(super) enum Credentials {
    /// No `Authorization` header.
    None,
    /// A token.
    Token(Secret),
    /// An `Authorization` header without a token: another scheme, invalid base64, or several headers.
    Invalid,
}

impl Credentials {
    /// Parses `Authorization`: `Bearer TOKEN` (RFC 6750 section 2.1), or `Basic` with the token as the password of
    /// any user (RFC 7617), the only scheme that feed readers support.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut fields = headers.get_all(AUTHORIZATION).into_iter();
        let field = match (fields.next(), fields.next()) {
            (None, _) => return Self::None,
            (Some(field), None) => field.to_str().ok(),
            (Some(_), Some(_)) => None,
        };
        field.and_then(token_of).map_or(Self::Invalid, Self::Token)
    }
}

fn token_of(field: &str) -> Option<Secret> {
    let (scheme, rest) = field.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        Some(Secret::new(rest))
    } else if scheme.eq_ignore_ascii_case("basic") {
        let decoded = general_purpose::STANDARD.decode(rest).ok()?;
        // A user name cannot contain a colon; a password can.
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
            Credentials::Invalid => Some("invalid".to_owned()),
        }
    }

    #[test]
    fn token_is_parsed_from_bearer_and_basic() {
        for (fields, expected) in [
            (&[][..], None),
            (&["Bearer tdg_1"], Some("tdg_1")),
            (&["bearer  tdg_1 "], Some("tdg_1")),
            // me:tdg_1, :tdg_1, me:a:b
            (&["Basic bWU6dGRnXzE="], Some("tdg_1")),
            (&["BASIC OnRkZ18x"], Some("tdg_1")),
            (&["Basic bWU6YTpi"], Some("a:b")),
            // me
            (&["Basic bWU="], Some("invalid")),
            (&["Basic tdg_1"], Some("invalid")),
            (&["Digest username=\"me\""], Some("invalid")),
            (&["tdg_1"], Some("invalid")),
            (&[""], Some("invalid")),
            (&["Bearer tdg_1", "Bearer tdg_2"], Some("invalid")),
        ] {
            assert_eq!(token(fields).as_deref(), expected, "{fields:?}");
        }
    }

    #[test]
    fn scopes_cover_other_scopes() {
        let scopes = ["publish:a", "publish:b", "publish:*", "read", "admin"];
        let covered: Vec<Vec<&str>> = scopes
            .iter()
            .map(|scope| {
                let granted = Scope::parse(scope).unwrap();
                scopes.into_iter().filter(|needed| granted.covers(&Scope::parse(needed).unwrap())).collect()
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
