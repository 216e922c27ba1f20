//! Embargoes that a lookup finds in the RELS-EXT of a Fedora 3, because its messages have none.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::announced;
use crate::{
    lookups::fedora3,
    support::{
        fake_fedora3::{self, FakeFedora3, Fedora3},
        fake_repository::{Behaviour, FakeRepository},
        fedora3_messages::{BASE, Call},
        gateway::Gateway,
        journal_fixture::configuration,
        nodes_fixture::until,
    },
};

/// Predicate of the module Scholar Embargo of Islandora 7.
const EMBARGO_UNTIL: &str = "info:islandora/islandora-system:def/scholar#embargo-until";

struct Fedora3Fixture {
    _folder: TempDir,
    repository: FakeFedora3,
    gateway: Gateway,
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
