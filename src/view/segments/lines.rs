//! The lines of a segment without the compression of its file: for readers without Zstandard, with any encoding that they accept.

use std::io::{self, BufReader, ErrorKind, Read, Write};

use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{CONTENT_TYPE, VARY},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::segment_problem;
use crate::{
    files::{FileHasher, FileReader, FileStore, FileStoreError},
    segments::{SegmentError, manifest::Manifest},
    view::cache_control::{self, Lifetime},
    web::{Content, Problem, ProblemCode, ReadPermit, Spool, spool_problem},
};

/// Media type of the lines.
const MEDIA_TYPE: &str = "application/x-ndjson";

/// Maximum size of the lines, in bytes: a few slow readers must not fill the spool.
const MAX_BYTES: u64 = 128 << 20;

/// Size of the pieces that are decompressed at once, in bytes.
const PIECE: usize = 64 << 10;

/// Responds with the lines of a segment. They are decompressed into the spool, and compared with the manifest before anybody gets
/// them.
///
/// # Errors
/// `not-found` if there are too many bytes; `unavailable` if the file is missing or damaged, or the spool is full.
pub(super) async fn respond(
    store: FileStore,
    segment: Manifest,
    spool: &Spool,
    (method, headers): (&Method, &HeaderMap),
) -> Result<Response, Problem> {
    if segment.plain_size > MAX_BYTES {
        let detail = format!(
            "The lines of this segment have {} bytes, and more than {MAX_BYTES} are not decompressed here. Take the file: \
             its name ends with .zst.",
            segment.plain_size
        );
        return Err(Problem::new(ProblemCode::NotFound, detail).with("size", segment.plain_size));
    }
    let tag = format!("W/\"{}\"", segment.digest);
    let tag = HeaderValue::from_str(&tag).map_err(Problem::internal)?;
    let mut response = if cache_control::is_known(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let body = if method == Method::HEAD {
            // A body without a size, because nobody knows that of the encoding that GET would have.
            Body::from_stream(futures_util::stream::empty::<io::Result<Bytes>>())
        } else {
            let (segment_permit, writing) = (spool.segment_permit().await, spool.clone());
            let ended = CancellationToken::new();
            let _guard = ended.clone().drop_guard();
            Spool::blocking(segment_permit, move || decompressed(store, &segment, &writing, &ended)).await?.body()
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        response
    };
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    cache_control::add(headers, Lifetime::Fixed.header(&ReadPermit::whole()), tag);
    Ok(response)
}

/// Returns the reason why a file cannot be read: the store, or its bytes.
fn failure(error: io::Error, segment: &Manifest) -> SegmentError {
    let Manifest { first, file, .. } = *segment;
    match error.downcast::<FileStoreError>() {
        Ok(error) => error.into(),
        Err(error) if error.kind() == ErrorKind::NotFound => SegmentError::Missing { first, file },
        Err(error) => SegmentError::Damaged { first, file, reason: error.to_string() },
    }
}

/// Decompresses a file into the spool, until nobody waits any more. The call blocks.
fn decompressed(
    store: FileStore,
    segment: &Manifest,
    spool: &Spool,
    ended: &CancellationToken,
) -> Result<Content, Problem> {
    let Manifest { first, file, plain_size, .. } = *segment;
    // The file has no frame if all changes are damaged.
    if plain_size == 0 {
        return spool.writer().finish().map_err(spool_problem);
    }
    let damaged = |reason: String| segment_problem(SegmentError::Damaged { first, file, reason });
    let reader = FileReader::new(store, file, segment.size, Handle::current());
    let decoder = zstd::stream::read::Decoder::with_buffer(BufReader::with_capacity(PIECE, reader));
    let mut decoder = decoder.map_err(|error| segment_problem(error.into()))?;
    let (mut out, mut digest, mut piece) = (spool.writer(), FileHasher::default(), vec![0; PIECE]);
    loop {
        let length = match decoder.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) => return Err(segment_problem(failure(error, segment))),
        };
        if ended.is_cancelled() {
            return Err(Problem::new(ProblemCode::Unavailable, "Nobody waits for the lines."));
        }
        digest.update(&piece[..length]);
        out.write_all(&piece[..length]).map_err(spool_problem)?;
        if out.length() > plain_size {
            return Err(damaged("it has more lines".to_owned()));
        }
    }
    if digest.finish().digest != segment.digest {
        return Err(damaged("its lines are other ones".to_owned()));
    }
    out.finish().map_err(spool_problem)
}
