//! The changes of a stream of pages, as one kind of readers sees them.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{NumberedPages, last_of};
use crate::{
    journal::{Journal, RecordedChange},
    model::{Filter, ReaderView, Seq},
    view::{PIECE_BYTES, block_on, journal_problem, parameters::filter_query, store_problem, without_large_caches},
    web::Problem,
};

/// Maximum number of changes that are read at once.
const READ_CHANGES: usize = 100;

/// The changes that a filter selects, in the pages of a protocol.
#[derive(Clone)]
pub(in crate::view) struct ChangeStream {
    journal: Journal,
    /// Identity of the journal.
    of_journal: Uuid,
    filter: Filter,
    /// Identity of the stream.
    pub(in crate::view) id: Uuid,
    /// Query of the filter, for the URLs of the documents; empty if all changes are selected.
    pub(in crate::view) query: String,
}

impl ChangeStream {
    /// Creates the stream of a filter, which contains what the reader may see. `base` is the URL of the gateway, and
    /// `protocol` describes how the documents are written.
    pub(super) fn new(journal: &Journal, filter: Filter, base: &str, protocol: &str) -> Self {
        let query = filter_query(&filter);
        let of_journal = journal.identity();
        let id = identity(of_journal, &filter, &query, (base, protocol));
        Self { journal: journal.clone(), of_journal, filter, id, query }
    }

    pub(in crate::view) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns whether the journal is still the one of the stream. A restore or a failover replaces it.
    pub(super) fn is_current(&self) -> bool {
        self.journal.identity() == self.of_journal
    }

    /// Returns whether readers see all changes as they are.
    pub(in crate::view) fn is_everything(&self) -> bool {
        self.filter == Filter::default()
    }

    /// Calls `each` with the changes of a page, oldest first: each one as it is recorded, and as the readers of this
    /// stream see it, if they do. It must run on a blocking thread.
    ///
    /// # Errors
    /// `gone` if retention removes a change of the page meanwhile; `damaged-change`; `unavailable`; and the problems of
    /// `each`.
    pub(in crate::view) fn read(
        &self,
        pages: &NumberedPages,
        page: u64,
        mut each: impl FnMut(&RecordedChange, Option<Arc<RecordedChange>>) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let last = last_of(page).min(pages.head());
        let mut after = pages.cursor_before(page).max(Seq(pages.begin_of(page).0 - 1));
        while after < last {
            let count = usize::try_from(last.0 - after.0).unwrap_or(READ_CHANGES).min(READ_CHANGES);
            let changes = block_on(self.journal.after_within(after, count, PIECE_BYTES)).map_err(journal_problem)?;
            let on_page: Vec<_> = changes.into_iter().take_while(|change| change.seq() <= last).collect();
            // A restore has skipped the rest of the page.
            let Some(newest) = on_page.last().map(|change| change.seq()) else { break };
            for change in on_page {
                let change = without_large_caches(change);
                let shown = change.filtered(&self.filter).map_err(store_problem)?;
                each(&change, shown)?;
            }
            after = newest;
        }
        Ok(())
    }
}

/// Returns the identity of a stream: a UUID of version 8 (RFC 9562 section 5.8) over everything that its documents depend on,
/// besides the changes.
fn identity(journal: Uuid, filter: &Filter, query: &str, (base, protocol): (&str, &str)) -> Uuid {
    let view = filter.view.as_ref().and_then(|view| serde_json::to_string(view).ok()).unwrap_or_default();
    let mut digest = Sha256::new().chain_update(journal.as_bytes()).chain_update(ReaderView::VERSION.to_be_bytes());
    for text in [base, protocol, query, &view] {
        // The length separates the texts.
        digest = digest.chain_update((text.len() as u64).to_be_bytes()).chain_update(text);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use super::{Filter, ReaderView, Uuid, filter_query, identity};

    #[test]
    fn each_journal_url_filter_view_and_protocol_has_a_stream_of_its_own() {
        let view = |public| Some(Arc::new(ReaderView { public, ..ReaderView::default() }));
        let filters = [
            Filter::default(),
            Filter { visibility: true, ..Filter::default() },
            Filter { view: view(true), ..Filter::default() },
            Filter { view: view(false), ..Filter::default() },
        ];
        let mut streams = BTreeSet::new();
        for journal in [1, 2].map(Uuid::from_u128) {
            for written in [("http://g", "a"), ("http://g", "b"), ("https://g", "a"), ("http://ga", "")] {
                streams.extend(filters.iter().map(|filter| identity(journal, filter, &filter_query(filter), written)));
            }
        }
        assert_eq!(streams.len(), 32);
    }
}
