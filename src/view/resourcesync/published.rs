//! The documents of ResourceSync as files of a published copy.
//!
//! A run has the documents of one division of the journal and of the registry. Its head can be later than that of the edition. The
//! parts of a resource list have the time of their division in their names, so each is written once, and removed with its list.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    ResourceSync,
    copy::{CopyDocument, CopySite, ResourceSyncCopy},
    name::CHANGE_LIST_WORD,
};
use crate::{
    model::Seq,
    publish::{DocumentName, Edition, Face, LISTED},
    web::{Problem, Representation},
};

/// Version of the documents and of their paths.
const RENDERING: &str = "2";

/// ResourceSync as a face of a published copy.
pub struct PublishedResourceSync {
    view: ResourceSync,
    /// Ends a pass over the registry.
    ended: CancellationToken,
    /// The documents of the present run.
    copy: Mutex<Option<RunCopy>>,
}

/// The documents of a run.
struct RunCopy {
    /// Identity of the journal, and the head and the folder of the edition.
    edition: (Uuid, Seq, String),
    copy: Arc<ResourceSyncCopy>,
}

impl PublishedResourceSync {
    /// Creates the face. When `ended` is cancelled, a pass over the registry ends with an error.
    #[must_use]
    pub fn new(view: ResourceSync, ended: CancellationToken) -> Self {
        Self { view, ended, copy: Mutex::default() }
    }

    /// Returns the documents of the run that has this edition.
    fn copy(&self, edition: &Edition) -> Result<Arc<ResourceSyncCopy>, Problem> {
        let known = {
            let copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
            copy.as_ref().filter(|run| run.edition == key(edition)).map(|run| Arc::clone(&run.copy))
        };
        known.map_or_else(|| self.begin(edition), Ok)
    }

    fn begin(&self, edition: &Edition) -> Result<Arc<ResourceSyncCopy>, Problem> {
        let Edition { url, folder, view, .. } = edition;
        let site = CopySite { url: url.clone(), folder: folder.clone(), view: view.clone() };
        let copy = Arc::new(self.view.copy(site, &self.ended)?);
        let run = RunCopy { edition: key(edition), copy: Arc::clone(&copy) };
        *self.copy.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
        Ok(copy)
    }
}

fn key(edition: &Edition) -> (Uuid, Seq, String) {
    (edition.journal, edition.head, edition.folder.clone())
}

impl Face for PublishedResourceSync {
    fn name(&self) -> &'static str {
        "resourcesync"
    }

    fn closed_word(&self) -> &'static str {
        CHANGE_LIST_WORD
    }

    fn fingerprint(&self) -> String {
        RENDERING.to_owned()
    }

    fn renders_lists(&self) -> bool {
        true
    }

    fn first(&self, edition: &Edition) -> Result<u64, Problem> {
        let copy = self.begin(edition)?;
        // Lists that begin elsewhere after each removal have no lasting numbers, so they are fixed documents.
        Ok(if copy.has_moving_begin() { u64::MAX } else { copy.first_list().0 })
    }

    fn closed(&self, edition: &Edition, after: u64) -> Result<Vec<DocumentName>, Problem> {
        let copy = self.copy(edition)?;
        if copy.has_moving_begin() {
            return Ok(Vec::new());
        }
        let closed = copy.documents().iter().filter_map(|document| {
            let number = document.closed_list()?.0;
            (number > after).then(|| DocumentName::closed(document.path.clone(), number))
        });
        Ok(closed.take(LISTED).collect())
    }

    fn open(&self, edition: &Edition) -> Result<Vec<DocumentName>, Problem> {
        let copy = self.copy(edition)?;
        let is_listed = |document: &&CopyDocument| copy.has_moving_begin() || document.closed_list().is_none();
        let open = copy.documents().iter().filter(is_listed);
        let name = |CopyDocument { path, is_closed, .. }: &CopyDocument| match is_closed {
            true => DocumentName::fixed(path),
            false => DocumentName::open(path),
        };
        Ok(open.map(name).collect())
    }

    fn render(&self, edition: &Edition, document: &DocumentName) -> Result<Representation, Problem> {
        self.copy(edition)?.render(&document.path, &self.ended)
    }
}
