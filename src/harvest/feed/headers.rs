//! Headers of requests and responses of a feed: conditions, the time of the next request, and links.

use std::time::Duration;

use axum::http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ACCEPT, CACHE_CONTROL, DATE, ETAG, EXPIRES, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LINK},
};
use chrono::{DateTime, Utc};

use super::{
    document::FeedLinks,
    position::{Validator, Validators},
};
use crate::{format::web_links::link_targets, http_client::header_text, model::Timestamp, web::header_date};

/// Maximum time between two requests that a publisher can ask for.
const LONGEST_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Media types of feeds, preferred ones first.
const ACCEPTED: &str = "application/atom+xml, application/rss+xml, application/rdf+xml, application/xml;q=0.9, \
                        text/xml;q=0.9, */*;q=0.1";

/// Returns the time before which a feed is not requested again: that of its interval, of `max-age` and of `Expires`, but
/// at most [`LONGEST_INTERVAL`] from now.
pub(super) fn earliest(interval: Option<u64>, headers: &HeaderMap, now: DateTime<Utc>) -> Option<Timestamp> {
    let directives = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut directives = directives.flat_map(|value| value.split(',')).map(str::trim);
    let max_age = directives.find_map(|directive| directive.strip_prefix("max-age=")?.trim_matches('"').parse().ok());
    // `max-age` counts before `Expires` (RFC 9111 section 5.3).
    let fresh = max_age.or_else(|| {
        let expires = header_date(headers, &EXPIRES)? - header_date(headers, &DATE).unwrap_or(now);
        u64::try_from(expires.num_seconds()).ok()
    });
    let seconds = fresh.max(interval).filter(|seconds| *seconds > 0)?;
    let wait = Duration::from_secs(seconds).min(LONGEST_INTERVAL);
    Some(Timestamp::from_datetime(now + wait))
}

/// Returns the headers of a request with these conditions.
pub(super) fn request_headers(condition: &Validators) -> HeaderMap {
    let mut headers = HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static(ACCEPTED)),
        // A server may send only the entries since the validator (RFC 3229 section 5.3).
        (HeaderName::from_static("a-im"), HeaderValue::from_static("feed")),
    ]);
    for (name, validator) in [(IF_NONE_MATCH, &condition.etag), (IF_MODIFIED_SINCE, &condition.last_modified)] {
        if let Some(value) = validator.as_ref().and_then(Validator::header) {
            headers.insert(name, value);
        }
    }
    headers
}

/// Returns the validators of a document that has been read completely.
pub(super) fn validators(headers: &HeaderMap) -> Validators {
    let etag = headers.get(ETAG).and_then(Validator::of);
    Validators { etag, last_modified: last_modified(headers, Utc::now()) }
}

/// Returns the date of the last modification as a validator. One that is later than the response is none, because the
/// server would answer that nothing has changed until then.
pub(super) fn last_modified(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Validator> {
    let response = header_date(headers, &DATE).unwrap_or(now);
    let is_past = header_date(headers, &LAST_MODIFIED).is_none_or(|date| date <= response);
    headers.get(LAST_MODIFIED).filter(|_| is_past).and_then(Validator::of)
}

/// Returns the links of a document with those of its headers, which count first for a hub (WebSub section 4).
pub(super) fn with_link_headers(links: FeedLinks, headers: &HeaderMap) -> FeedLinks {
    let values = || headers.get_all(LINK).iter().map(header_text);
    let first = |relation| link_targets(values(), relation).into_iter().next();
    FeedLinks { hub: first("hub").or(links.hub), own: first("self").or(links.own), ..links }
}

#[cfg(test)]
mod tests {
    use super::{FeedLinks, HeaderMap, HeaderValue, LINK, Utc, earliest, with_link_headers};

    #[test]
    fn longest_interval_of_publisher_and_cache_counts() {
        let now: chrono::DateTime<Utc> = "2024-01-01T00:00:00Z".parse().unwrap();
        let expires = |time: &str| ("expires", format!("Mon, 01 Jan 2024 {time} GMT"));
        for (interval, header, expected) in [
            (None, ("x", String::new()), None),
            (Some(60), ("x", String::new()), Some("00:01:00")),
            (Some(60), ("cache-control", "public, max-age=600".to_owned()), Some("00:10:00")),
            (Some(3600), ("cache-control", "max-age=600".to_owned()), Some("01:00:00")),
            (None, ("cache-control", "no-cache, max-age=0".to_owned()), None),
            (None, expires("02:00:00"), Some("02:00:00")),
            (Some(1_000_000), ("expires", "0".to_owned()), Some("00:00:00")),
        ] {
            let name: axum::http::HeaderName = header.0.parse().unwrap();
            let headers = HeaderMap::from_iter([(name, header.1.parse().unwrap())]);
            let found = earliest(interval, &headers, now).map(|time| time.to_string()[11..19].to_owned());
            assert_eq!(found.as_deref(), expected, "{header:?}");
        }
    }

    #[test]
    fn links_are_read_beside_bytes_that_are_not_ascii() {
        for title in ["título".as_bytes(), b"t\xedtulo"] {
            let value =
                [b"<https://hub.example/>; rel=hub, <https://h.example/feed>; rel=self; title=\"", title, b"\""];
            let headers = HeaderMap::from_iter([(LINK, HeaderValue::from_bytes(&value.concat()).unwrap())]);
            let links = with_link_headers(FeedLinks::default(), &headers);
            assert_eq!(links.hub.as_deref(), Some("https://hub.example/"));
            assert_eq!(links.own.as_deref(), Some("https://h.example/feed"));
        }
    }
}
