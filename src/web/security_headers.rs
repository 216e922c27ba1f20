//! Headers that every answer has, so that a browser neither guesses what it is, nor runs or embeds it, nor tells
//! other sites where its user has been.
//!
//! An answer that has one of them already keeps it.

use axum::http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
    },
};

/// Headers of every answer. Nothing is cached unless its handler says that it may be, nothing loads or runs anything
/// unless it is a page with a policy of its own.
///
/// The referrer goes to the gateway itself: without any, browsers send the forms of its own pages with `Origin: null`.
const ALWAYS: [(HeaderName, &str); 4] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (CACHE_CONTROL, "no-store"),
];

/// Header of answers over encrypted connections (RFC 6797): for a year, a browser reaches the host by TLS alone.
const ENCRYPTED: (HeaderName, &str) = (STRICT_TRANSPORT_SECURITY, "max-age=31536000");

/// Headers of every answer on connections of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SecurityHeaders {
    is_encrypted: bool,
}

impl SecurityHeaders {
    pub(super) fn of_connection(is_encrypted: bool) -> Self {
        Self { is_encrypted }
    }

    /// Adds those that are not there.
    pub(super) fn add_to(self, headers: &mut HeaderMap) {
        for (name, value) in self.list() {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
    }

    /// Returns every header and its value.
    pub(super) fn list(self) -> impl Iterator<Item = (HeaderName, &'static str)> {
        ALWAYS.into_iter().chain(Some(ENCRYPTED).filter(|_| self.is_encrypted))
    }
}
