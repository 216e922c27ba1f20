//! The feed with a filter: a paged feed (RFC 5005 section 3). Each document goes through the journal
//! from a cursor back, shows what the filter wants, and links to where the next one goes on.
//!
//! The cursor is a number of the journal, so that changes which come in while somebody pages move
//! nothing: every change that the filter wants is in one document of the chain, and in one only.

use std::sync::Arc;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::form_urlencoded;
use uuid::Uuid;

use super::{
    LARGE, PAGE_BYTES,
    atom::{Frame, Site, page_link},
    journal_problem,
    parameters::with_filter,
    store_problem, wait_for,
};
use crate::{
    journal::{Journal, RecordedChange, store::StoreError},
    model::{Filter, Seq, Timestamp},
    web::{Problem, Query},
};

/// How many changes are examined for one document at the most; it may have fewer than were asked
/// for, even none, and still link to a next one.
const MAX_EXAMINED: usize = 5_000;
/// How many are read from the journal at once, and about how many bytes of their JSON.
const READ_AT_ONCE: usize = 250;
const READ_BYTES: usize = 256 << 10;

with_filter! {
    /// The query parameters.
    pub(super) struct Parameters {
        /// How many changes a document has at the most.
        #[param(value_type = u64, required = false, minimum = 1, maximum = 1000)]
        limit: Option<Limit>,
        /// The number before which to begin; the links of the feed have it.
        #[param(value_type = Seq, required = false)]
        before: Option<Seq>,
    }
}

/// How many changes a document has at the most.
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

/// What a reader of the feed asked for by its query: a filter, and which document of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    filter: Filter,
    limit: Option<Limit>,
    before: Option<Seq>,
}

impl Selection {
    /// Reads a query. The order and the repetition of values mean nothing and are dropped, so that
    /// one selection has one address.
    ///
    /// # Errors
    /// `invalid-query`, with the name of the parameter.
    pub fn parse(query: &str) -> Result<Self, Problem> {
        let Query(mut told) = Query::<Parameters>::parse(query)?;
        let filter = told.filter()?;
        Ok(Self { filter, limit: told.limit, before: told.before })
    }

    /// What is selected, where the document is the newest of its chain: an older one gets no new entries.
    #[must_use]
    pub fn of_newest(&self) -> Option<&Filter> {
        self.before.is_none().then_some(&self.filter)
    }

    fn starting_before(&self, before: Option<Seq>) -> Self {
        Self { before, ..self.clone() }
    }

    /// The query of this selection, in the one order that every link has.
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

fn filter_query(filter: &Filter) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(filter.sources.iter().map(|source| ("source", source.as_str())));
    query.extend_pairs(filter.objects.iter().map(|prefix| ("object", prefix.as_str())));
    query.extend_pairs(filter.parents.iter().map(|uri| ("parent", uri.as_str())));
    query.extend_pairs(filter.types.iter().map(|uri| ("type", uri.as_str())));
    query.extend_pairs(filter.changes.iter().map(|kind| ("change", kind.as_str())));
    query.extend_pairs(filter.media_types.iter().map(|range| ("media_type", range.as_str())));
    query.extend_pairs(filter.states.iter().map(|state| ("state", state.as_str())));
    if let Some(since) = filter.since {
        query.append_pair("since", &since.to_string());
    }
    if filter.visibility {
        query.append_pair("visibility", "true");
    }
    query.finish()
}

/// What there is of a selection.
#[derive(Debug)]
pub(super) struct Found {
    /// The changes, newest first, as they are to be shown.
    pub(super) changes: Vec<Arc<RecordedChange>>,
    /// Where the next document goes on; `None` when nothing older is left.
    next: Option<Seq>,
    /// When the newest of the changes that are shown was received, or else that were examined.
    updated: Option<Timestamp>,
}

impl Found {
    /// These changes alone, newest first.
    pub(super) fn of(changes: &[Arc<RecordedChange>]) -> Result<Self, StoreError> {
        let updated = changes.first().map(|newest| newest.change().map(|change| change.received)).transpose()?;
        Ok(Self { changes: changes.to_vec(), next: None, updated })
    }
}

/// Goes through the journal from the selection's cursor back. It reads and parses thousands of changes: it is for a
/// thread that may wait.
pub(super) fn find(journal: &Journal, selection: &Selection) -> Result<Found, Problem> {
    let Limit(limit) = selection.limit.unwrap_or(Limit::DEFAULT);
    let end = journal.head().next();
    let mut cursor = selection.before.map_or(end, |before| before.min(end));
    let mut found = Found { changes: Vec::new(), next: None, updated: None };
    let (mut examined, mut bytes) = (0, 0);
    while examined < MAX_EXAMINED && cursor > Seq::ZERO.next() {
        let at_once = READ_AT_ONCE.min(MAX_EXAMINED - examined);
        let read = wait_for(journal.before_within(cursor, at_once, READ_BYTES)).map_err(journal_problem)?;
        if read.is_empty() {
            return Ok(found);
        }
        for recorded in read {
            let recorded = if recorded.json().len() < LARGE { recorded } else { Arc::new(recorded.without_caches()) };
            let received = recorded.change().map_err(store_problem)?.received;
            // Times of receipt never go back in the journal, so nothing older is wanted either.
            if selection.filter.since.is_some_and(|since| received < since) {
                found.updated.get_or_insert(received);
                return Ok(found);
            }
            let shown = recorded.filtered(&selection.filter).map_err(store_problem)?;
            let size = shown.as_ref().map_or(0, |shown| shown.json().len());
            if !found.changes.is_empty() && bytes + size > PAGE_BYTES {
                found.next = older_than(cursor);
                return Ok(found);
            }
            cursor = recorded.seq();
            examined += 1;
            bytes += size;
            // What was examined is never older than what was shown before, so that this never goes back.
            if found.updated.is_none() || (found.changes.is_empty() && shown.is_some()) {
                found.updated = Some(received);
            }
            // Of many bytes, what was read of them is dropped until their entries are written.
            let shown = shown.map(|shown| if bytes > READ_BYTES { Arc::new(shown.without_caches()) } else { shown });
            found.changes.extend(shown);
            if found.changes.len() == limit {
                found.next = older_than(cursor);
                return Ok(found);
            }
        }
    }
    found.next = older_than(cursor);
    Ok(found)
}

/// The cursor, if there is anything before it.
fn older_than(cursor: Seq) -> Option<Seq> {
    (cursor > Seq::ZERO.next()).then_some(cursor)
}

/// The address of a document, in its one spelling.
pub(super) fn address(site: &Site, selection: &Selection) -> String {
    match selection.to_query() {
        query if query.is_empty() => site.feed(),
        query => format!("{}?{query}", site.feed()),
    }
}

/// The document's frame.
pub(super) fn frame(site: &Site, selection: &Selection, found: &Found, subtitle: &str) -> Frame {
    let filter = filter_query(&selection.filter);
    let address = |selection: &Selection| address(site, selection);
    let mut links = vec![
        page_link("self", address(selection)),
        page_link("first", address(&selection.starting_before(None))),
        site.service_link(),
    ];
    links.extend(site.hub_link());
    links.extend(found.next.map(|next| page_link("next", address(&selection.starting_before(Some(next))))));
    Frame {
        id: if filter.is_empty() { site.journal } else { id_of(site.journal, &filter) },
        subtitle: if filter.is_empty() {
            subtitle.to_owned()
        } else {
            format!("The changes that match {filter}, newest first.")
        },
        updated: found.updated.unwrap_or(Timestamp::EPOCH),
        links,
        archive: false,
    }
}

/// A filter makes another feed of the same journal, with an identifier of its own: a UUID of
/// version 8 (RFC 9562 section 5.8) over the journal's and the filter.
fn id_of(journal: Uuid, filter: &str) -> Uuid {
    let digest = Sha256::new().chain_update(journal.as_bytes()).chain_update(filter).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::Selection;

    #[test]
    fn one_selection_has_one_address() {
        let written = "source=a&source=b&object=http%3A%2F%2Fh%2F&parent=urn%3Ap&type=info%3Afedora%2Fx%3AM&change=ADD\
                       &change=STATE&media_type=image%2F*&state=ACTIVE&since=2026-01-02T03%3A04%3A05.000Z&visibility=true\
                       &limit=7&before=9";
        let shuffled = "visibility=true&before=9&parent=urn:p&media_type=Image/*&change=STATE&source=b&type=info:fedora/x:M&source=a&source=b&state=ACTIVE&change=ADD\
                        &since=2026-01-02T04:04:05%2B01:00&limit=7&object=http://h/";
        let selection = Selection::parse(shuffled).unwrap();
        assert_eq!(selection.to_query(), written);
        assert_eq!(Selection::parse(written).unwrap(), selection);
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let many = "source=a&".repeat(51);
        for (query, told) in [
            ("sources=a", "did you mean \"source\"?"),
            ("source=A", "\"source\" is wrong: \"A\" is not a name"),
            ("object=", "\"object\" is wrong: it is empty"),
            ("type=M", "\"type\" is wrong: it is not an absolute URI"),
            (
                "change=add",
                "\"change\" is wrong: unknown variant `add`, expected one of `ADD`, `UPDATE`, `DELETE`, `STATE`",
            ),
            ("change=ADD\u{6}x", "unknown variant `ADD\u{FFFD}x`"),
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
            let problem = Selection::parse(query).unwrap_err();
            assert!(problem.detail().contains(told), "{query}: {}", problem.detail());
            assert!(problem.to_json().contains("\"parameter\":"), "{query}");
        }
    }
}
