//! Requests of a feed, and the position after each response.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header::CACHE_CONTROL};
use chrono::Utc;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

use super::{
    FeedSettings,
    headers::{earliest, last_modified, request_headers, validators},
    position::{HubSubscription, Position, Validators, Walk},
    read_document::{DigestedResponse, MAX_ENTRIES, ReadDocument},
};
use crate::{
    harvest::{
        Callback, HarvestError, Harvester, HarvestsHandle, Page, PageEnd, Records, UnlistedObject,
        client::{PlaceClient, RawResponse},
    },
    http_client::{OutboundUrl, is_transient},
    journal::{
        Journal, JournalError,
        harvest::{FormerRecords, ListedRecords},
    },
    model::{SourceName, Timestamp, Uri},
};

/// Number of successive responses with the status 410 after which the feed counts as gone.
const GONE_RESPONSES: u32 = 3;

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
    /// Whether an audit reads the feed.
    pub(super) is_audit: bool,
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

    fn audit_position(&self, position: &str) -> String {
        Position::parse(position, &self.feed_url).of_audit().text()
    }

    fn gone<'a>(
        &'a self,
        position: &'a str,
        unlisted: Vec<UnlistedObject>,
    ) -> BoxFuture<'a, Result<Vec<Uri>, JournalError>> {
        Box::pin(self.gone_entries(Position::parse(position, &self.feed_url), unlisted))
    }
}

impl FeedHarvester {
    async fn next_page(&self, mut position: Position, attempt: u32) -> Result<Page, HarvestError> {
        let page = match position.walk.take() {
            None => self.newest_document(position, None).await?,
            Some(Walk::Subscribe) => return self.subscribe(position).await,
            Some(walk) => self.walk(position, walk, attempt).await?,
        };
        if self.is_audit {
            // The journal does not learn of the list.
            return Ok(Page { listed: ListedRecords::default(), ..page });
        }
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
        let DigestedResponse { response: mut raw, digest } = self.request(&self.settings.url, &headers).await?;
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
        let (mut position, mut document) = self.read(DigestedResponse { response: raw, digest }, position).await?;
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
        if document.is_renamed {
            let remark = "most entries of the feed have new ids and the links of known ones, so they are new objects; the \
                          publisher should keep the ids";
            document.remarks.push(remark.to_owned());
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
                position.has_archives = false;
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
    ) -> Result<DigestedResponse, HarvestError> {
        let mut permit = self.client.permit().await;
        let raw = self.client.get(url, None, headers).await?;
        if raw.is_busy() {
            return Err(self.client.busy(&mut permit, raw.status, &raw.headers).into());
        }
        drop(permit);
        let digested = self.client.budget().work(move |_| {
            let digest = hex::encode(Sha256::digest(&raw.body));
            DigestedResponse { response: raw, digest }
        });
        digested.await.map_err(|error| HarvestError::fail(error.to_string()))
    }
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
