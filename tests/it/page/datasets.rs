//! Jobs that archive datasets: their progress, and the button that cancels one.

use serde_json::json;

use super::{OpenPage, actions::until};
use crate::{
    status::datasets::lines,
    support::{scripted_dataset::DatasetServer, subscription_fixture::gateway},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dataset_shows_its_progress_and_is_cancelled() {
    let server = DatasetServer::start().await;
    server.put("a.csv", "one");
    server.allow_ends(0);
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &lines(&server, ""));
    let mut page = OpenPage::open(&format!("{}/#/datasets", gateway.url));
    let request = json!({ "ingest_type": "dataset", "base_url": server.dataset() }).to_string();
    let (status, answer) = gateway.post("requests", "application/json", request).await;
    assert_eq!(status, 201, "{answer}");
    until(&gateway, "/filesets", |shown| shown["filesets"][0]["progress"]["files"] == 1).await;
    let dataset = server.dataset();
    page.until_row("Datasets", &dataset, "✓ running", "0 of 1 file", &[&format!("Cancel {dataset} of archive")]);
    page.confirm(
        &format!("Cancel {dataset} of archive"),
        "1 dataset is given up after 0 of 1 file. Files that are archived stay.",
    );
    until(&gateway, "/filesets", |shown| shown["filesets"][0]["state"] == "cancelled").await;
    page.until_row("Datasets", &dataset, "○ cancelled", "", &[]);
    page.assert_quiet();
}
