//! Jobs that archive datasets: from the request to the result, through kills, failures and later versions.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    event_stream::Stream,
    gateway::Gateway,
    http_receiver::{Receiver, Reply},
    journal_fixture::configuration,
    scripted_dataset::{DatasetServer, FileRequests},
};

/// Maximum time of a step. Archives of several megabytes take long while other tests run.
const PATIENCE: Duration = Duration::from_secs(90);

/// Writes the configuration of a source `requests`, whose datasets the source `archive` archives.
fn config(folder: &Path, server: &DatasetServer, more: &str) -> String {
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[filesets.platforms]\nzenodo = [\"{}\"]\n\
         [sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
         [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n\
         first_retry_seconds = 1\n{more}\n",
        server.url
    );
    configuration(folder, &lines)
}

fn start(folder: &Path, server: &DatasetServer, more: &str) -> Gateway {
    Gateway::start_with(folder, &["--config", &config(folder, server, more)])
}

fn request(server: &DatasetServer, number: u32) -> String {
    json!({
        "ingest_type": "dataset", "base_url": server.dataset(), "link_source": "doi",
        "ext_ids": { "doi": format!("10.5072/zenodo.{number}") },
    })
    .to_string()
}

async fn post_request(gateway: &Gateway, server: &DatasetServer, number: u32) {
    let (status, answer) = gateway.post("requests", "application/json", request(server, number)).await;
    assert_eq!(status, 201, "{answer}");
}

/// Waits until the only job is in this condition, and returns it.
async fn wait_for_job(gateway: &Gateway, condition: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let jobs = gateway.json("/filesets").await;
        if condition(&jobs["filesets"][0]) {
            return jobs["filesets"][0].clone();
        }
        assert!(began.elapsed() < PATIENCE, "{jobs}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_in(state: &'static str) -> impl Fn(&Value) -> bool {
    move |job| job["state"] == state
}

/// Returns the paths of the files below a folder.
fn files_below(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let each = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path) } else { vec![path.display().to_string()] }
    };
    entries.flat_map(each).collect()
}

/// Returns the names of the states of the dataset and of its files, in the order of the changes.
fn states(changes: &[Value], dataset: &str) -> Vec<String> {
    let own = changes.iter().filter(|change| change["object"] == dataset);
    own.map(|change| change["items"][0]["stateAfter"].as_str().unwrap_or("-").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_job_survives_kills_without_a_second_download() {
    const KILLS: usize = 5;
    const FILES: usize = 5 * KILLS;
    let (folder, server) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    let mut size = 0;
    for number in 0..FILES {
        let line = format!("{number};");
        let content = line.repeat(3_000_000 / line.len());
        size += content.len();
        server.put(&format!("{number}.csv"), content);
    }
    server.allow_ends(0);
    let more = format!("[filesets]\nweb_file_count = 100\nmax_stored_size = {size}\n");
    let more = more.as_str();
    let work = folder.path().join("files/work");
    // Bytes are written to the disk by the mebibyte.
    let is_part = |path: &str| fs::metadata(path).is_ok_and(|meta| meta.len() >= 1 << 20);
    let mut gateway = start(folder.path(), &server, more);
    post_request(&gateway, &server, 1).await;
    for kill in 0..KILLS {
        // Four files are in the middle, so all others are complete or were not requested.
        wait_for("four transfers", || server.waiting() == 4).await;
        wait_for("their bytes on disk", || {
            files_below(&work).iter().filter(|path| is_part(path.as_str())).count() == 4
        })
        .await;
        if kill == KILLS / 2 {
            let job = wait_for_job(&gateway, is_in("running")).await;
            let progress = &job["progress"];
            assert_eq!((&progress["files"], &progress["doneFiles"]), (&json!(FILES), &json!(4 * kill)), "{job}");
        }
        gateway.kill();
        wait_for("the end of the connections", || server.waiting() == 0).await;
        server.allow_ends(4);
        gateway = start(folder.path(), &server, more);
    }
    server.allow_ends(1000);
    let job = wait_for_job(&gateway, is_in("archived")).await;
    assert_eq!(job["status"], "success", "{job}");
    for number in 0..FILES {
        let FileRequests { whole, rest } = server.requests(&format!("{number}.csv"));
        assert!(whole == 1 && rest <= KILLS, "{number}.csv: {whole} whole, {rest} rest");
    }
    let changes = gateway.changes().await;
    assert_eq!(changes.len(), 2, "a request and a result");
    assert_eq!(states(&changes, &server.dataset()), ["REQUESTED", "ACTIVE"]);
    assert_eq!(changes[1]["items"].as_array().unwrap().len(), FILES + 1);
    let result = &changes[1]["report"]["result"];
    assert_eq!((&result["status"], &result["ingest_strategy"]), (&json!("success"), &json!("web-fileset")));
    assert_eq!(result["request"], serde_json::from_str::<Value>(&request(&server, 1)).unwrap());
    let store = folder.path().join("files");
    wait_for("no temporary file", || {
        ["work", "incoming"].iter().all(|temporary| files_below(&store.join(temporary)).is_empty())
    })
    .await;
    assert_eq!(files_below(&store).len(), FILES + 2, "the files, the WARC file and its index");
    // Each file counts once, whichever process has stored it.
    server.put("0.csv", "changed");
    post_request(&gateway, &server, 2).await;
    let blocked = wait_for_job(&gateway, is_in("blocked")).await;
    assert!(blocked["message"].as_str().unwrap().contains(" 0 of max_stored_size are left"), "{blocked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_that_is_requested_again_is_not_downloaded_again() {
    let (folder, server) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    server.put("a.csv", "one");
    server.put("b.csv", "two");
    let gateway = start(folder.path(), &server, "");
    post_request(&gateway, &server, 1).await;
    let first = wait_for_job(&gateway, is_in("archived")).await;
    let result = gateway.json(&format!("/filesets/{}", first["id"].as_str().unwrap())).await["result"].clone();
    assert_eq!((&result["status"], &result["file_count"]), (&json!("success"), &json!(2)));
    post_request(&gateway, &server, 2).await;
    let again = wait_for_job(&gateway, |job| job["status"] == "success-existing").await;
    assert_eq!((&again["id"], &again["state"]), (&first["id"], &json!("archived")));
    assert_eq!(server.requests("a.csv"), FileRequests { whole: 1, rest: 0 });
    let existing = gateway.json(&format!("/filesets/{}", first["id"].as_str().unwrap())).await;
    assert_eq!(existing["result"]["manifest"], result["manifest"]);
    assert_eq!(existing["request"]["ext_ids"]["doi"], "10.5072/zenodo.2");
    let forced = json!({ "ingest_type": "dataset", "base_url": server.dataset(), "force_recrawl": true });
    let (status, answer) = gateway.post("requests", "application/json", forced.to_string()).await;
    assert_eq!(status, 201, "{answer}");
    wait_for_job(&gateway, |job| job["status"] == "success").await;
    assert_eq!(server.requests("a.csv"), FileRequests { whole: 2, rest: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_that_is_watched_is_updated_with_the_files_that_have_changed() {
    let (folder, server) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    server.put("same.csv", "same");
    server.put("changed.csv", "before");
    server.put("gone.csv", "gone");
    let gateway = start(folder.path(), &server, "watch = \"1s\"\n");
    post_request(&gateway, &server, 1).await;
    wait_for_job(&gateway, is_in("archived")).await;
    // A platform that fails for a while does not change the state of the dataset.
    server.refuse(Some((500, "")));
    wait_for_job(&gateway, |job| job["attempts"] == 1).await;
    server.put("changed.csv", "after");
    server.remove("gone.csv");
    server.put("new.csv", "new");
    server.refuse(None);
    let began = Instant::now();
    let changes = loop {
        let changes = gateway.changes().await;
        if changes.len() == 3 {
            break changes;
        }
        assert!(began.elapsed() < PATIENCE, "{changes:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let items = changes[2]["items"].as_array().unwrap();
    let item = |path: &str| {
        let uri = format!("{}#{path}", server.dataset());
        items.iter().find(|item| item["uri"] == uri.as_str()).map(|item| item["change"].as_str().unwrap_or("-"))
    };
    assert_eq!(item("same.csv"), None);
    assert_eq!((item("changed.csv"), item("gone.csv"), item("new.csv")), (Some("UPDATE"), Some("DELETE"), Some("ADD")));
    assert_eq!(server.requests("same.csv"), FileRequests { whole: 1, rest: 0 });
    assert_eq!(changes[2]["report"]["result"]["status"], "success");
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_job_is_repeated_by_its_kind_of_failure() {
    let (folder, server) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    server.put("a.csv", "one");
    server.refuse(Some((200, "{\"id\": 17}")));
    let more = "";
    let gateway = start(folder.path(), &server, more);
    post_request(&gateway, &server, 1).await;
    let blocked = wait_for_job(&gateway, is_in("blocked")).await;
    assert_eq!(blocked["status"], "platform-bad-answer");
    assert!(blocked["message"].as_str().unwrap().contains("metadata"), "{blocked}");
    assert_eq!(states(&gateway.changes().await, &server.dataset()), ["REQUESTED", "PLATFORM_BAD_ANSWER"]);
    assert!(gateway.stop().success());
    // Another configuration may be the fix, so the job begins again, and then fails in a way that passes.
    server.refuse(Some((500, "")));
    let gateway = start(folder.path(), &server, "jobs = 2\n");
    let waiting = wait_for_job(&gateway, |job| job["attempts"] == 1 && job["status"] == "platform-http-error").await;
    assert!(waiting["next"].is_string(), "{waiting}");
    server.refuse(None);
    let archived = wait_for_job(&gateway, is_in("archived")).await;
    assert_eq!((&archived["status"], &archived["attempts"]), (&json!("success-file"), &json!(0)));
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tidings_ingests_total{source=\"archive\",status=\"success-file\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_job_can_be_cancelled() {
    let (folder, server) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    server.put("a.csv", "one".repeat(100_000));
    server.allow_ends(0);
    let gateway = start(folder.path(), &server, "");
    post_request(&gateway, &server, 1).await;
    wait_for("a transfer", || server.waiting() == 1).await;
    let job = wait_for_job(&gateway, is_in("running")).await;
    let place = format!("{}/filesets/{}", gateway.url, job["id"].as_str().unwrap());
    assert_eq!(gateway.http.delete(&place).send().await.unwrap().status(), 202);
    wait_for_job(&gateway, is_in("cancelled")).await;
    wait_for("the end of the transfer", || server.waiting() == 0).await;
    assert_eq!(states(&gateway.changes().await, &server.dataset()), ["REQUESTED", "CANCELLED"]);
    wait_for("no temporary file", || files_below(&folder.path().join("files/work")).is_empty()).await;
    let unknown = format!("{}/filesets/01900000-0000-7000-8000-000000000001", gateway.url);
    assert_eq!(gateway.http.delete(&unknown).send().await.unwrap().status(), 404);
    let listed = gateway.json("/filesets?state=cancelled").await;
    assert_eq!((listed["filesets"].as_array().unwrap().len(), &listed["next"]), (1, &Value::Null));
    assert_eq!(gateway.json("/filesets?state=running").await["filesets"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_results_reach_streams_and_webhooks_and_other_changes_do_not() {
    let (folder, server) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    server.put("a.csv", "one");
    let receiver = Receiver::start(|_, _| Reply::of(204)).await;
    let hook = format!(
        "[subscriptions.catalogue]\ndelivery = \"webhook\"\nurl = \"{}\"\nformat = \"fileset-file-result\"\n\
         start = \"beginning\"\nsecrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n",
        receiver.url()
    );
    let gateway = start(folder.path(), &server, &hook);
    post_request(&gateway, &server, 1).await;
    let mut stream = Stream::open(&gateway, "?after=0&format=fileset-result", None).await;
    let result: Value = serde_json::from_str(&stream.event().await.data.unwrap()).unwrap();
    assert_eq!((&result["hit"], &result["status"]), (&json!(true), &json!("success-file")));
    assert_eq!(result["request"]["link_source"], "doi");
    let delivered = receiver.until(1).await;
    let file: Value = serde_json::from_slice(&delivered[0].body).unwrap();
    assert_eq!((&file["status"], &file["request"]["ingest_type"]), (&json!("success"), &json!("dataset-file")));
    assert_eq!(file["file_meta"], result["fileset_file"]["file_meta"]);
    assert_eq!(gateway.head().await, 2, "the request is no message");
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_results_are_rows_of_a_view_with_the_columns_of_sandcrawler() {
    crate::support::needs_sqlite();
    let (folder, server) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    server.put("a.csv", "one");
    let gateway = start(folder.path(), &server, "");
    post_request(&gateway, &server, 1).await;
    wait_for_job(&gateway, is_in("archived")).await;
    assert!(gateway.stop().success());
    let journal = rusqlite::Connection::open(folder.path().join("journal.sqlite")).unwrap();
    let sql = "SELECT ingest_type, base_url, updated, hit, status, platform_name, platform_domain, platform_id,
            ingest_strategy, total_size, file_count, archiveorg_item_name, archiveorg_item_bundle_path, web_bundle_url,
            web_bundle_dt, manifest FROM ingest_fileset_platform";
    let row = journal.query_row(sql, [], |row| {
        let text = |index: usize| row.get::<_, Option<String>>(index);
        Ok((
            (text(0)?, text(1)?, row.get::<_, bool>(3)?, text(4)?),
            (text(5)?, text(7)?, text(8)?, row.get::<_, i64>(9)?, row.get::<_, i64>(10)?),
            text(15)?,
        ))
    });
    let (request, platform, manifest) = row.unwrap();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(request, (some("dataset"), Some(server.dataset()), true, some("success-file")));
    assert_eq!(platform, (some("zenodo"), some("17"), some("web-file"), 3, 1));
    let manifest: Value = serde_json::from_str(&manifest.unwrap()).unwrap();
    assert_eq!(manifest[0]["path"], "a.csv");
}

/// Otherwise each look would archive the dataset once more, as a change.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_that_is_watched_without_digests_is_archived_once() {
    let (folder, server) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    server.put_without_digest("a.csv", "one");
    server.put_without_digest("b.csv", "two");
    let gateway = start(folder.path(), &server, "watch = \"1s\"\n");
    post_request(&gateway, &server, 1).await;
    wait_for_job(&gateway, |job| job["status"] == "success-existing").await;
    wait_for("a third look", || server.requests("b.csv").whole >= 4).await;
    let changes = gateway.changes().await;
    assert_eq!(states(&changes, &server.dataset()), ["REQUESTED", "ACTIVE"], "{changes:?}");
    let store = folder.path().join("files");
    wait_for("the files, the WARC file and its index", || files_below(&store).len() == 4).await;
    // The list does not show it.
    server.put_without_digest("a.csv", "new");
    wait_for_job(&gateway, |job| job["status"] == "success").await;
    let changes = gateway.changes().await;
    let changed = format!("{}#a.csv", server.dataset());
    assert!(changes[2]["items"].as_array().unwrap().iter().any(|item| item["uri"] == changed.as_str()), "{changes:?}");
}
