//! Tests of rendering: once for concurrent requests, and dated when its second is over.

use std::{path::Path, sync::Arc, time::Duration};

use chrono::{TimeDelta, Utc};

use super::{CachePolicy, Content, FeedLabels, FeedView, NewestDocument, Representation, Seq, Spool};
use crate::{
    journal::TailBounds,
    view::test_journal::{journal_of, small_draft},
};

async fn view_of(changes: usize, folder: &Path) -> FeedView {
    let journal = journal_of(small_draft(), changes, TailBounds::default().changes, folder).await;
    FeedView::new(journal, "http://h/", folder, None, Spool::new(folder, 64 << 20), FeedLabels::default())
}

/// Counts the distinct documents in memory that concurrent requests receive: one if it was rendered once.
async fn renderings<F>(ask: impl Fn() -> F) -> usize
where
    F: Future<Output = Representation> + Send + 'static,
{
    let requests: Vec<_> = (0..200).map(|_| tokio::spawn(ask())).collect();
    let mut documents = Vec::new();
    for request in requests {
        documents.push(request.await.unwrap().body);
    }
    let address = |body: &Content| match body {
        Content::Memory(bytes) => bytes.as_ptr(),
        Content::File(_) => panic!("a small document is in a file"),
    };
    let addresses: std::collections::BTreeSet<_> = documents.iter().map(address).collect();
    addresses.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_cause_one_rendering() {
    let folder = tempfile::tempdir().unwrap();
    let feed = view_of(350, folder.path()).await.current();
    let newest = || {
        let feed = Arc::clone(&feed);
        async move { feed.newest().await.unwrap() }
    };
    let archived = || {
        let feed = Arc::clone(&feed);
        async move { feed.archive_page(1).await.unwrap() }
    };
    assert_eq!(renderings(newest).await, 1);
    assert_eq!(renderings(archived).await, 1);
}

#[test]
fn feed_has_last_modified_only_after_a_minute() {
    let document = Representation::new("text/plain", "x", CachePolicy::Revalidate);
    let received = Utc::now();
    let newest = NewestDocument::new(Seq(1), Seq(1), Some(received), document);
    let is_final = |by_clock, since_rendered| {
        newest.is_final(received + TimeDelta::seconds(by_clock), Duration::from_secs(since_rendered))
    };
    assert!(!is_final(0, 0) && !is_final(50, 50) && is_final(70, 70));
    assert!(!is_final(3600, 0), "the clock of this node is ahead of the journal's");
    assert!(!is_final(-3600, 70), "the clock of this node is behind, or was set back");
    let response = newest.serve().respond(&axum::http::Method::GET, &axum::http::HeaderMap::new());
    assert!(!response.headers().contains_key("last-modified"));
}
