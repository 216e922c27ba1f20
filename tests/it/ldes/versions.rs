//! The newest versions of the objects, by `ldes:versionTimestampPath`, are what the registry has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::public::members;
use crate::support::views_fixture::ViewedGateway;

/// Number of objects of a history.
const OBJECTS: usize = 25;

/// Posts a random history of objects that are items themselves, in which many events are late. The environment variable
/// `SEED` repeats a failed one.
#[expect(clippy::print_stderr, reason = "prints the seed, with which a failed run can be repeated")]
async fn live_through(gateway: &ViewedGateway, events: usize) {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for at in 0..events {
        let object = format!("http://h/objects/{}", rng.usize(..OBJECTS));
        let kind = rng.usize(..9);
        // A late purge does not say what it leaves.
        let is_late = kind < 8 && rng.bool();
        let minute = (at * 50 / events).saturating_sub(if is_late { rng.usize(..20) } else { 0 });
        let item = match kind {
            0 | 1 => json!({ "uri": object, "change": "ADD" }),
            2 => json!({ "uri": object, "change": "ADD", "stateAfter": "INACTIVE" }),
            3 => json!({ "uri": object, "change": "UPDATE", "content": { "url": format!("{object}/{at}") } }),
            4 | 5 => json!({ "uri": object, "change": "DELETE" }),
            6 => json!({ "uri": object, "stateAfter": "ACTIVE" }),
            _ => json!({ "uri": object, "stateAfter": "INACTIVE" }),
        };
        let mut change =
            json!({ "object": object, "time": format!("2026-01-02T03:{minute:02}:00.001Z"), "items": [item] });
        if kind == 8 {
            change["purge"] = json!(true);
            change["items"] = json!([]);
        }
        gateway.post(&change).await;
    }
}

/// Returns the objects that exist by the newest version of each.
fn newest_versions(members: &[Value]) -> BTreeSet<String> {
    let mut newest: BTreeMap<&str, ((&str, u64), bool)> = BTreeMap::new();
    for member in members {
        let version = (member["version"].as_str().unwrap(), member["seq"].as_u64().unwrap());
        let exists = member["type"] != "as:Delete";
        let entry = newest.entry(member["object"].as_str().unwrap()).or_insert((version, exists));
        if version > entry.0 {
            *entry = (version, exists);
        }
    }
    newest.into_iter().filter(|(_, (_, exists))| *exists).map(|(object, _)| object.to_owned()).collect()
}

async fn registry(gateway: &ViewedGateway, reader: Option<&str>) -> BTreeSet<String> {
    let page = gateway.get("/snapshot?limit=1000", reader).await.json();
    page["objects"].as_array().unwrap().iter().map(|object| object["uri"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newest_versions_are_the_registry_after_late_changes() {
    let gateway = ViewedGateway::start("[access.public]\nsurfaces = [\"ldes\", \"snapshot\"]\n");
    live_through(&gateway, 500).await;
    for reader in [None, Some("reader")] {
        let members = members(&gateway, reader).await;
        assert_eq!(newest_versions(&members), registry(&gateway, reader).await, "{reader:?}");
    }
    let whole = members(&gateway, Some("reader")).await;
    assert!(whole.iter().any(|member| member["late"] == true), "no change is late");
}
