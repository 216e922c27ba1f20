//! The reference client: order, saved state, copies on a web server.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use crate::support::{
    broker_process::free_ports,
    gateway::{Gateway, free_address},
    journal_fixture::OpenJournal,
    ldes_client::read,
    nginx::Nginx,
};

/// Appends many changes as one batch to the journal of a gateway that does not run: every second one deletes what the one before
/// has created.
async fn append_batch(data: &Path, batch: usize, changes: usize) {
    let change = |at: usize| {
        let object = format!("http://h/{batch}/{}", at / 2);
        let kind = if at.is_multiple_of(2) { "ADD" } else { "DELETE" };
        json!({ "object": object, "items": [{ "uri": object, "change": kind }] })
    };
    let journal = OpenJournal::at(data);
    journal.append_batch((0..changes).map(change)).await;
    journal.close();
}

/// Counts the requests for pages that the gateway has served.
async fn pages_served(gateway: &Gateway) -> u64 {
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    let lines = metrics.lines().filter(|line| line.starts_with("tidings_http_requests_total{"));
    let of_documents = lines.filter(|line| line.contains("route=\"/ldes/{stream}/{document}\""));
    of_documents.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_reads_a_batch_in_order_and_then_what_is_new_alone() {
    crate::support::needs_sqlite();
    let (data, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let address = free_address();
    let start = || Gateway::start_elsewhere(data.path(), &["--listen", &address], None);
    append_batch(data.path(), 1, 1000).await;
    let gateway = start();
    let changes = gateway.changes().await;
    let received: BTreeSet<_> = changes.iter().map(|change| change["received"].as_str().unwrap()).collect();
    assert_eq!((changes.len(), received.len()), (1000, 1), "they are one batch");
    let url = format!("{}/ldes", gateway.url);
    let first = read(&url, Some(state.path()), &[]);
    assert!(first.succeeded, "{}", first.errors);
    assert_eq!(first.numbers(), (1..=1000).collect::<Vec<_>>());
    let kinds = first.members.iter().map(|member| member.contains("activitystreams#Create>")).take(4);
    assert_eq!(kinds.collect::<Vec<_>>(), [true, false, true, false]);

    assert!(gateway.stop().success());
    append_batch(data.path(), 2, 130).await;
    let gateway = start();
    let before = pages_served(&gateway).await;
    let second = read(&url, Some(state.path()), &[]);
    assert!(second.succeeded, "{}", second.errors);
    assert_eq!(second.numbers(), (1001..=1130).collect::<Vec<_>>());
    let documents = pages_served(&gateway).await - before;
    assert!(documents < 9, "{documents} documents for two new pages: closed ones are not read again");
    let third = read(&url, Some(state.path()), &[]);
    assert_eq!((third.succeeded, third.members.len()), (true, 0), "{}", third.errors);
}

/// A copy of the documents, with the names of their files.
async fn copy(gateway: &Gateway, folder: &Path) -> String {
    let root = gateway.http.get(format!("{}/ldes", gateway.url)).send().await.unwrap();
    let url = root.url().clone();
    let base = folder.join(url.path().trim_start_matches('/'));
    fs::create_dir_all(base.parent().unwrap()).unwrap();
    let text = root.text().await.unwrap();
    fs::write(&base, &text).unwrap();
    let root: Value = serde_json::from_str(&text).unwrap();
    let relations = root["view"]["relation"].as_array().unwrap();
    let nodes: BTreeSet<_> = relations.iter().map(|relation| relation["node"].as_str().unwrap()).collect();
    for node in nodes {
        let page = gateway.http.get(url.join(node).unwrap()).send().await.unwrap();
        fs::write(base.with_file_name(node), page.bytes().await.unwrap()).unwrap();
    }
    url.path().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_on_a_web_server_reads_the_same() {
    crate::support::needs_sqlite();
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    append_batch(data.path(), 1, 350).await;
    let gateway = Gateway::start(data.path());
    let path = copy(&gateway, &files.path().join("www")).await;
    let live = read(&format!("{}/ldes", gateway.url), None, &[]);
    drop(gateway);
    let [port] = free_ports();
    let www = files.path().join("www");
    let http = format!(
        "types {{ application/ld+json jsonld; }}\nserver {{\nlisten 127.0.0.1:{port};\nroot {};\n}}",
        www.display()
    );
    let _nginx = Nginx::start(files.path(), &http, port);
    let copied = read(&format!("http://127.0.0.1:{port}{path}"), None, &[]);
    assert!(live.succeeded && copied.succeeded, "{} {}", live.errors, copied.errors);
    assert_eq!(live.numbers(), (1..=350).collect::<Vec<_>>());
    assert_eq!(copied.numbers(), (1..=350).collect::<Vec<_>>());
    assert_eq!(copied.members, live.members, "members do not name the place of the copy");
}
