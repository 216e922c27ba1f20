//! Archived feed after retention and after a restore: a reader finds every retained change, in whole pages, and
//! a removed page answers 410.

use std::{collections::BTreeSet, path::Path};

use reqwest::Method;
use serde_json::Value;
use tidings::{
    journal::{
        retention::Retention,
        store::sqlite::{backup::back_up, restore::restore},
    },
    model::Timestamp,
};

use crate::support::feed_reader::{Element, Gateway, changes, draft};

/// Returns the numbers that a reader finds from the newest page on, by the links to previous pages.
async fn read_archive(gateway: &Gateway) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let (mut link, mut newer) = ("/feed".to_owned(), None::<String>);
    loop {
        // A page from the time before the removal still links to the previous page.
        if newer.is_some() && status(gateway, &link).await == 410 {
            return found;
        }
        let feed = Element::parse(&gateway.document(&link).await);
        for change in changes(&feed) {
            assert!(found.insert(change["seq"].as_u64().unwrap()), "{change} comes twice");
        }
        if let Some(newer) = newer.filter(|newer| newer != "/feed") {
            assert_eq!(feed.link("next-archive"), Some(newer.as_str()));
        }
        let Some(prev) = feed.link("prev-archive").map(str::to_owned) else { return found };
        newer = Some(link);
        link = prev;
    }
}

async fn status(gateway: &Gateway, link: &str) -> u16 {
    gateway.ask(Method::GET, link, &[]).await.status().as_u16()
}

async fn grow(gateway: &Gateway, by: u64) {
    let added = |number: u64| {
        let uri = format!("http://h/{number}/{}", uuid::Uuid::new_v4());
        draft(serde_json::json!({ "object": uri, "items": [{ "uri": uri, "change": "ADD" }] }))
    };
    gateway.append("fedora3", (0..by).map(added).collect()).await;
}

async fn keep(gateway: &Gateway, changes: u64) {
    let retention = Retention { changes: Some(changes), ..Retention::default() };
    retention.enforce(&gateway.journal, Timestamp::now()).await.unwrap();
}

fn pages_on_disk(data: &Path) -> usize {
    let folders = std::fs::read_dir(data.join("pages")).unwrap();
    folders.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count()).sum()
}

#[tokio::test]
async fn retention_makes_old_pages_gone() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    grow(&gateway, 850).await;
    assert_eq!(read_archive(&gateway).await, (1..=850).collect());
    assert_eq!(pages_on_disk(folder.path()), 14);
    // Change 401 is the first of a page. Change 351 is not, so the rest of its page is not shown.
    for (kept, first, whole) in [(500, 351, 401), (450, 401, 401), (60, 791, 791)] {
        keep(&gateway, kept).await;
        assert_eq!(gateway.journal.first().0, first);
        assert_eq!(read_archive(&gateway).await, (whole..=850).collect(), "{kept}");
        for page in 1..=6 {
            let expected = if (page - 1) * 100 + 1 >= first { 200 } else { 410 };
            assert_eq!(status(&gateway, &format!("/feed/archive/{page}")).await, expected, "{kept}: {page}");
        }
    }
    let problem = gateway.ask(Method::GET, "/feed/archive/1", &[]).await.json::<Value>().await.unwrap();
    assert_eq!((&problem["first"], &problem["snapshot"]), (&791.into(), &"/snapshot".into()));
    for (number, expected) in [(1, 410), (790, 410), (791, 200), (850, 200), (851, 404)] {
        assert_eq!(status(&gateway, &format!("/changes/{number}")).await, expected, "{number}");
    }
    grow(&gateway, 250).await;
    assert_eq!(read_archive(&gateway).await, (801..=1100).collect());
    assert_eq!(pages_on_disk(folder.path()), 4, "removed pages still use disk space");
    gateway.close().await;
}

#[tokio::test]
async fn restore_skips_pages_without_breaking_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("backup"));
    let gateway = Gateway::open(&data).await;
    grow(&gateway, 320).await;
    back_up(&data, &file, &mut |_, _| {}).unwrap();
    grow(&gateway, 200).await;
    let before = read_archive(&gateway).await;
    gateway.close().await;

    let next = restore(&file, &data, true, &mut |_, _| {}).unwrap().next_seq.0;
    let gateway = Gateway::open(&data).await;
    assert_eq!(read_archive(&gateway).await, (1..=320).collect());
    for by in [5, 120, 200] {
        grow(&gateway, by).await;
        let head = gateway.journal.head().0;
        assert_eq!(read_archive(&gateway).await, (1..=320).chain(next..=head).collect());
        assert!(next > *before.last().unwrap());
    }
    assert_eq!(status(&gateway, "/feed/archive/4").await, 200);
    for (number, expected) in [(320, 200), (321, 404), (next - 1, 404), (next, 200)] {
        assert_eq!(status(&gateway, &format!("/changes/{number}")).await, expected, "{number} of {next}");
    }
    for left_out in [5, 6, next / 100 - 1] {
        assert_eq!(status(&gateway, &format!("/feed/archive/{left_out}")).await, 404, "{left_out}");
    }
    gateway.close().await;
}
