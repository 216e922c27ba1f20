//! Reading of a document of a feed: its entries become messages, and the shares of other feeds in them are looked up.

use std::sync::{Arc, OnceLock};

use axum::http::header::DATE;
use chrono::Utc;
use sha2::{Digest, Sha256};

use super::{
    EntryMeaning,
    changes::select_changes,
    document::{FeedDocument, FeedLinks},
    harvest::{FeedHarvester, page},
    headers::{earliest, validators, with_link_headers},
    message::FeedText,
    position::{DocumentFacts, Position, Validators},
    selection::{Remembered, SelectedEntry, Selection, ShownEntry, select},
    sharing::{ListedEntry, Shares},
};
use crate::{
    format::feed::entry_uri,
    harvest::{HarvestError, HarvestedRecord, Page, PageEnd, Records, client::RawResponse, text},
    journal::harvest::{FormerRecords, ListedRecord, ListedRecords},
    model::Timestamp,
    transfer::Cancelled,
    web::header_date,
};

/// Maximum number of entries of a document that the position remembers.
pub(super) const MAX_ENTRIES: usize = 500;

/// A document of the feed, with its entries as messages.
pub(super) struct ReadDocument {
    records: Records,
    is_repaired: bool,
    pub(super) remarks: Vec<String>,
    /// Shares of the entries that other feeds show too.
    shares: Arc<OnceLock<Shares>>,
    pub(super) links: FeedLinks,
    /// Whether most of the entries have a new id and the link of a known entry.
    pub(super) is_renamed: bool,
    pub(super) is_archive: bool,
    pub(super) is_complete: bool,
    /// Reason why the end of the document cannot be read.
    pub(super) broken: Option<String>,
    /// The readable entries.
    pub(super) shown: Vec<ListedEntry>,
    /// Whether all entries are readable.
    pub(super) shows_all: bool,
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
    /// Parses a document, and notes its ambiguous and unreadable entries in the position.
    pub(super) async fn read(
        &self,
        response: DigestedResponse,
        position: Position,
    ) -> Result<(Position, ReadDocument), HarvestError> {
        let settings = ReadSettings {
            meaning: self.settings.entries,
            record_bytes: self.client.max_record_bytes(),
            page_bytes: self.client.page_bytes(),
        };
        let feed_url = self.feed_url.clone();
        let read = self.client.budget().work(move |cancelled| read(response, position, &feed_url, settings, cancelled));
        let read = read.await.map_err(|error| HarvestError::fail(error.to_string()))?;
        let (position, document) = read?;
        let (shown, shares) = self.shares(document.shown).await?;
        // It is set once, before the first message is made.
        let _ = document.shares.set(shares);
        Ok((position, ReadDocument { shown, ..document }))
    }
}

/// Response to the request of a document.
pub(super) struct DigestedResponse {
    pub(super) response: RawResponse,
    /// Digest of the body.
    pub(super) digest: String,
}

/// Meaning of a document's entries, and limits on it.
#[derive(Clone, Copy)]
struct ReadSettings {
    meaning: EntryMeaning,
    /// Maximum size of an entry, in bytes.
    record_bytes: usize,
    /// Maximum size of the document, in bytes.
    page_bytes: usize,
}

fn read(
    DigestedResponse { response, digest }: DigestedResponse,
    mut position: Position,
    feed_url: &str,
    settings: ReadSettings,
    cancelled: &Cancelled,
) -> Result<(Position, ReadDocument), HarvestError> {
    let charset = response.charset().map(str::to_owned);
    let RawResponse { headers, body, share, .. } = response;
    let read = text::read(body, charset.as_deref(), settings.page_bytes);
    let text::RepairedText { text, repairs } = read.map_err(|error| HarvestError::fail(error.to_string()))?;
    if text.trim().is_empty() {
        return Err(HarvestError::fail("the response is empty"));
    }
    let all_bytes = settings.page_bytes.saturating_mul(2);
    let document = FeedDocument::parse(&text, all_bytes).map_err(|error| HarvestError::fail(error.to_string()))?;
    let Position { ambiguous, unreadable, looks, .. } = &mut position;
    let remembered = Remembered { ambiguous, unreadable, looks };
    let selection = match settings.meaning {
        EntryMeaning::Objects => select(&document, feed_url, settings.record_bytes, remembered, cancelled),
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
        Some(ListedEntry { uri, files, is_withheld, is_shared: false })
    };
    let shown: Vec<_> = match settings.meaning {
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
    let (feed_url, max_bytes) = (feed_url.to_owned(), settings.record_bytes);
    let known = Arc::clone(&shares);
    let message = move |entry: SelectedEntry| {
        let uri = entry.key_value.as_ref().and_then(|key| entry_uri(&feed_url, key, any_scheme).ok());
        let share = uri.as_ref().and_then(|uri| known.get()?.get(uri.as_str()));
        let message = match share {
            Some(None) => None,
            Some(Some(share)) => Some(content.message(entry, Some(share), &feed_url, date, max_bytes)),
            None => Some(content.message(entry, None, &feed_url, date, max_bytes)),
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
