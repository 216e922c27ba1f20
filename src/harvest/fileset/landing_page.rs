//! Landing pages: the redirections from the URL of a request to the page of the dataset.

use std::collections::HashSet;

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LINK, LOCATION},
};
use url::Url;

use super::{
    IngestFailure, JobPlace, PlatformClient, RetryRule,
    answers::BodyError,
    client::{LONGEST_WAIT, busy, named, text_header},
    page_body::PageBody,
    page_links::PageLinks,
};
use crate::{
    format::fileset::status::IngestStatus,
    harvest::{body::ReceivedBody, budget::Cancelled},
    http_client::{ResponseStream, is_transient},
    model::Timestamp,
};

/// Maximum number of redirections. A DOI often needs five.
const MAX_HOPS: usize = 20;

/// Maximum size of the URL of a page, in bytes, because each relative link is joined with it.
const MAX_URL_BYTES: usize = 8 << 10;

/// Size of the shortest link of a `Link` header, in bytes.
const LEAST_LINK_BYTES: usize = 12;

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
    pub body: Option<PageBody>,
    /// Links of the headers and of the page.
    pub links: PageLinks,
    /// Reason why the page cannot be read, which counts if no platform is recognized from the URL.
    pub failure: Option<IngestFailure>,
}

impl PlatformClient {
    /// Follows the redirections from a URL, with the place of a job at their hosts. The body is read if the response is a
    /// page.
    ///
    /// # Errors
    /// Fails if there is no response, the redirections lead nowhere, or another job is at a host.
    pub async fn landing_page(&self, start: &Url, place: &JobPlace) -> Result<LandingPage, IngestFailure> {
        self.exchange(start, IngestStatus::NO_CAPTURE, self.redirected_page(start, place)).await
    }

    async fn redirected_page(&self, start: &Url, place: &JobPlace) -> Result<LandingPage, IngestFailure> {
        let headers =
            HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/html, application/xhtml+xml, */*;q=0.5"))]);
        let (mut url, mut hops, mut seen) = (start.clone(), vec![start.clone()], HashSet::from([start.clone()]));
        loop {
            let no_capture = |reason: String| IngestFailure::transient(IngestStatus::NO_CAPTURE, reason);
            let target = self
                .target(&url)
                .map_err(|reason| IngestFailure::permanent(IngestStatus::SKIP_URL_BLOCKLIST, reason))?;
            if !place.move_to(&url) {
                let message = format!("another dataset of {} is archived now", url.host_str().unwrap_or_default());
                return Err(IngestFailure { retry: RetryRule::WhenHostIsFree, ..no_capture(message) });
            }
            let permit = self.hosts.permit_within(&target.origin(), LONGEST_WAIT).await;
            let permit = permit.map_err(|rest| busy(&url, "it accepts no requests for now", rest))?;
            let response = self.client.open(&target, headers.clone()).await;
            let response = response.map_err(|error| no_capture(format!("{}: {error}", named(&url))))?;
            if !response.status.is_redirection() {
                return self.page(url, hops, response).await;
            }
            drop(permit);
            let location = text_header(&response.headers, LOCATION).and_then(|location| url.join(location).ok());
            let is_usable = |next: &Url| next.has_host() && next.as_str().len() <= MAX_URL_BYTES;
            let Some(next) = location.filter(is_usable) else {
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
        let mut page = LandingPage {
            hops,
            url,
            time: Timestamp::now(),
            status,
            headers,
            body: None,
            links: PageLinks::default(),
            failure: None,
        };
        if !matches!(status.as_u16(), 200 | 226) {
            let message = format!("{name} answers {status}");
            let retry = if is_transient(status) { RetryRule::Backoff(None) } else { RetryRule::Never };
            let failure =
                IngestFailure { retry, ..IngestFailure::permanent(IngestStatus::TERMINAL_BAD_STATUS, message) };
            page.failure = Some(failure);
        } else if text_header(&page.headers, CONTENT_LENGTH) == Some("0")
            || is_page(text_header(&page.headers, CONTENT_TYPE))
        {
            match self.read_page(&page, response).await {
                Ok((links, body)) => {
                    (page.links, page.body) = (links, Some(body));
                    page.time = Timestamp::now();
                    return Ok(page);
                }
                Err(failure) => page.failure = Some(failure),
            }
        }
        let (headers, url) = (page.headers.clone(), page.url.clone());
        let bytes: usize = headers.get_all(LINK).iter().map(HeaderValue::len).sum();
        let links = move || PageLinks::read(&headers, &[], &url, &Cancelled::default());
        page.links = self.convert(bytes / LEAST_LINK_BYTES, links).await;
        page.time = Timestamp::now();
        Ok(page)
    }

    /// Reads the links of a page, and keeps its body.
    async fn read_page(
        &self,
        page: &LandingPage,
        response: ResponseStream,
    ) -> Result<(PageLinks, PageBody), IngestFailure> {
        let max_bytes = self.limits.page_bytes;
        let (name, headers, url) = (named(&page.url), page.headers.clone(), page.url.clone());
        let unreadable = |error| match error {
            BodyError::TooLarge(bytes) => {
                let message = format!("the page {name} has more than {bytes} bytes");
                IngestFailure::permanent(IngestStatus::BODY_TOO_LARGE, message)
            }
            BodyError::Broken(error) => IngestFailure::transient(IngestStatus::NO_CAPTURE, format!("{name}: {error}")),
            BodyError::Encoding(reason) => {
                let message = format!("{name} cannot be decoded: {reason}");
                IngestFailure::transient(IngestStatus::BAD_GZIP_ENCODING, message)
            }
            BodyError::Failed(reason) => {
                IngestFailure::transient(IngestStatus::NO_CAPTURE, format!("{name}: {reason}"))
            }
        };
        let body = self.receive(response, max_bytes).await.map_err(unreadable)?;
        if let Some(reason) = wrong_encoding(&body, text_header(&page.headers, CONTENT_ENCODING)) {
            return Err(unreadable(BodyError::Encoding(reason)));
        }
        let folder = self.budget.folder().to_owned();
        let read = move |body: Vec<u8>, cancelled: &Cancelled| {
            let links = PageLinks::read(&headers, &body, &url, cancelled);
            PageBody::new(body, &folder).map(|body| (links, body))
        };
        let read = self.read(body, max_bytes, read).await.map_err(unreadable)?;
        let (links, body) = read.map_err(|error| unreadable(BodyError::Failed(error.to_string())))?;
        if body.meta().size_bytes == 0 {
            let message = format!("{name} answers without a body");
            return Err(IngestFailure::permanent(IngestStatus::EMPTY_BLOB, message));
        }
        Ok((links, body))
    }
}

impl LandingPage {
    /// Returns whether the response is a file instead of a page.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.body.is_none() && self.failure.is_none()
    }
}

/// Returns why a body has another encoding than its header says, or one that cannot be read. Some servers compress a body
/// although nobody has asked for that.
fn wrong_encoding(body: &ReceivedBody, header: Option<&str>) -> Option<String> {
    let encoding = header.map(|encoding| encoding.trim().to_ascii_lowercase()).unwrap_or_default();
    let announced = match encoding.as_str() {
        "" | "identity" => return None,
        "x-gzip" => "gzip",
        other => other,
    };
    let is_other = body.length() > 0 && body.encoding() != Some(announced);
    is_other.then(|| format!("its encoding is {announced:?}, and it has another form"))
}

/// Returns whether a response with this media type is a page.
fn is_page(content_type: Option<&str>) -> bool {
    content_type.is_none_or(|text| {
        let text = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        matches!(text.as_str(), "" | "text/html" | "application/xhtml+xml")
    })
}

#[cfg(test)]
mod tests {
    use super::is_page;

    #[test]
    fn pages_and_files_differ_by_media_type() {
        assert!(is_page(None) && is_page(Some("text/HTML; charset=x")) && !is_page(Some("text/csv")));
    }
}
