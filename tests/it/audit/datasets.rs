//! Audits of archived datasets compare the lists of their platforms with the registry, and download nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{audit_at, harvests::found, report_at};
use crate::support::{
    gateway::{Gateway, PATIENCE},
    ingest_fixture::{md5, table},
    journal_fixture::configuration,
    scripted_platform::{Answer, PlatformServer},
};

/// A platform with one dataset, and a gateway that has archived it.
struct Archive {
    server: PlatformServer,
    gateway: Gateway,
    _folder: tempfile::TempDir,
}

impl Archive {
    async fn start(files: &[(&str, &str)]) -> Self {
        let server = PlatformServer::start().await;
        let folder = tempfile::tempdir().unwrap();
        let lines = format!(
            "[delivery]\nallow = [\"127.0.0.1\"]\n[filesets.platforms]\nzenodo = [\"{}\"]\n\
             [sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
             [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n\
             first_retry_seconds = 1\naudit_every = \"7d\"\n",
            server.url
        );
        let config = configuration(folder.path(), &lines);
        let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
        let archive = Self { server, gateway, _folder: folder };
        archive.publish(files, None);
        archive.server.put("/records/17", Answer::html("A dataset"));
        let url = format!("{}/records/17", archive.server.url);
        let request = json!({ "ingest_type": "dataset", "base_url": url }).to_string();
        assert_eq!(archive.gateway.post("requests", "application/json", request).await.0, 201);
        archive.until(|job| job["state"] == "archived").await;
        archive
    }

    /// Publishes files with these contents, and a number of them that may be another one.
    fn publish(&self, files: &[(&str, &str)], number: Option<usize>) {
        let url = &self.server.url;
        let entry = |(name, content): &(&str, &str)| {
            self.server.put(&format!("/f/{name}"), table(content));
            let checksum = format!("md5:{}", md5(content.as_bytes()));
            json!({ "key": name, "size": content.len(), "checksum": checksum,
                "links": { "content": format!("{url}/f/{name}") } })
        };
        let entries: Vec<_> = files.iter().map(entry).collect();
        let bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
        let count = number.unwrap_or(files.len());
        let files = json!({ "enabled": true, "count": count, "total_bytes": bytes, "entries": entries });
        let record = json!({ "id": 17, "metadata": { "title": "T", "access_right": "open" }, "files": files });
        self.server.put("/api/records/17", Answer::json(&record));
    }

    /// Waits until the job of the dataset is in this condition.
    async fn until(&self, condition: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let jobs = self.gateway.json("/filesets").await;
            if condition(&jobs["filesets"][0]) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{jobs}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn audit(&self, more: &[&str]) -> (i32, Vec<String>, Value) {
        let (code, report) = report_at(&self.gateway.url, "archive", more).await;
        (code, found(&report), report)
    }

    fn downloads(&self) -> usize {
        self.server.requests().iter().filter(|request| request.place.contains("/f/")).count()
    }
}

const FILES: [(&str, &str); 3] = [("a.csv", "a\n"), ("b.csv", "bb\n"), ("c.csv", "ccc\n")];

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dataset_differences_are_found_without_downloads_and_repaired() {
    let archive = Archive::start(&FILES).await;
    let (code, found, report) = archive.audit(&[]).await;
    assert_eq!((code, found, &report["objects"], &report["registered"]), (0, Vec::new(), &json!(1), &json!(1)));
    let downloads = archive.downloads();

    archive.publish(&[("a.csv", "a\n"), ("b.csv", "BB\n"), ("d.csv", "d\n")], None);
    let (code, found, report) = archive.audit(&[]).await;
    assert_eq!((code, found), (1, texts(&["different b.csv", "extra c.csv", "missing d.csv"])), "{report}");
    let members = report["differences"].as_array().unwrap().iter().find(|found| found["kind"] == "different").unwrap();
    assert_eq!((&members["members"], archive.downloads()), (&json!(["content.digest"]), downloads), "{report}");

    let (code, _, report) = archive.audit(&["--repair", "--yes"]).await;
    assert_eq!((code, &report["corrections"]), (0, &json!(1)), "{report}");
    let head = archive.gateway.head().await;
    let began = Instant::now();
    while archive.gateway.head().await == head && archive.audit(&[]).await.0 != 0 {
        assert!(began.elapsed() < PATIENCE);
    }
    let (code, found, report) = archive.audit(&[]).await;
    assert_eq!((code, found), (0, Vec::new()), "{report}");
    // The other files were not downloaded again.
    assert_eq!(archive.downloads(), downloads + 2);
    archive.until(|job| job["state"] == "archived").await;
}

/// Only the platform's own word says something about an archived dataset.
#[tokio::test(flavor = "multi_thread")]
async fn dataset_verdicts_need_the_voice_of_the_platform() {
    let archive = Archive::start(&FILES).await;
    let page = |status| Answer::new(status, "<html>unusual traffic").with("content-type", "text/html");
    archive.server.put("/api/records/17", page(403));
    let (code, found, report) = archive.audit(&[]).await;
    assert_eq!((code, found, &report["unanswered"]), (2, Vec::new(), &json!(1)), "{report}");
    // A list with fewer entries than its number says.
    archive.publish(&FILES[..2], Some(3));
    let (code, found, report) = archive.audit(&["--repair", "--yes"]).await;
    assert_eq!((code, found, &report["unanswered"]), (2, Vec::new(), &json!(1)), "{report}");

    let refusal = Answer::json(&json!({ "message": "not for you" })).status(403);
    archive.server.put("/api/records/17", refusal);
    let (code, found, report) = archive.audit(&[]).await;
    assert_eq!((code, found), (1, texts(&["different 17"])), "{report}");
    assert_eq!(report["differences"][0]["members"], json!(["state"]));
    assert_eq!(archive.audit(&["--repair", "--yes"]).await.0, 0);
    archive.until(|job| job["state"] == "failed").await;
    let url = format!("{}/records/17", archive.server.url);
    let object = archive.gateway.json(&format!("/objects?uri={url}")).await;
    let states: Vec<_> = object["items"].as_array().unwrap().iter().map(|item| item["state"].clone()).collect();
    assert!(states.contains(&json!("PLATFORM_RESTRICTED")) && states.contains(&json!("ACTIVE")), "{object}");
    let (code, found, report) = archive.audit(&[]).await;
    assert_eq!((code, found, &report["objects"]), (0, Vec::new(), &json!(0)), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_datasets_are_refused() {
    let archive = Archive::start(&FILES[..1]).await;
    let (code, _, stderr) = audit_at(&archive.gateway.url, "archive", &["--sample", "5"]).await;
    assert!(code == 2 && stderr.contains("ample needs a repository that can be asked for single objects"), "{stderr}");
}
