//! Shared by dialects of message buses: the routing key in a header, and the base URL of the system.

use serde::{Deserialize, Deserializer};

use super::{Headers, Location, Rejection};
use crate::model::{InvalidUri, Uri};

/// Header with the routing key. The AMQP source sets it from the delivery; an HTTP client sends it.
pub(super) const ROUTING_KEY: &str = "routing-key";

/// Returns the routing key of a message. `expected` gives an example of a key for the error message.
///
/// # Errors
/// Fails if the header is missing or blank.
pub(super) fn routing_key<'h>(headers: &'h Headers, expected: &str) -> Result<&'h str, Rejection> {
    let key = headers.get(ROUTING_KEY).map(str::trim).filter(|key| !key.is_empty());
    key.ok_or_else(|| {
        let reason = format!("it is missing; send the routing key of the message in it, {expected}");
        Rejection::unprocessable(location(), reason)
    })
}

/// Creates the rejection of an unknown routing key.
pub(super) fn unknown_key(key: &str, expected: &str) -> Rejection {
    Rejection::unprocessable(location(), format!("the routing key {key:?} is unknown; there are {expected}"))
}

fn location() -> Location {
    Location::Header(ROUTING_KEY.to_owned())
}

/// Base URL of a system: http or https, without query, fragment, user and trailing slash.
#[derive(Clone, Debug)]
pub(super) struct SystemUrl(String);

impl SystemUrl {
    pub(super) fn parse(raw: &str) -> Result<Self, String> {
        let url = Uri::parse(raw).map_err(|error| error.to_string())?;
        let url = url.as_str();
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let rest = rest.ok_or_else(|| "it is neither an http nor an https URL".to_owned())?;
        if url.contains(['?', '#']) {
            return Err("it has a query or a fragment, and paths could not follow".to_owned());
        }
        // The user would be visible in every URI made from the base URL.
        if rest.split('/').next().is_some_and(|authority| authority.contains('@')) {
            return Err("it has a user in it, whom every subscriber would see; leave that out".to_owned());
        }
        Ok(Self(url.trim_end_matches('/').to_owned()))
    }

    /// Returns the URL without a slash at its end.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the URI of a path below the base URL.
    pub(super) fn join(&self, path: &str) -> Result<Uri, InvalidUri> {
        Uri::parse(&self.below(path))
    }

    /// Returns the text of a path below the base URL, which may contain template variables.
    pub(super) fn below(&self, path: &str) -> String {
        format!("{}/{}", self.0, path.trim_start_matches('/'))
    }
}

impl<'de> Deserialize<'de> for SystemUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{SystemUrl, routing_key};
    use crate::format::Headers;

    #[test]
    fn system_url_joins_paths() {
        let url = SystemUrl::parse("https://sfm.example.org/a//").unwrap();
        assert_eq!(url.join("/b/c").unwrap().as_str(), "https://sfm.example.org/a/b/c");
        for raw in ["sfm.example.org", "ftp://h/", "http://h/?a", "http://h/#a", "http://u:p@h/", "http://u@h"] {
            assert!(SystemUrl::parse(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn blank_routing_key_is_rejected() {
        let headers: Headers = [("Routing-Key", " ")].into_iter().collect();
        let error = routing_key(&headers, "as in a.b").unwrap_err().to_string();
        assert!(error.starts_with("header routing-key: it is missing"), "{error}");
    }
}
