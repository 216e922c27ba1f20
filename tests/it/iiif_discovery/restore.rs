//! After a restore from a backup the stream is another one, so that no cache shows lost changes.

use serde_json::Value;
use tidings::journal::store::sqlite::{backup::back_up, restore::restore};

use crate::support::{
    gateway::Gateway,
    iiif_walk::walk,
    subscription_fixture::{gateway, post},
};

#[tokio::test]
async fn restored_journal_has_another_stream_without_the_lost_changes() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("backup"));
    let start = || Gateway::start(&data);
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
    let before = gateway(folder.path(), "");
    post(&before, 1).await;
    let stream = before.json("/iiif").await["id"].as_str().unwrap().strip_prefix(&before.url).unwrap().to_owned();
    assert!(before.stop().success());
    let after = gateway(folder.path(), "[iiif_discovery]\nclass = \"Manifest\"\n");
    let gone = after.http.get(format!("{}{stream}", after.url)).send().await.unwrap();
    assert_eq!(gone.status(), 410, "pages that caches keep have another class");
}
