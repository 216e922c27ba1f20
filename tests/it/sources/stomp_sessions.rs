//! A session of thirty operations on five objects, sent to ActiveMQ by an independent client in random order.
//! The registry ends in the state of the repository, and each operation makes one change. Fedora 3 sends each
//! message from a separate thread, and Fedora 6 sends the events of a transaction in any order. Islandora's
//! events have no time, so those of one object stay in order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::{
    activemq::Broker,
    amqp_source::until_head,
    fake_fedora6::REST,
    fedora3_messages::{BASE, Call},
    gateway::Gateway,
    python::Repository,
    stomp_source::start_with,
};

pub(crate) const OBJECTS: usize = 5;
pub(crate) const STEPS: usize = 6;

const CONTAINER: &str = "http://www.w3.org/ns/ldp#BasicContainer";

/// Item of a change: name, change type, state after, content URL.
type ItemSummary = (String, String, String, String);

/// Present items of the registry by name: state and content URL.
type RegistryItems = BTreeMap<String, (String, String)>;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn item_summaries(change: &Value) -> ItemSummary {
    let item = &change["items"][0];
    let [uri, kind, after, content] =
        [&item["uri"], &item["change"], &item["stateAfter"], &item["content"]["url"]].map(text);
    (uri, kind, after, content)
}

/// Sends the messages in random order; with `in_turn` those of one object stay in order. Returns the gateway
/// once all are in its journal. `lines` are added to the table of the source.
#[expect(clippy::print_stderr, reason = "prints the seed, with which a failed run can be repeated")]
pub(crate) async fn run_session(
    dialect: &str,
    messages: Vec<(usize, Value, String)>,
    in_turn: bool,
    lines: &str,
) -> (tempfile::TempDir, Gateway) {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("{dialect}: SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut messages: Vec<_> = messages.into_iter().map(|message| (random.u64(..), message)).collect();
    if in_turn {
        // The random places of an object are reassigned to its messages in order.
        let mut places: Vec<_> = messages.iter().map(|(place, (object, ..))| (*object, *place)).collect();
        places.sort_unstable();
        messages.sort_by_key(|(_, (object, ..))| *object);
        messages.iter_mut().zip(places).for_each(|(message, (_, place))| message.0 = place);
    }
    messages.sort_by_key(|(place, _)| *place);
    let messages: Vec<_> = messages.into_iter().map(|(_, (_, headers, body))| (headers, body)).collect();

    let broker = Broker::shared();
    let (queue, folder) = (format!("/queue/{}", broker.name()), tempfile::tempdir().unwrap());
    let gateway = start_with(folder.path(), &broker.url(), &queue, dialect, lines);
    Repository::start(broker.port, &queue, &messages, folder.path()).wait();
    until_head(&gateway, messages.len() as u64).await;
    assert_eq!(gateway.json("/quarantine").await["messages"], json!([]));
    (folder, gateway)
}

pub(crate) async fn registry_items(gateway: &Gateway, object: &str) -> (String, RegistryItems) {
    let details = gateway.json(&format!("/objects?uri={object}")).await;
    let live = details["items"].as_array().unwrap().iter().filter(|item| item["live"] == true);
    let item = |item: &Value| (text(&item["uri"]), (text(&item["state"]), text(&item["content"]["url"])));
    (text(&details["parent"]), live.map(item).collect())
}

/// Returns the API-M methods of a step on an object, with their parameters and return values.
pub(crate) fn operation(
    object: usize,
    step: usize,
) -> (&'static str, &'static [(&'static str, &'static str)], Option<&'static str>) {
    const DC: (&str, &str) = ("dsID", "DC");
    const OBJ: (&str, &str) = ("dsID", "OBJ");
    const A: (&str, &str) = ("dsState", "A");
    const I: (&str, &str) = ("dsState", "I");
    const CONTENT: (&str, &str) = ("dsContent", "[OMITTED]");
    match (step, object) {
        (1, _) => ("addDatastream", &[DC, A], Some("DC")),
        (2, _) | (5, 3) => ("modifyDatastreamByValue", &[DC, CONTENT], None),
        (3, _) => ("addDatastream", &[OBJ, I], Some("OBJ")),
        (4, 0..=2) => ("setDatastreamState", &[DC, I], None),
        (4, 3) => ("purgeDatastream", &[OBJ, ("startDT", "null"), ("endDT", "null")], Some("[OMITTED]")),
        (4, _) | (5, 0) => ("setDatastreamState", &[OBJ, A], None),
        (5, 1) => ("modifyDatastreamByValue", &[OBJ, CONTENT], None),
        (5, 2) => ("addRelationship", &[("relationship", "info:x"), ("object", "info:fedora/demo:9")], Some("true")),
        (5, _) => ("purgeObject", &[("logMessage", "null")], None),
        _ => ("ingest", &[("logMessage", "null")], None),
    }
}

/// Returns the time of a step: the first steps of all objects come first, then the second ones, and so on.
pub(crate) fn time_of(object: usize, step: usize) -> usize {
    1 + step * OBJECTS + object
}

/// Returns the messages of the session, each with its object and its headers.
pub(crate) fn session_of_fedora_3() -> Vec<(usize, Value, String)> {
    let mut messages = Vec::new();
    for (object, step) in (0..OBJECTS).flat_map(|object| (0..STEPS).map(move |step| (object, step))) {
        let (method, parameters, returned) = operation(object, step);
        let pid = format!("demo:{object}");
        let returned = returned.or((method == "ingest").then_some(&pid));
        let call = Call { number: time_of(object, step) as u64, method, pid: &pid, parameters, returned };
        messages.push((object, json!({ "methodName": method, "pid": pid }), call.message()));
    }
    messages
}

#[tokio::test]
async fn fedora_3_session_out_of_order_ends_in_the_repository_state() {
    let (_folder, gateway) = run_session("fedora-apim", session_of_fedora_3(), false, "").await;

    let item = |object: usize, name: &str| format!("{BASE}/objects/demo:{object}/datastreams/{name}/content");
    let version = |object: usize, name: &str, step: usize| {
        format!("{}?asOfDateTime=2026-03-01T10:00:{:02}.125Z", item(object, name), time_of(object, step))
    };
    let [active, inactive, none] = ["ACTIVE", "INACTIVE", "-"].map(str::to_owned);
    for object in 0..OBJECTS {
        let uri = format!("{BASE}/objects/demo:{object}");
        let itself = (uri.clone(), (none.clone(), none.clone()));
        let [dc, obj, rels] = ["DC", "OBJ", "RELS-EXT"].map(|name| item(object, name));
        let (first, last) = (version(object, "DC", 2), version(object, "DC", 5));
        let expected: RegistryItems = match object {
            0 => [itself, (dc, (inactive.clone(), first)), (obj.clone(), (active.clone(), obj))].into(),
            1 => [itself, (dc, (inactive.clone(), first)), (obj, (inactive.clone(), version(object, "OBJ", 5)))].into(),
            2 => [
                itself,
                (dc, (inactive.clone(), first)),
                (obj.clone(), (inactive.clone(), obj)),
                (rels.clone(), (active.clone(), rels)),
            ]
            .into(),
            3 => [itself, (dc, (active.clone(), last))].into(),
            _ => [].into(),
        };
        assert_eq!(registry_items(&gateway, &uri).await.1, expected, "{uri}");
    }

    let changes = gateway.changes().await;
    let by_event: BTreeMap<_, _> = changes.iter().map(|change| (text(&change["sourceEventId"]), change)).collect();
    for (object, step) in (0..OBJECTS).flat_map(|object| (0..STEPS).map(move |step| (object, step))) {
        let id = format!("urn:uuid:00000000-0000-4000-8000-{:012x}", time_of(object, step));
        let change = by_event[&id];
        assert_eq!(change["object"], format!("{BASE}/objects/demo:{object}"));
        let (method, parameters, _) = operation(object, step);
        assert_eq!(change["description"], method);
        let parameter = |name| parameters.iter().find(|(held, _)| *held == name).map(|(_, value)| *value);
        let Some(name) = parameter("dsID") else { continue };
        let state = parameter("dsState")
            .map_or(none.clone(), |state| if state == "A" { active.clone() } else { inactive.clone() });
        let (kind, content) = match method {
            "addDatastream" => ("ADD", item(object, name)),
            "modifyDatastreamByValue" => ("UPDATE", version(object, name, step)),
            "purgeDatastream" => ("DELETE", none.clone()),
            _ => ("-", none.clone()),
        };
        assert_eq!(item_summaries(change), (item(object, name), kind.to_owned(), state, content), "{change:#}");
    }
    assert!(gateway.stop().success());
}

/// Returns the type of the event for a resource or node; the last event of some is a deletion.
pub(crate) fn kind(object: usize, step: usize) -> &'static str {
    match step {
        0 => "Create",
        5 if object >= 3 => "Delete",
        _ => "Update",
    }
}

/// Returns the events of a session of Fedora 6.
pub(crate) fn session_of_fedora_6() -> Vec<(usize, Value, String)> {
    let (rest, container) = (REST, CONTAINER);
    let mut messages = Vec::new();
    for (object, step) in (0..OBJECTS).flat_map(|object| (0..STEPS).map(move |step| (object, step))) {
        let (kind, number) = (kind(object, step), time_of(object, step));
        let path = format!("/collection/{object}");
        // Delete events have no types.
        let types = if kind == "Delete" { json!([]) } else { json!([container, "http://www.w3.org/ns/prov#Entity"]) };
        let body = json!({
            "id": format!("urn:uuid:00000000-0000-4000-8000-{number:012x}"),
            "type": [kind],
            "name": format!("{} resource", kind.to_lowercase()),
            "published": format!("2026-03-01T10:00:{number:02}.500Z"),
            "actor": [{ "type": "Person", "id": "info:fedora/local-user#fedoraAdmin" }],
            "object": { "id": format!("{rest}{path}"), "type": types, "isPartOf": rest },
            "@context": [
                "https://www.w3.org/ns/activitystreams",
                { "prov": "http://www.w3.org/ns/prov#", "dcterms": "http://purl.org/dc/terms/", "type": "@type", "id": "@id",
                  "isPartOf": { "@id": "dcterms:isPartOf", "@type": "@id" } },
            ],
        });
        let headers = json!({
            "org.fcrepo.jms.identifier": path,
            "org.fcrepo.jms.baseURL": rest,
            "org.fcrepo.jms.eventType": format!("https://www.w3.org/ns/activitystreams#{kind}"),
            "org.fcrepo.jms.eventID": body["id"],
            "org.fcrepo.jms.timestamp": "1772359200500",
        });
        messages.push((object, headers, body.to_string()));
    }
    messages
}

#[tokio::test]
async fn fedora_6_session_out_of_order_ends_in_the_repository_state() {
    let (rest, container) = (REST, CONTAINER);
    let (_folder, gateway) = run_session("fedora-events", session_of_fedora_6(), false, "").await;
    for object in 0..OBJECTS {
        let uri = format!("{rest}/collection/{object}");
        let live = [(uri.clone(), ("-".to_owned(), uri.clone()))];
        let expected: RegistryItems = if object < 3 { live.into() } else { [].into() };
        assert_eq!(registry_items(&gateway, &uri).await, (rest.to_owned(), expected), "{uri}");
    }
    let changes = gateway.changes().await;
    let mut found: Vec<_> = changes
        .iter()
        .map(|change| (text(&change["time"]), text(&change["object"]), item_summaries(change).1))
        .collect();
    found.sort();
    let all = (0..STEPS).flat_map(|step| (0..OBJECTS).map(move |object| (object, step)));
    let words = |kind| match kind {
        "Create" => "ADD",
        "Delete" => "DELETE",
        _ => "UPDATE",
    };
    // Only the registry knows that the event that arrives first is not the first event of its resource.
    let expected = all.map(|(object, step)| {
        let (at, uri) =
            (format!("2026-03-01T10:00:{:02}.500Z", time_of(object, step)), format!("{rest}/collection/{object}"));
        (at, uri, words(kind(object, step)).to_owned())
    });
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((&found.0, &found.1), (&expected.0, &expected.1));
        assert!(found.2 == expected.2 || (found.2 == "ADD" && expected.2 == "UPDATE"), "{found:?}, {expected:?}");
    }
    assert_eq!(changes.iter().map(|change| text(&change["parent"])).collect::<BTreeSet<_>>(), [rest.to_owned()].into());
    let typed = |change: &Value| change["types"].as_array().is_some_and(|types| types.contains(&json!(container)));
    assert!(changes.iter().all(|change| typed(change) || item_summaries(change).1 == "DELETE"), "{changes:#?}");
    assert!(gateway.stop().success());
}

#[tokio::test]
async fn islandora_session_with_mixed_objects_ends_in_the_repository_state() {
    let mut messages = Vec::new();
    let object_uri = |object: usize| format!("urn:uuid:1f0c6c5e-3b0a-4f5d-9a55-{object:012x}");
    let page = |object: usize| format!("http://localhost:8000/node/{object}?_format=jsonld");
    let target = "http://localhost:8080/fcrepo/rest";
    for (object, step) in (0..OBJECTS).flat_map(|object| (0..STEPS).map(move |step| (object, step))) {
        let kind = kind(object, step);
        let body = json!({
            "@context": "https://www.w3.org/ns/activitystreams",
            "actor": { "type": "Person", "id": "urn:uuid:0b3c5f0e-58f1-4c38-8b5e-6d6f3a1c2d4e" },
            "object": {
                "id": object_uri(object),
                "url": [{ "name": "JSONLD", "type": "Link", "href": page(object), "mediaType": "application/ld+json", "rel": "alternate" }],
                "isNewVersion": step == 3,
            },
            "target": target,
            "type": kind,
            "summary": format!("{kind} a Node"),
        });
        messages.push((object, json!({ "Authorization": "Bearer hush-hush" }), body.to_string()));
    }
    let (folder, gateway) = run_session("islandora", messages, true, "").await;
    for object in 0..OBJECTS {
        let live = [(page(object), ("-".to_owned(), page(object)))];
        let expected: RegistryItems = if object < 3 { live.into() } else { [].into() };
        assert_eq!(registry_items(&gateway, &object_uri(object)).await, (target.to_owned(), expected), "{object}");
    }
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for change in gateway.changes().await {
        found.entry(text(&change["object"])).or_default().push(item_summaries(&change).1);
    }
    for (object, kinds) in (0..OBJECTS).map(|object| (object, &found[&object_uri(object)])) {
        let last = if object < 3 { "UPDATE" } else { "DELETE" };
        assert_eq!(kinds, &["ADD", "UPDATE", "UPDATE", "UPDATE", "UPDATE", last]);
    }
    assert!(gateway.stop().success());
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!log.contains("hush"), "the credential of a message is in the log");
}
