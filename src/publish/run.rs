//! One run: brings the copy to the present state of the journal.
//!
//! The order makes a kill at any moment harmless:
//!
//! 1. If another edition begins, or retention has removed changes: the index is written without everything that the run removes
//!    or replaces ([`Index::restarted`]).
//! 2. If the view is another one: all documents of the former view are removed, because its readers may have seen more. Until
//!    then the index has no view, so a later run begins with this step, whatever its view is.
//! 3. The closed documents whose files are not there are written, and noted in the index now and then.
//! 4. Then the fixed and the open documents whose files are not there, after an index that names them.
//! 5. Files that are there are replaced: an open document by a closed one at the same path, and changed open documents. Readers
//!    find the new files through these alone, so they never find a link to a file that is not there.
//! 6. Outdated documents are removed. Fixed documents that are no longer listed stay for an hour.
//! 7. The index is written as complete, if something besides its time differs.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    Edition, Face, PublicationSettings, TargetError,
    edition::Identity,
    edition_run::EditionRun,
    index::{FaceIndex, Index},
    planned_face::PlannedFace,
    target::{StoredIndex, Target},
};
use crate::{
    journal::{Journal, JournalError},
    model::Seq,
    web::Spool,
};

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
    /// The journal cannot be read.
    #[error("cannot read the journal: {0}")]
    Journal(#[from] JournalError),
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
        // After a failover, readers of this node must know each number that the copy names.
        stop.run_until_cancelled(self.journal.until_published()).await.ok_or(RunError::Stopped)??;
        let identity = Identity::new(self.journal.identity(), &self.settings);
        if let StoredIndex::Read(index) = &stored
            && index.journal == identity.journal
        {
            self.reach(index.head, stop).await?;
        }
        let head = self.journal.head();
        let faces = self.plan(&identity, head, stop).await?;
        let plan = faces.iter().map(|PlannedFace { face, edition, first }| {
            (face.name().to_owned(), FaceIndex { folder: edition.folder.clone(), first: *first, last: 0 })
        });
        let plan = plan.collect::<BTreeMap<_, _>>();
        let (is_written, known) = match stored {
            StoredIndex::Absent => (false, Index::empty(&identity)),
            StoredIndex::Unreadable => (false, Index { view: None, ..Index::empty(&identity) }),
            StoredIndex::Read(index) => (true, index),
        };
        let continues = is_written && known.continues(&identity, &plan);
        let stored = if continues { known } else { known.restarted(&identity, &plan) };
        self.has_only_this_view.store(stored.view.as_ref() == Some(&identity.view), Ordering::Relaxed);
        let (index, written) = (stored.clone(), Written { head: head.0, ..Written::default() });
        let (unnoted, names_all) = (0, false);
        let mut run =
            EditionRun { work: self, stop, target, identity, head, faces, index, stored, written, unnoted, names_all };
        if !continues {
            run.put_index().await?;
        }
        run.finish().await
    }

    /// Returns the faces with their editions.
    async fn plan(
        &self,
        identity: &Identity,
        head: Seq,
        stop: &CancellationToken,
    ) -> Result<Vec<PlannedFace>, RunError> {
        let (first, skipped) = (self.journal.first(), self.journal.skipped_ranges());
        let mut faces = Vec::new();
        for face in &self.faces {
            let edition = Arc::new(Edition {
                journal: identity.journal,
                head,
                first,
                skipped: Arc::clone(&skipped),
                view: self.settings.view.clone(),
                url: self.settings.url.clone(),
                folder: identity.folder(&**face),
                fixed: Arc::default(),
            });
            let mut planned = PlannedFace { face: Arc::clone(face), edition, first: 0 };
            planned.first = planned.list(stop, |face, edition| face.first(edition)).await?;
            faces.push(planned);
        }
        Ok(faces)
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
}
