//! The sealed segments as files of a published copy, and `segments.json`, the list of them.
//!
//! The file of a segment has the bytes of the store. Its name has the number of the first change of the span, and the digest of the
//! bytes, so a segment that was sealed again is another file. The files are fixed documents, and there are no closed ones.

use std::io::Write;

use futures_util::TryStreamExt;
use serde::Serialize;

use super::{super::block_on, ListedSegment, MEDIA_TYPE, name, parse_name, segment_problem};
use crate::{
    model::Seq,
    publish::{DocumentName, Edition, Face},
    segments::{SegmentError, Segments, manifest::Manifest},
    web::{CachePolicy, DocumentWriter, Problem, ProblemCode, Representation, Spool, spool_problem},
};

/// Version of the files, of their names and of the list.
const RENDERING: &str = "2";

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
    /// Calls `each` with the manifests of the segments whose changes the edition has, oldest first.
    fn manifests(
        &self,
        edition: &Edition,
        mut each: impl FnMut(Manifest) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut reached = Seq::ZERO;
        loop {
            let found = block_on(self.segments.list(reached, READ_MANIFESTS)).map_err(segment_problem)?;
            let Some(newest) = found.last() else { return Ok(()) };
            reached = newest.last;
            found.into_iter().filter(|segment| segment.last <= edition.head).try_for_each(&mut each)?;
        }
    }

    fn render_list(&self, edition: &Edition) -> Result<Representation, Problem> {
        let mut out = DocumentWriter::new(&self.spool);
        let mut next = Seq::ZERO;
        out.write_all(b"{\"segments\":[").map_err(spool_problem)?;
        self.manifests(edition, |manifest| {
            let path = path(edition, &manifest);
            // One that was sealed during the run has no file yet.
            if !edition.fixed.contains(&path) {
                return Ok(());
            }
            let separator: &[u8] = if next == Seq::ZERO { b"" } else { b"," };
            next = manifest.last_change;
            let segment = json(&ListedSegment { url: format!("{}/{path}", edition.url), manifest });
            out.write_all(&[separator, &segment].concat()).map_err(spool_problem)
        })?;
        write!(out, "],\"next\":{next},\"journal\":\"{}\"}}", edition.journal).map_err(spool_problem)?;
        out.finish("application/json", CachePolicy::Revalidate).map_err(spool_problem)
    }

    fn render_file(&self, name: &str) -> Result<Representation, Problem> {
        let no_segment = || Problem::internal(format!("a copy has no document {name}"));
        let (first, digest) = parse_name(name).ok_or_else(no_segment)?;
        let segment = block_on(self.segments.beginning_with(first)).map_err(segment_problem)?;
        let segment = segment.filter(|segment| segment.file == digest);
        let removed =
            || Problem::new(ProblemCode::Gone, format!("The segment {name} has been removed or sealed again."));
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

    fn first(&self, _: &Edition) -> Result<u64, Problem> {
        Ok(1)
    }

    fn closed(&self, _: &Edition, _: u64) -> Result<Vec<DocumentName>, Problem> {
        Ok(Vec::new())
    }

    fn open(&self, edition: &Edition) -> Result<Vec<DocumentName>, Problem> {
        let mut documents = Vec::new();
        self.manifests(edition, |manifest| {
            documents.push(DocumentName::fixed(path(edition, &manifest)));
            Ok(())
        })?;
        documents.push(DocumentName::open(LIST));
        Ok(documents)
    }

    fn render(&self, edition: &Edition, document: &DocumentName) -> Result<Representation, Problem> {
        match document.path.rsplit_once('/') {
            Some((_, name)) => self.render_file(name),
            None => self.render_list(edition),
        }
    }
}

/// Returns the path of the file of a segment. The paths are in the order of the numbers.
fn path(edition: &Edition, segment: &Manifest) -> String {
    format!("{}/{}", edition.folder, name(segment))
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // A manifest has no map with keys that are not texts.
    serde_json::to_vec(value).unwrap_or_default()
}
