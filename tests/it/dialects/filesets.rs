//! The life of a dataset in messages about its archiving: requested, refused, archived, replaced by another version.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::support::gateway::Gateway;

const DATASET: &str = "https://doi.org/10.5072/zenodo.17";

const CONFIG: &str = r#"
[sources.requests]
transport = "http"
dialect = "fileset-request"

[sources.results]
transport = "http"
dialect = "fileset-result"
"#;

fn gateway(folder: &Path) -> Gateway {
    let config = folder.join("tidings.toml");
    fs::write(&config, CONFIG).unwrap();
    Gateway::start_with(&folder.join("data"), &["--config", config.to_str().unwrap()])
}

/// Posts one message; returns what became of it.
async fn send(gateway: &Gateway, source: &str, message: &Value) -> Value {
    let sent = gateway.http.post(format!("{}/hooks/{source}", gateway.url)).json(message).send().await.unwrap();
    assert!(sent.status().is_success(), "{}", sent.status());
    sent.json::<Value>().await.unwrap()["outcome"].clone()
}

fn request() -> Value {
    json!({ "ingest_type": "dataset", "base_url": DATASET, "ingest_request_source": "catalogue" })
}

fn failure(status: &str) -> Value {
    json!({ "hit": false, "status": status, "request": request(), "hops": [DATASET] })
}

/// Creates the result for an archived dataset with files of these paths and contents.
fn success(status: &str, files: &[(&str, char)]) -> Value {
    let manifest: Vec<_> = files
        .iter()
        .map(|(path, content)| {
            let sha256 = content.to_string().repeat(64);
            json!({ "path": path, "size": 7, "sha256": sha256, "status": "success",
                "platform_url": format!("https://zenodo.example/{path}") })
        })
        .collect();
    json!({ "hit": true, "status": status, "request": request(), "archiveorg_item_name": "zenodo-17",
        "ingest_strategy": "archiveorg-fileset", "manifest": manifest })
}

/// Returns the items of a change as `fragment change before>after`.
fn items(change: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let items = change["items"].as_array().unwrap().iter();
    let mut items: Vec<_> = items
        .map(|item| {
            let name = item["uri"].as_str().unwrap().strip_prefix(DATASET).unwrap().to_owned();
            let [kind, before, after] = ["change", "stateBefore", "stateAfter"].map(|member| text(&item[member]));
            format!("{name} {kind} {before}>{after}")
        })
        .collect();
    items.sort();
    items
}

#[tokio::test]
async fn filesets_have_states_and_versions() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let archived = success("success", &[("a.csv", 'a'), ("b/c.csv", 'b')]);
    let outcomes = [
        ("requests", request(), "accepted"),
        ("results", failure("platform-restricted"), "accepted"),
        ("requests", request(), "accepted"),
        ("results", archived.clone(), "accepted"),
        ("results", archived.clone(), "duplicate"),
        ("results", success("success-existing", &[("a.csv", 'a'), ("b/c.csv", 'b')]), "unchanged"),
        ("results", success("success", &[("a.csv", 'd'), ("e.csv", 'e')]), "accepted"),
        ("requests", request(), "accepted"),
        ("results", failure("platform-404"), "accepted"),
    ];
    for (source, message, outcome) in outcomes {
        assert_eq!(send(&gateway, source, &message).await, outcome, "{message}");
    }
    let changes = gateway.changes().await;
    assert!(changes.iter().all(|change| change["object"] == DATASET && change["user"]["name"] == "catalogue"));
    let expected: [&[&str]; 7] = [
        &[" - ->REQUESTED"],
        &[" - REQUESTED>PLATFORM_RESTRICTED"],
        &[" - PLATFORM_RESTRICTED>REQUESTED"],
        &[" UPDATE REQUESTED>ACTIVE", "#a.csv ADD ->ACTIVE", "#b/c.csv ADD ->ACTIVE"],
        &["#a.csv UPDATE ACTIVE>-", "#b/c.csv DELETE ACTIVE>-", "#e.csv ADD ->ACTIVE"],
        &[" - ACTIVE>REQUESTED"],
        &[" - REQUESTED>PLATFORM_NOT_FOUND"],
    ];
    assert_eq!(changes.iter().map(items).collect::<Vec<_>>(), expected);
    let (one, other) = (&changes[3]["items"][1]["content"], &changes[4]["items"][0]["content"]);
    assert_eq!(one["url"], "https://archive.org/download/zenodo-17/a.csv");
    assert_eq!(one["original"]["url"], "https://zenodo.example/a.csv");
    assert_ne!(one["digest"], other["digest"], "the same file, with other content");
}

/// A watched dataset of which one file has changed, and cannot be downloaded any more. The other one is as it was.
#[tokio::test]
async fn filesets_keep_the_files_that_a_failed_look_has_found_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let archived = success("success", &[("a.csv", 'a'), ("b.csv", 'b')]);
    assert_eq!(send(&gateway, "results", &archived).await, "accepted");
    for unchanged in ["exists", "success"] {
        let mut failed = success("error-platform-download", &[("a.csv", 'a'), ("b.csv", 'b')]);
        failed["hit"] = json!(false);
        failed["error_message"] = json!(format!("{unchanged}: gone"));
        failed["manifest"][0]["status"] = json!(unchanged);
        failed["manifest"][1]["status"] = json!("error-platform-download");
        send(&gateway, "results", &failed).await;
    }
    for change in gateway.changes().await.iter().skip(1) {
        assert!(items(change).iter().all(|item| !item.starts_with("#a.csv")), "{change}");
    }
    let found = gateway
        .json(&format!("/objects?uri={}", url::form_urlencoded::byte_serialize(DATASET.as_bytes()).collect::<String>()))
        .await;
    let of_file = found["items"].as_array().unwrap().iter().find(|item| item["uri"] == format!("{DATASET}#a.csv"));
    let of_file = of_file.unwrap();
    assert_eq!(of_file["state"], "ACTIVE", "{found}");
    assert_eq!(of_file["content"]["url"], "https://archive.org/download/zenodo-17/a.csv");
}

/// A file whose URL has a credential, in a result of somebody else.
#[tokio::test]
async fn filesets_publish_no_credentials_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let mut result = success("success", &[("a.csv", 'a'), ("b.csv", 'b')]);
    result["ingest_strategy"] = json!("web-fileset");
    let url = |query: &str| json!(format!("https://zenodo.example/a.csv?{query}"));
    result["manifest"][0]["platform_url"] = url("id=1&view_only=SECRET");
    result["manifest"][0]["terminal_url"] = url("id=1&token=SECRET");
    result["manifest"][0]["terminal_dt"] = json!("20260102030405");
    result["manifest"][1]["platform_url"] = url("temp_url_sig=SECRET&temp_url_expires=1");
    assert_eq!(send(&gateway, "results", &result).await, "accepted");
    let changes = gateway.changes().await;
    assert!(!changes[0].to_string().contains("SECRET"), "{}", changes[0]);
    assert_eq!(changes[0]["items"][1]["content"]["url"], "https://zenodo.example/a.csv?id=1");
}

#[tokio::test]
async fn filesets_with_a_failed_file_show_which() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let mut failed = success("mismatch-md5", &[("a.csv", 'a'), ("b.csv", 'b')]);
    failed["hit"] = json!(false);
    failed["manifest"][1]["status"] = json!("mismatch-md5");
    for message in [&failed, &success("success", &[("a.csv", 'a'), ("b.csv", 'c')])] {
        assert_eq!(send(&gateway, "results", message).await, "accepted");
    }
    let changes = gateway.changes().await;
    let [refused, archived] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(items(refused), [" ADD ->MISMATCH_DIGEST", "#b.csv ADD ->MISMATCH_DIGEST"]);
    assert_eq!(
        items(archived),
        [" UPDATE MISMATCH_DIGEST>ACTIVE", "#a.csv ADD ->ACTIVE", "#b.csv UPDATE MISMATCH_DIGEST>ACTIVE"]
    );
}
