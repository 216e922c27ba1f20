//! `GET /files/{digest}`: a stored file, whole or in part.
//!
//! The digest is the name, so the content at a URL never changes: the response is immutable, and the digest is its entity
//! tag. The bytes come from other people's servers. A browser must neither run them nor show them with the rights of the
//! gateway, so a response is an attachment unless its bytes show that it is an image, a PDF, audio or video.

use std::ops::Range;

use axum::{
    body::Body,
    extract::State,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{
            ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
            CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE,
        },
    },
    response::Response,
};

use crate::{
    files::{FileContent, FileDigest, FileStore, FileStoreError},
    web::{Path, Problem, ProblemCode, problems},
};

/// State of the stored files.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The file store; `None` if the gateway has none.
    pub store: Option<FileStore>,
}

/// Range that a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum RequestedRange {
    Whole,
    Part(Range<u64>),
    Unsatisfiable,
}

problems!(Problems: NotFound, RangeNotSatisfiable, Unavailable);

/// A stored file. Supports ranges of bytes and conditional requests.
#[utoipa::path(
    get,
    path = "/files/{digest}",
    operation_id = "getFile",
    tag = "out",
    params(("digest" = String, Path, description = "SHA-256 of the file, 64 hexadecimal digits in lower case.")),
    responses(
        (status = 200, description = "The file.", content_type = "application/octet-stream"),
        (status = 206, description = "The range of the file.", content_type = "application/octet-stream"),
        (status = 304, description = "The client has the file already."),
        Problems
    ),
)]
pub async fn one(
    State(files): State<Files>,
    Path(digest): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let absent = || {
        let detail = format!("There is no file {digest:.64}. The content of an item names the URL of its copy.");
        Problem::new(ProblemCode::NotFound, detail)
    };
    let (store, name) = files.store.zip(FileDigest::parse(&digest)).ok_or_else(absent)?;
    respond(&store, name, &headers, FileKind::Foreign).await?.ok_or_else(absent)
}

/// Kind of a file, which decides about the headers of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Bytes of other people's servers.
    Foreign,
    /// Bytes of the gateway, with their media type, which readers with the same rights share.
    Own(&'static str),
}

/// Responds with a file or a range of it; `None` if the store does not have it.
///
/// # Errors
/// `unavailable` if the store cannot be read; `range-not-satisfiable`.
pub(super) async fn respond(
    store: &FileStore,
    name: FileDigest,
    headers: &HeaderMap,
    kind: FileKind,
) -> Result<Option<Response>, Problem> {
    let Some(size) = store.size(name).await.map_err(store_problem)? else { return Ok(None) };
    let tag = format!("\"{name}\"");
    let lists_tag = |value: &HeaderValue| {
        let mut tags = value.to_str().unwrap_or_default().split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        tags.any(|listed| listed == tag || listed == "*")
    };
    if headers.get_all(IF_NONE_MATCH).iter().any(lists_tag) {
        return response(StatusCode::NOT_MODIFIED, &tag, kind, Body::empty()).map(Some);
    }
    let is_range_valid = headers.get(IF_RANGE).is_none_or(|condition| condition.as_bytes() == tag.as_bytes());
    let range = headers.get(RANGE).filter(|_| is_range_valid).and_then(|range| range.to_str().ok());
    let range = match range.map_or(RequestedRange::Whole, |range| requested_range(range, size)) {
        RequestedRange::Whole => None,
        RequestedRange::Part(range) => Some(range),
        RequestedRange::Unsatisfiable => {
            let detail = format!("The file has {size} bytes; request a range within them.");
            return Err(Problem::new(ProblemCode::RangeNotSatisfiable, detail).with("size", size));
        }
    };
    let media_type = match kind {
        FileKind::Own(media_type) => Some(media_type),
        FileKind::Foreign => match store.read(name, Some(0..SNIFFED_BYTES)).await {
            Ok(Some(start)) => media_type(start).await.map_err(store_problem)?,
            // An empty file has no range.
            Ok(None) | Err(_) => None,
        },
    };
    let Some(content) = store.read(name, range.clone()).await.map_err(store_problem)? else { return Ok(None) };
    let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let FileContent { size, range, pieces } = content;
    let mut response = response(status, &tag, kind, Body::from_stream(pieces))?;
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, (range.end - range.start).into());
    if status == StatusCode::PARTIAL_CONTENT {
        let (first, last) = (range.start, range.end.saturating_sub(1));
        headers.insert(CONTENT_RANGE, header(&format!("bytes {first}-{last}/{size}"))?);
    }
    match media_type {
        Some(media_type) => headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type)),
        None => {
            headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))
        }
    };
    Ok(Some(response))
}

/// Number of first bytes that the media type is recognized from.
const SNIFFED_BYTES: u64 = 8 * 1024;

/// Returns the media type of a file that a browser may show.
async fn media_type(start: FileContent) -> Result<Option<&'static str>, FileStoreError> {
    let media_type = start.media_type().await?;
    Ok(media_type.filter(|media_type| {
        let is_shown = ["image/", "audio/", "video/"].iter().any(|kind| media_type.starts_with(kind));
        // An SVG image may contain scripts.
        *media_type == "application/pdf" || (is_shown && !media_type.contains("svg"))
    }))
}

/// Parses a range of bytes (RFC 9110 section 14.1.2). Several ranges and other units mean the whole file.
fn requested_range(text: &str, size: u64) -> RequestedRange {
    let Some((first, last)) = text.trim().strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else {
        return RequestedRange::Whole;
    };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(size),
        (Ok(first), Err(_)) if last.is_empty() => first..size,
        (Err(_), Ok(count)) if first.is_empty() => size.saturating_sub(count)..size,
        _ => return RequestedRange::Whole,
    };
    if range.is_empty() { RequestedRange::Unsatisfiable } else { RequestedRange::Part(range) }
}

/// Creates a response with the headers that all have.
fn response(status: StatusCode, tag: &str, kind: FileKind, body: Body) -> Result<Response, Problem> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(ETAG, header(tag)?);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let cache = match kind {
        FileKind::Foreign => "private, max-age=31536000, immutable",
        FileKind::Own(_) => "public, max-age=31536000, immutable",
    };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    Ok(response)
}

fn header(text: &str) -> Result<HeaderValue, Problem> {
    HeaderValue::try_from(text).map_err(Problem::internal)
}

pub(super) fn store_problem(error: FileStoreError) -> Problem {
    Problem::failure("The file store is not available at present", true, error)
}

#[cfg(test)]
mod tests {
    use super::{RequestedRange, requested_range};

    #[test]
    fn ranges_are_within_the_file() {
        for (text, expected) in [
            ("bytes=0-4", RequestedRange::Part(0..5)),
            ("bytes=5-", RequestedRange::Part(5..10)),
            ("bytes=-3", RequestedRange::Part(7..10)),
            ("bytes=-30", RequestedRange::Part(0..10)),
            ("bytes=8-99", RequestedRange::Part(8..10)),
            ("bytes=10-", RequestedRange::Unsatisfiable),
            ("bytes=-0", RequestedRange::Unsatisfiable),
            ("bytes=4-2", RequestedRange::Whole),
            ("bytes=0-1,3-4", RequestedRange::Whole),
            ("lines=0-1", RequestedRange::Whole),
            ("bytes=x", RequestedRange::Whole),
        ] {
            assert_eq!(requested_range(text, 10), expected, "{text}");
        }
    }
}
