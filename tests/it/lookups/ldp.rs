//! Lookups in Fedora 4 to 6 add facts that events lack: media type, size and digest of the content, the types
//! of the resource, and its container. The same applies to files of Islandora that are in Fedora.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    fake_fedora6::{FakeFedora6, Fedora6, PATH, REST, SHA1},
    fake_repository::FakeRepository,
    gateway::Gateway,
    journal_fixture::configuration,
};

struct Fixture {
    _folder: TempDir,
    repository: FakeFedora6,
    gateway: Gateway,
}

/// Returns the configuration of a source with its repository.
pub(crate) fn repository_config(source: &str, mode: &str, url: &str) -> String {
    format!(
        "[sources.{source}]\nlookup = \"{mode}\"\n[sources.{source}.repository]\nurl = \"{url}{PATH}\"\n\
         public_urls = [\"{REST}\"]\n"
    )
}

impl Fixture {
    async fn new() -> Self {
        let (folder, repository) = (tempfile::tempdir().unwrap(), FakeRepository::start(Fedora6::default()).await);
        let url = repository.url();
        let both = repository_config("fedora", "required", &url) + &repository_config("islandora", "required", &url);
        let config = configuration(folder.path(), &both);
        let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
        repository.api.container("/a", 1);
        Self { _folder: folder, repository, gateway }
    }

    /// Sends an event about the resource at a path; returns its change.
    async fn change_after(&self, second: u64, kind: &str, path: &str, types: Value) -> Value {
        let event = json!({
            "id": format!("urn:uuid:00000000-0000-4000-8000-{second:012x}"),
            "type": [kind],
            "published": format!("2026-03-01T10:00:{second:02}.500Z"),
            "actor": [{ "type": "Person", "id": "info:fedora/local-user#fedoraAdmin" }],
            "object": { "id": format!("{REST}{path}"), "type": types, "isPartOf": REST },
            "@context": ["https://www.w3.org/ns/activitystreams",
                { "dcterms": "http://purl.org/dc/terms/", "type": "@type", "id": "@id", "isPartOf": { "@id": "dcterms:isPartOf", "@type": "@id" } }],
        });
        self.post_event("fedora", &event).await
    }

    async fn post_event(&self, source: &str, event: &Value) -> Value {
        let (status, response) = self.gateway.post(source, "application/ld+json", event.to_string()).await;
        assert_eq!(status, 201, "{response}");
        let seq = response["changes"][0]["seq"].as_u64().unwrap();
        self.gateway.json(&format!("/changes?after={}&limit=1", seq - 1)).await["changes"][0].clone()
    }
}

fn ldp(kind: &str) -> String {
    format!("http://www.w3.org/ns/ldp#{kind}")
}

#[tokio::test]
async fn file_gets_media_type_size_and_digest() {
    let fixture = Fixture::new().await;
    fixture.repository.api.file("/a/file", "image/jp2", 1234, 2);
    let change = fixture.change_after(2, "Create", "/a/file", json!([ldp("NonRDFSource")])).await;
    let digest = json!({ "algorithm": "sha-1", "value": SHA1 });
    let content = json!({ "url": format!("{REST}/a/file"), "mediaType": "image/jp2", "size": 1234, "digest": digest });
    assert_eq!(change["items"][0]["content"], content);
    assert_eq!(change["parent"], format!("{REST}/a"));
    assert_eq!(change["types"], json!([ldp("NonRDFSource"), ldp("Resource")]));
    assert_eq!(change["lookup"], Value::Null);
    // A repository without digests is asked without a digest, whatever the number of lookups.
    fixture.repository.api.knows_no_digests();
    for second in 3..13 {
        fixture.repository.api.file("/a/file", "image/jp2", 1234, second);
        let change = fixture.change_after(second, "Update", "/a/file", json!([ldp("NonRDFSource")])).await;
        let content = json!({ "url": format!("{REST}/a/file"), "mediaType": "image/jp2", "size": 1234 });
        assert_eq!((&change["items"][0]["content"], &change["lookup"]), (&content, &Value::Null));
    }
    // External content is reported, and its server gets no request.
    fixture.repository.api.file_elsewhere("/a/elsewhere", "video/mp4", 13);
    let change = fixture.change_after(13, "Create", "/a/elsewhere", json!([ldp("NonRDFSource")])).await;
    let content = json!({ "url": format!("{REST}/a/elsewhere"), "mediaType": "video/mp4" });
    assert_eq!((&change["items"][0]["content"], &change["lookup"]), (&content, &Value::Null));
}

#[tokio::test]
async fn newer_or_deleted_content_is_marked() {
    let fixture = Fixture::new().await;
    fixture.repository.api.file("/a/file", "image/jp2", 1234, 9);
    let change = fixture.change_after(2, "Create", "/a/file", json!([ldp("NonRDFSource")])).await;
    let content = json!({ "url": format!("{REST}/a/file") });
    assert_eq!((&change["items"][0]["content"], &change["lookup"]), (&content, &json!("newer")));
    assert_eq!(change["parent"], format!("{REST}/a"));
    fixture.repository.api.delete("/a/file");
    let change = fixture.change_after(10, "Update", "/a/file", json!([])).await;
    assert_eq!((&change["items"][0]["content"], &change["lookup"]), (&content, &json!("gone")));
    let requests = fixture.repository.requests().len();
    let change = fixture.change_after(11, "Delete", "/a/file", json!([])).await;
    assert_eq!((&change["items"][0]["change"], &change["lookup"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(fixture.repository.requests().len(), requests, "deleted resources cause no request");
}

#[tokio::test]
async fn nearest_container_becomes_the_parent() {
    let fixture = Fixture::new().await;
    fixture.repository.api.container("/a/b", 1);
    fixture.repository.api.file("/a/b/file", "image/jp2", 1, 1);
    // Path segments that are no resources, a description, a hash URI, and a resource directly under the root.
    for (second, path, parent) in
        [(2, "/a/b/c/d/e", "/a/b"), (3, "/a/b/file/fcr:metadata", "/a/b"), (4, "/a/b#hash", "/a/b"), (5, "/top", "/")]
    {
        if !path.contains(['#', ':']) {
            fixture.repository.api.container(path, second);
        }
        let change = fixture.change_after(second, "Create", path, json!([ldp("RDFSource")])).await;
        assert_eq!(change["parent"], format!("{REST}{parent}"), "{path}");
    }
}

/// Events of Fedora 4.0 to 4.5 have no types. The description has them; the description of a file is a separate
/// resource.
#[tokio::test]
async fn types_missing_in_the_event_come_from_the_description() {
    let fixture = Fixture::new().await;
    fixture.repository.api.container("/a/object", 2);
    fixture.repository.api.file("/a/file", "image/jp2", 1, 2);
    for (second, path, kind) in [(2, "/a/object", "RDFSource"), (3, "/a/file", "NonRDFSource")] {
        let change = fixture.change_after(second, "Update", path, json!([])).await;
        let types = change["types"].as_array().unwrap();
        for expected in ["http://pcdm.org/models#Object".to_owned(), ldp(kind)] {
            assert!(types.contains(&json!(expected)), "{path}: {types:?}");
        }
    }
}

/// The description of a hash URI is that of its resource. A URL that cannot be requested causes no wait.
#[tokio::test]
async fn hash_uri_delays_nothing() {
    let fixture = Fixture::new().await;
    fixture.repository.api.container("/a/b", 1);
    let part = fixture.change_after(2, "Update", "/a/b#hash", json!([])).await;
    assert_eq!((&part["parent"], &part["lookup"]), (&json!(format!("{REST}/a/b")), &Value::Null));
    assert_eq!(part["types"], json!([ldp("Resource"), ldp("RDFSource"), ldp("BasicContainer")]));
    let requests = fixture.repository.requests().len();
    let outside = fixture.change_after(3, "Update", "/%2e%2e/admin", json!([])).await;
    assert_eq!(outside["lookup"], "foreign");
    assert_eq!(fixture.repository.requests().len(), requests, "external files cause no request");
}

#[tokio::test]
async fn islandora_files_in_fedora_are_looked_up() {
    let fixture = Fixture::new().await;
    fixture.repository.api.file("/a/file.jp2", "image/jp2", 77, 2);
    let event = |target: &str| {
        json!({
            "@context": "https://www.w3.org/ns/activitystreams",
            "actor": { "type": "Person", "id": "urn:uuid:0b3c5f0e-58f1-4c38-8b5e-6d6f3a1c2d4e" },
            "object": {
                "id": "urn:uuid:1f0c6c5e-3b0a-4f5d-9a55-000000000001",
                "url": [{ "name": "File", "type": "Link", "href": "http://localhost:8000/file.jp2", "mediaType": "image/jp2", "rel": "canonical" }],
            },
            "attachment": { "type": "Object", "mediaType": "application/json", "content": { "fedora_uri": target } },
            "type": "Create",
        })
    };
    let change = fixture.post_event("islandora", &event(&format!("{REST}/a/file.jp2"))).await;
    let contents: Vec<_> = change["items"].as_array().unwrap().iter().map(|item| item["content"].clone()).collect();
    assert_eq!(contents[0], json!({ "url": "http://localhost:8000/file.jp2", "mediaType": "image/jp2" }));
    assert_eq!((&contents[1]["url"], &contents[1]["size"]), (&json!(format!("{REST}/a/file.jp2")), &json!(77)));
    assert_eq!(change["lookup"], Value::Null);
    // A page that is not in the repository causes no request.
    let requests = fixture.repository.requests().len();
    let change = fixture.post_event("islandora", &event("http://elsewhere.example/file.jp2")).await;
    assert_eq!((fixture.repository.requests().len(), &change["lookup"]), (requests, &Value::Null));
}

#[tokio::test]
async fn other_host_is_not_requested() {
    let fixture = Fixture::new().await;
    let elsewhere: FakeFedora6 = FakeRepository::start(Fedora6::default()).await;
    let event = json!({
        "id": "urn:uuid:00000000-0000-4000-8000-000000000001",
        "type": ["Create"],
        "object": { "id": format!("{}{PATH}/a", elsewhere.url()), "type": [ldp("Container")], "isPartOf": REST },
    });
    assert_eq!(fixture.post_event("fedora", &event).await["lookup"], "foreign");
    assert!(elsewhere.requests().is_empty() && fixture.repository.requests().is_empty());
}
