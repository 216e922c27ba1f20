//! Pull surfaces, which clients read whenever they want. Each reads the journal or the registry and writes one of the
//! formats. None changes anything.
//!
//! To add a view, add a file here and a line in [`crate::router`].

mod archive_cache;
mod atom;
mod cache_control;
mod catch_up;
pub mod changes;
pub mod digests;
pub mod feed;
mod feed_document;
pub mod files;
mod filtered_feed;
mod html;
pub mod iiif_discovery;
pub mod ldes;
pub mod live_readers;
pub mod metrics;
mod newest_first;
pub mod numbered_pages;
pub mod oai_pmh;
pub mod objects;
mod parameters;
mod registry_view;
pub mod resourcesync;
pub mod segments;
pub mod service;
pub mod snapshot;
pub mod stream;
mod summary;
#[cfg(test)]
pub(crate) mod test_journal;
mod topics;

pub use filtered_feed::Selection;
pub use topics::{EntriesError, TopicError};

use std::sync::Arc;

use axum::{
    http::{
        HeaderValue,
        header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::Response,
};

use crate::{
    journal::{JournalError, RecordedChange, store::StoreError},
    model::{Seq, Uri},
    web::{Content, Problem, ProblemCode, Spool, spool_problem},
};

/// Approximate maximum size of the JSON of the changes or objects of one response, in bytes. A response ends before
/// the element that would exceed it, but has at least one.
const PAGE_BYTES: usize = 4 << 20;

/// Maximum number of changes that are examined for one response with a filter. It may contain fewer changes than
/// requested, even none, and has a cursor with which the reader continues.
const MAX_EXAMINED: usize = 5_000;

/// Maximum size of the JSON of these changes, in bytes. A change has at most some MiB, so 5000 of them could keep a
/// thread busy for minutes.
const MAX_EXAMINED_BYTES: usize = 64 << 20;

/// Approximate maximum size of the changes that are read from the journal at once for one response, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Size of a change's JSON, in bytes, from which on the change is large: it is read and written on blocking threads,
/// and its parsed form and encodings are not cached.
const LARGE: usize = 64 << 10;

/// Returns the change; a large one with caches of its own, which are dropped after use.
fn without_large_caches(change: Arc<RecordedChange>) -> Arc<RecordedChange> {
    if change.json().len() < LARGE { change } else { Arc::new(change.without_caches()) }
}

/// Waits for a read of the journal on a blocking thread.
fn block_on<F: Future>(read: F) -> F::Output {
    tokio::runtime::Handle::current().block_on(read)
}

/// Returns a response that caches must revalidate.
fn uncached_response(media_type: &'static str, content: &Content) -> Response {
    let mut response = Response::new(content.body());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(content.length()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Returns a response with JSON. It writes the JSON on the current, blocking thread.
fn json_response(spool: &Spool, value: &impl serde::Serialize) -> Result<Response, Problem> {
    let mut out = spool.writer();
    serde_json::to_writer(&mut out, value).map_err(|error| spool_problem(error.into()))?;
    let content = out.finish().map_err(spool_problem)?;
    Ok(uncached_response("application/json", &content))
}

/// Returns the problem of a failed read of the journal. If the next change has been removed, the problem is `gone`.
fn journal_problem(error: JournalError) -> Problem {
    match error {
        JournalError::Gone { after, first } => gone(after, first),
        JournalError::Store(StoreError::DamagedChange { seq, what }) => damaged_change(seq, what),
        JournalError::Store(StoreError::DamagedObject { uri, what }) => damaged_object(uri, what),
        error => {
            let is_logged = error.is_outage();
            Problem::failure("The journal cannot be read at present", error.is_transient(), error).logged(is_logged)
        }
    }
}

/// Returns the problem of a change that cannot be read.
fn store_problem(error: StoreError) -> Problem {
    journal_problem(JournalError::Store(error))
}

/// Returns the problem of a document that could not be written.
fn write_problem(error: feed_document::WriteError) -> Problem {
    match error {
        feed_document::WriteError::Store(error) => store_problem(error),
        feed_document::WriteError::Io(error) => spool_problem(error),
    }
}

/// Returns the problem of a cursor that is not in the journal any more or never was. It says where to start again.
fn gone(after: Seq, first: Seq) -> Problem {
    let detail = format!(
        "The journal cannot be read from {after}: the next change has been removed, or {after} is not a number of this \
         journal (it may have been restored from a backup). The oldest change has the number {first}. Start again: \
         read the current registry page by page from /snapshot, then continue with /changes?after= or \
         /stream?after= and the \"head\" of its first page."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0).with("snapshot", "/snapshot")
}

/// Returns the problem of a damaged change. It says how to continue on either side of the change.
fn damaged_change(seq: Seq, what: String) -> Problem {
    let detail = format!(
        "Change {seq} is damaged and cannot be read; the changes before and after it are not affected. To skip it, \
         continue with /changes?after={seq} or /stream?after={seq}; older changes are at /changes?before={seq} and \
         /feed?before={seq}. The state of its object is in the registry: /objects and /snapshot."
    );
    Problem::new(ProblemCode::DamagedChange, detail).with("seq", seq.0).because(StoreError::DamagedChange { seq, what })
}

/// Returns the problem of a damaged object of the registry. It says how to continue after the object.
fn damaged_object(uri: Uri, what: String) -> Problem {
    let detail = "The registry's rows of this object are damaged and cannot be read; other objects are not affected. To \
                  skip it, continue with /snapshot?after= and its URI, which is the member \"object\".";
    Problem::new(ProblemCode::DamagedObject, detail)
        .with("object", uri.as_str())
        .because(StoreError::DamagedObject { uri, what })
}

/// Returns the problem of a page that has been removed by retention.
fn page_gone(page: u64, first: Seq) -> Problem {
    let detail = format!(
        "Page {page} has been removed: the oldest change has the number {first}. The current state of the \
         objects is in the registry: read it page by page from /snapshot."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0).with("snapshot", "/snapshot")
}
