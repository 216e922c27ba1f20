//! The writes and removals of one run, in an order that leaves no link to a missing file.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use tokio_util::sync::CancellationToken;

use super::{
    DocumentName, Edition,
    edition::Identity,
    face::{FACES, edition_file, is_entry},
    index::{FaceIndex, Index},
    planned_face::PlannedFace,
    run::{RunError, Work, Written},
    target::{StoredIndex, Target},
};
use crate::{
    model::{Seq, Timestamp},
    web::Representation,
};

/// Number of documents after which the index notes them.
const NOTE_EVERY: u64 = 100;

/// Time for which a fixed document that is no longer listed stays for readers of the former lists, in milliseconds.
const FORMER_MILLIS: i64 = 60 * 60 * 1000;

/// The run of an edition.
pub(super) struct EditionRun<'r> {
    pub(super) work: &'r Work,
    pub(super) stop: &'r CancellationToken,
    pub(super) target: Target,
    pub(super) identity: Identity,
    pub(super) head: Seq,
    pub(super) faces: Vec<PlannedFace>,
    /// The index that the next write of the index makes.
    pub(super) index: Index,
    /// The index as it is at the target.
    pub(super) stored: Index,
    pub(super) written: Written,
    /// Number of documents that were written since the last write of the index.
    pub(super) unnoted: u64,
    /// Whether the index names all documents that the faces have listed.
    pub(super) names_all: bool,
}

/// Returns the error about a document whose path does not show to which documents it belongs. The gateway would remove it too
/// early, or never.
fn misnamed(document: &DocumentName) -> RunError {
    let reason =
        "this is an error of the gateway, which would not know when to remove a document with this name".to_owned();
    RunError::Render { subject: document.path.clone(), reason }
}

/// A document that a face has listed.
struct ListedDocument {
    /// Position of the face.
    face: usize,
    name: DocumentName,
}

impl EditionRun<'_> {
    /// Writes the documents that the copy lacks, and removes outdated ones.
    ///
    /// # Errors
    /// Fails if a document cannot be rendered or written. The next run continues.
    pub(super) async fn finish(mut self) -> Result<Written, RunError> {
        let was_complete = self.index.complete;
        let listed = self.list().await?;
        if self.index.view.as_ref() != Some(&self.identity.view) {
            self.remove_former_view(&listed).await?;
        }
        self.work.has_only_this_view.store(true, Ordering::Relaxed);
        let replaced = self.write_new_closed(&listed).await?;
        self.write_listed(&listed, &replaced).await?;
        if !was_complete {
            self.remove_outdated().await?;
        }
        self.index.complete = true;
        self.index.head = self.head;
        if self.index.differs(&self.stored) {
            self.index.published = Timestamp::now();
            self.put_index().await?;
        }
        Ok(self.written)
    }

    /// Lists the fixed and the open documents, and notes the fixed ones in the editions.
    async fn list(&mut self) -> Result<Vec<ListedDocument>, RunError> {
        let mut all = Vec::new();
        for (face, planned) in self.faces.iter_mut().enumerate() {
            let names = planned.list(self.stop, |face, edition| face.open(edition)).await?;
            let is_of_face = |name: &DocumentName| {
                let face = planned.face.name();
                name.path.split_once('/').is_some_and(|(folder, _)| folder == face) || is_entry(&name.path, face)
            };
            if let Some(other) = names.iter().find(|name| !is_of_face(name)) {
                return Err(misnamed(other));
            }
            let fixed = names.iter().filter(|name| name.is_fixed).map(|name| name.path.clone()).collect();
            planned.edition = Arc::new(Edition { fixed: Arc::new(fixed), ..(*planned.edition).clone() });
            all.extend(names.into_iter().map(|name| ListedDocument { face, name }));
        }
        Ok(all)
    }

    /// Removes all documents of a former view: first those that the index names, which link to the others. Then everything in
    /// the folders of all faces, because an index that cannot be read names nothing, and a former configuration may have had
    /// other faces.
    async fn remove_former_view(&mut self, listed: &[ListedDocument]) -> Result<(), RunError> {
        let Index { open, fixed, former, .. } = &mut self.index;
        let mut paths: BTreeSet<_> = std::mem::take(former).into_keys().collect();
        paths.extend(std::mem::take(open).into_keys().chain(std::mem::take(fixed).into_keys()));
        paths.extend(listed.iter().map(|document| document.name.path.clone()));
        let faces: BTreeSet<_> = self.faces.iter().map(|planned| planned.face.name()).chain(FACES).collect();
        let entries = self.target.entries().await?.into_iter();
        paths.extend(entries.filter(|path| faces.iter().any(|face| is_entry(path, face))));
        self.written.removed += self.target.remove(&paths).await?;
        for face in faces {
            self.written.removed += self.target.remove_folder(face, self.stop).await.ok_or(RunError::Stopped)??;
        }
        self.target.sync_removals().await?;
        self.index.view = Some(self.identity.view.clone());
        self.put_index().await
    }

    /// Writes the closed documents whose files are not there. Returns those that replace an open document, which are written
    /// later because they link to new files.
    async fn write_new_closed(&mut self, listed: &[ListedDocument]) -> Result<Vec<ListedDocument>, RunError> {
        let mut replaced = self.unreplaced(listed);
        for face in 0..self.faces.len() {
            let PlannedFace { face: of, edition, first } = &self.faces[face];
            let name = of.name();
            let none = FaceIndex { folder: edition.folder.clone(), first: *first, last: 0 };
            self.index.faces.entry(name.to_owned()).or_insert(none);
            loop {
                let documents = self.next_closed(face).await?;
                if documents.is_empty() {
                    break;
                }
                for document in documents {
                    let last = document.number.unwrap_or_default();
                    if self.is_there(&document.path).await? {
                        replaced.push(ListedDocument { face, name: document });
                    } else {
                        let content = self.render(face, &document).await?;
                        self.put(&document, &content).await?;
                    }
                    if let Some(face) = self.index.faces.get_mut(name) {
                        face.last = last;
                    }
                    self.note_progress().await?;
                }
            }
        }
        Ok(replaced)
    }

    /// Returns the closed documents whose files an interrupted run has left as open documents: the index names them as such.
    fn unreplaced(&self, listed: &[ListedDocument]) -> Vec<ListedDocument> {
        let listed: BTreeSet<&str> = listed.iter().map(|document| document.name.path.as_str()).collect();
        let unreplaced = |path: &String| {
            let (face, number) = self.closed(path).filter(|_| !listed.contains(path.as_str()))?;
            let closed = self.index.faces.get(self.faces[face].face.name())?;
            let is_closed = (closed.first..=closed.last).contains(&number);
            is_closed.then(|| ListedDocument { face, name: DocumentName::closed(path.clone(), number) })
        };
        self.index.open.keys().filter_map(unreplaced).collect()
    }

    /// Writes the listed documents that are new, then those that replace others, and removes those that are no longer listed.
    async fn write_listed(&mut self, listed: &[ListedDocument], replaced: &[ListedDocument]) -> Result<(), RunError> {
        self.check_place().await?;
        let known = self.index.clone();
        let (mut new, mut changed) = (Vec::new(), Vec::new());
        for document in listed {
            let documents = if self.is_there(&document.name.path).await? { &mut changed } else { &mut new };
            documents.push(document);
        }
        let mut tags = BTreeMap::new();
        for document in new {
            tags.insert(&document.name.path, self.write_changed(document, listed, &known).await?);
        }
        for ListedDocument { face, name } in replaced {
            let content = self.render(*face, name).await?;
            self.name_all(listed).await?;
            self.put(name, &content).await?;
        }
        for document in changed {
            tags.insert(&document.name.path, self.write_changed(document, listed, &known).await?);
        }
        let is_left = |path: &String| !tags.contains_key(path) && !self.has_closed(path);
        let (mut former, mut outdated) = (BTreeMap::new(), BTreeSet::new());
        let now = Timestamp::now();
        let left = known.fixed.into_keys().map(|path| (path, now));
        for (path, since) in known.former.into_iter().chain(left).filter(|(path, _)| is_left(path)) {
            // The clock may have been set back.
            let since = since.min(now);
            let is_young = now.millis() - since.millis() < FORMER_MILLIS;
            if is_young && self.is_of_edition(&path) {
                former.insert(path, since);
            } else {
                outdated.insert(path);
            }
        }
        outdated.extend(known.open.into_keys().filter(is_left));
        outdated.retain(|path| !former.contains_key(path));
        let tags = listed.iter().filter_map(|document| Some((document, tags.remove(&document.name.path)?)));
        let (fixed, open): (Vec<_>, Vec<_>) = tags.partition(|(document, _)| document.name.is_fixed);
        let by_path = |tags: Vec<(&ListedDocument, String)>| {
            tags.into_iter().map(|(document, tag)| (document.name.path.clone(), tag)).collect()
        };
        (self.index.open, self.index.fixed, self.index.former) = (by_path(open), by_path(fixed), former.clone());
        if !outdated.is_empty() {
            // The index promises none of them, and names them, so the next run removes those that a kill leaves.
            self.index.former.extend(outdated.iter().map(|path| (path.clone(), Timestamp::EPOCH)));
            self.index.complete = false;
            self.put_index().await?;
            self.written.removed += self.target.remove(&outdated).await?;
            self.index.former = former;
        }
        Ok(())
    }

    /// Checks that the journal and the copy are still those of this run.
    async fn check_place(&self) -> Result<(), RunError> {
        if self.work.journal.identity() != self.identity.journal {
            return Err(RunError::OtherJournal);
        }
        // Another node may have taken the duty, and have written a newer copy.
        match self.target.index().await? {
            StoredIndex::Read(stored) if stored == self.stored => Ok(()),
            _ => Err(RunError::Superseded),
        }
    }

    /// Writes a listed document unless the copy has it, and returns its entity tag. `known` is the index before all writes.
    async fn write_changed(
        &mut self,
        document: &ListedDocument,
        listed: &[ListedDocument],
        known: &Index,
    ) -> Result<String, RunError> {
        let ListedDocument { face, name } = document;
        if let Some(tag) = known.fixed.get(&name.path).filter(|tag| name.is_fixed && !tag.is_empty()) {
            return Ok(tag.clone());
        }
        let content = self.render(*face, name).await?;
        let tag = content.etag.to_str().unwrap_or_default().to_owned();
        let is_changed = known.tag(&name.path) != Some(&tag);
        if is_changed {
            self.name_all(listed).await?;
            self.put(name, &content).await?;
        }
        if name.is_fixed {
            self.index.fixed.insert(name.path.clone(), tag.clone());
        }
        if is_changed {
            self.note_progress().await?;
        }
        Ok(tag)
    }

    /// Writes an index that names all listed documents before they are there, so that a run with another view removes them. The
    /// index keeps the tags of the fixed documents, and no other ones.
    async fn name_all(&mut self, listed: &[ListedDocument]) -> Result<(), RunError> {
        if self.names_all {
            return Ok(());
        }
        self.names_all = true;
        let Index { open, fixed, .. } = &mut self.index;
        open.values_mut().for_each(String::clear);
        for ListedDocument { name, .. } in listed {
            if name.is_fixed {
                fixed.entry(name.path.clone()).or_default();
            } else {
                fixed.remove(&name.path);
                open.entry(name.path.clone()).or_default();
            }
        }
        self.index.complete = false;
        self.put_index().await
    }

    /// Removes the documents of former editions, and those whose changes retention has removed.
    async fn remove_outdated(&mut self) -> Result<(), RunError> {
        let is_named = |path: &str| self.index.tag(path).is_some() || self.index.former.contains_key(path);
        let is_kept = |path: &str| is_named(path.strip_suffix(".gz").unwrap_or(path)) || self.has_closed(path);
        let removed = self.target.remove_of_editions(|path| !is_kept(path)).await?;
        self.written.removed += removed;
        Ok(())
    }

    /// Returns whether the file, or the document that it is beside, is a closed document of this edition.
    fn has_closed(&self, path: &str) -> bool {
        // A document after the last one that is noted may be there, too, and is written again.
        self.closed(path).is_some_and(|(face, number)| number >= self.faces[face].first)
    }

    /// Returns the face in whose folder a file can be a closed document, and the number of the document.
    fn closed(&self, path: &str) -> Option<(usize, u64)> {
        let file = edition_file(path)?;
        let is_of =
            |planned: &PlannedFace| planned.edition.folder == file.folder && planned.face.closed_word() == file.word;
        self.faces.iter().position(is_of).zip(file.number)
    }

    /// Returns whether a file is in the folder of a face of this run.
    fn is_of_edition(&self, path: &str) -> bool {
        let folder = edition_file(path).map(|file| file.folder);
        folder.is_some_and(|folder| self.faces.iter().any(|planned| planned.edition.folder == folder))
    }

    /// Returns whether a document that the index names as open or fixed has a file.
    async fn is_there(&self, path: &str) -> Result<bool, RunError> {
        match self.index.tag(path) {
            None => Ok(false),
            Some(tag) if tag.is_empty() => Ok(self.target.has(path).await?),
            Some(_) => Ok(true),
        }
    }

    /// Lists closed documents that follow the last one of the index.
    async fn next_closed(&self, face: usize) -> Result<Vec<DocumentName>, RunError> {
        let planned = &self.faces[face];
        let last = self.index.faces.get(planned.face.name()).map_or(0, |face| face.last);
        let names = planned.list(self.stop, move |face, edition| face.closed(edition, last)).await?;
        // Otherwise, a later step would take the documents for outdated ones.
        let is_misnamed =
            |name: &&DocumentName| name.number.is_none_or(|number| self.closed(&name.path) != Some((face, number)));
        match names.iter().find(is_misnamed) {
            Some(other) => Err(misnamed(other)),
            None => Ok(names),
        }
    }

    async fn render(&self, face: usize, document: &DocumentName) -> Result<Representation, RunError> {
        self.faces[face].render(&self.work.spool, self.stop, document).await
    }

    async fn put(&mut self, document: &DocumentName, content: &Representation) -> Result<(), RunError> {
        self.check_stop()?;
        self.written.bytes += self.target.put(&document.path, content).await?;
        self.written.documents += 1;
        self.unnoted += 1;
        Ok(())
    }

    /// Writes the index if many documents were written since the last time.
    async fn note_progress(&mut self) -> Result<(), RunError> {
        if self.unnoted < NOTE_EVERY {
            return Ok(());
        }
        self.index.complete = false;
        self.put_index().await
    }

    /// Writes the index.
    ///
    /// # Errors
    /// Fails if the target cannot be written, or the run was stopped.
    pub(super) async fn put_index(&mut self) -> Result<(), RunError> {
        self.check_stop()?;
        self.target.put_index(&self.index).await?;
        self.stored = self.index.clone();
        self.unnoted = 0;
        Ok(())
    }

    fn check_stop(&self) -> Result<(), RunError> {
        if self.stop.is_cancelled() { Err(RunError::Stopped) } else { Ok(()) }
    }
}
