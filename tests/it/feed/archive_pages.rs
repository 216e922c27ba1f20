//! An archive page has the same bytes for ever: after more changes, after a restart, from memory, from disk, or
//! rendered again. It is rendered again only if necessary.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytes::Bytes;
use reqwest::{Method, StatusCode};
use tidings::{journal::retention::Retention, model::Timestamp};

use crate::support::feed_reader::{Element, Gateway, PUBLIC, append, changes, varied};

async fn grow(gateway: &Gateway, head: u64) {
    while gateway.journal.head().0 < head {
        let missing = head - gateway.journal.head().0;
        // An ADD is always a change, whatever came before it.
        append(&gateway.journal, "fedora3", (0..missing).map(|number| varied(number * 8 + 1)).collect()).await;
    }
}

/// Returns the bytes of a page, plain and compressed with gzip.
async fn page(gateway: &Gateway, number: u64) -> (Bytes, Bytes) {
    let link = format!("/feed/archive/{number}");
    let plain = gateway.ask(Method::GET, &link, &[]).await;
    let gzip = gateway.ask(Method::GET, &link, &[("accept-encoding", "gzip")]).await;
    assert_eq!((plain.status(), gzip.status()), (StatusCode::OK, StatusCode::OK), "{link}");
    (plain.bytes().await.unwrap(), gzip.bytes().await.unwrap())
}

async fn pages(gateway: &Gateway, numbers: std::ops::RangeInclusive<u64>) -> BTreeMap<u64, (Bytes, Bytes)> {
    let mut pages = BTreeMap::new();
    for number in numbers {
        pages.insert(number, page(gateway, number).await);
    }
    pages
}

/// Returns the files under `pages` with their modification times.
fn on_disk(data: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let folders: Vec<_> = fs::read_dir(data.join("pages")).unwrap().map(|folder| folder.unwrap().path()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    let files = fs::read_dir(&folders[0]).unwrap().map(|file| file.unwrap());
    files.map(|file| (file.path(), file.metadata().unwrap().modified().unwrap())).collect()
}

#[tokio::test]
async fn archive_pages_never_change() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    append(&gateway.journal, "fedora3", (0..520).map(varied).collect()).await;
    grow(&gateway, 450).await;
    let first = pages(&gateway, 1..=3).await;
    let files = on_disk(folder.path());
    assert_eq!(files.len(), 6, "{files:?}");

    grow(&gateway, 700).await;
    assert_eq!(pages(&gateway, 1..=3).await, first, "after more changes");
    gateway.close().await;
    let gateway = Gateway::open(folder.path()).await;
    assert_eq!(pages(&gateway, 1..=3).await, first, "after a restart, from disk");
    assert_eq!(on_disk(folder.path()), files, "a page on disk was rendered again");

    fs::remove_dir_all(folder.path().join("pages")).unwrap();
    assert_eq!(pages(&gateway, 1..=3).await, first, "from memory");
    assert!(!folder.path().join("pages").exists(), "a page in memory was rendered again");
    gateway.close().await;
    let gateway = Gateway::open(folder.path()).await;
    assert_eq!(pages(&gateway, 1..=3).await, first, "after a restart, rendered anew");
    assert_eq!(on_disk(folder.path()).len(), 6);
    gateway.close().await;

    let gateway = Gateway::open_at(folder.path(), "https://example.net").await;
    let moved = page(&gateway, 1).await.0;
    assert_ne!(moved, first[&1].0);
    assert!(!String::from_utf8(moved.to_vec()).unwrap().contains(PUBLIC), "link with the old URL");
    assert_eq!(on_disk(folder.path()).len(), 2, "pages with the old URL remained");
}

#[tokio::test]
async fn archive_pages_never_change_when_older_changes_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    grow(&gateway, 900).await;
    let first = pages(&gateway, 6..=7).await;
    let retention = Retention { changes: Some(450), ..Retention::default() };
    retention.enforce(&gateway.journal, Timestamp::now()).await.unwrap();
    assert_eq!(gateway.journal.first().0, 451);
    gateway.close().await;

    fs::remove_dir_all(folder.path().join("pages")).unwrap();
    let gateway = Gateway::open(folder.path()).await;
    assert!(pages(&gateway, 6..=7).await == first, "a page changed after its previous page was removed");
    // The link to the previous page remains, and its target is gone.
    let oldest = Element::parse(&gateway.document("/feed/archive/6").await);
    let prev = oldest.link("prev-archive").unwrap();
    assert_eq!(gateway.ask(Method::GET, prev, &[]).await.status(), StatusCode::GONE);
    gateway.close().await;
}

#[tokio::test]
async fn archive_page_exists_once_two_complete_pages_follow() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    for (head, statuses) in [
        (0, [404, 307, 404, 404, 404]),
        (100, [404, 307, 307, 404, 404]),
        (199, [404, 307, 307, 404, 404]),
        (200, [404, 200, 307, 307, 404]),
        (300, [404, 200, 200, 307, 307]),
    ] {
        grow(&gateway, head).await;
        for (number, status) in statuses.into_iter().enumerate() {
            let answer = gateway.ask(Method::GET, &format!("/feed/archive/{number}"), &[]).await;
            assert_eq!(answer.status(), status, "page {number} of {head} changes");
            match status {
                307 => {
                    assert_eq!(answer.headers()["location"], "https://example.org/tidings/feed");
                    assert_eq!(answer.headers()["cache-control"], "no-store");
                }
                404 => assert_eq!(answer.headers()["content-type"], "application/problem+json"),
                _ => {}
            }
        }
    }
    assert_eq!(gateway.ask(Method::GET, "/feed/archive/one", &[]).await.status(), 404);

    for (number, older, newer) in [(1, None, 2), (2, Some(1), 3)] {
        let address = |number: u64| format!("https://example.org/tidings/feed/archive/{number}");
        let feed = Element::parse(&gateway.document(&address(number)).await);
        assert!(feed.one("fh:archive").is_some());
        assert_eq!(feed.link("self"), Some(address(number).as_str()));
        assert_eq!(feed.link("current"), Some("https://example.org/tidings/feed"));
        assert_eq!(feed.link("prev-archive"), older.map(address).as_deref());
        assert_eq!(feed.link("next-archive"), Some(address(newer).as_str()));
        let details: Vec<_> = changes(&feed).iter().map(|change| change["seq"].as_u64().unwrap()).collect();
        assert!(details.into_iter().eq(((number - 1) * 100 + 1..=number * 100).rev()), "page {number}");
    }
}
