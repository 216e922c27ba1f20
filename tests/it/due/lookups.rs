//! Dates of visibility that a lookup finds in the repository, because its messages have none.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{due_changes, in_millis};
use crate::{
    lookups::fedora3,
    support::{
        fake_fedora3::{self, FakeFedora3, Fedora3},
        fake_fedora6::{FakeFedora6, Fedora6, PATH, REST},
        fake_repository::{Behaviour, FakeRepository},
        fedora3_messages::{BASE, Call},
        gateway::Gateway,
        journal_fixture::configuration,
        nodes_fixture::until,
    },
};

const AVAILABLE: &str = "http://purl.org/dc/terms/available";
const VALID: &str = "http://example.org/validUntil";
/// Predicates of Hyrax with `ActiveFedora` (hydra-access-controls): a work has an embargo, which is a resource of its own.
const HAS_EMBARGO: &str = "http://projecthydra.org/ns/auth/acl#hasEmbargo";
const RELEASE_DATE: &str = "http://projecthydra.org/ns/auth/acl#embargoReleaseDate";
/// Predicate of the module Scholar Embargo of Islandora 7.
const EMBARGO_UNTIL: &str = "info:islandora/islandora-system:def/scholar#embargo-until";

struct Fixture<R> {
    _folder: TempDir,
    repository: R,
    gateway: Gateway,
}

type Fedora6Fixture = Fixture<FakeFedora6>;
type Fedora3Fixture = Fixture<FakeFedora3>;

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

/// Returns the announced dates by item.
async fn announced(gateway: &Gateway) -> Vec<(String, String)> {
    let due = gateway.json("/due").await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    due["due"].as_array().unwrap().iter().map(|due| (text(&due["item"]), text(&due["at"]))).collect()
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

impl Fedora3Fixture {
    async fn new(mode: &str) -> Self {
        let (folder, repository) = (tempfile::tempdir().unwrap(), FakeRepository::start(Fedora3::default()).await);
        let url = format!("{}{}", repository.url(), fake_fedora3::PATH);
        let lines = format!("visible_from = [\"{EMBARGO_UNTIL}\"]");
        let config = configuration(folder.path(), &fedora3::repository_config(mode, &url, &lines));
        let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
        Self { _folder: folder, repository, gateway }
    }

    async fn event(&self, second: u64, method: &str, parameters: &[(&str, &str)], returned: Option<&str>) {
        let call = Call { number: second, method, pid: "demo:1", parameters, returned };
        let (status, response) = self.gateway.post("fedora3", "application/atom+xml", call.message()).await;
        assert_eq!(status, 201, "{response}");
    }

    /// Sets the end of the embargo, and sends the event about RELS-EXT.
    async fn embargo(&self, second: u64, end: Option<&str>) {
        self.repository.api.embargo("demo:1", end, second);
        self.event(second, "modifyDatastreamByValue", &[("dsID", "RELS-EXT"), ("dsContent", "[OMITTED]")], None).await;
    }

    /// Returns the states of all items.
    async fn states(&self) -> Vec<(String, Value)> {
        let object = self.gateway.json(&format!("/objects?uri={BASE}/objects/demo:1")).await;
        let name = |uri: &str| uri.trim_end_matches("/content").rsplit('/').next().unwrap().to_owned();
        let items = object["items"].as_array().unwrap().iter();
        let mut states: Vec<_> =
            items.map(|item| (name(item["uri"].as_str().unwrap()), item["state"].clone())).collect();
        states.sort_by(|a, b| a.0.cmp(&b.0));
        states
    }
}

/// The embargo of an object concerns all of its datastreams, and its message only names RELS-EXT.
#[tokio::test]
async fn fedora_3_embargo_concerns_all_datastreams_of_its_object() {
    let fixture = Fedora3Fixture::new("required").await;
    fixture.repository.api.ingest("demo:1");
    for id in ["DC", "OBJ", "RELS-EXT"] {
        fixture.repository.api.write("demo:1", id, "text/xml", 1);
    }
    fixture.event(1, "ingest", &[], Some("demo:1")).await;
    let states = |states: [Value; 4]| {
        ["DC", "OBJ", "RELS-EXT", "demo:1"].map(str::to_owned).into_iter().zip(states).collect::<Vec<_>>()
    };
    let [active, inactive, embargoed] = ["ACTIVE", "INACTIVE", "EMBARGOED"].map(Value::from);
    assert_eq!(fixture.states().await, states([active.clone(), active.clone(), active.clone(), Value::Null]));
    fixture.repository.api.set_state("demo:1", "DC", 'I');
    fixture.event(2, "setDatastreamState", &[("dsID", "DC"), ("dsState", "I")], None).await;
    fixture.embargo(3, Some("2098-01-02T00:00:00Z")).await;
    let under_embargo = states([inactive.clone(), embargoed.clone(), embargoed.clone(), embargoed.clone()]);
    assert_eq!(fixture.states().await, under_embargo);
    let names: Vec<_> = announced(&fixture.gateway).await.into_iter().map(|(item, _)| item).collect();
    assert_eq!((names.len(), names.iter().any(|name| name.contains("/DC/"))), (3, false), "{names:?}");
    // New content is under the embargo, too.
    fixture.repository.api.write("demo:1", "OBJ", "text/xml", 4);
    fixture.event(4, "modifyDatastreamByValue", &[("dsID", "OBJ"), ("dsContent", "[OMITTED]")], None).await;
    assert_eq!(fixture.states().await, under_embargo);
    fixture.embargo(5, Some("indefinite")).await;
    assert_eq!((fixture.states().await, announced(&fixture.gateway).await), (under_embargo, Vec::new()));
    fixture.embargo(6, None).await;
    assert_eq!(fixture.states().await, states([inactive, active.clone(), active.clone(), active]));
}

/// Only the list of datastreams says that an object has no RELS-EXT, and so no embargo.
#[tokio::test]
async fn fedora_3_embargo_ends_only_if_the_object_has_no_relations() {
    let fixture = Fedora3Fixture::new("required").await;
    let api = &fixture.repository.api;
    api.ingest("demo:1");
    for id in ["OBJ", "RELS-EXT"] {
        api.write("demo:1", id, "text/xml", 1);
    }
    fixture.event(1, "ingest", &[], Some("demo:1")).await;
    fixture.embargo(2, Some("2098-01-02T00:00:00Z")).await;
    let states = |state: &str| ["OBJ", "RELS-EXT", "demo:1"].map(|name| (name.to_owned(), json!(state)));
    let modified = async |second| {
        api.write("demo:1", "OBJ", "text/xml", second);
        fixture.event(second, "modifyDatastreamByValue", &[("dsID", "OBJ"), ("dsContent", "[OMITTED]")], None).await;
    };
    assert_eq!(fixture.states().await, states("EMBARGOED"));
    api.lose_relations(true);
    modified(3).await;
    assert_eq!(fixture.states().await, states("EMBARGOED"));
    let series = "tidings_dropped_parts_total{source=\"fedora3\",part=\"visibility-date\"}";
    fixture.gateway.until_metric(&format!("{series} 1\n")).await;
    // Its own message adds no datastream that has none yet.
    api.lose_relations(false);
    api.write("demo:1", "TN", "image/png", 4);
    fixture.embargo(5, Some("2097-01-02T00:00:00Z")).await;
    assert_eq!(fixture.states().await, states("EMBARGOED"));
    assert!(announced(&fixture.gateway).await.iter().all(|(_, date)| date.starts_with("2097")));
    api.purge_versions("demo:1", "RELS-EXT", 0, 9);
    modified(6).await;
    assert_eq!(fixture.states().await[0], ("OBJ".to_owned(), json!("ACTIVE")));
}

/// The list of its datastreams is gone as well, so nothing is known about its dates.
#[tokio::test]
async fn fedora_3_object_that_is_gone_keeps_its_embargo() {
    let fixture = Fedora3Fixture::new("required").await;
    fixture.repository.api.ingest("demo:1");
    for id in ["OBJ", "RELS-EXT"] {
        fixture.repository.api.write("demo:1", id, "text/xml", 1);
    }
    fixture.event(1, "ingest", &[], Some("demo:1")).await;
    fixture.embargo(2, Some("2098-01-02T00:00:00Z")).await;
    let states = fixture.states().await;
    fixture.repository.api.purge_object("demo:1");
    fixture.event(4, "modifyDatastreamByValue", &[("dsID", "OBJ"), ("dsContent", "[OMITTED]")], None).await;
    assert_eq!(fixture.states().await, states);
    assert_eq!(fixture.gateway.changes().await.pop().unwrap()["lookup"], "gone");
}

/// RELS-EXT answers, and the profile of the new datastream does not.
#[tokio::test]
async fn fedora_3_embargo_counts_although_the_content_is_not_known_yet() {
    let fixture = Fedora3Fixture::new("best-effort").await;
    let api = &fixture.repository.api;
    api.ingest("demo:1");
    api.write("demo:1", "OBJ", "text/xml", 1);
    api.embargo("demo:1", Some("2098-01-02T00:00:00Z"), 1);
    api.refuse("/datastreams/OBJ");
    fixture.event(2, "addDatastream", &[("dsID", "OBJ"), ("dsState", "A")], Some("OBJ")).await;
    let change = fixture.gateway.changes().await.pop().unwrap();
    assert_eq!((&change["lookup"], &change["items"][0]["stateAfter"]), (&json!("incomplete"), &json!("EMBARGOED")));
    assert_eq!(fixture.states().await, [("OBJ".to_owned(), json!("EMBARGOED"))]);
}

/// The repository is back, and one of its requests fails for good. The date that another request reads counts.
#[tokio::test]
async fn fedora_3_embargo_of_a_repeated_lookup_counts_although_the_content_stays_unknown() {
    let fixture = Fedora3Fixture::new("best-effort").await;
    let api = &fixture.repository.api;
    api.ingest("demo:1");
    api.write("demo:1", "OBJ", "text/xml", 1);
    api.embargo("demo:1", Some("2098-01-02T00:00:00Z"), 1);
    fixture.repository.set_behaviour(Behaviour::Status(503));
    fixture.event(2, "addDatastream", &[("dsID", "OBJ"), ("dsState", "A")], Some("OBJ")).await;
    assert_eq!(fixture.states().await, [("OBJ".to_owned(), json!("ACTIVE"))]);
    api.refuse("/datastreams/OBJ");
    fixture.repository.set_behaviour(Behaviour::Normal);
    let hidden = [("OBJ".to_owned(), json!("EMBARGOED"))];
    until("the lookup is repeated", async || fixture.states().await == hidden).await;
    // Further attempts say nothing new, and wait for one another.
    let changes = fixture.gateway.changes().await.len();
    let (began, requests) = (Instant::now(), fixture.repository.requests().len());
    until("the lookup is repeated again", async || fixture.repository.requests().len() > requests + 6).await;
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!((fixture.gateway.changes().await.len(), changes), (2, 2));
    // A lifted embargo counts as well.
    api.embargo("demo:1", None, 3);
    until("the embargo is lifted", async || fixture.states().await == [("OBJ".to_owned(), json!("ACTIVE"))]).await;
}

/// The embargo moves with an event about RELS-EXT, and the list of the datastreams does not answer.
#[tokio::test]
async fn fedora_3_embargo_counts_although_the_list_of_datastreams_is_not_known_yet() {
    let fixture = Fedora3Fixture::new("best-effort").await;
    let api = &fixture.repository.api;
    api.ingest("demo:1");
    api.write("demo:1", "RELS-EXT", "text/xml", 1);
    api.refuse("/datastreams");
    fixture.embargo(2, Some("2098-01-02T00:00:00Z")).await;
    let change = fixture.gateway.changes().await.pop().unwrap();
    assert_eq!((&change["lookup"], &change["items"][0]["stateAfter"]), (&json!("incomplete"), &json!("EMBARGOED")));
}

/// The same with a profile that does not answer. The list names a datastream that the registry has never had.
#[tokio::test]
async fn fedora_3_embargo_of_a_repeated_lookup_makes_no_item() {
    let fixture = Fedora3Fixture::new("best-effort").await;
    let api = &fixture.repository.api;
    api.ingest("demo:1");
    api.write("demo:1", "OBJ", "text/xml", 1);
    api.write("demo:1", "RELS-EXT", "text/xml", 1);
    fixture.repository.set_behaviour(Behaviour::Status(503));
    fixture.embargo(2, Some("2098-01-02T00:00:00Z")).await;
    api.refuse("/datastreams/RELS-EXT");
    fixture.repository.set_behaviour(Behaviour::Normal);
    let hidden = [("RELS-EXT".to_owned(), json!("EMBARGOED"))];
    until("the lookup is repeated", async || fixture.states().await == hidden).await;
    let items = fixture.gateway.changes().await.pop().unwrap()["items"].clone();
    assert_eq!(items.as_array().unwrap().len(), 1, "{items}");
}
