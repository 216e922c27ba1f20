//! A reader that walks the stream by the algorithm of the API has what the registry has.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{gateway::Gateway, iiif_walk::walk};

/// Posts a change of an object at a minute after three o'clock.
async fn post(gateway: &Gateway, object: &str, minute: usize, more: Value) {
    let time = format!("2026-01-02T{:02}:{:02}:00.001Z", 3 + minute / 60, minute % 60);
    let mut change = json!({ "object": object, "time": time });
    change.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (status, answer) = gateway.post("content-change", "application/json", change.to_string()).await;
    assert!(matches!(status, 200 | 201), "{change}: {answer}");
}

/// Posts a random history of many objects in an hour, with deletions, purges, returns, late events and parts.
#[expect(clippy::print_stderr, reason = "prints the seed, with which a failed run can be repeated")]
async fn live_through(gateway: &Gateway, hour: usize, events: usize, objects: usize) {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for at in 0..events {
        let object = format!("http://h/objects/{}", rng.usize(..objects));
        // Some events come late. A late purge does not say what it leaves.
        let kind = rng.usize(..8);
        let is_late = kind < 7 && rng.bool();
        let minute = (at * 50 / events).saturating_sub(if is_late { rng.usize(..20) } else { 0 });
        let itself = |change: &str| json!({ "items": [{ "uri": object, "change": change }] });
        let part = format!("{object}/part");
        let more = match kind {
            0..3 => itself("ADD"),
            3 => itself("UPDATE"),
            4 => json!({ "items": [{ "uri": object, "change": "ADD" }, { "uri": part, "change": "ADD" }] }),
            5 => json!({ "items": [{ "uri": object, "change": "DELETE" }, { "uri": part, "change": "DELETE" }] }),
            6 => json!({ "items": [{ "uri": object, "stateAfter": if rng.bool() { "ACTIVE" } else { "INACTIVE" } }] }),
            _ => json!({ "purge": true, "items": [] }),
        };
        post(gateway, &object, 60 * hour + minute, more).await;
    }
}

/// Returns the objects that exist.
async fn registry(gateway: &Gateway) -> BTreeSet<String> {
    let (mut all, mut after) = (BTreeSet::new(), String::new());
    loop {
        let page = gateway.json(&format!("/snapshot?limit=1000{after}")).await;
        let objects = page["objects"].as_array().unwrap().iter();
        all.extend(objects.map(|object| object["uri"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { return all };
        after = format!("&after={next}");
    }
}

#[tokio::test]
async fn walk_gives_the_content_of_the_registry() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let url = format!("{}/iiif", gateway.url);
    assert_eq!(walk(&url, None, None).unwrap().included, BTreeSet::new(), "an empty journal");
    live_through(&gateway, 0, 450, 40).await;
    assert!(gateway.head().await > 200, "several pages");
    let first = walk(&url, None, None).unwrap();
    assert_eq!(first.included, registry(&gateway).await);
    assert!(!first.removed.is_empty() && first.included.is_disjoint(&first.removed));

    // A reader that comes again reads what is new alone, and has the registry again.
    let since = gateway.changes().await.last().unwrap()["received"].as_str().unwrap().to_owned();
    let seen = gateway.head().await;
    live_through(&gateway, 1, 130, 40).await;
    let mut copy = first.included;
    let again = walk(&url, Some(&since), None).unwrap();
    copy.retain(|object| !again.removed.contains(object));
    copy.extend(again.included.iter().cloned());
    assert_eq!(copy, registry(&gateway).await);
    let after = gateway.json(&format!("/changes?after={}&limit=1000", seen - 1)).await;
    let changes = after["changes"].as_array().unwrap().iter();
    let changed: BTreeSet<_> = changes.map(|change| change["object"].as_str().unwrap()).collect();
    assert!(again.included.len() + again.removed.len() <= changed.len(), "it reads no older activities");
}

#[tokio::test]
async fn page_of_late_changes_has_an_activity_that_readers_do_not_process() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let object = "http://h/1";
    post(&gateway, object, 59, json!({ "items": [{ "uri": object, "change": "DELETE" }] })).await;
    for minute in 0..2 {
        for second in 0..50 {
            let time = format!("2026-01-02T02:{minute:02}:{second:02}.001Z");
            let item = json!({ "uri": object, "change": "UPDATE", "content": { "url": format!("http://h/{minute}/{second}") } });
            post(&gateway, object, 0, json!({ "time": time, "items": [item] })).await;
        }
    }
    assert_eq!(gateway.head().await, 101);
    let collection = gateway.json("/iiif").await;
    let last = collection["last"]["id"].as_str().unwrap().strip_prefix(&gateway.url).unwrap().to_owned();
    let page = gateway.json(&last).await;
    let activities = page["orderedItems"].as_array().unwrap();
    assert_eq!((activities.len(), &activities[0]["object"]["id"]), (1, &collection["id"]), "{page}");
    // The late changes bring nothing back.
    let read = walk(&format!("{}/iiif", gateway.url), None, None).unwrap();
    assert_eq!((read.included.len(), read.removed), (0, [object.to_owned()].into()));
}
