//! The documents of the other protocols in the copy: their readers find at the web server what they find at the gateway.

use std::{collections::BTreeSet, fs};

use serde_json::json;

use super::{WebServer, post, publish};
use crate::support::{
    gateway::{PATIENCE, client},
    iiif_walk::walk,
    ldes_client::read,
    resourcesync_reader::{Destination, Document, Entry, replay},
    views_fixture::{SECRET, SURFACES, ViewedGateway},
};

/// Returns the lines of a gateway that is open to the public and publishes the documents of all protocols.
fn lines(server: &WebServer, more: &str) -> String {
    let documents = "documents = [\"feed\", \"iiif\", \"ldes\", \"resourcesync\"]";
    server.lines(&format!("{documents}\n[access.public]\nsurfaces = {SURFACES}\n{more}"))
}

/// Reads a document of ResourceSync at the web server.
async fn document(url: &str) -> Document {
    let response = client().get(url).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/xml".parse().unwrap()),
        "{url}"
    );
    Document::parse(response.text().await.unwrap())
}

/// Returns the resources of the copy, as a destination finds them: its list, and the changes since.
async fn resources(server: &WebServer) -> BTreeSet<String> {
    let only = |document: &Document| document.entries()[0].loc.clone();
    let description = document(&format!("{}/.well-known/resourcesync", server.url)).await;
    let capabilities = document(&only(&description)).await;
    assert_eq!(capabilities.link("up"), Some(format!("{}/.well-known/resourcesync", server.url).as_str()));
    let capability = async |name: &str| {
        let has_name = |entry: &Entry| entry.metadata["capability"] == name;
        document(&capabilities.entries().into_iter().find(has_name).unwrap().loc).await
    };
    let list = capability("resourcelist").await;
    let mut resources = BTreeSet::new();
    for part in list.entries() {
        resources.extend(document(&part.loc).await.entries().into_iter().map(|entry| entry.loc));
    }
    let mut changes = Vec::new();
    for part in capability("changelist").await.entries() {
        changes.extend(document(&part.loc).await.entries());
    }
    replay(&resources, list.time("at").unwrap(), &changes)
}

/// Compares what the readers of each protocol find.
async fn assert_equal(server: &WebServer, gateway: &ViewedGateway) {
    let at_gateway = walk(&format!("{}/iiif", gateway.gateway.url), None, None).unwrap();
    let in_copy = walk(&format!("{}/iiif/collection.json", server.url), None, None).unwrap();
    assert!(!in_copy.included.is_empty());
    assert_eq!(in_copy, at_gateway);
    let at_gateway = read(&format!("{}/ldes", gateway.gateway.url), None, &[]);
    let in_copy = read(&format!("{}/ldes/root.jsonld", server.url), None, &[]);
    assert!(at_gateway.succeeded && in_copy.succeeded, "{} {}", at_gateway.errors, in_copy.errors);
    assert!(!in_copy.members.is_empty());
    assert_eq!((in_copy.numbers(), in_copy.members), (at_gateway.numbers(), at_gateway.members));
    let baseline = Destination::default().baseline(&gateway.gateway).await;
    assert_eq!(resources(server).await, baseline.resources);
}

/// Hides the item of an object that the public has seen.
async fn hide(gateway: &ViewedGateway, number: u64) {
    let object = format!("http://h/open/{number}");
    let item = json!({ "uri": format!("{object}/image"), "stateAfter": "INACTIVE" });
    gateway.post(&json!({ "object": object, "items": [item] })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_each_protocol_find_in_the_copy_what_the_gateway_has() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let server = WebServer::start(folder.path());
    let gateway = ViewedGateway::start(&lines(&server, ""));
    assert_eq!(publish(&gateway).0, 0, "an empty journal");
    for number in 1..=120 {
        post(&gateway, number).await;
    }
    assert_eq!(publish(&gateway).0, 0);
    assert_equal(&server, &gateway).await;
    for number in 121..=330 {
        post(&gateway, number).await;
    }
    for number in [1, 100, 121, 200] {
        hide(&gateway, number).await;
    }
    let closed = |name: &str| name.starts_with("iiif/") && name.ends_with("/page-2.json");
    assert_eq!(publish(&gateway).0, 0);
    assert_equal(&server, &gateway).await;
    let files = server.files();
    let written = files.iter().find(|(name, _)| closed(name)).map(|(_, time)| *time).unwrap();
    post(&gateway, 331).await;
    assert_eq!(publish(&gateway).0, 0);
    assert_equal(&server, &gateway).await;
    for (name, time) in server.files() {
        let text = String::from_utf8_lossy(&fs::read(server.folder.join(&name)).unwrap()).into_owned();
        assert!(!text.contains(SECRET), "{name}");
        assert!(!closed(&name) || time == written, "a closed page is written once");
    }

    // Retention removes the first pages.
    let ViewedGateway { gateway, config, folder } = gateway;
    assert!(gateway.stop().success());
    let start = |more: &str| {
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, format!("{text}\n{more}\n")).unwrap();
        let data = folder.path().join("data");
        crate::support::gateway::Gateway::start_with(&data, &["--config", config.to_str().unwrap()])
    };
    let gateway = start("[journal]\nkeep_changes = 120");
    let gateway = ViewedGateway { gateway, config: config.clone(), folder: tempfile::tempdir().unwrap() };
    let began = std::time::Instant::now();
    while gateway.changes("", None).await.first().is_none_or(|change| change["seq"].as_u64().unwrap() < 200) {
        assert!(began.elapsed() < PATIENCE, "nothing is removed");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(publish(&gateway).0, 0);
    assert_equal(&server, &gateway).await;
    assert!(server.files().keys().all(|name| !name.contains("/page-1.") && !name.contains("/page-2.")));

    // A narrower view: nothing of the former one is left.
    let ViewedGateway { gateway, .. } = gateway;
    assert!(gateway.stop().success());
    let gateway = start("[publish.view]\nobjects = [\"http://h/open/331\"]");
    let gateway = ViewedGateway { gateway, config: config.clone(), folder: tempfile::tempdir().unwrap() };
    assert_eq!(publish(&gateway).0, 0);
    for name in server.files().into_keys().filter(|name| !name.ends_with(".gz")) {
        let text = fs::read_to_string(server.folder.join(&name)).unwrap();
        assert!(!text.contains("http://h/open/32"), "{name}");
    }
    assert_eq!(resources(&server).await, ["http://h/open/331/image".to_owned()].into());
}
