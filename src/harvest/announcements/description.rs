//! Descriptions of sources: JSON with the address of the source, as in `{"url": "oaipmh://oa.upm.es/cgi/oai2"}`.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header::ACCEPT};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    harvest::{
        HarvestError,
        client::{PlaceClient, RequestError},
    },
    http_client::is_transient,
    model::{Uri, UrlPattern},
};

/// Description of a source. Other members are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Description {
    /// Address of the source. Its scheme is the protocol, or http with the protocol in `protocol`.
    url: String,
    #[serde(default)]
    protocol: String,
}

/// Reason why there is no definition of a source's harvest.
#[derive(Debug)]
pub(super) enum DescriptionError {
    /// The description may be available later.
    Unavailable(HarvestError),
    /// The source is not harvested.
    Refused(String),
}

impl Description {
    /// Requests the description of a source. With `is_last`, a status that may pass is final, so that one source does not
    /// hold up all others.
    pub(super) async fn read(client: &PlaceClient, uri: &Uri, is_last: bool) -> Result<Self, DescriptionError> {
        let url = client.allowed(uri.as_str()).map_err(|error| DescriptionError::Refused(error.to_string()))?;
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        let mut permit = client.permit().await;
        let raw = client.get(&url, None, &headers).await.map_err(|error| match error {
            RequestError::Permanent(reason) | RequestError::TooLarge(reason) => DescriptionError::Refused(reason),
            error => DescriptionError::Unavailable(error.into()),
        })?;
        if raw.is_busy() && !is_last {
            let busy = client.busy(&mut permit, raw.status, &raw.headers);
            return Err(DescriptionError::Unavailable(busy.into()));
        }
        drop(permit);
        if raw.status != StatusCode::OK {
            let reason = format!("the system does not return its description ({})", raw.status);
            return Err(if is_transient(raw.status) && !is_last {
                DescriptionError::Unavailable(HarvestError::retry(reason))
            } else {
                DescriptionError::Refused(reason)
            });
        }
        serde_json::from_slice(&raw.body)
            .map_err(|error| DescriptionError::Refused(format!("its description is no JSON with a url: {error}")))
    }

    /// Returns the definition of the harvest: of the first URL with https or http that the operator allows.
    ///
    /// # Errors
    /// Fails if the protocol cannot be harvested, or the URL is not allowed.
    pub(super) fn definition(&self, allow: &[UrlPattern]) -> Result<Value, String> {
        let url = self.url.trim();
        let (scheme, rest) = url.split_once("://").ok_or_else(|| format!("its url {url:?} has no scheme"))?;
        let (protocol, schemes) = match scheme {
            "http" => (self.protocol.as_str(), &["http"][..]),
            "https" => (self.protocol.as_str(), &["https"][..]),
            // The address does not say whether the connection is encrypted.
            _ => (scheme, &["https", "http"][..]),
        };
        let transport = match protocol.to_ascii_lowercase().replace('-', "").as_str() {
            "oaipmh" | "oai" => "oai-pmh",
            "rss" | "atom" | "feed" => "feed",
            _ => return Err(format!("the protocol {protocol:?} cannot be harvested; there are oaipmh, rss and atom")),
        };
        let candidates: Vec<_> = schemes.iter().map(|scheme| format!("{scheme}://{rest}")).collect();
        let allowed = candidates.iter().find(|url| allow.iter().any(|pattern| pattern.is_match(url)));
        let url = allowed.ok_or_else(|| format!("{} is not in the setting allow", candidates.join(" or ")))?;
        Ok(json!({ "transport": transport, "dialect": transport, "url": url }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Description, UrlPattern};

    #[test]
    fn address_becomes_a_definition_if_it_is_allowed() {
        let allow =
            ["https?://oa[.]upm[.]es/.*", "http://plain[.]example/.*"].map(|text| UrlPattern::parse(text).unwrap());
        let read = |url: &str, protocol: &str| {
            let description = Description { url: url.to_owned(), protocol: protocol.to_owned() };
            match description.definition(&allow) {
                Ok(definition) => {
                    format!("{} {}", definition["transport"].as_str().unwrap(), definition["url"].as_str().unwrap())
                }
                Err(reason) => reason,
            }
        };
        for (url, protocol, expected) in [
            ("oaipmh://oa.upm.es/cgi/oai2", "", "oai-pmh https://oa.upm.es/cgi/oai2"),
            ("oaipmh://plain.example/oai", "", "oai-pmh http://plain.example/oai"),
            ("rss://oa.upm.es/rss.xml", "", "feed https://oa.upm.es/rss.xml"),
            ("http://oa.upm.es/cgi/oai2", "OAI-PMH", "oai-pmh http://oa.upm.es/cgi/oai2"),
            ("https://oa.upm.es/news", "atom", "feed https://oa.upm.es/news"),
            ("oaipmh://evil.example/", "", "https://evil.example/ or http://evil.example/ is not in the setting allow"),
            ("ftp://oa.upm.es/", "", "the protocol \"ftp\" cannot be harvested; there are oaipmh, rss and atom"),
            ("oa.upm.es", "", "its url \"oa.upm.es\" has no scheme"),
        ] {
            assert_eq!(read(url, protocol), expected, "{url}");
        }
    }
}
