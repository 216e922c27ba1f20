//! Pull surfaces: what a client reads when it likes. Each reads the journal by number or the
//! registry, and writes in the formats; none changes anything.
//!
//! To add a view: one new file here, and one line in [`crate::router`].

mod atom;
mod backwards;
mod behind;
pub mod changes;
pub mod feed;
mod feed_document;
mod filtered;
pub mod live;
pub mod metrics;
pub mod objects;
mod pages;
mod parameters;
pub mod service;
pub mod snapshot;
pub mod stream;
mod topics;
pub mod waiting;

pub use filtered::Selection;
pub use topics::{EntriesError, NoTopic};

use axum::{
    http::{
        HeaderValue,
        header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::Response,
};

use crate::{
    journal::{JournalError, store::StoreError},
    model::Seq,
    web::{Content, Problem, ProblemCode, Spool, spool_problem},
};

/// About how many bytes of JSON the changes or objects of one answer have: it ends early where the next would make it
/// more, and has one at least.
const PAGE_BYTES: usize = 4 << 20;

/// About how many bytes of changes are read from the journal at once for one answer.
const PIECE_BYTES: usize = 256 << 10;

/// Size of a change's JSON, in bytes, from which on it is read and written off the runtime's threads, and nothing that
/// was made of it is kept for other readers.
const LARGE: usize = 64 << 10;

/// Waits for the journal on a thread that may wait.
fn wait_for<F: Future>(reading: F) -> F::Output {
    tokio::runtime::Handle::current().block_on(reading)
}

/// An answer that no cache keeps.
fn unkept(media_type: &'static str, content: &Content) -> Response {
    let mut response = Response::new(content.body());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(content.length()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// An answer of JSON, written on a thread that may wait.
fn json_answer(spool: &Spool, value: &impl serde::Serialize) -> Result<Response, Problem> {
    let mut out = spool.writer();
    serde_json::to_writer(&mut out, value).map_err(|error| spool_problem(error.into()))?;
    let content = out.finish().map_err(spool_problem)?;
    Ok(unkept("application/json", &content))
}

/// What a reader is told when the journal cannot be read, or no longer has what comes next.
fn journal_problem(error: JournalError) -> Problem {
    match error {
        JournalError::Gone { after, first } => gone(after, first),
        error => Problem::failure("The journal cannot be read at present", error.is_transient(), error),
    }
}

/// The same where a change of the journal cannot be read.
fn store_problem(error: StoreError) -> Problem {
    journal_problem(JournalError::Store(error))
}

/// The problem of a document that could not be written.
fn write_problem(error: feed_document::WriteError) -> Problem {
    match error {
        feed_document::WriteError::Store(error) => store_problem(error),
        feed_document::WriteError::Io(error) => spool_problem(error),
    }
}

/// What a reader is told whose place is not in the journal any more, or never was: where to start.
fn gone(after: Seq, first: Seq) -> Problem {
    let detail = format!(
        "The journal cannot be read on from {after}: what came next is no longer kept, or this is not a number of this \
         journal (it may have been restored from a backup). The oldest change that is kept has the number {first}. Start \
         again: read the registry as it is now, page by page from /snapshot, then go on with /changes?after= or \
         /stream?after= and the \"head\" of its first page."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0).with("snapshot", "/snapshot")
}

/// What a reader is told that walks the archive past the end of what is kept.
fn page_gone(page: u64, first: Seq) -> Problem {
    let detail = format!(
        "Archive page {page} is no longer kept: the oldest change that is has the number {first}. What the objects have \
         come to is in the registry: read it page by page from /snapshot."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0).with("snapshot", "/snapshot")
}
