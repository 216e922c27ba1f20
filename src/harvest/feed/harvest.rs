//! Requests of a feed, and the position after each response.

use std::sync::Arc;

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, DATE, LAST_MODIFIED},
};
use bytes::Bytes;
use chrono::Utc;
use futures_util::future::BoxFuture;
use quick_xml::escape::escape;
use sha2::{Digest, Sha256};

use super::{
    EntryMeaning, FeedSettings,
    changes::select_changes,
    document::{FeedDocument, FeedLinks},
    headers::{earliest, request_headers, validators, with_link_headers},
    position::{DocumentFacts, HubSubscription, Position, Validator, Validators, Walk},
    selection::{SelectedEntry, Selection, select},
};
use crate::{
    format::{
        Location, Rejection,
        feed::{DELETED_ENTRY, ENTRY_KEY, FEED_URL, RESPONSE_DATE, TOMBSTONES, entry_uri},
    },
    harvest::{
        Callback, HarvestError, Harvester, Page, PageEnd,
        client::{PlaceClient, RawResponse},
        text,
    },
    http_client::{OutboundUrl, is_transient},
    intake::{Incoming, ReceivedMessage},
    journal::{
        Journal,
        harvest::{ListedRecord, ListedRecords},
    },
    model::{SourceName, Timestamp},
    web::header_date,
};

/// Number of successive responses with the status 410 after which the feed counts as gone.
const GONE_RESPONSES: u32 = 3;

/// Maximum number of entries of a document that the position remembers.
const MAX_ENTRIES: usize = 500;

/// Harvest of one feed.
pub(super) struct FeedHarvester {
    pub(super) settings: FeedSettings,
    pub(super) feed_url: String,
    pub(super) source: SourceName,
    pub(super) journal: Journal,
    pub(super) client: PlaceClient,
    /// URL of the gateway for notifications of a hub, without a trailing slash; `None` if no hub is used.
    pub(super) callbacks: Option<Arc<str>>,
}

impl Harvester for FeedHarvester {
    fn describe(&self) -> String {
        super::HarvesterSettings::describe(&self.settings)
    }

    fn page<'a>(&'a self, position: &'a str, attempt: u32) -> BoxFuture<'a, Result<Page, HarvestError>> {
        Box::pin(self.next_page(Position::parse(position, &self.feed_url), attempt))
    }

    fn callback(&self, position: &str) -> Option<Callback> {
        let HubSubscription { hub, token, .. } = Position::parse(position, &self.feed_url).subscription?;
        Some(Callback { topic: hub.topic, token })
    }

    fn earliest_run(&self, position: &str) -> Option<Timestamp> {
        Position::parse(position, &self.feed_url).earliest
    }
}

/// A document of the feed, with its entries as messages.
pub(super) struct ReadDocument {
    messages: Vec<ReceivedMessage>,
    is_repaired: bool,
    pub(super) remarks: Vec<String>,
    pub(super) links: FeedLinks,
    is_archive: bool,
    is_complete: bool,
    /// Reason why the end of the document cannot be read.
    pub(super) broken: Option<String>,
    /// URIs of all entries, if all are readable.
    uris: Option<Vec<String>>,
    pub(super) facts: DocumentFacts,
}

impl ReadDocument {
    /// Returns whether the document has an entry of the last document of the run before.
    pub(super) fn overlaps(&self, position: &Position) -> bool {
        self.facts.entries.iter().any(|entry| position.entries.contains(entry))
    }

    pub(super) fn into_page(self, position: &Position, end: PageEnd) -> Page {
        let Self { messages, is_repaired, remarks, .. } = self;
        Page { is_repaired, ..page(position, messages, end, remarks) }
    }
}

impl FeedHarvester {
    async fn next_page(&self, mut position: Position, attempt: u32) -> Result<Page, HarvestError> {
        let page = match position.walk.take() {
            None => self.newest_document(position, None).await?,
            Some(Walk::Subscribe) => return self.subscribe(position).await,
            Some(walk) => self.walk(position, walk, attempt).await?,
        };
        self.before_end(page).await
    }

    /// Requests the feed itself: at the beginning of a run, and after its archives, of which `newest` was the newest.
    pub(super) async fn newest_document(
        &self,
        mut position: Position,
        newest: Option<String>,
    ) -> Result<Page, HarvestError> {
        let condition = if newest.is_none() { position.condition() } else { Validators::default() };
        let mut headers = request_headers(&condition);
        if position.subscription.is_some() {
            // A cache may still have the document from before the notification of the hub.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        let mut raw = self.request(&self.settings.url, &headers).await?;
        let mut remarks = Vec::from_iter(raw.remark.take());
        if raw.status == StatusCode::NOT_MODIFIED && condition != Validators::default() {
            position.unchanged += 1;
            (position.gone, position.doubt) = (0, None);
            // A response without a change may have a new date (RFC 9110 section 15.4.5).
            let last_modified = raw.headers.get(LAST_MODIFIED).and_then(Validator::of);
            position.validators.last_modified = last_modified.or(position.validators.last_modified);
            position.earliest = earliest(position.interval, &raw.headers, Utc::now());
            return Ok(page(&position, Vec::new(), PageEnd::Complete, remarks));
        }
        if !raw.status.is_success() {
            return Err(refusal(position, &raw));
        }
        (position.gone, position.unchanged) = (0, 0);
        if newest.is_none() && body_digest(&raw) == position.body {
            position.doubt = None;
            position.validators = validators(&raw.headers);
            position.earliest = earliest(position.interval, &raw.headers, Utc::now());
            return Ok(page(&position, Vec::new(), PageEnd::Complete, remarks));
        }
        let is_delta = raw.status == StatusCode::IM_USED;
        let (mut position, mut document) = self.read(raw, position).await?;
        position.hub = self.hub_link(&document.links);
        remarks.append(&mut document.remarks);
        document.remarks = remarks;
        self.after_newest(position, document, newest.as_ref(), is_delta)
    }

    /// Decides what follows the feed itself.
    fn after_newest(
        &self,
        mut position: Position,
        mut document: ReadDocument,
        newest: Option<&String>,
        is_delta: bool,
    ) -> Result<Page, HarvestError> {
        if let Some(reason) = document.broken.take() {
            return Ok(document.into_page(&position, PageEnd::Failed(reason)));
        }
        if document.is_archive && document.links.current.is_some() {
            let reason = "the document is an archive, which never changes; change the url of the source to that of the \
                          link with the relation \"current\"";
            return Err(HarvestError::fail(reason));
        }
        let uris = document.uris.take().filter(|_| document.is_complete);
        if let Some(uris) = uris.as_ref().filter(|_| !is_delta) {
            return Ok(self.complete_feed(position, document, uris.clone()));
        }
        let is_first = position.body.is_empty();
        let links = document.links.clone();
        let url = self.settings.url.expose().as_str();
        let archive = links.previous_archive.and_then(|link| self.link(url, &link));
        if newest.is_some() {
            if let Some(reason) = position.interruption.take() {
                return Ok(document.into_page(&position, PageEnd::Failed(reason)));
            }
            if archive.as_ref() != newest {
                // An archive was made meanwhile. The next run reads the feed again, and the archives since `newest`.
                (document.facts.validators, document.facts.entries) = (Validators::default(), position.entries.clone());
                document.facts.body.insert(0, '-');
            }
            position.complete(document.facts.clone());
            return Ok(document.into_page(&position, PageEnd::Complete));
        }
        let is_gap = !document.is_complete
            && !is_delta
            && (is_first || !(position.entries.is_empty() || document.facts.entries.is_empty()))
            && !document.overlaps(&position);
        if let Some(archive) = archive.filter(|_| is_gap) {
            position.walk = Some(Walk::Search { archives: vec![archive] });
            return Ok(page(&position, Vec::new(), PageEnd::More, document.remarks));
        }
        if let Some(next) = links.next.and_then(|link| self.link(url, &link))
            && is_gap
        {
            position.pending = Some(document.facts.clone());
            position.walk = Some(Walk::Pages { next, visited: Vec::new() });
            return Ok(document.into_page(&position, PageEnd::More));
        }
        if is_gap && !is_first {
            let remark =
                "the feed has no entry of the last run any more, so entries may have been missed; shorten every";
            document.remarks.push(remark.to_owned());
        }
        if is_delta {
            document.facts.entries.append(&mut position.entries);
            document.facts.entries.truncate(MAX_ENTRIES);
        }
        position.complete(document.facts.clone());
        // The next complete document may no longer have the entries of this part.
        let present = uris.unwrap_or_default().into_iter().map(ListedRecord::from).collect();
        let listed = ListedRecords { present, at: Some(Timestamp::now()), ..ListedRecords::default() };
        Ok(Page { listed, ..document.into_page(&position, PageEnd::Complete) })
    }

    /// Sends a request.
    pub(super) async fn request(&self, url: &OutboundUrl, headers: &HeaderMap) -> Result<RawResponse, HarvestError> {
        let mut permit = self.client.permit().await;
        let raw = self.client.get(url, None, headers).await?;
        if raw.is_busy() {
            return Err(self.client.busy(&mut permit, raw.status, &raw.headers).into());
        }
        Ok(raw)
    }

    /// Parses a document, and notes its ambiguous and unreadable entries in the position.
    pub(super) async fn read(
        &self,
        raw: RawResponse,
        position: Position,
    ) -> Result<(Position, ReadDocument), HarvestError> {
        let (feed_url, max_record_bytes) = (self.feed_url.clone(), self.client.max_record_bytes());
        let meaning = self.settings.entries;
        let read = move || read(&raw, position, &feed_url, (max_record_bytes, meaning));
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|error| HarvestError::fail(format!("the parser has failed: {error}")))?
    }
}

fn read(
    raw: &RawResponse,
    mut position: Position,
    feed_url: &str,
    (max_record_bytes, meaning): (usize, EntryMeaning),
) -> Result<(Position, ReadDocument), HarvestError> {
    let text::RepairedText { text, repairs } = text::read(&raw.body, raw.charset());
    if text.trim().is_empty() {
        return Err(HarvestError::fail("the response is empty"));
    }
    let document = FeedDocument::parse(&text).map_err(|error| HarvestError::fail(error.to_string()))?;
    let Position { ambiguous, unreadable, .. } = &mut position;
    let selection = match meaning {
        EntryMeaning::Objects => select(&document, feed_url, max_record_bytes, ambiguous, unreadable),
        EntryMeaning::Changes => select_changes(&document),
    };
    let Selection { entries, keys, has_new_ambiguity } = selection;
    let remarks = has_new_ambiguity.then(|| {
        "several entries of the feed have the same id or link; their links or contents identify them".to_owned()
    });
    let date = header_date(&raw.headers, &DATE).map_or_else(Timestamp::now, Timestamp::from_datetime);
    let uris = keys.iter().map(|key| entry_uri(feed_url, key).ok().map(|uri| uri.to_string())).collect();
    let interval = document.interval.map(|interval| interval.as_secs());
    let facts = DocumentFacts {
        validators: validators(&raw.headers),
        body: body_digest(raw),
        interval,
        earliest: earliest(interval, &raw.headers, Utc::now()),
        entries: keys.iter().take(MAX_ENTRIES).map(|key| hex::encode(&Sha256::digest(key)[..8])).collect(),
    };
    let document = ReadDocument {
        messages: entries.into_iter().map(|entry| message(entry, feed_url, date, max_record_bytes)).collect(),
        is_repaired: repairs > 0,
        remarks: Vec::from_iter(remarks),
        links: with_link_headers(document.links, &raw.headers),
        is_archive: document.is_archive,
        is_complete: document.is_complete,
        broken: document.broken,
        uris: position.unreadable.is_empty().then_some(uris).flatten(),
        facts,
    };
    Ok((position, document))
}

fn body_digest(raw: &RawResponse) -> String {
    hex::encode(Sha256::digest(&raw.body))
}

/// Returns a page.
pub(super) fn page(position: &Position, messages: Vec<ReceivedMessage>, end: PageEnd, remarks: Vec<String>) -> Page {
    Page { remarks, ..Page::new(messages, position.text(), end) }
}

/// Returns the message that deletes an entry.
pub(super) fn tombstone(uri: &str, feed_url: &str, when: Timestamp) -> ReceivedMessage {
    let document = format!(
        "<feed xmlns=\"http://www.w3.org/2005/Atom\"><at:{DELETED_ENTRY} xmlns:at=\"{TOMBSTONES}\" ref=\"{}\" \
         when=\"{when}\"/></feed>",
        escape(uri)
    );
    message(SelectedEntry { document, key: None }, feed_url, when, usize::MAX)
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
    use super::{HeaderMap, Utc, earliest};

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
}
