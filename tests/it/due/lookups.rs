//! Dates of visibility that a lookup finds in a Fedora 6, because its messages have none.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{announced, due_changes, in_millis};
use crate::support::{
    fake_fedora6::{FakeFedora6, Fedora6, PATH, REST},
    fake_repository::{Behaviour, FakeRepository},
    gateway::Gateway,
    journal_fixture::configuration,
    nodes_fixture::until,
};

const AVAILABLE: &str = "http://purl.org/dc/terms/available";
const VALID: &str = "http://example.org/validUntil";
/// Predicates of Hyrax with `ActiveFedora` (hydra-access-controls): a work has an embargo, which is a resource of its own.
const HAS_EMBARGO: &str = "http://projecthydra.org/ns/auth/acl#hasEmbargo";
const RELEASE_DATE: &str = "http://projecthydra.org/ns/auth/acl#embargoReleaseDate";

struct Fedora6Fixture {
    _folder: TempDir,
    repository: FakeFedora6,
    gateway: Gateway,
}

impl Fedora6Fixture {
    async fn new(mode: &str) -> Self {
        let (folder, repository) = (tempfile::tempdir().unwrap(), FakeRepository::start(Fedora6::default()).await);
        let config = format!(
            "[sources.fedora]\nlookup = \"{mode}\"\n[sources.fedora.repository]\nurl = \"{}{PATH}\"\n\
             public_urls = [\"{REST}\"]\nvisible_from = [\"{AVAILABLE}\", \"{HAS_EMBARGO}\", \"{RELEASE_DATE}\"]\n\
             visible_until = [\"{VALID}\"]\n",
            repository.url()
        );
        let config = configuration(folder.path(), &config);
        let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
        Self { _folder: folder, repository, gateway }
    }

    /// Writes a container with these statements, and sends its event. Returns the change.
    async fn put(&self, second: u64, kind: &str, path: &str, statements: &Value) -> Value {
        self.repository.api.container(path, second);
        self.repository.api.describe(path, statements);
        self.event(second, kind, path).await
    }

    async fn event(&self, second: u64, kind: &str, path: &str) -> Value {
        let event = json!({
            "id": format!("urn:uuid:00000000-0000-4000-8000-{second:012x}"),
            "type": [kind],
            "published": format!("2026-03-01T10:00:{second:02}.500Z"),
            "object": { "id": format!("{REST}{path}"), "type": ["http://www.w3.org/ns/ldp#Resource"], "isPartOf": REST },
        });
        let (status, response) = self.gateway.post("fedora", "application/ld+json", event.to_string()).await;
        assert_eq!(status, 201, "{response}");
        self.gateway.changes().await.pop().unwrap()
    }

    /// Returns the state of a resource in the registry.
    async fn state(&self, path: &str) -> Value {
        state(&self.gateway, &format!("{REST}{path}"), &format!("{REST}{path}")).await
    }
}

async fn state(gateway: &Gateway, object: &str, item: &str) -> Value {
    let object = gateway.json(&format!("/objects?uri={object}")).await;
    let items = object["items"].as_array().unwrap_or_else(|| panic!("{object:#}"));
    items.iter().find(|one| one["uri"] == item).map_or(Value::Null, |item| item["state"].clone())
}

/// Waits until so many dates could not be read.
async fn until_unreadable(gateway: &Gateway, dates: u64) {
    let series = "tidings_dropped_parts_total{source=\"fedora\",part=\"visibility-date\"}";
    gateway.until_metric(&format!("{series} {dates}\n")).await;
}

fn date(value: &str) -> Value {
    json!([{ "@value": value, "@type": "http://www.w3.org/2001/XMLSchema#dateTime" }])
}

#[tokio::test]
async fn fedora_6_resource_appears_and_disappears_at_its_dates() {
    let fixture = Fedora6Fixture::new("required").await;
    let [begin, end] = ["2098-01-02T00:00:00.000Z", "2099-01-02T00:00:00.000Z"];
    let statements = json!({ AVAILABLE: date(begin), VALID: date(end) });
    let change = fixture.put(1, "Create", "/a", &statements).await;
    let item = &change["items"][0];
    assert_eq!(
        (&item["stateAfter"], &item["visibleFrom"], &item["visibleUntil"]),
        (&json!("EMBARGOED"), &json!(begin), &json!(end))
    );
    // The repository says the same again.
    let again = fixture.put(2, "Update", "/a", &statements).await;
    assert_eq!((again["items"][0].get("stateAfter"), again["items"][0].get("visibleFrom")), (None, None));
    let soon = in_millis(8000);
    fixture.put(3, "Update", "/a", &json!({ AVAILABLE: date(&soon), VALID: date(end) })).await;
    until("the first date has come", async || due_changes(&fixture.gateway).await.len() == 1).await;
    fixture.put(4, "Update", "/a", &json!({ AVAILABLE: date(&soon), VALID: date(&in_millis(8000)) })).await;
    until("the second date has come", async || due_changes(&fixture.gateway).await.len() == 2).await;
    let moved = |before: &str, after: &str| (format!("{REST}/a"), before.to_owned(), after.to_owned());
    let expected = [moved("EMBARGOED", "ACTIVE"), moved("ACTIVE", "EXPIRED")];
    assert_eq!(due_changes(&fixture.gateway).await, expected);
}

#[tokio::test]
async fn fedora_6_date_can_be_moved_lifted_and_unreadable() {
    let fixture = Fedora6Fixture::new("required").await;
    let at = |path: &str, date: &str| vec![(format!("{REST}{path}"), date.to_owned())];
    fixture.put(1, "Create", "/a", &json!({ AVAILABLE: date("2097-01-02") })).await;
    assert_eq!(announced(&fixture.gateway).await, at("/a", "2097-01-02T00:00:00.000Z"));
    fixture.put(2, "Update", "/a", &json!({ AVAILABLE: date("2098-01-02T03:04:05Z") })).await;
    assert_eq!(announced(&fixture.gateway).await, at("/a", "2098-01-02T03:04:05.000Z"));
    fixture.put(3, "Update", "/a", &json!({ AVAILABLE: date("in spring") })).await;
    assert_eq!(announced(&fixture.gateway).await, at("/a", "2098-01-02T03:04:05.000Z"));
    until_unreadable(&fixture.gateway, 1).await;
    fixture.put(4, "Update", "/a", &json!({})).await;
    assert_eq!((announced(&fixture.gateway).await, fixture.state("/a").await), (Vec::new(), json!("ACTIVE")));
    fixture.put(5, "Create", "/b", &json!({ AVAILABLE: date("in spring") })).await;
    assert_eq!(fixture.state("/b").await, Value::Null);
    // The description of a file is about the file.
    fixture.repository.api.file("/b/file", "image/jp2", 7, 6);
    fixture.repository.api.describe("/b/file", &json!({ AVAILABLE: date("2099-01-02") }));
    let change = fixture.event(6, "Create", "/b/file").await;
    assert_eq!((&change["items"][0]["content"]["size"], &change["lookup"]), (&json!(7), &Value::Null));
    assert_eq!(announced(&fixture.gateway).await, at("/b/file", "2099-01-02T00:00:00.000Z"));
    // The description as a resource has no dates of its own, so none is missing.
    let change = fixture.event(7, "Update", "/b/file/fcr:metadata").await;
    assert_eq!((change["items"][0].get("stateAfter"), &change["lookup"]), (None, &Value::Null));
    until_unreadable(&fixture.gateway, 2).await;
}

/// Hyrax writes an embargo as a resource of its own, and removes its date when the embargo is lifted.
#[tokio::test]
async fn embargo_of_hyrax_is_read_from_its_own_resource() {
    let fixture = Fedora6Fixture::new("required").await;
    let embargo = |release: &str| json!({ RELEASE_DATE: date(release) });
    fixture.repository.api.container("/embargo", 1);
    fixture.repository.api.describe("/embargo", &embargo("2098-01-02T00:00:00Z"));
    let work = json!({ HAS_EMBARGO: [{ "@id": format!("{REST}/embargo") }] });
    fixture.put(2, "Create", "/work", &work).await;
    assert_eq!(announced(&fixture.gateway).await, [(format!("{REST}/work"), "2098-01-02T00:00:00.000Z".to_owned())]);
    fixture.repository.api.describe("/embargo", &json!({}));
    fixture.put(3, "Update", "/work", &work).await;
    assert_eq!((announced(&fixture.gateway).await, fixture.state("/work").await), (Vec::new(), json!("ACTIVE")));
    // Another repository is not asked.
    let elsewhere = json!({ HAS_EMBARGO: [{ "@id": "http://evil.example/embargo" }] });
    let change = fixture.put(4, "Update", "/work", &elsewhere).await;
    assert_eq!((&change["lookup"], fixture.state("/work").await), (&Value::Null, json!("ACTIVE")));
    until_unreadable(&fixture.gateway, 1).await;
}

/// A lookup that learns nothing certain leaves the embargo, and the events go on.
#[tokio::test]
async fn fedora_6_dates_that_cannot_be_read_leave_the_embargo() {
    let fixture = Fedora6Fixture::new("required").await;
    for status in [302, 400, 403] {
        fixture.repository.api.container(&format!("/{status}"), 1);
        fixture.repository.api.refuse(&format!("/{status}"), status);
    }
    fixture.repository.api.container("/nested", 1);
    fixture.repository.api.describe("/nested", &json!({ HAS_EMBARGO: [{ "@id": format!("{REST}/other") }] }));
    fixture.repository.api.container("/stranger", 1);
    fixture.repository.api.describe("/stranger", &json!({ "@id": format!("{REST}/else") }));
    let places = |places: &[&str]| {
        let places: Vec<_> = places.iter().map(|path| json!({ "@id": format!("{REST}/{path}") })).collect();
        json!({ HAS_EMBARGO: places })
    };
    fixture.put(1, "Create", "/a", &json!({ AVAILABLE: date("2098-01-02") })).await;
    let embargo = [(format!("{REST}/a"), "2098-01-02T00:00:00.000Z".to_owned())];
    let unreadable = [
        places(&["302"]),
        places(&["400"]),
        places(&["403"]),
        places(&["nowhere"]),
        places(&["nested"]),
        places(&["stranger"]),
        places(&["a", "b", "c", "d", "e"]),
        json!({ "@id": format!("{REST}/else") }),
    ];
    for path in ["/b", "/c", "/d", "/other"] {
        fixture.repository.api.container(path, 1);
    }
    for (second, statements) in (2..).zip(&unreadable) {
        let change = fixture.put(second, "Update", "/a", statements).await;
        assert_eq!(
            (announced(&fixture.gateway).await, &change["lookup"]),
            (embargo.to_vec(), &Value::Null),
            "{statements}"
        );
        until_unreadable(&fixture.gateway, second - 1).await;
    }
    // The description of the resource itself is somewhere else.
    fixture.repository.api.refuse("/a", 302);
    fixture.put(20, "Update", "/a", &json!({})).await;
    assert_eq!(announced(&fixture.gateway).await, embargo);
}

#[tokio::test]
async fn fedora_6_dates_that_contradict_each_other_are_an_embargo() {
    let fixture = Fedora6Fixture::new("required").await;
    let dates = json!({ AVAILABLE: date("2098-01-02"), VALID: date("2097-01-02") });
    fixture.put(1, "Create", "/a", &dates).await;
    assert_eq!((fixture.state("/a").await, announced(&fixture.gateway).await), (json!("EMBARGOED"), Vec::new()));
    until_unreadable(&fixture.gateway, 1).await;
    fixture.put(2, "Update", "/a", &json!({})).await;
    assert_eq!(fixture.state("/a").await, "ACTIVE");
}

/// The second event replaces all that is known of the resource, except for its dates.
#[tokio::test]
async fn repository_that_does_not_answer_leaves_the_embargo_until_it_does() {
    let fixture = Fedora6Fixture::new("best-effort").await;
    fixture.put(1, "Create", "/a", &json!({ AVAILABLE: date("2098-01-02") })).await;
    fixture.repository.set_behaviour(Behaviour::Status(503));
    let change = fixture.put(2, "Create", "/a", &json!({})).await;
    assert_eq!((&change["lookup"], &change["items"][0]["stateAfter"]), (&json!("incomplete"), &json!("EMBARGOED")));
    assert_eq!(announced(&fixture.gateway).await, [(format!("{REST}/a"), "2098-01-02T00:00:00.000Z".to_owned())]);
    fixture.repository.set_behaviour(Behaviour::Normal);
    until("the lookup is repeated", async || fixture.state("/a").await == "ACTIVE").await;
    assert!(announced(&fixture.gateway).await.is_empty());
}

#[tokio::test]
async fn dates_that_a_later_lookup_finds_hide_the_resource() {
    let fixture = Fedora6Fixture::new("best-effort").await;
    fixture.repository.set_behaviour(Behaviour::Status(503));
    let change = fixture.put(1, "Create", "/a", &json!({ AVAILABLE: date("2098-01-02") })).await;
    assert_eq!((&change["lookup"], change["items"][0].get("stateAfter")), (&json!("incomplete"), None));
    fixture.repository.set_behaviour(Behaviour::Normal);
    until("the lookup is repeated", async || fixture.state("/a").await == "EMBARGOED").await;
    assert_eq!(announced(&fixture.gateway).await, [(format!("{REST}/a"), "2098-01-02T00:00:00.000Z".to_owned())]);
}

/// The resource of the embargo does not answer, and the date of the work itself does.
#[tokio::test]
async fn fedora_6_date_counts_although_another_one_is_not_known_yet() {
    let fixture = Fedora6Fixture::new("best-effort").await;
    fixture.repository.api.container("/embargo", 1);
    fixture.repository.api.refuse("/embargo", 503);
    let statements = json!({ AVAILABLE: date("2098-01-02"), HAS_EMBARGO: [{ "@id": format!("{REST}/embargo") }] });
    let change = fixture.put(2, "Create", "/work", &statements).await;
    assert_eq!((&change["lookup"], &change["items"][0]["stateAfter"]), (&json!("incomplete"), &json!("EMBARGOED")));
    assert_eq!(announced(&fixture.gateway).await, [(format!("{REST}/work"), "2098-01-02T00:00:00.000Z".to_owned())]);
}

/// The first resource does not answer, and the second one has the date. The message also names the repository root, which is no
/// parent for a resource with a container.
#[tokio::test]
async fn fedora_6_date_of_a_second_resource_counts_and_the_root_is_no_parent() {
    let fixture = Fedora6Fixture::new("best-effort").await;
    for path in ["/first", "/second", "/shelf"] {
        fixture.repository.api.container(path, 1);
    }
    fixture.repository.api.describe("/second", &json!({ RELEASE_DATE: date("2099-01-02") }));
    fixture.repository.api.refuse("/first", 503);
    let place = |path: &str| json!({ "@id": format!("{REST}{path}") });
    let statements = json!({ HAS_EMBARGO: [place("/first"), place("/second")] });
    let change = fixture.put(2, "Create", "/shelf/work", &statements).await;
    assert_eq!((&change["lookup"], &change["items"][0]["stateAfter"]), (&json!("incomplete"), &json!("EMBARGOED")));
    assert_eq!(change.get("parent"), None);
    let at = [(format!("{REST}/shelf/work"), "2099-01-02T00:00:00.000Z".to_owned())];
    assert_eq!(announced(&fixture.gateway).await, at);
}
