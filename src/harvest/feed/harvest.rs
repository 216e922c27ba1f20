//! Requests of a feed, and the position after each response.

use std::time::Duration;

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, DATE, ETAG, EXPIRES, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED},
};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

use super::{
    FeedSettings,
    document::FeedDocument,
    position::{Position, Validator, Validators},
    selection::{SelectedEntry, Selection, select},
};
use crate::{
    format::{
        Location, Rejection,
        feed::{ENTRY_KEY, FEED_URL, RESPONSE_DATE},
    },
    harvest::{
        HarvestError, Harvester, Page, PageEnd,
        client::{PlaceClient, RawResponse},
        text,
    },
    http_client::is_transient,
    intake::{Incoming, ReceivedMessage},
    journal::harvest::ListedRecords,
    model::Timestamp,
    web::header_date,
};

/// Number of successive responses with the status 410 after which the feed counts as gone.
const GONE_RESPONSES: u32 = 3;

/// Maximum time between two requests that a publisher can ask for.
const LONGEST_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Media types of feeds, preferred ones first.
const ACCEPTED: &str = "application/atom+xml, application/rss+xml, application/rdf+xml, application/xml;q=0.9, \
                        text/xml;q=0.9, */*;q=0.1";

/// Harvest of one feed.
pub(super) struct FeedHarvester {
    settings: FeedSettings,
    feed_url: String,
    client: PlaceClient,
}

impl Harvester for FeedHarvester {
    fn describe(&self) -> String {
        super::HarvesterSettings::describe(&self.settings)
    }

    fn page<'a>(&'a self, position: &'a str, _attempt: u32) -> BoxFuture<'a, Result<Page, HarvestError>> {
        Box::pin(self.next_page(Position::parse(position, &self.feed_url)))
    }

    fn earliest_run(&self, position: &str) -> Option<Timestamp> {
        Position::parse(position, &self.feed_url).earliest
    }
}

/// Returns the time before which a feed is not requested again: that of its interval, of `max-age` and of `Expires`, but
/// at most [`LONGEST_INTERVAL`] from now.
fn earliest(position: &Position, headers: &HeaderMap, now: DateTime<Utc>) -> Option<Timestamp> {
    let directives = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut directives = directives.flat_map(|value| value.split(',')).map(str::trim);
    let max_age = directives.find_map(|directive| directive.strip_prefix("max-age=")?.trim_matches('"').parse().ok());
    // `max-age` counts before `Expires` (RFC 9111 section 5.3).
    let fresh = max_age.or_else(|| {
        let expires = header_date(headers, &EXPIRES)? - header_date(headers, &DATE).unwrap_or(now);
        u64::try_from(expires.num_seconds()).ok()
    });
    let seconds = fresh.max(position.interval).filter(|seconds| *seconds > 0)?;
    let wait = Duration::from_secs(seconds).min(LONGEST_INTERVAL);
    Some(Timestamp::from_datetime(now + wait))
}

/// A complete response, for the parser.
struct Document {
    raw: RawResponse,
    date: Timestamp,
    body_digest: String,
}

impl FeedHarvester {
    pub(super) fn new(settings: FeedSettings, client: PlaceClient) -> Self {
        Self { feed_url: settings.public_url(), settings, client }
    }

    async fn next_page(&self, mut position: Position) -> Result<Page, HarvestError> {
        let condition = position.condition();
        let mut permit = self.client.permit().await;
        let mut raw = self.client.get(&self.settings.url, None, &request_headers(&condition)).await?;
        if raw.is_busy() {
            return Err(self.client.busy(&mut permit, raw.status, &raw.headers).into());
        }
        drop(permit);
        let remarks = Vec::from_iter(raw.remark.take());
        if raw.status == StatusCode::NOT_MODIFIED && condition != Validators::default() {
            position.unchanged += 1;
            position.gone = 0;
            // A response without a change may have a new date (RFC 9110 section 15.4.5).
            let last_modified = raw.headers.get(LAST_MODIFIED).and_then(Validator::of);
            position.validators.last_modified = last_modified.or(position.validators.last_modified);
            position.earliest = earliest(&position, &raw.headers, Utc::now());
            return Ok(complete_page(&position, remarks));
        }
        if !raw.status.is_success() {
            return Err(refusal(position, &raw));
        }
        (position.gone, position.unchanged) = (0, 0);
        let body_digest = hex::encode(Sha256::digest(&raw.body));
        if body_digest == position.body {
            position.validators = validators(&raw.headers);
            position.earliest = earliest(&position, &raw.headers, Utc::now());
            return Ok(complete_page(&position, remarks));
        }
        let date = header_date(&raw.headers, &DATE).map_or_else(Timestamp::now, Timestamp::from_datetime);
        let (feed_url, max_record_bytes) = (self.feed_url.clone(), self.client.max_record_bytes());
        let document = Document { raw, date, body_digest };
        let read = tokio::task::spawn_blocking(move || document.page(position, &feed_url, max_record_bytes)).await;
        let mut page = read.map_err(|error| HarvestError::fail(format!("the parser has failed: {error}")))??;
        page.remarks.splice(..0, remarks);
        Ok(page)
    }
}

impl Document {
    /// Returns the page with the entries, and the position after it. The position of a document that cannot be read to
    /// its end stays as it is, so that the next run gets the document again.
    fn page(self, mut position: Position, feed_url: &str, max_record_bytes: usize) -> Result<Page, HarvestError> {
        let text::RepairedText { text, repairs } = text::read(&self.raw.body, self.raw.charset());
        if text.trim().is_empty() {
            return Err(HarvestError::fail("the response is empty"));
        }
        let document = FeedDocument::parse(&text).map_err(|error| HarvestError::fail(error.to_string()))?;
        let Position { ambiguous, unreadable, .. } = &mut position;
        let Selection { entries, has_new_ambiguity } =
            select(&document, feed_url, max_record_bytes, ambiguous, unreadable);
        let remarks = has_new_ambiguity.then(|| {
            "several entries of the feed have the same id or link; their links or contents identify them".to_owned()
        });
        let messages = entries.into_iter().map(|entry| message(entry, feed_url, self.date, max_record_bytes)).collect();
        let end = match document.broken {
            Some(reason) => PageEnd::Failed(reason),
            None => {
                position.body = self.body_digest;
                position.validators = validators(&self.raw.headers);
                position.interval = document.interval.map(|interval| interval.as_secs());
                position.earliest = earliest(&position, &self.raw.headers, Utc::now());
                PageEnd::Complete
            }
        };
        Ok(Page {
            messages,
            position: position.text(),
            end,
            is_repaired: repairs > 0,
            remarks: Vec::from_iter(remarks),
            listed: ListedRecords::default(),
        })
    }
}

fn request_headers(condition: &Validators) -> HeaderMap {
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
fn validators(headers: &HeaderMap) -> Validators {
    let of = |name: HeaderName| headers.get(name).and_then(Validator::of);
    Validators { etag: of(ETAG), last_modified: of(LAST_MODIFIED) }
}

/// Returns the page of a run that has found no change.
fn complete_page(position: &Position, remarks: Vec<String>) -> Page {
    Page {
        messages: Vec::new(),
        position: position.text(),
        end: PageEnd::Complete,
        is_repaired: false,
        remarks,
        listed: ListedRecords::default(),
    }
}

/// Returns the error for a status without a document.
fn refusal(mut position: Position, raw: &RawResponse) -> HarvestError {
    let status = raw.status;
    let is_challenge = raw.headers.get("cf-mitigated").is_some_and(|value| value.as_bytes() == b"challenge");
    match status {
        StatusCode::GONE => {
            position.gone = position.gone.saturating_add(1);
            let reason = if position.gone < GONE_RESPONSES {
                format!("the server says that the feed is gone ({status})")
            } else {
                let times = position.gone;
                format!("the feed is gone ({status}, {times} times in a row); remove the source or change its url")
            };
            HarvestError::Fail { reason, position: Some(position.text()) }
        }
        _ if is_challenge => HarvestError::fail(format!(
            "a protection against robots refuses access to the feed ({status}, cf-mitigated)"
        )),
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
            HarvestError::fail(format!("the server refuses access to the feed ({status})"))
        }
        _ if is_transient(status) => HarvestError::retry(format!("the server has failed ({status})")),
        _ => HarvestError::fail(format!("the server does not return the feed ({status})")),
    }
}

/// Returns an entry as a message for the dialect.
fn message(entry: SelectedEntry, feed_url: &str, date: Timestamp, max_record_bytes: usize) -> ReceivedMessage {
    let SelectedEntry { mut document, key } = entry;
    let mut headers = vec![(FEED_URL, feed_url.to_owned()), (RESPONSE_DATE, date.to_string())];
    headers.extend(key.map(|key| (ENTRY_KEY, key.name().to_owned())));
    let bytes = document.len();
    let cut = (0..=bytes.min(max_record_bytes)).rev().find(|at| document.is_char_boundary(*at));
    document.truncate(cut.unwrap_or_default());
    let incoming = Incoming {
        content_type: Some("application/xml".to_owned()),
        headers: headers.into_iter().collect(),
        body: Bytes::from(document),
        transport_id: None,
        redelivered: false,
    };
    if bytes > max_record_bytes {
        let reason = format!("the entry has {bytes} bytes, and limits.body_bytes is {max_record_bytes}");
        let rejection = Rejection::unprocessable(Location::Message, reason);
        return ReceivedMessage::Unreadable { incoming, rejection, encoded: false };
    }
    ReceivedMessage::Readable(incoming)
}

#[cfg(test)]
mod tests {
    use super::{HeaderMap, Position, Utc, earliest};

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
            let position = Position { interval, ..Position::default() };
            let name: axum::http::HeaderName = header.0.parse().unwrap();
            let headers = HeaderMap::from_iter([(name, header.1.parse().unwrap())]);
            let found = earliest(&position, &headers, now).map(|time| time.to_string()[11..19].to_owned());
            assert_eq!(found.as_deref(), expected, "{header:?}");
        }
    }
}
