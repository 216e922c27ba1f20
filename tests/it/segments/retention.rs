//! Segments go with their changes, or stay and have what retention has removed.

use std::{fs, path::Path};

use serde_json::json;

use super::{content, fill, segments, until};
use crate::support::{
    gateway::Gateway,
    journal_fixture::{configuration, post},
};

/// Starts a gateway that keeps 5000 changes, before a span was sealed if it keeps all segments. Its journal gets one change
/// more.
async fn start(folder: &Path, keep: &str) -> Gateway {
    if keep == "changes" {
        let sealing = Gateway::start(folder);
        segments(&sealing, 3).await;
    }
    let lines = format!(
        "[journal]\nkeep_changes = 5000\n[segments]\nkeep = \"{keep}\"\n\
         [sources.content-change]\ntransport = \"http\"\ndialect = \"content-change\"\n"
    );
    let gateway = Gateway::start_with(folder, &["--config", &configuration(folder, &lines)]);
    until("all closed spans are sealed", async || {
        let list = gateway.json("/segments?after=20000").await;
        (list["segments"].as_array()?.len() == 1).then_some(())
    })
    .await;
    // Retention looks again when a change arrives, and otherwise after a minute.
    post(&gateway, 31_001).await;
    until("old changes are removed", async || {
        (gateway.json("/changes?limit=1").await["changes"][0]["seq"] == 26_002).then_some(())
    })
    .await;
    gateway
}

fn files(folder: &Path) -> usize {
    let folders = fs::read_dir(folder.join("segments/sha256")).unwrap();
    folders.map(|folder| fs::read_dir(folder.unwrap().path()).unwrap().count()).sum()
}

#[tokio::test]
async fn segments_go_with_their_changes() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 31_000).await;
    let gateway = start(folder.path(), "changes").await;
    let left = segments(&gateway, 1).await;
    assert_eq!(left[0]["first"], 20_001);
    until("the files are removed", async || (files(folder.path()) == 1).then_some(())).await;
    // The last segment still has some that retention has removed.
    for (after, expected) in [(0, 410), (19_999, 410), (20_000, 200), (26_000, 200)] {
        let answer = gateway.http.get(format!("{}/changes?after={after}", gateway.url)).send().await.unwrap();
        assert_eq!(answer.status(), expected, "{after}");
    }
}

#[tokio::test]
async fn kept_segments_have_the_removed_changes() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 31_000).await;
    let gateway = start(folder.path(), "all").await;
    let sealed = segments(&gateway, 3).await;
    let changes = gateway.changes().await;
    assert_eq!(changes.len(), 31_001, "pages have what the journal lacks");
    assert!((1..).zip(&changes).all(|(seq, change)| change["seq"] == seq));
    assert_eq!(content(&gateway, &sealed[1]).await, changes[10_000..20_000]);
    // Segments do not say what the public sees.
    let public = gateway.http.get(format!("{}/changes?after=0&visibility=true", gateway.url)).send().await.unwrap();
    assert_eq!(public.status(), 410);
    let filtered = gateway.json("/changes?after=0&limit=1000&object=http://localhost/objects/7").await;
    assert_eq!(filtered["changes"][0]["seq"], 7);

    // A bit that has flipped is found.
    let name = sealed[0]["file"].as_str().unwrap();
    let path = folder.path().join("segments/sha256").join(&name[..2]).join(name);
    let mut bytes = fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let damaged = gateway.http.get(format!("{}/changes?after=0&limit=1000", gateway.url)).send().await.unwrap();
    assert_eq!(damaged.status(), 503, "a copy of the file can bring the changes back");
    gateway.until_metric("tidings_segment_failures_total 1").await;
    let intact = gateway.json("/changes?after=10000&limit=1").await;
    assert_eq!(intact["changes"][0], json!(changes[10_000]));
}
