//! A feed reader follows `/feed` and every `prev-archive` link while changes keep arriving. It finds each
//! change that existed at its start exactly once, and reconstructs it without loss.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;
use tidings::model::Seq;

use crate::support::feed_reader::{Element, Gateway, append, changes, varied};

/// Returns the changes that the reader finds, by number; it awaits `pace` at each document.
async fn read_archive(gateway: &Gateway, mut pace: impl AsyncFnMut()) -> BTreeMap<u64, Value> {
    let mut found = BTreeMap::new();
    let mut ids = BTreeSet::new();
    let mut next = Some("/feed".to_owned());
    while let Some(link) = next {
        let feed = Element::parse(&gateway.document(&link).await);
        let details = changes(&feed);
        let numbers: Vec<_> = details.iter().map(|change| change["seq"].as_u64().unwrap()).collect();
        assert!(numbers.is_sorted_by(|newer, older| newer == &(older + 1)), "{link}: {numbers:?}");
        assert_eq!(feed.one("fh:archive").is_some(), link != "/feed", "{link}");
        for change in details {
            assert!(ids.insert(change["id"].to_string()), "{link} has a change again");
            found.insert(change["seq"].as_u64().unwrap(), change);
        }
        next = feed.link("prev-archive").map(str::to_owned);
        pace().await;
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archive_reader_rebuilds_every_change() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    for hundred in 0..7 {
        gateway.append("fedora3", (hundred * 100..(hundred + 1) * 100).map(varied).collect()).await;
    }
    let begun = gateway.journal.head();
    assert!(begun > Seq(500), "only {begun} changes");

    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (journal, stop) = (gateway.journal.clone(), Arc::clone(&stop));
        async move {
            let mut number = 10_000;
            while !stop.load(Ordering::Relaxed) {
                append(&journal, "islandora", (number..number + 10).map(varied).collect()).await;
                number += 10;
            }
        }
    });
    let mut head = gateway.journal.watch();
    let found = read_archive(&gateway, async || {
        head.wait_for(|head| head.0 % 50 > 25).await.unwrap();
        head.changed().await.unwrap();
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();

    let journaled = gateway.journaled(begun).await;
    assert_eq!(journaled.len(), usize::try_from(begun.0).unwrap());
    for (seq, change) in &journaled {
        assert_eq!(found.get(seq), Some(change));
    }
    assert!(found.keys().copied().eq(1..=*found.keys().last().unwrap()), "there is a gap");
    for member in ["filled", "late", "purge", "parent", "types", "sourceVersion", "sourceEventId"] {
        assert!(journaled.values().any(|change| !change[member].is_null()), "no change has {member}");
    }
    for member in ["late", "inferred", "beginsIn", "content", "stateBefore", "stateAfter"] {
        assert!(journaled.values().any(|change| !change["items"][0][member].is_null()), "no item has {member}");
    }

    let head = gateway.journal.head();
    assert!(head > begun);
    assert_eq!(read_archive(&gateway, async || {}).await, gateway.journaled(head).await);
}

#[tokio::test]
async fn feed_with_changes_is_never_empty() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    let mut number = 1;
    for (head, details, archived) in [
        (0, 0, None),
        (1, 1, None),
        (99, 99, None),
        (100, 100, None),
        (199, 199, None),
        (200, 100, Some(1)),
        (299, 199, Some(1)),
        (300, 100, Some(2)),
    ] {
        while gateway.journal.head() < Seq(head) {
            // An ADD is always a change, whatever came before it.
            let many = usize::try_from(head - gateway.journal.head().0).unwrap();
            gateway.append("fedora3", (number..).map(|n| varied(n * 8 + 1)).take(many).collect()).await;
            number += head;
        }
        assert_eq!(gateway.journal.head(), Seq(head));
        let feed = Element::parse(&gateway.document("/feed").await);
        assert_eq!(changes(&feed).len(), details, "with {head} changes");
        let expected = archived.map(|page: u64| format!("https://example.org/tidings/feed/archive/{page}"));
        assert_eq!(feed.link("prev-archive"), expected.as_deref(), "with {head} changes");
        assert_eq!(feed.link("self"), Some("https://example.org/tidings/feed"));
        assert_eq!(feed.link("current"), Some("https://example.org/tidings/feed"));
        assert_eq!(feed.link("service"), Some("https://example.org/tidings/service"));
        assert_eq!(feed.text_of("id"), gateway.journal.identity().urn().to_string());
        if head == 0 {
            assert_eq!(feed.text_of("updated"), "1970-01-01T00:00:00+00:00");
        }
    }
}
