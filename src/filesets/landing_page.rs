//! Landing pages: the redirections from the URL of a request to the page of the dataset.

use std::collections::{HashMap, HashSet};

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, LINK, SET_COOKIE},
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
    format::fileset::{public_url::without_secrets, status::IngestStatus},
    http_client::{ClientError, ResponseStream, is_transient, redirection_target},
    model::Timestamp,
    transfer::{Redirection, body::ReceivedBody, budget::Cancelled},
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
    /// Redirections between them.
    pub(super) redirections: Vec<Redirection>,
    /// DOI that the request names beside its URL.
    pub requested_doi: Option<String>,
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
        let accept = HeaderValue::from_static("text/html, application/xhtml+xml, */*;q=0.5");
        let (mut url, mut way, mut cookies) = (start.clone(), PageWay::new(start), Cookies::default());
        loop {
            let mut headers = HeaderMap::from_iter([(ACCEPT, accept.clone())]);
            headers.extend(cookies.header(&url).map(|cookie| (COOKIE, cookie)));
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
            let response = self.client.open(&target, headers).await;
            let response = response.map_err(|error| unreachable(&url, &error))?;
            if !response.status.is_redirection() {
                return self.page(url, way, response, None).await;
            }
            drop(permit);
            // A server that sets a cookie and redirects to the same page ends the loop when it gets the cookie.
            if cookies.set(&url, &response.headers) {
                way.seen.clear();
            }
            let location = redirection_target(&response.headers, &url);
            let is_usable = |next: &Url| next.has_host() && next.as_str().len() <= MAX_URL_BYTES;
            let Some(next) = location.filter(is_usable) else {
                let message = format!("{} redirects to no valid URL", named(&url));
                let failure = IngestFailure::permanent(IngestStatus::BAD_REDIRECT, message);
                return self.page(url, way, response, Some(failure)).await;
            };
            let failure = if !way.seen.insert(next.clone()) {
                let message = format!("redirections lead back to {}", named(&next));
                IngestFailure::permanent(IngestStatus::REDIRECT_LOOP, message)
            } else if way.hops.len() > MAX_HOPS {
                let message = format!("there are more than {MAX_HOPS} redirections");
                IngestFailure::permanent(IngestStatus::REDIRECTS_EXCEEDED, message)
            } else {
                way.add(&url, &next, response.status);
                url = next;
                continue;
            };
            return self.page(url, way, response, Some(failure)).await;
        }
    }

    /// Reads the page of a response. A way that leads nowhere is a failure of the page, because a URL on it may be one of a
    /// known platform.
    async fn page(
        &self,
        url: Url,
        PageWay { hops, redirections, .. }: PageWay,
        response: ResponseStream,
        failure: Option<IngestFailure>,
    ) -> Result<LandingPage, IngestFailure> {
        let (status, headers, name) = (response.status, response.headers.clone(), named(&url));
        let mut page = LandingPage {
            hops,
            redirections,
            requested_doi: None,
            url,
            time: Timestamp::now(),
            status,
            headers,
            body: None,
            links: PageLinks::default(),
            failure,
        };
        if page.failure.is_some() {
            return Ok(page);
        }
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

/// Returns the failure of a server that gives no response.
fn unreachable(url: &Url, error: &ClientError) -> IngestFailure {
    let failure = IngestFailure::transient(IngestStatus::PLATFORM_ERROR, format!("{}: {error}", named(url)));
    match error {
        ClientError::Refused(_) => IngestFailure { retry: RetryRule::WhenListening, ..failure },
        _ => failure,
    }
}

/// The way to a page.
struct PageWay {
    hops: Vec<Url>,
    redirections: Vec<Redirection>,
    /// URLs that were requested since the last new cookie.
    seen: HashSet<Url>,
}

impl PageWay {
    fn new(start: &Url) -> Self {
        Self { hops: vec![start.clone()], redirections: Vec::new(), seen: HashSet::from([start.clone()]) }
    }

    fn add(&mut self, from: &Url, to: &Url, status: StatusCode) {
        let public = |url: &Url| without_secrets(url.as_str());
        let (url, target) = (public(from), public(to));
        self.redirections.push(Redirection { url, target, status: status.as_u16(), time: Timestamp::now() });
        self.hops.push(to.clone());
    }
}

/// Maximum number of cookies of a way, and the maximum size of each in bytes.
const MAX_COOKIES: usize = 20;
const MAX_COOKIE_BYTES: usize = 4 << 10;

/// Cookies that servers have set on the way to a page, each for its origin. They are forgotten with the way.
#[derive(Default)]
struct Cookies(HashMap<(url::Origin, String), String>);

impl Cookies {
    /// Keeps the cookies of a response; returns whether one is new or has another value.
    fn set(&mut self, url: &Url, headers: &HeaderMap) -> bool {
        let mut is_new = false;
        for cookie in headers.get_all(SET_COOKIE) {
            let pair = cookie.to_str().ok().and_then(|text| text.split(';').next()?.trim().split_once('='));
            let Some((name, value)) = pair.filter(|_| cookie.len() <= MAX_COOKIE_BYTES) else { continue };
            let key = (url.origin(), name.to_owned());
            if self.0.len() < MAX_COOKIES || self.0.contains_key(&key) {
                is_new |= self.0.insert(key, value.to_owned()).as_deref() != Some(value);
            }
        }
        is_new
    }

    /// Returns the header with the cookies for a URL.
    fn header(&self, url: &Url) -> Option<HeaderValue> {
        let own = self.0.iter().filter(|((origin, _), _)| *origin == url.origin());
        let mut pairs: Vec<_> = own.map(|((_, name), value)| format!("{name}={value}")).collect();
        pairs.sort_unstable();
        HeaderValue::try_from(pairs.join("; ")).ok().filter(|cookie| !cookie.is_empty())
    }
}

impl LandingPage {
    /// Returns the page as if the way to it had ended at an earlier URL. It has no content of its own there.
    #[must_use]
    pub fn at(&self, url: Url) -> Self {
        Self { url, body: None, links: PageLinks::default(), ..self.clone() }
    }

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
