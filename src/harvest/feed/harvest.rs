//! Requests of a feed, and the position after each response.

use std::sync::{Arc, OnceLock};

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, DATE},
};
use chrono::Utc;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

use super::{
    EntryMeaning, FeedSettings,
    changes::select_changes,
    document::{FeedDocument, FeedLinks},
    headers::{earliest, last_modified, request_headers, validators, with_link_headers},
    message::FeedText,
    position::{DocumentFacts, HubSubscription, Position, Validators, Walk},
    selection::{Remembered, SelectedEntry, Selection, ShownEntry, select},
    sharing::{ListedEntry, Shares},
};
use crate::{
    format::feed::entry_uri,
    harvest::{
        Callback, Cancelled, HarvestError, HarvestedRecord, Harvester, HarvestsHandle, Page, PageEnd, Records,
        client::{PlaceClient, RawResponse},
        text,
    },
    http_client::{OutboundUrl, is_transient},
    journal::{
        Journal,
        harvest::{FormerRecords, ListedRecord, ListedRecords},
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
    pub(super) harvests: HarvestsHandle,
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

    fn rest(&self) {
        self.client.rest();
    }

    fn earliest_run(&self, position: &str) -> Option<Timestamp> {
        Position::parse(position, &self.feed_url).earliest
    }
}

/// A document of the feed, with its entries as messages.
pub(super) struct ReadDocument {
    records: Records,
    is_repaired: bool,
    pub(super) remarks: Vec<String>,
    /// Shares of the entries that other feeds show too.
    shares: Arc<OnceLock<Shares>>,
    pub(super) links: FeedLinks,
    /// Whether most of the entries have a new id and the link of a known entry.
    is_renamed: bool,
    is_archive: bool,
    is_complete: bool,
    /// Reason why the end of the document cannot be read.
    pub(super) broken: Option<String>,
    /// The readable entries.
    pub(super) shown: Vec<ListedEntry>,
    /// Whether all entries are readable.
    shows_all: bool,
    pub(super) facts: DocumentFacts,
}

impl ReadDocument {
    /// Returns whether the document has an entry of the last document of the run before.
    pub(super) fn overlaps(&self, position: &Position) -> bool {
        self.facts.entries.iter().any(|entry| position.entries.contains(entry))
    }

    /// Returns the list of the entries for the journal.
    pub(super) fn listed(&self, former: FormerRecords, at: Timestamp) -> ListedRecords {
        // Feeds begin with their newest entries, and messages with the oldest.
        let present = self.shown.iter().rev().cloned().map(ListedRecord::from).collect();
        ListedRecords { former, present, at: Some(at), ..ListedRecords::default() }
    }

    pub(super) fn into_page(self, position: &Position, end: PageEnd) -> Page {
        let Self { records, is_repaired, remarks, .. } = self;
        Page { is_repaired, ..page(position, records, end, remarks) }
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
        let condition = if newest.is_none() {
            self.notice_claims(&mut position).await?;
            position.condition(Timestamp::now())
        } else {
            Validators::default()
        };
        let mut headers = request_headers(&condition);
        if position.subscription.is_some() {
            // A cache may still have the document from before the notification of the hub.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        let (mut raw, digest) = self.request(&self.settings.url, &headers).await?;
        let mut remarks = Vec::from_iter(raw.remark.take());
        if raw.status == StatusCode::NOT_MODIFIED && condition != Validators::default() {
            position.unchanged += 1;
            (position.gone, position.doubt) = (0, None);
            // A response without a change may have a new date (RFC 9110 section 15.4.5).
            let last_modified = last_modified(&raw.headers, Utc::now());
            position.validators.last_modified = last_modified.or(position.validators.last_modified);
            // A position of a former version has no time.
            position.document_at.get_or_insert_with(Timestamp::now);
            position.earliest = earliest(position.interval, &raw.headers, Utc::now());
            return Ok(page(&position, Vec::new(), PageEnd::Complete, remarks));
        }
        if !raw.status.is_success() {
            return Err(refusal(position, &raw));
        }
        (position.gone, position.unchanged, position.document_at) = (0, 0, Some(Timestamp::now()));
        if newest.is_none() && digest == position.body {
            position.doubt = None;
            position.validators = validators(&raw.headers);
            position.earliest = earliest(position.interval, &raw.headers, Utc::now());
            return Ok(page(&position, Vec::new(), PageEnd::Complete, remarks));
        }
        let is_delta = raw.status == StatusCode::IM_USED;
        let (mut position, mut document) = self.read((raw, digest), position).await?;
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
        if document.is_complete && document.shows_all && !is_delta {
            return Ok(self.complete_feed(position, document));
        }
        let is_first = position.body.is_empty();
        // The next complete document may no longer have the entries of this part.
        let is_part = document.is_complete || is_delta;
        let listed =
            document.listed(if is_part { FormerRecords::Keep } else { FormerRecords::Unlist }, Timestamp::now());
        position.is_complete = Some(is_part && position.is_complete == Some(true));
        let links = document.links.clone();
        let url = self.settings.url.expose().as_str();
        let archive = links.previous_archive.and_then(|link| self.link(url, &link));
        if newest.is_some() {
            if let Some(reason) = position.interruption.take() {
                return Ok(Page { listed, ..document.into_page(&position, PageEnd::Failed(reason)) });
            }
            if archive.as_ref() != newest {
                // An archive was made meanwhile. The next run reads the feed again, and the archives since `newest`.
                (document.facts.validators, document.facts.entries) = (Validators::default(), position.entries.clone());
                document.facts.body.insert(0, '-');
            }
            position.complete(document.facts.clone());
            return Ok(Page { listed, ..document.into_page(&position, PageEnd::Complete) });
        }
        let is_gap = !document.is_complete
            && !is_delta
            && (is_first || !(position.entries.is_empty() || document.facts.entries.is_empty()))
            && !document.is_renamed
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
            return Ok(Page { listed, ..document.into_page(&position, PageEnd::More) });
        }
        if document.is_renamed {
            let remark = "most entries of the feed have new ids and the links of known ones, so they are new objects; the \
                          publisher should keep the ids";
            document.remarks.push(remark.to_owned());
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
        Ok(Page { listed, ..document.into_page(&position, PageEnd::Complete) })
    }

    /// Sends a request. Returns the response with the digest of its body.
    pub(super) async fn request(
        &self,
        url: &OutboundUrl,
        headers: &HeaderMap,
    ) -> Result<(RawResponse, String), HarvestError> {
        let mut permit = self.client.permit().await;
        let raw = self.client.get(url, None, headers).await?;
        if raw.is_busy() {
            return Err(self.client.busy(&mut permit, raw.status, &raw.headers).into());
        }
        drop(permit);
        let digested = self.client.budget().work(move |_| {
            let digest = hex::encode(Sha256::digest(&raw.body));
            (raw, digest)
        });
        digested.await.map_err(|error| HarvestError::fail(error.to_string()))
    }

    /// Parses a document, and notes its ambiguous and unreadable entries in the position.
    pub(super) async fn read(
        &self,
        (raw, digest): (RawResponse, String),
        position: Position,
    ) -> Result<(Position, ReadDocument), HarvestError> {
        let limits = ReadLimits { record_bytes: self.client.max_record_bytes(), page_bytes: self.client.page_bytes() };
        let (feed_url, meaning) = (self.feed_url.clone(), self.settings.entries);
        let read = self
            .client
            .budget()
            .work(move |cancelled| read((raw, digest), position, &feed_url, (meaning, limits), cancelled));
        let read = read.await.map_err(|error| HarvestError::fail(error.to_string()))?;
        let (position, mut document) = read?;
        let shares = self.shares(&mut document.shown).await?;
        // It is set once, before the first message is made.
        let _ = document.shares.set(shares);
        Ok((position, document))
    }
}

/// Limits on a document.
#[derive(Clone, Copy)]
struct ReadLimits {
    /// Maximum size of an entry, in bytes.
    record_bytes: usize,
    /// Maximum size of the document, in bytes.
    page_bytes: usize,
}

fn read(
    (raw, digest): (RawResponse, String),
    mut position: Position,
    feed_url: &str,
    (meaning, limits): (EntryMeaning, ReadLimits),
    cancelled: &Cancelled,
) -> Result<(Position, ReadDocument), HarvestError> {
    let charset = raw.charset().map(str::to_owned);
    let RawResponse { headers, body, share, .. } = raw;
    let read = text::read(body, charset.as_deref(), limits.page_bytes);
    let text::RepairedText { text, repairs } = read.map_err(|error| HarvestError::fail(error.to_string()))?;
    if text.trim().is_empty() {
        return Err(HarvestError::fail("the response is empty"));
    }
    let all_bytes = limits.page_bytes.saturating_mul(2);
    let document = FeedDocument::parse(&text, all_bytes).map_err(|error| HarvestError::fail(error.to_string()))?;
    let Position { ambiguous, unreadable, looks, .. } = &mut position;
    let remembered = Remembered { ambiguous, unreadable, looks };
    let selection = match meaning {
        EntryMeaning::Objects => select(&document, feed_url, limits.record_bytes, remembered, cancelled),
        EntryMeaning::Changes => select_changes(&document, cancelled),
    };
    if cancelled.is_cancelled() {
        return Err(HarvestError::retry("the harvest is stopping"));
    }
    let Selection { entries, shown, remarks, noise } = selection;
    let key_digest = |entry: &ShownEntry| hex::encode(&Sha256::digest(&entry.key)[..8]);
    let key_digests = shown.iter().take(MAX_ENTRIES).map(key_digest).collect();
    let date = header_date(&headers, &DATE).map_or_else(Timestamp::now, Timestamp::from_datetime);
    let any_scheme = position.any_scheme.unwrap_or_default();
    let number = shown.len();
    let listed = |ShownEntry { key, mut files, is_withheld }| {
        let uri = entry_uri(feed_url, &key, any_scheme).ok()?.to_string();
        files.retain(|file| *file != uri);
        Some(ListedEntry { uri, files, is_withheld })
    };
    let shown: Vec<_> = match meaning {
        EntryMeaning::Objects => shown.into_iter().filter_map(listed).collect(),
        EntryMeaning::Changes => Vec::new(),
    };
    let shows_all = position.unreadable.is_empty() && shown.len() == number;
    let shares = Arc::<OnceLock<Shares>>::default();
    let interval = document.interval.map(|interval| interval.as_secs());
    let is_read = noise.withheld.is_empty();
    let facts = DocumentFacts {
        // The next run must read the entries that were withheld, even if they have stayed the same.
        validators: if is_read { validators(&headers) } else { Validators::default() },
        body: if is_read { digest } else { format!("-{digest}") },
        interval,
        earliest: earliest(interval, &headers, Utc::now()),
        entries: key_digests,
    };
    let FeedDocument { envelope, links, is_archive, is_complete, broken, parts, .. } = document;
    let content = FeedText::new(text, envelope, &parts, share, any_scheme);
    let (feed_url, max_bytes) = (feed_url.to_owned(), limits.record_bytes);
    let known = Arc::clone(&shares);
    let message = move |entry: SelectedEntry| {
        let uri = entry.key_value.as_ref().and_then(|key| entry_uri(&feed_url, key, any_scheme).ok());
        let share = uri.as_ref().and_then(|uri| known.get()?.get(uri.as_str()));
        let message = match share {
            Some(None) => None,
            Some(Some(share)) => Some(content.message(entry, Some(share), &feed_url, (date, max_bytes))),
            None => Some(content.message(entry, None, &feed_url, (date, max_bytes))),
        };
        HarvestedRecord { message, listing: None }
    };
    let document = ReadDocument {
        records: Records::listed(entries.into_iter().map(message)),
        shares,
        is_repaired: repairs > 0,
        remarks,
        is_renamed: noise.renamed * 2 > number,
        links: with_link_headers(links, &headers),
        is_archive,
        is_complete,
        broken,
        shown,
        shows_all,
        facts,
    };
    Ok((position, document))
}

/// Returns a page.
pub(super) fn page(position: &Position, records: impl Into<Records>, end: PageEnd, remarks: Vec<String>) -> Page {
    Page { remarks, ..Page::new(records, position.text(), end) }
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
