//! The documents as files, which a plain web server serves at another URL.
//!
//! All documents of a copy are of one division of the journal and of the registry, and their links lead to its own files. A closed
//! change list never changes, so its file is written once. The resource list is that of the first change of the open change list:
//! it is exact with the changes since then, and its files stay as long as this list is open. The parts of each division of the
//! registry have names of their own, because the parts of two divisions do not add up to the registry.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use tokio_util::sync::CancellationToken;

use super::{
    ResourceSync, Source,
    change_lists::ChangeLists,
    documents::Documents,
    name::{DESCRIPTION_PATH, DocumentName, PartPosition},
    resource_lists::ResourceList,
    scope::Scope,
};
use crate::{
    model::{ReaderView, Seq},
    view::{block_on, journal_problem},
    web::{Problem, ReadPermit, Representation},
};

/// Place of a copy.
#[derive(Clone, Debug)]
pub(super) struct CopySite {
    /// URL of the copy, without a trailing slash.
    pub(super) url: String,
    /// Folder of the closed documents, relative to the copy. Another journal, view or URL needs another folder.
    pub(super) folder: String,
    /// Part of the journal that the readers of the copy may see; `None` for everything.
    pub(super) view: Option<Arc<ReaderView>>,
}

/// A document of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyDocument {
    /// Path of the file, relative to the copy.
    pub(super) path: String,
    /// Whether a file with this path is never written again.
    pub(super) is_closed: bool,
    /// The document; `None` for the source description.
    name: Option<DocumentName>,
}

impl CopyDocument {
    /// Returns the number of the first change of a change list to which nothing is added; `None` for another document.
    pub(super) fn closed_list(&self) -> Option<Seq> {
        match self.name {
            Some(DocumentName::ChangeList(first)) if self.is_closed => Some(first),
            _ => None,
        }
    }
}

/// The documents of one division of the journal and of the registry.
pub(super) struct ResourceSyncCopy {
    /// The documents in the order in which they must be rendered and written. Each one has links down only to documents before
    /// it. A file that is not in the list can be removed afterwards.
    documents: Vec<CopyDocument>,
    /// Positions of the documents by their paths.
    positions: BTreeMap<String, usize>,
    source: Arc<Source>,
    scope: Scope,
    urls: CopyUrls,
    changes: ChangeLists,
    resources: ResourceList,
}

/// URLs of the documents in a copy.
pub(super) struct CopyUrls {
    site: CopySite,
    /// Number of the first change of the open change list.
    open: Seq,
    /// Time of the division of the registry, in milliseconds since 1970.
    divided: i64,
}

/// Folder of the open documents, relative to the copy.
const OPEN_FOLDER: &str = "resourcesync";

impl ResourceSync {
    /// Returns the documents for a copy as of now. It must run on a blocking thread. It can read the registry, and after a start
    /// the whole journal.
    ///
    /// # Errors
    /// `forbidden` if the readers of the copy may see only some sources; `unavailable` if the journal cannot be read, or the copy
    /// has `ended`.
    pub(super) fn copy(&self, site: CopySite, ended: &CancellationToken) -> Result<ResourceSyncCopy, Problem> {
        let source = Arc::clone(&self.0);
        let scope = Scope::parse("", &ReadPermit::of_view(site.view.clone()))?;
        let changes = block_on(source.division.all_lists(&source.spool, ended))?;
        let resources = source.resources_for_copy(&scope, &changes, ended)?;
        let open = changes.lists.last().map_or(changes.head.next(), |list| list.first);
        let urls = CopyUrls { site, open, divided: resources.begun.millis() };
        let documents = documents(&urls, &changes, &resources);
        let positions = documents.iter().enumerate().map(|(at, document)| (document.path.clone(), at)).collect();
        Ok(ResourceSyncCopy { documents, positions, source, scope, urls, changes, resources })
    }
}

impl Source {
    /// Returns the resource list of a copy: that of the copy before, if no further change list was closed since.
    fn resources_for_copy(
        &self,
        scope: &Scope,
        changes: &ChangeLists,
        ended: &CancellationToken,
    ) -> Result<ResourceList, Problem> {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        // Its time must not be before the begin of the change lists, which can be the time of this change.
        let head = changes.lists.last().map_or(changes.head, |list| list.first.min(changes.head));
        let state = (self.journal.identity(), self.journal.seed_count());
        if let Some((_, known)) = copied.as_ref().filter(|(of, known)| of == scope && known.is_of(head, state)) {
            return Ok(known.clone());
        }
        let order = block_on(self.journal.order_time(head)).map_err(journal_problem)?;
        let at = changes.loss.time(head, order);
        let list = ResourceList::divide((&self.journal, &self.spool), scope, (head, at), state, ended)?;
        *copied = Some((scope.clone(), list.clone()));
        Ok(list)
    }
}

impl ResourceSyncCopy {
    /// Returns the number of the first change of the oldest change list.
    pub(super) fn first_list(&self) -> Seq {
        self.changes.lists.first().map_or(self.changes.head.next(), |list| list.first)
    }

    /// Returns whether the change lists begin elsewhere after each removal.
    pub(super) fn has_moving_begin(&self) -> bool {
        self.changes.begin_moves
    }

    /// Returns the documents in the order in which they must be rendered and written.
    pub(super) fn documents(&self) -> &[CopyDocument] {
        &self.documents
    }

    /// Renders the document with a path. It must run on a blocking thread.
    ///
    /// # Errors
    /// `gone` if retention has removed the changes that the document needs: make the copy again; fails if the journal or the disk
    /// does, or the copy has `ended`.
    pub(super) fn render(&self, path: &str, ended: &CancellationToken) -> Result<Representation, Problem> {
        let document = self.positions.get(path).and_then(|at| self.documents.get(*at));
        let document = document.ok_or_else(|| Problem::internal(format!("a copy has no document {path}")))?;
        let documents = Documents { source: &self.source, scope: &self.scope, copy: Some(&self.urls) };
        let Some(name) = document.name else { return documents.description() };
        match name {
            DocumentName::CapabilityList => documents.capabilities(None),
            DocumentName::ChangeLists => documents.change_lists(&self.changes),
            DocumentName::ChangeList(first) => {
                documents.change_list(&self.changes.find(first)?, self.changes.loss, ended)
            }
            DocumentName::ResourceLists => documents.resource_lists(&self.resources),
            DocumentName::ResourceList(part) => documents.resource_list(part, self.resources.at, ended),
            DocumentName::Notifications => Err(Problem::internal("a copy has no notifications")),
        }
    }
}

/// Lists the documents: the closed change lists, the parts of the resource list, and the documents that change.
fn documents(urls: &CopyUrls, changes: &ChangeLists, resources: &ResourceList) -> Vec<CopyDocument> {
    let (open, closed) = changes.lists.split_last().map_or((None, &[][..]), |(open, closed)| (Some(open), closed));
    let position = |after: &_| DocumentName::ResourceList(PartPosition { head: resources.head, after: *after });
    let parts = resources.parts.iter().map(position);
    let fixed = closed.iter().map(|list| DocumentName::ChangeList(list.first)).chain(parts);
    let open = open.map(|list| DocumentName::ChangeList(list.first));
    let indexes = [DocumentName::ChangeLists, DocumentName::ResourceLists, DocumentName::CapabilityList];
    let document = |name, is_closed| CopyDocument { path: urls.path(name), is_closed, name: Some(name) };
    let description = DESCRIPTION_PATH.trim_start_matches('/').to_owned();
    let fixed = fixed.map(|name| document(name, true));
    let changing = open.into_iter().chain(indexes).map(|name| document(name, false));
    let description = CopyDocument { path: description, is_closed: false, name: None };
    fixed.chain(changing).chain([description]).collect()
}

impl CopyUrls {
    /// Returns the URL of a document.
    pub(super) fn url(&self, name: DocumentName) -> String {
        format!("{}/{}", self.site.url, self.path(name))
    }

    /// Returns the URL of the source description.
    pub(super) fn description(&self) -> String {
        format!("{}{DESCRIPTION_PATH}", self.site.url)
    }

    fn path(&self, name: DocumentName) -> String {
        let folder = &self.site.folder;
        match name {
            DocumentName::ChangeList(first) if first != self.open => format!("{folder}/{name}"),
            DocumentName::ResourceList(part) => {
                format!("{folder}/resourcelist-{:016}-{}.xml", self.divided, part.numbers())
            }
            _ => format!("{OPEN_FOLDER}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests;
