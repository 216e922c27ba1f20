//! Runs that are interrupted at each document, with a face whose newest page has the same path while it is open and when it is
//! closed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
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
    test_copy::age,
};
use crate::{
    files::FileStoreLocation,
    model::ReaderView,
    view::test_journal::{journal_of, small_draft},
    web::{CachePolicy, Problem, Representation, Spool},
};

/// A face with pages of which the last one is open, a part of which each division has another one, and an entry. A closed page
/// links to its neighbours, and the entry to the newest page.
struct Pages {
    /// Folder of the copy.
    root: PathBuf,
    first: AtomicU64,
    newest: AtomicU64,
    division: AtomicU64,
    /// Whether there is an open document with another word than the pages have.
    has_block: AtomicBool,
    /// Setting that only the entry depends on.
    title: AtomicU64,
    /// Number of renderings until the stop.
    left: AtomicU64,
    /// Numbers of renderings of parts, and of lists of the open documents.
    part_renderings: AtomicU64,
    lists: AtomicU64,
    is_list: AtomicBool,
    /// Whether [`Face::first`] waits.
    is_blocked: AtomicBool,
    stop: std::sync::Mutex<CancellationToken>,
}

impl Pages {
    fn new(root: PathBuf) -> Self {
        Self {
            root,
            first: 1.into(),
            newest: 4.into(),
            division: 1.into(),
            has_block: false.into(),
            title: 0.into(),
            left: NEVER.into(),
            part_renderings: 0.into(),
            lists: 0.into(),
            is_list: false.into(),
            is_blocked: false.into(),
            stop: std::sync::Mutex::default(),
        }
    }

    fn document(edition: &Edition, page: u64, is_open: bool) -> DocumentName {
        let path = format!("{}/page-{page}.txt", edition.folder);
        if is_open { DocumentName::open(path) } else { DocumentName::closed(path, page) }
    }

    fn first(&self) -> u64 {
        self.first.load(Ordering::Relaxed)
    }

    fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// Returns the text of the entry.
    fn entry(&self, reader: &str) -> String {
        format!("{reader} open {} {}", self.newest(), self.title.load(Ordering::Relaxed))
    }

    /// Follows the links from the entry as it is in the folder. Each must lead to a file.
    fn assert_linked(&self, edition: &Edition) {
        let Ok(entry) = fs::read_to_string(self.root.join("pages.txt")) else { return };
        let newest: u64 = entry.split(' ').nth(2).unwrap().parse().unwrap();
        let (mut seen, mut next) = (BTreeSet::new(), vec![newest]);
        while let Some(page) = next.pop() {
            if page < self.first() || !seen.insert(page) {
                continue;
            }
            let text = fs::read_to_string(self.root.join(format!("{}/page-{page}.txt", edition.folder)));
            let text = text.unwrap_or_else(|_| panic!("a document links to the page {page}, which is missing"));
            next.push(page - 1);
            next.extend(text.contains("closed").then_some(page + 1));
        }
    }
}

impl Face for Pages {
    fn name(&self) -> &'static str {
        "pages"
    }

    fn closed_word(&self) -> &'static str {
        "page"
    }

    fn fingerprint(&self) -> String {
        String::new()
    }

    fn renders_lists(&self) -> bool {
        self.is_list.load(Ordering::Relaxed)
    }

    fn first(&self, _: &Edition) -> Result<u64, Problem> {
        while self.is_blocked.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.first())
    }

    fn closed(&self, edition: &Edition, after: u64) -> Result<Vec<DocumentName>, Problem> {
        let first = self.first().max(after + 1);
        Ok((first..self.newest()).map(|page| Self::document(edition, page, false)).collect())
    }

    fn open(&self, edition: &Edition) -> Result<Vec<DocumentName>, Problem> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        let division = self.division.load(Ordering::Relaxed);
        let part = DocumentName::fixed(format!("{}/part-{division}-1.txt", edition.folder));
        let newest = Self::document(edition, self.newest(), true);
        let block = DocumentName::open(format!("{}/block-1.txt", edition.folder));
        let block = self.has_block.load(Ordering::Relaxed).then_some(block);
        Ok(block.into_iter().chain([part, newest, DocumentName::open("pages.txt")]).collect())
    }

    fn render(&self, edition: &Edition, document: &DocumentName) -> Result<Representation, Problem> {
        self.assert_linked(edition);
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop.lock().unwrap().cancel();
        }
        let reader = if edition.view.is_some() { "public" } else { "secret" };
        let text = match document {
            DocumentName { number: Some(page), .. } => format!("{reader} closed {page}"),
            DocumentName { is_fixed: true, .. } => {
                self.part_renderings.fetch_add(1, Ordering::Relaxed);
                format!("{reader} part")
            }
            DocumentName { path, .. } if path == "pages.txt" => self.entry(reader),
            _ => format!("{reader} open {}", self.newest()),
        };
        Ok(Representation::new("text/plain", text, CachePolicy::Revalidate))
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
        let root = folder.path().join("copy");
        let pages = Arc::new(Pages::new(root.clone()));
        let settings = PublicationSettings {
            location: FileStoreLocation::Folder(root),
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
        let (first, newest) = (self.pages.first(), self.pages.newest());
        let closed = (first..newest).map(|page| (format!("page-{page}.txt"), format!("{reader} closed {page}")));
        let part = (self.part(), format!("{reader} part"));
        let page = (format!("page-{newest}.txt"), format!("{reader} open {newest}"));
        let entry = ("pages.txt".to_owned(), self.pages.entry(reader));
        assert_eq!(self.documents(), closed.chain([part, page, entry]).collect(), "{context}");
    }

    /// Returns the name of the part of the present division.
    fn part(&self) -> String {
        format!("part-{}-1.txt", self.pages.division.load(Ordering::Relaxed))
    }

    fn index(&self) -> PathBuf {
        self.folder.path().join("copy/publication.json")
    }
}

const NEVER: u64 = u64::MAX;

#[tokio::test]
async fn interrupted_run_with_a_narrower_view_leaves_nothing_of_the_former_one() {
    for stop_at in 1..=7 {
        for next_is_public in [true, false] {
            let mut copy = Copy::new().await;
            copy.run(false, NEVER).await.unwrap();
            copy.assert_complete(false, "the first run");
            let interrupted = copy.run(true, stop_at).await;
            assert_eq!(matches!(interrupted, Err(RunError::Stopped)), stop_at < 7, "{interrupted:?}");
            let found = copy.documents();
            assert!(found.values().all(|text| text.starts_with("public")), "{stop_at}: {found:?}");
            copy.run(next_is_public, NEVER).await.unwrap();
            copy.assert_complete(next_is_public, &format!("after {stop_at} documents"));
            let again = copy.run(next_is_public, NEVER).await.unwrap();
            assert_eq!((again.documents, again.removed), (0, 0));
            let editions = fs::read_dir(copy.folder.path().join("copy/pages")).unwrap().count();
            assert_eq!(editions, 1, "the folders of former editions are removed");
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
    // Another edition, and then another view: whatever the folders of the faces have may show too much.
    copy.pages.division.store(2, Ordering::Relaxed);
    copy.run(false, NEVER).await.unwrap();
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");
    copy.run(true, NEVER).await.unwrap();
    assert_eq!(fs::read_to_string(root.join("robots.txt")).unwrap(), "mine");
    assert!(!foreign.exists() && !root.join("pages/0123456789abcdef/page-1.txt").exists());
}

#[tokio::test]
async fn copy_never_goes_back() {
    let mut copy = Copy::new().await;
    copy.run(false, NEVER).await.unwrap();
    let index = copy.index();
    let newer = fs::read_to_string(&index).unwrap().replace("\"head\": 3", "\"head\": 9");
    fs::write(&index, &newer).unwrap();
    let error = copy.run(false, NEVER).await.unwrap_err();
    assert!(matches!(error, RunError::Newer { .. }), "{error}");
    assert_eq!(fs::read_to_string(&index).unwrap(), newer);
}

/// The texts of a page and of its successor were written one after the other, so a reader found a link to a missing page.
#[tokio::test]
async fn newest_page_that_becomes_closed_twice_is_never_linked_before_it_is_there() {
    for stop_at in 1..=6 {
        let mut copy = Copy::new().await;
        copy.run(false, NEVER).await.unwrap();
        for newest in [6, 7, 9] {
            copy.pages.newest.store(newest, Ordering::Relaxed);
            let _ = copy.run(false, stop_at).await;
        }
        copy.run(false, NEVER).await.unwrap();
        copy.assert_complete(false, &format!("after {stop_at} documents"));
    }
}

#[tokio::test]
async fn part_of_a_former_division_stays_for_an_hour_and_leaves_with_its_view() {
    let mut copy = Copy::new().await;
    copy.run(false, NEVER).await.unwrap();
    let former = copy.part();
    copy.pages.division.store(2, Ordering::Relaxed);
    let written = copy.run(false, NEVER).await.unwrap();
    assert_eq!((written.documents, written.removed), (1, 0));
    assert!(copy.documents().contains_key(&former), "readers of the former list find it");
    let written = copy.run(false, NEVER).await.unwrap();
    assert_eq!((written.documents, written.removed), (0, 0));
    age(&copy.pages.root);
    let written = copy.run(false, NEVER).await.unwrap();
    assert_eq!((written.documents, written.removed), (0, 1));
    copy.assert_complete(false, "an hour later");
    copy.pages.division.store(3, Ordering::Relaxed);
    copy.run(false, NEVER).await.unwrap();
    copy.pages.division.store(4, Ordering::Relaxed);
    copy.run(true, NEVER).await.unwrap();
    copy.assert_complete(true, "another view");
}

#[tokio::test]
async fn open_document_that_is_no_longer_listed_is_no_closed_one() {
    let mut copy = Copy::new().await;
    copy.pages.has_block.store(true, Ordering::Relaxed);
    copy.run(false, NEVER).await.unwrap();
    assert!(copy.documents().contains_key("block-1.txt"));
    copy.pages.has_block.store(false, Ordering::Relaxed);
    copy.run(false, NEVER).await.unwrap();
    assert!(!copy.documents().contains_key("block-1.txt"));
}

#[tokio::test]
async fn unreadable_index_leaves_nothing_of_a_former_division() {
    let mut copy = Copy::new().await;
    copy.run(false, NEVER).await.unwrap();
    fs::write(copy.index(), "damaged").unwrap();
    copy.pages.division.store(2, Ordering::Relaxed);
    // An open document whose name no face lists any more, and the entry of a face that is no longer published.
    let former = ["pages/former.txt", "feed.atom"].map(|path| copy.pages.root.join(path));
    former.iter().for_each(|path| fs::write(path, "former").unwrap());
    copy.run(false, NEVER).await.unwrap();
    copy.assert_complete(false, "after the damage");
    assert!(former.iter().all(|path| !path.exists()));
}

#[tokio::test]
async fn run_without_news_writes_nothing_and_a_changed_setting_reaches_the_copy() {
    let mut copy = Copy::new().await;
    copy.run(false, NEVER).await.unwrap();
    let before = fs::read_to_string(copy.index()).unwrap();
    copy.run(false, NEVER).await.unwrap();
    assert_eq!(fs::read_to_string(copy.index()).unwrap(), before, "not even the time");
    copy.pages.title.store(7, Ordering::Relaxed);
    let written = copy.run(false, NEVER).await.unwrap();
    assert_eq!((written.documents, written.removed), (1, 0));
    copy.assert_complete(false, "without a change of the journal");
    assert_ne!(fs::read_to_string(copy.index()).unwrap(), before);
}

#[tokio::test]
async fn fixed_document_is_rendered_once_and_open_ones_are_listed_once_in_a_run() {
    let mut copy = Copy::new().await;
    copy.run(false, NEVER).await.unwrap();
    copy.pages.newest.store(6, Ordering::Relaxed);
    // The stop comes after the index that forgets the tags of the open documents.
    copy.run(false, 3).await.unwrap_err();
    copy.run(false, NEVER).await.unwrap();
    assert_eq!(copy.pages.part_renderings.load(Ordering::Relaxed), 1);
    assert_eq!(copy.pages.lists.load(Ordering::Relaxed), 3, "one list in each run");
}

#[tokio::test]
async fn lists_need_no_permit_of_feeds_and_a_stop_ends_a_run_that_waits() {
    let mut copy = Copy::new().await;
    let permit = copy.work.spool.document_permit().await;
    copy.pages.is_list.store(true, Ordering::Relaxed);
    copy.run(false, NEVER).await.unwrap();
    copy.assert_complete(false, "while a feed is rendered");
    // The next rendering waits for the feed.
    copy.pages.is_list.store(false, Ordering::Relaxed);
    let stop = CancellationToken::new();
    let (run, stopping) = (copy.work.run(&stop), stop.clone());
    let stopped = tokio::join!(run, async { stopping.cancel() }).0;
    assert!(matches!(stopped, Err(RunError::Stopped)), "{stopped:?}");
    drop(permit);
    // A face that reads the journal for long.
    copy.pages.is_blocked.store(true, Ordering::Relaxed);
    let stop = CancellationToken::new();
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        stop.cancel();
    };
    let stopped = tokio::join!(copy.work.run(&stop), cancel).0;
    copy.pages.is_blocked.store(false, Ordering::Relaxed);
    assert!(matches!(stopped, Err(RunError::Stopped)), "{stopped:?}");
}
