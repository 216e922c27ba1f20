//! Segments and the faces with closed pages: what sealing costs appends, a read of all history, and closed documents
//! compared with nginx, which serves the same bytes from files.
//!
//! The readers ask the real program with its journal on disk. `TIDINGS_BENCH_CHANGES` sets another number of changes.

use std::{
    cell::Cell,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::Value;
use tidings::{
    files::FileStoreLocation,
    journal::Journal,
    model::Seq,
    segments::{KeptSegments, Segments, seal_spans},
};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::{
    harvests::write_config,
    http::{require, servers::Nginx, wrk::Wrk},
    journal::{MANY_SENDERS, SENDERS, append_batches, close, draft_of, open, runtime},
    measure::{Contender, compare},
    streams::Server,
};

/// Number of changes of the history that is read, unless the variable says another one.
const CHANGES: u64 = 1_000_000;

/// Number of objects of the changes.
const OBJECTS: u64 = 50_000;

/// Number of changes appended in a round while a journal is filled, and in a turn of the appends.
const ROUND: u64 = 100_000;

/// Number of turns of the appends, and of reads of all history.
const APPENDS: usize = 9;
const READS: usize = 3;

/// Number of changes of a page of `/changes`.
const PAGE: u64 = 1000;

pub(crate) fn measure() {
    require(&[("nginx", "nginx-light"), ("wrk", "wrk")]);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = runtime();
    sealing(&runtime);
    let folder = tempfile::tempdir().unwrap();
    // If root starts nginx, its workers run as another user.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let changes = std::env::var("TIDINGS_BENCH_CHANGES").map_or(CHANGES, |number| number.parse().unwrap());
    let history = History::of(&runtime, folder.path(), changes);
    history.read_all(&runtime, changes);
    history.closed_documents(&runtime);
}

/// Appends to a journal whose spans are sealed meanwhile, and to one whose spans are not.
fn sealing(runtime: &Runtime) {
    let folder = tempfile::tempdir().unwrap();
    let [(plain, plain_threads), (sealed, sealed_threads)] =
        ["plain", "sealed"].map(|name| open(&folder.path().join(name)));
    let location = FileStoreLocation::Folder(folder.path().join("segments"));
    let segments = Segments::new(sealed.clone(), location, KeptSegments::Changes);
    let stop = CancellationToken::new();
    let worker = runtime.spawn(seal_spans(sealed.clone(), Some(segments), stop.clone()));
    let next = Cell::new(0);
    let append = |journal: &Journal, senders| {
        let from = next.replace(next.get() + ROUND);
        append_batches(runtime, journal, (from..next.get()).map(|number| draft_of(number, OBJECTS)).collect(), senders)
    };
    let append_to_sealed = |senders| {
        let measured = append(&sealed, senders);
        // The rest of the work is not done in the turn of the other journal.
        while runtime
            .block_on(sealed.newest_sealed())
            .unwrap()
            .is_none_or(|newest| newest.0 + 10_000 <= sealed.head().0)
        {
            thread::sleep(Duration::from_millis(10));
        }
        measured
    };
    for (title, senders) in [("appending with 64 senders", MANY_SENDERS), ("appending with 16 senders", SENDERS)] {
        compare(
            title,
            "changes",
            APPENDS,
            vec![
                Contender::timed("without segments", || append(&plain, senders)),
                Contender::timed("while closed spans are sealed", || append_to_sealed(senders)),
            ],
        );
    }
    stop.cancel();
    runtime.block_on(worker).unwrap();
    close(plain, plain_threads);
    close(sealed, sealed_threads);
}

/// A gateway with a history, and nginx with its closed documents.
struct History {
    gateway: Server,
    nginx: Nginx,
    client: reqwest::Client,
    /// Paths of the files of all segments.
    segments: Vec<String>,
    /// Paths of closed documents of the faces, with their names.
    documents: Vec<(&'static str, String)>,
}

impl History {
    /// Fills a journal, starts a gateway on it, waits until all closed spans are sealed, and copies them for nginx.
    fn of(runtime: &Runtime, folder: &Path, changes: u64) -> Self {
        let data = folder.join("data");
        let (journal, threads) = open(&data);
        for from in (0..changes).step_by(ROUND as usize) {
            let drafts = (from..changes.min(from + ROUND)).map(|number| draft_of(number, OBJECTS)).collect();
            append_batches(runtime, &journal, drafts, SENDERS);
        }
        close(journal, threads);
        let config = write_config(folder, "");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config).arg("--data").arg(&data);
        let gateway = Server::start(serve);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let copies = folder.join("copies");
        fs::create_dir(&copies).unwrap();
        let mut history =
            Self { gateway, nginx: Nginx::of_files(&copies), client, segments: Vec::new(), documents: Vec::new() };
        while (history.segments.len() as u64) < changes / 10_000 {
            thread::sleep(Duration::from_millis(100));
            let list: Value = serde_json::from_slice(&runtime.block_on(history.get("/segments?limit=1000"))).unwrap();
            let segments = list["segments"].as_array().unwrap().iter();
            history.segments = segments.map(|segment| segment["url"].as_str().unwrap().to_owned()).collect();
        }
        history.documents = runtime.block_on(history.closed());
        for path in history.segments.iter().chain(history.documents.iter().map(|(_, path)| path)) {
            let copy = copies.join(path.trim_start_matches('/'));
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::write(copy, runtime.block_on(history.get(path))).unwrap();
        }
        history
    }

    /// Returns the paths of closed documents, as readers find them.
    async fn closed(&self) -> Vec<(&'static str, String)> {
        let path = |url: &str| url.strip_prefix(&self.gateway.url).unwrap().to_owned();
        let collection: Value = serde_json::from_slice(&self.get("/iiif").await).unwrap();
        let page = path(collection["first"]["id"].as_str().unwrap());
        let root = self.client.get(format!("{}/ldes", self.gateway.url)).send().await.unwrap();
        let node = path(root.url().join("page-1.jsonld").unwrap().as_str());
        let feed = self.get("/feed").await;
        let feed = std::str::from_utf8(&feed).unwrap();
        let link = feed.split("<link ").find(|link| link.contains("prev-archive")).unwrap();
        let archive = path(link.split("href=\"").nth(1).unwrap().split('"').next().unwrap());
        vec![("a page of IIIF", page), ("a page of LDES", node), ("a page of the archive of the feed", archive)]
    }

    async fn get(&self, path: &str) -> Bytes {
        get(&self.client, &format!("{}{path}", self.gateway.url)).await
    }

    /// Reads all closed history: by pages, and as files from the gateway and from nginx.
    fn read_all(&self, runtime: &Runtime, changes: u64) {
        let closed = changes / 10_000 * 10_000;
        compare(
            &format!("a read of {closed} changes"),
            "changes",
            READS,
            vec![
                Contender::timed("pages of /changes", || runtime.block_on(self.read_pages(closed))),
                Contender::timed("segments from the gateway", || runtime.block_on(self.read_files(&self.gateway.url))),
                Contender::timed("the same files from nginx", || runtime.block_on(self.read_files(&self.nginx.url))),
            ],
        );
    }

    async fn read_pages(&self, until: u64) -> (u64, Duration) {
        let began = Instant::now();
        let (mut after, mut lines) = (0, 0);
        while after < until {
            let page = self.get(&format!("/changes?after={after}&limit={PAGE}")).await;
            let page: Page = serde_json::from_slice(&page).unwrap();
            lines += page.changes.len() as u64;
            after = page.next.0;
        }
        assert_eq!(lines, until);
        (lines, began.elapsed())
    }

    async fn read_files(&self, url: &str) -> (u64, Duration) {
        let began = Instant::now();
        let mut lines = 0;
        for path in &self.segments {
            let file = get(&self.client, &format!("{url}{path}")).await;
            let plain = zstd::stream::decode_all(&*file).unwrap();
            // As much work as for a page: each change is found.
            for line in plain.split_inclusive(|byte| *byte == b'\n') {
                let _: &serde_json::value::RawValue = serde_json::from_slice(line).unwrap();
                lines += 1;
            }
        }
        (lines, began.elapsed())
    }

    /// Compares closed documents of the gateway with their copies.
    fn closed_documents(&self, runtime: &Runtime) {
        let segment = ("a segment", self.segments[0].clone());
        for (name, path) in self.documents.iter().chain([&segment]) {
            let [gateway, nginx] = [&self.gateway.url, &self.nginx.url].map(|server| format!("{server}{path}"));
            let copy = runtime.block_on(get(&self.client, &nginx));
            assert_eq!(copy, runtime.block_on(get(&self.client, &gateway)), "{path}");
            compare(
                &format!("{name}, {} bytes", copy.len()),
                "responses",
                3,
                vec![
                    Contender::timed("nginx, from a file", || Wrk::getting().rate(&nginx)),
                    Contender::timed("the gateway", || Wrk::getting().rate(&gateway)),
                ],
            );
        }
    }
}

/// A page of `/changes`, whose changes are not read further.
#[derive(serde::Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    changes: Vec<&'a serde_json::value::RawValue>,
    next: Seq,
}

async fn get(client: &reqwest::Client, url: &str) -> Bytes {
    let response = client.get(url).send().await.unwrap();
    assert_eq!(response.status(), 200, "{url}");
    response.bytes().await.unwrap()
}
