//! Destinations that follow the standard through random histories: with withdrawn, deleted and purged items, a clock that
//! jumps, restarts and kills.

use std::collections::BTreeSet;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, command, free_address},
    journal_fixture::configuration,
    resourcesync_reader::{Baseline, Destination, replay},
    run_length::lengthened,
    shifted_clock::{set_clock, shift_clock_by_file},
    subscription_fixture::post_event,
    views_fixture::token,
};

const OPEN: &str = "http://h.example/open/";

/// Number of rounds of a history.
const ROUNDS: usize = 12;

/// Makes a random event about one of a few objects.
fn random_event(rng: &mut Rng, number: usize) -> Value {
    let object = format!("http://h.example/{}/{}", ["open", "closed"][rng.usize(..2)], rng.usize(..25));
    let item = format!("{object}/{}?a&b", rng.usize(..3));
    let state = ["ACTIVE", "INACTIVE", "UNAVAILABLE"][rng.usize(..3)];
    let content =
        json!({ "url": format!("{item}&v={number}"), "mediaType": "text/plain; charset=utf-8", "size": number });
    let items = match rng.usize(..12) {
        0..3 => json!([{ "uri": item, "change": "DELETE" }]),
        3..5 => json!([{ "uri": item, "stateAfter": state }]),
        5 => json!([{ "uri": item, "change": "UPDATE", "content": content }]),
        6 => json!([{ "uri": item, "change": "ADD" }, { "uri": object, "change": "ADD", "stateAfter": state }]),
        _ => json!([{ "uri": item, "change": "ADD", "content": content, "stateAfter": state }]),
    };
    let mut event = json!({ "object": object, "items": items, "sourceEventId": format!("event {number}") });
    // Some arrive late.
    if rng.usize(..4) == 0 {
        event["time"] = json!(format!("2024-01-{:02}T00:00:00.000Z", rng.usize(1..29)));
    }
    if rng.usize(..25) == 0 {
        event = json!({ "object": object, "purge": true, "sourceEventId": format!("event {number}") });
    }
    event
}

/// Returns the public items of the objects whose URI has this prefix.
async fn registry(gateway: &Gateway, prefix: &str) -> BTreeSet<String> {
    let (mut all, mut path) = (BTreeSet::new(), "/snapshot?limit=1000".to_owned());
    loop {
        let request = gateway.http.get(format!("{}{path}", gateway.url)).bearer_auth("tdg_admin");
        let page: Value = request.send().await.unwrap().json().await.unwrap();
        for object in page["objects"].as_array().unwrap() {
            let items = object["items"].as_array().unwrap().iter();
            let is_public = |item: &&Value| item["state"].as_str().is_none_or(|state| state != "INACTIVE");
            if object["uri"].as_str().unwrap().starts_with(prefix) {
                all.extend(items.filter(is_public).map(|item| item["uri"].as_str().unwrap().to_owned()));
            }
        }
        let Some(next) = page["next"].as_str() else { return all };
        path = format!("/snapshot?limit=1000&after={next}");
    }
}

/// A destination with all resource lists that it has read.
struct Reader {
    destination: Destination,
    prefix: &'static str,
    baselines: Vec<Baseline>,
}

impl Reader {
    fn new(token: Option<&str>, query: &str, prefix: &'static str) -> Self {
        Self { destination: Destination::new(token, query), prefix, baselines: Vec::new() }
    }

    /// Reads everything. Each resource list, whenever its index and its parts were read, leads to the registry.
    async fn check(&mut self, gateway: &Gateway) {
        let registry = registry(gateway, self.prefix).await;
        self.baselines.push(self.destination.baseline(gateway).await);
        let (from, changes) = self.destination.changes(gateway).await;
        for baseline in &self.baselines {
            assert!(from <= baseline.at, "nothing has been removed");
            assert_eq!(replay(&baseline.resources, baseline.at, &changes), registry, "since {}", baseline.at);
            let parts = self.destination.parts(gateway, &baseline.parts, baseline.at).await.unwrap();
            assert_eq!(replay(&parts, baseline.at, &changes), registry, "since {}", baseline.at);
        }
        assert_eq!(self.baselines.last().unwrap().resources, registry);
        assert_eq!(replay(&BTreeSet::new(), from, &changes), registry, "the whole history");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destinations_have_the_registry_after_any_history() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let (data, clock) = (folder.path().join("data"), folder.path().join("clock"));
    let public = "[access.public]\nsurfaces = [\"resourcesync\"]\nobjects = [\"http://h.example/open/\"]\n";
    let partner = token("partner", "read", "view = { objects = [\"http://h.example/closed/\"] }");
    let lines = [&token("admin", "admin", ""), &partner, public].concat();
    let config = configuration(folder.path(), &lines);
    let address = free_address();
    let start = |seconds: i64| {
        let mut serve = command();
        shift_clock_by_file(&mut serve, &clock, seconds);
        Gateway::start_as(serve, &data, &["--listen", &address, "--config", &config])
    };
    let (mut seconds, mut latest) = (0, 0);
    let mut gateway = start(seconds);
    let mut readers = [
        Reader::new(Some("tdg_admin"), "", "http://h.example/"),
        Reader::new(None, "", OPEN),
        Reader::new(Some("tdg_partner"), "", "http://h.example/closed/"),
        Reader::new(Some("tdg_admin"), "?object=http%3A%2F%2Fh.example%2Fopen%2F", OPEN),
    ];
    let mut number = 0;
    for _ in 0..lengthened(ROUNDS) {
        for _ in 0..[0, 1, 40, 150][rng.usize(..4)] {
            number += 1;
            let event = random_event(&mut rng, number).to_string();
            let request = gateway.http.post(format!("{}/hooks/content-change", gateway.url)).bearer_auth("tdg_admin");
            let response = request.header("content-type", "application/json").body(event).send().await.unwrap();
            assert!(response.status().is_success(), "{}", response.text().await.unwrap());
        }
        for reader in &mut readers {
            reader.check(&gateway).await;
        }
        match rng.usize(..5) {
            0 => seconds -= rng.i64(0..100_000),
            1..4 => seconds += rng.i64(0..200_000),
            _ => {}
        }
        set_clock(&clock, seconds);
        latest = latest.max(seconds);
        match rng.usize(..4) {
            0 => {
                gateway.kill();
                gateway = start(seconds);
            }
            1 => {
                assert!(gateway.stop().success());
                gateway = start(seconds);
            }
            _ => {}
        }
    }
    // However the clock went, a midnight passes after a change, and before another one.
    for day in 1..=2 {
        set_clock(&clock, latest + day * 100_000);
        let object = format!("{OPEN}midnight/{day}");
        let event = json!({ "object": object, "items": [{ "uri": format!("{object}/item"), "change": "ADD" }] });
        let request = gateway.http.post(format!("{}/hooks/content-change", gateway.url)).bearer_auth("tdg_admin");
        let request = request.header("content-type", "application/json").body(event.to_string());
        assert_eq!(request.send().await.unwrap().status(), 201);
        for reader in &mut readers {
            reader.check(&gateway).await;
        }
    }
    assert!(readers[0].destination.closed_lists() > 0, "the clock has passed no midnight");
}

/// Only the result counts: a destination that reads while everything changes has the registry when it reads the changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_list_that_is_read_during_changes_is_exact_with_the_changes_since_then() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = std::sync::Arc::new(Gateway::start(folder.path()));
    let mut rng = Rng::with_seed(9);
    for number in 0..200 {
        post_event(&gateway, &random_event(&mut rng, number)).await;
    }
    let posting = {
        let gateway = std::sync::Arc::clone(&gateway);
        tokio::spawn(async move {
            for number in 200..600 {
                post_event(&gateway, &random_event(&mut rng, number)).await;
            }
        })
    };
    let mut destination = Destination::default();
    let mut baselines = Vec::new();
    while !posting.is_finished() {
        baselines.push(destination.baseline(&gateway).await);
    }
    posting.await.unwrap();
    let registry = registry(&gateway, "http://h.example/").await;
    let (_, changes) = destination.changes(&gateway).await;
    for baseline in &baselines {
        assert_eq!(replay(&baseline.resources, baseline.at, &changes), registry, "since {}", baseline.at);
    }
    assert!(baselines.len() > 1);
}
