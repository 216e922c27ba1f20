//! Runs that are interrupted at each document, with a face whose newest page has the same path while it is open and when it is
//! closed.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    DocumentName, Edition, Face, PublicationSettings,
    run::{RunError, Work, Written},
};
use crate::{
    files::FileStoreLocation,
    model::ReaderView,
    view::test_journal::{journal_of, small_draft},
    web::{CachePolicy, Problem, Representation, Spool},
};

/// A face with pages of which the last one is open, and an entry.
#[derive(Default)]
struct Pages {
    first: AtomicU64,
    newest: AtomicU64,
    /// Number of renderings until the stop.
    left: AtomicU64,
    stop: std::sync::Mutex<CancellationToken>,
}

impl Pages {
    fn document(edition: &Edition, page: u64, is_open: bool) -> DocumentName {
        let path = format!("{}/page-{page}.txt", edition.folder);
        if is_open { DocumentName::open(path) } else { DocumentName::closed(path, page) }
    }
}

impl Face for Pages {
    fn name(&self) -> &'static str {
        "pages"
    }

    fn fingerprint(&self) -> String {
        String::new()
    }

    fn first(&self, _: &Edition) -> Result<u64, Problem> {
        Ok(self.first.load(Ordering::Relaxed))
    }

    fn closed(&self, edition: &Edition, after: u64) -> Result<Vec<DocumentName>, Problem> {
        let first = self.first.load(Ordering::Relaxed).max(after + 1);
        Ok((first..self.newest.load(Ordering::Relaxed)).map(|page| Self::document(edition, page, false)).collect())
    }

    fn open(&self, edition: &Edition) -> Result<Vec<DocumentName>, Problem> {
        let newest = Self::document(edition, self.newest.load(Ordering::Relaxed), true);
        Ok(vec![newest, DocumentName::open("pages.txt")])
    }

    fn render(&self, edition: &Edition, document: &DocumentName) -> Result<Representation, Problem> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop.lock().unwrap().cancel();
        }
        let reader = if edition.view.is_some() { "public" } else { "secret" };
        let state = document
            .number
            .map_or_else(|| format!("open {}", self.newest.load(Ordering::Relaxed)), |n| format!("closed {n}"));
        Ok(Representation::new("text/plain", format!("{reader} {state}"), CachePolicy::Revalidate))
    }
}

struct Copy {
    folder: TempDir,
    pages: Arc<Pages>,
    work: Work,
}

impl Copy {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let journal = journal_of(small_draft(), 3, 10, &data).await;
        let pages = Arc::new(Pages { first: 1.into(), newest: 4.into(), ..Pages::default() });
        let settings = PublicationSettings {
            location: FileStoreLocation::Folder(folder.path().join("copy")),
            url: "http://copy".to_owned(),
            view: None,
            interval: Duration::from_secs(1),
        };
        let spool = Spool::new(&data, 1 << 20);
        let faces: Vec<Arc<dyn Face>> = vec![Arc::clone(&pages) as _];
        let work = Work { journal, spool, faces, settings, has_only_this_view: AtomicBool::new(false) };
        Self { folder, pages, work }
    }

    /// Runs for these readers, and stops at the rendering of this number.
    async fn run(&mut self, is_public: bool, stop_at: u64) -> Result<Written, RunError> {
        let view = ReaderView { public: true, ..ReaderView::default() };
        self.work.settings.view = is_public.then(|| Arc::new(view));
        self.work.has_only_this_view = AtomicBool::new(false);
        let stop = CancellationToken::new();
        *self.pages.stop.lock().unwrap() = stop.clone();
        self.pages.left.store(stop_at, Ordering::Relaxed);
        self.work.run(&stop).await
    }

    /// Returns the contents of all documents by their names, without the folders of the editions.
    fn documents(&self) -> BTreeMap<String, String> {
        fn collect(folder: &Path, found: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
                let name = entry.file_name().into_string().unwrap();
                if entry.file_type().unwrap().is_dir() {
                    collect(&entry.path(), found);
                } else if name != "publication.json" {
                    let text = fs::read_to_string(entry.path()).unwrap();
                    assert_eq!(found.insert(name, text), None, "two editions have the document");
                }
            }
        }
        let mut found = BTreeMap::new();
        collect(&self.folder.path().join("copy"), &mut found);
        found
    }

    /// Asserts that the copy has all documents for these readers, and no others.
    fn assert_complete(&self, is_public: bool, context: &str) {
        let reader = if is_public { "public" } else { "secret" };
        let (first, newest) = (self.pages.first.load(Ordering::Relaxed), self.pages.newest.load(Ordering::Relaxed));
        let closed = (first..newest).map(|page| (format!("page-{page}.txt"), format!("{reader} closed {page}")));
        let open = [format!("page-{newest}.txt"), "pages.txt".to_owned()];
        let open = open.map(|name| (name, format!("{reader} open {newest}")));
        assert_eq!(self.documents(), closed.chain(open).collect(), "{context}");
    }
}

const NEVER: u64 = u64::MAX;

#[tokio::test]
async fn interrupted_run_with_a_narrower_view_leaves_nothing_of_the_former_one() {
    for stop_at in 1..=6 {
        for next_is_public in [true, false] {
            let mut copy = Copy::new().await;
            copy.run(false, NEVER).await.unwrap();
            copy.assert_complete(false, "the first run");
            let interrupted = copy.run(true, stop_at).await;
            assert_eq!(matches!(interrupted, Err(RunError::Stopped)), stop_at < 6, "{interrupted:?}");
            let found = copy.documents();
            assert!(found.values().all(|text| text.starts_with("public")), "{stop_at}: {found:?}");
            copy.run(next_is_public, NEVER).await.unwrap();
            copy.assert_complete(next_is_public, &format!("after {stop_at} documents"));
            let again = copy.run(next_is_public, NEVER).await.unwrap();
            assert_eq!((again.documents, again.removed), (0, 0));
        }
    }
}

#[tokio::test]
async fn page_that_closes_at_its_path_is_written_again() {
    for stop_at in 1..=5 {
        let mut copy = Copy::new().await;
        copy.run(false, NEVER).await.unwrap();
        copy.pages.newest.store(6, Ordering::Relaxed);
        let stopped = copy.run(false, stop_at).await;
        assert_eq!(matches!(stopped, Err(RunError::Stopped)), stop_at < 5, "{stop_at}: {stopped:?}");
        copy.run(false, NEVER).await.unwrap();
        copy.assert_complete(false, &format!("after {stop_at} documents"));
        // Retention removes what it has removed from the journal, and leaves the rest as it is.
        copy.pages.first.store(3, Ordering::Relaxed);
        let written = copy.run(false, NEVER).await.unwrap();
        assert_eq!((written.documents, written.removed), (0, 2));
        copy.assert_complete(false, "after retention");
    }
}

#[tokio::test]
async fn files_of_others_stay_and_a_folder_of_others_is_refused() {
    let mut copy = Copy::new().await;
    let root = copy.folder.path().join("copy");
    fs::create_dir_all(root.join("pages/0123456789abcdef")).unwrap();
    let foreign = root.join("pages/0123456789abcdef/notes.txt");
    fs::write(&foreign, "mine").unwrap();
    let refused = copy.run(false, NEVER).await.unwrap_err().to_string();
    assert!(refused.contains("it has \"pages\" and no publication.json"), "{refused}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "nothing is written");
    fs::remove_dir_all(&root).unwrap();
    copy.run(false, NEVER).await.unwrap();
    fs::create_dir_all(foreign.parent().unwrap()).unwrap();
    fs::write(&foreign, "mine").unwrap();
    fs::write(root.join("robots.txt"), "mine").unwrap();
    fs::write(root.join("pages/0123456789abcdef/page-1.txt"), "of an edition").unwrap();
    copy.run(true, NEVER).await.unwrap();
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");
    assert_eq!(fs::read_to_string(root.join("robots.txt")).unwrap(), "mine");
    assert!(!root.join("pages/0123456789abcdef/page-1.txt").exists());
}

#[tokio::test]
async fn copy_never_goes_back() {
    let mut copy = Copy::new().await;
    copy.run(false, NEVER).await.unwrap();
    let index = copy.folder.path().join("copy/publication.json");
    let newer = fs::read_to_string(&index).unwrap().replace("\"head\": 3", "\"head\": 9");
    fs::write(&index, &newer).unwrap();
    let error = copy.run(false, NEVER).await.unwrap_err();
    assert!(matches!(error, RunError::Newer { .. }), "{error}");
    assert_eq!(fs::read_to_string(&index).unwrap(), newer);
}
