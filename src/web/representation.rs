//! Documents that clients and caches keep: strong entity tags, conditional requests, gzip, HEAD
//! (RFC 9110 sections 8.8, 12.5.3, 13; RFC 9111).
//!
//! A view makes the document once and holds it; answering a request from it renders nothing again. A large document is in
//! files ([`super::Spool`]), and is sent from there.

use std::io::{self, Write};

use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH,
            LAST_MODIFIED, VARY,
        },
    },
    response::Response,
};
use bytes::Bytes;
use chrono::{DateTime, SubsecRound, Utc};
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

use super::{
    accept::accepts_gzip,
    content::Content,
    spool::{Spool, SpoolWriter},
};

/// How long a cache may use the document without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// For ever: the document at this address never changes (RFC 8246).
    Immutable,
    /// Not at all: it must ask each time, and is told 304 while nothing has changed.
    Revalidate,
}

/// A document as it is served. Cloning it copies no bytes.
#[derive(Clone, Debug)]
pub struct Representation {
    /// The media type, as `Content-Type` has it.
    pub media_type: &'static str,
    /// The document.
    pub body: Content,
    /// The document in gzip coding, where that is smaller.
    pub gzip: Option<Content>,
    /// What identifies these very bytes: the strong entity tag.
    pub etag: HeaderValue,
    /// The tag of the gzip coding: the same with `-gzip` behind it, since a strong tag is for one
    /// sequence of bytes (RFC 9110 section 8.8.1).
    etag_gzip: HeaderValue,
    /// When what the document tells last changed, and the same as a header has it: writing it for each
    /// answer would take longer than the answer.
    last_modified: Option<(DateTime<Utc>, HeaderValue)>,
    /// How long a cache may use it.
    pub cache: CachePolicy,
    /// Whether another `Accept` gives another document at the same address.
    pub vary_accept: bool,
}

impl Representation {
    /// The least size that is worth compressing, in bytes: about what one packet carries anyway.
    const WORTH_COMPRESSING: usize = 1024;

    /// A small document, compressed where that is worth it, its tag made of a digest of its bytes.
    #[must_use]
    pub fn new(media_type: &'static str, body: impl Into<Bytes>, cache: CachePolicy) -> Self {
        let body = body.into();
        let gzip = compressed(&body).map(Content::from);
        let digest = Sha256::digest(&body).into();
        Self::compressed_before(media_type, body.into(), gzip, digest, cache)
    }

    /// A document that was compressed before: `gzip` is the gzip coding of `body`, and `digest` the SHA-256 of `body`.
    #[must_use]
    pub fn compressed_before(
        media_type: &'static str,
        body: Content,
        gzip: Option<Content>,
        digest: [u8; 32],
        cache: CachePolicy,
    ) -> Self {
        let digest = hex::encode(&digest[..16]);
        let [etag, etag_gzip] = ["", "-gzip"].map(|coding| field(&format!("\"{digest}{coding}\"")));
        Self { media_type, body, gzip, etag, etag_gzip, last_modified: None, cache, vary_accept: false }
    }

    /// Adds the time of the last change.
    #[must_use]
    pub fn last_modified(mut self, time: DateTime<Utc>) -> Self {
        self.last_modified = Some((time, field(&http_date(time))));
        self
    }

    /// Says that another `Accept` gives another document at the same address.
    #[must_use]
    pub fn varying_by_accept(mut self) -> Self {
        self.vary_accept = true;
        self
    }

    /// Answers a GET or HEAD request that has these headers.
    #[must_use]
    pub fn respond(&self, method: &Method, request: &HeaderMap) -> Response {
        let gzip = self.gzip.as_ref().filter(|_| accepts_gzip(request));
        let (body, tag, other) = match gzip {
            Some(gzip) => (gzip, &self.etag_gzip, &self.etag),
            None => (&self.body, &self.etag, &self.etag_gzip),
        };
        if let Some(known) = self.known_to_client(request, tag, other) {
            return self.head(StatusCode::NOT_MODIFIED, known, Body::empty());
        }
        let sent = if method == Method::HEAD { Body::empty() } else { body.body() };
        let mut response = self.head(StatusCode::OK, tag, sent);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.length()));
        if gzip.is_some() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }

    /// The tag of what the client has, when it has the document as it is now
    /// (RFC 9110 section 13.2.2). A client that has it in the other coding is told so too: both are
    /// made of the same document.
    fn known_to_client<'a>(
        &self,
        request: &HeaderMap,
        selected: &'a HeaderValue,
        other: &'a HeaderValue,
    ) -> Option<&'a HeaderValue> {
        if !request.contains_key(IF_NONE_MATCH) {
            return self.not_modified_since(request).then_some(selected);
        }
        let fields = || request.get_all(IF_NONE_MATCH).iter().filter_map(|field| field.to_str().ok());
        if fields().any(|field| field.trim() == "*") {
            return Some(selected);
        }
        let is_listed =
            |tag: &HeaderValue| fields().flat_map(|field| field.split(',')).any(|listed| weakly(listed) == tag);
        [selected, other].into_iter().find(|tag| is_listed(tag))
    }

    fn not_modified_since(&self, request: &HeaderMap) -> bool {
        match (&self.last_modified, header_date(request, &IF_MODIFIED_SINCE)) {
            (Some((modified, _)), Some(since)) => modified.trunc_subsecs(0) <= since,
            _ => false,
        }
    }

    /// The headers that a 200 and a 304 share (RFC 9110 section 15.4.5).
    fn head(&self, status: StatusCode, tag: &HeaderValue, body: Body) -> Response {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(ETAG, tag.clone());
        let cache = match self.cache {
            CachePolicy::Immutable => "public, max-age=31536000, immutable",
            CachePolicy::Revalidate => "no-cache",
        };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        let vary = if self.vary_accept { "Accept, Accept-Encoding" } else { "Accept-Encoding" };
        headers.insert(VARY, HeaderValue::from_static(vary));
        if let Some((_, date)) = &self.last_modified {
            headers.insert(LAST_MODIFIED, date.clone());
        }
        response
    }
}

/// A tag or a date as the value of a header field.
fn field(text: &str) -> HeaderValue {
    #[expect(clippy::expect_used, reason = "letters, digits and ASCII punctuation alone")]
    HeaderValue::from_str(text).expect("tags and dates are header values")
}

/// The tag as weak comparison sees it (RFC 9110 section 8.8.3.2).
fn weakly(tag: &str) -> &str {
    let tag = tag.trim();
    tag.strip_prefix("W/").unwrap_or(tag)
}

fn compressed(body: &[u8]) -> Option<Bytes> {
    if body.len() < Representation::WORTH_COMPRESSING {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::default());
    encoder.write_all(body).ok()?;
    let gzip = encoder.finish().ok()?;
    (gzip.len() < body.len()).then(|| gzip.into())
}

/// A document that is being written: plain, in gzip coding, and through the digest of its tag, all in one pass.
pub struct DocumentWriter {
    plain: SpoolWriter,
    gzip: GzEncoder<SpoolWriter>,
    digest: Sha256,
}

impl DocumentWriter {
    /// Begins a document.
    #[must_use]
    pub fn new(spool: &Spool) -> Self {
        let gzip = GzEncoder::new(spool.writer(), Compression::default());
        Self { plain: spool.writer(), gzip, digest: Sha256::new() }
    }

    /// The document as it is served.
    ///
    /// # Errors
    /// As for [`SpoolWriter::finish`].
    pub fn finish(self, media_type: &'static str, cache: CachePolicy) -> io::Result<Representation> {
        let gzip = self.gzip.finish()?;
        let length = self.plain.length();
        let is_worth_it = length >= Representation::WORTH_COMPRESSING as u64 && gzip.length() < length;
        let gzip = if is_worth_it { Some(gzip.finish()?) } else { None };
        let digest = self.digest.finalize().into();
        Ok(Representation::compressed_before(media_type, self.plain.finish()?, gzip, digest, cache))
    }
}

impl Write for DocumentWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_all(data)?;
        Ok(data.len())
    }

    fn write_all(&mut self, data: &[u8]) -> io::Result<()> {
        self.digest.update(data);
        self.plain.write_all(data)?;
        self.gzip.write_all(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 section 5.6.7).
fn http_date(time: DateTime<Utc>) -> String {
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Reads a header that is a date, in any of the three forms of RFC 9110 section 5.6.7.
#[must_use]
pub fn header_date(headers: &HeaderMap, name: &HeaderName) -> Option<DateTime<Utc>> {
    let value = headers.get(name)?.to_str().ok()?;
    httpdate::parse_http_date(value.trim()).ok().map(DateTime::from)
}

#[cfg(test)]
mod tests {
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
        let field = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        request.iter().map(field).collect()
    }

    /// The tag without its quotation marks.
    fn tag(document: &Representation) -> String {
        document.etag.to_str().unwrap().trim_matches('"').to_owned()
    }

    /// The bytes of a document that is in memory.
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
    async fn is_sent_whole_with_what_a_cache_needs() {
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
    async fn is_compressed_for_those_who_ask_under_another_tag() {
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
    async fn head_tells_the_length_and_sends_nothing() {
        let document = document();
        let mut told = document.respond(&Method::HEAD, &HeaderMap::new());
        assert_eq!(told.headers(), get(&document, &[]).headers());
        *told.headers_mut() = HeaderMap::new();
        assert!(body(told).await.is_empty());
    }

    #[tokio::test]
    async fn conditions_are_held() {
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
    fn what_never_changes_says_so() {
        let page = Representation::new("text/plain", "x", CachePolicy::Immutable).varying_by_accept();
        assert!(page.gzip.is_none());
        let response = get(&page, &[("accept-encoding", "gzip")]);
        assert_eq!(response.headers()["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(response.headers()["vary"], "Accept, Accept-Encoding");
    }

    #[tokio::test]
    async fn a_document_written_in_pieces_has_the_bytes_and_tags_of_one_written_at_once() {
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
                let [expected, sent] =
                    [to_bytes(expected, 9 << 20).await.unwrap(), to_bytes(sent, 9 << 20).await.unwrap()];
                assert!(sent == expected, "{count} {accepted}");
            }
        }
    }

    #[test]
    fn dates_that_are_none_are_none() {
        for raw in ["", "0", "Mon, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET"] {
            assert_eq!(header_date(&headers(&[("last-modified", raw)]), &LAST_MODIFIED), None, "{raw}");
        }
    }
}
