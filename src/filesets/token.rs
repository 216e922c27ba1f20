//! Access tokens of platforms, and the headers that carry them.

use std::fmt;

use axum::http::{HeaderName, HeaderValue};
use url::Url;

use crate::{
    http_client::{Authorization, Origin},
    web::Secret,
};

/// Header of Dataverse's tokens.
const DATAVERSE_KEY: HeaderName = HeaderName::from_static("x-dataverse-key");

/// Way in which a platform reads tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenScheme {
    /// `Authorization: Bearer TOKEN` (RFC 6750), as Zenodo, Dryad and OSF document it.
    Bearer,
    /// `Authorization: token TOKEN`, as Figshare documents it.
    Token,
    /// `Authorization: LOW ACCESS:SECRET`, as archive.org documents it.
    Low,
    /// `X-Dataverse-key: TOKEN`.
    DataverseKey,
}

/// Access token of a platform.
#[derive(Clone)]
pub struct PlatformToken {
    secret: Secret,
    scheme: TokenScheme,
}

impl PlatformToken {
    /// Creates a token; `None` if it has characters that a header cannot carry.
    #[must_use]
    pub fn new(secret: &Secret) -> Option<Self> {
        let is_usable = HeaderValue::from_bytes(secret.expose()).is_ok();
        is_usable.then(|| Self { secret: secret.clone(), scheme: TokenScheme::Bearer })
    }

    /// Returns the token as a platform reads it.
    pub(super) fn with_scheme(&self, scheme: TokenScheme) -> Self {
        Self { secret: self.secret.clone(), scheme }
    }

    /// Returns the token for the origin of a URL.
    pub(super) fn authorization(&self, url: &Url) -> Option<Authorization> {
        let (origin, secret) = (Origin::of(url)?, &self.secret);
        match self.scheme {
            TokenScheme::Bearer => Authorization::bearer(origin, secret),
            TokenScheme::Token => Authorization::new(origin, "token", secret.expose()),
            TokenScheme::Low => Authorization::new(origin, "LOW", secret.expose()),
            TokenScheme::DataverseKey => Authorization::in_header(origin, DATAVERSE_KEY, secret),
        }
    }
}

/// Prints no secret.
impl fmt::Debug for PlatformToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlatformToken")
    }
}
