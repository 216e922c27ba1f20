//! The edition of a copy: what its documents depend on besides their faces.

use std::{collections::BTreeSet, sync::Arc};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Face, PublicationSettings};
use crate::model::{ReaderView, Seq};

/// The journal when a run begins, as the readers of the copy may see it.
///
/// The head is a lower bound: the copy has all changes up to it. A face may show later changes that arrive during the run.
#[derive(Clone, Debug)]
pub struct Edition {
    /// Identity of the journal.
    pub journal: Uuid,
    /// Number of the newest change.
    pub head: Seq,
    /// Number of the oldest change.
    pub first: Seq,
    /// Ranges of numbers that restores and failovers have skipped: after the first number, up to the second.
    pub skipped: Arc<[(Seq, Seq)]>,
    /// Part of the journal that the readers may see; `None` for everything.
    pub view: Option<Arc<ReaderView>>,
    /// URL of the copy, without a trailing slash.
    pub url: String,
    /// Folder of the closed documents, relative to the copy. Its name is a digest of everything except the changes that
    /// these documents depend on, so another view, title or journal makes other files and changes none.
    pub folder: String,
    /// Paths of the fixed documents that the face has listed in this run. A list of documents that is rendered later names only
    /// these.
    pub fixed: Arc<BTreeSet<String>>,
}

/// Identity of a copy: the journal, the view and the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Identity of the journal.
    pub(super) journal: Uuid,
    /// Digest of the view, and of the version of what a view shows.
    pub(super) view: String,
    url: String,
}

impl Identity {
    pub(super) fn new(journal: Uuid, settings: &PublicationSettings) -> Self {
        let PublicationSettings { url, view, .. } = settings;
        let conditions = view.as_ref().and_then(|view| serde_json::to_string(view).ok()).unwrap_or_default();
        let view = digest(Sha256::new().chain_update(ReaderView::VERSION.to_be_bytes()), &[&conditions]);
        Self { journal, view, url: url.clone() }
    }

    /// Returns the folder of the closed documents of a face.
    pub(super) fn folder(&self, face: &dyn Face) -> String {
        let Self { journal, view, url } = self;
        let edition = digest(Sha256::new().chain_update(journal.as_bytes()), &[url, view, &face.fingerprint()]);
        format!("{}/{edition}", face.name())
    }
}

/// Returns 16 hexadecimal digits of a digest with further texts.
fn digest(digest: Sha256, texts: &[&str]) -> String {
    let digest = texts.iter().fold(digest, |digest, text| {
        // The length separates the texts.
        digest.chain_update((text.len() as u64).to_be_bytes()).chain_update(text)
    });
    hex::encode(&digest.finalize()[..8])
}
