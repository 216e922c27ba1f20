//! Access tokens of platforms, and the places that they are sent to.

use std::fmt;

use url::Url;

use super::{PlatformSettings, archiveorg, dataverse, dryad, figshare, invenio, osf};
use crate::{
    filesets::{PlatformToken, token::TokenScheme},
    http_client::Origin,
};

/// Platforms whose addresses are in the configuration, so that their tokens are configured under their names.
const NAMED: [&str; 5] = [invenio::NAME, figshare::NAME, archiveorg::NAME, dryad::NAME, osf::NAME];

/// Place that a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPlace {
    /// The configured addresses of a platform; of several installations, the first one.
    Platform(&'static str),
    /// An installation, such as a Dataverse.
    Origin(Origin),
}

/// The text names no place for a token.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is neither a platform with an address of its own ({list}) nor the host of an installation, as in \
     \"dataverse.example.org\"",
    list = NAMED.join(", ")
)]
pub struct InvalidTokenPlace(String);

impl TokenPlace {
    /// Parses the name of a platform, a host with or without a port (which stands for `https`), or an origin.
    ///
    /// # Errors
    /// Fails for the name of a platform that can be at any host, and for any other text.
    pub fn parse(text: &str) -> Result<Self, InvalidTokenPlace> {
        if let Some(name) = NAMED.into_iter().find(|name| *name == text) {
            return Ok(Self::Platform(name));
        }
        let url = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let is_place = |url: &Url| {
            let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
            let has_user = !url.username().is_empty() || url.password().is_some();
            // A word without a dot, such as the name of a platform, is no host.
            let is_host = url.host_str().is_some_and(|host| host.contains(['.', ':']) || host == "localhost");
            is_bare && !has_user && is_host
        };
        let url = Url::parse(&url).ok().filter(is_place);
        let origin = url.and_then(|url| Origin::of(&url)).ok_or_else(|| InvalidTokenPlace(text.to_owned()))?;
        Ok(Self::Origin(origin))
    }
}

/// The text as the configuration has it.
impl fmt::Display for TokenPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform(name) => f.write_str(name),
            Self::Origin(origin) => origin.fmt(f),
        }
    }
}

impl PlatformSettings {
    /// Returns the access token for a request to this URL on behalf of a platform: the one of the origin of the URL, or
    /// else the one of the platform if the URL has the origin of its configured address.
    ///
    /// Manifests and redirections can name any URL, so this alone decides where tokens go.
    #[must_use]
    pub fn token_for(&self, platform: &str, url: &Url) -> Option<PlatformToken> {
        let is_at = |place: &TokenPlace| match place {
            TokenPlace::Origin(origin) => origin.includes(url),
            TokenPlace::Platform(name) => {
                *name == platform && self.addresses(name).into_iter().any(|address| is_of(address, url))
            }
        };
        let of_origins = self.tokens.iter().filter(|(place, _)| matches!(place, TokenPlace::Origin(_)));
        let of_platforms = self.tokens.iter().filter(|(place, _)| matches!(place, TokenPlace::Platform(_)));
        let token = of_origins.chain(of_platforms).find(|(place, _)| is_at(place)).map(|(_, token)| token);
        token.map(|token| token.with_scheme(scheme_of(platform)))
    }

    /// Returns the configured addresses that a token of a platform is for.
    fn addresses(&self, platform: &str) -> Vec<&Url> {
        match platform {
            invenio::NAME => self.invenio.first().into_iter().collect(),
            figshare::NAME => vec![&self.figshare_api, &self.figshare_bundles],
            archiveorg::NAME => vec![&self.archiveorg],
            dryad::NAME => vec![&self.dryad],
            osf::NAME => vec![&self.osf, &self.osf_api],
            _ => Vec::new(),
        }
    }
}

/// Returns the way in which a platform reads tokens.
fn scheme_of(platform: &str) -> TokenScheme {
    match platform {
        dataverse::NAME => TokenScheme::DataverseKey,
        figshare::NAME => TokenScheme::Token,
        archiveorg::NAME => TokenScheme::Low,
        _ => TokenScheme::Bearer,
    }
}

fn is_of(address: &Url, url: &Url) -> bool {
    Origin::of(address).is_some_and(|origin| origin.includes(url))
}

#[cfg(test)]
mod tests {
    use super::{PlatformToken, TokenPlace, TokenScheme, scheme_of};
    use crate::web::Secret;

    /// Downloads and lists read tokens in the ways that the platforms document.
    #[test]
    fn tokens_have_the_scheme_of_the_platform() {
        for (platform, scheme) in [
            ("zenodo", TokenScheme::Bearer),
            ("dryad", TokenScheme::Bearer),
            ("osf", TokenScheme::Bearer),
            ("figshare", TokenScheme::Token),
            ("archiveorg", TokenScheme::Low),
            ("dataverse", TokenScheme::DataverseKey),
        ] {
            assert_eq!(scheme_of(platform), scheme, "{platform}");
        }
        assert!(PlatformToken::new(&Secret::new("line\nfeed")).is_none());
    }

    #[test]
    fn places_are_names_of_platforms_hosts_and_origins() {
        for (text, place) in [
            ("zenodo", "zenodo"),
            ("osf", "osf"),
            ("dataverse.example.org", "https://dataverse.example.org"),
            ("dataverse.example.org:8443", "https://dataverse.example.org:8443"),
            ("http://dataverse.example.org:8080", "http://dataverse.example.org:8080"),
            ("localhost:8080", "https://localhost:8080"),
            ("[::1]:8080", "https://[::1]:8080"),
        ] {
            assert_eq!(TokenPlace::parse(text).unwrap().to_string(), place);
        }
        for text in [
            "",
            "dataverse",
            "zenodoo",
            "Zenodo",
            "https://dataverse.example.org/path",
            "user@dataverse.example.org",
            "ftp://dataverse.example.org",
            "a b.example.org",
        ] {
            assert!(TokenPlace::parse(text).is_err(), "{text}");
        }
    }
}
