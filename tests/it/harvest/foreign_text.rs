//! Text of partners that is hostile: it stops no archiving, floods no log, and does not control the terminal of the
//! command line.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tidings::text::is_hidden;

use crate::support::{
    command_line::{command, ended},
    gateway::Gateway,
    journal_fixture::configuration,
    postgres::Server,
    scripted_platform::{Answer, PlatformServer},
};

/// Maximum time of a step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `read` returns a value.
async fn until<T>(what: &str, mut read: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = read().await {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn datasets(server: &PlatformServer) -> String {
    format!("[delivery]\nallow = [\"127.0.0.1\"]\n[filesets.platforms]\nzenodo = [\"{}/zenodo\"]\n", server.url)
}

/// A platform answers with a NUL in its reason, about one of two datasets.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_reason_with_nul_costs_no_other_dataset() {
    let server = PlatformServer::start().await;
    server.put("/zenodo/records/1", Answer::html("<html></html>"));
    server.put("/zenodo/records/2", Answer::html("<html></html>"));
    let missing = |reason: &str| Answer::new(404, json!({ "message": reason }).to_string());
    server.put("/zenodo/api/records/1", missing("no\0such\u{200d}é"));
    server.put("/zenodo/api/records/2", missing("gone"));
    for store in [None, Some(Server::shared().create_database())] {
        let folder = tempfile::tempdir().unwrap();
        let store = store.map_or_else(String::new, |url| format!("[journal]\nstore = \"{url}\"\n"));
        let lines = format!(
            "{store}{}[sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
             [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n",
            datasets(&server)
        );
        let gateway = Gateway::start_with(folder.path(), &["--config", &configuration(folder.path(), &lines)]);
        for number in [1, 2] {
            let dataset = format!("{}/zenodo/records/{number}", server.url);
            let request = json!({ "ingest_type": "dataset", "base_url": dataset, "link_source": "doi",
                "ext_ids": { "doi": format!("10.5072/zenodo.{number}") } });
            let (status, answer) = gateway.post("requests", "application/json", request.to_string()).await;
            assert_eq!(status, 201, "{answer}");
        }
        let jobs = until("both jobs have failed", async || {
            let jobs = gateway.json("/filesets").await["filesets"].as_array().unwrap().clone();
            (jobs.len() == 2 && jobs.iter().all(|job| job["state"] == "failed")).then_some(jobs)
        })
        .await;
        let mut messages: Vec<_> = jobs.iter().map(|job| job["message"].as_str().unwrap()).collect();
        messages.sort_unstable();
        // The reason is quoted, and in a quotation what cannot be seen is escaped.
        assert!(messages[0].ends_with("no\\u{0}such\\u{200d}é"), "{messages:?}");
        assert!(messages[1].ends_with("gone"), "{messages:?}");
    }
}

/// `tidings ingest` shows the reason of a platform and the names of files.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_ingest_shows_no_controls_of_a_dataset() {
    let server = PlatformServer::start().await;
    for number in [1, 2] {
        server.put(&format!("/zenodo/records/{number}"), Answer::html("<html></html>"));
    }
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{200b}x";
    server.put("/zenodo/api/records/1", Answer::new(404, json!({ "message": hostile }).to_string()));
    let name = format!("a{hostile}.txt");
    let files = json!([{ "key": name, "size": 3, "links": { "self": format!("{}/a", server.url) } }]);
    let record = json!({ "id": 2, "conceptrecid": "16", "doi": "10.5072/zenodo.2", "files": files,
        "metadata": { "title": hostile, "access_right": "open", "creators": [{ "name": hostile }],
            "license": { "id": "cc-by-4.0" }, "publication_date": "2026-01-02" } });
    server.put("/zenodo/api/records/2", Answer::json(&record));
    server.put("/a", Answer::new(200, "one"));
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &datasets(&server));
    let archive = folder.path().join("archive");
    for options in [&[][..], &["--json"]] {
        let addresses = [1, 2].map(|number| format!("{}/zenodo/records/{number}", server.url));
        let mut arguments = vec!["ingest", "--config", &config, "--folder", archive.to_str().unwrap()];
        arguments.extend(options);
        arguments.extend(addresses.iter().map(String::as_str));
        let (_, output, errors) = ended(command(&arguments).spawn().unwrap());
        for shown in [&output, &errors] {
            let hidden: Vec<_> = shown.chars().filter(|c| is_hidden(*c) && *c != '\n').collect();
            assert!(hidden.is_empty(), "{hidden:?}: {shown}");
        }
        assert!(output.contains("owned") || errors.contains("owned"), "{output}{errors}");
        if !options.is_empty() {
            let results: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(results.len(), 2, "{output}");
        }
    }
}

/// One page has many entries that cannot be read; another source has one message in the quarantine.
#[tokio::test(flavor = "multi_thread")]
async fn harvest_flood_of_broken_entries_makes_few_log_lines_and_leaves_other_messages() {
    let server = PlatformServer::start().await;
    let entry =
        |number: u32| format!("<entry><id>urn:e:{number}</id><title>T</title><content type='x y'>a</content></entry>");
    let entries: String = (0..500).map(entry).collect();
    let feed = format!("<feed xmlns='http://www.w3.org/2005/Atom'>{entries}</feed>");
    server.put("/feed", Answer::new(200, feed).with("content-type", "application/atom+xml"));
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "[limits]\nquarantine_entries = 100\n[delivery]\nallow = [\"127.0.0.1\"]\n\
         [sources.feed]\ntransport = \"feed\"\ndialect = \"feed\"\nurl = \"{}/feed\"\n",
        server.url
    );
    let (config, log) = (configuration(folder.path(), &lines), folder.path().join("log"));
    // The other message is there before the harvest begins.
    let quiet = Gateway::start(folder.path());
    assert_eq!(quiet.post("fedora3", "text/xml", "no XML").await.0, 400);
    assert!(quiet.stop().success());
    let gateway = Gateway::start_logging(folder.path(), &["--config", &config], &log);
    // It could read nothing.
    let run = until("a run has failed", async || {
        let history = gateway.json("/harvests/feed").await;
        let runs = history["runs"].as_array().cloned().unwrap_or_default();
        runs.into_iter().find(|run| run["state"] == "failed")
    })
    .await;
    assert_eq!(run["quarantined"], 500, "{run}");
    let stored = gateway.json("/quarantine?limit=200").await;
    let stored = stored["messages"].as_array().unwrap();
    assert_eq!(stored.len(), 100);
    assert_eq!(stored.iter().filter(|message| message["source"] == "fedora3").count(), 1);
    let text = fs::read_to_string(log).unwrap();
    let quarantined = text.lines().filter(|line| line.contains("quarantined")).count();
    assert!((1..=20).contains(&quarantined), "{text}");
}
