//! WARC files (ISO 28500:2017, WARC 1.1) with the responses of an ingest, and their index (CDXJ).
//!
//! Each record is a gzip member of its own, so that a reader can begin at any record. A WARC file is written to the file
//! store in one pass, from files that are in the store already.

use std::io::Write;

use axum::http::{HeaderMap, HeaderValue, header::LOCATION};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::TryStreamExt;
use serde_json::json;
use uuid::Uuid;

use super::{page_body::PageBody, surt::surt};
use crate::{
    files::{FileDigest, FileStore, FileStoreError, NewFile, StoredFile},
    format::fileset::message::CdxLine,
    model::Timestamp,
    transfer::Redirection,
};

/// Headers of responses that are not true of the record: the body is stored without the encodings of the transfer, and
/// cookies are credentials. The decoder of a body removes its encoding too.
const OMITTED_HEADERS: [&str; 4] = ["transfer-encoding", "content-length", "set-cookie", "connection"];

/// SHA-1 of no bytes, in hexadecimal.
const SHA1_OF_NOTHING: &str = "da39a3ee5e6b4b0d3255bfef95601890afd80709";

/// A WARC file that is being written.
pub(super) struct WarcWriter {
    file: NewFile,
    /// Number of bytes so far.
    offset: u64,
    index: Vec<CdxLine>,
}

/// A WARC file in the file store, with the lines of its index in the order of the records.
pub(super) struct StoredWarc {
    pub(super) stored: StoredFile,
    pub(super) index: Vec<CdxLine>,
}

/// A response to record.
pub(super) struct RecordedResponse<'a> {
    /// URL of the request.
    pub(super) url: &'a str,
    /// Time of the response.
    pub(super) time: Timestamp,
    /// Status of the response.
    pub(super) status: u16,
    /// Headers of the response.
    pub(super) headers: &'a HeaderMap,
    /// SHA-1 of the body, in hexadecimal.
    pub(super) sha1: &'a str,
    /// Media type of the body.
    pub(super) media_type: Option<&'a str>,
}

impl WarcWriter {
    /// Begins a WARC file with its description.
    pub(super) async fn new(store: &FileStore, time: Timestamp) -> Result<Self, FileStoreError> {
        let mut writer = Self { file: store.create().await?, offset: 0, index: Vec::new() };
        let version = env!("CARGO_PKG_VERSION");
        let fields = format!(
            "software: Tidings/{version}\r\nformat: WARC File Format 1.1\r\nconformsTo: \
             http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/\r\n"
        );
        let head = head("warcinfo", time, "application/warc-fields", fields.len() as u64, &[]);
        let mut record = Record::new(&mut writer);
        record.write(head.as_bytes()).await?;
        record.write(fields.as_bytes()).await?;
        record.finish().await?;
        Ok(writer)
    }

    /// Adds a landing page.
    pub(super) async fn page(
        &mut self,
        response: &RecordedResponse<'_>,
        body: &PageBody,
    ) -> Result<CdxLine, FileStoreError> {
        let failed = |error: std::io::Error| FileStoreError::Failed {
            location: "of the landing page".to_owned(),
            reason: error.to_string(),
        };
        let (start, size) = (self.offset, body.meta().size_bytes);
        let (head, block) = response.head(size);
        let mut record = Record::new(self);
        record.write(head.as_bytes()).await?;
        record.write(block.as_bytes()).await?;
        let mut position = 0;
        while position < size {
            let piece = body.piece(position).await.map_err(failed)?;
            if piece.is_empty() {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            record.write(&piece).await?;
            position += piece.len() as u64;
        }
        record.finish().await?;
        Ok(self.index_record(response, start))
    }

    /// Adds redirections, so that the URLs before the last one replay too. One that is there already is not repeated.
    pub(super) async fn redirections(&mut self, redirections: &[Redirection]) -> Result<(), FileStoreError> {
        for Redirection { url, target, status, time } in redirections {
            if self.index.iter().any(|line| line.url == *url) {
                continue;
            }
            let location = HeaderValue::try_from(target).ok().map(|target| (LOCATION, target));
            let headers = HeaderMap::from_iter(location);
            let sha1 = SHA1_OF_NOTHING;
            let response =
                RecordedResponse { url, time: *time, status: *status, headers: &headers, sha1, media_type: None };
            let (start, (head, block)) = (self.offset, response.head(0));
            let mut record = Record::new(self);
            record.write(head.as_bytes()).await?;
            record.write(block.as_bytes()).await?;
            record.finish().await?;
            self.index_record(&response, start);
        }
        Ok(())
    }

    /// Adds a response whose body is a stored file.
    pub(super) async fn file(
        &mut self,
        response: &RecordedResponse<'_>,
        store: &FileStore,
        digest: FileDigest,
    ) -> Result<CdxLine, FileStoreError> {
        let start = self.offset;
        let missing =
            || FileStoreError::Failed { location: "of the ingest".to_owned(), reason: format!("{digest} is missing") };
        let mut content = store.read(digest, None).await?.ok_or_else(missing)?;
        let (head, block) = response.head(content.size);
        let mut record = Record::new(self);
        record.write(head.as_bytes()).await?;
        record.write(block.as_bytes()).await?;
        while let Some(piece) = content.pieces.try_next().await? {
            record.write(&piece).await?;
        }
        record.finish().await?;
        Ok(self.index_record(response, start))
    }

    /// Adds a record to the index, and returns its line. The name of the file is known at its end.
    fn index_record(&mut self, response: &RecordedResponse<'_>, start: u64) -> CdxLine {
        let RecordedResponse { url, time, status, sha1, media_type, .. } = response;
        let line = CdxLine {
            surt: surt(url),
            datetime: time.datetime().format("%Y%m%d%H%M%S").to_string(),
            url: (*url).to_owned(),
            mimetype: media_type.map(str::to_owned),
            status_code: Some(*status),
            sha1b32: base32(sha1),
            sha1hex: Some((*sha1).to_owned()),
            warc_csize: Some(self.offset - start),
            warc_offset: Some(start),
            warc_path: None,
        };
        self.index.push(line.clone());
        line
    }

    /// Moves the file to its name in the store.
    pub(super) async fn finish(self) -> Result<StoredWarc, FileStoreError> {
        let Self { file, mut index, .. } = self;
        let stored = file.finish().await?;
        let path = path_of(&stored);
        index.iter_mut().for_each(|line| line.warc_path = Some(path.clone()));
        Ok(StoredWarc { stored, index })
    }
}

/// Returns the path under which an index names a WARC file.
fn path_of(stored: &StoredFile) -> String {
    format!("{}.warc.gz", stored.digest)
}

impl StoredWarc {
    /// Returns the path under which an index names the file.
    pub(super) fn path(&self) -> String {
        path_of(&self.stored)
    }

    /// Returns the index as a sorted file of CDXJ lines.
    pub(super) fn cdxj(&self) -> Vec<u8> {
        let line = |line: &CdxLine| {
            let text = |number: Option<u64>| number.unwrap_or_default().to_string();
            let mut fields = json!({
                "url": line.url, "mime": line.mimetype, "status": line.status_code.unwrap_or_default().to_string(),
                "digest": format!("sha1:{}", line.sha1b32), "length": text(line.warc_csize),
                "offset": text(line.warc_offset), "filename": line.warc_path,
            });
            // A redirection has no media type.
            if let Some(fields) = fields.as_object_mut() {
                fields.retain(|_, value| !value.is_null());
            }
            format!("{} {} {fields}\n", line.surt, line.datetime)
        };
        let mut lines: Vec<_> = self.index.iter().map(line).collect();
        lines.sort_unstable();
        lines.concat().into_bytes()
    }
}

impl RecordedResponse<'_> {
    /// Returns the header of the record and the head of the response, for a body of so many bytes.
    fn head(&self, body_bytes: u64) -> (String, String) {
        let mut block = format!("HTTP/1.1 {}\r\n", self.status_line());
        for (name, value) in self.headers {
            if let (false, Ok(value)) = (OMITTED_HEADERS.contains(&name.as_str()), value.to_str()) {
                block += &format!("{name}: {value}\r\n");
            }
        }
        block += &format!("content-length: {body_bytes}\r\n\r\n");
        let digest = format!("WARC-Payload-Digest: sha1:{}", base32(self.sha1));
        let target = format!("WARC-Target-URI: {}", self.url);
        let length = block.len() as u64 + body_bytes;
        (head("response", self.time, "application/http; msgtype=response", length, &[target, digest]), block)
    }

    fn status_line(&self) -> String {
        let status = axum::http::StatusCode::from_u16(self.status).unwrap_or_default();
        format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or(""))
    }
}

/// Returns the header of a record.
fn head(kind: &str, time: Timestamp, content_type: &str, length: u64, fields: &[String]) -> String {
    let (id, date) = (Uuid::now_v7(), time.datetime().format("%Y-%m-%dT%H:%M:%SZ"));
    let mut head = format!("WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{id}>\r\nWARC-Date: {date}\r\n");
    for field in fields {
        head += &format!("{field}\r\n");
    }
    head + &format!("Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n")
}

/// A record that is being written, as a gzip member.
struct Record<'a> {
    writer: &'a mut WarcWriter,
    encoder: GzEncoder<Vec<u8>>,
}

impl<'a> Record<'a> {
    fn new(writer: &'a mut WarcWriter) -> Self {
        Self { writer, encoder: GzEncoder::new(Vec::new(), Compression::fast()) }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), FileStoreError> {
        // Writing to memory cannot fail.
        let _ = self.encoder.write_all(bytes);
        let compressed = std::mem::take(self.encoder.get_mut());
        self.writer.append(compressed).await
    }

    async fn finish(mut self) -> Result<(), FileStoreError> {
        self.write(b"\r\n\r\n").await?;
        let Self { writer, encoder } = self;
        writer.append(encoder.finish().unwrap_or_default()).await
    }
}

impl WarcWriter {
    async fn append(&mut self, bytes: Vec<u8>) -> Result<(), FileStoreError> {
        self.offset += bytes.len() as u64;
        if bytes.is_empty() { Ok(()) } else { self.file.write(Bytes::from(bytes)).await }
    }
}

/// Returns a digest in hexadecimal as Base32 (RFC 4648 section 6).
fn base32(hex_digest: &str) -> String {
    let bytes = hex::decode(hex_digest).unwrap_or_default();
    data_encoding::BASE32.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::base32;

    /// Both forms of the digest of a result in the tests of fatcat.
    #[test]
    fn digests_are_written_in_base32() {
        assert_eq!(base32("6ffbc4a410b5a676658c690502b9e294c766bfe8"), "N754JJAQWWTHMZMMNECQFOPCSTDWNP7I");
    }
}
