//! Sealed segments: the closed spans of the journal as immutable files.
//!
//! A span has [`SPAN`](crate::journal::segments::SPAN) numbers. Once the head has passed its end, the node with the duty
//! writes its changes to a file, reads the file back, and then notes it in the journal. So a segment that the journal knows
//! was complete on the disk or in the bucket at least once. Readers get whole files, which no database and no rendering
//! slows down, and what retention has removed can stay in them.
//!
//! * [`manifest`] says what is in a segment;
//! * `encoder` writes its bytes, `decoder` reads changes from them;
//! * `sealing` is the duty: seal, read back, note, and remove old ones;
//! * [`metrics`] counts.

mod decoder;
mod encoder;
pub mod manifest;
pub mod metrics;
mod sealing;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio::sync::OnceCell;

use self::manifest::{InvalidManifest, Manifest};
pub use self::sealing::seal_spans;
use crate::{
    files::{FileDigest, FileStore, FileStoreError, FileStoreLocation},
    journal::{Journal, JournalError, RecordedChange, private_files, store::StoreError},
    model::{Filter, Seq},
};

/// Number of segments whose manifests are read at once.
const AT_ONCE: usize = 50;

/// Maximum number of segments that a page of a filter skips: ten million changes.
const MAX_SKIPPED: usize = 1000;

/// Size of the manifests after which a list of segments ends, in bytes of JSON.
const LIST_BYTES: usize = 4 << 20;

named_values! {
    /// Segments that stay when retention has removed their changes from the journal.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum KeptSegments {
        /// Those with changes that the journal still has.
        #[default]
        Changes = "changes",
        /// All.
        All = "all",
    }
}

/// Reasons why a segment could not be sealed or read.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The store of the files failed.
    #[error(transparent)]
    Files(#[from] FileStoreError),
    /// The manifest in the journal cannot be read.
    #[error(transparent)]
    Manifest(#[from] InvalidManifest),
    /// The file is not there.
    #[error("the file {file} of the segment that begins with the change {first} is missing")]
    Missing {
        /// First number of the span.
        first: Seq,
        /// The file.
        file: FileDigest,
    },
    /// The bytes of the file are not those that were written.
    #[error("the file {file} of the segment that begins with the change {first} is damaged: {reason}")]
    Damaged {
        /// First number of the span.
        first: Seq,
        /// The file.
        file: FileDigest,
        /// The difference.
        reason: String,
    },
    /// The folder cannot be created, or the bytes cannot be compressed.
    #[error("the segment cannot be written: {0}")]
    Io(#[from] std::io::Error),
}

/// The segments of a journal. Clones share them.
#[derive(Clone)]
pub struct Segments {
    journal: Journal,
    location: FileStoreLocation,
    /// Opened when the first segment is sealed or read, so that a small journal has no folder for them.
    files: Arc<OnceCell<FileStore>>,
    kept: KeptSegments,
}

impl Segments {
    /// Returns the segments of a journal at this location, which has nothing else.
    #[must_use]
    pub fn new(journal: Journal, location: FileStoreLocation, kept: KeptSegments) -> Self {
        Self { journal, location, files: Arc::default(), kept }
    }

    /// Returns the manifests of up to `limit` segments with a change after `after`, oldest first.
    ///
    /// # Errors
    /// Fails if the journal cannot be read, or has a manifest that cannot.
    pub async fn after(&self, after: Seq, limit: usize) -> Result<Vec<Manifest>, SegmentError> {
        let records = self.journal.segments_after(after, limit).await?;
        Ok(records.iter().map(Manifest::of_record).collect::<Result<_, _>>()?)
    }

    /// Returns manifests as [`Segments::after`] does, but ends the list when it has [`LIST_BYTES`]. It has at least one, if there
    /// is one.
    ///
    /// # Errors
    /// As [`Segments::after`].
    pub async fn list(&self, after: Seq, limit: usize) -> Result<Vec<Manifest>, SegmentError> {
        let (mut list, mut reached, mut bytes) = (Vec::new(), after, 0);
        while list.len() < limit && bytes < LIST_BYTES {
            let records = self.journal.segments_after(reached, AT_ONCE.min(limit - list.len())).await?;
            let Some(newest) = records.last() else { break };
            reached = newest.last;
            for record in &records {
                if bytes >= LIST_BYTES {
                    break;
                }
                bytes += record.manifest.len();
                list.push(Manifest::of_record(record)?);
            }
        }
        Ok(list)
    }

    /// Returns the manifest of the segment that begins with a number; `None` if there is none.
    ///
    /// # Errors
    /// As [`Segments::after`].
    pub async fn beginning_with(&self, first: Seq) -> Result<Option<Manifest>, SegmentError> {
        let before = Seq(first.0.saturating_sub(1));
        Ok(self.after(before, 1).await?.pop().filter(|segment| segment.first == first))
    }

    /// Returns the store of the files. Only its owner may read a folder, as the journal itself.
    ///
    /// # Errors
    /// Fails if the store cannot be opened.
    pub async fn files(&self) -> Result<&FileStore, SegmentError> {
        let location = &self.location;
        let open = || async {
            let location = location.clone();
            let opening = tokio::task::spawn_blocking(move || {
                if let FileStoreLocation::Folder(folder) = &location {
                    private_files::create_folder(folder)?;
                }
                Ok::<_, SegmentError>(FileStore::open(&location)?)
            });
            opening.await.map_err(|_| JournalError::Closed)?
        };
        self.files.get_or_try_init(open).await
    }

    /// Returns the number after which a reader can continue who has everything up to `after`: the end of the segments that
    /// follow and have no change that the filter selects, at most [`MAX_SKIPPED`] of them.
    ///
    /// # Errors
    /// As [`Segments::after`].
    pub async fn skip(&self, after: Seq, filter: &Filter) -> Result<Seq, SegmentError> {
        let mut reached = after;
        for _ in 0..MAX_SKIPPED / AT_ONCE {
            let segments = self.after(reached, AT_ONCE).await?;
            for segment in &segments {
                // A gap between two segments can have changes.
                let is_next = segment.first <= reached.next();
                if !is_next || segment.may_match(filter) {
                    return Ok(reached);
                }
                // Segments never lead a reader back.
                reached = reached.max(segment.last_change);
            }
            if segments.len() < AT_ONCE {
                break;
            }
        }
        Ok(reached)
    }

    /// Returns changes after `after` from the segment that has the next one: those of one frame, at most `limit`. `None` if
    /// no segment has it.
    ///
    /// # Errors
    /// As [`Segments::after`], or if the file cannot be read or is damaged.
    pub async fn changes_after(
        &self,
        after: Seq,
        limit: usize,
    ) -> Result<Option<Vec<Arc<RecordedChange>>>, SegmentError> {
        let Some(segment) = self.after(after, 1).await?.pop() else { return Ok(None) };
        let damaged = segment.damaged.iter().copied().find(|seq| *seq > after);
        let Some(frame) = segment.frames.iter().find(|frame| frame.last > after) else {
            return damaged.map_or(Ok(None), |seq| Err(damaged_change(seq)));
        };
        // The next change can be before the segment.
        let next = damaged.map_or(frame.first, |damaged| damaged.min(frame.first));
        if segment.first > after.next() && self.journal.number_before(next).await? != Some(after) {
            return Ok(None);
        }
        let bytes = self.bytes(&segment, frame.offset..frame.offset + frame.size).await?;
        let (first, file) = (segment.first, segment.file);
        let decoded = tokio::task::spawn_blocking(move || decoder::changes(&bytes, after, limit));
        let decoded = decoded.await.map_err(|_| JournalError::Closed)?;
        let mut changes =
            decoded.map_err(|reason| SegmentError::Damaged { first, file, reason: reason.to_string() })?;
        if let Some(damaged) = damaged {
            // The page ends before it, and the next one reports it, as pages from the journal do.
            changes.retain(|change| change.seq() < damaged);
            if changes.is_empty() {
                return Err(damaged_change(damaged));
            }
        }
        Ok(Some(changes))
    }

    /// Reads a range of the file of a segment.
    async fn bytes(&self, segment: &Manifest, range: std::ops::Range<u64>) -> Result<Bytes, SegmentError> {
        let missing = SegmentError::Missing { first: segment.first, file: segment.file };
        let content = self.files().await?.read(segment.file, Some(range)).await?.ok_or(missing)?;
        let pieces: Vec<Bytes> = content.pieces.try_collect().await?;
        Ok(pieces.concat().into())
    }
}

/// Returns the error for a change that the journal could not read when its segment was sealed.
fn damaged_change(seq: Seq) -> SegmentError {
    let what = "it was damaged when its segment was sealed".to_owned();
    JournalError::Store(StoreError::DamagedChange { seq, what }).into()
}
