//! Datasets that cannot be archived, and the store of their files.

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::{ObservedGateway, until};
use crate::support::{
    journal_fixture::journal_file,
    scripted_dataset::DatasetServer,
    scripted_files::{FileResponse, FileServer},
    small_disk::SmallDisk,
};

const FAILS: (&str, &str) = ("dataset-fails", "source/archive");

/// Returns the configuration of a source `requests`, whose datasets the source `archive` archives.
pub(crate) fn lines(server: &DatasetServer, more: &str) -> String {
    format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[filesets.platforms]\nzenodo = [\"{}\"]\n\
         [sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
         [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n\
         first_retry_seconds = 1\n{more}",
        server.url
    )
}

async fn request(observed: &ObservedGateway, server: &DatasetServer) {
    let request = json!({ "ingest_type": "dataset", "base_url": server.dataset(), "force_recrawl": true });
    let (status, answer) = observed.gateway.post("requests", "application/json", request.to_string()).await;
    assert_eq!(status, 201, "{answer}");
}

/// Waits until the only job has a state, and returns it.
async fn job(observed: &ObservedGateway, state: &str) -> Value {
    let found = async || {
        let job = observed.gateway.json("/filesets").await["filesets"][0].clone();
        (job["state"] == state).then_some(job)
    };
    until(&format!("the job is {state}"), found).await
}

/// Waits until the status has these numbers of jobs.
async fn counts(observed: &ObservedGateway, expected: Value) {
    let counted = async || (observed.status().await["datasets"] == expected).then_some(());
    until(&format!("the jobs are {expected}"), counted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dataset_that_its_platform_refuses_is_a_problem_until_it_is_archived() {
    let server = DatasetServer::start().await;
    server.put("a.csv", "one");
    let data = tempfile::tempdir().unwrap();
    let start =
        |more: &str| ObservedGateway::start_in(tempfile::tempdir().unwrap(), data.path(), &lines(&server, more));
    let observed = start("");
    server.refuse(Some((404, "{\"status\": 404, \"message\": \"PID does not exist.\"}")));
    request(&observed, &server).await;
    assert_eq!(job(&observed, "failed").await["status"], "platform-404");
    observed.shows(FAILS.0, FAILS.1, &format!("1 dataset, the last one {}: ", server.dataset())).await;
    counts(&observed, json!({ "failed": 1 })).await;
    let (_, out, _) = observed.command();
    assert!(out.contains("\ndatasets       1 failed\n") && out.contains("GET /filesets?state=failed"), "{out}");
    // The next attempt is blocked, which is a problem of the same kind.
    server.refuse(Some((200, "{\"id\": 17}")));
    request(&observed, &server).await;
    job(&observed, "blocked").await;
    counts(&observed, json!({ "blocked": 1 })).await;
    assert!(observed.gateway.stop().success());
    // Another configuration repeats the job.
    server.refuse(None);
    let observed = start("jobs = 2\n");
    job(&observed, "archived").await;
    counts(&observed, json!({})).await;
    assert!(observed.problem(FAILS.0, FAILS.1).await.is_none());
    server.refuse(Some((404, "{\"status\": 404, \"message\": \"PID does not exist.\"}")));
    request(&observed, &server).await;
    observed.shows(FAILS.0, FAILS.1, "1 dataset").await;
    server.refuse(None);
    request(&observed, &server).await;
    observed.ends(FAILS.0, FAILS.1).await;
    let files = async || Some(observed.status().await["files"].clone()).filter(|files| files["bytes"] != 0);
    let files = until("the stored bytes are known", files).await;
    assert_eq!(files["sources"][0]["source"], "archive", "{files}");
    assert_eq!(files["sources"][0]["bytes"], files["bytes"], "{files}");
    assert!(
        files["location"].as_str().unwrap().ends_with("/files") && files["freeBytes"].as_u64() > Some(0),
        "{files}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dataset_whose_job_is_cancelled_is_no_problem_and_keeps_its_result() {
    let server = DatasetServer::start().await;
    let observed = ObservedGateway::start(&lines(&server, ""));
    server.refuse(Some((404, "{\"status\": 404, \"message\": \"PID does not exist.\"}")));
    request(&observed, &server).await;
    let failed = job(&observed, "failed").await;
    observed.shows(FAILS.0, FAILS.1, "1 dataset").await;
    let place = format!("{}/filesets/{}", observed.gateway.url, failed["id"].as_str().unwrap());
    assert_eq!(observed.gateway.http.delete(&place).send().await.unwrap().status(), 202);
    let cancelled = job(&observed, "cancelled").await;
    assert_eq!((&cancelled["status"], &cancelled["message"]), (&failed["status"], &failed["message"]));
    observed.ends(FAILS.0, FAILS.1).await;
    counts(&observed, json!({})).await;
    assert_eq!(observed.gateway.changes().await.len(), 2, "the request, and the result of the platform");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dataset_that_failed_long_ago_is_counted_and_is_no_problem() {
    crate::support::needs_sqlite();
    let server = DatasetServer::start().await;
    let data = tempfile::tempdir().unwrap();
    let start = || ObservedGateway::start_in(tempfile::tempdir().unwrap(), data.path(), &lines(&server, ""));
    let observed = start();
    server.refuse(Some((404, "{\"status\": 404, \"message\": \"PID does not exist.\"}")));
    request(&observed, &server).await;
    observed.shows(FAILS.0, FAILS.1, "1 dataset").await;
    assert!(observed.gateway.stop().success());
    let week = "UPDATE ingest_jobs SET updated = updated - 7 * 24 * 60 * 60 * 1000";
    assert_eq!(Connection::open(journal_file(data.path())).unwrap().execute(week, []).unwrap(), 1);
    let observed = start();
    counts(&observed, json!({ "failed": 1 })).await;
    assert!(observed.problem(FAILS.0, FAILS.1).await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_of_the_files_that_is_nearly_full_is_a_problem() {
    let disk = SmallDisk::of(64);
    // The first file makes the folder.
    let folder = disk.path().join("store");
    let observed = ObservedGateway::start(&format!("[files]\nfolder = {:?}\n", folder.to_str().unwrap()));
    let room = async || observed.status().await["files"]["freeBytes"].as_u64();
    assert!(until("the room on the disk is known", room).await <= 64 << 20);
    fs::write(disk.path().join("large"), vec![0; 60 << 20]).unwrap();
    observed.shows("disk-nearly-full", "gateway", &format!("4 MB are free for {}", folder.display())).await;
    fs::remove_file(disk.path().join("large")).unwrap();
    observed.ends("disk-nearly-full", "gateway").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_files_of_a_download_are_counted() {
    let server = FileServer::start().await;
    let url = server.put("/a.pdf", "application/pdf", b"%PDF-1.7 a paper", FileResponse::Good);
    let observed = ObservedGateway::start(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[sources.copies]\ntransport = \"download\"\ndialect = \"download\"\n\
         of = [\"content-change\"]\nurls = 'http://.*'\n",
    );
    let event = json!({ "object": "urn:object:a", "items": [{ "uri": "urn:item:a", "change": "ADD", "content": { "url": url } }] });
    let (status, answer) = observed.gateway.post("content-change", "application/json", event.to_string()).await;
    assert_eq!(status, 201, "{answer}");
    let files = async || Some(observed.status().await["files"].clone()).filter(|files| files["bytes"] != 0);
    let files = until("the file is counted", files).await;
    assert_eq!((&files["bytes"], &files["sources"]), (&json!(16), &json!([{ "source": "copies", "bytes": 16 }])));
}
