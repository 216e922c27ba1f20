//! Landing pages: the redirections from the URL of a request to the page of the dataset.

use std::{collections::HashSet, io::Read};

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LINK, LOCATION},
};
use flate2::read::MultiGzDecoder;
use regex_lite::Regex;
use tokio::time::timeout;
use url::Url;

use super::{
    IngestFailure, PlatformClient, RetryRule,
    client::{BodyError, LONGEST_WAIT, busy, named, text_header},
};
use crate::{
    format::{fileset::status::IngestStatus, ldp::link_targets},
    http_client::{ResponseStream, is_transient},
    model::Timestamp,
};

/// Maximum number of redirections. A DOI often needs five.
const MAX_HOPS: usize = 20;

/// The page to which a request leads.
#[derive(Clone, Debug)]
pub struct LandingPage {
    /// URLs from the one of the request to the one of the page.
    pub hops: Vec<Url>,
    /// URL of the page.
    pub url: Url,
    /// Time of the response.
    pub time: Timestamp,
    /// Status of the response.
    pub status: StatusCode,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// The page; `None` if the response is no page but a file, or an error.
    pub body: Option<Vec<u8>>,
    /// Reason why the page cannot be read, which counts if no platform is recognized from the URL.
    pub failure: Option<IngestFailure>,
}

impl PlatformClient {
    /// Follows the redirections from a URL. The body is read if the response is a page.
    ///
    /// # Errors
    /// Fails if there is no response, or the redirections lead nowhere.
    pub async fn landing_page(&self, start: &Url) -> Result<LandingPage, IngestFailure> {
        let page = timeout(self.limits.exchange, self.redirected_page(start)).await;
        page.unwrap_or_else(|_| {
            let message = format!("{} has not answered within {} s", named(start), self.limits.exchange.as_secs());
            Err(IngestFailure::transient(IngestStatus::NO_CAPTURE, message))
        })
    }

    async fn redirected_page(&self, start: &Url) -> Result<LandingPage, IngestFailure> {
        let headers =
            HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/html, application/xhtml+xml, */*;q=0.5"))]);
        let (mut url, mut hops, mut seen) = (start.clone(), vec![start.clone()], HashSet::from([start.clone()]));
        loop {
            let no_capture = |reason: String| IngestFailure::transient(IngestStatus::NO_CAPTURE, reason);
            let target = self
                .target(&url)
                .map_err(|reason| IngestFailure::permanent(IngestStatus::SKIP_URL_BLOCKLIST, reason))?;
            let permit = self.hosts.permit_within(&target.origin(), LONGEST_WAIT).await;
            let permit = permit.map_err(|rest| busy(&url, "it accepts no requests for now".to_owned(), rest))?;
            let response = self.client.open(&target, headers.clone()).await;
            let response = response.map_err(|error| no_capture(format!("{}: {error}", named(&url))))?;
            if !response.status.is_redirection() {
                return self.page(url, hops, response).await;
            }
            drop(permit);
            let location = text_header(&response.headers, LOCATION).and_then(|location| url.join(location).ok());
            let Some(next) = location.filter(Url::has_host) else {
                let message = format!("{} redirects to no valid URL", named(&url));
                return Err(IngestFailure::permanent(IngestStatus::BAD_REDIRECT, message));
            };
            if !seen.insert(next.clone()) {
                let message = format!("redirections lead back to {}", named(&next));
                return Err(IngestFailure::permanent(IngestStatus::REDIRECT_LOOP, message));
            }
            if hops.len() > MAX_HOPS {
                let message = format!("there are more than {MAX_HOPS} redirections");
                return Err(IngestFailure::permanent(IngestStatus::REDIRECTS_EXCEEDED, message));
            }
            hops.push(next.clone());
            url = next;
        }
    }

    /// Reads the page of a response.
    async fn page(&self, url: Url, hops: Vec<Url>, response: ResponseStream) -> Result<LandingPage, IngestFailure> {
        let (status, headers, name) = (response.status, response.headers.clone(), named(&url));
        let page = |body, failure| {
            let time = Timestamp::now();
            Ok(LandingPage {
                hops: hops.clone(),
                url: url.clone(),
                time,
                status,
                headers: headers.clone(),
                body,
                failure,
            })
        };
        if !matches!(status.as_u16(), 200 | 226) {
            let message = format!("{name} answers {status}");
            let retry = if is_transient(status) { RetryRule::Backoff(None) } else { RetryRule::Never };
            let failure =
                IngestFailure { retry, ..IngestFailure::permanent(IngestStatus::TERMINAL_BAD_STATUS, message) };
            return page(None, Some(failure));
        }
        let is_empty = text_header(&headers, CONTENT_LENGTH) == Some("0");
        if !is_empty && !is_page(text_header(&headers, CONTENT_TYPE)) {
            return page(None, None);
        }
        let max_bytes = self.limits.page_bytes;
        let body = match self.body(response, max_bytes).await {
            Ok(body) => match decoded(body, text_header(&headers, CONTENT_ENCODING), max_bytes) {
                Ok(body) if body.len() > max_bytes => Err(BodyError::TooLarge(max_bytes)),
                Ok(body) => Ok(body),
                Err(reason) => {
                    let message = format!("{name} cannot be decoded: {reason}");
                    return page(None, Some(IngestFailure::transient(IngestStatus::BAD_GZIP_ENCODING, message)));
                }
            },
            Err(error) => Err(error),
        };
        match body {
            Ok(body) if body.is_empty() => {
                let failure =
                    IngestFailure::permanent(IngestStatus::EMPTY_BLOB, format!("{name} answers without a body"));
                page(None, Some(failure))
            }
            Ok(body) => page(Some(body), None),
            Err(BodyError::TooLarge(bytes)) => {
                let message = format!("the page {name} has more than {bytes} bytes");
                page(None, Some(IngestFailure::permanent(IngestStatus::BODY_TOO_LARGE, message)))
            }
            Err(BodyError::Broken(error)) => {
                page(None, Some(IngestFailure::transient(IngestStatus::NO_CAPTURE, format!("{name}: {error}"))))
            }
        }
    }
}

impl LandingPage {
    /// Returns whether the response is a file instead of a page.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.body.is_none() && self.failure.is_none()
    }

    /// Returns the targets of the links with a relation, of the `Link` headers and of the elements `link` of the page
    /// (Signposting).
    #[must_use]
    pub fn links(&self, relation: &str) -> Vec<Link> {
        let values = || self.headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
        let mut links: Vec<_> = link_targets(values(), relation)
            .into_iter()
            .filter_map(|target| Some(Link { url: self.url.join(target).ok()?, media_type: None }))
            .collect();
        let page = String::from_utf8_lossy(self.body.as_deref().unwrap_or_default());
        links.extend(link_elements(&page, relation, &self.url));
        let mut seen = HashSet::new();
        links.retain(|link| seen.insert(link.url.clone()));
        links
    }
}

/// A link of a landing page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Target.
    pub url: Url,
    /// Media type of the target, if the link has one.
    pub media_type: Option<String>,
}

/// Decodes a body. Some servers compress it although nobody has asked for that. The result has at most one byte more than
/// the limit.
fn decoded(body: Vec<u8>, encoding: Option<&str>, max_bytes: usize) -> Result<Vec<u8>, String> {
    match encoding.map(|encoding| encoding.trim().to_ascii_lowercase()).as_deref() {
        None | Some("" | "identity") => Ok(body),
        Some("gzip" | "x-gzip") => {
            let (mut decoded, limit) = (Vec::new(), max_bytes as u64 + 1);
            let read = MultiGzDecoder::new(&*body).take(limit).read_to_end(&mut decoded);
            read.map_err(|error| error.to_string())?;
            Ok(decoded)
        }
        Some(other) => Err(format!("its encoding is {other:?}")),
    }
}

/// Returns whether a response with this media type is a page.
fn is_page(content_type: Option<&str>) -> bool {
    content_type.is_none_or(|text| {
        let text = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        matches!(text.as_str(), "" | "text/html" | "application/xhtml+xml")
    })
}

/// Returns the elements `link` of a page with a relation.
fn link_elements(page: &str, relation: &str, base: &Url) -> Vec<Link> {
    let attribute = |element: &str, name: &str| {
        let pattern = format!(r#"(?i)\s{name}\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))"#);
        Regex::new(&pattern).ok()?.captures(element).map(|found| {
            let group = found.get(1).or(found.get(2)).or(found.get(3));
            group.map_or("", |group| group.as_str()).replace("&amp;", "&")
        })
    };
    let Ok(element) = Regex::new(r"(?i)<link\s[^>]*>") else { return Vec::new() };
    let elements = element.find_iter(page).map(|found| found.as_str());
    let related = elements.filter(|element| {
        attribute(element, "rel").is_some_and(|relations| relations.split_ascii_whitespace().any(|one| one == relation))
    });
    let link = |element| {
        let url = base.join(&attribute(element, "href")?).ok()?;
        Some(Link { url, media_type: attribute(element, "type") })
    };
    related.filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::{Url, is_page, link_elements};

    #[test]
    fn links_are_read_from_elements() {
        let page = r#"<html><LINK rel='cite-as' href="x"><link href="/a?b=1&amp;c" type=text/csv REL="item alternate">
            <link rel=item href=b><link rel="items" href="c"><a rel="item" href="d">"#;
        let links = link_elements(page, "item", &Url::parse("https://h.example/d/1").unwrap());
        let links: Vec<_> = links.iter().map(|link| (link.url.as_str(), link.media_type.as_deref())).collect();
        assert_eq!(links, [("https://h.example/a?b=1&c", Some("text/csv")), ("https://h.example/d/b", None)]);
    }

    #[test]
    fn pages_and_files_differ_by_media_type() {
        assert!(is_page(None) && is_page(Some("text/HTML; charset=x")) && !is_page(Some("text/csv")));
    }
}
