//! Lookups in the REST API of Fedora 3 add facts that its messages lack: the version that an event made, the
//! datastreams of an ingest, the versions left after a purge, and the types and the parent of an object.
//! Content that is newer or gone is marked as such, and nothing is invented.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    fake_fedora3::{FakeFedora3, Fedora3, PATH, time},
    fake_repository::{FakeRepository, PASSWORD, USER},
    fedora3_messages::{BASE, Call},
    gateway::Gateway,
    journal_fixture::configuration,
};

const IMAGE: &str = "image/jp2";

/// Returns the configuration of the source fedora3, with messages over HTTP, and its repository. `lines` are
/// added to the repository's table.
pub(crate) fn repository_config(mode: &str, url: &str, lines: &str) -> String {
    format!(
        "[sources.fedora3]\ntransport = \"http\"\ndialect = \"fedora-apim\"\nlookup = \"{mode}\"\n\
         [sources.fedora3.repository]\nurl = \"{url}\"\npublic_urls = [\"{BASE}\"]\n{lines}\n"
    )
}

/// Gateway, and the repository of its lookups.
struct Fixture {
    folder: TempDir,
    repository: FakeFedora3,
    gateway: Gateway,
}

impl Fixture {
    async fn new() -> Self {
        Self::of(Fedora3::default()).await
    }

    async fn of(api: Fedora3) -> Self {
        let (folder, repository) = (tempfile::tempdir().unwrap(), FakeRepository::start(api).await);
        let lines = format!("username = \"{USER}\"\npassword = \"{PASSWORD}\"");
        let url = format!("{}{PATH}", repository.url());
        let config = configuration(folder.path(), &repository_config("best-effort", &url, &lines));
        let log = folder.path().join("log");
        let gateway = Gateway::start_logging(&folder.path().join("data"), &["--config", &config], &log);
        repository.api.ingest("demo:1");
        repository.api.relate("demo:1", "hasModel", "demo:Image", 1);
        repository.api.relate("demo:1", "isMemberOfCollection", "demo:all", 1);
        Self { folder, repository, gateway }
    }

    /// Sends a message; returns its change.
    async fn change_after(
        &self,
        second: u64,
        method: &str,
        parameters: &[(&str, &str)],
        returned: Option<&str>,
    ) -> Value {
        let call = Call { number: second, method, pid: "demo:1", parameters, returned };
        let (status, response) = self.gateway.post("fedora3", "application/atom+xml", call.message()).await;
        assert_eq!(status, 201, "{response}");
        let seq = response["changes"][0]["seq"].as_u64().unwrap();
        self.gateway.json(&format!("/changes?after={}&limit=1", seq - 1)).await["changes"][0].clone()
    }
}

fn item(name: &str) -> String {
    format!("{BASE}/objects/demo:1/datastreams/{name}/content")
}

fn version(name: &str, second: u64, media_type: &str) -> Value {
    let size = 100 + second;
    let digest = json!({ "algorithm": "md5", "value": format!("{size:032x}") });
    let url = format!("{}?asOfDateTime={}", item(name), time(second));
    json!({ "url": url, "mediaType": media_type, "size": size, "digest": digest })
}

const OBJ: (&str, &str) = ("dsID", "OBJ");
const NEW: &[(&str, &str)] = &[OBJ, ("dsState", "I")];
const CONTENT: &[(&str, &str)] = &[OBJ, ("dsContent", "[OMITTED]")];

#[tokio::test]
async fn new_version_gets_media_type_size_and_digest() {
    let fixture = Fixture::new().await;
    fixture.repository.api.write("demo:1", "OBJ", IMAGE, 2);
    let added = fixture.change_after(2, "addDatastream", NEW, Some("OBJ")).await;
    assert_eq!(added["items"][0]["content"], version("OBJ", 2, IMAGE));
    assert_eq!(added["items"][0]["stateAfter"], "INACTIVE");
    fixture.repository.api.write("demo:1", "OBJ", "image/png", 3);
    let modified = fixture.change_after(3, "modifyDatastreamByValue", CONTENT, None).await;
    assert_eq!(modified["items"][0]["content"], version("OBJ", 3, "image/png"));
    for change in [&added, &modified] {
        assert_eq!(change["parent"], format!("{BASE}/objects/demo:all"));
        assert_eq!(change["types"], json!(["info:fedora/demo:Image"]));
        assert_eq!(change["lookup"], Value::Null, "{change:#}");
    }
}

#[tokio::test]
async fn newer_or_deleted_content_is_marked() {
    let fixture = Fixture::new().await;
    for (second, media_type) in [(2, IMAGE), (3, "image/png"), (4, "image/gif")] {
        fixture.repository.api.write("demo:1", "OBJ", media_type, second);
    }
    // The version of the event still exists.
    let modified = fixture.change_after(3, "modifyDatastreamByValue", CONTENT, None).await;
    assert_eq!(
        (&modified["items"][0]["content"], &modified["lookup"]),
        (&version("OBJ", 3, "image/png"), &json!("newer"))
    );
    let added = fixture.change_after(2, "addDatastream", NEW, Some("OBJ")).await;
    assert_eq!((&added["items"][0]["content"], &added["lookup"]), (&version("OBJ", 2, IMAGE), &json!("newer")));
    // The version of the event no longer exists.
    fixture.repository.api.write("demo:1", "OBJ", "image/tiff", 6);
    let modified = fixture.change_after(5, "modifyDatastreamByValue", CONTENT, None).await;
    let url = format!("{}?asOfDateTime={}", item("OBJ"), time(5));
    assert_eq!((&modified["items"][0]["content"], &modified["lookup"]), (&json!({ "url": url }), &json!("newer")));
    fixture.repository.api.purge_versions("demo:1", "OBJ", 4, 9);
    let modified = fixture.change_after(7, "modifyDatastreamByValue", CONTENT, None).await;
    let url = format!("{}?asOfDateTime={}", item("OBJ"), time(7));
    assert_eq!((&modified["items"][0]["content"], &modified["lookup"]), (&json!({ "url": url }), &json!("gone")));
    fixture.repository.api.purge_object("demo:1");
    let modified = fixture.change_after(8, "modifyDatastreamByValue", CONTENT, None).await;
    assert_eq!(modified["lookup"], "gone");
    // The registry keeps the parent of the object.
    assert_eq!(modified["parent"], format!("{BASE}/objects/demo:all"));
    // The mark is in the message and in the feed too.
    let id = modified["id"].as_str().unwrap().trim_start_matches("urn:uuid:");
    let answer = fixture
        .gateway
        .http
        .get(format!("{}/changes/{id}", fixture.gateway.url))
        .header("accept", "application/atom+xml");
    let message = answer.send().await.unwrap().text().await.unwrap();
    assert!(message.contains(r#" lookup="gone""#), "{message}");
}

#[tokio::test]
async fn ingest_gets_its_datastreams() {
    for is_old in [false, true] {
        let fixture = Fixture::of(Fedora3::of_version(is_old)).await;
        fixture.repository.api.write("demo:1", "DC", "text/xml", 1);
        fixture.repository.api.write("demo:1", "OBJ", IMAGE, 1);
        fixture.repository.api.set_state("demo:1", "OBJ", 'I');
        // A version and a datastream from the time after the ingest.
        fixture.repository.api.write("demo:1", "OBJ", "image/png", 5);
        fixture.repository.api.write("demo:1", "TN", "image/png", 6);
        let change = fixture.change_after(1, "ingest", &[], Some("demo:1")).await;
        let mut rels = version("RELS-EXT", 1, "application/rdf+xml");
        rels["url"] = json!(item("RELS-EXT"));
        let expected = [
            (format!("{BASE}/objects/demo:1"), Value::Null, Value::Null),
            (item("DC"), version("DC", 1, "text/xml"), json!("ACTIVE")),
            (item("OBJ"), version("OBJ", 1, IMAGE), json!("INACTIVE")),
            (item("RELS-EXT"), rels, json!("ACTIVE")),
        ];
        let items = change["items"].as_array().unwrap();
        let found = items.iter().map(|item| {
            assert_eq!(item["change"], "ADD");
            (item["uri"].as_str().unwrap().to_owned(), item["content"].clone(), item["stateAfter"].clone())
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(change["lookup"], "newer");
        // A purge therefore lists all of them.
        let purge = fixture.change_after(7, "purgeObject", &[], None).await;
        assert_eq!(purge["items"].as_array().unwrap().len(), 4);
    }
}

#[tokio::test]
async fn purge_of_some_versions_reports_the_remaining_content() {
    let fixture = Fixture::new().await;
    for (second, media_type) in [(2, IMAGE), (3, "image/png"), (4, "image/gif")] {
        fixture.repository.api.write("demo:1", "OBJ", media_type, second);
        let (method, parameters, returned) = match second {
            2 => ("addDatastream", NEW, Some("OBJ")),
            _ => ("modifyDatastreamByValue", CONTENT, None),
        };
        fixture.change_after(second, method, parameters, returned).await;
    }
    let range = &[OBJ, ("startDT", "2026-03-01T10:00:03Z"), ("endDT", "2026-03-01T10:00:59Z")];
    fixture.repository.api.purge_versions("demo:1", "OBJ", 3, 59);
    let left = fixture.change_after(5, "purgeDatastream", range, Some("[OMITTED]")).await;
    assert_eq!(
        (&left["items"][0]["change"], &left["items"][0]["content"]),
        (&json!("UPDATE"), &version("OBJ", 2, IMAGE))
    );
    // A purge that removes no version changes nothing.
    let call =
        Call { number: 6, method: "purgeDatastream", pid: "demo:1", parameters: range, returned: Some("[OMITTED]") };
    let (status, response) = fixture.gateway.post("fedora3", "application/atom+xml", call.message()).await;
    assert_eq!((status, &response["outcome"]), (200, &json!("unchanged")), "{response}");
    fixture.repository.api.purge_versions("demo:1", "OBJ", 0, 59);
    let purged = fixture.change_after(7, "purgeDatastream", range, Some("[OMITTED]")).await;
    assert_eq!(purged["items"][0]["change"], "DELETE");
}

#[tokio::test]
async fn relationships_change_the_parent() {
    let fixture = Fixture::new().await;
    let relation: &[_] = &[("relationship", "info:fedora/fedora-system:def/relations-external#isPartOf")];
    fixture.repository.api.relate("demo:1", "isPartOf", "demo:whole", 3);
    let change = fixture.change_after(3, "addRelationship", relation, Some("true")).await;
    assert_eq!(change["parent"], format!("{BASE}/objects/demo:whole"));
    let content = &change["items"][0]["content"];
    // RELS-EXT is not versioned, so a version has no URL.
    assert_eq!((&content["url"], &content["mediaType"]), (&json!(item("RELS-EXT")), &json!("application/rdf+xml")));
    let state = fixture.change_after(4, "setDatastreamState", &[OBJ, ("dsState", "D")], None).await;
    assert_eq!(state["parent"], format!("{BASE}/objects/demo:whole"));
}

#[tokio::test]
async fn other_host_is_not_requested_and_credentials_stay_secret() {
    let fixture = Fixture::new().await;
    let elsewhere: FakeFedora3 = FakeRepository::start(Fedora3::default()).await;
    elsewhere.api.ingest("demo:1");
    elsewhere.api.write("demo:1", "OBJ", IMAGE, 2);
    let call = Call { number: 2, method: "addDatastream", pid: "demo:1", parameters: NEW, returned: Some("OBJ") };
    let message = call.message().replace(BASE, &format!("{}{PATH}", elsewhere.url()));
    let (status, _) = fixture.gateway.post("fedora3", "application/atom+xml", message).await;
    assert_eq!(status, 201);
    let changes = fixture.gateway.changes().await;
    assert_eq!(
        (&changes[0]["lookup"], &changes[0]["items"][0]["content"]["mediaType"]),
        (&json!("foreign"), &Value::Null)
    );
    assert!(elsewhere.requests().is_empty() && fixture.repository.requests().is_empty());

    fixture.repository.api.write("demo:1", "OBJ", IMAGE, 3);
    fixture.change_after(3, "modifyDatastreamByValue", CONTENT, None).await;
    let requests = fixture.repository.requests();
    assert!(!requests.is_empty());
    let expected = format!("Basic {}", base64(&format!("{USER}:{PASSWORD}")));
    assert!(
        requests.iter().all(|requests| requests.method == "GET" && requests.authorization == expected),
        "{requests:?}"
    );
    let mut response = String::new();
    for path in ["/sources", "/metrics", "/changes", "/feed", "/readyz", "/openapi.json"] {
        response += &fixture
            .gateway
            .http
            .get(format!("{}{path}", fixture.gateway.url))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
    }
    let Fixture { folder, gateway, .. } = fixture;
    assert!(gateway.stop().success());
    let mut outputs = vec![response.into_bytes(), std::fs::read(folder.path().join("log")).unwrap()];
    for entry in std::fs::read_dir(folder.path().join("data")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            outputs.push(std::fs::read(path).unwrap());
        }
    }
    for secret in [PASSWORD.to_owned(), USER.to_owned(), base64(&format!("{USER}:{PASSWORD}"))] {
        let is_in = |bytes: &Vec<u8>| memchr::memmem::find(bytes, secret.as_bytes()).is_some();
        assert!(!outputs.iter().any(is_in), "{secret} came out");
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}
