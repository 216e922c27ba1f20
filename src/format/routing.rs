//! What the dialects of message buses share: the routing key that comes in a header, and the
//! address of the system, against which its relative identifiers stand.

use serde::{Deserialize, Deserializer};

use super::{Headers, Place, Rejection};
use crate::model::{InvalidUri, Uri};

/// The header with the routing key: the AMQP source puts the delivery's own there, and over an HTTP
/// hook the client sends it.
pub(super) const ROUTING_KEY: &str = "routing-key";

/// The message's routing key, with `expected` to say what such a key looks like.
///
/// # Errors
/// When there is none.
pub(super) fn routing_key<'h>(headers: &'h Headers, expected: &str) -> Result<&'h str, Rejection> {
    let key = headers.get(ROUTING_KEY).map(str::trim).filter(|key| !key.is_empty());
    key.ok_or_else(|| {
        let reason = format!("it is missing, and says what the message is; send the routing key in it, {expected}");
        Rejection::unprocessable(place(), reason)
    })
}

/// A routing key that is none of the dialect's.
pub(super) fn unknown_key(key: &str, expected: &str) -> Rejection {
    Rejection::unprocessable(place(), format!("no message here has the routing key {key:?}; there are {expected}"))
}

fn place() -> Place {
    Place::Header(ROUTING_KEY.to_owned())
}

/// The address of a system: an http or https URL without query, fragment and user, and without a
/// slash at its end.
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
        // It would stand in every URI that is made.
        if rest.split('/').next().is_some_and(|authority| authority.contains('@')) {
            return Err("it has a user in it, whom every subscriber would see; leave that out".to_owned());
        }
        Ok(Self(url.trim_end_matches('/').to_owned()))
    }

    /// What is at this path below it.
    pub(super) fn join(&self, path: &str) -> Result<Uri, InvalidUri> {
        Uri::parse(&self.below(path))
    }

    /// The same, as text that need not be a URI.
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
    fn an_address_ends_where_paths_begin() {
        let url = SystemUrl::parse("https://sfm.example.org/a//").unwrap();
        assert_eq!(url.join("/b/c").unwrap().as_str(), "https://sfm.example.org/a/b/c");
        for raw in ["sfm.example.org", "ftp://h/", "http://h/?a", "http://h/#a", "http://u:p@h/", "http://u@h"] {
            assert!(SystemUrl::parse(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn a_blank_key_is_no_key() {
        let headers: Headers = [("Routing-Key", " ")].into_iter().collect();
        let told = routing_key(&headers, "as in a.b").unwrap_err().to_string();
        assert!(told.starts_with("header routing-key: it is missing"), "{told}");
    }
}
