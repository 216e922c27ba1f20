//! The documents as files, which a plain web server serves at another URL.
//!
//! The copy is complete at one moment, and its links lead to its own files. A closed change list never changes, so its file is
//! written once. The resource list is that of the first change of the open change list: it is exact with the changes since then,
//! and its files stay as long as this list is open. Each division of the registry has a folder of its own, because the parts of
//! two divisions do not add up to the registry.

use std::sync::{Arc, PoisonError};

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

/// The documents at one moment.
pub(super) struct ResourceSyncCopy {
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
    /// Returns the documents for a copy as of now. It must run on a blocking thread, and can read the registry.
    ///
    /// # Errors
    /// `forbidden` if the readers of the copy may see only some sources; `unavailable` if the journal cannot be read, or is being
    /// read for the first time, or the copy has `ended`.
    pub(super) fn copy(&self, site: CopySite, ended: &CancellationToken) -> Result<ResourceSyncCopy, Problem> {
        let source = Arc::clone(&self.0);
        let scope = Scope::parse("", &ReadPermit::of_view(site.view.clone()))?;
        let changes = block_on(source.changes())?;
        let resources = source.resources_for_copy(&scope, &changes, ended)?;
        let open = changes.lists.last().map_or(changes.head.next(), |list| list.first);
        let urls = CopyUrls { site, open, divided: resources.begun.millis() };
        Ok(ResourceSyncCopy { source, scope, urls, changes, resources })
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
        let list = ResourceList::divide(&self.journal, scope, (head, at), state, ended)?;
        *copied = Some((scope.clone(), list.clone()));
        Ok(list)
    }
}

impl ResourceSyncCopy {
    /// Returns the number of the first change of the oldest change list.
    pub(super) fn first_list(&self) -> Seq {
        self.changes.lists.first().map_or(self.changes.head.next(), |list| list.first)
    }

    /// Returns the documents in the order in which they must be rendered and written. Each one has links down only to documents
    /// before it. A file that is not in the list can be removed afterwards.
    pub(super) fn documents(&self) -> Vec<CopyDocument> {
        let (open, closed) =
            self.changes.lists.split_last().map_or((None, &[][..]), |(open, closed)| (Some(open), closed));
        let position =
            |after: &_| DocumentName::ResourceList(PartPosition { head: self.resources.head, after: *after });
        let parts = self.resources.parts.iter().map(position);
        let fixed = closed.iter().map(|list| DocumentName::ChangeList(list.first)).chain(parts);
        let open = open.map(|list| DocumentName::ChangeList(list.first));
        let indexes = [DocumentName::ChangeLists, DocumentName::ResourceLists, DocumentName::CapabilityList];
        let document = |name, is_closed| CopyDocument { path: self.urls.path(name), is_closed, name: Some(name) };
        let description = DESCRIPTION_PATH.trim_start_matches('/').to_owned();
        let fixed = fixed.map(|name| document(name, true));
        let changing = open.into_iter().chain(indexes).map(|name| document(name, false));
        let description = CopyDocument { path: description, is_closed: false, name: None };
        fixed.chain(changing).chain([description]).collect()
    }

    /// Renders a document. It must run on a blocking thread.
    ///
    /// # Errors
    /// `gone` if retention has removed the changes that the document needs: make the copy again; fails if the journal or the disk
    /// does, or the copy has `ended`.
    pub(super) fn render(&self, document: &CopyDocument, ended: &CancellationToken) -> Result<Representation, Problem> {
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
            DocumentName::ResourceList(_) => format!("{folder}/{:016}/{name}", self.divided),
            _ => format!("{OPEN_FOLDER}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Arc, CancellationToken, CopySite, ReaderView, ResourceSync};
    use crate::{
        journal::Journal,
        view::test_journal::{journal_of, small_draft},
        web::{Content, Spool},
    };

    const URL: &str = "http://copy.example/changes";

    /// Writes a copy as a publisher does, and returns its files.
    fn publish(view: &ResourceSync, files: &mut BTreeMap<String, String>) {
        let public = ReaderView { public: true, ..ReaderView::default() };
        let site =
            CopySite { url: URL.to_owned(), folder: "resourcesync/0123".to_owned(), view: Some(Arc::new(public)) };
        let ended = CancellationToken::new();
        let copy = view.copy(site, &ended).unwrap();
        let documents = copy.documents();
        for document in &documents {
            let content = copy.render(document, &ended).unwrap();
            let Content::Memory(bytes) = content.body else { panic!("{document:?} is large") };
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            // Links down lead to files that are there already.
            for link in text.split("<loc>").skip(1).filter_map(|rest| rest.split("</loc>").next()) {
                let path = link.strip_prefix(URL).map(|path| path.trim_start_matches('/'));
                assert!(path.is_none_or(|path| files.contains_key(path)), "{document:?} links to {link}");
            }
            let before = files.insert(document.path.clone(), text.clone());
            assert!(!document.is_closed || before.is_none_or(|before| before == text), "{document:?} has changed");
        }
        files.retain(|path, _| documents.iter().any(|document| document.path == *path));
        // Other links lead to files too, of which none is at the gateway.
        for (path, text) in files.iter() {
            for link in text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let target = link.strip_prefix(URL).unwrap_or_else(|| panic!("{path} links to {link}"));
                assert!(files.contains_key(target.trim_start_matches('/')), "{path} links to {link}");
            }
        }
    }

    async fn files(journal: &Journal, folder: &std::path::Path, times: usize) -> BTreeMap<String, String> {
        let view = ResourceSync::new(journal.clone(), "http://gateway.example", Spool::new(folder, 1 << 20), None);
        let publishing = tokio::task::spawn_blocking(move || {
            let mut files = BTreeMap::new();
            (0..times).for_each(|_| publish(&view, &mut files));
            files
        });
        publishing.await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn copy_has_all_documents_and_links_only_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 9, 1, folder.path()).await;
        let files = files(&journal, folder.path(), 2).await;
        let names: Vec<_> = files.keys().map(|path| path.rsplit('/').next().unwrap()).collect();
        assert_eq!(names.len(), 6, "{names:?}");
        for name in ["resourcesync", "capabilitylist.xml", "changelist.xml", "resourcelist.xml"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let open = &files["resourcesync/changelist-0000000000000001.xml"];
        assert!(open.contains("change=\"created\"") && !open.contains("until="), "{open}");
        let part = files.iter().find(|(path, _)| path.contains("/resourcelist-")).unwrap();
        assert!(part.0.starts_with("resourcesync/0123/") && part.1.contains("<loc>http://h/1</loc>"), "{part:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn copy_of_an_empty_journal_has_all_documents() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal_of(small_draft(), 0, 1, folder.path()).await;
        assert_eq!(files(&journal, folder.path(), 2).await.len(), 6);
    }
}
