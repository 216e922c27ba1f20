//! One run: brings the copy to the present state of the journal.
//!
//! The order makes a kill at any moment harmless:
//!
//! 1. If another edition begins, or retention has removed changes: the index is written without everything that the run removes
//!    or replaces ([`Index::restarted`]).
//! 2. If the view is another one: all documents of the former view are removed, because its readers may have seen more. Until
//!    then the index has no view, so a later run begins with this step, whatever its view is.
//! 3. The closed documents are written, and noted in the index now and then.
//! 4. The open documents are written, after an index without their tags.
//! 5. Outdated documents are removed.
//! 6. The index is written as complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    DocumentName, Edition, Face, PublicationSettings, TargetError,
    edition::Identity,
    face::closed_document,
    index::{FaceIndex, Index},
    target::{StoredIndex, Target},
};
use crate::{
    journal::Journal,
    model::{Seq, Timestamp},
    web::{Problem, ProblemCode, Representation, Spool},
};

/// Number of closed documents after which the index notes them.
const NOTE_EVERY: u64 = 100;

/// Number of attempts when retention overtakes a run.
const ATTEMPTS: u32 = 3;

/// Maximum time to wait until this node knows the changes that another node has published.
const LAG: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Reason why a run ends early. The next one continues.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// The folder or the bucket cannot be written.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A document cannot be rendered.
    #[error("cannot render {subject}: {reason}")]
    Render {
        /// Path of the document, or the name of the face.
        subject: String,
        /// Cause.
        reason: String,
    },
    /// Retention has removed changes of the edition.
    #[error("retention has removed changes of {0} during the run")]
    Removed(String),
    /// The journal was replaced by a failover during the run.
    #[error("the journal was replaced by a failover of its database")]
    OtherJournal,
    /// The copy is newer than this node.
    #[error(
        "the copy goes up to change {copy} and the journal to change {head}: another gateway with a copy of this journal has \
         written it; stop one of them, or give this one a place of its own"
    )]
    Newer {
        /// Newest change of the copy.
        copy: Seq,
        /// Newest change of the journal.
        head: Seq,
    },
    /// Another process writes to the place.
    #[error("another gateway has written to the place of the copy during the run")]
    Superseded,
    /// The gateway stops, or the duty moves.
    #[error("the run was stopped")]
    Stopped,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// Number of the newest change in the copy.
    pub(super) head: u64,
    /// Number of documents that were written.
    pub(super) documents: u64,
    /// Size of their files, in bytes.
    pub(super) bytes: u64,
    /// Number of files that were removed.
    pub(super) removed: u64,
}

/// Settings and parts of the gateway for runs.
pub(super) struct Work {
    pub(super) journal: Journal,
    pub(super) spool: Spool,
    pub(super) faces: Vec<Arc<dyn Face>>,
    pub(super) settings: PublicationSettings,
    /// Whether a run has seen that the copy has no documents of another view.
    pub(super) has_only_this_view: AtomicBool,
}

/// A face with its edition.
struct PlannedFace {
    face: Arc<dyn Face>,
    edition: Arc<Edition>,
    /// Number of the first closed document.
    first: u64,
}

/// The run of an edition.
struct EditionRun<'r> {
    work: &'r Work,
    stop: &'r CancellationToken,
    target: Target,
    identity: Identity,
    head: Seq,
    faces: Vec<PlannedFace>,
    /// The index that the next write of the index makes.
    index: Index,
    /// The index as it is at the target.
    stored: Index,
    written: Written,
}

impl Work {
    /// Writes the documents that the copy lacks, and removes outdated ones.
    ///
    /// # Errors
    /// Fails if a document cannot be rendered or written. The next run continues.
    pub(super) async fn run(&self, stop: &CancellationToken) -> Result<Written, RunError> {
        let mut attempts = 1;
        loop {
            match self.run_once(stop).await {
                Err(RunError::Removed(_)) if attempts < ATTEMPTS => attempts += 1,
                ended => return ended,
            }
        }
    }

    async fn run_once(&self, stop: &CancellationToken) -> Result<Written, RunError> {
        let (target, stored) = Target::open(&self.settings.location).await?;
        let identity = Identity::new(self.journal.identity(), &self.settings);
        if let StoredIndex::Read(index) = &stored
            && index.journal == identity.journal
        {
            self.reach(index.head, stop).await?;
        }
        let (head, first, skipped) = (self.journal.head(), self.journal.first(), self.journal.skipped_ranges());
        let mut faces = Vec::new();
        let mut plan = BTreeMap::new();
        for face in &self.faces {
            let (view, url, folder) = (self.settings.view.clone(), self.settings.url.clone(), identity.folder(&**face));
            let (journal, skipped) = (identity.journal, Arc::clone(&skipped));
            let edition = Arc::new(Edition {
                journal,
                head,
                first,
                skipped,
                view,
                url,
                folder: folder.clone(),
                closed_through: 0,
            });
            let mut planned = PlannedFace { face: Arc::clone(face), edition, first: 0 };
            planned.first = self.read(&planned, face.name(), |face, edition| face.first(edition)).await?;
            plan.insert(face.name().to_owned(), FaceIndex { folder, first: planned.first, last: 0 });
            faces.push(planned);
        }
        let (is_written, known) = match stored {
            StoredIndex::Absent => (false, Index::empty(&identity)),
            StoredIndex::Unreadable => (false, Index { view: None, ..Index::empty(&identity) }),
            StoredIndex::Read(index) => (true, index),
        };
        let continues = is_written && known.continues(&identity, &plan);
        let stored = if continues { known } else { known.restarted(&identity, &plan) };
        let (index, written) = (stored.clone(), Written { head: head.0, ..Written::default() });
        let mut run = EditionRun { work: self, stop, target, identity, head, faces, index, stored, written };
        if !continues {
            run.put_index().await?;
        } else if run.is_current().await? {
            self.has_only_this_view.store(true, Ordering::Relaxed);
            return Ok(run.written);
        }
        run.finish().await
    }

    /// Waits until this node knows the changes that the copy has, so that the copy never goes back.
    async fn reach(&self, copy: Seq, stop: &CancellationToken) -> Result<(), RunError> {
        let mut heads = self.journal.watch();
        let known = tokio::time::timeout(LAG, heads.wait_for(|head| *head >= copy));
        match stop.run_until_cancelled(known).await {
            None => Err(RunError::Stopped),
            Some(Ok(Ok(_))) => Ok(()),
            Some(_) => Err(RunError::Newer { copy, head: self.journal.head() }),
        }
    }

    async fn render(&self, planned: &PlannedFace, document: &DocumentName) -> Result<Representation, RunError> {
        let name = document.clone();
        self.read(planned, &document.path, move |face, edition| face.render(edition, &name)).await
    }

    /// Calls a face on a blocking thread, when there is room in the spool. `subject` is the subject of an error.
    async fn read<T: Send + 'static>(
        &self,
        planned: &PlannedFace,
        subject: &str,
        read: impl FnOnce(&dyn Face, &Edition) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, RunError> {
        let permit = self.spool.document_permit().await;
        let (face, edition) = (Arc::clone(&planned.face), Arc::clone(&planned.edition));
        let read = Spool::blocking(permit, move || read(&*face, &edition)).await;
        read.map_err(|problem| match problem.code() {
            ProblemCode::Gone => RunError::Removed(subject.to_owned()),
            _ => RunError::Render { subject: subject.to_owned(), reason: problem.detail().to_owned() },
        })
    }
}

impl EditionRun<'_> {
    /// Returns whether the copy has all documents of the edition.
    async fn is_current(&self) -> Result<bool, RunError> {
        if !self.index.complete || self.index.head != self.head {
            return Ok(false);
        }
        for at in 0..self.faces.len() {
            if !self.next_closed(at).await?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn finish(mut self) -> Result<Written, RunError> {
        let was_complete = self.index.complete;
        if self.index.view.as_ref() != Some(&self.identity.view) {
            self.remove_former_view().await?;
        }
        self.work.has_only_this_view.store(true, Ordering::Relaxed);
        self.write_closed().await?;
        self.write_open().await?;
        if !was_complete {
            self.remove_outdated().await?;
        }
        self.index.complete = true;
        self.index.head = self.head;
        self.index.published = Timestamp::now();
        self.put_index().await?;
        Ok(self.written)
    }

    /// Removes all documents of a former view: first the open ones, which link to the others.
    async fn remove_former_view(&mut self) -> Result<(), RunError> {
        let mut open: BTreeSet<_> = self.index.open.keys().cloned().collect();
        open.extend(self.open_documents().await?.into_iter().map(|(_, document)| document.path));
        self.written.removed += self.target.remove(&open).await?;
        self.remove_outdated().await?;
        self.index.open.clear();
        self.index.view = Some(self.identity.view.clone());
        self.put_index().await
    }

    async fn write_closed(&mut self) -> Result<(), RunError> {
        let mut unnoted = 0;
        for at in 0..self.faces.len() {
            let PlannedFace { face, edition, first } = &self.faces[at];
            let name = face.name();
            let none = FaceIndex { folder: edition.folder.clone(), first: *first, last: 0 };
            self.index.faces.entry(name.to_owned()).or_insert(none);
            loop {
                let documents = self.next_closed(at).await?;
                if documents.is_empty() {
                    break;
                }
                for document in documents {
                    let content = self.work.render(&self.faces[at], &document).await?;
                    self.put(&document, &content).await?;
                    if let Some(face) = self.index.faces.get_mut(name) {
                        face.last = document.number.unwrap_or_default();
                    }
                    unnoted += 1;
                    if unnoted == NOTE_EVERY {
                        unnoted = 0;
                        self.index.complete = false;
                        self.put_index().await?;
                    }
                }
            }
        }
        for planned in &mut self.faces {
            let closed_through = self.index.faces.get(planned.face.name()).map_or(0, |face| face.last);
            planned.edition = Arc::new(Edition { closed_through, ..(*planned.edition).clone() });
        }
        Ok(())
    }

    async fn write_open(&mut self) -> Result<(), RunError> {
        if self.work.journal.identity() != self.identity.journal {
            return Err(RunError::OtherJournal);
        }
        // Another node may have taken the duty, and have written a newer copy.
        match self.target.index().await? {
            StoredIndex::Read(stored) if stored == self.stored => {}
            _ => return Err(RunError::Superseded),
        }
        let documents = self.open_documents().await?;
        let known = self.index.open.clone();
        let (mut tags, mut is_noted) = (BTreeMap::new(), false);
        for (at, document) in &documents {
            if let Some(tag) = known.get(&document.path).filter(|tag| document.is_fixed && !tag.is_empty()) {
                tags.insert(document.path.clone(), tag.clone());
                continue;
            }
            let content = self.work.render(&self.faces[*at], document).await?;
            let tag = content.etag.to_str().unwrap_or_default().to_owned();
            if known.get(&document.path) != Some(&tag) {
                if !is_noted {
                    is_noted = true;
                    // The index names each document before it is there, so that a run with another view removes it.
                    let paths = known.keys().chain(documents.iter().map(|(_, document)| &document.path));
                    self.index.open = paths.map(|path| (path.clone(), String::new())).collect();
                    self.index.complete = false;
                    self.put_index().await?;
                }
                self.put(document, &content).await?;
            }
            tags.insert(document.path.clone(), tag);
        }
        // A document that was open may be closed now.
        let is_outdated = |path: &String| !tags.contains_key(path) && !self.has_closed(path);
        let outdated = known.into_keys().filter(is_outdated).collect();
        self.written.removed += self.target.remove(&outdated).await?;
        self.index.open = tags;
        Ok(())
    }

    /// Removes the closed documents of former editions, and those whose changes retention has removed.
    async fn remove_outdated(&mut self) -> Result<(), RunError> {
        let is_open = |path: &str| self.index.open.contains_key(path.strip_suffix(".gz").unwrap_or(path));
        let removed = self.target.remove_closed(|path| !is_open(path) && !self.has_closed(path)).await?;
        self.written.removed += removed;
        Ok(())
    }

    /// Returns whether the file, or the document that it is beside, is a closed document of this edition.
    fn has_closed(&self, path: &str) -> bool {
        closed_document(path).is_some_and(|(folder, number)| {
            let mut faces = self.index.faces.values().filter(|face| face.folder == folder);
            // A document after the last one that is noted may be there, too, and is written again.
            faces.any(|face| number >= face.first)
        })
    }

    /// Lists the open documents, each with the position of its face.
    async fn open_documents(&self) -> Result<Vec<(usize, DocumentName)>, RunError> {
        let mut documents = Vec::new();
        for (at, planned) in self.faces.iter().enumerate() {
            let open = self.work.read(planned, planned.face.name(), |face, edition| face.open(edition)).await?;
            documents.extend(open.into_iter().map(|document| (at, document)));
        }
        Ok(documents)
    }

    /// Lists closed documents that follow the last one of the index.
    async fn next_closed(&self, at: usize) -> Result<Vec<DocumentName>, RunError> {
        let planned = &self.faces[at];
        let last = self.index.faces.get(planned.face.name()).map_or(0, |face| face.last);
        self.work.read(planned, planned.face.name(), move |face, edition| face.closed(edition, last)).await
    }

    async fn put(&mut self, document: &DocumentName, content: &Representation) -> Result<(), RunError> {
        if self.stop.is_cancelled() {
            return Err(RunError::Stopped);
        }
        self.written.bytes += self.target.put(&document.path, content).await?;
        self.written.documents += 1;
        Ok(())
    }

    async fn put_index(&mut self) -> Result<(), RunError> {
        if self.stop.is_cancelled() {
            return Err(RunError::Stopped);
        }
        self.target.put_index(&self.index).await?;
        self.stored = self.index.clone();
        Ok(())
    }
}
