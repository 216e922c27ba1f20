//! Copies in a folder, for the unit tests of faces.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    DocumentName, Edition, Face, PublicationSettings,
    index::{self, Index},
    run::Work,
};
use crate::{
    files::FileStoreLocation,
    journal::Journal,
    model::{ReaderView, Timestamp},
    web::{Problem, Representation, Spool},
};

/// URL of the copy.
pub(crate) const URL: &str = "http://copy.example/changes";

/// Checks a document that is going to be written: its path, its text, and the files that are there by their paths.
pub(crate) type Check = fn(&str, &str, &BTreeMap<String, String>);

/// A copy of one face, which the public sees or everybody.
pub(crate) struct TestCopy {
    work: Work,
    root: PathBuf,
    _folder: TempDir,
}

impl TestCopy {
    pub(crate) fn new(journal: Journal, face: Arc<dyn Face>, is_public: bool, check: Check) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("copy");
        let view = ReaderView { public: true, ..ReaderView::default() };
        let settings = PublicationSettings {
            location: FileStoreLocation::Folder(root.clone()),
            url: URL.to_owned(),
            view: is_public.then(|| Arc::new(view)),
            interval: Duration::from_secs(1),
        };
        let face: Arc<dyn Face> =
            Arc::new(CheckedFace { face, root: root.clone(), check, has_listed: AtomicBool::new(false) });
        let spool = Spool::new(folder.path(), 1 << 20);
        let work = Work { journal, spool, faces: vec![face], settings, has_only_this_view: AtomicBool::new(false) };
        Self { work, root, _folder: folder }
    }

    /// Runs, and returns the numbers of written documents and of removed files.
    pub(crate) async fn publish(&self) -> (u64, u64) {
        let written = self.work.run(&CancellationToken::new()).await.unwrap();
        assert!(self.work.has_only_this_view.load(Ordering::Relaxed));
        (written.documents, written.removed)
    }

    /// Replaces the index by something that cannot be read.
    pub(crate) fn damage_index(&self) {
        fs::write(self.root.join(index::NAME), "damaged").unwrap();
    }

    /// Lets an hour pass.
    pub(crate) fn age(&self) {
        age(&self.root);
    }

    /// Returns the texts of all documents by their paths.
    pub(crate) fn files(&self) -> BTreeMap<String, String> {
        files(&self.root)
    }
}

/// Lets an hour pass for the documents that a copy lists no longer.
pub(super) fn age(root: &Path) {
    let path = root.join(index::NAME);
    let mut index: Index = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for since in index.former.values_mut() {
        *since = Timestamp::from_millis(since.millis() - 60 * 60 * 1000).unwrap();
    }
    fs::write(path, serde_json::to_vec(&index).unwrap()).unwrap();
}

/// A face whose documents are checked when they are rendered.
struct CheckedFace {
    face: Arc<dyn Face>,
    root: PathBuf,
    check: Check,
    /// Whether the face has listed its open documents in this run.
    has_listed: AtomicBool,
}

impl Face for CheckedFace {
    fn name(&self) -> &'static str {
        self.face.name()
    }

    fn closed_word(&self) -> &'static str {
        self.face.closed_word()
    }

    fn fingerprint(&self) -> String {
        self.face.fingerprint()
    }

    fn renders_lists(&self) -> bool {
        self.face.renders_lists()
    }

    fn first(&self, edition: &Edition) -> Result<u64, Problem> {
        self.has_listed.store(false, Ordering::Relaxed);
        self.face.first(edition)
    }

    fn closed(&self, edition: &Edition, after: u64) -> Result<Vec<DocumentName>, Problem> {
        self.face.closed(edition, after)
    }

    fn open(&self, edition: &Edition) -> Result<Vec<DocumentName>, Problem> {
        assert!(!self.has_listed.swap(true, Ordering::Relaxed), "a run lists the documents once");
        self.face.open(edition)
    }

    fn render(&self, edition: &Edition, document: &DocumentName) -> Result<Representation, Problem> {
        let rendered = self.face.render(edition, document)?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut rendered.body.reader(), &mut bytes).unwrap();
        (self.check)(&document.path, &String::from_utf8_lossy(&bytes), &files(&self.root));
        Ok(rendered)
    }
}

fn files(root: &Path) -> BTreeMap<String, String> {
    fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_dir() {
                collect(root, &entry.path(), found);
                continue;
            }
            let path = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path != index::NAME && !path.ends_with(".gz") {
                let bytes = fs::read(entry.path()).unwrap();
                found.insert(path, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
    let mut found = BTreeMap::new();
    collect(root, root, &mut found);
    found
}
