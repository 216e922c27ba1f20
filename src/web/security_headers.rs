//! Security headers of all responses. They prevent a browser from guessing media types, running or embedding content,
//! and leaking URLs to other sites.
//!
//! A header that a response already has is kept.

use axum::http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
    },
};

/// Headers of all responses. By default, nothing is cached, and only pages with their own policy may load or run
/// anything.
///
/// The gateway itself gets the referrer: without it, browsers send forms of the gateway's pages with `Origin: null`.
const ALWAYS: [(HeaderName, &str); 4] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (CACHE_CONTROL, "no-store"),
];

/// Header of responses over TLS (RFC 6797): for a year, browsers use only TLS for this host.
const ENCRYPTED: (HeaderName, &str) = (STRICT_TRANSPORT_SECURITY, "max-age=31536000");

/// Headers of all responses on one kind of connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SecurityHeaders {
    is_encrypted: bool,
}

impl SecurityHeaders {
    pub(super) fn of_connection(is_encrypted: bool) -> Self {
        Self { is_encrypted }
    }

    /// Adds the missing headers.
    pub(super) fn add_to(self, headers: &mut HeaderMap) {
        for (name, value) in self.list() {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
    }

    /// Returns all headers with their values.
    pub(super) fn list(self) -> impl Iterator<Item = (HeaderName, &'static str)> {
        ALWAYS.into_iter().chain(Some(ENCRYPTED).filter(|_| self.is_encrypted))
    }
}
