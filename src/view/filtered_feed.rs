//! The feed with a filter: a paged feed (RFC 5005 section 3). Each document reads the journal backwards from a
//! cursor, contains the changes that match the filter, and links to the next document.
//!
//! The cursor is a number of the journal, so changes that arrive while a reader pages move nothing: each matching
//! change is in exactly one document of the chain.

use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::form_urlencoded;
use uuid::Uuid;

use super::{
    MAX_EXAMINED, MAX_EXAMINED_BYTES, PAGE_BYTES,
    atom::{FeedMetadata, Site, page_link},
    block_on, journal_problem,
    parameters::{filter_query, with_filter},
    store_problem, without_large_caches,
};
use crate::{
    journal::{Journal, JournalError, RecordedChange, store::StoreError},
    model::{Filter, ReaderView, Seq, Timestamp, Uri, UriPrefix},
    web::{Problem, Query, ReadPermit},
};

/// Maximum number of changes that are read from the journal at once.
const READ_CHANGES: usize = 250;

/// Approximate maximum size of the JSON of these changes, in bytes.
const READ_BYTES: usize = 256 << 10;

with_filter! {
    /// Query parameters of the feed.
    pub(super) struct Parameters {
        /// Maximum number of changes in a document.
        #[param(value_type = u64, required = false, minimum = 1, maximum = 1000)]
        limit: Option<Limit>,
        /// Number of the change before which to begin; the links of the feed contain it.
        #[param(value_type = Seq, required = false)]
        before: Option<Seq>,
    }
}

/// Maximum number of changes in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u64")]
struct Limit(usize);

impl Limit {
    const DEFAULT: Self = Self(100);
    const MAX: usize = 1_000;
}

impl TryFrom<u64> for Limit {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        let limit = usize::try_from(number).ok().filter(|limit| (1..=Self::MAX).contains(limit));
        limit.map(Self).ok_or_else(|| format!("{number} is not from 1 to {}", Self::MAX))
    }
}

/// Selection of a reader of the feed: a filter and a document of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    filter: Filter,
    limit: Option<Limit>,
    before: Option<Seq>,
}

impl Selection {
    /// Parses a query of a reader. Values are sorted and deduplicated, because order and repetition have no meaning and each
    /// selection must have one URL.
    ///
    /// # Errors
    /// `invalid-query` or `forbidden`, with the name of the parameter.
    pub fn parse(query: &str, permit: &ReadPermit) -> Result<Self, Problem> {
        let Query(mut parameters) = Query::<Parameters>::parse(query)?;
        let filter = parameters.filter(permit)?;
        Ok(Self { filter, limit: parameters.limit, before: parameters.before })
    }

    /// Returns the filter if this is the newest document of its chain; older documents get no new entries.
    #[must_use]
    pub fn filter_of_newest(&self) -> Option<&Filter> {
        self.before.is_none().then_some(&self.filter)
    }

    /// Returns the selection of the changes of objects whose URI begins with `object`, at most `limit` in a document.
    pub(super) fn of_object(object: &Uri, limit: usize, before: Option<Seq>, permit: &ReadPermit) -> Self {
        let view = permit.view().cloned();
        let filter = Filter { objects: vec![UriPrefix::from(object)], view, ..Filter::default() };
        Self { filter, limit: Some(Limit(limit)), before }
    }

    fn starting_before(&self, before: Option<Seq>) -> Self {
        Self { before, ..self.clone() }
    }

    /// Returns the canonical query of this selection.
    #[must_use]
    pub fn to_query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(filter_query(&self.filter));
        if let Some(Limit(limit)) = self.limit {
            query.append_pair("limit", &limit.to_string());
        }
        if let Some(before) = self.before {
            query.append_pair("before", &before.to_string());
        }
        query.finish()
    }
}

/// Page of the changes of a selection.
#[derive(Debug)]
pub(super) struct FilteredPage {
    /// Changes to show, newest first.
    pub(super) changes: Vec<Arc<RecordedChange>>,
    /// Cursor of the next document; `None` if there are no older changes.
    pub(super) next: Option<Seq>,
    /// Time at which the newest of the shown changes was received, or else of the examined changes.
    updated: Option<Timestamp>,
}

impl FilteredPage {
    /// Creates a page of only these changes, which must be newest first.
    pub(super) fn of(changes: &[Arc<RecordedChange>]) -> Result<Self, StoreError> {
        let updated = changes.first().map(|newest| newest.change().map(|change| change.received)).transpose()?;
        Ok(Self { changes: changes.to_vec(), next: None, updated })
    }
}

/// Reads the journal backwards from the selection's cursor. It reads and parses thousands of changes and must run on
/// a blocking thread.
pub(super) fn read_page(journal: &Journal, selection: &Selection) -> Result<FilteredPage, Problem> {
    let Limit(limit) = selection.limit.unwrap_or(Limit::DEFAULT);
    let end = journal.head().next();
    let mut cursor = selection.before.map_or(end, |before| before.min(end));
    let mut page = FilteredPage { changes: Vec::new(), next: None, updated: None };
    let (mut examined, mut examined_bytes, mut bytes) = (0, 0, 0);
    while examined < MAX_EXAMINED && examined_bytes < MAX_EXAMINED_BYTES && cursor > Seq::ZERO.next() {
        let count = READ_CHANGES.min(MAX_EXAMINED - examined);
        let read = match block_on(journal.before_within(cursor, count, READ_BYTES)) {
            // The page ends before the damaged change, and the next one reports it.
            Err(JournalError::Store(StoreError::DamagedChange { .. })) if examined > 0 => break,
            read => read.map_err(journal_problem)?,
        };
        if read.is_empty() {
            return Ok(page);
        }
        for recorded in read {
            let recorded = without_large_caches(recorded);
            let received = match recorded.change() {
                Ok(change) => change.received,
                Err(StoreError::DamagedChange { .. }) if examined > 0 => {
                    page.next = older_than(cursor);
                    return Ok(page);
                }
                Err(error) => return Err(store_problem(error)),
            };
            // Times of receipt never decrease in the journal, so no older change matches.
            if selection.filter.since.is_some_and(|since| received < since) {
                if selection.filter.view.is_none() {
                    page.updated.get_or_insert(received);
                }
                return Ok(page);
            }
            let selected = recorded.filtered(&selection.filter).map_err(store_problem)?;
            let size = selected.as_ref().map_or(0, |selected| selected.json().len());
            if !page.changes.is_empty() && bytes + size > PAGE_BYTES {
                page.next = older_than(cursor);
                return Ok(page);
            }
            cursor = recorded.seq();
            examined += 1;
            examined_bytes += recorded.json().len();
            bytes += size;
            // The examined change is never older than those shown before, so this time never decreases. The time of a
            // change that the reader may not see is hidden, too.
            let is_hidden = selected.is_none() && selection.filter.view.is_some();
            if !is_hidden && (page.updated.is_none() || (page.changes.is_empty() && selected.is_some())) {
                page.updated = Some(received);
            }
            // If the page is large, the parsed changes are dropped until their entries are written.
            let selected =
                selected.map(|change| if bytes > READ_BYTES { Arc::new(change.without_caches()) } else { change });
            page.changes.extend(selected);
            if page.changes.len() == limit {
                page.next = older_than(cursor);
                return Ok(page);
            }
        }
    }
    page.next = older_than(cursor);

    Ok(page)
}

/// Returns the cursor if there is a change before it.
fn older_than(cursor: Seq) -> Option<Seq> {
    (cursor > Seq::ZERO.next()).then_some(cursor)
}

/// Returns the canonical URL of a document.
pub(super) fn url(site: &Site, selection: &Selection) -> String {
    match selection.to_query() {
        query if query.is_empty() => site.feed(),
        query => format!("{}?{query}", site.feed()),
    }
}

/// Returns the metadata of a document for a reader with this permit, whose links work for that reader.
pub(super) fn metadata(
    site: &Site,
    selection: &Selection,
    page: &FilteredPage,
    subtitle: &str,
    permit: &ReadPermit,
) -> FeedMetadata {
    let filter = filter_query(&selection.filter);
    let url_of = |selection: &Selection| url(site, selection);
    let mut links =
        vec![page_link("self", url_of(selection)), page_link("first", url_of(&selection.starting_before(None)))];
    links.extend(site.service_link().filter(|_| permit.view().is_none()));
    links.extend(site.hub_link().filter(|_| !permit.is_public()));
    links.extend(page.next.map(|next| page_link("next", url_of(&selection.starting_before(Some(next))))));
    FeedMetadata {
        id: feed_id(site.journal, selection.filter.view.as_deref(), &filter),
        subtitle: if filter.is_empty() {
            subtitle.to_owned()
        } else {
            format!("The changes that match {filter}, newest first.")
        },
        updated: page.updated.unwrap_or(Timestamp::EPOCH),
        links,
        archive: false,
    }
}

/// Returns the identifier of a feed: that of the journal, or a UUID of version 8 (RFC 9562 section 5.8) over the
/// identifier of the journal, the view of the reader and the filter. Each view and each filter makes another feed.
pub(super) fn feed_id(journal: Uuid, view: Option<&ReaderView>, filter: &str) -> Uuid {
    if view.is_none() && filter.is_empty() {
        return journal;
    }
    let digest = Sha256::new().chain_update(journal.as_bytes()).chain_update(filter);
    let view = view.and_then(|view| serde_json::to_string(view).ok());
    // No query of a filter begins with a line break.
    let digest = view.iter().fold(digest, |digest, view| digest.chain_update("\n").chain_update(view)).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::{ReadPermit, Selection};

    #[test]
    fn selection_has_one_canonical_query() {
        let canonical = "source=a&source=b&object=http%3A%2F%2Fh%2F&parent=urn%3Ap&type=info%3Afedora%2Fx%3AM&change=ADD\
                       &change=STATE&media_type=image%2F*&state=ACTIVE&since=2026-01-02T03%3A04%3A05.000Z&visibility=true\
                       &limit=7&before=9";
        let shuffled = "visibility=true&before=9&parent=urn:p&media_type=Image/*&change=state&source=b&type=info:fedora/x:M&source=a&source=b&state=ACTIVE&change=ADD\
                        &since=2026-01-02T04:04:05%2B01:00&limit=7&object=http://h/";
        let selection = Selection::parse(shuffled, &ReadPermit::whole()).unwrap();
        assert_eq!(selection.to_query(), canonical);
        assert_eq!(Selection::parse(canonical, &ReadPermit::whole()).unwrap(), selection);
    }

    #[test]
    fn invalid_queries_name_the_parameter() {
        let many = "source=a&".repeat(51);
        for (query, expected) in [
            ("sources=a", "did you mean \"source\"?"),
            ("source=A", "\"source\" is wrong: \"A\" is not a name"),
            ("object=", "\"object\" is wrong: it is empty"),
            ("type=M", "\"type\" is wrong: it is not an absolute URI"),
            ("change=gone", "\"change\" is wrong: \"gone\" is not a kind of change; give ADD, UPDATE, DELETE or STATE"),
            ("change=ADD\u{6}x", "\"ADD\\u{6}x\" is not a kind"),
            ("since=2026-01-02T03:04:05+01:00", "and the + before an offset as %2B"),
            ("state=active", "\"state\" is wrong: \"active\" is not a state"),
            ("since=yesterday", "\"since\" is wrong: \"yesterday\" is not a date and time"),
            ("media_type=*", "\"media_type\" is wrong: \"*\" is not a media type"),
            ("visibility=yes", "\"visibility\" is wrong: \"yes\" is not true or false"),
            ("limit=0", "\"limit\" is wrong: 0 is not from 1 to 1000"),
            ("limit=1001", "\"limit\" is wrong: 1001 is not from 1 to 1000"),
            ("limit=x", "\"limit\" is wrong: \"x\" is not a whole number"),
            ("limit=1&limit=2", "\"limit\" is wrong: it may be given only once"),
            ("before=-1", "\"before\" is wrong: \"-1\" is not a whole number"),
            (many.as_str(), "\"source\" is wrong: it may be given at most 50 times"),
        ] {
            let problem = Selection::parse(query, &ReadPermit::whole()).unwrap_err();
            assert!(problem.detail().contains(expected), "{query}: {}", problem.detail());
            assert!(problem.to_json().contains("\"parameter\":"), "{query}");
        }
    }
}
