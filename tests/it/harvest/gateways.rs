//! Harvests of other gateways: trees, loops, restarts, and readers that come too late.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidings::web::Secret;

use crate::support::{
    gateway::{Gateway, PATIENCE, free_address},
    journal_fixture::configuration,
};

const PUBLISHER: &str = "[sources.repo]\ntransport = \"http\"\ndialect = \"content-change\"\n";

/// Returns the configuration of sources that harvest the gateways at these addresses.
fn harvesting(gateways: &[(&str, &str)]) -> String {
    let source = |(name, address): &(&str, &str)| {
        format!("[sources.{name}]\ntransport = \"gateway\"\ndialect = \"gateway\"\nurl = \"http://{address}\"\n")
    };
    gateways.iter().map(source).collect()
}

/// Returns the configuration of a source that harvests the feed of the gateway at this address.
fn feed_of(address: &str) -> String {
    let url = format!("http://{address}/feed");
    format!("[sources.edge]\ntransport = \"feed\"\ndialect = \"content-change\"\nurl = \"{url}\"\nevery = \"1s\"\n")
}

/// A gateway that can be restarted at its address.
struct Node {
    address: String,
    folder: TempDir,
    lines: String,
    gateway: Gateway,
}

impl Node {
    fn start(lines: &str) -> Self {
        Self::start_at(free_address(), lines)
    }

    fn start_at(address: String, lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let gateway = Self::launch(&address, folder.path(), lines);
        Self { address, folder, lines: lines.to_owned(), gateway }
    }

    fn launch(address: &str, folder: &Path, lines: &str) -> Gateway {
        let config = configuration(folder, lines);
        Gateway::start_elsewhere(&folder.join("data"), &["--listen", address, "--config", &config], None)
    }

    /// Kills the gateway, and starts it again.
    fn kill(&mut self) {
        self.gateway.kill();
        self.gateway = Self::launch(&self.address, self.folder.path(), &self.lines);
    }

    async fn report(&self, event: &Value) {
        let (status, response) = self.gateway.post("repo", "application/json", event.to_string()).await;
        assert!(status < 300, "{response}");
    }

    /// Reports this number of random events about a few objects of the node, some of them late.
    async fn report_random(&self, random: &mut fastrand::Rng, prefix: &str, events: usize) {
        self.report_events(random, prefix, events, true).await;
    }

    /// Reports this number of random events. None is late, because a snapshot has one time for all facts of an item: a
    /// reader that began with it takes an event for late that is newer than one of these facts alone.
    async fn report_random_in_order(&self, random: &mut fastrand::Rng, prefix: &str, events: usize) {
        self.report_events(random, prefix, events, false).await;
    }

    async fn report_events(&self, random: &mut fastrand::Rng, prefix: &str, events: usize, some_late: bool) {
        for _ in 0..events {
            let object = format!("urn:{prefix}:{}", random.u8(..6));
            let uri = format!("{object}:{}", random.u8(..3));
            let content = json!({ "url": format!("http://h/{}", random.u32(..)) });
            let item = match random.u8(..8) {
                0 => json!({ "uri": uri, "change": "DELETE" }),
                1 => json!({ "uri": uri, "stateAfter": "INACTIVE" }),
                2 => json!({ "uri": uri, "stateAfter": "ACTIVE" }),
                3 => json!({ "uri": uri, "change": "UPDATE", "content": content, "stateAfter": "ACTIVE" }),
                4 | 5 => json!({ "uri": uri, "change": "UPDATE", "content": content }),
                _ => json!({ "uri": uri, "change": "ADD", "content": content }),
            };
            let mut event = match random.u8(..10) {
                0 => json!({ "object": object, "purge": true }),
                _ => json!({ "object": object, "items": [item], "types": [format!("urn:type:{}", random.u8(..2))] }),
            };
            // An older event is late. A purge is not, because a report without news can save an item from an older purge,
            // and no change says so.
            if some_late && event.get("purge").is_none() && random.bool() {
                let time = chrono::Utc::now() - chrono::TimeDelta::milliseconds(random.i64(0..2000));
                event["time"] = json!(time.to_rfc3339());
            }
            self.report(&event).await;
        }
    }

    /// Returns the registry by object, without the times of purges and the sources.
    async fn registry(&self) -> BTreeMap<String, Value> {
        let snapshot = self.gateway.json("/snapshot?limit=1000").await;
        let objects = snapshot["objects"].as_array().unwrap().iter();
        let object = |object: &Value| {
            let mut object = object.clone();
            // A copy that begins with the snapshot does not take over the time of a purge. Its source is its harvest.
            object.as_object_mut().unwrap().retain(|member, _| !["purged", "source"].contains(&member.as_str()));
            (object["uri"].as_str().unwrap().to_owned(), object)
        };
        objects.map(object).collect()
    }

    /// Returns the changes of a source, without the facts that each journal sets itself.
    async fn changes_of(&self, source: &str) -> Vec<Value> {
        let mut changes = self.gateway.changes().await;
        changes.retain(|change| change["source"] == source);
        for change in &mut changes {
            let change = change.as_object_mut().unwrap();
            for member in ["seq", "source", "sourceEventId", "received"] {
                change.remove(member);
            }
        }
        changes
    }

    /// Waits until the registry equals that of another node.
    async fn wait_for_registry(&self, other: &Self) {
        let began = Instant::now();
        loop {
            let (own, others) = (self.registry().await, other.registry().await);
            if own == others {
                return;
            }
            if began.elapsed() > PATIENCE {
                let differs = |(uri, object): &(&String, &Value)| others.get(*uri) != Some(*object);
                let different: Vec<_> =
                    own.iter().filter(differs).map(|(uri, object)| (object, others.get(uri))).collect();
                panic!("{} and {} objects; {different:#?}", own.len(), others.len());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the newest run of a source has failed, and returns the reason.
    async fn wait_for_failure(&self, source: &str) -> String {
        let began = Instant::now();
        loop {
            let harvest = self.gateway.json(&format!("/harvests/{source}")).await;
            if harvest["run"]["state"] == "failed" {
                return harvest["run"]["reason"].as_str().unwrap().to_owned();
            }
            assert!(began.elapsed() < PATIENCE, "{harvest}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until a source of a node has as many changes as another source of another node.
async fn wait_for_changes((node, source): (&Node, &str), (other, others): (&Node, &str)) {
    let began = Instant::now();
    while node.changes_of(source).await.len() < other.changes_of(others).await.len() {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn tree_of_gateways_has_every_change_once_and_in_order_through_kills() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut edges = [Node::start(PUBLISHER), Node::start(PUBLISHER)];
    let mut union = Node::start(&harvesting(&[("north", &edges[0].address), ("south", &edges[1].address)]));
    let mut copy = Node::start(&harvesting(&[("union", &union.address)]));
    for round in 0..6 {
        for (edge, prefix) in edges.iter().zip(["north", "south"]) {
            edge.report_random(&mut random, prefix, 40).await;
        }
        match round % 4 {
            0 => union.kill(),
            1 => copy.kill(),
            2 => edges[round / 4].kill(),
            _ => {}
        }
    }
    for (edge, source) in edges.iter().zip(["north", "south"]) {
        wait_for_changes((&union, source), (edge, "repo")).await;
        assert_eq!(union.changes_of(source).await, edge.changes_of("repo").await);
    }
    copy.wait_for_registry(&union).await;
    // The union had no change when the copy began, so the copy has its whole journal.
    let ids = |changes: Vec<Value>| changes.iter().map(|change| change["id"].to_string()).collect::<Vec<_>>();
    let (all, copied) = (ids(union.gateway.changes().await), ids(copy.gateway.changes().await));
    assert_eq!(all, copied);
}

#[tokio::test]
async fn copy_begins_with_the_registry_and_comes_back_after_retention() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut edge = Node::start(PUBLISHER);
    edge.report_random(&mut random, "x", 150).await;
    let mut copy = Node::start(&harvesting(&[("edge", &edge.address)]));
    copy.wait_for_registry(&edge).await;
    let snapshot = copy.gateway.head().await;
    edge.report_random_in_order(&mut random, "x", 60).await;
    copy.wait_for_registry(&edge).await;
    assert!(copy.gateway.head().await > snapshot);

    let read = edge.gateway.head().await;
    // The copy is away while the edge deletes objects, and forgets the changes.
    copy.gateway.kill();
    for number in 0..3 {
        // Without a time, an equal report is a duplicate.
        let time = chrono::Utc::now().to_rfc3339();
        edge.report(&json!({ "object": format!("urn:x:{number}"), "purge": true, "time": time })).await;
    }
    edge.report_random_in_order(&mut random, "y", 60).await;
    edge.lines = format!("{PUBLISHER}[journal]\nkeep_changes = 5\n");
    edge.kill();
    let began = Instant::now();
    let next = format!("{}/changes?after={read}", edge.gateway.url);
    while edge.gateway.http.get(&next).send().await.unwrap().status() != StatusCode::GONE {
        assert!(began.elapsed() < PATIENCE, "nothing is removed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    copy.kill();
    copy.wait_for_registry(&edge).await;
    edge.report_random_in_order(&mut random, "y", 20).await;
    copy.wait_for_registry(&edge).await;
}

#[tokio::test]
async fn feed_of_a_gateway_gives_an_equal_registry_through_kills() {
    let mut random = fastrand::Rng::with_seed(23);
    let edge = Node::start(PUBLISHER);
    edge.report_random(&mut random, "x", 250).await;
    let mut copy = Node::start(&feed_of(&edge.address));
    for round in 0..4 {
        edge.report_random(&mut random, "x", 60 * round + 10).await;
        copy.kill();
    }
    wait_for_changes((&copy, "edge"), (&edge, "repo")).await;
    copy.wait_for_registry(&edge).await;
    let facts = |changes: Vec<Value>| {
        let fact = |change: &Value| {
            let items = change["items"].as_array().unwrap().iter();
            let items: Vec<_> = items.map(|item| (item["uri"].to_string(), item["change"].to_string())).collect();
            (change["id"].to_string(), items)
        };
        changes.iter().map(fact).collect::<Vec<_>>()
    };
    let expected = facts(edge.gateway.changes().await);
    assert!(expected.iter().any(|(_, items)| items.len() > 1));
    assert_eq!(facts(copy.gateway.changes().await), expected);
    assert_eq!(copy.gateway.json("/quarantine").await["messages"], json!([]));
}

#[tokio::test]
async fn feed_of_a_gateway_says_what_a_report_without_news_has_made_late() {
    let edge = Node::start(PUBLISHER);
    let report = |item: Value, seconds: i64| {
        let time = chrono::Utc::now() - chrono::TimeDelta::seconds(seconds);
        let parts = if item.is_null() { json!({ "purge": true }) } else { json!({ "items": [item] }) };
        let mut event = json!({ "object": "urn:o", "description": "a report", "time": time.to_rfc3339() });
        event.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        event
    };
    let state = |state: &str| json!({ "uri": "urn:i", "stateAfter": state });
    let add = |uri: &str| json!({ "uri": uri, "change": "ADD" });
    let delete = json!({ "uri": "urn:gone", "change": "DELETE" });
    // Each second report is no change, and the third one is older than it. A purge lists only the items that exist.
    for (item, seconds) in [(Value::Null, 90), (Value::Null, 70), (add("urn:early"), 80)] {
        edge.report(&report(item, seconds)).await;
    }
    for (item, seconds) in [(add("urn:purged"), 60), (Value::Null, 50), (add("urn:before"), 55)] {
        edge.report(&report(item, seconds)).await;
    }
    for (item, seconds) in [(add("urn:i"), 40), (state("INACTIVE"), 30), (state("INACTIVE"), 10), (state("ACTIVE"), 20)]
    {
        edge.report(&report(item, seconds)).await;
    }
    for (item, seconds) in [(add("urn:gone"), 40), (delete.clone(), 30), (delete, 10), (add("urn:gone"), 20)] {
        edge.report(&report(item, seconds)).await;
    }
    let copy = Node::start(&feed_of(&edge.address));
    wait_for_changes((&copy, "edge"), (&edge, "repo")).await;
    copy.wait_for_registry(&edge).await;
    assert_eq!(copy.changes_of("edge").await, edge.changes_of("repo").await);
    assert_eq!(edge.registry().await["urn:o"]["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn loop_of_gateways_repeats_no_change() {
    let (one, other) = (free_address(), free_address());
    let one = Node::start_at(one, &format!("{PUBLISHER}{}", harvesting(&[("other", &other)])));
    let other = Node::start_at(other, &format!("{PUBLISHER}{}", harvesting(&[("one", &one.address)])));
    let event = |name: &str| json!({ "object": format!("urn:{name}"), "items": [{ "uri": "urn:i", "change": "ADD" }] });
    one.report(&event("a")).await;
    other.report(&event("b")).await;
    for (node, from) in [(&one, "other"), (&other, "one")] {
        let began = Instant::now();
        while node.registry().await.len() < 2 {
            assert!(began.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // A further change arrives after everything that came back.
        let back = if from == "one" { &one } else { &other };
        back.report(&event(&format!("last-{from}"))).await;
        let began = Instant::now();
        while node.changes_of(from).await.len() < 2 {
            assert!(began.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(node.changes_of(from).await.len(), 2);
    }
    assert_eq!((one.gateway.head().await, other.gateway.head().await), (4, 4));
}

#[tokio::test]
async fn gateway_refuses_to_harvest_itself_and_what_is_no_gateway() {
    let own = free_address();
    let node = Node::start_at(own.clone(), &harvesting(&[("own", &own), ("wrong", &format!("{own}/feed"))]));
    let reason = node.wait_for_failure("own").await;
    assert_eq!(reason, "the url of the source leads to this gateway itself; remove the source");
    let reason = node.wait_for_failure("wrong").await;
    assert!(reason.starts_with("the gateway does not return the page (404 Not Found)"), "{reason}");
}

#[tokio::test]
async fn token_opens_a_gateway_and_appears_nowhere() {
    const TOKEN: &str = "tdg_a-reader-of-the-edge";
    let mut edge = Node::start(PUBLISHER);
    for number in 100..220 {
        let object = format!("urn:{number}");
        edge.report(&json!({ "object": object, "items": [{ "uri": "urn:i", "change": "ADD" }] })).await;
    }
    let digest = Secret::new(TOKEN).digest().to_hex();
    // The pages are smaller than the harvest asks for.
    let token = format!("[access.tokens.reader]\nsha256 = \"{digest}\"\nscopes = [\"read\"]\n");
    edge.lines = format!("{PUBLISHER}[limits]\npage = 50\n{token}");
    edge.kill();
    let harvest = harvesting(&[("edge", &edge.address)]);
    let refused = Node::start(&format!("{harvest}token = \"tdg_a-forged-token-of-the-edge\"\n"));
    let reason = refused.wait_for_failure("edge").await;
    assert!(reason.starts_with("the gateway refuses access (401 Unauthorized)"), "{reason}");
    assert!(reason.ends_with("Check the token of the source"), "{reason}");
    assert!(!refused.gateway.json("/harvests/edge").await.to_string().contains("forged"));
    let reader = Node::start(&format!("{harvest}token = \"{TOKEN}\"\n"));
    let began = Instant::now();
    while reader.registry().await.len() < 120 {
        assert!(began.elapsed() < PATIENCE, "{}", reader.gateway.json("/harvests/edge").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(reader.gateway.head().await, 120);
}
