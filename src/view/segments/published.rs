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
        let (mut next, mut lacks_segment) = (Seq::ZERO, false);
        out.write_all(b"{\"segments\":[").map_err(spool_problem)?;
        self.manifests(edition, |manifest| {
            let path = path(edition, &manifest);
            // One that was sealed during the run has no file yet. If it is not the last one, it was sealed again, and readers of
            // the list would pass its changes by.
            let has_file = edition.fixed.contains(&path);
            if has_file && lacks_segment {
                return Err(Problem::new(ProblemCode::Gone, "A segment was sealed again."));
            }
            lacks_segment = !has_file;
            if lacks_segment {
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

    fn closed_word(&self) -> &'static str {
        ""
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io::Read, sync::Arc, time::Duration};

    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::{DocumentName, Edition, Face, LIST, ProblemCode, PublishedSegments, Segments, Seq, Spool};
    use crate::{
        files::FileStoreLocation,
        segments::{KeptSegments, seal_spans},
        view::test_journal::{append, journal_of, small_draft},
    };

    /// Returns the last number of each segment in the list of an edition that has these files, and `next`.
    fn listed(face: &PublishedSegments, edition: &Edition, files: &[DocumentName]) -> Result<Vec<u64>, ProblemCode> {
        let fixed: BTreeSet<_> = files.iter().map(|name| name.path.clone()).collect();
        let edition = Edition { fixed: Arc::new(fixed), ..edition.clone() };
        let list = face.render(&edition, &DocumentName::open(LIST)).map_err(|problem| problem.code())?;
        let mut json = Vec::new();
        list.body.reader().read_to_end(&mut json).unwrap();
        let list: Value = serde_json::from_slice(&json).unwrap();
        let segments = list["segments"].as_array().unwrap().iter().map(|segment| &segment["last"]);
        Ok(segments.chain([&list["next"]]).map(|number| number.as_u64().unwrap()).collect())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn list_has_no_gap() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 1, 10, folder.path()).await;
        for _ in 0..20 {
            append(&journal, small_draft(), 1000).await;
        }
        let location = FileStoreLocation::Folder(folder.path().join("segments"));
        let segments = Segments::new(journal.clone(), location, KeptSegments::default());
        let stop = CancellationToken::new();
        let sealing = tokio::spawn(seal_spans(journal.clone(), Some(segments.clone()), stop.clone()));
        while segments.list(Seq::ZERO, 9).await.unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
        sealing.await.unwrap();
        let face = PublishedSegments { segments, spool: Spool::new(folder.path(), 64 << 20) };
        let edition = Edition {
            journal: journal.identity(),
            head: journal.head(),
            first: journal.first(),
            skipped: [].into(),
            view: None,
            url: "http://copy".to_owned(),
            folder: "segments/0123456789abcdef".to_owned(),
            fixed: Arc::default(),
        };
        let check = move || {
            let open = face.open(&edition).unwrap();
            let files = &open[..2];
            assert_eq!(listed(&face, &edition, files), Ok(vec![10_000, 20_000, 20_000]));
            assert_eq!(
                listed(&face, &edition, &files[..1]),
                Ok(vec![10_000, 10_000]),
                "the next one has just been sealed"
            );
            assert_eq!(listed(&face, &edition, &files[1..]), Err(ProblemCode::Gone), "the first one was sealed again");
        };
        tokio::task::spawn_blocking(check).await.unwrap();
    }
}
