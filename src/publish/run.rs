//! One run: brings the copy to the present state of the journal.

use std::{collections::BTreeMap, sync::Arc};

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::{
    Edition, Face, PublicationSettings, TargetError,
    index::{FaceIndex, Index},
    target::Target,
};
use crate::{
    journal::Journal,
    model::Timestamp,
    web::{Problem, Spool},
};

/// Reason why a run ends early. The next one continues.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// The folder or the bucket cannot be written.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A document cannot be rendered.
    #[error("cannot render a document of {face}: {reason}")]
    Render {
        /// Name of the face.
        face: &'static str,
        /// Cause.
        reason: String,
    },
    /// The journal was replaced by a failover during the run.
    #[error("the journal was replaced by a failover of its database")]
    OtherJournal,
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

/// What a run needs.
pub(super) struct Work {
    pub(super) journal: Journal,
    pub(super) spool: Spool,
    pub(super) faces: Vec<Arc<dyn Face>>,
    pub(super) settings: PublicationSettings,
}

impl Work {
    /// Writes what the copy lacks. Closed documents come first, then the open ones and the index, then the removal of what
    /// nothing links to any more.
    ///
    /// # Errors
    /// Fails if a document cannot be rendered or written. The copy is readable then.
    pub(super) async fn run(&self, stop: &CancellationToken) -> Result<Written, RunError> {
        let target = Target::open(&self.settings.location)?;
        let known = target.index().await?;
        let (journal, head, first) = (self.journal.identity(), self.journal.head(), self.journal.first());
        let mut written = Written { head: head.0, ..Written::default() };
        let (mut open, mut faces) = (Vec::new(), BTreeMap::new());
        for face in &self.faces {
            let folder = format!("{}/{}", face.name(), self.fingerprint(&**face));
            let (view, url) = (self.settings.view.clone(), self.settings.url.clone());
            let edition = Arc::new(Edition { journal, head, first, view, url, folder: folder.clone() });
            let known = known.as_ref().and_then(|known| known.faces.get(face.name()));
            let first = face.first_closed(&edition);
            let mut last = known.filter(|known| known.folder == folder).map_or(0, |known| known.last);
            while let Some(number) = self.render(face, &edition, move |face, of| face.next_closed(of, last)).await? {
                if stop.is_cancelled() {
                    return Err(RunError::Stopped);
                }
                last = number;
                // Of an interrupted run.
                if target.has(&face.closed_name(&edition, number)).await? {
                    continue;
                }
                for document in self.render(face, &edition, move |face, of| face.closed(of, number)).await? {
                    written.add(target.put(&document).await?);
                }
            }
            open.extend(self.render(face, &edition, |face, of| face.open(of)).await?);
            faces.insert(face.name().to_owned(), FaceIndex { folder, first, last });
        }
        let is_same = |known: &Index| known.journal == journal && known.head == head && known.faces == faces;
        if known.as_ref().is_some_and(is_same) {
            return Ok(written);
        }
        if self.journal.identity() != journal {
            return Err(RunError::OtherJournal);
        }
        for document in &open {
            written.add(target.put(document).await?);
        }
        let index = Index { journal, head, published: Timestamp::now(), faces };
        target.put_index(&index).await?;
        written.removed = remove_outdated(&target, known.as_ref(), &index).await?;
        Ok(written)
    }

    /// Returns a digest of everything except the changes that the closed documents of a face depend on.
    fn fingerprint(&self, face: &dyn Face) -> String {
        let PublicationSettings { url, view, .. } = &self.settings;
        let view = view.as_ref().and_then(|view| serde_json::to_string(view).ok()).unwrap_or_default();
        let digest = Sha256::new().chain_update(self.journal.identity().as_bytes());
        let digest = [url, &view, &face.fingerprint()].into_iter().fold(digest, |digest, text| {
            // The length separates the texts.
            digest.chain_update((text.len() as u64).to_be_bytes()).chain_update(text)
        });
        hex::encode(&digest.finalize()[..8])
    }

    /// Renders on a blocking thread, when there is room in the spool.
    async fn render<T: Send + 'static>(
        &self,
        face: &Arc<dyn Face>,
        edition: &Arc<Edition>,
        render: impl FnOnce(&dyn Face, &Edition) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, RunError> {
        let permit = self.spool.document_permit().await;
        let (face, edition) = (Arc::clone(face), Arc::clone(edition));
        let name = face.name();
        let rendered = Spool::blocking(permit, move || render(&*face, &edition)).await;
        rendered.map_err(|problem| RunError::Render { face: name, reason: problem.detail().to_owned() })
    }
}

impl Written {
    fn add(&mut self, bytes: u64) {
        self.documents += 1;
        self.bytes += bytes;
    }
}

/// Removes the closed documents of another view, title or journal, and those whose changes retention has removed. What a
/// reader may not see any more must not stay.
async fn remove_outdated(target: &Target, known: Option<&Index>, index: &Index) -> Result<u64, TargetError> {
    let mut removed = 0;
    for (name, face) in &index.faces {
        let is_same = |known: &FaceIndex| known.folder == face.folder && known.first == face.first;
        if known.and_then(|known| known.faces.get(name)).is_some_and(is_same) {
            continue;
        }
        removed += target.remove_unless(name, |path| is_current(path, face)).await?;
    }
    Ok(removed)
}

/// Returns whether a closed document belongs to the copy.
fn is_current(path: &str, face: &FaceIndex) -> bool {
    let name = path.strip_prefix(face.folder.as_str()).and_then(|name| name.strip_prefix('/'));
    let number = name.and_then(|name| name.split('.').next()?.parse::<u64>().ok());
    number.is_some_and(|number| number >= face.first)
}

#[cfg(test)]
mod tests {
    use super::{FaceIndex, is_current};

    #[test]
    fn files_of_another_edition_and_expired_ones_are_removed() {
        let face = FaceIndex { folder: "feed/0123".to_owned(), first: 3, last: 9 };
        for (path, expected) in [
            ("feed/0123/3.atom", true),
            ("feed/0123/10.atom.gz", true),
            ("feed/0123/2.atom", false),
            ("feed/01234/5.atom", false),
            ("feed/ffff/5.atom.gz", false),
        ] {
            assert_eq!(is_current(path, &face), expected, "{path}");
        }
    }
}
