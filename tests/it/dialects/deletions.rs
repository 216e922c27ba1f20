//! Deletion of things whose messages name other addresses than before.

use serde_json::{Value, json};

use crate::support::gateway::Gateway;

const ENTITY: &str = "urn:uuid:55555555-5555-4555-8555-555555555555";

/// Returns an event of Islandora about a media at this address.
fn event(kind: &str, address: Option<&str>) -> String {
    let links = address.map_or(Value::Null, |address| {
        let canonical = json!({ "type": "Link", "href": address, "rel": "canonical" });
        json!([canonical, { "type": "Link", "href": format!("{address}?_format=json"), "rel": "alternate" }])
    });
    json!({ "type": kind, "object": { "id": ENTITY, "url": links } }).to_string()
}

async fn live_objects(gateway: &Gateway) -> usize {
    gateway.json("/snapshot").await["objects"].as_array().unwrap().len()
}

#[tokio::test]
async fn deletion_of_an_entity_deletes_all_its_items() {
    for at_deletion in [Some("http://islandora.example.org/media/31/edit"), None] {
        let folder = tempfile::tempdir().unwrap();
        let gateway = Gateway::start(folder.path());
        for (kind, address) in [
            ("Create", Some("http://default/media/31")),
            ("Update", Some("http://islandora.example.org/media/31")),
            ("Delete", at_deletion),
        ] {
            let (status, answer) = gateway.post("islandora", "application/json", event(kind, address)).await;
            assert_eq!(status, 201, "{answer}");
        }
        assert_eq!(live_objects(&gateway).await, 0);
        let deleted = gateway.changes().await.pop().unwrap()["items"].clone();
        let uris: Vec<_> =
            deleted.as_array().unwrap().iter().map(|item| item["uri"].as_str().unwrap().to_owned()).collect();
        for address in ["http://default/media/31", "http://islandora.example.org/media/31"] {
            assert!(uris.contains(&format!("{address}?_format=json")), "{uris:?}");
        }
    }
}

#[tokio::test]
async fn deletion_through_another_base_url_deletes_the_resource() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = folder.path().join("tidings.toml");
    let settings = "settings = { base_url = \"https://repository.example.edu/fcrepo/rest\", other_base_urls = [\"http://fedora.example.org:8080/rest\"] }";
    std::fs::write(
        &configuration,
        format!("[sources.fedora]\ntransport = \"http\"\ndialect = \"fedora-events\"\n{settings}\n"),
    )
    .unwrap();
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", configuration.to_str().unwrap()]);
    for (kind, id) in [
        ("Create", "http://fedora.example.org:8080/rest/bin/fedora:description"),
        ("Create", "http://fedora.example.org:8080/rest/Skøyen/"),
        ("Delete", "https://repository.example.edu/fcrepo/rest/bin/fcr:metadata"),
        ("Delete", "https://repository.example.edu/fcrepo/rest/Sk%C3%B8yen"),
    ] {
        let event = json!({ "type": kind, "object": { "id": id } }).to_string();
        let (status, answer) = gateway.post("fedora", "application/json", event).await;
        assert_eq!(status, 201, "{id}: {answer}");
    }
    assert_eq!(live_objects(&gateway).await, 0);
}
