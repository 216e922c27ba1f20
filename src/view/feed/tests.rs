//! Of the feed as it is rendered: once for a crowd, and dated when its time is over.

use std::sync::Arc;

use chrono::{TimeDelta, Utc};

use super::{CachePolicy, Content, FeedView, Newest, Representation, Seq, Spool};
use crate::{
    journal::{DuplicatePolicy, Journal, JournalSettings, Submission, settle::SourcePolicy, store::sqlite},
    model::{Draft, SourceName},
};

async fn view_of(changes: usize, folder: &std::path::Path) -> FeedView {
    let store = sqlite::SqliteStore::open(folder, sqlite::SqliteOptions::default()).unwrap();
    let (journal, _writer) = Journal::start(store, JournalSettings::default()).unwrap();
    let draft: Draft =
        serde_json::from_str(r#"{"object":"http://h/1","items":[{"uri":"http://h/1","change":"ADD"}]}"#).unwrap();
    let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
    let drafts = vec![(None, draft); changes];
    journal
        .append(Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None })
        .await
        .unwrap();
    FeedView::new(journal, "http://h/", folder, None, Spool::new(folder, 64 << 20))
}

/// Where the bytes of what each of a crowd got lie in memory: once, if it was rendered once.
async fn renderings<F>(ask: impl Fn() -> F) -> usize
where
    F: Future<Output = Representation> + Send + 'static,
{
    let crowd: Vec<_> = (0..200).map(|_| tokio::spawn(ask())).collect();
    let mut documents = Vec::new();
    for asked in crowd {
        documents.push(asked.await.unwrap().body);
    }
    let place = |body: &Content| match body {
        Content::Memory(bytes) => bytes.as_ptr(),
        Content::File(_) => panic!("a small document is in a file"),
    };
    let places: std::collections::BTreeSet<_> = documents.iter().map(place).collect();
    places.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_causes_one_rendering() {
    let folder = tempfile::tempdir().unwrap();
    let FeedView(parts) = view_of(350, folder.path()).await;
    let newest = || {
        let parts = Arc::clone(&parts);
        async move { parts.newest().await.unwrap() }
    };
    let archived = || {
        let parts = Arc::clone(&parts);
        async move { parts.archive_page(1).await.unwrap() }
    };
    assert_eq!(renderings(newest).await, 1);
    assert_eq!(renderings(archived).await, 1);
}

#[test]
fn the_feed_is_dated_when_its_last_second_is_over_for_good() {
    let document = Representation::new("text/plain", "x", CachePolicy::Revalidate);
    let served = |age| {
        let received = Some(Utc::now() - TimeDelta::seconds(age));
        let answer = Newest::new(Seq(1), Seq(1), received, document.clone())
            .serve()
            .respond(&axum::http::Method::GET, &axum::http::HeaderMap::new());
        answer.headers().contains_key("last-modified")
    };
    assert!(!served(0) && !served(50) && served(70));
}
