//! Pages of the journal: the changes that a reader selects, in the format that it accepts.

use std::{io::Write, sync::Arc};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use memchr::memmem::Finder;
use url::form_urlencoded;
use uuid::Uuid;

use super::{
    super::{
        LARGE, MAX_EXAMINED, MAX_EXAMINED_BYTES, PAGE_BYTES, PIECE_BYTES, block_on, journal_problem,
        parameters::filter_query, store_problem, uncached_response,
    },
    Changes,
};
use crate::{
    format::{Batch, FORMATS, FormatKind},
    journal::{JournalError, RecordedChange, metrics::tail_read, segments::end_of_span, store::StoreError},
    model::{Filter, Rendition, Seq, Uri},
    segments::{self, SegmentError},
    web::{Content, Problem, Spool, SpoolWriter, negotiated_media_type, spool_problem},
};

/// Default media type of a page.
const JSON: &str = "application/json";

/// Media type of a page with a change on each line. It is not registered, as no media type of this format is.
const LINES: &str = "application/x-ndjson";

/// Maximum size of the changes of a page that is written immediately on a thread of the runtime, in bytes.
const SMALL_PAGE: usize = 256 << 10;

/// Maximum number of changes that are read from the journal at once if the selection has a filter.
const READ_CHANGES: usize = 250;

/// The same for a search for a thing. Most of these changes are not parsed.
const SEARCHED_CHANGES: usize = 1000;

/// Maximum number of changes that are examined for one page of a search.
const MAX_SEARCHED: usize = 100_000;

/// Order of the changes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Oldest first.
    OldestFirst {
        /// Number of the change before which to end.
        before: Option<Seq>,
    },
    /// Newest first.
    NewestFirst,
}

/// Selection of the changes of a page, and their format.
#[derive(Clone)]
pub(super) struct Selection {
    /// Conditions on the changes; `None` selects all changes.
    pub(super) filter: Option<Filter>,
    /// Object, or item, that the changes are about; `None` selects all.
    pub(super) about: Option<Uri>,
    /// Order of the changes.
    pub(super) order: Order,
    /// Maximum number of changes on the page.
    pub(super) limit: usize,
    pub(super) format: PageFormat,
    /// Identity of the journal that the request names.
    pub(super) journal: Option<Uuid>,
}

impl Selection {
    pub(super) fn ends_before(&self, seq: Seq) -> bool {
        matches!(self.order, Order::OldestFirst { before: Some(before) } if seq >= before)
    }

    /// Returns whether every change is selected, up to the limit.
    fn is_everything(&self) -> bool {
        self.filter.is_none() && self.about.is_none() && self.order == Order::OldestFirst { before: None }
    }

    /// Returns the maximum number of changes that are examined for the page.
    fn max_examined(&self) -> usize {
        if self.about.is_some() { MAX_SEARCHED } else { MAX_EXAMINED }
    }

    /// Returns the maximum number of changes that are read at once, and their approximate size in bytes.
    fn piece(&self) -> (usize, usize) {
        match self {
            Self { about: Some(_), .. } => (SEARCHED_CHANGES, SEARCHED_CHANGES << 10),
            Self { filter: Some(_), .. } => (READ_CHANGES, PIECE_BYTES),
            Self { limit, .. } => (*limit, PIECE_BYTES),
        }
    }

    /// Returns whether a change is about the selected thing.
    fn is_about(&self, change: &RecordedChange) -> Result<bool, StoreError> {
        let Some(about) = &self.about else { return Ok(true) };
        let modification = &change.change()?.modification;
        Ok(modification.object == *about || modification.items.iter().any(|item| item.uri == *about))
    }

    /// Returns the next page as a value of the header `Link` (RFC 8288), relative to the URL of this page.
    fn link(&self, next: Seq) -> Option<HeaderValue> {
        let filter = self.filter.as_ref().map(filter_query).unwrap_or_default();
        let mut query = form_urlencoded::Serializer::new(filter);
        query.extend_pairs(self.about.iter().map(|about| ("about", about.as_str())));
        match self.order {
            Order::OldestFirst { before } => {
                query.append_pair("after", &next.to_string());
                query.extend_pairs(before.map(|before| ("before", before.to_string())));
            }
            Order::NewestFirst => _ = query.append_pair("before", &next.to_string()),
        }
        query.append_pair("limit", &self.limit.to_string());
        query.extend_pairs(self.journal.map(|journal| ("journal", journal.to_string())));
        HeaderValue::try_from(format!("<?{}>; rel=\"next\"", query.finish())).ok()
    }
}

/// Format of a page.
#[derive(Clone, Copy)]
pub(super) enum PageFormat {
    /// The stored JSON with the cursor of the next page.
    Json,
    /// The stored JSON as an array.
    Array,
    /// The stored JSON, a change on each line.
    Lines,
    /// A batch of another format.
    Batch(&'static FormatKind, Batch),
}

impl PageFormat {
    /// Returns the format that the client prefers.
    ///
    /// # Errors
    /// `not-acceptable`.
    pub(super) fn accepted(headers: &HeaderMap) -> Result<Self, Problem> {
        let batches = FORMATS.iter().copied().filter_map(|format| Some(Self::Batch(format, format.batch?)));
        let batches = batches.filter(|batch| batch.media_type() != JSON);
        let formats: Vec<_> = [Self::Json, Self::Lines].into_iter().chain(batches).collect();
        let offered: Vec<_> = formats.iter().map(|format| format.media_type()).collect();
        let chosen = negotiated_media_type(headers, &offered)?;
        Ok(formats.into_iter().find(|format| format.media_type() == chosen).unwrap_or(Self::Json))
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::Array => JSON,
            Self::Lines => LINES,
            Self::Batch(_, batch) => batch.media_type,
        }
    }

    /// Returns the texts before the first change and between two changes.
    fn punctuation(self) -> (&'static str, &'static str) {
        match self {
            Self::Json => ("{\"changes\":[", ","),
            Self::Array => ("[", ","),
            Self::Lines => ("", "\n"),
            Self::Batch(_, batch) => (batch.open, batch.between),
        }
    }
}

/// A finished page.
pub(super) struct Page {
    /// Number of the last change that was examined, or the cursor of the page if none was.
    pub(super) next: Seq,
    /// Whether no change can ever follow: the page with the newest change first has reached the oldest one.
    is_last: bool,
    /// Number of changes on the page.
    pub(super) count: usize,
    /// Number of changes that were examined.
    pub(super) examined: usize,
    content: Content,
}

impl Changes {
    /// Reads and writes a page. A small page in memory is written immediately, others piece by piece once a permit is
    /// available.
    pub(super) async fn read(&self, after: Seq, selection: &Selection) -> Result<Page, Problem> {
        if selection.is_everything() {
            let limit = selection.limit;
            let in_memory = self.journal.cached_after(after, limit, SMALL_PAGE);
            if let Some(changes) = in_memory.filter(|changes| is_small(changes, limit, after, self.journal.head())) {
                tail_read(true);
                return Page::write(self, after, selection, |page| page.add(&changes).map(|_| ()));
            }
        }
        let permit = self.readers.spool().page_permit().await;
        let (view, selection) = (self.clone(), selection.clone());
        Spool::blocking(permit, move || Page::write(&view, after, &selection, |page| page.fill(&view))).await
    }
}

/// Returns `true` if the changes are the complete page and small enough to be written immediately.
fn is_small(changes: &[Arc<RecordedChange>], limit: usize, after: Seq, head: Seq) -> bool {
    let bytes: usize = changes.iter().map(|change| change.json().len()).sum();
    let next = changes.last().map_or(after, |newest| newest.seq());
    bytes <= SMALL_PAGE && (changes.len() == limit || next >= head)
}

/// Writer of a page.
pub(super) struct PageWriter<'a> {
    pub(super) selection: &'a Selection,
    /// Finds the URI of the selected thing in the JSON of a change. A change without it is not parsed.
    about: Option<Finder<'a>>,
    out: SpoolWriter,
    pub(super) next: Seq,
    pub(super) is_last: bool,
    count: usize,
    pub(super) examined: usize,
    /// Size of the JSON of the examined changes, in bytes.
    examined_bytes: usize,
    /// Size of the JSON of the changes on the page, in bytes.
    bytes: usize,
}

impl PageWriter<'_> {
    /// Returns `true` if the page has room, and may examine more changes.
    pub(super) fn may_read(&self) -> bool {
        let has_room = self.count < self.selection.limit && self.bytes < PAGE_BYTES;
        has_room && self.examined < self.selection.max_examined() && self.examined_bytes < MAX_EXAMINED_BYTES
    }

    /// Returns the number and the size in bytes of the changes to read next.
    pub(super) fn next_piece(&self) -> (usize, usize) {
        let (count, bytes) = self.selection.piece();
        let is_searched = self.selection.filter.is_some() || self.selection.about.is_some();
        let left = if is_searched { self.selection.max_examined() - self.examined } else { count - self.count };
        // An unfiltered page has what it reads.
        (count.min(left), if is_searched { bytes } else { bytes.min(PAGE_BYTES - self.bytes) })
    }

    /// Reads the journal until the page is full, or has examined as many changes as it may.
    fn fill(&mut self, view: &Changes) -> Result<(), Problem> {
        let mut span_end = Seq::ZERO;
        while self.may_read() {
            if self.next >= span_end {
                self.next = self.after_excluded(view);
                span_end = end_of_span(self.next.next());
            }
            let (count, bytes) = self.next_piece();
            let read = match self.read_next(view, count, bytes) {
                // The page ends before the damaged change, and the next one reports it.
                Err(JournalError::Store(StoreError::DamagedChange { .. })) if self.examined > 0 => break,
                read => read.map_err(journal_problem)?,
            };
            if read.is_empty() || !self.add(&read)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the number after which the next selected change can be: segments say which sources, types and hosts they have.
    /// The changes themselves decide where segments cannot be read.
    fn after_excluded(&self, view: &Changes) -> Seq {
        let (Some(segments), Some(filter)) = (&view.segments, &self.selection.filter) else { return self.next };
        // The number at which a page ends would say which hidden changes a segment has.
        if filter.view.is_some() {
            return self.next;
        }
        let skipped = block_on(segments.skip(self.next, filter));
        let reached = skipped.unwrap_or_else(|error| {
            tracing::warn!(%error, "a page is read without the help of the sealed segments");
            self.next
        });
        match self.selection.order {
            Order::OldestFirst { before: Some(before) } => reached.min(Seq(before.0.saturating_sub(1))).max(self.next),
            _ => reached,
        }
    }

    /// Reads the next changes of the journal, or of a segment if retention has removed them from the journal. A segment does
    /// not say what the public sees.
    fn read_next(&self, view: &Changes, count: usize, bytes: usize) -> Result<Vec<Arc<RecordedChange>>, JournalError> {
        let gone = match block_on(view.journal.after_within(self.next, count, bytes)) {
            Err(error @ JournalError::Gone { .. }) => error,
            read => return read,
        };
        let is_recorded = |filter: &Filter| filter.rendition() == Rendition::Recorded;
        let (Some(segments), true) = (&view.segments, self.selection.filter.as_ref().is_none_or(is_recorded)) else {
            return Err(gone);
        };
        match block_on(segments.changes_after(self.next, count)) {
            Ok(changes) => changes.ok_or(gone),
            Err(SegmentError::Journal(error)) => Err(error),
            // The changes may be there again: a reader must not begin anew because of that.
            Err(error) => {
                segments::metrics::failed();
                tracing::error!(%error, "changes that retention has removed cannot be read");
                Err(StoreError::Unavailable("the sealed segment cannot be read; the log says why".to_owned()).into())
            }
        }
    }

    /// Adds the selected changes that fit, and returns `true` if more may follow. The first change of a page always
    /// fits.
    pub(super) fn add(&mut self, changes: &[Arc<RecordedChange>]) -> Result<bool, Problem> {
        for change in changes {
            if self.count == self.selection.limit || self.selection.ends_before(change.seq()) {
                return Ok(false);
            }
            match self.encoded(change) {
                Err(StoreError::DamagedChange { .. }) if self.examined > 0 => return Ok(false),
                encoded => {
                    if let Some((encoded, size)) = encoded.map_err(store_problem)? {
                        if self.count > 0 && self.bytes + size > PAGE_BYTES {
                            return Ok(false);
                        }
                        self.write(&encoded)?;
                        self.bytes += size;
                    }
                }
            }
            self.next = change.seq();
            self.examined += 1;
            self.examined_bytes += change.json().len();
        }
        Ok(true)
    }

    /// Returns the change in the format of the page, and the size of its JSON; `None` if it is not selected.
    fn encoded(&self, change: &Arc<RecordedChange>) -> Result<Option<(bytes::Bytes, usize)>, StoreError> {
        if self.about.as_ref().is_some_and(|about| about.find(change.json()).is_none()) {
            return Ok(None);
        }
        let is_large = change.json().len() >= LARGE;
        let change = if is_large { Arc::new(change.without_caches()) } else { Arc::clone(change) };
        let selected = match &self.selection.filter {
            Some(filter) => change.filtered(filter)?,
            None => Some(change),
        };
        // The reader's view decides, and not the record.
        let Some(change) = selected else { return Ok(None) };
        if !self.selection.is_about(&change)? {
            return Ok(None);
        }
        let encoded = match self.selection.format {
            PageFormat::Json | PageFormat::Array | PageFormat::Lines => change.json().clone(),
            PageFormat::Batch(format, _) if is_large => (format.write)(change.change()?).into(),
            PageFormat::Batch(format, _) => change.encoded(format.name, format.write)?,
        };
        Ok(Some((encoded, change.json().len())))
    }

    fn write(&mut self, encoded: &[u8]) -> Result<(), Problem> {
        let (open, between) = self.selection.format.punctuation();
        let before = if self.count == 0 { open } else { between };
        let written = self.out.write_all(before.as_bytes()).and_then(|()| self.out.write_all(encoded));
        self.count += 1;
        written.map_err(spool_problem)
    }
}

impl Page {
    /// Writes the page that begins at a cursor.
    pub(super) fn write(
        view: &Changes,
        cursor: Seq,
        selection: &Selection,
        add: impl FnOnce(&mut PageWriter<'_>) -> Result<(), Problem>,
    ) -> Result<Self, Problem> {
        let out = view.readers.spool().writer();
        let about = selection.about.as_ref().map(|about| Finder::new(about.as_str()));
        let (next, is_last, count, examined) = (cursor, false, 0, 0);
        let (examined_bytes, bytes) = (0, 0);
        let mut page = PageWriter { selection, about, out, next, is_last, count, examined, examined_bytes, bytes };
        add(&mut page)?;
        let PageWriter { mut out, next, is_last, count, examined, .. } = page;
        // Read after the changes, so that no change of a later journal is under the identity of an earlier one.
        let journal = view.journal.identity();
        let open = if count == 0 { selection.format.punctuation().0 } else { "" };
        let close = match selection.format {
            PageFormat::Json => {
                let next = if is_last { "null".to_owned() } else { next.to_string() };
                format!("],\"next\":{next},\"journal\":\"{journal}\"}}")
            }
            PageFormat::Array => "]".to_owned(),
            PageFormat::Lines if count == 0 => String::new(),
            PageFormat::Lines => "\n".to_owned(),
            PageFormat::Batch(_, batch) => batch.close.to_owned(),
        };
        let result = out.write_all(open.as_bytes()).and_then(|()| out.write_all(close.as_bytes()));
        let content = result.and_then(|()| out.finish()).map_err(spool_problem)?;
        Ok(Self { next, is_last, count, examined, content })
    }

    pub(super) fn into_body(self) -> Body {
        self.content.body()
    }

    pub(super) fn into_content(self) -> Content {
        self.content
    }

    pub(super) fn into_response(self, selection: &Selection) -> Response {
        let mut response = uncached_response(selection.format.media_type(), &self.content);
        let headers = response.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        let next = (!self.is_last).then_some(self.next);
        headers.extend(next.and_then(|next| selection.link(next)).map(|link| (header::LINK, link)));
        response
    }
}
