//! The sealed segments as files of a published copy, and `segments.json`, the list of them.
//!
//! The number of a segment is that of the first change of its span. Its file has the bytes of the store.

use std::io::Write;

use futures_util::TryStreamExt;
use serde::Serialize;

use super::{super::block_on, ListedSegment, MEDIA_TYPE, segment_problem};
use crate::{
    model::Seq,
    publish::{DocumentName, Edition, Face, LISTED},
    segments::{SegmentError, Segments, manifest::Manifest},
    web::{CachePolicy, DocumentWriter, Problem, ProblemCode, Representation, Spool, spool_problem},
};

/// Version of the files and of the list.
const RENDERING: &str = "1";

/// Path of the list.
const LIST: &str = "segments.json";

/// Number of manifests that are read at once.
const READ_MANIFESTS: usize = 100;

/// The segments as a face of a published copy.
pub struct PublishedSegments {
    /// The segments.
    pub segments: Segments,
    /// Space for the files while they are copied.
    pub spool: Spool,
}

impl PublishedSegments {
    /// Returns manifests of the edition whose spans begin after a number, up to `limit` or 4 MiB.
    fn after(&self, edition: &Edition, after: u64, limit: usize) -> Result<Vec<Manifest>, Problem> {
        // The list begins with the segment that ends after this number.
        let mut found = block_on(self.segments.list(Seq(after), limit + 1)).map_err(segment_problem)?;
        found.retain(|segment| segment.first.0 > after && segment.last <= edition.head);
        found.truncate(limit);
        Ok(found)
    }

    fn render_list(&self, edition: &Edition) -> Result<Representation, Problem> {
        let mut out = DocumentWriter::new(&self.spool);
        let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(spool_problem);
        write(b"{\"segments\":[")?;
        let (mut reached, mut next) = (0, Seq::ZERO);
        while reached < edition.closed_through {
            let segments = self.after(edition, reached, READ_MANIFESTS)?;
            let Some(last) = segments.last() else { break };
            let end = last.first.0;
            for manifest in segments.into_iter().filter(|segment| segment.first.0 <= edition.closed_through) {
                write(if next == Seq::ZERO { b"" } else { b"," })?;
                next = manifest.last_change;
                let url = format!("{}/{}", edition.url, path(edition, manifest.first.0));
                write(&json(&ListedSegment { url, manifest }))?;
            }
            reached = end;
        }
        write(format!("],\"next\":{next},\"journal\":\"{}\"}}", edition.journal).as_bytes())?;
        out.finish("application/json", CachePolicy::Revalidate).map_err(spool_problem)
    }

    fn render_file(&self, first: u64) -> Result<Representation, Problem> {
        let segment = block_on(self.segments.beginning_with(Seq(first))).map_err(segment_problem)?;
        let removed = || Problem::new(ProblemCode::Gone, format!("The segment of change {first} has been removed."));
        let Manifest { first, file, .. } = segment.ok_or_else(removed)?;
        let content = block_on(async { Ok::<_, SegmentError>(self.segments.files().await?.read(file, None).await?) });
        let content = content.map_err(segment_problem)?;
        let mut pieces = content.ok_or_else(|| segment_problem(SegmentError::Missing { first, file }))?.pieces;
        let mut out = DocumentWriter::new(&self.spool);
        while let Some(piece) = block_on(pieces.try_next()).map_err(|error| segment_problem(error.into()))? {
            out.write_all(&piece).map_err(spool_problem)?;
        }
        let document = out.finish(MEDIA_TYPE, CachePolicy::Immutable).map_err(spool_problem)?;
        // The tag is the beginning of the digest of the bytes.
        let tag = document.etag.to_str().unwrap_or_default().trim_matches('"');
        if !file.to_string().starts_with(tag) {
            let reason = "its digest is another one".to_owned();
            return Err(segment_problem(SegmentError::Damaged { first, file, reason }));
        }
        Ok(document)
    }
}

impl Face for PublishedSegments {
    fn name(&self) -> &'static str {
        "segments"
    }

    fn fingerprint(&self) -> String {
        RENDERING.to_owned()
    }

    fn first(&self, edition: &Edition) -> Result<u64, Problem> {
        let oldest = self.after(edition, 0, 1)?;
        Ok(oldest.first().map_or(edition.first, |segment| segment.first).0)
    }

    fn closed(&self, edition: &Edition, after: u64) -> Result<Vec<DocumentName>, Problem> {
        let segments = self.after(edition, after, LISTED)?;
        let name = |segment: &Manifest| DocumentName::closed(path(edition, segment.first.0), segment.first.0);
        Ok(segments.iter().map(name).collect())
    }

    fn open(&self, _: &Edition) -> Result<Vec<DocumentName>, Problem> {
        Ok(vec![DocumentName::open(LIST)])
    }

    fn render(&self, edition: &Edition, document: &DocumentName) -> Result<Representation, Problem> {
        document.number.map_or_else(|| self.render_list(edition), |first| self.render_file(first))
    }
}

/// Returns the path of the file of a segment. The paths are in the order of the numbers.
fn path(edition: &Edition, first: u64) -> String {
    format!("{}/{first:020}.ndjson.zst", edition.folder)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // A manifest has no map with keys that are not texts.
    serde_json::to_vec(value).unwrap_or_default()
}
