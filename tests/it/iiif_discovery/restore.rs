//! After a restore from a backup the stream is another one, so that no cache shows lost changes.

use serde_json::Value;
use tidings::journal::store::sqlite::{backup::back_up, restore::restore};

use crate::support::{
    gateway::{Gateway, free_address},
    iiif_walk::walk,
    journal_fixture::configuration,
    subscription_fixture::post,
};

#[tokio::test]
async fn restored_journal_has_another_stream_without_the_lost_changes() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("backup"));
    let address = free_address();
    let start = || Gateway::start_elsewhere(&data, &["--listen", &address], None);
    let gateway_before = start();
    for number in 1..=130 {
        post(&gateway_before, number).await;
    }
    back_up(&data, &file, &mut |_, _| {}).unwrap();
    for number in 131..=210 {
        post(&gateway_before, number).await;
    }
    let before = gateway_before.json("/iiif").await;
    let path = |document: &Value, gateway: &Gateway| {
        document["id"].as_str().unwrap().strip_prefix(&gateway.url).unwrap().to_owned()
    };
    let (stream, last) = (path(&before, &gateway_before), path(&before["last"], &gateway_before));
    assert_eq!(walk(&format!("{}/iiif", gateway_before.url), None, None).unwrap().included.len(), 210);
    assert!(gateway_before.stop().success());

    restore(&file, &data, true, &mut |_, _| {}).unwrap();
    let restored = start();
    let get = async |path: &str| restored.http.get(format!("{}{path}", restored.url)).send().await.unwrap();
    for path in [&stream, &last] {
        let gone = get(path).await;
        assert_eq!(gone.status(), 410);
        let problem: Value = gone.json().await.unwrap();
        assert_eq!((&problem["start"], &problem["snapshot"]), (&"/iiif".into(), &"/snapshot".into()));
    }
    for number in 1001..=1150 {
        post(&restored, number).await;
    }
    // The numbers of the lost changes are skipped, and with them pages.
    let read = walk(&format!("{}/iiif", restored.url), None, None).unwrap();
    assert_eq!(read.included.len(), 130 + 150);
    assert_ne!(path(&restored.json("/iiif").await, &restored), stream);
}

#[tokio::test]
async fn other_settings_make_another_stream() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let start = |lines: &str| {
        let file = configuration(folder.path(), lines);
        Gateway::start_elsewhere(folder.path(), &["--listen", &address, "--config", &file], None)
    };
    let stream = async |gateway: &Gateway| {
        let response = gateway.http.get(format!("{}/iiif?object=http%3A%2F%2Fh", gateway.url)).send().await.unwrap();
        response.url().path().to_owned()
    };
    let first = start("");
    post(&first, 1).await;
    let before = stream(&first).await;
    assert!(first.stop().success());
    let same = start("[iiif_discovery]\nclass = \"Object\"\n");
    assert_eq!(stream(&same).await, before);
    assert!(same.stop().success());
    for (lines, difference) in [
        ("[iiif_discovery]\nclass = \"Manifest\"\n", "pages that caches keep have another class"),
        ("[iiif_discovery]\nwording = \"aggregator\"\n", "they have other types"),
        ("[journal]\nkeep_days = 30\n", "they link to pages that will be removed"),
    ] {
        let after = start(lines);
        let gone = after.http.get(format!("{}{before}?object=http%3A%2F%2Fh", after.url)).send().await.unwrap();
        assert_eq!(gone.status(), 410, "{difference}");
        assert_ne!(stream(&after).await, before, "{difference}");
        assert!(after.stop().success());
    }
    // The gateway is not reached under this URL here.
    let moved = start("[server]\npublic_url = \"https://other.example.org\"\n");
    for path in ["iiif", "ldes"] {
        let of_moved = redirection(&moved, path).await;
        assert!(of_moved.starts_with("https://other.example.org/"), "{of_moved}");
        let here = of_moved.replace("https://other.example.org", &moved.url);
        assert_eq!(moved.http.get(here).send().await.unwrap().status(), 200);
    }
    let gone = moved.http.get(format!("{}{before}?object=http%3A%2F%2Fh", moved.url)).send().await.unwrap();
    assert_eq!(gone.status(), 410, "pages that caches keep have other URLs");
}

/// Returns the URL to which an entry redirects.
async fn redirection(gateway: &Gateway, path: &str) -> String {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let response = client.get(format!("{}/{path}", gateway.url)).send().await.unwrap();
    response.headers()["location"].to_str().unwrap().to_owned()
}
