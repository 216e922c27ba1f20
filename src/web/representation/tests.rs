//! Tests of representations.

use std::io::Read;

use axum::{
    body::to_bytes,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header::LAST_MODIFIED},
    response::Response,
};
use bytes::Bytes;
use chrono::{DateTime, Utc};

use super::{CachePolicy, Content, DocumentWriter, Representation, Spool, Write, header_date};

fn document() -> Representation {
    let modified: DateTime<Utc> = "1994-11-06T08:49:37.750Z".parse().unwrap();
    Representation::new("text/plain", "tidings ".repeat(1000), CachePolicy::Revalidate).last_modified(modified)
}

fn get(document: &Representation, request: &[(&'static str, &str)]) -> Response {
    document.respond(&Method::GET, &headers(request))
}

fn headers(request: &[(&'static str, &str)]) -> HeaderMap {
    let field =
        |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    request.iter().map(field).collect()
}

/// Returns the tag without its quotation marks.
fn tag(document: &Representation) -> String {
    document.etag.to_str().unwrap().trim_matches('"').to_owned()
}

/// Returns the bytes of a document in memory.
fn bytes(document: &Representation) -> Bytes {
    match &document.body {
        Content::Memory(bytes) => bytes.clone(),
        Content::File(_) => panic!("a small document is in a file"),
    }
}

async fn body(response: Response) -> Bytes {
    to_bytes(response.into_body(), 1 << 20).await.unwrap()
}

#[tokio::test]
async fn response_has_caching_headers() {
    let document = document();
    let response = get(&document, &[]);
    let expected = headers(&[
        ("etag", document.etag.to_str().unwrap()),
        ("cache-control", "no-cache"),
        ("vary", "Accept-Encoding"),
        ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("content-type", "text/plain"),
        ("content-length", "8000"),
    ]);
    assert_eq!((response.status(), response.headers()), (StatusCode::OK, &expected));
    assert_eq!(body(response).await, bytes(&document));
}

#[tokio::test]
async fn gzip_response_has_its_own_tag() {
    let document = document();
    let response = get(&document, &[("accept-encoding", "br, gzip")]);
    assert_eq!(response.headers()["content-encoding"], "gzip");
    assert_eq!(response.headers()["etag"], format!("\"{}-gzip\"", tag(&document)));
    let length = response.headers()["content-length"].to_str().unwrap().to_owned();
    let sent = body(response).await;
    assert_eq!(sent.len().to_string(), length);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&sent[..]).read_to_end(&mut plain).unwrap();
    assert_eq!(plain, bytes(&document));
    assert!(!get(&document, &[("accept-encoding", "gzip;q=0")]).headers().contains_key("content-encoding"));
}

#[tokio::test]
async fn head_response_has_length_and_no_body() {
    let document = document();
    let mut response = document.respond(&Method::HEAD, &HeaderMap::new());
    assert_eq!(response.headers(), get(&document, &[]).headers());
    *response.headers_mut() = HeaderMap::new();
    assert!(body(response).await.is_empty());
}

#[tokio::test]
async fn conditional_requests_are_evaluated() {
    let document = document();
    let tag = tag(&document);
    let (same, gzip) = (format!("\"{tag}\""), format!("W/\"x,y\", W/\"{tag}-gzip\""));
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (request, status) in [
        (vec![("if-none-match", same.as_str())], 304),
        (vec![("if-none-match", "\"other\""), ("if-none-match", &same)], 304),
        (vec![("if-none-match", &gzip)], 304),
        (vec![("if-none-match", "*")], 304),
        (vec![("if-none-match", &tag)], 200),
        (vec![("if-none-match", "\"a,*,b\"")], 200),
        (vec![("if-none-match", "\"other\""), ("if-modified-since", date)], 200),
        (vec![("if-modified-since", date)], 304),
        (vec![("if-modified-since", "Sunday, 06-Nov-94 08:49:37 GMT")], 304),
        (vec![("if-modified-since", "Sun Nov  6 08:49:36 1994")], 200),
        (vec![("if-modified-since", "yesterday")], 200),
    ] {
        assert_eq!(get(&document, &request).status(), status, "{request:?}");
    }
    let unchanged = get(&document, &[("if-none-match", &gzip)]);
    let expected = headers(&[
        ("etag", &format!("\"{tag}-gzip\"")),
        ("cache-control", "no-cache"),
        ("vary", "Accept-Encoding"),
        ("last-modified", date),
    ]);
    assert_eq!(unchanged.headers(), &expected);
    assert!(body(unchanged).await.is_empty());
}

#[test]
fn immutable_document_has_long_max_age() {
    let page = Representation::new("text/plain", "x", CachePolicy::Immutable).varying_by_accept();
    assert!(page.gzip.is_none());
    let response = get(&page, &[("accept-encoding", "gzip")]);
    assert_eq!(response.headers()["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(response.headers()["vary"], "Accept, Accept-Encoding");
}

#[tokio::test]
async fn document_written_in_pieces_equals_document_in_one_piece() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::new(folder.path(), 64 << 20);
    for (count, is_large) in [(1, false), (1000, false), (200_000, true)] {
        let text = "tidings ".repeat(count);
        let at_once = Representation::new("text/plain", text.clone(), CachePolicy::Revalidate);
        let mut writer = DocumentWriter::new(&spool);
        text.as_bytes().chunks(1021).for_each(|piece| writer.write_all(piece).unwrap());
        let in_pieces = writer.finish("text/plain", CachePolicy::Revalidate).unwrap();
        assert_eq!(matches!(in_pieces.body, Content::File(_)), is_large, "{count}");
        for accepted in ["identity", "gzip"] {
            let [expected, sent] =
                [&at_once, &in_pieces].map(|document| get(document, &[("accept-encoding", accepted)]));
            assert_eq!(sent.headers(), expected.headers(), "{count} {accepted}");
            let [expected, sent] = [expected, sent].map(Response::into_body);
            let [expected, sent] = [to_bytes(expected, 9 << 20).await.unwrap(), to_bytes(sent, 9 << 20).await.unwrap()];
            assert!(sent == expected, "{count} {accepted}");
        }
    }
}

#[test]
fn invalid_dates_are_none() {
    for raw in ["", "0", "Mon, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET"] {
        assert_eq!(header_date(&headers(&[("last-modified", raw)]), &LAST_MODIFIED), None, "{raw}");
    }
}
