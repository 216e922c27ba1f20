//! Cacheable documents: strong entity tags, conditional requests, gzip and HEAD (RFC 9110 sections 8.8, 12.5.3, 13;
//! RFC 9111).
//!
//! A view renders a document once and keeps it; a response copies nothing and renders nothing. A large document is in
//! files ([`super::Spool`]) and sent from there.

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

/// Time for which a cache may use a document without revalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// For ever, because the document at this URL never changes (RFC 8246).
    Immutable,
    /// Never: the cache must revalidate each time, and gets 304 if nothing has changed.
    Revalidate,
}

/// Document ready to be served. Clones share its bytes.
#[derive(Clone, Debug)]
pub struct Representation {
    /// Value of `Content-Type`.
    pub media_type: &'static str,
    /// The document without encoding.
    pub body: Content,
    /// The document in gzip encoding, if that is smaller.
    pub gzip: Option<Content>,
    /// Strong entity tag of the document without encoding.
    pub etag: HeaderValue,
    /// Strong entity tag of the gzip encoding: the same with the suffix `-gzip`, because a strong tag identifies one
    /// sequence of bytes (RFC 9110 section 8.8.1).
    etag_gzip: HeaderValue,
    /// Time of the last change, and its header value. Formatting it for each response would take longer than the
    /// response.
    last_modified: Option<(DateTime<Utc>, HeaderValue)>,
    /// Cache policy.
    pub cache: CachePolicy,
    /// `true` if the same URL has other representations, depending on `Accept`.
    pub vary_accept: bool,
}

impl Representation {
    /// Minimum size for compression, in bytes; a smaller document fits into one packet anyway.
    const MIN_COMPRESSED_SIZE: usize = 1024;

    /// Creates a small document and compresses it if it is large enough. Its tag is a digest of its bytes.
    #[must_use]
    pub fn new(media_type: &'static str, body: impl Into<Bytes>, cache: CachePolicy) -> Self {
        let body = body.into();
        let gzip = compressed(&body).map(Content::from);
        let digest = Sha256::digest(&body).into();
        Self::from_compressed(media_type, body.into(), gzip, digest, cache)
    }

    /// Creates a document that is already compressed. `gzip` is the gzip encoding of `body`, and `digest` the SHA-256
    /// of `body`.
    #[must_use]
    pub fn from_compressed(
        media_type: &'static str,
        body: Content,
        gzip: Option<Content>,
        digest: [u8; 32],
        cache: CachePolicy,
    ) -> Self {
        let digest = hex::encode(&digest[..16]);
        let [etag, etag_gzip] = ["", "-gzip"].map(|suffix| header_value(&format!("\"{digest}{suffix}\"")));
        Self { media_type, body, gzip, etag, etag_gzip, last_modified: None, cache, vary_accept: false }
    }

    /// Sets the time of the last change.
    #[must_use]
    pub fn last_modified(mut self, time: DateTime<Utc>) -> Self {
        self.last_modified = Some((time, header_value(&http_date(time))));
        self
    }

    /// Gives the document a weak tag, a digest of its meaning: documents with the same tag may differ in other bytes, such as
    /// the time of the response.
    #[must_use]
    pub fn with_weak_tag(mut self, digest: [u8; 32]) -> Self {
        self.etag = header_value(&format!("W/\"{}\"", hex::encode(&digest[..16])));
        self.etag_gzip.clone_from(&self.etag);
        self
    }

    /// Declares that the representation depends on `Accept`.
    #[must_use]
    pub fn varying_by_accept(mut self) -> Self {
        self.vary_accept = true;
        self
    }

    /// Responds to a GET or HEAD request with these headers.
    #[must_use]
    pub fn respond(&self, method: &Method, request: &HeaderMap) -> Response {
        let gzip = self.gzip.as_ref().filter(|_| accepts_gzip(request));
        let (body, tag, other) = match gzip {
            Some(gzip) => (gzip, &self.etag_gzip, &self.etag),
            None => (&self.body, &self.etag, &self.etag_gzip),
        };
        if let Some(tag) = self.matching_tag(request, tag, other) {
            return self.response(StatusCode::NOT_MODIFIED, tag, Body::empty());
        }
        let sent = if method == Method::HEAD { Body::empty() } else { body.body() };
        let mut response = self.response(StatusCode::OK, tag, sent);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.length()));
        if gzip.is_some() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }

    /// Returns the tag of the client's copy if it is current (RFC 9110 section 13.2.2). A copy in the other encoding
    /// is also current, because both are made from the same document.
    fn matching_tag<'a>(
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
        let is_listed = |tag: &HeaderValue| {
            let tag = tag.to_str().map(strip_weak_prefix).unwrap_or_default();
            fields().flat_map(|field| field.split(',')).any(|listed| strip_weak_prefix(listed) == tag)
        };
        [selected, other].into_iter().find(|tag| is_listed(tag))
    }

    fn not_modified_since(&self, request: &HeaderMap) -> bool {
        match (&self.last_modified, header_date(request, &IF_MODIFIED_SINCE)) {
            (Some((modified, _)), Some(since)) => modified.trunc_subsecs(0) <= since,
            _ => false,
        }
    }

    /// Creates a response with the headers that 200 and 304 share (RFC 9110 section 15.4.5).
    fn response(&self, status: StatusCode, tag: &HeaderValue, body: Body) -> Response {
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

/// Converts a tag or a date to a header value.
fn header_value(text: &str) -> HeaderValue {
    #[expect(clippy::expect_used, reason = "only letters, digits and ASCII punctuation")]
    HeaderValue::from_str(text).expect("tags and dates are header values")
}

/// Removes the prefix of a weak tag, for weak comparison (RFC 9110 section 8.8.3.2).
fn strip_weak_prefix(tag: &str) -> &str {
    let tag = tag.trim();
    tag.strip_prefix("W/").unwrap_or(tag)
}

fn compressed(body: &[u8]) -> Option<Bytes> {
    if body.len() < Representation::MIN_COMPRESSED_SIZE {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::default());
    encoder.write_all(body).ok()?;
    let gzip = encoder.finish().ok()?;
    (gzip.len() < body.len()).then(|| gzip.into())
}

/// Writer of a document that writes the plain and the gzip form and computes the digest of the tag, in one pass.
pub struct DocumentWriter {
    plain: SpoolWriter,
    gzip: GzEncoder<SpoolWriter>,
    digest: Sha256,
}

impl DocumentWriter {
    /// Starts a document.
    #[must_use]
    pub fn new(spool: &Spool) -> Self {
        let gzip = GzEncoder::new(spool.writer(), Compression::default());
        Self { plain: spool.writer(), gzip, digest: Sha256::new() }
    }

    /// Returns the finished document.
    ///
    /// # Errors
    /// As for [`SpoolWriter::finish`].
    pub fn finish(self, media_type: &'static str, cache: CachePolicy) -> io::Result<Representation> {
        let gzip = self.gzip.finish()?;
        let length = self.plain.length();
        let is_useful = length >= Representation::MIN_COMPRESSED_SIZE as u64 && gzip.length() < length;
        let gzip = if is_useful { Some(gzip.finish()?) } else { None };
        let digest = self.digest.finalize().into();
        Ok(Representation::from_compressed(media_type, self.plain.finish()?, gzip, digest, cache))
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

/// Formats a date for a header, such as `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 section 5.6.7).
fn http_date(time: DateTime<Utc>) -> String {
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Parses a header that is a date, in any of the three formats of RFC 9110 section 5.6.7.
#[must_use]
pub fn header_date(headers: &HeaderMap, name: &HeaderName) -> Option<DateTime<Utc>> {
    let value = headers.get(name)?.to_str().ok()?;
    httpdate::parse_http_date(value.trim()).ok().map(DateTime::from)
}

#[cfg(test)]
mod tests;
